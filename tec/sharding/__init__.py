"""One network over several devices: sharding is said once, by rules, and follows through the operator graph.

    mesh = tec.Mesh({"tensor": 4}, devices)
    net = tec.shard(model, mesh, {"*q_proj.weight": P("tensor", None), ...})
    logits, = net.run({"x": x})

What the rules say of some values is propagated over the graph; collectives stand where ranks need each other's parts; every rank runs the same program on its
part of the weights. `net.sharding()` says how each value lies and what was replicated, `net.report()` what a step takes by the published rates of links.
"""

from __future__ import annotations

from ..errors import listed
from .mesh import Mesh, Partial, PartitionSpec, Replicate, Shard
from .network import ShardedNetwork, load, shard
from .rules import decoder_rules

__all__ = ["Mesh", "Partial", "PartitionSpec", "Replicate", "Shard", "ShardedNetwork", "decoder_rules", "load", "shard"]


__dir__ = listed(__name__)
