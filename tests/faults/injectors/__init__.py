"""Edits of the healthy scripts of ``tests/faults/tasks``, one module a category; ``edits.FAMILIES`` registers them."""
