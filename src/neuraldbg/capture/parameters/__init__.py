"""Parameters that an optimizer steps: weights before the step, gradients, what it changed, the norm of light steps."""
