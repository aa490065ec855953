"""What the loss is asked for, read from real trainings: numbers against those computed beside the loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.faults.kit import CharGpt, Mlp, char_batches, char_loss, flat_digits
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.readers.data.label_predictability import scores
from neuraldbg.capture.readers.data.label_statistics import Classes, Numbers, entropy, period
from neuraldbg.capture.readers.data.token_alignment import TokenTargets
from neuraldbg.explain import Case, cause, diagnose
from neuraldbg.nouns import FactKey


def watched(run):
    """Run a training under the front door and return the record."""
    torch.manual_seed(0)
    debugger = NeuralDbg(discover=True)
    with debugger:
        run()
    return debugger.record()


def slots(run):
    latest = {f.value["slot"]: f.value for f in watched(run).facts_of(FactKey.TARGETS.value)}
    return [latest[key] for key in sorted(latest)]


def term(run):
    return watched(run).facts_of(FactKey.LOSS.value)[-1].value["terms"][0]


def train(model, batches, loss, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05)
    for x, y in batches:
        value = loss(model(x), y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def some(steps=40, size=32):
    x, y = flat_digits()
    for _ in range(steps):
        chosen = torch.randint(len(x), (size,))
        yield x[chosen], y[chosen]


def test_every_label_of_the_run_is_counted():
    seen = []

    def loss(out, y):
        seen.append(y.clone())
        return F.cross_entropy(out, y)

    (found,) = slots(lambda: train(Mlp(), some(90), loss))
    labels = torch.cat(seen)
    assert found["samples"] == 90 * 32
    assert found["histogram"] == {str(i): int((labels == int(i)).sum()) for i in found["histogram"]}
    inside = [torch.distributions.Categorical(torch.bincount(y, minlength=10).float()).entropy() for y in seen]
    assert found["batch_entropy"] == pytest.approx(float(torch.stack(inside).mean()), abs=1e-5)
    assert (found["kind"], found["classes"], found["alone"], found["single"]) == ("nll", 10, True, True)
    assert 0 <= found["same_next"] < 0.5


def test_what_the_network_says_is_read():
    model = nn.Linear(64, 10)
    nn.init.zeros_(model.weight)
    with torch.no_grad():
        model.bias.copy_(5.0 * F.one_hot(torch.tensor(3), 10))
    (found,) = slots(lambda: train(model, some(20), F.cross_entropy, torch.optim.SGD(model.parameters(), 1e-9)))
    rows = found["predicted"]["classes"]
    said = {name: row[1] for name, row in rows.items() if row[1]}
    assert set(said) == {"3"}
    assert rows["3"][2] == rows["3"][0]


def test_ignored_ids_and_empty_batches():
    calls = []

    def loss(out, y):
        calls.append(1)
        return F.cross_entropy(out, torch.full_like(y, 7) if len(calls) == 5 else y, ignore_index=7)

    (found,) = slots(lambda: train(Mlp(), some(8), loss))
    assert (found["empty"], found["first_empty"], found["ignore"]) == (1, 4, 7)
    assert found["ignored"] > 32 / 256
    assert "7" not in found["histogram"]


def test_number_targets_and_large_ones_by_sample():
    x = torch.randn(16, 64)
    target = torch.linspace(-1, 3, 16 * 64).reshape(16, 64)
    (found,) = slots(lambda: train(nn.Linear(64, 64), [(x, target)] * 6, F.mse_loss))
    assert found["batches"] == 6
    assert found["mean"] == pytest.approx(1.0, abs=0.05)
    assert found["outside_unit"] == pytest.approx(0.75, abs=0.03)
    assert found["period"] == 1


def test_a_head_that_is_replaced_is_a_slot_of_its_own():
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

    def run():
        train(model, some(20), F.cross_entropy)
        model[2] = nn.Linear(16, 2)
        train(model, ((x, y % 2) for x, y in some(20)), F.cross_entropy)

    assert sorted(slot["classes"] for slot in slots(run)) == [2, 10]


@pytest.mark.parametrize(
    ("under", "chain", "direct"),
    [
        (lambda out: out, [], True),
        (torch.sigmoid, ["sigmoid"], False),
        (lambda out: out.softmax(1) * 3, ["mul", "softmax"], False),
        (lambda out: F.relu(out)[:, :5], ["relu"], False),
    ],
)
def test_the_chain_under_a_loss(under, chain, direct):
    def run():
        train(Mlp(outputs=5), ((x, y % 5) for x, y in some(3)), lambda out, y: F.cross_entropy(under(out), y))

    found = term(run)
    assert (list(found["chain"]), found["direct"], found["sign"]) == (chain, direct, 1)


@pytest.mark.parametrize(
    ("joined", "sign"),
    [
        (lambda ce: -ce, -1),
        (lambda ce: -1 * ce, -1),
        (lambda ce: -(3 - ce), 1),
        (lambda ce: ce / 4 + 1, 1),
        (lambda ce: 1 - 2 * ce, -1),
        (lambda ce: (-ce).neg(), 1),
        (lambda ce: ce.exp(), 0),
        (lambda ce: torch.tensor(2.0) * ce, 1),
    ],
)
def test_the_sign_of_a_term_at_the_root(joined, sign):
    assert term(lambda: train(Mlp(), some(2), lambda out, y: joined(F.cross_entropy(out, y))))["sign"] == sign


def test_soft_targets_and_their_sign():
    found = term(lambda: train(Mlp(), some(2), lambda out, y: F.cross_entropy(out, F.one_hot(y, 10).float())))
    assert (found["soft"], found["sign"], found["soft_target"]["binary"]) == (True, 1, True)
    assert found["soft_target"]["sum_high"] == 1
    rows = torch.arange(32)
    found = term(lambda: train(Mlp(), some(2), lambda out, y: F.log_softmax(out, 1)[rows, y].mean()))
    assert (found["picked"], found["sign"]) == (True, -1)


def test_the_mass_of_scores():
    found = term(lambda: train(Mlp(), some(2), lambda out, y: F.nll_loss(F.log_softmax(out, 0), y)))["mass"]
    assert found["batch_low"] == pytest.approx(1, abs=1e-5)
    assert found["low"] != pytest.approx(1, abs=1e-2)
    found = term(lambda: train(Mlp(), some(2), lambda out, y: F.nll_loss(out.softmax(1), y)))["mass"]
    assert (found["plain_low"], found["plain_high"]) == (pytest.approx(1), pytest.approx(1))


def test_tokens_are_compared_with_inputs():
    def run():
        model = CharGpt()
        train(model, char_batches(6, 8, 16), char_loss, torch.optim.Adam(model.parameters(), 1e-3))

    (found,) = slots(run)
    match = found["tokens"]["match"]
    assert match["1"] == 1.0
    assert match["0"] < 0.6
    assert found["tokens"]["padded"] == 0


def test_padding_of_different_lengths_is_found_and_content_is_not():
    rng = np.random.default_rng(0)
    x = rng.integers(1, 50, (32, 20))
    y = np.roll(x, -1, 1)
    plain, tokens = TokenTargets(), TokenTargets()
    plain.add(x, y, -100, [])
    assert plain.fact()["padded"] == 0
    for row, length in enumerate(rng.integers(4, 15, 32)):
        x[row, length:], y[row, length:] = 0, 0
    tokens.add(x, y, -100, [])
    assert tokens.fact()["padded"] == pytest.approx((y == 0).mean(), abs=0.05)
    assert tokens.fact()["pad"] == 0
    ignored, masked = TokenTargets(), TokenTargets()
    ignored.add(x, y, 0, [])
    assert ignored.fact()["padded"] == 0
    masked.add(x, y, -100, [], (y != 0).astype(float))
    assert masked.fact()["padded"] == 0
    assert masked.fact()["mask"] == {"padding": 0.0, "rest": 1.0}


def test_the_right_order_fits_and_others_do_not():
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(64, 8)).astype(np.float32) for _ in range(6)]
    y = [(a[:, 0] > 0).astype(np.int64) for a in x]
    given = scores(x, y)
    assert given["z"] > 20
    assert given["best_z"] < 6
    turned = scores(x, [b[::-1] for b in y])
    assert turned["best"] == "reversed"
    assert (turned["z"] < 5, turned["best_z"] > 20) == (True, True)
    off = scores(x, [np.roll(b, 1) for b in y])
    assert off["best"] == "shifted by +1"
    noise = scores(x, [rng.permutation(b) for b in y])
    assert max(noise["z"], noise["best_z"]) < 5
    assert scores(x[:1], y[:1]) is None


def test_leave_one_out_agrees_with_leaving_one_out():
    from neuraldbg.capture.readers.data.label_predictability import inverses_of, score_of

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(40, 1))
    kernel_inverse = inverses_of(x)[0]
    kernel = np.linalg.inv(kernel_inverse)  # K + lambda I
    ridge = 0.05 * 40**0.5
    away, errors = y - y.mean(0), []
    for i in range(40):
        rest = np.arange(40) != i
        weights = np.linalg.solve(kernel[np.ix_(rest, rest)], away[rest])
        errors.append(float(away[i, 0] - (kernel - ridge * np.eye(40))[i, rest] @ weights[:, 0]))
    assert score_of([kernel_inverse], y) == pytest.approx(1 - np.sum(np.square(errors)) / np.sum(away**2), abs=1e-8)


def test_entropy_and_period():
    assert float(entropy(np.array([5, 5]))) == pytest.approx(np.log(2))
    assert float(entropy(np.array([7, 0]))) == 0
    assert period([1, 2, 3] * 4) == 3
    assert period(list(range(12))) == 0
    course = Classes(3, -100)
    for step in range(30):
        course.add(step, np.full(8, step // 10))
    found = course.fact()
    assert (found["switches"], found["batch_entropy"]) == ([10, 20], 0)
    numbers = Numbers()
    numbers.add(0, np.array([np.nan, 1.0, 1.0]))
    assert (numbers.fact()["min"], numbers.fact()["samples"]) == (1.0, 2)


def test_training_is_bitwise_the_same_and_nothing_of_it_is_kept():
    def run():
        torch.manual_seed(3)
        model = Mlp()
        train(model, list(some(70)), F.cross_entropy)
        return [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    plain, state = run()
    with NeuralDbg(discover=True):
        seen, after = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    assert torch.equal(state, after)


def test_a_label_beyond_the_last_class_ends_the_script_and_is_named():
    debugger = NeuralDbg(discover=True)
    torch.manual_seed(0)
    with pytest.raises(IndexError, match="out of bounds"), debugger:
        train(Mlp(), ((x, y + (step > 3)) for step, (x, y) in enumerate(some(8))), F.cross_entropy)
    top = diagnose(debugger.record()).hypotheses[0]
    assert (top.cause, top.step) == ("target_out_of_range", 4)
    assert top.confidence > 0.9


def test_scores_in_a_loss_of_probabilities_are_named_from_the_error_alone():
    debugger = NeuralDbg(discover=True)
    model = Mlp(outputs=1)
    nn.init.constant_(model.head.bias, -2.0)
    with pytest.raises(RuntimeError, match="between 0 and 1"), debugger:
        train(model, ((x, (y > 4).float()[:, None]) for x, y in some(5)), F.binary_cross_entropy)
    found = cause("output_activation_mismatch").judge(Case(debugger.record()))
    assert found is not None
    assert found.log_odds >= 5
