"""The page of the API, made of the code: each public class with its signature, docstring, attributes and methods.

Inherited members are written where a reader looks for them: with the class that has them.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from docstring_markdown import as_markdown

import neuraldbg
from neuraldbg.config import CaptureSettings, RecordSettings, TriggerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

API_PAGE = """# API

Every public name, with its signature, its errors and an example. `import neuraldbg` has the classes that you make or
name yourself; those that an answer is made of are in the module that stands with them. This file is written from the
docstrings by `docs/capture.py`, and its examples are run by the tests. [In your own loop](python.md) shows most of the
names at work.

- **Steps** are optimizer steps, counted from 0, in every argument and answer. A record thins old steps: a value with a
  `width` of 8 covers 8 of them.
- **Layers** are named by their path in the model (`"0"`, `"encoder.fc"`) or by their type and place in the order of
  execution (`"linear1"`, `"conv2"`).
- **Units**: times are seconds, sizes bytes unless the name says `_mb`, norms are L2 norms, confidences are
  probabilities from 0 to 1, and shares lie between 0 and 1.
- **Errors**: all that NeuralDBG raises on purpose is a [`NeuralDbgError`](#neuraldbg.NeuralDbgError), and one
  `except NeuralDbgError` catches it. An index or a key that is not there is Python's `IndexError` or `KeyError`, as of
  any list or dictionary.

Names that begin with an underscore, and modules that are not named here, may change at any time.

The examples use these names:

```python
{setup}```
"""
SETUP = """
import numpy as np
import torch
from torch import nn

import neuraldbg
from neuraldbg import NeuralDbg, debug_session

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
inputs = torch.randn(40, 32, 8)


def train(steps=40):
    for x in inputs[:steps]:
        loss_fn(model(x), x.sum(dim=1, keepdim=True)).backward()
        optimizer.step()  # and optimizer.zero_grad() is missing


with NeuralDbg(model, out="runs/one", overhead=None) as dbg:
    train()
run = neuraldbg.load("runs/one")
""".lstrip()
API = {
    "A training that is watched": "neuraldbg: NeuralDbg",
    "A saved run": ("neuraldbg: load Run Job", "neuraldbg.job: Attempt"),
    "Answers": (
        "neuraldbg.nouns.explanations: Explanations",
        "neuraldbg.nouns: Chain ChainNode ChainEdge",
        "neuraldbg.answers: LayerState GradientHealth Coupling",
        "neuraldbg.nouns: Series",
    ),
    "The diagnosis": (
        "neuraldbg: Diagnosis Hypothesis Evidence",
        "neuraldbg.nouns: Remedy Edit CodeLine Observation Unjudged",
        "neuraldbg.nouns.rank_state: RankState",
        "neuraldbg: Event",
    ),
    "The comparison of two runs": (
        "neuraldbg: Comparison",
        "neuraldbg.nouns.comparison: Difference Trend Tolerance Setting LossPair HealthChange",
        "neuraldbg.nouns.comparison: LayerPair LayerSpan KindSpan Compared Drift",
    ),
    "The profile": (
        "neuraldbg.nouns.profile: Profile Bottleneck",
        "neuraldbg.nouns.facts.timing: TimingFact LayerTiming TimerTiming",
        "neuraldbg.nouns.facts.footprint: FootprintFact LayerFootprint",
        "neuraldbg.nouns.facts.growth: GrowthFact Survivors",
    ),
    "The health": (
        "neuraldbg.nouns.training_health: Health Deduction Recommendation ParameterEfficiency LayerParameters",
        "neuraldbg.nouns.training_dynamics: TrainingDynamics CurveDynamics Rate Plateau ExpectedEnd Stability",
        "neuraldbg.nouns.training_dynamics: LearningEfficiency GeneralisationGap Anomaly",
    ),
    "The record": (
        "neuraldbg.nouns: RunRecord RunInfo Outcome History",
        "neuraldbg: Step Site",
        "neuraldbg.nouns: Layout Layer Edge Fact Histograms",
    ),
    "The flight recorder's parts, by hand": "neuraldbg: HookManager RingBuffer TriggerEngine",
    "Hooks of your own": (
        "neuraldbg: register_hook Hook HookBuilder HookTrigger HookAction Condition",
        "neuraldbg.control.hook_moments: Context HookResult",
    ),
    "Alerts": "neuraldbg: Alerts Alert AlertSeverity",
    "Numbers by hand": (
        "neuraldbg: debug_session DebugSession DebugConfig DebugReport ModelArchitectureInfo ModelPerformanceMetrics",
        "neuraldbg.toolbox.tensor_inspector: TensorInspector TensorInfo TensorSummary",
        "neuraldbg.toolbox.tensor_statistics: TensorStatistics Histogram Outliers",
        "neuraldbg.toolbox.tensor_comparison: TensorComparison",
        "neuraldbg.toolbox.gradient_debugger: GradientDebugger GradientFlow LayerGradients",
        "neuraldbg.toolbox.model_diagnostics: ModelDiagnostics",
        "neuraldbg.toolbox.hand_hooks: HandHooks",
        "neuraldbg.toolbox.hand_profiler: HandProfiler",
        "neuraldbg.toolbox.session_plots: SessionPlots",
    ),
    "Pictures of your own numbers": "neuraldbg: TerminalVisualizer DebugVisualizer VisualizationConfig",
    "Errors": (
        "neuraldbg: NeuralDbgError TrainingHalted",
        "neuraldbg.errors: ConfigError AttachError UnknownLayer UnknownName UnknownStep UnknownCause",
        "neuraldbg.errors: RunFileError RunNotFound RunDamaged RunTooNew ExportFailed MissingExtra",
    ),
}
"""Sections of the page: the public names, by the module that a reader imports them from."""
ONLY = {"HookManager": {"attach", "reset_step", "act_norms", "grad_norms", "detach"}}
"""Of a class that the session uses as well: the members that are meant for use by hand."""
PLUMBING = {
    "NeuralDbg": {"busy", "problem", "remark"},
    "Run": {"versions", "known", "known_each", "streams"},
    "RunRecord": {"versions", "known", "known_each", "streams"},
    "Diagnosis": {"headline"},
    "Hook": {"due", "over", "run", "reads", "switch_off", "takes_tensor", "takes_value", "of_layers"},
    "Alerts": {"sinks"},
    "DebugConfig": {"fields", "completed", "replaced"},
    "GradientDebugger": {"record"},
    "HandHooks": {"start", "stop", "add", "do", "step_ended"},
    "HandProfiler": {"facts", "leave_out", "layer_types", "memory"},
    "HookTrigger": {"reads"},
    "Condition": {"names", "of_a_layer", "measured"},
    "Chain": {"worth_showing"},
    "Layout": {"following_ops", "rectified", "bounded"},
    "History": {"slabs"},
    "Fact": {"known"},
    "TimingFact": {"variant", "KEY"},
    "FootprintFact": {"variant", "KEY"},
    "GrowthFact": {"variant", "KEY"},
}
"""Members that only our own code asks for."""
CONFIG = """## Settings

`NeuralDbg(model, settings={{"capture": {{"every": 10}}, "record": {{"budget_mb": 256}}}})` changes settings by group:
{groups}. [Detectors and settings](detectors.md#settings) lists all of them with their defaults, and the thresholds of
the detectors. An unknown name or a value out of range is a `ConfigError`, which lists the valid ones.
"""
WIDE = 88
"""Columns of a signature in one line."""


class Member(NamedTuple):
    """An attribute or a method of a class."""

    name: str
    doc: str
    signature: str
    """Signature of a method; "" of an attribute."""
    type: str
    """Type of an attribute; "" of a method."""


def public() -> Iterator[tuple[str, str, str]]:
    """Yield section, module and name of each public class or function."""
    for title, entries in API.items():
        for entry in (entries,) if isinstance(entries, str) else entries:
            module, _, names = entry.partition(": ")
            for name in names.split():
                yield title, module, name


def api_page() -> str:
    """Return the page. Raises ValueError if a name of ``neuraldbg.__all__`` is missing in it."""
    listed = {name for _, module, name in public() if module == "neuraldbg"}
    if listed != set(neuraldbg.__all__):
        message = f"API of docs/api_page.py and neuraldbg.__all__ differ: {sorted(listed ^ set(neuraldbg.__all__))}"
        raise ValueError(message)
    parts = [API_PAGE.format(setup=SETUP)]
    last = ""
    for title, module, name in public():
        if title != last:
            parts.append(f"## {title}\n")
        last = title
        parts += _entry(module, name)
    groups = (CaptureSettings, RecordSettings, TriggerSettings)
    told = (
        f"`{one.__name__.removesuffix('Settings').lower()}` ({_sentence(one.__doc__ or '')[:-1].lower()})"
        for one in groups
    )
    parts.append(CONFIG.format(groups=", ".join(told)))
    return "\n".join(parts)


def members(thing: type) -> list[Member]:
    """Return the public members of a class, its own first, then those that it inherits from classes of ours."""
    found: dict[str, Member] = {}
    for cls in thing.__mro__:
        if cls.__module__.startswith("neuraldbg"):
            for member in _own(cls):
                found.setdefault(member.name, member)
    only, not_these = ONLY.get(thing.__name__), PLUMBING.get(thing.__name__, set())
    return [one for name, one in found.items() if name not in not_these and (only is None or name in only)]


def _own(cls: type) -> Iterator[Member]:
    """Yield the public members that a class itself defines, in the order of its source."""
    source = textwrap.dedent(inspect.getsource(cls))
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    for one, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            doc = ast.get_docstring(one) or ""
            marks = {getattr(mark, "id", "") for mark in one.decorator_list}
            if marks & {"property", "cached_property"}:
                yield Member(one.name, doc, "", _text(source, one.returns))
            else:
                yield Member(one.name, doc, _signature(one, source, inspect.getmodule(cls)), "")
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            told = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            told = told or getattr(getattr(cls, "fields", {}).get(one.target.id), "description", "")  # of a setting
            yield Member(one.target.id, inspect.cleandoc(str(told)), "", _text(source, one.annotation))


def _entry(module: str, name: str) -> Iterator[str]:
    """Yield the parts of one class or function."""
    thing = getattr(import_module(module), name)
    yield f'<a id="{module}.{name}"></a>\n\n### {name}\n'
    if not isinstance(thing, type):
        (tree,) = ast.parse(source := textwrap.dedent(inspect.getsource(thing))).body
        assert isinstance(tree, ast.FunctionDef)
        signature = _signature(tree, source, inspect.getmodule(thing))
        yield f"```python\n{module}.{signature}\n```\n\n{_markdown(thing.__doc__)}\n"
        return
    all_of_them = members(thing)
    yield f"{_made(thing, module)}\n{_markdown(thing.__doc__)}\n"
    attributes = [one for one in all_of_them if not one.signature]
    if attributes:
        rows = [f"| `{one.name}` | {_type(one.type)} | {_cell(_markdown(one.doc))} |" for one in attributes]
        yield "\n".join(("| attribute | type | what it is |", "|---|---|---|", *rows, ""))
    for one in all_of_them:
        if one.signature:
            yield f'<a id="{name}.{one.name}"></a>\n\n#### {name}.{one.name}\n'
            yield f"```python\n{one.signature}\n```\n{_answer(one.signature)}\n{_markdown(one.doc)}\n"


def _answer(signature: str) -> str:
    """Return a line that leads to the classes of a method's answer; "" if it is of Python's own."""
    homes = {name: module for _, module, name in public()}
    found = [name for name in re.findall(r"\w+", signature.rpartition(" -> ")[2]) if name in homes]
    return f"\nResult: {', '.join(f'[`{name}`](#{homes[name]}.{name})' for name in found)}\n" if found else ""


def _type(annotation: str) -> str:
    """Return the type of an attribute for a cell, as a link if there is an entry for a class in it."""
    homes = {name: module for _, module, name in public()}
    found = next((name for name in re.findall(r"\w+", annotation) if name in homes), "")
    text = f"`{_cell(annotation)}`"
    return f"[{text}](#{homes[found]}.{found})" if found else text


def _made(thing: type, module: str) -> str:
    """Return how a class is made, if a user makes it; of an error its bases; else where it is found."""
    if issubclass(thing, BaseException):
        bases = ", ".join(f"`{base.__name__}`" for base in thing.__bases__)
        return f"`{module}.{thing.__name__}`, a kind of {bases}.\n"
    if thing.__name__ in MADE:
        source = textwrap.dedent(inspect.getsource(thing))
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.ClassDef)
        init = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        if init:
            return f"```python\n{_signature(init[0], source, inspect.getmodule(thing), thing.__name__)}\n```\n"
        fields = [ast.get_source_segment(source, one) or "" for one in tree.body if isinstance(one, ast.AnnAssign)]
        return f"```python\n{_call(thing.__name__, fields, '')}\n```\n"
    return f"Import it for annotations: `from {module} import {thing.__name__}`.\n"


MADE = {
    "NeuralDbg",
    "HookManager",
    "RingBuffer",
    "TriggerEngine",
    "TerminalVisualizer",
    "DebugVisualizer",
    "VisualizationConfig",
    "DebugSession",
    "DebugConfig",
    "ModelArchitectureInfo",
    "ModelPerformanceMetrics",
}
"""Classes of which a user makes objects."""


def _signature(one: ast.FunctionDef, source: str, module: Any, name: str = "") -> str:
    """Return the signature of a function as Python, without ``self``, one parameter a line if it is long."""
    args = one.args
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(args.defaults)), *args.defaults]
    pairs = list(zip(plain, defaults, strict=True))
    told = [_parameter(arg, default, source, module) for arg, default in pairs if arg.arg not in ("self", "cls")]
    if args.vararg:
        told.append(f"*{_parameter(args.vararg, None, source, module)}")
    elif args.kwonlyargs:
        told.append("*")
    told += [
        _parameter(arg, value, source, module) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    if args.kwarg:
        told.append(f"**{_parameter(args.kwarg, None, source, module)}")
    returns = "" if name or one.returns is None else f" -> {_text(source, one.returns)}"
    return _call(name or one.name, told, returns)


def _call(name: str, told: list[str], returns: str) -> str:
    line = f"{name}({', '.join(told)}){returns}"
    if len(line) <= WIDE:
        return line
    return "\n".join((f"{name}(", *(f"    {one}," for one in told), f"){returns}"))


def _parameter(arg: ast.arg, default: ast.expr | None, source: str, module: Any) -> str:
    text = f"{arg.arg}: {_text(source, arg.annotation)}" if arg.annotation else arg.arg
    if default is None:
        return text
    value = getattr(module, default.id, None) if isinstance(default, ast.Name) else None
    shown = f"{value}" if isinstance(value, (int, float)) else _text(source, default)  # OVERHEAD says nothing
    return f"{text} = {shown}"


def _text(source: str, node: ast.AST | None) -> str:
    return (
        "" if node is None else " ".join((ast.get_source_segment(source, node) or "").split()).replace("answers.", "")
    )


def _markdown(doc: str | None) -> str:
    text = inspect.cleandoc(doc or "").replace("::\n\n", ":\n\n")
    return re.sub(r"(?<!`)``(?!`)", "`", as_markdown(text))


def _sentence(doc: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(doc.split()))[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
