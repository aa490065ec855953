"""The overhead budget: watching takes no more than a share of the training's time.

The governor keeps an account in seconds. Each step pays in its share of the time that the training itself took, and the
time that watching took is drawn. While there is credit, steps are read in full; otherwise they are light: only loss,
gradient norm and learning rate are read, until a burst of full steps can be paid for again. Full steps come in bursts,
since some questions are about two steps in a row.

Where native code can read the layers of light steps, it does so as often as the account pays for it: in every step of a
model that takes long for each of its layers, else in bursts at an even pace. A quarter of the budget is then kept for
full steps, which have facts about the program, and half of what light steps leave for layers, whatever facts take.

A session begins with an allowance, so that short runs and the beginnings of long ones are read in full. A quarter of it
may be spent at once; the rest only as long as watching takes no more than a quarter of the training's time. An unusual
number (a NaN, a loss or a gradient norm far from the usual, a loss that has left its level) buys a burst on credit,
which is repaid afterwards.
"""

from __future__ import annotations

import math

from neuraldbg.capture.parameters.usual_norm import Level, Usual

BURST = 4
"""Full steps in a row."""
ALARM = 16
"""Full steps in a row after an unusual number."""
DEBT_S = 0.5
"""Seconds of debt that unusual numbers may cause: a run that is unusual at every step must not cost for ever."""
SHORT = 0.25
"""Share of a short run's training that watching may take, until the allowance is spent."""
AT_ONCE = 1 / 4
"""Part of the allowance that may be spent whatever the training takes: a few dozen steps of a small model are over
before a quarter of their time would pay for what the first of them are asked. With an eighth, two of 25 faults of the
corpus were missed that are found with a quarter."""
_FOR_LAYERS, _OF_THE_REST = 1 / 4, 1 / 2
"""Parts of the budget, and of what light steps leave of it, of which layers get the larger at least, where those of
light steps can be read."""
_SHORT_FOR_LAYERS = SHORT / 8
"""Share of a short run's training that layers get at least, when the first steps have spent what may be spent at once:
else nothing of the next thousands of a small model would be seen."""
_PACE = 3.0
"""Bursts whose cost may accumulate in the account: reading is spread evenly over the run."""
_MEMORY = 0.2
"""Weight of the newest full step in the expected cost of one."""
LONGEST = 4096
"""Light steps in a row at most, whatever the account says: a change must be seen at some time."""
LEARNT = 256
"""First steps: all have facts if there is no budget, and the allowance is for full ones."""
PACED = 4
"""Bursts from one that begins with facts to the next: what a program sets and gives is read at an even pace, too. Where
the layers of light steps are read, full bursts all have facts, and get this part of the budget."""
STRETCH = 64
"""Light steps whose layers are read, at most, until the account is asked again."""
FACTS, OF = 8, 64
"""Later facts are read in the first 8 of every 64 steps."""
_RAREST = 8
"""Light steps between two readings of all gradients at most."""


