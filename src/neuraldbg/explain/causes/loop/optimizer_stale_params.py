"""The optimizer holds tensors that are no longer the model's.

What it is
    The optimizer was given parameters that the model has since replaced: the model was rebuilt, a layer was exchanged,
    or the model was loaded or converted in a way that made new tensors, after the optimizer was created. Each step
    updates the old tensors; the ones that compute the loss stay as they are.

Symptoms
    The loss does not move at all, or, when only some layers were exchanged, exactly those layers stay at their initial
    values.

Evidence
    It is read from the program: tensors in the optimizer's groups belong to no layer of any model that was called, and
    they never get a gradient. Where that happens in mid-run, parameters of the optimizer lose their gradient, and
    others get one that no optimizer holds. Learnable tensors outside a model (a loss weight, an image that is
    optimised) do get gradients and are no fault.

What to do
    Create the optimizer last, after everything that replaces parameters.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import a_step, listing, plural, rounded, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.optimizer import OptimizerFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

LASTING = 50
"""Steps up to the end of the run for which parameters must be in no optimizer to have been replaced for good."""


def judge(case: Case) -> Finding | None:
    """Weigh the optimizer's tensors that belong to no model."""
    if not case.layout.called:
        return None  # without a model the tensors of an optimizer cannot be compared with a model's
    if (replaced := _replaced(case)) is not None:
        return replaced
    stale = [fact for fact in case.optimizers if _persists(case, fact)]
    if not stale:
        return _another_model(case)
    fact = max(stale, key=lambda value: value.foreign_no_grad)
    foreign, dead, owned = fact.foreign, fact.foreign_no_grad, fact.owned
    weigh = Weighing()
    weigh.speaks(
        f"{plural(dead, 'tensor')} in the optimizer {'belongs' if dead == 1 else 'belong'} to no model that was called "
        "and never got a gradient",
        4.0, dead, 0,
    )  # fmt: skip
    if owned == 0:
        weigh.speaks("the optimizer holds no parameter of any model that was called", 3.0, owned, 0)
    # The other side of old copies: the model's own parameters are in no optimizer.
    left_out = case.standing("not_in_optimizer", 3)
    if left_out:
        state = verb(left_out, "gets gradients but is", "get gradients but are")
        weigh.speaks(f"{listing(left_out)} of the model {state} in no optimizer", 2.5, len(left_out), 0)
    elif owned:
        weigh.against("every parameter of the model that gets a gradient is in an optimizer", 3.0, 0)
    if foreign > dead:
        weigh.against(f"{foreign - dead} of its tensors outside the models do get gradients", 1.0, foreign - dead)
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 1.0)
    rate = f", lr={rounded(case.lr)}" if case.lr > 0 else ""
    return weigh.conclude(
        f"an optimizer that holds {plural(dead, 'tensor')} that the model does not use: it updates old copies",
        Remedy(
            "Create the optimizer after the model has its final parameters: after layers were exchanged, weights "
            "loaded with assign=True, or the model was wrapped or converted.",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(){rate})  # last of all",
        ),
        layer=owner(left_out[0]) if left_out and owned else None,
        step=0,
        failure="optimizer without effect" if not owned else "untrained layer",
    )


def _another_model(case: Case) -> Finding | None:
    """Weigh an optimizer that was made for a model that was called once, while another one is trained."""
    left_out = case.standing("not_in_optimizer")
    versions = [fact for _, fact in case.run.versions(OptimizerFact, stream=case.stream)]
    idle = all(fact.idle == fact.owned > 0 for fact in versions)
    if not left_out or not versions or not idle or len(case.run.streams) > 1:
        return None
    weigh = Weighing()
    weigh.speaks(f"none of the {versions[-1].owned} parameters in the optimizer ever got a gradient", 3.0, 0)
    state = verb(left_out, "gets gradients and is", "get gradients and are")
    weigh.speaks(f"{listing(left_out)} of another model {state} in no optimizer", 3.5, len(left_out), 0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    rate = f", lr={rounded(case.lr)}" if case.lr > 0 else ""
    return weigh.conclude(
        "an optimizer that was made for another model than the one that is trained",
        Remedy(
            "Create the optimizer after the model, and again when the model is rebuilt.",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(){rate})  # last of all",
        ),
        step=0,
        failure="optimizer without effect",
    )


def _lost(case: Case) -> tuple[int, int, int, bool] | None:
    """Return the steps between which parameters of the main optimizer lost their gradient or were replaced, their
    number, and whether others kept theirs; None if that is not known.
    """
    turn = next((fact for _, fact in reversed(case.run.versions(ChangeFact, what="gradients"))), None)
    if turn is not None and (turn.after or 0.0) < (turn.before or 0.0):
        return turn.since, turn.until, round((turn.before or 0.0) - (turn.after or 0.0)), bool(turn.after)
    versions = case.run.versions(OptimizerFact, stream=case.stream)
    for (since, old), (until, new) in itertools.pairwise(versions):
        if old.foreign_no_grad < new.foreign_no_grad == versions[-1][1].foreign_no_grad:
            read = max((step for step in case.facts_read if step < until), default=since)
            return max(since, read), until, new.foreign_no_grad - old.foreign_no_grad, new.owned > 0
    return None


def _replaced(case: Case) -> Finding | None:
    """Weigh parameters that were replaced in mid-run: those in the optimizer lose their gradient, others have one."""
    turn, joined = _lost(case), case.joined("not_in_optimizer", LASTING)
    if turn is None or joined is None:
        return None
    since, until, lost, partly = turn
    if not joined.since <= until or not since <= joined.until:
        return None
    new, weigh = joined.names, Weighing()
    weigh.speaks(
        f"{plural(lost, 'parameter')} in the optimizer belonged to the model up to step {since}, and had no "
        f"gradient from step {until} on",
        3.0, lost, 0,
    )  # fmt: skip
    state = verb(new, "gets gradients and is", "get gradients and are")
    weigh.speaks(
        f"{listing(new)} {state} in no optimizer at each reading from step {joined.until} on", 3.5, len(new), 0
    )
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    rate = f", lr={rounded(case.lr)}" if case.lr > 0 else ""
    old = plural(lost, "tensor")
    return weigh.conclude(
        f"an optimizer that holds {old} that the model does not use any more since {a_step(since, until)}: it updates "
        "old copies",
        Remedy(
            "Create the optimizer again after layers or the model are replaced, or load new weights into the old "
            "parameters (load_state_dict, or copy_ under torch.no_grad()).",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(){rate})",
        ),
        layer=owner(new[0]) if partly else None,
        step=until,
        since=since,
        failure="untrained layer" if partly else "optimizer without effect",
        explains=frozenset({"loss_divergence"}),  # what is new begins at random
    )


def _persists(case: Case, fact: OptimizerFact) -> bool:
    """Return True if every reading but the first, or the only one, has tensors of no model without a gradient."""
    versions = case.run.versions(OptimizerFact, stream=fact.stream)
    return all(version.foreign_no_grad > 0 for _, version in versions[1:] or versions)


CAUSE = Cause(
    module=__name__,
    title="Optimizer holds tensors that the model no longer uses",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    place="optimizer",
    entails=frozenset({"param_not_in_optimizer", "detached_graph"}),
    page=__doc__ or "",
)
