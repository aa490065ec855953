"""Experiments find what they look for, leave alone what is meant, and change nothing of the user's run."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest
import torch
from tests.capture.captured_run import capture_run
from tests.faults.kit import CharGpt, ConvNet, Mlp, RowLstm, batches, char_batches, char_loss, digits, fit, flat_digits
from tests.session.seeded_trainings import same
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.capture.experiments.sample_mixing import confined
from neuraldbg.nouns.facts.experiment import Attempt


def experiments(program: Any, **settings: Any) -> dict[str, dict[str, Any]]:
    return {fact["name"]: fact for fact in capture_run(program, **settings).facts("experiment")}


def trained(model: nn.Module, data: Any, loss: Any = F.cross_entropy) -> Any:
    return lambda: fit(model, torch.optim.Adam(model.parameters(), 1e-3), data, loss)


# ---------------------------------------------------------------- what they find


def test_a_healthy_classifier_passes_every_experiment():
    found = experiments(trained(ConvNet(0.2), batches(digits(), 4)))
    assert found["eval_random"]["random"] is False
    assert found["batch_mixing"]["mixed"] is False
    assert "one target for each" in found["batch_mixing"]["why_batch"]
    assert found["input_ignored"]["ignored"] is False
    assert "causality" not in found


def test_a_causal_model_does_not_leak_and_one_without_mask_does():
    assert experiments(trained(CharGpt(), char_batches(4), char_loss))["causality"]["leaks"] is False

    class Smoothed(CharGpt):
        def forward(self, x: Tensor) -> Tensor:
            h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
            return self.head(self.norm(self.blocks[0](h + 0.5 * h.roll(-1, 1))))

    found = experiments(trained(Smoothed(), char_batches(4), char_loss))["causality"]
    assert found["leaks"] is True
    assert 0 < found["share"] < 0.2  # one position looks one ahead across the cut


@pytest.mark.parametrize("sees", [False, True])
def test_time_may_come_first(sees: bool):
    """Ids as (T, N) and flattened targets, as modules of torch expect them without ``batch_first``."""

    class TimeFirst(CharGpt):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x.T)
            return (out + out.flip(1) if sees else out).transpose(0, 1)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out.reshape(-1, out.shape[-1]), y)

    turned = [(x.T.contiguous(), y.reshape(x.shape).T.reshape(-1)) for x, y in char_batches(4)]
    assert experiments(trained(TimeFirst(), turned, loss))["causality"]["leaks"] is sees


@pytest.mark.parametrize("inside", [False, True])
def test_a_target_that_is_a_column_of_the_table(inside: bool):
    def table() -> tuple[Tensor, Tensor]:
        x = torch.randn(32, 5)
        y = (x[:, :1] + torch.randn(32, 1) > 0).float()
        return (torch.cat([x[:, :4], y], 1) if inside else x), y

    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    data = [table() for _ in range(4)]
    found = experiments(trained(model, data, F.binary_cross_entropy_with_logits))["target_inside"]
    assert found["inside"] is inside
    assert found.get("column") == (4 if inside else None)


def test_targets_that_the_model_shifts_by_itself():
    """As in language models of transformers: labels are the ids, and the loss is inside."""

    class Inside(CharGpt):
        def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = super().forward(input_ids)
            logits = logits + logits.flip(1)
            return {"loss": F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), "logits": logits}

    def program() -> None:
        model = Inside()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for ids, _ in char_batches(4):
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids)["loss"].backward()
            optimizer.step()

    assert experiments(program)["causality"]["leaks"] is True


def test_functional_dropout_is_seen_with_its_line():
    class Dropping(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(F.dropout(x, 0.5))

    found = experiments(trained(Dropping(), batches(flat_digits(), 4)))["eval_random"]
    assert found["random"] is True
    assert "F.dropout(x, 0.5)" in found["draws"][0]["where"][2]


def test_layer_and_shape_of_a_recurrence_over_the_batch():
    class Net(RowLstm):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(8, 48)

    found = experiments(trained(Net(), batches(digits(), 4)))["batch_mixing"]
    assert found["pattern"] == "later"
    assert found["layers"] == [{"layer": "rnn", "type": "LSTM", "shape": [64, 8, 8]}]


class Rows(RowLstm):
    """Rows of a picture as steps of time: their axes may be told apart, or not."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.rnn = nn.LSTM(8, 48, batch_first=order != "time first")

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1).reshape(-1, 8, 8)
        if self.order == "cut":
            out = self.rnn(x[:, :6].reshape(6, len(x), 8).transpose(0, 1))[0]
        elif self.order == "right":
            out = self.rnn(x)[0]
        else:
            out = self.rnn(x.transpose(0, 1))[0].transpose(0, 1)
        return self.head(out[:, -1])


