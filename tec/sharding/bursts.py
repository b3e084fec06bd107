"""All-reduces that nothing waits for stand together, so that a rank makes them in one burst.

The gradients of a training step are of this kind: the weights take them, and no other collective follows. As the splitter places them, each stands
ahead of its reader, and the ranks meet once a weight. Held back until some megabytes have come together, they are calls of one NCCL group
(`ncclGroupStart`), without copies to a common buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Graph, Node, Value
from .splitter import nbytes

# PyTorch's DistributedDataParallel reduces buckets of 25 MiB (its parameter `bucket_cap_mb`): an all-reduce of that size runs at the rate of the links.
BURST_BYTES = 25 << 20


def in_bursts(graph: Graph, most: int = BURST_BYTES) -> Graph:
    """`graph` with its nodes in an order in which all-reduces of at least `most` bytes together, or all that are left, stand one behind the other. Nodes that
    read them follow; all others keep their order."""
    late = _late(graph.nodes)
    order: list[Node] = []
    held: list[Node] = []  # all-reduces
    behind: list[Node] = []  # what reads them
    unmade: set[Value] = set()
    size = 0
    for node in graph.nodes:
        waits = any(v in unmade for v in node.inputs)
        if node in late and not waits:
            held.append(node)
            size += nbytes(node.inputs[0].type)
        elif waits:
            behind.append(node)
        else:
            order.append(node)
            continue
        unmade.update(node.outputs)
        if size >= most:
            order += held + behind
            held, behind, unmade, size = [], [], set(), 0
    graph.nodes = order + held + behind
    return graph


def _late(nodes: Sequence[Node]) -> set[Node]:
    """The all-reduces that no other collective waits for."""
    awaited: set[Value] = set()
    found: set[Node] = set()
    for node in reversed(nodes):
        moves = "mesh_axis" in node.attrs
        if moves or any(v in awaited for v in node.outputs):
            if node.op == "all_reduce" and not any(v in awaited for v in node.outputs):
                found.add(node)
            awaited.update(node.inputs)
    return found
