"""A stop of the training: which debugger it enters, what is bound there, and what happens where nobody can answer.

- ``entry.py``: the debugger that a stop enters: of an IDE, one that is named, or our prompt in a terminal
- ``stop.py``: one stop, and what the prompt may ask of the session
- ``prompt.py``: the prompt: Python's debugger with commands of ours
- ``console.py``: the interpreter of the command ``interact``
- ``interrupts.py``: signals at a prompt take effect at once
- ``missed_stops.py``: stops that nobody can answer: their numbers are recorded instead
- ``frames.py``: the user's frames on the stack, and the one in which the names of a stop are variables
"""
