"""The Markdown report as a parser sees it: markdown-it is the oracle of what is text and what is markup."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.show.made_diagnoses import HEALTHY, record
from tests.show.report.conftest import LAYER, MODEL, SCRIPT

from neuraldbg.saved import backgrounds
from neuraldbg.show.format.footnotes import Footnotes
from neuraldbg.show.format.safe_text import plain
from neuraldbg.show.report.markdown import WIDTH, fenced, text
from neuraldbg.show.report.write import report

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {"text", "code_inline", "softbreak", "strong_open", "strong_close"}


def inside(tokens):
    return [child for token in tokens if token.type == "inline" for child in token.children]


@pytest.fixture(scope="module")
def said(doomed):
    return report(doomed.run, doomed.diagnosis, "md", backgrounds(doomed.diagnosis))


def test_it_has_the_parts_of_the_page(said, doomed):
    tokens = PARSER.parse(said)
    headings = [(t.tag, tokens[i + 1].content) for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert headings[0][1].startswith("FAILING: ")
    assert [name for tag, name in headings if tag == "h2"] == [
        "Likely cause",
        "Causal chain",
        "Pictures",
        "The run",
        "Limits of this diagnosis",
        "Glossary",
    ]
    shown = "".join(child.content for child in inside(tokens))
    for evidence in doomed.diagnosis.hypotheses[0].evidence:
        assert Footnotes().without(evidence.statement) in shown
    assert len([t for t in tokens if t.type == "ordered_list_open"]) == 1
    assert len([t for t in tokens if t.type == "fence"]) >= 10


def test_drawings_fit_their_width(said):
    for token in PARSER.parse(said):
        if token.type == "fence" and not token.info:
            assert max(map(len, token.content.splitlines())) <= WIDTH


def test_names_stay_text(said):
    tokens = PARSER.parse(said)
    assert {token.type for token in tokens if token.type.startswith("html")} == set()
    assert {child.type for child in inside(tokens)} <= OURS
    shown = "".join(child.content for child in inside(tokens))
    for name in (SCRIPT, LAYER, MODEL):
        assert name in shown


@given(st.text(alphabet=st.sampled_from(list(" \t\n\\`*_[](){}<>#+-=.!|&~$:;@/19aw\u202e\x1b")), max_size=40))
def test_any_words_are_shown_as_they_are(words):
    shown = plain(words).strip()
    for before, after in (("", ""), ("- ", ""), ("## ", ""), ("**x:** ", ""), ("a\n\n", "\n\nb")):
        tokens = PARSER.parse(before + text(words) + after)
        children = inside(tokens)
        assert {child.type for child in children} <= {"text", "strong_open", "strong_close"}, words
        found = "".join(child.content for child in children)
        assert re.sub(r"\s", "", shown) in re.sub(r"\s", "", found), words


@given(st.text(alphabet=st.sampled_from(list("`~ a\n")), max_size=40))
def test_no_code_closes_its_fence(code):
    tokens = PARSER.parse("\n".join([*fenced(code), "", "after"]))
    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].content.splitlines() == code.splitlines()


def test_addresses_are_no_links():
    shown = text("http://evil.example and www.evil.example")
    assert "http://" not in shown
    assert "www." not in shown


def test_what_is_said_of_columns_is_what_is_drawn():
    steps = 1_000
    falling = np.geomspace(1.0, 1e-3, steps)
    grad = np.stack([falling, falling * 2], axis=1)
    run = record(("stem", "head"), falling, grad, grad)
    written = report(run, HEALTHY, "md", {})
    said = re.findall(r"Each column covers about ([\d,]+) of ([\d,]+) steps; a cell", written)
    cells = [len(row) for row in re.findall(r"^ *stem│(.+)$", written, re.MULTILINE)]
    assert said
    assert {int(count.replace(",", "")) for _, count in said} == {steps}
    assert {-(-steps // cell) for cell in cells} == {int(each) for each, _ in said}


def test_a_sentence_that_begins_with_a_layer_leaves_its_name_as_it_is():
    run = record(("stem", "head"), np.ones(20), np.ones((20, 2)), np.ones((20, 2)))
    written = report(run, HEALTHY, "md", {})
    assert "stem.weight: 1 at step 0" in written
    assert "Stem" not in written
    assert "Head" not in written
    assert "Loss: 1 at step 0" in written
