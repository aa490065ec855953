"""Layers that arrange their input otherwise."""

from __future__ import annotations

from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments, sizes_text


def flatten(use: Use) -> LayerCode:
    """Return one axis with all elements, in the order of the language: the channels last."""
    return LayerCode(f"{use.me}({use.x})", "nn.Flatten()")


def reshape(use: Use) -> LayerCode:
    """Return another shape of the same elements."""
    target = tuple(use.values["target_shape"])
    return LayerCode(
        f"{use.x}.reshape({arguments(-1 if -1 not in target else f'{use.x}.shape[0]', *target)})",
        comment=use.layer.name,
    )


def permute(use: Use) -> LayerCode:
    """Return the axes in another order."""
    return LayerCode(f"{use.x}.permute({arguments(0, *use.values['dims'])})", comment=use.layer.name)


def repeat(use: Use) -> LayerCode:
    """Return the input several times along a new axis."""
    return LayerCode(f"{use.x}.unsqueeze(1).repeat(1, {use.values['n']}, 1)", comment=use.layer.name)


def enlarge(use: Use) -> LayerCode:
    """Return each place several times, or values between places."""
    mode = use.values["interpolation"]
    smooth = ', mode="bilinear", align_corners=False' if mode == "bilinear" else ""
    return LayerCode(f"{use.me}({use.x})", f"nn.Upsample(scale_factor={sizes_text(use.values['size'])}{smooth})")


def pad(use: Use) -> LayerCode:
    """Return the input with zeros around it."""
    rows, columns = use.values["padding"]
    words = str(rows) if rows == columns else f"({columns}, {columns}, {rows}, {rows})"
    return LayerCode(f"{use.me}({use.x})", f"nn.ZeroPad2d({words})")


MEMBERS = (
    LayerWriter("Flatten", flatten, "last"),
    LayerWriter("Reshape", reshape, "last"),
    LayerWriter("Permute", permute, "last"),
    LayerWriter("RepeatVector", repeat),
    LayerWriter("UpSampling2D", enlarge, "first"),
    LayerWriter("ZeroPadding2D", pad, "first"),
)
