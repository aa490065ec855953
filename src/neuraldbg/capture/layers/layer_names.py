"""Names that a person recognises: layer paths without wrappers, a model's variable name, a layer's settings."""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.jit import ScriptModule

from neuraldbg.capture.guest.frame_variables import variables_of
from neuraldbg.capture.guest.module_tree import children, has_parameters, modules, own, own_parameters, parameters, walk
from neuraldbg.capture.guest.program_objects import attributes, bases, is_a, items, members, name_of, package_of
from neuraldbg.nouns import Layer, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_INNER = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_WRAPPERS = _INNER | {"module"}
_SETTINGS = ("p", "dropout", "eps", "momentum", "num_heads", "dim", "inplace", "bias", "out_features")
"""Names under which layers of other libraries keep a setting that no argument of their constructor has."""
_PLAIN = (bool, int, float, str)
_MOST_SETTINGS = 32
"""Largest number of settings of one layer that are kept."""
_LONGEST = 64
"""Largest number of characters of a setting: longer texts are data."""
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
    params = tuple(name for name, _ in own_parameters(module))
    kind = str(module.original_name) if is_a(module, ScriptModule) else name_of(module)
    return Layer(path, kind, model, not children(module), params, _settings(module, kind))


def _settings(module: nn.Module, kind: str) -> dict[str, float | str | bool]:
    """Return the arguments of a module's constructor that it keeps under their own names, as plain values."""
    held = own(module)
    found: dict[str, float | str | bool] = {}
    for name in dict.fromkeys((*_arguments(type(module)), *_SETTINGS)):
        value = _plain(held.get(name, module))
        if value is not None and value != kind and len(found) < _MOST_SETTINGS:  # an LSTM keeps mode="LSTM"
            found[name] = value
    return found


def _arguments(kind: type) -> Iterator[str]:
    """Yield the names of the arguments of a class's constructor and those of its bases, below ``nn.Module``."""
    for base in bases(kind):
        if base is nn.Module:
            return
        made = members(base).get("__init__")
        if type(made) is FunctionType:
            code = made.__code__
            yield from code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]


def _plain(value: Any) -> float | str | bool | None:
    """Return a setting as a plain value: sizes as ``3x3``, a function by its name, None as a word. Return None for any
    other value.
    """
    if value is None:
        return "None"
    if type(value) in (tuple, list) and value and all(v is None or type(v) in _PLAIN for v in value):
        value = "x".join(str(v) for v in value)
    elif type(value) in (FunctionType, BuiltinFunctionType):
        value = value.__name__
    long = type(value) is str and len(value) > _LONGEST
    return value if type(value) in _PLAIN and not long else None


def layout_of(model: nn.Module) -> Layout:
    """Return the layers of a model that was not called yet, in the order of its modules, without sites."""
    name = name_of(wraps(model))
    found = ((strip(path) or name, module) for path, module in walk(wraps(model)))
    return Layout(tuple(layer_of(path, module, name) for path, module in found))


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
            for name, value in [*variables_of(frame), *list(items(frame.f_globals))]:
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
            for name, value in variables_of(frame):
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


def _attributes(value: object) -> Iterator[tuple[str, nn.Module]]:
    yield from ((name, item) for name, item in list(attributes(value).items()) if is_a(item, nn.Module))


def _package(frame: FrameType) -> str:
    name = dict.get(frame.f_globals, "__name__")
    return name.split(".", maxsplit=1)[0] if type(name) is str else ""
