"""The parameters that an optimizer steps: weights before the step, gradients, updates, and the norm of a light step.

May import: compiled, autograd, statistics, guest.

Parameters are read in the optimizer's pre hook, when gradients are final and weights still those of the forward pass:
all of an optimizer in one call, by a plan that is made once and updated when tensors move. Large weights are read by
sample, gradients whole, so that no NaN is missed between blocks. A sample of the weights is kept until the post hook,
which reads the change made by the step; of an embedding's update only the rows with a gradient count.

- ``parameters.py``: all parameters of the watched models, and their readings around a step
- ``read_plan.py``: the plans for the parameters of one optimizer
- ``batched_reads.py``: many CPU tensors read in one call
- ``device_reads.py``: the same on one device
- ``gradient_norm.py``, ``device_gradient_norm.py``: the gradient norm of a light step
- ``usual_norm.py``: running mean and deviation of a number, and the bound above which it is unusual
- ``update_ratio.py``: norm(update) / norm(weight) of the steps that are delivered together
- ``stale_gradients.py``: gradients that were not cleared after the last step
- ``weight_samples.py``: a few elements of a few weights, for readers
"""
