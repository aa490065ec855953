"""Bottlenecks of memory: numbers and remedies from facts made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.explain.run_builder import Build

from neuraldbg.explain import diagnose
from neuraldbg.nouns import Outcome
from neuraldbg.profile import profile

if TYPE_CHECKING:
    from neuraldbg.nouns.profile import Bottleneck

MIB = 1 << 20
LEAK: dict[str, Any] = {
    "type": "Tensor with its graph", "shape": [], "dtype": "float32", "per_step": 1.0, "bytes_per_step": 3.0 * MIB,
    "operations_per_step": 12.0, "alive": 43, "with_graph": True, "made": ["train.py", 44, "loss = f(x)"],
    "kept": ["/code/train.py", 48, "losses.append(loss)"], "holder": "losses", "mended": "losses.append(loss.item())",
}  # fmt: skip


def grown(**changes: Any) -> Build:
    return Build().fact("growth", 54, first=2, last=54, counts=8, survivors=[LEAK | changes])


def held(**values: Any) -> list[Bottleneck]:
    told: dict[str, Any] = {"step": 10, "method": "CPU allocator", "peak_at": "backward of 'fc2'"}
    return list(profile(Build().fact("footprint", 10, **told | values).build()).bottlenecks)


def test_leak_is_told_with_its_numbers_line_and_remedy() -> None:
    (one,) = profile(grown().build()).bottlenecks
    assert one.kind == "leak"
    assert one.text == (
        "`losses` keeps a tensor with its graph (float32, one number) of each step, 3 MiB and 12 operations of "
        "autograd's graph each, 2.93 GiB in 1,000 steps: train.py:48"
    )
    assert one.remedy == "losses.append(loss.item())"


def test_other_kinds_of_leaks() -> None:
    chain = profile(grown(alive=1, holder="total", mended="total += loss.item()").build()).bottlenecks[0]
    assert chain.text.startswith("the graph of `total` (float32, one number) reaches back over all steps, by 3 MiB and")
    hooks = profile(
        grown(type="hook", dtype="", with_graph=False, holder="model.fc1", bytes_per_step=0.0).build()
    ).bottlenecks[0]
    assert hooks.text == "`model.fc1` gets a hook in each step, and none is removed; there are 43: train.py:48"
    assert "handle.remove()" in hooks.remedy
    plain = {"type": "ndarray", "with_graph": False, "operations_per_step": 0.0, "mended": "", "shape": [64, 8]}
    array = profile(grown(**plain, per_step=0.1, bytes_per_step=204.8).build()).bottlenecks[0]
    assert array.text == "`losses` keeps an array (float32, 64x8) every 10 steps, 2 KiB each: train.py:48"
    assert array.remedy == "Empty `losses` when its content is not needed any more, or limit its length"


def test_bytes_of_each_are_those_of_one_and_not_of_a_step() -> None:
    """A MiB every fourth step is 256 KiB a step, 250 MiB in 1,000 steps, and 1 MiB each."""
    told = {"type": "Tensor", "with_graph": False, "operations_per_step": 0.0, "shape": [1024, 256]}
    (one,) = profile(grown(**told, per_step=0.25, bytes_per_step=MIB / 4, holder="snaps").build()).bottlenecks
    assert one.text == (
        "`snaps` keeps a tensor (float32, 1024x256) every 4 steps, 1 MiB each, 250 MiB in 1,000 steps: train.py:48"
    )
    assert one.remedy == "Empty `snaps` when its content is not needed any more, or limit its length", (
        "what has no graph needs no .item() nor .detach(), whatever an older file says"
    )


def test_a_tensor_that_becomes_larger_itself() -> None:
    told = {"type": "Tensor", "with_graph": False, "operations_per_step": 0.0, "mended": "", "shape": [43, 1024]}
    (one,) = profile(grown(**told, alive=1, grows=True, bytes_per_step=4096.0, holder="every").build()).bottlenecks
    assert one.text == (
        "`every`, a tensor (float32, 43x1024), becomes larger by 4 KiB a step, 3.91 MiB in 1,000 steps: train.py:48"
    )


def test_growth_of_resident_memory_is_none_if_not_all_was_searched() -> None:
    value: dict[str, Any] = {
        "first": 2, "last": 5_000, "slope_first": 1_250, "slope_last": 5_000, "resident_per_step": 1e5, "survivors": [],
    }  # fmt: skip

    def told(**changes: Any) -> list[Bottleneck]:
        return list(profile(Build().fact("growth", 5_000, **value | changes).build()).bottlenecks)

    assert len(told(counts=9)) == 1
    assert told(counts=9, complete=False) == []
    assert told(counts=4) == []
    assert told(counts=9, slope_first=4_000) == [], "128 MiB were not reached"


def test_growth_of_resident_memory_alone_counts_in_long_runs_only() -> None:
    def told(last: int) -> list[Bottleneck]:
        run = Build().fact("growth", last, first=2, last=last, counts=9, resident_per_step=100_000.0, survivors=[])
        return list(profile(run.build()).bottlenecks)

    assert told(800) == []
    (one,) = told(5_000)
    assert one.text.startswith("resident memory grows by 97.7 KiB a step, and no tensor or array was found")


def test_activations_of_one_layer_are_checkpointed() -> None:
    layers = [{"layer": "encoder", "activations": 500 * MIB}, {"layer": "head", "activations": 20 * MIB}]
    found = held(peak=800 * MIB, activations=600 * MIB, parameters=50 * MIB, gradients=50 * MIB, layers=layers)
    assert [one.kind for one in found] == ["activations"]
    assert found[0].text == "75% of the memory at the peak, 600 MiB, are activations, most of it of 'encoder' (500 MiB)"
    assert found[0].remedy.startswith(
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around the call of"
    )
    assert (found[0].layer, found[0].share) == ("encoder", 0.75)


def test_state_of_the_optimizer_and_a_moment_of_much_memory() -> None:
    found = held(peak=1000 * MIB, parameters=240 * MIB, gradients=240 * MIB, optimizer=480 * MIB, activations=10 * MIB)
    assert [one.kind for one in found] == ["optimizer_memory"]
    assert found[0].text.startswith("48% of the memory at the peak, 480 MiB, is the optimizer's state (SGD): 2.0 times")
    assert "8bit" not in found[0].remedy, "bitsandbytes is for CUDA"
    state = {"peak": 1000 * MIB, "parameters": 240 * MIB, "gradients": 240 * MIB, "optimizer": 480 * MIB}
    (cuda,) = held(**state, method="CUDA allocator")
    assert "bitsandbytes.optim.SGD8bit" in cuda.remedy
    (surge,) = held(peak=1000 * MIB, parameters=100 * MIB, activations=400 * MIB)
    assert surge.kind == "peak"
    assert surge.text == "50% of the memory at the peak, 500 MiB, is needed for a moment only, in the backward of 'fc2'"
    assert surge.layer == "fc2"


def test_what_lies_on_a_device_beside_the_model_is_no_surge() -> None:
    parts = {"peak": 1000 * MIB, "parameters": 50 * MIB, "gradients": 50 * MIB, "activations": 100 * MIB}
    on_device = {**parts, "method": "CUDA allocator"}
    assert held(**on_device) == [], "it is not known what else lies there: a file of an older version"
    (beside,) = held(**on_device, beside=700 * MIB)
    assert beside.text == (
        "70% of the memory at the peak, 700 MiB, lies on the device all the time beside the model: a data set, another "
        "model, results that are kept"
    )
    assert beside.layer is None
    (surge,) = held(**on_device, beside=100 * MIB)
    assert surge.text == "70% of the memory at the peak, 700 MiB, is needed for a moment only, in the backward of 'fc2'"


def test_the_most_since_the_program_began_is_no_peak_of_a_step() -> None:
    (full,) = held(peak=970 * MIB, parameters=500 * MIB, device_total=1000 * MIB, whole_run=True, peak_at="")
    assert full.text == "the most since the program began, 970 MiB, is 97% of the memory"


def test_small_peaks_and_sizes_alone_say_nothing() -> None:
    assert held(peak=4 * MIB, activations=4 * MIB) == []
    assert held(peak=None, parameters=1000 * MIB, optimizer=2000 * MIB) == []


def test_peak_near_the_end_of_the_memory() -> None:
    found = held(peak=970 * MIB, parameters=500 * MIB, gradients=400 * MIB, device_total=1000 * MIB)
    assert found[0].text == "the peak of a step, 970 MiB, is 97% of the memory"


def test_crash_without_memory_names_what_kept_it() -> None:
    build = grown()
    message = "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"
    build.outcome = Outcome("raised", message, where="train.py:41", text="out = model(x)")
    found = diagnose(build.build())
    assert found.verdict == "failing"
    assert [one.cause for one in found.hypotheses] == ["refused_operation", "memory_leak"]
    assert found.hypotheses[0].remedy.code == "losses.append(loss.item())"
    assert any("`losses` keeps 3 MiB" in one.statement for one in found.hypotheses[0].evidence)


def test_crash_without_memory_tells_what_a_step_needs() -> None:
    build = Build().fact("footprint", 10, step=10, method="CUDA allocator", peak=900 * MIB, activations=600 * MIB,
                         peak_at="backward of 'fc2'")  # fmt: skip
    build.outcome = Outcome("raised", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    top = diagnose(build.build()).hypotheses[0]
    assert top.cause == "refused_operation"
    said = [one.statement for one in top.evidence]
    assert "a step needed 900 MiB at its peak (backward of 'fc2'), 600 MiB of them activations, at step 10" in said


def test_crash_without_memory_is_diagnosed_where_activations_were_not_measured() -> None:
    """The default on CUDA: a peak from the allocator, and no activations."""
    build = Build().fact("footprint", 10, step=10, method="sizes", peak=900 * MIB, activations=None, peak_at="",
                         parameters=100 * MIB, gradients=100 * MIB, optimizer=200 * MIB)  # fmt: skip
    build.outcome = Outcome("raised", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    found = diagnose(build.build())
    assert [one.cause for one in found.hypotheses] == ["refused_operation"]
    said = [one.statement for one in found.hypotheses[0].evidence]
    assert "a step needed 900 MiB at its peak, 200 MiB of them optimizer state, at step 10" in said


def test_leak_is_never_the_reason_of_a_loss_that_does_not_fall() -> None:
    build = grown().scalar("loss", 2.3).event("loss_plateau", 10)
    found = diagnose(build.build())
    assert "memory_leak" in [one.cause for one in found.hypotheses]
    assert found.verdict != "healthy"
    assert "Beside that, growing memory: tensors of past steps that `losses` keeps" in found.summary
    assert not found.chain or "memory_leak" not in str(found.chain)
