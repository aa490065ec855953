"""The diagnosis of a run: cause, layer, first step, confidence, and the evidence for and against.

A RunRecord enters, a Diagnosis leaves. Nothing here imports torch or changes the record. A live run is read back from
its database by the code that reads a file, so the file gives the same diagnosis.

The stages: ``Case`` (readings of the record) -> causes (one judge each) -> ranking -> verdict, causal chain, source
lines. Each cause weighs evidence for and against itself in log-odds, which add to the prior of its tier:

- certain: read from the program itself, as wiring, loss graph or modes (``missing_zero_grad``, ``double_softmax``)
- specific: a measurement that few other causes produce (``bad_batch``, ``unstable_op``)
- statistical: a pattern over layers or steps (``vanishing_depth``, ``dead_relu``)
- palliative: symptoms alone (``lr_too_high``, ``lr_too_low``)

A cause that raises on a strange record becomes an ``Unjudged``, and the other causes are still judged.

- ``cause.py``: the contract of a cause
- ``finding.py``: the result of a cause's judge, and the tiers
- ``evidence/``: the readings of the record that causes weigh
- ``causes/``: the causes, one file each
- ``verdict/``: confidence, ranking, verdict, causal chain and source lines
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.causes import CAUSES, cause
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.wording import listing, plural
from neuraldbg.explain.finding import Finding, Tier
from neuraldbg.explain.verdict import causal_chain, ranking, verdict
from neuraldbg.explain.verdict.causal_chain import trace
from neuraldbg.explain.verdict.source_lines import places
from neuraldbg.nouns import Chain, Diagnosis, Unjudged
from neuraldbg.nouns.facts.loss import LossFact

if TYPE_CHECKING:
    from neuraldbg.nouns import Hypothesis, RunRecord

__all__ = ["CAUSES", "Case", "Cause", "Finding", "Tier", "cause", "diagnose", "judge_all", "trace"]

UNREACHED = 5
"""Training passes without a backward pass that are tolerated: one or two are made to try a model out."""
UNSEEN = 4.0
"""Log-odds that a cause needs in a run of which no step was recorded."""


def diagnose(run: RunRecord) -> Diagnosis:
    """Explain a run. What the record lacks raises nothing: ``unjudged`` names it."""
    case = Case(run)
    findings, unjudged = judge_all(case)
    hypotheses = tuple(_placed(case, h) for h in verdict.credible(case, ranking.rank(case, findings)))
    certain = verdict.certain_ids({member.id: member.tier for member in CAUSES})
    judged, summary = verdict.judge(case, hypotheses, certain)
    top = hypotheses[0] if hypotheses else None
    drawn = causal_chain.build(case, top) if top is not None or case.trouble.any else Chain()
    if top is None and case.trouble.any:
        drawn = causal_chain.build(case, None, case.kinds)
    return Diagnosis(
        verdict=judged,
        summary=summary,
        run=_about(case),
        symptoms=_symptoms(case),
        events=run.events,
        hypotheses=hypotheses,
        chain=drawn,
        unjudged=(*unjudged, *_blind_spots(case)),
    )


def judge_all(case: Case) -> tuple[list[tuple[Cause, Finding]], list[Unjudged]]:
    """Judge every cause. A judge that raises on a strange record becomes an Unjudged and does not end the diagnosis."""
    findings: list[tuple[Cause, Finding]] = []
    unjudged: list[Unjudged] = []
    unseen = not len(case.history)
    if unseen and case.run.info.outcome.kind != "raised":
        return findings, unjudged
    with np.errstate(all="ignore"):
        for member in CAUSES:
            try:
                finding = member.judge(case)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration) as error:
                if unseen:
                    continue
                unjudged.append(Unjudged(member.id, f"could not be judged: {type(error).__name__}: {error}"))
                continue
            if finding is not None:
                findings.append((member, finding))
    if unseen:  # a script that raised before its first step: only evidence of the error or the program counts
        findings = [(member, finding) for member, finding in findings if finding.log_odds >= UNSEEN]
    return findings, unjudged


def _placed(case: Case, hypothesis: Hypothesis) -> Hypothesis:
    return replace(hypothesis, places=places(case, cause(hypothesis.cause), hypothesis))


def _symptoms(case: Case) -> tuple[str, ...]:
    found = [case.trouble.phrase] if case.trouble.phrase else []
    outcome = case.run.info.outcome
    if outcome.kind == "raised" and outcome.message:
        found.append(f"the script raised {outcome.message.strip().splitlines()[-1]}")
    elif outcome.kind == "halted":
        found.append(f"training was halted: {outcome.message}")
    return tuple(found)


def _about(case: Case) -> dict[str, Any]:
    """Return the program that ran, and the overhead: the tool's time over that of the training without it."""
    run, info = case.run, case.run.info
    return {
        "script": info.script,
        "argv": list(info.argv),
        "steps": run.steps or len(run.history),
        "models": list(info.models),
        "optimizers": list(info.optimizers),
        "duration_s": float(run.history.time[-1]) if len(run.history) else 0.0,
        "overhead_ratio": (info.coverage.get("cost") or {}).get("ratio", _overhead(case)),
        "coverage": dict(info.coverage),
        "versions": dict(info.versions),
        "device": info.device,
        "seed": info.seed,
        "outcome": {"kind": info.outcome.kind, "message": info.outcome.message, "where": info.outcome.where},
    }


