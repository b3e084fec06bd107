"""Boxes of detectors, for `topi.vision`: which of them count, non-maximum suppression, the anchors and offsets of SSD, maxima of regions of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .operators import compute, tensor, type_of
from .tag import INJECTIVE

__all__ = [
    "get_valid_counts", "multibox_detection", "multibox_prior", "multibox_transform_loc", "non_max_suppression", "proposal", "reorg", "roi_pool_nchw",
]  # fmt: skip


def _boxes(data: Tensor, what: str) -> Tensor:
    x = tensor(data, what)
    if x.ndim != 3:
        raise ExprError(f"{what} of a tensor of shape {x.shape}", hint="(batch, boxes, numbers of a box)")
    return x


def _to_the_front(flag: Any, batch: Any, n: Any) -> tuple[Tensor, Tensor]:
    """(which row stands at each place if those with a flag come first, in their order; how many have one). flag(b, j): a condition."""
    k, i, m = (te.reduce_axis((0, n), name) for name in "kim")
    place = compute(
        (batch, n), lambda b, j: te.sum(te.cast("int32", te.all(k < j, flag(b, k))), axis=k), "box_place", ""
    )
    order = compute(
        (batch, n), lambda b, p: te.sum(te.select(te.all(place[b, i] == p, flag(b, i)), i, 0), axis=i), "box_order", ""
    )
    count = compute((batch,), lambda b: te.sum(te.cast("int32", flag(b, m)), axis=m), "box_count", "")
    return order, count


def get_valid_counts(
    data: Tensor, score_threshold: Any = 0, id_index: int = 0, score_index: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """How many boxes of each picture have a score above `score_threshold` and, where `id_index` is not negative, a class; these boxes ahead of rows
    of -1; and which they were.

    >>> [t.shape for t in topi.vision.get_valid_counts(te.placeholder((2, 9, 6), name="boxes"), 0.5)]
    [(2,), (2, 9, 6), (2, 9)]
    """
    x = _boxes(data, "get_valid_counts")
    batch, n, width = x.shape

    def counts(b: Any, j: Any) -> Any:
        scored = x[b, j, score_index] > te.cast(x.dtype, score_threshold)
        return scored if id_index < 0 else te.all(scored, x[b, j, id_index] >= te.const(0, x.dtype))

    order, count = _to_the_front(counts, batch, n)
    rows = compute(
        (batch, n, width),
        lambda b, j, k: te.if_then_else(j < count[b], x[b, order[b, j], k], te.const(-1, x.dtype)),
        "valid_boxes",
        INJECTIVE,
    )
    of = compute((batch, n), lambda b, j: te.if_then_else(j < count[b], order[b, j], -1), "valid_indices", INJECTIVE)
    return count, rows, of


def _overlap(box: Sequence[Any], other: Sequence[Any], pixel: float = 0.0) -> Any:
    """The intersection of two boxes over their union, of corners in any order; `pixel`: what a side is longer than the distance of its ends."""

    a, b = ([te.min(v[0], v[2]), te.min(v[1], v[3]), te.max(v[0], v[2]), te.max(v[1], v[3])] for v in (box, other))
    zero, more = te.const(0, a[0].dtype), te.const(pixel, a[0].dtype)
    sides = [te.max(zero, te.min(a[k + 2], b[k + 2]) - te.max(a[k], b[k]) + more) for k in (0, 1)]
    both = sides[0] * sides[1]
    areas = [(v[2] - v[0] + more) * (v[3] - v[1] + more) for v in (a, b)]
    either = areas[0] + areas[1] - both
    return te.select(either <= zero, zero, both / te.select(either <= zero, te.const(1, zero.dtype), either))


def _kept(first: Tensor, overlaps: Any) -> Tensor:
    """Which boxes, in the order of their scores, stay: one is out where one ahead of it that stays overlaps it. `first`: those that count, of 0 and 1;
    overlaps(b, i, j): a condition."""
    batch, n = first.shape
    before = te.placeholder((n + 1, batch, n), first.dtype, name="boxes_left")

    def step(t: Any, b: Any, j: Any) -> Any:
        out = te.all(j > t - 1, before[t - 1, b, t - 1] > te.const(0, first.dtype), overlaps(b, t - 1, j))
        return te.select(out, te.const(0, first.dtype), before[t - 1, b, j])

    begin = compute((1, batch, n), lambda _, b, j: first[b, j], "boxes_first", INJECTIVE)
    after = te.compute((n + 1, batch, n), step, name="boxes_kept")
    left = te.scan(begin, after, before, name="suppression")
    return compute((batch, n), lambda b, j: left[n, b, j], "boxes_stay", INJECTIVE)


def _by_score(x: Tensor, count: Any, score_index: int, most: Any = None) -> tuple[Tensor, Tensor]:
    """The first `count(b)` boxes in the order of their scores, NaN last, ahead of the others; and which they are. most: of them, so many."""
    batch, n, width = x.shape
    rows_of = n if most is None else most
    k, i, m = (te.reduce_axis((0, n), name) for name in "kim")

    def before(b: Any, one: Any, other: Any) -> Any:
        first, second, tie = x[b, one, score_index], x[b, other, score_index], one < other
        alike = te.any(first == second, te.all(first != first, second != second))
        larger = te.any(first > second, te.all(first == first, second != second), te.all(alike, tie))
        return te.any(
            te.all(one < count(b), te.any(other >= count(b), larger)), te.all(one >= count(b), other >= count(b), tie)
        )

    rank = compute((batch, n), lambda b, j: te.sum(te.cast("int32", before(b, k, j)), axis=k), "box_rank", "")
    order = compute((batch, rows_of), lambda b, p: te.sum(te.select(rank[b, i] == p, i, 0), axis=i), "box_order", "")
    # Every box is compared with all others, whatever it is computed of: a sum with one term is kept.
    rows = compute(
        (batch, rows_of, width),
        lambda b, p, c: te.sum(te.select(rank[b, m] == p, x[b, m, c], te.const(0, x.dtype)), axis=m),
        "boxes_by_score",
        "",
    )
    return rows, order


def non_max_suppression(
    data: Tensor, valid_count: Tensor, indices: Tensor, max_output_size: Any = -1, iou_threshold: Any = 0.5, force_suppress: bool = False,
    top_k: int = -1, coord_start: int = 2, score_index: int = 1, id_index: int = 0, return_indices: bool = True, invalid_to_bottom: bool = False,
) -> Any:  # fmt: skip
    """Non-maximum suppression of boxes (batch, boxes, numbers), of which the first `valid_count` of each picture count, by score: a box is out where one of a
    higher score that stays overlaps it by `iou_threshold` or more, of the same class (`id_index`) or of any (`force_suppress`, or a negative `id_index`).

    Returns the rows of the boxes in the order of their scores, with -1 for those that are out (behind the others with `invalid_to_bottom`); or, with
    `return_indices`, the `indices` of those that stay ahead of -1, (batch, boxes), and their number, (batch, 1).

    >>> boxes, count, of = te.placeholder((2, 9, 6)), te.placeholder((2,), "int32"), te.placeholder((2, 9), "int32")
    >>> topi.vision.non_max_suppression(boxes, count, of, return_indices=False).shape
    (2, 9, 6)
    """
    x, count = _boxes(data, "non_max_suppression"), tensor(valid_count, "non_max_suppression")
    batch, n, _ = x.shape
    by_score, order = _by_score(x, lambda b: count[b], score_index)

    def counts(b: Any, j: Any) -> Any:
        here = te.all(j < count[b], by_score[b, j, score_index] > te.const(0, x.dtype))
        return here if top_k <= 0 else te.all(here, j < top_k)

    def overlaps(b: Any, i: Any, j: Any) -> Any:
        one, other = ([by_score[b, k, coord_start + c] for c in range(4)] for k in (i, j))
        over = _overlap(one, other) >= te.cast(x.dtype, iou_threshold)
        if id_index < 0:
            return over
        known = te.all(over, by_score[b, i, id_index] >= te.const(0, x.dtype))
        return known if force_suppress else te.all(known, by_score[b, i, id_index] == by_score[b, j, id_index])

    first = compute((batch, n), lambda b, j: te.cast("int32", counts(b, j)), "boxes_count", INJECTIVE)
    stay = first if isinstance(iou_threshold, (int, float)) and iou_threshold <= 0 else _kept(first, overlaps)
    k = te.reduce_axis((0, n), "k")
    place = compute((batch, n), lambda b, j: te.sum(te.select(k <= j, stay[b, k], 0), axis=k), "boxes_place", "")
    most = te.cast("int32", max_output_size)

    def stays(b: Any, j: Any) -> Any:
        return te.all(stay[b, j] > 0, te.any(most < 0, place[b, j] <= most))

    minus = te.const(-1, x.dtype)
    if not return_indices and not invalid_to_bottom:
        return compute(
            x.shape, lambda b, j, c: te.if_then_else(stays(b, j), by_score[b, j, c], minus), "boxes_left", INJECTIVE
        )
    front, number = _to_the_front(stays, batch, n)
    if not return_indices:
        return compute(
            x.shape,
            lambda b, j, c: te.if_then_else(j < number[b], by_score[b, front[b, j], c], minus),
            "boxes_left",
            INJECTIVE,
        )
    of = tensor(indices, "non_max_suppression")
    found = compute(
        (batch, n),
        lambda b, j: te.if_then_else(j < number[b], of[b, order[b, front[b, j]]], te.const(-1, of.dtype)),
        "boxes_found",
        INJECTIVE,
    )
    return [found, compute((batch, 1), lambda b, _: number[b], "boxes_number", INJECTIVE)]


def multibox_prior(
    data: Tensor, sizes: Sequence[float] = (1,), ratios: Sequence[float] = (1,), steps: Sequence[float] = (-1, -1),
    offsets: Sequence[float] = (0.5, 0.5), clip: bool = False,
) -> Tensor:  # fmt: skip
    """SSD's anchors for each place of a map (batch, channels, height, width), as shares of the picture: boxes of each of `sizes`, and of the first in
    each further shape of `ratios`; (1, height * width * anchors, 4).

    >>> topi.vision.ssd.multibox_prior(te.placeholder((1, 3, 5, 7)), sizes=(0.5, 0.2), ratios=(1, 2)).shape
    (1, 105, 4)
    """
    x = tensor(data, "multibox_prior")
    sizes, ratios, steps, offsets = (
        [float(getattr(v, "value", v)) for v in given] for given in (sizes, ratios, steps, offsets)
    )
    high, wide = x.shape[2], x.shape[3]
    kinds = [(s, 1.0) for s in sizes] + [(sizes[0], r) for r in ratios[1:]]
    rows, columns = te.cast("float32", high), te.cast("float32", wide)
    step_y = steps[0] if steps[0] > 0 else 1.0 / rows
    step_x = steps[1] if steps[1] > 0 else 1.0 / columns

    def side(i: Any, j: Any, kind: int, corner: int) -> Any:
        size, ratio = kinds[kind]
        sign = -0.5 if corner < 2 else 0.5
        if corner % 2:
            return (te.cast("float32", i) + offsets[0]) * step_y + sign * size / math.sqrt(ratio)
        return (te.cast("float32", j) + offsets[1]) * step_x + (sign * size * math.sqrt(ratio)) * rows / columns

    def place(_: Any, box: Any, corner: Any) -> Any:
        at, kind = te.indexdiv(box, len(kinds)), te.indexmod(box, len(kinds))
        i, j = te.indexdiv(at, wide), te.indexmod(at, wide)
        value = te.const(0.0, "float32")
        for k in range(len(kinds)):
            for c in range(4):
                value = te.select(te.all(kind == k, corner == c), side(i, j, k, c), value)
        return te.max(te.min(value, te.const(1.0, "float32")), te.const(0.0, "float32")) if clip else value

    return compute((1, high * wide * len(kinds), 4), place, "multibox_prior", INJECTIVE)


def multibox_transform_loc(
    cls_prob: Tensor, loc_pred: Tensor, anchor: Tensor, clip: bool = True, threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2), keep_background: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """SSD's boxes, rows of (class, score, x1, y1, x2, y2) ahead of rows of -1, and how many there are: of the likeliest class of `cls_prob` (batch, classes,
    anchors), at `anchor` (1, anchors, 4) moved by `loc_pred` (batch, anchors * 4). Class 0 is the background, which is left out."""
    prob, loc, base = (tensor(v, "multibox_transform_loc") for v in (cls_prob, loc_pred, anchor))
    batch, classes, n = prob.shape
    zero, dtype = te.const(0, prob.dtype), prob.dtype
    start = 0 if keep_background else 1
    k, m = te.reduce_axis((start, classes), "k"), te.reduce_axis((start, classes), "k")
    score = compute((batch, n), lambda b, j: te.max(prob[b, k, j], axis=k), "class_score", "")
    likeliest = compute(
        (batch, n),
        lambda b, j: te.min(
            te.select(prob[b, m, j] == score[b, j], te.cast("int32", m), te.cast("int32", classes)), axis=m
        ),
        "class_of",
        "",
    )
    of = compute(
        (batch, n),
        lambda b, j: te.select(score[b, j] < te.const(threshold, dtype), 0, likeliest[b, j]),
        "class_kept",
        INJECTIVE,
    )
    order, count = _to_the_front(lambda b, j: te.const(1, "bool") if keep_background else of[b, j] > 0, batch, n)
    vx, vy, vw, vh = (te.const(float(getattr(v, "value", v)), dtype) for v in variances)

    def corner(b: Any, j: Any, c: int) -> Any:
        low, high = base[0, j, c % 2], base[0, j, c % 2 + 2]
        move, grow = (vx, vw) if c % 2 == 0 else (vy, vh)
        size = high - low
        middle = loc[b, j * 4 + c % 2] * move * size + (low + high) / te.const(2, dtype)
        half = te.exp(loc[b, j * 4 + c % 2 + 2] * grow) * size / te.const(2, dtype)
        v = middle - half if c < 2 else middle + half
        return te.max(zero, te.min(te.const(1, dtype), v)) if clip else v

    def number(b: Any, p: Any, what: Any) -> Any:
        j = order[b, p]
        value = te.cast(dtype, of[b, j] - (0 if keep_background else 1))
        value = te.select(what == 1, score[b, j], value)
        for c in range(4):
            value = te.select(what == c + 2, corner(b, j, c), value)
        return te.if_then_else(p < count[b], value, te.const(-1, dtype))

    return compute((batch, n, 6), number, "multibox_boxes", INJECTIVE), count


def multibox_detection(
    cls_prob: Tensor, loc_pred: Tensor, anchor: Tensor, clip: bool = True, threshold: float = 0.01, nms_threshold: float = 0.5,
    force_suppress: bool = False, variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2), nms_topk: int = -1,
) -> Tensor:  # fmt: skip
    """SSD's detections: `multibox_transform_loc`, then `non_max_suppression`; (batch, anchors, 6)."""
    boxes, count = multibox_transform_loc(cls_prob, loc_pred, anchor, clip, threshold, variances)
    found: Tensor = non_max_suppression(
        boxes, count, boxes, -1, nms_threshold, force_suppress, nms_topk, return_indices=False
    )
    return found


