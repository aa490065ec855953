"""NeuralDBG: a flight recorder for neural-network training that says why a run failed."""
