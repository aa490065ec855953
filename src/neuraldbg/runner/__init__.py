"""The user's program under the session: run as python would run it, and ended as it would have ended without us.

- ``script``: the program as ``__main__``, with its own arguments, path and folder.
- ``import_hook``: a call right after the program imports a module (torch), and not before.
- ``session_guard``: the session over the program, whose own failures never become the program's.
- ``apart``, ``shadowed``, ``before``: the modules that we need, and the program's own of the same names.
- ``status_line``: the line on the terminal while the program runs.
- ``ending``, ``termination`` (with ``_signals.c``): the end of the program, by an exception, an exit or a signal.
"""
