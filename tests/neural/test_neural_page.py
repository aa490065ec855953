"""The page about the language says what the code does."""

import re
from pathlib import Path

import pytest
from tests.neural.sample_files import CNN, network

from neural import checked, compile_plan, formatted, parse
from neural.check.registered_parts import OPTIMIZERS, SCHEDULES, TRAINING
from neural.cli import COMMANDS, main
from neural.language.tree import SECTIONS
from neural.layers import FAMILIES, LAYERS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "neural.md").read_text(encoding="utf-8")
FILES = re.findall(r"```neural\n(.*?)```", PAGE, re.DOTALL)
RUNS = re.findall(r"```console\n\$ neural ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
WRONG = network('    Conv2D(8, 300, activation="rleu")\n    Dens(10)', "(28, 28, 1)")


@pytest.mark.parametrize("text", FILES)
def test_its_files_are_models_in_the_canonical_layout(text):
    source = parse(text)
    assert checked(source).layers
    assert formatted(source) == text


def test_its_runs_print_what_they_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.neural").write_text(FILES[0], encoding="utf-8")
    (tmp_path / "wrong.neural").write_text(WRONG, encoding="utf-8")
    assert FILES[0] == CNN
    for command, told in RUNS:
        if command.startswith("run "):  # its numbers are those of one processor
            continue
        main(command.split())
        said = capsys.readouterr()
        assert said.out + said.err == told


def test_its_model_is_what_is_written():
    (model,) = re.findall(r"```text\n(class .*?)```", PAGE, re.DOTALL)
    assert model in compile_plan(checked(parse(FILES[0])))


def test_all_layers_sections_and_commands_are_named():
    known = [
        name for name in LAYERS if not re.match(r"(Average|Global|Adaptive).*Pooling|.*(Cell|DropoutWrapper)$", name)
    ]
    told = [
        *known,
        *(f"| {family} |" for family in FAMILIES if family != "unbuildable"),
        *(f"`{each}" for each in SECTIONS),
    ]
    told = [each for each in told if each != "`execute"]
    told += [f"`neural {command.name}" for command in COMMANDS]
    told += [each.name for table in (OPTIMIZERS, SCHEDULES) for each in table.values()]
    told += [f"`{each.name}`" for each in TRAINING if each.name != "hpo"]
    assert [each for each in told if each not in PAGE] == []
