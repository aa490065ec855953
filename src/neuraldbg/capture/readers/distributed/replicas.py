"""The reader of replicas: fingerprints of weights, gradients and inputs, to be compared with those of other ranks.

It reads this process alone and calls no collective. The steps whose facts are read in any case are the same on each
rank, so that their fingerprints can be compared afterwards. A program of one process does not have it.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import tensors
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import attribute, is_a, name_of
from neuraldbg.capture.parameters.weight_samples import elements
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene

_PARAMETERS, _BUFFERS, _STREAMS = 1024, 256, 8
"""Parameters of an optimizer, buffers, and optimizers that are compared at most."""
_INPUTS, _VALUES = 4, 4096
"""Inputs of a pass that are read at most, and values of each."""
_FEW = 8
"""Values of a buffer that are kept."""
_RANDOM = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU")
"""Classes of layers that draw random numbers in training mode."""
_INNER_DROPOUT = ("GRU", "LSTM", "MultiheadAttention", "RNN")
"""Classes of layers that do so if their ``dropout`` is not 0."""


class Replicas(Reader):
    """Reads the RANKS and REPLICA facts."""

    sampled = frozenset({"call_begins", "step_begins"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._wrappers: dict[str, str] = {}
        self._broadcast = False
        self._inputs: tuple[str, float | None, float | None] = ("", None, None)
        self._names: dict[int, list[str]] = {}
        self._buffers: list[str] = []

    def call_begins(self, call: Call) -> None:
        """Read the inputs of a training pass, and the wrapper by which the model is called."""
        if not call.first or call.evaluating:
            return
        root = call.model.root
        outer = call.module
        if outer is not root and outer is not None:
            self._wrappers[call.model.name] = name_of(outer)
            self._broadcast = self._broadcast or attribute(outer, "broadcast_buffers") is True
        else:
            sharded = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
            fully = sharded is not None and is_a(root, sharded)
            self._wrappers.setdefault(call.model.name, name_of(root) if fully else "")
        self._inputs = _read_inputs([x for _, x in leaves((call.args, call.kwargs))][:_INPUTS])

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Read the fingerprints of one optimizer's step."""
        if stream.index not in self._names and len(self._names) >= _STREAMS:
            return
        params = self.scene.params
        owned = [w for w in params.owned(tensors(opt)) if w.trainable][:_PARAMETERS]
        names = [w.name for w in owned]
        held = [w.ref for w in owned]
        buffers = self._read_buffers()
        fact: dict[str, Any] = {
            "stream": stream.index,
            "names": names if self._names.get(stream.index) != names else [],
            "held": "".join("p" if tensor_memory.is_part(x) else "r" for x in held),
            "weights": _fingerprints(held),
            "gradients": _fingerprints([x.grad for x in held]),
            "buffer_names": list(buffers) if self._buffers != list(buffers) else [],
            "samples": [_some(x) for x in buffers.values()],
            "generator": f"{zlib.crc32(torch.default_generator.get_state().numpy().tobytes()):08x}",
            "inputs": self._inputs[0],
            "input_mean": self._inputs[1],
            "input_std": self._inputs[2],
        }
        self._names[stream.index], self._buffers = names, list(buffers)
        self.scene.log(FactKey.RANKS, self._ranks(fact["held"].count("p")))
        self.scene.log(FactKey.REPLICA, fact)

    def _ranks(self, parts: int) -> dict[str, Any]:
        from socket import gethostname  # noqa: PLC0415 (a program of one process needs none of it)

        distributed = torch.distributed
        there = distributed.is_available() and distributed.is_initialized()
        return {
            "host": gethostname(),
            "backend": str(distributed.get_backend()) if there else "",
            "wrappers": dict(self._wrappers),
            "buffers_broadcast": self._broadcast,
            "parts": parts,
            "random_layers": sum(
                1 for m in self.scene.hooks.modules.values() if attribute(m, "training") is True and _is_random(m)
            ),
        }

    def _read_buffers(self) -> dict[str, Tensor]:
        """Return the floating-point buffers of the watched layers, by path."""
        found: dict[str, Tensor] = {}
        for path, module in self.scene.hooks.modules.items():
            for name, x in (attribute(module, "_buffers") or {}).items():
                if len(found) < _BUFFERS and operation.observable(tensor_memory.readable(x)):
                    found[f"{path}.{name}" if path else name] = x
        return found

    def stop(self) -> None:
        """Forget the program's names."""
        self._wrappers.clear()
        self._names.clear()


def _is_random(module: Any) -> bool:
    """Return True for a layer that draws random numbers in training mode."""
    kind = name_of(module)
    if kind in _RANDOM:
        return number(attribute(module, "p")) != 0
    return kind in _INNER_DROPOUT and (number(attribute(module, "dropout")) or 0) > 0


def _read_inputs(given: Sequence[Tensor]) -> tuple[str, float | None, float | None]:
    """Return the fingerprint of the inputs of a pass, and mean and standard deviation of the first."""
    crc, mean, std = 0, None, None
    read = 0
    for x in given:
        held = tensor_memory.readable(x)
        if held is None or not held.numel() or held.is_complex():
            continue
        values = operation.sample(held.detach(), _VALUES).to("cpu", torch.float64).numpy()
        crc = zlib.crc32(values.tobytes(), zlib.crc32(str(tuple(held.shape)).encode(), crc))
        if not read and np.isfinite(values).all():
            mean, std = float(values.mean()), float(values.std())
        read += 1
    return (f"{crc:08x}" if read else ""), mean, std


def _fingerprints(given: Sequence[Tensor | None]) -> dict[str, Any]:
    """Return the fingerprints of several tensors, as in the fact. Synchronises another device once for each that they
    lie on.
    """
    from neuraldbg.nouns.facts.replica import NONE  # noqa: PLC0415 (as above)

    crc, norms = [NONE] * len(given), [-1.0] * len(given)
    of: dict[Any, list[tuple[int, Tensor]]] = {}
    for at, x in enumerate(given):
        held = operation.shown(x)
        if held is not None and not tensor_memory.is_addend(x):
            of.setdefault((held.device, held.dtype), []).append((at, elements(held.detach())))
    for several in of.values():
        flat = torch.cat([part for _, part in several]).to("cpu", torch.float32).numpy()
        ends = np.cumsum([part.numel() for _, part in several])
        for (at, part), end in zip(several, ends, strict=True):
            sample = flat[end - part.numel() : end]
            crc[at] = f"{zlib.crc32(sample.tobytes()):08x}"
            size = float(np.sqrt(np.dot(sample.astype(np.float64), sample.astype(np.float64))))
            norms[at] = size if np.isfinite(size) else -1.0
    return {"crc": "".join(crc), "norms": norms}


def _some(x: Tensor) -> list[float]:
    """Return a few values of a buffer, as in the fact."""
    held = operation.shown(x)
    if held is None:
        return []
    sample = elements(held.detach())
    few = sample[:: max(1, len(sample) // _FEW)][:_FEW].to("cpu", torch.float64).numpy()
    return [float(value) for value in np.where(np.isfinite(few), few, 0.0)]


READER = Replicas
