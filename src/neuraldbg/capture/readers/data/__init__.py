"""Readers of the data: batches, inputs, labels, tokens, and the workers of a loader.

- ``batches.py``: the reader of a model's inputs; ``input_ledger.py``: its statistics for one model
- ``input_levels.py``: scale of columns, grid of pixel values; ``repeated_batches.py``: runs of equal batches
- ``worker_seeds.py``: random numbers that are the same in all workers of a loader
- ``targets.py``: the reader of a loss's targets; ``label_statistics.py``: their statistics over the run
- ``label_inputs.py``: inputs as rows of features; ``label_predictability.py``: the test if they predict the targets
- ``token_alignment.py``, ``token_order.py``: targets of a language model against its input tokens
"""
