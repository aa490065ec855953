"""What the readers of wiring find in real trainings, and that they leave nothing behind and change nothing."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import CapturedRun, capture_run
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from neuraldbg import NeuralDbg
from neuraldbg.capture.experiments.finite_differences import compare

X = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


def train(model: nn.Module, steps: int = 5, loss_of: Any = None, after: Any = None, extra: Any = ()) -> None:
    optimizer = torch.optim.SGD([*model.parameters(), *extra], 0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(X), Y) if loss_of is None else loss_of(model)
        loss.backward()
        optimizer.step()
        if after is not None:
            after(step)


def fact(seen: CapturedRun, key: str) -> dict[str, Any]:
    """The newest version, also from what only the end of the run could tell."""
    return seen.facts(key)[-1]


class Listed(nn.Module):
    def __init__(self, hold: Any) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(8, 8), nn.Linear(8, 1)
        self.held = hold()

    def used(self) -> list[Any]:
        return list(self.held.values()) if isinstance(self.held, dict) else list(self.held)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for layer in self.used():
            x = x @ layer if isinstance(layer, Tensor) else torch.tanh(layer(x))
        out: Tensor = self.head(x)
        return out


HOLDERS = {
    "list": (lambda: [nn.Linear(8, 8), nn.Linear(8, 8)], "held[0]", "list"),
    "tuple": (lambda: (nn.Linear(8, 8), nn.Linear(8, 8)), "held[0]", "tuple"),
    "dict": (lambda: {"a": nn.Linear(8, 8)}, "held['a']", "dict"),
    "parameters": (lambda: [nn.Parameter(torch.randn(8, 8))], "held[0]", "list"),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_hidden_layers_are_named_as_the_program_writes_them(kind):
    hold, layer, how = HOLDERS[kind]
    model = Listed(hold)
    found = fact(capture_run(lambda: train(model), model), "hidden")["weights"]
    assert (found[0]["layer"], found[0]["how"], found[0]["owner"]) == (layer, how, f"Listed.{layer}")
    assert found[0]["seen"] >= 3
    assert not found[0]["moved"]
    assert all(weight["feeds"] == ["head"] for weight in found)


def test_nothing_is_hidden_if_an_optimizer_holds_it_or_a_module_list_does():
    model = Listed(lambda: [nn.Linear(8, 8)])
    extra = [p for layer in model.held for p in layer.parameters()]
    assert not capture_run(lambda: train(model, extra=extra), model).facts("hidden")
    model = Listed(lambda: nn.ModuleList([nn.Linear(8, 8)]))
    assert not capture_run(lambda: train(model), model).facts("hidden")


def test_a_hidden_weight_that_the_program_moves_by_hand_is_told_to_move():
    model = Listed(lambda: [nn.Linear(8, 8)])

    def by_hand(step: int) -> None:
        with torch.no_grad():
            for p in model.held[0].parameters():
                p.sub_(0.01)

    found = fact(capture_run(lambda: train(model, after=by_hand), model), "hidden")["weights"]
    assert all(weight["moved"] for weight in found)


def test_points_that_are_differentiated_are_no_weights():
    class Pinn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.points = nn.Linear(1, 1), torch.linspace(0, 1, 9)[:, None].requires_grad_()

        def loss(self) -> Tensor:
            u = torch.tanh(self.net(self.points))
            (slope,) = torch.autograd.grad(u.sum(), self.points, create_graph=True)
            return (slope - u).square().mean()

    model = Pinn()
    seen = capture_run(lambda: train(model, loss_of=lambda m: m.loss()), model)
    assert all(not value["weights"] for value in seen.facts("hidden"))


class Cut(nn.Module):
    def __init__(self, cut: Any, off: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.cut, self.off = cut, off

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad() if self.off else contextlib.nullcontext():
            x = self.b(self.a(x))
        out: Tensor = self.c(self.cut(x))
        return out


CUTS = {
    "detach": (lambda x: x.detach(), "shared"),
    "data": (lambda x: x.data, "shared"),
    "numpy": (lambda x: torch.from_numpy(x.detach().numpy()), "shared"),
    "tensor": (lambda x: torch.tensor(x.tolist()), "shape"),
    "relu": (lambda x: torch.relu(x).detach(), "shape"),
}


@pytest.mark.parametrize("kind", CUTS)
def test_a_cut_is_found_between_two_layers_with_its_line(kind):
    cut, how = CUTS[kind]
    model = Cut(cut)
    found = fact(capture_run(lambda: train(model), model), "cuts")
    assert (found["cut"]["after"], found["cut"]["before"], found["cut"]["how"]) == ("b", "c", how)
    assert (found["unreached"], found["reached"]) == (["a", "b"], ["c"])
    file, line, code = found["cut"]["place"]
    assert file == __file__
    assert "self.c(self.cut(x))" in code
    assert line > 0


def test_layers_with_gradients_off_are_named():
    model = Cut(lambda x: x, off=True)
    assert set(fact(capture_run(lambda: train(model), model), "cuts")["no_grad"]) == {"a", "b"}


def test_a_whole_graph_has_no_cut():
    model = Cut(lambda x: x)
    found = fact(capture_run(lambda: train(model), model), "cuts")
    assert found["cut"] is None
    assert not found["no_grad"]
    assert not capture_run(lambda: train(model), model).facts("dry")


def test_a_loss_without_a_graph_is_counted():
    model = Cut(lambda x: x)

    def loss_of(model: nn.Module) -> Tensor:
        return torch.tensor(F.mse_loss(model(X), Y).item(), requires_grad=True)

    found = fact(capture_run(lambda: train(model, loss_of=loss_of), model), "dry")
    assert found["dry"] == found["backwards"] == found["leaf"] >= 3
    assert found["output_grad"] is True
    assert found["place"][0] == __file__


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.tok(x))
        return out


def spell(model: nn.Module) -> Tensor:
    ids = torch.arange(12)
    return F.cross_entropy(model(ids), ids.roll(1))


def test_a_tie_by_copy_drifts_and_a_real_one_is_no_pair():
    model = Words()
    model.head.weight = nn.Parameter(model.tok.weight.detach().clone())
    (pair,) = fact(capture_run(lambda: train(model, loss_of=spell), model), "ties")["pairs"]
    assert (pair["a"], pair["b"], pair["started_equal"], pair["equal"]) == ("tok.weight", "head.weight", True, False)
    assert pair["trained"] == [True, True]
    assert pair["distance"] > 0
    model = Words()
    model.head.weight = model.tok.weight
    assert not capture_run(lambda: train(model, loss_of=spell), model).facts("ties")
    assert not capture_run(lambda: train(Words(), loss_of=spell)).facts("ties")


class Encoder(nn.Module):
    """As wide as it has positions; a library's configuration says by default that it ties its words."""

    def __init__(self, classes: int, words: int = 12) -> None:
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=True)
        self.tok, self.positions = nn.Embedding(words, 8), nn.Embedding(8, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8, bias=False)])
        self.head = nn.Linear(8, classes, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) + self.positions(ids % 8)
        out: Tensor = self.head(self.layers[0](x).tanh())
        return out


