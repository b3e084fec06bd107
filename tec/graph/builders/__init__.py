"""Graphs by hand: a `Builder` adds nodes to a graph, and the functions here add whole layers with it.

For frontends and for passes alike: nothing here knows the format that a model came in. `conv`, `matmul`, `norm`, `attention`, `recurrent`
and `quantize` each hold one family; the first argument of every function is the builder.
"""

from .builder import Builder, axis_of, identifier

__all__ = ["Builder", "axis_of", "identifier"]
