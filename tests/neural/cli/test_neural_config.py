"""`neural_config.yaml`, as commands read it."""

import pytest
from tests.neural.sample_files import CNN

from neural.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.neural").write_text(CNN, encoding="utf-8")

    def write(text):
        (tmp_path / "neural_config.yaml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def test_defaults_of_options_that_the_command_line_overrides(folder, capsys):
    folder("dashboard:\n  theme: dark\ncompile:\n  output: made.py\n")
    assert main(["compile", "a.neural"]) == 0
    assert capsys.readouterr().out.startswith("made.py: ")
    assert main(["compile", "a.neural", "-o", "other.py"]) == 0
    assert capsys.readouterr().out.startswith("other.py: ")


WRONG = [
    ("runn: {epochs: 3}", "no command is called 'runn'; did you mean 'run'?"),
    ("run: {epoch: 3}", "run: there is no option 'epoch'; did you mean 'epochs'?"),
    ("run: {batch-size: many}", "run: batch-size: 'many' is not a valid integer range."),
    ("run: {batch_size: 0}", "run: batch_size: 0 is not in the range x>=1."),
    ("check: {json: [1]}", "check: json: expected true or false, not [1]"),
    ("fmt: {check: 7}", "fmt: check: expected true or false, not 7"),
    ("run: {seed: 1.5}", "run: seed: expected a whole number, not 1.5"),
    ("run: {epochs: true}", "run: epochs: expected a whole number, not true"),
    ("run: {network: 3}", 'run: network: expected a text in quotation marks, such as "name", not 3'),
    ("run: {out: {a: b}}", "run: out: expected a text in quotation marks"),
    ("visualize: {format: [svg]}", "visualize: format: expected a text in quotation marks"),
    ("debug: {breakpoint: [1, fc]}", "debug: breakpoint: expected a text in quotation marks"),
    ("debug: {at: [1]}", "debug: at: expected a whole number, not [1]"),
    ("run: 3", "run: expected options with values, such as `backend: ...`"),
    ("- run", "expected sections such as `run:`, not a list"),
    ("run: [", "is no valid YAML"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_wrong_settings_are_status_2_with_all_of_them(folder, capsys, text, words):
    folder(f"{text}\n")
    assert main(["check", "a.neural"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("neural: neural_config.yaml")
    assert words in told


def test_all_wrong_keys_at_once_and_help_in_spite_of_them(folder, capsys):
    folder("run: {epoch: 3, sed: 1}\nfm: {}\n")
    assert main(["check", "a.neural"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4
    assert main(["run", "--help"]) == 0
    assert main(["version"]) == 0


def test_numbers_where_they_are_meant_and_nothing_are_taken(folder):
    folder("debug: {at: 3, vanishing_threshold: 0.5, compare: [a, b], breakpoint: fc}\nrun: {seed: , epochs: '3'}\n")
    assert main(["check", "a.neural"]) == 0
