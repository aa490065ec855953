"""Readers of the optimisation: agreement of gradients, and second moments of adaptive optimizers."""
