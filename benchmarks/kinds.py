"""What a training is watched with: a Trainer enters, a step under the tool and the way to close the tool leave.

One function a kind, one line in ``KINDS``. A function imports its tool itself, so that a worker holds nothing but the
one that it measures, and a tool that is not installed is an ImportError for the coordinator to tell.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aside import Way
    from models import Trainer
    from torch import Tensor, nn

    from neuraldbg import NeuralDbg

    Attach = Callable[[Trainer, Path], "Attached"]


def _nothing() -> dict[str, float]:
    return {}


@dataclass(frozen=True)
class Attached:
    """A training with a tool on it."""

    step: Callable[[], object]
    close: Callable[[], dict[str, float]] = _nothing
    """Detaches and writes what is left to write; returns numbers worth telling."""
    session: NeuralDbg | None = None
    """The session of this tool; None for others."""
    aside: Way | None = None
    """While it is entered the training is bare, in the same process; None where that cannot be had."""


@dataclass(frozen=True)
class Kind:
    """One row of the tables."""

    name: str
    what: str
    """How it is used here, for the reader who wants to do the same."""
    attach: Attach | None
    """None: it cannot be attached to a training in our hands, see ``traincheck_peer.py``."""
    peer: bool = False
    package: str = ""
    """What has to be installed, as its distribution is called."""
    imports: str = ""
    """The tool's module, imported before the model is made, as the first lines of a program do."""
    period: int = 1
    """Steps after which it does the same again: a turn has as many at least."""
    warm_up: int = 0
    """First steps in which it does more than later."""
    of_hooks: bool = False
    """True if ``hooks.py`` alone measures it."""


# ---------------------------------------------------------------- ours


def bare(trainer: Trainer, _: Path) -> Attached:
    from aside import Nothing, of  # noqa: PLC0415 (see above, as in all of this file)

    return Attached(trainer.step, aside=of(trainer, Nothing()))


ALLOWANCE_S = 0.2
"""Instead of two seconds: what comes after it does not depend on it."""


def _neuraldbg(trainer: Trainer, folder: Path, **options: Any) -> Attached:
    from aside import Aside, of  # noqa: PLC0415 (see above, as in all of this file)

    from neuraldbg import NeuralDbg  # noqa: PLC0415

    dbg = NeuralDbg(trainer.model, trainer.optimizer, out=folder / "run", **options)
    dbg.start()

    def close() -> dict[str, float]:
        dbg.stop()
        return {"sites": len(dbg.record().layout.sites)}

    return Attached(trainer.step, close, dbg, of(trainer, Aside(dbg, trainer.model)))


def default(trainer: Trainer, folder: Path) -> Attached:
    """The default budget, once the allowance of a session's beginning is spent: that would take a minute of waiting."""
    return _neuraldbg(trainer, folder, settings={"capture": {"allowance_s": ALLOWANCE_S}})


def full(trainer: Trainer, folder: Path) -> Attached:
    return _neuraldbg(trainer, folder, overhead=None)


def profiled(trainer: Trainer, folder: Path) -> Attached:
    """As ``default``, with a profile. Bare turns in the same process would be sampled steps without a training."""
    attached = _neuraldbg(trainer, folder, settings={"capture": {"allowance_s": ALLOWANCE_S}}, profile=True)
    return Attached(attached.step, attached.close)


def alternating(trainer: Trainer, folder: Path) -> Attached:
    return _neuraldbg(trainer, folder, overhead=None, settings={"capture": {"every": 2}})


def hooked(trainer: Trainer, folder: Path) -> Attached:
    """A hook of the user at every layer, which does nothing: what it costs to be called."""
    attached = default(trainer, folder)
    assert attached.session is not None
    for moment in ("after_layer", "after_backward"):
        attached.session.register_hook(moment, lambda _name, _value: None, layers="*")
    return attached


def inspected(trainer: Trainer, folder: Path) -> Attached:
    """The statistics of every output and gradient, all of their numbers."""
    from neuraldbg import HookAction, HookBuilder  # noqa: PLC0415

    attached = default(trainer, folder)
    assert attached.session is not None
    for action in (HookAction.INSPECT_TENSOR, HookAction.TRACK_GRADIENTS):
        attached.session.register_hook(HookBuilder().action(action).layer_patterns(["*"]).build())
    return attached


def never_stops(trainer: Trainer, folder: Path) -> Attached:
    """A breakpoint whose condition never holds: it is looked at after each call of each layer."""
    attached = default(trainer, folder)
    assert attached.session is not None
    attached.session.add_breakpoint(when="step < 0 and layer.rms > 100")
    return attached


def never_stops_at_one(trainer: Trainer, folder: Path) -> Attached:
    """A breakpoint at one layer in a step that never comes."""
    attached = default(trainer, folder)
    assert attached.session is not None
    last = [path for path, module in trainer.model.named_modules() if not list(module.children())][-1]
    attached.session.add_breakpoint(layers=last, step=10**9)
    return attached


# ---------------------------------------------------------------- peers


