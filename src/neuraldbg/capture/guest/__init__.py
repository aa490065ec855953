"""The rules of running inside a program: errors kept away from it, its objects read without running its code.

May import: no other room. Training under NeuralDBG stays bitwise the same as without it
(``tests/session/test_bitwise.py``, ``tests/guest/``), because of these rules:

- No random number is drawn. The sampled blocks are evenly spaced.
- An eager hook returns None. It reads a detached view, and copies before an in-place operation can follow.
- No gradient, weight or loss is written to; no reference to an output or a graph is kept beyond the step.
- Modules, parameters and optimizers are held by weak references, also by plans of native code, and die when they would
  die without us (``tests/session/test_lifetimes.py`` compares the moments).
- No training kernel is changed that we know of. (Hooks do switch off the fused path of ``TransformerEncoderLayer`` in
  evaluation; the coverage report says so.)
- Hooks vanish from copies: a hook of ours that is pickled or deep-copied becomes a function that does nothing.
- An error of ours is counted and reported once, and training goes on. Under our own tests it raises. A function that
  torch or the program calls directly is a few comparisons and a guard: ``guarded`` here, or ``Reader.seen`` for a
  wrapper of a torch function. Where a call may fail by rights (a call of a copy of the model), ``raised.let_pass``
  swallows the failure, and counts it all the same if a statement of our own code raised it.
- When the session ends, every hook and wrapper is removed. An autouse check in ``tests/conftest.py`` verifies it.

Native code is optional at install (``kernel/module.c`` and a header for each part).

- ``guard.py``: error counts, time spent, the switch of a session's wrappers, ``sessions_paused``
- ``native.py``: the native module, None where it was not built
- ``stand_in.py``: wrappers of torch functions, which nest when several sessions run; each calls the one below
- ``module_call.py``: the replacement of ``nn.Module.__call__``
- ``own_hooks.py``: hooks on modules that are in no pickle and no copy
- ``dynamo_skip.py``: keeps Dynamo from compiling our functions
- ``program_objects.py``, ``module_tree.py``: objects, modules and optimizers read without running the program's code
- ``frame_variables.py``: the variables of a running frame, read so that none lives longer
- ``tensor_memory.py``: the predicate before every reading of a tensor
- ``tensor_kinds.py``: tensor subclasses, and contexts without ``__torch_function__`` and modes
- ``weak_references.py``: references to modules and tensors that keep none of them alive
- ``live_objects.py``: optimizers and iterators found among all objects of the process
- ``own_code.py``, ``purity.py``: tests for code that an experiment may run a second time
- ``other_threads.py``: the test for other threads that only wait
- ``source_trace.py``: the lines that compute a loss and create layers, read from the user's source
- ``user_code.py``: the line of the user's code that runs now
"""
