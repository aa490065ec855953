"""The accounting of steps: budget, mode of each step, light steps, schedule of facts, delivery to the session.

May import: readers, loop, experiments, layers, parameters, compiled, autograd, statistics, guest.

Each step pays a hundredth of its time (``overhead``) into an account, and the time that watching took is drawn from it.
A session begins with two seconds (``allowance_s``), so short runs and the beginnings of long ones are read in full:
half a second may be spent at once, the rest as long as watching takes at most a quarter of the training's time. Later
most steps are *light*, and bursts of four full steps run as they can be paid for; a loss or a gradient norm that is not
finite or far from usual, and the beginning of an event, buy sixteen on credit. Facts are read in a few of the first
2,048 steps, ever more rarely (``fact_schedule``), then at an even pace: in the first step of every fourth burst (of
each, where the layers of light steps are read); and in a step after something changed. In a light step the hooks are
removed from the layers, wrappers pass calls through, and only loss, gradient norm, learning rate and a few elements of
the weights are read; if a light step costs more than its share, the norm at every n-th, and where a few of the
gradients are unusual. Without a budget (``overhead=None``) every site is read in every step; facts, from step 256 on,
are read in eight steps of 64 and when a number is unusual. The others are light steps whose sites are read: native code
reads weights, gradients and updates between the hooks of the optimizer, and copies the rows (``kernel/light_step.h``);
the numbers are bitwise those of a full step (``tests/capture/steps/test_native_light_steps.py``).

A step closes in the post hook, or, in the first steps and where two optimizers step after one backward, when the next
pass begins: those two make one step. Its raw rows are copied. Values on devices are added when they arrive, usually
while the next step runs; until then the step and those after it wait, so that order holds. Up to 64 steps, or a quarter
of a second, are processed at once (``delivery.BATCH``); a question, a breakpoint, a slow step or the end of the run
does not wait for that, and after a pause the writer's thread delivers what is left. That thread never queries a device:
while the program captures a CUDA graph, none may be queried.

- ``overhead_budget.py``: the account, and the decision for each step
- ``step_mode.py``: switches between full steps and light steps
- ``light_step.py``: the record of one light step
- ``native_light_steps.py``: light steps taken by native code
- ``step_accounting.py``: books finished steps
- ``step_scalars.py``: the scalars of one step
- ``fact_schedule.py``: the steps whose facts are read, and the facts at the end of a step
- ``layout.py``: the current layout of layers, sites and edges
- ``delivery.py``: derives closed steps and delivers them in order
"""
