"""Graphs of the page in a real Chromium: no arrow runs through the label of a node."""

from __future__ import annotations

import pytest
from tests.dashboard.served_page import MemoryFeed, drawn, opened, served

from neuraldbg import NeuralDbg
from neuraldbg.saved import Run


@pytest.fixture(scope="module")
def residual(tmp_path_factory):
    """A run of a gated block with a skip connection, whose branches have long names."""
    import torch
    from torch import nn

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 8)
            self.a_branch_with_a_long_name, self.gate = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            x = self.norm(x)
            return x + self.last(self.a_branch_with_a_long_name(x) * torch.sigmoid(self.gate(x)))

    torch.manual_seed(0)
    model = Gated()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = tmp_path_factory.mktemp("residual")
    with NeuralDbg(model, optimizer, out=folder, overhead=None, probes=False, script="train.py"):
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
    return Run.load(folder)


CROSSED = """() => {
    const { cy } = document.querySelector('[id*=network]')._cyreg;
    const inside = (box, p) => p.x > box.x1 && p.x < box.x2 && p.y > box.y1 && p.y < box.y2;
    const label = (node) => node.boundingBox({ includeNodes: false, includeEdges: false, includeOverlays: false });
    return cy.nodes().map((node) => [node.id(), cy.edges().filter((edge) => {
        if (edge.source() === node || edge.target() === node) return false;
        const [from, to] = [edge.source().position(), edge.target().position()];
        return [...Array(101).keys()].some((i) => inside(label(node),
            { x: from.x + (to.x - from.x) * i / 100, y: from.y + (to.y - from.y) * i / 100 }));
    }).map((edge) => `${edge.source().id()} to ${edge.target().id()}`)]).filter(([, found]) => found.length);
}"""


def test_no_arrow_crosses_the_label_of_a_node(browser, residual):
    with (
        served(MemoryFeed(residual=residual)) as address,
        opened(browser, f"{address}?tab=execution_trace") as page,
    ):
        drawn(page)
        labels = page.evaluate(
            "document.querySelector('[id*=network]')._cyreg.cy.nodes().map((node) => node.data('label'))"
        )
        assert "a_branch_with_a_long_name" in labels
        assert page.evaluate(CROSSED) == []
        style = "document.querySelector('[id*=network]')._cyreg.cy.nodes()[0].style('text-background-opacity')"
        assert float(page.evaluate(style)) == 1
