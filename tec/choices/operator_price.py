"""What an operator alone should take on a target: by its te definition, and what templates make of that. Graph passes compare ways to store operands by it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import te
from ..ops.registry import Attrs, TensorType, get_op
from ..target import Target
from . import preferred
from .rules import figures

MARGIN = 0.95  # of the price of the usual way, that another one may have at most: prices are no better than that


def operator_seconds(
    op: str,
    types: Sequence[TensorType],
    attrs: Attrs,
    target: Target,
    unpriced: tuple[str, ...] = (),
    results: int | None = None,
) -> float:
    """The price of an operator's default in seconds; infinite where no template serves it, and for templates that are `unpriced`. results: how many of its first ones are asked for; None: all."""
    known = get_op(op)
    outs = known.infer(types, attrs)
    found = preferred(known.compute(attrs, [te.placeholder(t.shape, t.dtype) for t in types], outs)[:results], target)
    if found is None or found[0].template in unpriced:
        return math.inf
    return found[0].cost(found[1]).seconds


def taps_margin(target: Target, is_gathered: bool) -> float:
    """What a convolution in two steps, products by one pixel and sums of their taps, may cost of the price of its windows; is_gathered: whether that price leaves out what gathering waits."""
    known = figures.of("few outputs", target)
    return known["gathered_margin"] if is_gathered else known["margin"]


def gathered_price(target: Target, places: int) -> float:
    """Times the price of windows of so many places that are gathered from a plain image element by element: of long ones it is too low."""
    known = figures.of("convolution layout", target)
    return known["long_window_price"] if "long_window" in known and places >= known["long_window"] else 1.0


def phases_margin(target: Target) -> float:
    """Times the price of phases of a convolution as a batch of products, which leaves out that several work-groups write parts of each line."""
    return figures.of("conv phases", target)["batched"]


def separate_sums_known(target: Target) -> tuple[float, float] | None:
    """Of sums over axes around others: what two steps may cost of the price of one, and how many runs of the last axes' elements a line has at least; None where nothing was measured."""
    known = figures.of("separate sums", target)
    return (known["margin"], known["least_runs"]) if target.is_gpu and known else None


def is_better_turned(target: Target, a: TensorType, b: TensorType, attrs: Attrs) -> bool:
    """Whether a GPU's product with rows of B along the sum (`transpose_b`) is quicker by what templates ask for it where B lies the other way round. Not asked
    where a size is open."""
    if not (target.is_gpu and attrs.get("transpose_b")):
        return False
    if a.is_symbolic or b.is_symbolic or attrs.get("view_b") or attrs.get("layout_b"):
        return False
    other = TensorType(b.dtype, (*b.shape[:-2], b.shape[-1], b.shape[-2]))
    turned = operator_seconds("matmul", [a, other], {**attrs, "transpose_b": False}, target)
    return turned < MARGIN * operator_seconds("matmul", [a, b], attrs, target)
