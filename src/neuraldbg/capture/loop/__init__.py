"""The training loop, as torch's functions show it: calls of models, backward passes, optimizer steps, and their thread.

May import: experiments, layers, parameters, compiled, contracts, autograd, statistics, guest.

    optimizer.zero_grad()
    output = model(x)          # nn.Module.__call__: which model, inputs, modes; forward hooks: activations
    loss = criterion(output, y)
    loss.backward()            # torch.autograd.backward: the loss, its graph, stale gradients
    optimizer.step()           # pre hook: weights, final gradients, halt; post hook: updates, the step ends

A model counts as trained once a backward pass has reached its output. When several sessions run, their wrappers nest,
each calls the one below, and the last session to end restores torch's own function.

- ``models.py``: finds trained models when they are called, and tells training passes from evaluation
- ``forward_pass.py``: a watched model, and one pass through it
- ``backward.py``: the loss of each backward pass, and its graph
- ``loss_values.py``: the values of the losses, as numbers or still pending on a device
- ``optimizers.py``, ``optimizer_stream.py``: optimizer steps, and the state of one optimizer over the run
- ``fused_steps.py``: the scale of a fused optimizer's gradients, and its steps that change no weight
- ``manual_steps.py``: steps without an optimizer of torch
- ``logged_metrics.py``, ``logging_tools.py``: the numbers that the program logs, by a session or by a tool of its own
- ``torch_patches.py``: the wrappers of torch functions, and their removal
- ``followed_thread.py``, ``unfollowed_threads.py``: the one thread that is followed, and the account of all others
- ``native_steps.py``: the interface of the loop to native light steps
- ``program_facts.py``: facts about the program at one step
- ``moments.py``, ``reader_context.py``: the values that readers get, and the context that they see
"""
