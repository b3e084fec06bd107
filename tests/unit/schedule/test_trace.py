"""The trace prints as Python and replays to the same loops; print(s) shows the nest."""

from __future__ import annotations

from tec import te
from tec.schedule import create_schedule, replay, to_loops

from .test_lowering import gpu_matmul, matmul, row_sum
from .test_regions import cumsum, matmul_intrin


def same(s, args, outputs, **kwargs):
    again = replay(str(s.trace), outputs, **kwargs)
    assert str(again.trace) == str(s.trace)
    assert str(to_loops(again, args)) == str(to_loops(s, args))
    assert str(again) == str(s)


def test_gpu_matmul():
    s, args = gpu_matmul(64, 64, 32)
    same(s, args, args[2])
    lines = str(s.trace).splitlines()
    assert lines[0] == "s = tec.create_schedule([C])"
    assert lines[1] == "A_shared = s.cache_read(A, 'shared', [C])"


def test_rfactor_predicate_and_symbols():
    s, args = row_sum(100, 16)
    same(s, args, args[1])
    assert "s[B].set_store_predicate((threadIdx_x.var == 0))" in str(s.trace)


def test_replay_on_a_new_computation():
    s, _ = gpu_matmul(64, 64, 32)
    A, B, C = matmul(128, 96, 40)
    again = replay(s.trace, C)
    assert "A_shared = alloc((16, 4)" in str(to_loops(again, [A, B, C]))


def test_scan_threads():
    X, init, update, R = cumsum(8, 16)
    s = create_schedule(R.op)
    s[R].env_threads([te.thread_axis((0, 2), "blockIdx.x")])
    for stage in (init, update):
        o, i = s[stage].split(stage.op.axis[1], nparts=2)
        s[stage].bind(o, te.thread_axis((0, 2), "blockIdx.x"))
    same(s, [X, R], R)


def test_tensorize_and_others():
    A, B, C = matmul(16, 24, 12)
    s = create_schedule(C)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 8)
    s[C].tensorize(xi, matmul_intrin(4, 8, 12))
    s[C].pragma(xo, "auto_unroll_max_step", 8)
    s[C].prefetch(A, yo, 1)
    s[C].parallel(xo)
    same(s, [A, B, C], C, intrins=s.trace.intrins)


def test_layout_group_and_buffers():
    A = te.placeholder((40, 8), name="A")
    B = te.compute((40, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((40, 8), lambda i, j: B[i, j] * 2, name="C")
    D = te.compute((40, 8), lambda i, j: C[i, j] + 3, name="D")
    s = create_schedule(D)
    g = s.create_group(outputs=C, inputs=A)
    s[B].transform_layout(lambda i, j: [j // 4, i, j % 4])
    o, i = s[D].split(D.op.axis[0], factor=8)
    g.compute_at(s[D], o)
    s[C].storage_align(C.op.axis[0], 8, 1)
    s[C].double_buffer()
    s[B].compute_root()
    same(s, [A, D], D)


def test_text_of_a_schedule():
    A, B, C = matmul(16, 16, 16)
    s = create_schedule(C)
    CL = s.cache_write(C, "local")
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 8)
    s[C].bind(xo, te.thread_axis("blockIdx.x"))
    s[C].vectorize(yi)
    s[CL].compute_at(s[C], yo)
    assert str(s) == (
        "A: placeholder\n"
        "B: placeholder\n"
        "C: compute, output\n"
        "    for i_outer in 4  # blockIdx.x\n"
        "        for j_outer in 2\n"
        "            C_local: compute, local\n"
        "                for i_c\n"
        "                    for j_c\n"
        "                        for k  # reduce\n"
        "            for i_inner in 4\n"
        "                for j_inner in 8  # vectorized"
    )
    assert str(s[C]) == str(s)[str(s).index("C: ") :]


def test_a_failed_primitive_leaves_no_trace():
    A, B, C = matmul(16, 16, 16)
    s = create_schedule(C)
    before = str(s.trace), str(s)
    for bad in (lambda: s[C].split(C.op.axis[0], 0), lambda: s[C].reorder(C.op.axis[0], C.op.axis[0])):
        try:
            bad()
        except Exception as e:
            assert type(e).__name__ == "ScheduleError"
        assert (str(s.trace), str(s)) == before


def test_lowering_leaves_the_schedule_as_it_is():
    s, args = gpu_matmul(32, 32, 16)
    before = str(s), str(s.trace)
    first = str(to_loops(s, args))
    assert (str(s), str(s.trace)) == before
    assert str(to_loops(s, args)) == first
