"""What statements do besides giving values, and that each pass heeds it: atomics, pointers, lanes that need each other."""

from __future__ import annotations

import numpy as np
import pytest
from pass_util import ALL, CPU, GPU, TO_BARRIERS, apply, check_same, count, parse_func

from tec.ir import BufferLoad, Call, For, Func, IfThenElse, IntImm, Var
from tec.ir import stmt as S
from tec.ir.effects import effects, written_params
from tec.ir.interp import run
from tec.ir.intrin import INTRINS
from tec.ir.passes.simplify import simplify
from tec.ir.visit import map_stmt, visit


def double_buffered(text: str) -> Func:
    func = parse_func(text)

    def mark(s: S.Stmt) -> S.Stmt:
        out = map_stmt(s, mark, lambda e: e)
        if isinstance(out, S.Alloc) and out.buffer.scope == "shared":
            return S.Alloc(out.buffer, out.body, S.StorageNotes(double_buffer=True))
        return out

    return func.with_body(mark(func.body))


# ---- the answers


def body_of(text: str) -> S.Stmt:
    return parse_func(f'def f(A: Buffer((64,), "int32"), B: Buffer((64,), "int32"), n: int32):\n{text}').body


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("    A[0] = B[n]", "B", "A"),
        ("    atomic_add(A[B[n]], 1)", "B", "A"),
        ("    A[0] = atomic_cas(B[0], 1, 2)", "", "AB"),
        ('    call_extern(access_ptr(A[0], rw="w"), access_ptr(B[0], rw="r"), symbol="g")', "B", "A"),
        ('    call_extern(address_of(A[0]), symbol="g")', "A", "A"),
        ("    async_copy(A[0], B[0], 4)", "B", "A"),
        ("    prefetch(A[B[0]])", "B", ""),
    ],
)
def test_reads_and_writes(text: str, reads: str, writes: str) -> None:
    body = body_of(text)
    does = effects(body)
    names = lambda write: "".join(sorted({a.buffer.name for a in does.accesses if a.is_write is write}))  # noqa: E731
    assert (names(False), names(True)) == (reads, writes)


def test_a_run_and_a_row_reach_over_neighbours() -> None:
    (write, read) = effects(body_of("    async_copy(A[n], B[0], 4)")).accesses
    assert [str(a.indices[0]) for a in (write, read)] == ["ramp(n, 1, 4)", "ramp(0, 1, 4)"]
    (write, _) = effects(
        body_of("    async_copy(A[n], B[0], 4, n < 3, masked=True)")
    ).accesses  # a condition behind the count
    assert str(write.indices[0]) == "ramp(n, 1, 4)"
    (anywhere, *_) = effects(body_of("    async_copy(A[0], B[0], n)")).accesses
    assert anywhere.indices == ()


def test_every_operation_that_touches_memory_says_so() -> None:
    """A row with arguments that name elements has them read, written, pointed at or hinted; one that writes is kept."""
    for known in INTRINS.values():
        assert not known.is_pure or not (known.writes or known.reads or known.collective), known.name
        assert not known.atomic or known.writes, known.name
        assert known.is_kept or not (known.writes or known.opaque), known.name


def test_parameters_written_by_atomics_and_pointers() -> None:
    func = parse_func("""
def f(A: Buffer((64,), "int32"), B: Buffer((64,), "int32"), C: Buffer((64,), "int32"), D: Buffer((64,), "int32")):
    for i in range(64):
        C[i] = atomic_add(A[i], 1)
        call_extern(access_ptr(B[0], rw="r"), access_ptr(D[0], rw="rw"), symbol="g")
""")
    assert written_params(func) == {id(p.data) for p in func.params if p.name in "ACD"}


# ---- passes


