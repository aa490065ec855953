"""The expectations of torch's functions, checked on the real values of steps whose facts are read.

Many faults of a training program are calls that torch accepts and that mean something else: a target of 0 and 1 where 1
and -1 are meant, pixel coordinates for a grid from -1 to 1, a mask of numbers as an index. Torch raises nothing. A
contract holds for every program, whatever it trains.

May import: autograd, statistics, guest.

- ``contract.py``: the contract of one function, and what breaks it
- ``numbers.py``: the values that checks read of a tensor
- ``losses.py``: loss functions
- ``images.py``: grids of coordinates, images that are scaled
- ``distributions.py``: ``torch.distributions``
- ``loading.py``: states that are loaded into a model
- ``attention.py``: masks and weights of attention in the graph of a loss
- ``nodes.py``: operations in the graph of a loss, however the program calls them
"""

from __future__ import annotations

from neuraldbg.capture.contracts import distributions, images, loading, losses
from neuraldbg.capture.contracts.contract import Breach, Contract

__all__ = ["CONTRACTS", "Breach", "Contract"]

CONTRACTS: tuple[Contract, ...] = (
    *losses.CONTRACTS,
    *images.CONTRACTS,
    *distributions.CONTRACTS,
    *loading.CONTRACTS,
)
"""The contracts of functions that are checked where they are called, once or a few times in a step: a wrapped call
costs two microseconds in a light step, too. What a model calls in each layer is checked in the graph, see
``nodes.CHECKS``, and so is what a program itself calls by the name that would be wrapped: ``torch.compile`` knows
torch's own functions, and refuses a wrapper of them.
"""
