"""From a file to a model, by one path: a `Plan` becomes the source of a PyTorch file, and that source is executed.

`neural compile` writes the very text that `load` executes, so that both train the same, bit for bit.
"""

from __future__ import annotations

import hashlib
import linecache
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from neural.check.checker import checked
from neural.keras_code.model_file import keras_source
from neural.language.reader import read
from neural.pytorch.model_file import model_source

if TYPE_CHECKING:
    from torch import nn

    from neural.plan import Plan


def compile_plan(plan: Plan, text: str = "", backend: str = "pytorch") -> str:
    """Return the source of a network; errors quote the lines of `text`, or of the plan's file if it is there.

    It is for PyTorch, or for Keras 3 if the backend is `tensorflow`, `jax` or `keras`. CheckFailed is raised with every
    layer that the backend cannot express.
    """
    if not text and plan.file:
        try:
            text = Path(plan.file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            text = ""
    return model_source(plan, text) if backend == "pytorch" else keras_source(plan, text, backend)


def load(source: str, name: str = "model") -> ModuleType:
    """Return the source as a module: `build_model()`, `loss_function`, `make_optimizer(model)`, `train(model, data)`.

    Tracebacks and debuggers show its lines. The same source is the same file name, so that loading it again leaves
    nothing behind.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    file = f"<neural {re.sub(r'[<>]', '', name)} {digest}>"
    module = ModuleType(f"neural_model_{digest}")
    module.__file__ = file
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module  # where classes look their module up, for instance to be pickled
    exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 (our own text, written by `compile_plan`)
    return module


def build(path: str | Path, network: str | None = None) -> nn.Module:
    """Return the model of a `.neural` file: that of the network called `network`, the first one if it is None.

    Its weights are random: `torch.manual_seed` before decides which.
    """
    source = read(path)
    plan = checked(source, network)
    model: nn.Module = load(compile_plan(plan, source.text), plan.name).build_model()
    return model
