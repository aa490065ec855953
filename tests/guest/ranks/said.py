"""Writes down what a rank has in the end, so that two runs of the same program can be compared."""

import hashlib
import json
import os
import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist


def digest(x: torch.Tensor) -> str:
    """Return shape and hash of a tensor, of a DTensor those of this rank's part."""
    part = x.to_local() if hasattr(x, "to_local") else x
    numbers = part.detach().contiguous().clone()
    return f"{tuple(numbers.shape)} {hashlib.sha256(numbers.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()}"


def seed() -> int:
    """Seed all generators alike on each rank, and return this rank."""
    rank = int(os.environ["RANK"])
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    return rank


def tell(model: torch.nn.Module, optimizer: torch.optim.Optimizer, losses: list[float]) -> None:
    """Write weights, gradients, buffers, the optimizer's state, losses and the states of all generators to a file."""
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    found = {
        "losses": [repr(loss) for loss in losses],
        "weights": {name: digest(p) for name, p in model.named_parameters()},
        "gradients": {name: digest(p.grad) for name, p in model.named_parameters() if p.grad is not None},
        "buffers": {name: digest(b) for name, b in model.named_buffers()},
        "state": [digest(value) for value in states],
        "torch": digest(torch.get_rng_state()),
        "numpy": hashlib.sha256(repr(np.random.get_state()).encode()).hexdigest(),
        "python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
    }
    folder = Path(os.environ["RANKS_SAY"])
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(found, indent=1))
    dist.barrier()
    dist.destroy_process_group()
