"""The names of several losses: those of the program, else what their optimizers train, else numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.nouns.loss_names import differentiated, loss_names, loss_words


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("d_loss.backward()", "d_loss"),
        ("self.losses['g'].backward(retain_graph=True)", "self.losses['g']"),
        ("scaler.scale(loss_g).backward()", "loss_g"),
        ("accelerator.backward(errD)", "errD"),
        ("self.manual_backward(loss / 4)", ""),
        ("(a + b).backward()", ""),
        ("F.mse_loss(x, y).backward()", ""),
        ("opt.zero_grad(); loss.backward(); opt.step()", "loss"),
        ("trainer.fit(model)", ""),
        (").backward()", ""),
        ("", ""),
    ],
)
def test_the_line_of_a_backward_pass_names_its_loss(line, name):
    assert differentiated(line) == name


def test_two_losses_have_the_names_of_the_program():
    one, other = nn.Linear(3, 1), nn.Linear(3, 1)

    def train():
        first, second = (torch.optim.SGD(m.parameters(), 0.1) for m in (one, other))
        for _ in range(4):
            cost_a = one(torch.randn(4, 3)).square().mean()
            cost_a.backward()
            first.step()
            cost_b = other(torch.randn(4, 3)).square().mean()
            cost_b.backward()
            second.step()

    with NeuralDbg(nn.ModuleDict({"actor": one, "critic": other})) as dbg:
        train()
    assert loss_names(dbg.record()) == {0: "cost_a", 1: "cost_b"}


def test_losses_of_one_name_are_named_by_what_they_train():
    nets = nn.ModuleDict({"actor": nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)), "critic": nn.Linear(3, 1)})

    def update(net, optimizer):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()

    with NeuralDbg(nets) as dbg:
        optimizers = {name: torch.optim.SGD(net.parameters(), 0.1) for name, net in nets.items()}
        for _ in range(4):
            for name, net in nets.items():
                update(net, optimizers[name])
    assert loss_names(dbg.record()) == {0: "loss of actor", 1: "loss of critic"}


def test_losses_that_change_the_same_weights_are_numbered():
    net = nn.Linear(3, 1)

    def update(optimizer):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()

    with NeuralDbg(net) as dbg:
        for optimizer in [torch.optim.SGD(net.parameters(), 0.1), torch.optim.Adam(net.parameters())] * 3:
            update(optimizer)
    assert loss_names(dbg.record()) == {0: "loss of optimizer 0", 1: "loss of optimizer 1"}


def test_losses_that_are_differentiated_before_all_steps_are_their_mean():
    one, other = nn.Linear(3, 1), nn.Linear(3, 1)

    def train():
        first, second = (torch.optim.SGD(m.parameters(), 0.1) for m in (one, other))
        for _ in range(4):
            cost_a, cost_b = (m(torch.randn(4, 3)).square().mean() for m in (one, other))
            cost_a.backward()
            cost_b.backward()
            first.step()
            second.step()

    with NeuralDbg(nn.ModuleDict({"actor": one, "critic": other})) as dbg:
        train()
    assert loss_names(dbg.record()) == {0: "mean of cost_a and cost_b"}


def test_the_only_loss_is_called_loss():
    net = nn.Linear(3, 1)
    with NeuralDbg(net) as dbg:
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            cost = net(torch.randn(4, 3)).square().mean()
            cost.backward()
            optimizer.step()
    assert loss_names(dbg.record()) == {0: "loss"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loss", "the loss"),
        ("loss of critic", "the loss of critic"),
        ("mean of a and b", "the mean of a and b"),
        ("d_loss", "'d_loss'"),
        ("errD", "the loss 'errD'"),
    ],
)
def test_a_loss_is_named_in_a_sentence(name, words):
    assert loss_words(name) == words


@pytest.mark.parametrize("whole", [False, True])
def test_a_training_after_another_is_named_by_the_model_that_is_called_whatever_is_trained(whole):
    trunk = nn.Linear(3, 4)

    def fit(net, parameters):
        optimizer = torch.optim.SGD(parameters, 0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss = net(torch.randn(4, 3)).square().mean()
            loss.backward()
            optimizer.step()

    with NeuralDbg(discover=True) as dbg:
        first = nn.Sequential(trunk, nn.Linear(4, 2))
        fit(first, first.parameters())
        tuned = nn.Sequential(trunk, nn.Linear(4, 1))
        fit(tuned, tuned.parameters() if whole else tuned[1].parameters())
    assert loss_names(dbg.record()) == {0: "loss of net", 1: "loss of net2"}
