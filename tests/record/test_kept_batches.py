"""The batches of unusual steps: kept beside the run file, whole, within their budget, and named by the diagnosis."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg, Run
from neuraldbg.errors import ConfigError
from neuraldbg.explain import diagnose
from neuraldbg.record import KeptBatches, kept_batches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BAD = 61


def train(out: Path | None, spoil: Callable[[torch.Tensor], torch.Tensor], **options: Any) -> tuple[NeuralDbg, Any]:
    """Train, with one batch spoilt; return the session and that batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    kept: Any = None
    with NeuralDbg(model, out=out, **options) as dbg:
        for step in range(BAD + 20):
            x = torch.randn(32, 8)
            y = x.sum(1, keepdim=True)
            if step == BAD:
                x = spoil(x)
                kept = x.clone(), y.clone()
            opt.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
    return dbg, kept


def nan(x: torch.Tensor) -> torch.Tensor:
    x[5, 2] = float("nan")
    return x


def far(x: torch.Tensor) -> torch.Tensor:
    x[5] *= 3e3
    return x


@pytest.mark.parametrize(("spoil", "cause"), [(nan, "nonfinite_input"), (far, "bad_batch")])
def test_the_batch_of_the_step_is_kept_and_named(spoil: Any, cause: str, tmp_path: Path) -> None:
    dbg, (x, y) = train(tmp_path, spoil)
    with np.load(tmp_path / f"batch-{BAD}.npz", allow_pickle=False) as kept:
        assert sorted(kept) == ["input0", "target"]
        np.testing.assert_array_equal(kept["input0"], x.numpy())
        np.testing.assert_array_equal(kept["target"], y.numpy())
    first = dbg.diagnose().hypotheses[0]
    assert (first.cause, first.step) == (cause, BAD)
    assert first.remedy.text.endswith(
        f'The batch of step {BAD} is kept beside the run file: numpy.load("batch-{BAD}.npz").'
    )
    assert Run.load(tmp_path).diagnose().hypotheses[0].remedy == first.remedy
    assert (tmp_path / f"batch-{BAD}.npz").stat().st_mode & 0o777 == 0o600


def test_a_second_run_in_the_folder_keeps_its_own(tmp_path: Path) -> None:
    train(tmp_path, nan)
    before = (tmp_path / f"batch-{BAD}.npz").read_bytes()
    dbg, _ = train(tmp_path, nan)
    assert (tmp_path / f"batch-{BAD}-2.npz").exists()
    assert f'numpy.load("batch-{BAD}-2.npz")' in dbg.diagnose().hypotheses[0].remedy.text
    assert (tmp_path / f"batch-{BAD}.npz").read_bytes() == before


@pytest.mark.parametrize("settings", [{"record": {"batch_mb": 0}}, {"capture": {"probes": False}}])
def test_none_is_kept_where_the_user_wants_none(settings: Any, tmp_path: Path) -> None:
    dbg, _ = train(tmp_path, nan, settings=settings)
    assert not list(tmp_path.glob("*.npz"))
    assert "kept" not in dbg.diagnose().hypotheses[0].remedy.text


def test_a_run_in_memory_has_no_place_for_one() -> None:
    dbg, _ = train(None, nan)
    assert dbg.record().info.coverage["kept_batches"] == {}


def test_a_sound_training_keeps_none(tmp_path: Path) -> None:
    train(tmp_path, lambda x: x)
    assert not list(tmp_path.glob("*.npz"))


def test_a_folder_that_refuses_the_file_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_batches, "_write", full)
    dbg, _ = train(tmp_path, nan)
    assert dbg.diagnose().hypotheses[0].cause == "nonfinite_input"
    assert dbg.record().info.coverage["kept_batches"] == {}


def test_the_budget_is_that_of_all_together(tmp_path: Path) -> None:
    kept = KeptBatches(1000, lambda: tmp_path / "rank1.ndbg")
    x = np.arange(100.0)  # 800 bytes
    assert kept.keep(3, {"x": x}) == "batch-3-rank1.npz"
    assert kept.room() == 200
    assert kept.keep(4, {"x": x}) == ""
    assert kept.keep(5, {"x": x[:20], "y": x[:5]}) == "batch-5-rank1.npz"
    assert kept.keep(6, {}) == ""
    assert sorted(file.name for file in tmp_path.iterdir()) == ["batch-3-rank1.npz", "batch-5-rank1.npz"]
    assert KeptBatches(1000, lambda: None).room() == 0
    with pytest.raises(ConfigError, match="batch_mb"):
        NeuralDbg(nn.Linear(1, 1), settings={"record": {"batch_mb": -1}})