def roi_pool_nchw(data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float) -> Tensor:
    """Maxima of `pooled_size` (height, width) parts of each region: `rois` are rows of (picture, x1, y1, x2, y2), in units of which `spatial_scale` is one
    pixel. A part without pixels gives 0.

    >>> topi.vision.rcnn.roi_pool_nchw(te.placeholder((1, 3, 8, 8)), te.placeholder((4, 5)), (2, 2), 0.5).shape
    (4, 3, 2, 2)
    """
    x, boxes = tensor(data, "roi_pool_nchw"), tensor(rois, "roi_pool_nchw")
    if x.ndim != 4 or boxes.ndim != 2 or type_of(boxes).shape[1] != 5:
        raise ExprError(
            f"roi_pool_nchw of {x.shape} and boxes of shape {boxes.shape}",
            hint="(n, c, h, w), and rows of (picture, x1, y1, x2, y2)",
        )
    parts = tuple(pooled_size) if isinstance(pooled_size, (list, tuple)) else (pooled_size, pooled_size)
    count, channels, extent = boxes.shape[0], x.shape[1], (x.shape[2], x.shape[3])

    def bound(r: Any, p: Any, axis: int, last: int) -> Any:
        """The first pixel of a part along an axis, or the one behind its last."""
        scaled = [te.cast("int32", te.round(boxes[r, c - axis] * te.const(spatial_scale, boxes.dtype))) for c in (2, 4)]
        length = te.max(scaled[1] - scaled[0] + 1, 1)
        each = te.cast(boxes.dtype, length) / te.const(parts[axis], boxes.dtype)
        edge = te.cast(boxes.dtype, p + last) * each
        at = te.cast("int32", te.ceil(edge) if last else te.floor(edge)) + scaled[0]
        return te.max(te.min(at, te.cast("int32", extent[axis])), 0)

    edges = [
        compute(
            (count, parts[axis], 2),
            lambda r, p, e, axis=axis: te.select(e == 0, bound(r, p, axis, 0), bound(r, p, axis, 1)),
            "roi_edges",
            INJECTIVE,
        )
        for axis in (0, 1)
    ]
    i, j = te.reduce_axis((0, extent[0]), "i"), te.reduce_axis((0, extent[1]), "j")
    lowest = te.min_value(x.dtype)

    def largest(r: Any, c: Any, p: Any, q: Any) -> Any:
        inside = te.all(i >= edges[0][r, p, 0], i < edges[0][r, p, 1], j >= edges[1][r, q, 0], j < edges[1][r, q, 1])
        value = x[te.max(te.min(te.cast("int32", boxes[r, 0]), x.shape[0] - 1), 0), c, i, j]
        return te.max(te.if_then_else(inside, value, lowest), axis=[i, j])

    found = compute((count, channels, *parts), largest, "roi_pool", "")

    def filled(r: Any, c: Any, p: Any, q: Any) -> Any:
        some = te.all(edges[0][r, p, 0] < edges[0][r, p, 1], edges[1][r, q, 0] < edges[1][r, q, 1])
        return te.select(some, found[r, c, p, q], te.const(0, x.dtype))

    return compute((count, channels, *parts), filled, "roi_pool_filled", INJECTIVE)


