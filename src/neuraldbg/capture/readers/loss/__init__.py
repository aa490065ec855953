"""Readers of the loss: its terms, which may conflict, and its first value that is not finite.

- ``first_nonfinite.py``: the origin of the first loss or gradient that is not finite
- ``loss_conflict.py``: conflicts between losses; ``shared_branches.py``: the places where their terms meet
"""
