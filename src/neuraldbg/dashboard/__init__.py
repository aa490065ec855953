"""The live page of a run: a process of its own that reads the run file and draws views (the extra ``dashboard``)."""

HOST = "127.0.0.1"
PORT = 8050
"""Where it is served, unless otherwise said."""
