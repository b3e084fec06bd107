"""Collectives: several devices that compute together, in one process or in several.

    group = tec.collectives.local([tec.cuda(0), tec.cuda(1)])       # one process, a rank for each device
    sums = group.run(lambda comm: comm.all_reduce(parts[comm.rank]))

    comm = tec.collectives.connect(rank, size, "127.0.0.1:29500", device=tec.cuda(rank))     # a process for each rank
    comm.all_reduce(x, out=x)

NVIDIA GPUs use libnccl and AMD GPUs librccl, in the order of the current stream and inside of captured graphs. CPUs and GPUs in software use rings of tec's own
over memory or sockets; these tell a call that the other ranks do not make, a rank that has ended, and ranks that wait for each other.
"""

from __future__ import annotations

from ..errors import listed
from .communicator import Communicator
from .groups import Group, connect, local

__all__ = ["Communicator", "Group", "connect", "local"]


__dir__ = listed(__name__)
