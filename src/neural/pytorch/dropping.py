"""Dropout and noise."""

from __future__ import annotations

from functools import partial

from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments


def drop(use: Use) -> LayerCode:
    """Return a dropout of single values, or of values together if it has a noise_shape."""
    rate, together = use.values["rate"], use.values["noise_shape"]
    if together is not None:
        return LayerCode(f"{use.me}({use.x})", f"SharedDropout({rate}, {together})", helpers=("SharedDropout",))
    return LayerCode(f"{use.me}({use.x})", f"nn.Dropout({rate})")


def drop_channels(rank: int, use: Use) -> LayerCode:
    """Return a dropout of whole channels."""
    return LayerCode(f"{use.me}({use.x})", f"nn.Dropout{rank}d({use.values['rate']})")


def disturb(module: str, parameter: str, use: Use) -> LayerCode:
    """Return a module of noise."""
    helpers = () if module.startswith("nn.") else (module,)
    return LayerCode(f"{use.me}({use.x})", f"{module}({arguments(use.values[parameter])})", helpers=helpers)


MEMBERS = (
    LayerWriter("Dropout", drop, passes_mask=True),
    *(
        LayerWriter(f"SpatialDropout{rank}D", partial(drop_channels, rank), layout="first", passes_mask=rank == 1)
        for rank in (1, 2, 3)
    ),
    LayerWriter("GaussianNoise", partial(disturb, "GaussianNoise", "stddev"), passes_mask=True),
    LayerWriter("GaussianDropout", partial(disturb, "GaussianDropout", "rate"), passes_mask=True),
    LayerWriter("AlphaDropout", partial(disturb, "nn.AlphaDropout", "rate"), passes_mask=True),
)
