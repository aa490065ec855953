"""The inspector: ids, infos, limits, anomalies, memory, and the rows that it tells."""

from __future__ import annotations

import gc
import math
import pickle
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
import torch

from neuraldbg.capture.statistics import operation
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import Site, column
from neuraldbg.nouns.accumulators import BLANK, derived
from neuraldbg.toolbox.debug_config import whole_in
from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.tensor_anomalies import HISTORY, LEAST
from neuraldbg.toolbox.tensor_inspector import SAMPLE, TensorInspector, site_of
from neuraldbg.toolbox.tensor_memory_log import LEAK
from neuraldbg.toolbox.tensor_statistics import statistics

RANDOM = np.random.default_rng(11)


class Bench:
    """An inspector with a step that a test sets, and what it told."""

    def __init__(self, max_tracked=1000, sampling_rate=1.0, **more):
        self.step = 0
        self.told = []
        self.inspector = TensorInspector(
            max_tracked=max_tracked,
            sampling_rate=sampling_rate,
            step=lambda: self.step,
            tell=lambda site, row: self.told.append((site, row)),
            **more,
        )

    def __call__(self, value, name="x", layer=None, operation=None, step=None):
        return self.inspector.inspect_tensor(value, name, layer, operation, step=step)

    def kinds(self):
        return [one.kind for one in self.inspector.anomalies()]


def test_ids_grow_and_infos_are_found():
    bench = Bench()
    h = torch.randn(4, 3)
    assert [bench(h, "h", "fc1", "forward"), bench([1, 2], "ids", None, "input"), bench(h, "h", "fc1", step=7)] == [
        0,
        1,
        2,
    ]
    info = bench.inspector.get_tensor_info(0)
    assert (info.name, info.layer, info.operation, info.step) == ("h", "fc1", "forward", 0)
    assert (info.framework, info.device, info.alive, info.stats) == ("torch", "cpu", True, statistics(given(h)))
    assert bench.inspector.get_tensor_info(1).alive is None
    assert [one.id for one in bench.inspector.find(name="h")] == [0, 2]
    assert [one.id for one in bench.inspector.find(layer="fc1", step=7)] == [2]
    assert [one.id for one in bench.inspector.find(operation="input")] == [1]
    assert bench.inspector.find(name="z") == ()
    assert bench.inspector.names == ("h", "ids")
    assert [one.id for one in bench.inspector.get_all()] == [0, 1, 2]
    assert str(info).startswith("tensor 0: h of layer fc1, forward, step 0, torch on cpu\ntensor ")
    assert "torch on cpu" in info._repr_html_()
    assert info.to_dict()["stats"]["shape"] == [4, 3]
    assert pickle.loads(pickle.dumps(info)) == info
    assert len(bench.inspector) == 3
    del h
    gc.collect()
    assert bench.inspector.get_tensor_info(0).alive is False


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Bench(max_tracked=0), "max_tracked: give a whole number above zero"),
        (lambda: Bench(max_tracked=1.5), "max_tracked: give a whole number"),
        (lambda: Bench(sampling_rate=0), "sampling_rate: give a number above zero"),
        (lambda: Bench(sampling_rate=1.5), "sampling_rate: give a share of the steps"),
        (lambda: Bench(budget=-1), "budget: give bytes"),
        (lambda: Bench()(torch.ones(2), 3), "a tensor is named by text"),
        (lambda: Bench()(torch.ones(2), "x", 3), "layer: give text"),
        (lambda: Bench()("text", "x"), "the values of 'x' are not numbers"),
        (lambda: Bench()(1.0, step="one"), "step: give a whole number"),
        (lambda: Bench().inspector.get_tensor_info(0), "no tensor has the id 0: none was inspected yet"),
        (lambda: Bench().inspector.compare(0, 1), "no tensor has the id 0"),
    ],
)
def test_bad_input_is_refused(make, said):
    with pytest.raises(ConfigError) as error:
        make()
    assert said in str(error.value)


