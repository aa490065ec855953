"""The toolbox: a session that takes numbers by hand, from any framework, and its parts.

A part gets what it needs as functions, and knows neither the session nor the other parts.

- ``model_diagnostics.py``: the model and the metrics of its training; where the training goes, and how healthy it is
- ``model_structure.py``: the parameters and layers of a model of any framework
"""
