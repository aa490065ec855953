"""The layers of watched models: their names, the forward hooks on them, and the readings of one hook.

May import: parameters, compiled, autograd, statistics, guest.

A hook reads at once. For an exact, contiguous ``torch.Tensor`` on the CPU, the first output of its layer in a pass,
native code does all of it (``kernel/layer_hooks.h``): statistics, and the hook on the gradient. All other outputs go
through ``Probe.read`` in Python, which gives the same numbers (``tests/capture/layers/test_native_hooks.py``). Steps
with histograms are left to Python.

Output gradients are read by tensor hooks that the forward hook sets on the output, never by module backward hooks:
those raise when an in-place operation follows, and do not fire for outputs that are dictionaries. While nothing is
compiled no module carries a hook: the replacement of ``Module.__call__`` calls the probes directly.

- ``hook_manager.py``: attaches probes to a model, and sets and removes hooks
- ``layer_hook.py``: the forward hook of one module, and the rows of its outputs
- ``layer_lines.py``: the lines of the user's code that create layers
- ``layer_moments.py``: the moments of a layer, for hooks of the user
- ``layer_names.py``: paths without wrappers, a model's variable name, a layer's settings
- ``snapshots.py``: copies of whole tensors, on request
"""
