"""A GAN whose generator gets no gradients, on the page: each loss has its name, and no such layer is healthy."""

from __future__ import annotations

import pytest
from tests.dashboard.served_page import MemoryFeed, opened, served
from tests.show.small_gan import trained_gan

from neuraldbg.saved import Run


@pytest.fixture(scope="module")
def gan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "gan"
    trained_gan(cut=True, out=folder)
    return Run.load(folder)


def test_each_loss_is_named_and_the_generator_is_not_healthy(browser, gan):
    with served(MemoryFeed(gan=gan)) as address, opened(browser, address) as page:
        said = page.inner_text("[data-pane=numbers]")
        assert "d_loss " in said
        assert ", g_loss " in said
        page.goto(f"{address.partition('?')[0]}?tab=execution_trace")
        page.wait_for_selector("[data-pane=layers] table")
        page.locator("[data-pane=dataflow]", has_text="arrowhead: no gradient").wait_for()  # drawn after the table
        rows = page.inner_text("[data-pane=layers]").splitlines()
        assert any("gen.fc" in row and "\t80\t" in row for row in rows), "4 x 16 weights and 16 biases"
        assert any("disc.fc" in row and "\t48\t" in row for row in rows), "2 x 16 weights and 16 biases"
