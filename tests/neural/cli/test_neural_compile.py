"""`neural compile`, as a user calls it."""

import pytest
from tests.neural.sample_files import CNN, MODELS, network

from neural import checked, compile_plan, parse
from neural.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.neural").write_text(CNN, encoding="utf-8")
    (tmp_path / "two.neural").write_text(MODELS["several_networks"], encoding="utf-8")
    (tmp_path / "refused.neural").write_text(network("    L2(0.1) Dense(1)"), encoding="utf-8")
    return tmp_path


def test_it_writes_what_is_executed(folder, capsys):
    assert main(["compile", "a.neural", "-o", "model.py"]) == 0
    assert capsys.readouterr().out == "model.py: the network Digits, 43,706 parameters\n"
    assert (folder / "model.py").read_text(encoding="utf-8") == compile_plan(checked(parse(CNN, "a.neural")))


def test_the_file_has_the_name_of_the_model_if_none_is_given(folder, capsys):
    assert main(["compile", "two.neural", "--network", "Large"]) == 0
    assert "class Large(nn.Module):" in (folder / "two.py").read_text(encoding="utf-8")
    assert main(["compile", "two.neural", "-o", "-"]) == 0
    assert "class Small(nn.Module):" in capsys.readouterr().out


def test_what_cannot_be_built_is_status_1(folder, capsys):
    assert main(["compile", "refused.neural"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("refused.neural:4:5: L2 adds its input to the loss, which is not built")
    assert told.endswith("\n\n1 problem\n")
    assert not (folder / "refused.py").exists()


@pytest.mark.parametrize(("backend", "words"), [("onnx", "onnx is not built yet"), ("mxnet", "mxnet is unknown")])
def test_other_backends(folder, capsys, backend, words):
    assert main(["compile", "a.neural", "--backend", backend]) == 2
    assert f"{words}; there is: pytorch" in capsys.readouterr().err


def test_a_folder_that_is_not_there(folder, capsys):
    assert main(["compile", "a.neural", "-o", "no/model.py"]) == 2
    assert "no/model.py could not be written" in capsys.readouterr().err
