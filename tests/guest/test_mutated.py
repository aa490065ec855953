"""Thousands of damaged run files through every reader: 0 tracebacks, 0 hangs, 0 crashes.

A batch of mutants is read by a forked child that may take so much time and memory; what it cannot answer for, a hang or
a crash, is found by the number that it began with and did not end. A mutant is made anew by its number alone:
``mutants.make(bases, SEED, number, folder)``.
"""

# ruff: noqa: PT017
from __future__ import annotations

import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.families import some
from tests.guest import mutants, run_readers

from neuraldbg.nouns import FactKey
from neuraldbg.nouns.facts import MEMBERS
from neuraldbg.record import fact_shapes

SEED = 20261125
FAST, ALL, PARTS = 200, 2400, 11
BATCH = 100
BATCH_S, ONE_S = 240, 20
"""Seconds of the processor for a batch, and of the clock for one mutant; two busy cores count twice."""
MEMORY = 700 << 20
"""Bytes that a batch may take beyond what the process has: a picture takes a hundred."""
PROGRAMS = ("classifier", "sequence", "regression")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    root = tmp_path_factory.mktemp("bases")
    script = Path(mutants.__file__).with_name("base_runs.py")
    done = subprocess.run([sys.executable, script, root], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [mutants.Base(root / name / "rank0.ndbg") for name in PROGRAMS]


def read_batch(bases, numbers, folder, told):
    """Make mutants and read them, in a process of its own; tell of each when it begins and what became of it."""
    resource.setrlimit(resource.RLIMIT_CPU, (BATCH_S, BATCH_S))
    with open("/proc/self/statm") as pages:
        room = int(pages.read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    os.chdir(folder)
    with os.fdopen(told, "w", buffering=1) as out:
        for number in numbers:
            own = folder / str(number)
            own.mkdir()
            file, how, base = mutants.make(bases, SEED, number, own)
            (own / "whole.ndbg").write_bytes(base.bytes)
            out.write(json.dumps([number, how]) + "\n")
            what, wrong = run_readers.through(
                file, own, run_readers.drawn_lots(random.Random(f"{SEED}:{number}:readers"))
            )
            out.write(json.dumps([number, how, what, wrong]) + "\n")
            shutil.rmtree(own)


def read_all(bases, numbers, folder):
    """Read mutants in batches; return how many there were of each kind and end, and what went wrong."""
    counts, wrong = Counter(), []
    numbers = list(numbers)
    while numbers:
        batch, rest = numbers[:BATCH], numbers[BATCH:]
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(receiving)
                read_batch(bases, batch, folder, sending)
                status = 0
            finally:
                os._exit(status)
        os.close(sending)
        begun, ended = None, set()
        with os.fdopen(receiving) as told:
            while select.select([told], [], [], ONE_S * 3)[0] and (line := told.readline()):
                number, how, *end = json.loads(line)
                if end:
                    ended.add(number)
                    counts[end[0]] += 1
                    counts[how.partition(" of ")[0]] += 1
                    wrong += [f"mutant {number}, {how}: {said}" for said in end[1]]
                else:
                    begun = number, how
        if len(ended) < len(batch):
            os.kill(child, signal.SIGKILL)
            wrong.append(f"mutant {begun}: hangs, or ended the process")
            rest = [number for number in batch if number not in ended and number != begun[0]] + rest
            shutil.rmtree(folder / str(begun[0]), ignore_errors=True)
        os.waitpid(child, 0)
        numbers = rest
    return counts, wrong


def held(bases, numbers, folder, record_property):
    began = time.process_time()
    counts, wrong = read_all(bases, numbers, folder)
    total = counts["refused"] + counts["read"]
    record_property("guest: run files", {"mutants": total, "refused": counts["refused"], "read": counts["read"],
                                         "tracebacks, hangs or crashes": len(wrong)})  # fmt: skip
    print(f"\n{total:,} mutants of run files: {dict(counts)}, {time.process_time() - began:.0f} s")
    assert wrong == []
    assert total == len(numbers)
    assert min(counts["refused"], counts["read"]) > total / 10
    return counts


def test_mutated_run_files(bases, tmp_path, record_property):
    counts = held(bases, range(FAST), tmp_path, record_property)
    assert set(mutants.KINDS) <= set(counts)


@pytest.mark.slow
@pytest.mark.parametrize("part", some(range(PARTS), PARTS))
def test_thousands_of_mutated_run_files(part, bases, tmp_path, record_property):
    held(bases, range(FAST + part, ALL, PARTS), tmp_path, record_property)


# ---------------------------------------------------------------- facts


def test_there_is_a_fact_of_every_kind_and_all_of_them_fit():
    assert {key for key, _ in mutants.FACTS} == {key.value for key in FactKey} == set(MEMBERS)
    for key, value in mutants.FACTS:
        fact_shapes.fitting(key, value)


def test_what_a_fact_is_mutated_to_fits_or_is_named():
    """Nothing else than a ValueError comes of it, and that begins with the kind of the fact."""
    draw, counts = random.Random(SEED), Counter()
    for _ in range(60):
        for key, value in mutants.FACTS:
            try:
                fact_shapes.fitting(key, mutants.changed(value, draw))
                counts["fits"] += 1
            except ValueError as error:
                assert str(error).startswith(key)
                assert len(str(error)) < 400
                counts[type(error).__name__] += 1
    assert min(counts[name] for name in ("fits", "ValueError", "Lacking")) > 100, counts
