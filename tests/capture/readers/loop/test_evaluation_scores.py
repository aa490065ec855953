"""What evaluations say, against sums made by hand; training itself is not listened to."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


def data(seed, n=40):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))


def train(model, criterion, epochs=3, evaluate=None):
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    x, y = data(1)
    for _ in range(epochs):
        model.train()
        for start in range(0, 40, 10):
            optimizer.zero_grad()
            criterion(model(x[start : start + 10]), y[start : start + 10]).backward()
            optimizer.step()
        if evaluate is not None:
            evaluate(model, criterion)


def test_losses_and_accuracies_of_each_evaluation():
    expected = []

    def evaluate(model, criterion):
        model.eval()
        x, y = data(2)
        with torch.no_grad():
            losses = [criterion(model(x[s : s + 20]), y[s : s + 20]) for s in (0, 20)]
            right = [(model[:3](x[s : s + 20]) @ model[3].weight.T + model[3].bias).argmax(1) for s in (0, 20)]
        accuracy = (torch.cat(right) == y).double().mean().item()
        expected.append((sum(losses).item() / 2, accuracy))

    model = net()
    with NeuralDbg(model) as dbg:
        train(model, nn.CrossEntropyLoss(), evaluate=evaluate)
    run = dbg.record()
    phases = run.fact("evaluation_scores")["phases"]
    assert [(p[1], p[2], p[3]) for p in phases] == [(pytest.approx(e[0]), pytest.approx(e[1]), 2) for e in expected]
    seen = run.scalar("eval_loss")
    assert seen.steps.tolist() == [4, 8], "an evaluation belongs to the step after it, the last is in the fact only"
    assert seen.values.tolist() == pytest.approx([e[0] for e in expected[:2]])
    passes = run.scalar("eval_passes")
    assert (passes.steps.tolist(), passes.values.tolist()) == ([4, 8], [2, 2])


def test_passes_without_gradients_in_training_mode_are_no_evaluation_passes():
    model = net()
    with NeuralDbg(model) as dbg:
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        x, _ = data(1)
        for _ in range(5):
            with torch.no_grad():
                targets = model(x).argmax(1)
            optimizer.zero_grad()
            F.cross_entropy(model(x), targets).backward()
            optimizer.step()
    assert dbg.record().scalar("evals").values.tolist() == [1.0] * 5
    assert not len(dbg.record().scalar("eval_passes"))


def test_training_without_evaluation_says_nothing():
    model = net()
    with NeuralDbg(model) as dbg:
        train(model, F.cross_entropy)
    assert dbg.record().fact("evaluation_scores") is None
    assert not len(dbg.record().scalar("eval_loss"))


def test_an_evaluation_that_forgot_no_grad_is_one_too():
    def evaluate(model, criterion):
        model.eval()
        x, y = data(2)
        criterion(model(x), y)

    model = net()
    with NeuralDbg(model) as dbg:
        train(model, F.cross_entropy, evaluate=evaluate)
    assert len(dbg.record().fact("evaluation_scores")["phases"]) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_function_with_a_loss_can_still_be_scripted():
    def scored(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, y) + torch.nn.functional.mse_loss(x, x)

    model = net()
    x, y = data(3)
    with NeuralDbg(model):
        train(model, F.cross_entropy, 1)
        compiled = torch.jit.script(scored)
        with torch.no_grad():
            assert compiled(model.eval()(x), y).item() == pytest.approx(scored(model(x), y).item())


def test_ignored_labels_do_not_count():
    def evaluate(model, criterion):
        x, _ = data(2)
        with torch.no_grad():
            out = model(x)
            labels = out.argmax(1)
            labels[::2] = -100
            criterion(out, labels)

    model = net()
    with NeuralDbg(model) as dbg:
        train(model, F.cross_entropy, 1, evaluate=evaluate)
    assert dbg.record().fact("evaluation_scores")["phases"][0][2] == 1.0
