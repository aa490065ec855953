"""A picture and a table of the layers as one page, whole in itself: no script and no address of another file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.plan import shape_text
from neural.visual.as_svg import STYLE, svg, written
from neural.visual.data_flow import parameter_words, part_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neural.plan import LayerPlan, Plan
    from neural.visual.shapes import Picture

PAGE_STYLE = """
body { margin: 0 auto; padding: 1.5rem; max-width: 110rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 0.25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
p { margin: 0.25rem 0; color: var(--muted); }
figure { margin: 1rem 0; overflow-x: auto; border: 1px solid var(--layer-edge); border-radius: 8px; }
svg { display: block; max-width: none; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 1.2rem 0.3rem 0;
  border-bottom: 1px solid var(--layer-edge); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.shape, td.name { white-space: nowrap; }
@media print { figure { overflow: visible; border: 0; } svg { max-width: 100%; height: auto; } }
"""


def page(plan: Plan, picture: Picture) -> str:
    """Return the page of a network."""
    rows = [row for layer in plan.layers for row in _rows(layer, 0)]
    trained = f", {plan.trainable:,} of them trained" if plan.trainable != plan.parameter_count else ""
    notes = [f"<li>Line {each.line}: {written(each.text)}</li>" for each in plan.notes]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{written(plan.name)}</title>",
            f"<style>{STYLE}{PAGE_STYLE}</style></head><body>",
            f"<h1>{written(plan.name)}</h1>",
            (
                f"<p>{written(plan.file)}: {plan.parameter_count:,} parameters{trained}; "
                f"loss {written(part_words(plan.loss))}, optimizer {written(part_words(plan.optimizer))}</p>"
            ),
            f"<figure>{svg(picture, alone=False)}</figure>",
            "<h2>Layers</h2>",
            (
                '<div class="table"><table><thead><tr><th>Layer</th><th>Reads</th><th>Parameters of its type</th>'
                '<th>Output</th><th class="number">Weights</th></tr></thead><tbody>'
            ),
            *rows,
            "</tbody></table></div>",
            *(["<h2>Notes</h2>", f"<ul>{''.join(notes)}</ul>"] if notes else []),
            "</body></html>",
            "",
        ]
    )


def _rows(layer: LayerPlan, depth: int) -> Iterator[str]:
    reads = ", ".join(name or "the input of the block" for name in dict.fromkeys(layer.inputs))
    yield (
        f'<tr><td class="name" style="padding-left: {1.2 * depth:g}rem">{written(layer.name)}</td>'
        f"<td>{written(reads)}</td><td>{written(parameter_words(layer))}</td>"
        f'<td class="shape">{shape_text(layer.shape)}</td><td class="number">{layer.parameter_count:,}</td></tr>'
    )
    for child in layer.children:
        yield from _rows(child, depth + 1)
