"""Schedules lowered to loops, run by the interpreter, held against the unscheduled computation."""

from __future__ import annotations

import numpy as np
import pytest

from tec import te
from tec.ir import Alloc, AllReduce, Buffer, For, IfThenElse, visit
from tec.ir.stmt import StorageNotes
from tec.schedule import create_schedule, to_loops

from .held import held


def nodes(func, kind):
    """All statements of one class."""
    out = []
    visit.visit(func.body, None, lambda s: out.append(s) if isinstance(s, kind) else None)
    return out


def allocs(func):
    return {a.buffer.name: a.buffer for a in nodes(func, Alloc)}


def const_shape(buffer: Buffer):
    return tuple(d.value for d in buffer.shape)


def vector_add(n):
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    return A, B, C


def matmul(m, n, k, dtype="float32"):
    A = te.placeholder((m, k), name="A", dtype=dtype)
    B = te.placeholder((k, n), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return A, B, C


# ---- loops


@pytest.mark.parametrize("n", [1, 7, 64, 100])
@pytest.mark.parametrize("how", [{"factor": 8}, {"nparts": 8}, {"factor": 200}, {"nparts": 3}])
def test_split(n, how):
    A, B, C = vector_add(n)
    s = create_schedule(C.op)
    s[C].split(C.op.axis[0], **how)
    held(s, [A, B, C])


def test_split_symbolic_has_a_guard():
    n = te.var("n")
    A, B, C = vector_add(n)
    s = create_schedule(C.op)
    bx, tx = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    for size in (1, 64, 100):
        func = held(s, [A, B, C], {"n": size})
    assert len(nodes(func, IfThenElse)) == 1


def test_dividing_split_has_no_guard():
    A, B, C = vector_add(64)
    s = create_schedule(C.op)
    o, i = s[C].split(C.op.axis[0], factor=16)
    s[C].split(i, nparts=4)
    assert not nodes(held(s, [A, B, C]), IfThenElse)


def test_split_by_a_symbolic_factor():
    n, f = te.var("n"), te.var("f")
    A, B, C = vector_add(n)
    s = create_schedule(C.op)
    s[C].split(C.op.axis[0], factor=f)
    held(s, [A, B, C, f], {"n": 23, "f": 5})


def test_tile_fuse_reorder():
    A = te.placeholder((20, 30), name="A")
    C = te.compute((20, 30), lambda i, j: A[i, j] * 2, name="C")
    s = create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 8, 4)
    f = s[C].fuse(xo, yo)
    s[C].reorder(yi, xi, f)
    s[C].parallel(yi)
    s[C].unroll(xi)
    func = held(s, [A, C])
    assert [f.kind for f in nodes(func, For)] == ["serial", "unrolled", "parallel"]


def test_fuse_then_split_then_fuse():
    A = te.placeholder((6, 5, 7), name="A")
    C = te.compute((6, 5, 7), lambda i, j, k: A[i, j, k] + 1, name="C")
    s = create_schedule(C.op)
    f = s[C].fuse(*C.op.axis)
    o, i = s[C].split(f, factor=16)
    o2, i2 = s[C].split(o, nparts=4)
    s[C].reorder(i, o2, i2)
    s[C].fuse(o2, i2)
    held(s, [A, C])


def test_zero_dimensional():
    A = te.placeholder((16,), name="A")
    k = te.reduce_axis((0, 16), "k")
    B = te.compute((), lambda: te.sum(A[k], axis=k), name="B")
    C = te.compute((), lambda: B[()] * 2 if False else B() * 2, name="C")
    held(create_schedule(C), [A, C])


def test_reduce_axis_from_nonzero():
    A = te.placeholder((20,), name="A")
    k = te.reduce_axis((3, 17), "k")
    B = te.compute((1,), lambda i: te.sum(A[k + i], axis=k), name="B")
    s = create_schedule(B)
    s[B].split(k, factor=4)
    held(s, [A, B])


# ---- attachment and bounds


