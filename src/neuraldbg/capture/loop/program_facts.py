"""Facts about the program at one step: modes, batch, parameters against optimizers, precision. JSON, no tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import group_tensors, groups, tensors, training
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import attribute, is_a, item, name_of, sequence
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.capture.statistics.operation import observable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from neuraldbg.capture.parameters.parameters import Params

_MODE_LAYERS = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)  # noqa: SLF001
_COLUMN_CAP = 262_144
_SHAPES = 8
_NAMES = 32
_IMAGE_DIMS = 4


def mode_layers(modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Return the layers that behave differently in train and eval mode: dropout that drops, and batch norm."""
    found: dict[str, nn.Module] = {}
    for path, module in modules.items():
        if is_a(module, _MODE_LAYERS) and number(attribute(module, "p", 1.0)) != 0.0:
            norm = is_a(module, nn.modules.batchnorm._NormBase)  # noqa: SLF001
            if norm and attribute(module, "track_running_stats") is False:
                continue
            found[path] = module
    return found


def modes(model: str, root: nn.Module, layers: Mapping[str, nn.Module]) -> dict[str, Any]:
    """Return the MODES fact."""
    still = [path for path, module in layers.items() if not training(module)]
    return {"model": model, "training": training(root), "eval_layers": still, "mode_layers": list(layers)}


def batch(model: str, inputs: Any) -> dict[str, Any]:
    """Return the BATCH fact: shape and dtype of every input, and the spread of scales over the columns of 2-D ones."""
    described: dict[str, Any] = {}
    for leaf, given in leaves(inputs):
        held = tensor_memory.readable(given)
        if held is None and (type(given) not in tensor_memory.ORDINARY or tensor_memory.wrapped(given)):
            continue
        x = given if held is None else held
        entry: dict[str, Any] = {"shape": list(tensor_memory.shape_of(x)), "dtype": str(x.dtype).removeprefix("torch.")}
        entry["image"] = x.dim() == _IMAGE_DIMS
        if observable(x) and x.dim() == 2 and x.shape[0] > 1 and x.numel() <= _COLUMN_CAP:
            columns = x.detach().double()
            std, mean = columns.std(0, unbiased=False), columns.mean(0)
            moving = std[(std > 0) & std.isfinite()]
            entry["column_std_min"] = float(moving.min()) if moving.numel() else 0.0
            entry["column_std_max"] = float(moving.max()) if moving.numel() else 0.0
            entry["column_mean_absmax"] = float(mean.abs().max())
        elif held is not None and not x.dtype.is_floating_point and not x.dtype.is_complex and x.numel():
            low, high = torch.aminmax(operation.spaced(x.detach(), 1, _COLUMN_CAP).long())
            entry["min"], entry["max"] = int(low), int(high)
        described[leaf] = entry
        if len(described) == _SHAPES:
            break
    return {"model": model, "inputs": described}


def parameters(
    params: Params,
    in_optimizer: Mapping[int, float],
    called: Iterable[str],
    *,
    ever: Container[int],
    stale: Container[int] = (),
    dry: Container[str] = (),
) -> dict[str, Any]:
    """Return the PARAMS fact. ``in_optimizer`` maps the id of each tensor in any group to its learning rate; ``ever``
    are the ids of those that any optimizer has held, ``stale`` of tensors that had no gradient since they were frozen,
    ``dry`` the names of those that lost it.
    """
    fired = set(called)
    for w in params.by_id.values():
        w.had_grad |= w.ref.grad is not None
        w.trainable, w.rate = w.ref.requires_grad, in_optimizer.get(w.key)
    every = params.all()
    # A model with no parameter in an optimizer, beside one that is trained, is a tool of the loss and no fault.
    held = [w for w in every if w.key in ever]
    # If no parameter in an optimizer gets a gradient, another model is the trained one.
    trained = {w.model for w in held} if any(w.had_grad and w.name not in dry for w in held) else set()
    models = {w.model for w in every}
    shared = (alias for w in held for alias in w.aliases)
    trained |= {alias.partition(".")[0] for alias in shared} & models  # a new head on a part that was trained before
    lists: dict[str, list[Any]] = {
        key: [] for key in ("frozen", "not_in_optimizer", "no_grad", "uncalled", "zero_lr", "tied")
    }
    # Each list is one kind of fault; a parameter that should not train is in none but ``frozen``.
    for w in every:
        if trained and w.model not in trained:
            continue
        if w.aliases:
            lists["tied"].append([w.name, *w.aliases])
        if not w.trainable:
            if w.layer in fired:
                lists["frozen"].append(w.name)
            continue
        if w.layer not in fired and not _borrowed(w.layer, params, fired):
            lists["uncalled"].append(w.name)
        if not w.had_grad:
            lists["no_grad"].append(w.name)
        elif w.rate is None:
            if w.key not in stale:
                lists["not_in_optimizer"].append(w.name)
        elif w.rate == 0.0:
            lists["zero_lr"].append(w.name)
    return {"total": len(every), **lists}


