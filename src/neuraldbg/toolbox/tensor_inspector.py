"""The tensors of a session that are inspected by hand: tensors of any framework enter; ids, statistics, comparisons,
anomalies and memory leave.

Memory is bounded: by ``max_tracked`` infos and names, and by a budget of bytes for the values that are kept for
comparisons. Each inspected tensor becomes a row of a site, as if the live tool had read it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuraldbg import arguments
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import Site
from neuraldbg.nouns.html import shown
from neuraldbg.nouns.json import jsonable
from neuraldbg.nouns.measures import size
from neuraldbg.toolbox.debug_config import whole_in
from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.kept_values import KeptValues
from neuraldbg.toolbox.statistics_row import raw_row_of
from neuraldbg.toolbox.tensor_anomalies import AnomalyLog
from neuraldbg.toolbox.tensor_comparison import compare
from neuraldbg.toolbox.tensor_memory_log import MemoryLog
from neuraldbg.toolbox.tensor_statistics import TensorStatistics, statistics
from neuraldbg.toolbox.value_table import counted, html_table, text_table

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from neuraldbg.toolbox.given_arrays import Given
    from neuraldbg.toolbox.tensor_anomalies import TensorAnomaly
    from neuraldbg.toolbox.tensor_comparison import TensorComparison
    from neuraldbg.toolbox.tensor_memory_log import TensorMemory

SAMPLE = 4_096
"""Elements read of a tensor in steps in which tensors are not read whole: as many as the live tool reads of one."""
BUDGET = 64 * 2**20
"""Bytes of the values that are kept for comparisons."""
_SHOWN = 12
"""Anomalies in a summary."""

KINDS = {
    "forward": "activation", "activation": "activation", "output": "activation",
    "parameter": "param", "weight": "param", "param": "param",
    "gradient": "output_grad", "backward": "output_grad", "output_grad": "output_grad",
    "param_grad": "param_grad", "input": "input", "update": "update",
}  # fmt: skip
"""Kind of the site of each operation; any other operation is an activation under its own name."""
_OF_LAYERS = ("param", "param_grad", "update")


@dataclass(frozen=True)
class TensorInfo:
    """One inspected tensor.

    >>> session = debug_session()
    >>> info = session.tensor_inspector.get_tensor_info(session.tensor_inspector.inspect_tensor([1.0], "h", "fc1"))
    >>> info.stats.mean
    1.0
    """

    id: int
    """Its id: inspections are counted from 0."""
    name: str
    """Name that it was given."""
    layer: str | None
    """Path of its layer, None if none was given."""
    operation: str | None
    """``forward``, ``parameter``, ``gradient``, ...; None if none was given."""
    step: int
    """Step in which it was inspected."""
    stats: TensorStatistics
    """Its statistics at that time."""
    framework: str
    """Name of its framework: "numpy", "torch", "jax"; "python" for lists and scalars."""
    device: str
    """Place of its memory: "cpu", "cuda:0"."""
    alive: bool | None = None
    """True if the program still holds the object, at the time of the question; None for types that cannot be followed
    (lists, numbers)."""

    def __str__(self) -> str:
        """Return the name and the table of statistics."""
        return f"{self._head()}\n{self.stats}"

    def _head(self) -> str:
        place = f" of layer {self.layer}" if self.layer else ""
        kind = f", {self.operation}" if self.operation else ""
        return f"tensor {self.id}: {self.name}{place}{kind}, step {self.step:,}, {self.framework} on {self.device}"

    @shown
    def _repr_html_(self) -> str:
        """Render the name and the statistics as HTML for a notebook."""
        return html_table(self.stats.rows(), self._head())

    def to_dict(self) -> dict[str, Any]:
        """Return the info as strict JSON values.

        >>> info.to_dict()["stats"]["max"]
        1.0
        """
        plain = {one.name: jsonable(getattr(self, one.name)) for one in dataclasses.fields(self)}
        return {**plain, "stats": self.stats.to_dict()}


@dataclass(frozen=True, repr=False)
class TensorSummary:
    """All inspected tensors in a few lines.

    >>> session = debug_session()
    >>> inspector = session.tensor_inspector
    >>> number = inspector.inspect_tensor(float("nan"), "h")
    >>> summary = inspector.summary()
    >>> summary
    <TensorSummary: 1 tensor, 1 anomaly>
    """

    inspected: int
    """Number of tensors that were inspected."""
    kept: int
    """Number of infos that are kept: the newest."""
    sampled: int
    """Number of tensors of which only evenly spaced elements were read: NaN may have been missed in them."""
    steps: tuple[int, int] | None
    """First and last step of the inspections, None without any."""
    names: int
    """Number of names among the infos that are kept."""
    anomalies: tuple[TensorAnomaly, ...]
    """What was odd, in order of the first occurrence."""
    anomalies_dropped: int
    """Number of anomalies that were dropped because there were too many."""
    memory: TensorMemory
    """Bytes by name and layer, and objects that were never let go."""

    def lines(self) -> list[tuple[str, str]]:
        """Return name and value of each line of the table, as text.

        >>> summary.lines()[-1]
        ('anomaly', 'h: 1 of 1 elements read are NaN (at step 0)')
        """
        if self.steps is None:
            return [("tensors", "none inspected")]
        first, last = self.steps
        kept = "" if self.kept == self.inspected else f"; the newest {self.kept:,} are kept"
        found = [("tensors", f"{self.inspected:,} inspected, steps {first:,} to {last:,}{kept}")]
        if self.sampled:
            found.append(("sampled", f"{self.sampled:,} were read in part: NaN may have been missed in them"))
        found.append(
            ("memory", f"{size(self.memory.bytes)} in the last tensors of {counted(len(self.memory.names), 'name')}")
        )
        found += [("never let go", str(one)) for one in self.memory.leaks]
        odd = sorted(self.anomalies, key=lambda one: not one.serious)
        found += [("anomaly" if one.serious else "odd", str(one)) for one in odd[:_SHOWN]]
        more = max(len(odd) - _SHOWN, 0) + self.anomalies_dropped
        return found + [("", f"{more:,} more anomalies")] * (more > 0) + [("anomalies", "none")] * (not odd)

    def __repr__(self) -> str:
        odd = len(self.anomalies)
        return f"<TensorSummary: {counted(self.inspected, 'tensor')}, {odd:,} anomal{'y' if odd == 1 else 'ies'}>"

    def __str__(self) -> str:
        """Return a small table: a name and its value a line."""
        return text_table(self.lines())

    @shown
    def _repr_html_(self) -> str:
        """Render the table as HTML for a notebook."""
        return html_table(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as strict JSON values.

        >>> summary.to_dict()["anomalies"][0]["kind"]
        'nan'
        """
        return {one.name: jsonable(getattr(self, one.name)) for one in dataclasses.fields(self)}


