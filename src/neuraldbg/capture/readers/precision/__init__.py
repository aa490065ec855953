"""Readers of reduced precision: gradient scalers (``grad_scaler.py``)."""
