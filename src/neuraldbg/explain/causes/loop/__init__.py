"""Causes of a wrongly wired training program."""