def test_an_error_takes_no_id_and_tells_nothing():
    bench = Bench()
    with pytest.raises(ConfigError):
        bench([[1], [1, 2]])
    assert bench(1.0) == 0
    assert len(bench.told) == 1


# ---------------------------------------------------------------- what is told


@pytest.mark.parametrize(
    ("name", "layer", "done", "site"),
    [
        ("h", "fc1", None, Site("activation", "fc1", 0, "h")),
        ("h", None, "forward", Site("activation", "h")),
        ("h", "fc1", "backward", Site("output_grad", "fc1", 0, "h")),
        ("h", None, "gradient", Site("output_grad", "h")),
        ("weight", "fc1", "parameter", Site("param", "fc1", 0, "weight")),
        ("fc1.weight", "fc1", "weight", Site("param", "fc1", 0, "weight")),
        ("net.fc1.weight", None, "param_grad", Site("param_grad", "net.fc1", 0, "weight")),
        ("scale", None, "update", Site("update", "", 0, "scale")),
        ("x", None, "input", Site("input", "x")),
        ("p", "attn", "softmax", Site("activation", "attn", 0, "p.softmax")),
        ("p", None, "softmax", Site("activation", "p", 0, "softmax")),
    ],
)
def test_each_operation_has_its_site(name, layer, done, site):
    bench = Bench()
    bench(np.ones(3, np.float32), name, layer, done)
    ((told, row),) = bench.told
    assert told == Site(site.kind, site.module, site.call, site.name, "float32")
    assert told == site_of(name, layer, done, "float32")
    assert row[column("count")] == 3


def test_the_row_is_that_of_the_live_tool():
    bench = Bench()
    x = torch.randn(33, 7, generator=torch.Generator().manual_seed(1)).half()
    bench(x)
    raw = BLANK[None].copy()
    operation._observe(x, raw[0], 0, 0.0, 0.0)
    np.testing.assert_array_equal(derived(bench.told[0][1][None])[0], derived(raw)[0])


# ---------------------------------------------------------------- sampling


@pytest.mark.parametrize(
    ("rate", "whole"), [(1.0, range(20)), (0.1, (0, 10)), (0.5, range(0, 20, 2)), (0.3, (0, 4, 7, 10, 14, 17))]
)
def test_a_share_of_the_steps_is_read_whole(rate, whole):
    bench = Bench(sampling_rate=rate)
    x = np.ones((100, 100))
    read = []
    for bench.step in range(20):
        stats = bench.inspector.get_tensor_info(bench(x)).stats
        if not stats.sampled:
            read.append(bench.step)
        else:
            assert SAMPLE / 2 < stats.count <= SAMPLE
            assert stats.total == 10_000
    assert read == list(whole)
    assert bench.inspector.summary().sampled == 20 - len(read)
    small = bench(np.ones(SAMPLE), step=1)
    assert not bench.inspector.get_tensor_info(small).stats.sampled


def test_steps_from_anywhere_are_sampled():
    read = [s for s in range(-3, 1_000_000, 99_999) if whole_in(s, 1 / 3)]
    assert read == [s for s in range(-3, 1_000_000, 99_999) if s % 3 == 0]


# ---------------------------------------------------------------- limits


def test_the_oldest_infos_are_dropped_and_said():
    bench = Bench(max_tracked=10)
    for n in range(25):
        bench(float(n), f"x{n}")
    assert [one.id for one in bench.inspector.get_all()] == list(range(15, 25))
    assert bench.inspector.dropped == 15
    with pytest.raises(ConfigError, match="tensor 3 was dropped: max_tracked_tensors is 10, and newer ones are kept"):
        bench.inspector.get_tensor_info(3)
    with pytest.raises(ConfigError, match="no tensor has the id 25: ids are 0 to 24"):
        bench.inspector.get_tensor_info(25)
    summary = bench.inspector.summary()
    assert (summary.inspected, summary.kept, summary.memory.dropped) == (25, 10, 15)
    assert "25 inspected, steps 0 to 0; the newest 10 are kept" in str(summary)


