"""Memory is flat however long a run is, and no graph outlives its step."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests import malloc
from tests.session.seeded_trainings import ConvNet, Mlp, vectors
from torch.nn import functional as F

from neuraldbg import NeuralDbg

LONG = """
import gc, json, resource, sys
import torch
from torch.nn import functional as F
from neuraldbg import NeuralDbg
from tests.session.seeded_trainings import ConvNet, Mlp, vectors

def rss():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() / 2**20

def graphs():
    gc.collect()
    return sum(1 for o in gc.get_objects() if isinstance(o, torch.Tensor) and o.grad_fn is not None)

model = ConvNet()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
memory = []
with NeuralDbg(model, out=sys.argv[1]) as dbg:
    for step in range(2000):
        x, y = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if step % 50 == 0:
            if step == 300:
                model.eval(); model(x); model.train()
            memory.append((step, rss()))
    del loss
    left = graphs()
print(json.dumps({"memory": memory, "graphs": left, "steps": dbg.steps}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_memory_is_flat_over_2000_steps(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(tmp_path / "run")],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps"] == 2000
    assert found["graphs"] == 0
    warm = next(mb for step, mb in found["memory"] if step == 300)
    assert found["memory"][-1][1] - warm < 50, found["memory"]


@pytest.mark.parametrize("make", [Mlp, ConvNet])
@pytest.mark.parametrize("options", [{}, {"snapshots": ["*"]}, {"halt": True}])
def test_no_tensor_with_a_graph_is_kept(make: type, options: dict) -> None:
    model = make()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        x, y = vectors() if make is Mlp else (torch.randn(8, 1, 8, 8), torch.randint(3, (8,)))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        model(x)  # a pass whose loss nobody asks for

    def graphs() -> int:
        gc.collect()
        tensors = (o for o in gc.get_objects() if issubclass(type(o), torch.Tensor))
        return sum(1 for t in tensors if t.grad_fn is not None)

    before = graphs()
    with NeuralDbg(model, **options):
        for _ in range(4):
            step()
            assert graphs() <= before
    assert graphs() <= before


SESSIONS = """
import collections, gc, json, pathlib, shutil, statistics, sys, tempfile, threading, tracemalloc
import torch
from torch import nn
from neuraldbg import NeuralDbg
from tests.conftest import torch_namespaces
from tests.malloc import given_out

count, traced = int(sys.argv[1]), sys.argv[2] == "traced"
folder = pathlib.Path(tempfile.mkdtemp())

def train(out, fails):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        with NeuralDbg(model, out=out, probes=False):
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(3, 4)).sum().backward()
                optimizer.step()
            if fails:
                raise KeyError("of the program")
    except KeyError:
        pass

def session(number):
    kind = number % 4
    args = (folder / str(number) if kind == 1 else None), kind == 2
    if kind == 3:
        thread = threading.Thread(target=train, args=args)
        thread.start()
        thread.join()
    else:
        train(*args)

def several(first, count):
    for number in range(first, first + count):
        session(number)
    for made in folder.iterdir():
        shutil.rmtree(made)
    gc.collect()

def kinds():
    return collections.Counter(type(o).__qualname__ for o in gc.get_objects())

several(0, 100)
if traced:
    tracemalloc.start()
    several(0, 40)
torch_before = torch_namespaces()
before, bytes_before = kinds(), tracemalloc.get_traced_memory()[0]
given = [] if traced else [given_out()]
for part in range(count // 100):
    several(part * 100, 100)
    if not traced:
        given.append(given_out())
grown = {kind: n for kind, n in (kinds() - before).items() if n > 40}
left = [name for name, (_, held) in torch_namespaces().items() if held != torch_before[name][1]]
print(json.dumps({
    "grown": grown, "traced": tracemalloc.get_traced_memory()[0] - bytes_before, "left": left,
    "given": given,
}))
"""


def sessions(count: int, how: str) -> dict:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SESSIONS, str(count), how]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_sessions_leave_nothing() -> None:
    """With a run file, without, with an exception inside, and in a thread: three functions were left of each."""
    found = sessions(200, "traced")
    assert found["grown"] == {}
    assert found["left"] == []
    assert found["traced"] < 200 * 500, "2,000 sessions leave less than a megabyte"


@pytest.mark.slow
@pytest.mark.skipif(not malloc.TELLS, reason="glibc tells how much malloc has given out")
def test_2000_sessions_grow_by_less_than_a_megabyte() -> None:
    """Resident memory is no measure: what malloc keeps of freed pages makes it rise and fall by 30 MB."""
    found = sessions(2000, "given")
    assert found["grown"] == {}
    assert found["given"][-1] - found["given"][0] < 2**20, found["given"]
