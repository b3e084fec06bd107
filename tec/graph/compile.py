"""tec.compile: an operator graph to one module: graph passes, groups, te computes, schedules, kernels, memory plan, program.

In: a Graph with shapes and dtypes inferred and `FusedGroup`s formed (tec/graph/passes/fuse.py): each group has
`inputs` (value names), `outputs` (value names), `nodes` in topological order; each node's operator gives its te compute.
Out: a `tec.runtime.network.Network`. Groups equal by structural hash share one kernel.
"""
