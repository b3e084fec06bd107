"""Graph passes, one a file: each takes a Graph and gives a Graph. `optimize` is the list, in order."""

from __future__ import annotations

from ..target import Target
from .graph import Graph


def optimize(graph: Graph, target: Target, dtype: str | None = None) -> Graph:
    """All graph passes for a target; `dtype` "float16" asks for mixed precision."""
    from .passes.byte_products import byte_products
    from .passes.common_subexpressions import common_subexpressions
    from .passes.conv_gemm import conv_as_gemm
    from .passes.dead_code import dead_code
    from .passes.fold_scale import fold_scale
    from .passes.layout import blocked_layout
    from .passes.mixed_precision import mixed_precision
    from .passes.packed import pack_weights
    from .passes.pixels import pixel_layout
    from .passes.split_concat import split_concat
    from .passes.views import move_views
    from .passes.weights import transpose_weights

    graph = dead_code(graph)
    graph = common_subexpressions(graph)
    graph = split_concat(graph)
    graph = fold_scale(graph)
    graph = dead_code(graph)
    graph = dead_code(move_views(graph, target))
    if dtype is not None:
        graph = mixed_precision(graph, dtype)
    if target.is_gpu:
        graph = byte_products(graph, target)
        graph = conv_as_gemm(pixel_layout(transpose_weights(graph, target), target))
    else:
        graph = pack_weights(graph, target)
        graph = blocked_layout(graph, target)
    return dead_code(graph)
