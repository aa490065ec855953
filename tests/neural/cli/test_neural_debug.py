"""`neural run` and `neural debug`, as a user calls them: real trainings, a real terminal, real files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from tests.browser import visiting
from tests.families import some

from neural.cli import main
from neuraldbg import Run
from neuraldbg.show.views import view

EXAMPLES = Path(__file__).parents[3] / "examples/neural"
TINY = """network Tiny {
  input: (4,)
  layers:
    Dense(8, "relu")
    Output(3, "softmax")
  loss: "sparse_categorical_crossentropy"
  optimizer: Adam(learning_rate=0.01)
  train { epochs: 2 batch_size: 16 }
}
"""
SCRIPT = """import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for _ in range(30):
    optimizer.zero_grad()
    x = torch.randn(8, 4)
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
print("trained with", sys.argv[1:])
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "tiny.neural").write_text(TINY, encoding="utf-8")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "faulty.neural").write_text((EXAMPLES / "cnn_faulty.neural").read_text(encoding="utf-8"))
    return tmp_path


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"}


def neural(place, *args, status=0):
    command = [sys.executable, "-m", "neural", *args]
    done = subprocess.run(
        command, cwd=place, env=environment(), capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == status, done.stderr
    return done


def test_run_trains_and_prints_the_line_that_does_it(place):
    done = neural(place, "run", "tiny.neural", "--seed", "3")
    assert re.fullmatch(r"epoch 1/2: loss .*\nepoch 2/2: loss .*\n", done.stdout)
    assert "neural: tiny.neural: network Tiny, 67 parameters, as .neural/tiny.py" in done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("$ python "))
    again = subprocess.run(
        [sys.executable, *line.split()[2:]], cwd=place, env=environment(), capture_output=True, text=True, check=True
    )
    assert again.stdout == done.stdout, "the same, bit for bit"
    quiet = neural(place, "run", "-q", "tiny.neural", "--seed=3", "--epochs=1")
    assert quiet.stderr == ""
    assert quiet.stdout.replace("1/1", "1/2") == done.stdout.splitlines(keepends=True)[0]


def test_debug_names_the_cause_and_its_line_in_the_file(place):
    done = neural(place, "debug", "--no-dashboard", "-o", "run", "faulty.neural")
    told = json.loads((place / "run/diagnosis.json").read_text(encoding="utf-8"))
    assert told["hypotheses"][0]["cause"] == "double_softmax"
    below = done.stderr.partition("In faulty.neural:\n")[2]
    assert '  15 |     Output(10, "softmax")\n  17 |   loss: sparse_categorical_crossentropy(from_logits=true)' in below
    assert Run.load(place / "run").info.note == ""


@pytest.mark.long
def test_parts_are_printed_and_runs_are_exported_and_compared(place):
    for name in ("a", "b"):
        seed = "1" if name == "a" else "2"
        done = neural(
            place, "debug", "--no-dashboard", "--gradients", "--dead-neurons", "--anomalies", f"--seed={seed}",
            "-o", name, "--export", f"{name}.json", "tiny.neural",
        )  # fmt: skip
        for words in ("gradient", "dead", "weights"):
            assert words in done.stderr
    compared = neural(place, "debug", "tiny.neural", "--compare", "a.json", "b.json")
    assert "differ" in compared.stdout


@pytest.mark.long
def test_made_up_data_are_said_in_every_picture(place):
    done = neural(place, "debug", "--no-dashboard", "--dataset", "synthetic", "--gradients", "-o", "run", "tiny.neural")
    assert "made-up data" in done.stderr
    run = Run.load(place / "run")
    assert run.info.note == "made-up data"
    assert view("loss", run, run.diagnose()).notes[-1] == "made-up data"
    text = TINY.replace("Dense(8", "Dense(HPO(choice(4, 8))")
    (place / "s.neural").write_text(text, encoding="utf-8")
    made_up = ("--dataset", "synthetic", "--epochs", "1")
    neural(place, "run", "s.neural", *made_up, "--hpo", "--trials", "1", "-o", "found")
    neural(place, "profile", "tiny.neural", *made_up)
    for folder in ("found/trial-001", ".neural/tiny-profile"):
        assert Run.load(place / folder).info.note == "made-up data"


@pytest.mark.long
def test_a_breakpoint_by_the_name_in_the_file_stops_there(place):
    child = pexpect.spawn(
        sys.executable,
        ["-m", "neural", "debug", "--no-dashboard", "--breakpoint", "Dense_1", "--at", "1", "tiny.neural"],
        cwd=str(place), env=environment(), encoding="utf-8", timeout=120,
    )  # fmt: skip
    child.expect(r"Dense_1[\s\S]*\(neuraldbg\) ")
    child.sendline("tuple(output.shape)")
    child.expect(r"\(16, 8\)")
    child.sendline("continue")
    child.expect("epoch 2/2")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_breakpoint_leaves_the_training_as_it_is(place):
    plain = neural(place, "debug", "--no-dashboard", "tiny.neural")
    stopped = neural(place, "debug", "--no-dashboard", "--breakpoint", "Dense*", "--at", "0", "tiny.neural")
    assert "'breakpoint Dense*' does not stop at step 0, after layer 'Dense_1'" in stopped.stderr
    assert stopped.stdout == plain.stdout, "the same, bit for bit"


@pytest.mark.long
def test_a_script_is_debugged_with_its_own_arguments(place):
    done = neural(place, "debug", "--no-dashboard", "train.py", "--", "0.05", "--mine")
    assert done.stdout == "trained with ['0.05', '--mine']\n"
    assert "HEALTHY" in done.stderr or "SUSPECT" in done.stderr
    diverges = neural(place, "debug", "--no-dashboard", "--halt", "train.py", "--", "50", status=1)
    assert "TrainingHalted" in diverges.stderr


