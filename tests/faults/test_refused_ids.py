"""Ids that an embedding has no row for: layer, id, table, sample, and the remedy."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg import NeuralDbg

ROWS, WIDTH = 20, 6


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(ROWS, WIDTH), nn.Embedding(8, WIDTH)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head((self.words(ids) + self.places(torch.arange(ids.shape[1]))).mean(1))


def step(model: Tagger, optimizer: torch.optim.Optimizer, ids: Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(ids), torch.zeros(len(ids), dtype=torch.long)).backward()
    optimizer.step()


def run_with(odd: int, *, steps: int = 40, caught: int = 0) -> NeuralDbg:
    """Train until a batch whose third sample has an odd id; ``caught`` such batches are passed over before it."""
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    dbg = NeuralDbg(model)

    def train() -> None:
        for at in range(steps + caught + 1):
            ids = torch.randint(0, ROWS, (16, 8))
            if at >= steps:
                ids[2, 5] = odd
            with contextlib.suppress(IndexError) if at < steps + caught else contextlib.nullcontext():
                step(model, optimizer, ids)

    with pytest.raises(IndexError), dbg:
        train()
    return dbg


def test_an_id_beyond_the_table_is_named_with_its_layer_and_sample() -> None:
    found = run_with(ROWS + 3).diagnose()
    first = found.hypotheses[0]
    assert (found.verdict, first.cause, first.layer, first.step) == ("failing", "refused_operation", "words", 40)
    assert first.title == "Id outside of the table of an embedding"
    assert "id 23 for the table of" in first.sentence
    assert "rows 0 to 19" in first.sentence
    said = " ".join(one.statement for one in first.evidence)
    assert "1 is outside of the table, first in sample 2 of the batch" in said
    assert "no batch of the 40 steps before it" in said
    assert f"nn.Embedding(24, {WIDTH})" in first.remedy.code


def test_a_negative_id_is_padding_and_batches_are_counted() -> None:
    first = run_with(-1, caught=2).diagnose().hypotheses[0]
    assert "id -1 for the table of" in first.sentence
    assert "3 batches ended so" in [one.statement for one in first.evidence]
    assert f"nn.Embedding(21, {WIDTH}, padding_idx=0)" in first.remedy.code


def test_the_remedy_for_a_larger_id_lets_the_batch_pass() -> None:
    code = run_with(ROWS).diagnose().hypotheses[0].remedy.code
    names = {"nn": nn, "ids": torch.tensor([[0, ROWS]])}
    made = eval(code.splitlines()[0], names)  # noqa: S307 (the code of the remedy, as a person would paste it)
    assert made(names["ids"]).shape == (1, 2, WIDTH)
    exec(code, names)  # noqa: S102
    assert int(names["ids"].max()) == ROWS - 1


def test_other_index_errors_are_not_of_an_embedding() -> None:
    model = Tagger()
    dbg = NeuralDbg(model)

    def train() -> None:
        step(model, torch.optim.SGD(model.parameters(), 0.1), torch.zeros(4, 8, dtype=torch.long))
        torch.zeros(3)[3]

    with pytest.raises(IndexError), dbg:
        train()
    assert dbg.record().facts_of("refused_ids") == ()
