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


def shown(diagnosis, width=80, encoding="utf-8", *, verbose=False, saved="", **settings):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    print_diagnosis(diagnosis, Console(file=file, width=width, **settings), verbose=verbose, saved=saved)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_failing_run_says_each_thing_once():
    assert (
        shown(EXPLODING)
        == """\
✗ FAILING ──────────────────────────────────────────────────────────────────────
The loss diverged at step 3 because the learning rate of 100 is far too high,
first in conv2.

Learning rate too high · lr_too_high · 93% sure · conv2 · step 0
   A learning rate of 100, whose updates are 4.2 times as large as the weights
   of conv2.
   + the update of conv2.weight is 4.2 times its weight [threshold 0.1]
   + the loss rose right after the first step [measured 812, threshold 3]
   - inputs are normalised (mean 0.1, std 0.9)
   = cannot be distinguished from exploding_depth
   Fix: Lower the learning rate to about 0.1, and warm it up over the first 100
   steps.
     ▏ optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

Causal chain
   learning rate too high (step 0) → update ratio out of range in conv2 →
   exploding gradients in conv1 (step 2) → the loss is NaN (step 41)

Not judged: bad_batch.
doomed_digits.py · 45 steps · 3.4 s · overhead 3.1%
More: -v, or neuraldbg causes lr_too_high
"""
    )


