"""The different settings of two runs, each with the first step at which it shows.

Only settings that a person made are compared here. A measured number, such as a loss, differs as a consequence.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.compare.facts import TOLD
from neuraldbg.compare.scalars import scalar_pair
from neuraldbg.nouns.comparison import Setting, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.compare.layers import Matching
    from neuraldbg.nouns import RunInfo, RunRecord

SCALARS = {
    "lr": "learning rate",
    "batch_size": "batch size",
    "backwards": "backward passes a step",
    "clip_limit": "gradient clipping",
    "loss_scale": "loss scale",
}
"""Titles of the scalars of a step that a person sets."""
ALONE = ("clip_limit", "loss_scale")
"""Scalars among them that a program may not have."""
RANK = (
    "learning rate",
    "optimizer",
    "loss",
    "batch size",
    "input",
    "targets",
    "backward passes a step",
    "autocast",
    "dtype",
    "gradient scaler",
    "training mode",
    "parameter",
    "layer",
    "gradient clipping",
    "schedule",
    "weight decay",
    "momentum",
    "order of the loop",
    "loss scale",
    "compiled",
    "device",
    "seed",
    "version",
    "argument",
    "line",
    "script",
)
"""Prefixes of names, those that are likely to matter most first; a name belongs to its longest prefix."""
ABSENT = "none"
_EXACT = Tolerance(1e-6, 0.0, "")


def differences(runs: tuple[RunRecord, RunRecord], layers: Matching, *, whole: bool = True) -> tuple[Setting, ...]:
    """Return every difference, ranked, then by step. With ``whole`` both runs were read at every step."""
    found = [*_scalars(runs), *_facts(runs, whole=whole), *_layers(runs, layers), *_infos(runs[0].info, runs[1].info)]
    compiled = _compiled(runs[0]), _compiled(runs[1])
    if compiled[0] is not None and compiled[1] is not None and compiled[0] != compiled[1]:
        found.append(Setting("compiled", compiled[0], compiled[1], 0))
    named = {setting.name for setting in found if setting.name in SCALARS.values()}
    # The largest rate among the groups is the scalar, which knows the step.
    found = [s for s in found if not (s.name.startswith("optimizer lr") and "learning rate" in named)]
    return tuple(sorted(found, key=lambda s: (_rank(s.name), s.step, s.name, s.layer or "")))


def _compiled(run: RunRecord) -> bool | None:
    """Return True if outputs were read inside a compiled graph, where their dtype is unknown; None if none was read.

    A layer that was never called has no dtype either.
    """
    rows = run.layout.rows("activation")
    if not len(run.history) or not len(rows):
        return None
    read = np.any(run.history.stat(rows, "count", "max") > 0, axis=0)
    dtypes = [run.layout.sites[row].dtype for row, seen in zip(rows, read.tolist(), strict=True) if seen]
    return "" in dtypes if dtypes else None


def _rank(name: str) -> int:
    fits = [(len(entry), -k) for k, entry in enumerate(RANK) if name.startswith(entry)]
    return -max(fits)[1] if fits else len(RANK)


def _scalars(runs: tuple[RunRecord, RunRecord]) -> Iterator[Setting]:
    streams = sorted({*runs[0].streams} & {*runs[1].streams})
    for name, title in SCALARS.items():
        for stream in streams:
            pair = scalar_pair(runs, name, stream, _EXACT)
            if pair is None:
                continue
            at = np.flatnonzero(pair.beyond)
            if len(at):
                of = f" of optimizer {stream}" if len(streams) > 1 else ""
                first = int(at[0])
                step = int(pair.time.steps[first])
                yield Setting(f"{title}{of}", float(pair.one[first]), float(pair.other[first]), step)
        if name in ALONE:
            yield from _lone_scalar(runs, name, title)


def _lone_scalar(runs: tuple[RunRecord, RunRecord], name: str, title: str) -> Iterator[Setting]:
    """Yield a scalar that only one of the runs has."""
    series = [run.scalar(name) for run in runs]
    if len(series[0]) != 0 and len(series[1]) != 0:
        return
    for one in series:
        if len(one):
            values = [float(s.values[0]) if len(s) else ABSENT for s in series]
            yield Setting(title, values[0], values[1], int(one.steps[0]))


def _facts(runs: tuple[RunRecord, RunRecord], *, whole: bool) -> Iterator[Setting]:
    """Compare the settings in facts over the run, up to the last common step.

    Where steps were not read, the two runs see a change at different steps: then only the first values are compared.
    """
    last = min(run.steps for run in runs) - 1
    courses: list[dict[str, dict[int, Any]]] = [{}, {}]
    for run, course in zip(runs, courses, strict=True):
        for fact in run.facts:
            if fact.key in TOLD:
                for name, value in TOLD[fact.key](fact.value, _of(run, fact.value)):
                    course.setdefault(name, {}).setdefault(fact.step, value)
    for name in dict.fromkeys((*courses[0], *courses[1])):
        one, other = courses[0].get(name, {}), courses[1].get(name, {})
        if name.startswith("optimizer ") and not (one and other):
            continue  # optimizers of two types have settings of their own, and their types are told
        for step in sorted({*one, *other}):
            if step > last:
                break
            values = _as_of(one, step), _as_of(other, step)
            if values[0] != values[1]:
                yield Setting(name, *values, step)
            if values[0] != values[1] or not whole:
                break


def _of(run: RunRecord, value: dict[str, Any]) -> str:
    """Write the model or optimizer of a fact; empty if there is only one."""
    if "model" in value and len(run.info.models) > 1:
        return f" of {value['model']}"
    return f" of optimizer {value['stream']}" if "stream" in value and len(run.info.optimizers) > 1 else ""


def _as_of(course: dict[int, Any], step: int) -> Any:
    """Return the last value up to a step; the first value counts from the start, since some facts are learnt late."""
    if not course:
        return ABSENT
    before = [at for at in course if at <= step]
    return course[max(before) if before else min(course)]


def _layers(runs: tuple[RunRecord, RunRecord], layers: Matching) -> Iterator[Setting]:
    for path, twin in layers.pairs.items():
        one, other = runs[0].layout.by_path[path], runs[1].layout.by_path[twin]
        if one.leaf and one.type != other.type:
            yield Setting("layer", one.type, other.type, 0, path)
            continue
        for name in dict.fromkeys((*one.settings, *other.settings)):
            values = one.settings.get(name, ABSENT), other.settings.get(name, ABSENT)
            if values[0] != values[1]:
                yield Setting(f"layer {name}", *values, 0, path)
        if one.params != other.params:
            yield Setting("layer parameters", ", ".join(one.params), ", ".join(other.params), 0, path)
    for k in (0, 1):
        for path in layers.only[k] if any(layers.pairs) else ():
            kind = runs[k].layout.by_path[path].type
            yield Setting("layer", *((kind, ABSENT) if k == 0 else (ABSENT, kind)), 0, path)


def _infos(one: RunInfo, other: RunInfo) -> Iterator[Setting]:
    for name in ("device", "seed"):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            yield Setting(name, *values, 0)
    for name in dict.fromkeys((*one.versions, *other.versions)):
        versions = one.versions.get(name, ABSENT), other.versions.get(name, ABSENT)
        if versions[0] != versions[1]:
            yield Setting(f"version of {name}", *versions, 0)
    arguments = _arguments(one.argv), _arguments(other.argv)
    for name in dict.fromkeys((*arguments[0], *arguments[1])):
        values = arguments[0].get(name, ABSENT), arguments[1].get(name, ABSENT)
        if values[0] != values[1]:
            yield Setting(f"argument {name}", *values, 0)
    scripts = PurePath(one.script).name, PurePath(other.script).name
    if scripts[0] != scripts[1]:
        yield Setting("script", *scripts, 0)


def _arguments(argv: tuple[str, ...]) -> dict[str, str]:
    """Return options with their values, and other arguments by position."""
    found: dict[str, str] = {}
    plain = 0
    words = argv[1:]
    for word, following in pairwise((*words, "-")):
        if word.startswith("-") and word != "-":
            name, given, value = word.partition("=")
            found[name] = value if given else "given" if following.startswith("-") else following
        elif not (found and list(found.items())[-1][1] == word and list(found)[-1].startswith("-")):
            plain += 1
            found[f"{plain}"] = word
    return found
