"""The traps of hook-based tools, one by one: each test is named after what would have gone wrong."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import math
import pickle
import subprocess
import sys
import warnings
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import capture_run
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg
from neuraldbg.capture import HookManager


def net(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*layers)


def step(model: nn.Module, x: torch.Tensor, opt: torch.optim.Optimizer | None = None) -> torch.Tensor:
    opt = opt or torch.optim.SGD(model.parameters(), lr=0.1)
    opt.zero_grad()
    out = model(x)
    out = out[0] if isinstance(out, tuple) else out
    out.square().mean().backward()
    opt.step()
    return out


def test_inplace_relu_and_add_after_a_layer_keep_their_gradient() -> None:  # traps 1, 2
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act, self.out = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.out(self.act(self.fc(x)))
            h += x
            return h

    torch.manual_seed(0)
    model, x = Block(), torch.randn(8, 4)
    pre = F.linear(x, model.fc.weight, model.fc.bias).detach().requires_grad_()
    (F.linear(F.relu(pre), model.out.weight, model.out.bias) + x).square().mean().backward()
    seen = capture_run(lambda: step(model, x), model)
    assert seen.norm("output_grad", "fc") == pytest.approx(float(pre.grad.norm()), rel=1e-5)


def test_an_activation_is_read_before_an_inplace_operation_changes_it() -> None:  # trap 3
    model, x = net(nn.Linear(4, 6), nn.ReLU(inplace=True)), torch.randn(8, 4)
    expected = float(model[0](x).detach().norm())
    seen = capture_run(lambda: step(model, x), model)
    assert seen.norm("activation", "0") == pytest.approx(expected, rel=1e-5)
    assert seen.stat("activation", "0", "min") < 0 <= seen.stat("activation", "1", "min")


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]


@pytest.mark.parametrize("wrap", ["dict", "list", "dataclass"])
def test_nested_outputs_are_walked(wrap: str) -> None:  # trap 4
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> object:
            h = self.fc(x)
            return {"dict": {"logits": h * 2, "hidden": (h,)}, "list": [h * 2, [h]], "dataclass": Output(h * 2, (h,))}[
                wrap
            ]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.inner(x)
            return out.logits if wrap == "dataclass" else out["logits"] if wrap == "dict" else out[0]

    model = Model()
    seen = capture_run(lambda: step(model, torch.randn(3, 4)), model)
    first, second = ("0", "1.0") if wrap == "list" else ("logits", "hidden.0")
    assert seen.norm("activation", "inner", name=first) == pytest.approx(
        2 * seen.norm("activation", "inner", name=second)
    )
    assert seen.seen("output_grad", "inner", name=first)


def test_inputs_given_by_keyword_are_read() -> None:  # trap 5
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, *, pixels: torch.Tensor) -> torch.Tensor:
            return self.fc(pixels)

    model, x = Model(), torch.randn(5, 4)

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        model(pixels=x).sum().backward()
        opt.step()

    seen = capture_run(program)
    assert seen.stat("input", "", "std", name="pixels") == pytest.approx(float(x.std(unbiased=False)), rel=1e-5)
    assert seen.scalars("batch_size") == [5]


def test_lstm_tuples_and_states_without_gradient() -> None:  # traps 6, 7
    model = nn.LSTM(3, 5, batch_first=True)
    seen = capture_run(lambda: step(model, torch.randn(2, 7, 3)), model)
    assert seen.seen("activation", "LSTM", name="0")
    assert seen.seen("activation", "LSTM", name="1.0")
    assert seen.seen("output_grad", "LSTM", name="0")
    assert not seen.seen("output_grad", "LSTM", name="1.1")
    assert math.isnan(seen.stat("output_grad", "LSTM", "rms", name="1.1"))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_counts_each_call_once(reentrant: bool) -> None:  # trap 8
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.a(x)
            h = checkpoint(lambda h: torch.relu(self.b(h)), h, use_reentrant=reentrant)
            return self.c(h)

    torch.manual_seed(0)
    model, x = Model(), torch.randn(6, 4)
    plain = copy.deepcopy(model)
    hidden = plain.b(plain.a(x))
    hidden.retain_grad()
    plain.c(torch.relu(hidden)).square().mean().backward()
    seen = capture_run(lambda: step(model, x), model)
    assert seen.stat("activation", "b", "total") == 6 * 8
    assert seen.norm("activation", "b") == pytest.approx(float(hidden.norm()), rel=1e-5)
    assert seen.norm("output_grad", "b") == pytest.approx(float(hidden.grad.norm()), rel=1e-5)


def test_a_reused_module_has_a_site_for_each_call() -> None:  # trap 9
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(torch.tanh(self.fc(x)))

    torch.manual_seed(0)
    model, x = Twice(), torch.randn(8, 4)
    first = model.fc(x)
    second = model.fc(torch.tanh(first))
    seen = capture_run(
        lambda: [step(model, x, opt) for opt in [torch.optim.SGD(model.parameters(), lr=0.0)] for _ in range(2)], model
    )
    for at in (0, 1):
        assert seen.norm("activation", "fc", step=at) == pytest.approx(float(first.norm()), rel=1e-5)
        assert seen.norm("activation", "fc", call=1, step=at) == pytest.approx(float(second.norm()), rel=1e-5)


def test_accumulation_is_one_step_with_the_final_gradient() -> None:  # trap 10
    model = net(nn.Linear(4, 3))
    batches = [torch.randn(5, 4) for _ in range(6)]
    norms = []

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for i, x in enumerate(batches):
            (model(x).square().mean() / 3).backward()
            if i % 3 == 2:
                norms.append(float(torch.stack([p.grad.norm() for p in model.parameters()]).norm()))
                opt.step()
                opt.zero_grad()

    seen = capture_run(program, model)
    assert len(seen.steps) == 2
    assert seen.scalars("backwards") == [3, 3]
    assert seen.scalars("batch_size") == [15, 15]
    assert seen.scalars("grad_norm") == pytest.approx(norms, rel=1e-5)
    assert seen.stat("activation", "0", "total") == 3 * 5 * 3
    assert seen.scalars("stale_grad")[1] == 0.0


def test_a_gradient_scaler_is_seen_through() -> None:  # trap 11
    model, x = net(nn.Linear(4, 3)), torch.randn(5, 4)
    plain = copy.deepcopy(model)
    loss = plain(x).square().mean()
    loss.backward()
    expected = float(torch.stack([p.grad.norm() for p in plain.parameters()]).norm())

    def program() -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        scaler.scale(model(x).square().mean() * float("inf")).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(opt)

    seen = capture_run(program, model)
    assert len(seen.steps) == 2
    assert seen.scalars("loss")[0] == pytest.approx(float(loss), rel=1e-5)
    assert seen.scalars("grad_norm")[0] == pytest.approx(expected, rel=1e-5)
    assert seen.scalars("loss_scale") == [1024.0, 512.0]
    assert seen.scalars("skipped") == [0, 1]
    assert seen.norm("output_grad", "0", step=0) > 100 * expected  # as it flowed: scaled


def test_the_gradient_is_the_clipped_one_and_the_clip_can_be_seen() -> None:  # trap 12
    model, x = net(nn.Linear(4, 3)), torch.randn(5, 4) * 100
    seen_norms = []

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        model(x).square().mean().backward()
        seen_norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        opt.step()

    seen = capture_run(program, model)
    assert seen.scalars("grad_norm") == pytest.approx([1.0], rel=1e-3)
    assert seen.scalars("unclipped_norm") == pytest.approx(seen_norms, rel=1e-5)


def test_gradients_set_to_none_and_replaced_parameters() -> None:  # trap 14
    model = net(nn.Linear(4, 4), nn.Linear(4, 2))

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, torch.randn(3, 4), opt)
        model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, torch.randn(3, 4), opt)

    seen = capture_run(program, model)
    assert [seen.seen("param_grad", "0", name="weight", step=i) for i in (0, 1)] == [True, True]
    assert seen.facts("params")[-1]["not_in_optimizer"] == []


@pytest.mark.parametrize("how", ["another parameter", "other data", "other data within the step"])
def test_a_weight_that_is_replaced_is_read_where_it_is_now(how: str) -> None:  # trap 14
    model = net(nn.Linear(4, 4), nn.Linear(4, 2))
    norms: list[tuple[float, float]] = []

    class Own(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            before = model[1].weight.detach().clone()
            super().step()
            if how == "other data within the step":
                model[1].weight.data = model[1].weight.data * 1.01
            norms.append((float(before.norm()), float((model[1].weight.detach() - before).norm())))

    def program() -> None:
        opt = Own(model.parameters(), lr=0.1)
        for i in range(8):
            step(model, torch.randn(3, 4), opt)
            if i == 4 and how == "another parameter":
                model[1].weight = nn.Parameter(model[1].weight.detach() * 5)
                opt = Own(model.parameters(), lr=0.1)
            elif i == 4 and how == "other data":
                model[1].weight.data = model[1].weight.data * 5

    seen = capture_run(program, model)
    for i, (weight, update) in enumerate(norms):
        assert seen.norm("param", "1", name="weight", step=i) == pytest.approx(weight, rel=1e-5)
        assert seen.norm("update", "1", name="weight", step=i) == pytest.approx(update, rel=1e-4)


def test_layers_that_never_fire_are_reported() -> None:  # trap 15
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.direct, self.unused = nn.MultiheadAttention(8, 2), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.direct.forward(self.attn(x, x, x)[0])

    model = Model()
    seen = capture_run(lambda: step(model, torch.randn(3, 2, 8)), model)
    assert seen.capture.coverage()["never_fired"] == ["attn.out_proj", "direct", "unused"]
    assert seen.seen("param_grad", "direct", name="weight")
    assert seen.facts("params")[0]["no_grad"] == ["unused.weight", "unused.bias"]


def test_double_backward_and_retained_graphs() -> None:  # trap 16
    model, x = net(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 4, requires_grad=True)

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        out = model(x)
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (out.square().mean() + (grad.norm(dim=1) - 1).square().mean()).backward()
        opt.step()

    plain = copy.deepcopy(model)
    out = plain(x)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (out.square().mean() + (grad.norm(dim=1) - 1).square().mean()).backward()
    seen = capture_run(program, model)
    assert seen.norm("param_grad", "0", name="weight") == pytest.approx(float(plain[0].weight.grad.norm()), rel=1e-5)


def test_a_closure_optimizer_is_one_step_of_several_backwards() -> None:  # trap 16
    model, x, y = net(nn.Linear(4, 1)), torch.randn(20, 4), torch.randn(20, 1)

    def program() -> None:
        opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)
        for _ in range(2):

            def closure() -> torch.Tensor:
                opt.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            opt.step(closure)

    with torch.no_grad():
        first = float(F.mse_loss(model(x), y))
    seen = capture_run(program, model)
    assert len(seen.steps) == 2
    assert all(count >= 2 for count in seen.scalars("backwards"))
    assert seen.scalars("loss")[0] == pytest.approx(first)
    assert seen.seen("update", "0", name="weight")


def test_odd_tensors_are_skipped() -> None:  # trap 17
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.emb = nn.Linear(4, 4), nn.Embedding(10, 4, sparse=True)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            h = self.fc(x) + self.emb(torch.arange(len(x)))
            return {
                "h": h,
                "ids": h.argmax(-1),
                "empty": h[:0],
                "complex": torch.complex(h, h),
                "meta": torch.empty(2, device="meta"),
            }

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.odd(x)["h"]

    model = Model()
    seen = capture_run(lambda: step(model, torch.randn(3, 4)), model)
    assert {s.name for s in seen.layout.sites if s.kind == "activation" and s.module == "odd" and s.dtype} == {"h"}
    assert seen.seen("param_grad", "odd.emb", name="weight")  # a sparse gradient: its values


def test_function_transforms_pass_through() -> None:  # trap 17
    model, x = net(nn.Linear(4, 2)), torch.randn(5, 4)
    params = dict(model.named_parameters())

    def loss(p: dict, one: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, p, (one.unsqueeze(0),)).square().sum()

    def program() -> None:
        per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, x)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for name, p in model.named_parameters():
            p.grad = per_sample[name].mean(0).detach()
        opt.step()

    seen = capture_run(program, model)
    assert len(seen.steps) == 1
    assert seen.norm("param_grad", "0", name="weight") > 0


def test_half_precision_sums_are_wide() -> None:  # trap 18
    model = nn.Sequential(nn.Linear(4, 500, dtype=torch.float16))
    with torch.no_grad():
        model[0].weight.fill_(0.0)
        model[0].bias.fill_(100.0)
    seen = capture_run(lambda: step(model, torch.ones(80, 4, dtype=torch.float16)), model)
    assert seen.stat("activation", "0", "rms") == pytest.approx(100.0)
    assert seen.layout.sites[seen.row("activation", "0")].dtype == "float16"


def test_nan_and_inf_are_counted_apart_from_the_moments() -> None:  # trap 19
    class Poison(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[0, 0], x[1, 1] = float("nan"), float("inf")
            return x

    model, x = nn.Sequential(nn.Linear(4, 4), Poison()), torch.randn(5, 4)
    out = model(x)
    finite = out[out.isfinite()].double()
    seen = capture_run(lambda: step(model, x), model)
    assert seen.stat("activation", "1", "nonfinite") == 2
    assert seen.stat("activation", "1", "mean") == pytest.approx(float(finite.mean()), rel=1e-5)
    assert seen.stat("activation", "1", "std") == pytest.approx(float(finite.std(unbiased=False)), rel=1e-5)
    assert seen.stat("activation", "1", "max") == pytest.approx(float(finite.max()))
    assert seen.scalars("loss_nonfinite") == [1]


def test_copies_and_pickles_of_a_watched_model_are_inert() -> None:  # trap 21
    model = net(nn.Linear(4, 4), nn.ReLU())
    copies: list[nn.Module] = []

    def program() -> None:
        copies.append(copy.deepcopy(model))
        buffer = io.BytesIO()
        torch.save(model, buffer)
        copies.append(torch.load(io.BytesIO(buffer.getvalue()), weights_only=False))
        copies.append(pickle.loads(pickle.dumps(model)))
        for each in copies:
            step(each, torch.randn(3, 4))
        step(model, torch.randn(3, 4))

    seen = capture_run(program, model)
    assert len(seen.steps) == 1
    for each in copies:
        assert each(torch.randn(2, 4)).shape == (2, 4)


def test_a_saved_model_loads_without_this_package(tmp_path) -> None:  # trap 21
    model = net(nn.Linear(4, 4))
    capture_run(lambda: torch.save(model, tmp_path / "model.pt"), model)
    code = (
        "import sys, torch; sys.modules['neuraldbg'] = None\n"
        f"m = torch.load(r'{tmp_path / 'model.pt'}', weights_only=False); print(m(torch.ones(1, 4)).shape[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "4", done.stderr


def test_nothing_keeps_the_graph_alive() -> None:  # trap 21
    model = net(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)

    def graphs() -> int:
        gc.collect()
        return sum(1 for o in gc.get_objects() if type(o) is torch.Tensor and o.grad_fn is not None)

    counts, before = [], graphs()  # another test's traceback may hold some

    def program() -> None:
        for _ in range(12):
            step(model, torch.randn(16, 64), opt)
            counts.append(graphs() - before)

    capture_run(program, model)
    assert set(counts) == {0}


def test_tied_weights_are_one_site_with_two_names() -> None:  # trap 22
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.head.weight = self.emb.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.emb(x))

    model = Tied()
    seen = capture_run(lambda: step(model, torch.randint(0, 10, (6,))), model)
    assert seen.facts("params")[0]["tied"] == [["emb.weight", "head.weight"]]
    assert sum(1 for s in seen.layout.sites if s.kind == "param") == 1


def test_no_hook_synchronises(monkeypatch: pytest.MonkeyPatch) -> None:  # trap 23
    """On a device, everything between forward and the step's end is enqueued: no .item(), no copy to the host."""
    from neuraldbg.capture.statistics import operation

    table = torch.zeros(4, operation.WIDTH, dtype=torch.float64)
    table[:, operation.MIN], table[:, operation.MAX] = float("inf"), -float("inf")
    for name in ("item", "cpu", "tolist", "numpy", "__bool__", "__float__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_, **__: pytest.fail("synchronised"))
    x = torch.tensor([1.0, 0.0, float("nan"), -3.0, float("inf")])
    operation.observe_device(x, table, 1, 65536)
    operation.observe_device(x, table, 1, 65536)
    monkeypatch.undo()
    assert table[1].tolist() == [10, 10, 4, -4.0, 20.0, -3.0, 1.0, 2, 0, 0, 0]


def test_errors_of_ours_never_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:  # trap 29
    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)
    model = net(nn.Linear(4, 4))

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("neuraldbg.capture.statistics.table.Table.observe", broken)
    seen = capture_run(lambda: [step(model, torch.randn(3, 4)) for _ in range(3)], model)
    coverage = seen.capture.coverage()
    assert coverage["errors"] > 0
    assert any("ZeroDivisionError" in note for note in coverage["notes"])


