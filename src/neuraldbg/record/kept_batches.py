"""The batches of unusual steps, kept as files beside the run file, as many as the byte budget holds.

Each is an archive of numpy's, ``batch-2155.npz``, that ``numpy.load`` opens: inputs as the model was given them, and
targets where the loss holds them.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.raised import swallowing
from neuraldbg.record.run_file import low_numbers_taken
from neuraldbg.record.run_names import RunName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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
        with swallowing("keeping a batch"):
            with zipfile.ZipFile(whole, "w") as archive:  # numpy.savez has arguments that a name may collide with
                for member, array in arrays.items():
                    content = BytesIO()
                    np.lib.format.write_array(content, array, allow_pickle=False)
                    archive.writestr(f"{member}.npy", content.getbuffer())
            with low_numbers_taken():
                _write(file.with_name(name), whole)
            self._most -= size
            return name
        return ""


def _write(path: Path, content: BytesIO) -> None:
    """Write a new file that its user alone may read; a file that is there already stays as it is."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(content.getbuffer())
    except BaseException:
        with contextlib.suppress(OSError):  # what is being raised passes
            path.unlink(missing_ok=True)
        raise
