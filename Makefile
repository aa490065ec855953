# `make demo` and `make test` are all that a fresh machine needs: they make the virtual environment themselves.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
PINS := constraints.txt

# The first Python here that runs and is new enough for the pins (the package itself needs 3.10, the pinned tools 3.11).
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
# Two test processes with one thread each use two cores without fighting over them.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
JOBS ?= 2

.DEFAULT_GOAL := help
# In their order, also under make -j: the tests already use all cores.
.NOTPARALLEL:
.PHONY: help demo test browser lint types arrows fast slow long bench accuracy docs site wheel pins clean

help: ## List what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST)

# ---------------------------------------------------------------- environment

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 with venv found: name one with make PYTHON=..." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# torch first and pinned: left to the dependencies, pip could fetch a build for graphics cards, gigabytes of it.
# The build backend comes along, pinned like the rest, instead of anew and unpinned for each build.
$(VENV)/.base: $(PINS) | $(BIN)/python
	@echo "Installing into $(VENV), which takes a minute or two ..."
	$(PIP) install --constraint $(PINS) torch numpy setuptools
	@touch $@

$(VENV)/.dev: pyproject.toml $(PINS) $(VENV)/.base
	$(PIP) install --constraint $(PINS) --no-build-isolation --editable '.[dev]'
	@touch $@

# The tests of pages drive a real browser. Without one, and no right to install it, they are skipped and say so.
BROWSER := chromium
browser:
	@command -v $(BROWSER) >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
		&& echo "Installing $(BROWSER) for the tests of pages ..." && apt-get -qq update >/dev/null \
		&& DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(BROWSER) >/dev/null; } \
		|| echo "PAGES WILL NOT BE TESTED: there is no $(BROWSER), and it could not be installed" >&2

# Only the benchmark needs these. The pins hold, so that no tool brings another torch with it.
$(VENV)/.peers: $(VENV)/.dev
	$(PIP) install --constraint $(PINS) --no-build-isolation --editable '.[peers]'
	@touch $@

# ---------------------------------------------------------------- demo

demo: $(VENV)/.dev ## A training run that must fail, diagnosed: demo/doomed_digits and demo/crash.png
	@rm -rf demo && mkdir -p demo
	$(BIN)/neuraldbg run -o demo/doomed_digits --json demo/diagnosis.json examples/doomed_digits.py
	$(BIN)/neuraldbg plot demo/doomed_digits -o demo/crash.png
	@$(BIN)/python -c 'import json, sys; verdict = json.load(open("demo/diagnosis.json"))["verdict"]; \
		sys.exit(None if verdict == "failing" else f"demo broken: the verdict is {verdict!r}, not failing")'
	@test -s demo/crash.png && echo "The picture of the crash: demo/crash.png"

# ---------------------------------------------------------------- checks

test: lint types arrows fast slow ## Everything that the continuous integration runs

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

arrows: $(VENV)/.dev
	$(BIN)/lint-imports --no-logo

fast: $(VENV)/.dev browser ## The tests that take no training of more than a few seconds
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m "not slow and not long" -n $(JOBS) --dist loadfile --ignore=tests/faults
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m "not slow and not long" -n $(JOBS) tests/faults

# Exit status 5 is "no test selected".
slow: $(VENV)/.dev browser ## The tests that train for longer
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m "slow and not long" -n $(JOBS) --dist loadgroup || [ $$? -eq 5 ]

long: $(VENV)/.dev browser ## The rest: more of the families of which `make test` runs some
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m long -n $(JOBS) --dist loadgroup

# ---------------------------------------------------------------- rest

bench: $(VENV)/.peers ## What watching costs, beside other tools: writes docs/performance.md; an hour or so
	$(BIN)/python benchmarks/performance.py
	$(BIN)/python docs/capture.py --lists

accuracy: $(VENV)/.dev ## How often the diagnosis is right: fits the confidences, writes docs/accuracy.md; half an hour or more
	$(ONE_THREAD) $(BIN)/python benchmarks/accuracy.py --seeds 3 --fit
	$(ONE_THREAD) $(BIN)/python benchmarks/accuracy_ordinary.py

docs: $(VENV)/.dev ## Rerun the examples, the guides and the tutorial, and write what the documents quote
	$(BIN)/python docs/capture.py

site: $(VENV)/.dev ## The documents and all docstrings as a site: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "To read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

wheel: $(VENV)/.dev ## The wheel for this machine and the sdist: dist/
	@rm -rf build dist
	$(BIN)/python -m build --no-isolation

pins: $(VENV)/.dev ## Write the exact versions that are installed now into constraints.txt
	@test ! -e $(VENV)/.peers || { echo "The peers of make bench are installed, too: make clean first." >&2; exit 1; }
	@{ sed -n '/^#/p' $(PINS); $(BIN)/python -m pip freeze --all --exclude-editable | sed '/^pip==/d; s/+[a-z0-9.]*$$//'; } > $(PINS).new
	@mv $(PINS).new $(PINS)

clean: ## Remove what these commands made
	rm -rf $(VENV) demo build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
