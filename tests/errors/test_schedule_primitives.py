"""Mistakes in schedules: each raises a ScheduleError at once, with the user's line, the loop nest and the culprit marked."""

from __future__ import annotations

import contextlib
import sys

import pytest

from tec import te
from tec.errors import ScheduleError, TecError
from tec.schedule import create_schedule, replay


@contextlib.contextmanager
def mistake(match, mark=True, hint=True, kind=ScheduleError):
    """The block raises `kind`, whose message fits, stands on a line of the block, and marks a loop or a stage."""
    line = sys._getframe(2).f_lineno
    with pytest.raises(kind, match=match) as caught:
        yield
    e = caught.value
    assert e.where is not None and e.where.file == __file__ and line < e.where.line <= line + 6, e.where
    if mark:
        assert "<-- " in e.message, e.message
    if hint:
        assert e.hint, e.message


def add(n=64):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    return A, B, C, create_schedule(C)


def mm():
    A, B = te.placeholder((32, 32), name="A"), te.placeholder((32, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    C = te.compute((32, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C, k, create_schedule(C)


# ---- create_schedule, s[...]


def test_schedule_of_nothing():
    with mistake("create_schedule of nothing", mark=False):
        create_schedule([])


def test_schedule_of_a_number():
    with mistake("takes operations or tensors", mark=False):
        create_schedule(3)


def test_stage_of_a_foreign_tensor():
    *_, s = add()
    D = te.placeholder((3,), name="D")
    with mistake("D is not part of this schedule", mark=False):
        s[D]


def test_stage_of_a_string():
    *_, s = add()
    with mistake("takes a tensor or an operation", mark=False):
        s["C"]


# ---- split, tile


@pytest.mark.parametrize("factor", [0, -4])
def test_split_factor_not_positive(factor):
    _, _, C, s = add()
    with mistake(f"factor of the split of i is {factor}"):
        s[C].split(C.op.axis[0], factor=factor)


def test_split_nparts_zero():
    _, _, C, s = add()
    with mistake("nparts of the split of i is 0"):
        s[C].split(C.op.axis[0], nparts=0)


def test_split_shifted_inwards_of_a_sum():
    _, _, C, _, s = mm()
    with mistake("split of i with shift_inwards: C has sums"):
        s[C].split(C.op.axis[0], factor=5, shift_inwards=True)


def test_split_factor_a_float():
    _, _, C, s = add()
    with mistake(r"factor of the split of i is 2.5 \(float\)"):
        s[C].split(C.op.axis[0], factor=2.5)


def test_split_factor_a_float_expression():
    _, _, C, s = add()
    with mistake("has type float32"):
        s[C].split(C.op.axis[0], factor=te.const(2.0))


def test_split_without_factor():
    _, _, C, s = add()
    with mistake("neither factor nor nparts"):
        s[C].split(C.op.axis[0])


def test_split_with_both():
    _, _, C, s = add()
    with mistake("both factor and nparts"):
        s[C].split(C.op.axis[0], 4, 4)


def test_split_axis_of_another_stage():
    _, B, C, s = add()
    with mistake("i is a loop of B, not of C"):
        s[C].split(B.op.axis[0], factor=4)


def test_split_of_a_loop_that_was_split():
    _, _, C, s = add()
    s[C].split(C.op.axis[0], factor=4)
    with mistake("loop i of C was split into i_outer, i_inner before"):
        s[C].split(C.op.axis[0], factor=4)


def test_split_of_a_number():
    _, _, C, s = add()
    with mistake("0 \\(int\\) is not a loop"):
        s[C].split(0, factor=4)


def test_split_of_an_input():
    A, _, C, s = add()
    with mistake("A is an input; it has no loops"):
        s[A].split(C.op.axis[0], factor=4)


def test_split_of_a_bound_loop():
    _, _, C, s = add()
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    with mistake("loop i of C is bound to threadIdx.x already"):
        s[C].split(C.op.axis[0], factor=4)


def test_reduce_axis_after_cache_write():
    _, _, C, k, s = mm()
    s.cache_write(C, "local")
    with mistake("k is a loop of C_local, not of C"):
        s[C].split(k, factor=4)


def test_tile_of_one_loop():
    _, _, C, _, s = mm()
    with mistake("tile takes two loops"):
        s[C].tile(C.op.axis[0], C.op.axis[0], 4, 4)


def test_tile_is_all_or_nothing():
    _, _, C, _, s = mm()
    with mistake("y_factor of the tile of j is 0"):
        s[C].tile(*C.op.axis, 4, 0)
    assert [iv.name for iv in s[C].leaf_iter_vars] == ["i", "j", "k"]


# ---- fuse, reorder


def test_fuse_of_loops_apart():
    _, _, C, _, s = mm()
    xo, xi = s[C].split(C.op.axis[0], factor=4)
    with mistake("i_outer and j, which are not adjacent"):
        s[C].fuse(xo, C.op.axis[1])


def test_fuse_in_the_wrong_order():
    _, _, C, _, s = mm()
    with mistake("j and i, which are not adjacent in this order"):
        s[C].fuse(C.op.axis[1], C.op.axis[0])


def test_fuse_of_data_and_reduce():
    _, _, C, k, s = mm()
    with mistake("fuse of j, a data loop, with k, a reduce loop"):
        s[C].fuse(C.op.axis[1], k)


def test_fuse_with_itself():
    _, _, C, _, s = mm()
    with mistake("fuse of i with itself"):
        s[C].fuse(C.op.axis[0], C.op.axis[0])


def test_fuse_of_nothing():
    _, _, C, _, s = mm()
    with mistake("fuse of no loops"):
        s[C].fuse()


def test_reorder_lists_a_loop_twice():
    _, _, C, _, s = mm()
    with mistake("reorder lists loop i twice"):
        s[C].reorder(C.op.axis[0], C.op.axis[1], C.op.axis[0])


def test_reorder_of_a_split_loop():
    _, _, C, k, s = mm()
    s[C].split(k, factor=4)
    with mistake("was split into k_outer, k_inner before"):
        s[C].reorder(k, *C.op.axis)


def test_reorder_of_a_scan_time_loop():
    X, St = te.placeholder((8, 4), name="X"), te.placeholder((8, 4), name="St")
    init = te.compute((1, 4), lambda t, i: X[0, i], name="init")
    update = te.compute((8, 4), lambda t, i: St[t - 1, i] + X[t, i], name="update")
    R = te.scan(init, update, St, inputs=[X], name="R")
    s = create_schedule(R)
    with mistake("its place is fixed"):
        s[R].reorder(R.op.scan_axis)


# ---- bind and kinds


def test_bind_twice():
    _, _, C, s = add()
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    with mistake("loop i of C is bound to blockIdx.x already"):
        s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))


def test_bind_two_loops_to_one_index():
    _, _, C, _, s = mm()
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    with mistake("threadIdx.x, which loop i of C has already"):
        s[C].bind(C.op.axis[1], te.thread_axis("threadIdx.x"))


def test_bind_to_a_string():
    _, _, C, s = add()
    with mistake("which is no thread axis"):
        s[C].bind(C.op.axis[0], "threadIdx.x")


def test_bind_of_a_reduce_loop_to_blocks():
    _, _, C, k, s = mm()
    with mistake("only the threads of a work-group combine"):
        s[C].bind(k, te.thread_axis("blockIdx.x"))


def test_bind_of_a_vectorized_loop():
    _, _, C, s = add()
    s[C].vectorize(C.op.axis[0])
    with mistake("loop i of C is vectorized already"):
        s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))


