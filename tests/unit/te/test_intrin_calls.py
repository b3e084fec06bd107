"""Calls of tensor intrinsics in computes: what they mean, that the intrinsic computes them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te

RNG = np.random.default_rng(3)


def vadd(n: int, twice: bool = False) -> Any:
    """Adds n elements; `twice` computes another value than it says, so that a test sees that it is what runs."""
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    z = te.compute((n,), lambda i: x[i] + y[i], name="z")

    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        with ib.for_range(0, n, "e") as e:
            ib.emit(outs[0].vstore(e, (ins[0].vload(e) + ins[1].vload(e)) * (2.0 if twice else 1.0)))
        return ib.get()

    return te.decl_tensor_intrin(z.op, body, "vadd", default_buffer_params={"offset_factor": 1})


def gemv(m: int, n: int) -> Any:
    """c[i] = sum over k of a[i, k] * b[k], which goes on over outer loops."""
    a, b = te.placeholder((m, n), name="a"), te.placeholder((n,), name="b")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((m,), lambda i: te.sum(a[i, k] * b[k], axis=k), name="c")
    rows = te.var("rows")
    at = te.decl_buffer(a.shape, name="a", offset_factor=1, strides=[rows, 1])

    def body(ins: Any, outs: Any) -> Any:
        def stmt(first: bool, step: bool) -> Any:
            ib = te.ir_builder.create()
            with ib.for_range(0, m, "i") as i:
                if first:
                    ib.emit(outs[0].vstore(i, 0.0))
                if step:
                    with ib.for_range(0, n, "k") as q:
                        ib.emit(outs[0].vstore(i, outs[0].vload(i) + ins[0].vload([i, q]) * ins[1].vload(q)))
            return ib.get()

        return stmt(True, True), stmt(True, False), stmt(False, True)

    return te.decl_tensor_intrin(c.op, body, "gemv", {a: at}, default_buffer_params={"offset_factor": 1})


def run(s: Any, tensors: list[Any], *arrays: Any) -> Any:
    out = tec.nd.array(np.zeros(tuple(n.value for n in tensors[-1].shape), "f"))
    tec.build(s, tensors, "llvm")(*map(tec.nd.array, arrays), out)
    return out.numpy()


@pytest.mark.parametrize("how", ["default", "split", "cached", "split and cached", "attached"])
def test_a_sum_of_rows(how: str) -> None:
    a, b = RNG.standard_normal((2, 12, 16)).astype("f")
    A, B = te.placeholder((12, 16), name="A"), te.placeholder((12, 16), name="B")
    B1 = te.compute((12, 16), lambda i, j: B[i, j] + 5.0, name="B1")
    f = vadd(16, twice=True)
    C = te.compute((12, 16), lambda i: f(A[i, 0:16], B1[i, :]), name="C")
    np.testing.assert_allclose(te.evaluate([C], {A: a, B: b})[0], a + b + 5, 1e-6)
    s = tec.create_schedule(C.op)
    if "split" in how:
        s[C].split(C.op.axis[0], 4)
    if "cached" in how:
        CL = s.cache_write(C, "global")
        s[CL].compute_at(s[C], s[C].leaf_iter_vars[0])
        s.cache_read(A, "global", CL)
    if how == "attached":
        s[B1].compute_at(s[C], C.op.axis[0])
    np.testing.assert_allclose(run(s, [A, B, C], a, b), 2 * (a + b + 5), 1e-6)


def test_a_reduction_that_goes_on_over_an_outer_axis() -> None:
    a, b = RNG.standard_normal((6, 3, 4, 8)).astype("f"), RNG.standard_normal((5, 3, 8)).astype("f")
    A, B = te.placeholder(a.shape, name="A"), te.placeholder(b.shape, name="B")
    k = te.reduce_axis((0, 3), "k")
    f = gemv(4, 8)
    C = te.compute((6, 5, 4), lambda i, j: f(A[i, k, 0:4, 0:8], B[j, k, 0:8], reduce_axis=k), name="C")
    want = np.einsum("ikxy,jky->ijx", a, b)
    np.testing.assert_allclose(te.evaluate([C], {A: a, B: b})[0], want, 1e-4, 1e-5)
    s = tec.create_schedule(C.op)
    i, j, _ = C.op.axis
    s[C].tile(i, j, 2, 5)
    np.testing.assert_allclose(run(s, [A, B, C], a, b), want, 1e-4, 1e-5)
    assert "tensorize gemv" in str(s)


def test_a_trace_replays() -> None:
    A = te.placeholder((8, 4), name="A")
    f = vadd(4, twice=True)
    C = te.compute((8, 4), lambda i: f(A[i, 0:4], A[i, :]), name="C")
    s = tec.create_schedule(C.op)
    s[C].split(C.op.axis[0], 2)
    again = tec.create_schedule(C.op).replay(s.trace)
    a = RNG.standard_normal((8, 4)).astype("f")
    np.testing.assert_allclose(run(again, [A, C], a), 4 * a, 1e-6)


F4 = vadd(4)
A = te.placeholder((8, 4), name="A")
MISTAKES = {
    "too few indices": (lambda: te.compute((8, 4), lambda i: A[i, 0] + 1), "takes 1 index, its shape has 2 dimensions"),
    "a slice as a value": (lambda: te.compute((8,), lambda i: A[i, 0:4] + 1), "slice as an index"),
    "one region": (lambda: F4(A[0, 0:4]), "takes 2 regions"),
    "a value for a region": (lambda: F4(A[0, 0:4], A[0, 0]), "y is A"),
    "a region of another size": (lambda: te.compute((8, 4), lambda i: F4(A[i, 0:4], A[i, 0:3])), "has 4 elements, the region"),
    "another output": (lambda: te.compute((8, 3), lambda i: F4(A[i, :], A[i, :])), "4 elements along i, of 3"),
    "no reduction": (
        lambda: te.compute((8, 4), lambda i: F4(A[i, :], A[i, :], reduce_axis=te.reduce_axis(3))), "is no reduction",
    ),
    "a step": (lambda: A[0, 0:4:2], "step 2"),
    "loops of its own scheduled": (
        lambda: (lambda C: tec.create_schedule(C.op)[C].split(C.op.axis[1], 2))(
            te.compute((8, 4), lambda i: F4(A[i, :], A[i, :]))
        ), "tensorized",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    make, text = MISTAKES[name]
    with pytest.raises(tec.TecError, match=text) as e:
        make()
    assert "test_intrin_calls.py" in str(e.value)


def axpb(n: int) -> Any:
    """x * v + w for scalars v and w; ten times as much, so that a test sees that it is what runs."""
    x = te.placeholder((n,), name="x")
    v, w = te.var("v", "float32"), te.var("w", "int32")
    z = te.compute((n,), lambda i: x[i] * v + w + v, name="z")

    def body(ins: Any, outs: Any, scalars: Any) -> Any:
        ib = te.ir_builder.create()
        with ib.for_range(0, n, "e") as e:
            ib.emit(outs[0].vstore(e, 10.0 * (ins[0].vload(e) * scalars[0] + scalars[1] + scalars[0])))
        return ib.get()

    return te.decl_tensor_intrin(z.op, body, "axpb", scalar_params=[v, w], default_buffer_params={"offset_factor": 1})


@pytest.mark.parametrize("how", ["call", "interleaved", "tensorize", "tiled"])
def test_scalar_parameters(how: str) -> None:
    a = RNG.standard_normal((6, 16)).astype("f")
    A, f = te.placeholder((6, 16), name="A"), axpb(16 if how != "tiled" else 8)
    if how in ("call", "interleaved"):
        args = (lambda i: (A[i, 0:16], 2.5, i + 1)) if how == "call" else (lambda i: (2.5, A[i, :], i + 1))
        C = te.compute((6, 16), lambda i: f(*args(i)), name="C")
    else:
        C = te.compute((6, 16), lambda i, j: A[i, j] * te.const(2.5) + (i + 1) + te.const(2.5), name="C")
    want = a * 2.5 + np.arange(1, 7)[:, None] + 2.5
    np.testing.assert_allclose(te.evaluate([C], {A: a})[0], want, 1e-6)
    s = tec.create_schedule(C.op)
    if how == "tensorize":
        s[C].tensorize(C.op.axis[1], f)
    if how == "tiled":
        s[C].tensorize(s[C].split(C.op.axis[1], 8)[1], f)
    np.testing.assert_allclose(run(s, [A, C], a), 10 * want, 1e-5)


def test_scalars_that_are_no_scalars() -> None:
    with pytest.raises(tec.ExprError, match="scalar parameter 2 is no variable"):
        x = te.placeholder((4,), name="x")
        te.decl_tensor_intrin(te.compute((4,), lambda i: x[i] * 2).op, lambda ins, outs, s: None, scalar_params=[2])
    A, v = te.placeholder((6, 16), name="A"), te.placeholder((16,), name="v")
    f = axpb(16)

    def called(args: Any) -> Any:
        return lambda i: f(*args(i))

    for args, says in [
        (lambda i: (A[i, :],), "takes 1 regions .* and 2 scalars"), (lambda i: (A[i, :], i, 1), "v is float32, i is int32"),
        (lambda i: (A[i, :], A[i, :], 1, 2), "given 2 and 1, 2"),
    ]:  # fmt: skip
        with pytest.raises(tec.ExprError, match=says):
            te.compute((6, 16), called(args), name="C")
    for body in (
        lambda i, j: A[i, j] * v[j] + i + v[j],
        lambda i, j: A[i, j] * 2.0 + i + 3.0,
        lambda i, j: A[i, j] * 2.0 + j + 2.0,
    ):
        C = te.compute((6, 16), body, name="C")
        s = tec.create_schedule(C.op)
        s[C].tensorize(C.op.axis[1], f)
        with pytest.raises(tec.ScheduleError, match="the computations differ"):
            tec.lower(s, [A, v, C])
