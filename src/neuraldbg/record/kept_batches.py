"""The batches of unusual steps, kept as files beside the run file, as many as the byte budget holds.

Each is an archive of numpy's, ``batch-2155.npz``, that ``numpy.load`` opens: inputs as the model was given them, and
targets where the loss holds them.
"""

from __future__ import annotations

import os
import tempfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.raised import swallowing
from neuraldbg.record.run_file import low_numbers_taken
from neuraldbg.record.run_names import RunName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt


class KeptBatches:
    """Keeps batches beside a run file. ``most`` is the number of bytes of all together; ``file`` returns the path of
    the run file, None while the run is in memory: then none is kept.
    """

    def __init__(self, most: int, file: Callable[[], Path | None]) -> None:
        self._most, self._file = most, file

    def room(self) -> int:
        """Return the number of bytes that are left."""
        return self._most if self._file() is not None else 0

    def keep(self, step: int, arrays: Mapping[str, npt.NDArray[np.generic]]) -> str:
        """Write the batch of a step. Return the name of its file; "" if there is no room for it, or no disk."""
        file, size = self._file(), sum(array.nbytes for array in arrays.values())
        if file is None or not arrays or size > self._most:
            return ""
        name, whole = (RunName.of(file) or RunName()).beside(f"batch-{step}", "npz"), BytesIO()
        np.savez(whole, **arrays)  # type: ignore[arg-type]  # numpy's stubs take its own options for arrays
        with swallowing("keeping a batch"), low_numbers_taken():
            number, written = tempfile.mkstemp(dir=file.parent, prefix=f".{name}.")
            try:
                with os.fdopen(number, "wb") as opened:
                    opened.write(whole.getbuffer())
                Path(written).replace(file.with_name(name))
            except BaseException:
                Path(written).unlink()
                raise
            self._most -= size
            return name
        return ""