@pytest.mark.parametrize(
    ("order", "pattern", "place"),
    [
        ("right", "none", None),
        ("time first", "none", None),
        ("batch first", "later", {"layer": "rnn", "type": "LSTM", "at": "output"}),
        ("cut", "some", {"layer": "rnn", "type": "LSTM", "at": "input"}),
    ],
)
def test_the_layer_where_samples_meet(order: str, pattern: str, place: dict[str, str] | None):
    found = experiments(trained(Rows(order), batches(digits(), 4)))["batch_mixing"]
    met = found["place"] and {name: found["place"][name] for name in ("layer", "type", "at")}
    assert (found["pattern"], met, found["layers"]) == (pattern, place, [])
    if order == "cut":
        assert (found["place"]["op"], found["place"]["swapped"]) == ("unsafe_view", False)
        assert "x[:, :6].reshape(6, len(x), 8)" in found["place"]["where"][2]


class Turned(nn.Module):
    """Predicts the next character; time and samples may change places on the way to the output."""

    def __init__(self, *, turned: bool) -> None:
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(64, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 64)
        self.turned = turned

    def forward(self, x: Tensor) -> Tensor:
        h = self.rnn(self.emb(x))[0]
        if self.turned:
            h = h.transpose(0, 1).reshape(h.shape)
        return self.out(h)


@pytest.mark.parametrize("samples", [12, 16])
@pytest.mark.parametrize("turned", [False, True])
def test_mixed_samples_are_told_from_a_visible_future(samples: int, turned: bool):
    """With 16 samples of 16 characters the axes can only be told apart by what each output depends on."""
    text = torch.randint(64, (4, samples, 17))
    data = [(x[:, :-1], x[:, 1:]) for x in text]
    loss = lambda out, y: F.cross_entropy(out.transpose(1, 2), y)  # noqa: E731 (an argument)
    found = experiments(trained(Turned(turned=turned), data, loss))["causality"]
    assert (found["leaks"], found["across"]) == (turned, turned)
    if turned:
        assert found["place"]["swapped"] is (samples == 16)
        assert "h.transpose(0, 1).reshape(h.shape)" in found["place"]["where"][2]


@pytest.mark.parametrize("sees", [False, True])
def test_the_loss_tells_the_order_of_axes_of_one_size(sees: bool):
    """The model gives (time, batch, classes), and the loss turns them back: sizes alone would say that it is mixed."""

    class TimeFirst(Turned):
        def forward(self, x: Tensor) -> Tensor:
            h = self.rnn(self.emb(x))[0]
            return self.out(h + h.flip(1) if sees else h).transpose(0, 1)

    text = torch.randint(64, (4, 16, 17))
    data = [(x[:, :-1], x[:, 1:]) for x in text]
    loss = lambda out, y: F.cross_entropy(out.permute(1, 2, 0), y)  # noqa: E731 (an argument)
    found = experiments(trained(TimeFirst(turned=False), data, loss))["causality"]
    assert found["leaks"] is sees


