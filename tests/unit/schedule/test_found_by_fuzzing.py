"""What random schedules found, one test each."""

from __future__ import annotations

import pytest

from tec import te
from tec.errors import ScheduleError
from tec.schedule import create_schedule, replay, to_loops

from .held import held
from .test_lowering import allocs, const_shape


def row_sums(n, m):
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    return A, B, k


def test_inner_part_of_a_split_runs_past_its_extent():
    """3 in 2 parts of 2: without a guard of its own the fourth step is the next outer step's first, summed twice."""
    A, B, k = row_sums(3, 10)
    s = create_schedule(B)
    _, inner = s[B].split(k, factor=3)
    s[B].split(inner, nparts=2)
    held(s, [A, B])


def test_thread_loop_of_one_step_in_registers():
    """Every thread fills its own register: a loop of one step over threadIdx does not leave it to the first."""
    A = te.placeholder((12, 8), name="A")
    B = te.compute((12, 8), lambda i, j: A[i, j] + 1, name="B")
    s = create_schedule(B)
    BL = s.cache_write(B, "local")
    s[B].bind(B.op.axis[1], te.thread_axis("threadIdx.x"))
    s[BL].bind(BL.op.axis[1], te.thread_axis("threadIdx.x"))
    s[BL].compute_at(s[B], B.op.axis[1])
    held(s, [A, B])


def test_storage_whose_size_would_change_with_the_loop():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    C = te.compute((n,), lambda i: B[i] - B[n - 1 - i], name="C")
    s = create_schedule(C)
    s[B].compute_at(s[C], C.op.axis[0])
    func = held(s, [A, C], {"n": 9})
    assert str(allocs(func)["B"].shape[0]) == "n"


def test_one_end_outside_after_the_union():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    C = te.compute((n,), lambda i: B[i] + te.if_then_else(i >= 1, B[i - 1], te.const(0.0)), name="C")
    func = held(create_schedule(C), [A, C], {"n": 5})
    assert str(allocs(func)["B"].shape[0]) == "n"


def test_reduce_loop_over_virtual_threads():
    A, B, k = row_sums(4, 5)
    s = create_schedule(B)
    with pytest.raises(ScheduleError, match="only the threads of a work-group combine"):
        s[B].bind(k, te.thread_axis("vthread"))


def test_rolling_buffer_that_moves_back_to_root():
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] * 2, name="B")
    C = te.compute((8,), lambda i: B[i] + B[i + 2], name="C")
    s = create_schedule(C)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].rolling_buffer()
    s[B].compute_root()
    func = held(s, [A, C])
    assert const_shape(allocs(func)["B"]) == (10,)


def test_cache_write_of_a_bound_stage_is_refused():
    A, B, k = row_sums(4, 5)
    s = create_schedule(B)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(ScheduleError, match="whose loops are scheduled already"):
        s.cache_write(B, "local")


def extern_graph():
    A = te.placeholder((6, 4), name="A")

    def double(ins, outs):
        ib = te.ir_builder.create()
        a, b = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 6, name="r") as r, ib.for_range(0, 4, name="c") as c:
            b[r, c] = a[r, c] * te.const(2.0)
        return ib.get()

    return A, te.extern((6, 4), [A], double, name="E", dtype="float32")


def test_trace_names_a_replaced_extern():
    A, E = extern_graph()
    s = create_schedule(E)
    A1 = s.cache_read(A, "global", [E])
    s.cache_read(A1, "global", [s[E].op.output(0)])
    assert "[E]" in str(s.trace).splitlines()[-1]
    assert str(to_loops(replay(str(s.trace), E), [A, E])) == str(to_loops(s, [A, E]))


def test_extern_over_another_layout_is_refused():
    A, E = extern_graph()
    s = create_schedule(E)
    A1 = s.cache_read(A, "global", [E])
    s[A1].transform_layout(lambda i, j: [j, i])
    with pytest.raises(ScheduleError, match="is used in one piece by hand-written code"):
        to_loops(s, [A, E])


