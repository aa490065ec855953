"""Readers of how the loop is written: accumulation, clipping, order, schedules, evaluations, hidden weights."""
