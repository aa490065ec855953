"""The reader of weights that should be tied and are not: embedding and head, encoder weight and decoder transpose.

Evidence is a pair that is bitwise equal before the first step and has two storages, or a declaration of the model
(``config.tie_word_embeddings = True``). Copies of whole blocks are no such pair: only an embedding and a linear layer
of its shape, or two linear layers of which one is the other's transpose, are compared. A parameter that had two names
until ``load_state_dict(assign=True)`` gave each a tensor of its own is such a pair too, if it is not tied again.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.module_tree import named_parameters
from neuraldbg.capture.guest.program_objects import attribute, is_a, item
from neuraldbg.capture.guest.weak_references import GONE
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch
    from neuraldbg.capture.statistics.watched_parameter import Watched

DECLARED = (
    "tie_word_embeddings", "tie_weights", "tie_embeddings", "tie_embedding", "tied_weights", "tied", "weight_tying",
    "share_embeddings", "shared_embeddings", "share_decoder_input_output_embed",
)  # fmt: skip
"""Attributes by which a model or its configuration declares that it ties weights, if they are ``True``."""
_HEAD = 64
"""Values that are compared before whole tensors are."""
_LARGEST = 200_000_000
"""Elements of a weight that is compared as a whole, at most."""
_PAIRS = 8


@dataclass(eq=False)
class Pair:
    """Two weights of one shape that may be meant as one."""

    a: Watched
    b: Watched
    transposed: bool
    declared: str
    started_equal: bool
    drifted: int | None = None
    untied: str = ""
    """The function that gave one parameter two tensors, empty if none did."""
    told: dict[str, Any] | None = None
    """The pair's entry in the last fact, None if it has none."""

    def values(self) -> tuple[Tensor, Tensor]:
        """Return both weights, the second one transposed if it is the first's transpose."""
        b = self.b.ref.detach()
        return self.a.ref.detach(), b.t() if self.transposed else b


