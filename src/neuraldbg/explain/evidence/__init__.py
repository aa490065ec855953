"""The evidence that causes weigh: what a record says of the loss, the loop, the data, the layers and the optimizer.

A cause is given a ``case``; each other file answers the questions on one matter, from a record alone. No file here
knows a cause.
"""