def test_a_part_of_a_sample_may_lie_along_any_axis():
    moved = torch.zeros(6, 4, 3)
    assert confined(moved, 1, 3)
    moved[2:4] = 1.0  # 3 samples of 2 positions each, one after the other
    assert confined(moved, 1, 3)
    assert not confined(moved, 2, 3)
    assert not confined(moved, 1, 4)
    inner = torch.zeros(6, 4)
    inner[[1, 4]] = 1.0  # positions outside, samples inside
    assert confined(inner, 1, 3)
    assert not confined(inner, 1, 2)
    assert confined(torch.eye(3)[0], 0, 3)


def test_the_layer_where_the_input_gets_lost():
    class Net(Mlp):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(1)  # of one value: always zero

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(self.norm(x.mean(1, keepdim=True)).expand(-1, 64))

    found = experiments(trained(Net(), batches(flat_digits(), 4)))["input_ignored"]
    assert (found["ignored"], found["layer"]) == (True, "norm")


class Forgetful(nn.Module):
    """Reads its input, and then 150 zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.RNN(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 8, 8)
        return self.head(self.rnn(torch.cat([x, x.new_zeros(len(x), 150, 8)], 1))[0][:, -1])


def test_an_input_that_fades_is_not_ignored():
    found = experiments(trained(Forgetful(), batches(flat_digits(), 4)))["input_ignored"]
    assert (found["ignored"], found["faded"]) == (False, True)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_no_backward_pass_is_made_where_the_program_hears_of_each():
    heard = []
    handle = nn.modules.module.register_module_full_backward_hook(lambda *_: heard.append(1))
    try:
        experiments(trained(Forgetful(), batches(flat_digits(), 4)))
    finally:
        handle.remove()
    assert len(heard) == 4 * 3  # in the steps' own passes: of the model and its two layers


def test_an_input_that_is_wiped_between_layers_is_ignored():
    class Wiped(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(0.0 * x + 1.0)

    found = experiments(trained(Wiped(), batches(flat_digits(), 4)))["input_ignored"]
    assert (found["ignored"], found["layer"], found.get("faded")) == (True, None, None)


def test_a_collapsed_network_does_not_ignore_its_input():
    model = Mlp()
    with torch.no_grad():
        model.get_submodule("fc1").bias.fill_(-100.0)  # every unit is dead
    assert experiments(trained(model, batches(flat_digits(), 4)))["input_ignored"]["ignored"] is False


# ---------------------------------------------------------------- odd programs


class Kwargs(Mlp):
    def forward(self, batch: dict[str, Tensor], *, scale: float = 1.0) -> tuple[Tensor, dict[str, Tensor]]:
        out = super().forward(batch["pixels"]) * scale
        return out, {"again": out}


def kwargs_and_dicts() -> None:
    model = Kwargs()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for x, y in batches(flat_digits(), 4):
        optimizer.zero_grad()
        F.cross_entropy(model({"pixels": x}, scale=2.0)[0], y).backward()
        optimizer.step()


def lstm_with_a_state() -> None:
    model = nn.LSTM(8, 5, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    state = (torch.zeros(1, 16, 5), torch.zeros(1, 16, 5))
    for _ in range(4):
        optimizer.zero_grad()
        out, state = model(torch.randn(16, 6, 8), state)
        state = tuple(s.detach() for s in state)
        out.square().mean().backward()
        optimizer.step()


def test_nested_arguments_and_states_are_handed_on():
    found = experiments(kwargs_and_dicts)
    assert found["batch_mixing"]["judged"]
    assert not found["batch_mixing"]["mixed"]
    found = experiments(lstm_with_a_state)
    assert found["eval_random"] == {"id": "model:eval_random", "name": "eval_random", "model": "model", "judged": True,
                                    "random": False, "draws": []}  # fmt: skip


def test_a_model_called_in_parts_is_left_alone():
    def program() -> None:
        model = nn.ModuleDict({"body": nn.Linear(64, 16), "head": nn.Linear(16, 10)})
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for x, y in batches(flat_digits(), 4):
            optimizer.zero_grad()
            F.cross_entropy(model["head"](model["body"](x).relu()), y).backward()
            optimizer.step()

    found = experiments(program)
    assert all(not fact["judged"] and "parts" in fact["reason"] for fact in found.values())


def test_a_model_that_raises_in_eval_mode_is_unjudged():
    class Picky(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                raise NotImplementedError
            return super().forward(x)

    found = experiments(trained(Picky(), batches(flat_digits(), 4)))
    found.pop("target_inside", None)  # looks at the batch alone
    assert all(fact["reason"].endswith("(NotImplementedError)") for fact in found.values())


def test_nothing_is_tried_when_probes_are_off():
    assert experiments(trained(Mlp(), batches(flat_digits(), 4)), probes=False) == {}
    with NeuralDbg(discover=True, probes=False) as dbg:
        trained(Mlp(), batches(flat_digits(), 4))()
    assert not dbg.record().facts_of("experiment")


def test_the_twin_is_no_model_of_the_program():
    with NeuralDbg(discover=True) as dbg:
        trained(ConvNet(0.1), batches(digits(), 5))()
    assert len(dbg.record().info.models) == 1
    assert dbg.record().scalar("forwards").values.tolist() == [1.0] * 5
    assert not any(dbg.record().scalar("evals").values)


# ---------------------------------------------------------------- a guest


class Noisy(nn.Module):
    """Dropout, batch norm, noise of three generators, a count, a list and a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn, self.drop, self.fc2 = (
            nn.Linear(64, 16),
            nn.BatchNorm1d(16),
            nn.Dropout(0.3),
            nn.Linear(16, 10),
        )
        self.calls, self.sums = 0, []
        self.rng = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.sums.append(float(x.sum()))
        x = x + 0.01 * random.random() + 0.01 * float(np.random.rand())  # noqa: NPY002 (the generator that all share)
        x = x + 0.01 * torch.rand(1, generator=self.rng)
        return self.fc2(self.drop(self.bn(self.fc1(x)).relu()))


