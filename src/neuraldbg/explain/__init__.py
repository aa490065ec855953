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
- ``names.py``: the names by which a person may ask about a run
- ``missing_evidence.py``: what causes ask for and a record does not have
- ``job.py``: the diagnosis of all ranks of a job together
- ``finding.py``: the result of a cause's judge, and the tiers
- ``evidence/``: the readings of the record that causes weigh
- ``causes/``: the causes, one file each
- ``verdict/``: confidence, ranking, verdict, causal chain and source lines
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.causes import CAUSES, cause
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.schedule_shapes import courses
from neuraldbg.explain.evidence.training_loop import brief, crashed
from neuraldbg.explain.evidence.wording import listing, plural
from neuraldbg.explain.finding import Finding, Tier
from neuraldbg.explain.missing_evidence import OF_THE_PROGRAM, AskedCase
from neuraldbg.explain.names import Meaning, meaning
from neuraldbg.explain.verdict import causal_chain, ranking, verdict
from neuraldbg.explain.verdict.dating import dated
from neuraldbg.explain.verdict.kept_batch import kept_batch
from neuraldbg.explain.verdict.layer_words import LayerWords
from neuraldbg.explain.verdict.observations import observations
from neuraldbg.explain.verdict.source_lines import places
from neuraldbg.explain.verdict.unknown import unknown
from neuraldbg.explain.verdict.user_names import in_user_names
from neuraldbg.nouns import Chain, Diagnosis, Explanations, Unjudged
from neuraldbg.nouns.facts.loss import LossFact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.explain.evidence.ranks import Ranks
    from neuraldbg.nouns import Hypothesis, RunRecord

__all__ = [
    "CAUSES",
    "CREDIBLE",
    "Case",
    "Cause",
    "Finding",
    "Meaning",
    "Tier",
    "cause",
    "diagnose",
    "explanations",
    "judge_all",
    "meaning",
    "trace",
]

CREDIBLE = ranking.CREDIBLE
"""Confidence from which a hypothesis is named in the verdict."""
UNREACHED = 5
"""Training passes without a backward pass that are tolerated: one or two are made to try a model out."""
UNSEEN = 4.0
"""Log-odds that a cause needs in a run of which no step was recorded."""


def diagnose(run: RunRecord, job: Ranks | None = None) -> Diagnosis:
    """Explain a run, as one rank of a job if that is given. What the record lacks raises nothing: ``unjudged`` names
    it.
    """
    asked = AskedCase(run) if run.info.coverage.get("by_hand") else None
    case = asked or Case(run)
    case.job = job
    findings, unjudged = judge_all(case, asked.judged if asked is not None else None)
    hypotheses = tuple(_placed(case, h) for h in verdict.credible(case, ranking.rank(case, findings)))
    certain = verdict.certain_ids({member.id: member.tier for member in CAUSES})
    apart = frozenset(member.id for member in CAUSES if member.apart)
    judged = verdict.judge(case, hypotheses, certain, apart)
    top = next((one for one in hypotheses if one.cause not in apart or not case.trouble.any), None)
    led_to = [one for one in hypotheses if top is not None and top.cause in cause(one.cause).effect_of]
    drawn = causal_chain.build(case, top, effects=led_to) if top is not None or case.trouble.any else Chain()
    if top is None and case.trouble.any:
        drawn = causal_chain.build(case, None, case.kinds)
    made = Diagnosis(
        verdict=judged.verdict,
        summary=judged.summary,
        headline=judged.headline,
        run=_about(case),
        symptoms=_symptoms(case),
        events=run.events,
        hypotheses=hypotheses,
        chain=drawn,
        unjudged=(*unjudged, *_blind_spots(case, asked.missing if asked is not None else None)),
        observations=observations(case, hypotheses),
    )
    return LayerWords(run.layout).diagnosis(made)


