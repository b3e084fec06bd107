"""Arrays of vectors: their lanes are NumPy's last dimension, and compiled functions take them as elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te

X = np.arange(24, dtype=np.float32).reshape(3, 4, 2)


def devices() -> list[Any]:
    return [("llvm", tec.cpu()), ("rocm -mcpu=gfx1100", tec.rocm_emu("gfx1100"))]


@pytest.mark.parametrize("k", [0, 1])
def test_round_trips(k: int) -> None:
    dev = devices()[k][1]
    a = tec.nd.array(X, dev, "float32x2")
    assert (a.shape, a.dtype, a.nbytes, a.strides) == ((3, 4), "float32x2", X.nbytes, (4, 1))
    np.testing.assert_array_equal(a.numpy(), X)
    np.testing.assert_array_equal(a[1:, ::2].numpy(), X[1:, ::2])
    np.testing.assert_array_equal(tec.nd.empty((3, 4), "float32x2", dev).copyfrom(X.astype("i4")).numpy(), X)
    np.testing.assert_array_equal(a.astype("float64x2").numpy(), X.astype("f8"))
    np.testing.assert_array_equal(tec.nd.array(a, dtype="int32x2").numpy(), X.astype("i4"))
    if k == 0:
        np.testing.assert_array_equal(np.from_dlpack(a[:, 1:]), X[:, 1:])
        np.testing.assert_array_equal(np.asarray(a), X)
        a[1, 2] = [7.0, 8.0]
        assert list(a.numpy()[1, 2]) == [7, 8]


def test_mistakes() -> None:
    for f, says in (
        (lambda: tec.nd.array(X, dtype="float32x4"), "its last dimension is the 4 lanes"),
        (lambda: tec.nd.empty((2,), "float32x0"), "no dtype 'float32x0'"),
        (lambda: tec.nd.empty((2,), "text2"), "no dtype 'text2'"),
        (lambda: tec.nd.array(X, dtype="float32x2").astype("float32"), r"copy of shape \(3, 4, 2\) into an array of shape \(3, 4\)"),
        (lambda: tec.nd.empty((3,), "float32x2").copyfrom(np.zeros(3)), r"copy of shape \(3,\)"),
    ):  # fmt: skip
        with pytest.raises(tec.ArgumentError, match=says):
            f()


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("dtype", ["float32x2", "int16x4", "float16x8"])
def test_compiled_functions_take_them(k: int, dtype: str) -> None:
    target, dev = devices()[k]
    element, lanes = dtype.split("x")
    n = te.var("n")
    A, B = te.placeholder((n,), dtype, name="A"), te.placeholder((n,), dtype, name="B")
    C = te.compute((n,), lambda i: A[i] * B[i] + te.const(2, dtype), name="C")
    s = tec.create_schedule(C.op)
    if k:
        block, thread = s[C].split(C.op.axis[0], 4)
        s[C].bind(block, te.thread_axis("blockIdx.x"))
        s[C].bind(thread, te.thread_axis("threadIdx.x"))
    f = tec.build(s, [A, B, C], target)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (6, int(lanes))).astype(element) for _ in range(2))
    out = tec.nd.empty((6,), dtype, dev)
    f(tec.nd.array(a, dev, dtype), tec.nd.array(b, dev, dtype), out)
    np.testing.assert_array_equal(out.numpy(), a * b + 2)
    f(tec.nd.array(b, dev), tec.nd.array(b, dev, dtype), out)  # an array of scalars is the same memory
    np.testing.assert_array_equal(out.numpy(), b * b + 2)
