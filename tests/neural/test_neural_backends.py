"""What a network can be made for, and what is missing for it."""

import subprocess
import sys

import pytest

from neural import MissingPackage, backends
from neural.errors import NotDebugged, UnknownBackend


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.setattr(backends, "find_spec", lambda name: None)


def test_names():
    assert backends.NAMES == ("jax", "keras", "onnx", "pytorch", "tensorflow")
    assert backends.RUN == ("jax", "keras", "pytorch", "tensorflow")
    assert backends.backend("TensorFlow").label == "TensorFlow"


def test_a_name_of_none():
    with pytest.raises(
        UnknownBackend, match=r"no backend 'tensorflo': it is one of jax, .*; did you mean tensorflow\?"
    ):
        backends.backend("tensorflo")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("jax", "the backend jax needs the package keras: pip install keras jax"),
        ("tensorflow", "the backend tensorflow needs the package keras: pip install keras tensorflow"),
        ("onnx", "the backend onnx needs the package torch: pip install 'neuraldbg[onnx]'"),
    ],
)
def test_a_missing_package_is_told_with_the_line_for_pip(bare, name, line):
    with pytest.raises(MissingPackage) as caught:
        backends.require(backends.backend(name))
    assert str(caught.value) == line


def test_keras_counts_from_version_3_on(monkeypatch):
    monkeypatch.setattr(backends, "find_spec", lambda name: object())
    monkeypatch.setattr(backends, "version", lambda name: "2.15.0")
    assert backends.missing(backends.backend("jax")) == ("keras",)
    monkeypatch.setattr(backends, "version", lambda name: "3.4.1")
    assert backends.missing(backends.backend("jax")) == ()


def test_what_cannot_be_debugged_or_run():
    with pytest.raises(NotDebugged, match=r"^the debugger watches PyTorch, and not TensorFlow: leave out --backend"):
        backends.require_debug(backends.backend("tensorflow"))
    with pytest.raises(NotDebugged, match=r"^ONNX is a format of files: neural compile --backend onnx"):
        backends.require_run(backends.backend("onnx"))
    backends.require_debug(backends.backend("pytorch"))
    backends.require_run(backends.backend("pytorch"))


def test_packages_are_looked_for_and_not_imported():
    code = "import sys; from neural import backends as b; [b.missing(each) for each in b.BACKENDS]; "
    code += "print(sorted({'torch', 'keras', 'onnx', 'lark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
