"""Content -> one HTML file: no script, nothing from elsewhere, words of the run as text and nothing but text.

Needs the extra ``plot`` (jinja2 fills the template, matplotlib draws).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import MissingExtra
from neuraldbg.show.format.run_line import facts_line
from neuraldbg.show.format.safe_text import plain, sentence
from neuraldbg.show.report.describe import described, reading
from neuraldbg.show.report.svg import NARROW_IN, THEMES, inline
from neuraldbg.show.terminal.marks import UNICODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.show.report.content import Content
    from neuraldbg.show.report.pictures import Picture

PARTS = (("causes", "Causes"), ("chain", "Causal chain"), ("pictures", "Pictures"), ("more", "Further pictures"))
LAST_PARTS = (
    ("costs", "Time and memory"),
    ("run", "The run"),
    ("limits", "Limits of this diagnosis"),
    ("words", "Glossary"),
)


@dataclass(frozen=True)
class Shown:
    """One picture on the page, as SVG with its texts."""

    title: str
    why: str
    notes: tuple[str, ...]
    alt: str
    reading: str
    svg: Any
    """Markup: the only part of the page that is not escaped, since the drawing library has done so."""
    narrow: Any = ""
    """The same for a phone, "" where the wide one is moved under the finger instead."""


def html(content: Content) -> str:
    """Return the page. MissingExtra without jinja2 or matplotlib."""
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415 (an extra)
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
        from markupsafe import Markup  # noqa: PLC0415 (comes with it)
    except ImportError:
        raise MissingExtra("writing an HTML report", "plot") from None

    def drawn(ident: str, one: Picture, *, ahead: bool = True) -> Shown:
        view = one.view
        try:
            svg = Markup(inline(view, ident))  # noqa: S704 (see Shown)
            narrow = Markup(inline(view, f"{ident}n", NARROW_IN)) if ahead else ""  # noqa: S704
        except Exception as error:
            if "NEURALDBG_STRICT" in os.environ:
                raise
            # One picture that cannot be drawn must not fail the report.
            svg, narrow = Markup("<p>This picture could not be drawn ({}).</p>").format(error), ""
        return Shown(one.title, one.why, view.notes, f"{one.title}. {described(view)}", reading(view), svg, narrow)

    loader = PackageLoader("neuraldbg.show", "report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_clean, keep_trailing_newline=True
    )
    environment.filters["sentence"] = sentence
    diagnosis = content.diagnosis
    chapters = [(f"part{i}", chapter.title) for i, chapter in enumerate(content.chapters)]
    sections = {
        "causes": content.causes,
        "chain": content.chain,
        "pictures": content.leading,
        "more": content.further,
        "costs": content.costs,
    }
    return environment.get_template("report.html.j2").render(
        content=content,
        style=Markup(_style()),  # noqa: S704 (ours)
        sign=UNICODE.verdict.get(diagnosis.verdict, ""),
        meaning=content.meaning,
        facts=facts_line(diagnosis.run, " · "),
        parts=[part for part in (*PARTS, *chapters, *LAST_PARTS) if sections.get(part[0], True)],
        chapters=[(ident, one) for (ident, _), one in zip(chapters, content.chapters, strict=True)],
        chain=drawn("chain", content.drawn_chain) if content.drawn_chain else None,
        leading=[drawn(f"front{i}", one) for i, one in enumerate(content.leading)],
        further=[drawn(f"more{i}", one, ahead=False) for i, one in enumerate(content.further) if not one.view.empty],
        missing=[(one.title, sentence(one.view.empty)) for one in content.further if one.view.empty],
        version=diagnosis.run.get("versions", {}).get("neuraldbg", ""),
    )


def _clean(value: Any) -> Any:
    """Return words of the run without control characters; code keeps its lines. Jinja escapes everything but markup."""
    return plain(value, keep="\n") if type(value) is str else value


def _style() -> str:
    """Return the style sheet with the colours of both themes, which the pictures share."""
    sheet = files("neuraldbg.show.report").joinpath("report.css").read_text(encoding="utf-8")
    light, dark = (_block(THEMES[name]) for name in ("light", "dark"))
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{sheet}"


def _block(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}: {colour};" for name, colour in variables.items())
