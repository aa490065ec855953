"""The TIMING fact: time and work of a step and of each layer, measured in a few sampled steps."""

from collections.abc import Container
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen

MUCH_SLOWER = 1.5
"""Ratio of a sampled step to others from which it is said: below it no share changes by more than a third."""
DOUBTFUL = 3.0
"""Ratio from which on most of a sampled step is not what an ordinary one does, and its shares are not told."""

HOST = "host"
"""The clock of a model on several CUDA devices, or on other devices than these and the CPU."""
HAND = "hand"
"""The clock of times that the program itself gives: timers around its code, seconds of layers."""


@frozen
class LayerTiming:
    """Time and work of one layer in a typical sampled step: sums over the calls of the step."""

    layer: str
    """The path of the layer; empty for a whole model without a name."""
    calls: Count
    """Forward passes of the layer in a step."""
    forward_s: float
    """Seconds of its forward passes, with the layers inside of it."""
    own_forward_s: float
    """Seconds of its forward passes, without the layers inside of it."""
    backward_s: float | None = None
    """Seconds of the backward pass of its operations, with the layers inside of it; None if there was none."""
    own_backward_s: float | None = None
    """The same without the layers inside of it."""
    flops: float | None = None
    """Floating-point operations of its forward passes in a step, with the layers inside of it; None if not counted."""
    backward_flops: float | None = None
    """Floating-point operations of its backward pass in a step."""
    inputs: tuple[str, ...] = ()
    """Its input tensors in the last sampled call: "float32[32, 64]"."""
    outputs: tuple[str, ...] = ()
    """Its output tensors in the last sampled call."""
    type: str = ""
    """Its type as the program gave it by hand; "" if it did not."""


@frozen
class TimerTiming:
    """The time between the starts and the ends of a timer that the program set by hand, over the whole run."""

    name: str
    """The name of the timer."""
    calls: Count
    """How often it has ended."""
    total_s: float
    """Seconds in it, with the timers inside of it; those in which it ran inside of itself count once."""
    own_s: float
    """Seconds in it, without the timers inside of it."""
    median_s: float
    """Median seconds of a call."""
    p95_s: float
    """Seconds of a call that 95% of the calls took at most."""
    max_s: float
    """Seconds of the longest call."""
    share: float
    """``own_s`` over the same of all timers: the shares of all timers sum to 1."""
    mean_s: float
    """Mean seconds of a call."""


