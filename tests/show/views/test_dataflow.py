"""The guilty module in the data flow: a node of its own, and no other stands for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.show.made_diagnoses import EXPLODING
from tests.show.views.test_views import PLAIN
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.nouns import Diagnosis, Event
from neuraldbg.show.static.boxes import place
from neuraldbg.show.views import view
from neuraldbg.show.views.moments import guilty_of


class Attention(nn.Module):
    """Self-attention by hand: what it does wrong is in no layer of its own."""

    def __init__(self, width):
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.proj(F.softmax(q @ k.transpose(1, 2), -1) @ v)


class Block(nn.Module):
    """A residual block, whose output is that of no layer in it."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.attn, self.mlp = nn.LayerNorm(width), Attention(width), nn.Linear(width, width)

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Small(nn.Module):
    """Two tables, two blocks and a head, as a GPT has."""

    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(10, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(h)


@pytest.fixture(scope="module")
def run():
    torch.manual_seed(0)
    model = Small()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, overhead=None, probes=False) as dbg:
        for _ in range(3):
            x = torch.randint(10, (4, 6))
            opt.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
            opt.step()
    return dbg.record()


def blamed(layer, *, touched=()):
    events = tuple(Event("vanishing_gradients", "gradient_flow", 1, 2, name) for name in touched)
    cause = replace(EXPLODING.hypotheses[0], cause="mask_error", layer=layer, step=0)
    return Diagnosis("suspect", "s", hypotheses=(cause,), events=events)


def roles(run, diagnosis):
    return {node.id: node.role for node in view("dataflow", run, diagnosis).nodes}


def test_a_module_that_the_cause_names_is_a_node_behind_its_layers(run):
    found = view("dataflow", run, blamed("blocks.0.attn"))
    at = {node.id: node for node in found.nodes}
    assert [node.id for node in found.nodes if node.role == "guilty"] == ["blocks.0.attn"]
    assert found.guilty == ("blocks.0.attn",)
    links = {(link.source, link.target) for link in found.links}
    assert ("blocks.0.attn.proj", "blocks.0.attn") in links
    assert ("blocks.0.attn", "blocks.0.mlp") in links
    assert not [pair for pair in links if pair[0] == "blocks.0.attn.proj" and pair[1] != "blocks.0.attn"]
    assert at["blocks.0.attn.proj"].y < at["blocks.0.attn"].y < at["blocks.0.mlp"].y
    assert (at["blocks.0"].role, at["blocks.0"].label) == ("healthy", "blocks.0 (output)")


def test_layers_in_it_that_have_the_fault_are_guilty_too_and_others_keep_their_state(run):
    found = roles(run, blamed("blocks.0.attn", touched=("blocks.0.attn.qkv", "blocks.1.mlp")))
    assert {name for name, role in found.items() if role == "guilty"} == {"blocks.0.attn", "blocks.0.attn.qkv"}
    assert found["blocks.0.attn.proj"] == "healthy"
    assert found["blocks.1.mlp"] == "bad"


def test_a_block_that_the_cause_names_is_its_own_node(run):
    found = roles(run, blamed("blocks.1", touched=("blocks.1.mlp",)))
    assert {name for name, role in found.items() if role == "guilty"} == {"blocks.1", "blocks.1.mlp"}
    assert roles(run, blamed("head"))["head"] == "guilty"
    assert "guilty" not in roles(run, PLAIN).values()


def test_a_module_that_is_not_drawn_is_its_layers_and_not_the_block_around_it():
    drawn = {"blocks.0", "blocks.0.attn.qkv", "blocks.0.attn.proj", "blocks.0.mlp"}
    assert guilty_of(blamed("blocks.0.attn"), drawn) == (("blocks.0.attn.proj", "blocks.0.attn.qkv"), "guilty")
    assert guilty_of(blamed("blocks.0.mlp.weight"), drawn) == (("blocks.0.mlp",), "guilty")
    assert guilty_of(blamed("blocks.0.norm"), drawn) == (("blocks.0",), "guilty")


def test_boxes_beside_each_other_do_not_overlap(run):
    boxes = place(view("dataflow", run, PLAIN).nodes, 7.0, 16.0)
    (a, b) = (boxes.centres[name] for name in ("tok", "pos"))
    assert a[1] == b[1]
    assert abs(a[0] - b[0]) > boxes.width
