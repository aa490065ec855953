"""Causes that lie between the ranks of a job: they are judged where the records of several ranks are read together."""
