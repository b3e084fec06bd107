"""Tensor intrinsics, externs, scans, prefetch, rolling buffers and layouts, lowered and run."""

from __future__ import annotations

import numpy as np
import pytest

from tec import te
from tec.errors import ScheduleError
from tec.ir import Attr, Evaluate, For
from tec.ir.notes import AutoUnrollMaxStep
from tec.schedule import create_schedule, to_loops
from tests.thinned import thinned

from .held import held
from .test_lowering import allocs, const_shape, matmul, nodes

# ---- tensorize


def matmul_intrin(m, n, k, parts="body+init+update", strided=True):
    """An m x n x k product written as loops over buffers."""
    a = te.placeholder((m, k), name="a")
    b = te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    binds = {}
    if strided:
        binds = {
            t: te.decl_buffer(t.shape, t.dtype, t.op.name, strides=[te.var(f"s{t.op.name}"), 1], offset_factor=1)
            for t in (a, b, c)
        }

    def loops(ins, outs, init, update):
        ib = te.ir_builder.create()
        A, B = (ib.buffer_ptr(x) for x in ins)
        C = ib.buffer_ptr(outs[0])
        with ib.for_range(0, m, name="i") as i:
            with ib.for_range(0, n, name="j") as j:
                if init:
                    C[i, j] = te.const(0.0)
                if update:
                    with ib.for_range(0, k, name="r") as x:
                        C[i, j] = C[i, j] + A[i, x] * B[x, j]
        return ib.get()

    def function(ins, outs):
        out = []
        for name, init, update in (("body", 1, 1), ("init", 1, 0), ("update", 0, 1)):
            out.append(loops(ins, outs, init, update) if name in parts else None)
        return out[0] if parts == "body" else tuple(out)

    return te.decl_tensor_intrin(c.op, function, name=f"mm{m}x{n}x{k}", binds=binds)


@thinned(1, ("parts", ["body+init+update", "init+update", "body+update", "update"]), ("outer_k", [True, False]))
def test_tensorize_matmul(parts, outer_k):
    A, B, C = matmul(16, 24, 12)
    s = create_schedule(C)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 8)
    k = C.op.reduce_axis[0]
    if outer_k:
        ko, ki = s[C].split(k, factor=6)
        s[C].reorder(xo, ko, yo, xi, yi, ki)
        s[C].tensorize(xi, matmul_intrin(4, 8, 6, parts))
    else:
        s[C].tensorize(xi, matmul_intrin(4, 8, 12, parts))
    func = held(s, [A, B, C])
    names = {f.var.name for f in nodes(func, For)}
    assert "r" in names and "i_inner" not in names


def test_tensorize_between_caches():
    A, B, C = matmul(16, 16, 16)
    s = create_schedule(C)
    CL = s.cache_write(C, "local")
    AL, BL = s.cache_read(A, "local", [CL]), s.cache_read(B, "local", [CL])
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 8, 8)
    s[CL].compute_at(s[C], yo)
    ko, ki = s[CL].split(CL.op.reduce_axis[0], factor=4)
    s[CL].reorder(ko, *CL.op.axis, ki)
    for X in (AL, BL):
        s[X].compute_at(s[CL], ko)
    s[CL].tensorize(CL.op.axis[0], matmul_intrin(8, 8, 4))
    held(s, [A, B, C])


def test_tensorize_with_swapped_operands_and_outer_dimension():
    A = te.placeholder((3, 8, 8), name="A")
    B = te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    C = te.compute((3, 8, 8), lambda b, i, j: te.sum(B[k, j] * A[b, i, k], axis=k), name="C")
    s = create_schedule(C)
    s[C].tensorize(C.op.axis[1], matmul_intrin(8, 8, 8))
    held(s, [A, B, C])


def vector_intrin(n, scale=2.0, dtype="float32"):
    a = te.placeholder((n,), name="a", dtype=dtype)
    c = te.compute((n,), lambda i: a[i] * te.const(scale, dtype), name="c")

    def function(ins, outs):
        ib = te.ir_builder.create()
        x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, n, name="v") as i:
            y[i] = x[i] * te.const(scale, dtype)
        return ib.get()

    return te.decl_tensor_intrin(c.op, function, name="scale")


