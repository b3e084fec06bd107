"""topi's functions that cut, put and pick, beside NumPy; regions of interest beside the samples that they are."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.errors import ExprError

RNG = np.random.default_rng(11)


def made(f, *arrays):
    """A function of topi on arrays."""
    xs = [te.placeholder(a.shape, a.dtype.name, f"x{k}") for k, a in enumerate(arrays)]
    (got,) = te.evaluate([f(*xs)], dict(zip(xs, arrays)))
    return got


@pytest.mark.parametrize(
    ("block", "before", "after"), [((2, 3), (0, 0), (0, 0)), ((2, 2), (1, 0), (1, 0)), ((4,), (1,), (3,))]
)
def test_space_to_batch_and_back(block, before, after):
    x = RNG.standard_normal((2, 4, 6, 3)).astype("float32")
    got = made(lambda a: topi.nn.space_to_batch_nd(a, block, before, after, 7.0), x)
    m = len(block)
    wide = np.pad(x, [(0, 0), *zip(before, after), *[(0, 0)] * (3 - m)], constant_values=7.0)
    want = [wide[(slice(None), *(slice(o, None, b) for o, b in zip(offset, block)))] for offset in np.ndindex(*block)]
    np.testing.assert_array_equal(got, np.concatenate(want))
    np.testing.assert_array_equal(made(lambda a: topi.nn.batch_to_space_nd(a, block, before, after), got), x)


def test_blocks_that_do_not_fit():
    x = te.placeholder((3, 5, 6, 3), name="x")
    for f in (topi.nn.space_to_batch_nd, topi.nn.batch_to_space_nd):
        with pytest.raises(ExprError, match="blocks of"):
            f(x, [2, 2], [0, 0], [0, 0])
    v = te.placeholder((1, 2, 4, 5, 6), name="v")
    assert [int(n) for n in topi.nn.adaptive_pool3d(v, 2, "max").shape] == [1, 2, 2, 2, 2]  # windows that overlap
    with pytest.raises(ExprError, match="of type 'least'"):
        topi.nn.adaptive_pool3d(v, 2, "least")


def test_volumes():
    x = RNG.standard_normal((1, 2, 4, 6, 2)).astype("float32")
    parts = x.reshape(1, 2, 2, 2, 3, 2, 1, 2)
    np.testing.assert_allclose(
        made(lambda a: topi.nn.adaptive_pool3d(a, (2, 3, 1), "avg"), x), parts.mean((3, 5, 7)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(made(lambda a: topi.nn.adaptive_pool3d(a, (2, 3, 1), "max"), x), parts.max((3, 5, 7)))
    np.testing.assert_array_equal(made(lambda a: topi.nn.upsampling3d(a, 2, 1, 3), x), x.repeat(2, 2).repeat(3, 4))


def test_conv1d_of_both_layouts():
    x, w = RNG.standard_normal((2, 3, 9)).astype("float32"), RNG.standard_normal((4, 3, 3)).astype("float32")
    want = np.einsum("nciw,ocw->noi", np.lib.stride_tricks.sliding_window_view(x, 3, 2), w)
    np.testing.assert_allclose(made(topi.nn.conv1d, x, w), want, rtol=1e-4, atol=1e-5)
    last = made(
        lambda a, b: topi.nn.conv1d(a, b, data_layout="NWC"), x.transpose(0, 2, 1).copy(), w.transpose(2, 1, 0).copy()
    )
    np.testing.assert_allclose(last.transpose(0, 2, 1), want, rtol=1e-4, atol=1e-5)


def test_scale_shift_and_losses():
    x, a, b = RNG.standard_normal((2, 4, 5, 3)).astype("float32"), *RNG.standard_normal((2, 3)).astype("float32")
    np.testing.assert_allclose(made(topi.nn.scale_shift_nhwc, x, a, b), x * a + b, rtol=1e-6)
    p, w = RNG.standard_normal((4, 5, 2)).astype("float32"), RNG.random(5).astype("float32")
    t = np.asarray([[0, 4], [-1, 2], [3, 3], [1, -1]], "int32")
    counts = t >= 0
    shares = w[t] * counts
    terms = -np.take_along_axis(p, np.maximum(t, 0)[:, None], 1)[:, 0] * shares
    for how, want in (("none", terms), ("sum", terms.sum()), ("mean", terms.sum() / shares.sum())):
        np.testing.assert_allclose(made(lambda *x, how=how: topi.nn.nll_loss(*x, how, -1), p, t, w), want, rtol=1e-5)


@pytest.mark.parametrize("k", [0, 1, -2])
def test_diagonals(k):
    x = RNG.standard_normal((2, 4, 5)).astype("float32")
    n = len(np.diagonal(x[0], k))
    d = RNG.standard_normal((2, n)).astype("float32")
    want = x.copy()
    for m, line in zip(want, d):
        r = np.arange(n) + max(-k, 0)
        m[r, r + k] = line
    np.testing.assert_array_equal(made(lambda a, b: topi.matrix_set_diag(a, b, k), x, d), want)


@pytest.mark.parametrize(
    ("begin", "end", "strides"),
    [([1, 0], [3, 6], [1, 3]), ([-1, 1], [0, -1], [-2, 2]), ([0], [2], None), ([2, 2], [2, 6], None)],
)
def test_strided_set(begin, end, strides):
    x = RNG.standard_normal((4, 6)).astype("float32")
    steps = strides or [1] * len(begin)
    at = tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps))
    v = RNG.standard_normal(x[at].shape).astype("float32")
    want = x.copy()
    want[at] = v
    np.testing.assert_array_equal(made(lambda a, b: topi.strided_set(a, b, begin, end, strides), x, v), want)
    bounds = [np.array(w, "int32") for w in (begin, end, steps if set(steps[1:]) != {1} else steps[:1])]
    if v.size:
        np.testing.assert_array_equal(made(topi.strided_set, x, v, *bounds), want)


def test_expand_like():
    x, like = RNG.standard_normal((3, 2)).astype("float32"), np.zeros((4, 3, 5, 2), "float32")
    want = np.broadcast_to(x[None, :, None], like.shape)
    np.testing.assert_array_equal(made(lambda a, b: topi.expand_like(a, b, [0, -2]), x, like), want)
    np.testing.assert_array_equal(
        made(lambda a, b: topi.expand_like(a, b, [0, 1]), x[0, :1], x), np.full_like(x, x[0, 0])
    )
    with pytest.raises(ExprError, match="2 dimensions to 4 by 1"):
        made(lambda a, b: topi.expand_like(a, b, [0]), x, like)


def test_places():
    p = RNG.permutation(7).astype("int32")
    np.testing.assert_array_equal(made(topi.invert_permutation, p), np.argsort(p))
    x = RNG.standard_normal((4, 5, 6)).astype("float32")
    i, j = np.asarray([[0], [-1], [3]]), np.asarray([4, 0])
    np.testing.assert_array_equal(made(lambda a, *at: topi.adv_index(a, at), x, i, j), x[i, j])
    for shape in ((5, 1), (4, 1, 6), (6,), (1,), (4, 5, 6)):
        lead = 3 - len(shape)
        axes = tuple(k for k in range(3) if k < lead or shape[k - lead] == 1)
        np.testing.assert_allclose(
            made(lambda a, s=shape: topi.collapse_sum(a, s), x), x.sum(axes).reshape(shape), rtol=1e-4, atol=1e-5
        )
    with pytest.raises(ExprError, match="broadcasts"):
        topi.collapse_sum(te.placeholder((4, 5), name="a"), (3,))


@pytest.mark.parametrize("begin, end, step", [((2, 0, 1), (0, 9, 5), (-1, 3, 2)), ((1, -3, 0), (3, 4, 5), (1, 1, 4))])
def test_a_slice_whose_bounds_are_read(begin, end, step):
    """Its sizes are those of the array that it is written to; more elements than there are repeat the last."""
    x = RNG.standard_normal((3, 4, 5)).astype("float32")
    a = te.placeholder(x.shape, name="a")
    bounds = [te.placeholder((3,), "int64", name=n) for n in ("begin", "end", "step")]
    cut = topi.strided_slice(a, *bounds) + 1.0
    f = tec.build(topi.schedule([cut], "llvm"), [a, *bounds, cut], "llvm")
    want = x[tuple(map(slice, begin, end, step))] + 1
    got = np.zeros(want.shape, "float32")
    f(x, *map(np.asarray, (begin, end, step)), got)
    np.testing.assert_array_equal(got, want)
    wide = np.zeros((*want.shape[:2], 7), "float32")
    f(x, *map(np.asarray, (begin, end, step)), wide)
    np.testing.assert_array_equal(wide[..., : want.shape[2]], want)
    rows = x[tuple(map(slice, begin[:2], end[:2], step[:2]))] + 1
    np.testing.assert_array_equal(wide[..., -1], rows[..., -1])


@pytest.mark.parametrize("types", [("uint8", "int64"), ("int64", "int32"), ("uint32", "int32")])
def test_coordinates_in_a_shape_that_is_read(types):
    places, shape = np.asarray([0, 144, 249], types[0]), np.asarray([5, 5, 5, 2], types[1])
    np.testing.assert_array_equal(made(topi.unravel_index, places, shape), np.unravel_index(places, shape))


@pytest.mark.parametrize("time, batch", [(1, 2), (-1, 0), (0, -2)])
def test_reverse_sequence_of_any_two_dimensions(time, batch):
    """Lengths beyond the last step are those of all steps."""
    x = RNG.standard_normal((3, 4, 5)).astype("float32")
    lengths = np.asarray([-1, 0, 2, 3, 500], "int64")[-x.shape[batch] :]
    want = x.copy()
    for k, n in enumerate(lengths):
        one, to = np.moveaxis(x, (batch, time), (0, 1))[k], np.moveaxis(want, (batch, time), (0, 1))[k]
        n = min(max(int(n), 0), len(one))
        to[:n] = one[:n][::-1]
    np.testing.assert_array_equal(made(lambda a, n: topi.reverse_sequence(a, n, time, batch), x, lengths), want)
    with pytest.raises(ExprError, match="batch_axis 1, time_axis 1"):
        topi.reverse_sequence(te.placeholder((3, 3), name="a"), te.placeholder((3,), "int32", name="n"), 1, 1)


def sampled(plane, y, x):
    """One bilinear sample of a plane."""
    rows, columns = plane.shape
    if not (-1 <= y <= rows and -1 <= x <= columns):
        return 0.0
    y, x = max(y, 0.0), max(x, 0.0)
    i, j = min(int(y), rows - 1), min(int(x), columns - 1)
    u, v = (0.0 if i == rows - 1 else y - i), (0.0 if j == columns - 1 else x - j)
    k, m = min(i + 1, rows - 1), min(j + 1, columns - 1)
    return (plane[i, j] * (1 - v) + plane[i, m] * v) * (1 - u) + (plane[k, j] * (1 - v) + plane[k, m] * v) * u


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode):
    x = RNG.standard_normal((2, 3, 8, 9)).astype("float32")
    rois = np.asarray([[0, 1, 2, 9, 12], [1, -3, 0, 14, 7], [1, 4, 4, 4.5, 4.5]], "float32")
    got = made(lambda a, b: topi.vision.roi_align_nchw(a, b, (2, 3), 0.5, mode, 2), x, rois)
    for k, c, i, j in np.ndindex(*got.shape):
        n, x1, y1, x2, y2 = rois[k] * [1, 0.5, 0.5, 0.5, 0.5]
        h, w = max(y2 - y1, 1.0) / 2, max(x2 - x1, 1.0) / 3
        places = [(y1 + (i + (p + 0.5) / 2) * h, x1 + (j + (q + 0.5) / 2) * w) for p in range(2) for q in range(2)]
        samples = [sampled(x[int(n), c], *at) for at in places]
        want = np.mean(samples) if mode == "avg" else np.max(samples)
        assert abs(got[k, c, i, j] - want) < 1e-4
    last = made(
        lambda a, b: topi.vision.roi_align_nhwc(a, b, (2, 3), 0.5, mode, 2), x.transpose(0, 2, 3, 1).copy(), rois
    )
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), got, rtol=1e-5, atol=1e-6)
    with pytest.raises(ExprError, match="sample_ratio"):
        topi.vision.roi_align_nchw(
            te.placeholder((1, 2, 4, 4), name="x"), te.placeholder((1, 5), name="r"), 2, 1.0, mode
        )


def test_einsum_with_spaces_topk_of_all_and_lrn_along_any_axis():
    a, b = RNG.standard_normal((2, 3)).astype("float32"), RNG.standard_normal((3, 4)).astype("float32")
    np.testing.assert_allclose(made(lambda x, y: topi.einsum("ij, jk -> ik", x, y), a, b), a @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(made(lambda x: topi.topk(x, 0, ret_type="values"), a), -np.sort(-a, 1))
    x = RNG.standard_normal((1, 2, 3, 5)).astype("float32")
    near = sum(np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 1)))[..., k : k + 5] ** 2 for k in range(3))
    want = x / (2.0 + 0.5 / 3 * near) ** 0.75
    np.testing.assert_allclose(made(lambda v: topi.nn.lrn(v, 3, 3, 0.5, 0.75, 2.0), x), want, rtol=1e-5, atol=1e-6)


def test_the_loss_of_one_prediction():
    p, w = RNG.standard_normal(5).astype("float32"), RNG.random(5).astype("float32")
    got = made(lambda a, t, b: topi.nn.nll_loss(a, t, b, "sum", -1), p, np.asarray(3, "int32"), w)
    np.testing.assert_allclose(got, -p[3] * w[3], rtol=1e-6)


@pytest.mark.parametrize("multiplied", [True, False])
def test_correlation(multiplied):
    a, b = (RNG.standard_normal((1, 2, 5, 6)).astype("float32") for _ in range(2))
    got = made(lambda x, y: topi.nn.correlation_nchw(x, y, 3, 2, 1, 2, 3, multiplied), a, b)
    one, other = (np.pad(v, ((0, 0), (0, 0), (3, 3), (3, 3))) for v in (a, b))
    assert got.shape == (1, 9, 5, 6)
    for q, i, j in np.ndindex(9, 5, 6):
        y, x = (q // 3 - 1) * 2, (q % 3 - 1) * 2
        first = one[0, :, i + 2 : i + 5, j + 2 : j + 5]
        second = other[0, :, i + 2 + y : i + 5 + y, j + 2 + x : j + 5 + x]
        want = (first * second if multiplied else abs(first - second)).mean()
        assert abs(got[0, q, i, j] - want) < 1e-5
