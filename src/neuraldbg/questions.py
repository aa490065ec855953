"""The questions that a person asks of a run, the same for a live session and for a run read from a file."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from neuraldbg import answers
from neuraldbg.arguments import text
from neuraldbg.errors import ConfigError, NeuralDbgError, UnknownMetric
from neuraldbg.nouns import UNKNOWN, metric_names
from neuraldbg.nouns.alert import alerts_of
from neuraldbg.nouns.step import metric_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neuraldbg.nouns import Chain, Diagnosis, Event, Explanations, Hypothesis, RunRecord, Series
    from neuraldbg.nouns.alert import Alert
    from neuraldbg.nouns.profile import Profile
    from neuraldbg.nouns.run import Reduce
    from neuraldbg.nouns.training_health import Health


KINDS = 3
"""Largest number of kinds of events in one line."""


class Questions:
    """The methods by which a person asks about a run. Steps are optimizer steps, counted from 0, in every answer."""

    @abstractmethod
    def diagnose(self) -> Diagnosis:
        """Return the diagnosis of the run."""

    @abstractmethod
    def record(self) -> RunRecord:
        """Return the record of the run."""

    def __str__(self) -> str:
        """Return verdict, first cause and fix, in a few lines."""
        try:
            return "\n".join([repr(self), *_told(self.diagnose(), self.explain_failure())])
        except NeuralDbgError as error:  # such as a session that was never started
            return f"{self!r}: {error}"

    def explain_failure(self) -> Explanations:
        """Return the hypotheses on the failure, most likely first: a list that is empty if nothing was found.

        A failing or suspect run has at least one: its cause is ``unknown`` if none of the known causes explains it, and
        its evidence is what was observed. An empty list prints "nothing found", with the summary of the diagnosis.

        >>> for hypothesis in dbg.explain_failure():
        ...     print(hypothesis.cause, hypothesis.layer, hypothesis.confidence > 0.9)
        missing_zero_grad None True
        """
        from neuraldbg.explain import explanations  # noqa: PLC0415 (a program that is only watched needs none of it)

        return explanations(self.record(), self.diagnose())

    def get_causal_hypotheses(self) -> Explanations:
        """Return the hypotheses of ``explain_failure``, under another name for it.

        >>> dbg.get_causal_hypotheses() == dbg.explain_failure()
        True
        """
        return self.explain_failure()

    def trace_causal_chain(self, failure: str | Hypothesis) -> Chain:
        """Return the causal chain through a hypothesis, a cause, a failure, a kind of event or a layer, in any case.

        A chain prints as text, iterates over its links and has their number as its length; it is empty if the run shows
        no sign of what was asked for. Raises UnknownName, which lists the nearest names.

        >>> print(dbg.trace_causal_chain("missing_zero_grad"))
        missing_zero_grad, step 1
        -> update ratio high in layers 'linear2' (2) and 'linear1' (0), step 0 (cause)
        -> loss divergence, step 20 (time)
        ...
        >>> dbg.trace_causal_chain("mising_zero_grad")
        Traceback (most recent call last):
        neuraldbg.errors.UnknownName: ... Did you mean: missing_zero_grad...
        """
        from neuraldbg.explain import trace  # noqa: PLC0415 (a program that is only watched needs none of it)

        return trace(self.record(), self.diagnose(), failure)

    def detect_coupled_failures(self) -> list[answers.Coupling]:
        """Return pairs of events that begin together, at most five steps apart.

        They are of different kinds, and in one layer, in layers that the data flow joins, or in the same step.

        >>> for pair in dbg.detect_coupled_failures()[:1]:
        ...     print(pair.first.kind, pair.second.kind, pair.lag, pair.why)
        update_ratio_high exploding_gradients 1 same layer
        """
        run = self.record()
        return answers.coupled(run.events, run.layout)

    def has_vanishing_gradients(self) -> bool:
        """Return True if gradients vanish, or are exactly zero, in any layer at the newest step that was read.

        The thresholds are those of the detector ``vanishing_gradients``.

        >>> dbg.has_vanishing_gradients()
        False
        """
        return bool(answers.lasting(*self._now(), *answers.VANISHING))

    def has_exploding_gradients(self) -> bool:
        """Return True if gradients explode, are huge or are not finite, in any layer at the newest step.

        The thresholds are those of the detector ``exploding_gradients``.

        >>> dbg.has_exploding_gradients()
        True
        """
        return bool(answers.lasting(*self._now(), *answers.EXPLODING))

    def inspect_layer(self, layer_name: str) -> answers.LayerState:
        """Return a layer's newest statistics, as ``inspect`` does without a step.

        Raises UnknownLayer, which lists the nearest names, and UnknownStep if no step was recorded yet.

        >>> dbg.inspect_layer("linear1").step
        39
        """
        return self.inspect(layer_name)

    def inspect(self, layer_name: str, step: int | None = None) -> answers.LayerState:
        """Return a layer's statistics at a step, by default the newest.

        If that step is a light step, the statistics are those of the last full step before it: see ``step`` and
        ``unread`` of the result. Raises UnknownLayer, and UnknownStep for one that is not recorded.

        >>> state = run.inspect("linear1", step=12)
        >>> sorted(state.statistics)
        ['activation', 'output_grad', 'param/bias', 'param/weight', 'param_grad/bias', 'param_grad/weight', ...]
        """
        return answers.inspect(self.record(), layer_name, step)

    def get_gradient_history(self, layer_name: str) -> Series:
        """Return the L2 norm over steps of the gradient of a layer's own parameters; NaN where it is not finite.

        Of a layer without parameters it is the gradient of its output. Raises UnknownLayer.

        >>> history = dbg.get_gradient_history("linear1")
        >>> print(history.steps[:3].tolist(), history.values[0] > 0)
        [0, 1, 2] True
        """
        return answers.gradient_history(self.record(), layer_name)

    def analyze_gradient_health(self) -> answers.GradientHealth:
        """Return the state of every layer's gradients at the newest step that was read.

        >>> health = dbg.analyze_gradient_health()
        >>> print(health.healthy, health.layers["0"])
        False nonfinite
        """
        return answers.gradient_health(self.record())

    def profile(self) -> Profile:
        """Return where the time and the memory of the run went, and its bottlenecks with a remedy for each.

        It was measured in sampled steps: in three, or all along with ``profile=True``.

        >>> profile = dbg.profile()
        >>> profile.timing.forward_s < profile.timing.step_s
        True
        >>> [layer.layer for layer in profile.timing.layers]
        ['', '0', '1', '2']
        """
        from neuraldbg.profile import profile  # noqa: PLC0415 (a program that is only watched needs none of it)

        return profile(self.record())

    def health(self) -> Health:
        """Return the health of the run: a score that is explained, the course of the training, and advice.

        The score is 100 minus what was found; it is None if too little is known. What was not judged is listed.

        >>> health = dbg.health()
        >>> print(health.verdict, health.score < 50, health.deductions[0].aspect)
        failing True diagnosis
        """
        from neuraldbg.health import assess  # noqa: PLC0415 (a program that is only watched needs none of it)

        return assess(self.record(), self.diagnose())

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that the program logged, sorted: see ``NeuralDbg.log``.

        >>> dbg.metrics
        ()
        """
        return metric_names(self.record().history.scalars)

    def metric(self, name: str, reduce: Reduce = "mean") -> Series:
        """Return a metric that the program logged over the steps that it belongs to, NaN and infinite values included.

        With ``reduce`` ``min`` or ``max`` a value of several steps, in thinned parts of the run, is their least or
        largest one. Raises UnknownMetric, which lists the nearest names.

        >>> dbg.metric("accuracy")
        Traceback (most recent call last):
        neuraldbg.errors.UnknownMetric: no metric is called 'accuracy'. The run has none: log them by NeuralDbg.log.
        """
        if reduce not in ("min", "mean", "max"):
            raise ConfigError(f"reduce: give 'min', 'mean' or 'max', not {reduce!r:.60}")
        run = self.record()
        key = metric_key(run.history.scalars, text(name, "the name of a metric"))
        if key is None:
            raise UnknownMetric(name, metric_names(run.history.scalars))
        return run.scalar(key, reduce=reduce)

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Alerts that were told while the run went on, oldest first; the first thousand of them.

        >>> [alert.rule for alert in run.alerts]
        []
        """
        return alerts_of(self.record())

    def _now(self) -> tuple[Iterable[Event], int, int]:
        """Return the events, the newest step, and the newest step whose sites were read."""
        run = self.record()
        return run.events, *answers.newest(run)


def in_short(steps: int, models: Sequence[str], kinds: Sequence[str], diagnosis: Diagnosis | None = None) -> str:
    """Return a line about a run: steps, model, kinds of events, and the verdict if there is one."""
    told = [f"{steps:,} step{'' if steps == 1 else 's'}" + (f" of {models[0]}" if models else "")]
    several = list(dict.fromkeys(kinds))
    if several:
        more = f" and {len(several) - KINDS} more" if len(several) > KINDS else ""
        told.append(f"events: {', '.join(several[:KINDS])}{more}")
    return "; ".join([*told, *([diagnosis.verdict] if diagnosis is not None else [])])


def _told(diagnosis: Diagnosis, found: Explanations) -> list[str]:
    from neuraldbg.explain import CREDIBLE  # noqa: PLC0415 (as above)

    lines = [f"{diagnosis.verdict.upper()}: {diagnosis.summary}"]
    if found:
        first = found[0]
        sure = f", {first.confidence:.0%} sure" if first.confidence else ""
        more = f" (and {len(found) - 1} more: explain_failure())" if len(found) > 1 else ""
        likely = "Likely cause" if first.confidence >= CREDIBLE else "Perhaps"
        name, next_ = ("Cause", "Next") if first.cause == UNKNOWN else (likely, "Fix")
        lines += [f"{name}: {first.cause}{sure}{more}", f"{next_}: {first.remedy.text}"]
    return lines