def explanations(run: RunRecord, diagnosis: Diagnosis) -> Explanations:
    """Return the hypotheses on a run's failure. Where no cause explains a failing or suspect run, the first one is
    UNKNOWN, with what was observed; the diagnosis itself only names causes.
    """
    named, case = list(diagnosis.hypotheses), Case(run)
    top = next((h for h in named if h.confidence >= CREDIBLE), None)
    beside = top is not None and case.trouble.broke and not ranking.ends_so(case, top.explains)
    beside |= top is not None and crashed(case) and not case.trouble.broke and not verdict.of_crash(case, top)
    if diagnosis.verdict in ("failing", "suspect") and (not named or beside):
        first = LayerWords(run.layout).hypothesis(unknown(case))
        named = [first, *(replace(h, rank=h.rank + 1) for h in named)]
    return Explanations(named, diagnosis.verdict, diagnosis.summary)


def trace(run: RunRecord, diagnosis: Diagnosis, name: str | Hypothesis) -> Chain:
    """Return the chain behind a hypothesis, a cause, a failure, a kind of event or a layer, in any case of letters.

    The chain is empty if the run shows no sign of it. Raises UnknownName, with the nearest names, for any other name.
    """
    return LayerWords(run.layout).chain(causal_chain.trace(run, diagnosis, name))


def judge_all(
    case: Case, judged: Callable[[str, Finding | None], None] | None = None
) -> tuple[list[tuple[Cause, Finding]], list[Unjudged]]:
    """Judge every cause. A judge that raises on a strange record becomes an Unjudged and does not end the diagnosis.

    ``judged`` is called with the id and the finding of each cause.
    """
    findings: list[tuple[Cause, Finding]] = []
    unjudged: list[Unjudged] = []
    unseen = not len(case.history)
    if unseen and case.run.info.outcome.kind != "raised":
        return findings, unjudged
    with np.errstate(all="ignore"):
        for member in CAUSES:
            finding = None
            try:
                finding = member.judge(case)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration) as error:
                if unseen:
                    continue
                unjudged.append(Unjudged(member.id, f"could not be judged: {type(error).__name__}: {error}"))
            if judged is not None:
                judged(member.id, finding)
            if finding is not None:
                findings.append((member, finding))
    if unseen:  # a script that raised before its first step: only evidence of the error or the program counts
        findings = [(member, finding) for member, finding in findings if finding.log_odds >= UNSEEN]
    return findings, unjudged


def _placed(case: Case, hypothesis: Hypothesis) -> Hypothesis:
    hypothesis = dated(case, hypothesis)
    remedy = hypothesis.remedy if case.by_hand else in_user_names(case, hypothesis.remedy)
    if case.by_hand:  # the code is torch's, and the program's framework is not known
        remedy = replace(remedy, code="", edits=())
    if remedy.text and (kept := kept_batch(case, hypothesis.step)):
        remedy = replace(remedy, text=f"{remedy.text.rstrip(' .')}. {kept}")
    return replace(hypothesis, places=places(case, cause(hypothesis.cause), hypothesis), remedy=remedy)


def _symptoms(case: Case) -> tuple[str, ...]:
    found = [case.trouble.phrase] if case.trouble.phrase else []
    outcome = case.run.info.outcome
    if outcome.kind == "raised" and outcome.message:
        found.append(f"the script crashed with {brief(outcome.message)}")
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
        "schedules": courses(case),
        "note": info.note,
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


def _unread_layers(case: Case) -> list[Unjudged]:
    """Return the layers that were not read, each kind with its reason."""
    found = []
    never = case.run.info.coverage.get("never_fired") or ()
    if never:
        found.append(Unjudged(f"activations of {listing(never)}", "they were never called as modules"))
    bare = case.run.info.coverage.get("without_grad") or ()
    if bare:
        said = "they are only called without gradients (no_grad), where nothing is read"
        found.append(Unjudged(f"activations of {listing(bare)}", said))
    left = case.run.info.coverage.get("left_compiled") or ()
    if left:
        said = "reading them would slow down each step; "
        said += 'settings={"capture": {"compiled": "observe"}} reads them'
        found.append(Unjudged(f"activations and their gradients in compiled graphs on {listing(left)}", said))
    return found


