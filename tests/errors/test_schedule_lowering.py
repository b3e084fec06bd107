"""Mistakes that show when a schedule is lowered: where stages are, what is a parameter, sizes that are not constant."""

from __future__ import annotations

import pytest

from tec import te
from tec.errors import ArgumentError, ScheduleError
from tec.schedule import create_schedule, to_loops


def add(n=64):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    return A, B, C, create_schedule(C)


def here(e):
    assert e.where is not None and e.where.file == __file__


def test_output_is_no_parameter():
    A, _, _, s = add()
    with pytest.raises(ArgumentError, match="output C is not among the parameters") as e:
        to_loops(s, [A])
    here(e.value)


def test_input_is_no_parameter():
    _, _, C, s = add()
    with pytest.raises(ArgumentError, match="input A is not among the parameters") as e:
        to_loops(s, [C])
    here(e.value)


def test_parameter_twice():
    A, _, C, s = add()
    with pytest.raises(ArgumentError, match="parameter 2, tensor A, is given twice"):
        to_loops(s, [A, C, A])


def test_parameter_of_no_kind():
    A, _, C, s = add()
    with pytest.raises(ArgumentError, match=r"parameter 1 is 'n' \(str\)"):
        to_loops(s, [A, "n", C])


def test_parameter_from_elsewhere():
    A, _, C, s = add()
    with pytest.raises(ArgumentError, match="D, is not part of the schedule"):
        to_loops(s, [A, te.compute((3,), lambda i: te.const(1.0), name="D"), C])


def test_buffer_without_a_tensor():
    A, _, C, s = add()
    with pytest.raises(ArgumentError, match="buffer Ab, stands for no tensor"):
        to_loops(s, [A, C, te.decl_buffer((64,), "float32", "Ab")])


def test_buffer_of_another_dtype():
    A, _, C, s = add()
    with pytest.raises(ArgumentError, match=r"buffer Ab \(int32, 1 dimensions\) cannot hold A"):
        to_loops(s, [A, C], binds={A: te.decl_buffer((64,), "int32", "Ab")})


def test_reader_outside_of_the_attachment_loop():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    D = te.compute((8,), lambda i: B[i] + C[i], name="D")
    s = create_schedule(D)
    s[B].compute_at(s[C], C.op.axis[0])
    with pytest.raises(ScheduleError, match="but D, which reads it, is not") as e:
        to_loops(s, [A, D])
    assert "D: compute, output   <-- reads it outside" in str(e.value)
    here(e.value)


def test_symbolic_size_in_shared_memory():
    n = te.var("n")
    A = te.placeholder((8, n), name="A")
    B = te.compute((8, n), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((8, n), lambda i, j: B[i, j] * 2, name="C")
    s = create_schedule(C)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].compute_at(s[C], C.op.axis[0])
    with pytest.raises(ScheduleError, match=r"stored in shared memory with a size that is not constant: \(1, n\)"):
        to_loops(s, [A, C])


def test_shared_memory_outside_of_the_kernel():
    A, B, C, s = add()
    s[B].set_scope("shared")
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(ScheduleError, match="which lasts for one kernel") as e:
        to_loops(s, [A, C])
    here(e.value)


def test_vectorized_loop_of_an_attached_stage_is_symbolic():
    n = te.var("n")
    A = te.placeholder((8, n), name="A")
    B = te.compute((8, n), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((8, n), lambda i, j: B[i, j] * 2, name="C")
    s = create_schedule(C)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].vectorize(B.op.axis[1])
    with pytest.raises(ScheduleError, match="is vectorized, and its extent is n"):
        to_loops(s, [A, C])


def test_store_predicate_of_an_unbound_thread():
    A, B, C, s = add()
    s[C].set_store_predicate(te.thread_axis("threadIdx.x").var.equal(0))
    with pytest.raises(ScheduleError, match="which no loop around it is bound to"):
        to_loops(s, [A, C])


def test_rolling_buffer_across_blocks():
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] * 2, name="B")
    C = te.compute((8,), lambda i: B[i] + B[i + 2], name="C")
    s = create_schedule(C)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].rolling_buffer()
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    with pytest.raises(ScheduleError, match="whose steps do not follow each other"):
        to_loops(s, [A, C])


