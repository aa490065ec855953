"""Values that a function makes, or is given, and never uses."""

from __future__ import annotations

import linecache
import textwrap

import pytest

from neuraldbg.capture.guest.source_trace import Source
from neuraldbg.capture.guest.unused_values import unused

TEXTS = {
    "a term": ("def f(x):\n    kl = g(x)\n    return x", [("kl", "assigned")]),
    "one that is used in a function inside": ("def f(x):\n    n = g(x)\n    return lambda: n + x", []),
    "one of a tuple": (
        "def f(batch):\n    for x, mask in batch:\n        h(x)",
        [("mask", "unpacked")],
    ),
    "a nested tuple": ("def f(x):\n    out, (h, c) = g(x)\n    return out + h", [("c", "unpacked")]),
    "on purpose": ("def f(x, _):\n    _, y = g(x)\n    return y", []),
    "a parameter": ("def f(self, x, mask):\n    return x", [("mask", "parameter")]),
    "a parameter with a default": ("def f(self, x, mask=None):\n    return x", []),
    "an abstract function": ("def f(self, x):\n    raise NotImplementedError", []),
    "read by name": ("def f(x):\n    y = g(x)\n    return locals()", []),
    "counted": ("def f(x):\n    n = 0\n    n += 1\n    return x + n", []),
    "what is only counted up": ("def f(xs):\n    total = g(0)\n    for x in xs:\n        total += x", []),
    "a global": ("def f(x):\n    global best\n    best = g(x)", []),
    "a decorated function": ("@g\ndef f(x):\n    kl = h(x)\n    return x", [("kl", "assigned")]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_values_that_a_function_never_uses(name):
    text, wanted = TEXTS[name]
    text = textwrap.dedent(text) + "\n"
    file = f"<unused {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {"g": lambda x: x, "h": lambda x: x}
    exec(compile(text, file, "exec"), space)
    found = unused(Source(file), space["f"].__code__)
    assert [(one.name, one.how) for one in found] == wanted
    assert all(one.function == "f" and one.place.file == file for one in found)


def test_a_script():
    text = "kl = 1\nx = 2\nfor a, mask in []:\n    print(a, x)\n"
    linecache.cache["<script>"] = (len(text), None, text.splitlines(keepends=True), "<script>")
    found = unused(Source("<script>"), compile(text, "<script>", "exec"))
    assert [(one.name, one.how) for one in found] == [("kl", "assigned"), ("mask", "unpacked")]
