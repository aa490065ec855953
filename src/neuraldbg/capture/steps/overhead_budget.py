"""The governor keeps a promise: watching takes no more than a share of the training's time.

It holds an account in seconds. Each step pays in its share of the time that the training itself took, and what watching
took is drawn from it. While there is enough, steps are read in full; when not, they are light: only the loss, the norm
of the gradient and the learning rate are read, until a burst of full steps can be paid for again. Consecutive steps
are read in a burst, since some questions are about two steps in a row.

A session begins with an allowance, so that short runs and the beginnings of long ones are read in full. Something
suspicious (a NaN, a loss or a gradient norm far from the usual) buys a burst on credit, which is repaid afterwards.
"""

from __future__ import annotations

import math

from neuraldbg.capture.parameters.usual_norm import Usual

BURST = 4
"""Full steps in a row."""
ALARM = 16
"""Full steps in a row when something looks suspicious."""
_DEBT_S = 0.5
"""Seconds that suspicion may draw beyond the account: a run that is odd at every step must not cost for ever."""
_PACE = 3.0
"""Bursts whose cost may pile up in the account at most: reading is spread evenly over the run."""
_MEMORY = 0.2
"""Weight of the newest full step in what one is expected to cost."""
_LONGEST = 4096
"""Light steps in a row at most, whatever the account says: a change must be seen some day."""
_LEARNT = 256
"""Steps whose facts are all read, where there is no budget."""
_FACTS, _OF = 8, 64
"""Of so many later ones, facts are read in the first."""
_RAREST = 8
"""Light steps between two readings of the gradients at most."""


class Governor:
    """Says before each step whether it is read in full. ``overhead`` None: every one is."""

    def __init__(self, overhead: float | None, allowance: float) -> None:
        self.overhead = overhead
        self.own = self.training = 0.0
        """Seconds of the run so far that watching took, and all others."""
        self.full_steps = self.light_steps = 0
        self._credit = allowance
        self._allowed = True
        """Whether the allowance is not spent yet."""
        self._price = 0.0
        """What a full step is expected to cost more than its share pays."""
        self._share = self._other = 0.0
        """Of a light step lately: its share, and what was spent on it beside the reading of gradients, in seconds."""
        self._left = 0
        """Full steps left of the burst that goes on."""
        self._since = 0
        """Light steps since the last full one."""
        self._usual = Usual(), Usual()

    @property
    def light_s(self) -> float:
        """Seconds that the gradients of a light step may take: a third of its share, as steps have been so far."""
        steps = self.full_steps + self.light_steps
        return (self.overhead or 1.0) * self.training / steps / 3 if steps else 0.0

    def norms_every(self, reading: float) -> int:
        """Return how many light steps go by from one reading of the gradients to the next: one, unless a step is so
        short that the readings, of ``reading`` seconds each, would take more than what its share leaves for them.
        """
        left = max(self._share - self._other, 1e-9)
        return 1 if self.overhead is None or reading <= left else min(math.ceil(reading / left), _RAREST)

    @property
    def usual(self) -> tuple[float, float]:
        """The sizes up to which a loss and a gradient norm are nothing special; infinite while too few are known."""
        loss, norm = self._usual
        return loss.bound, norm.bound

    def book(self, duration: float, own: float, *, full: bool, reading: float = 0.0) -> None:
        """Book a step of ``duration`` seconds, ``own`` of them ours: its share is paid in, and what watching took is
        drawn. Of a light one, ``reading`` seconds were for its gradients.
        """
        training = max(duration - own, 0.0)
        self.own += own
        self.training += training
        self.full_steps += full
        self.light_steps += not full
        if self.overhead is None:
            return
        share = self.overhead * training
        self._credit += share - own
        if full:
            self._since = 0
            cost = max(own - share, 0.0)
            # A single dear step (facts are read at powers of two) says little of the next burst.
            self._price += _MEMORY * (min(cost, 4 * self._price or cost) - self._price)
        else:
            self._since += 1
            self._share += _MEMORY / 4 * (min(share, 4 * self._share or share) - self._share)
            self._other += _MEMORY / 4 * (max(own - reading, 0.0) - self._other)

    def decide(self) -> bool:
        """Return whether to read the next step in full."""
        if self.overhead is None:
            return True
        self._allowed = self._allowed and self._credit > 0
        if self._allowed:
            return True
        burst = BURST * self._price
        self._credit = min(self._credit, _PACE * burst)
        if self._left == 0 and (self._credit >= burst or self._since >= _LONGEST):
            self._left = BURST
        if self._left > 0:
            self._left -= 1
            return True
        return False

    def spares(self, step: int) -> bool:
        """Return True if a step may be read without facts about the program, though there is no budget to keep: of the
        later ones most are alike, and facts are learnt from a few of them together.
        """
        if self.overhead is not None or step < _LEARNT:
            return False
        if self._left > 0:
            self._left -= 1
            return False
        return step % _OF >= _FACTS

    def next_facts(self, step: int) -> int:
        """Return the next step, after one that was spared, in which facts are read."""
        return (step // _OF + 1) * _OF

    def alarm(self) -> None:
        """Something looks suspicious: read the next steps in full, unless that was granted too often."""
        if self._credit > -_DEBT_S:
            self._left = max(self._left, ALARM)

    def watch(self, loss: float | None, norm: float | None) -> bool:
        """Look at the numbers of a step. Returns whether they are suspicious."""
        odd = [usual.odd(value) for usual, value in zip(self._usual, (loss, norm), strict=True) if value is not None]
        if any(odd):
            self.alarm()
            return True
        return False
