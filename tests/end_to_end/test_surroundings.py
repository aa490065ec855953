"""Programs that do not train plainly in the main thread: threads, distributed data parallel, warnings as errors."""

from __future__ import annotations

import os
import zipfile

import pytest
from tests.end_to_end.place import DATA, HEAD, MODEL, TRAIN, Place, record, script
from tests.families import some


def test_training_in_a_thread(place: Place) -> None:
    done = place.run(
        source=script(
            MODEL,
            """
        import threading
        def train():
            opt = torch.optim.Adam(model.parameters(), lr=1e-2)
            for a, b in batches(40):
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()
            print("trained")
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        """,
        )
    )
    assert (done.status, done.out) == (0, "trained\n"), done.err
    run = record(done)
    assert run.info.coverage["errors"] == 0, run.info.coverage
    assert run.steps == 40
    assert len(run.scalar("loss")) == 40
    assert run.info.models == ("model",)
    assert run.diagnose().verdict == "healthy"


@pytest.mark.long
def test_a_second_thread_that_evaluates_while_the_first_trains(place: Place) -> None:
    place.write(
        "train.py",
        script(
            MODEL,
            """
        import copy, threading
        other, stop = copy.deepcopy(model), threading.Event()
        def serve():
            while not stop.is_set():
                with torch.no_grad():
                    other(x)
                    model(x)
        thread = threading.Thread(target=serve, daemon=True)
        """,
            "opt = torch.optim.Adam(model.parameters(), lr=1e-2)\n",
            """
        for step, (a, b) in enumerate(batches(60)):
            opt.zero_grad()
            F.cross_entropy(model(a), b).backward()
            opt.step()
            if step == 5:
                thread.start()
        stop.set()
        thread.join()
        """,
        ),
    )
    done = place.run("--overhead", "full", "train.py")  # the budget would leave batches unread on a busy machine
    assert done.status == 0, done.err
    run = record(done)
    assert run.info.coverage["errors"] == 0, run.info.coverage
    assert run.steps == 60
    assert run.scalar("batch_size").values.tolist() == [32.0] * 60
    row = next(i for i, site in enumerate(run.layout.sites) if (site.kind, site.module) == ("activation", "0"))
    assert set(run.series(row, "total").values) == {32.0 * 16}  # nothing of the other thread's batches
    assert run.diagnose().verdict == "healthy"


