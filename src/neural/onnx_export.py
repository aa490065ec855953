"""A network as an ONNX file: a `Plan` enters, with the weights of a state dict if one is given; a file is written.

The export needs the model as torch has it, and `neural` imports no torch. So the text that exports it follows the text
of the generated file, and both are executed as one module, as `neural.build` does. A process of its own would do the
same with a start of seconds and errors as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural.backends import backend, require
from neural.building import compile_plan, load
from neural.errors import FileUnreadable, NotExported
from neural.pytorch.model_file import data_key
from neural.pytorch.module_source import copied
from neural.pytorch.training_code import taken_over

if TYPE_CHECKING:
    from neural.plan import Plan

IMPORTS = "import logging\nimport warnings\nfrom collections.abc import Sequence\n\n\n"
SAMPLES, ANY = 2, 32
"""Size of the batch, and of an axis that only the data tell, with which the model is traced."""


def export(plan: Plan, path: str | Path, text: str = "", *, weights: str | Path | None = None, seed: int = 0) -> None:
    """Write the network as an ONNX file that gives what `predict` gives, for a batch of any size.

    Inputs have their names in a data file (`x`), the output is `y`; channels are last, as in the `.neural` file.
    `weights` is a state dict, as the generated file saves one; without it the weights are random, of `seed`.
    NotExported is raised with the reason if ONNX cannot express the network.
    """
    require(backend("onnx"))
    if not Path(path).parent.is_dir():
        raise FileUnreadable(f"{path} could not be written: there is no folder {Path(path).parent}")
    names = ("write_onnx", "sample_inputs", "load_weights")
    helpers = "\n\n\n".join(copied(names))
    source = compile_plan(plan, text)
    module: Any = load(f"{source}\n\n{IMPORTS}{helpers}\n", plan.name)
    module.torch.manual_seed(seed)
    model = module.build_model()
    if weights is not None:
        _load(module, model, Path(weights))
    shapes = [(SAMPLES, *(size or ANY for size in each.shape)) for each in plan.inputs]
    free = [[0, *(axis for axis, size in enumerate(each.shape, 1) if size is None)] for each in plan.inputs]
    inputs = module.sample_inputs(shapes, [each.ids for each in plan.inputs])
    keys = [data_key(plan, each) for each in plan.inputs]
    try:
        fixed = module.write_onnx(model, inputs, free, keys, str(path), taken_over(plan))
    except OSError as error:
        raise FileUnreadable(f"{path} could not be written: {error.strerror or error}") from None
    except Exception as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise NotExported(
            f"torch could not export the network {plan.name}: {type(error).__name__}: {reason}"
        ) from error
    if fixed:
        words = "a layer that runs step by step needs a size in the section `input`"
        raise NotExported(f"the export would fix {' and '.join(fixed)}, which the file leaves open: {words}")


def _load(module: Any, model: Any, path: Path) -> None:
    """Load a state dict, or say why it does not fit."""
    try:
        module.load_weights(model, str(path))
    except OSError as error:
        raise FileUnreadable(f"{path} could not be read: {error.strerror or error}") from None
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).split("\n")]
        reason = " ".join(lines[1:3]) or lines[0]
        raise FileUnreadable(f"{path} has not the weights of this network: {reason[:300]}") from None
    except Exception as error:  # noqa: BLE001 (a file of anything raises anything)
        words = "is no state dict, such as torch.save(model.state_dict(), FILE) writes"
        raise FileUnreadable(f"{path} {words} ({type(error).__name__})") from None
