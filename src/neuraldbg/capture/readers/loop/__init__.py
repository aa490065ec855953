"""Readers of the training loop: accumulation, clipping, order, schedules, evaluations, unregistered weights."""