def test_cache_read_for_a_scan():
    X = te.placeholder((6, 4), name="X")
    state = te.placeholder((6, 4), name="state")
    init = te.compute((1, 4), lambda t, i: X[0, i], name="init")
    update = te.compute((6, 4), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    s = create_schedule(R)
    s.cache_read(init, "global", [R])
    held(s, [X, R])


def test_loop_for_a_stage_without_loops():
    A, B, k = row_sums(1, 8)
    total = te.compute((), lambda: B[0] * 2, name="total")
    s = create_schedule(total)
    one = s[total].fuse()
    s[total].bind(one, te.thread_axis("blockIdx.x"))
    s[B].compute_at(s[total], one)
    func = held(s, [A, total])
    assert allocs(func)["B"].scope == "shared"


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_row_that_memory_chooses(vectorized):
    """What is gathered is computed whole: loops are made before what memory says is known."""
    A = te.placeholder((12, 8), name="A")
    rows = te.placeholder((1,), dtype="int32", name="I")
    P = te.compute((12, 8), lambda i, j: A[i, j] * 2, name="P")
    O = te.compute((12, 8), lambda i, j: P[rows[0], j] + P[te.min(rows[0] + 1, 11), j], name="O")
    s = create_schedule(O)
    s.cache_write(P, "local")
    s[P].compute_at(s[O], O.op.axis[0])
    if vectorized:
        s[P].vectorize(P.op.axis[1])
    func = held(s, [A, rows, O])
    assert "TensorRead" not in str(func)
    assert {const_shape(b) for b in allocs(func).values()} == {(12, 8)}


def test_prefetch_of_what_memory_chooses():
    """There is nothing to ask for ahead of time: no loop over lines that memory has yet to name."""
    A = te.placeholder((12, 8), name="A")
    rows = te.placeholder((1,), dtype="int32", name="I")
    O = te.compute((12, 8), lambda i, j: A[rows[0], j] + 1, name="O")
    s = create_schedule(O)
    s[O].prefetch(A, O.op.axis[1], 1)
    assert "TensorRead" not in str(held(s, [A, rows, O]))


def test_prefetch_in_the_loop_of_a_scan_is_refused():
    X, state = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="state")
    init = te.compute((1, 4), lambda t, j: X[0, j], name="init")
    update = te.compute((6, 4), lambda t, j: state[t - 1, j] + X[t, j], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    s = create_schedule(R)
    s[R].prefetch(update, R.op.scan_axis, 1)
    with pytest.raises(ScheduleError, match="prefetch of update in a loop of R") as e:
        to_loops(s, [X, R])
    assert e.value.where.file == __file__


def test_the_start_of_a_scan_in_its_own_loop_is_refused():
    """It would be written over what the steps before have made."""
    X, state = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="state")
    init = te.compute((1, 4), lambda t, j: X[0, j], name="init")
    update = te.compute((6, 4), lambda t, j: state[t - 1, j] + X[t, j], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    s = create_schedule(R)
    s[init].compute_at(s[R], R.op.scan_axis)
    with pytest.raises(ScheduleError, match="init, the start of scan R, is computed in its loop") as e:
        to_loops(s, [X, R])
    assert e.value.where.file == __file__


def test_prefetch_in_a_loop_that_the_start_values_have_too():
    A, B, k = row_sums(6, 10)
    s = create_schedule(B)
    s[B].reorder(k, B.op.axis[0])
    s[B].prefetch(A, B.op.axis[0], 1)
    func = held(s, [A, B])
    assert str(func).count("prefetch") == 1


def test_a_region_that_begins_before_the_tensor():
    """Rows i and 9 - i of blocks of 8: the least is -6 in the second block, and as many rows as there are, from there on, are not all."""
    A = te.placeholder((10, 7), name="A")
    P = te.compute((10, 7), lambda i, j: A[i, j] + 1, name="P")
    O = te.compute((10, 7), lambda i, j: P[i, j] - P[9 - i, j], name="O")
    s = create_schedule(O)
    outer, _ = s[O].split(O.op.axis[0], factor=8)
    s[P].compute_at(s[O], outer)
    held(s, [A, O])


def test_prefetch_outside_of_the_storage_is_refused():
    A = te.placeholder((10, 7), name="A")
    P = te.compute((10, 7), lambda i, j: A[i, j] + 1, name="P")
    O = te.compute((10, 7), lambda i, j: P[i, j] * 2, name="O")
    s = create_schedule(O)
    s[P].compute_at(s[O], O.op.axis[1])
    s[O].prefetch(P, O.op.axis[0], 1)
    with pytest.raises(ScheduleError, match="prefetch of P in loop i of O, outside of the storage") as e:
        to_loops(s, [A, O])
    assert e.value.where.file == __file__


@pytest.mark.parametrize("scope", ["local", "global"])
def test_the_row_of_a_scan_read_through_a_copy_stays_in_the_time_loop(scope):
    """The copy is the scan's next row: outside of the time loop it would read rows that are not there yet."""
    X = te.placeholder((6, 4), name="X")
    p, q = te.placeholder((6, 4), name="p"), te.placeholder((6, 4), name="q")
    inits = [te.compute((1, 4), lambda t, j, c=c: X[0, j] + c, name=f"init{c}") for c in (0, 1)]
    low = te.compute((6, 4), lambda t, j: te.min(p[t - 1, j], q[t - 1, 3 - j]) + X[t, j], name="low")
    high = te.compute((6, 4), lambda t, j: te.max(p[t - 1, j], q[t - 1, j]) - X[t, j], name="high")
    low_all, high_all = te.scan(inits, [low, high], [p, q], inputs=[X], name="R")
    s = create_schedule(low_all)
    copy = s.cache_read(high, scope, [low_all])
    s[high].compute_at(s[copy], copy.op.axis[1])
    held(s, [X, low_all, high_all])


def test_axes_fused_with_one_that_is_empty():
    """An axis of no elements is a divisor of the fused one's index."""
    for shape in ((0, 1), (1, 0, 3), (0, 5)):
        a = te.placeholder(shape, name="a")
        b = te.compute(shape, lambda *i, a=a: a(*i) + 1.0, name="b")
        s = create_schedule(b.op)
        s[b].split(s[b].fuse(*s[b].op.axis), factor=4)
        held(s, [a, b])


@pytest.mark.parametrize("n", [3, 8, 31, 100])
def test_threads_that_a_stage_inside_needs_are_there(n: int) -> None:
    """Where the data are fewer than the tile, its threads are still as many as the cooperative copy inside has: a loop of 8 was cut to 2, and refused."""
    A, W = te.placeholder((16, n), name="A"), te.placeholder((16,), name="W")
    k = te.reduce_axis((0, 16), "k")
    C = te.compute((n,), lambda i: te.sum(A[k, i] * W[k], axis=k), name="C")
    s = create_schedule(C)
    local = s.cache_write(C, "local")
    copy = s.cache_read(W, "shared", [local])
    block, rest = s[C].split(C.op.axis[0], factor=32)
    thread, _ = s[C].split(rest, factor=4)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    s[local].compute_at(s[C], thread)
    outer, _ = s[local].split(local.op.reduce_axis[0], factor=8)
    s[copy].compute_at(s[local], outer)
    s[copy].bind(copy.op.axis[0], te.thread_axis("threadIdx.x"))
    held(s, [A, W, C])
