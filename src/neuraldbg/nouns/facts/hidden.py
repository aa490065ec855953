"""TODO hidden."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Weights in the graph of the loss that are no parameter of the module that holds them and in no optimizer: {"weights": [{"name": str ("Net.layers[2].weight"), "owner": str ("Net.layers[2]"), "layer": str (its path, "layers[2]"), "attribute": str ("layers"), "shape": [int], "how": "list" | "dict" | "tuple" | "set" | "object" | "tensor" | "result" (the module holds what was computed from it) | "model" (a watched model without layers, such as a loss), "holder": str, "parameter": bool, "lone": bool (the only module in its list), "feeds": [path or "loss"], "seen": int (readings), "moved": bool, "first": int (step)}]}.
@dataclass(frozen=True, kw_only=True)
class HiddenWeight:
    """TODO."""

    name: str
    owner: str
    attribute: str
    how: str
    layer: str
    shape: tuple[Count, ...]
    holder: str
    parameter: bool
    lone: bool
    feeds: tuple[str, ...]
    seen: Count
    moved: bool
    first: int | None = None


@dataclass(frozen=True, kw_only=True)
class HiddenFact(Known):
    """TODO."""

    KEY: ClassVar = "hidden"

    weights: tuple[HiddenWeight, ...] = ()
