"""The live page of a run: a separate process that reads run files and draws views (the extra ``dashboard``).

The page calls a ``Feed`` and never opens a file. In ``RunFeed`` one thread reads run files as they grow, and one
diagnoses and compares (a pair of runs only while the page shows it, a killed run once); each rests five times as long
as it works.

Requests pass three layers. ``bounded_server.py`` accepts 64 connections at once, each for a limited time. ``guard.py``
checks the host, then the token or cookie, then origin and body of a POST. Then the app of ``page`` answers.

Beside a training the port is bound before the program begins, by the standard library only, and the socket is passed to
a process that ends with its parent (``child_process.py``).

- ``feed.py``: the contract between the page and the reader of runs
- ``run_feed.py``: the feed over a run file, a run folder or a folder of runs
- ``run_entry.py``: the row of a run in the list of runs
- ``run_pairs.py``: two runs that are compared while they grow
- ``server.py``: the server of the page
- ``bounded_server.py``: a WSGI server with limited connections
- ``guard.py``: host, token, origin and body of a request
- ``port.py``: the listening socket, and the address of the page
- ``settings.py``: the section ``dashboard`` of a ``neural_config.yaml``
- ``child_process.py``: the dashboard beside a training
- ``training_link.py``: the connection to the training beside it, which the page may stop
- ``tunnel.py``: a tunnel to the page from outside, opened by the dashboard's process
- ``tunnel_process.py``: the process that holds a tunnel's program, and ends with the dashboard
- ``page/``: the Dash app
"""

HOST = "127.0.0.1"
PORT = 8050
CHARTS = ("diagnosis", "execution_trace", "gradients", "activations", "memory", "anomalies", "compare", "runs")
"""Ids of the page's tabs, in their order."""
"""Default port of the page; HOST is the default host."""
