"""Readers of reduced precision: gradient scalers."""