def test_values_are_kept_within_the_budget():
    bench = Bench(budget=10_000)
    for n in range(5):
        bench(np.full(500, float(n)))
    assert bench.inspector.compare(3, 4).max_abs == 1
    assert bench.inspector._kept.bytes <= 10_000
    with pytest.raises(
        ConfigError, match=r"values of tensor 1 are gone: copies of 9.77 KiB are kept .* still kept is 3"
    ):
        bench.inspector.compare(1, 4)
    none = Bench(budget=0)
    none(1.0), none(2.0)
    with pytest.raises(ConfigError, match="none is kept"):
        none.inspector.compare(0, 1)


def test_a_large_tensor_is_compared_in_part():
    bench = Bench(budget=10_000)
    a = RANDOM.standard_normal((100, 100))
    b = a.copy()
    b[:, 50:] += 1
    first, second = bench(a), bench(b)
    found = bench.inspector.compare(first, second)
    assert 300 < found.count <= 625
    assert f"Only {found.count} of 10,000 elements were compared." in found.sentence
    assert found.beyond == pytest.approx(found.count / 2, rel=0.1)
    assert not bench.inspector.get_tensor_info(first).stats.sampled


def test_kept_values_do_not_follow_the_program():
    bench = Bench()
    for x in (np.ones(3), torch.ones(3)):
        first = bench(x)
        x[:] = 2
        assert bench.inspector.compare(first, bench(x)).max_abs == 1


def test_comparisons_across_frameworks_and_dtypes():
    bench = Bench()
    x = RANDOM.standard_normal(100).astype(np.float32)
    ids = bench(x), bench(torch.from_numpy(x).bfloat16()), bench(x.tolist()), bench(x.reshape(10, 10))
    assert bench.inspector.compare(ids[0], ids[1]).verdict == "rounding"
    assert bench.inspector.compare(ids[0], ids[2]).verdict == "equal"
    assert bench.inspector.compare(ids[0], ids[3]).verdict == "shapes"


# ---------------------------------------------------------------- anomalies


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (np.array([1.0, math.nan, 2.0]), ["nan"]),
        (np.array([1.0, math.inf, -math.inf]), ["inf"]),
        (np.zeros(5), ["all_zero"]),
        (np.full(5, 2.5), ["constant"]),
        (np.zeros(1), []),
        (np.float16([6e4, 1, 2]), ["near_overflow"]),
        (np.float32([6e4, 1, 2]), []),
        (torch.tensor([1e-5, 2e-5, 1.0]).half(), ["near_underflow"]),
        (torch.tensor([400.0, 1.0]).to(torch.float8_e4m3fn), []),
        (np.array([255, 0], np.uint8), []),
        (np.append(RANDOM.standard_normal(1000), 5e3), ["outliers"]),
        (RANDOM.standard_normal(100_000), []),
        (RANDOM.laplace(size=100_000), []),
        (np.maximum(RANDOM.standard_normal(1000) - 2, 0), []),
        (np.zeros((0, 3)), []),
    ],
    ids=str,
)
def test_anomalies_of_one_tensor(value, kinds):
    bench = Bench()
    bench(value, "h", "fc1", "forward")
    assert bench.kinds() == kinds


def test_an_anomaly_is_told_once_with_its_steps():
    bench = Bench()
    for bench.step in range(3, 9):
        bench(np.array([1.0, math.nan] if bench.step > 4 else [1.0, 2.0]), "h", "fc1")
    (found,) = bench.inspector.anomalies()
    assert (found.kind, found.first_step, found.last_step, found.count, found.first_id) == ("nan", 5, 8, 4, 2)
    assert str(found) == "h of layer fc1: 1 of 2 elements read are NaN (in 4 tensors from step 5 to 8)"
    assert found.serious
    assert "anomaly" in str(bench.inspector.summary())
    assert bench.inspector.summary()._repr_html_().count("NaN") == 1
    assert bench.inspector.summary().to_dict()["anomalies"][0]["kind"] == "nan"


