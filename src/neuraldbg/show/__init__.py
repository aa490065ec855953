"""The presentation of runs and diagnoses: terminal, figures, reports. Pure functions of the nouns, without torch."""
