"""The part of a report on time and memory: against hand-made facts, as HTML and as Markdown."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from tests.explain.run_builder import Build
from tests.show.made_profiles import HEALTHY, MB, footprint, growth, profiled, timing

from neuraldbg.profile import profile
from neuraldbg.show.report.costs import costs_of
from neuraldbg.show.report.write import report

HOSTILE = "<img src=x onerror=alert(1)> | `$x$`"


class Words(HTMLParser):
    """The words of an element with an id, and its tags."""

    def __init__(self, text, ident):
        super().__init__()
        self.ident, self.deep, self.words, self.tags, self.ids = ident, 0, [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs).get("id")
        self.ids += [given] if given else []
        if tag == "section":
            self.deep = self.deep + 1 if self.deep or given == self.ident else 0
        if self.deep:
            self.tags.append(tag)

    def handle_endtag(self, tag):
        self.deep -= tag == "section" and self.deep > 0

    def handle_data(self, data):
        if self.deep and data.strip():
            self.words.append(data.strip())


def written(run, kind):
    return report(run, HEALTHY, kind, {}, profile(run))


def rows(text, heading):
    """The cells of the table of a Markdown report below a heading, by row."""
    below = text.split(heading, 1)[1].strip().split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in below[2:]]


def test_markdown_has_the_parts_the_layers_the_leaks_and_the_bottlenecks():
    run = profiled(("fc1", "act1", "fc2"))
    text = written(run, "md")
    part = text.split("## Time and memory", 1)[1].split("\n## ", 1)[0]
    assert rows(part, "### The parts of a step") == [
        ["data loader", r"9 ms", "30%"], ["forward", "6 ms", "20%"], ["backward", "12 ms", "40%"],
        ["optimizer", r"1\.5 ms", r"5\.0%"], ["other", r"1\.5 ms", r"5\.0%"],
    ]  # fmt: skip
    table = rows(part, "### The layers")
    assert table[0] == ["fc1", r"float32\[32, 64\]", "1 ms", "2 ms", "10%", "1 MFLOP", r"4\.5 MiB"]
    assert len(table) == 3
    assert "Peak of the step: 21 MiB" in part
    assert "Resident memory grew by 1.6 MiB a step" in part
    assert "kept at train.py:35: history.append(loss)" in part
    assert "loss.item(), in history" in part
    for one in profile(run).bottlenecks:
        assert one.kind == "leak" or one.text.split("(")[0].strip() in part
    assert any(one.kind == "data_loading" for one in profile(run).bottlenecks)  # 30% of the step, no workers


def test_html_has_the_same_and_is_made_of_the_same_bytes_each_time():
    run = profiled(("fc1", "act1", "fc2"))
    text = written(run, "html")
    assert text == written(profiled(("fc1", "act1", "fc2")), "html")
    found = Words(text, "costs")
    said = " ".join(found.words)
    for wanted in ("data loader 9 ms 30%", "fc1 float32[32, 64] 1 ms 2 ms 10% 1 MFLOP 4.5 MiB", "history.append(loss)"):
        assert wanted in said
    assert '<a href="#costs">Time and memory</a>' in text
    assert len(found.ids) == len(set(found.ids))


@pytest.mark.parametrize("kind", ["html", "md"])
def test_a_run_without_a_profile_has_no_such_part(kind):
    text = written(profiled(parts=()), kind)
    assert "Time and memory" not in text
    assert "no step of this run was timed" in text  # among the pictures without data
    assert costs_of(None) is None


def test_only_what_was_measured_is_said():
    timed = costs_of(profile(profiled(parts=("timing",))))
    assert timed.leaks == ()
    assert [table.heads[-1] for table in timed.tables] == ["share", "operations"]
    held = costs_of(profile(profiled(parts=("footprint",))))
    assert [table.heads for table in held.tables] == [("layer", "memory")]
    assert [row[1] for row in held.tables[0].rows] == ["4.5 MiB", "1 MiB", "13.5 MiB"]
    grown = costs_of(profile(Build().fact("growth", 50, **growth(survivors=[], resident_per_step=None)).build()))
    assert grown.sentences == ("No kind of tensors becomes more from step to step, counted from step 0 to 120",)


def test_no_share_of_a_layer_is_told_of_a_single_sampled_step():
    (table,) = costs_of(profile(Build().fact("timing", 9, **timing(steps=1)).build())).tables
    at = table.heads.index("share of the step")
    assert {row[at] for row in table.rows} == {""}
    assert table.rows[0][2:4] == ("1 ms", "2 ms")


def test_nothing_is_said_of_tensors_that_were_not_counted():
    """The default run: memory was read, its slope is 40 B a step, and no tensor was counted."""
    value = {"first": 0, "last": 0, "counts": 0, "slope_first": 40, "slope_last": 900, "resident_per_step": 40.0}
    told = costs_of(profile(Build().fact("growth", 900, **value).build()))
    assert told.sentences == ()
    assert "Tensors were not counted" in told.notes[0]
    assert not any("step 0 to 0" in one for one in told.notes)
    many = costs_of(profile(Build().fact("growth", 900, **value | {"counts": 8, "complete": False}).build()))
    assert many.sentences == ("No growing tensors were found, but there were too many objects to look at all of them",)
    few = costs_of(profile(Build().fact("growth", 900, **value | {"counts": 4}).build()))
    assert few.sentences == ("Tensors were counted too few times to see whether they become more",)
    grown = costs_of(profile(Build().fact("growth", 900, **value | {"resident_per_step": 1.0 * MB}).build()))
    assert grown.sentences == ("Resident memory grew by 1 MiB a step",)


def test_of_many_layers_the_costliest_are_listed_in_the_order_of_their_calls():
    paths = tuple(f"layer{i}" for i in range(40))
    run = Build().fact("timing", 9, **timing(paths)).fact("footprint", 9, **footprint(paths)).build()
    table = costs_of(profile(run)).tables[1]
    assert table.title == "The 12 costliest of 40 layers"
    assert [row[0] for row in table.rows] == list(paths[-12:])


@pytest.mark.parametrize("kind", ["html", "md"])
def test_words_of_the_program_stay_words(kind):
    fact = timing((HOSTILE,), machine=HOSTILE)
    fact["layers"][0]["outputs"] = [HOSTILE]
    leak = growth(survivors=[{**growth()["survivors"][0], "holder": HOSTILE, "kept": [HOSTILE, 1, HOSTILE]}])
    run = Build().layer(HOSTILE, "Linear").fact("timing", 9, **fact).fact("growth", 9, **leak).build()
    text = written(run, kind)
    part = text.split("Time and memory", 2)[-1]
    if kind == "html":
        assert "img" not in Words(text, "costs").tags
        assert HOSTILE in " ".join(Words(text, "costs").words)
    else:
        assert "<img" not in part.replace(r"\<img", "")
        assert all(len(row) == 6 for row in rows(part, "### The layers"))
