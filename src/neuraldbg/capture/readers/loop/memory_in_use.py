"""The reader of the memory in use at the end of a full step: resident memory of the process, allocated of the device.

Elsewhere than on Linux resident memory is not read. The device's number is that of torch's caching allocator; no device
is initialised or waited for.
"""

from __future__ import annotations

import torch

from neuraldbg.capture.readers.reader import Reader
from neuraldbg.process_memory import resident_bytes

_DEVICES = 16
"""Devices that are read at most."""


def device_bytes() -> int | None:
    """Return the bytes that torch has allocated for tensors on all CUDA devices; None if CUDA is not in use."""
    return sum(_allocated()) if torch.cuda.is_initialized() else None


def devices_in_use() -> list[int]:
    """Return the numbers of the CUDA devices on which torch has allocated memory for tensors."""
    return [device for device, size in enumerate(_allocated()) if size] if torch.cuda.is_initialized() else []


def _allocated() -> list[int]:
    """Return the bytes that torch has allocated on each CUDA device."""
    # ``memory_allocated`` flattens two hundred numbers into a dictionary for one of them.
    told = getattr(torch._C, "_cuda_memoryStats", None)  # noqa: SLF001 (no public name is as fast)
    devices = range(min(torch.cuda.device_count(), _DEVICES))
    if told is None:
        return [torch.cuda.memory_allocated(device) for device in devices]
    return [int(told(device)["allocated_bytes"]["all"]["current"]) for device in devices]


class MemoryInUse(Reader):
    """Records ``resident`` and ``device_memory`` of each full step."""

    def step_closes(self) -> None:
        """Record the memory in use."""
        for name, read in (("resident", resident_bytes), ("device_memory", device_bytes)):
            found = read()
            if found is not None:
                self.scene.scalars[name] = float(found)


READER = MemoryInUse
