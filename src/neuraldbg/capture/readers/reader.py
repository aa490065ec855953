"""The contract of a reader: one file that learns one kind of facts about the program, at moments of the training loop.

A member module of ``capture/readers`` defines ``READER``, a subclass of ``Reader``; registration is one line in
``readers/__init__.py``. A reader overrides the moments that it needs, and no other costs anything. It keeps no tensor
of the program beyond the step (a small copy is its own), draws no random number, and changes nothing. In a long run
most steps are light: of those nothing is told, and what stands in for a function of torch passes through. ``resumes``
comes before the first moment after such a gap, and steps are told whole or not at all. Expensive
readings happen only while ``scene.reading`` is true: in the first steps, and then at steps that are powers of two.
Numpy's warnings are silenced there, and when the run is summed up. What computes with numpy in other steps, on numbers
of a run that may overflow, says ``@np.errstate(all="ignore")`` itself: at each moment of each step that would be dear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from neuraldbg.capture.guest.tensor_kinds import unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor
    from torch.optim import Optimizer

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene

T = TypeVar("T")
Patch = tuple[Any, str, "Callable[..., Around]"]
"""(owner, attribute, generator function that surrounds each call of it): see ``stand_in.py``."""


class Reader:
    """Learns facts about the program. The moments are given in the order in which a step passes through them."""

    sampled: ClassVar[frozenset[str]] = frozenset()
    """Moments that matter in steps in which facts are read (``scene.reading``), and are not told in the others: a call
    that only finds out that there is nothing to do costs some microseconds, too."""

    vigilant: ClassVar[frozenset[str]] = frozenset()
    """Moments that are told in light steps, too: of a call always, of a backward where its loss or gradients look odd.
    Microseconds count there."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @property
    def tally(self) -> Tally:
        """Return where errors and time are counted."""
        return self.scene.tally

    @property
    def doing(self) -> str:
        """Return what an error of this reader ends, after the module that holds it: "reading optimizer resets"."""
        return f"reading {type(self).__module__.rpartition('.')[2].replace('_', ' ')}"

    def seen(self, act: Callable[..., T], *args: Any) -> T | None:
        """Do what a stand-in has seen something for, and return what that returns. An error is counted, and the program
        does not notice: None is returned.
        """
        try:
            with unheard():
                return act(*args)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self.scene.tally.caught(self.doing)
            return None

    def resumes(self) -> None:
        """Steps went by of which nothing was told, to keep the budget of overhead. What a reader carries from one step
        to the next is no longer true: nothing may be concluded from what it did not see.
        """

    def patches(self) -> Iterable[Patch]:
        """Functions of torch to stand in for while the session runs. What surrounds them tests
        ``scene.switch.in_full_step()`` first.
        """
        return ()

    def call_begins(self, call: Call) -> None:
        """A watched model is called, in training or evaluation."""

    def call_ends(self, call: Call, output: Any) -> None:
        """The call has returned."""

    def backward_begins(self, backward: Backward) -> None:
        """A backward pass is about to run."""

    def backward_of_leaf(self, root: Tensor) -> None:
        """A backward pass is about to run on a tensor that nothing was computed into: it does next to nothing."""

    def backward_ends(self, backward: Backward) -> None:
        """It has run: gradients are there, its graph is freed."""

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """An optimizer is about to step: gradients are final, weights still as they were."""

    def step_ends(self, stream: Stream, opt: Optimizer) -> None:
        """It has stepped."""

    def step_closes(self) -> None:
        """The step is over; what is logged now belongs to it."""

    def summarise(self) -> None:
        """Somebody wants to know now, or the run is over: log what only a whole run can tell."""

    def stop(self) -> None:
        """The session ends: remove whatever was left in the program."""