@pytest.mark.parametrize(
    ("classes", "words", "pairs"), [(12, 12, [("tok.weight", "head.weight")]), (3, 12, []), (3, 8, [])]
)
def test_a_declaration_speaks_of_words_and_of_the_head(classes, words, pairs):
    """And not of positions and a projection of the same shape."""

    def classify(model: nn.Module) -> Tensor:
        ids = torch.arange(words)
        return F.cross_entropy(model(ids), ids % classes)

    seen = capture_run(lambda: train(Encoder(classes, words), loss_of=classify))
    assert [(pair["a"], pair["b"]) for one in seen.facts("ties")[-1:] for pair in one["pairs"]] == pairs


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        for part in range(3):
            model(X[part * 8 : part * 8 + 8])


def test_an_average_that_is_never_updated_is_told_from_one_that_is():
    def program(update: bool) -> None:
        model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
        averaged = AveragedModel(model)

        def after(step: int) -> None:
            if update:
                averaged.update_parameters(model)
            evaluate(averaged)

        train(model, steps=40, after=after)

    still, kept = (fact(capture_run(lambda update=update: program(update)), "copies") for update in (False, True))
    assert (still["kind"], still["averaged"], still["constant"], still["began_equal"]) == (
        "AveragedModel", 0, True, True,
    )  # fmt: skip
    assert (kept["averaged"] > 3, kept["constant"], kept["follows"]) == (True, False, False)


