"""Waiting for the data loader: the training stands still while the next batch is made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.nouns.measures import percent, seconds
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.profile.finder import Measured

LEAST = 0.1
"""Share of the step: without it the training is 1.11 times as fast (Amdahl), which is worth a changed argument."""
HANDED_OVER_S = 2e-3
"""Seconds of waiting for a batch below which workers do not help. To take a batch that a worker has ready costs 1.5 to
1.9 ms (torch 2, two cores, batches of 1 KiB to 6 MiB, worker ahead); to make it without workers took 0.3 to 0.9."""
ROOM = 1.25
"""Workers beyond those that keep up on average: batches take differently long, and a queue that runs empty waits."""

_BY_HAND = (
    "Make the next batch in another thread or process while the step runs, or make a batch cheaper than {}: transforms "
    "of whole batches, samples that are decoded once"
)
"""The remedy where the framework is not known."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return the waiting for the data loader."""
    timing = measured.timing
    if timing is None or timing.data_s is None:
        return
    share, workers = measured.share(timing.data_s), timing.workers or 0
    if share < LEAST:
        return
    # Under gradient accumulation a step takes several batches.
    batches = max(timing.batches or 1.0, 1.0)
    several = f", in {batches:.0f} batches" if batches >= 2 else ""
    wait = f"{seconds(timing.data_s)}{several}"
    if timing.by_hand:  # by which library batches are made is not known
        text = f"{percent(share)} of the step, {wait}, waits for data"
        yield Bottleneck("data_loading", text, _BY_HAND.format(seconds(timing.data_s / batches)), share)
        return
    text = f"{percent(share)} of the step, {wait}, waits for the data loader (num_workers={workers})"
    if timing.data_s / batches < HANDED_OVER_S:
        yield Bottleneck("data_loading", text, _without_workers(workers), share)
        return
    compute = max(timing.step_s - timing.data_s, 1e-9)
    # One worker, or the main process without any, takes this long for the batches of a step.
    made_s = timing.data_s if workers == 0 else (timing.data_s + compute) * workers
    needed = max(math.ceil(ROOM * made_s / compute), 1)
    # On a device the process has nothing else to do; on processors each thread of torch needs a core.
    busy = 1 if measured.on_device else (timing.threads or 1)
    fits = max((timing.cores or 1) - busy, 0)
    yield Bottleneck("data_loading", text, _remedy(measured, workers, needed, fits, made_s / batches), share)


def _without_workers(workers: int) -> str:
    """Return what helps where a batch is made faster than a worker process could hand it over."""
    remedy = (
        "If the data fits in memory, index whole batches instead of samples: "
        "for rows in torch.randperm(len(x)).split(batch_size): x[rows], y[rows]; or take larger batches"
    )
    costs = f"handing over a batch from a worker process takes up to {seconds(HANDED_OVER_S)}"
    if workers:
        return f"{remedy}. More workers do not help: {costs}; num_workers=0 may be faster."
    return f"{remedy}. Workers do not help: {costs}."


def _remedy(measured: Measured, workers: int, needed: int, fits: int, batch_s: float) -> str:
    """Return the arguments of the data loader that fit, or what else to do if more workers do not."""
    timing = measured.timing
    assert timing is not None
    cores = f"{timing.cores} core{'' if timing.cores == 1 else 's'}"
    cheaper = (
        f"make a batch cheaper than {seconds(batch_s)}, for example by transforms of whole batches, or by samples that "
        "are decoded once and kept as tensors"
    )
    better = min(needed, fits)
    if better <= workers:
        return f"More workers do not fit beside the training ({cores}): {cheaper}."
    pinned = ", pin_memory=True" if measured.on_device else ""
    code = f"DataLoader(..., num_workers={better}, persistent_workers=True{pinned})"
    return code if better == needed else f"{code}; {needed} would be needed, and do not fit ({cores}): {cheaper}."
