"""A run read from disk: ``Run.load(path).diagnose()`` gives the diagnosis of the live session, without torch."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.errors import NeuralDbgError, RunDamaged
from neuraldbg.explain import cause, diagnose
from neuraldbg.nouns import RunRecord
from neuraldbg.record import read_run
from neuraldbg.show.notebook import Shown

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from neuraldbg.nouns import Diagnosis
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.show.report.content import Background


@dataclass(frozen=True)
class Run(Shown, RunRecord):
    """The saved record of a run, with methods to diagnose, compare, export and report it."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read a run folder, a folder above it that holds a single run, a ``.ndbg`` file, or an exported ``.json``.

        Raises RunNotFound, RunDamaged, RunTooNew, or RunFileError if the file cannot be opened.
        """
        record = read_run(Path(path))
        return cls(**{field.name: getattr(record, field.name) for field in fields(RunRecord)})

    def diagnose(self) -> Diagnosis:
        """Return the diagnosis that the live session gave. Raises RunDamaged for a record that no run produces."""
        with readable("diagnosed"):
            return diagnose(self)

    def compare(
        self,
        other: RunRecord,
        *,
        names: tuple[str, str] = ("A", "B"),
        rtol: float | None = None,
        atol: float | None = None,
    ) -> Comparison:
        """Compare this run with another: the first difference, and all others. ``names`` are their names in sentences.

        The tolerances are as in ``torch.testing.assert_close``, relative to the size of a tensor; by default they
        follow from the dtypes. Raises ConfigError for an invalid one, and RunDamaged as ``diagnose`` does.
        """
        from neuraldbg.compare import compare  # noqa: PLC0415 (most runs are only read: these stages are half of the start)

        with readable("compared"):
            return compare(self, other, (self.diagnose(), diagnose(other)), names=names, rtol=rtol, atol=atol)

    def export(
        self,
        path: str | os.PathLike[str],
        format: str = "json",  # noqa: A002 (the command's word for it)
        *,
        layers: Sequence[str] = (),
        stats: Sequence[str] = (),
        force: bool = False,
    ) -> Path:
        """Write the run in a format of other tools: ``json``, ``csv``, ``parquet``, ``tensorboard``, ... Return the
        path.

        ``layers`` and ``stats`` select sites and statistics. An existing file is replaced only with ``force``. Raises
        ConfigError for an invalid choice or place, MissingExtra, or ExportFailed; then no file is left.
        """
        from neuraldbg.export import Selection, export  # noqa: PLC0415 (as above)

        with readable("exported"):
            return export(self, self.diagnose(), path, format, Selection(tuple(layers), tuple(stats)), force=force)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a report of the run as one file: ``.html`` or ``.md``.

        Raises ConfigError for another suffix or a place that cannot be written, and MissingExtra without the extra
        ``plot``.
        """
        from neuraldbg.show.report.write import kind_of, report, write  # noqa: PLC0415 (as above)

        kind, diagnosis = kind_of(Path(path)), self.diagnose()
        with readable("reported"):
            text = report(self, diagnosis, kind, backgrounds(diagnosis))
        write(text, Path(path))


@contextmanager
def readable(done: str) -> Iterator[None]:
    """Raise RunDamaged instead of any unexpected error of the body: a file may come from anybody.

    ``done`` is a participle for the message: "diagnosed".
    """
    try:
        yield
    except (NeuralDbgError, OSError, ImportError):
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(ascii(str(error))[1:-1][:200].split())
        raise RunDamaged(
            f"the run cannot be {done} ({type(error).__name__}: {said}, in {Path(at.filename).name} line {at.lineno}): "
            "its file holds what no run leaves. If nobody has changed it, this is an error of NeuralDBG: please report "
            "it with the file."
        ) from error


def backgrounds(diagnosis: Diagnosis) -> dict[str, Background]:
    """Return title and page of the causes that a diagnosis names, by id."""
    from neuraldbg.show.report.content import Background  # noqa: PLC0415 (as above)

    named = {name for h in diagnosis.hypotheses for name in (h.cause, *h.equivalent)}
    return {one.id: Background(one.title, one.page) for one in map(cause, sorted(named))}
