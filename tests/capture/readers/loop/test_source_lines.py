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
    (line,) = lines_of(forgetful, "optimizer.step")
    assert first.cause == "missing_zero_grad"
    assert [(place.file, place.line, place.code) for place in first.places] == [(__file__, line, "optimizer.step()")]


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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.hidden = nn.Sequential(
            nn.ReLU(),
            nn.Linear(8, 8),
        )
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.head = make_head()

    def forward(self, x):
        x = self.hidden(self.first(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_head():
    return nn.Linear(8, 1)


def test_layers_have_the_line_that_creates_them():
    model = Net()
    with NeuralDbg(model) as dbg:
        train(model)
    found = told(dbg)
    first, linear, block, head = lines_of(Net, "self.first =", "nn.Linear(8, 8),", "ModuleList", "self.head =")
    assert found["layer first"] == [(first, "self.first = nn.Linear(3, 8)")]
    assert found["layer hidden.1"] == [(linear, "nn.Linear(8, 8),")]
    assert found["layer blocks.0"] == found["layer blocks.1"]
    assert found["layer blocks.0"][0][0] == block
    assert found["layer head"] == [(head, "self.head = make_head()")]


def test_a_sequential_of_the_script_has_its_lines_too():
    model = nn.Sequential(
        nn.Linear(3, 5),
        nn.Tanh(),
        nn.Linear(5, 1),
    )
    with NeuralDbg(model) as dbg:
        train(model)
    (line,) = lines_of(test_a_sequential_of_the_script_has_its_lines_too, "nn.Linear(5, 1)")
    assert told(dbg)["layer 2"] == [(line, "nn.Linear(5, 1),")]


def squared(prediction, target):
    difference = prediction - target
    return (difference**2).mean()


def test_a_fault_in_the_loss_points_at_the_line_that_computes_it():
    def broadcast(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(60):
            x = torch.randn(16, 3)
            loss = squared(model(x), x.sum(1)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        broadcast(model)
    first = dbg.diagnose().hypotheses[0]
    (line,) = lines_of(squared, "return")
    assert first.cause == "target_broadcast"
    assert [(place.line, place.code, place.what) for place in first.places] == [
        (line, "return (difference**2).mean()", "the loss is computed")
    ]


def test_a_second_softmax_points_at_the_line_that_applies_it():
    def softmaxed(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        criterion = nn.CrossEntropyLoss()
        for _ in range(40):
            x = torch.randn(16, 3)
            scores = model(x)
            scores = scores.softmax(dim=-1)
            loss = criterion(scores, x.argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    model = nn.Linear(3, 3)
    with NeuralDbg(model) as dbg:
        softmaxed(model)
    first = dbg.diagnose().hypotheses[0]
    (line,) = lines_of(softmaxed, "softmax(dim=-1)")
    assert first.cause == "double_softmax"
    assert [(place.line, place.what) for place in first.places] == [(line, "the softmax is applied")]


def test_a_loss_whose_origin_is_not_certain_has_no_line():
    def given(model, losses):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for compute in losses:
            optimizer.zero_grad()
            compute(model).backward()
            optimizer.step()
        return optimizer

    def train_with(loss_of):
        model = nn.Linear(3, 1)
        with NeuralDbg(model) as dbg:
            given(model, [loss_of] * 4)
        return told(dbg)

    found = train_with(lambda model: model(torch.randn(4, 3)).pow(2).mean())
    assert "softmax" not in found
    assert [text for _, text in found["loss"]] == ["compute(model).backward()"]


def test_a_generator_without_gradients_points_at_the_detach():
    gen = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    disc = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))

    def train():
        opt_g, opt_d = (torch.optim.Adam(net.parameters(), 1e-3) for net in (gen, disc))
        for _ in range(40):
            fake = gen(torch.randn(16, 4))
            d_loss = F.softplus(-disc(torch.randn(16, 2))).mean() + F.softplus(disc(fake.detach())).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
            g_loss = F.softplus(-disc(fake.detach())).mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()

    with NeuralDbg(nn.ModuleDict({"gen": gen, "disc": disc})) as dbg:
        train()
    first = dbg.explain_failure()[0]
    (line,) = lines_of(train, "g_loss = ")
    assert (first.cause, first.layer) == ("detached_graph", "gen.2")
    assert [place.line for place in first.places] == [line]
    assert "graph ends" in first.places[0].what
    assert "disc(output.detach())" in first.remedy.code
