"""Reductions whose domain depends on other axes: right under every schedule, on every target, or a clear refusal."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ExprError, ScheduleError
from tec.schedule import create_schedule
from tests.thinned import thinned

N = 13


def triangle(low=lambda i: 0, high=lambda i: i + 1, n=N, where=None):
    """Row sums of A over [low(i), high(i)), and what NumPy says of them."""
    A = te.placeholder((n, n), name="A")
    axes = []

    def row(i):
        k = te.reduce_axis((low(i), high(i)), "k")
        axes.append(k)
        return te.sum(A[i, k], axis=k, **({"where": where(A, i, k)} if where else {}))

    return A, te.compute((n,), row, name="C"), axes[0]


def fed(m=N):
    return np.random.default_rng(0).integers(-8, 9, (m, m)).astype("float32")


def held(s, A, C, want, target="llvm", dev=None):
    f = tec.build(s, [A, C], target)
    out = tec.nd.array(np.full(want.shape, 77, "float32"), dev)
    a = fed(want.shape[0])
    f(tec.nd.array(a, dev), out)
    np.testing.assert_array_equal(out.numpy(), want)
    (evaluated,) = te.evaluate([C], {A: a}, dict.fromkeys(_symbols(A), want.shape[0]))
    np.testing.assert_array_equal(evaluated, want)


def _symbols(A):
    return [d for d in A.shape if isinstance(d, te.Var)]


def _plain(s, C, k):
    pass


def _split(s, C, k):
    s[C].split(k, factor=3)
    s[C].split(C.op.axis[0], factor=5)


def _reordered(s, C, k):
    outer, inner = s[C].split(C.op.axis[0], factor=4)
    s[C].reorder(outer, k, inner)
    s[C].vectorize(inner)


def _factored(s, C, k):
    _, inner = s[C].split(k, factor=4)
    s.rfactor(C, inner)


def _cached(s, C, k):
    part = s.cache_write(C, "local")
    outer, _ = s[C].split(C.op.axis[0], factor=4)
    s[part].compute_at(s[C], outer)
    s[part].reorder(s[part].op.reduce_axis[0], s[part].op.axis[0])


def _read(s, C, k):
    (A,) = C.op.inputs
    tile = s.cache_read(A, "global", [C])
    s[tile].compute_at(s[C], C.op.axis[0])


@thinned(1, ("schedule", [_plain, _split, _reordered, _factored, _cached, _read]), ("shape", ["constant", "symbolic"]))
def test_a_triangle_under_schedules(schedule, shape):
    A, C, k = triangle(n=N if shape == "constant" else te.size_var("n"))
    s = create_schedule(C)
    schedule(s, C, k)
    held(s, A, C, np.tril(fed()).sum(1))


def test_a_triangle_on_a_gpu_reduced_by_threads():
    A, C, k = triangle()
    s = create_schedule(C)
    _, inner = s[C].split(k, factor=4)
    s[C].bind(inner, te.thread_axis("threadIdx.x"))
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    held(s, A, C, np.tril(fed()).sum(1), "rocm -mcpu=gfx942", tec.rocm_emu("gfx942", check="bounds"))


def test_a_triangle_of_threads_on_a_gpu():
    A, C, _ = triangle(where=lambda A, i, k: A[i, k] > 0)
    s = create_schedule(C)
    block, thread = s[C].split(C.op.axis[0], factor=8)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    want = np.where(fed() > 0, np.tril(fed()), 0).sum(1)
    held(s, A, C, want, "rocm -mcpu=gfx1100", tec.rocm_emu("gfx1100", check="bounds"))


def test_a_band_and_empty_rows():
    A, C, k = triangle(low=lambda i: te.max(i - 2, 0), high=lambda i: te.min(i + 2, 9))
    want = [fed()[i, max(i - 2, 0) : max(min(i + 2, 9), 0)].sum() for i in range(N)]
    held(create_schedule(C), A, C, np.array(want, "float32"))


def test_a_domain_that_begins_below_nothing():
    """The domain may be empty for some rows: k in [i, 8) for i up to 12."""
    A, C, k = triangle(low=lambda i: i, high=lambda i: 8)
    s = create_schedule(C)
    s[C].split(k, factor=3)
    held(s, A, C, np.array([fed()[i, i:8].sum() for i in range(N)], "float32"))


def test_axes_that_depend_on_each_other_in_a_row():
    A = te.placeholder((N, N), name="A")

    def pairs(i):
        k = te.reduce_axis((0, i + 1), "k")
        l = te.reduce_axis((k, i + 1), "l")
        return te.max(A[k, l], axis=[k, l])

    C = te.compute((N,), pairs, name="C")
    s = create_schedule(C)
    s[C].fuse(*C.op.reduce_axis)
    want = np.array([np.triu(fed()[: i + 1, : i + 1] + 100).max() - 100 for i in range(N)], "float32")
    held(s, A, C, want)


def test_a_tuple_is_reduced_over_a_triangle():
    A = te.placeholder((N, N), name="A")
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )

    def best(i):
        k = te.reduce_axis((0, i + 1), "k")
        return argmax((k.var, A[i, k]), axis=k)

    at, most = te.compute((N,), best, name="best")
    f = tec.build(create_schedule(at.op), [A, at, most], "llvm")
    a = np.random.default_rng(1).permutation(N * N).reshape(N, N).astype("float32")
    got, value = np.zeros(N, "int32"), np.zeros(N, "float32")
    f(a, got, value)
    np.testing.assert_array_equal(got, [a[i, : i + 1].argmax() for i in range(N)])
    np.testing.assert_array_equal(value, [a[i, : i + 1].max() for i in range(N)])


def test_what_has_no_box_is_refused():
    A = te.placeholder((N, N), name="A")
    ends = te.placeholder((N,), dtype="int32", name="ends")
    with pytest.raises(ExprError, match="read from ends") as e:
        te.compute((N,), lambda i: te.sum(A[i, 2 * (k := te.reduce_axis((0, ends[i]), "k"))], axis=k), name="C")
    assert "where=" in e.value.hint and e.value.where.file == __file__


def test_a_dependent_axis_belongs_to_its_compute():
    A, C, k = triangle()
    with pytest.raises(ExprError, match="depends on an axis of another compute"):
        te.compute((N,), lambda j: te.sum(A[j, k], axis=k), name="D")


def test_loops_of_a_triangle_do_not_fuse_with_its_rows():
    A, C, k = triangle()
    with pytest.raises(ScheduleError, match="fuse"):
        create_schedule(C)[C].fuse(C.op.axis[0], k)
