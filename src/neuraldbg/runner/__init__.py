"""The user's program under a session: run as ``python`` runs it, and ended as it ends without us.

**Imports.** Nothing is imported before the script's own ``import torch``, because environment variables that the script
sets before it would come too late. The package that shows the diagnosis (``rich``) is loaded before the program, and
hidden from it: the program may have a module of that name, clear ``sys.path``, or draw from ``random`` while an import
of ours, which draws too, would fall in between. If the program's folder has a module with the name of one of Python's
library or of a package of ours, the program and we each get our own.

**SIGTERM and SIGHUP** (Slurm, Kubernetes, ``timeout``, a closed terminal) end a Python program at once: no ``finally``,
no exit handler, and buffered output is lost. ``neuraldbg run`` saves and diagnoses first; then the process dies in just
that way, by the signal. A Python handler would be visible: ``getsignal`` would not return SIG_DFL, on which programs
decide. So the signal is caught below Python (``_signals.c``), and passed to Python as a real-time signal that nobody
uses. A handler that the program sets, by whatever means, replaces ours; if it restores the default and dies by it, only
the run file is left. Code of ours that is running when the signal comes may finish; a forked child dies as always; a
second signal ends the process at once. If the main thread reaches no Python instruction within eight seconds (a
collective that hangs), the process dies without a diagnosis, which ``neuraldbg explain`` gives later.

- ``script.py``: the program as ``__main__``, with its own arguments, path and folder
- ``import_hook.py``: a call right after the program imports a module (torch), and not before
- ``session_guard.py``: the session over the program; its own failures never become the program's
- ``hidden_packages.py``: the package that shows the diagnosis, hidden from the program
- ``shadowed_modules.py``: modules of the program with the names of Python's or ours
- ``modules_before.py``: the modules that Python had loaded before the command line
- ``status_line.py``: the line on the terminal while the program runs
- ``ending.py``: the end of the program by an exception or an exit
- ``termination.py``: the end of the program by a signal
"""
