"""Asynchronous copies from a device to the CPU: started at one step, read at a later one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor


class Sent:
    """One asynchronous copy of tensors of one device, of any shapes and dtypes, to pinned CPU memory.

    torch's allocator keeps the memory for as long as the copy may take, even if this object is dropped earlier.
    """

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self._shapes = [part.shape for part in parts]
        flat = [part.detach().reshape(-1) for part in parts]
        whole = torch.cat(flat) if len(flat) > 1 else flat[0]
        cuda = whole.device.type == "cuda"
        self._host = torch.empty(whole.shape, dtype=whole.dtype, device="cpu", pin_memory=cuda)
        self._host.copy_(whole, non_blocking=cuda)
        self._event = torch.cuda.Event() if cuda else None
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(whole.device))

    def arrived(self) -> bool:
        """Return True if the copy is done. Always False while a CUDA graph is captured, when no event may
        be queried.
        """
        return self._event is None or (not torch.cuda.is_current_stream_capturing() and self._event.query())

    def wait(self) -> None:
        """Block until the copy is done."""
        if self._event is not None:
            self._event.synchronize()

    def read(self) -> list[npt.NDArray[np.float64]]:
        """Return a float64 copy of each tensor, in its shape; wait for the copy if it is not done."""
        if not self.arrived():
            self.wait()
        flat = self._host.numpy().astype(np.float64)
        ends = np.cumsum([shape.numel() for shape in self._shapes])[:-1]
        return [part.reshape(tuple(shape)) for part, shape in zip(np.split(flat, ends), self._shapes, strict=True)]
