"""``neuraldbg explain`` reads the same diagnosis from the file as the live run gave, and never imports torch."""

from __future__ import annotations

import json

import pytest
from tests.end_to_end.place import MODEL, TRAIN, Place, healthy, script
from tests.families import some

GUARD = """
import sys
class Guard:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("torch."):
            raise AssertionError(f"{name} was imported to explain a saved run")
sys.meta_path.insert(0, Guard())
from neuraldbg.cli import main
try:
    main()
finally:
    assert "torch" not in sys.modules
"""

DOOMED = script(
    MODEL,
    """
opt = torch.optim.SGD(model.parameters(), lr=1e4)
for a, b in batches(80):
    opt.zero_grad()
    F.mse_loss(model(a), F.one_hot(b, 3).float()).backward()
    opt.step()
""",
)
VANISHING = script(
    """
model = nn.Sequential(nn.Linear(8, 16),
    *[m for _ in range(12) for m in (nn.Sigmoid(), nn.Linear(16, 16))], nn.Linear(16, 3))
""",
    TRAIN.format(steps=120),
)
RAISED = script(
    MODEL,
    """
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, (a, b) in enumerate(batches(100)):
    opt.zero_grad()
    loss = F.cross_entropy(model(a), b)
    loss.backward()
    if step == 50:
        raise ValueError("the label file is broken")
    opt.step()
""",
)
SEVERAL = script("""
first, second = nn.Linear(8, 8), nn.Linear(8, 3)
opts = [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(second.parameters(), lr=1e-2)]
scaler = torch.amp.GradScaler("cpu")
for step, (a, b) in enumerate(batches(2500, 4)):
    for opt in opts:
        opt.zero_grad()
    loss = F.cross_entropy(second(first(a).relu()), b) * (float("nan") if step in (1000, 1001) else 1)
    scaler.scale(loss).backward()
    for opt in opts:
        scaler.step(opt)
    scaler.update()
""")
PROGRAMS = {
    "failing": (DOOMED, 0, "failing"),
    "vanishing": (VANISHING, 0, "failing"),
    "healthy": (healthy(150), 0, "healthy"),
    "raised": (RAISED, 1, None),
    "trains nothing": (script(MODEL, "model(x)"), 0, "inconclusive"),
    "two optimizers, thinned": (SEVERAL, 0, None),
}


@pytest.mark.parametrize("name", some(PROGRAMS, 3))
def test_the_file_says_what_the_live_run_said(place: Place, name: str) -> None:
    source, status, verdict = PROGRAMS[name]
    done = place.run(source=source)
    assert done.status == status, done.err
    live = done.diagnosis
    assert live["schema"] == "neuraldbg.diagnosis/1"
    assert verdict is None or live["verdict"] == verdict, live["summary"]
    place.write("guarded.py", GUARD)
    explained = place.python("guarded.py", "explain", "run", "--json", "again.json")
    assert explained.status == 0, explained.err
    again = json.loads((place.path / "again.json").read_text(), parse_constant=pytest.fail)
    assert again == live
    assert live["verdict"] in explained.out.lower()
    if name == "raised":
        assert live["run"]["outcome"]["message"] == "ValueError: the label file is broken"
        assert live["run"]["outcome"]["where"] == "train.py:21"
        assert "Traceback" in done.err
        assert done.err.index("ValueError") < done.err.index("Saved in run")
    if name == "failing":
        assert (done.run / "crash.json").exists()
        dump = json.loads((done.run / "crash.json").read_text(), parse_constant=pytest.fail)
        assert dump["metadata"]["captured_steps"] == min(80, dump["metadata"]["capacity"])


def test_a_session_in_python_and_its_file(place: Place) -> None:
    """``NeuralDbg(model, out=...)`` too, and ``Run.load``."""
    done = place.python(
        "-c",
        script(
            MODEL,
            """
        import json
        from neuraldbg import NeuralDbg, Run
        with NeuralDbg(model, out="run") as dbg:
            opt = torch.optim.SGD(model.parameters(), lr=1e4)
            for a, b in batches(60):
                opt.zero_grad()
                F.mse_loss(model(a), F.one_hot(b, 3).float()).backward()
                opt.step()
        live = dbg.diagnose().to_dict()
        assert Run.load("run").diagnose().to_dict() == live
        assert json.load(open("run/diagnosis.json")) == live
        print(live["verdict"])
        """,
        ),
    )
    assert (done.status, done.out) == (0, "failing\n"), done.err


@pytest.mark.parametrize("limit", some(["failing", "suspect"], 2))
def test_fail_on(place: Place, limit: str) -> None:
    assert place.run("--fail-on", limit, "train.py", source=None).status == 2  # no such script yet
    place.write("bad.py", DOOMED)
    place.write("good.py", healthy())
    assert place.run("--fail-on", limit, "bad.py").status == 3
    assert place.tool("explain", "run", "--fail-on", limit).status == 3
    assert place.tool("run", "-o", "good", "--fail-on", limit, "good.py").status == 0
