"""The arrays that a user hands over: numbers of any framework enter, a ``Given`` value leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.foreign_arrays import read, spacing

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, eq=False, repr=False)
class Given:
    """The numbers of an array or tensor that was handed over, with the facts that its framework states about it.

    >>> given([[1.0, 2.0], [3.0, 4.0]])
    <Given: float64 (2, 2) of python on cpu, 32 B>
    """

    values: npt.NDArray[Any]
    """The exact values, read-only: all in the array's shape, or a 1-D sample. bfloat16 and narrower are float32. They
    may lie in memory of the user: ``copied()`` is safe to keep."""
    dtype: str
    """Name of the dtype as the framework has it: "float32", "bfloat16"."""
    shape: tuple[int, ...]
    """Shape of the whole array."""
    bytes: int
    """Bytes of the whole array in its own dtype and layout."""
    framework: str
    """Name of the framework: "numpy", "torch", "jax"; "python" for lists and scalars."""
    device: str
    """Place of the memory: "cpu", "cuda:0"."""
    every: int = 1
    """Distance of the elements in ``values``, in C order; 1 if they are all there."""

    def __repr__(self) -> str:
        part = "" if self.whole else f", {self.values.size:,} of {self.size:,} elements"
        return f"<Given: {self.dtype} {self.shape} of {self.framework} on {self.device}, {self.bytes:,} B{part}>"

    @property
    def size(self) -> int:
        """Number of elements of the whole array."""
        return math.prod(self.shape)

    @property
    def whole(self) -> bool:
        """True if ``values`` are all elements."""
        return self.every == 1

    def index(self, place: int) -> tuple[int, ...]:
        """Return the index in the whole array of an element of ``values``, by its place in C order.

        >>> given([[1.0, 2.0], [3.0, 4.0]]).index(2)
        (1, 0)
        """
        return tuple(int(one) for one in np.unravel_index(place * self.every, self.shape))

    def spaced(self, at_most: int) -> Given:
        """Return at most ``at_most`` evenly spaced elements as a ``Given``; itself if it has no more. Shape (n,).

        >>> given(range(10)).spaced(4).values
        array([0, 3, 6, 9])
        """
        every = spacing(self.size, at_most)
        if every <= self.every:
            return self
        every = math.lcm(self.every, every) if self.every > 1 else every
        return replace(self, values=self.at(every), every=every)

    def at(self, every: int) -> npt.NDArray[Any]:
        """Return the elements at a multiple of the distance at which they are known, in C order, shape (n,).

        >>> given(range(6)).at(2)
        array([0, 2, 4])
        """
        flat = self.values.reshape(-1) if self.values.flags.c_contiguous else self.values.flat
        return np.asarray(flat[:: every // self.every])

    def copied(self) -> Given:
        """Return the same with a copy of the values, which no program can change.

        >>> given(np.ones(2)).copied().values.flags.owndata
        True
        """
        values = self.values.copy()
        values.flags.writeable = False
        return replace(self, values=values)


def given(value: Any, what: str = "the values", *, at_most: int | None = None) -> Given:
    """Read the numbers of an array, tensor, list or scalar of any framework, without importing or changing anything.

    Of more than ``at_most`` elements evenly spaced ones are read, where they lie. ``what`` names the value in errors.
    Raises ConfigError for text, objects, ragged lists, and memory that cannot be read.

    >>> given(np.float32([1, 2])).framework
    'numpy'
    """
    return Given(*read(value, what, at_most=at_most))