def test_the_loss_is_the_tensor_given_to_backward() -> None:  # trap 27
    model, x = net(nn.Linear(4, 4)), torch.randn(3, 4)

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(x).square().mean() * float("nan")
        loss.backward()
        loss = torch.nan_to_num(loss)  # what a trainer would log
        opt.step()

    seen = capture_run(program, model)
    assert math.isnan(seen.scalars("loss")[0])
    assert seen.scalars("loss_nonfinite") == [1]


def test_a_lost_fast_path_is_said() -> None:  # trap 28
    said = []
    for compiled in (False, True):  # hooks, which switch it off, are set only where something is compiled
        model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        if compiled:
            torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(1))
        with warnings.catch_warnings(), contextlib.suppress(UserWarning):
            warnings.simplefilter("ignore")
            seen = capture_run(lambda model=model: step(model, torch.randn(2, 3, 8)), model)
        said.append(any("fast path" in note for note in seen.capture.coverage()["notes"]))
    torch._dynamo.reset()
    assert said == [False, True]


def test_a_hook_manager_by_hand_sees_the_whole_batch() -> None:
    model, x = net(nn.Linear(4, 3)), torch.randn(7, 4)
    observer = HookManager().attach(model)
    try:
        observer.reset_step()
        out = model(x)
        out.square().mean().backward()
        assert observer.act_norms == {"0": pytest.approx(float(out.norm()), rel=1e-5)}
        total = float(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        assert observer.grad_norms == {"0": pytest.approx(total, rel=1e-5)}
    finally:
        observer.detach()


def test_a_layer_that_is_only_called_without_gradients_was_called():
    torch.manual_seed(0)
    teacher, student = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)
    both = nn.ModuleDict({"teacher": teacher, "student": student, "unused": nn.Linear(2, 2)})
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    with NeuralDbg(both, optimizer, overhead=None) as dbg:
        for _ in range(3):
            x = torch.randn(8, 4)
            with torch.no_grad():
                target = teacher(x)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(student(x), target).backward()
            optimizer.step()
    coverage = dbg.record().info.coverage
    assert coverage["without_grad"] == ["teacher.0", "teacher.1"]
    assert coverage["never_fired"] == ["unused"]
