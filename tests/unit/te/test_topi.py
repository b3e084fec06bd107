"""Operators of whole tensors and `tec.topi`: each against NumPy, by the te definition, and some compiled by tec's own choice and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.topi import nn

F = np.random.default_rng(7).standard_normal
A, B, V = F((3, 4)).astype("f"), F((3, 4)).astype("f"), F(4).astype("f")
IMAGE, WEIGHT = F((2, 4, 7, 6)).astype("f"), F((6, 4, 3, 2)).astype("f")
INT = np.array([[1, -2, 3], [0, 5, -6]], "i")
INDEX = np.array([2, 0, 1, 1], "i")


def feeds(*arrays: Any) -> list[Any]:
    return [te.placeholder(a.shape, str(a.dtype), f"x{k}") for k, a in enumerate(arrays)]


def value(f: Callable[..., Any], *arrays: Any) -> Any:
    inputs = feeds(*arrays)
    out = f(*inputs)
    made = te.evaluate(out if isinstance(out, (list, tuple)) else [out], dict(zip(inputs, arrays)))
    return list(made) if isinstance(out, (list, tuple)) else made[0]


def windows(x: Any, k: Any, s: Any, fill: float) -> Any:
    """Windows of the last two dimensions, which are padded by 1 all around."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, k, (2, 3))[:, :, :: s[0], :: s[1]]