class Governor:
    """Decides before each step if it is read in full. With ``overhead`` None every step is."""

    def __init__(self, overhead: float | None, allowance: float) -> None:
        self.overhead = overhead
        self.own = self.training = 0.0
        """Seconds of the run so far that watching took, and that the training took."""
        self.full_steps = self.sighted_steps = self.light_steps = 0
        """Steps so far whose layers were read (``full_steps``), those of them without facts (``sighted_steps``), and
        steps whose layers were not read."""
        self.sights = False
        """True if the layers of light steps can be read: said before each decision. Not in the first steps, while the
        allowance lasts: those are for facts."""
        self.handing_s = 0.0
        """Seconds that the tables of one step take when they are handed on to the detectors."""
        self._credit = allowance
        self._at_once = AT_ONCE * allowance
        self._allowed = True
        """True until the allowance is spent."""
        self._price = 0.0
        """Expected cost of a full step beyond its share, in seconds."""
        self._kept = 0.0
        """Seconds of the credit that are kept for full steps while the layers of light ones can be read."""
        self._sight = 0.0
        """Expected time of a step whose layers are read without facts, in seconds; 0 while there was none."""
        self.on_full_s = self.on_sighted_s = 0.0
        """Seconds that watching took in full steps with facts, and in those without."""
        self._sighting = False
        """True if the layers of the newest step were read without facts."""
        self._turn_s = self._on_turns = 0.0
        """Expected time of a change between light steps with their layers and without (``_turn_s``), and that of the
        changes in the newest step, in seconds."""
        self._for_layers = 0.0
        """Seconds that are left for layers, though the account may be overdrawn by facts or by light steps alone."""
        self._share = self._other = 0.0
        """Running means over light steps: their share, and the time spent beside reading gradients, in seconds."""
        self._left = 0
        """Full steps left of the current burst."""
        self._since = 0
        """Light steps since the last full one."""
        self._bursts = 0
        self.paced = False
        """True from a burst that begins with facts until somebody clears it."""
        self._usual = Usual(), Usual()
        self._level = Level()
        self._flowing = False
        """True if the last gradient norm that was read was not zero."""
        self._rescued = LEARNT // 2
        """Steps so far when an unusual number was last granted full steps in spite of the debt."""
        self.alarmed = False
        """True from an unusual number that was granted full steps until somebody clears it."""

    @property
    def light_s(self) -> float:
        """Seconds that the gradients of a light step may take: a third of its share, averaged over the steps so far."""
        steps = self.full_steps + self.light_steps
        return (self.overhead or 1.0) * self.training / steps / 3 if steps else 0.0

    def past(self, step: int) -> bool:
        """Return True if a step is none of the first, which are for facts as far as the allowance goes at once."""
        return step >= LEARNT or not self._allowed or self._room() <= 0

    def norms_every(self, reading: float) -> int:
        """Return the number of light steps from one reading of all gradients to the next: one, unless steps are so
        short that the readings, of ``reading`` seconds each, would take more than the rest of their share.
        """
        left = max(self._share - self._other, 1e-9)
        return 1 if self.overhead is None or reading <= left else min(math.ceil(reading / left), _RAREST)

    @property
    def usual(self) -> tuple[float, float]:
        """The sizes of loss and gradient norm above which they are unusual; infinite while too few are known."""
        loss, norm = self._usual
        return loss.bound, norm.bound

    def book(self, duration: float, own: float, *, full: bool, sighted: bool = False, reading: float = 0.0) -> None:
        """Book a step of ``duration`` seconds, ``own`` of them ours: pay in its share, and draw the time that watching
        took. Its layers were read if ``full``, without facts if ``sighted``. ``reading`` are the seconds spent on the
        gradients of a light step.
        """
        training = max(duration - own, 0.0)
        self.own += own
        self.training += training
        self.full_steps += full
        self.sighted_steps += sighted
        self.light_steps += not full
        self.on_sighted_s += own if sighted else 0.0
        self.on_full_s += own if full and not sighted else 0.0
        if self.overhead is None:
            return
        share = self.overhead * training
        self._credit += share - own
        self._kept += max(share - self._other, 0.0) / PACED
        least = max(share * _FOR_LAYERS, (share - self._other) * _OF_THE_REST)
        self._for_layers += training * _SHORT_FOR_LAYERS if self._allowed else least
        if full and not sighted:
            self._since, self._sighting = 0, False
            cost = max(own - share, 0.0)
            self._kept -= cost
            # A single expensive step (its facts may be) says little about the next burst.
            self._price += _MEMORY * (min(cost, 4 * self._price or cost) - self._price)
            return
        self._since += 1
        self._share += _MEMORY / 4 * (min(share, 4 * self._share or share) - self._share)
        if sighted:
            self._book_layers(own)
        else:
            self._other += _MEMORY / 4 * (max(own - reading - self._on_turns, 0.0) - self._other)
            self._sighting = False
        self._on_turns = 0.0

    def _book_layers(self, own: float) -> None:
        first, self._sighting = not self._sighting, True
        if not first:  # within the first of a stretch the steps before it are handed on
            took = min(own, 4 * self._sight or own)
            self._sight += (_MEMORY / 4 if self._sight else 1.0) * (took - self._sight)
        self._for_layers -= max(self._sight - self._other, 0.0) + self.handing_s

    def turned(self, seconds: float) -> None:
        """Book a change between light steps with their layers and without, which took so many seconds of the newest
        step: layers pay for it.
        """
        self._on_turns += seconds
        self._for_layers -= seconds
        self._turn_s += (_MEMORY if self._turn_s else 1.0) * (min(seconds, 4 * self._turn_s or seconds) - self._turn_s)

    def decide(self) -> bool:
        """Return True to read the next step in full."""
        if self.overhead is None:
            return True
        burst = BURST * self._price
        self._allowed = self._allowed and self._credit > 0
        if self._allowed:
            room = min(self._room(), self._room_for_full()) if self.sights else self._room()
            if room > 0 and self._since == 0:
                self._left = max(self._left, 1)
            elif self._left == 0 and (room > burst or self._since >= LONGEST):
                self._begin_burst()
        else:
            self._credit = min(self._credit, _PACE * burst)
            self._kept = min(max(self._kept, -burst), self._credit) if self.sights else self._credit
            if self._left == 0 and (self._kept >= burst or self._since >= LONGEST):
                self._begin_burst()
        if self._left > 0:
            self._left -= 1
            return True
        return False

    def _begin_burst(self) -> None:
        self._left = BURST
        if self._since:  # after light steps
            self._bursts += 1
            self.paced |= self.sights or self._bursts % PACED == 0 or self._since >= LONGEST

    def stretch(self) -> int:
        """Return the number of light steps from the next on whose layers are read; 0 if the account does not pay for a
        few of them.
        """
        if self.overhead is None:
            return LONGEST
        if not self.sights:
            return 0
        each = self._sight + self.handing_s
        price, burst = each - self._share, BURST * each + 2 * self._turn_s
        self._for_layers = min(max(self._for_layers, -burst), _PACE * burst)
        if not self._sight:  # the first stretch tells what one costs
            return BURST if self._for_layers >= burst or self._room() > 0 else 0
        if self._allowed and (room := self._room()) > burst:
            return min(int(room / each), STRETCH)
        surplus = self._credit - max(self._kept, 0.0) - (0.0 if self._sighting else 2 * self._turn_s)
        if not self._allowed and surplus > max(BURST * price, 0.0):
            return min(int(surplus / price), STRETCH) if price > 0 else STRETCH
        return BURST if self._for_layers >= burst else 0

    def _room_for_full(self) -> float:
        """Return the seconds that full steps may take now: half of those, while the layers of others are read, too."""
        return max(self._at_once, SHORT * self.training / 2) - self.on_full_s

    def _room(self) -> float:
        """Return the seconds that may be spent now, while the allowance lasts; below 0 if too many were."""
        return max(self._at_once, SHORT * self.training) - self.own

    def affords(self, seconds: float) -> bool:
        """Return True if watching may take so many seconds more now, beside the reading of full steps."""
        if self.overhead is None:
            return True
        return self._credit >= seconds if not self._allowed else self._room() >= seconds

    def excuse(self, seconds: float) -> None:
        """Leave seconds that watching takes out of the account: the user has asked for what they were spent on."""
        self.own -= seconds
        self._credit += seconds

    def spares(self, step: int) -> bool:
        """Return True if facts may be left out of a step although there is no budget: later steps are mostly alike, and
        facts are read in a few of them together.
        """
        if self.overhead is not None or step < LEARNT:
            return False
        if self._left > 0:
            self._left -= 1
            return False
        return step % OF >= FACTS

    def next_facts(self, step: int) -> int:
        """Return the next step with facts, after one without."""
        return (step // OF + 1) * OF

    def alarm(self) -> None:
        """Read the next steps in full after an unusual number, unless that was granted too often."""
        if self._credit > -DEBT_S and (not self._allowed or self._room() > -DEBT_S):
            self._left, self.alarmed = max(self._left, ALARM), True
        elif (steps := self.full_steps + self.light_steps) >= 2 * self._rescued:
            # In debt, too, what fails late must be read: a short burst, each time after twice as many steps.
            self._left, self._rescued, self.alarmed = max(self._left, BURST), steps, True

    def watch(self, loss: float | None, norm: float | None) -> bool:
        """Check the numbers of a step. Return True if one is unusual; then the next steps are read in full."""
        odd = [usual.odd(value) for usual, value in zip(self._usual, (loss, norm), strict=True) if value is not None]
        odd.append(loss is not None and self._level.left(loss))
        if norm is not None:  # gradients that are zero all at once no longer reach the weights
            odd.append(norm == 0.0 and self._flowing)
            self._flowing = norm != 0.0
        if any(odd):
            self.alarm()
            return True
        return False