def test_an_atomic_on_what_a_fill_reads_keeps_the_loop_from_being_pipelined() -> None:
    func = double_buffered("""
def f(A: Buffer((64,), "int32"), C: Buffer((64,), "int32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            acc = alloc((1,), "int32", scope="local")
            acc[0] = 0
            for k in range(8):
                s = alloc((64,), "int32", scope="shared")
                s[t] = A[t]
                acc[0] = acc[0] + s[63 - t]
                atomic_add(A[t], 1)
            C[t] = acc[0]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    check_same(func, out, split=GPU)


def test_an_atomic_elsewhere_does_not() -> None:
    func = double_buffered("""
def f(A: Buffer((8, 64), "int32"), C: Buffer((64,), "int32"), N: Buffer((64,), "int32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            acc = alloc((1,), "int32", scope="local")
            acc[0] = 0
            for k in range(8):
                s = alloc((64,), "int32", scope="shared")
                s[t] = A[k, t]
                acc[0] = acc[0] + s[63 - t]
                atomic_add(N[s[t] + 9], 1)
            C[t] = acc[0]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    assert "s_next" in str(out)
    check_same(func, out, split=GPU)


def no_barrier_under_a_condition(func: Func) -> None:
    def on_stmt(s: S.Stmt) -> None:
        assert not isinstance(s, IfThenElse) or count(s, "barrier") == 0, str(func)

    visit(func.body, None, on_stmt)


@pytest.mark.parametrize(
    "head",
    [
        "if atomic_add(N[0], 1) < 32:",
        'with let(atomic_add(N[0], 1), "int32") as old:\n                if old < 32:',
        "if shuffle_xor(C[0], 1, 64) + shuffle_idx(t, t, 64) < 32:",
    ],
)
def test_a_value_that_differs_between_threads_guards_no_barrier(head: str) -> None:
    deep = "    " * (5 if "\n" in head else 4)
    func = parse_func(f"""
def f(A: Buffer((64,), "int32"), C: Buffer((64,), "int32"), N: Buffer((1,), "int32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            s = alloc((64,), "int32", scope="shared")
            s[t] = 3
            {head}
            {deep[4:]}s[t] = A[t]
            {deep[4:]}C[t] = s[t // 32 * 32 + 31 - t % 32]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    assert count(out, "barrier") >= 1
    no_barrier_under_a_condition(out)
    for op in ("atomic_add", "shuffle_xor"):
        assert count(out, op) <= 1  # evaluated once, though the condition is now in several places


def test_an_atomic_on_shared_memory_and_its_reader_stand_on_either_side_of_a_barrier() -> None:
    func = parse_func("""
def f(A: Buffer((32,), "int32"), C: Buffer((64,), "int32")):
    for bx in thread("blockIdx.x", 1):
        s = alloc((1,), "int32", scope="shared")
        for t in thread("threadIdx.x", 64):
            s[0] = 0
        for u in thread("threadIdx.x", 32):
            atomic_add(s[0], A[u])
            A[u] = s[0]
        for v in thread("threadIdx.x", 64):
            C[v] = s[0]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    no_barrier_under_a_condition(out)
    assert count(out, "barrier") == 2


def test_an_atomic_on_global_memory_is_waited_for() -> None:
    func = parse_func("""
def f(N: Buffer((1,), "int32"), C: Buffer((64,), "int32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            atomic_add(N[0], 1)
            C[t] = N[0]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    assert "barrier(scope='global')" in str(out)
    check_same(func, out, split=GPU)


def test_what_one_thread_writes_to_global_memory_is_waited_for() -> None:
    func = parse_func("""
def f(G: Buffer((1,), "int32"), A: Buffer((64,), "int32"), C: Buffer((64,), "int32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            if t == 63:
                G[0] = A[5]
            C[t] = G[0]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    assert count(out, "barrier") == 1


def test_a_barrier_for_shared_and_global_memory_orders_both() -> None:
    func = parse_func("""
def f(G: Buffer((64,), "int32"), C: Buffer((64,), "int32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            s = alloc((64,), "int32", scope="shared")
            s[t] = t
            G[t] = t * 3
            C[t] = s[63 - t] + G[63 - t]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    assert count(out, "barrier") == 1 and "barrier(scope='global')" in str(out)
    check_same(func, out, split=GPU)


def test_each_lane_of_a_vectorized_loop_has_its_own_atomic() -> None:
    func = parse_func("""
def f(N: Buffer((1,), "int32"), C: Buffer((16,), "int32")):
    for i in vectorized(16):
        C[i] = atomic_add(N[0], 1)
""")
    n, c = np.zeros(1, "int32"), np.zeros(16, "int32")
    run(apply(func, CPU, "flatten_buffers", "vectorize"), {"N": n, "C": c})
    assert n[0] == 16 and sorted(c) == list(range(16))


def test_virtual_threads_have_their_own_of_what_their_atomics_write() -> None:
    func = parse_func("""
def f(A: Buffer((2, 64), "int32"), C: Buffer((2, 64), "int32")):
    for bx in thread("blockIdx.x", 1):
        for v in thread("vthread", 2):
            for t in thread("threadIdx.x", 64):
                s = alloc((64,), "int32", scope="shared")
                s[t] = 5
                atomic_max(s[63 - t], A[v, t])
                C[v, t] = s[t]
""")
    check_same(func, apply(func, GPU, *ALL), split=GPU)


def test_a_shuffle_keeps_its_condition_from_being_written_twice() -> None:
    """`guarded` puts a condition in several places; a shuffle in it is evaluated once, by all lanes."""
    from tec.ir.passes.rewrite_util import sunk

    func = parse_func("""
def f(C: Buffer((64,), "int32")):
    for t in thread("threadIdx.x", 64):
        if shuffle_xor(t, 1, 64) < 32:
            barrier(scope="shared")
            C[t] = 1
            C[t] = C[t] + 1
""")
    loop = func.body
    assert isinstance(loop, For) and isinstance(loop.body, IfThenElse)
    moved = sunk(loop.body)
    assert isinstance(moved, S.LetStmt) and count(moved, "shuffle_xor") == 1


def test_effects_know_threads() -> None:
    buffer = parse_func('def f(A: Buffer((64,), "int32")):\n    A[0] = 1').params[0]
    lane = Call("shuffle_xor", (BufferLoad(buffer, (Var("i"),)), IntImm(1), IntImm(64)), "int32")
    does = effects(lane)
    assert does.collective == {"wave"} and does.is_varying and does.is_kept and len(does.reads) == 1


@pytest.mark.parametrize(
    "text",
    [
        "atomic_add(A[0], 1) * 0", "0 * atomic_add(A[0], 1)", "atomic_add(A[0], 1) % 1", "atomic_add(A[0], 1) * 2 % 2",
        "select(atomic_add(A[0], 1) > 0, 7, 7)", "int32(atomic_add(A[0], 1) < 1 and False)",
        "atomic_add(A[0], 1) * (A[1] - A[1])",
    ],
)  # fmt: skip
def test_an_atomic_stays_where_its_value_does_not_count(text: str) -> None:
    func = parse_func(f'def f(A: Buffer((4,), "int32")):\n    A[1] = {text}')
    out = simplify(func, CPU)
    assert count(out, "atomic_add") == 1
    check_same(func, out)
