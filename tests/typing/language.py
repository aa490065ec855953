"""The language's API as a user's type checker sees it. Never run: ``make types`` fails if a name or a type is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neural import (
    LayerPlan,
    NeuralError,
    Plan,
    Problem,
    SourceError,
    SourceFile,
    build,
    checked,
    compile_plan,
    formatted,
    load,
    parse,
    read,
)

if TYPE_CHECKING:
    from types import ModuleType

    from torch import nn


def shapes(path: Path) -> dict[str, tuple[int | None, ...]]:
    source: SourceFile = read(path)
    plan: Plan = checked(source, network="Digits")
    layers: tuple[LayerPlan, ...] = plan.layers
    total: int = plan.parameter_count + plan.trainable
    text: str = formatted(parse("network N { }", name="n.neural"))
    print(total, text, [note.text for note in plan.notes])
    return {layer.name: layer.shape for layer in layers}


def problems(path: Path) -> tuple[Problem, ...]:
    try:
        checked(read(path), choose=lambda search: search.values[0])
    except SourceError as error:
        return error.problems
    except NeuralError as error:
        print(error)
    return ()


def models(path: Path) -> nn.Module:
    source: str = compile_plan(checked(read(path)))
    module: ModuleType = load(source)
    print(module.build_model())
    model: nn.Module = build(path, network="Digits")
    return model
