"""te.hybrid.script: loops in Python as tensors, on the CPU, on a software GPU, and as Python itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te

F32 = np.float32
rng = np.random.default_rng(0)


@te.hybrid.script
def outer_product(a, b):
    c = output_tensor((a.shape[0], b.shape[0]), "float32")  # noqa: F821
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


def test_outer_product() -> None:
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n,), name="a"), te.placeholder((m,), name="b")
    c = outer_product(a, b)
    assert isinstance(c, te.Tensor) and c.ndim == 2
    f = tec.build(
        te.create_schedule(c.op) if hasattr(te, "create_schedule") else tec.create_schedule(c.op), [a, b, c], "llvm"
    )
    x, y = rng.random(9).astype(F32), rng.random(5).astype(F32)
    out = np.zeros((9, 5), F32)
    f(x, y, out)
    np.testing.assert_allclose(out, np.outer(x, y), rtol=1e-6)
    np.testing.assert_allclose(outer_product(x, y), np.outer(x, y), rtol=1e-6)  # as Python


@te.hybrid.script
def mixed(a, n, scale):
    """Branches, a variable that changes, two outputs, storage of its own, every kind of loop."""
    total = output_tensor((n,), "float32")  # noqa: F821
    which = output_tensor((n,), "int32")  # noqa: F821
    row = allocate((16,), "float32")  # noqa: F821
    for i in serial(n):  # noqa: F821
        for j in vectorize(16):  # noqa: F821
            row[j] = a[i, j] * scale
        for j in unroll(16):  # noqa: F821
            row[j] += 1.0
        acc = 0.0
        best = 0
        for j in range(16):
            acc += row[j]
            if row[j] > row[best]:
                best = j
            elif row[j] < -100.0:
                break
        for k in const_range(2):  # noqa: F821
            acc = acc + k
        total[i] = sqrt(abs(acc)) if acc > 0 else float32(0)  # noqa: F821
        which[i] = best
    return total, which


def test_all_there_is() -> None:
    a = te.placeholder((6, 16), name="a")
    total, which = mixed(a, 6, 2.0)
    x = rng.standard_normal((6, 16)).astype(F32)
    got, best = np.zeros(6, F32), np.zeros(6, np.int32)
    s = tec.create_schedule([total.op])
    tec.build(s, [a, total, which], "llvm")(x, got, best)
    acc = (x * 2 + 1).sum(1) + 1
    np.testing.assert_allclose(got, np.where(acc > 0, np.sqrt(np.abs(acc)), 0), rtol=1e-4)
    np.testing.assert_array_equal(best, (x * 2 + 1).argmax(1))


@te.hybrid.script
def rows(a):
    c = output_tensor((a.shape[0],), "float32")  # noqa: F821
    for bx in bind("blockIdx.x", a.shape[0] // 8):  # noqa: F821
        for tx in bind("threadIdx.x", 8):  # noqa: F821
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[bx * 8 + tx, k]
            c[bx * 8 + tx] = acc
    return c


def test_bound_to_threads_and_read_by_a_compute() -> None:
    a = te.placeholder((32, 10), name="a")
    r = rows(a)
    d = te.compute((32,), lambda i: r[i] * 2.0, name="d")
    s = tec.create_schedule(d.op)
    bx, tx = s[d].split(d.op.axis[0], factor=16)
    s[d].bind(bx, te.thread_axis("blockIdx.x"))
    s[d].bind(tx, te.thread_axis("threadIdx.x"))
    f = tec.build(s, [a, d], "rocm -mcpu=gfx942")
    dev = tec.rocm_emu("gfx942")
    x = rng.random((32, 10)).astype(F32)
    out = tec.nd.array(np.zeros(32, F32), dev)
    f(tec.nd.array(x, dev), out)
    np.testing.assert_allclose(out.numpy(), x.sum(1) * 2, rtol=1e-5)
    np.testing.assert_allclose(rows(x), x.sum(1), rtol=1e-5)


WEIGHTS = [1.0, 2.0, 4.0]


@te.hybrid.script
def weighted(inputs, bias):
    c = output_tensor((4,), "float32")  # noqa: F821
    for i in range(4):
        assert i < 4, "an index out of range"
        c[i] = bias[0][1]
        for j in const_range(len(inputs)):  # noqa: F821
            c[i] += inputs[j][i] * WEIGHTS[j]
    return c


def test_lists_of_tensors_and_of_numbers() -> None:
    inputs = [te.placeholder((4,), name=f"t{k}") for k in range(3)]
    C = weighted(inputs, [[0.0, 10.0]])
    assert len(C.op.inputs) == 3
    arrays = [rng.random(4).astype(F32) for _ in inputs]
    out = tec.nd.array(np.zeros(4, F32))
    tec.build(tec.create_schedule(C.op), [*inputs, C], "llvm")(*map(tec.nd.array, arrays), out)
    np.testing.assert_allclose(out.numpy(), 10 + arrays[0] + 2 * arrays[1] + 4 * arrays[2], rtol=1e-6)


@te.hybrid.script
def checked(a):
    c = output_tensor((4,), "float32")  # noqa: F821
    for i in range(4):
        assert a[i] >= 0.0, "a negative value"
        c[i] = a[i]
    return c


def test_an_assertion_fails_the_call() -> None:
    A = te.placeholder((4,), name="A")
    C = checked(A)
    f = tec.build(tec.create_schedule(C.op), [A, C], "llvm")
    out = tec.nd.array(np.zeros(4, F32))
    f(tec.nd.array(np.ones(4, F32)), out)
    with pytest.raises(tec.TecError, match="a negative value"):
        f(tec.nd.array(-np.ones(4, F32)), out)


@te.hybrid.script
def returns_nothing(a):
    c = output_tensor((4,), "float32")  # noqa: F821
    c[0] = a[0]


@te.hybrid.script
def returns_its_input(a):
    return a


@te.hybrid.script
def unknown_word(a):
    c = output_tensor((4,), "float32")  # noqa: F821
    c[0] = no_such_word(a[0])  # noqa: F821
    return c


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (returns_nothing, "returns its outputs"),
        (returns_its_input, "the array a is returned"),
        (unknown_word, "no_such_word"),
    ],
)
def test_mistakes(f: Any, says: str) -> None:
    with pytest.raises(tec.KernelError, match=says) as e:
        f(te.placeholder((4,), name="a"))
    assert e.value.where is not None and e.value.where.file == __file__
