"""Which lines of a program write to weights, judged one by one as they stand in the source."""

from __future__ import annotations

import pytest

from neuraldbg.explain.evidence.weight_writes import writing_lines
from neuraldbg.nouns.facts.kinds import SourceLine
from neuraldbg.nouns.facts.places import PlacesFact

WRITES = (
    ["model.fc1.weight.data.normal_()"],
    ["model.fc1.weight.data = old"],
    ["model.fc1.weight.data[3] = 0.0"],
    ["self.head.weight[mask] = 0"],
    ["nn.init.xavier_uniform_(model.fc1.weight)"],
    ["torch.nn.init.zeros_(layer.bias)"],
    ["model.fc1.reset_parameters()"],
    ["if step == 700: model.load_state_dict(saved)"],
    ["net.load_state_dict(torch.load("],  # a statement of several lines
    ["for p in model.parameters():", "p.mul_(20.0)"],
    ["for name, p in model.named_parameters():", "p.data.clamp_(-1, 1)"],
    ["for p in model.parameters(): p.data.add_(noise)"],
    ["[p.data.fill_(0) for p in model.parameters()]"],
    ["w = model.fc1.weight", "w -= 0.1 * old"],
    ["for p, q in zip(model.parameters(), best.parameters()):", "p.copy_(q)"],
    ["weights = list(model.parameters())", "torch._foreach_mul_(weights, 0.5)"],
    ["model.fc1.weight.detach().mul_(2)"],
    ["torch.nn.utils.vector_to_parameters(flat, model.parameters())"],
    ["else: model.fc1.bias.data.zero_()"],
    ["semantic_net.load_state_dict(saved)"],
    ["self.adopted.W9.data.zero_()"],
)
"""The last line of each writes to a weight, or the only one."""
LEAVES = (
    ["p.grad.zero_()"],
    ["for p in model.parameters():", "p.grad.data.clamp_(-1, 1)"],
    ["for p in model.parameters():", "p.requires_grad_(False)"],
    ["for p in model.parameters():", "total += p.norm()"],
    ["for p in model.parameters():", "p = p.clone()"],
    ["optimizer.load_state_dict(saved['optimizer'])"],
    ["scheduler.load_state_dict(saved)", "scaler.load_state_dict(saved)"],
    ["for e, p in zip(ema.parameters(), model.parameters()):", "e.mul_(0.99).add_(p, alpha=0.01)"],
    ["x.clamp_(0, 1)", "total_loss += loss.item()"],
    ["x = batch.to(device)", "out = model(x)", "loss.backward()", "optimizer.step()"],
    ["weight = 0.5", "weight += 0.1"],
    ["target_net.load_state_dict(policy_net.state_dict())"],
    ["self.teacher.load_state_dict(self.student.state_dict())"],
    ["self.data[self.pos] = transition"],
    ["criterion.weight = class_weights"],
    ["grads = [p.grad for p in model.parameters()]", "torch._foreach_mul_(grads, clip)"],
    ["x.data.clamp_(0, 1)", "images.data = images.data / 255"],
    ["def init_(self):", "self.count_ = 0"],
    ["print('a line that is", "%timeit model(x)"],
)


class Known:
    """A case of which only the lines of the program are known."""

    def __init__(self, lines: list[str], kind: str = "code of train") -> None:
        self.run = self
        found = tuple(SourceLine("train.py", 10 + k, text) for k, text in enumerate(lines))
        self._fact = PlacesFact(lines={kind: found})

    def known(self, _kind: type) -> PlacesFact:
        return self._fact


@pytest.mark.parametrize("lines", WRITES, ids=lambda lines: lines[-1])
def test_lines_that_write_to_weights_are_found(lines):
    found = writing_lines(Known(lines), ["fc9.weight", "fc8.W9"])
    assert [line.number for line in found] == [9 + len(lines)]
    assert found[0].text == lines[-1]


@pytest.mark.parametrize("lines", LEAVES, ids=lambda lines: lines[-1])
def test_lines_that_write_to_something_else_are_left_out(lines):
    assert writing_lines(Known(lines), ["fc9.weight"]) == []


def test_only_functions_of_a_step_are_searched_and_the_weight_that_changed_comes_before_others():
    lines = ["self.net.fc1.weight.data.normal_()", "self.net.fc2.weight.data.normal_()"]
    assert [line.number for line in writing_lines(Known(lines), ["fc1.weight", "fc7.weight"])] == [10]
    assert [line.number for line in writing_lines(Known(lines), ["fc7.weight"])] == [10, 11]
    assert writing_lines(Known(lines, "layer fc1"), ["fc1.weight"]) == []
