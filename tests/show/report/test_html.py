"""The HTML report as a parser sees it: its parts, its numbers, and names that try to be markup."""

from __future__ import annotations

import itertools
import math
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tests.show.report.conftest import LAYER, MODEL, SCRIPT

from neuraldbg.errors import MissingExtra
from neuraldbg.nouns import CodeLine, Diagnosis, Remedy, RunRecord
from neuraldbg.saved import backgrounds
from neuraldbg.show.format.footnotes import Footnotes
from neuraldbg.show.report.write import report

VOID = {"meta", "path", "use", "image", "rect", "br"}


class Page(HTMLParser):
    """Elements in order with their attributes, and the text below each."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.open = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **{f"@{name}": value for name, value in attributes}}
        self.elements.append(element)
        self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        while self.open and self.open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag):
        return [element for element in self.elements if element["tag"] == tag]

    def one(self, tag):
        (found,) = self.all(tag)
        return found


@pytest.fixture(scope="module")
def page(doomed):
    return Page(doomed.html)


def test_parts_of_the_page(page, doomed):
    assert doomed.diagnosis.verdict == "failing"
    assert doomed.html.startswith("<!DOCTYPE html>")
    assert page.one("html")["@lang"] == "en"
    for landmark in ("header", "nav", "main", "footer", "h1"):
        page.one(landmark)
    assert page.one("h1")["text"].rstrip(".") == doomed.diagnosis.headline.rstrip(".")
    names = [element["text"] for element in page.all("h2")]
    assert names == [
        "Likely cause",
        "Causal chain",
        "Pictures of the failure",
        "Further pictures",
        "The run",
        "Limits of this diagnosis",
        "Glossary",
    ]
    levels = [int(e["tag"][1]) for e in page.elements if re.fullmatch(r"h\d", e["tag"])]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_nothing_comes_from_elsewhere_and_nothing_runs(page, doomed):
    assert page.all("script") == page.all("img") == page.all("iframe") == page.all("link") == []
    (policy,) = [e["@content"] for e in page.all("meta") if e.get("@http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    for element in page.elements:
        assert not [name for name in element if name.startswith("@on")]
        for name in ("@href", "@src", "@xlink:href"):
            assert element.get(name, "#").startswith(("#", "data:image/png;base64,"))
    assert not re.search(r"url\((?!#)", doomed.html)


def test_ids_are_unique_and_references_lead_to_them(page, doomed):
    ids = [element["@id"] for element in page.elements if "@id" in element]
    assert len(ids) == len(set(ids))
    wanted = {e["@href"][1:] for e in page.elements if e.get("@href", "").startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", doomed.html))
    wanted |= {e["@aria-labelledby"] for e in page.elements if "@aria-labelledby" in e}
    assert wanted <= set(ids)
    assert len(wanted) > 20


def test_the_first_cause_with_every_number(page, doomed):
    cause = doomed.diagnosis.hypotheses[0]
    article = page.all("article")[0]["text"]
    numbers = [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", article)]
    measured = [v for e in cause.evidence for v in (e.value, e.threshold) if isinstance(v, (int, float))]
    assert len(measured) >= 3
    for value in measured:
        shown = any(math.isclose(n, abs(v), rel_tol=0.01) for n in numbers for v in (value, 100 * value))
        assert shown or (not math.isfinite(value)), value
    for evidence in cause.evidence:
        assert Footnotes().without(evidence.statement) in article
    for words in (f"{round(100 * cause.confidence)}% sure", cause.cause):
        assert words in article
    assert cause.remedy.text.rstrip(".") in article
    assert cause.remedy.code in article
    assert [f"{place.file}:{place.line}" in article for place in cause.places] == [True] * len(cause.places)
    assert "Evidence" in article


def test_the_chain_is_told_in_order(page, doomed):
    (chain,) = page.all("ol")
    places = [chain["text"].find(f"{node.role}:") for node in doomed.diagnosis.chain.nodes]
    assert len(places) >= 3
    assert min(places) >= 0
    for node in doomed.diagnosis.chain.nodes[1:]:
        assert node.label in chain["text"]


def test_pictures_say_what_they_show(page):
    drawings = [element for element in page.elements if element.get("@role") == "img"]
    assert len(drawings) >= 10
    wide = [element for element in page.elements if "both" in (element.get("@class") or "").split()]
    assert len(page.all("svg")) == len(drawings) + len(wide)
    assert len(wide) == 6  # the chain and those at the front stand there for a phone, too
    for drawing in drawings:
        assert re.search(r"\d", drawing["@aria-label"])
    titles = [e["text"] for e in page.all("h3")] + [e["text"] for e in page.all("summary")]
    assert len(titles) == len(set(titles))


def test_names_stay_text(page, doomed, quiet):
    told = page.one("body")["text"]
    for name in (LAYER, MODEL, SCRIPT):
        assert name in told
    svg = "".join(element["text"] for element in page.all("svg"))
    assert LAYER in svg.replace("\n", "")
    assert "$x_1$" in svg
    assert "alert" in page.one("title")["text"]
    assert len(page.all("style")) == 1
    for text in (doomed.html, quiet.html):
        assert "<img" not in text
        assert "<script" not in text


def test_words_of_the_diagnosis_stay_text(doomed):
    bad = "</pre></code><script>alert(4)</script> {{ 7 * 7 }} \x1b[31m \u202e\x00"
    cause = replace(
        doomed.diagnosis.hypotheses[0],
        sentence=bad,
        remedy=Remedy(bad, f"x = 1\n{bad}"),
        places=(CodeLine(bad, 3, bad),),
        equivalent=(bad,),
        layer=bad,
        verification={bad: 1.5},
    )
    page = Page(report(RunRecord(), Diagnosis("failing", bad, hypotheses=(cause,), symptoms=(bad,)), "html", {}))
    assert page.all("script") == []
    assert len(page.all("pre")) == 2
    article = page.one("article")["text"]
    assert article.count("<script>alert(4)</script> {{ 7 * 7 }} \\x1b[31m \\u202e\\x00") >= 6
    assert "x = 1\n" in article


def test_a_quiet_run(quiet):
    assert quiet.diagnosis.verdict == "healthy"
    page = Page(quiet.html)
    names = [element["text"] for element in page.all("h2")]
    assert names == ["Pictures of the training", "Further pictures", "The run", "Limits of this diagnosis", "Glossary"]
    assert page.all("article") == []
    assert not page.all("ol")


def test_a_run_without_anything():
    page = Page(report(RunRecord(), Diagnosis("inconclusive", "no step was recorded"), "html", {}))
    assert page.all("svg") == []
    rows = dict(zip((e["text"] for e in page.all("dt")), (e["text"] for e in page.all("dd")), strict=True))
    assert rows["Loss"].startswith("no loss was recorded")
    assert rows["optimizer steps"] == "0"


def test_what_is_known_of_the_run(page, doomed):
    rows = dict(zip((e["text"] for e in page.all("dt")), (e["text"] for e in page.all("dd")), strict=True))
    assert rows["script"] == SCRIPT
    assert rows["optimizer steps"] == str(doomed.run.steps) == "40"
    assert rows["optimizer SGD"].startswith("lr 300, momentum 0")
    assert rows["loss"].startswith("cross entropy, reduction mean; input 32 x 3; target 32 int64")
    assert rows["order of the loop"] == "zero_grad, forward, backward, step"
    assert rows["layers seen"] == "4 of 4 layers"
    assert rows["device"] == "cpu"
    for one in doomed.diagnosis.unjudged:
        assert one.reason in page.one("main")["text"]


@pytest.mark.parametrize("name", ["jinja2", "matplotlib"])
def test_without_the_extra(doomed, monkeypatch, name):
    for module in [name, *(m for m in sys.modules if m.startswith(f"{name}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[plot\]'"):
        report(doomed.run, doomed.diagnosis, "html", backgrounds(doomed.diagnosis))
