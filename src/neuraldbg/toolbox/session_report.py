"""The report of a session by hand: what every part found, as text, as plain values, and as one file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from neuraldbg import arguments
from neuraldbg.errors import ConfigError
from neuraldbg.health import assess
from neuraldbg.nouns import RunRecord, jsonable
from neuraldbg.nouns.html import number_text
from neuraldbg.saved import Run, backgrounds, readable
from neuraldbg.show.report.costs import Chapter, Table
from neuraldbg.show.report.write import SUFFIXES, report, write

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from neuraldbg.nouns import Diagnosis
    from neuraldbg.nouns.alert import Alert
    from neuraldbg.nouns.profile import Profile
    from neuraldbg.nouns.training_health import Health
    from neuraldbg.toolbox.gradient_debugger import GradientFlow
    from neuraldbg.toolbox.session_parts import SessionParts
    from neuraldbg.toolbox.tensor_inspector import TensorSummary

SCHEMA = "neuraldbg.debug_report/1"
_MOST, _LAYERS = 20, 8
"""Rows of a table, and layers that are not healthy in a text, at most."""


@dataclass(frozen=True, repr=False)
class DebugReport:
    """The report of a session by hand. ``print(report.summary())`` shows it, ``report.save("report.html")`` writes it.

    >>> with debug_session() as session:
    ...     session.record_step(0, loss=0.5)
    >>> report = session.stop()
    >>> report.diagnosis.verdict
    'inconclusive'
    """

    run: Run
    """The run, with the questions that a saved one answers."""
    diagnosis: Diagnosis
    """Verdict, causes, and what could not be judged."""
    health: Health
    """The health score with its deductions, and the course of the training."""
    gradients: GradientFlow | None
    """Gradients by layer. None if none were recorded, or they are switched off."""
    tensors: TensorSummary | None
    """Inspected tensors: their number, anomalies and memory. None if there are none, or they are switched off."""
    profile: Profile
    """Times and memory, with bottlenecks."""
    alerts: tuple[Alert, ...] = ()
    """Alerts that hooks have told."""
    folder: Path | None = field(default=None)
    """Folder of the run. None if it is in memory."""

    def summary(self) -> str:
        """Return the report in some lines: verdict, cause and fix, then what each part found.

        >>> report.summary().startswith("INCONCLUSIVE")
        True
        """
        said = [str(self.run).partition("\n")[2], *_health_lines(self.health)]
        if self.gradients is not None:
            said += _gradient_lines(self.gradients)
        if self.tensors is not None:
            said.append(str(self.tensors))
        found = [f"  {one.text}" + (f" → {one.remedy}" if one.remedy else "") for one in self.profile.bottlenecks]
        said += ["time and memory:", *found] if found else []
        said += [f"alert: {alert}" for alert in self.alerts[:_MOST]]
        said += [f"note: {one}" for one in self.run.info.coverage.get("notes", ())[1:]]
        open_questions = [f"  {one.what}: {one.reason}" for one in self.diagnosis.unjudged]
        said += ["not judged:", *open_questions] if open_questions else []
        if self.folder is not None:
            said += [f"Saved in {self.folder}", f"See it with: neuraldbg report {self.folder}"]
        return "\n".join(said)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<DebugReport: {self.diagnosis.verdict}, {self.run.steps:,} steps>"

    def _repr_html_(self) -> str:
        """Render the diagnosis and the health score as HTML for a notebook."""
        return self.diagnosis._repr_html_() + self.health._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as strict JSON values (schema ``neuraldbg.debug_report/1``).

        >>> report.to_dict()["steps"]
        1
        """
        return {
            "schema": SCHEMA,
            "steps": self.run.steps,
            "folder": str(self.folder) if self.folder is not None else None,
            "diagnosis": self.diagnosis.to_dict(),
            "health": self.health.to_dict(),
            "gradients": jsonable(self.gradients),
            "tensors": jsonable(self.tensors),
            "bottlenecks": jsonable(self.profile.bottlenecks),
            "alerts": jsonable(self.alerts),
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one file, by its suffix: ``.html``, ``.md`` or ``.json``. An existing file is replaced.

        Raises ConfigError for another suffix or a place that cannot be written, and MissingExtra for HTML without the
        extra ``plot``.

        >>> report.save("report.json").name
        'report.json'
        """
        file = arguments.path(path, "the report")
        kind = {**SUFFIXES, ".json": "json"}.get(file.suffix.lower())
        if kind is None:
            raise ConfigError(f"cannot write a report to {str(file)!r}: its name must end in .html, .md or .json")
        if kind == "json":
            text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        else:
            with readable("reported"):
                text = report(
                    self.run, self.diagnosis, kind, backgrounds(self.diagnosis), self.profile, self._chapters()
                )
        write(text, file)
        return file

    def _chapters(self) -> tuple[Chapter, ...]:
        found = [_health_chapter(self.health)]
        if self.gradients is not None:
            found.append(_gradient_chapter(self.gradients))
        if self.tensors is not None:
            found.append(_tensor_chapter(self.tensors))
        if self.alerts:
            found.append(Chapter("Alerts", tuple(str(alert) for alert in self.alerts[:_MOST])))
        return tuple(found)


def report_of(session: SessionParts) -> DebugReport:
    """Return the report on what a session has recorded so far."""
    record = session.record()
    run = Run(**{one.name: getattr(record, one.name) for one in fields(RunRecord)})
    # A part that was never used is not made for the report.
    diagnosis = session.diagnose()
    flow = session.gradient_debugger.analyze_gradient_flow() if session.uses("gradient_debugger") else None
    return DebugReport(
        run=run,
        diagnosis=diagnosis,
        health=assess(run, diagnosis),
        gradients=flow if flow is not None and flow.layers else None,
        tensors=session.tensor_inspector.summary() if session.uses("tensor_inspector") else None,
        profile=run.profile(),
        alerts=tuple(session.hooks.alerts) if session.uses("hooks") else (),
        folder=session.folder,
    )


def _health_lines(health: Health) -> list[str]:
    """Return score and deductions, and where each curve goes."""
    dynamics = health.dynamics
    curves = [*dynamics.losses, *([dynamics.evaluation] if dynamics.evaluation is not None else []), *dynamics.metrics]
    lines = str(health).partition("\n\n")[0].splitlines()
    return [*lines, *(f"  {curve.name}: {curve.state}: {curve.reason}" for curve in curves[:_MOST])]


def _gradient_lines(flow: GradientFlow) -> list[str]:
    """Return the state of all, and the layers that are not healthy."""
    bad = [one for one in flow.layers.values() if one.state != "healthy"]
    lines = [f"gradients at step {flow.step}: {flow.overall_health}", *(f"  {one}" for one in bad[:_LAYERS])]
    more = [f"{len(bad) - _LAYERS} more of these"] if len(bad) > _LAYERS else []
    if healthy := len(flow.layers) - len(bad):
        more.append(f"{healthy} healthy")
    return [*lines, *([f"  {' and '.join(more)}"] if more else [])]


def _health_chapter(health: Health) -> Chapter:
    rows = tuple((one.aspect, f"{one.points:.0f}", one.what, one.evidence) for one in health.deductions)
    score = "No health score" if health.score is None else f"Health {health.score:.0f} of 100"
    return Chapter(
        "Health of the training",
        (f"{score}: {health.reason}", *str(health.dynamics).splitlines(), str(health.parameters)),
        (Table("What took points", ("aspect", "points", "what was found", "where"), rows, (1,)),) if rows else (),
        tuple(f"Not judged: {one.what}: {one.reason}" for one in health.unjudged)
        + tuple(f"Recommended: {one}" for one in health.recommendations),
    )


def _gradient_chapter(flow: GradientFlow) -> Chapter:
    rows = tuple(
        (one.layer, one.state, number_text(one.norm), one.trend, "" if one.dead_units is None else f"{one.dead_units}")
        for one in list(flow.layers.values())[:_MOST]
    )
    more = len(flow.layers) - _MOST
    return Chapter(
        "Gradients",
        (f"At step {flow.step}: {flow.overall_health}", *flow.advice),
        (Table("The layers", ("layer", "state", "norm", "trend", "dead units"), rows, (2, 4)),),
        (f"{more:,} more layers are left out",) if more > 0 else (),
    )


def _tensor_chapter(tensors: TensorSummary) -> Chapter:
    return Chapter("Inspected tensors", tuple(str(tensors).splitlines()))
