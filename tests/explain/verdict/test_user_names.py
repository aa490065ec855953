"""Remedies speak in the names of the user's program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.verdict.user_names import names_in, renamed, with_arguments
from neuraldbg.nouns.facts.kinds import SourceLine

if TYPE_CHECKING:
    from tests.explain.run_builder import Build


def lines(**texts: str) -> dict[str, tuple[SourceLine, ...]]:
    return {kind: (SourceLine("train.py", 7, text),) for kind, text in texts.items()}


def test_names_of_a_plain_loop():
    names = names_in(
        lines(
            forward="logits = net(images)",
            backward="total.backward()",
            step="opt.step()",
            optimizer="opt = torch.optim.Adam(net.parameters(), lr=0.1)",
        )
    )
    assert names.loop == {"model": "net", "x": "images", "loss": "total", "optimizer": "opt"}
    assert names.made == {"model": "net", "optimizer": "opt"}


def test_names_of_a_class_and_a_scaler():
    names = names_in(
        lines(
            forward="out = self.net(batch)",
            backward="self.scaler.scale(cost).backward()",
            step="self.scaler.step(self.opt)",
            optimizer="self.opt = AdamW(net.parameters(), 1e-3)",
        )
    )
    assert names.loop == {
        "model": "self.net", "x": "batch", "loss": "cost", "scaler": "self.scaler", "optimizer": "self.opt",
    }  # fmt: skip
    assert names.made == {"model": "net", "optimizer": "self.opt"}


def test_a_loss_without_a_name_and_two_optimizers_stay_generic():
    both = (SourceLine("t.py", 1, "opt_g.step()"), SourceLine("t.py", 2, "opt_d.step()"))
    names = names_in({**lines(backward="(a + b).backward()"), "step": both})
    assert "loss" not in names.loop
    assert "optimizer" not in names.loop


def test_attributes_keywords_and_strings_are_not_names():
    code = "loss = f(loss.mean(), loss=1)  # the loss\nx = self.loss + 'loss'"
    assert renamed(code, {"loss": "cost"}) == "cost = f(cost.mean(), loss=1)  # the loss\nx = self.loss + 'loss'"


def test_arguments_replace_those_that_are_there():
    made = "opt = SGD(net.parameters(), 0.1, momentum=0.9)"
    assert with_arguments(made, "lr=0.01, momentum=0.5") == "opt = SGD(net.parameters(), 0.01, momentum=0.5)"
    assert with_arguments("opt = SGD(", "lr=0.01") == ""
    assert with_arguments("opt = made", "lr=0.01") == ""


def test_of_several_statements_in_a_line_the_one_that_makes_the_optimizer_is_edited():
    two = "model = nn.Sequential(nn.Linear(8, 16), nn.ReLU()); opt = SGD(model.parameters(), 0.1)"
    mended = "model = nn.Sequential(nn.Linear(8, 16), nn.ReLU())\nopt = SGD(model.parameters(), 0.004)"
    assert with_arguments(two, "lr=0.004") == mended
    turned = "opt = SGD(params=net.parameters(), lr=0.1); crit = nn.MSELoss()"
    assert with_arguments(turned, "lr=0.004") == "opt = SGD(params=net.parameters(), lr=0.004)\ncrit = nn.MSELoss()"
    assert with_arguments("a = 1; opt = SGD(weights, 0.1)", "lr=0.004") == "a = 1\nopt = SGD(weights, 0.004)"
    assert with_arguments("net = Net(3); opt = SGD(weights, 0.1)", "lr=0.004") == "", "which call it is is not known"
    both = "g = Adam(G.parameters(), 1e-3); d = Adam(D.parameters(), 1e-3)"
    assert with_arguments(both, "lr=0.004") == ""


def test_the_code_of_a_remedy_is_the_line_of_the_user():
    from tests.explain.stories import STORIES

    from neuraldbg.explain import diagnose

    build: Build = STORIES["lr_too_high"].fires()
    build.fact("places", 0, optimizer=[["train.py", 7, "opt = SGD(net.parameters(), lr=30.0)"]])
    top = diagnose(build.build()).hypotheses[0]
    assert top.remedy.code.startswith("opt = SGD(net.parameters(), lr=")
    assert "30.0" not in top.remedy.code
    assert top.remedy.edits[0].line.line == 7