def test_compute_at_shrinks_storage():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2, name="B")
    C = te.compute((62,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    s = create_schedule(C)
    o, i = s[C].split(C.op.axis[0], factor=8)
    s[B].compute_at(s[C], o)
    func = held(s, [A, C])
    assert const_shape(allocs(func)["B"]) == (10,)


def test_two_level_stencil():
    A = te.placeholder((40, 40), name="A")
    pad = te.compute(
        (42, 42),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < 41, j >= 1, j < 41), A[i - 1, j - 1], te.const(0.0)),
        name="pad",
    )
    B = te.compute((40, 42), lambda i, j: pad[i, j] + pad[i + 1, j] + pad[i + 2, j], name="B")
    C = te.compute((40, 40), lambda i, j: B[i, j] + B[i, j + 1] + B[i, j + 2], name="C")
    s = create_schedule(C)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 16, 8)
    s[B].compute_at(s[C], yo)
    s[pad].compute_at(s[B], B.op.axis[0])
    func = held(s, [A, C])
    assert const_shape(allocs(func)["B"]) == (16, 10)
    assert const_shape(allocs(func)["pad"]) == (3, 10)


def test_union_of_consumers():
    A = te.placeholder((50,), name="A")
    B = te.compute((50,), lambda i: A[i] + 1, name="B")
    C = te.compute((40,), lambda i: B[i + 3], name="C")
    D = te.compute((40,), lambda i: B[i] + C[i], name="D")
    s = create_schedule(D)
    o, i = s[D].split(D.op.axis[0], factor=10)
    s[B].compute_at(s[D], o)
    s[C].compute_at(s[D], o)
    func = held(s, [A, D])
    assert const_shape(allocs(func)["B"]) == (13,)
    assert const_shape(allocs(func)["C"]) == (10,)


def test_only_what_is_read_is_computed():
    A = te.placeholder((100,), name="A")
    B = te.compute((100,), lambda i: A[i] + 1, name="B")
    C = te.compute((10,), lambda i: B[i * 2 + 5], name="C")
    func = held(create_schedule(C), [A, C])
    assert const_shape(allocs(func)["B"]) == (19,)