def _overhead(case: Case) -> float | None:
    """Return the tool's time over that of the training, from the durations of the steps: for runs that did not sum it
    up themselves.

    Where steps were light, it is the mean overhead over the median step: the full steps between them count, too.
    """
    duration, overhead = (case.history.scalars.get(name) for name in ("duration", "overhead"))
    if duration is None or overhead is None:
        return None
    # The first step's duration includes the program's imports and its loading of data, which would dominate a sum.
    own = duration - overhead
    known = np.isfinite(own) & (own > 0)
    if not known.any():
        return None
    if case.skips:
        return float(np.mean(overhead[known]) / np.median(own[known]))
    return float(np.median(overhead[known] / own[known]))


def _blind_spots(case: Case) -> list[Unjudged]:
    """Return what could not be read in this run, and the questions that this leaves open."""
    found = [Unjudged(gap.what, f"{gap.reason}; the result may be incomplete") for gap in verdict.gaps(case)]
    if not len(case.history):
        return [*found, Unjudged("every cause", "no optimizer step was recorded")]
    if not len(case.loss):
        found.append(Unjudged("whether the model learns", "no loss was seen at a backward pass"))
    elif len(case.loss.finite) and case.loss.finite.values.min() < 0 < case.loss.finite.values.max():
        found.append(Unjudged("whether the loss goes anywhere", "it takes both signs, so its level means nothing"))
    if case.run.known(LossFact) is None:
        found.append(Unjudged("causes in the loss", "no graph of a loss was seen at a backward pass"))
    elif not case.terms:
        ops = ", ".join(case.loss_ops[:3])
        found.append(Unjudged("whether the loss fits the task", f"no known form was recognised in its graph ({ops})"))
    elif any(term.kind == "unknown" for term in case.terms):
        found.append(Unjudged("one term of the loss", "it has no known form"))
    # The record may have only a part of the run: passes without a backward pass, light steps, hooks that never fired,
    # steps written coarsely, samples of large tensors.
    graded, reached = (int(case.run.info.coverage.get(name, 0)) for name in ("graded", "reached"))
    if graded - reached > max(UNREACHED, graded // 20):
        said = f"{graded - reached} of {graded} training passes were not followed by a backward pass"
        found.append(Unjudged("the losses of passes that were left out", said))
    if case.skips:
        read = int(case.history.width[case.history.read].sum())
        said = f"to keep the cost low, layers were read in {read:,} of {case.run.steps:,} steps"
        said += "; of the others only the loss, the learning rate and the gradient norm are known"
        found.append(Unjudged("single steps", said))
    never = case.run.info.coverage.get("never_fired") or ()
    if never:
        found.append(Unjudged(f"activations of {listing(never)}", "their forward hooks never fired"))
    left = case.run.info.coverage.get("left_compiled") or ()
    if left:
        said = "reading them there slows each step down, so they are left alone unless "
        said += 'settings={"capture": {"compiled": "observe"}} asks for it'
        found.append(Unjudged(f"activations and their gradients in compiled graphs on {listing(left)}", said))
    if coarse := int(case.run.info.coverage.get("coarse", 0)):
        said = f"the writer of the run did not keep up, and {plural(coarse, 'step')} are recorded coarsely"
        found.append(Unjudged("single steps", said))
    if case.history.read.any():
        newest = case.history.row(int(np.flatnonzero(case.history.read)[-1]))
        total, count = (np.nan_to_num(newest[:, index]) for index in (0, 1))
        sampled = int(((count > 0) & (count < total)).sum())
        if sampled:
            said = f"of {plural(sampled, 'large tensor')} a sample of values is read at each step, not every one"
            found.append(Unjudged("single odd values", said))
    return found
