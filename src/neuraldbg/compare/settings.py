"""The different settings of two runs, each with the first step at which it shows.

Only settings that a person made are compared here. A measured number, such as a loss, differs as a consequence.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.compare.code_lines import changes
from neuraldbg.compare.facts import ABOVE, CODE, OPTIONAL, TOLD
from neuraldbg.compare.scalars import scalar_pair, usual
from neuraldbg.nouns import FactKey
from neuraldbg.nouns.comparison import Setting, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neuraldbg.compare.layers import Matching
    from neuraldbg.nouns import RunInfo, RunRecord

SCALARS = {"lr": "learning rate", "clip_limit": "gradient clipping", "loss_scale": "loss scale"}
"""Titles of the scalars of a step that a person sets."""
COUNTS = {"batch_size": "batch size", "forwards": "forward passes a step", "backwards": "backward passes a step"}
"""Titles of the counts of a step: the last batch of an epoch may be a part of one, so that of the usual step counts."""
ALONE = ("clip_limit", "loss_scale")
"""Scalars among them that a program may not have."""
RANK = (
    "learning rate",
    "optimizer",
    "loss",
    "batch size",
    "input",
    "targets",
    "forward passes a step",
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
    "loss operations",
    "optimizer groups",
    "optimizer parameters",
    "order of the loop",
    "loss scale",
    "code",
    "compiled",
    "device",
    "seed",
    "version",
    "argument",
    "line",
    "script",
)
"""Prefixes of names, those that are likely to matter most first; a name belongs to its longest prefix."""
CLIPPING = "gradient clipping"
ABSENT = "none"
OWN = ("optimizer ", "schedule ", "loss reduction", "loss fed by", "targets dtype", "line of code")
"""Prefixes of settings that only some kinds of optimizers, schedulers and losses have, or only programs that call
something."""
LISTS = (CODE, "loss operations")
"""Prefixes of the settings that are lists: only their parts that differ are told."""
GROUPS = ("optimizer groups", "optimizer parameters", "optimizer lr (group ")
"""Prefixes of the settings that add_param_group changes during a run: what it adds stays, so that they are compared
later than at the first step also where not every step was read."""
SCRIPT = f"{CODE}the script"
PARTS = 6
"""Parts of one list that are told at most."""
_EXACT = Tolerance(1e-6, 0.0, "")


def differences(runs: tuple[RunRecord, RunRecord], layers: Matching, *, whole: bool = True) -> tuple[Setting, ...]:
    """Return every difference, ranked, then by step. With ``whole`` both runs were read at every step."""
    found = [*_scalars(runs), *_facts(runs, whole=whole), *_layers(runs, layers), *_infos(runs[0].info, runs[1].info)]
    compiled = _compiled(runs[0]), _compiled(runs[1])
    if compiled[0] is not None and compiled[1] is not None and compiled[0] != compiled[1]:
        found.append(Setting("compiled", compiled[0], compiled[1], 0))
        # The graph of the loss holds the compiled layers, or is one operation.
        found = [s for s in found if not s.name.startswith("loss operations")]
    if all(map(_code, runs)):
        found = [s for s in found if not s.name.startswith("line of code")]  # told with the code around it
    named = {setting.name for setting in found if setting.name in SCALARS.values()}
    # The largest rate among the groups is the scalar, which knows the step.
    found = [s for s in found if not (s.name.startswith("optimizer lr") and "learning rate" in named)]
    found = [s for s in _once(found) if s.one != s.other]
    return tuple(sorted(found, key=lambda s: (_rank(s.name), s.step, s.name, s.layer or "")))


def _once(found: Sequence[Setting]) -> list[Setting]:
    """Leave out what another setting says: lines of the script that a function holds, the limit of a clipping."""
    functions = {(s.one, s.other) for s in found if s.name.startswith(CODE) and s.name != SCRIPT}
    clipped = any(s.name == CLIPPING and isinstance(value, str) and value != ABSENT
                  for s in found for value in (s.one, s.other))  # fmt: skip
    return [
        s
        for s in found
        if not (s.name == SCRIPT and (s.one, s.other) in functions)
        and not (s.name == CLIPPING and clipped and {type(s.one), type(s.other)} & {int, float})
    ]


def _code(run: RunRecord) -> bool:
    """Return True if the lines of a function, or of the script, are recorded."""
    return any(kind.startswith((CODE, ABOVE)) for fact in run.facts_of(FactKey.PLACES.value) for kind in fact.value)


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
    for name, title in COUNTS.items():
        for stream in streams:
            one, other = (usual(run, name, stream) for run in runs)
            counted = None not in (one, other) and (name == "backwards" or (one and other))  # passes to train on
            if counted and one != other:
                yield Setting(f"{title}{f' of optimizer {stream}' if len(streams) > 1 else ''}", one, other, 0)


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
    known = {key for key in TOLD if key in OPTIONAL or all(run.facts_of(key) for run in runs)}
    several = tuple(any(len(getattr(run.info, part)) > 1 for run in runs) for part in ("models", "optimizers"))
    courses: list[dict[str, dict[int, Any]]] = [{}, {}]
    above: set[str] = set()
    for run, course in zip(runs, courses, strict=True):
        for fact in run.facts:
            if fact.key in known:
                for kind, value in TOLD[fact.key](fact.value, _of(fact.value, *several)):
                    name = kind.replace(ABOVE, CODE, 1)
                    above |= {name} if kind.startswith(ABOVE) else set()
                    course.setdefault(name, {}).setdefault(fact.step, ABSENT if value in (None, "") else value)
    coded = [_code(run) for run in runs]
    for name in dict.fromkeys((*courses[0], *courses[1])):
        one, other = courses[0].get(name, {}), courses[1].get(name, {})
        group = name.startswith("optimizer lr (group ") and "(group 0)" not in name
        if name.startswith(OWN) and not group and not (one and other):
            continue  # what has another type has settings of its own, and the types are told
        if name.startswith(CODE) and (not all(coded) or (name in above and not (one and other))):
            continue  # no line was read in one of the runs, or its training was called by another function
        for step in sorted({*one, *other}):
            if step > last:
                break
            values = _as_of(one, step), _as_of(other, step)
            if values[0] != values[1]:
                # The first values count from the start, since some facts are learnt late; an added group does not.
                early = step == min([*one, *other]) and not (group and not (one and other))
                yield from _told(name, *values, 0 if early else step)
            if values[0] != values[1] or not (whole or name.startswith(GROUPS)):
                break


def _told(name: str, one: Any, other: Any, step: int) -> Iterator[Setting]:
    """Yield what differs between two values: of lists, such as the lines of a function, each part of its own."""
    first, second = _listed(one), _listed(other)
    if first is None or second is None or not name.startswith(LISTS):
        yield Setting(name, one, other, step)
        return
    if name.startswith(CODE) and not (first and second):
        yield Setting(name, *_counts(len(first), len(second), " lines"), step)
        return
    if not name.startswith(CODE):
        found = SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
        parts = [(first[a:b], second[c:d]) for kind, a, b, c, d in found if kind != "equal"]
        both = [", ".join(one for part in parts for one in part[k]) or ABSENT for k in (0, 1)]
        yield Setting(name, both[0], both[1], step)
        return
    changed = changes(first, second)
    for before, after in changed[:PARTS]:
        yield Setting(name, " | ".join(before) or ABSENT, " | ".join(after) or ABSENT, step)
    if rest := changed[PARTS:]:
        lost, new = (sum(len(part[k]) for part in rest) for k in (0, 1))
        yield Setting(name, *_counts(lost, new, " more"), step)


def _listed(value: Any) -> tuple[str, ...] | None:
    """Return a value that is a list; of one that is absent an empty one, and None for any other."""
    if isinstance(value, tuple):
        return value
    return () if value == ABSENT else None


def _counts(one: int, other: int, unit: str) -> tuple[str, str]:
    return f"{one}{unit}" if one else ABSENT, f"{other}{unit}" if other else ABSENT


def _of(value: dict[str, Any], models: bool, optimizers: bool) -> str:
    """Write the model or optimizer of a fact; empty if both runs have only one."""
    if "model" in value and models:
        return f" of {value['model']}"
    return f" of optimizer {value['stream']}" if "stream" in value and optimizers else ""


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
        # Another version of NeuralDBG may keep other settings of a layer: what one run does not have is not known.
        for name in (name for name in one.settings if name in other.settings):
            if one.settings[name] != other.settings[name]:
                yield Setting(f"layer {name}", one.settings[name], other.settings[name], 0, path)
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
