"""The workers of a data loader deliver the same samples.

What it is
    Each worker of a ``DataLoader`` works on its own copy of the dataset. An ``IterableDataset`` that is not split by
    worker is read by every one of them from its beginning, so each sample comes as many times as there are workers. A
    random generator that the dataset holds is copied too, and all workers draw the same numbers from it.

Symptoms
    Equal batches come in groups. An epoch is several times as long as it should be, and the effective amount of data
    is that much smaller. The model overfits.

Evidence
    Batches are compared by fingerprints of their samples. It is the cause when they come in equal groups whose length
    is the number of workers of the loader in use, each in a tensor of its own. Several passes over one batch
    on purpose use the same tensor, and training on one batch to test a model gives one endless group. Workers that
    augment different samples alike cannot be seen in this way; for them the code is read: a ``worker_init_fn`` that
    seeds with a constant, a generator in the dataset that it draws from and that is never renewed.

What to do
    Split an ``IterableDataset`` by ``get_worker_info()``; seed generators of the dataset in ``worker_init_fn``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.inputs import batches
from neuraldbg.explain.evidence.wording import plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.batches import AlikeWorkers, EqualBatches

SPLIT = """class Sharded(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        yield from itertools.islice(self.source(), first, None, step)"""
SEED = """def seed_worker(worker_id):
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.rng = np.random.default_rng(torch.initial_seed() % 2**32)

loader = DataLoader(dataset, num_workers=2, worker_init_fn=seed_worker)"""


def judge(case: Case) -> Finding | None:
    """Weigh equal batches in groups as large as the number of workers, then workers with equal random numbers."""
    for fact in batches(case):
        found = _groups(case, fact.runs)
        if found is not None:
            return found
        if fact.alike is not None:
            return _alike(case, fact.alike)
    return None


def _alike(case: Case, value: AlikeWorkers) -> Finding:
    weigh, number, name = Weighing(), value.workers, value.name
    if value.how == "init":
        called = "worker_init_fn" if name == "<lambda>" else name
        weigh.speaks(f"{called} seeds every worker alike: it looks neither at its argument nor at its own seed",
                     3.2, called)  # fmt: skip
    else:
        weigh.speaks(f"{value.dataset} draws from its own generator .{name}, of which each worker has a copy in the "
                     "same state", 3.2, name)  # fmt: skip
    weigh.speaks(f"the loader in use has {number} workers", 0.5, number, 2)
    return weigh.conclude(
        f"random numbers that the {number} workers of the data loader draw alike in {value.dataset}",
        Remedy("Give each worker random numbers of its own.", SEED),
        step=0,
        failure=case.trouble.name or "augmentation that repeats itself",
    )


def _groups(case: Case, runs: EqualBatches) -> Finding | None:
    workers = runs.workers
    lengths = {int(length): count for length, count in runs.lengths.items()}
    if workers is None or workers.workers < 2 or runs.reused:
        return None
    # Repeated batches have many causes; only groups of the number of workers point at the workers.
    number = workers.workers
    groups, total = lengths.get(number, 0), sum(lengths.values())
    if groups < 2 or groups < 0.7 * total:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{plural(groups, 'group')} of {number} equal batches{case.counted} came one after the other", 3.0, groups, 2
    )
    weigh.speaks(f"the loader in use has {number} workers: as many as batches in a group", 2.5, number, number)
    weigh.speaks("each of the equal batches is a tensor of its own, so none was used again on purpose", 1.0, 0)
    iterable = workers.iterable
    what = (
        f"every one of {number} workers reads {iterable} from its beginning"
        if iterable
        else f"{number} workers draw the same random numbers in {workers.dataset or 'the dataset'}"
    )
    return weigh.conclude(
        f"equal batches from the workers of the data loader: {what}",
        Remedy("Give each worker its own part of the data, or random numbers of its own.", SPLIT if iterable else SEED),
        step=max(0, runs.first),
        failure=case.trouble.name or "data that repeats itself",
    )


CAUSE = Cause(
    module=__name__,
    title="DataLoader workers draw the same random numbers",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
    place="forward",
)
