"""The reader of custom autograd Functions: is the gradient that they return the gradient of what they compute?

The walk over a loss's graph finds a Function's class. Its next call is then observed: small copies of its arguments are
kept, and after the step they are tried (``finite_differences.py``). That happens once for each class, and not at all
with the setting ``probes`` off. Functions of installed packages are not tried.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg import clocks
from neuraldbg.capture.experiments.experiment import undisturbed
from neuraldbg.capture.experiments.finite_differences import Judgement, compare
from neuraldbg.capture.experiments.threads_beside import company
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded, sessions_paused
from neuraldbg.capture.guest.program_objects import is_a, kind_name, members, module_of, package_of
from neuraldbg.capture.guest.stand_in import stand_in
from neuraldbg.capture.guest.user_code import user_place
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.guest.user_code import Place
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.reader_context import Scene

_CLASSES = 8
"""Classes that are tried at most."""
_ELEMENTS = 4096
"""Elements of the copies of one call. A batch is cut to its first rows to fit."""
_SECONDS = 1.0
"""Seconds for all trials of a run."""
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size, slice)


class Functions(Reader):
    """Observes one call of each Function, and tries it."""

    sampled = frozenset({"backward_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._feeds: dict[type, str] = {}
        self._watched: dict[type, Any] = {}
        """{class: its own ``forward`` before ours, None if it is inherited}."""
        self._args: dict[type, tuple[list[Any], Place | None]] = {}
        self._done: set[type] = set()
        self._spent = 0.0

    def backward_begins(self, backward: Backward) -> None:
        """Observe classes that are new."""
        if backward.walk is None or not backward.walk.functions or not getattr(self.scene.settings, "probes", True):
            return
        for cls, feeds in backward.walk.functions.items():
            if cls not in self._done and len(self._done) < _CLASSES and _own(cls):
                self._done.add(cls)
                self._feeds[cls] = feeds
                self._observe(cls)

    def _observe(self, cls: Any) -> None:
        """Replace ``forward`` by a wrapper until it was called once."""
        with_context = cls.setup_context is torch.autograd.Function.setup_context

        def around(*args: Any, **_: Any) -> Around:
            if cls in self._watched and self.scene.switch.in_full_step():
                self._restore(cls)
                self._keep(cls, args[1:] if with_context else args)
            yield

        self._watched[cls] = members(cls).get("forward")
        cls.forward = staticmethod(stand_in(cls.forward, around))

    @guarded
    def _restore(self, cls: Any) -> None:
        before = self._watched.pop(cls)
        if before is not None:
            cls.forward = before
        else:
            del cls.forward

    @guarded
    def _keep(self, cls: type, args: tuple[Any, ...]) -> None:
        """Copy the arguments, cut to a few rows."""
        copies = _small(args)
        if copies is not None:
            self._args[cls] = (copies, user_place())

    def step_closes(self) -> None:
        """Try the observed calls."""
        if self._args and not torch.is_inference_mode_enabled():
            kept, self._args = self._args, {}
            for cls, (args, place) in kept.items():
                if self._spent < _SECONDS:
                    self._try(cls, args, place)

    def _try(self, cls: Any, args: list[Any], place: Place | None) -> None:
        began = clocks.perf_counter()
        alone = company()
        if alone:
            self._log(cls, Judgement(False, alone), place)
            return
        try:
            with sessions_paused(), torch.no_grad(), torch.autocast("cpu", enabled=False), undisturbed():
                found = compare(cls, args)
        finally:
            self._spent += clocks.perf_counter() - began
        self._log(cls, found, place)

    def _log(self, cls: Any, found: Judgement, place: Place | None) -> None:
        value = {
            "name": kind_name(cls), "layer": self._feeds[cls], "judged": found.judged, "reason": found.reason,
            "input": found.input, "analytic": found.analytic, "numeric": found.numeric, "error": found.error,
            "place": list(place) if place is not None else None,
        }  # fmt: skip
        self.scene.log(FactKey.FUNCTIONS, value)

    def stop(self) -> None:
        """Restore the classes."""
        for cls in list(self._watched):
            self._restore(cls)


def _own(cls: type) -> bool:
    """Return True if a class is the program's, and of no installed package."""
    package = package_of(cls)
    file = getattr(sys.modules.get(module_of(cls)), "__file__", None) or ""
    return package not in ("torch", "neuraldbg") and "site-packages" not in file


def _small(args: tuple[Any, ...]) -> list[Any] | None:
    """Return copies of the arguments with few elements; None if one cannot be copied safely."""
    for x in args:
        plain = type(x) in _PLAIN or (type(x) in (tuple, list) and all(type(v) in _PLAIN for v in x))
        if not plain and (not tensor_memory.present(x) or x.is_complex()):
            return None
    tensors = [x for x in args if is_a(x, Tensor)]
    rows = next((x.shape[0] for x in tensors if x.dim() > 1 and type(x) is not torch.nn.Parameter), 0)
    keep = rows
    while sum(x[:keep].numel() if _batched(x, rows) else x.numel() for x in tensors) > _ELEMENTS:
        if keep <= 2:
            return None
        keep //= 2
    copies: list[Any] = []
    for x in args:
        if is_a(x, Tensor):
            part = x.detach()[:keep] if _batched(x, rows) else x.detach()
            copies.append(part.clone().requires_grad_(x.requires_grad and x.is_floating_point()))
        else:
            copies.append(x)
    return copies


def _batched(x: Tensor, rows: int) -> bool:
    return bool(rows) and x.dim() > 0 and x.shape[0] == rows and type(x) is not torch.nn.Parameter


READER = Functions