def test_strided_and_quotient_regions():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 3, name="B")
    C = te.compute((128,), lambda i: B[(i + 1) // 2 % 64], name="C")
    D = te.compute((126,), lambda i: B[(i + 3) // 4] + B[i // 4], name="D")
    s = create_schedule([C, D])
    o, i = s[D].split(D.op.axis[0], factor=8)
    held(s, [A, C, D])
    s = create_schedule(D)
    o, i = s[D].split(D.op.axis[0], factor=8)
    s[B].compute_at(s[D], o)
    func = held(s, [A, D])
    assert const_shape(allocs(func)["B"]) == (3,)


def test_gather_needs_all():
    A = te.placeholder((30,), name="A")
    I = te.placeholder((8,), name="I", dtype="int32")
    B = te.compute((30,), lambda i: A[i] * 2, name="B")
    C = te.compute((8,), lambda i: B[I[i]], name="C")
    s = create_schedule(C)
    s[B].compute_at(s[C], C.op.axis[0])
    func = held(s, [A, I, C], inputs={"I": np.arange(8, dtype="int32") * 3 % 30})
    assert const_shape(allocs(func)["B"]) == (30,)


def test_ragged_tiles_of_a_producer():
    A = te.placeholder((37, 53), name="A")
    B = te.compute((37, 53), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((37, 53), lambda i, j: B[i, j] * 2, name="C")
    s = create_schedule(C)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 8, 16)
    s[B].compute_at(s[C], yo)
    xo, xi = s[B].split(B.op.axis[0], factor=3)
    s[B].fuse(xi, B.op.axis[1])
    held(s, [A, C])


def test_inline_chain_and_into_reduction():
    A = te.placeholder((12, 9), name="A")
    B = te.compute((12, 9), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((9, 12), lambda j, i: B[i, j] * 2, name="C")
    k = te.reduce_axis((0, 12), "k")
    D = te.compute((9,), lambda j: te.sum(C[j, k] * B[k, j], axis=k), name="D")
    s = create_schedule(D)
    s[B].compute_inline()
    s[C].compute_inline()
    func = held(s, [A, D])
    assert not nodes(func, Alloc)


def test_intermediate_as_a_parameter_is_computed_whole():
    A = te.placeholder((50,), name="A")
    B = te.compute((50,), lambda i: A[i] + 1, name="B")
    C = te.compute((10,), lambda i: B[i], name="C")
    func = held(create_schedule(C), [A, B, C])
    assert not nodes(func, Alloc)


def test_several_outputs():
    A = te.placeholder((10,), name="A")
    B, C = te.compute((10,), lambda i: (A[i] + 1, A[i] * 2), name="BC")
    D = te.compute((10,), lambda i: B[i] + C[i], name="D")
    s = create_schedule(D)
    s[B].compute_at(s[D], D.op.axis[0])
    held(s, [A, D])
    held(create_schedule(B.op), [A, B, C])


# ---- reductions


@pytest.mark.parametrize("order", ["kij", "ikj", "ijk"])
def test_matmul_orders(order):
    A, B, C = matmul(9, 10, 11)
    s = create_schedule(C)
    loops = {"i": C.op.axis[0], "j": C.op.axis[1], "k": C.op.reduce_axis[0]}
    s[C].reorder(*[loops[c] for c in order])
    held(s, [A, B, C])


def test_matmul_blocked_cpu():
    A, B, C = matmul(33, 40, 20)
    s = create_schedule(C)
    CC = s.cache_write(C, "global")
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 8, 16)
    s[CC].compute_at(s[C], yo)
    ko, ki = s[CC].split(CC.op.reduce_axis[0], factor=4)
    xc, yc = s[CC].op.axis
    s[CC].reorder(ko, xc, ki, yc)
    s[CC].vectorize(yc)
    s[CC].unroll(ki)
    s[C].parallel(xo)
    s[C].vectorize(yi)
    func = held(s, [A, B, C])
    assert const_shape(allocs(func)["C_global"]) == (8, 16)


def test_matmul_packed_by_cache_read():
    A, B, C = matmul(16, 32, 24)
    s = create_schedule(C)
    BB = s.cache_read(B, "global", [C])
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 8)
    s[BB].compute_at(s[C], yo)
    s[C].reorder(yo, xo, C.op.reduce_axis[0], xi, yi)
    func = held(s, [A, B, C])
    assert const_shape(allocs(func)["B_global"]) == (24, 8)


def gpu_matmul(m, n, k, tile=16, step=4):
    A, B, C = matmul(m, n, k)
    s = create_schedule(C)
    AA, BB = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    CL = s.cache_write(C, "local")
    by, bx, yi, xi = s[C].tile(C.op.axis[0], C.op.axis[1], tile, tile)
    ty, yi = s[C].split(yi, nparts=4)
    tx, xi = s[C].split(xi, nparts=4)
    s[C].reorder(by, bx, ty, tx, yi, xi)
    for a, t in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        s[C].bind(a, te.thread_axis(t))
    s[CL].compute_at(s[C], tx)
    ko, ki = s[CL].split(CL.op.reduce_axis[0], factor=step)
    s[CL].reorder(ko, ki, *CL.op.axis)
    for X in (AA, BB):
        s[X].compute_at(s[CL], ko)
        o, i = s[X].split(s[X].fuse(*X.op.axis), factor=2)
        s[X].vectorize(i)
        y, r = s[X].split(o, nparts=4)
        x, r = s[X].split(r, nparts=4)
        s[X].bind(y, te.thread_axis("threadIdx.y"))
        s[X].bind(x, te.thread_axis("threadIdx.x"))
    return s, [A, B, C]


@pytest.mark.parametrize("shape", [(32, 16, 8), (20, 36, 10)])
def test_matmul_through_shared_memory(shape):
    s, args = gpu_matmul(*shape)
    func = held(s, args)
    sizes = {k: const_shape(b) for k, b in allocs(func).items()}
    assert sizes == {"C_local": (4, 4), "A_shared": (16, 4), "B_shared": (4, 16)}


def test_matmul_symbolic_through_shared_memory():
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    s, args = gpu_matmul(m, n, k)
    func = held(s, args, {"m": 17, "n": 20, "k": 5})
    assert {k: const_shape(b) for k, b in allocs(func).items()}["A_shared"] == (16, 4)


def test_rfactor_plain():
    A, B, C = matmul(6, 7, 23)
    s = create_schedule(C)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=4)
    CF = s.rfactor(C, ki)
    assert len(CF.shape) == 3
    s[CF].compute_at(s[C], s[C].op.axis[0])
    held(s, [A, B, C])


@pytest.mark.parametrize("factor_axis", [0, 1, 2, -1])
def test_rfactor_factor_axis(factor_axis):
    A, B, C = matmul(6, 7, 24)
    s = create_schedule(C)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=4)
    CF = s.rfactor(C, ko, factor_axis)
    assert [d.value for d in CF.shape].index(6, 0 if factor_axis else 1) is not None
    s[CF].vectorize(s[CF].op.axis[2])
    held(s, [A, B, C])


def row_sum(n=100, threads=16, bind_direct=False):
    m = te.var("m")
    A = te.placeholder((m, n), name="A")
    k = te.reduce_axis((0, n), "k")
    B = te.compute((m,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = create_schedule(B)
    ko, ki = s[B].split(k, factor=threads)
    tx = te.thread_axis("threadIdx.x")
    if bind_direct:
        xo, xi = s[B].split(B.op.axis[0], factor=4)
        s[B].bind(ki, tx)
    else:
        BF = s.rfactor(B, ki)
        xo, xi = s[B].split(s[B].op.axis[0], factor=4)
        s[B].bind(s[B].op.reduce_axis[0], tx)
        s[BF].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].set_store_predicate(tx.var.equal(0))
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.y"))
    return s, [A, B]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("n", [100, 64, 5])
def test_reduction_over_threads(direct, n):
    s, args = row_sum(n, 16, direct)
    func = held(s, args, {"m": 10})
    assert len(nodes(func, AllReduce)) == 1


def test_direct_reduction_over_one_thread_loop():
    A = te.placeholder((6, 32), name="A")
    k = te.reduce_axis((0, 32), "k")
    B = te.compute((6,), lambda i: te.max(A[i, k], axis=k), name="B")
    s = create_schedule(B)
    s[B].bind(k, te.thread_axis("threadIdx.x"))
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    held(s, [A, B])


def test_thread_reduction_with_a_stage_in_its_serial_loop():
    A = te.placeholder((6, 32), name="A")
    P = te.compute((6, 32), lambda i, j: A[i, j] * 2, name="P")
    k = te.reduce_axis((0, 32), "k")
    B = te.compute((6,), lambda i: te.sum(P[i, k], axis=k), name="B")
    s = create_schedule(B)
    ko, ki = s[B].split(k, factor=8)
    s[B].bind(ki, te.thread_axis("threadIdx.x"))
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[P].compute_at(s[B], ki)
    held(s, [A, B])


def argmax_reducer():
    return te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )


@pytest.mark.parametrize("how", ["plain", "split", "rfactor", "threads"])
def test_argmax(how):
    A = te.placeholder((5, 30), name="A", dtype="int32")
    k = te.reduce_axis((0, 30), "k")
    argmax = argmax_reducer()
    idx, val = te.compute((5,), lambda i: argmax((k.var, A[i, k]), axis=k), name="argmax")
    s = create_schedule(idx.op)
    x = np.stack([np.random.default_rng(i).permutation(30) for i in range(5)]).astype("int32")
    if how == "split":
        s[idx].split(k, factor=7)
    elif how != "plain":
        ko, ki = s[idx].split(k, factor=7)
        parts = s.rfactor(idx, ki)
        assert len(parts) == 2
        if how == "threads":
            s[idx].bind(s[idx].op.reduce_axis[0], te.thread_axis("threadIdx.x"))
            s[idx].bind(s[idx].op.axis[0], te.thread_axis("blockIdx.x"))
            s[parts[0]].compute_at(s[idx], s[idx].op.reduce_axis[0])
    held(s, [A, idx, val], inputs={"A": x})


def test_cache_write_of_a_tuple():
    A = te.placeholder((5, 30), name="A", dtype="int32")
    k = te.reduce_axis((0, 30), "k")
    idx, val = te.compute((5,), lambda i: argmax_reducer()((k.var, A[i, k]), axis=k), name="argmax")
    s = create_schedule(idx.op)
    ic, vc = s.cache_write([idx, val], "local")
    s[ic].compute_at(s[idx], idx.op.axis[0])
    x = np.stack([np.random.default_rng(i).permutation(30) for i in range(5)]).astype("int32")
    held(s, [A, idx, val], inputs={"A": x})


def test_reduction_where_and_init():
    A = te.placeholder((8, 20), name="A")
    k = te.reduce_axis((0, 20), "k")
    B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k, where=k.var > i), name="B")
    C = te.compute((8,), lambda i: te.sum(A[i, k], axis=k, init=B[i]), name="C")
    held(create_schedule(C), [A, C])
    s = create_schedule(C)
    ko, ki = s[C].split(k, factor=8)
    s[C].bind(ki, te.thread_axis("threadIdx.x"))
    s[B].compute_root()
    held(s, [A, C])


