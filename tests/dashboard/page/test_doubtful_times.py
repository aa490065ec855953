"""What the page says of sampled steps that are no ordinary ones: no share, and no claim that nothing was found."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console
from tests.explain.run_builder import Build
from tests.show.made_profiles import timing

from neuraldbg.dashboard.page.suggestions import of_time
from neuraldbg.dashboard.page.tabs.execution_trace import Costs
from neuraldbg.profile import profile
from neuraldbg.show.terminal.profile import print_profile

DOUBTFUL = [{"steps": 1}, {"usual_s": 0.001}]


def run(**changes):
    return Build().fact("timing", 9, **timing(data_s=0.0, **changes)).build()


@pytest.mark.parametrize("changes", DOUBTFUL)
def test_nothing_is_claimed_where_no_bottleneck_of_time_was_looked_for(changes):
    found = of_time(SimpleNamespace(run=run(**changes)))
    assert found.content is None
    assert "bottlenecks of time are not told" in found.empty
    assert found.empty not in found.notes, "it is said once"
    assert "as far as was measured" in of_time(SimpleNamespace(run=run())).empty


@pytest.mark.parametrize("changes", DOUBTFUL)
def test_cells_of_a_layer_have_no_share(changes):
    assert Costs(run(**changes)).of("fc1") == ["1", "1 ms", "2 ms", "", "1 MFLOP"]
    assert Costs(run()).of("fc1") == ["1", "1 ms", "2 ms", "10%", "1 MFLOP"]


@pytest.mark.parametrize("changes", DOUBTFUL)
def test_the_terminal_compares_with_the_machine_by_the_same_rate_and_only_where_it_is_sure(changes):
    def said(of):
        out = StringIO()
        print_profile(profile(of), Console(file=out, width=200))
        return out.getvalue()

    assert "9 MFLOP at 500 MFLOP/s; 10% of a large matrix product here" in said(run(flops=9e6, machine_flops=5e9))
    assert "9 MFLOP at 500 MFLOP/s" in (doubtful := said(run(flops=9e6, **changes)))
    assert "matrix product here" not in doubtful
