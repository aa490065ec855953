"""The commands of ``neural`` for a notebook in the cloud: the text of a model in, files, results and addresses out.

- ``cloud_execution.py``: ``CloudExecutor``
- ``machine.py``: the cloud that a process is in, and whether it has a GPU
- ``child.py``: a command of ``neural`` as a child, with what it has printed
"""
