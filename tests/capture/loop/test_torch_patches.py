"""Patches of torch: whatever interrupts them, the originals come back."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.loop import torch_patches

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Limit(Exception):
    """A time limit of the program's."""


def interrupted_at(n: int, act: Callable[[], object]) -> bool:
    """Raise at the n-th line of `torch_patches` that `act` executes. Return False if there is none."""
    count = 0

    def line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == n:
                raise Limit
        return line

    def call(frame: FrameType, _event: str, _: object) -> Any:
        return line if frame.f_code.co_filename == torch_patches.__file__ else None

    sys.settrace(call)
    try:
        act()
    except Limit:
        return True
    finally:
        sys.settrace(None)
    return False


def test_a_patch_that_was_interrupted_at_any_line_is_restored() -> None:
    owner = SimpleNamespace(name="theirs")
    for n in itertools.count(1):
        patches = torch_patches.Patches()
        known = list(torch_patches._in_place)
        again = interrupted_at(n, partial(patches.put, owner, "name", "ours over {}".format))
        patches.restore()
        assert owner.name == "theirs"
        assert torch_patches._in_place == known
        if not again:
            break
    assert n > 6