def test_two_reduce_axes_fused():
    A = te.placeholder((4, 5, 6), name="A")
    k, l = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 6), "l")
    B = te.compute((4,), lambda i: te.sum(A[i, k, l], axis=[k, l]), name="B")
    s = create_schedule(B)
    f = s[B].fuse(k, l)
    o, i = s[B].split(f, factor=8)
    s.rfactor(B, i)
    held(s, [A, B])


def test_softmax_in_one_kernel():
    A = te.placeholder((6, 40), name="A")
    k, k2 = te.reduce_axis((0, 40), "k"), te.reduce_axis((0, 40), "k2")
    M = te.compute((6,), lambda i: te.max(A[i, k], axis=k), name="M")
    X = te.compute((6, 40), lambda i, j: te.exp(A[i, j] - M[i]), name="X")
    Z = te.compute((6,), lambda i: te.sum(X[i, k2], axis=k2), name="Z")
    S = te.compute((6, 40), lambda i, j: X[i, j] / Z[i], name="S")
    s = create_schedule(S)
    tx = te.thread_axis("threadIdx.x")
    s[S].bind(S.op.axis[0], te.thread_axis("blockIdx.x"))
    o, i = s[S].split(S.op.axis[1], factor=16)
    s[S].bind(i, tx)
    for R in (M, Z):
        ko, ki = s[R].split(s[R].op.reduce_axis[0], factor=16)
        s[R].bind(ki, tx)
        s[R].compute_at(s[S], S.op.axis[0])
    s[X].compute_at(s[S], S.op.axis[0])
    xo, xi = s[X].split(X.op.axis[1], factor=16)
    s[X].bind(xi, tx)
    func = held(s, [A, S])
    assert allocs(func)["X"].scope == "shared"


