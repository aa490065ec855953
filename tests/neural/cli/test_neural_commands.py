"""The command `neural`: check, fmt and version, as a user calls them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.neural.sample_files import CNN, COMMENTS, RESEARCH, RESIDUAL, SEARCHES, SEVERAL_NETWORKS, network

from neural import checked, compile_plan, read
from neural.cli import COMMANDS, main
from neural.cli.training_options import device_of

UNTIDY = CNN.replace("  input: (28, 28, 1)", "   input:(28,28,1)")


def called(capsys, *arguments):
    status = main([str(each) for each in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, name="a.neural"):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="\n")
        return name

    return write


# ---------------------------------------------------------------- check


def test_the_table(model, capsys):
    assert called(capsys, "check", model(CNN)) == (
        0,
        """\
a.neural: network Digits, input (28, 28, 1)

  layer           output       parameters
  Conv2D_1        (26, 26, 8)          80
  MaxPooling2D_2  (13, 13, 8)           0
  Flatten_3       (1352,)               0
  Dense_4         (32,)            43,296
  Dropout_5       (32,)                 0
  Output_6        (10,)               330
  total                            43,706

  loss sparse_categorical_crossentropy, optimizer Adam(learning_rate=0.002, beta_1=0.9, beta_2=0.999, epsilon=1e-07)
  3 epochs of batches of 64, 0.2 of the data for validation
""",
        "",
    )


def test_blocks_and_notes_in_the_table(model, capsys):
    _, out, _ = called(capsys, "check", model(RESIDUAL))
    assert (
        out
        == """\
a.neural: network Residual, input (16, 16, 4)

  layer                            output       parameters
  ResidualConnection_1             (16, 16, 4)         296
    ResidualConnection_1.Conv2D_1  (16, 16, 4)         148
    ResidualConnection_1.Conv2D_2  (16, 16, 4)         148
  ResidualConnection_2             (16, 16, 4)         296
    ResidualConnection_2.Conv2D_1  (16, 16, 4)         148
    ResidualConnection_2.Conv2D_2  (16, 16, 4)         148
  ResidualConnection_3             (8, 8, 8)           920
    ResidualConnection_3.Conv2D_1  (8, 8, 8)           296
    ResidualConnection_3.Conv2D_2  (8, 8, 8)           584
    ResidualConnection_3.Conv2D_3  (8, 8, 8)            40
  GlobalAveragePooling2D_4         (8,)                  0
  Output_5                         (2,)                 18
  total                                              1,530

  loss categorical_crossentropy, optimizer Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07)
  10 epochs of batches of 32, 0.2 of the data for validation

  note, line 2: no optimizer: Adam is taken, with a learning rate of 0.001
  note, line 2: no loss: categorical_crossentropy is taken, as the last activation is softmax
"""
    )


def test_the_plan_as_json(model, capsys):
    status, out, _ = called(capsys, "check", "--json", model(SEARCHES))
    plan = json.loads(out)
    assert status == 0
    assert [layer["name"] for layer in plan["layers"]] == ["Dense_1", "Dropout_2", "Dense_3", "Dense_4", "Output_5"]
    assert plan["searches"][0] == {
        "kind": "choice", "values": [16, 32], "taken": 16,
        "span": {"line": 5, "column": 11, "end_line": 5, "end_column": 30},
    }  # fmt: skip


def test_problems_go_to_standard_error(model, capsys):
    status, out, err = called(capsys, "check", model(network("    Dens(3)")))
    assert (status, out) == (1, "")
    assert (
        err
        == """\
a.neural:4:5: unknown layer 'Dens'
  4 |     Dens(3)
    |     ^^^^
  expected: a layer of Keras, or a macro of this file
  did you mean: Dense?

