"""Diagnosis and run for the eyes: the terminal, figures. Pure functions of the nouns, free of torch."""
