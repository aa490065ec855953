"""Causes in the wiring of the training program: optimizer, graph, modes, schedule, accumulation, clipping."""
