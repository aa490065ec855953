"""The check of `.neural` files.

`checker` makes a `Plan` of a tree, or an error with all that is wrong. Its parts:

    evaluation.py        values, arithmetic, searches
    expansion.py         macros and repetitions -> layers
    inputs.py            the section `input` -> shapes
    graph.py, wiring.py  layers -> LayerPlan, with inputs and shapes
    blocks.py            layers around other layers
    unused_values.py     what a layer says and nobody uses
    training.py          loss, optimizer, schedule, metrics, train, execution
    registered_parts.py  the losses, optimizers, schedules and metrics that there are
    findings.py          the problems, notes and searches of one check
"""
