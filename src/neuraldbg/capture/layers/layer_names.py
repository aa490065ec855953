"""Names that a person recognises: layer paths without wrappers, a model's variable name, a layer's settings."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from torch import nn
from torch.jit import ScriptModule

from neuraldbg.capture.guest.module_tree import children, has_parameters, modules, own, own_parameters, parameters
from neuraldbg.capture.guest.program_objects import attributes, is_a, items, name_of, package_of
from neuraldbg.nouns import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_INNER = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_WRAPPERS = _INNER | {"module"}
_SETTINGS = (
    "in_features",
    "out_features",
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "groups",
    "num_features",
    "normalized_shape",
    "num_embeddings",
    "embedding_dim",
    "input_size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "p",
    "dropout",
    "eps",
    "momentum",
    "track_running_stats",
    "negative_slope",
    "inplace",
    "dim",
    "bias",
)
_OURS_ALONE = 3
"""References to a frame's dictionary of variables if only we hold it: the frame's, ours, and getrefcount's own."""
_PLAIN = (bool, int, float, str)
_FRAMES = 24
_ATTRIBUTES = 256


def wraps(module: nn.Module) -> nn.Module:
    """Return the module inside compile, data-parallel and checkpoint wrappers."""
    while True:
        held = own(module).get("_modules")
        if type(held) is dict and len(held) != 1:  # runs at every call of a model, and usually ends here
            return module
        below = dict(children(module))
        inner = next((below[name] for name in _WRAPPERS if name in below), None)
        if len(below) != 1 or inner is None or package_of(type(module)) not in ("torch", "fairscale"):
            return module
        module = inner


def strip(path: str) -> str:
    """Remove the parts of a path that wrappers add: ``block._checkpoint_wrapped_module.fc1`` is ``block.fc1``."""
    return ".".join(part for part in path.split(".") if part not in _INNER)


def layer_of(path: str, module: nn.Module, model: str) -> Layer:
    """Return the description of a module: type, settings, names of its own parameters."""
    settings: dict[str, float | str | bool] = {}
    held = own(module)
    for name in [name for name in _SETTINGS if name in held]:
        value = held[name]
        if type(value) in _PLAIN:
            settings[name] = value
        elif type(value) in (tuple, list) and value and all(type(v) is int for v in value):
            settings[name] = "x".join(str(v) for v in value)
    params = tuple(name for name, _ in own_parameters(module))
    kind = str(module.original_name) if is_a(module, ScriptModule) else name_of(module)
    return Layer(path, kind, model, not children(module), params, settings)


def find_root(module: nn.Module) -> tuple[nn.Module, str, bool]:
    """Return the whole model that a called module belongs to, found in the variables of the calling code.

    Also the name of the variable that holds it, and True if the calling code holds other models beside it. A program
    that calls ``model.encoder(x)`` and ``model.head(z)`` is one model.
    """
    best, name, size = module, "", sum(1 for _ in modules(module))
    home: object = None
    held: list[tuple[object, nn.Module]] = []
    for frame, variable, value in _variables():
        held.append((frame, value))
        if value is best and not name:
            name, home = _told(variable), frame
        elif value is not best and any(member is best for member in modules(value)):
            count = sum(1 for _ in modules(value))
            if count > size:
                best, name, size, home = value, _told(variable), count, frame
    beside = (value for frame, value in held if frame == home)
    others = any(_another(value, best) for value in beside)
    return best, name or name_of(wraps(best)), others


def known_as(module: nn.Module) -> list[str]:
    """Return the names by which the calling code holds a module: of variables, and of attributes of plain objects."""
    found: dict[str, None] = {}
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    for _ in range(_FRAMES):
        if frame is None:
            break
        if _package(frame) not in ("torch", "neuraldbg"):
            for name, value in [*_locals(frame), *list(items(frame.f_globals))]:
                if value is module:
                    found.setdefault(name)
                elif not is_a(value, type):
                    held = attributes(value)
                    inner = list(held.items()) if len(held) <= _ATTRIBUTES else ()
                    found.update({f"{name}.{key}": None for key, item in inner if item is module})
        frame = frame.f_back
    return list(found)


def _told(variable: str) -> str:
    """Return a variable's name, empty for ``self``: a ``forward`` that is called directly holds the model under it."""
    return "" if variable == "self" else variable


def _another(value: nn.Module, model: nn.Module) -> bool:
    """Return True if a module is a model of its own: no part of the other, no copy (an average, a frozen teacher)."""
    if not has_parameters(value) or any(member is value for member in modules(model)):
        return False
    if any(member is model for member in modules(value)):
        return False
    shapes = [[p.shape for p in parameters(each)] for each in (wraps(value), wraps(model))]
    return shapes[0] != shapes[1]


def _variables() -> Iterator[tuple[object, str, nn.Module]]:
    """Yield the modules in the calling code's variables: (frame, name, module), innermost frame first."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
    depth = 0
    seen_globals: set[int] = set()
    while frame is not None and depth < _FRAMES:
        if _package(frame) not in ("torch", "neuraldbg"):
            for name, value in _locals(frame):
                if is_a(value, nn.Module):
                    yield depth, name, value
                elif name == "self":
                    yield from ((depth, n, v) for n, v in _attributes(value))
            if id(frame.f_globals) not in seen_globals:
                seen_globals.add(id(frame.f_globals))
                module_level = [(n, v) for n, v in list(items(frame.f_globals)) if is_a(v, nn.Module)]
                yield from ((id(frame.f_globals), n, v) for n, v in module_level)
        frame = frame.f_back
        depth += 1


def _locals(frame: FrameType) -> list[tuple[str, object]]:
    """Return a frame's variables, without keeping them alive.

    Before Python 3.13, reading ``f_locals`` of a function makes a dictionary that the frame keeps until it ends: in a
    ``main()`` that trains for days, that would hold the first batch, graph and optimizer. It is emptied unless other
    code holds it (a ``locals()`` that the program stored) or a debugger will write it back.
    """
    held = frame.f_locals
    if type(held) is not dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED == 0:
        return list(items(held))  # of a class body: a mapping that a metaclass has made
    found = list(held.items())
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        if sys.gettrace() is None and sys.getrefcount(held) <= _OURS_ALONE:
            held.clear()
    return found


def _attributes(value: object) -> Iterator[tuple[str, nn.Module]]:
    yield from ((name, item) for name, item in list(attributes(value).items()) if is_a(item, nn.Module))


def _package(frame: FrameType) -> str:
    name = dict.get(frame.f_globals, "__name__")
    return name.split(".", maxsplit=1)[0] if type(name) is str else ""