@frozen
class TimingFact(Known):
    """The parts of a typical step by time, and its layers, over the sampled steps so far: ``step_s`` is their sum.

    A step is the time from the end of a step of the first optimizer to the end of its next. Time that this tool took is
    left out.
    """

    KEY: ClassVar = "timing"

    steps: Count
    """Sampled steps."""
    first: Count
    """The first sampled step."""
    last: Count
    """The last sampled step."""
    clock: str
    """The clock of the layers: "cpu", "cuda" for events on the device's own stream, "host" for the processor's clock
    and a model on other devices: it sees when their work is launched; "hand" for times that the program gave."""
    step_s: float
    """Seconds of a typical sampled step."""
    data_s: float | None = None
    """Seconds of a step in which the program waited for its data loader; None if it has none that was seen."""
    forward_s: float | None = None
    """Seconds of a step in forward passes of the watched models."""
    backward_s: float | None = None
    """Seconds of a step in backward passes."""
    optimizer_s: float | None = None
    """Seconds of a step in steps of optimizers."""
    evaluation_s: float | None = None
    """Seconds of a step in forward passes without gradients."""
    other_s: float | None = None
    """The rest of the step: losses, transfers, logging, code of the program."""
    usual_s: float | None = None
    """Median seconds of the steps that were not sampled; None if there were none."""
    flops: float | None = None
    """Floating-point operations of a step, forward and backward; None if not counted."""
    machine_flops: float | None = None
    """Floating-point operations per second of a matrix product on this device, as measured; None if not measured."""
    machine: str = ""
    """The device, and the dtype and size of that product, in words."""
    workers: Count | None = None
    """``num_workers`` of the data loader; None if none was seen."""
    batches: float | None = None
    """Median number of times that a step waits for the data loader, several under gradient accumulation; None if none
    was seen."""
    cores: Count | None = None
    """Processor cores that the process may use."""
    threads: Count | None = None
    """Threads of torch within one operation."""
    layers: tuple[LayerTiming, ...] = ()
    """The layers in the order of their first call."""
    uncounted: tuple[str, ...] = ()
    """Operators whose floating-point operations are not known, and not in ``flops``."""
    backward_split: bool = True
    """False if some backward pass could not be split by layers."""
    alike: float = 1.0
    """Share of the sampled steps that did the same as most of them; below 1 times and operations are means over all."""
    shapes: Count = 1
    """Different shapes of the input, or of the output, in these steps."""
    trace: str = ""
    """The file of the window of ``torch.profiler`` beside the run file; empty if none was asked for."""
    timers: tuple[TimerTiming, ...] = ()
    """The timers that the program set by hand, the largest ``own_s`` first; of very many the largest."""

    @property
    def ordinary_s(self) -> float:
        """Seconds of an ordinary step: the median of those that were not sampled, else of a typical sampled one.

        >>> run.profile().timing.ordinary_s > 0
        True
        """
        return self.usual_s or self.step_s

    @property
    def slowed(self) -> float:
        """Ratio of a typical sampled step to an ordinary one; 1 if no other was timed.

        >>> run.profile().timing.slowed > 0
        True
        """
        return self.step_s / self.ordinary_s if self.ordinary_s > 0 else 1.0

    @property
    def doubtful(self) -> bool:
        """True if the sampled steps say little of an ordinary one: there is one only, they took several times as long,
        or only the launch of work on devices was timed. Then shares of the parts of a step, and bottlenecks of time,
        are not told.

        >>> run.profile().timing.doubtful in (True, False)
        True
        """
        return self.steps < 2 or self.slowed >= DOUBTFUL or self.clock == HOST

    @property
    def by_hand(self) -> bool:
        """True if the program gave the times: nothing is known of its framework.

        >>> run.profile().timing.by_hand
        False
        """
        return self.clock == HAND

    @property
    def reached_flops(self) -> float | None:
        """Floating-point operations per second of the forward and backward passes, in which all counted ones are; None
        if they were not counted or not timed.

        >>> run.profile().timing.reached_flops is None
        True
        """
        busy = (self.forward_s or 0.0) + (self.backward_s or 0.0)
        return self.flops / busy if self.flops and busy > 0 else None

    def caution(self) -> str:
        """Return the sentence that comes before all others if the sampled steps are no ordinary ones; else "".

        >>> timing = run.profile().timing
        >>> bool(timing.caution()) == (timing.steps < 2 or timing.slowed >= 1.5 or timing.clock == "host")
        True
        """
        said = []
        if self.clock == HOST:
            said.append("work on the model's devices was timed when it was launched, not when it was done")
        if self.steps < 2:
            said.append(f"only one step was {'timed' if self.by_hand else 'sampled'}")
        if self.slowed >= MUCH_SLOWER:
            said.append(f"a sampled step took {self.slowed:.1f} times as long as others")
        if not said:
            return ""
        text = " and ".join(said)
        text = text[0].upper() + text[1:]
        if not self.doubtful:
            return f"{text}: shares of the smallest layers are too large."
        if self.clock == HOST:
            more = "torch.profiler tells the time of each operation (--trace 20:25)"
            return f"{text}: times of layers and shares of a step's parts are not those of the devices; {more}."
        if self.by_hand:
            return f"{text}: the shares of its parts and bottlenecks of time are not told; time a second one."
        more = "record more of them with neuraldbg run --profile, or NeuralDbg(model, profile=True)"
        if self.machine_flops is not None:  # it was asked for
            more = "record a longer run, or look at a trace of single steps (--trace 20:24)"
        return f"{text}: the shares of its parts and bottlenecks of time are not told; {more}."

    def own_flops(self) -> dict[str, float]:
        """Return the operations of each layer, forward and backward, without those of the layers inside of it, by path.
        Empty if none were counted, as without ``profile=True``.

        >>> run.profile().timing.own_flops()
        {}
        """
        whole = {one.layer: (one.flops or 0.0) + (one.backward_flops or 0.0) for one in self.layers}
        own = dict(whole)
        for path, flops in whole.items():
            around = layer_around(path, whole)
            if around is not None:
                own[around] -= flops
        return {path: max(flops, 0.0) for path, flops in own.items()} if any(whole.values()) else {}


def layer_around(path: str, known: Container[str]) -> str | None:
    """Return the path of the nearest module around one among those that are known; None if there is none. The path of a
    whole model is "".
    """
    parts = path.split(".")
    above = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)] + [""] * bool(path)
    return next((one for one in above if one in known), None)
