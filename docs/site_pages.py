"""Which files become pages of the site, for `mkdocs` (a hook, named in mkdocs.yml).

The documents keep the paths that they have in the repository, so that a link between two of them leads to the same
place on GitHub and on the site. README.md is the first page, and what lies in docs/ is one level up in addresses.
Beside them become pages: the notebook, with its outputs; every file of the repository that a document links to; the
docstrings of all modules, room by room.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "neuraldbg"
LANGUAGE = ROOT / "src" / "neural"
DOCUMENTS = ("*.md", "docs/*.md", "docs/guides/*.md", "corpus/README.md")
STYLE = "docs/site.css"
PICTURES = (".png", ".svg")
LANGUAGES = {".py": "python", ".json": "json", ".yml": "yaml", ".cff": "yaml", ".c": "c", ".h": "c"}
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
ROOMS = "reference"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files of the site: what mkdocs found in docs/, at the paths of the repository, and the other pages."""
    kept = [file for file in files if file.src_dir != config.docs_dir]  # of the theme
    found = [path for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern))]
    made = [_file(path.relative_to(ROOT).as_posix(), config) for path in (*found, ROOT / STYLE)]
    for linked in sorted({target for path in found for target in _targets(path)}):
        if linked.suffix in PICTURES:
            made.append(_file(linked.relative_to(ROOT).as_posix(), config))
        elif linked.suffix == ".ipynb":
            made += _notebook(linked, config)
        elif linked.suffix != ".md":
            made.append(_source(linked, config))
    return Files([*kept, *made, *_rooms(config)])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files that became pages to those pages."""
    del config
    here = posixpath.dirname(page.file.src_uri)

    def led(link: re.Match[str]) -> str:
        there = posixpath.normpath(posixpath.join(here, link[2])) + ".md"
        return f"{link[1]}{link[2]}.md{link[3]}" if files.get_file_from_path(there) else link[0]

    return LINK.sub(led, markdown)


def _file(src_uri: str, config: MkDocsConfig) -> File:
    """Return a file of the repository as a file of the site."""
    file = File(src_uri, str(ROOT), config.site_dir, config.use_directory_urls)
    return _placed(file)


def _made(src_uri: str, content: str | bytes, config: MkDocsConfig, *, listed: bool = False) -> File:
    """Return a file that is not in the repository. One that the navigation does not list is no omission."""
    file = File.generated(config, src_uri, content=content)
    if not listed:
        file.inclusion = file.inclusion.__class__.NOT_IN_NAV
    return _placed(file)


def _placed(file: File) -> File:
    file.dest_uri = file.dest_uri.removeprefix("docs/")
    file.abs_dest_path = str(Path(file.dest_dir, file.dest_uri))
    return file


def _targets(page: Path) -> set[Path]:
    """Return the files that a document links to."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    paths = {(page.parent / target).resolve() for _, target, _ in LINK.findall(text)}
    return {path for path in paths if path.exists() and path.is_relative_to(ROOT)}


def _source(path: Path, config: MkDocsConfig) -> File:
    """Return a page that shows a file of the repository, or lists a folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        inside = sorted(one.relative_to(path).as_posix() for one in path.rglob("*.py"))
        return _made(f"{name}.md", "\n".join((f"# {name}\n", *(f"- `{one}`" for one in inside), "")), config)
    text = path.read_text(encoding="utf-8").rstrip()
    return _made(f"{name}.md", f"# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n", config)


# ---------------------------------------------------------------- the notebook


def _notebook(path: Path, config: MkDocsConfig) -> list[File]:
    """Return the page of a notebook, with its outputs as they were saved, and its pictures."""
    uri = path.relative_to(ROOT).as_posix()
    parts, pictures = [], []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for place, output in enumerate(cell["outputs"]):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{number}-{place}.png"
                pictures.append(_made(f"docs/{name}", b64decode("".join(data["image/png"])), config))
                parts.append(f"![Output of the cell above]({name})")
            elif "text/html" in data:
                shown = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))  # Markdown would see a new paragraph
                parts.append(f'<div class="output" markdown="0">{shown}</div>')
            else:
                text = "".join(output.get("text") or data.get("text/plain") or ())
                parts.append(f"```text\n{text.rstrip()}\n```")
    return [_made(f"{uri}.md", "\n\n".join(parts) + "\n", config, listed=True), *pictures]


# ---------------------------------------------------------------- docstrings


def _rooms(config: MkDocsConfig) -> list[File]:
    """Return a page for each room of the packages, with the docstrings of its modules, and a page that lists them."""
    pages, rows = [], []
    for room in sorted(path.parent for package in (PACKAGE, LANGUAGE) for path in package.glob("*/__init__.py")):
        name = f"{room.parent.name}.{room.name}"
        page = room.name if room.parent == PACKAGE else name
        modules = [
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            for path in sorted(room.rglob("*.py"))
        ]
        text = [f"# {name}\n"]
        text += [f"::: {each}\n    options: {{show_root_full_path: true, heading_level: 2}}\n" for each in modules]
        pages.append(_made(f"{ROOMS}/{page}.md", "\n".join(text), config))
        first = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
        rows.append(f"| [{name}]({page}.md) | {' '.join(first.partition(chr(10) * 2)[0].split())} |")
    table = "\n".join(("# Docstrings, room by room\n", "| room | what it does |", "|---|---|", *rows, ""))
    return [_made(f"{ROOMS}/index.md", table, config, listed=True), *pages]