def test_registers_spread_over_threads():
    A, B, C, s = add()
    o, i = s[C].split(C.op.axis[0], factor=8)
    s[C].bind(o, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], o)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.y"))
    with pytest.raises(
        ScheduleError, match="B lives in local memory, which each thread has for itself, but its loop i"
    ) as e:
        to_loops(s, [A, C])
    here(e.value)


def test_fragments_filled_outside_of_the_threads():
    A, B, C, s = add()
    o, i = s[C].split(C.op.axis[0], factor=8)
    s[C].bind(o, te.thread_axis("blockIdx.x"))
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], o)
    s[B].set_scope("fragment.a")
    with pytest.raises(ScheduleError, match="is computed outside of loop i_inner of C") as e:
        to_loops(s, [A, C])
    here(e.value)


def test_more_threads_inside_than_outside():
    A, B, C, s = add()
    o, i = s[C].split(C.op.axis[0], factor=8)
    s[C].bind(o, te.thread_axis("blockIdx.x"))
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], i)
    s[B].set_scope("shared")
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    to_loops(s, [A, C])
    D = te.compute((56,), lambda j: B[j] + B[j + 8], name="D")
    s = create_schedule(D)
    o, i = s[D].split(D.op.axis[0], factor=8)
    s[D].bind(o, te.thread_axis("blockIdx.x"))
    s[D].bind(i, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[D], i)
    s[B].set_scope("shared")
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(ScheduleError, match=r"needs 16 steps of threadIdx.x, inside of loop j_inner of D, which has 8"):
        to_loops(s, [A, D])


def test_registers_of_a_reduction_read_by_more_threads():
    A = te.placeholder((8, 32), name="A")
    k = te.reduce_axis((0, 32), "k")
    Z = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="Z")
    C = te.compute((8, 64), lambda i, j: Z[i] + j, name="C")
    s = create_schedule(C)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    s[C].bind(C.op.axis[1], te.thread_axis("threadIdx.x"))
    s[Z].bind(k, te.thread_axis("threadIdx.x"))
    s[Z].compute_at(s[C], C.op.axis[0])
    to_loops(s, [A, C])
    s[Z].set_scope("local")
    with pytest.raises(ScheduleError, match=r"Z is reduced by 32 threads of threadIdx.x into their local memory"):
        to_loops(s, [A, C])


def test_threads_that_share_a_reduction_and_need_different_elements():
    """Columns of a square: each thread of the reader wants a sum of its own, and they would share one."""
    A, k = te.placeholder((8, 8), name="A"), te.reduce_axis((0, 8), "k")
    B = te.compute((8,), lambda j: te.sum(A[k, j], axis=k), name="B")
    C = te.compute((8, 8), lambda i, j: A[i, j] - B[j], name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    s[C].bind(C.op.axis[1], te.thread_axis("threadIdx.x"))
    s[B].bind(B.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].set_scope("local")
    with pytest.raises(
        ScheduleError, match=r"threadIdx\.x shares the reduction B, and C needs another element of it"
    ) as e:
        to_loops(s, [A, C])
    here(e.value)


def test_reduction_over_a_symbolic_number_of_threads():
    A = te.placeholder((8, te.var("n")), name="A")
    k = te.reduce_axis((0, A.shape[1]), "k")
    Z = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="Z")
    s = create_schedule(Z)
    s[Z].bind(k, te.thread_axis("threadIdx.x"))
    with pytest.raises(ScheduleError, match=r"the threads of threadIdx.x that reduce Z are n in number") as e:
        to_loops(s, [A, Z])
    here(e.value)


def test_shared_memory_outside_of_the_kernel_whose_blocks_read_it():
    """A reader inside of a block's loop: the memory ends with the kernel that fills it."""
    A = te.placeholder((4, 6, 8), name="A")
    B = te.compute(A.shape, lambda i, j, k: A[i, j, k] * 2, name="B")
    D = te.compute(A.shape, lambda i, j, k: B[i, j, k] + 1, name="D")
    C = te.compute(A.shape, lambda i, j, k: D[i, j, k] * 3, name="C")
    s = create_schedule(C)
    s[C].bind(C.op.axis[1], te.thread_axis("blockIdx.x"))
    s[D].compute_at(s[C], C.op.axis[1])
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].set_scope("shared")
    with pytest.raises(ScheduleError, match="B lives in shared memory, but is computed outside of loop j of C"):
        to_loops(s, [A, C])
