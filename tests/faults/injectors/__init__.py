"""Edits of the healthy scripts of ``corpus/tasks``, one module a category; ``edits.FAMILIES`` registers them."""
