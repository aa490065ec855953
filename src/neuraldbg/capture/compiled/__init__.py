"""Our parts of a torch.compile graph: samples of outputs and gradients, and the operators that read them.

May import: autograd, statistics, guest. A layer in a compiled graph is read as follows.

**Outputs.** The traced forward hook takes a *sample* of the output by slices, which the compiler fuses with the
operations that made the tensor, so that it stores a thousand numbers, not the tensor. (A whole tensor passed to an
operator has to be stored: batch norm, ReLU and pooling, one loop before, became three.) Of a tensor that is no longer
than its sample a *copy* is passed on, which inductor elides: the operator reads the tensor itself. Features are sampled
in runs of sixteen neighbours: the compiler copies a run by one instruction, and it is one cache line.

The samples are kept until the watched model returns, and read there by one operator, ``neuraldbg::observe``, or 32 at a
time. One operator per layer made the partitioner save for the backward pass what it would otherwise recompute; all
samples of 400 layers, kept to the end, displace the model's own data from the processor's caches, and their memory
cannot be reused: the graphs of such a net took 1.2 times as long, now as long as without us. The operator declares that
it mutates the table, so that the compiler neither drops it nor breaks the graph. Where no sample can be kept (the body
of activation checkpointing, a part that is compiled by itself) each is read at once; the row is then a small tensor: as
a number it would be a guard, and ten blocks that share one graph would need ten.

**Gradients.** A tensor hook would break the graph. Instead the output passes a *tap*: an identity whose backward
samples the gradient. It returns a clone, because an identity that returns its input would break in-place operations
after it. For Dynamo a tap is one operator: an autograd function would be traced, with its backward, once per layer. One
operator reads the samples of all taps, or of 32. Its result, a zero, is the gradient of a leaf of ours: no computation
of the program waits for it, and the compiler cannot drop it.

**Operators** are defined with ``torch.library.Library``: the checks of ``torch.library.custom_op`` at each call take
several times as long as the reading. They are tagged as reading any layout. On the CPU native code runs them
(``kernel/compiled_ops.h``), registered through torch's stable C interface. In light steps they return at once; a call
from Python then ends before torch's schema and dispatcher (``Shortcut``), unless a dispatch mode or a function
transform is active. The samples are still taken. A graph finds its table by a number, and its constants never change,
so that no recompilation follows after the first step.

**Guards.** Dynamo checks at every call what it examined while tracing, in memory that no other code touches: with 400
modules a step took half as long again because of our hooks. ``dynamo_guards.py`` drops these guards during the trace,
and adds one: that the watched model is the same object. The one list that a hook changes while traced is the samples.
Readers set no hooks on compiled layers: Dynamo counts hooks, and would recompile when they are removed.

**Attached after the first compiled call:** a compiled graph does not notice hooks that are set later. So Dynamo is
reset when a session starts and again when it stops, if something was compiled (``recompile.py``); the coverage report
says so. ``settings={"capture": {"compiled": "outside"}}`` leaves compiled graphs alone and resets nothing: parameters,
gradients, updates, inputs and the loss are still read, activations and output gradients are not. Parameters and
optimizers are read in eager mode in any case.

**Rounding** (``tests/capture/compiled/test_compiled_models.py``; PyTorch 2.13, CPU): on the model of the tests losses
and weights are bitwise the same bare, with ``observe`` and with ``outside``; one graph, no graph break. This is no
general guarantee: an operator or a clone between two neighbours may change what the compiler fuses, and fusion can
change rounding.

**Other devices:** layers are left alone, unless ``settings={"capture": {"compiled": "observe"}}`` asks for them: an
operator for each layer keeps the compiler from fusing across it, and on a GPU doubled the time of a step
(``docs/cuda-notes.md``). Asked for, the graph holds ``neuraldbg::observe_there`` (``device_operator.py``), which by its
schema mutates nothing. Tables are allocated when a model is attached or at the end of a step, never while a graph runs,
where the memory might be a CUDA graph's. A replayed CUDA graph runs no Python, so in light steps it goes on reading;
the table is cleared when full steps begin again. A table that a CUDA graph was captured with is never freed. For
outputs that are no plain tensor only activations are read, not their gradients; on other devices neither is.

- ``traced_hook.py``: the traced part of a layer's hook, and the hooks on the watched model
- ``gradient_tap.py``: taps, and the operators that decompose while AOT autograd traces
- ``operators.py``: sampling, and the operators that read samples into the table
- ``device_operator.py``: the same for tensors of other devices
- ``dynamo_guards.py``: guards that are dropped because of our hooks
- ``recompile.py``: tests for compiled parts, and the reset of Dynamo
"""
