"""Scripts of the corpus as text: edits that fit or are errors, and the command that prints one."""

from __future__ import annotations

import ast

import pytest
from tests.faults import show
from tests.faults.edits import TASKS, Edit, EditError, edited, every, source
from tests.faults.golden import Golden

SCRIPTS = every()


def edit(*changes):
    return Edit("x", "house", changes, Golden())


def test_an_edit_replaces_its_text_and_nothing_else():
    text = edited(edit(("lr=3e-3", "lr=1.0")))
    assert text == source("house").replace("lr=3e-3", "lr=1.0") != source("house")


def test_a_text_that_is_not_there_is_an_error():
    with pytest.raises(EditError, match="occurs 0 times in house.py, not 1"):
        edited(edit(("lr=3e-4", "lr=1.0")))


def test_a_text_that_is_there_too_often_is_an_error():
    with pytest.raises(EditError, match="occurs 2 times in house.py, not 1"):
        edited(edit(("torch.relu(", "torch.tanh(")))
    assert "torch.tanh(self.fc2" in edited(edit(("torch.relu(", "torch.tanh(", 2)))


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_stands_on_its_own(name):
    one = SCRIPTS[name]
    tree = ast.parse(one.text)
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {m for m in imported if m.partition(".")[0] in {"neuraldbg", "tests"}}
    assert "--seed" in one.text
    assert one.family == "tasks" or one.text != source(one.task), "an edit that edits nothing"


def test_no_script_says_what_is_wrong_with_it():
    for one in SCRIPTS.values():
        for cause in one.golden.every:
            assert cause not in one.text, one.name


def test_tasks_are_in_several_styles():
    texts = [path.read_text(encoding="utf-8") for path in TASKS.glob("*.py")]
    assert len(texts) >= 12
    assert any("class Trainer" in t for t in texts)
    assert any("def main(" in t for t in texts)
    assert any("DataLoader(" not in t for t in texts)
    assert any("autocast" in t for t in texts)


def test_show_prints_a_script(capsys):
    assert show.main(["house_no_zero_grad"]) == 0
    shown = capsys.readouterr().out
    assert shown == SCRIPTS["house_no_zero_grad"].text
    assert "zero_grad" not in shown
    assert "zero_grad" in source("house")


def test_show_lists_scripts_and_knows_no_others(capsys):
    assert show.main([]) == 0
    assert "house_no_zero_grad" in capsys.readouterr().out
    assert show.main(["no_such_script"]) == 2
    assert "lists them" in capsys.readouterr().err
