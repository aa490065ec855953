"""Check the sections about training: loss, optimizer, schedule, metrics, `train` and `execution`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neural.check.evaluation import Called, Scope, evaluate
from neural.check.expansion import checked_device
from neural.check.findings import ValueFault
from neural.check.registered_parts import (
    LOSSES,
    METRICS,
    OPTIMIZERS,
    SCHEDULES,
    TRAINING,
    PartType,
    Scheduled,
)
from neural.errors import SourceError, Span, nearest
from neural.language.reader import parse_value
from neural.language.tree import ListValue, Settings, Text
from neural.layers.parameter import UNKNOWN, Given, bound, value_words
from neural.plan import PartPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neural.check.findings import Findings
    from neural.language.tree import Section, Value
    from neural.plan import LayerPlan, Plan

NOWHERE = Span(1, 1, 1, 1)
LOSS_OF_ACTIVATION = {"softmax": "categorical_crossentropy", "sigmoid": "binary_crossentropy"}
"""The loss that is taken without a section `loss`, by the last activation; mean_squared_error for the others."""


class TrainingSections:
    """Check the sections of one network, each by a method of its name."""

    def __init__(self, findings: Findings, sections: Mapping[str, Section]) -> None:
        self.findings = findings
        self.sections = sections
        self.scope = Scope(findings, {})
        self.rate_given = False
        """True if the section `optimizer` itself says a learning rate."""

    # ---------------------------------------------------------------- parts

    def loss(self, layers: list[LayerPlan], network: Span) -> PartPlan:
        """Return the loss, by the last activation if the file names none."""
        section = self.sections.get("loss")
        if section is None:
            last = layers[-1] if layers else None
            activation = str(last.parameters.get("activation")) if last else ""
            name = LOSS_OF_ACTIVATION.get(activation, "mean_squared_error")
            words = f"no loss: {name} is taken, as the last activation is {activation}"
            self.findings.note(network, words if last and activation != "None" else f"no loss: {name} is taken")
            return self.default(LOSSES, name)
        return self.part(section, LOSSES, "loss")

    def optimizer(self, network: Span) -> tuple[PartPlan, PartPlan | None]:
        """Return the optimizer and the schedule of its learning rate, Adam if the file names none."""
        section, schedule = self.sections.get("optimizer"), self.sections.get("lr_schedule")
        planned = None if schedule is None else self.part(schedule, SCHEDULES, "schedule")
        if section is None:
            self.findings.note(network, "no optimizer: Adam is taken, with a learning rate of 0.001")
            found = self.default(OPTIMIZERS, "Adam")
        else:
            found = self.part(section, OPTIMIZERS, "optimizer")
        rate = found.parameters.get("learning_rate")
        if isinstance(rate, Scheduled):
            if schedule is not None:
                self.findings.problem("the learning rate has two schedules", schedule.name_span, expected="one of them")
            planned = rate.call
        elif schedule is not None and self.rate_given:
            words = f"the rate is that of the schedule: learning_rate={value_words(rate)} of {found.type} is not used"
            self.findings.note(schedule.name_span, words)
        if section is not None and found.parameters.get("nesterov") and not found.parameters["momentum"]:
            self.findings.note(section.name_span, f"nesterov of {found.type} changes nothing without a momentum")
        if planned is not None:
            first = planned.parameters.get("initial_learning_rate") or planned.parameters.get("values", (0.001,))[0]
            found = PartPlan(found.type, {**found.parameters, "learning_rate": first})
        return found, planned

    def part(self, section: Section, known: Mapping[str, PartType], what: str) -> PartPlan:
        """Return what a section names: a bare name, a string, a call, or a call inside a string."""
        fallback = PartPlan("", {})
        if len(section.values) != 1:
            self.findings.problem(
                f"{section.name} has {len(section.values)} values", section.span, expected="one of them"
            )
            return fallback
        try:
            return self.named(self.opened(section.values[0]), known, what, section.values[0].span)
        except ValueFault as fault:
            self.findings.fault(fault)
            return fallback

    def opened(self, value: Value) -> Any:
        """Return the plain value, and of a string with a call in it that call."""
        if isinstance(value, Text) and "(" in value.text:
            try:
                inner = evaluate(parse_value(value.text), self.scope)
            except SourceError:
                raise ValueFault(
                    "this string holds no name with arguments", value.span, '"Adam(learning_rate=0.001)"'
                ) from None
            if isinstance(inner, Called):
                given = tuple(Given(each.name, each.value, value.span) for each in inner.given)
                return Called(inner.name, given, value.span)
        return evaluate(value, self.scope)

    def named(self, found: Any, known: Mapping[str, PartType], what: str, span: Span) -> PartPlan:
        """Return a part by its name and its arguments. ValueFault is raised if there is none of that name."""
        name, given = (found.name, found.given) if isinstance(found, Called) else (found, ())
        names = sorted({part.name for part in known.values()})
        if not isinstance(name, str) or name.lower().replace(" ", "_") not in known:
            shown = repr(name) if isinstance(name, str) else value_words(name)
            near = nearest(name, [*known, *names]) if isinstance(name, str) else ""
            raise ValueFault(f"unknown {what} {shown}", span, "one of " + ", ".join(names), near)
        part = known[name.lower().replace(" ", "_")]
        given = tuple(Given(each.name, self.scheduled(each), each.place) for each in given)
        if what == "optimizer":
            self.rate_given = any(each.name in {None, "learning_rate", "lr"} for each in given)
        result = bound(part.name, part.parameters, part.positional, given)
        for misuse in result.misuses:
            self.findings.misuse(misuse, span)
        if part.name == "PiecewiseConstantDecay" and not result.misuses:
            steps, rates = result.values["boundaries"], result.values["values"]
            if len(rates) != len(steps) + 1:
                raise ValueFault(
                    f"{len(steps)} boundaries and {len(rates)} values", span, "one value more than boundaries"
                )
        values = {key: None if value is UNKNOWN else value for key, value in result.values.items()}
        return PartPlan(part.name, values)

    def scheduled(self, given: Given) -> Any:
        """Return a call or a string with a call as a schedule, other values as they are."""
        value = given.value
        if isinstance(value, str) and "(" in value:
            value = self.opened(Text(value, given.place))
        if not isinstance(value, Called):
            return value
        try:
            return Scheduled(self.named(value, SCHEDULES, "schedule", given.place))
        except ValueFault as fault:
            self.findings.fault(fault)
            return UNKNOWN

    @staticmethod
    def default(known: Mapping[str, PartType], name: str) -> PartPlan:
        part = known[name.lower()]
        return PartPlan(part.name, {each.name: each.default for each in part.parameters})

    # ---------------------------------------------------------------- metrics

    def metrics(self) -> tuple[str, ...]:
        """Return the metrics in the order of the file."""
        section = self.sections.get("metrics")
        found: list[str] = []
        for value in section.values if section else ():
            items = value.items if isinstance(value, ListValue) else (value,)
            for item in items:
                try:
                    found.append(self.metric(item))
                except ValueFault as fault:
                    self.findings.fault(fault)
        return tuple(found)

    def metric(self, item: Value) -> str:
        name = evaluate(item, self.scope)
        if not isinstance(name, str) or name.lower() not in METRICS:
            near = nearest(name, METRICS) if isinstance(name, str) else ""
            shown = name.name if isinstance(name, Called) else value_words(name)
            raise ValueFault(f"unknown metric {shown}", item.span, "one of " + ", ".join(METRICS), near)
        return name.lower()

    # ---------------------------------------------------------------- train and execution

    def training(self) -> dict[str, Any]:
        """Return the settings of `train`, and those of `hpo` under its name."""
        section = self.sections.get("train")
        given = self.settings(section) if section else []
        result = bound("train", TRAINING, 0, given, "setting")
        for misuse in result.misuses:
            self.findings.misuse(misuse, section.name_span if section else NOWHERE)
        values: dict[str, Any] = dict(result.values)
        if values["device"] is not None:
            place = next(each.place for each in given if each.name == "device")
            values["device"] = self.checked_device(values["device"], place)
        search = self.sections.get("hpo")
        if search is not None:
            values["hpo"] = {each.name: each.value for each in self.settings(search)}
            self.findings.note(search.name_span, "the section hpo is for a search, and changes nothing in one training")
        return values

    def settings(self, section: Section) -> list[Given]:
        """Return the settings of a section as arguments. A list is a choice, of which the first is taken."""
        block = section.values[0]
        if not isinstance(block, Settings):
            words = f"{section.name} {{ ... }}"
            self.findings.problem(f"{section.name} has no settings", section.span, expected=words)
            return []
        found = []
        for setting in block.items:
            try:
                value = self.setting(setting.value)
            except ValueFault as fault:
                self.findings.fault(fault)
                value = UNKNOWN
            found.append(Given(setting.name, value, setting.span))
        return found

    def setting(self, value: Value) -> Any:
        if isinstance(value, ListValue) and value.items:
            values = tuple(evaluate(item, self.scope) for item in value.items)
            taken = self.findings.search("choice", values, values[0], value.span)
            self.findings.note(value.span, f"search: {value_words(taken)} is taken, of a list")
            return taken
        if isinstance(value, Settings):
            return {each.name: self.setting(each.value) for each in value.items}
        return evaluate(value, self.scope)

    def agreed(self, plan: Plan) -> Plan:
        """Return a plan in which two settings for one thing are one: a note says which."""
        training, optimizer = plan.training, plan.optimizer
        section = self.sections.get("train")
        if section is None:
            return plan
        ours, its = training["gradient_clip"], optimizer.parameters.get("global_clipnorm")
        if ours and its and ours is not UNKNOWN:
            least = min(ours, its)
            words = f"gradient_clip and global_clipnorm limit one norm: {least} is taken, the smaller of both"
            self.findings.note(section.name_span, words)
            training = {**training, "gradient_clip": least}
            optimizer = PartPlan(optimizer.type, {**optimizer.parameters, "global_clipnorm": None})
        here, there = plan.device, training["device"]
        if here and there and here.replace("gpu", "cuda") != there.replace("gpu", "cuda"):
            words = f"two devices: {here} of execution is taken, not {there} of train"
            self.findings.note(section.name_span, words)
        return replace(plan, training=training, optimizer=optimizer)

    def device(self) -> str | None:
        """Return the device of `execution` or `execute`, None without one."""
        found = None
        for name in ("execute", "execution"):
            section = self.sections.get(name)
            for setting in self.settings(section) if section else ():
                if setting.name == "device":
                    found = self.checked_device(setting.value, setting.place)
                    continue
                near = nearest(str(setting.name), ["device"])
                message = f"{name} has no setting {setting.name!r}"
                self.findings.problem(message, setting.place, expected='device: "cpu"', suggestion=near)
        return found

    def checked_device(self, device: Any, place: Span) -> str | None:
        """Return a device, None if there is none of that name, which is a problem."""
        if device is UNKNOWN:
            return None
        if isinstance(device, str):
            return checked_device(device, place, self.findings)
        self.findings.problem(f"{value_words(device)} is no device", place, expected='"cpu"')
        return None
