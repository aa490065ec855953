"""Readers of the training loop: accumulation, clipping, order, schedules, evaluations, unregistered weights.

- ``accumulation.py``: several backward passes for one step
- ``averaged_copies.py``: averaged copies of a model
- ``clipping.py``: the place of gradient clipping, and gradients beyond the limit
- ``custom_backward.py``: custom autograd Functions against finite differences
- ``evaluation_modes.py``, ``evaluation_scores.py``: mode, loss and accuracy of evaluations
- ``graph_cuts.py``: cuts in the autograd graph
- ``loop_order.py``: order of the loop within a step, optimizers that never step
- ``lr_schedule.py``: learning-rate schedulers
- ``optimizer_resets.py``: lost optimizer state, checkpoints
- ``source_lines.py``: the user's lines at which a step happens
- ``tied_weights.py``: weights that should be tied and are not
- ``unregistered_weights.py``: weights that no module has registered; ``attribute_search.py``: the search for them
"""
