"""The live page of a run: a process of its own that reads the run file and draws views (the extra ``dashboard``)."""
