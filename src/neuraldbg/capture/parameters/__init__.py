"""What an optimizer steps: weights before the step, gradients, what the step changed, and the norm of light steps."""
