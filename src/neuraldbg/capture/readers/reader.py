"""The contract of a reader: one file that reads one kind of facts about the program, at moments of the training loop.

A member module of ``capture/readers`` defines ``READER``, a subclass of ``Reader``; registration is one line in
``readers/__init__.py``. A reader overrides the moments that it needs, and the others cost nothing. It keeps no tensor
of the program beyond the step (a small copy is its own), draws no random number, and changes nothing. In a long run
most steps are light: their moments are not called, and wrappers of torch functions pass calls through. ``resumes``
comes before the first moment after such a gap, and a step's moments are called all or not at all. Expensive readings
run only while ``scene.reading`` is True: in the first steps, then in a few at an even pace.

Numpy's warnings are silenced there, and in ``summarise``. Other code that computes with numpy, on numbers of a run that
may overflow, is decorated with ``@np.errstate(all="ignore")`` itself: at each moment of each step that would be
expensive.
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
"""(owner, attribute, generator function that wraps each call of it): see ``stand_in.py``."""


class Reader:
    """Reads facts about the program. Its moments are listed in the order in which a step passes through them."""

    sampled: ClassVar[frozenset[str]] = frozenset()
    """Moments called only in steps in which facts are read (``scene.reading``): a call that finds nothing to do costs
    some microseconds, too."""

    vigilant: ClassVar[frozenset[str]] = frozenset()
    """Moments called in light steps, too: of a call always, of a backward pass if its loss or gradients are unusual.
    Microseconds count there."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        return self.scene.tally

    @property
    def doing(self) -> str:
        """The work that an error of this reader ends, from its module's name: "reading optimizer resets"."""
        return f"reading {type(self).__module__.rpartition('.')[2].replace('_', ' ')}"

    def seen(self, act: Callable[..., T], *args: Any) -> T | None:
        """Call ``act`` from a wrapper of a torch function, and return its result. An error is counted and hidden from
        the program: None is returned.
        """
        try:
            with unheard():
                return act(*args)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self.scene.tally.caught(self.doing)
            return None

    def resumes(self) -> None:
        """Handle a gap: steps passed without a call, to keep the overhead budget. State that a reader carries from one
        step to the next is no longer valid, and nothing follows from what it did not see.
        """

    def patches(self) -> Iterable[Patch]:
        """Return the functions of torch to wrap while the session runs. The wrappers test
        ``scene.switch.in_full_step()`` first.
        """
        return ()

    def call_begins(self, call: Call) -> None:
        """Handle a call of a watched model, in training or evaluation."""

    def call_ends(self, call: Call, output: Any) -> None:
        """Handle the end of that call."""

    def backward_begins(self, backward: Backward) -> None:
        """Handle a backward pass that is about to run."""

    def backward_of_leaf(self, root: Tensor) -> None:
        """Handle a backward pass on a tensor without a graph, which does next to nothing."""

    def backward_ends(self, backward: Backward) -> None:
        """Handle the end of a backward pass: gradients are there, its graph is freed."""

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Handle an optimizer step that is about to run: gradients are final, weights unchanged."""

    def step_ends(self, stream: Stream, opt: Optimizer) -> None:
        """Handle the end of an optimizer step."""

    def step_closes(self) -> None:
        """Handle the end of the step; facts that are logged now belong to it."""

    def summarise(self) -> None:
        """Log facts that need the whole run, for a question or at the end of the run."""

    def stop(self) -> None:
        """Handle the end of the session: remove all that was left in the program."""