def conv(x: Any, w: Any, s: tuple[int, int] = (1, 1)) -> Any:
    return np.einsum("nchwyx,ocyx->nohw", windows(x, w.shape[2:], s, 0), w)


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normalized(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def written(x: Any, at: Any, values: Any) -> Any:
    made = x.copy()
    made[at] = values
    return made


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "operators": (lambda a, b, v: 3 + a - b * v + 2.5, lambda a, b, v: 3 + a - b * v + np.float32(2.5), (A, B, V)),
    "operators on one": (lambda a: -a + abs(a) ** 2.0, lambda a: -a + abs(a) ** 2, (A,)),
    "operators on integers": (lambda a, b: (a // 2) % 3 + (a << b) - (a & 3), lambda a, b: a // 2 % 3 + (a << b) - (a & 3), (INT, abs(INT))),
    "scalar in front": (lambda a: 1.0 / (2.0 - a), lambda a: 1 / (2 - a), (A,)),
    "a NumPy scalar in front": (lambda a: np.float32(2) * a, lambda a: 2 * a, (A,)),
    "a comparison": (lambda a, b: (a < b).astype("float32") + (a >= 0.5), lambda a, b: (a < b) + (a >= 0.5).astype("f"), (A, B)),
    "broadcasting both": (lambda a, b: a + b, lambda a, b: a + b, (A[:, :1], V)),
    "no dimensions": (lambda a, b: a * b, lambda a, b: a * b, (A, np.float32(3).reshape(()))),
    "add": (topi.add, np.add, (A, V)),
    "add of no dimensions": (topi.add, np.add, (A[0, 0].reshape(()), A[0, 1].reshape(()))),
    "divide": (topi.divide, lambda a, b: np.trunc(a / b).astype("i"), (INT, abs(INT) + 1)),
    "floor_divide": (topi.floor_divide, np.floor_divide, (INT, abs(INT) + 1)),
    "mod": (topi.mod, np.fmod, (INT, abs(INT) + 1)),
    "maximum": (topi.maximum, np.maximum, (A, B)),
    "greater": (topi.greater, np.greater, (A, B)),
    "logical_xor": (topi.logical_xor, np.logical_xor, (A > 0, B > 0)),
    "logical_not": (topi.logical_not, np.logical_not, (A > 0,)),
    "broadcast_to": (lambda a: topi.broadcast_to(a, (2, 3, 4)), lambda a: np.broadcast_to(a, (2, 3, 4)), (V,)),
    "exp": (topi.exp, np.exp, (A,)),
    "sigmoid": (topi.sigmoid, lambda a: 1 / (1 + np.exp(-a)), (A,)),
    "clip": (lambda a: topi.clip(a, -0.5, 0.5), lambda a: a.clip(-0.5, 0.5), (A,)),
    "cast": (lambda a: topi.cast(a * 3, "int32"), lambda a: (a * 3).astype("i"), (A,)),
    "reinterpret": (lambda a: topi.reinterpret(a, "int32"), lambda a: a.view("i"), (A,)),
    "sum": (topi.sum, np.sum, (A,)),
    "sum of one axis": (lambda a: topi.sum(a, 0, True), lambda a: a.sum(0, keepdims=True), (A,)),
    "prod": (lambda a: topi.prod(a, -1), lambda a: a.prod(-1), (A,)),
    "max": (lambda a: topi.max(a, (0, 1)), np.max, (A,)),
    "mean": (lambda a: topi.mean(a, 1), lambda a: a.mean(1), (A,)),
    "any": (lambda a: topi.any(a > 1.5, 1), lambda a: (a > 1.5).any(1), (A,)),
    "argmax": (lambda a: topi.argmax(a, 1), lambda a: a.argmax(1), (A,)),
    "argmin of all": (topi.argmin, np.argmin, (A,)),
    "transpose": (lambda a: topi.transpose(a, (1, 2, 0)), lambda a: a.transpose(1, 2, 0), (IMAGE[0],)),
    "reshape": (lambda a: topi.reshape(a, (2, -1)), lambda a: a.reshape(2, -1), (A,)),
    "expand_dims": (lambda a: topi.expand_dims(a, 1, 2), lambda a: a[:, None, None], (A,)),
    "squeeze": (topi.squeeze, np.squeeze, (A[:1, :, None],)),
    "concatenate": (lambda a, b: topi.concatenate([a, b], 1), lambda a, b: np.concatenate([a, b], 1), (A, B)),
    "stack": (lambda a, b: topi.stack([a, b], -1), lambda a, b: np.stack([a, b], -1), (A, B)),
    "split": (lambda a: topi.split(a, [1, 3], 1), lambda a: np.split(a, [1, 3], 1), (A,)),
    "split evenly": (lambda a: topi.split(a, 2, 1), lambda a: np.split(a, 2, 1), (A,)),
    "strided_slice": (lambda a: topi.strided_slice(a, [2, -3], [-5, 4], [-1, 2]), lambda a: a[2:-5:-1, -3:4:2], (A,)),
    "flip": (lambda a: topi.flip(a, 1), lambda a: a[:, ::-1], (A,)),
    "tile": (lambda a: topi.tile(a, (2, 1, 3)), lambda a: np.tile(a, (2, 1, 3)), (A,)),
    "repeat": (lambda a: topi.repeat(a, 2, 1), lambda a: a.repeat(2, 1), (A,)),
    "take": (lambda a, i: topi.take(a, i, 0), lambda a, i: a[i], (A, INDEX)),
    "gather": (lambda a, i: topi.gather(a, 1, i), lambda a, i: np.take_along_axis(a, i, 1), (A, np.array([[3], [0], [1]], "i"))),
    "gather_nd": (topi.gather_nd, lambda a, i: a[i[0], i[1]], (A, np.array([[2, 0, 1], [3, 3, 0]], "i"))),
    "where": (lambda a, b: topi.where(a > 0, b, 0.0), lambda a, b: np.where(a > 0, b, np.float32(0)), (A, B)),
    "full_like": (lambda a: topi.full_like(a, 2), lambda a: np.full_like(a, 2), (A,)),
    "shape": (topi.shape, lambda a: np.array(a.shape, "i"), (IMAGE,)),
    "one_hot": (lambda i: topi.one_hot(i, 5, -1, 3, 0, "float32"), lambda i: np.where(np.arange(3)[:, None] == i, 5, -1).astype("f"), (INDEX,)),
    "trilu": (lambda a: topi.trilu(a, 1, True), lambda a: np.triu(a, 1), (A,)),
    "layout_transform": (
        lambda a: topi.layout_transform(a, "NCHW", "NHWC"), lambda a: a.transpose(0, 2, 3, 1), (IMAGE,)
    ),
    "layout_transform to blocks": (
        lambda a: topi.layout_transform(a, "NCHW", "NCHW2c"),
        lambda a: a.reshape(2, 2, 2, 7, 6).transpose(0, 1, 3, 4, 2), (IMAGE,),
    ),
    "sort": (lambda a: topi.sort(a, 1, False), lambda a: -np.sort(-a, 1), (A,)),
    "argsort": (lambda a: topi.argsort(a, 0, dtype="int32"), lambda a: a.argsort(0).astype("i"), (A,)),
    "topk": (lambda a: topi.topk(a, 2, ret_type="values"), lambda a: -np.sort(-a)[:, :2], (A,)),
    "cumsum": (lambda a: topi.cumsum(a, 1, exclusive=True), lambda a: a.cumsum(1) - a, (A,)),
    "cumprod of all": (topi.cumprod, lambda a: a.ravel().cumprod(), (A,)),
    "matmul": (lambda a, b: topi.matmul(a, b, False, True), lambda a, b: a @ b.T, (A, B)),
    "tensordot": (lambda a, b: topi.tensordot(a, b, ((1, 0), (1, 0))), lambda a, b: np.tensordot(a, b, ((1, 0), (1, 0))), (A, B)),
    "einsum": (lambda a, b: topi.einsum("ij,kj->ik", a, b), lambda a, b: a @ b.T, (A, B)),
    "relu": (nn.relu, lambda a: a.clip(0), (A,)),
    "leaky_relu": (lambda a: nn.leaky_relu(a, 0.1), lambda a: np.where(a > 0, a, a * np.float32(0.1)), (A,)),
    "prelu": (lambda a, v: nn.prelu(a, v, 1), lambda a, v: np.where(a > 0, a, a * v), (A, V)),
    "softmax": (lambda a: nn.softmax(a, 0), lambda a: softmax(a, 0), (A,)),
    "log_softmax": (nn.log_softmax, lambda a: np.log(softmax(a)), (A,)),
    "dense": (nn.dense, lambda a, b, v: a @ b.T + v[:3], (A, B, V[:3])),
    "batch_matmul": (nn.batch_matmul, lambda a, b: a @ b.transpose(0, 2, 1), (A[None], B[None])),
    "conv2d": (lambda x, w: nn.conv2d_nchw(x, w, (2, 1), 1, 1), lambda x, w: conv(x, w, (2, 1)), (IMAGE, WEIGHT)),
    "group_conv2d": (
        lambda x, w: nn.group_conv2d_nchw(x, w, 1, (1, 1), 1, 2),
        lambda x, w: np.concatenate([conv(x[:, :2], w[:3]), conv(x[:, 2:], w[3:])], 1), (IMAGE, WEIGHT[:, :2]),
    ),
    "depthwise_conv2d": (
        lambda x, w: nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
        lambda x, w: np.concatenate([conv(x[:, c : c + 1], w[c][:, None]) for c in range(4)], 1), (IMAGE, WEIGHT[:4, :2]),
    ),
    "conv2d_transpose": (
        lambda x, w: nn.conv2d_transpose_nchw(x, w, 1, 0),
        lambda x, w: sum(
            np.pad(np.einsum("nchw,co->nohw", x, w[:, :, y, z]), ((0, 0), (0, 0), (y, 2 - y), (z, 1 - z)))
            for y in range(3) for z in range(2)
        ),
        (IMAGE, WEIGHT.transpose(1, 0, 2, 3).copy()),
    ),
    "conv1d": (
        lambda x, w: nn.conv1d_ncw(x, w, 1, "SAME"), lambda x, w: conv(x[:, :, None], w[:, :, None])[:, :, 1], (IMAGE[:, :, 0], WEIGHT[:, :, :, 0]),
    ),
    "conv1d, an even window": (  # the larger half of the padding is in front
        lambda x, w: nn.conv1d_ncw(x, w, 1, "SAME"),
        lambda x, w: np.einsum("nct,oc->not", np.pad(x, ((0, 0), (0, 0), (1, 0)))[..., :-1], w[..., 0]) + np.einsum("nct,oc->not", x, w[..., 1]),
        (IMAGE[:, :, 0], WEIGHT[:, :, 0]),
    ),
    "max_pool": (lambda x: nn.pool2d(x, 3, 2, 1, 1, "max"), lambda x: windows(x, (3, 3), (2, 2), -np.inf).max((-1, -2)), (IMAGE,)),
    "avg_pool": (lambda x: nn.pool2d(x, 2, 1, 1, 1, "avg"), lambda x: windows(x, (2, 2), (1, 1), 0).mean((-1, -2)), (IMAGE,)),
    "avg_pool without padding": (
        lambda x: nn.pool2d(x, 2, 1, 1, 1, "avg", count_include_pad=False),
        lambda x: np.nanmean(windows(x, (2, 2), (1, 1), np.nan), (-1, -2)), (IMAGE,),
    ),
    "global_pool": (lambda x: nn.global_pool(x, "avg"), lambda x: x.mean((2, 3), keepdims=True), (IMAGE,)),
    "adaptive_pool": (lambda x: nn.adaptive_pool(x, (7, 3), "max"), lambda x: x.reshape(2, 4, 7, 3, 2).max(-1), (IMAGE,)),
    "layer_norm": (lambda a, v: nn.layer_norm(a, v, v, [1]), lambda a, v: normalized(a, 1) * v + v, (A, V)),
    "rms_norm": (nn.rms_norm, lambda a, v: a / np.sqrt((a * a).mean(1, keepdims=True) + np.float32(1e-5)) * v, (A, V)),
    "group_norm": (
        lambda x, v: nn.group_norm(x, v, v, 2, 1, [2, 3]),
        lambda x, v: normalized(x.reshape(2, 2, 2, 7, 6), (2, 3, 4)).reshape(x.shape) * v[:, None, None] + v[:, None, None], (IMAGE, V),
    ),
    "batch_norm": (
        lambda x, v, s: nn.batch_norm(x, v, v, v, s)[0],
        lambda x, v, s: ((x.transpose(0, 2, 3, 1) - v) / np.sqrt(s + np.float32(1e-5)) * v + v).transpose(0, 3, 1, 2), (IMAGE, V, abs(V)),
    ),
    "batch_norm in training": (
        lambda x, v, s: topi.concatenate([topi.reshape(t, (-1,)) for t in nn.batch_norm(x, v, v, v, s, 1, 1e-5, True, True, True, 0.25)]),
        lambda x, v, s: np.concatenate([
            (normalized(x, (0, 2, 3)) * v[:, None, None] + v[:, None, None]).reshape(-1), 0.75 * v + 0.25 * x.mean((0, 2, 3)), 0.75 * s + 0.25 * x.var((0, 2, 3)),
        ]), (IMAGE, V, abs(V)),
    ),
    "TVM 0.14's norms": (
        lambda a, v: topi.stack([nn.instance_norm(a, v, v, [1], 1e-3), nn.rms_norm(a, v, v, [1], 1e-3), nn.rms_norm(a, v, None, -1)]),
        lambda a, v: np.stack([
            (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-3) * v + v, a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-3) * v + v,
            a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5) * v,
        ]), (A, V),
    ),
    "bias_add": (nn.bias_add, lambda x, v: x + v[:, None, None], (IMAGE, V)),
    "flatten": (nn.flatten, lambda x: x.reshape(2, -1), (IMAGE,)),
    "pad": (lambda a: nn.pad(a, (1, 0), (0, 2), 3.0), lambda a: np.pad(a, ((1, 0), (0, 2)), constant_values=3), (A,)),
    "dilate": (
        lambda a: nn.dilate(a, (2, 1)), lambda a: np.insert(a, [1, 2], 0, axis=0), (A,)
    ),
    "scatter_elements": (
        lambda a, i, u: topi.scatter_elements(a, i, u, 1, "add"), lambda a, i, u: a + np.stack([np.bincount(k, w, 4) for k, w in zip(i, u)]).astype("f"),
        (A, np.array([[0, 3], [1, 1], [2, 0]], "i"), B[:, :2]),
    ),
    "scatter_nd": (lambda a, i, u: topi.scatter_nd(a, i, u), lambda a, i, u: written(a, tuple(i), u), (A, np.array([[0, 2], [1, 3]], "i"), V[:2])),
    "sparse_to_dense": (
        lambda i, u: topi.sparse_to_dense(i, (3, 4), u, 7.0), lambda i, u: written(np.full((3, 4), 7, "f"), tuple(i.T), u),
        (np.array([[0, 2], [1, 3]], "i"), V[:2]),
    ),
    "sparse_to_dense of a number": (
        lambda i, u: topi.sparse_to_dense(i, (4,), u, 7.0), lambda i, u: np.array([7, 7, u, 7], "f"), (np.array(2, "i"), np.array(3, "f")),
    ),
    "sparse_to_dense of a vector": (
        lambda i, u: topi.sparse_to_dense(i, (5,), u), lambda i, u: written(np.zeros(5, "f"), (i,), u), (np.array([4, 1], "i"), V[:2]),
    ),
    "sequence_mask": (
        lambda a, n: topi.sequence_mask(a, n, -1.0), lambda a, n: np.where(np.arange(3)[:, None] < n, a, np.float32(-1)), (A, np.array([2, 0, 3, 9], "i")),
    ),
    "sequence_mask of rows": (
        lambda a, n: topi.sequence_mask(a, n, axis=1), lambda a, n: np.where(np.arange(4) < n[:, None], a, np.float32(0)), (A, np.array([2, 0, 9], "i")),
    ),
    "meshgrid": (lambda a, v: topi.meshgrid([v, a], "xy"), lambda a, v: list(np.meshgrid(v, a)), (A[:, 0], V)),
    "unravel_index": (lambda i: topi.unravel_index(i, (3, 4)), lambda i: np.stack(np.unravel_index(i, (3, 4))).astype("i"), (INDEX * 4 + 3,)),
    "ndarray_size": (topi.ndarray_size, lambda a: np.int32(12), (A,)),
    "sliding_window": (
        lambda x: topi.sliding_window(x, 2, (3, 2), (2, 1)), lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2], (IMAGE,),
    ),
    "searchsorted": (lambda v, a: topi.searchsorted(v, a, True), lambda v, a: np.searchsorted(v, a, "right"), (np.sort(A[0]), np.concatenate([A[0], V]))),
    "searchsorted of rows": (topi.searchsorted, lambda s, a: np.stack([np.searchsorted(*r) for r in zip(s, a)]), (np.sort(A), A)),
    "conv2d_nhwc": (
        lambda x, w: nn.conv2d_nhwc(x, w, (2, 1), 1, 1), lambda x, w: conv(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), (2, 1)).transpose(0, 2, 3, 1),
        (IMAGE.transpose(0, 2, 3, 1), WEIGHT.transpose(2, 3, 1, 0)),
    ),
    "conv2d_hwcn": (
        lambda x, w: nn.conv2d_hwcn(x, w, 1, 1, 1), lambda x, w: conv(x.transpose(3, 2, 0, 1), w.transpose(3, 2, 0, 1)).transpose(2, 3, 1, 0),
        (IMAGE.transpose(2, 3, 1, 0), WEIGHT.transpose(2, 3, 1, 0)),
    ),
    "depthwise_conv2d_nhwc": (
        lambda x, w: nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1), lambda x, w: np.einsum("ncyxhw,hwc->nyxc", windows(x.transpose(0, 3, 1, 2), (3, 2), (1, 1), 0), w[..., 0]),
        (IMAGE.transpose(0, 2, 3, 1), WEIGHT[0].transpose(1, 2, 0)[..., None]),
    ),
    "conv1d_nwc": (
        lambda x, w: nn.conv1d_nwc(x, w, 1, 0), lambda x, w: np.einsum("nwcx,xco->nwo", np.lib.stride_tricks.sliding_window_view(x, 3, 1), w),
        (IMAGE[:, 0], WEIGHT[:, 0, :, 0].T.reshape(3, 6, 1)),
    ),
    "mirror_pad": (lambda a: nn.mirror_pad(a, (1, 2), (2, 3)), lambda a: np.pad(a, ((1, 2), (2, 3)), "symmetric"), (A,)),
    "mirror_pad without the border": (lambda a: nn.mirror_pad(a, (1, 2), mode="REFLECT"), lambda a: np.pad(a, ((1, 1), (2, 2)), "reflect"), (A,)),
    "depth_to_space": (lambda x: nn.depth_to_space(x, 2), lambda x: x.reshape(2, 2, 2, 1, 7, 6).transpose(0, 3, 4, 1, 5, 2).reshape(2, 1, 14, 12), (IMAGE,)),
    "depth_to_space side by side": (lambda x: nn.depth_to_space(x, 2, mode="CRD"), lambda x: x.reshape(2, 1, 2, 2, 7, 6).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 14, 12), (IMAGE,)),
    "depth_to_space in TVM's word": (lambda x: nn.depth_to_space(x, 2, mode="CDR"), lambda x: x.reshape(2, 1, 2, 2, 7, 6).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 14, 12), (IMAGE,)),
    "space_to_depth": (
        lambda x: nn.space_to_depth(x, 2, "NHWC"), lambda x: x.reshape(2, 2, 2, 3, 2, 6).transpose(0, 1, 3, 2, 4, 5).reshape(2, 2, 3, 24), (IMAGE[:, :, :6],),
    ),
    "upsampling": (lambda x: nn.upsampling(x, 2, 3), lambda x: x.repeat(2, 2).repeat(3, 3), (IMAGE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str) -> None:
    f, wanted, arrays = CASES[name]
    got, want = value(f, *arrays), wanted(*arrays)
    for a, b in zip(got if isinstance(got, list) else [got], want if isinstance(want, list) else [want], strict=True):
        assert a.shape == np.shape(b) and a.dtype.kind == np.asarray(b).dtype.kind
        np.testing.assert_allclose(a, b, 2e-5, 2e-5)


def test_arange_and_full() -> None:
    np.testing.assert_array_equal(te.evaluate([topi.arange(2, 11, 3, "int32")], {})[0], [2, 5, 8])
    np.testing.assert_array_equal(te.evaluate([topi.full((2, 2), "float32", 4)], {})[0], np.full((2, 2), 4.0))


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_compiled_by_tecs_choice(target: str) -> None:
    n = te.var("n")
    x, w = te.placeholder((n, 16), name="x"), te.placeholder((8, 16), name="w")
    y = nn.softmax(nn.relu(topi.matmul(x, w, False, True)) * 2.0 + 1.0)
    made = topi.schedule(y, target)
    f = tec.build(made.schedule, [x, w, *made.outputs], target)
    dev = tec.cpu() if target == "llvm" else tec.rocm_emu("gfx942")
    a, b = F((5, 16)).astype("f"), F((8, 16)).astype("f")
    out = tec.nd.array(np.zeros((5, 8), "f"), dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), out)
    np.testing.assert_allclose(out.numpy(), softmax((a @ b.T).clip(0) * 2 + 1), 1e-4, 1e-5)


