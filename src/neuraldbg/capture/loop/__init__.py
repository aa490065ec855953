"""The training loop as torch tells of it: calls of models, backward passes, optimizer steps, and the thread of them."""