class TensorInspector:
    """Inspects tensors that are handed over: ``session.tensor_inspector``.

    ``tell`` is called once for each tensor, with its site and the accumulators that the live tool would make of it.

    >>> session = debug_session()
    >>> inspector = session.tensor_inspector
    >>> number = inspector.inspect_tensor([[1.0, 2.0], [3.0, 4.0]], "h", "fc1", "forward")
    >>> inspector.get_tensor_info(number).stats.mean
    2.5
    """

    def __init__(
        self,
        *,
        max_tracked: int,
        sampling_rate: float,
        step: Callable[[], int],
        tell: Callable[[Site, npt.NDArray[np.float64]], None],
        budget: int = BUDGET,
        turn: Callable[[Site], None] = lambda _: None,
    ) -> None:
        if arguments.whole(max_tracked, "max_tracked") < 1:
            raise ConfigError(f"max_tracked: give a whole number above zero, not {max_tracked}")
        if not arguments.positive(sampling_rate, "sampling_rate") <= 1:
            raise ConfigError(f"sampling_rate: give a share of the steps, above 0 and at most 1, not {sampling_rate}")
        if arguments.whole(budget, "budget") < 0:
            raise ConfigError(f"budget: give bytes, zero or above, not {budget}")
        self._max_tracked = max_tracked
        self._rate = sampling_rate
        self._step, self._tell, self._turn = step, tell, turn
        self._lock = threading.RLock()
        self._infos: OrderedDict[int, tuple[TensorInfo, weakref.ref[Any] | None]] = OrderedDict()
        self._kept = KeptValues(budget)
        self._anomalies = AnomalyLog(max_tracked)
        self._memory = MemoryLog(max_tracked)
        self._next = self._sampled = 0
        self._steps: tuple[int, int] | None = None

    def inspect_tensor(
        self,
        tensor: Any,
        name: str,
        layer: str | None = None,
        operation: str | None = None,
        *,
        step: int | None = None,
    ) -> int:
        """Inspect an array, tensor, list or number of any framework, and return its id, counted from 0.

        ``operation`` says what it is: "forward" (the default), "input", "parameter" or "weight", "gradient" or
        "backward" (of an output), "param_grad", "update", or any other word. ``step`` is the open step if None. In a
        share of the steps, ``sampling_rate``, all elements are read; in the others at most 4,096 evenly spaced ones.
        Raises ConfigError for what holds no numbers that can be read.

        >>> inspector.inspect_tensor(np.ones(3), "bias", "fc1", "parameter") < len(inspector)
        True
        """
        arguments.text(name, "a tensor is named by text")
        for given_text, what in ((layer, "layer"), (operation, "operation")):
            if given_text is not None:
                arguments.text(given_text, what)
        self._turn(site_of(name, layer, operation, ""))
        at = self._step() if step is None else arguments.whole(step, "step")
        found = given(tensor, f"the values of {name!r}", at_most=None if whole_in(at, self._rate) else SAMPLE)
        stats = statistics(found)
        with self._lock:
            number = self._next
            self._next += 1
            self._keep(
                number,
                tensor,
                found,
                TensorInfo(number, name, layer, operation, at, stats, found.framework, found.device),
            )
        self._tell(site_of(name, layer, operation, found.dtype), raw_row_of(found))
        return number

    def _keep(self, number: int, tensor: Any, found: Given, info: TensorInfo) -> None:
        name, layer, at = info.name, info.layer, info.step
        weak = self._memory.add(tensor, (name, layer), at, found.bytes)
        weight = KINDS.get(info.operation or "") == "param"
        self._anomalies.add(number, (name, layer, info.operation), at, info.stats, weight=weight)
        self._kept.add(number, found)
        self._infos[number] = (info, weak)
        if len(self._infos) > self._max_tracked:
            self._infos.popitem(last=False)
        self._sampled += not found.whole
        first, last = self._steps or (at, at)
        self._steps = min(first, at), max(last, at)

    # ---------------------------------------------------------------- questions

    def __len__(self) -> int:
        """Return the number of tensors that were inspected."""
        return self._next

    def get_tensor_info(self, tensor_id: int) -> TensorInfo:
        """Return what was found of a tensor. Raises ConfigError for an id that was never given, or was dropped.

        >>> inspector.get_tensor_info(0).name
        'h'
        """
        number = arguments.whole(tensor_id, "tensor_id")
        with self._lock:
            found = self._infos.get(number)
            if found is None:
                raise ConfigError(self._missing(number))
            return _now(*found)

    def _missing(self, number: int) -> str:
        if not 0 <= number < self._next:
            known = f"ids are 0 to {self._next - 1}" if self._next else "none was inspected yet"
            return f"no tensor has the id {number}: {known}"
        return f"tensor {number} was dropped: max_tracked_tensors is {self._max_tracked:,}, and newer ones are kept"

    def get_all(self) -> tuple[TensorInfo, ...]:
        """Return all that are kept, the oldest first: the newest ``max_tracked``.

        >>> inspector.get_all()[0].id
        0
        """
        with self._lock:
            return tuple(_now(*found) for found in self._infos.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors that are kept, in order of their first one.

        >>> inspector.names
        ('h', 'bias')
        """
        with self._lock:
            return tuple(dict.fromkeys(info.name for info, _ in self._infos.values()))

    @property
    def dropped(self) -> int:
        """Number of the oldest tensors whose infos are not kept any more."""
        return self._next - len(self._infos)

    def find(
        self,
        *,
        name: str | None = None,
        layer: str | None = None,
        step: int | None = None,
        operation: str | None = None,
    ) -> tuple[TensorInfo, ...]:
        """Return the kept tensors of a name, layer, step and operation, the oldest first; None means any.

        >>> [info.name for info in inspector.find(layer="fc1", operation="parameter")]
        ['bias']
        """
        wanted = {"name": name, "layer": layer, "step": step, "operation": operation}
        asked = {key: value for key, value in wanted.items() if value is not None}
        return tuple(
            info for info in self.get_all() if all(getattr(info, key) == value for key, value in asked.items())
        )

    def compare(self, first_id: int, second_id: int) -> TensorComparison:
        """Compare two tensors by their ids, across steps, layers or dtypes; the first is the reference.

        Raises ConfigError if the values of one are gone: the newest are kept, within the budget.

        >>> one, other = (inspector.inspect_tensor([1.0, x], "x") for x in (2.0, 2.5))
        >>> inspector.compare(one, other).max_abs
        0.5
        """
        numbers = [arguments.whole(one, "tensor_id") for one in (first_id, second_id)]
        with self._lock:
            for number in numbers:
                if not 0 <= number < self._next:
                    raise ConfigError(self._missing(number))
            first, second = (self._kept.get(number) for number in numbers)
        return compare(first, second)

    def values(self, tensor_id: int) -> npt.NDArray[Any]:
        """Return the values of a tensor that are kept, read-only: in its shape, or evenly spaced ones of a large
        tensor.

        Raises ConfigError if they are gone: the newest are kept, within the budget.

        >>> inspector.values(inspector.inspect_tensor([1.0, 2.0], "x")).tolist()
        [1.0, 2.0]
        """
        number = arguments.whole(tensor_id, "tensor_id")
        with self._lock:
            if not 0 <= number < self._next:
                raise ConfigError(self._missing(number))
            return self._kept.get(number).values

    def anomalies(self) -> tuple[TensorAnomaly, ...]:
        """Return what was odd, by kind and tensor, in order of the first occurrence.

        NaN, infinities, constants, the range of the dtype, far outliers, and sudden changes against the earlier tensors
        of the same name. Those of a step that was sampled are about the elements read.

        >>> number = inspector.inspect_tensor([1.0, float("nan")], "loss")
        >>> inspector.anomalies()[-1].kind
        'nan'
        """
        with self._lock:
            return tuple(self._anomalies)

    def memory(self) -> TensorMemory:
        """Return the bytes by name and by layer, and which objects were never let go. ``unfollowed`` counts the objects
        that Python cannot follow.

        >>> inspector.memory().layers["fc1"] > 0
        True
        """
        with self._lock:
            return self._memory.memory()

    def summary(self) -> TensorSummary:
        """Return all of it in a few lines.

        >>> inspector.summary().inspected == len(inspector)
        True
        """
        with self._lock:
            return TensorSummary(
                inspected=self._next,
                kept=len(self._infos),
                sampled=self._sampled,
                steps=self._steps,
                names=len(self.names),
                anomalies=self.anomalies(),
                anomalies_dropped=self._anomalies.dropped,
                memory=self.memory(),
            )


def _now(info: TensorInfo, weak: weakref.ref[Any] | None) -> TensorInfo:
    return info if weak is None else dataclasses.replace(info, alive=weak() is not None)


def site_of(name: str, layer: str | None, operation: str | None, dtype: str) -> Site:
    """Return the site of a tensor, as the live tool names it: a parameter "fc1.weight" belongs to layer "fc1".

    >>> site_of("fc1.weight", None, "parameter", "float32").label
    'fc1.weight'
    >>> site_of("h", "fc1", "forward", "float32").label
    'fc1:h'
    """
    kind = KINDS.get(operation or "forward", "activation")
    if kind in _OF_LAYERS:
        if layer is None:
            layer, _, name = name.rpartition(".")
        return Site(kind, layer, 0, name.removeprefix(f"{layer}.") if layer else name, dtype)
    # An operation of the user's own is a leaf, so that it is another site than the output.
    own = operation if operation is not None and operation not in KINDS else ""
    if layer is None:
        return Site(kind, name, 0, own, dtype)
    return Site(kind, layer, 0, f"{name}.{own}" if own else name, dtype)
