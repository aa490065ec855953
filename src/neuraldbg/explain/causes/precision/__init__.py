"""Causes in the number format."""
