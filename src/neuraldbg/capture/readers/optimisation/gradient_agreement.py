"""The reader of gradient agreement: cosines between gradients of different steps, and between update and gradient.

A fixed sample of four weights is read. Every fourth step (later every sixteenth) gives the cosine between the update
and the negative gradient (a large momentum moves weights uphill for whole stretches of steps) and that between this
gradient and the previous one. Over windows of such steps the part that all gradients share is separated from noise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.capture.parameters.weight_samples import STREAMS, chosen, cosine, joined
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor
    from torch.optim import Optimizer

    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.statistics.watched_parameter import Watched

    Vector = npt.NDArray[np.float32]

EVERY = 4
"""Steps between two readings at first."""
LATE = 16
"""Steps between two readings after ``SETTLED`` steps: one costs some 100 us, and a step may be charged 10 at most."""
SETTLED = 128
WINDOW = 32
"""Readings of one window."""
SPAN = WINDOW * LATE
"""Steps of one window at most: gradients farther apart share less, and are no noise for that reason."""
KEPT = 16
"""Windows that are kept."""


class Window:
    """Gradients of several steps: their sum, and the sum of their squared norms."""

    def __init__(self, step: int, size: int) -> None:
        self.first = self.last = step
        self.count = 0
        self.total = np.zeros(size)
        self.squares = 0.0

    def add(self, step: int, gradient: Vector) -> None:
        """Add the gradient of a step."""
        self.last = step
        self.count += 1
        self.total += gradient
        self.squares += float(np.dot(gradient, gradient))

    def summary(self) -> dict[str, Any] | None:
        """Return the window for the fact, None if it has too few gradients.

        With n gradients g, |sum g|^2 - sum |g|^2 is the sum over all pairs of their products: n (n - 1) times the
        squared norm of the part they share, without bias. For pure noise its standard deviation is at most that of one
        direction: sqrt(2 / (n (n - 1))).
        """
        n = self.count
        if n < WINDOW // 4 or not self.squares > 0:
            return None
        shared = (float(np.dot(self.total, self.total)) - self.squares) / (n * (n - 1))
        error = math.sqrt(2 / (n * (n - 1)))
        signal = shared / (self.squares / n)
        return {
            "first": self.first,
            "last": self.last,
            "count": n,
            "signal": round(signal, 5),
            "error": round(error, 5),
        }


class Course:
    """The readings of one optimizer's gradients over the run."""

    def __init__(self) -> None:
        self.members: list[Watched] = []
        self.gradient: tuple[int, Vector] | None = None
        """(step, sample) of the last gradient read, None after a gap."""
        self.before: Vector | None = None
        self.window: Window | None = None
        self.done: list[dict[str, Any]] = []
        self.since: int | None = None
        """Steps since the last gap; None if there was none."""
        self.follows = True
        """True if the previous step was seen."""


class GradientCourse(Reader):
    """Reads samples of gradients and updates of each optimizer."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.courses: dict[int, Course] = {}

    def resumes(self) -> None:
        """Drop readings from before the gap: they belong to no neighbouring step."""
        for course in self.courses.values():
            course.gradient = course.before = None
            course.since, course.follows = 0, False

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Read the gradient, and at every fourth step the current weights.

        If steps are not seen, few lie together: then the first two after each gap are read.
        """
        course = self.courses.get(stream.index)
        # Two steps in a row make a pair: the first gives a gradient, the second is compared with it.
        if course is not None and course.since is not None:
            turn, course.since = course.since, course.since + 1
            first, second = turn == 0, turn == 1
        else:
            every = EVERY if stream.steps < SETTLED else LATE
            phase = stream.steps % every
            first, second = phase == every - 1, phase == 0
        if not (first or second):
            return
        course = course or self.courses.setdefault(stream.index, Course())
        for other in list(self.courses.values())[:-STREAMS]:
            if other is not course:  # no weights of dead optimizers are kept
                other.members = []
        if not course.members or self.scene.reading:
            course.members = chosen(self.scene.params, opt)
        members = course.members
        # A parameter may lose its gradient, or its memory.
        if any(w.ref.grad is None for w in members):
            members = course.members = [w for w in members if w.ref.grad is not None]
        if not members or not (self.scene.reading or not placement.lies(members[0].ref)):  # it would synchronise
            course.gradient = course.before = None
            return
        held = _held(members)
        if held is None:
            course.gradient = course.before = None
            return
        weights, gradients = held
        new = joined(gradients, weights)
        if second:
            self._compare(course, stream.steps, new)
            course.before = joined(weights, gradients)
        course.gradient = (stream.steps, new)

    @np.errstate(all="ignore")
    def _compare(self, course: Course, step: int, new: Vector) -> None:
        old = course.gradient
        if old is not None and old[0] == step - 1 and len(old[1]) == len(new):
            self._note("gradient_turn", cosine(new, old[1]))
        if not np.isfinite(new).all():
            return
        if course.window is None or len(course.window.total) != len(new):
            course.window = Window(self.scene.step, len(new))
        elif course.since is not None and self.scene.step - course.window.first > SPAN:
            self._finish(course)
            course.window = Window(self.scene.step, len(new))
        course.window.add(self.scene.step, new)
        if course.window.count == WINDOW:
            self._finish(course)

    def _finish(self, course: Course) -> None:
        found = course.window.summary() if course.window is not None else None
        course.window = None
        if found is not None:
            course.done.append(found)
            if len(course.done) > KEPT:  # drop from the middle: begin and end of a run tell most
                course.done.pop(KEPT // 2)

    def step_ends(self, stream: Stream, opt: Optimizer) -> None:
        """Compare the update with the gradient, and record the changes of weights outside of steps."""
        course = self.courses.get(stream.index)
        seen = stream.outside.change if stream.outside is not None else 0.0
        if self.scene.params.outside > seen and (course is None or course.follows):
            self.scene.scalars["outside"] = self.scene.params.outside
        if course is not None:
            course.follows = True
        if course is None or course.before is None or course.gradient is None:
            return
        before, course.before = course.before, None
        held = _held(course.members)
        if held is None:
            return
        after = joined(*held)
        if len(after) == len(before):
            with np.errstate(all="ignore"):
                self._note("descent", cosine(before - after, course.gradient[1]))

    def _note(self, name: str, value: float) -> None:
        if math.isfinite(value):
            self.scene.scalars[name] = value

    def summarise(self) -> None:
        """Log the windows, with the one that is still open."""
        for stream, course in self.courses.items():
            open_one = course.window.summary() if course.window is not None else None
            windows = [*course.done, *([open_one] if open_one else [])]
            if windows:
                self.scene.log(FactKey.GRADIENT_COURSE, {"stream": stream, "windows": windows})

    def stop(self) -> None:
        """Drop the parameters."""
        self.courses.clear()


def _held(members: list[Watched]) -> tuple[list[Tensor], list[Tensor]] | None:
    """Return weights and gradients of some parameters, None if the memory of one was freed meanwhile."""
    pairs = [(operation.shown(w.ref), operation.shown(w.ref.grad)) for w in members]
    found = [(weight.detach(), grad.detach()) for weight, grad in pairs if weight is not None and grad is not None]
    return ([one for one, _ in found], [other for _, other in found]) if len(found) == len(pairs) else None


READER = GradientCourse