def test_the_long_form_has_all_causes_all_evidence_and_all_reasons():
    assert (
        shown(EXPLODING, verbose=True)
        == """\
✗ FAILING ──────────────────────────────────────────────────────────────────────
The loss diverged at step 3 because the learning rate of 100 is far too high,
first in conv2.
  • the loss rose from 2.31 to 4.1e+07 within 3 steps
  • the loss is NaN from step 41

Likely cause
1. Learning rate too high · lr_too_high · 93% sure · conv2 · step 0
   Loss divergence, likely due to a learning rate of 100, whose updates are 4.2
   times as large as the weights of conv2.
   + the update of conv2.weight is 4.2 times its weight [threshold 0.1]
   + the loss rose right after the first step [measured 812, threshold 3]
   - inputs are normalised (mean 0.1, std 0.9)
   = cannot be distinguished from exploding_depth
   Fix: Lower the learning rate to about 0.1, and warm it up over the first 100
   steps.
     ▏ optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

Less likely
    4%  init_scale_wrong     fc1
   <1%  unnormalised_inputs  step 0

Causal chain
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


def test_a_healthy_run_has_three_lines():
    assert (
        shown(HEALTHY)
        == """\
✓ HEALTHY ──────────────────────────────────────────────────────────────────────
The loss fell from 2.31 to 0.08 over 500 steps and nothing unusual was seen.
healthy_digits.py · -v shows the rest
"""
    )
    assert shown(HEALTHY, saved="Saved in runs/digits").splitlines()[2:] == [
        "Saved in runs/digits · neuraldbg explain -v shows the rest"
    ]


def test_ascii_and_narrow():
    assert (
        shown(EXPLODING, width=50, encoding="ascii")
        == """\
x FAILING ----------------------------------------
The loss diverged at step 3 because the learning
rate of 100 is far too high, first in conv2.

Learning rate too high | lr_too_high | 93% sure |
conv2 | step 0
   A learning rate of 100, whose updates are 4.2
   times as large as the weights of conv2.
   + the update of conv2.weight is 4.2 times its
     weight [threshold 0.1]
   + the loss rose right after the first step
     [measured 812, threshold 3]
   - inputs are normalised (mean 0.1, std 0.9)
   = cannot be distinguished from exploding_depth
   Fix: Lower the learning rate to about 0.1, and
   warm it up over the first 100 steps.
     | optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

Causal chain
   learning rate too high (step 0) -> update ratio
   out of range in conv2 -> exploding gradients in
   conv1 (step 2) -> the loss is NaN (step 41)

Not judged: bad_batch.
doomed_digits.py | 45 steps | 3.4 s | overhead
3.1%
More: -v, or neuraldbg causes lr_too_high
"""
    )


def test_the_headline_leaves_the_cause_to_its_block():
    told = replace(EXPLODING, headline="The loss diverged at step 3")
    text = shown(told)
    assert "The loss diverged at step 3.\n" in text
    assert "far too high" not in text


def test_evidence_that_repeats_what_is_said_is_left_out():
    cause = replace(
        EXPLODING.hypotheses[0],
        sentence="a learning rate of 100, which makes updates 4,700 times as large as the weights",
        evidence=(
            Evidence("updates are 4,700 times as large as the weights (median over weight matrices)", True, 3.0),
            Evidence("a learning rate of 100 is beyond common use with SGD", True, 2.0),
            Evidence("the loss rose to 812 times its first value", True, 2.0),
            Evidence("the loss rose to 812 times its first value within ten steps", True, 1.0),
            Evidence("gradients of all layers grew at the same step", True, 0.5),
            Evidence("inputs are normalised", False, 0.5),
        ),
    )
    text = shown(replace(EXPLODING, hypotheses=(cause,)))
    assert [line.strip() for line in text.splitlines() if line.strip()[:2] in ("+ ", "- ")] == [
        "+ a learning rate of 100 is beyond common use with SGD",
        "+ the loss rose to 812 times its first value",
        "- inputs are normalised",
    ]


def test_averages_are_explained_once_below_the_text():
    told = "The loss rose from 2.3 to 32.6 (median of the last 6 losses)"
    cause = replace(
        EXPLODING.hypotheses[0],
        evidence=(
            Evidence("steps move 34% of the weights (median over weight matrices)", True),
            Evidence("later the level was 31 (median of the last 6 losses)", True),
        ),
    )
    text = shown(replace(EXPLODING, summary=told, hypotheses=(cause,)))
    assert "The loss rose from 2.3 to 32.6*.\n" in text
    assert "+ steps move 34% of the weights**\n" in text
    assert "+ later the level was 31*\n" in text
    assert text.endswith("* median of the last 6 losses\n** median over weight matrices\n")
    assert "2.5.\n" in shown(replace(EXPLODING, summary="The loss was 2.5 (last loss)"))


def test_a_chain_of_one_link_is_not_drawn():
    nodes, edges = EXPLODING.chain.nodes, (ChainEdge("lr", "nan", "cause"),)
    one = replace(EXPLODING, chain=Chain((nodes[0], nodes[-1]), edges))
    assert "Causal chain" not in shown(one)
    assert "Causal chain" not in shown(one, verbose=True)


def test_causes_have_their_id_behind_the_title():
    second = replace(EXPLODING.hypotheses[0], cause="exploding_depth", title="Gradients grow", confidence=0.4)
    text = shown(replace(EXPLODING, hypotheses=(EXPLODING.hypotheses[0], second)))
    assert "Learning rate too high · lr_too_high · 93% sure" in text
    assert "Also likely: Gradients grow · exploding_depth (40%).\n" in text


def test_lines_fit_and_do_not_end_in_spaces():
    for width in (40, 60, 80, 100, 200):
        for verbose in (False, True):
            lines = shown(EXPLODING, width=width, verbose=verbose).splitlines()
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
    text = shown(diagnosis, encoding=encoding, verbose=True, force_terminal=True, color_system=None)
    text += shown(diagnosis, encoding=encoding, force_terminal=True, color_system=None)
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
    short = shown(diagnosis)
    assert short.count("Fix:") == 1
    assert "and 8 more.\n" in short
    assert "Not judged: thing 0, thing 1, thing 2 and 6 more.\n" in short
    assert len(short.splitlines()) < 40
    text = shown(diagnosis, verbose=True)
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
    assert shown(replace(EXPLODING, hypotheses=(EXPLODING.hypotheses[0], second)), verbose=True).count("Fix:") == 1
    likely = replace(second, confidence=0.2)
    assert shown(replace(EXPLODING, hypotheses=(EXPLODING.hypotheses[0], likely)), verbose=True).count("Fix:") == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0%"), (0.001, "<1%"), (0.934, "93%"), (0.999, ">99%"), (1.0, "100%")],
)
def test_percent_is_never_surer_than_it_is(value, text):
    assert percent(value) == text


def test_evidence_shows_each_number_once():
    def told(*evidence):
        return shown(
            replace(EXPLODING, hypotheses=(replace(EXPLODING.hypotheses[0], evidence=evidence),)), verbose=True
        )

    assert "the ratio is 0.42\n" in told(Evidence("the ratio is 0.42", True, value=0.4199))
    assert "the share is 97%\n" in told(Evidence("the share is 97%", True, value=0.97))
    assert "the share is 44%\n" in told(Evidence("the share is 44%", True, value=0.4355))
    assert "a ReLU\n" in told(Evidence("a ReLU", True, value="probabilities", threshold=0.5))  # a name, for programs
    assert "fc1 and fc2\n" in told(Evidence("fc1 and fc2", True, value=2, threshold=0))  # how many are listed
    assert "7 of 9 [threshold 5]\n" in told(Evidence("7 of 9", True, value=7, threshold=5))
    assert "the loss is NaN\n" in told(Evidence("the loss is NaN", True, value=float("nan")))
    assert "too large [measured 1.5e8, threshold 0.1]\n" in told(
        Evidence("too large", True, value=1.5e8, threshold=0.1)
    )
    assert "grown [measured inf, threshold 1,000]\n" in told(
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
