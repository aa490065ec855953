"""The wheel and the sdist as somebody installs them who has no compiler: built, installed, used, and removed again.

Everything is built in a copy of the tree. The environments are empty ones that see torch and the other packages of this
one, and nothing of the package itself. No network is needed.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOOMED = ROOT / "examples" / "doomed_digits.py"
CHECK = ROOT / ".github" / "workflows" / "check_wheel.py"  # what the workflow checks, on each system
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", ".cache", "__pycache__", "build", "dist", "demo", "site",
    "neuraldbg-runs", "*.egg-info", "*.so",
)  # fmt: skip
HAS_COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) is not None


def call(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


class EmptyEnvironment:
    """A virtual environment that sees the packages of this one, without ours, and no compiler."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv")
        self.bin = folder / "venv" / "bin"
        self.home = folder / "home"
        self.home.mkdir()
        packages, others = folder / "packages", Path(importlib.util.find_spec("torch").origin).parents[1]
        packages.mkdir()
        for one in others.iterdir():
            if "neuraldbg" not in one.name.lower() and one.suffix not in {".pth", ".egg-link"}:
                (packages / one.name).symlink_to(one)
        (self.site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (self.site / "others.pth").write_text(f"{packages}\n")
        self.environment = {
            "PATH": str(self.bin), "CC": "/bin/false", "CXX": "/bin/false", "HOME": str(self.home),
            "NEURALDBG_STRICT": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "80", "LANG": "C.UTF-8",
        }  # fmt: skip
        assert shutil.which("cc", path=self.environment["PATH"]) is None

    def run(self, *command):
        return call(self.bin / command[0], *command[1:], env=self.environment, cwd=self.home.parent)

    def pip(self, command, *arguments):
        offline = ["--no-index", "--no-deps", "--no-build-isolation"] if command == "install" else []
        pip = (sys.executable, "-m", "pip", "--python", self.bin / "python", "--disable-pip-version-check")
        return call(*pip, command, *offline, *arguments, env=self.environment, cwd=self.home.parent)

    def files(self):
        return {path for path in self.bin.parent.rglob("*") if path.name != "__pycache__"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build an sdist from a copy of the tree, and a wheel from that sdist."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "tree", ignore=NOT_SOURCE)
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "tree")
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.slow
def test_the_wheel_holds_what_the_package_reads_and_the_sdist_what_builds_it(built):
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if name.startswith(("neural/", "neuraldbg/"))}
    package = ROOT / "src"
    read = {
        path.relative_to(package).as_posix()
        for part in ("neural", "neuraldbg")
        for path in (package / part).rglob("*")
        if path.is_file() and path.suffix not in {".c", ".h", ".so", ".pyc"}
    }
    native = {name for name in held if name.endswith(".so")}
    assert held - native == read
    if HAS_COMPILER:
        assert wheel.name.split("-")[2:4] == ["cp310", "abi3"], "one wheel for Python 3.10 and all later versions"
        assert native == {"neuraldbg/capture/_kernel.abi3.so", "neuraldbg/runner/_signals.abi3.so"}
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    needed = {"setup.py", "pyproject.toml", "constraints.txt", "CITATION.cff", "SECURITY.md", "mkdocs.yml", "Makefile"}
    assert names >= needed | {"src/neuraldbg/capture/kernel/module.c", "examples/doomed_digits.py", "docs/options.md"}
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []


@pytest.mark.slow
@pytest.mark.skipif(not HAS_COMPILER, reason="the native parts cannot be built here")
def test_the_wheel_is_installed_used_and_removed_without_a_compiler(built, tmp_path):
    place = EmptyEnvironment(tmp_path)
    before = place.files()
    place.pip("install", built[0])

    assert place.run("python", "-c", "import neuraldbg; print(neuraldbg.__file__)").startswith(str(place.site))
    place.run("python", CHECK, "native")
    shutil.copy(DOOMED, tmp_path / "doomed.py")
    assert "final loss" in place.run("neuraldbg", "run", "-o", "saved", "doomed.py")
    said = json.loads((tmp_path / "saved" / "diagnosis.json").read_text())
    assert (said["verdict"], said["hypotheses"][0]["cause"]) == ("failing", "lr_too_high")
    assert "lr_too_high" in place.run("neuraldbg", "explain", "saved")
    assert list(place.home.iterdir()) == [], "written outside the run folder"
    place.run("neuraldbg", "report", "saved")  # matplotlib draws it, and keeps its list of fonts in the home folder
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")
    version = call(sys.executable, "-c", VERSION, cwd=ROOT).strip()
    assert place.run("neuraldbg", "--version").strip() == f"neuraldbg {version}"
    assert place.run("python", "-c", "import neuraldbg; print(neuraldbg.__version__)").strip() == version

    place.pip("uninstall", "--yes", "neuraldbg")
    assert place.files() - before == set(), "left behind by pip uninstall"


@pytest.mark.slow
def test_the_sdist_is_installed_and_used_without_a_compiler(built, tmp_path):
    place = EmptyEnvironment(tmp_path)
    place.pip("install", "--no-cache-dir", built[1])
    assert list(place.site.rglob("*.so")) == []
    place.run("python", CHECK, "torch operators")


@pytest.mark.slow
def test_a_build_without_the_native_parts_runs_anywhere(tmp_path):
    shutil.copytree(ROOT, tmp_path / "tree", ignore=NOT_SOURCE)
    pure = {**os.environ, "NEURALDBG_KERNEL": "none"}
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "dist")
    call(*build, tmp_path / "tree", env=pure)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert [name for name in opened.namelist() if name.endswith(".so")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "compiler", "words"),
    [("required", "/bin/false", "/bin/false"), ("yes", None, "it may be 'required', 'none', or unset")],
)
def test_a_build_that_must_have_the_native_parts_fails_without_them(tmp_path, choice, compiler, words):
    shutil.copytree(ROOT, tmp_path / "tree", ignore=NOT_SOURCE)
    environment = {**os.environ, "NEURALDBG_KERNEL": choice, **({"CC": compiler} if compiler else {})}
    command = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")
    done = subprocess.run(command, cwd=tmp_path / "tree", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert words in done.stderr


# ---------------------------------------------------------------- what stands in files


VERSION = "import tomllib; print(tomllib.load(open('pyproject.toml', 'rb'))['project']['version'])"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_the_version_stands_in_one_place():
    version = call(sys.executable, "-c", VERSION, cwd=ROOT).strip()
    spelled = re.compile(rf"(?<![\w.=]){re.escape(version)}(?![\w.])")
    told = [ROOT / "setup.py", ROOT / "CITATION.cff", ROOT / "mkdocs.yml", *(ROOT / "src").rglob("*.py")]
    assert [path.name for path in told if spelled.search(_code(path))] == []


def _code(path):
    """Return a file's text; of Python its constants alone, since a docstring may well speak of some other 0.1.0."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    return "\n".join(str(node.value) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))


def test_every_extra_is_pinned():
    pinned = {
        re.split("[=<>~]", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    extras = re.search(
        r"^\[project.optional-dependencies\]\n(.*?)^# What `make bench`",
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )[1]
    asked = {name.lower() for name in re.findall(r'"([\w-]+)', extras)} - {"neuraldbg"}
    assert asked >= {"mkdocs", "mkdocs-material", "mkdocstrings", "build", "pytest"}
    assert asked - pinned == set(), "make pins"