WRONG = [
    (["debug"], "name a .neural file or a Python script"),
    (["debug", "nothing.neural"], "nothing.neural"),
    (["debug", "nothing.py"], "there is no script 'nothing.py'"),
    (["debug", "train.py", "--lr", "1"], "Options of a Python script come after --."),
    (["debug", "train.py", "--epochs", "1"], "--epochs is for .neural files"),
    (["debug", "tiny.neural", "x"], "x: a .neural file takes no arguments"),
    (["debug", "tiny.neural", "--compare", "a", "b"], "tiny.neural is not trained: two runs are compared"),
    (["debug", "--no-dashboard", "--tunnel", "tiny.neural"], "--tunnel is the dashboard's"),
    (["debug", "--tunnel", "ssh", "--tunnel-ttl", "2h", "tiny.neural"], "--tunnel-ttl is for --tunnel ngrok"),
    (["debug", "--tunnel=ssl", "tiny.neural"], "unknown tunnel 'ssl': ssh, ngrok or cloudflared"),
    (["debug", "--tunnel", "ssl", "tiny.neural"], "unknown tunnel 'ssl': ssh, ngrok or cloudflared"),
    (["debug", "--breakpoint", "Dense_9", "tiny.neural"], "no layer is called 'Dense_9'. Did you mean: "),
    (["debug", "--breakpoint", "Dense_*", "--breakpoint", "Conv*", "tiny.neural"], "no layer is called 'Conv*'"),
    (["debug", "--break-on", "nna", "tiny.neural"], "Did you mean: nan"),
    (["debug", "--break-on", "nna", "train.py"], "Usage: neural debug"),
    (["debug", "--no-dashboard", "--port", "0", "tiny.neural"], "--port is the dashboard's"),
    (["debug", "--no-dashboard", "--export", "x.csv", "tiny.neural"], "name a file that ends in .json"),
    (["run", "tiny.neural", "--epochs", "0"], "0 is not in the range"),
    (["run", "tiny.neural", "--data", "nothing.npz"], "nothing.npz"),
    (["run", "tiny.neural", "--dataset", "digts"], "digits"),
    (["run", "tiny.neural", "--trials", "3"], "--trials is for a search: give --hpo, too"),
    (["run", "tiny.neural", "--hpo"], "has nothing to search for"),
    (["profile", "tiny.neural", "--backend", "keras"], "the debugger watches PyTorch, and not Keras"),
]


@pytest.mark.parametrize(("args", "words"), WRONG)
def test_wrong_use_is_status_2_in_words(place, monkeypatch, capsys, args, words):
    monkeypatch.chdir(place)
    assert main(args) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    if any(each.startswith(("--tunnel", "--break")) for each in args) and "--tunnel-ttl" not in args:
        assert "neural: data" not in said, "refused before the data are prepared"


def test_a_backend_that_is_not_there_or_not_watched(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["debug", "--backend", "tensorflow", "tiny.neural"]) == 2
    assert "the debugger watches PyTorch, and not TensorFlow" in capsys.readouterr().err
    assert main(["run", "-b", "jaxx", "tiny.neural"]) == 2
    assert "did you mean jax?" in capsys.readouterr().err


def test_keras_trains_the_same_network_on_the_same_data(place, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    done = neural(place, "run", "--backend", "keras", "--batch-size", "8", "tiny.neural")
    assert done.stdout.count("epoch ") == 2
    assert (place / ".neural/tiny-keras.py").exists()
    assert "67 parameters" in done.stderr


@pytest.mark.slow
def test_the_page_opens_at_the_part_that_is_asked_for(place, browser):
    """The page of `neural debug` is that of the run, and ends with it where nobody sits at a terminal."""
    command = [
        sys.executable,
        "-m",
        "neural",
        "debug",
        "--port",
        "0",
        "--dead-neurons",
        "--epochs",
        "100000",
        "tiny.neural",
    ]
    with (
        subprocess.Popen(command, cwd=place, env=environment(), stderr=subprocess.PIPE, text=True) as process,
        visiting(browser) as visit,
    ):
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.search(r"http://\S+", line)))
        assert ":8050/" not in url, "any port that is free"
        visit.page.goto(url)
        visit.page.locator("#tabs [aria-current]", has_text="Activations").wait_for()
        visit.page.get_by_text("Dense_1").first.wait_for()
        process.kill()


@pytest.mark.long
def test_a_search_prints_its_table_and_leaves_runs(place):
    text = TINY.replace("Dense(8", "Dense(HPO(choice(4, 8))").replace("epochs: 2", "epochs: 1")
    (place / "s.neural").write_text(text, encoding="utf-8")
    done = neural(place, "run", "s.neural", "--hpo", "--search", "grid", "-o", "found")
    assert "2 trials by grid search for the lowest val_loss" in done.stdout
    assert done.stderr.count("trial ") == 2
    assert {Run.load(run).steps for run in (place / "found").glob("trial-*")} == {8}


@pytest.mark.parametrize("name", some(["random", "torch", "numpy"], 3))
def test_a_file_with_the_name_of_a_module_hides_none(place, name):
    (place / "tiny.neural").rename(place / f"{name}.neural")
    done = neural(place, "run", f"{name}.neural", "--epochs", "1")
    assert f"as .neural/{name}_model.py" in done.stderr
    assert "epoch 1/1" in done.stdout