def test_fresh_weights_may_be_constant():
    bench = Bench()
    bench(torch.zeros(3), "bias", "fc1", "parameter")
    bench(torch.ones(3), "gain", "norm", "parameter")
    bench(torch.zeros(3), "bias", "fc1", "parameter")  # still the same step
    assert bench.kinds() == []
    bench.step = 5
    bench(torch.zeros(3), "bias", "fc1", "parameter")
    bench(torch.tensor([1.0, 1.1, 0.9]), "gain", "norm", "parameter")
    assert bench.kinds() == ["all_zero"]
    assert "since it was made" in str(bench.inspector.anomalies()[0])


def test_a_sudden_change_of_scale():
    bench = Bench()
    for bench.step in range(20):
        bench(RANDOM.standard_normal(500) * (1.0 + 0.2 * (bench.step % 3)), "g", "fc1", "gradient")
    assert bench.kinds() == []
    bench.step = 20
    bench(RANDOM.standard_normal(500) * 30.0, "g", "fc1", "gradient")
    bench(RANDOM.standard_normal(500) * 0.01, "g", "fc1", "gradient")
    up, down = bench.inspector.anomalies()
    assert (up.kind, down.kind, up.first_step) == ("scale_up", "scale_down", 20)
    assert "times the median of the 20 before" in up.text
    assert "times less than the median of the 21 before" in down.text


