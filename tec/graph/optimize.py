"""Graph passes, one a file: each takes a Graph and gives a Graph. `PASSES` is the list, in order, the same for every target.

What differs between targets is what their templates answer (`tec.choices.layouts`: which layout a convolution's image or a constant operand takes) and
which instructions they have (`te.intrin`).
"""

from __future__ import annotations

from collections.abc import Callable, Set

from ..errors import InternalError
from ..records import dataclass
from ..target import Target
from .deferred import Deferred
from .graph import Graph
from .passes.appended_rows import appended_rows
from .passes.attention import find_attention
from .passes.byte_products import byte_products
from .passes.channel_scales import channel_scales
from .passes.column_norms import column_norms
from .passes.common_subexpressions import common_subexpressions
from .passes.copied_lines import copy_lines
from .passes.dead_code import dead_code
from .passes.einsums import einsums_as_products
from .passes.few_outputs import few_outputs
from .passes.float8_products import float8_products
from .passes.fold_scale import fold_scale
from .passes.gelu import find_gelu
from .passes.images import signals_as_images
from .passes.join_resamples import join_resamples
from .passes.join_sums import join_sums
from .passes.layout import choose_layouts
from .passes.mixed_precision import mixed_precision
from .passes.packed import pack_weights
from .passes.projections import find_projections
from .passes.quantized_products import quantized_products
from .passes.recompute_short import recompute_short
from .passes.requantize import requantize
from .passes.rotary import find_rotary, turn_queries
from .passes.row_operators import row_operators
from .passes.scattered_rows import scattered_rows
from .passes.separate_pools import separate_pools
from .passes.separate_sums import separate_sums
from .passes.separate_top_k import separate_top_k
from .passes.sibling_products import join_siblings
from .passes.slices import slices_behind_reshapes
from .passes.spellings import one_spelling
from .passes.split_concat import split_concat
from .passes.stored_phases import stored_phases
from .passes.turn_products import turn_products
from .passes.turned_results import turned_results
from .passes.views import move_views
from .passes.weights import order_weights
from .passes.widen_halves import widen_halves
from .passes.window_gradients import window_gradients
from .passes.window_rows import window_rows
from .regions import Body, bodies, is_region


@dataclass(frozen=True)
class Pass:
    """One step: `run(graph, target, dtype)`."""

    name: str
    run: Callable[[Graph, Target, str | None], Graph]


def passes() -> tuple[Pass, ...]:
    """All passes in order. They are imported when they are first asked for."""
    clean = Pass("dead_code", lambda g, t, d: dead_code(g))
    return (
        clean,
        Pass("common_subexpressions", lambda g, t, d: common_subexpressions(g)),
        Pass("window_gradients", lambda g, t, d: window_gradients(g)),
        Pass("einsums_as_products", lambda g, t, d: einsums_as_products(g)),
        Pass("one_spelling", lambda g, t, d: one_spelling(g)),
        Pass("scattered_rows", lambda g, t, d: scattered_rows(g)),
        Pass("copy_lines", lambda g, t, d: copy_lines(g, t)),
        clean,
        Pass("quantized_products", lambda g, t, d: quantized_products(g, t)),
        Pass("float8_products", lambda g, t, d: float8_products(g, t)),
        Pass("requantize", lambda g, t, d: requantize(g, t)),
        Pass("pack_weights", lambda g, t, d: pack_weights(g, t)),
        Pass("find_projections", lambda g, t, d: find_projections(g, t)),
        Pass("find_attention", lambda g, t, d: find_attention(g, t, d)),
        Pass("find_rotary", lambda g, t, d: find_rotary(g)),
        clean,
        Pass("split_concat", lambda g, t, d: split_concat(g)),
        Pass("fold_scale", lambda g, t, d: fold_scale(g)),
        clean,
        Pass("move_views", lambda g, t, d: move_views(g, t)),
        Pass("fold_scale", lambda g, t, d: fold_scale(g)),  # of networks with channels last: transposes have moved away
        Pass("turned_results", lambda g, t, d: turned_results(g, t)),
        Pass("find_gelu", lambda g, t, d: find_gelu(g)),
        clean,
        Pass("mixed_precision", lambda g, t, d: mixed_precision(g, d) if d else g),
        Pass("turn_queries", lambda g, t, d: turn_queries(g, t)),
        Pass("turn_products", lambda g, t, d: turn_products(g, t)),
        Pass("join_siblings", lambda g, t, d: join_siblings(g, t)),
        Pass("row_operators", lambda g, t, d: row_operators(g)),
        Pass("column_norms", lambda g, t, d: column_norms(g, t)),
        Pass("channel_scales", lambda g, t, d: channel_scales(g)),
        Pass("widen_halves", lambda g, t, d: widen_halves(g, t)),
        Pass("separate_pools", lambda g, t, d: separate_pools(g, t)),
        Pass("stored_phases", lambda g, t, d: stored_phases(g, t)),
        Pass("separate_sums", lambda g, t, d: separate_sums(g, t)),
        Pass("separate_top_k", lambda g, t, d: separate_top_k(g, t)),
        Pass("signals_as_images", lambda g, t, d: signals_as_images(g, t)),
        Pass("few_outputs", lambda g, t, d: few_outputs(g, t)),
        Pass("window_rows", lambda g, t, d: window_rows(g, t)),
        Pass("byte_products", lambda g, t, d: byte_products(g, t)),
        Pass("order_weights", lambda g, t, d: order_weights(g, t)),
        Pass("choose_layouts", lambda g, t, d: choose_layouts(g, t)),
        Pass("join_sums", lambda g, t, d: join_sums(g, t)),
        Pass("join_resamples", lambda g, t, d: join_resamples(g, t)),
        Pass("slices_behind_reshapes", lambda g, t, d: slices_behind_reshapes(g)),
        Pass("appended_rows", lambda g, t, d: appended_rows(g, t)),
        Pass("recompute_short", lambda g, t, d: recompute_short(g, t)),
        clean,
    )


def optimize(graph: Graph, target: Target, dtype: str | None = None, until: str | None = None) -> Graph:
    """All graph passes for a target, on the graphs of loops and branches too; `dtype` "float16" asks for mixed precision. until: the first pass that is
    not run, nor any after it. Raises InternalError where a pass has read a deferred constant."""
    deferred = {v.name for v in graph.constants() if isinstance(v.data, Deferred)}
    for p in passes():
        if p.name == until:
            return graph
        graph = p.run(graph, target, dtype)
        if deferred:
            _check_deferred(deferred, graph, p.name)
    for node in graph.nodes:
        if is_region(node):
            node.attrs = node.attrs | {k: Body(optimize(body, target, dtype)) for k, body in bodies(node)}
    return graph


def _check_deferred(names: Set[str], graph: Graph, by: str) -> None:
    """A pass that makes a constant of another gives it its name: of a deferred one it has read zeros, and the network would give wrong numbers."""
    made = [v.name for v in graph.constants() if v.is_known and v.name in names]
    if made:
        raise InternalError(f"{by} has read constants whose numbers come later: {', '.join(made[:4])}")
