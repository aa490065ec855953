"""JSON and session.json: strict, whole, and read back to the same record and the same diagnosis."""

from __future__ import annotations

import json

import pytest
from tests.record.known_steps import assert_same

from neuraldbg import Run
from neuraldbg.errors import RunDamaged, RunNotFound, RunTooNew
from neuraldbg.export import export
from neuraldbg.nouns import RunRecord


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def path(run, diagnosis, tmp_path_factory):
    return export(run, diagnosis, tmp_path_factory.mktemp("json") / "session.json", "session")


@pytest.fixture(scope="module")
def document(path):
    return strict(path.read_text(encoding="utf-8"))


def test_the_document_is_strict_and_whole(run, diagnosis, document):
    assert document["schema"] == "neuraldbg.run/1"
    assert document["diagnosis"] == diagnosis.to_dict()
    assert document["recorded"] == run.steps
    assert [step["step"] for step in document["steps"]] == run.history.steps.tolist()
    assert document["steps"][-1]["scalars"]["loss"] == "NaN"
    for at, step in enumerate(document["steps"]):
        assert ("sites" in step) == bool(run.history.read[at])
        assert ("low" in step) == (bool(run.history.read[at]) and step["width"] > 1)


def test_histograms_are_of_the_values_between_their_bins(run, document):
    bins = [float(edge) for edge in document["bins"]]
    assert [each["step"] for each in document["histograms"]] == [each.step for each in run.histograms] != []
    read = {
        step["step"]: {site[0]: site[1:] for site in step["sites"]} for step in document["steps"] if "sites" in step
    }
    places = {name: document["stats"].index(name) for name in ("count", "nonfinite", "min", "max")}
    for each in document["histograms"][:3]:
        for site, first, *counts in each["sites"]:
            count, bad, least, most = (read[each["step"]][site][at] for at in places.values())
            assert sum(counts) == count - bad
            assert bins[first] <= least < bins[first + 1]
            assert bins[first + len(counts) - 1] <= most < bins[first + len(counts)]


def test_it_is_read_back_to_the_same_record(run, diagnosis, path):
    again = Run.load(path)
    assert_same(RunRecord(**{name: getattr(run, name) for name in RunRecord.__dataclass_fields__}), again)
    assert again.diagnose().to_json() == diagnosis.to_json()


def test_json_is_the_same_document(run, diagnosis, path, tmp_path):
    assert export(run, diagnosis, tmp_path / "run.json", "json").read_bytes() == path.read_bytes()


def test_what_is_read_back_is_written_again_the_same(diagnosis, path, tmp_path):
    again = export(Run.load(path), diagnosis, tmp_path / "again.json", "json")
    assert again.read_bytes() == path.read_bytes()


def test_another_tool_may_have_laid_it_out_anew(run, document, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document, indent=2, sort_keys=True), encoding="utf-8")
    assert_same(run.history, Run.load(other).history)


def test_a_run_without_steps(tmp_path, diagnosis):
    assert_same(RunRecord(), Run.load(export(RunRecord(), diagnosis, tmp_path / "run.json")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no whole run"),
        ("[]", "is no whole run"),
        ("{}", "names no schema"),
        ('{"schema": "neuraldbg.diagnosis/1"}', "its schema is 'neuraldbg.diagnosis/1'"),
        ('{"schema": "neuraldbg.run/1"}', "is no whole run"),
        ('{"metadata": {}, "history": []}', "names no schema"),
        ("[" * 100_000, "is no whole run"),
    ],
)
def test_what_is_no_run_is_refused_with_a_reason(tmp_path, text, said):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(RunDamaged, match=said):
        Run.load(path)


def test_a_later_version_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"schema": "neuraldbg.run/2", "steps": []}')
    with pytest.raises(RunTooNew, match="or a later one"):
        Run.load(path)
    with pytest.raises(RunNotFound):
        Run.load(tmp_path / "b.json")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.9999])
def test_half_a_file_is_no_run(path, tmp_path, share):
    text = path.read_text(encoding="utf-8")
    half = tmp_path / "half.json"
    half.write_text(text[: int(share * len(text))], encoding="utf-8")
    with pytest.raises(RunDamaged):
        Run.load(half)


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ('"loss":"NaN"', '"loss":NaN'),
        ('[\n{"step":0', '[\n{"step":"x"'),
        ('"sites":[[0,', '"sites":[[900,'),
        ('"sites":[[0,', '"sites":[[-1,'),
        ('"sites":[[0,', '"sites":[[1e999,'),
        ('"sites":[[0,', '"sites":[[0.5,'),
        ('"width":1', '"width":1e400'),
        ('"histograms": [{"step":0,"sites":[[0,', '"histograms": [{"step":0,"sites":[[0,200,'),
        ('"histograms": [{"step":0,"sites":[[0,', '"histograms": [{"step":0,"sites":[[0,-1,'),
        ('"histograms": [{"step":0,"sites":[[0,', '"histograms": [{"step":0,"sites":[[],['),
        ("\n]}", "\n]}}"),
    ],
)
def test_what_cannot_be_is_refused(path, tmp_path, change, to):
    text = path.read_text(encoding="utf-8")
    assert change in text
    wrong = tmp_path / "wrong.json"
    wrong.write_text(text.replace(change, to, 1), encoding="utf-8")
    with pytest.raises(RunDamaged):
        Run.load(wrong)
