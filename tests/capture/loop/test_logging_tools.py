"""What a program logs by a tool of its own is seen while a session runs, and the tool is left as it was.

TensorBoard's writer is the real one; so are those of the other tools where they are installed. Where they are not, a
module of the same name with the signatures of the real classes takes their place: it shows what our wrappers do with
such calls, and not that a later version of the tool still makes them.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest.stand_in import below
from neuraldbg.capture.loop import logging_tools
from neuraldbg.capture.loop.logging_tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("tensorboard")
from torch.utils.tensorboard import SummaryWriter


def train(log: Callable[[int, torch.Tensor], Any], steps: int = 6, model: nn.Module | None = None) -> list[float]:
    """Train a small model; ``log`` is called between the loss and the step."""
    torch.manual_seed(0)
    model = model or nn.Linear(3, 1)
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(16, 3)
    losses = []
    for step in range(steps):
        loss = (model(x) - 1.0).pow(2).mean()
        log(step, loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SummaryWriter]:
    with SummaryWriter(tmp_path / "train") as opened:
        yield opened


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Fail a test that leaves a wrapper in a tool."""
    yield
    assert [place for place, function in functions().items() if below(function) is not function] == []


def functions() -> dict[tuple[str, str, str], Any]:
    found = {}
    for tool in TOOLS:
        owner = getattr(sys.modules.get(tool.module), tool.owner, None)
        if isinstance(owner, type):
            found[tool.module, tool.owner, tool.name] = vars(owner).get(tool.name)
    return found


# -- TensorBoard ----------------------------------------------------------------------------------------------------


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_a_writer_is_seen_writes_the_same_and_trains_bitwise_the_same(tmp_path: Path) -> None:
    results = []
    for name in ("bare", "watched"):
        torch.manual_seed(3)
        with SummaryWriter(tmp_path / name) as writer:
            model = nn.Linear(3, 1)

            def log(step: int, loss: torch.Tensor, writer: SummaryWriter = writer) -> None:
                assert writer.add_scalar("loss", loss, global_step=step) is None
                writer.add_scalar(tag="keyword", scalar_value=np.float32(step))
                writer.add_scalars("both", {"a": step, "b": torch.tensor(2.0 * step)}, step)

            if name == "watched":
                with NeuralDbg(model) as dbg:
                    losses = train(log, 30, model)
            else:
                losses = train(log, 30, model)
        results.append((losses, model.weight.detach().clone(), torch.get_rng_state(), read_back(tmp_path / name)))
    bare, watched = results
    assert (watched[0], watched[3]) == (bare[0], bare[3])
    assert torch.equal(watched[1], bare[1])
    assert torch.equal(watched[2], bare[2])
    assert dbg.metrics == ("both/a", "both/b", "keyword", "loss")
    assert dbg.metric("loss").values.tolist() == watched[0]
    assert dbg.metric("both/b").values.tolist() == [2.0 * step for step in range(30)]
    assert dbg.metric("keyword").steps.tolist() == list(range(30))


def test_a_second_writer_that_uses_a_name_puts_its_folder_in_front(writer: SummaryWriter, tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "val") as other, NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: [writer.add_scalar("loss", step), other.add_scalar("loss", 10 * step)])
    assert dbg.metrics == ("loss", "val/loss")
    assert dbg.metric("val/loss").values.tolist() == [10.0 * step for step in range(6)]


def test_what_is_no_number_is_passed_over_and_an_error_of_the_tool_is_the_programs(writer: SummaryWriter) -> None:
    with NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: writer.add_scalar("loss", loss))
        for wrong in ("text", torch.ones(3), None):
            with pytest.raises((NotImplementedError, AssertionError, ValueError, TypeError)):
                writer.add_scalar("wrong", wrong)
        with pytest.raises(TypeError, match="add_scalar"):
            writer.add_scalar()
        writer.add_scalar("after", 1.0)
    assert dbg.metrics == ("after", "loss")
    assert dbg.record().info.coverage["errors"] == 0


