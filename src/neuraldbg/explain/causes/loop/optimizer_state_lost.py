"""The optimizer forgets its momentum or averages: created again in the loop, emptied, or not restored.

What it is
    Adam and SGD with momentum remember past gradients. A new optimizer object remembers nothing: made inside the loop,
    it starts afresh each time. The same happens when training continues from a checkpoint and only the model's weights
    are loaded, although the optimizer's state lies in the same file.

Symptoms
    Training is slower and rougher than it should be. Adam that is created again at each step moves every weight by
    exactly the learning rate, in the direction of the last gradient's sign. After a resume the loss jumps up.

Evidence
    It is seen which optimizer object steps, and if it continues with the same weights, unchanged since the last step
    of the one before. A new phase (unfreezing, a new task, a client in federated learning) makes a few new optimizers,
    for other weights or weights that were loaded in between, and is no fault; nor is an optimizer without memory, such
    as plain SGD. A checkpoint that is loaded to fine-tune a model is one only if the loss does not jump.

What to do
    Make the optimizer once, before the loop. After loading a checkpoint call ``optimizer.load_state_dict`` as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.training_loop import jump, losses_from, rates, stateful, stream_at
from neuraldbg.explain.evidence.wording import literal, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.memory import MemoryFact
from neuraldbg.nouns.facts.optimizer import OptimizerFact
from neuraldbg.nouns.facts.resume import ResumeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

TIMES = 3
"""Losses of the state from which it is a fault: a training may have a few phases with an optimizer each."""
SHORT = 2
"""Steps between two losses of the state in which no state can build up."""
LONG = 50
"""Steps in which the state of Adam (beta1 = 0.9) and of momentum 0.9 is rebuilt several times."""
JUMP = 1.3
"""Least factor by which the loss rises after a resume without the state."""
AFTER = 5
"""Steps after a resume that are needed to judge it."""


def judge(case: Case) -> Finding | None:
    """Weigh state that is lost during the run, then state that is left in a checkpoint."""
    for fact in case.run.known_each(MemoryFact):
        found = _in_the_loop(case, fact)
        if found is not None:
            return found
    for checkpoint in case.run.known_each(ResumeFact):
        found = _at_resume(case, checkpoint)
        if found is not None:
            return found
    return None


def _in_the_loop(case: Case, fact: MemoryFact) -> Finding | None:
    every, times, kind = fact.every, fact.remade + fact.emptied, fact.type or "optimizer"
    if times < TIMES:
        return None
    # State that is lost at every step or two never builds up; after more than LONG steps the loss hardly matters.
    how = "made anew" if fact.remade >= fact.emptied else "emptied of its state"
    weigh = Weighing()
    where = f" in steps{case.counted}" if case.counted else ""
    weigh.speaks(
        f"{kind} was {how} {times} times{where}, usually after {plural(every, 'step')}, for the same weights, which "
        "went on from where they were",
        5.5 if every <= SHORT and times >= 3 * TIMES else 3.5, every, LONG,
    )  # fmt: skip
    if not fact.same_lr:
        weigh.against("it came with another learning rate each time, as an old way to schedule one", 2.5)
    if every > LONG:
        weigh.against("its memory is short against the time between", 1.5, every, LONG)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.7)
    # Full steps count the objects, and settings are compared in between, too.
    turns = [one for _, one in case.run.versions(ChangeFact, what="optimizer", stream=fact.stream)]
    first = fact.first if fact.first is not None and every <= SHORT else -1
    begun = next((one for one in turns if 0 <= first - one.until <= LONG), None)
    return weigh.conclude(
        f"optimizer state that is lost every {plural(every, 'step') if every > 1 else 'step'}: {kind} is {how} in the "
        "loop",
        Remedy(
            "Make the optimizer once, before the loop.",
            f"optimizer = torch.optim.{kind}(model.parameters(), lr={literal(case.lr)})\nfor epoch in range(epochs):\n"
            "    ...",
        ),
        step=fact.first if begun is None else begun.until,
        since=None if begun is None else begun.since,
        failure=case.trouble.name or "lost momentum",
    )


def _at_resume(case: Case, fact: ResumeFact) -> Finding | None:
    step = fact.model_loaded
    elsewhere = fact.optimizer_loaded and not fact.loaded_steps
    if step is None or (fact.optimizer_loaded and not elsewhere):
        return None
    # Without state, or steps after the resume, there is nothing to lose or to see.
    stream = stream_at(case, step)
    about = case.run.known(OptimizerFact, stream=stream)
    if about is None or not stateful(about) or not _same_kind(about, fact) or len(losses_from(case, step)) <= AFTER:
        return None
    weigh, rise = Weighing(), jump(case, step)
    weigh.speaks(
        f"the checkpoint holds the state of an optimizer ({fact.states} entries under {fact.where!r}); "
        "its weights were loaded into the model, "
        + ("and its state into an optimizer that never stepped" if elsewhere else "its state into no optimizer"),
        3.5 if elsewhere else 1.5, fact.states,
    )  # fmt: skip
    if rise > JUMP:
        weigh.speaks(f"the loss rose {number(rise)} times within ten steps of it", 2.2, rise, JUMP)
    else:
        weigh.against("the loss did not jump after it", 1.5 if elsewhere else 2.5, rise, JUMP)
    # A continued training needs its state; fine-tuning from loaded weights does not.
    now = rates(case, stream).between(step, step + 1).values
    if len(now) and fact.lr and abs(now[0] / fact.lr - 1) < 1e-6:
        weigh.speaks("the learning rate is the one in the checkpoint, so this is no fine-tuning", 1.0)
    counters = [key for key in fact.numbers if key.lower().rstrip("s") in ("epoch", "step", "iteration")]
    if counters:
        weigh.speaks(f"the checkpoint says how far the training was ({', '.join(counters)})", 0.5)
    where = "".join(f"[{part!r}]" for part in fact.where.split(".") if part)
    return weigh.conclude(
        "optimizer state that is not restored at a resume: only the weights were loaded from the checkpoint",
        Remedy(
            "Load the optimizer's state as well, into the optimizer that trains.",
            f"optimizer.load_state_dict(checkpoint{where})",
        ),
        step=step,
        failure=case.trouble.name or "jump of the loss at resume",
    )


def _same_kind(about: OptimizerFact, fact: ResumeFact) -> bool:
    """Return True if the state in the checkpoint fits the kind of optimizer that trains."""
    if not fact.keys:
        return True
    return ("exp_avg" in fact.keys) == ("adam" in about.type.lower())


CAUSE = Cause(
    module=__name__,
    title="Optimizer state lost",
    tier=Tier.CERTAIN,
    explains=STALL | (BLOW_UP & {"loss_spike", "gradient_spike", "loss_divergence", "update_ratio_high"}),
    judge=judge,
    place="optimizer",
    page=__doc__ or "",
)
