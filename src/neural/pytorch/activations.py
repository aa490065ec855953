"""Activations as code: as an expression, as a function, as a module."""

from __future__ import annotations

EXPRESSIONS = {
    "elu": "F.elu({x})",
    "exponential": "torch.exp({x})",
    "gelu": "F.gelu({x})",
    "hard_sigmoid": "F.hardsigmoid({x})",
    "leaky_relu": "F.leaky_relu({x}, 0.2)",
    "linear": "{x}",
    "log_softmax": "torch.log_softmax({x}, dim={axis})",
    "mish": "F.mish({x})",
    "relu": "torch.relu({x})",
    "relu6": "F.relu6({x})",
    "selu": "torch.selu({x})",
    "sigmoid": "torch.sigmoid({x})",
    "silu": "F.silu({x})",
    "softmax": "torch.softmax({x}, dim={axis})",
    "softplus": "F.softplus({x})",
    "softsign": "F.softsign({x})",
    "tanh": "torch.tanh({x})",
}
MODULES = {
    "elu": "nn.ELU()",
    "gelu": "nn.GELU()",
    "hard_sigmoid": "nn.Hardsigmoid()",
    "leaky_relu": "nn.LeakyReLU(0.2)",
    "linear": "nn.Identity()",
    "log_softmax": "nn.LogSoftmax(dim={axis})",
    "mish": "nn.Mish()",
    "relu": "nn.ReLU()",
    "relu6": "nn.ReLU6()",
    "selu": "nn.SELU()",
    "sigmoid": "nn.Sigmoid()",
    "silu": "nn.SiLU()",
    "softmax": "nn.Softmax(dim={axis})",
    "softplus": "nn.Softplus()",
    "softsign": "nn.Softsign()",
    "tanh": "nn.Tanh()",
}
"""`exponential` has no module in torch."""


def activated(x: str, activation: str, axis: int = -1) -> str:
    """Return the expression of an activation of `x`, whose channels are the axis `axis`."""
    return EXPRESSIONS[activation].format(x=x, axis=axis)


def activation_module(activation: str, axis: int = -1) -> str:
    """Return the expression that makes a module of an activation, "" if torch has none."""
    return MODULES.get(activation, "").format(axis=axis)


def activation_function(activation: str) -> str:
    """Return the expression of an activation as a function of one tensor."""
    expression = EXPRESSIONS[activation]
    name, _, rest = expression.partition("({x}")
    return name if rest == ")" else f"lambda x: {expression.format(x='x', axis=-1)}"