def _borrowed(layer: str, params: Params, fired: set[str]) -> bool:
    """Return True if a layer's parent uses its parameters without calling it, as ``MultiheadAttention`` does."""
    parent, _, name = layer.rpartition(".")
    inner = {f"{parent}.in_proj_weight", f"{parent}.q_proj_weight"}
    return name == "out_proj" and parent in fired and any(w.name in inner for w in params.all())


def optimizer(stream: int, opt: torch.optim.Optimizer, params: Params) -> dict[str, Any]:
    """Return the OPTIMIZER fact."""
    held = tensors(opt)
    foreign = [t for t in held if id(t) not in params.by_id]
    owned = [params.by_id[id(t)] for t in held if id(t) in params.by_id]
    return {
        "stream": stream,
        "type": name_of(opt),
        "groups": [group_settings(group) for group in groups(opt)],
        "owned": len(owned),
        "foreign": len(foreign),
        "foreign_no_grad": sum(1 for t in foreign if t.grad is None),
        "idle": sum(1 for w in owned if w.ref.grad is None and not w.had_grad),
        "frozen": sum(1 for t in held if not t.requires_grad),
        "foreign_shapes": [list(t.shape) for t in foreign[:_SHAPES]],
        **_decay(opt, params),
    }


def _decay(opt: torch.optim.Optimizer, params: Params) -> dict[str, Any]:
    """Return the OPTIMIZER fact's counts of parameters with and without weight decay."""
    decayed, others, norms = 0, 0, []
    for group in groups(opt):
        members = group_tensors(group)
        if not number(item(group, "weight_decay")):
            others += len(members)
            continue
        decayed += len(members)
        owned = (params.by_id.get(id(t)) for t in members)
        norms += [w.name for w in owned if w is not None and w.norm]
    return {"decayed_norms": norms[:_NAMES], "decayed": decayed, "undecayed": others}


def group_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a parameter group that are numbers."""
    found: dict[str, Any] = {"params": len(group_tensors(group))}
    for key in (
        "lr",
        "weight_decay",
        "momentum",
        "betas",
        "eps",
        "nesterov",
        "amsgrad",
        "alpha",
        "max_iter",
        "centered",
        "decoupled_weight_decay",
        "maximize",
        "dampening",
        "fused",
        "foreach",
    ):
        value = item(group, key)
        plain = value if type(value) in (bool, int, float) else number(value)
        if plain is not None:
            found[key] = plain
        elif key == "betas" and is_a(value, (tuple, list)):  # Adafactor has two numbers under "eps", for instance
            found[key] = [x for x in map(number, sequence(value)) if x is not None]
    return found


def precision(params: Params, *, scaler: bool) -> dict[str, Any]:
    """Return the PRECISION fact."""
    devices = {w.ref.device.type for w in params.by_id.values()} or {"cpu"}
    device = max(devices)
    on = device != "meta" and torch.is_autocast_enabled(device)
    dtypes = sorted({str(w.ref.dtype).removeprefix("torch.") for w in params.by_id.values()})
    autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.") if on else None
    return {"autocast": autocast, "param_dtypes": dtypes, "scaler": scaler}
