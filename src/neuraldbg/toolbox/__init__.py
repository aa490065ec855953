"""The session that takes its numbers by hand, from any framework: arrays, lists and times in, a run like any other out.

Its parts are given what they need of the session as functions, and import neither it nor torch.
"""