def test_tensorize_elementwise():
    A = te.placeholder((6, 16), name="A")
    C = te.compute((6, 16), lambda i, j: A[i, j] * 2, name="C")
    s = create_schedule(C)
    o, i = s[C].split(C.op.axis[1], factor=8)
    s[C].tensorize(i, vector_intrin(8))
    held(s, [A, C])


@pytest.mark.parametrize(
    "change, message",
    [
        ("scale", "computations differ"),
        ("size", "data axes of the region have extents"),
        ("ragged", "region is ragged"),
        ("dtype", "computations differ"),
    ],
)
def test_tensorize_mismatch(change, message):
    dtype = "float64" if change == "dtype" else "float32"
    A = te.placeholder((100 if change == "ragged" else 64,), name="A", dtype=dtype)
    C = te.compute(A.shape, lambda i: A[i] * te.const(3.0 if change == "scale" else 2.0, dtype), name="C")
    s = create_schedule(C)
    o, i = s[C].split(C.op.axis[0], factor=4 if change == "size" else 8)
    s[C].tensorize(i, vector_intrin(8))
    with pytest.raises(ScheduleError, match=message) as e:
        to_loops(s, [A, C])
    assert "<-- tensorized with scale" in str(e.value)
    assert "test_regions.py" in str(e.value)


def test_tensorize_reduction_goes_on_without_update():
    A, B, C = matmul(8, 8, 16)
    s = create_schedule(C)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=8)
    s[C].reorder(ko, *C.op.axis, ki)
    s[C].tensorize(C.op.axis[0], matmul_intrin(8, 8, 8, "body"))
    with pytest.raises(ScheduleError, match="no reduce_update"):
        to_loops(s, [A, B, C])


def test_tensorize_pointer_needs_strides():
    A, B, C = matmul(8, 16, 8)
    a = te.placeholder((8, 8), name="a")
    c = te.compute((8, 8), lambda i, j: a[i, j] * 2, name="c")

    def function(ins, outs):
        return te.call_extern("int32", "f", ins[0].access_ptr("r"), outs[0].access_ptr("w"))

    intrin = te.decl_tensor_intrin(c.op, function, name="f")
    D = te.compute((8, 16), lambda i, j: B[i, j] * 2, name="D")
    s = create_schedule(D)
    o, i = s[D].split(D.op.axis[1], factor=8)
    s[D].reorder(o, D.op.axis[0], i)
    s[D].tensorize(D.op.axis[0], intrin)
    with pytest.raises(ScheduleError, match="used by its pointer"):
        to_loops(s, [B, D])


# ---- externs


def test_extern_between_computes():
    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] + 1, name="B")

    def reverse(ins, outs):
        ib = te.ir_builder.create()
        x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 12, name="i") as i:
            y[i] = x[11 - i]
        return ib.get()

    C = te.extern((12,), [B], reverse, name="C", dtype="float32")
    D = te.compute((5,), lambda i: C[i] * 2, name="D")
    s = create_schedule(D)
    o, i = s[B].split(B.op.axis[0], factor=5)
    func = to_loops(s, [A, D])
    assert const_shape(allocs(func)["B"]) == (12,)
    from tec.ir.interp import run

    a, d = np.arange(12, dtype="float32"), np.zeros(5, "float32")
    run(func, [a, d], check=True)
    np.testing.assert_array_equal(d, (a[::-1][:5] + 1) * 2)


# ---- scans


def cumsum(m, n):
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i], name="init")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    return X, init, update, te.scan(init, update, state, inputs=[X], name="R")


def test_scan():
    X, init, update, R = cumsum(9, 6)
    s = create_schedule(R.op)
    held(s, [X, R])


def test_scan_read_by_another_stage():
    X, init, update, R = cumsum(9, 6)
    D = te.compute((9, 6), lambda t, i: R[t, i] * 2, name="D")
    held(create_schedule(D), [X, D])


