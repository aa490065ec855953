"""Makes a forked child one of several ranks: what torchrun puts into the environment of each."""

from __future__ import annotations

import os
import socket

LOADED = (
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
)
"""What programs with several ranks import: a second each, once for all."""


def enter(rank: int, size: int, port: int, folder: str) -> None:
    """Be this rank of so many. The program writes what it has in the end to the folder."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANKS_SAY=folder,
    )


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