def test_bind_to_too_small_a_thread_axis():
    _, _, C, s = add()
    with mistake(r"bind of i \(extent 64\) to threadIdx.x of extent 32"):
        s[C].bind(C.op.axis[0], te.thread_axis((0, 32), "threadIdx.x"))


def test_vectorize_of_a_symbolic_loop():
    _, _, C, s = add(te.var("n"))
    with mistake("the extent of loop i of C is n, not a constant"):
        s[C].vectorize(C.op.axis[0])


def test_unroll_of_a_symbolic_loop():
    _, _, C, s = add(te.var("n"))
    with mistake("unroll: the extent of loop i of C is n"):
        s[C].unroll(C.op.axis[0])


def test_vectorize_of_a_reduce_loop():
    _, _, C, k, s = mm()
    with mistake("its steps depend on each other"):
        s[C].vectorize(k)


def test_parallel_of_a_reduce_loop():
    _, _, C, k, s = mm()
    with mistake("parallel of reduce loop k"):
        s[C].parallel(k)


def test_two_kinds_for_a_loop():
    _, _, C, s = add()
    s[C].parallel(C.op.axis[0])
    with mistake("loop i of C is parallel already"):
        s[C].vectorize(C.op.axis[0])


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("", None, "pragma of i: unknown pragma ''"),
        (None, None, "pragma of i: unknown pragma None"),
        ("vectorise", None, "unknown pragma 'vectorise'"),
        ("swizle", None, r"did you mean 'swizzle'\? pragmas: any_order, auto_unroll_max_extent, .*, warp_specialize"),
        ("swizzle.a", None, "did you mean 'swizzle'"),
        ("fragment.x", "f32_16x16x4_f32", "a fragment's role is one of a, b, acc, mma, wgmma, not 'x'"),
        ("fragment.acc", None, r"fragment takes role, instruction, not \('acc',\)"),
        ("early_start", 4, r"early_start takes no value, not \(4,\)"),
        ("bulk_copy", 4, "bulk_copy: swizzle is True or False, not 4"),
        ("software_pipeline", 0, "software_pipeline: stages is an integer of at least 1, not 0"),
        ("software_pipeline", 2.5, "not 2.5"),
        ("warp_specialize", 1, "at least 2, not 1"),
        ("warp_specialize", (3, 2), "turns is True or False, not 2"),
        ("min_blocks", None, "min_blocks takes blocks"),
        ("unroll_explicit", "no", "unroll_explicit is True or False, not 'no'"),
    ],
)
def test_pragmas_that_no_pass_knows(name, value, says):
    _, _, C, s = add()
    with mistake(says):
        s[C].pragma(C.op.axis[0], name, value)


