"""The flight recorder in memory: per-layer norms of the last steps, written as strict JSON when training crashes.

One row per step in, a JSON file out. Constant memory: a new row replaces the oldest.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from neuraldbg import arguments, clocks
from neuraldbg.arguments import whole
from neuraldbg.errors import ConfigError, RunFileError
from neuraldbg.nouns import CrashRow, crash_json
from neuraldbg.nouns.crash import AFTER, broken_for

if TYPE_CHECKING:
    from pathlib import Path


class _Row(NamedTuple):
    step: int
    timestamp: float
    loss: float | None
    grad_norms: Mapping[str, Any]
    act_norms: Mapping[str, Any]
    size: int


class RingBuffer:
    """Keeps the last ``capacity`` steps, or fewer if those would take more than ``most`` bytes.

    Once the loss has been NaN or infinite for more than ten steps in a row, a step is only added while there is room:
    the steps before the failure stay, however long the loop goes on.

    A mapping of norms that is computed later has an attribute ``nbytes``, the bytes that it holds until then. Raises
    ConfigError for a capacity below 1.

    >>> buffer = RingBuffer(capacity=100)
    >>> buffer.add(0, {"fc1": 0.5}, {"fc1": 1.2}, 2.3)
    >>> len(buffer)
    1
    """

    def __init__(self, capacity: int = 100, most: int | None = None) -> None:
        if whole(capacity, "capacity") < 1:
            raise ConfigError(f"setting 'capacity': a ring buffer keeps at least 1 step, not {capacity}")
        self.capacity = int(capacity)
        self._most = None if most is None else whole(most, "most")
        self._bytes = 0
        self._broken = 0
        self._rows: deque[_Row] = deque()

    def add(
        self,
        step: int,
        grad_norms: Mapping[str, Any],
        act_norms: Mapping[str, Any],
        loss: float | None = None,
    ) -> None:
        """Add one step: L2 norms by layer, and the loss (a number or a one-element tensor).

        A mutable mapping is copied, since a loop may reuse it; any other mapping is kept as it is and read when the
        buffer is saved.

        >>> RingBuffer().add(0, {"fc1": 0.5}, {"fc1": 1.2}, 2.3)
        """
        try:
            value = None if loss is None else float(loss)
        except (TypeError, ValueError):
            raise ConfigError(f"loss: give a number, or None if there is none, not {loss!r}") from None
        step = whole(step, "step")
        size = max(getattr(grad_norms, "nbytes", 0), getattr(act_norms, "nbytes", 0))  # the two share one table
        self._broken = broken_for(self._broken, value)
        full = len(self._rows) >= self.capacity or (self._most is not None and self._bytes + size > self._most)
        if full and self._broken > AFTER:
            return
        self._rows.append(_Row(step, clocks.now(), value, _kept(grad_norms), _kept(act_norms), size))
        self._bytes += size
        while len(self._rows) > self.capacity or (self._over and len(self._rows) > 1):
            self._bytes -= self._rows.popleft().size

    @property
    def _over(self) -> bool:
        return self._most is not None and self._bytes > self._most

    @property
    def history(self) -> list[CrashRow]:
        """Rows, oldest first: dictionaries of ``step``, ``timestamp`` (seconds since 1970), ``loss``, ``grad_norms``
        and ``act_norms``.
        """
        return [
            {
                "step": row.step,
                "timestamp": row.timestamp,
                "loss": row.loss,
                "grad_norms": _norms(row.grad_norms),
                "act_norms": _norms(row.act_norms),
            }
            for row in self._rows
        ]

    def save_json(self, path: str | os.PathLike[str], trigger_reason: str | None = None) -> Path:
        """Write the crash dump as strict JSON (a NaN is the string "NaN") and return its path.

        The file appears whole or not at all. Missing folders are created. Raises RunFileError (an OSError) if the place
        cannot be written.

        >>> RingBuffer().save_json("crash_dump.json", trigger_reason="the loss is nan").name
        'crash_dump.json'
        """
        target = arguments.path(path, "the crash dump")
        dump = crash_json(self.history, self.capacity, trigger_reason)
        # The process may end while it writes: a reader must never find half a file.
        partial = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(dump, encoding="utf-8")
            partial.replace(target)
        except OSError as error:
            raise RunFileError(
                f"the crash dump cannot be written to {target}: {error.strerror or error}. Choose another folder."
            ) from error
        finally:
            _remove(partial)
        return target

    def clear(self) -> None:
        """Remove all rows.

        >>> RingBuffer().clear()
        """
        self._rows.clear()
        self._bytes = self._broken = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"RingBuffer(capacity={self.capacity}, steps={len(self)})"


def _kept(norms: Mapping[str, Any]) -> Mapping[str, Any]:
    # ``type(...) is dict`` takes a tenth of the time of ``isinstance`` with an abstract class.
    return dict(norms) if type(norms) is dict or isinstance(norms, MutableMapping) else norms


def _norms(norms: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the norms of a row to floats, from any number type (numpy, torch)."""
    return {str(layer): _number(value) for layer, value in norms.items()}


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # Only reached after a failed write, whose error is already raised.
        return
