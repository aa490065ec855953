"""The ground floor: how to be in somebody's program without doing harm.

Errors of ours, the program's objects read without running its code, functions that stand in for torch's, other threads,
the native code.
"""
