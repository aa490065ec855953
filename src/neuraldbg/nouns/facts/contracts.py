"""The CONTRACTS fact: calls of torch's functions whose arguments mean something else than the function expects."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class BrokenContract:
    """One function on one line, or in the graph of the loss, and the rule that its calls break."""

    function: str
    """Public name of the function: ``torch.nn.functional.ctc_loss``."""
    rule: str
    """Id of the rule that is broken."""
    given: str
    """What the newest such call was given, measured."""
    link: str
    """Address of the function's documentation."""
    broken: Count
    """Calls that break the rule, of those that were read."""
    calls: Count
    """Calls of the function on that line that were read, those that keep the contract included."""
    first: Count
    """First step with such a call."""
    last: Count
    """Last step with such a call."""
    place: SourceLine | None = None
    """The line of the program that makes the call; None of an operation in the graph, or if it is not known."""
    layer: str = ""
    """Path of the layer that the operation feeds, or "loss"; "" if it is not known."""


@frozen
class ContractsFact(Known):
    """The contracts that were broken so far."""

    KEY: ClassVar = "contracts"

    broken: tuple[BrokenContract, ...] = ()
    """At most 32, in the order in which they were found."""