1 problem
"""
    )


def test_problems_as_json(model, capsys):
    status, out, err = called(capsys, "check", "--json", model(network("    Dens(3)")))
    (problem,) = json.loads(out)["problems"]
    assert (status, err) == (1, "")
    assert (problem["message"], problem["span"]["line"], problem["suggestion"]) == ("unknown layer 'Dens'", 4, "Dense")


def test_a_network_by_name(model, capsys):
    name = model(SEVERAL_NETWORKS)
    assert "network Large" in called(capsys, "check", name, "--network", "Large")[1]
    assert "no network is called 'Larg'" in called(capsys, "check", name, "--network", "Larg")[2]


def test_research_is_read(model, capsys):
    status, out, _ = called(capsys, "check", model(RESEARCH, "a.rnr"))
    assert (status, out.splitlines()[0]) == (0, "a.rnr: research Findings, and no network")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.neural", "neural: none.neural: no such file or directory\n"),
        ("a.py", "neural: a.py: the extension is .py, and must be one of .neural, .nr, .rnr\n"),
    ],
)
def test_wrong_files(model, capsys, name, words):
    model("", "a.py")
    assert called(capsys, "check", name) == (2, "", words)


# ---------------------------------------------------------------- fmt


def test_files_are_formatted_in_place(model, capsys, tmp_path):
    names = [model(UNTIDY, "a.neural"), model(CNN, "b.neural")]
    assert called(capsys, "fmt", *names) == (0, "formatted a.neural\n", "")
    assert (tmp_path / "a.neural").read_text() == CNN
    assert called(capsys, "fmt", *names) == (0, "", "")


def test_check_changes_nothing(model, capsys, tmp_path):
    names = [model(UNTIDY, "a.neural"), model(CNN, "b.neural")]
    assert called(capsys, "fmt", "--check", *names) == (1, "would change a.neural\n", "")
    assert (tmp_path / "a.neural").read_text() == UNTIDY
    assert called(capsys, "fmt", "--check", "b.neural") == (0, "", "")


def test_the_difference(model, capsys, tmp_path):
    status, out, _ = called(capsys, "fmt", "--diff", model(UNTIDY))
    assert status == 1
    assert "-   input:(28,28,1)  # rows, columns, channels\n+  input: (28, 28, 1)  # rows, columns, channels\n" in out
    assert (tmp_path / "a.neural").read_text() == UNTIDY


def test_a_file_with_an_error_stays_and_the_others_are_formatted(model, capsys, tmp_path):
    status, out, err = called(capsys, "fmt", model("netwrk", "a.neural"), model(UNTIDY, "b.neural"))
    assert (status, out) == (1, "formatted b.neural\n")
    assert err.startswith("a.neural:1:1: 'netwrk' cannot stand here\n")
    assert (tmp_path / "a.neural").read_text() == "netwrk"


def test_windows_ends_of_lines_become_plain_ones(model, capsys, tmp_path):
    (tmp_path / "a.neural").write_bytes(COMMENTS.replace("\n", "\r\n").encode())
    assert called(capsys, "fmt", "a.neural")[0] == 0
    assert b"\r" not in (tmp_path / "a.neural").read_bytes()


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize("command", ["version", "--version"])
def test_the_version(capsys, command):
    status, out, _ = called(capsys, command)
    assert status == 0
    assert out.startswith("neural ")


@pytest.mark.parametrize("arguments", [["check"], ["fmt"], ["chek", "a"], ["check", "a", "--no"]])
def test_wrong_use(capsys, arguments):
    status, _, err = called(capsys, *arguments)
    assert status == 2
    assert "Usage: neural" in err


@pytest.mark.parametrize("command", [[], *([each.name] for each in COMMANDS)], ids=str)
def test_help(capsys, command):
    status, out, _ = called(capsys, *command, "--help")
    assert status == 0
    assert out.startswith("Usage: neural")


def test_as_a_program(tmp_path):
    (tmp_path / "a.neural").write_text(CNN, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "neural", "check", "a.neural"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Output_6" in done.stdout


HIDES = "import sys; sys.modules['lark'] = None\n"


@pytest.mark.parametrize("arguments", ["'check', 'a.neural'", "'fmt', 'a.neural'"])
def test_without_lark_one_sentence_says_what_to_install(tmp_path, arguments):
    (tmp_path / "a.neural").write_text(CNN, encoding="utf-8")
    code = f"{HIDES}from neural.cli import main; sys.exit(main([{arguments}]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "neural: reading .neural files needs the package lark: pip install 'neuraldbg[neural]'\n"


def test_importing_and_checking_brings_no_torch():
    code = (
        "import sys, neural, neural.cli\n"
        "assert 'lark' not in sys.modules\n"
        "neural.checked(neural.parse('network N { input: (3) layers: Dense(3) }'))\n"
        "sys.exit('torch' in sys.modules or 'neuraldbg' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(sys.platform == "darwin", reason="its files have names in UTF-8 only")
def test_a_name_of_any_bytes_is_a_name(tmp_path):
    file = os.fsencode(tmp_path) + b"/f\xff.neural"
    Path(os.fsdecode(file)).write_text(CNN.replace("epochs: 3", "epochs: 1"), encoding="utf-8")
    for command in ("check", "compile", "visualize", "fmt", "run"):
        words = [b"--dataset", b"synthetic"] if command == "run" else []
        done = subprocess.run(
            [sys.executable, "-m", "neural", command, file, *words], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    for made in (b"/f\xff.py", b"/f\xff.html", b"/.neural/f\xff.py"):
        assert Path(os.fsdecode(os.fsencode(tmp_path) + made)).read_bytes().decode()
    assert compile_plan(checked(read(os.fsdecode(file))), backend="keras").encode()


@pytest.mark.parametrize(
    ("named", "device"),
    [("GPU:1", "cuda:1"), ("gpu", "cuda"), ("cuda:1", "cuda:1"), ("mps", "mps"), ("auto", None), (None, None)],
)
def test_a_device_of_the_command_line_is_what_torch_calls_it(named, device):
    assert device_of(named) == device
