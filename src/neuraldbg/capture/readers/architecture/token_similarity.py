"""The reader of token similarity, block by block: the mean cosine between positions of the same sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from neuraldbg.capture.guest.module_tree import children
from neuraldbg.capture.guest.program_objects import is_a, name_of, sequence
from neuraldbg.capture.readers.architecture.layer_visits import Visits
from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.capture.loop.reader_context import Scene

_LAYERS = 16
_SAMPLES, _TOKENS, _CHANNELS = 4, 64, 1024
_FEWEST = 4
"""Positions that a sequence needs."""
_MIXING = ("attention", "attn", "transformer")
"""Words in a layer's type or name that show that it mixes positions: only then can these become alike."""


class Tokens(Visits):
    """Reads the outputs of a model's repeated blocks."""

    sampled = frozenset({"call_begins", "call_ends", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._cosines: dict[str, dict[str, Any]] = {}

    def chosen(self, modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
        """Return the repeated blocks (members of a list) that hold attention, or the attention layers alone."""
        mixing = [p for p, m in modules.items() if any(w in f"{p}/{name_of(m)}".lower() for w in _MIXING)]
        blocks = {p: m for p, m in modules.items() if p.rpartition(".")[2].isdigit() and children(m)}
        around = {above for path in blocks for above in _above(path)}
        holders = {path: m for path, m in blocks.items() if path not in around}
        found = holders or {p: modules[p] for p in mixing if not is_a(modules[p], nn.Transformer)}
        return {path: found[path] for path in list(found)[:: -(-len(found) // _LAYERS) or 1]}

    def arrives(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Read the input of the first block."""
        if not self._cosines:
            self._note("", args[0] if args else None)

    def leaves(self, path: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Read the output of each block."""
        self._note(path, next(iter(sequence(output)), None) if is_a(output, (tuple, list)) else output)

    def _note(self, path: str, x: Any) -> None:
        x = operation.shown(x)
        if x is None or x.dim() != 3 or x.shape[1] < _FEWEST:
            return
        cosine = _cosine(x.detach())
        self._cosines[path] = {"layer": path, "tokens": int(x.shape[1]), "cosine": round(cosine, 4)}

    def step_closes(self) -> None:
        """Log the blocks read in this step."""
        if self._handles:
            super().step_closes()
        if self._cosines:
            if len(self._cosines) > 1:
                self.scene.log(FactKey.TOKENS, {"step": self.scene.step, "layers": list(self._cosines.values())})
            self._cosines.clear()


def _above(path: str) -> Iterator[str]:
    """Yield the paths of the modules around one: ``a.b`` and ``a`` of ``a.b.c``."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _cosine(x: Tensor) -> float:
    """Return the mean cosine between positions of the same sample; ``x`` has the shape (batch, positions, channels)."""
    some = x[:_SAMPLES, :: -(-x.shape[1] // _TOKENS), :_CHANNELS].float()
    unit = some / some.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    n = some.shape[1]
    total = unit.sum(1).square().sum(-1) - unit.square().sum((-1, -2))
    return float((total / (n * (n - 1))).mean())


READER = Tokens