def test_scan_with_threads():
    m, n = te.var("m"), te.var("n")
    X, init, update, R = cumsum(m, n)
    s = create_schedule(R.op)
    bx, tx = te.thread_axis((0, 2), "blockIdx.x"), te.thread_axis((0, 4), "threadIdx.x")
    for stage in (init, update):
        xo, xi = s[stage].split(stage.op.axis[1], factor=8)
        xo, xi = s[stage].split(stage.op.axis[1] if False else xi, nparts=4)
        s[stage].bind(xo, te.thread_axis("threadIdx.x"))
    held(s, [X, R], {"m": 7, "n": 13})
    s = create_schedule(R.op)
    s[R].env_threads([bx, tx])
    for stage in (init, update):
        o, i = s[stage].split(stage.op.axis[1], nparts=8)
        ob, ot = s[stage].split(o, nparts=2)
        s[stage].bind(ob, te.thread_axis((0, 2), "blockIdx.x"))
        s[stage].bind(ot, te.thread_axis((0, 4), "threadIdx.x"))
    held(s, [X, R], {"m": 7, "n": 13})


def test_scan_with_an_intermediate_and_cached_state():
    X = te.placeholder((8, 5), name="X")
    state = te.placeholder((8, 5), name="state")
    init = te.compute((1, 5), lambda _, i: X[0, i], name="init")
    half = te.compute((8, 5), lambda t, i: state[t - 1, i] * te.const(0.5), name="half")
    update = te.compute((8, 5), lambda t, i: half[t, i] + X[t, i], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    s = create_schedule(R.op)
    cached = s.cache_read(state, "local", [half])
    s[cached].compute_at(s[half], half.op.axis[1])
    s[half].compute_at(s[update], update.op.axis[1])
    held(s, [X, R])
    s = create_schedule(R.op)
    s[half].compute_inline()
    held(s, [X, R])


def test_scan_of_two_states_with_one_init():
    X = te.placeholder((6, 4), name="X")
    a, b = te.placeholder((6, 4), name="a"), te.placeholder((6, 4), name="b")
    zero = te.compute((1, 4), lambda t, i: te.const(1.0), name="zero")
    ua = te.compute((6, 4), lambda t, i: a[t - 1, i] + b[t - 1, i], name="ua")
    ub = te.compute((6, 4), lambda t, i: b[t - 1, i] + X[t, i], name="ub")
    ra, rb = te.scan([zero, zero], [ua, ub], [a, b], inputs=[X], name="R")
    held(create_schedule(ra.op), [X, ra, rb])


def test_scan_whose_init_is_an_input():
    X, Z = te.placeholder((6, 4), name="X"), te.placeholder((1, 4), name="Z")
    a = te.placeholder((6, 4), name="a")
    u = te.compute((6, 4), lambda t, i: a[t - 1, i] + X[t, i], name="u")
    R = te.scan(Z, u, a, inputs=[X], name="R")
    held(create_schedule(R.op), [X, Z, R])


# ---- prefetch, pragma


def test_prefetch_and_pragma():
    A = te.placeholder((64, 64), name="A")
    C = te.compute((64, 64), lambda i, j: A[i, j] + 1, name="C")
    s = create_schedule(C)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 8, 32)
    s[C].prefetch(A, yo, 1)
    s[C].pragma(xi, "auto_unroll_max_step", 16)
    func = held(s, [A, C])
    calls = [e.value for e in nodes(func, Evaluate) if getattr(e.value, "op", "") == "prefetch"]
    assert len(calls) == 1
    assert {f.var.name for f in nodes(func, For)} >= {"line0", "line1"}
    assert [a.note for a in nodes(func, Attr)] == [AutoUnrollMaxStep(16)]


# ---- rolling buffers


def blur(n, m):
    A = te.placeholder((n + 2, m), name="A")
    B = te.compute((n + 2, m), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] + B[i + 1, j] + B[i + 2, j], name="C")
    return A, B, C


@pytest.mark.parametrize("split", [0, 2, 5])
def test_rolling_buffer(split):
    A, B, C = blur(20, 6)
    s = create_schedule(C)
    loop = C.op.axis[0]
    if split:
        loop, _ = s[C].split(loop, factor=split)
    s[B].compute_at(s[C], loop)
    s[B].rolling_buffer()
    func = held(s, [A, C])
    assert const_shape(allocs(func)["B"]) == (max(split, 1) + 2, 6)
    counts = str(func)
    assert "%" in counts


