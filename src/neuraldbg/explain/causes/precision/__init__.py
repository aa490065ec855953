"""Causes in the number format: float16, bfloat16 and the gradient scaler."""
