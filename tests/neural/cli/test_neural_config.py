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
