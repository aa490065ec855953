"""An experiment: does the output depend on the input at all?

A network that has collapsed gives the same output for every input, and so does one whose head begins at zero; neither
ignores its input. So the weights of the copy are first replaced by fresh random ones (own generator; a pattern of zeros
is kept, frozen weights stay). An output that is then bitwise the same for every input cannot depend on it, unless the
dependence fades below rounding, or the weights as they are let the input through. The layer where the input is lost is
the first whose input changes and whose output does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.experiments.experiment import SEED, Bench, Experiment
from neuraldbg.capture.guest.module_tree import add_hook, modules, named_parameters, set_training, walk
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.purity import TooLong, Unfit
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from typing_extensions import Self

_ZEROS = 0.01
"""Share of exact zeros from which on they are an intended pattern."""
_UNSEEN = 1e-12
"""A smaller gradient changes an output of the usual scale by less than a double shows, about."""


def run(bench: Bench) -> dict[str, Any] | None:
    """Exchange the inputs of all samples for those of others, and for noise; return whether the output changes."""
    if bench.rows < 2:
        return None
    if bench.constant:
        return _zeros(bench)
    # a model that computes its own loss is given the targets as well, which are no input
    targets = {name for name, x in bench.inputs() if bench.is_target(x)}
    if all(name in targets for name, _ in bench.inputs()):
        targets = set()  # an autoencoder: its input is its target
    named = [(name, x) for name, x in bench.inputs() if x.dim() and name not in targets]
    used = _used(bench, targets)
    # Fresh weights, since trained or zero weights may hide an input that the model does use.
    _refresh(bench.module)
    with _Layers(bench.module) as layers:
        base = bench.call()
        first = layers.take()
        shifts = _shifts(bench, base, targets)
        if not base or not shifts:
            return None
        rolled = bench.call(lambda name, x: x if name in targets else _rolled(x, shifts[name]))
        second = layers.take()
    if not all(bool(x.isfinite().all()) for _, x in base):
        raise Unfit("its output is not finite")
    noisy = bench.call(lambda name, x: x if name in targets else _noise(x, shifts[name]))
    if not _same(base, rolled) or not _same(base, noisy):
        blind = _blind(bench, base, (rolled, noisy))
        found = {"ignored": bool(blind), "layer": None, "leaves": _silent_leaves(bench, named, base)}
        return {**found, "output": blind} if blind else found
    # The input may matter in train mode only.
    set_training(bench.module, on=True)
    try:
        trained = bench.call()
        ignored = _same(trained, bench.call(lambda name, x: x if name in targets else _rolled(x, shifts[name])))
    finally:
        set_training(bench.module, on=False)
    # A dependence below rounding is use, not ignorance.
    lost = _lost(first, second) if ignored else None
    if ignored and (_fades(bench, targets, shifts) or (lost is None and _reaches(bench, targets))):
        return {"ignored": False, "layer": None, "leaves": [], "faded": True}
    ignored = ignored and not used  # fresh weights may hide it, as below the threshold of a spike
    return {"ignored": ignored, "layer": lost if ignored else None, "leaves": []}


def _used(bench: Bench, targets: set[str]) -> bool:
    """Return True if the output of the model as it is depends on the input."""
    base = bench.call()
    shifts = _shifts(bench, base, targets)
    return bool(shifts) and not _same(
        base, bench.call(lambda name, x: x if name in targets else _rolled(x, shifts[name]))
    )


def _shifts(bench: Bench, base: list[tuple[str, Tensor]], targets: set[str]) -> dict[str, int]:
    """Return the number of samples by which each input is rolled; {} if no exchange of samples could show anything.

    Where the output is fewer numbers than samples, as a loss that the model averages, all inputs rolled alike are the
    same pairs in another order. Each is rolled by another number there, and ids alone cannot be told.
    """
    shifts = dict.fromkeys((name for name, _ in bench.inputs()), 1)
    if any(x.numel() >= bench.rows for _, x in base):
        return shifts
    given = [(name, x) for name, x in bench.inputs() if name not in targets]
    if len(given) < 2 and not targets and not any(x.is_floating_point() for _, x in given):
        return {}
    return shifts | {name: 1 + place % (bench.rows - 1) for place, (name, _) in enumerate(given)}


def _fades(bench: Bench, targets: set[str], shifts: dict[str, int]) -> bool:
    """Return True if other inputs change the output by less than its dtype can show: a double shows smaller changes.

    A long recurrence multiplies its first inputs by less than 1 again and again. That input is used, and forgotten.
    """
    bench.module.double()
    try:
        base = bench.call(lambda _, x: _doubled(x))
        return not _same(base, bench.call(lambda name, x: _doubled(x if name in targets else _rolled(x, shifts[name]))))
    except TooLong:
        raise
    except Unfit:  # the model sets dtypes itself
        return False


def _reaches(bench: Bench, targets: set[str]) -> bool:
    """Return True if the inputs of a recurrent network have gradients, in double precision, too small to show in an
    output.

    A product of small factors survives where a sum has lost it. (The last digit of a sum depends on the processor.) A
    gradient large enough to show in the output does not count: then a custom backward made it.
    """
    if not any(is_a(module, (nn.RNNBase, nn.RNNCellBase)) for module in modules(bench.module)):
        return False
    try:
        found = bench.gradients(lambda _, x: _doubled(x), but=targets)
    except TooLong:
        raise
    except Unfit:
        return False
    return any(0 < float(x.abs().max()) < _UNSEEN for x in found if x.numel())  # false for NaN


def _doubled(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def _zeros(bench: Bench) -> dict[str, Any] | None:
    """Return a finding for a batch whose floating values are all zero, which carries no information."""
    tensors = [x for _, x in bench.inputs()]
    if not tensors or not all(x.is_floating_point() and x.dim() > 1 and not bool(x.any()) for x in tensors):
        return None
    return {"ignored": True, "layer": None, "leaves": [], "zeros": True}


def _blind(
    bench: Bench, base: list[tuple[str, Tensor]], others: tuple[list[tuple[str, Tensor]], ...]
) -> list[Any] | None:
    """Return [name, shape] of the output that the loss compares with its targets, if it alone does not depend on the
    input: it differs from row to row (by noise drawn inside), and no other output has its shape.
    """
    for i, (name, x) in enumerate(base):
        if x.dim() < 2 or x.shape[0] != bench.rows or bool((x == x[:1]).all()):
            continue
        if not any(target.shape == tuple(x.shape) for target in bench.targets):
            continue
        if sum(y.shape == x.shape for _, y in base) == 1 and all(_same([base[i]], [other[i]]) for other in others):
            return [name, list(x.shape)]
    return None


def _refresh(module: nn.Module) -> None:
    """Give every trainable parameter of the copy fresh random values of the usual scale."""
    generator = torch.Generator().manual_seed(SEED)
    for name, p in named_parameters(module):
        if not p.requires_grad or not p.is_floating_point() or p.numel() == 0:
            continue
        fresh = torch.randn(p.shape, generator=generator, device="cpu").to(p.device, p.dtype)
        zeros = p == 0
        share = float(zeros.float().mean())
        if p.dim() > 1:
            fresh /= max(1.0, p[0].numel()) ** 0.5
            if _ZEROS < share < 1:
                fresh[zeros] = 0
        else:
            fresh = 0.1 * fresh + (0.0 if name.endswith("bias") else 1.0)
        p.data.copy_(fresh)


def _rolled(x: Tensor, shift: int = 1) -> Tensor:
    return x.roll(shift, 0) if x.dim() else x


def _noise(x: Tensor, shift: int = 1) -> Tensor:
    if not x.is_floating_point() or not x.dim():
        return _rolled(x.flip(0), shift) if x.dim() else x
    generator = torch.Generator().manual_seed(SEED)
    return x + torch.randn(x.shape, generator=generator, device="cpu").to(x.device, x.dtype) * (
        x.std(unbiased=False) + 1e-3
    )


def _same(a: list[tuple[str, Tensor]], b: list[tuple[str, Tensor]]) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and torch.equal(x, y) for (_, x), (_, y) in zip(a, b, strict=True)
    )


def _silent_leaves(bench: Bench, named: list[tuple[str, Tensor]], base: list[tuple[str, Tensor]]) -> list[str]:
    """Return the inputs that vary over the batch and whose exchange changes nothing; empty if there is only one."""
    varied = [name for name, x in named if x.shape[0] > 1 and not bool((x == x[:1]).all()) and not _marks(x)]
    if not 1 < len(varied) <= 4:
        return []
    return [
        leaf
        for leaf in varied
        if _same(base, bench.call(lambda name, x, leaf=leaf: _rolled(x) if name == leaf else x))  # type: ignore[misc]
    ]


def _marks(x: Tensor) -> bool:
    """Return True for lengths, indices or a mask, which a model may accept and not need."""
    return x.dim() < 2 or bool(((x == 0) | (x == 1)).all())


class _Layers:
    """Keeps a checksum of input and output of each layer of the copy, in the order of the calls."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.seen: list[tuple[str, float, float]] = []
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        for path, module in walk(self.module):
            if path and not module._modules:  # noqa: SLF001 (a leaf)
                self._handles.append(add_hook(module, "_forward_hooks", self._look(path)))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _look(self, path: str) -> Any:
        def look(_: nn.Module, args: Any, output: Any) -> None:
            self.seen.append((path, _print(args), _print(output)))

        return look

    def take(self) -> list[tuple[str, float, float]]:
        """Return the checksums of a pass, and begin the next pass."""
        seen, self.seen = self.seen, []
        return seen


def _print(value: Any) -> float:
    total = 0.0
    for _, x in leaves(value):
        if x.layout is torch.strided and not x.is_complex() and x.numel():
            flat = operation.spaced(x.detach(), 1, 65_536).double()
            total += float((flat * torch.arange(1, flat.numel() + 1, dtype=torch.float64, device=flat.device)).sum())
    return total


def _lost(first: list[tuple[str, float, float]], second: list[tuple[str, float, float]]) -> str | None:
    """Return the first layer whose input changed and whose output did not."""
    for (path, given, made), (again, given2, made2) in zip(first, second, strict=False):
        if path == again and given != given2 and made == made2:
            return path
    return None


EXPERIMENT = Experiment("input_ignored", run, forwards=13)