def _anchor(ratio: float, scale: float, stride: float) -> tuple[float, float, float, float]:
    """The corners of an anchor around a cell of `stride` pixels, of whole sides."""
    middle, area = 0.5 * (stride - 1.0), math.floor(stride * stride / ratio)
    wide = math.floor(math.sqrt(area) + 0.5) * scale
    high = math.floor(wide / scale * ratio + 0.5) * scale
    x, y = 0.5 * (wide - 1.0), 0.5 * (high - 1.0)
    return middle - x, middle - y, middle + x, middle + y


def _proposed(
    prob: Tensor, moves: Tensor, info: Tensor, shapes: tuple[list[float], list[float]], stride: int, least_side: int, iou_loss: bool
) -> Tensor:  # fmt: skip
    """The anchors of all cells as they are moved, in the picture, and their scores: (batch, boxes, 5). Those that are too small, or of cells outside of the
    picture, have the score -1."""
    scales, ratios = shapes
    batch, twice, rows, columns = type_of(prob).shape
    kinds, dtype = twice // 2, prob.dtype
    anchors = [_anchor(ratios[k // len(scales)], scales[k % len(scales)], float(stride)) for k in range(kinds)]
    count = rows * columns * kinds

    def number(v: float) -> Any:
        return te.const(v, dtype)

    def place(box: Any) -> tuple[Any, Any, Any]:
        """(anchor, row, column) of a box."""
        at = te.indexdiv(box, kinds)
        return te.indexmod(box, kinds), te.indexdiv(at, columns), te.indexmod(at, columns)

    def corners(b: Any, box: Any) -> list[Any]:
        kind, i, j = place(box)
        base = [number(v) for v in anchors[0]]
        for k in range(1, kinds):
            base = [te.select(kind == k, number(v), w) for v, w in zip(anchors[k], base)]
        base = [v + te.cast(dtype, (j, i)[c % 2] * stride) for c, v in enumerate(base)]
        move = [moves[b, kind * 4 + c, i, j] for c in range(4)]
        if iou_loss:
            found = [v + d for v, d in zip(base, move)]
        else:
            size = [base[c + 2] - base[c] + number(1) for c in (0, 1)]
            middle = [move[c] * size[c] + base[c] + number(0.5) * (size[c] - number(1)) for c in (0, 1)]
            half = [number(0.5) * (te.exp(move[c + 2]) * size[c] - number(1)) for c in (0, 1)]
            found = [middle[0] - half[0], middle[1] - half[1], middle[0] + half[0], middle[1] + half[1]]
        return [te.max(te.min(v, info[b, 1 - c % 2] - number(1)), number(0)) for c, v in enumerate(found)]

    def row(b: Any, box: Any, what: Any) -> Any:
        kind, i, j = place(box)
        at, least = corners(b, box), info[b, 2] * number(least_side)
        small = te.any(at[2] - at[0] + number(1) < least, at[3] - at[1] + number(1) < least)
        outside = te.any(*[k >= te.cast("int32", info[b, c] / number(stride)) for c, k in ((0, i), (1, j))], small)
        value = te.select(outside, number(-1), prob[b, kinds + kind, i, j])
        for c, v in enumerate(at):
            wider = v + least / number(2) * number(-1 if c < 2 else 1)
            value = te.select(what == c, te.select(small, wider, v), value)
        return value

    return compute((batch, count, 5), row, "proposal_boxes", INJECTIVE)


def proposal(
    cls_prob: Tensor, bbox_pred: Tensor, im_info: Tensor, scales: Sequence[float], ratios: Sequence[float], feature_stride: int, threshold: float,
    rpn_pre_nms_top_n: int, rpn_post_nms_top_n: int, rpn_min_size: int, iou_loss: bool,
) -> Tensor:  # fmt: skip
    """Regions that a region proposal network finds, rows of (picture, x1, y1, x2, y2), `rpn_post_nms_top_n` for each picture: `cls_prob` (batch, 2 * anchors,
    height, width) has the scores behind those of the background, `bbox_pred` (batch, 4 * anchors, height, width) how the anchors move, and `im_info` rows
    of (height, width, scale). Where fewer regions are left, they are repeated."""
    prob, moves, info = (tensor(v, "proposal") for v in (cls_prob, bbox_pred, im_info))
    shapes = [float(getattr(v, "value", v)) for v in scales], [float(getattr(v, "value", v)) for v in ratios]
    boxes = _proposed(prob, moves, info, shapes, feature_stride, rpn_min_size, iou_loss)
    batch, count, _ = type_of(boxes).shape
    most = min(rpn_pre_nms_top_n, count) if rpn_pre_nms_top_n > 0 else count
    by_score, _ = _by_score(boxes, lambda b: te.const(count), 4, most)
    all_of = compute((batch, most), lambda b, j: te.const(1, "int32"), "proposal_all", INJECTIVE)

    def overlaps(b: Any, i: Any, j: Any) -> Any:
        one, other = ([by_score[b, k, c] for c in range(4)] for k in (i, j))
        return _overlap(one, other, 1.0) > te.const(threshold, prob.dtype)

    stay = _kept(all_of, overlaps)
    front, left = _to_the_front(lambda b, j: stay[b, j] > 0, batch, most)

    def result(flat: Any, c: Any) -> Any:
        b, p = te.indexdiv(flat, rpn_post_nms_top_n), te.indexmod(flat, rpn_post_nms_top_n)
        box = front[b, te.indexmod(p, te.max(left[b], 1))]
        return te.select(c == 0, te.cast(prob.dtype, b), by_score[b, box, te.max(c - 1, 0)])

    return compute((batch * rpn_post_nms_top_n, 5), result, "proposal", INJECTIVE)


def reorg(data: Tensor, stride: int) -> Tensor:
    """YOLO's reorganisation of (n, c, h, w) to (n, c * stride * stride, h // stride, w // stride), element by element as Darknet reads memory."""
    x = tensor(data, "reorg")
    n, c, h, w = type_of(x).shape
    if stride < 1:
        raise ExprError(f"reorg by a stride of {stride}", hint="an integer of at least 1")
    out = c // (stride * stride)

    def source(flat: Any) -> Any:
        """The element of (n, out, h * stride, w * stride) that element `flat` of (n, c, h, w) comes from."""
        column, row = te.indexmod(flat, w), te.indexmod(te.indexdiv(flat, w), h)
        channel, picture = te.indexmod(te.indexdiv(flat, w * h), c), te.indexdiv(flat, w * h * c)
        part = te.indexdiv(channel, out)
        y, z = row * stride + te.indexdiv(part, stride), column * stride + te.indexmod(part, stride)
        return ((picture * out + te.indexmod(channel, out)) * (h * stride) + y) * (w * stride) + z

    def element(b: Any, k: Any, i: Any, j: Any) -> Any:
        at = source(((b * (c * stride * stride) + k) * (h // stride) + i) * (w // stride) + j)
        return x[
            te.indexdiv(at, c * h * w),
            te.indexmod(te.indexdiv(at, h * w), c),
            te.indexmod(te.indexdiv(at, w), h),
            te.indexmod(at, w),
        ]

    return compute((n, c * stride * stride, h // stride, w // stride), element, "reorg", INJECTIVE)