@pytest.mark.slow
def test_distributed_data_parallel_of_one(place: Place) -> None:
    done = place.run(
        source=HEAD
        + DATA
        + """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""
        + MODEL
        + """
ddp = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.Adam(ddp.parameters(), lr=1e-2)
for a, b in batches(40):
    opt.zero_grad()
    loss = F.cross_entropy(ddp(a), b)
    loss.backward()
    opt.step()
print(repr(loss.item()))
dist.destroy_process_group()
"""
    )
    plain = place.python("train.py")
    assert (done.status, done.out) == (0, plain.out), done.err
    run = record(done)
    assert run.info.coverage["errors"] == 0, run.info.coverage
    assert run.steps == 40
    assert {layer.path for layer in run.layout.layers} >= {"0", "2"}
    assert run.info.coverage["never_fired"] == []
    assert run.diagnose().verdict == "healthy"


def test_we_warn_of_nothing(place: Place) -> None:
    """Warnings as errors, once torch is in: ours would end the program."""
    done = place.run(
        source=HEAD
        + "import warnings\nwarnings.simplefilter('error')\n"
        + DATA
        + MODEL
        + TRAIN.format(steps=30)
        + "print('trained')\n"
    )
    assert (done.status, done.out) == (0, "trained\n"), done.err
    assert record(done).info.coverage["errors"] == 0


@pytest.mark.long
def test_we_warn_of_nothing_when_inputs_are_infinite(place: Place) -> None:
    """The same where data hold infinities that the model replaces, and numbers overflow at the end of the run."""
    done = place.run(
        source=HEAD
        + "import warnings\nwarnings.simplefilter('error')\n"
        + DATA
        + """
class Clean(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    def forward(self, x):
        return self.net(torch.nan_to_num(x, posinf=3.0, neginf=-3.0))
x[::5, 1], x[1::5, 2] = float("inf"), float("-inf")
model = Clean()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, (a, b) in enumerate(batches(200)):
    opt.zero_grad()
    target = F.one_hot(b, 3).float() * 2.0 ** max(step - 60, 0)
    F.mse_loss(model(a), target).backward()
    opt.step()
print('trained')
"""
    )
    assert (done.status, done.out) == (0, "trained\n"), done.err
    run = record(done)
    assert run.info.coverage["errors"] == 0, run.info.coverage
    assert run.steps == 200


def test_a_program_that_looks_at_its_surroundings(place: Place) -> None:
    """It changes folder, default types and the seed; nothing of ours may turn up in its numbers or places."""
    source = (
        HEAD
        + """
import os, random, sys
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(True)
random.seed(0)
"""
        + DATA
        + MODEL
        + """
os.makedirs("elsewhere", exist_ok=True)
os.chdir("elsewhere")
"""
        + TRAIN.format(steps=30)
        + """
print(loss.item(), random.random(), torch.rand(1).item(), sorted(os.listdir(".")), torch.get_num_threads())
print(__name__, sys.argv, sorted(k for k in globals() if not k.startswith("__")))
"""
    )
    place.write("train.py", source)
    plain = place.python("train.py", "a", "--run")
    done = place.run("train.py", "a", "--run")
    assert (done.status, done.out) == (0, plain.out), done.err
    assert done.diagnosis["verdict"] == "healthy"


HIDING = """
if __name__ != "__main__":
    sys.exit(f"usage of {__name__}")
"""
"""What many a script of one's own does when it is imported."""


@pytest.mark.parametrize(
    "how", some([(("train.py",),), (("-m", "train"),), ((".",),)], 3), ids=["file", "module", "folder"]
)
def test_modules_beside_the_script_that_have_names_of_pythons_or_of_ours(place: Place, how: tuple[str, ...]) -> None:
    """Torch imports none of these; the session, the command and what shows the diagnosis do."""
    names = ("click", "html", "pydantic", "pydantic_core", "resource", "rich", "sqlite3", "zoneinfo")
    for name in names:
        place.write(f"{name}.py", f"import sys\n{HIDING}")
    source = script(
        MODEL,
        TRAIN.format(steps=30),
        f"""
        import sys
        for name in {names}:
            try:
                __import__(name)
            except SystemExit as error:
                print(error, name in sys.modules)
        print([entry for entry in sys.path if entry.startswith({str(place.path)!r})])
        """,
    )
    place.write("train.py", source)
    place.write("__main__.py", source)
    bare = place.python(*how)
    done = place.tool("run", "-o", "run", *how)

    assert (bare.status, bare.out.count("usage of")) == (0, len(names)), bare.err
    assert (done.status, done.out) == (0, bare.out), done.err
    assert "HEALTHY" in done.err, done.err
    assert "Traceback" not in done.err
    run = record(done)
    assert (run.steps, run.info.coverage["errors"]) == (30, 0)


@pytest.mark.parametrize("last", [5, 29], ids=["in the midst", "at the end"])
def test_a_program_that_has_used_up_its_descriptors_is_diagnosed_and_saved(place: Place, last: int) -> None:
    source = script(
        MODEL,
        TRAIN.format(steps=30),
        f"""
        for step in range(30):
            if step == {last}:
                try:
                    while True:
                        held.append(os.open(os.devnull, os.O_RDONLY))
                except OSError as error:
                    print(error.strerror)
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
        raise OSError(24, "Too many open files")
        """,
    )
    limit = "import os, resource\nheld = []\nresource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
    done = place.run(source=limit + source)

    assert (done.status, done.out) == (1, "Too many open files\n"), done.err
    assert done.err.count("Traceback") == 1
    assert "error in NeuralDBG" not in done.err
    assert "neuraldbg:" not in done.err, "a problem"
    assert record(done).steps == 60
    assert done.diagnosis["run"]["outcome"]["kind"] == "raised"


SHADOW = "import sys\nsys.exit(5)\n"


@pytest.mark.long
def test_the_same_in_an_archive_whose_modules_nothing_imports(place: Place) -> None:
    with zipfile.ZipFile(place.path / "program.zip", "w") as archive:
        archive.writestr("__main__.py", script(MODEL, TRAIN.format(steps=30), "print('done')"))
        archive.writestr("pydantic.py", SHADOW)
        archive.writestr("annotated_types/__init__.py", SHADOW)
    done = place.tool("run", "-o", "run", "program.zip")

    assert (done.status, done.out) == (0, "done\n"), done.err
    assert record(done).steps == 30


@pytest.mark.long
def test_the_same_where_the_folder_is_on_the_path_already(place: Place) -> None:
    place.write("annotated_types.py", SHADOW)
    done = place.run(
        source=script(MODEL, TRAIN.format(steps=30), "print('done')"),
        PYTHONPATH=f"{place.path}{os.pathsep}{place.env()['PYTHONPATH']}",
    )

    assert (done.status, done.out) == (0, "done\n"), done.err
    assert record(done).steps == 30


def test_a_numpy_beside_a_program_that_imports_neither_it_nor_torch(place: Place) -> None:
    place.write("numpy.py", SHADOW)
    done = place.run(source="print('hi')\n")

    assert (done.status, done.out) == (0, "hi\n"), done.err
    assert "ended without importing torch: nothing was watched" in done.err
    told = place.tool("run", "--json", "told.json", "train.py")  # for which our own numpy is needed
    assert (told.status, told.out) == (0, "hi\n"), told.err
    assert '"inconclusive"' in (place.path / "told.json").read_text()


def test_what_another_thread_imports_as_the_session_begins_stays_imported(place: Place) -> None:
    place.write("html/__init__.py", "")
    for number in range(40):
        place.write(f"html/m{number}.py", "import time\ntime.sleep(0.05)\n")
    done = place.run(
        source=f"""
import importlib, sys, threading
def load():
    for number in range(40):
        importlib.import_module(f"html.m{{number}}")
beside = threading.Thread(target=load)
import html
beside.start()
{HEAD}
beside.join()
print(sum(f"html.m{{number}}" in sys.modules for number in range(40)), sys.modules["html"].__file__)
"""
    )
    assert (done.status, done.out) == (0, f"40 {place.path}/html/__init__.py\n"), done.err


def test_a_meta_path_that_is_no_list(place: Place) -> None:
    done = place.run(source="import sys\nsys.meta_path = tuple(sys.meta_path)\n" + script("print('mine')\n"))

    assert (done.status, done.out) == (0, "mine\n"), done.err
