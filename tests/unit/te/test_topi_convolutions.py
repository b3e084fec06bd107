"""topi's convolutions of one and three dimensions, of groups, transposed, and of channels that lie last or in blocks, against NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.topi import nn

RNG = np.random.default_rng(34)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def conv(x: Any, w: Any, groups: int = 1, step: int = 1) -> Any:
    """(n, c, ...) with (o, c / groups, ...), padded by 1 all around."""
    n = x.ndim - 2
    x = np.pad(x, ((0, 0), (0, 0), *((1, 1),) * n))
    at = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], tuple(range(2, n + 2)))
    at = at[(slice(None), slice(None), *(slice(None, None, step),) * n)]
    letters, window = "xyz"[:n], "uvw"[:n]
    parts = [
        np.einsum(f"nc{letters}{window},oc{window}->no{letters}", p, q)
        for p, q in zip(np.split(at, groups, 1), np.split(w, groups, 0))
    ]
    return np.concatenate(parts, 1)


def transposed(x: Any, w: Any, step: int, more: int, groups: int = 1) -> Any:
    """(n, i, ...) with (i, o / groups, ...), padded by 1: each element adds its window, `step` places on."""
    n, outs = x.ndim - 2, w.shape[1]
    space = [(size - 1) * step + k for size, k in zip(x.shape[2:], w.shape[2:])]
    made = np.zeros((x.shape[0], outs * groups, *[s + more for s in space]), "float32")
    for at in itertools.product(*map(range, x.shape[2:])):
        here = tuple(slice(a * step, a * step + k) for a, k in zip(at, w.shape[2:]))
        for g in range(groups):
            ins = slice(g * x.shape[1] // groups, (g + 1) * x.shape[1] // groups)
            value = np.tensordot(x[(slice(None), ins, *at)], w[ins], (1, 0))
            made[(slice(None), slice(g * outs, (g + 1) * outs), *here)] += value
    return made[(slice(None), slice(None), *(slice(1, -1),) * n)]


def last(x: Any) -> Any:
    """Channels from the second place to the last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def blocks(x: Any, size: int) -> Any:
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // size, size, h, w).transpose(0, 1, 3, 4, 2))


def weights_last(w: Any) -> Any:
    """(out, in, window) as (window, in, out)."""
    return np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2)))


X1, W1 = normal(2, 4, 9), normal(6, 2, 3)
X2, W2 = normal(1, 4, 6, 5), normal(6, 2, 3, 2)
X3, W3 = normal(1, 4, 4, 3, 5), normal(4, 2, 3, 2, 3)
WIDE, DEEP, DEPTH = normal(1, 8, 6, 5), normal(16, 8, 3, 3), normal(8, 2, 3, 3)
T1, T2, T3 = normal(4, 3, 3), normal(4, 3, 3, 3), normal(4, 3, 2, 3, 3)

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "groups, 1 dimension": (lambda x, w: nn.group_conv1d_ncw(x, w, 1, 1, 1, 2), (X1, W1), conv(X1, W1, 2)),
    "groups, 1 dimension, channels last": (
        lambda x, w: nn.group_conv1d_nwc(x, w, 2, 1, 1, 2), (last(X1), weights_last(W1)), last(conv(X1, W1, 2, 2)),
    ),
    "groups, channels last": (
        lambda x, w: nn.group_conv2d_nhwc(x, w, 1, 1, 1, 2), (last(X2), weights_last(W2)), last(conv(X2, W2, 2)),
    ),
    "3 dimensions, channels last": (
        lambda x, w: nn.conv3d_ndhwc(x, w, 1, 1, 1, 2), (last(X3), weights_last(W3)), last(conv(X3, W3, 2)),
    ),
    "blocks": (
        lambda x, w: nn.conv2d_NCHWc(x, w, 2, 1, 1, "NCHW4c", "NCHW8c"),
        (blocks(WIDE, 4), np.ascontiguousarray(DEEP.reshape(2, 8, 2, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1))), blocks(conv(WIDE, DEEP, 1, 2), 8),
    ),
    "blocks, a window each": (
        lambda x, w: nn.depthwise_conv2d_NCHWc(x, w, 1, 1, 1, "NCHW4c", "NCHW4c"),
        (blocks(WIDE, 4), np.ascontiguousarray(DEPTH.reshape(4, 4, 1, 1, 3, 3).transpose(0, 2, 4, 5, 3, 1))),
        blocks(conv(WIDE, DEPTH.reshape(16, 1, 3, 3), 8), 4),
    ),
    "transposed, 1 dimension": (lambda x, w: nn.conv1d_transpose_ncw(x, w, 2, 1, "float32", 1), (X1, T1), transposed(X1, T1, 2, 1)),
    "transposed, 3 dimensions": (lambda x, w: nn.conv3d_transpose_ncdhw(x, w, 2, 1), (X3, T3), transposed(X3, T3, 2, 0)),
    "transposed, groups": (
        lambda x, w: nn.group_conv2d_transpose_nchw(x, w, 2, 1, None, 1, 2), (X2, T2), transposed(X2, T2, 2, 1, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str) -> None:
    f, arrays, want = CASES[name]
    inputs = [te.placeholder(a.shape, name=n) for a, n in zip(arrays, "XW")]
    made = te.evaluate([f(*inputs)], dict(zip(inputs, arrays)))
    np.testing.assert_allclose(made[0], want, rtol=1e-4, atol=1e-5)


def test_a_layout_that_is_none_is_told() -> None:
    x, w = te.placeholder((1, 2, 6, 5, 4)), te.placeholder((2, 2, 3, 3, 4, 8))
    with pytest.raises(tec.ExprError, match="the result in layout 'NHWC8c'") as e:
        nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW4c", "NHWC8c")
    assert "NCHW8c" in str(e.value.hint)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_schedules_by_the_names_of_operators(target: str) -> None:
    """One that exists is gone on with, and one of a sort is bound to threads."""
    a = normal(6, 50)
    X = te.placeholder(a.shape, name="X")
    Y = topi.exp(X)
    with tec.Target(target):
        s = topi.generic.schedule_injective_from_existing(te.create_schedule(Y.op), Y)
        order = topi.argsort(X, axis=1, dtype="int32")
        sorts = topi.generic.schedule_argsort([order])
    dev = tec.cpu() if target == "llvm" else tec.rocm_emu("gfx942")
    for schedule, out, want in ((s, Y, np.exp(a)), (sorts, order, np.argsort(a, 1))):
        y = tec.nd.empty(a.shape, out.dtype, dev)
        tec.build(schedule, [X, out], target)(tec.nd.array(a, dev), y)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-5)


