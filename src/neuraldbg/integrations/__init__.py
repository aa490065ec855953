"""Places of other tools in which NeuralDBG appears; each is imported by that tool alone.

- ``jupyter_server.py``: the dashboard in a Jupyter server, by jupyter-server-proxy
"""
