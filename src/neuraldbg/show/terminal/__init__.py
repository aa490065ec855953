"""Diagnosis and views as text: read on any terminal of at least 40 columns, without colour, and in ASCII."""
