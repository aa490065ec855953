"""Names of the dashboard as programs for the language write them.

- ``hooks.py``: the decorator ``register_hook``, which is NeuralDBG's
"""