def course(watch: Any, make: Any = Noisy) -> dict[str, Any]:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    with watch(model):
        for x, y in batches(flat_digits(), 36, 16):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
    return {
        "losses": torch.stack(losses),
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "torch": torch.random.get_rng_state(),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "python": list(random.getstate()[1]),
        "calls": model.calls,
        "sums": model.sums,
        "own": model.rng.get_state(),
    }


@pytest.mark.parametrize("discover", [True, False])
def test_training_generators_and_side_effects_are_bitwise_the_same(discover: bool):
    bare = course(lambda model: contextlib.nullcontext())
    seen: list[NeuralDbg] = []

    def watch(model: nn.Module) -> NeuralDbg:
        seen.append(NeuralDbg(discover=True) if discover else NeuralDbg(model))
        return seen[-1]

    watched = course(watch)
    same(bare, watched)
    assert bare["calls"] == 36
    names = {fact.value["name"] for fact in seen[0].record().facts_of("experiment") if fact.value["judged"]}
    assert {"eval_random", "input_ignored"} <= names


def test_a_seed_for_cuda_that_waits_is_not_replaced(monkeypatch: pytest.MonkeyPatch):
    """Before CUDA is initialised ``torch.manual_seed`` leaves its seed for later; ours must not take that place."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    monkeypatch.setattr(torch, "manual_seed", seeded.append)
    trained(Mlp(), batches(flat_digits(), 4))
    experiments(trained(Mlp(), batches(flat_digits(), 4)))
    assert seeded == []


def test_an_experiment_stays_within_its_time():
    for make, data, loss in (
        (ConvNet(0.1), batches(digits(), 4), F.cross_entropy),
        (CharGpt(), char_batches(4), char_loss),
        (RowLstm(), batches(digits(), 4), F.cross_entropy),
    ):
        seen = capture_run(trained(make, data, loss))
        assert seen.steps[2].scalars["overhead"] < 1.0


# ---------------------------------------------------------------- one batch by heart


def deaf(x: Tensor) -> Tensor:
    """Labels that the inputs do not tell: the loss of the run does not fall, and a batch can be learnt by heart."""
    return torch.randn(len(x), 1)


def table(target: Any, rows: int = 32) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    return [(x, target(x)) for x in (torch.randn(rows, 5) for _ in range(40))]


def dense(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1), *more)


def one_batch(model: nn.Module, data: Any, loss: Any, lr: float = 1e-2) -> dict[str, Any] | None:
    def program() -> None:
        fit(model, torch.optim.Adam(model.parameters(), lr), data, loss)

    found = experiments(program).get("one_batch")
    return found and {**found, "attempts": [Attempt(*one) for one in found["attempts"]]}


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss])
def test_a_batch_is_learnt_by_heart_at_the_programs_rate(loss: Any):
    found = one_batch(dense(), table(deaf), loss)
    (attempt,) = found["attempts"]
    assert attempt.optimizer == "Adam"
    assert attempt.lr == 1e-2
    assert attempt.learnt is True
    assert attempt.last <= 0.3 * attempt.first


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (dense, F.binary_cross_entropy_with_logits),
        (lambda: dense(nn.Sigmoid()), F.binary_cross_entropy),
        (dense, lambda out, y: F.binary_cross_entropy(out.sigmoid(), y)),
        (lambda: dense(nn.Dropout(0.1)), F.binary_cross_entropy_with_logits),
    ],
)
def test_of_two_classes_too(model: Any, loss: Any):
    found = one_batch(model(), table(lambda x: (deaf(x) > 0).float()), loss)
    assert found["attempts"][0].last < 0.7 * found["attempts"][0].first


def test_a_rate_at_which_nothing_is_learnt_is_told_from_a_model_that_can_learn_nothing():
    slow = one_batch(dense(), table(deaf), F.mse_loss, lr=1e-7)
    assert [one.learnt for one in slow["attempts"]] == [False, True]
    assert slow["still"] == []
    dead = dense(nn.ReLU())
    dead[2].bias.data.fill_(-50)
    found = one_batch(dead, table(deaf), F.mse_loss)
    assert [one.learnt for one in found["attempts"]] == [False, False]
    assert found["attempts"][0].last == found["attempts"][0].first
    assert found["still"] == ["0", "2"]


def test_a_run_that_learns_is_not_tried():
    assert one_batch(dense(), table(lambda x: x[:, :1] + 3), F.mse_loss) is None


class Spike(nn.Module):
    """Passes what lies above a threshold that fresh weights do not reach."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x - 40.0)


def test_an_input_below_a_threshold_with_fresh_weights_only_is_not_ignored():
    def program(scale: float) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 64), Spike(), nn.Linear(64, 3))
        with torch.no_grad():
            model[0].weight.mul_(scale)
        return experiments(trained(model, [(torch.randn(32, 5), torch.arange(32) % 3) for _ in range(4)]))

    assert program(200.0)["input_ignored"]["ignored"] is False
    assert program(1.0)["input_ignored"]["ignored"] is True


def test_a_rate_of_another_rule_says_nothing_and_sparse_gradients_are_made_dense():
    def program() -> None:
        model = dense()
        fit(model, torch.optim.Adadelta(model.parameters()), table(deaf), F.mse_loss)

    (attempt,) = experiments(program)["one_batch"]["attempts"]
    assert attempt[:2] == ["Adam", 3e-3]

    def sparse() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(40, 8, sparse=True), nn.Flatten(), nn.Linear(24, 3))
        data = [(torch.randint(0, 40, (32, 3)), torch.randint(0, 3, (32,))) for _ in range(40)]
        fit(model, torch.optim.SGD(model.parameters(), 0.1), data, F.cross_entropy)

    assert experiments(sparse)["one_batch"]["judged"] is True