def test_a_named_schedule_is_of_the_operators_themselves() -> None:
    x, w = feeds(IMAGE, WEIGHT)
    y = nn.relu(nn.conv2d_nchw(x, w, 1, 1, 1)) + 1.0
    with tec.Target("llvm"):
        s = topi.generic.schedule_conv2d_nchw([y])
    assert [topi.utils.nchw_xc_layout(n) for n in ("NCHW16c", "NCHW", "NCHW2n4c")] == [True, False, False]
    assert [topi.utils.nchw_pack_layout(n) for n in ("NCHW16c", "NCHW", "NCHW2n4c")] == [False, False, True]
    out = tec.nd.array(np.zeros(tuple(topi.utils.get_const_tuple(y.shape)), "f"))
    tec.build(s, [x, w, y], "llvm")(tec.nd.array(IMAGE), tec.nd.array(WEIGHT), out)
    np.testing.assert_allclose(out.numpy(), conv(IMAGE, WEIGHT).clip(0) + 1, 1e-4, 1e-4)


def test_tags_and_inlining() -> None:
    x = te.placeholder((4, 4), name="x")
    y = topi.transpose(x + 1.0)
    z = topi.sum(y * x, 1)
    assert (
        y.op.tag == topi.tag.INJECTIVE and (x + x).op.tag == topi.tag.BROADCAST and (x + 1).op.tag == topi.tag.ELEMWISE
    )
    assert topi.tag.is_injective(y.op.tag) and z.op.tag == topi.tag.COMM_REDUCE
    s = tec.create_schedule(z.op)
    seen: list[str] = []
    topi.utils.traverse_inline(s, z.op, lambda op: seen.append(op.tag))
    assert seen[-1] == topi.tag.COMM_REDUCE
    out = tec.nd.array(np.zeros(4, "f"))
    a = F((4, 4)).astype("f")
    tec.build(s, [x, z], "llvm")(tec.nd.array(a), out)
    np.testing.assert_allclose(out.numpy(), ((a + 1).T * a).sum(1), 1e-5, 1e-5)


