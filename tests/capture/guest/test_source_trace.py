"""Expressions that compute a loss, found in source: names, tuples, functions and classes of the same file."""

from __future__ import annotations

import linecache

import pytest

from neuraldbg.capture.guest.source_trace import Layers, Source, Trace


def source_of(text, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(text)
    linecache.checkcache(str(file))
    return Source(str(file))


def found(text, tmp_path):
    source = source_of(text, tmp_path)
    (line,) = [i for i, code in enumerate(text.splitlines(), 1) if "backward(" in code]
    return [source.place(value).code for value in Trace(source).losses(line)]


CASES = {
    "a name": ("loss = F.mse_loss(model(x), y)\nloss.backward()", ["loss = F.mse_loss(model(x), y)"]),
    "one statement": ("F.mse_loss(model(x), y).backward()", ["F.mse_loss(model(x), y).backward()"]),
    "divided": ("loss = crit(out, y)\nloss = loss / 4\nloss.backward()", ["loss = crit(out, y)"]),
    "scaled": ("loss = crit(out, y)\nscaler.scale(loss).backward()", ["loss = crit(out, y)"]),
    "a tool's backward": ("loss = crit(out, y)\naccelerator.backward(loss)", ["loss = crit(out, y)"]),
    "with a gradient": ("loss = crit(out, y)\nloss.backward(ones)", ["loss = crit(out, y)"]),
    "two terms": (
        "recon = F.mse_loss(out, x)\nkl = divergence(mu)\nloss = recon + 0.1 * kl\nloss.backward()",
        ["recon = F.mse_loss(out, x)", "kl = divergence(mu)"],
    ),
    "a sum that grows": (
        "loss = 0\nfor a in parts:\n    loss += F.mse_loss(a, y)\nloss.backward()",
        ["loss += F.mse_loss(a, y)"],
    ),
    "the last one counts": (
        "loss = first(x)\nopt.step()\nloss = second(x)\nloss.backward()",
        ["loss = second(x)"],
    ),
    "either branch": (
        "if warm:\n    loss = first(x)\nelse:\n    loss = second(x)\nloss.backward()",
        ["loss = first(x)", "loss = second(x)"],
    ),
    "a function of the file": (
        "def compute(p, t):\n    return (p - t).pow(2).mean()\nloss = compute(model(x), y)\nloss.backward()",
        ["return (p - t).pow(2).mean()"],
    ),
    "the second of a tuple": (
        "def step(x):\n    out = model(x)\n    return out, F.mse_loss(out, x)\nout, loss = step(x)\nloss.backward()",
        ["return out, F.mse_loss(out, x)"],
    ),
    "a class of the file": (
        (
            "class Focal(nn.Module):\n    def forward(self, p, t):\n        return -(t * p.log()).mean()\n"
            "crit = Focal()\nloss = crit(p, t)\nloss.backward()"
        ),
        ["return -(t * p.log()).mean()"],
    ),
    "written by hand": ("loss = ((out - y) ** 2).mean()\nloss.backward()", ["loss = ((out - y) ** 2).mean()"]),
    "weighted by a mask": (
        "per_token = crit(out, y)\nloss = (per_token * mask).sum()\nloss.backward()",
        ["loss = (per_token * mask).sum()"],
    ),
    "a parameter of the function": ("def finish(loss):\n    loss.backward()", []),
    "two methods of one name": (
        (
            "class A:\n    def cost(self):\n        return 1 * a\nclass B:\n    def cost(self):\n        return 2 * b\n"
            "loss = thing.cost()\nloss.backward()"
        ),
        ["loss = thing.cost()"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_lines_that_compute_a_loss(case, tmp_path):
    text, expected = CASES[case]
    assert found(text, tmp_path) == expected


def test_text_that_is_no_python_has_no_lines(tmp_path):
    source = source_of("%%time\nloss.backward()\n", tmp_path)
    assert Trace(source).losses(2) == []


def test_reading_the_source_warns_of_nothing(tmp_path, recwarn):
    text = "loss = crit(re.sub('\\d\\.', '\\\\d', x))\nloss.backward()\n"
    source = source_of(text, tmp_path)
    assert len(Trace(source).losses(2)) == 1
    assert not recwarn.list


def test_names_that_refer_to_each_other_end(tmp_path):
    source = source_of("while True:\n    loss = other\n    other = loss\n    loss.backward()\n", tmp_path)
    assert Trace(source).losses(4) == []


def nearest(text, tmp_path):
    source = source_of(text, tmp_path)
    (line,) = [i for i, code in enumerate(text.splitlines(), 1) if "backward(" in code]
    trace = Trace(source)
    call = trace.nearest(trace.losses(line), frozenset({"softmax", "Softmax"}))
    return source.place(call).line if call is not None else None


MODEL = """\
class Net(nn.Module):
    def __init__(self):
        self.attention = Attention()
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        x = self.attention(x)
        return F.softmax(self.head(x), dim=-1)

class Attention(nn.Module):
    def forward(self, x):
        return x.softmax(-1) @ x

model = Net()
loss = F.cross_entropy(model(x), y)
loss.backward()
"""


def test_the_softmax_nearest_to_the_loss_is_found(tmp_path):
    assert nearest(MODEL, tmp_path) == 8
    assert nearest(MODEL.replace("F.softmax(self.head(x), dim=-1)", "self.head(x)"), tmp_path) == 12
    assert nearest("loss = crit(a.softmax(-1), b.softmax(-1))\nloss.backward()\n", tmp_path) is None
    assert nearest("loss = crit(out, y)\nloss.backward()\n", tmp_path) is None


def test_layers_are_found_only_where_they_are_written_out(tmp_path):
    layers = Layers(
        source_of(
            "class Net:\n    def __init__(self):\n        self.a = nn.Linear(1, 2)\n        self.b = one()\n"
            "        self.b = two()\n        self.c = nn.Sequential(*parts)\n",
            tmp_path,
        )
    )
    assert layers.attribute("Net", "a").lineno == 3
    assert layers.attribute("Net", "b") is None
    assert layers.attribute("Other", "a") is None
    assert Layers.item(layers.attribute("Net", "c"), 0) is None
