"""Readers of how optimisation goes: gradients that agree, second moments that keep up."""
