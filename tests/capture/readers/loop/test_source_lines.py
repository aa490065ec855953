"""Lines of the user's code: the innermost ones outside of libraries, whatever calls them."""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


def lines_of(function, *texts):
    source, start = inspect.getsourcelines(function)
    return [start + next(i for i, line in enumerate(source) if text in line) for text in texts]


def train(model, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 1))
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        model(torch.randn(4, 3))


def told(dbg):
    return {kind: [tuple(place[1:]) for place in places] for kind, places in dbg.record().fact("places").items()}


def test_each_moment_has_its_line():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with NeuralDbg(model) as dbg:
        train(model)
        train(model, 2)
    made, called, backward, stepped = lines_of(train, "optim.SGD", "F.mse_loss(", "loss.backward", "optimizer.step")
    found = told(dbg)
    assert found["forward"] == [(called, "loss = F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 1))")]
    assert found["backward"] == [(backward, "loss.backward()")]
    assert found["step"] == [(stepped, "optimizer.step()")]
    assert found["optimizer"] == [(made, "optimizer = torch.optim.SGD(model.parameters(), 0.1)")]
    assert all(place[0] == __file__ for place in dbg.record().fact("places")["forward"])


def test_a_hypothesis_points_at_the_line():
    def forgetful(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
        for _ in range(60):
            loss = F.mse_loss(model(torch.randn(16, 3)), torch.randn(16, 1))
            loss.backward()
            optimizer.step()

    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        forgetful(model)
    first = dbg.explain_failure()[0]
    (line,) = lines_of(forgetful, "loss.backward")
    assert first.cause == "missing_zero_grad"
    assert [(place.file, place.line, place.code) for place in first.places] == [(__file__, line, "loss.backward()")]


def test_code_without_a_source_has_a_line_number_only():
    model = nn.Linear(3, 1)
    lines = [
        "opt = torch.optim.SGD(model.parameters(), 0.1)",
        "for _ in range(4):",
        "    model(x).sum().backward()",
        "    opt.step()",
    ]
    program = compile("\n".join(lines), "<cell 3>", "exec")
    with NeuralDbg(model) as dbg:
        exec(program, {"torch": torch, "model": model, "x": torch.randn(2, 3)})
    assert dbg.record().fact("places")["backward"] == [["<cell 3>", 3, ""]]


def test_a_library_that_trains_is_passed_over(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "trainer_of_others.py").write_text(inspect.getsource(train).replace("F.mse", "torch.nn.functional.mse"))
    monkeypatch.syspath_prepend(str(folder))
    import trainer_of_others

    trainer_of_others.torch = torch
    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        trainer_of_others.train(model)
    (line,) = lines_of(test_a_library_that_trains_is_passed_over, "others.train(model)")
    assert told(dbg)["backward"] == [(line, "trainer_of_others.train(model)")]
