"""The floating-point operations per second of a matrix product on this machine, measured once."""

from __future__ import annotations

from typing import Any

import torch

from neuraldbg.capture.guest.tensor_kinds import ungraded, unheard
from neuraldbg.clocks import perf_counter

_SMALLEST, _LARGEST = 256, 2048
_LONG_S = 0.002
"""Seconds of a product that is large enough: the time of its call is then below a hundredth."""
_TIMES = 3
_ON_DEVICE = 4096
"""Size on a CUDA device: below it an H100 is not filled."""


class MatmulRate:
    """Measures a product of two square matrices of one dtype on one device, without a random number."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype, self.size = device, dtype, _SMALLEST
        self._seconds: float | None = None
        self._events: tuple[Any, Any] | None = None

    @property
    def words(self) -> str:
        """The device, and the dtype and the size of the product."""
        kind = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{kind}, a product of two {dtype} matrices of {self.size} x {self.size}"

    def measure(self) -> None:
        """Compute the products. On a device nobody waits for them."""
        with unheard():
            ungraded(self._on_device if self.device.type == "cuda" else self._on_processor)

    def flops(self) -> float | None:
        """Return the operations per second, None if the device has not finished, or nothing was measured."""
        # While a CUDA graph is captured no event may be queried: it would break the capture.
        if self._events is not None and not torch.cuda.is_current_stream_capturing() and self._events[1].query():
            self._seconds, self._events = self._events[0].elapsed_time(self._events[1]) / 1000 / _TIMES, None
        return 2 * self.size**3 / self._seconds if self._seconds else None

    def _on_processor(self) -> None:
        size = _SMALLEST
        while True:
            a = torch.ones(size, size, dtype=self.dtype, device=self.device)
            c = torch.empty_like(a)
            torch.mm(a, a, out=c)  # the first call sets up the library
            seconds = []
            for _ in range(_TIMES):
                began = perf_counter()
                torch.mm(a, a, out=c)
                seconds.append(perf_counter() - began)
            self.size, self._seconds = size, min(seconds)
            if self._seconds > _LONG_S or size >= _LARGEST:
                return
            size *= 2

    def _on_device(self) -> None:
        self.size = _ON_DEVICE
        a = torch.ones(self.size, self.size, dtype=self.dtype, device=self.device)
        c = torch.empty_like(a)
        torch.mm(a, a, out=c)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream(self.device)
        began.record(stream)
        for _ in range(_TIMES):
            torch.mm(a, a, out=c)
        ended.record(stream)
        self._events = began, ended