def test_what_always_varies_and_what_slowly_grows_is_no_change():
    bench = Bench()
    for bench.step in range(200):
        bench(RANDOM.standard_normal(50) * 10.0 ** RANDOM.uniform(-2, 2), "wild")
        bench(RANDOM.standard_normal(50) * 1.03**bench.step, "growing")
        bench(RANDOM.standard_normal(50), "h", f"fc{bench.step % 2}", ("forward", "backward")[bench.step // 2 % 2])
    assert bench.kinds() == []
    few = Bench()
    for few.step in range(LEAST):
        few(RANDOM.standard_normal(50) * 1000.0**few.step, "x")
    assert few.kinds() == []
    assert HISTORY >= LEAST


def test_changes_of_shape_and_dtype():
    bench = Bench()
    for rows in (32, 32, 20):  # the last batch
        bench(RANDOM.standard_normal((rows, 8)), "h")
    assert bench.kinds() == []
    bench(RANDOM.standard_normal((32, 9)), "h")
    bench(RANDOM.standard_normal((32, 9)).astype(np.float32), "h")
    bench(RANDOM.standard_normal((8, 4)), "w", "fc1", "parameter")
    bench(RANDOM.standard_normal((9, 4)), "w", "fc1", "parameter")
    assert [(one.kind, one.name) for one in bench.inspector.anomalies()] == [
        ("shape_changed", "h"), ("dtype_changed", "h"), ("shape_changed", "w"),
    ]  # fmt: skip
    assert "shape (32, 9), before (20, 8)" in str(bench.inspector.anomalies()[0])


def test_anomalies_are_bounded_and_the_dropped_are_counted():
    bench = Bench(max_tracked=5)
    for n in range(8):
        bench([math.nan], f"x{n}")
    assert [one.name for one in bench.inspector.anomalies()] == ["x3", "x4", "x5", "x6", "x7"]
    assert bench.inspector.summary().anomalies_dropped == 3
    assert "3 more anomalies" in str(bench.inspector.summary())


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "make", [lambda: np.zeros(1024, np.float32), lambda: torch.zeros(1024)], ids=["numpy", "torch"]
)
def test_objects_that_are_never_let_go_are_found(make):
    bench = Bench()
    kept = []
    weight = make()
    for bench.step in range(20):
        leaked = make()
        kept.append(leaked)
        bench(leaked, "leaked", "fc1")
        bench(weight, "weight", "fc1", "parameter")
        bench(make(), "let_go", "fc1")
    memory = bench.inspector.memory()
    (leak,) = memory.leaks
    assert (leak.name, leak.objects, leak.alive, leak.alive_bytes) == ("leaked", 20, 20, 20 * 4096)
    assert "all 20 objects from step 0 to 19 are still alive, 80 KiB: never let go" in str(leak)
    found = {one.name: one for one in memory.names}
    assert (found["weight"].objects, found["weight"].alive, found["weight"].count) == (1, 1, 20)
    assert found["let_go"].alive == 0
    assert found["let_go"].objects == 20
    assert memory.names[0] is leak
    assert memory.layers == {"fc1": 3 * 4096}
    assert memory.bytes == 3 * 4096
    assert "never let go" in str(bench.inspector.summary())
    kept.pop(3)
    del leaked
    assert bench.inspector.memory().leaks == ()


def test_what_cannot_be_followed_is_said():
    bench = Bench()
    for bench.step in range(LEAK + 1):
        bench([1.0, 2.0], "list")
        bench(3.0, "loss")
    memory = bench.inspector.memory()
    assert memory.leaks == ()
    assert memory.unfollowed == {"list": 6, "float": 6}
    assert {one.objects for one in memory.names} == {None}
    assert "6 of type list" in str(memory)
    assert memory._repr_html_()
    assert repr(memory) == "<TensorMemory: 24 B in 2 names, 0 never let go>"


def test_a_leak_beyond_the_limit_is_followed_in_part():
    bench = Bench(max_tracked=50)
    kept = [np.zeros(10) for _ in range(500)]
    for bench.step, each in enumerate(kept):
        bench(each, "leaked")
    (leak,) = bench.inspector.memory().leaks
    assert leak.count == 500
    assert 25 <= leak.alive == leak.objects <= 101
    assert bench.inspector._memory._followed == leak.alive


def test_nothing_of_the_program_is_kept_alive():
    bench = Bench()
    x = torch.ones(100, requires_grad=True)
    y = x * 2
    bench(y)
    flag = []
    y.register_hook(lambda grad: None)
    torch.utils.weak.weakref.finalize(y, flag.append, 1)
    del y
    gc.collect()
    assert flag == [1]


# ---------------------------------------------------------------- cost


def test_many_tensors_take_constant_memory():
    bench = Bench(max_tracked=200, sampling_rate=0.1, budget=200_000)
    x = np.arange(300.0)

    def inspect(first, last):
        for bench.step in range(first, last):
            bench(x + bench.step, f"x{bench.step % 500}", f"fc{bench.step % 7}")
            bench.told.clear()

    inspect(0, 900)
    tracemalloc.start()
    inspect(900, 1_200)
    before = tracemalloc.get_traced_memory()[0]
    inspect(1_200, 1_500)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    inspector = bench.inspector
    assert grown < 300_000
    assert inspector._kept.bytes <= 200_000
    assert len(inspector._infos) == len(inspector._anomalies._past) == len(inspector._memory._accounts) == 200
    assert inspector._memory._followed <= 400


def test_threads_get_ids_of_their_own():
    bench = Bench()
    found = []
    threads = [threading.Thread(target=lambda: found.extend(bench(np.ones(5)) for _ in range(50))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == list(range(200))


def test_the_inspector_needs_no_framework():
    code = (
        "import sys\nfrom neuraldbg.toolbox.tensor_inspector import TensorInspector\n"
        "i = TensorInspector(max_tracked=9, sampling_rate=1, step=int, tell=lambda site, row: None)\n"
        "i.inspect_tensor([1.0, 2.0], 'x'); i.inspect_tensor([1.0, 3.0], 'x'); i.compare(0, 1); i.summary()\n"
        "sys.exit(len(sys.modules.keys() & {'torch', 'jax', 'tensorflow', 'ml_dtypes', 'scipy'}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
