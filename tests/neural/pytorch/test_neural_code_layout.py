"""Generated lines that are too long are broken, and mean the same."""

from __future__ import annotations

import ast

import pytest

from neural.pytorch.code_layout import WIDTH, laid_out


@pytest.mark.parametrize(
    "line",
    [
        f'    save(model, "{"x" * 90}  # {"z" * 40}")',
        f'    save(model, "{"x" * 60} \\" , \\\\", {"y" * 40}, [1, 2], {{"a, b": 3}})  # as the file says',
        f"    x = self.act({'z' * 50}, {'y' * 50})  # two of them, and a comment that is long",
    ],
)
def test_a_line_means_the_same(line):
    broken = laid_out(line)
    assert len(broken) > 1
    assert all(len(one) <= WIDTH for one in broken if "xxx" not in one)
    text = "\n".join(broken)
    assert ast.dump(ast.parse(f"if True:\n{text}")) == ast.dump(ast.parse(f"if True:\n{line}"))
