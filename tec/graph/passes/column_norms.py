"""Layer norms along an axis that others follow (channels of images as they lie) as one operator on GPUs, where its price says that it pays.

Written as a mean, a difference, a mean of squares and a quotient, x is read in four kernels, and the difference is stored. One kernel has the columns of a work-group in the caches by the time
that it reads them again (`choices.families.columns`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ...choices.operator_price import operator_seconds
from ...ir.dtype import dtype_info
from ...target import Target
from ..graph import Graph, Value
from .patterns import Found, Rule, apply_rule, number
from .rewrite import where_priced
from .spellings import GAP, INVERSE, ROOT

_ELEMENTWISE = 2  # kernels beside the two means: the difference, and the quotient


_WHY = "four kernels read x, and one of them stores the difference"


@where_priced
def column_norms(graph: Graph, target: Target) -> Graph:
    """The graph with such norms as operators."""
    pays = partial(_columns, target)
    for name, pattern in (("factor", ("multiply", GAP, INVERSE)), ("quotient", ("divide", GAP, ROOT))):
        graph = apply_rule(Rule(f"layer norm of columns by a {name}", pattern, pays, "layer_norm", ("x",), _WHY), graph)
    return graph


def _columns(target: Target, found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a norm along neighbouring axes that others follow, both means over the same ones."""
    x, epsilon = found["x"], number(found["epsilon"])
    floats = ("float32", "float16")
    if epsilon is None or x.type.is_symbolic or x.dtype not in floats or out.shape != x.shape or "least" in found:
        return None
    over = _axes(found["mean"])
    if over is None or over != _axes(found["variance"]):
        return None
    axis, until = over
    if until == x.ndim or math.prod(x.shape[until:]) < 2 or math.prod(x.shape[axis:until]) < 2:
        return None
    attrs = {"axis": axis, "until": until, "epsilon": epsilon}
    each = (
        2 * x.type.size * dtype_info(x.dtype).bytes / (target.machine.reached_gbps * 1e9)
        + target.machine.launch_seconds
    )
    mean = operator_seconds("reduce_mean", [x.type], {"axes": tuple(range(axis, until)), "keepdims": True}, target)
    alone = operator_seconds("layer_norm", [x.type], attrs, target, results=1)
    return attrs if alone < 2 * mean + _ELEMENTWISE * each else None


def _axes(mean: Value) -> tuple[int, int] | None:
    """The first of a mean's axes, which are neighbours and stay with extent 1, and the first axis behind them."""
    assert mean.node is not None
    ndim = mean.node.inputs[0].ndim
    axes = sorted({a % ndim for a in mean.node.attrs["axes"]})
    neighbours = bool(axes) and axes == list(range(axes[0], axes[-1] + 1))
    return (axes[0], axes[-1] + 1) if neighbours and mean.node.attrs.get("keepdims", True) else None
