"""Layers that the language names and does not define, each with the reason why no model can be made with it."""

from __future__ import annotations

from neural.layers.layer_type import LayerType

REASONS = {
    "CapsuleLayer": "the language says nothing of its capsules and their routing",
    "CustomShape": "it only tells upstream's drawing a shape: Reshape() gives a tensor another shape",
    "DynamicLayer": "the language says nothing of what it computes",
    "GraphAttention": "it needs the edges of a graph, for which the language has no input",
    "GraphConv": "it needs the edges of a graph, for which the language has no input",
    "Inception": "the language says nothing of its branches: write them as branches with Concatenate() after them",
    "Lambda": "code inside a model file is not run: write the layer as a macro",
    "QuantumLayer": "torch has no quantum computer",
}

MEMBERS = tuple(LayerType(name, f"Cannot be built: {reason}.", unbuildable=reason) for name, reason in REASONS.items())
