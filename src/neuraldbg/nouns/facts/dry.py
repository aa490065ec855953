"""TODO dry."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import CodeLine, Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Backward passes that reached no parameter of any watched model: {"dry": int, "backwards": int (all that were looked at), "leaf": int (of the dry ones those whose loss has no graph at all), "output_grad": bool | None (the model's last output before it still had a graph; None without such a pass), "place": [file, line, source line] | None, "step": int}.
@dataclass(frozen=True, kw_only=True)
class DryFact(Known):
    """TODO."""

    KEY: ClassVar = "dry"

    dry: Count
    backwards: Count
    leaf: Count
    output_grad: bool | None
    place: CodeLine | None
    step: int
