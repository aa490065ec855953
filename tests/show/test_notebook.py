"""What values are in a notebook: parsed as a browser would, with hostile names, and never an exception."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from tests.show.made_diagnoses import EXPLODING, HEALTHY, record
from tests.show.made_views import HOSTILE, every, heat

from neuraldbg.nouns import (
    Chain,
    ChainEdge,
    ChainNode,
    CodeLine,
    Diagnosis,
    Event,
    Evidence,
    Hypothesis,
    Remedy,
    Series,
    Unjudged,
)
from neuraldbg.saved import Run

TAGS = {"b", "br", "code", "details", "div", "h4", "img", "li", "ol", "p", "path", "pre", "span", "summary", "svg"}
TAGS |= {"title", "ul"}
BAD = "".join(HOSTILE)


class Page(HTMLParser):
    """What a browser would make of a fragment."""

    def __init__(self, text):
        super().__init__()
        self.text, self.open, self.attributes = "", [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS
        assert all(not key.startswith("on") for key, _ in attrs)
        self.attributes += attrs
        if tag not in ("br", "img", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in TAGS
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def hostile():
    hypothesis = Hypothesis(
        BAD,
        "x",
        0.5,
        BAD,
        BAD,
        3,
        (Evidence(BAD, True, value=BAD, threshold=float("nan")), Evidence(BAD, False, value=1.0)),
        (BAD,),
        Remedy(BAD, f"{BAD}\n\tsecond line"),
        {BAD: BAD},
        places=(CodeLine(BAD, 7, BAD),),
    )
    return Diagnosis(
        "failing",
        BAD,
        symptoms=(BAD,),
        hypotheses=(hypothesis, hypothesis),
        chain=Chain((ChainNode("a", "cause", BAD, BAD, 1), ChainNode("b", BAD, BAD)), (ChainEdge("a", "b", BAD),)),
        unjudged=(Unjudged(BAD, BAD),),
    )


def run(layers=("conv1", "conv2"), **more):
    steps = np.arange(30.0)
    made = record(layers, 3 - steps / 20, np.ones((30, len(layers))), np.ones((30, len(layers))), **more)
    return Run(**{key: getattr(made, key) for key in made.__dataclass_fields__})


def test_a_diagnosis_says_what_its_text_says():
    text = Page(EXPLODING._repr_html_()).text
    first = EXPLODING.hypotheses[0]
    for words in (
        f"FAILING: {EXPLODING.summary}",
        *EXPLODING.symptoms,
        *(h.cause for h in EXPLODING.hypotheses),
        "93% sure conv2, step 0",
        "<1% sure",
        *(one.statement for one in first.evidence),
        "[measured 4.2, threshold 0.1]",
        "against: inputs are normalised",
        "Cannot be distinguished from exploding_depth.",
        f"Fix: {first.remedy.text}",
        first.remedy.code,
        "symptom: the loss is NaN step 41, by time",
        "bad_batch: the batches were seen only once",
    ):
        assert words in text
    assert Page(HEALTHY._repr_html_()).text.startswith("HEALTHY: ")
    assert "A learning rate of 100, whose updates" in Page(first._repr_html_()).text


def test_hostile_words_stay_text():
    diagnosis = hostile()
    event = Event(BAD, BAD, 3, 7, BAD, details={BAD: BAD, "ratio": 0.25, "inf": float("inf")})
    for value in (diagnosis, diagnosis.hypotheses[0], event):
        text = Page(value._repr_html_()).text
        assert "<img src=x onerror=alert(1)>" in text
        assert "a&lt;b & $x_1$" in text
        assert "\\x1b[31m\\u202eevil\\nline\\ud800" in text
        assert "\u202e" not in text
    assert "step 3 to 7" in Page(event._repr_html_()).text.replace(BAD, "")
    assert "ratio: 0.25inf: inf" in Page(event._repr_html_()).text


def test_a_series_shows_its_range_and_its_course():
    values = np.append(np.linspace(1, 2, 5_000), np.nan)
    values[1_234] = 9.0
    html = Series(np.arange(5_001), values, np.ones(5_001, np.int64))._repr_html_()
    page = Page(html)
    assert "5,001 values, steps 0 to 5,000; 1 to 9; last NaN; 1 NaN or infinite" in page.text
    path = dict(page.attributes)["d"]
    points = np.array([pair.split() for pair in path[1:].split("L")], float)
    assert len(points) <= 301
    assert points[:, 1].min() == 5.0  # the spike, at the top edge
    assert points[points[:, 1].argmin(), 0] == pytest.approx(5 + 1_234 / 5_000 * 470, abs=0.1)
    nothing = Series(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
    assert "without values" in nothing._repr_html_()
    only_nan = Series(np.arange(3), np.full(3, np.nan), np.ones(3, np.int64))
    assert "3 NaN or infinite" in Page(only_nan._repr_html_()).text


def test_a_run_is_its_diagnosis_and_a_picture():
    page = Page(run()._repr_html_())
    assert run().diagnose().summary in page.text
    source = dict(page.attributes)["src"]
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


def test_without_matplotlib_a_run_has_text_for_pictures(monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    page = Page(run(HOSTILE)._repr_html_())
    assert "src" not in dict(page.attributes)
    assert "optimizer step" in page.text
    assert "<b>bold</b>" in page.text


def test_odd_values_are_shown_as_text():
    odd = replace(EXPLODING, hypotheses=(replace(EXPLODING.hypotheses[0], confidence="<b>"),))
    assert Page(odd._repr_html_()).text  # not even its own words can be formed
    broken = replace(EXPLODING, symptoms=3)
    assert Page(broken._repr_html_()).text == str(broken).replace("\n", "\\n")


def test_a_session_that_was_not_started_says_so():
    torch = pytest.importorskip("torch")
    from neuraldbg import NeuralDbg

    dbg = NeuralDbg(torch.nn.Linear(2, 2))
    assert "the session was never started" in Page(dbg._repr_html_()).text
    with dbg:
        pass
    assert Page(dbg._repr_html_()).text.startswith("INCONCLUSIVE: ")


@pytest.mark.parametrize("view", every(), ids=lambda view: f"{view.name} {view.title[:12]!r}")
def test_a_view_is_text_where_no_notebook_is(view):
    bundle = view._repr_mimebundle_()
    assert set(bundle) >= {"text/plain", "text/html"}
    assert "\x1b" not in bundle["text/plain"]
    if set(bundle) == {"text/plain", "text/html"}:
        Page(bundle["text/html"])


def test_a_view_is_plotlys_figure_in_a_notebook(monkeypatch):
    import plotly.io

    monkeypatch.setattr(plotly.io.renderers, "_default_renderers", [plotly.io.renderers["plotly_mimetype"]])
    monkeypatch.setattr(plotly.io.renderers, "_to_activate", [])
    bundle = heat()._repr_mimebundle_()
    drawn = bundle["application/vnd.plotly.v1+json"]
    assert drawn["data"][0]["type"] == "heatmap"
    assert bundle["text/plain"].startswith("gradient norm of each layer")


NOTEBOOK = """
import json
from IPython.core.interactiveshell import InteractiveShell
from tests.show.made_views import heat
from tests.show.made_diagnoses import EXPLODING
from tests.show.test_notebook import run
shell = InteractiveShell.instance()
values = (EXPLODING, EXPLODING.hypotheses[0], run(), run().scalar("loss"), heat())
print(json.dumps([sorted(shell.display_formatter.format(value)[0]) for value in values]))
"""


def test_a_notebook_asks_for_these():
    """IPython itself, in a process of its own: what it is given, and nothing printed to its error stream."""
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=True)
    kinds = json.loads(done.stdout.splitlines()[-1])
    assert all("text/html" in given for given in kinds)
    assert "application/vnd.plotly.v1+json" in kinds[-1]
    assert done.stderr == ""
