"""The words for layers whose path is a number: a diagnosis calls layer 0 of a Sequential ``'linear1' (0)``.

Causes and summaries write such a layer as ``layer 0``, ``layers 0 and 2`` or ``'0'``; here each becomes the name by
type and order that a user can ask for, with the path beside it. A layer with a name of its own keeps it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.layer_alias import alias
from neuraldbg.nouns.diagnosis import layer_words
from neuraldbg.nouns.layout import NUMBERED

if TYPE_CHECKING:
    from neuraldbg.nouns import Chain, Diagnosis, Hypothesis, Layout

_PATH = r"\d+(?:\.\d+)*"
_SAID = re.compile(
    rf"\blayers? ('?){_PATH}\1(?:(?:, | and )\1{_PATH}\1)*(?![\w.]*\w)(?! (?:more|of)\b)|(?<!\w)'{_PATH}'"
)
_ONE = re.compile(rf"'({_PATH})'|{_PATH}")


class LayerWords:
    """Puts the names of layers into the sentences of one run."""

    def __init__(self, layout: Layout) -> None:
        paths = (layer.path for layer in layout.layers if NUMBERED.fullmatch(layer.path))
        self._names = {path: layer_words(path, alias(layout, path)) for path in paths}
        self._layout = layout

    def text(self, words: str) -> str:
        """Return a sentence with the names of its layers."""
        return _SAID.sub(self._named, words) if self._names else words

    def _named(self, said: re.Match[str]) -> str:
        return _ONE.sub(lambda one: self._names.get(one[1] or one[0], one[0]), said[0])

    def hypothesis(self, one: Hypothesis) -> Hypothesis:
        """Return a hypothesis with the names of its layers."""
        if not self._names:
            return one
        return replace(
            one,
            sentence=self.text(one.sentence),
            evidence=tuple(replace(each, statement=self.text(each.statement)) for each in one.evidence),
            remedy=replace(one.remedy, text=self.text(one.remedy.text)),
            layer_alias=alias(self._layout, one.layer) if one.layer is not None else "",
        )

    def chain(self, chain: Chain) -> Chain:
        """Return a chain with the names of its layers."""
        if not self._names:
            return chain
        nodes = (
            replace(node, label=self.text(node.label), layer_alias=alias(self._layout, node.layer or ""))
            for node in chain.nodes
        )
        return replace(chain, nodes=tuple(nodes))

    def diagnosis(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return a diagnosis with the names of its layers."""
        if not self._names:
            return diagnosis
        return replace(
            diagnosis,
            summary=self.text(diagnosis.summary),
            symptoms=tuple(map(self.text, diagnosis.symptoms)),
            hypotheses=tuple(map(self.hypothesis, diagnosis.hypotheses)),
            chain=self.chain(diagnosis.chain),
            observations=tuple(replace(each, statement=self.text(each.statement)) for each in diagnosis.observations),
            unjudged=tuple(replace(each, reason=self.text(each.reason)) for each in diagnosis.unjudged),
        )
