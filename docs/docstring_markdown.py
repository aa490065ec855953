"""Makes Markdown of docstrings for the site (an extension of griffe, named in mkdocs.yml).

The docstrings are written for readers of the code. Two things in them would mean something else in Markdown: lines of a
doctest, which would be quotations, and angle brackets outside of code, which would be tags.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^ *>>> .*(?:\n|\Z)(?:^ *\S.*(?:\n|\Z))*)+", re.MULTILINE)
CODE = re.compile(r"(^```.*?^```$|``.+?``|`[^`]+`|^    .*$)", re.DOTALL | re.MULTILINE)


class Markdown(griffe.Extension):
    """Changes each docstring as it is found."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring with its doctests fenced, and with angle brackets that are no tags."""
    fenced = DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    return "".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(CODE.split(fenced)))
