"""The contract of one of torch's functions: the arguments of a call enter, what breaks the contract leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOCS = "https://docs.pytorch.org/docs/stable/"
F = "torch.nn.functional."


def address(function: str, page: str = "") -> str:
    """Return the address of a function's documentation; ``page`` where it has none of its own."""
    return DOCS + (page or f"generated/{function}.html")


class Breach(NamedTuple):
    """A call in which a function was given something else than it expects."""

    rule: str
    """Id of the rule that is broken, a key of ``RULES`` in ``explain/evidence/contract_rules.py``."""
    given: str
    """What was given, measured: ``values of 0 and 1``."""


@dataclass(frozen=True)
class Contract:
    """The expectations of one function of torch of its arguments."""

    function: str
    """Public name: ``torch.nn.functional.ctc_loss``."""
    owner: Any
    """Module or class that holds what is called: the built-in function below the public one, which the latter looks up
    at each call, so that a program's own name for the public one is seen, too."""
    name: str
    """Attribute of ``owner``."""
    takes: tuple[str, ...]
    """Names of the arguments by position, as far as a check reads them."""
    check: Callable[[Mapping[str, Any]], Breach | None]
    """Returns what breaks the contract, of the arguments by name; None if nothing does, or they cannot be read."""
    unless: str = ""
    """Function, another one with a contract, whose call in the same run shows that all is meant, or the end of the
    names of several; "" for none."""
    page: str = ""
    """Page of torch's documentation, below ``DOCS``, where the function has none of its own."""
    always: bool = False
    """True if each call is checked, in steps that are not read, too: for what a program calls a few times."""

    @property
    def link(self) -> str:
        """The address of the function's documentation."""
        return address(self.function, self.page)

    def broken(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Breach | None:
        """Return what breaks the contract in a call; None if nothing does."""
        return self.check({**dict(zip(self.takes, args, strict=False)), **kwargs})
