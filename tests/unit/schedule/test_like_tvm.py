"""What schedules written for TVM's te do, lowered and held against the computation."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ScheduleError
from tec.schedule import create_schedule, replay, to_loops

from .held import held
from .test_lowering import matmul


def chain(n=32, m=None):
    shape = (n,) if m is None else (n, m)
    A = te.placeholder(shape, name="A")
    B = te.compute(shape, lambda *i: A(*i) + 1, name="B")
    C = te.compute(shape, lambda *i: B(*i) * 2, name="C")
    return A, B, C, create_schedule(C)


def replays(s, args, outputs):
    assert str(to_loops(replay(str(s.trace), outputs), args)) == str(to_loops(s, args))


# ---- cache_write after the loops are scheduled: the copy lies in the order of the loops


@pytest.mark.parametrize("shape", [(24, 8), (23, 7)])
def test_cache_write_after_split_and_reorder(shape):
    A, B, C, s = chain(*shape)
    i, j = C.op.axis
    io, ii = s[C].split(i, factor=4)
    s[C].reorder(io, j, ii)
    CC = s.cache_write(C, "global")
    assert [d.value for d in CC.shape] == [6, shape[1], 4]
    assert [iv.name for iv in s[C].leaf_iter_vars] == ["i0", "i1"]
    held(s, [A, C])
    replays(s, [A, C], C)


def test_cache_write_after_fuse():
    A, B, C, s = chain(5, 6)
    s[C].fuse(*C.op.axis)
    CC = s.cache_write(C, "global")
    assert [d.value for d in CC.shape] == [30]
    held(s, [A, C])


@pytest.mark.parametrize("size", [8, 10])
def test_cache_write_of_a_reduction_after_split(size):
    A, B, C = matmul(size, 6, 5)
    s = create_schedule(C)
    _, i = s[C].split(C.op.axis[0], factor=4)
    j = C.op.axis[1]
    s[C].reorder(j, i)
    CC = s.cache_write(C, "global")
    k = s[CC].op.reduce_axis[0]
    s[CC].split(k, factor=2)
    held(s, [A, B, C])
    replays(s, [A, B, C], C)


def test_cache_write_after_split_of_a_symbolic_size():
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i] * 2, name="C")
    s = create_schedule(C)
    s[C].split(C.op.axis[0], factor=4)
    s.cache_write(C, "global")
    held(s, [A, C], {"n": 13})


def test_what_is_computed_in_the_loops_goes_with_them():
    A, B, C, s = chain(8, 6)
    i, j = C.op.axis
    s[C].reorder(j, i)
    s[B].compute_at(s[C], j)
    CC = s.cache_write(C, "global")
    assert s[B].attach_stage is s[CC] and s[B].attach_ivar is s[CC].op.axis[0]
    held(s, [A, C])


# ---- fuse() of nothing, groups


def test_fuse_of_nothing_in_a_reduction_to_a_scalar():
    X = te.placeholder((10,), "int32", name="X")
    k = te.reduce_axis((0, 10), "k")
    Y = te.compute((), lambda: te.sum(X[k], k), name="Y")
    s = create_schedule(Y)
    one = s[Y].fuse(*Y.op.axis)
    s[Y].split(one, nparts=20)
    held(s, [X, Y])
    replays(s, [X, Y], Y)


def three():
    A = te.placeholder((8, 8), name="A")
    x = te.compute((8, 8), lambda i, j: A[i, j] + 1, name="x")
    y = te.compute((8, 8), lambda i, j: x[i, j] * 2, name="y")
    z = te.compute((8, 8), lambda i, j: y[i, j] + 2, name="z")
    return A, x, y, z, create_schedule(z)


def test_groups_nest():
    A, x, y, z, s = three()
    inner = s.create_group(outputs=y, inputs=x)
    outer = s.create_group(outputs=y, inputs=x, include_inputs=True)
    assert s[y].group is inner and inner.group is outer and s[x].group is outer
    outer.compute_at(s[z], z.op.axis[0])
    held(s, [A, z])
    replays(s, [A, z], z)


def test_a_group_that_would_cut_another_is_refused():
    A, x, y, z, s = three()
    s.create_group(outputs=y, inputs=x, include_inputs=True)
    before = str(s), str(s.trace)
    with pytest.raises(ScheduleError, match="not all of that group would be inside"):
        s.create_group(outputs=z, inputs=x)
    assert (str(s), str(s.trace)) == before


# ---- threads


@pytest.mark.parametrize("bound", [False, True])
def test_registers_filled_outside_of_their_readers_thread_loop(bound):
    A, B, C, s = chain(64)
    tx = te.thread_axis("threadIdx.x")
    o, i = s[C].split(C.op.axis[0], nparts=2)
    s[C].bind(o, te.thread_axis("blockIdx.x"))
    s[C].bind(i, tx)
    s[B].set_scope("local")
    s[B].compute_at(s[C], o)
    if bound:
        s[B].bind(B.op.axis[0], tx)
    func = held(s, [A, C])
    assert "alloc((1,)" in str(func)
    x = np.arange(64, dtype="float32")
    device = tec.rocm_emu("gfx942", check="bounds")
    c = tec.nd.array(np.zeros(64, "float32"), device)
    tec.build(s, [A, C], "rocm -mcpu=gfx942")(tec.nd.array(x, device), c)
    np.testing.assert_array_equal(c.numpy(), (x + 1) * 2)


def test_registers_filled_from_shared_memory_outside_of_the_thread_loop():
    A, B, C, s = chain(64)
    AS = s.cache_read(A, "shared", [B])
    o, i = s[C].split(C.op.axis[0], nparts=2)
    s[C].bind(o, te.thread_axis("blockIdx.x"))
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    s[B].set_scope("local")
    for t in (B, AS):
        s[t].compute_at(s[C], o)
    s[AS].bind(s[AS].op.axis[0], te.thread_axis("threadIdx.x"))
    held(s, [A, C])


@pytest.mark.parametrize("writer", [0, 5])
def test_only_one_of_the_threads_that_share_a_reduction_stores(writer):
    rows, columns, lanes = 7, 48, 8
    scores = te.placeholder((rows, columns), name="scores")
    c = te.reduce_axis((0, columns), "c")
    best = te.compute((rows,), lambda r: te.max(scores[r, c], axis=c), name="best")
    margin = te.compute((rows,), lambda r: 3 * best[r] - 2, name="margin")
    s = create_schedule(margin)
    lane = te.thread_axis((0, lanes), "threadIdx.x")
    block, row = s[margin].split(margin.op.axis[0], factor=3)  # seven rows by three: the last block is short
    s[margin].bind(block, te.thread_axis("blockIdx.x"))
    s[margin].bind(row, te.thread_axis("threadIdx.y"))
    part = s.rfactor(best, s[best].split(c, nparts=lanes)[0])
    (across,) = s[best].op.reduce_axis
    s[best].bind(across, lane)
    s[part].compute_at(s[best], across)
    s[best].compute_at(s[margin], row)
    for stage in (best, margin):
        s[stage].set_store_predicate(lane.var.equal(writer))
    x = np.random.default_rng(3).integers(-50, 50, (rows, columns)).astype("float32")
    device = tec.rocm_emu("gfx942", check="bounds")
    got = tec.nd.array(np.zeros(rows, "float32"), device)
    tec.build(s, [scores, margin], "rocm -mcpu=gfx942")(tec.nd.array(x, device), got)
    np.testing.assert_array_equal(got.numpy(), 3 * x.max(1) - 2)
    replays(s, [scores, margin], margin)


# ---- parameters and layouts


def test_an_inlined_parameter_is_left_as_it_is():
    A, B, C, s = chain(8)
    s[B].compute_inline()
    with pytest.warns(UserWarning, match="parameter B is inlined"):
        f = tec.build(s, [A, B, C], "llvm")
    x = np.arange(8, dtype="float32")
    a, b, c = (tec.nd.array(v) for v in (x, np.full(8, 7, "float32"), np.zeros(8, "float32")))
    f(a, b, c)
    np.testing.assert_array_equal(b.numpy(), np.full(8, 7))
    np.testing.assert_array_equal(c.numpy(), (x + 1) * 2)


@pytest.mark.parametrize(
    ("mapping", "shape"),
    [
        (lambda *i: [i[1], i[0]], (24, 4)),
        (lambda i, *rest: [i, *(r // 4 for r in rest), *(r % 4 for r in rest)], (4, 6, 4)),
        (lambda *i, n: [*i, n // 4, te.AXIS_SEPARATOR, n % 4], (4, 6, 4)),
        (lambda i, j: [i, j // 4 // 3, j // 4 % 3, j % 4], (4, 2, 3, 4)),
        (lambda i, j: [j // 12 % 2, i, j // 4 % 3, j % 4], (2, 4, 3, 4)),
    ],
)
def test_layouts(mapping, shape):
    A, B, C, s = chain(4, 24)
    s[B].transform_layout(mapping)
    assert f"B = alloc({shape}" in str(held(s, [A, C]))
    replays(s, [A, C], C)


@pytest.mark.parametrize("mapping", [lambda *, n: [n], lambda i, *, n, m: [i, n, m], lambda i, j, *r, n: [i, j]])
def test_layouts_that_take_other_indices(mapping):
    *_, s = chain(4, 24)
    with pytest.raises(ScheduleError, match=r"does not take 2 indices|cannot be told from"):
        s[s.stages[1].op].transform_layout(mapping)


def test_a_reduce_axis_that_rfactor_leaves_alone_is_that_of_the_partial_result():
    A = te.placeholder((8, 8, 8), name="A")
    k1, k2 = te.reduce_axis((0, 8), "k1"), te.reduce_axis((0, 8), "k2")
    B = te.compute((8,), lambda i: te.sum(A[i, k1, k2], axis=[k1, k2]), name="B")
    s = create_schedule(B)
    BF = s.rfactor(B, k1)
    s[BF].split(k2, 4)
    with pytest.raises(ScheduleError, match=r"k2 is a loop of B_rf, not of B|k2 is not a loop of B"):
        s[B].split(k2, 4)
    held(s, [A, B])
    replays(s, [A, B], B)


def test_what_is_computed_at_a_loop_follows_its_splits_and_fuses():
    A = te.placeholder((6, 10), name="A")
    B = te.compute(A.shape, lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute(A.shape, lambda i, j: B[i, j] * 2.0, name="C")
    a = np.random.default_rng(0).random((6, 10)).astype("float32")
    for axis in (0, 1):
        for change in ("split", "fuse", "tile"):
            s = te.create_schedule(C.op)
            i, j = C.op.axis
            s[B].compute_at(s[C], (i, j)[axis])
            if change == "fuse":
                want = s[C].fuse(i, j)
            elif change == "split":
                want = s[C].split((i, j)[axis], 4)[1]
            else:
                want = s[C].tile(i, j, 2, 4)[2 + axis]
            assert s[B].attach_ivar is want
            assert str(te.create_schedule(C.op).replay(s.trace)) == str(s)
            out = np.zeros_like(a)
            tec.build(s, [A, C], "llvm")(a, out)
            np.testing.assert_allclose(out, (a + 1) * 2, 1e-6)


def test_an_output_left_out_is_computed_all_the_same():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
    a, out = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    tec.build(te.create_schedule([B.op, C.op]), [A, C], "llvm")(a, out)
    np.testing.assert_array_equal(out, (a + 1) * 2)
    D = te.compute((8,), lambda i: A[i] - 1.0, name="D")
    with pytest.warns(UserWarning, match="output D is not among the parameters, and nothing reads it"):
        tec.build(te.create_schedule([D.op, C.op]), [A, C], "llvm")(a, out)
    with pytest.raises(tec.ArgumentError, match="output C is not among the parameters"):
        tec.build(te.create_schedule(C.op), [A], "llvm")