def test_prefetch_of_what_is_not_read():
    A, _, C, s = add()
    with mistake("prefetch of A, which C does not read"):
        s[C].prefetch(A, C.op.axis[0], 1)


def test_tensorize_with_a_function():
    _, _, C, s = add()
    with mistake("which is no tensor intrinsic"):
        s[C].tensorize(C.op.axis[0], lambda x: x)


# ---- attachment


def test_compute_at_a_stage_that_does_not_read_it():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: A[i] * 2, name="C")
    D = te.compute((8,), lambda i: B[i] + C[i], name="D")
    s = create_schedule(D)
    with mistake("compute_at of B into C, which does not read it"):
        s[B].compute_at(s[C], C.op.axis[0])


def test_compute_at_a_producer():
    _, B, C, s = add()
    with mistake("compute_at of C into B, which does not read it"):
        s[C].compute_at(s[B], B.op.axis[0])


def test_compute_at_itself():
    _, B, _, s = add()
    with mistake("compute_at of B into itself"):
        s[B].compute_at(s[B], B.op.axis[0])


def test_compute_at_in_a_circle():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    D = te.compute((8,), lambda i: B[i] + C[i], name="D")
    s = create_schedule(D)
    s[C].compute_at(s[D], D.op.axis[0])
    s[B].compute_at(s[C], C.op.axis[0])
    with mistake("compute_at of C into B|which does not read it"):
        s[C].compute_at(s[B], B.op.axis[0])


def test_compute_at_a_loop_of_another_stage():
    _, B, C, s = add()
    with mistake("i is a loop of B, not of C"):
        s[B].compute_at(s[C], B.op.axis[0])


def test_compute_at_of_an_output():
    A, B, C, _ = add()
    s = create_schedule([B, C])
    with mistake("an output of the schedule"):
        s[B].compute_at(s[C], C.op.axis[0])


def test_compute_at_of_an_input():
    A, B, _, s = add()
    with mistake("A, an input, which is not computed"):
        s[A].compute_at(s[B], B.op.axis[0])


def test_compute_at_a_tensor():
    _, B, C, s = add()
    with mistake("is no stage", mark=False):
        s[B].compute_at(C, C.op.axis[0])


def test_inline_of_an_output():
    _, _, C, s = add()
    with mistake("compute_inline of C, an output"):
        s[C].compute_inline()


def test_inline_of_a_reduction():
    _, _, C, _, _ = mm()
    D = te.compute((32, 32), lambda i, j: C[i, j] * 2, name="D")
    s = create_schedule(D)
    with mistake("compute_inline of C, a reduction"):
        s[C].compute_inline()


def test_inline_of_an_input():
    A, _, _, s = add()
    with mistake("compute_inline of A, which is an input"):
        s[A].compute_inline()


def test_group_of_nothing():
    A, B, C, s = add()
    with mistake("no stage lies between", mark=False):
        s.create_group(outputs=B, inputs=C)


# ---- caches and rfactor


def test_cache_read_for_who_does_not_read():
    A, _, C, s = add()
    with mistake("cache_read of A for C, which does not read it"):
        s.cache_read(A, "shared", [C])


def test_cache_read_for_nobody():
    A, _, _, s = add()
    with mistake("cache_read of A for no readers"):
        s.cache_read(A, "shared", [])


def test_cache_read_scope():
    A, B, _, s = add()
    with mistake("unknown scope 'lds'", mark=False):
        s.cache_read(A, "lds", [B])


def test_cache_write_of_bound_loops():
    _, _, C, s = add()
    outer, _ = s[C].split(C.op.axis[0], factor=4)
    s[C].bind(outer, te.thread_axis("blockIdx.x"))
    with mistake("whose loops are scheduled already"):
        s.cache_write(C, "local")


def test_cache_write_of_a_split_reduction():
    _, _, C, k, s = mm()
    s[C].split(k, factor=4)
    with mistake("whose reduction is scheduled already"):
        s.cache_write(C, "local")


