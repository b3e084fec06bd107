"""Graph passes, one a file: each takes a Graph and gives a Graph. `PASSES` is the list, in order, the same for every target.

A pass that a target has no use for says so by a capability (`needs`): which layout convolutions and constant operands take is a matter of whether work
is spread over a GPU's threads or over vectors of a few cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..target import Target
from .graph import Graph


@dataclass(frozen=True)
class Pass:
    """One step: `run(graph, target, dtype)`, where `needs(target, dtype)` holds."""

    name: str
    run: Callable[[Graph, Target, str | None], Graph]
    needs: Callable[[Target, str | None], bool] = lambda target, dtype: True


def _gpu(target: Target, dtype: str | None) -> bool:
    return target.is_gpu


def _cpu(target: Target, dtype: str | None) -> bool:
    return not target.is_gpu


def passes() -> tuple[Pass, ...]:
    """All passes in order. They are imported when they are first asked for."""
    from .passes.attention import find_attention
    from .passes.byte_products import byte_products
    from .passes.common_subexpressions import common_subexpressions
    from .passes.dead_code import dead_code
    from .passes.fold_scale import fold_scale
    from .passes.images import signals_as_images
    from .passes.layout import choose_layouts
    from .passes.mixed_precision import mixed_precision
    from .passes.packed import pack_weights
    from .passes.split_concat import split_concat
    from .passes.views import move_views
    from .passes.weights import transpose_weights

    clean = Pass("dead_code", lambda g, t, d: dead_code(g))
    return (
        clean,
        Pass("common_subexpressions", lambda g, t, d: common_subexpressions(g)),
        Pass("find_attention", lambda g, t, d: find_attention(g, t, d)),
        clean,
        Pass("split_concat", lambda g, t, d: split_concat(g)),
        Pass("fold_scale", lambda g, t, d: fold_scale(g)),
        clean,
        Pass("move_views", lambda g, t, d: move_views(g, t)),
        clean,
        Pass("mixed_precision", lambda g, t, d: mixed_precision(g, d or ""), lambda t, d: d is not None),
        Pass("signals_as_images", lambda g, t, d: signals_as_images(g)),
        Pass("byte_products", lambda g, t, d: byte_products(g, t), _gpu),
        Pass("transpose_weights", lambda g, t, d: transpose_weights(g, t), _gpu),
        Pass("pack_weights", lambda g, t, d: pack_weights(g, t), _cpu),
        Pass("choose_layouts", lambda g, t, d: choose_layouts(g, t)),
        clean,
    )


def optimize(graph: Graph, target: Target, dtype: str | None = None) -> Graph:
    """All graph passes for a target; `dtype` "float16" asks for mixed precision."""
    for p in passes():
        if p.needs(target, dtype):
            graph = p.run(graph, target, dtype)
    return graph