# ---- storage notes


def test_storage_notes_stand_on_the_allocation():
    s, args = gpu_matmul(32, 16, 8)
    AA = next(x for x in s.stages if x.name == "A_shared")
    AA.double_buffer()
    AA.storage_align(AA.op.axis[0], 8, 1)
    func = held(s, args)
    notes = {a.buffer.name: a.notes for a in nodes(func, Alloc)}
    assert notes["A_shared"] == StorageNotes(double_buffer=True, storage_align=((0, 8, 1),))


def test_scope_follows_the_threads():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    C = te.compute((64,), lambda i: B[i] * 2, name="C")
    for at, scope, size in (("block", "shared", 16), ("thread", "local", 1)):
        s = create_schedule(C)
        bx, tx = s[C].split(C.op.axis[0], factor=16)
        s[C].bind(bx, te.thread_axis("blockIdx.x"))
        s[C].bind(tx, te.thread_axis("threadIdx.x"))
        s[B].compute_at(s[C], bx if at == "block" else tx)
        if at == "block":
            s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
        func = held(s, [A, C])
        assert allocs(func)["B"].scope == scope
        assert const_shape(allocs(func)["B"]) == (size,)


def test_vthread():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    C = te.compute((64,), lambda i: B[i] * 2, name="C")
    s = create_schedule(C)
    bx, r = s[C].split(C.op.axis[0], factor=32)
    vx, tx = s[C].split(r, nparts=2)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(vx, te.thread_axis("vthread"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], tx)
    held(s, [A, C])


def test_binds_give_layouts():
    A = te.placeholder((8, 8), name="A")
    C = te.compute((8, 8), lambda i, j: A[i, j] + 1, name="C")
    s = create_schedule(C)
    st = te.var("st")
    Ab = te.decl_buffer((8, 8), "float32", "Ab", strides=[st, 1])
    func = to_loops(s, [Ab, C], binds={A: Ab})
    assert func.params[0] is Ab
    assert [v.name for v in func.implicit_vars()] == ["st"]


def test_same_names_do_not_collide():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="A")
    C = te.compute((8,), lambda i: B[i] + A[i], name="A")
    s = create_schedule(C)
    func = held(s, [A, C])
    assert len({p.name for p in func.params}) == 2