def test_cache_write_of_an_input():
    A, _, _, s = add()
    with mistake("cache_write of A, which is no compute"):
        s.cache_write(A, "local")


def test_cache_write_of_some_outputs():
    A = te.placeholder((8,), name="A")
    B, C = te.compute((8,), lambda i: (A[i] + 1, A[i] + 2), name="BC")
    s = create_schedule(B.op)
    with mistake("1 of the 2 outputs"):
        s.cache_write(B, "local")


def test_rfactor_of_a_data_axis():
    _, _, C, _, s = mm()
    with mistake("along i, which is a data loop"):
        s.rfactor(C, C.op.axis[0])


def test_rfactor_of_a_map():
    _, _, C, s = add()
    with mistake("rfactor of C, which is no reduction"):
        s.rfactor(C, C.op.axis[0])


def test_rfactor_axis_out_of_place():
    _, _, C, k, s = mm()
    with mistake("factor_axis is 7"):
        s.rfactor(C, k, 7)


def test_rfactor_after_an_annotation():
    _, _, C, k, s = mm()
    s[C].parallel(C.op.axis[0])
    with mistake("is bound or annotated already"):
        s.rfactor(C, k)


# ---- storage


def test_set_scope_unknown():
    _, B, _, s = add()
    with mistake("unknown scope 'registers' of B"):
        s[B].set_scope("registers")


def test_set_scope_of_an_output():
    _, _, C, s = add()
    with mistake("C is an output; it cannot live in shared memory"):
        s[C].set_scope("shared")


def test_double_buffer_of_an_output():
    _, _, C, s = add()
    with mistake("double_buffer of C, an output"):
        s[C].double_buffer()


def test_storage_align_of_a_loop():
    _, B, _, s = add()
    o, i = s[B].split(B.op.axis[0], factor=4)
    with mistake("i_outer is no axis of B|IterVar i_outer is no axis of B"):
        s[B].storage_align(o, 8, 1)


def test_storage_align_factor():
    _, B, _, s = add()
    with mistake("the factor is 0"):
        s[B].storage_align(B.op.axis[0], 0, 1)


def test_store_predicate_no_bool():
    _, _, C, s = add()
    with mistake("is int32, not bool"):
        s[C].set_store_predicate(te.const(1) + te.var("x"))


def test_env_threads_of_a_compute():
    _, _, C, s = add()
    with mistake("C is no scan"):
        s[C].env_threads([te.thread_axis((0, 4), "threadIdx.x")])


def test_rolling_buffer_at_root():
    _, B, _, s = add()
    with mistake("not computed in a loop of its reader"):
        s[B].rolling_buffer()


def test_transform_layout_that_loses_elements():
    _, B, _, s = add()
    with mistake("cannot be told from"):
        s[B].transform_layout(lambda i: [i // 4])


def test_transform_layout_of_a_sum():
    _, B, _, s = add()
    with mistake("is no digit of an index"):
        s[B].transform_layout(lambda i: [i - 3])


@pytest.mark.parametrize("within,what", [([3], "where the layout has 4, 4"), ([5, 4], "none larger"), ([0, 4], "none larger"), (3, "a size for each dimension")])  # fmt: skip
def test_transform_layout_within_what_it_has_not(within, what):
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1, name="B")
    s = create_schedule(B)
    with mistake(what):
        s[B].transform_layout(lambda i: [i // 4, i % 4], within=within)


def test_transform_layout_within_of_what_others_read():
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1, name="B")
    C = te.compute((16,), lambda i: B[i] * 2, name="C")
    s = create_schedule(C)
    with mistake("would not be stored"):
        s[B].transform_layout(lambda i: [i // 4, i % 4], within=[3, 4])


def test_transform_layout_arity():
    _, B, _, s = add()
    with mistake("does not take 1 indices"):
        s[B].transform_layout(lambda i, j: [i, j])


# ---- replay


@pytest.mark.parametrize(
    "text, match",
    [
        ("s = (", "is no Python"),
        ("import os", "not a step of a trace"),
        ("x = s.__class__", "no attribute of a trace"),
        ("open('x')", "not a primitive"),
        ("s[C].op.axis[0].loc()", "not a primitive|no attribute"),
        ("s[D].split(i, 4)", "unknown name"),
        ("a, b, c = s[C].split(s[C].op.axis[0], 4)", "3 names"),
        ("s[C].split(s[C].op.axis[0], 0)", "factor of the split of i is 0"),
        ("s[C].split()", "missing"),
    ],
)
def test_replay_of_what_is_no_trace(text, match):
    _, _, C, _ = add()
    with pytest.raises(TecError, match=match):
        replay(text, C)
