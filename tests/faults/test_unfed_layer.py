"""A transformer whose padding mask is the wrong way round: no known cause, but its embedding never gets a gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.faults.corpus import Program, record
from tests.faults.golden import Golden
from torch import Tensor, nn

WORDS, LENGTH, PAD = 60, 24, 0


def sentences(n: int) -> tuple[Tensor, Tensor]:
    """Return sentences of different lengths, and whether they have more of the lower words than of the upper ones."""
    text, ends = torch.randint(2, WORDS, (n, LENGTH)), torch.randint(6, LENGTH - 1, (n,))
    text[torch.arange(LENGTH)[None] >= ends[:, None]] = PAD
    lower, upper = ((text >= 2) & (text < 21)).sum(1), ((text >= 21) & (text < 40)).sum(1)
    return text, (lower > upper).long()


class Classifier(nn.Module):
    def __init__(self, inverted: bool) -> None:
        super().__init__()
        self.inverted = inverted
        self.emb = nn.Embedding(WORDS, 32, padding_idx=PAD)
        self.place = nn.Parameter(torch.randn(LENGTH + 1, 32) * 0.02)
        self.cls = nn.Parameter(torch.randn(1, 1, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.enc, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(32, 2)

    def forward(self, text: Tensor) -> Tensor:
        mask = (text != PAD) if self.inverted else (text == PAD)
        mask = torch.cat([torch.zeros(len(text), 1, dtype=torch.bool), mask], 1)
        h = torch.cat([self.cls.expand(len(text), -1, -1), self.emb(text)], 1) + self.place
        return self.head(self.enc(h, src_key_padding_mask=mask)[:, 0])


def train(inverted: bool):
    def run() -> None:
        torch.manual_seed(0)
        x, y = sentences(2000)
        model = Classifier(inverted)
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        for _ in range(120):
            i = torch.randint(0, len(x), (32,))
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return record(Program("padding", run, "transformer", Golden(), "data"))


@pytest.mark.parametrize("inverted", [True, False])
def test_a_layer_without_any_gradient_is_named_where_no_cause_is(inverted: bool) -> None:
    run, diagnosis = train(inverted)
    never = [event for event in run.events if event.details.get("zero") and event.layer == "emb"]
    said = "the gradient of emb was exactly 0" in diagnosis.summary
    assert (said, bool(never)) == (inverted, inverted), diagnosis.summary
    if inverted:
        assert diagnosis.verdict == "suspect"
        assert never[0].sure