def test_validation_in_training_mode_is_counted_in_bursts():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))
    seen = capture_run(lambda: train(model, 20, after=lambda i: evaluate(model) if i % 5 == 4 else None), model)
    found = fact(seen, "evaluation_modes")
    assert (found["train_bursts"], found["eval_bursts"], found["longest"]) == (3, 0, 3)
    assert (found["norms"], found["dropout"]) == (["1"], ["2"])


class Cube(torch.autograd.Function):
    factor = 3.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return Cube.factor * x**2 * grad


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        return grad


def with_function(function: Any) -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(function.apply(self.a(x)))
            return out

    return Net()


@pytest.mark.parametrize(("factor", "error"), [(3.0, 0.0), (1.5, 0.5)])
def test_a_backward_is_compared_with_differences(monkeypatch, factor, error):
    monkeypatch.setattr(Cube, "factor", factor)
    model, forward = with_function(Cube), vars(Cube)["forward"]
    (found,) = capture_run(lambda: train(model), model).facts("functions")
    assert (found["name"], found["judged"], found["layer"]) == ("Cube", True, "b")
    assert found["error"] == pytest.approx(error, abs=1e-6)
    assert vars(Cube)["forward"] is forward


def test_what_passes_the_gradient_through_is_not_judged():
    model = with_function(Clip)
    (found,) = capture_run(lambda: train(model), model).facts("functions")
    assert not found["judged"]


def test_differences_agree_with_a_known_derivative():
    x = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64).requires_grad_()
    judged = compare(Cube, [x])
    assert judged.judged
    assert judged.numeric == pytest.approx(judged.analytic, rel=1e-6)


def everything(watched: Any) -> list[Any]:
    """A training with all that these readers look at; returns its end."""
    torch.manual_seed(3)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.drop, self.b = nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1)
            self.norm, self.hidden = nn.BatchNorm1d(8), [nn.Linear(8, 8)]

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.hidden[0](Cube.apply(torch.tanh(self.a(x)))))
            out: Tensor = self.b(self.drop(x))
            return out

    model = Net()
    ema = copy.deepcopy(model)
    with watched(model):
        train(model, 12, after=lambda i: (evaluate(ema), evaluate(model)) if i % 4 == 3 else None)
    return [*model.state_dict().values(), *ema.state_dict().values(), torch.get_rng_state()]


def test_the_training_stays_bitwise_the_same():
    bare = everything(lambda model: contextlib.nullcontext())
    for watched in (NeuralDbg, lambda model: NeuralDbg(discover=True)):
        assert all(torch.equal(one, other) for one, other in zip(bare, everything(watched), strict=True))


def test_no_tensor_of_the_program_is_kept():
    model = Listed(lambda: [nn.Linear(8, 8)])
    outputs: list[weakref.ref[Tensor]] = []

    def loss_of(model: nn.Module) -> Tensor:
        output = model(X.clone())
        outputs.append(weakref.ref(output))
        return F.mse_loss(output, Y)

    with NeuralDbg(model):
        train(model, 4, loss_of)
        gc.collect()
        assert [ref() for ref in outputs] == [None] * 4
