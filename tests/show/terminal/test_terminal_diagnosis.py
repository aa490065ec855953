"""The terminal face, shown as the literal block that a reader sees at 80 columns without colour."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from tests.show.made_diagnoses import EXPLODING, HEALTHY

from neuraldbg.nouns import Chain, ChainEdge, ChainNode, Diagnosis, Evidence, Hypothesis, Remedy, Unjudged
from neuraldbg.show.format.phrases import percent
from neuraldbg.show.terminal.diagnosis import print_diagnosis, render


def shown(diagnosis, width=80, encoding="utf-8", **settings):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    print_diagnosis(diagnosis, Console(file=file, width=width, **settings))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_failing_run():
    assert (
        shown(EXPLODING)
        == """\
✗ FAILING ──────────────────────────────────────────────────────────────────────
The loss diverged at step 3 because the learning rate of 100 is far too high,
first in conv2.
  • the loss rose from 2.31 to 4.1e+07 within 3 steps
  • the loss is NaN from step 41

Likely cause
1. lr_too_high  93% sure · conv2 · step 0
   Loss divergence, likely due to a learning rate of 100, whose updates are 4.2
   times as large as the weights of conv2.
   + the update of conv2.weight is 4.2 times its weight [judged against 0.1]
   + the loss rose right after the first step [measured 812, judged against 3]
   - inputs are normalised (mean 0.1, std 0.9)
   = cannot be told apart from exploding_depth
   Fix: Lower the learning rate to about 0.1, and warm it up over the first 100
   steps.
     ▏ optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

Less likely
    4%  init_scale_wrong     fc1
   <1%  unnormalised_inputs  step 0

How it came about
  ◆ learning rate too high · step 0
  │ cause
  ● update ratio out of range · conv2 · step 0
  │ data flow
  ● exploding gradients · conv1 · step 2
  ┊ from: update ratio out of range (time)
  ✗ the loss is NaN · step 41

Not judged
  • bad_batch: the batches were seen only once

doomed_digits.py · 45 steps · ConvNet · SGD · 3.4 s · overhead 3.1%
neuraldbg causes lr_too_high explains the cause.
"""
    )


def test_a_healthy_run_is_short():
    assert (
        shown(HEALTHY)
        == """\
✓ HEALTHY ──────────────────────────────────────────────────────────────────────
The loss fell from 2.31 to 0.08 over 500 steps and nothing unusual was seen.

healthy_digits.py · 500 steps · ConvNet · Adam
"""
    )


def test_ascii_and_narrow():
    text = shown(EXPLODING, width=50, encoding="ascii")
    assert (
        text[: text.index("Less likely")]
        == """\
x FAILING ----------------------------------------
The loss diverged at step 3 because the learning
rate of 100 is far too high, first in conv2.
  * the loss rose from 2.31 to 4.1e+07 within 3
    steps
  * the loss is NaN from step 41

Likely cause
1. lr_too_high  93% sure | conv2 | step 0
   Loss divergence, likely due to a learning rate
   of 100, whose updates are 4.2 times as large as
   the weights of conv2.
   + the update of conv2.weight is 4.2 times its
     weight [judged against 0.1]
   + the loss rose right after the first step
     [measured 812, judged against 3]
   - inputs are normalised (mean 0.1, std 0.9)
   = cannot be told apart from exploding_depth
   Fix: Lower the learning rate to about 0.1, and
   warm it up over the first 100 steps.
     | optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