def test_two_variables_of_one_name_stay_apart() -> None:
    n, other = te.var("n"), te.var("n")
    a, b = te.placeholder((n, 2), name="a"), te.placeholder((other, 2), name="b")
    c = topi.concatenate([a, b])
    made = te.evaluate([c], {a: np.ones((2, 2), "f"), b: np.zeros((3, 2), "f")})[0]
    np.testing.assert_array_equal(made, [[1, 1], [1, 1], [0, 0], [0, 0], [0, 0]])


X = te.placeholder((3, 4), name="X")
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "shapes that do not fit": (lambda: X + te.placeholder((3,), name="Y"), "do not broadcast: dimension 1 is 4 and 3"),
    "sizes of two names": (lambda: te.placeholder((te.var("n"),)) * te.placeholder((te.var("m"),)), "do not broadcast"),
    "an index left out": (lambda: te.compute((3, 4), lambda i, j: X + X[i, j]), "stands here for one value"),
    "a whole tensor as a body": (lambda: te.compute((3, 4), lambda i, j: X + 1), "stands here for one value"),
    "text as an operand": (lambda: X + "one", "float32"),
    "an axis that is not there": (lambda: topi.sum(X, 2), "axis 2"),
    "a number for a tensor": (lambda: nn.softmax(3), "x is 3, not a tensor"),
    "parts that are not equal": (lambda: topi.split(X, 3, 1), "4 elements into 3 parts"),
    "a layout of other axes": (lambda: topi.layout_transform(X, "NCHW", "NHWC"), "axes differ"),
    "channels that do not fit": (lambda: nn.conv2d_nchw(te.placeholder((1, 3, 5, 5)), te.placeholder((4, 2, 3, 3)), 1, 1, 1), "channels"),
    "padding of a name": (lambda: nn.conv2d_nchw(te.placeholder((1, 2, 5, 5)), te.placeholder((4, 2, 3, 3)), 1, "FULL", 1), "padding"),
    "squeezing what is not 1": (lambda: topi.squeeze(X, 0), "3 elements"),
    "a scatter by an unknown word": (lambda: topi.scatter_elements(X, X, X, reduction="mean"), "by 'mean'"),
    "a mask along a third axis": (lambda: topi.sequence_mask(X, te.placeholder((4,), "int32"), axis=2), "along axis 2"),
    "windows of too few dimensions": (lambda: topi.sliding_window(X, 0, (2,), (1,)), "windows of 1 dimensions over 2"),
    "upsampling by halves": (lambda: nn.upsampling(te.placeholder((1, 2, 3, 4)), 1.5, 2), "scale_h is 1.5, not an integer"),
    "pixels in another layout": (lambda: nn.space_to_depth(te.placeholder((1, 2, 4, 4)), 2, "CHWN"), "layout 'CHWN'"),
    "broadcasting to less": (lambda: topi.broadcast_to(X, (4,)), "does not broadcast"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    make, text = MISTAKES[name]
    with pytest.raises(tec.TecError, match=text) as e:
        make()
    assert "test_topi.py" in str(e.value)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, v: topi.nn.layer_norm(x, v, v, axis=5), lambda x, v: topi.nn.rms_norm(x, v, axis=(2,)), lambda x, v: topi.nn.prelu(x, v, axis=-3),
        lambda x, v: topi.nn.bias_add(x, v, axis=2), lambda x, v: topi.nn.softmax(x, axis=2), lambda x, v: topi.sum(x, axis=2),
        lambda x, v: topi.transpose(x, (0, 2)), lambda x, v: topi.concatenate([x, x], axis=2), lambda x, v: topi.expand_dims(x, axis=4),
        lambda x, v: topi.squeeze(x, axis=True),
    ],
)  # fmt: skip
def test_an_axis_that_there_is_not(f):
    with pytest.raises(tec.ExprError, match="axis"):
        f(te.placeholder((3, 4), name="x"), te.placeholder((4,), name="v"))


