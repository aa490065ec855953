"""Dense and Output as `nn.Linear`."""

from __future__ import annotations

from neural.pytorch.activations import activated
from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments, unless
from neural.pytorch.weights import first_weights


def write(use: Use) -> LayerCode:
    """Return a linear layer with its activation."""
    values = use.values
    bias = {"bias": f"{use.me}.bias"} if values["use_bias"] else {}
    return LayerCode(
        activated(f"{use.me}({use.x})", values["activation"]),
        f"nn.Linear({arguments(use.channels, values['units'], bias=unless(values['use_bias'], True))})",
        weights=first_weights(
            values, {"kernel": f"{use.me}.weight", **bias}, {"kernel": (use.channels, values["units"])}
        ),
    )


MEMBERS = (
    LayerWriter("Dense", write, layout="last", passes_mask=True),
    LayerWriter("Output", write, layout="last", passes_mask=True),
)
