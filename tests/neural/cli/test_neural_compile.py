"""`neural compile`, as a user calls it."""

import importlib.util

import pytest
import torch
from tests.neural.sample_files import CNN, MODELS, network

from neural import build, checked, compile_plan, parse
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


def test_a_file_of_the_user_is_not_written_over(folder, capsys):
    assert main(["compile", "a.neural"]) == 0
    assert main(["compile", "a.neural"]) == 0, "our own may be"
    (folder / "a.py").write_text("mine", encoding="utf-8")
    for command in (["compile", "a.neural"], ["visualize", "-f", "svg", "a.neural"]):
        (folder / "a.svg").write_text("mine, too", encoding="utf-8")
        assert main(command) == 2
        assert "is there already, and is not as this command would have left it" in capsys.readouterr().err
    assert (folder / "a.py").read_text(encoding="utf-8") == "mine"
    assert main(["compile", "a.neural", "-o", "a.py"]) == 0


def test_what_cannot_be_built_is_status_1(folder, capsys):
    assert main(["compile", "refused.neural"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("refused.neural:4:5: L2 adds its input to the loss, which is not built")
    assert told.endswith("\n\n1 problem\n")
    assert not (folder / "refused.py").exists()


def test_a_backend_that_there_is_not(folder, capsys):
    assert main(["compile", "a.neural", "--backend", "mxnet"]) == 2
    assert "no backend 'mxnet': it is one of jax, keras, onnx, pytorch, tensorflow" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "keras", "JAX"])
def test_a_file_for_keras(folder, capsys, backend):
    assert main(["compile", "a.neural", "--backend", backend, "-o", "model.py"]) == 0
    assert capsys.readouterr().out == "model.py: the network Digits, 43,706 parameters\n"
    written = (folder / "model.py").read_text(encoding="utf-8")
    assert written == compile_plan(checked(parse(CNN, "a.neural")), backend=backend.lower())
    assert main(["compile", "a.neural", "--backend", backend, "-o", "-"]) == 0
    assert capsys.readouterr().out == written


def test_a_penalty_of_outputs_is_built_by_keras(folder, capsys):
    assert main(["compile", "refused.neural", "--backend", "jax", "-o", "-"]) == 0
    assert 'layers.ActivityRegularization(l2=0.1, name="L2_1")' in capsys.readouterr().out


def test_what_is_for_onnx_alone(folder, capsys):
    for words in (["--weights", "a.pt"], ["--seed", "3"]):
        assert main(["compile", "a.neural", *words]) == 2
        assert "these are for --backend onnx" in capsys.readouterr().err
    assert main(["compile", "a.neural", "--backend", "onnx", "-o", "-"]) == 2
    assert "an ONNX file is not text: name a file" in capsys.readouterr().err


def test_without_the_packages_of_onnx(folder, capsys, monkeypatch):
    monkeypatch.setattr("neural.backends.find_spec", lambda name: None)
    assert main(["compile", "a.neural", "--backend", "onnx"]) == 2
    assert capsys.readouterr().err.endswith("pip install 'neuraldbg[onnx]'\n")
    assert not (folder / "a.onnx").exists()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("onnxscript") is None, reason="onnx is not installed")
def test_an_onnx_file_and_its_weights(folder, capsys):
    (folder / "d.neural").write_text(network("    Dense(2)"), encoding="utf-8")
    words = "d.onnx: the network Model, 10 parameters, "
    assert main(["compile", "d.neural", "--backend", "onnx"]) == 0
    assert capsys.readouterr().out == words + "random weights of seed 0: --weights FILE.pt for trained ones\n"
    first = (folder / "d.onnx").read_bytes()
    torch.save(build("d.neural").state_dict(), "w.pt")
    assert main(["compile", "d.neural", "--backend", "onnx", "--weights", "w.pt"]) == 0
    assert capsys.readouterr().out == words + "with the weights of w.pt\n"
    assert (folder / "d.onnx").read_bytes() != first


def test_a_folder_that_is_not_there(folder, capsys):
    assert main(["compile", "a.neural", "-o", "no/model.py"]) == 2
    assert "no/model.py could not be written" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["keras", "jax", "tensorflow"])
def test_a_file_for_keras_has_another_name_than_that_for_pytorch(folder, capsys, backend):
    assert main(["compile", "a.neural"]) == 0
    before = (folder / "a.py").read_text(encoding="utf-8")
    assert main(["compile", "a.neural", "--backend", backend]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"a_{backend}.py: the network Digits")
    assert "import keras" in (folder / f"a_{backend}.py").read_text(encoding="utf-8")
    assert (folder / "a.py").read_text(encoding="utf-8") == before
