"""The line that ends the graph of what a call is given: in the call, behind a name, in a function, around it."""

from __future__ import annotations

import textwrap

import pytest

from neuraldbg.capture.guest.graph_ends import GraphEnds
from neuraldbg.capture.guest.source_trace import Source


def ends(tmp_path, code, *, at):
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(code))
    lines = file.read_text().splitlines()
    (line,) = [i for i, text in enumerate(lines, 1) if at in text]
    return GraphEnds(Source(str(file))), line


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("g_loss = bce(disc(fake.detach()), one)  # HERE", "g_loss ="),
        ("fake = gen(z).detach()\nloss = bce(disc(fake), one)  # HERE", "fake ="),
        ("fake = gen(z)\nfake = fake.data\nscore = disc(fake)  # HERE", "fake = fake.data"),
        ("with torch.no_grad():\n    fake = gen(z)\nscore = disc(fake)  # HERE", "with"),
        ("def draw():\n    x = gen(z)\n    return torch.tensor(x.tolist())\nscore = disc(draw())  # HERE", "return"),
        ("@torch.no_grad()\ndef draw():\n    return gen(z)\nscore = disc(draw())  # HERE", "@torch"),
        ("x = enc(x)\nx = torch.from_numpy(x.cpu().numpy())\ny = head(x)  # HERE", "x = torch.from_numpy"),
        ("y = net(\n    x.detach(),  # HERE\n)", "x.detach()"),
    ],
)
def test_the_nearest_end_is_found(tmp_path, code, end):
    found, line = ends(tmp_path, code, at="HERE")
    place = found.before(line)
    assert place is not None
    assert place.code.startswith(end)


@pytest.mark.parametrize(
    "code",
    [
        "loss = mse_loss(net(x), y.detach())  # HERE",  # a target
        "score = disc(fake)  # HERE",
        "a = p.detach()\nb = q.detach()\nscore = disc(a, b)  # HERE",  # either of them
        "with torch.no_grad():\n    y = net(x)  # HERE",  # the call itself has no gradients
        "y = net(torch.tensor(1.0))  # HERE",
        "y = net(self.data)  # HERE",
    ],
)
def test_no_line_is_better_than_a_wrong_one(tmp_path, code):
    found, line = ends(tmp_path, code, at="HERE")
    assert found.before(line) is None


@pytest.mark.parametrize(
    ("code", "off"),
    [
        ("with torch.no_grad():\n    y = net(x)  # HERE", "with torch.no_grad"),
        ("@torch.inference_mode()\ndef f(x):\n    return net(x)  # HERE", "@torch.inference_mode"),
        ("with torch.set_grad_enabled(False):\n    y = net(x)  # HERE", "with torch.set_grad"),
        ("with torch.set_grad_enabled(True):\n    y = net(x)  # HERE", None),
        ("with open(f):\n    y = net(x)  # HERE", None),
        ("with torch.no_grad():\n    z = 1\ny = net(x)  # HERE", None),
    ],
)
def test_what_switches_gradients_off_is_found_around_a_line(tmp_path, code, off):
    found, line = ends(tmp_path, code, at="HERE")
    place = found.switched_off(line)
    assert (place is None) if off is None else place.code.startswith(off)
