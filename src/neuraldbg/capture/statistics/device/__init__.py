"""Statistics of tensors on a device: asynchronous launches, and results that are copied to the CPU without a wait.

On CUDA and ROCm Triton kernels read them; elsewhere, and without Triton, torch's operations. The tables of a step come
over in one asynchronous copy per device, which carries the loss and all other device values of that step.

- ``placement.py``: the test for tensors whose values cannot be read without a synchronisation
- ``table.py``: the table of one device
- ``triton_kernels.py``: the kernels
- ``block_layout.py``: the elements that a kernel reads, as numbers
- ``launch.py``: many tensors read by one launch per dtype
- ``tensor_group.py``: a group of tensors that is read at every step
- ``async_copy.py``: one asynchronous copy to pinned memory
- ``pending.py``: the values of a finished step that are still on devices
"""