@pytest.mark.parametrize("name", ["../../etc/passwd", "batch-61.npz; rm -rf /", 7, None, "batch-61.exe"])
def test_a_file_from_anybody_names_no_other_file(name: object, tmp_path: Path) -> None:
    dbg, _ = train(tmp_path, nan)
    run = dbg.record()
    info = replace(run.info, coverage={**run.info.coverage, "kept_batches": {str(BAD): name}})
    assert "kept beside" not in diagnose(replace(run, info=info)).hypotheses[0].remedy.text
    other = replace(run.info, coverage={**run.info.coverage, "kept_batches": [1]})
    assert diagnose(replace(run, info=other)).hypotheses[0].cause == "nonfinite_input"


def test_keywords_and_dtypes_that_numpy_lacks(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, *, more: dict[str, torch.Tensor]) -> torch.Tensor:
            return self.layer(x) + more["mask"].float()

    model = Two()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, out=tmp_path):
        for step in range(12):
            x = torch.full((8, 4), float("nan") if step == 9 else 1.0)
            mask = torch.ones(8, 1, dtype=torch.bfloat16)
            opt.zero_grad()
            model(x, more={"mask": mask}).square().mean().backward()
            opt.step()
    with np.load(tmp_path / "batch-9.npz") as kept:
        assert sorted(kept) == ["input0", "more.mask"]
        assert kept["more.mask"].dtype == np.float32
        assert np.isnan(kept["input0"]).all()


def test_a_file_that_is_there_already_stays(tmp_path: Path) -> None:
    (tmp_path / "batch-5.npz").write_text("mine")
    kept = KeptBatches(1000, lambda: tmp_path / "rank0.ndbg")
    assert kept.keep(5, {"x": np.arange(3)}) == ""
    assert kept.room() == 1000
    assert (tmp_path / "batch-5.npz").read_text() == "mine"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupt_while_it_is_written_passes_and_leaves_no_half(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, number: int, _: str) -> None:
            self.number = number

        def __enter__(self) -> None:
            os.close(self.number)
            raise error

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "fdopen", Broken)
    kept = KeptBatches(1000, lambda: tmp_path / "rank0.ndbg")
    with pytest.raises(error) if error is KeyboardInterrupt else contextlib.nullcontext():
        assert kept.keep(5, {"x": np.arange(3)}) == ""
    assert list(tmp_path.iterdir()) == []
    assert kept.room() == 1000


def test_the_programs_tensors_stay_as_they_are(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    given: list[torch.Tensor] = []
    with NeuralDbg(model, out=tmp_path):
        for step in range(12):
            x, y = torch.full((8, 4), float("nan") if step == 9 else 1.0), torch.ones(8, 1)
            given += [x, y]
            opt.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            opt.step()
    assert (tmp_path / "batch-9.npz").exists()
    for tensor in given:
        assert tensor.untyped_storage().resizable()
        tensor.resize_(100)


@pytest.mark.budget
def test_a_batch_of_a_light_step_that_is_gone_is_not_mistaken_for_an_earlier_one(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    held = [torch.randn(8, 4) for _ in range(4)]
    tight = {"capture": {"allowance_s": 0.0, "overhead": 1e-6}}
    with NeuralDbg(model, out=tmp_path, settings=tight):
        for step in range(100):
            # the input of the step that fails dies before its loss is differentiated
            out = model(torch.full((8, 4), 7.0)) if step == 77 else model(held[step % 4])
            y = torch.full((8, 1), float("nan") if step == 77 else 0.0)
            opt.zero_grad()
            nn.functional.mse_loss(out, y).backward()
            if step != 77:
                opt.step()
    for file in tmp_path.glob("batch-77.npz"):
        with np.load(file) as kept:
            assert "input0" not in kept or (kept["input0"] == 7.0).all()


def test_names_that_collide_are_told_apart(tmp_path: Path) -> None:
    class Taught(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, target: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + 0 * target + 0 * more["input0"]

    model = Taught()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, out=tmp_path):
        for step in range(12):
            x = torch.full((8, 4), float("nan") if step == 9 else 1.0)
            opt.zero_grad()
            given = {"target": torch.full((8, 1), 5.0), "input0": torch.full((8, 1), 6.0)}
            out = model(x, **given)
            nn.functional.mse_loss(out, torch.full((8, 1), 7.0)).backward()
            opt.step()
    with np.load(tmp_path / "batch-9.npz") as kept:
        told = {name: float(kept[name].max()) for name in kept if name != "input0"}
    assert told == {"target": 5.0, "input0_1": 6.0, "target_1": 7.0}


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex32])
def test_a_dtype_that_numpy_lacks_keeps_no_cause_from_being_found(dtype: torch.dtype, tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    model = Odd()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, out=tmp_path) as dbg:
        for step in range(12):
            x = torch.full((8, 4), float("nan") if step == 9 else 1.0)
            opt.zero_grad()
            model(x, torch.ones(3).to(dtype)).square().mean().backward()
            opt.step()
    coverage = dbg.record().info.coverage
    assert (coverage["errors"], coverage["failed"]) == (0, {})
    assert dbg.diagnose().hypotheses[0].cause == "nonfinite_input"
    with np.load(tmp_path / "batch-9.npz") as kept:
        assert np.isnan(kept["input0"]).all()