def _not_given(missing: Mapping[str, frozenset[str]]) -> list[Unjudged]:
    """Return what was not recorded in a run by hand, each with how many causes look at it. ``missing`` has what each
    cause asked for in vain.
    """
    counts = Counter(words for asked in missing.values() for words in asked)
    whole = sum(not asked for asked in missing.values())
    said = f"{plural(whole, 'cause')} of {len(missing)} could be judged in full from what was recorded by hand"
    found = [Unjudged("causes that look at more", f"{said}; the others only in part, or not at all")]
    for words, count in counts.most_common():
        told = "nothing of it is known" if words == OF_THE_PROGRAM else "none was recorded"
        found.append(Unjudged(words, f"{told}; {plural(count, 'cause')} {'look' if count > 1 else 'looks'} at that"))
    return found


def _blind_spots(case: Case, missing: Mapping[str, frozenset[str]] | None) -> list[Unjudged]:
    """Return what could not be read in this run, and the questions that this leaves open. ``missing`` is what causes
    asked for in vain in a run by hand; None in one that was watched.
    """
    found = [Unjudged(gap.what, f"{gap.reason}; the result may be incomplete") for gap in verdict.gaps(case)]
    if not len(case.history):
        what = "the training" if crashed(case) else "every cause"
        return [*found, Unjudged(what, "no optimizer step was recorded")]
    if not len(case.loss):
        found.append(
            Unjudged("the loss", "none was recorded" if case.by_hand else "no loss was seen at a backward pass")
        )
    elif len(case.loss.finite) and case.loss.finite.values.min() < 0 < case.loss.finite.values.max():
        found.append(Unjudged("the level of the loss", "it takes both signs, so its level means nothing"))
    if case.trainings:
        others = [str(training) for training in case.trainings if training.stream != case.stream]
        more = f" and {len(others) - 4} more" if len(others) > 4 else ""
        said = (
            f"{len(case.trainings)} trainings ran one after another, and what is said of loss and updates is of one. "
        )
        said += f"The others: {'; '.join(others[:4])}{more}"
        found.append(Unjudged("the loss curves of other trainings in this run", said))
    if missing is not None:
        found += _not_given(missing)
    elif case.run.known(LossFact) is None:
        found.append(Unjudged("faults in the loss", "no graph of a loss was seen at a backward pass"))
    elif not case.terms:
        ops = ", ".join(case.loss_ops[:3])
        found.append(Unjudged("the form of the loss", f"no known loss function was recognised in its graph ({ops})"))
    elif any(term.kind == "unknown" for term in case.terms):
        found.append(Unjudged("one term of the loss", "it is no known loss function"))
    # The record may have only a part of the run: passes without a backward pass, light steps, hooks that never fired,
    # steps written coarsely, samples of large tensors.
    graded, reached = (int(case.run.info.coverage.get(name, 0)) for name in ("graded", "reached"))
    if graded - reached > max(UNREACHED, graded // 20):
        said = f"{graded - reached} of {graded} training passes{case.counted} were not followed by a backward pass"
        found.append(Unjudged("the losses of passes that were left out", said))
    if case.skips:
        read = int(case.history.width[case.history.read].sum())
        said = f"to keep the cost low, layers were read in {read:,} of {case.run.steps:,} steps"
        said += "; of the others only loss, learning rate and gradient norm are known"
        found.append(Unjudged("layers in most steps", said))
    found += _unread_layers(case)
    if coarse := int(case.run.info.coverage.get("coarse", 0)):
        said = f"the disk was too slow, so {plural(coarse, 'step')} are stored as averages over several steps"
        found.append(Unjudged("some single steps", said))
    if case.history.read.any():
        newest = case.history.row(int(np.flatnonzero(case.history.read)[-1]))
        total, count = (np.nan_to_num(newest[:, index]) for index in (0, 1))
        sampled = int(((count > 0) & (count < total)).sum())
        if sampled:
            said = f"of {plural(sampled, 'large tensor')} a sample of the values is read at each step"
            found.append(Unjudged("single values of large tensors", said))
    return found
