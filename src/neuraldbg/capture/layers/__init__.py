"""Layers: their names, the hooks on them, and what one hook reads."""
