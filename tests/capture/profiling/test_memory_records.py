"""Peaks from records made by hand: several threads, a device, layers inside of layers, our own work."""

from __future__ import annotations

from dataclasses import dataclass

from neuraldbg.capture.profiling import memory_records as names
from neuraldbg.capture.profiling.operation_counts import ENTERS, LEAVES
from neuraldbg.capture.profiling.step_events import StepEvents


@dataclass
class Record:
    """A record as the legacy profiler gives it."""

    what: str
    said: str = ""
    bytes: int = 0
    at: float = 0.0
    number: int = -1

    def kind(self) -> str:
        return self.what

    def name(self) -> str:
        return self.said

    def cpu_memory_usage(self) -> int:
        return self.bytes

    def cuda_memory_usage(self) -> int:
        return 1000 * self.bytes

    def scope(self) -> int:
        return 1 if self.number >= 0 else 0

    def sequence_nr(self) -> int:
        return self.number

    def start_us(self) -> float:
        return self.at

    def cpu_elapsed_us(self, other: Record) -> float:
        return other.at - self.at


def mark(name: str) -> list[Record]:
    return [Record("push", name), Record("pop")]


def moves(*sizes: int) -> list[Record]:
    return [Record("memory_alloc", bytes=size) for size in sizes]


def two_layers() -> StepEvents:
    """A model, number 0, with one layer, number 1; nodes 10 to 19 are the layer's."""
    events = StepEvents()
    events.enter(0, 5, 0.0, graded=True)
    events.enter(1, 10, 0.0, graded=True)
    events.leave(1, 20, 0.0)
    events.leave(0, 25, 0.0)
    return events


def step() -> list[Record]:
    forward = [
        *moves(7), *mark(names.BEGINS), *mark(f"{ENTERS}0"), *moves(100), *mark(f"{ENTERS}1"), *moves(30, 20, -20),
        *mark(f"{LEAVES}1"), *moves(30), *mark(f"{LEAVES}0"),
    ]  # fmt: skip
    backward = [Record("push", "node", number=12), *moves(400, -400), Record("pop"), *moves(-100, -30, -30)]
    return [*forward, *mark(names.BACKWARD), *backward, *mark(names.AFTER_BACKWARD)]


def test_peaks_of_layers_and_of_the_step() -> None:
    found = names.peaks([step()], two_layers(), device=False)
    assert (found.left, found.before_backward) == (7, 160)
    assert found.forward == {0: 160, 1: 150}
    assert found.backward == {0: 560, 1: 560}
    assert (found.whole, found.at) == (560, ("backward", 1))


def test_backward_in_a_thread_of_its_own() -> None:
    """As on a device: records come by thread, and are put in order of time."""
    whole = step()
    for at, record in enumerate(whole):
        record.at = float(at)
    first = next(at for at, record in enumerate(whole) if record.number >= 0)
    main, other = [*whole[:first], *whole[first + 5 :]], whole[first : first + 5]
    found = names.peaks([main, [], other], two_layers(), device=True)
    assert found.backward == {0: 560_000, 1: 560_000}
    assert (found.whole, found.before_backward) == (560_000, 160_000)


def test_our_own_work_is_left_out() -> None:
    records = [*mark(names.BEGINS), *mark(names.OURS), *moves(10_000), *mark(names.OURS_ENDS), *moves(5)]
    assert names.peaks([records], StepEvents(), device=False).whole == 5


def test_moments_outside_of_layers_have_words() -> None:
    begin = mark(names.BEGINS)
    said = {
        "before the forward pass": [],
        "between the forward and the backward pass": [*mark(f"{ENTERS}0"), *mark(f"{LEAVES}0")],
        "the backward pass of the loss": mark(names.BACKWARD),
        "between the backward pass and the optimizer's step": mark(names.AFTER_BACKWARD),
        "the optimizer's step": mark(names.OPTIMIZER),
    }
    for words, before in said.items():
        found = names.peaks([[*begin, *before, *moves(9)]], two_layers(), device=False)
        assert found.at == (words, -1)
