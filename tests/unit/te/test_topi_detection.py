"""`topi.vision`'s boxes of detectors against NumPy, written out one box after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.topi import vision

RNG = np.random.default_rng(0)
GPU = "rocm -mcpu=gfx942"
both = pytest.mark.parametrize("target", ["llvm", GPU])


def made(f: Any, *arrays: Any, target: str = "llvm") -> list[Any]:
    """What the schedule of `f` of tensors like the arrays computes of these."""
    ins = [te.placeholder(a.shape, str(a.dtype), name=f"in{k}") for k, a in enumerate(arrays)]
    outs = f(*ins)
    found = topi.schedule(outs if isinstance(outs, (list, tuple)) else [outs], target)
    device = tec.cpu() if target == "llvm" else tec.rocm_emu("gfx942")
    got = [tec.nd.empty(tuple(int(n) for n in t.shape), t.dtype, device) for t in found.outputs]
    tec.build(found.schedule, [*ins, *found.outputs], target)(*[tec.nd.array(a, device) for a in arrays], *got)
    return [g.numpy() for g in got]


def drawn(batch: int, n: int) -> Any:
    """Rows of (class, score, two corners)."""
    d = RNG.random((batch, n, 6)).astype("float32")
    d[..., 0] = RNG.integers(-1, 3, (batch, n))
    d[..., 4:] = d[..., 2:4] + d[..., 4:] * 0.5
    return d


def iou(a: Any, b: Any) -> float:
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    both = sides.prod()
    return float(both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both))


@both
@pytest.mark.parametrize("n", [1, 7])
def test_boxes_that_count_come_first(target: str, n: int) -> None:
    d = drawn(2, n)
    count, rows, of = made(lambda x: vision.get_valid_counts(x, 0.3), d, target=target)
    for b in range(2):
        want = np.nonzero((d[b, :, 1] > np.float32(0.3)) & (d[b, :, 0] >= 0))[0]
        assert count[b] == len(want)
        np.testing.assert_array_equal(rows[b], np.r_[d[b, want], -np.ones((n - len(want), 6))])
        np.testing.assert_array_equal(of[b], np.r_[want, -np.ones(n - len(want))])


WAYS = {
    "indices": {},
    "of any class": {"force_suppress": True, "iou_threshold": 0.3},
    "few": {"max_output_size": 3, "top_k": 9},
    "rows": {"return_indices": False, "id_index": -1, "iou_threshold": 0.2},
    "rows in front": {"return_indices": False, "invalid_to_bottom": True, "iou_threshold": 0.2},
    "none out": {"return_indices": False, "iou_threshold": 0.0},
}


@pytest.mark.parametrize("way", WAYS)
def test_suppression(way: str) -> None:
    named: dict[str, Any] = WAYS[way]
    batch, n = 2, 17
    d, count = drawn(batch, n), np.array([n, 5], "int32")
    of = RNG.permutation(batch * n).reshape(batch, n).astype("int32")
    threshold, any_class = named.get("iou_threshold", 0.5), named.get("force_suppress") or named.get("id_index") == -1
    rows, found, number = -np.ones_like(d), -np.ones((batch, n)), np.zeros((batch, 1))
    for b in range(batch):
        order = np.argsort(-d[b, : count[b], 1])[: named.get("top_k", n)]
        stay: list[tuple[int, int]] = []
        for place, j in enumerate(order):
            over = [
                any_class or d[b, k, 0] == d[b, j, 0]
                for _, k in stay
                if (named.get("id_index") == -1 or d[b, k, 0] >= 0) and iou(d[b, k, 2:], d[b, j, 2:]) >= threshold
            ]
            if len(stay) < named.get("max_output_size", n) and (threshold == 0 or not any(over)):
                stay.append((place, j))
        for k, (place, j) in enumerate(stay):
            rows[b, k if named.get("invalid_to_bottom") else place] = d[b, j]
            found[b, k] = of[b, j]
        number[b] = len(stay)
    if named.get("return_indices", True):
        got = made(lambda x, c, i: vision.non_max_suppression(x, c, i, **named), d, count, of)
        np.testing.assert_array_equal(got[0], found)
        np.testing.assert_array_equal(got[1], number)
    else:
        got = made(lambda x, c: vision.non_max_suppression(x, c, x, **named), d, count)
        np.testing.assert_array_equal(got[0], rows)


@both
def test_anchors_and_boxes_of_ssd(target: str) -> None:
    (got,) = made(
        lambda x: vision.ssd.multibox_prior(x, (0.5, 0.25), (1, 2, 0.5)),
        np.zeros((1, 2, 3, 5), "float32"),
        target=target,
    )
    want = []
    for i, j, (size, ratio) in itertools.product(range(3), range(5), [(0.5, 1), (0.25, 1), (0.5, 2), (0.5, 0.5)]):
        w, h = size * 3 / 5 * ratio**0.5 / 2, size / ratio**0.5 / 2
        want.append([(j + 0.5) / 5 - w, (i + 0.5) / 3 - h, (j + 0.5) / 5 + w, (i + 0.5) / 3 + h])
    np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-6)

    p, l = RNG.random((2, 4, 9)).astype("float32"), RNG.standard_normal((2, 36)).astype("float32")
    a = RNG.random((1, 9, 4)).astype("float32")
    a[..., 2:] += a[..., :2]
    boxes, count = made(lambda *v: vision.ssd.multibox_transform_loc(*v, threshold=0.6), p, l, a, target=target)
    for b in range(2):
        rows = []
        for j in range(9):
            of = int(p[b, 1:, j].argmax()) + 1
            if p[b, of, j] < np.float32(0.6):
                continue
            m, size = l[b, 4 * j : 4 * j + 4], a[0, j, 2:] - a[0, j, :2]
            middle, half = m[:2] * 0.1 * size + (a[0, j, :2] + a[0, j, 2:]) / 2, np.exp(m[2:] * 0.2) * size / 2
            rows.append([of - 1, p[b, of, j], *np.clip([*(middle - half), *(middle + half)], 0, 1)])
        assert count[b] == len(rows)
        np.testing.assert_allclose(boxes[b, : len(rows)], rows, rtol=1e-4, atol=1e-5)
        assert (boxes[b, len(rows) :] == -1).all()


def test_detections_of_ssd_are_those_that_stay() -> None:
    """A picture with three boxes, two of which are of one class and nearly the same."""
    p = np.array([[[0.1, 0.1, 0.2], [0.9, 0.8, 0.1], [0.0, 0.1, 0.7]]], "float32")
    a = np.array([[[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.45], [0.5, 0.5, 1, 1]]], "float32")
    (got,) = made(vision.ssd.multibox_detection, p, np.zeros((1, 12), "float32"), a)
    kept = got[0][got[0, :, 0] >= 0]
    np.testing.assert_allclose(kept, [[0, 0.9, *a[0, 0]], [1, 0.7, *a[0, 2]]], rtol=1e-6)


def test_proposals() -> None:
    """One anchor for each of four cells, moved by nothing: those that lie in the picture and apart, repeated."""
    p = np.array([[[[0.0, 0.0], [0.0, 0.0]], [[0.9, 0.8], [0.3, 0.6]]]], "float32")
    info = np.array([[32, 32, 1]], "float32")
    (got,) = made(
        lambda *v: vision.rcnn.proposal(*v, (1.0,), (1.0,), 16, 0.7, 4, 6, 4, False),
        p,
        np.zeros((1, 4, 2, 2), "float32"),
        info,
    )
    cells = [(0, 0), (0, 1), (1, 1), (1, 0)]  # by score
    want = [[0, 16 * x, 16 * y, 16 * x + 15, 16 * y + 15] for y, x in cells]
    np.testing.assert_array_equal(got, want + want[:2])


@both
def test_maxima_of_regions(target: str) -> None:
    x = RNG.standard_normal((2, 3, 9, 11)).astype("float32")
    rois = np.array([[0, 0, 0, 10, 8], [1, 3, 2, 30, 7], [0, 5, 5, 5, 5], [1, 8, 1, 4, 3]], "float32")
    (got,) = made(lambda a, b: vision.rcnn.roi_pool_nchw(a, b, (3, 2), 0.7), x, rois, target=target)
    for r, i, j in np.ndindex(4, 3, 2):
        x1, y1, x2, y2 = (int(v) for v in np.round(rois[r, 1:] * np.float32(0.7)))
        h, w = max(y2 - y1 + 1, 1) / 3, max(x2 - x1 + 1, 1) / 2
        rows = np.clip([np.floor(i * h) + y1, np.ceil((i + 1) * h) + y1], 0, 9).astype(int)
        columns = np.clip([np.floor(j * w) + x1, np.ceil((j + 1) * w) + x1], 0, 11).astype(int)
        part = x[int(rois[r, 0]), :, slice(*rows), slice(*columns)]
        np.testing.assert_array_equal(got[r, :, i, j], part.max((1, 2)) if part.size else np.zeros(3))


def test_reorg() -> None:
    x = RNG.standard_normal((1, 4, 4, 6)).astype("float32")
    (got,) = made(lambda a: vision.reorg(a, 2), x)
    read = x.reshape(1, 1, 8, 12)  # as Darknet takes the memory: one channel of twice the sides
    want = np.stack([read[0, 0, y::2, z::2] for y in range(2) for z in range(2)]).reshape(got.shape)
    np.testing.assert_array_equal(got, want)