def _wandb(trainer: Trainer, folder: Path, log: str, log_freq: int) -> Attached:
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder), WANDB_CONSOLE="off")
    import wandb  # noqa: PLC0415

    run = wandb.init(project="bench", dir=str(folder), mode="offline")
    run.watch(trainer.model, log=log, log_freq=log_freq)

    def step() -> None:
        run.log({"loss": trainer.step()})

    def close() -> dict[str, float]:
        run.finish()
        return {}

    return Attached(step, close)


def wandb_every_step(trainer: Trainer, folder: Path) -> Attached:
    return _wandb(trainer, folder, "all", 1)


def wandb_default(trainer: Trainer, folder: Path) -> Attached:
    return _wandb(trainer, folder, "gradients", 1000)


def tensorboard(trainer: Trainer, folder: Path) -> Attached:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    writer = SummaryWriter(str(folder))
    steps = 0

    def step() -> None:
        nonlocal steps
        writer.add_scalar("loss", trainer.step(), steps)
        for name, parameter in trainer.model.named_parameters():
            writer.add_histogram(f"param/{name}", parameter, steps)
            if parameter.grad is not None:
                writer.add_histogram(f"grad/{name}", parameter.grad, steps)
        steps += 1

    def close() -> dict[str, float]:
        writer.close()
        return {}

    return Attached(step, close)


def underflow_overflow(trainer: Trainer, _: Path) -> Attached:
    from transformers.debug_utils import DebugUnderflowOverflow  # noqa: PLC0415

    debug = DebugUnderflowOverflow(trainer.model)

    def close() -> dict[str, float]:
        return {"frames": len(debug.frames)}

    return Attached(trainer.step, close)


def anomaly(trainer: Trainer, _: Path) -> Attached:
    torch.autograd.set_detect_anomaly(True)
    return Attached(trainer.step)


def item_hooks(trainer: Trainer, _: Path) -> Attached:
    """Hooks as tutorials show them: numbers of activations and gradients as Python floats, by layer."""
    numbers: dict[str, tuple[float, ...]] = {}

    def of_layer(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            out = output[0] if isinstance(output, tuple) else output
            if isinstance(out, torch.Tensor):
                numbers[name] = (out.mean().item(), out.std().item(), float(out.isnan().any().item()))

        return hook

    def of_gradient(name: str) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            numbers[name] = (grad.mean().item(), grad.norm().item(), float(grad.isnan().any().item()))

        return hook

    for name, module in trainer.model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(of_layer(name))
    for name, parameter in trainer.model.named_parameters():
        parameter.register_hook(of_gradient(name))
    return Attached(trainer.step)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("bare", "the training alone", bare),
        Kind("bare again", "a second copy of it: what differences mean nothing here", bare),
        Kind(
            "NeuralDBG",
            "the default budget, after the beginning of a run",
            default,
            imports="neuraldbg.session",
        ),
        Kind(
            "NeuralDBG, all",
            "`overhead=None`: every site at every step",
            full,
            imports="neuraldbg.session",
            warm_up=256,  # steps that have facts about the program, too: README, "What watching costs"
        ),
        Kind(
            "NeuralDBG, profile",
            "the default budget and `profile=True`: time and memory of each layer, in steps sampled all along",
            profiled,
            imports="neuraldbg.session",
        ),
        Kind(
            "NeuralDBG, every 2nd",
            '`overhead=None`, `{"capture": {"every": 2}}`: reading goes on and off',
            alternating,
            imports="neuraldbg.session",
            warm_up=256,
        ),
        Kind(
            "a hook on all layers",
            '`register_hook`, layers="*", empty',
            hooked,
            imports="neuraldbg.session",
            of_hooks=True,
        ),
        Kind(
            "statistics of all layers",
            "`INSPECT_TENSOR`, `TRACK_GRADIENTS`",
            inspected,
            imports="neuraldbg.session",
            of_hooks=True,
        ),
        Kind(
            "a condition at all layers",
            "`add_breakpoint(when=...)`, never",
            never_stops,
            imports="neuraldbg.session",
            of_hooks=True,
        ),
        Kind("a breakpoint at one layer", "in no step", never_stops_at_one, imports="neuraldbg.session", of_hooks=True),
        Kind(
            "wandb.watch, all",
            '`watch(log="all", log_freq=1)`, offline, `log` each step',
            wandb_every_step,
            True,
            "wandb",
            imports="wandb",
        ),
        Kind(
            "wandb.watch",
            "as it comes: gradients at every 1,000th step, offline",
            wandb_default,
            True,
            "wandb",
            imports="wandb",
        ),
        Kind(
            "TensorBoard",
            "`add_histogram` of each parameter and gradient each step",
            tensorboard,
            True,
            "tensorboard",
            imports="torch.utils.tensorboard",
        ),
        Kind(
            "DebugUnderflowOverflow",
            "of transformers, as it comes",
            underflow_overflow,
            True,
            "transformers",
            imports="transformers.debug_utils",
        ),
        Kind("detect_anomaly", "`torch.autograd.set_detect_anomaly(True)`", anomaly, True),
        Kind(".item() hooks", "three numbers of each layer's output and each gradient, each step", item_hooks, True),
        Kind(
            "TrainCheck",
            "`traincheck-collect --invariants`: selective, every 10th step",
            None,
            True,
            "traincheck",
            period=10,
            warm_up=10,
        ),
    )
}
