"""Pictures on one page: plots enter, HTML that needs no other file and no network leaves."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

from neuraldbg.show.format.safe_text import plain, sentence
from neuraldbg.show.static.theme import theme_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.show.forms import View

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>Plots</title>
<style>
body {{ margin: 1rem auto; max-width: 75rem; padding: 0 1rem; font: 1rem/1.4 system-ui, sans-serif;
        color: {ink}; background: {ground}; color-scheme: {scheme}; }}
h2 {{ font-size: 1rem; overflow-wrap: anywhere; }}
img {{ max-width: 100%; height: auto; }}
p {{ color: {muted}; margin-top: 0; }}
@media print {{ section {{ break-inside: avoid; }} }}
</style>
</head>
<body>
<h1>Plots</h1>
{sections}
</body>
</html>
"""
SECTION = """<section>
<h2>{name}</h2>
<img src="data:image/png;base64,{picture}" alt="{title}">
{notes}</section>"""


def page_of(pictures: Sequence[tuple[str, View, bytes]], theme: str) -> str:
    """Return the page: for each plot its name, its view and its picture as PNG. Names and titles stay text."""
    look = theme_of(theme)
    sections = []
    for name, view, picture in pictures:
        notes = "".join(f"<p>{escape(plain(sentence(note)))}</p>\n" for note in (*view.notes, view.empty) if note)
        data = base64.b64encode(picture).decode()
        title = escape(plain(view.title))
        sections.append(SECTION.format(name=escape(plain(name)), picture=data, title=title, notes=notes))
    return PAGE.format(
        ink=look.ink, ground=look.ground, muted=look.muted, scheme=look.name, sections="\n".join(sections)
    )
