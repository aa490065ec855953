"""A run read from disk: ``Run.load(path).diagnose()`` gives the diagnosis of the live session, without torch."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg import arguments
from neuraldbg.errors import ConfigError, NeuralDbgError, RunDamaged
from neuraldbg.explain import cause, diagnose
from neuraldbg.nouns import Diagnosis, RunRecord
from neuraldbg.nouns.frozen import frozen
from neuraldbg.questions import Questions, in_short
from neuraldbg.record import is_dump, read_dump, read_run
from neuraldbg.show.shown_run import Shown

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.nouns.profile import Profile
    from neuraldbg.nouns.training_health import Health
    from neuraldbg.show.report.content import Background


@frozen(kw_only=False)
class Run(Questions, Shown, RunRecord):
    """The saved record of a run, with the questions of a session, and methods to compare, export and report it.

    It is read without importing torch. In a notebook it shows itself.

    >>> run = Run.load("runs/one")
    >>> run
    <Run: 40 steps of Sequential; events: update_ratio_high, loss_spike, loss_divergence and 7 more>
    """

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read a run folder, a folder above it that holds a single run, a ``.ndbg`` file, or an exported JSON document.

        A folder stands for its newest run and its lowest rank. Raises RunNotFound, RunDamaged, RunTooNew, or
        RunFileError if the file cannot be opened.

        >>> Run.load("runs/one").steps
        40
        """
        record = read_run(arguments.path(path, "the run"))
        return cls(**{field.name: getattr(record, field.name) for field in fields(RunRecord)})

    def __repr__(self) -> str:
        return f"<Run: {in_short(self.steps, self.info.models, [event.kind for event in self.events])}>"

    def record(self) -> RunRecord:
        """Return the run itself, which is its record.

        >>> run.record() is run
        True
        """
        return self

    def diagnose(self) -> Diagnosis:
        """Return the diagnosis that the live session gave. Raises RunDamaged for a record that no run produces.

        >>> run.diagnose() == dbg.diagnose()
        True
        """
        return self._diagnosis

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        with readable("diagnosed"):
            return diagnose(self)

    def profile(self) -> Profile:
        """Return where the time and the memory of the run went: see ``NeuralDbg.profile``. Raises RunDamaged as
        ``diagnose`` does.

        >>> run.profile().timing == dbg.profile().timing
        True
        """
        with readable("profiled"):
            return super().profile()

    def health(self) -> Health:
        """Return the health of the run: see ``NeuralDbg.health``. Raises RunDamaged as ``diagnose`` does.

        >>> run.health().score == dbg.health().score
        True
        """
        with readable("judged"):
            return super().health()

    def compare(
        self,
        other: RunRecord | str | os.PathLike[str],
        *,
        names: tuple[str, str] = ("A", "B"),
        rtol: float | None = None,
        atol: float | None = None,
        replicas: bool = False,
    ) -> Comparison:
        """Compare this run with another: the first difference, and all others. ``other`` may be the path of a saved
        run; ``names`` are the names of both in sentences.

        Values agree if they differ by at most ``atol + rtol * size``, as in ``torch.testing.assert_close``, the size
        being the tensor's; by default ``rtol`` follows from the dtypes and ``atol`` is 0. With ``replicas`` both are
        ranks of one job, and only what these are to hold alike is compared. Raises ConfigError for an
        invalid one, and RunDamaged as ``diagnose`` does.

        >>> run.compare(run, rtol=1e-3).verdict
        'identical'
        """
        from neuraldbg.compare import compare  # noqa: PLC0415 (most runs are only read: these stages are half of the start)

        if not isinstance(other, RunRecord):
            other = Run.load(arguments.path(other, "the other run, unless it is a Run"))
        if len(arguments.texts(names, "names")) != 2:
            raise ConfigError(f"names: give two, such as ('before', 'after'), not {len(names)}")
        with readable("compared"):
            return compare(self, other, (self.diagnose(), diagnose(other)), names=names, rtol=rtol, atol=atol,
                           replicas=replicas)  # fmt: skip

    def export(
        self,
        path: str | os.PathLike[str],
        format: str = "json",  # noqa: A002 (the command's word for it)
        *,
        layers: Sequence[str] = (),
        stats: Sequence[str] = (),
        force: bool = False,
    ) -> Path:
        """Write the run for other tools, and return the path of the file or folder.

        ``format`` is ``crash``, ``csv``, ``json``, ``parquet``, ``perfetto``, ``session`` or ``tensorboard``.
        ``layers`` and ``stats`` select sites and statistics. An existing file is replaced only with ``force``. Raises
        ConfigError for an invalid choice or place, MissingExtra, or ExportFailed; then no file is left.

        >>> run.export("tables", "csv", layers=["linear1"], stats=["rms"]).name
        'tables'
        """
        from neuraldbg.export import Selection, export  # noqa: PLC0415 (as above)

        arguments.path(path, "the exported file")
        layers, stats = arguments.texts(layers, "layers"), arguments.texts(stats, "stats")
        with readable("exported"):
            return export(self, self.diagnose(), path, format, Selection(layers, stats), force=force)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a report of the run as one file: ``.html`` or ``.md``. An existing file is replaced.

        Raises ConfigError for another suffix or a place that cannot be written, and MissingExtra without the extra
        ``plot``.

        >>> run.report("report.html")
        """
        from neuraldbg.show.report.write import kind_of, report, write  # noqa: PLC0415 (as above)

        path = arguments.path(path, "the report")
        kind, diagnosis = kind_of(path), self.diagnose()
        with readable("reported"):
            text = report(self, diagnosis, kind, backgrounds(diagnosis), self.profile())
        write(text, path)


def load_dump(path: str | os.PathLike[str]) -> tuple[Run, Diagnosis] | None:
    """Read a crash dump: its steps as a run, and a diagnosis that says no more than the dump does. None for any other
    file.

    Raises RunDamaged for a dump that is not whole, and RunFileError if it cannot be read.
    """
    if not is_dump(Path(path)):
        return None
    record, reason = read_dump(Path(path))
    run = Run(**{field.name: getattr(record, field.name) for field in fields(RunRecord)})
    loss = run.scalar("loss")
    broken = bool(len(loss)) and not np.isfinite(loss.values).all()
    verdict = "failing" if reason or broken or run.events else "inconclusive"
    count = f"a crash dump of {len(run.history):,} step{'' if len(run.history) == 1 else 's'}"
    return run, Diagnosis(verdict, reason or f"{count[0].upper()}{count[1:]}", events=run.events)


def load(path: str | os.PathLike[str]) -> Run:
    """Read a saved run: see ``Run.load``.

    >>> neuraldbg.load("runs/one").diagnose().verdict
    'failing'
    """
    return Run.load(path)


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
            "its file has content that no run writes. If it was not changed by hand, this is a bug of ours: please "
            "report it with the file."
        ) from error


def backgrounds(diagnosis: Diagnosis) -> dict[str, Background]:
    """Return title and page of the causes that a diagnosis names, by id."""
    from neuraldbg.show.report.content import Background  # noqa: PLC0415 (as above)

    named = {name for h in diagnosis.hypotheses for name in (h.cause, *h.equivalent)}
    return {one.id: Background(one.title, one.page) for one in map(cause, sorted(named))}