def test_rolling_buffer_of_a_reduction_inside_another_loop():
    A = te.placeholder((22, 6, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    B = te.compute((22, 6), lambda i, j: te.sum(A[i, j, k], axis=k), name="B")
    C = te.compute((20, 6), lambda i, j: B[i, j] + B[i + 1, j] + B[i + 2, j], name="C")
    s = create_schedule(C)
    o, i = s[C].split(C.op.axis[1], factor=3)
    s[C].reorder(o, C.op.axis[0], i)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].rolling_buffer()
    func = held(s, [A, C])
    assert const_shape(allocs(func)["B"]) == (3, 3)


# ---- transform_layout


@pytest.mark.parametrize("extent", [16, 18])
def test_layout_of_an_intermediate(extent):
    A = te.placeholder((5, extent), name="A")
    B = te.compute((5, extent), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((5, extent), lambda i, j: B[i, j] * 2, name="C")
    s = create_schedule(C)
    jo, i, ji = s[B].transform_layout(lambda i, j: [j // 4, i, j % 4])
    s[B].vectorize(ji)
    func = held(s, [A, C])
    assert const_shape(allocs(func)["B"]) == (-(-extent // 4), 5, 4)


@pytest.mark.parametrize("factor,within", [(4, [5, 2]), (5, [3, 4])])
def test_a_layout_is_cut(factor, within):
    """What lies beyond is not stored, in whole tiles and in those that overhang."""
    A = te.placeholder((8, 3), name="A")
    C = te.compute((8, 3), lambda i, j: A[i, j] + 1, name="C")
    s = create_schedule(C)
    s[C].split(C.op.axis[0], factor=factor)
    s[C].transform_layout(lambda i, j: [i // 4 * 3 + j, i % 4], keep_loops=True, within=within)
    func = to_loops(s, [A, C])
    from tec.ir.interp import run

    a, c = np.arange(24, dtype="float32").reshape(8, 3), np.zeros(within, "float32")
    run(func, [a, c], check=True)
    want = (a + 1).reshape(2, 4, 3).transpose(0, 2, 1).reshape(6, 4)
    np.testing.assert_array_equal(c, want[: within[0], : within[1]])


def test_a_layout_is_cut_along_axes_that_are_one_dimension():
    """Boxes of 2 x 2 places of an image of 3 x 5 whose places are counted through: what lies beyond a row is not the next one's."""
    A = te.placeholder((2, 3, 4), name="A")
    C = te.compute((2, 3, 4), lambda i, j, p: A[i, j, p] + 1, name="C")
    s = create_schedule(C)
    s[C].transform_layout(lambda i, j, p: [i * 2 + p // 2, j * 2 + p % 2], keep_loops=True, within=[(3, 5)])
    func = to_loops(s, [A, C])
    from tec.ir.interp import run

    a, c = np.arange(24, dtype="float32").reshape(2, 3, 4), np.zeros(15, "float32")
    run(func, [a, c], check=True)
    want = (a + 1).reshape(2, 3, 2, 2).transpose(0, 2, 1, 3).reshape(4, 6)[:3, :5]
    np.testing.assert_array_equal(c, want.reshape(-1))


@pytest.mark.parametrize("factor", [4, 5])
def test_a_layout_is_cut_in_front(factor):
    """What lies before 0, since the map takes a constant off, is not stored either."""
    A = te.placeholder((8, 3), name="A")
    C = te.compute((8, 3), lambda i, j: A[i, j] + 1, name="C")
    s = create_schedule(C)
    s[C].split(C.op.axis[0], factor=factor)
    s[C].transform_layout(lambda i, j: [i // 4, j * 4 + i % 4 - 3], keep_loops=True, within=[2, 7])
    func = to_loops(s, [A, C])
    from tec.ir.interp import run

    a, c = np.arange(24, dtype="float32").reshape(8, 3), np.zeros((2, 7), "float32")
    run(func, [a, c], check=True)
    want = (a + 1).reshape(2, 4, 3).transpose(0, 2, 1).reshape(2, 12)
    np.testing.assert_array_equal(c, want[:, 3:10])


def test_layout_of_parameters():
    A = te.placeholder((6, 8), name="A")
    C = te.compute((6, 8), lambda i, j: A[i, j] + 1, name="C")
    s = create_schedule(C)
    s[C].transform_layout(lambda i, j: [j * 6 + i])
    s[A].transform_layout(lambda i, j: [i // 2, j, i % 2])
    func = to_loops(s, [A, C])
    assert [const_shape(p) for p in func.params] == [(3, 8, 2), (48,)]
    from tec.ir.interp import run

    a = np.arange(48, dtype="float32").reshape(6, 8)
    c = np.zeros(48, "float32")
    run(func, [np.ascontiguousarray(a.reshape(3, 2, 8).transpose(0, 2, 1)), c], check=True)
    np.testing.assert_array_equal(c.reshape(8, 6).T, a + 1)


# ---- groups


def test_group_is_placed_together():
    A = te.placeholder((40,), name="A")
    B = te.compute((40,), lambda i: A[i] + 1, name="B")
    C = te.compute((40,), lambda i: B[i] * 2, name="C")
    D = te.compute((40,), lambda i: C[i] + 3, name="D")
    s = create_schedule(D)
    g = s.create_group(outputs=C, inputs=A)
    o, i = s[D].split(D.op.axis[0], factor=8)
    g.compute_at(s[D], o)
    func = held(s, [A, D])
    assert {k: const_shape(b) for k, b in allocs(func).items()} == {"B": (8,), "C": (8,)}


def two_step_scan(shift, place, blocks=True):
    """h[t, i] = 2 h[t-1, i + shift mod 16] + x[t, i], the columns split over four work-groups."""
    X = te.placeholder((4, 16), name="X")
    state = te.placeholder((4, 16), name="H")
    init = te.compute((1, 16), lambda t, i: X[0, i], name="init")
    mid = te.compute((4, 16), lambda t, i: state[t - 1, te.indexmod(i + shift, 16)] * 2.0, name="mid")
    update = te.compute((4, 16), lambda t, i: mid[t, i] + X[t, i], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    s = create_schedule(R.op)
    tag = "blockIdx.x" if blocks else "threadIdx.x"
    s[R].env_threads([te.thread_axis((0, 4), tag)])
    for t in (init, update, *([mid] if place == "global" else [])):
        o, i = s[t].split(t.op.axis[1], nparts=4)
        s[t].bind(o, te.thread_axis((0, 4), tag))
        if t is update and place == "at":
            s[mid].compute_at(s[update], i)
    s[mid].set_scope("local" if place == "at" else "global")
    return s, [X, R]


@pytest.mark.parametrize("place", ["global", "at"])
def test_scan_in_work_groups_that_keep_to_their_own(place):
    held(*two_step_scan(0, place))


@pytest.mark.parametrize("place", ["global", "at"])
def test_scan_in_work_groups_that_read_each_other_is_refused(place):
    s, args = two_step_scan(1, place)
    with pytest.raises(
        ScheduleError, match=r"mid reads what other work-groups write of update along i.*do not wait"
    ) as e:
        to_loops(s, args)
    assert "<-- written here" in e.value.message and "env_threads" in e.value.hint


def test_scan_in_threads_of_one_work_group_may_read_each_other():
    to_loops(*two_step_scan(1, "global", blocks=False))


def test_scan_whose_intermediate_crosses_work_groups_is_refused():
    X = te.placeholder((4, 16), name="X")
    state = te.placeholder((4, 16), name="H")
    init = te.compute((1, 16), lambda t, i: X[0, i], name="init")
    mid = te.compute((4, 16), lambda t, i: state[t - 1, i] * 2.0, name="mid")
    update = te.compute((4, 16), lambda t, i: mid[t, 15 - i] + X[t, i], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    s = create_schedule(R.op)
    s[R].env_threads([te.thread_axis((0, 4), "blockIdx.x")])
    for t in (update, mid):
        o, _ = s[t].split(t.op.axis[1], nparts=4)
        s[t].bind(o, te.thread_axis((0, 4), "blockIdx.x"))
    s[mid].set_scope("global")
    with pytest.raises(ScheduleError, match="update reads what other work-groups write of mid along i"):
        to_loops(s, [X, R])