@pytest.mark.parametrize(("given", "wanted"), [("int16", "int64"), ("int32", "int64"), ("float32", "float64")])
def test_sums_have_the_width_that_is_asked_for(given: str, wanted: str) -> None:
    """Products of the largest numbers, whose sums pass the factors' type."""
    most = 2**30 if given == "int32" else 30_000 if given == "int16" else 1e25
    x = np.full((2, 3), most, given)
    a, b = (te.placeholder(x.shape, given, name=n) for n in "ab")
    c = topi.nn.dense(a, b, out_dtype=wanted)
    out = tec.nd.empty(c.shape, c.dtype)
    tec.build(te.create_schedule(c.op), [a, b, c], "llvm")(tec.nd.array(x), tec.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x.astype(wanted) @ x.astype(wanted).T)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_products_of_halves_with_float_results_are_not_rounded(target: str) -> None:
    dev = tec.cpu() if target == "llvm" else tec.rocm_emu("gfx942")
    x, w = (F(s).astype("float16") for s in ((8, 96), (16, 96)))
    a, b = (te.placeholder(v.shape, "float16", name=n) for v, n in ((x, "a"), (w, "b")))
    c = topi.nn.dense(a, b, out_dtype="float32")
    f = tec.build(topi.schedule(c, target), [a, b, c], target)  # whose outputs may be of another form
    out = tec.nd.empty(c.shape, c.dtype, dev)
    f(tec.nd.array(x, dev), tec.nd.array(w, dev), out)
    np.testing.assert_allclose(out.numpy(), x.astype(np.float64) @ w.astype(np.float64).T, rtol=1e-5, atol=1e-5)
    d = topi.nn.matmul(a, b, out_dtype="float32", transpose_b=True)
    assert (d.dtype, tuple(int(n) for n in d.shape)) == ("float32", (8, 16))
    assert topi.matmul(a, b, False, True, out_dtype="float").dtype == "float32"