class Ties(Reader):
    """Finds pairs when a model is first stepped, and checks afterwards if they still agree."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._pairs: list[Pair] = []
        self._done: set[str] = set()
        self._parted: list[tuple[weakref.ref[nn.Module], str, str, str]] = []
        """(module, first name, second name, function) of parameters whose two names were given tensors of their own."""

    def patches(self) -> Iterable[Patch]:
        """Return wrappers of ``load_state_dict`` and ``to_empty``, which may put new tensors under one of two names."""
        return [(nn.Module, "load_state_dict", self._loads), (nn.Module, "to_empty", self._empties)]

    def _empties(self, module: Any, *_: Any, **__: Any) -> Around:
        before = self._tied(module) if self.scene.switch.in_full_step() else None
        yield
        if before:
            self.seen(self._part, module, before, "to_empty()")

    def _loads(self, module: Any, *args: Any, **kwargs: Any) -> Around:
        assign = kwargs.get("assign", args[2] if len(args) > 2 else False)
        if assign and self.scene.switch.in_full_step():
            before = self._tied(module)
            yield
            if before:
                self.seen(self._part, module, before, "load_state_dict(assign=True)")

    @guarded
    def _tied(self, module: nn.Module) -> list[tuple[str, str]]:
        """Return pairs of names of one parameter."""
        first: dict[int, str] = {}
        named = [(name, first.setdefault(id(p), name)) for name, p in named_parameters(module, duplicates=True)]
        return [(known, name) for name, known in named if known != name][:_PAIRS]

    def _part(self, module: nn.Module, before: list[tuple[str, str]], by: str) -> None:
        now = dict(named_parameters(module, duplicates=True))
        parted = [(a, b) for a, b in before if now.get(a) is not now.get(b)]
        self._parted += [(weakref.ref(module), a, b, by) for a, b in parted][: _PAIRS - len(self._parted)]

    def step_begins(self, stream: Stream, opt: Any) -> None:
        """Compare before the first step of a model changes it."""
        models = self.scene.models.found
        if self._parted:
            self._parted = [one for one in self._parted if not self._found(*one)]
        if len(self._done) == len(models):
            return
        for model in models:
            if model.name not in self._done:
                self._done.add(model.name)
                if self.scene.step == 0:  # later, equal weights may have drifted apart already
                    self._pairs += self._search(model.name, model.root)[: _PAIRS - len(self._pairs)]

    def _found(self, module: weakref.ref[nn.Module], a: str, b: str, by: str) -> bool:
        """Make a pair of two names if they are watched and still differ. Return True if no later attempt is needed."""
        holder = module()
        if holder is None:
            return True
        now = dict(named_parameters(holder, duplicates=True))
        one, other = (self.scene.params.by_id.get(id(now.get(name))) for name in (a, b))
        if one is None or other is None:
            return False
        if one is not other and one.ref.shape == other.ref.shape:
            self._pairs.append(Pair(one, other, False, "", False, untied=by))
        return True

    def _search(self, model: str, root: nn.Module) -> list[Pair]:
        modules = self.scene.hooks.modules
        known = [w for w in self.scene.params.by_id.values() if w.model == model]
        matrices = [w for w in known if operation.observable(w.ref) and w.ref.dim() == 2]
        embeddings = [w for w in matrices if is_a(modules.get(w.layer), nn.Embedding)]
        linears = [w for w in matrices if is_a(modules.get(w.layer), nn.Linear)]
        declared = _declaration(root)
        pairs = chain(_equal_or_declared(embeddings, linears, declared), _turned(linears, declared))
        return list(islice(pairs, _PAIRS))

    def step_closes(self) -> None:
        """Compare the pairs in steps whose facts are read."""
        if self.scene.reading and self._pairs:
            self._compare()

    def summarise(self) -> None:
        """Compare the pairs at the end."""
        if self._pairs:
            self._compare()

    def _compare(self) -> None:
        rates = self.scene.optimizers.rates()
        for pair in self._pairs:
            if pair.a.ref is GONE or pair.b.ref is GONE:
                continue  # dead: their last entry stays
            pair.told = None
            if not (operation.observable(pair.a.ref) and operation.observable(pair.b.ref)):
                continue  # sharded, or their memory was freed
            a, b = pair.values()
            if a.shape != b.shape or pair.a.ref is pair.b.ref or _one_storage(a, b):
                continue  # tied meanwhile
            equal = _same(a, b, constant=True)
            if not equal and pair.drifted is None:
                pair.drifted = self.scene.step
            pair.told = {
                "a": pair.a.name, "b": pair.b.name, "transposed": pair.transposed, "equal": equal,
                "started_equal": pair.started_equal, "declared": pair.declared, "drifted": pair.drifted,
                "untied": pair.untied,
                "trained": [pair.a.key in rates, pair.b.key in rates], "distance": _distance(a, b),
            }  # fmt: skip
        self.scene.log(FactKey.TIES, {"pairs": [pair.told for pair in self._pairs if pair.told is not None]})


def _declaration(root: nn.Module) -> str:
    """Return the model's declaration that it ties weights, empty if there is none."""
    holders = (("config", attribute(root, "config")), ("args", attribute(root, "args")), ("", root))
    for name, holder in holders:
        for key in DECLARED:
            if attribute(holder, key) is True or item(holder, key) is True:
                return f"{name}.{key}" if name else key
    return ""


def _equal_or_declared(embeddings: list[Watched], linears: list[Watched], declared: str) -> Iterator[Pair]:
    """Yield embeddings with linear layers of their shape that are equal, or that the model declares tied."""
    alike = _Buckets(linears, turned=False) if embeddings else None
    words = _of_words(embeddings) if declared else set()
    for a in embeddings:
        equal = {id(b) for b in alike.of(a) if not _one_storage(a.ref, b.ref) and _same(a.ref, b.ref)} if alike else ()
        meant = id(a) in words and not a.aliases
        every = linears if meant else (alike.of(a) if alike else ())
        for b in every:
            if a.ref.shape != b.ref.shape or _one_storage(a.ref, b.ref):
                continue
            if id(b) in equal or (meant and not b.aliases and not _in_block(b.layer)):
                yield Pair(a, b, False, declared, id(b) in equal)