def test_sessions_nest_and_end_in_any_order(writer: SummaryWriter) -> None:
    original = vars(SummaryWriter)["add_scalar"]
    one, two = NeuralDbg(discover=True), NeuralDbg(discover=True)
    one.start()
    two.start()
    train(lambda step, loss: writer.add_scalar("both", step))
    one.stop()
    train(lambda step, loss: writer.add_scalar("second", step))
    two.stop()
    assert vars(SummaryWriter)["add_scalar"] is original
    assert (one.metrics, two.metrics) == (("both",), ("both", "second"))


def test_threads_log_beside_each_other(writer: SummaryWriter) -> None:
    with NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: None)
        threads = [threading.Thread(target=writer.add_scalar, args=(f"t{k}", k)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {name: dbg.metric(name).at(5) for name in dbg.metrics} == {f"t{k}": float(k) for k in range(8)}


def test_an_error_of_ours_does_not_reach_the_program(
    writer: SummaryWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")

    def broken(given: object) -> Iterator[tuple[str, Any]]:
        raise RuntimeError("ours")
        yield "", 0

    broken_tools = tuple(tool._replace(read=broken) for tool in TOOLS)
    monkeypatch.setattr(logging_tools, "TOOLS", broken_tools)
    with NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: writer.add_scalar("loss", loss, step))
    writer.flush()
    assert len(read_back(tmp_path / "train")["loss"]) == 6
    assert dbg.record().info.coverage["errors"] == 6
    assert dbg.metrics == ()


# -- tools that may be absent ---------------------------------------------------------------------------------------


class Stand:
    """Makes modules for tools that are not installed. What their functions got is in ``seen``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self.seen = monkeypatch, []

    def module(self, name: str, **members: Any) -> ModuleType:
        """Put a module into ``sys.modules``, with the packages above it."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if path not in sys.modules:
                self._patch.setitem(sys.modules, path, ModuleType(path))
        vars(sys.modules[name]).update(members)
        return sys.modules[name]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def absent(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is not None, reason=f"{package} itself is installed")


def wandb_of(stand: Stand) -> tuple[ModuleType, type]:
    class Run:
        def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> str:
            stand.seen.append((data, step, commit))
            return "logged"

    stand.module("wandb.sdk.wandb_run", Run=Run)
    return stand.module("wandb", Run=Run, run=None), Run


@absent("wandb")
@pytest.mark.parametrize("early", [True, False], ids=["run_before_the_session", "run_within_it"])
def test_wandb(stand: Stand, early: bool) -> None:
    wandb, kind = wandb_of(stand)
    original, model = vars(kind)["log"], nn.Linear(3, 1)
    run = kind()
    if early:
        wandb.log = run.log
    with NeuralDbg(model) as dbg:
        train(lambda step, loss: None, 1, model)
        if not early:  # as wandb.init does
            wandb.log = run.log

        def log(step: int, loss: torch.Tensor) -> None:
            data = {"loss": loss, "val": {"accuracy": step, "deeper": {"x": 1}}, "image": object(), "text": "0.5"}
            assert wandb.log(data, step=step) == "logged"
            assert run.log({"own": step}, commit=False) == "logged"
            assert stand.seen[-2][0] is data

        losses = train(log, 4, model)
    assert dbg.metrics == ("loss", "own", "val.accuracy", "val.deeper.x")
    assert dbg.metric("loss").values.tolist() == losses
    assert len(stand.seen) == 8
    assert type(wandb.log) is MethodType
    assert wandb.log.__func__ is original, "wandb keeps no wrapper of ours"
    wandb.log({"after": 1})
    assert "after" not in dbg.metrics


@absent("wandb")
def test_a_tool_that_is_imported_after_the_session_began_is_seen(stand: Stand) -> None:
    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        train(lambda step, loss: None, 2, model)
        _, kind = wandb_of(stand)
        run = kind()
        train(lambda step, loss: run.log({"own": step}), 3, model)
    assert dbg.metric("own").values.tolist() == [0, 1, 2]


@absent("mlflow")
def test_mlflow(stand: Stand) -> None:
    class Metric:
        def __init__(self, key: str, value: float) -> None:
            self.key, self.value = key, value

    class MlflowClient:
        def log_metric(self, run_id: str, key: str, value: float, timestamp: int | None = None) -> None:
            stand.seen.append((key, value))

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
            stand.seen.extend((metric.key, metric.value) for metric in metrics)

    stand.module("mlflow.tracking.client", MlflowClient=MlflowClient)
    client = MlflowClient()
    with NeuralDbg(discover=True) as dbg:
        train(
            lambda step, loss: [
                client.log_metric("run", "one", step),
                client.log_batch("run", metrics=[Metric("two", 2.0 * step)]),
                client.log_batch("run"),
            ]
        )
    assert dbg.metrics == ("one", "two")
    assert dbg.metric("two").values.tolist() == [2.0 * step for step in range(6)]
    assert len(stand.seen) == 12


@absent("lightning")
def test_lightning(stand: Stand) -> None:
    class LightningModule(nn.Module):
        def log(self, name: str, value: Any, prog_bar: bool = False, **rest: Any) -> None:
            stand.seen.append(name)

        def log_dict(self, dictionary: dict[str, Any], prog_bar: bool = False, **rest: Any) -> None:
            for name, value in dictionary.items():
                self.log(name=name, value=value, prog_bar=prog_bar)

    stand.module("lightning.pytorch.core.module", LightningModule=LightningModule)
    module = LightningModule()
    with NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: [module.log("loss", loss), module.log_dict({"a": step, "b": torch.tensor(0.5)})])
    assert dbg.metrics == ("a", "b", "loss")
    assert dbg.metric("a").values.tolist() == list(range(6))


@absent("lightning")
def test_what_lightning_gives_to_a_logger_later_is_a_further_value(stand: Stand, writer: SummaryWriter) -> None:
    class LightningModule(nn.Module):
        def log(self, name: str, value: Any, **rest: Any) -> None:
            stand.seen.append((name, float(value)))  # kept until the logger's turn, as Lightning does

    stand.module("lightning.pytorch.core.module", LightningModule=LightningModule)
    module = LightningModule()
    with NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: module.log("value", step))
        writer.add_scalar("value", sum(value for _, value in stand.seen) / 6)  # the mean of the epoch
    assert dbg.metric("value").values.tolist() == [0, 1, 2, 3, 4, (5 + 2.5) / 2]


