"""The conditions under which a session stops the training or calls the user.

- ``alert_rules.py``: the rules by which alerts are raised, and the sentences on what a rule has met
- ``breakpoints.py``: actions that are called when an event begins or a cause becomes credible
- ``condition.py``: conditions that a user writes as text, such as ``loss > 5 and layer.rms > 100``
- ``halts.py``: the judge of each step before it is applied, with a trigger for each optimizer
- ``hook_moments.py``: the moments at which hooks run, the values at a moment, and the result of an action
- ``hook_triggers.py``: the triggers and the actions that a hook is built of
- ``hooks.py``: a hook, and the builder of hooks
- ``page_link.py``: the connection to a dashboard whose page may stop the training
- ``registered_hooks.py``: plain functions as hooks, for one session or for all sessions of the process
- ``trigger.py``: stop conditions on the loss and the gradient norms of one step
- ``user_calls.py``: calls of the user's functions, whose exceptions are reported as the user's
"""

from neuraldbg.control.breakpoints import Breakpoints
from neuraldbg.control.halts import Halts
from neuraldbg.control.trigger import TriggerEngine
from neuraldbg.control.user_calls import UserCalls

__all__ = ["Breakpoints", "Halts", "TriggerEngine", "UserCalls"]