def _of_words(embeddings: list[Watched]) -> set[int]:
    """Return the embeddings that a declaration means, by identity: those of the most rows. Positions and segments have
    fewer, and a square one of positions has the shape of any projection of the model.
    """
    most = max((w.ref.shape[0] for w in embeddings), default=0)
    return {id(w) for w in embeddings if w.ref.shape[0] == most}


def _in_block(layer: str) -> bool:
    """Return True for a layer of a repeated block: no head of a model is there."""
    return any(part.isdigit() for part in layer.split("."))


def _turned(linears: list[Watched], declared: str) -> Iterator[Pair]:
    """Yield linear layers of which the later one is the transpose of the earlier."""
    turned = _Buckets(linears, turned=True)
    place = {id(w): i for i, w in enumerate(linears)}
    for i, a in enumerate(linears):
        others = turned.of(a)
        if not others or place[id(others[-1])] <= i or _constant(a.ref) or _same(a.ref, a.ref.t()):
            continue  # a symmetric or constant matrix is the transpose of its copies
        for b in others:
            if place[id(b)] > i and not _one_storage(a.ref, b.ref) and _same(a.ref, b.ref.t()):
                yield Pair(a, b, True, declared, True)


class _Buckets:
    """Matrices by shape and first values, so that each is compared only with those that may be equal to it: of 1,250
    layers of one size all pairs are 780,000.
    """

    def __init__(self, matrices: list[Watched], *, turned: bool) -> None:
        self._of: dict[tuple[Any, ...], list[Watched]] = {}
        for w in matrices:
            key = _key(w.ref.detach(), turned=turned)
            if key is not None:
                self._of.setdefault(key, []).append(w)

    def of(self, w: Watched) -> list[Watched]:
        """Return the matrices that may be equal to one, in order."""
        key = _key(w.ref.detach(), turned=False) if self._of else None
        return self._of.get(key, []) if key is not None else []


def _key(x: Tensor, *, turned: bool) -> tuple[Any, ...] | None:
    """Return a key that equal matrices share, None for one that is not compared."""
    if not operation.observable(x) or x.numel() > _LARGEST:
        return None
    x = x.t() if turned else x
    return (x.device, x.dtype, x.shape, *_head(x).tolist())


def _head(x: Tensor) -> Tensor:
    return x[min(1, x.shape[0] - 1), :_HEAD]


def _constant(x: Tensor) -> bool:
    return not bool((x.detach() != x.detach()[0, 0]).any())


def _one_storage(a: Tensor, b: Tensor) -> bool:
    if not (operation.observable(a) and operation.observable(b)):
        return True  # distributed and other unreadable tensors: treated as tied, so that nothing is claimed
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _same(a: Tensor, b: Tensor, *, constant: bool = False) -> bool:
    """Return True if two matrices are bitwise equal, and (unless ``constant``) hold more than one value."""
    a, b = a.detach(), b.detach()
    if a.device != b.device or a.dtype != b.dtype or a.shape != b.shape or a.numel() > _LARGEST:
        return False
    if not torch.equal(_head(a), _head(b)) or not torch.equal(a, b):
        return False
    return constant or not _constant(a)


def _distance(a: Tensor, b: Tensor) -> float:
    stride = max(1, a.shape[0] // 256)
    x, y = a[::stride].double(), b[::stride].double()
    size = float(x.square().mean().sqrt())
    return float((x - y).square().mean().sqrt()) / size if size > 0 else 0.0


READER = Ties