@absent("transformers")
def test_what_a_trainer_logs_by_a_writer_counts_once(stand: Stand, writer: SummaryWriter) -> None:
    class Trainer:
        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            writer.add_scalar("train/loss", logs["loss"])  # as the callback of TensorBoard does

    stand.module("transformers.trainer", Trainer=Trainer)
    trainer = Trainer()
    with NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: trainer.log({"loss": loss.item(), "epoch": step, "text": "x"}))
        writer.add_scalar("own", 1.0)
    assert dbg.metrics == ("epoch", "loss", "own")


def test_real_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # wandb replaces it
    run = wandb.init(project="tests", dir=tmp_path)
    try:
        with NeuralDbg(discover=True) as dbg:
            losses = train(lambda step, loss: wandb.log({"loss": loss, "nested": {"step": step}}))
    finally:
        run.finish()
    assert dbg.metrics == ("loss", "nested.step")
    assert dbg.metric("loss").values.tolist() == losses


def test_real_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("tests")
    with mlflow.start_run(), NeuralDbg(discover=True) as dbg:
        train(lambda step, loss: [mlflow.log_metric("one", step), mlflow.log_metrics({"two": 2.0 * step})])
    assert dbg.metric("two").values.tolist() == [2.0 * step for step in range(6)]
    assert len(dbg.metric("one")) == 6


def test_real_lightning() -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 1)

        def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
            loss = self.net(batch[0]).pow(2).mean()
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
            self.log_dict({"val_loss": self.net(batch[0]).pow(2).mean()})

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 3)), 8)
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    model = Module()
    with NeuralDbg(model) as dbg:
        lightning.Trainer(max_epochs=2, accelerator="cpu", num_sanity_val_steps=0, **off).fit(model, data, data)
    np.testing.assert_allclose(dbg.metric("train_loss").values, dbg.record().scalar("loss").values)
    assert dbg.metric("val_loss").steps.tolist() == [3, 7]