"""
    )


def test_lines_fit_and_do_not_end_in_spaces():
    for width in (40, 60, 80, 100, 200):
        lines = shown(EXPLODING, width=width).splitlines()
        assert max(len(line) for line in lines if "▏" not in line) <= min(width, 100)
        assert [line for line in lines if line != line.rstrip()] == []


def test_colour_only_where_wanted_and_never_alone():
    plain = shown(EXPLODING)
    assert "\x1b" not in plain
    coloured = shown(EXPLODING, force_terminal=True, color_system="standard")
    assert "\x1b[1;31m✗ FAILING" in coloured
    capture = Console(file=io.StringIO(), width=80, force_terminal=True, no_color=True)
    assert "✗ FAILING" in "".join(segment.text for segment in capture.render(render(EXPLODING, 60)))


HOSTILE = "[bold red]layer[/] :smile: \x1b[31m\x07\r\n\u202eevil\u2028 $x$ \ud800 [link=file:x]"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_hostile_names_stay_text(encoding):
    hypothesis = Hypothesis(
        HOSTILE,
        "x",
        0.5,
        HOSTILE,
        HOSTILE,
        3,
        (Evidence(HOSTILE, True, value=HOSTILE, threshold=1.0),),
        (HOSTILE,),
        Remedy(HOSTILE, HOSTILE),
    )
    node = ChainNode("a", "cause", HOSTILE, HOSTILE, 1)
    diagnosis = Diagnosis(
        "failing",
        HOSTILE,
        {"script": HOSTILE, "models": [HOSTILE]},
        (HOSTILE + "2",),
        hypotheses=(hypothesis, replace(hypothesis, confidence=0.1)),
        chain=Chain((node, replace(node, id="b")), (ChainEdge("a", "b", HOSTILE),)),
        unjudged=(Unjudged(HOSTILE, HOSTILE),),
    )
    text = shown(diagnosis, encoding=encoding, force_terminal=True, color_system=None)
    assert not {"\x1b", "\x07", "\r", "\u202e", "\u2028"} & set(text)
    flat = " ".join(text.split())
    assert flat.count("[bold red]layer[/] :smile: \\x1b[31m\\x07\\r\\n\\u202eevil\\u2028") > 10
    assert "\U0001f604" not in text


def test_long_lists_are_cut_and_say_so():
    evidence = tuple(Evidence(f"fact {i}", supports=i % 2 == 0) for i in range(20))
    likely = replace(EXPLODING.hypotheses[0], evidence=evidence, equivalent=tuple(f"cause_{i}" for i in range(9)))
    nodes = tuple(ChainNode(str(i), "event", f"event {i}", step=i) for i in range(30))
    diagnosis = replace(
        EXPLODING,
        symptoms=tuple(f"symptom {i}" for i in range(9)),
        hypotheses=tuple(replace(likely, cause=f"cause_{i}", confidence=0.3) for i in range(12)),
        chain=Chain(nodes, tuple(ChainEdge(str(i), str(i + 1), "time") for i in range(29))),
        unjudged=tuple(Unjudged(f"thing {i}", "why") for i in range(9)),
    )
    text = shown(diagnosis)
    for more in (
        "(+5 more: --json)",  # symptoms, equivalents, unjudged, less likely causes
        "(+6 more: --json)",  # evidence for
        "(+7 more: --json)",  # evidence against
        "┊   (+21 more: --json)",
    ):
        assert more in text
    assert text.count("Fix:") == 3
    assert "event 5" in text
    assert "event 6 " not in text
    assert "event 29" in text
    assert len(text.splitlines()) < 110


def test_unlikely_causes_get_a_line_each():
    second = replace(EXPLODING.hypotheses[0], cause="other", confidence=0.19)
    assert shown(replace(EXPLODING, hypotheses=(EXPLODING.hypotheses[0], second))).count("Fix:") == 1
    likely = replace(second, confidence=0.2)
    assert shown(replace(EXPLODING, hypotheses=(EXPLODING.hypotheses[0], likely))).count("Fix:") == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0%"), (0.001, "<1%"), (0.934, "93%"), (0.999, ">99%"), (1.0, "100%")],
)
def test_percent_is_never_surer_than_it_is(value, text):
    assert percent(value) == text


def test_evidence_shows_each_number_once():
    def told(*evidence):
        return shown(replace(EXPLODING, hypotheses=(replace(EXPLODING.hypotheses[0], evidence=evidence),)))

    assert "the ratio is 0.42\n" in told(Evidence("the ratio is 0.42", True, value=0.4199))
    assert "the share is 97%\n" in told(Evidence("the share is 97%", True, value=0.97))
    assert "the share is 44%\n" in told(Evidence("the share is 44%", True, value=0.4355))
    assert "a ReLU\n" in told(Evidence("a ReLU", True, value="probabilities", threshold=0.5))  # a name, for programs
    assert "fc1 and fc2\n" in told(Evidence("fc1 and fc2", True, value=2, threshold=0))  # how many are listed
    assert "7 of 9 [judged against 5]\n" in told(Evidence("7 of 9", True, value=7, threshold=5))
    assert "the loss is NaN\n" in told(Evidence("the loss is NaN", True, value=float("nan")))
    assert "too large [measured 1.5e+08, judged against 0.1]\n" in told(
        Evidence("too large", True, value=1.5e8, threshold=0.1)
    )
    assert "grown [measured inf, judged against 1,000]\n" in told(
        Evidence("grown", True, value=float("inf"), threshold=1000.0)
    )


def test_an_empty_diagnosis_can_be_shown():
    assert shown(Diagnosis("inconclusive", "")).startswith("? INCONCLUSIVE ")


def test_no_torch_and_no_matplotlib_are_imported():
    code = (
        "import sys, neuraldbg.show.terminal.diagnosis, neuraldbg.show.static.crash, neuraldbg.show.views.crash\n"
        "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
