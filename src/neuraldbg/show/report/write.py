"""A report as text or as a file; the suffix of the file name chooses the format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError
from neuraldbg.show.report.content import content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.profile import Profile
    from neuraldbg.show.report.content import Background
    from neuraldbg.show.report.costs import Chapter

SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}


def report(
    run: RunRecord,
    diagnosis: Diagnosis,
    kind: str,
    backgrounds: Mapping[str, Background],
    profile: Profile | None = None,
    chapters: tuple[Chapter, ...] = (),
) -> str:
    """Return the report as text, ``html`` or ``md``. The first raises MissingExtra without the extra ``plot``."""
    if kind == "md":
        from neuraldbg.show.report.markdown import markdown, room  # noqa: PLC0415 (only the format that is asked for)

        return markdown(content(run, diagnosis, backgrounds, room, profile, chapters))
    from neuraldbg.show.report.html import html  # noqa: PLC0415

    return html(content(run, diagnosis, backgrounds, profile=profile, chapters=chapters))


def kind_of(path: Path | str) -> str:
    """Return the format for a file name's suffix. An unknown suffix raises ConfigError."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"cannot write a report to {str(path)!r}: its name must end in .html or .md")
    return SUFFIXES[suffix]


def write(text: str, path: Path | str) -> None:
    """Write a report to a file. A failed write raises ConfigError."""
    try:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error}") from None
