"""Readers of the optimisation: agreement of gradients, and second moments of adaptive optimizers.

- ``gradient_agreement.py``: cosines between gradients of different steps, and between update and gradient
- ``second_moments.py``: second moments against the gradient and epsilon
"""
