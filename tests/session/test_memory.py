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
from tests.session.trainings import ConvNet, Mlp, vectors
from torch.nn import functional as F

from neuraldbg import NeuralDbg

LONG = """
import gc, json, resource, sys
import torch
from torch.nn import functional as F
from neuraldbg import NeuralDbg
from tests.session.trainings import ConvNet, Mlp, vectors

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
