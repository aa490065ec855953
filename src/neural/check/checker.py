"""Check a file: a tree enters, a `Plan` leaves, or one error with all that is wrong.

The order is that of the data: the network is chosen, its macros are expanded, its layers are connected, and its
training is checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neural.check.evaluation import Scope
from neural.check.expansion import Expander, TooManyLayers
from neural.check.findings import Findings
from neural.check.graph import connect
from neural.check.inputs import inputs_of, renamed
from neural.check.output_notes import note_outputs
from neural.check.training import TrainingSections
from neural.errors import CheckFailed, Sources, Span, nearest
from neural.language.tree import SECTIONS
from neural.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from neural.language.tree import Network, Section, SourceFile
    from neural.plan import InputPlan, LayerPlan, Search

START = Span(1, 1, 1, 2)


def checked(source: SourceFile, network: str | None = None, *, choose: Callable[[Search], Any] | None = None) -> Plan:
    """Return the plan of one network of a file: that called `network`, or its place such as "2"; None is the first.

    `choose` gives the value of a search; without it the first choice or the middle of a range is taken. CheckFailed is
    raised with every problem that was found.
    """
    findings = Findings(Sources(source.file, source.text), choose)
    chosen = _network(source, network, findings)
    plan = None
    if chosen is not None:
        plan = _plan(source, chosen, findings)
    if findings.problems or plan is None:
        raise CheckFailed(sorted(findings.problems, key=lambda problem: problem.span), findings.more)
    return plan


def _network(source: SourceFile, name: str | None, findings: Findings) -> Network | None:
    """Return the network that is meant, and note that others were left out."""
    networks = source.networks
    if not networks:
        findings.problem("this file describes no network", START, expected="network MyModel { ... }")
        return None
    if name is None:
        if len(networks) > 1:
            names = ", ".join(each.name for each in networks)
            findings.note(networks[0].name_span, f"{networks[0].name} is taken, the first network of {names}")
        return networks[0]
    # No name begins with a digit, so a number is a place: two networks of a file may have one name.
    if name.isdecimal() and len(name) < 6 and 1 <= int(name) <= len(networks):
        return networks[int(name) - 1]
    same = [each for each in networks if each.name == name]
    if not same:
        known = list(dict.fromkeys(each.name for each in networks))
        near = nearest(name, known)
        findings.problem(
            f"no network is called {name!r}",
            networks[0].name_span,
            expected="one of " + ", ".join(known),
            suggestion=near,
        )
        return None
    if len(same) > 1:
        findings.note(same[0].name_span, f"{len(same)} networks are called {name}: the first one is taken")
    return same[0]


def _plan(source: SourceFile, network: Network, findings: Findings) -> Plan | None:
    sections = _sections(network, findings)
    for needed, example in (("input", "input: (28, 28, 1)"), ("layers", "layers: Dense(10)")):
        if needed not in sections:
            findings.problem(f"the network {network.name} has no {needed}", network.name_span, expected=example)
        elif needed == "layers" and not sections[needed].items:
            findings.problem(f"the network {network.name} has no layers", sections[needed].span, expected=example)
    # The layers decide the shape of the input, and both the loss that is taken if there is none.
    layers: list[LayerPlan] = []
    inputs: tuple[InputPlan, ...] = ()
    try:
        nodes = Expander(source, findings).items(
            sections["layers"].items if "layers" in sections else (), Scope(findings, {})
        )
        inputs = inputs_of(sections["input"], nodes, findings) if "input" in sections else ()
        layers = connect(nodes, inputs, findings) if inputs and nodes else []
    except TooManyLayers:
        pass  # that is a problem, and the rest of the file can still be checked
    read = {name for layer in layers if layer.type == "Embedding" for name in layer.inputs}
    training = TrainingSections(findings, sections)
    optimizer, schedule = training.optimizer(network.name_span)
    plan = Plan(
        name=network.name,
        file=source.file,
        inputs=renamed(inputs, read),
        layers=tuple(layers),
        output=layers[-1].name if layers else "",
        loss=training.loss(layers, network.name_span),
        optimizer=optimizer,
        schedule=schedule,
        metrics=training.metrics(),
        training=training.training(),
        device=training.device(),
        searches=(),
        notes=(),
    )
    if layers:
        _unread(plan, findings, network)
        if not findings.problems:
            note_outputs(plan, findings)
    elif not findings.problems:
        findings.problem(f"the network {network.name} has no layers", network.name_span, expected="layers: Dense(10)")
    return _finished(training.agreed(plan), findings)


def _finished(plan: Plan, findings: Findings) -> Plan:
    notes = tuple(sorted(findings.notes, key=lambda note: note.line))
    return replace(plan, searches=tuple(findings.searches.values()), notes=notes)


def _unread(plan: Plan, findings: Findings, network: Network) -> None:
    """Make a problem of each input that no layer reads."""
    read = {name for layer in plan.layers for name in layer.inputs}
    for each in plan.inputs:
        if each.name not in read and not findings.problems:
            message = f"no layer reads the input {each.name!r}"
            findings.problem(
                message, network.name_span, expected=f'a branch {each.name}: {{ ... }}, or Add("{each.name}", ...)'
            )


def _sections(network: Network, findings: Findings) -> dict[str, Section]:
    """Return the sections by name; unknown and repeated ones are problems."""
    found: dict[str, Section] = {}
    for section in network.sections:
        if section.name not in SECTIONS:
            findings.problem(
                f"unknown section {section.name!r}",
                section.name_span,
                expected="a section: " + ", ".join(SECTIONS),
                suggestion=nearest(section.name, SECTIONS),
            )
        elif section.name in found:
            line = found[section.name].span.line
            findings.problem(f"{section.name} is given twice, first in line {line}", section.name_span)
        else:
            found[section.name] = section
    return found
