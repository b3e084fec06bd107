"""topi.image beside the formulas of its docstrings."""

from __future__ import annotations

import numpy as np
import pytest

from tec import te, topi
from tec.errors import ExprError

RNG = np.random.default_rng(8)


def places(maps, rows, columns):
    y, x = np.linspace(-1, 1, rows), np.linspace(-1, 1, columns)
    ones = np.ones((rows, columns))
    return np.einsum("nkc,cij->nkij", maps, np.stack([ones * x[None], ones * y[:, None], ones]))


def test_affine_grid():
    M = te.placeholder((3, 2, 3), name="M")
    maps = RNG.standard_normal((3, 2, 3)).astype("float32")
    (got,) = te.evaluate([topi.image.affine_grid(M, (4, 6))], {M: maps})
    np.testing.assert_allclose(got, places(maps, 4, 6), rtol=1e-5, atol=1e-6)


def sampled(x, grid):
    """Bilinear, zeros outside, the middles of the outermost pixels at -1 and 1."""
    n, c, rows, columns = x.shape
    out = np.zeros((n, c, *grid.shape[2:]))
    at = (grid[:, 0] + 1) / 2 * (columns - 1), (grid[:, 1] + 1) / 2 * (rows - 1)
    for b, i, j in np.ndindex(n, *grid.shape[2:]):
        px, py = at[0][b, i, j], at[1][b, i, j]
        for dy in (0, 1):
            for dx in (0, 1):
                u, v = int(np.floor(px)) + dx, int(np.floor(py)) + dy
                if 0 <= u < columns and 0 <= v < rows:
                    out[b, :, i, j] += x[b, :, v, u] * (1 - abs(px - u)) * (1 - abs(py - v))
    return out


def test_grid_sample_turns_and_shifts_a_picture():
    X, G = te.placeholder((2, 3, 5, 7), name="X"), te.placeholder((2, 2, 4, 6), name="G")
    x = RNG.standard_normal((2, 3, 5, 7)).astype("float32")
    maps = np.float32([[[0.8, -0.3, 0.1], [0.2, 0.9, -0.2]], [[1.3, 0.0, 0.4], [0.0, -1.0, 0.0]]])
    grid = places(maps, 4, 6).astype("float32")
    (got,) = te.evaluate([topi.image.grid_sample(X, G)], {X: x, G: grid})
    np.testing.assert_allclose(got, sampled(x, grid), rtol=1e-4, atol=1e-4)


def test_what_grid_sample_refuses():
    X, G = te.placeholder((1, 3, 5, 7), name="X"), te.placeholder((1, 2, 4, 6), name="G")
    with pytest.raises(ExprError, match="layout NHWC"):
        topi.image.grid_sample(X, G, layout="NHWC")
    with pytest.raises(ExprError, match="method='area'"):
        topi.image.grid_sample(X, G, method="area")


def resize_of_onnx(x, size, method, mode, rounding, alpha, exclude, roi):
    """The same by onnx's reference implementation of Resize."""
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    sizes = numpy_helper.from_array(np.asarray([*x.shape[:2], *size], "int64"), "sizes")
    region = numpy_helper.from_array(np.asarray(roi, "float32"), "roi")
    more = {"nearest_mode": rounding} if method == "nearest" else {}
    node = helper.make_node(
        "Resize", ["x", "roi", "", "sizes"], ["y"], mode=method, coordinate_transformation_mode=mode, cubic_coeff_a=alpha, exclude_outside=exclude,
        extrapolation_value=7.0, **more,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "resize", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], [helper.make_empty_tensor_value_info("y")], [sizes, region]
    )  # fmt: skip
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])).run(
        None, {"x": x}
    )[0]


