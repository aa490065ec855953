"""The names by which a person may ask about a run: causes, kinds of events, failures and layers."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.arguments import text
from neuraldbg.errors import UnknownLayer, UnknownName
from neuraldbg.explain.causes import CAUSES
from neuraldbg.explain.evidence.symptom import KINDS, NAMES
from neuraldbg.layer_alias import alias, last_of_type, nearest, resolve
from neuraldbg.nouns import EVENT_KINDS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns import Event, Hypothesis, Layout

ASKED = "a kind of event, a cause, a failure or a layer"
SAME = {
    "diverged": "divergence",
    "diverging": "divergence",
    "exploded": "exploding",
    "explode": "exploding",
    "explosion": "exploding",
    "inf": "nonfinite",
    "infinite": "nonfinite",
    "infinity": "nonfinite",
    "nan": "nonfinite",
    "param": "parameter",
    "saturation": "saturated",
    "spiking": "spike",
    "vanish": "vanishing",
    "vanished": "vanishing",
}
"""Other words for those in the names of events."""
OF_DETECTORS = {
    "non_finite": tuple(kind for kind in EVENT_KINDS if kind.startswith("nonfinite")),
    "weight_scale": ("large_weights",),
}
"""Kinds of events of the detectors whose own name is not that of an event."""
NEAR, MOST = 0.7, 5
"""Likeness from which a name is suggested, and the largest number of suggestions."""


@dataclass(frozen=True)
class Meaning:
    """The subject of a name: causes, kinds of events, or a layer."""

    name: str
    causes: tuple[str, ...] = ()
    """Ids of causes; none if the name is not that of a cause."""
    kinds: frozenset[str] = frozenset()
    """Kinds of events; empty if the name is not that of an event or a failure."""
    layer: str | None = None
    """Path of a layer, which stands for those inside it, too. None if the name is not that of a layer."""

    def has(self, event: Event) -> bool:
        """Return True if an event is of one of the kinds, or is in the layer."""
        return event.kind in self.kinds or (self.layer is not None and within(event.layer, self.layer))


def within(path: str | None, layer: str) -> bool:
    """Return True if a path is that of a layer or of one inside it."""
    return path is not None and (layer in (path, "") or path.startswith(f"{layer}."))


def meaning(name: str, layout: Layout, hypotheses: Iterable[Hypothesis] = ()) -> Meaning:
    """Return the subject of a name. Order of words, plural, case, underscores and hyphens do not matter.

    A name is that of a cause (its id or title), a kind or family of events, a failure, of these ``hypotheses`` or in
    general, a layer (path or alias), or a word of the name of an event. Raises UnknownName with the nearest names.
    """
    if text(name, f"{ASKED} is asked for by its name") in layout.by_path and name:
        return Meaning(name, layer=name)
    wanted = plain(name)
    if not wanted:
        raise UnknownName(name, tuple(EVENT_KINDS)[:3])
    # Whole names come first; `nonfinite_input` is both a cause and a kind of event.
    causes = [one.id for one in CAUSES if wanted in (plain(one.id), plain(one.title))]
    if wanted == plain(UNKNOWN):
        causes = [UNKNOWN]
    kinds = {kind for kind in EVENT_KINDS if wanted == plain(kind)}
    kinds |= {KINDS[key] for key, said in NAMES.items() if wanted == plain(said)}
    kinds |= {kind for name_, found in OF_DETECTORS.items() if wanted == plain(name_) for kind in found}
    if causes or kinds:
        return Meaning(name, tuple(causes), frozenset(kinds))
    failures = [one.cause for one in hypotheses if wanted == plain(one.failure)]
    if failures:
        return Meaning(name, causes=tuple(failures))
    layer = _layer(name, layout)
    if layer is not None:
        return Meaning(name, layer=layer)
    # Then one word is enough: "vanishing", "nan".
    kinds = {kind for kind, family in EVENT_KINDS.items() if wanted <= plain(kind) or wanted == plain(family)}
    if kinds:
        return Meaning(name, kinds=frozenset(kinds))
    raise UnknownName(name, _near(name, layout))


def plain(name: str) -> frozenset[str]:
    """Return the words of a name in lower case and singular: ``vanishing_gradients`` and "gradient vanishing" are one
    name.
    """
    words = name.strip().lower().replace("_", " ").replace("-", " ").split()
    return frozenset(SAME.get(word, word.removesuffix("s")) for word in words)


def _layer(name: str, layout: Layout) -> str | None:
    """Return the path of the layer with a name, in any case; None if there is none."""
    try:
        return resolve(layout, name.strip())
    except UnknownLayer:
        lower = {layer.path.lower(): layer.path for layer in layout.layers if layer.path}
        return lower.get(name.strip().lower())


def _near(name: str, layout: Layout) -> list[str]:
    """Return the nearest names: by the likeness of whole names and of their words; kinds of events, which most ask for,
    before causes and layers that are as like.
    """
    said = name.strip().lower().replace(" ", "_").replace("-", "_")
    causes = [one.id for one in CAUSES if one.id not in EVENT_KINDS]
    layers = [called for layer in layout.layers if layer.path for called in (layer.path, alias(layout, layer.path))]
    likeness = {
        one: _likeness(said, one.lower()) + more
        for names, more in ((("nan", "inf", *EVENT_KINDS), 0.1), (causes, 0.0), (filter(None, layers), 0.0))
        for one in names
    }
    near = sorted((one for one in likeness if likeness[one] >= NEAR), key=lambda one: -likeness[one])
    return last_of_type(layout, name) or near[:MOST] or nearest(layout, name)


def _likeness(said: str, known: str) -> float:
    """Return the likeness of two names, 0 to 1: that of the whole, or of the words that are most alike."""
    ours, theirs = said.split("_"), known.split("_")
    words = [max(difflib.SequenceMatcher(None, word, other).ratio() for other in theirs) for word in ours]
    return max(difflib.SequenceMatcher(None, said, known).ratio(), sum(words) / len(words))