def test_a_default_schedule_inlines_where_it_is_asked_to() -> None:
    X = te.placeholder((6, 50), name="X")
    Y = topi.exp(nn.relu(X))
    assert [len(topi.generic.default_schedule([Y], inline)[Y].leaf_iter_vars) for inline in (False, True)] == [2, 1]
    assert str(tec.lower(topi.generic.default_schedule(Y, True), [X, Y])).count("for ") == 1


def deformed(x: Any, offset: Any, w: Any, pad: int, groups: int) -> Any:
    """Each place of each window is read on its own, between four pixels; what lies outside of the picture is 0."""
    channels, rows, columns = x.shape[1:]
    high, wide = w.shape[2:]
    out = np.zeros((1, w.shape[0], *offset.shape[2:]))
    for c, i, j, r, k in np.ndindex(channels, *offset.shape[2:], high, wide):
        place = (c // (channels // groups) * high * wide + r * wide + k) * 2
        y, z = i - pad + r + offset[0, place, i, j], j - pad + k + offset[0, place + 1, i, j]
        if 0 <= y < rows and 0 <= z < columns:
            top, left = int(y), int(z)
            at = np.pad(x[0, c], ((0, 1), (0, 1)))[top : top + 2, left : left + 2]
            value = [1 - (y - top), y - top] @ at @ [1 - (z - left), z - left]
            out[0, :, i, j] += w[:, c, r, k] * value
    return out


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
@pytest.mark.parametrize(("last", "groups"), [(False, 2), (True, 1)])
def test_deformable_convolutions(target: str, last: bool, groups: int) -> None:
    x, w, offset = normal(1, 4, 5, 6), normal(3, 4, 3, 3), normal(1, groups * 18, 5, 6)
    want = deformed(x, offset, w, 1, groups)
    arrays = [x, offset, w]
    if last:
        arrays = [np.ascontiguousarray(v.transpose(p)) for v, p in zip(arrays, [(0, 2, 3, 1)] * 2 + [(2, 3, 1, 0)])]
        want = want.transpose(0, 2, 3, 1)
    tensors = [te.placeholder(v.shape, name=f"in{k}") for k, v in enumerate(arrays)]
    out = (nn.deformable_conv2d_nhwc if last else nn.deformable_conv2d_nchw)(*tensors, 1, 1, 1, groups, 1)
    made = topi.schedule(out, target)
    dev = tec.cpu() if target == "llvm" else tec.rocm_emu("gfx942", check="all")
    got = tec.nd.array(np.zeros(want.shape, "float32"), dev)
    tec.build(made.schedule, [*tensors, out], target)(*(tec.nd.array(v, dev) for v in arrays), got)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)