@pytest.mark.parametrize(
    "mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize"]
)
@pytest.mark.parametrize(
    ("method", "rounding"),
    [("linear", "floor"), ("cubic", "floor"), ("nearest", "floor"), ("nearest", "ceil"), ("nearest", "round_prefer_floor"), ("nearest", "round_prefer_ceil")],
)  # fmt: skip
@pytest.mark.parametrize("size", [(7, 9), (3, 11), (1, 4)])
def test_resize2d(mode, method, rounding, size):
    x = RNG.standard_normal((2, 3, 5, 6)).astype("float32")
    region = [0.13, 0.21, 0.88, 1.31]
    if mode == "pytorch_half_pixel" and 1 in size:
        size = (2, 4)  # onnx's reference takes -0.5 for one element, where the operator's text and PyTorch take 0
    exclude = int(method == "cubic" and mode == "half_pixel")
    want = resize_of_onnx(x, size, method, mode, rounding, -0.6, exclude, [0, 0, *region[:2], 1, 1, *region[2:]])
    for layout, axes in (("NCHW", (0, 1, 2, 3)), ("NHWC", (0, 2, 3, 1))):
        X = te.placeholder(tuple(x.shape[a] for a in axes), name="x")
        made = topi.image.resize2d(
            X,
            region,
            size,
            layout,
            {"nearest": "nearest_neighbor"}.get(method, method),
            mode,
            rounding,
            -0.6,
            exclude,
            7.0,
        )
        (got,) = te.evaluate([made], {X: x.transpose(axes)})
        np.testing.assert_allclose(got, want.transpose(axes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("d", [1, 3])
def test_resizes_of_other_dimensions(d):
    x = RNG.standard_normal((2, 3, *(5, 4, 6)[:d])).astype("float32")
    size = (7, 3, 9)[:d]
    X = te.placeholder(x.shape, name="x")
    (got,) = te.evaluate([getattr(topi.image, f"resize{d}d")(X, None, size)], {X: x})
    want = resize_of_onnx(x, size, "linear", "half_pixel", "floor", -0.5, 0, [0.0] * (2 * d + 4))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_crop_and_resize():
    """Boxes are regions of their pictures; what is outside of one is the extrapolation's value."""
    x = RNG.standard_normal((2, 3, 6, 7)).astype("float32")
    boxes = np.asarray([[0.0, 0.0, 1.0, 1.0], [0.2, 0.1, 0.7, 0.8], [-0.3, 0.2, 0.5, 1.4]], "float32")
    of = np.asarray([1, 0, 1], "int32")
    X, B, I = te.placeholder(x.shape, name="x"), te.placeholder(boxes.shape, name="b"), te.placeholder((3,), "int32", "i")  # fmt: skip
    made = topi.image.crop_and_resize(X, B, I, (4, 5), extrapolation_value=7.0)
    (got,) = te.evaluate([made], {X: x, B: boxes, I: of})
    for k in range(3):
        region = [0, 0, boxes[k, 0], boxes[k, 1], 1, 1, boxes[k, 2], boxes[k, 3]]
        want = resize_of_onnx(x[of[k]][None], (4, 5), "linear", "tf_crop_and_resize", "floor", -0.5, 0, region)
        np.testing.assert_allclose(got[k], want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("stride", "padding", "hole"), [(1, 0, 1), (2, 1, 1), ((1, 2), "SAME", (2, 1)), (1, (0, 1, 2, 0), 1)]
)
def test_dilation2d(stride, padding, hole):
    x, f = RNG.standard_normal((2, 3, 8, 9)).astype("float32"), RNG.standard_normal((3, 3, 2)).astype("float32")
    X, F = te.placeholder(x.shape, name="x"), te.placeholder(f.shape, name="f")
    (got,) = te.evaluate([topi.image.dilation2d_nchw(X, F, stride, padding, hole)], {X: x, F: f})
    (sy, sx), (dy, dx) = (v if isinstance(v, tuple) else (v, v) for v in (stride, hole))
    reach = (2 * dy + 1, dx + 1)
    if padding == "SAME":
        total = [max(0, (-(-n // s) - 1) * s + r - n) for n, s, r in zip((8, 9), (sy, sx), reach)]
        around = [total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2]
    else:
        around = [*padding] if isinstance(padding, tuple) else [padding] * 4
    wide = np.pad(x, ((0, 0), (0, 0), (around[0], around[2]), (around[1], around[3])), constant_values=-np.inf)
    for n, c, i, j in np.ndindex(*got.shape):
        part = wide[n, c, i * sy : i * sy + reach[0] : dy, j * sx : j * sx + reach[1] : dx]
        assert abs(got[n, c, i, j] - (part + f[c]).max()) < 1e-5
    L, G = te.placeholder((2, 8, 9, 3), name="x"), te.placeholder((3, 2, 3), name="f")
    (last,) = te.evaluate(
        [topi.image.dilation2d_nhwc(L, G, stride, padding, hole)], {L: x.transpose(0, 2, 3, 1), G: f.transpose(1, 2, 0)}
    )
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), got, rtol=1e-6)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"layout": "NCHW4c"}, "layout NCHW4c"), ({"method": "area"}, "area"), ({"size": (4,)}, "2 sizes"), ({"coordinate_transformation_mode": "middle"}, "middle"),
        ({"method": "nearest_neighbor", "rounding_method": "up"}, "up"),
    ],
)  # fmt: skip
def test_resizes_that_are_not_there(more, says):
    X = te.placeholder((1, 2, 5, 6), name="x")
    with pytest.raises(ExprError) as e:
        topi.image.resize2d(**{"data": X, "roi": None, "size": (7, 9), **more})
    assert says in str(e.value)
    with pytest.raises(ExprError, match="open sizes"):
        topi.image.resize2d(te.placeholder((1, 2, te.var("n"), 6), name="x"), None, (3, 3))
