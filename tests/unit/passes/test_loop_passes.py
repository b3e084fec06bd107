"""Flat buffers, vectors, unrolling, partitioned loops, storage: what each pass leaves, and that it means the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pass_util import ALL, CPU, GPU, apply, check_same, count, parse_func

from tec.errors import LoweringError
from tec.ir import Func
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.interp import eval_expr
from tec.ir.notes import AutoUnrollMaxStep, UnrollExplicit
from tec.ir.passes.lower_fragments import _divide
from tec.ir.visit import map_stmt, substitute, visit
from tec.target import Target

NVIDIA = Target("cuda -arch=sm_90a")


def lowered(text: str, *names: str, target: Any = CPU) -> tuple[Func, Func]:
    func = parse_func(text)
    return func, apply(func, target, *(names or ALL))


def annotate(func: Func, name: str, **notes: Any) -> Func:
    """The function with notes on the Alloc of one buffer."""

    def fs(s: S.Stmt) -> S.Stmt:
        out = map_stmt(s, fs, lambda e: e)
        if isinstance(out, S.Alloc) and out.buffer.name == name:
            return S.Alloc(out.buffer, out.body, replace(out.notes, **notes))
        return out

    return func.with_body(fs(func.body))


def loads_and_stores(func: Func) -> list[E.Expr]:
    """Every index in the function."""
    found: list[E.Expr] = []
    visit(
        func.body,
        lambda e: found.extend(e.indices) if type(e) is E.BufferLoad else None,
        lambda s: found.extend(s.indices) if isinstance(s, S.BufferStore) else None,
    )
    return found


# ---- flatten_buffers


def test_indices_become_one_and_sizes_become_parameters() -> None:
    func, out = lowered(
        """
def f(A: Buffer((n, m), "float32"), C: Buffer((m, n), "float32"), *, n: size("int32"), m: size("int32")):
    for i in range(n):
        for j in range(m):
            C[j, i] = A[i, j] + 1.0
""",
        "flatten_buffers",
    )
    assert [p.name for p in out.params] == ["A", "C", "n", "m"]
    assert all(e.dtype == "int64" for e in loads_and_stores(out))  # n*m may pass 2**31
    check_same(func, out, n=5, m=7)


def test_small_shapes_keep_32_bit_indices() -> None:
    _, out = lowered(
        """
def f(A: Buffer((1000, 1000), "float32"), C: Buffer((1000, 1000), "float32")):
    for i in range(1000):
        for j in range(1000):
            C[j, i] = A[i, j]
""",
        "flatten_buffers",
    )
    assert all(e.dtype == "int32" for e in loads_and_stores(out))


def test_large_constant_shapes_need_64_bits() -> None:
    _, out = lowered(
        """
def f(A: Buffer((70000, 70000), "float32")):
    for i in range(70000):
        A[i, 1] = 0.0
""",
        "flatten_buffers",
    )
    assert all(e.dtype == "int64" for e in loads_and_stores(out))


def test_one_dimension_keeps_its_index() -> None:
    _, out = lowered(
        """
def f(A: Buffer((n,), "float32"), *, n: size("int32")):
    for i in range(n):
        A[i] = 0.0
""",
        "flatten_buffers",
    )
    assert all(e.dtype == "int32" for e in loads_and_stores(out))


def test_storage_align_pads_rows() -> None:
    func = parse_func(
        """
def f(A: Buffer((8, 16), "float32"), C: Buffer((16, 8), "float32")):
    T = alloc((8, 16), "float32", scope="local")
    for i in range(8):
        for j in range(16):
            T[i, j] = A[i, j]
    for i in range(8):
        for j in range(16):
            C[j, i] = T[i, j]
"""
    )
    padded = annotate(func, "T", storage_align=((0, 32, 1),))
    out = apply(padded, CPU, "flatten_buffers")
    assert '"float32", scope="local")' in str(out) and "alloc((264,)" in str(out)  # rows of 33
    assert "* 33" in str(out)
    check_same(func, out)


def test_shared_memory_needs_a_constant_size() -> None:
    with pytest.raises(LoweringError, match="size of T"):
        lowered(
            """
def f(A: Buffer((n, n), "float32"), *, n: size("int32")):
    for b in thread("blockIdx.x", n):
        T = alloc((n, n), "float32", scope="shared")
        T[b, 0] = A[b, 0]
        A[b, 0] = T[b, 0]
""",
            "flatten_buffers",
            target=GPU,
        )


# ---- vectorize


def test_contiguous_work_becomes_vectors() -> None:
    func, out = lowered(
        """
def f(A: Buffer((8, 16), "float32"), C: Buffer((8, 16), "float32")):
    for i in range(8):
        for j in vectorized(16):
            C[i, j] = A[i, j] * 2.0 + float32(j)
"""
    )
    assert count(out, S.For) == 1
    assert all(isinstance(e, E.Ramp) and e.lanes == 16 for e in loads_and_stores(out))
    check_same(func, out)


def test_a_fused_index_splits_into_a_ramp() -> None:
    func, out = lowered(
        """
def f(A: Buffer((6, 16), "float32"), C: Buffer((96,), "float32")):
    for o in range(12):
        for v in vectorized(8):
            C[o * 8 + v] = A[(o * 8 + v) // 16, (o * 8 + v) % 16]
"""
    )
    assert all(isinstance(e, E.Ramp) for e in loads_and_stores(out))
    check_same(func, out)


@pytest.mark.parametrize(("target", "conditions"), [(CPU, 1), (GPU, 1), (NVIDIA, 0)])
def test_guards_become_predicates(target: Any, conditions: int) -> None:
    """Where a masked store is a branch for each lane, vectors that lie whole within the bound are stored without one: a condition for all lanes stands before."""
    func, out = lowered(
        """
def f(A: Buffer((n,), "float32"), C: Buffer((n,), "float32"), *, n: size("int32")):
    for o in range((n + 7) // 8):
        for v in vectorized(8):
            if likely(o * 8 + v < n):
                C[o * 8 + v] = A[o * 8 + v] + 1.0
""",
        "flatten_buffers",
        "vectorize",
        target=target,
    )
    assert count(out, S.IfThenElse) == conditions
    stores: list[S.BufferStore] = []
    visit(out.body, None, lambda x: stores.append(x) if isinstance(x, S.BufferStore) else None)
    assert [x.predicate is not None for x in stores] == [False, True][-1 - conditions :]
    for n in (1, 7, 8, 21):
        check_same(func, out, n=n)


def test_a_guarded_value_guards_its_loads() -> None:
    func, out = lowered(
        """
def f(A: Buffer((5,), "float32"), C: Buffer((16,), "float32")):
    for v in vectorized(16):
        C[v] = if_then_else(v >= 3 and v < 8, A[v - 3], 0.5)
"""
    )
    assert count(out, S.For) == 0
    check_same(func, out)  # the interpreter checks bounds: lanes outside must not load


def test_a_value_per_row_is_loaded_once() -> None:
    func, out = lowered(
        """
def f(A: Buffer((4, n), "float32"), B: Buffer((4,), "float32"), C: Buffer((4, n), "float32"), *, n: size("int32")):
    for i in range(4):
        for o in range((n + 7) // 8):
            for v in vectorized(8):
                if likely(o * 8 + v < n):
                    C[i, o * 8 + v] = A[i, o * 8 + v] * B[i]
""",
        "flatten_buffers",
        "vectorize",
    )
    index = [e for e in loads_and_stores(out) if not isinstance(e, E.Ramp)]
    assert index and all(e.dtype == "int32" for e in index)
    for n in (0, 3, 8, 9):
        check_same(func, out, n=n)


def test_inner_loops_stay_loops_of_vectors() -> None:
    func, out = lowered(
        """
def f(A: Buffer((8, 16), "float32"), B: Buffer((16, 8), "float32"), C: Buffer((8, 8), "float32")):
    for i in range(8):
        for j in vectorized(8):
            C[i, j] = 0.0
            for k in range(16):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
    )
    assert count(out, S.For) == 2
    check_same(func, out)


def test_storage_of_an_iteration_gets_lanes() -> None:
    func, out = lowered(
        """
def f(A: Buffer((8, 16), "float32"), C: Buffer((16,), "float32")):
    for j in vectorized(16):
        acc = alloc((2,), "float32", scope="local")
        acc[0] = 0.0
        acc[1] = 1.0
        for k in range(8):
            acc[k % 2] = acc[k % 2] + A[k, j]
        C[j] = acc[0] - acc[1]
"""
    )
    assert "alloc((32,)" in str(out)
    check_same(func, out)


@pytest.mark.parametrize(
    "body",
    [
        "            for k in range(j):\n                C[j] = C[j] + A[k]",  # a bound that depends on the lane
        "            C[0] = C[0] + A[j]",  # all lanes update one element, in order
        "            C[j] = call_extern(A[j], symbol='sinf', dtype='float32')",  # an effect a lane
        "            if A[j] > 0.0:\n                for k in range(j):\n                    C[k] = C[k] + A[j]",
    ],
)
def test_what_has_no_vector_form_runs_lane_by_lane(body: str) -> None:
    text = f"""
def f(A: Buffer((8,), "float32"), C: Buffer((8,), "float32")):
    for o in range(1):
        for j in vectorized(8):
{body}
"""
    func = parse_func(text)
    out = apply(func, CPU, "flatten_buffers", "vectorize")
    assert "vectorized" not in str(out)
    if "call_extern" not in body:
        check_same(func, out)


def test_vector_of_unknown_length_is_an_error() -> None:
    with pytest.raises(LoweringError, match="not a constant"):
        lowered(
            """
def f(A: Buffer((n,), "float32"), *, n: size("int32")):
    for i in vectorized(n):
        A[i] = 0.0
"""
        )


@pytest.mark.parametrize("n", [64, 65, 512, 4000])
def test_a_long_loop_is_steps_of_vectors(n: int) -> None:
    """One vector of 512 elements far apart took LLVM 41 s."""
    func, out = lowered(
        f"""
def f(A: Buffer(({n}, 3), "float32"), C: Buffer(({n}, 2), "float32")):
    for j in vectorized({n}):
        C[j, 1] = A[j, 2]
        if j % 3 < 2:
            C[j, 0] = A[j, 0] + A[{n} - 1 - j, 1]
"""
    )
    assert max(e.lanes for e in loads_and_stores(out) if isinstance(e, E.Ramp)) == 64
    assert count(out, S.For) == (n >= 128)
    check_same(func, out)


def test_branches_on_lanes_with_both_sides() -> None:
    func, out = lowered(
        """
def f(A: Buffer((16,), "float32"), C: Buffer((16,), "float32")):
    for j in vectorized(16):
        if A[j] > 0.0:
            C[j] = A[j]
        else:
            C[j] = A[j] * 0.5
"""
    )
    assert count(out, S.IfThenElse) == 0 and count(out, S.For) == 0
    check_same(func, out)


def test_a_branch_that_changes_its_own_condition_is_left_alone() -> None:
    func, out = lowered(
        """
def f(A: Buffer((16,), "float32")):
    for j in vectorized(16):
        if A[j] > 0.0:
            A[j] = -1.0
        else:
            A[j] = 2.0
"""
    )
    check_same(func, out)


# ---- unroll


def test_unrolled_loops_are_written_out() -> None:
    func, out = lowered(
        """
def f(A: Buffer((4, 3), "float32"), C: Buffer((4,), "float32")):
    for i in unrolled(4):
        C[i] = 0.0
        for k in unrolled(3):
            C[i] = C[i] + A[i, k]
"""
    )
    assert count(out, S.For) == 0 and count(out, S.BufferStore) == 16
    check_same(func, out)


def test_register_arrays_of_a_gpu_are_indexed_by_constants() -> None:
    func, out = lowered(
        """
def f(A: Buffer((64, 4), "float32"), C: Buffer((64, 4), "float32")):
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            r = alloc((4,), "float32", scope="local")
            for i in range(4):
                r[i] = A[t, i]
            for i in range(4):
                C[t, i] = r[3 - i]
""",
        target=GPU,
    )
    assert count(out, S.For) == 2  # the launch
    check_same(func, out, split=GPU)


def test_pragma_auto_unroll() -> None:
    text = """
def f(A: Buffer((4, 3), "float32"), C: Buffer((4,), "float32")):
    for i in range(4):
        for k in range(3):
            C[i] = A[i, k]
"""
    func = parse_func(text)
    wrapped = func.with_body(S.Attr(AutoUnrollMaxStep(6), func.body))
    out = apply(wrapped, CPU, "flatten_buffers", "unroll")
    assert count(out, S.For) == 1  # the inner three steps, not all twelve
    check_same(func, out)
    marked = func.with_body(S.Attr(AutoUnrollMaxStep(6), S.Attr(UnrollExplicit(False), func.body)))
    assert count(apply(marked, CPU, "flatten_buffers", "unroll"), S.For) == 2


# ---- partition_loops


def test_the_main_part_has_no_guard() -> None:
    func, out = lowered(
        """
def f(A: Buffer((n,), "float32"), C: Buffer((n,), "float32"), *, n: size("int32")):
    for o in range((n + 7) // 8):
        for v in vectorized(8):
            if likely(o * 8 + v < n):
                C[o * 8 + v] = A[o * 8 + v] + 1.0
"""
    )
    first, second = str(out).split("for o")[1:]
    assert "n, 8" not in first.split("\n", 1)[1] and "<" not in first.split("\n", 1)[1]
    assert "<" in second
    for n in (0, 1, 7, 8, 21, 64):
        check_same(func, out, n=n)


def test_a_constant_ragged_end() -> None:
    func, out = lowered(
        """
def f(A: Buffer((21, 13), "float32"), C: Buffer((21, 13), "float32")):
    for io in range(3):
        for jo in range(4):
            for ii in range(8):
                for ji in vectorized(4):
                    if likely(io * 8 + ii < 21):
                        if likely(jo * 4 + ji < 13):
                            C[io * 8 + ii, jo * 4 + ji] = A[io * 8 + ii, jo * 4 + ji] * 3.0
"""
    )
    check_same(func, out)
    assert count(out, S.IfThenElse) == 0


def test_parallel_loops_stay_parallel_and_ends_are_serial() -> None:
    func, out = lowered(
        """
def f(A: Buffer((n,), "float32"), C: Buffer((n,), "float32"), *, n: size("int32")):
    for o in parallel((n + 15) // 16):
        for v in vectorized(16):
            if likely(o * 16 + v < n):
                C[o * 16 + v] = A[o * 16 + v]
"""
    )
    kinds: list[str] = []
    visit(out.body, None, lambda s: kinds.append(s.kind) if isinstance(s, S.For) else None)
    assert kinds.count("parallel") == 1
    for n in (1, 16, 40):
        check_same(func, out, n=n)


def test_a_lower_bound_splits_off_a_head() -> None:
    func, out = lowered(
        """
def f(A: Buffer((20,), "float32"), C: Buffer((24,), "float32")):
    for i in range(24):
        if likely(i >= 2):
            if likely(i - 2 < 20):
                C[i] = A[i - 2]
"""
    )
    assert count(out, S.IfThenElse) == 0
    check_same(func, out)


def test_whole_blocks_of_a_gpu_take_vectors_without_guards() -> None:
    func, out = lowered(
        """
def f(A: Buffer((n,), "float32"), C: Buffer((n,), "float32"), *, n: size("int32")):
    for b in thread("blockIdx.x", (n + 255) // 256):
        for t in thread("threadIdx.x", 64):
            for v in vectorized(4):
                if likely(b * 256 + t * 4 + v < n):
                    C[b * 256 + t * 4 + v] = A[b * 256 + t * 4 + v]
""",
        target=GPU,
    )
    assert count(out, S.IfThenElse) == 2  # the whole blocks', and within the last one the whole vectors'
    for n in (3, 256, 700):
        check_same(func, out, split=GPU, n=n)


# ---- plan_storage, remove_noop


def test_stages_of_disjoint_lifetimes_share_one_workspace() -> None:
    func, out = lowered(
        """
def f(A: Buffer((n, n), "float32"), C: Buffer((n, n), "float32"), *, n: size("int32")):
    T = alloc((n, n), "float32")
    for i in range(n):
        for j in range(n):
            T[i, j] = A[i, j] + 1.0
    U = alloc((n, n), "float32")
    for i in range(n):
        for j in range(n):
            U[i, j] = T[j, i] * 2.0
    V = alloc((n, n), "float32")
    for i in range(n):
        for j in range(n):
            V[i, j] = U[i, j] - 3.0
    for i in range(n):
        for j in range(n):
            C[i, j] = V[j, i]
"""
    )
    assert count(out, S.Alloc) == 2  # V takes T's place
    check_same(func, out, n=6)


def test_a_buffer_carried_by_a_loop_is_not_shared() -> None:
    func, out = lowered(
        """
def f(A: Buffer((2000,), "float32"), C: Buffer((2000,), "float32")):
    T = alloc((2000,), "float32")
    for i in range(2000):
        T[i] = A[i]
    for k in range(3):
        for i in range(2000):
            C[i] = T[i] + float32(k)
        U = alloc((2000,), "float32")
        for i in range(2000):
            U[i] = C[i] * 2.0
        for i in range(2000):
            C[i] = U[i]
"""
    )
    assert count(out, S.Alloc) == 2  # T is read again in the next step
    check_same(func, out)


def test_allocations_leave_serial_loops_but_not_parallel_ones() -> None:
    func, out = lowered(
        """
def f(A: Buffer((4, 3, 2000), "float32"), C: Buffer((4, 3, 2000), "float32")):
    for p in parallel(4):
        for k in range(3):
            T = alloc((2000,), "float32")
            for i in range(2000):
                T[i] = A[p, k, i]
            for i in range(2000):
                C[p, k, i] = T[1999 - i]
"""
    )
    text = str(out)
    assert text.index("parallel(4)") < text.index("alloc(") < text.index("for k")
    check_same(func, out)


def test_shared_memory_of_consecutive_stages_is_shared_behind_a_barrier() -> None:
    func, out = lowered(
        """
def f(A: Buffer((64,), "float32"), C: Buffer((64,), "float32")):
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            x = alloc((1,), "float32", scope="local")
            s = alloc((64,), "float32", scope="shared")
            s[t] = A[t]
            x[0] = s[63 - t]
            u = alloc((64,), "float32", scope="shared")
            u[t] = x[0] * 2.0
            C[t] = u[(t + 5) % 64]
""",
        target=GPU,
    )
    shared: list[str] = []
    visit(
        out.body,
        None,
        lambda s: shared.append(s.buffer.name) if isinstance(s, S.Alloc) and s.buffer.scope == "shared" else None,
    )
    assert len(shared) == 1 and count(out, "barrier") == 3
    check_same(func, out, split=GPU)


def test_what_does_nothing_goes() -> None:
    _, out = lowered(
        """
def f(A: Buffer((8,), "float32")):
    unused = alloc((5000,), "float32")
    for i in range(0):
        A[i] = 1.0
    for i in range(8):
        if i < 100:
            A[i] = A[i]
    for i in range(1):
        A[i] = 2.0
""",
        "simplify",
        "remove_noop",
    )
    assert str(out.body).strip() == "A[0] = 2.0"


def test_prefetch_is_for_cpus() -> None:
    text = """
def f(A: Buffer((8,), "float32")):
    for i in range(8):
        prefetch(A[i])
        A[i] = 1.0
"""
    assert count(lowered(text, "inject_prefetch")[1], "prefetch") == 1
    assert count(lowered(text, "inject_prefetch", target=GPU)[1], "prefetch") == 0


def test_invariant_conditions_leave_loops() -> None:
    func, out = lowered(
        """
def f(A: Buffer((8, 4), "float32"), n: int32):
    for i in range(8):
        for k in range(4):
            if n > i:
                if k < n:
                    A[i, k] = 1.0
""",
        "hoist_conditions",
    )
    text = str(out)
    assert text.index("if n > i") < text.index("for k") < text.index("if k < n")
    for n in (0, 2, 9):
        check_same(func, apply(out, CPU, "flatten_buffers"), n=n)


ROWS = """
def f(A: Buffer((n, 6), "float32"), B: Buffer((6,), "float32"), C: Buffer((n,), "float32"), n: size("int32")):
    for i in range((n + 3) // 4):
        for k in range(6):
            for r in unrolled(4):
                if likely(i * 4 + r < n):
                    C[i * 4 + r] = C[i * 4 + r] + A[i * 4 + r, k] * B[k]
"""


def test_each_number_of_rows_of_a_ragged_tile_has_a_loop_of_its_own() -> None:
    func, out = lowered(ROWS, "flatten_buffers", "unroll", "hoist_conditions", "simplify")
    text = str(out)
    assert text.count("for k") == 4 and text.count("C[") == 2 * (4 + 3 + 2 + 1) and text.count("likely") == 3
    for n in (1, 2, 3, 4, 5, 7):
        check_same(func, out, n=n)
    assert str(lowered(ROWS.replace("unrolled(4)", "unrolled(3)"), "unroll", "hoist_conditions")[1]).count("for k") == 1
    gpu = apply(parse_func(ROWS), GPU, "unroll", "hoist_conditions")
    assert str(gpu).count("for k") == 1


def test_a_large_ragged_tile_has_a_loop_for_one_row() -> None:
    text = ROWS.replace("unrolled(4)", "unrolled(64)").replace("* 4", "* 64").replace("(n + 3) // 4", "(n + 63) // 64")
    func, out = lowered(text, "flatten_buffers", "unroll", "hoist_conditions", "simplify")
    assert str(out).count("for k") == 2
    alone = str(out)[str(out).index("else:") :]
    assert alone.count("for k") == 1 and "i * 64 + 1" not in alone
    for n in (1, 2, 63, 64, 65):
        check_same(func, out, n=n)


def test_a_condition_on_memory_that_the_loop_writes_stays() -> None:
    func, out = lowered(
        """
def f(A: Buffer((8,), "float32")):
    for k in range(4):
        if A[0] < 5.0:
            A[0] = A[0] + 3.0
""",
        "hoist_conditions",
    )
    assert str(out.body) == str(func.body)


def test_sums_of_a_thousand_terms_go_through() -> None:
    import tec
    from tec import te

    a = te.placeholder((16,), name="A")

    def body(i: Any) -> Any:
        total = a[i]
        for k in range(1000):
            total = total + a[(i + k) % 16]
        return total

    c = te.compute((16,), body, name="C")
    assert len(str(tec.lower(tec.create_schedule(c.op), [a, c], target=CPU))) > 1000


def test_a_vector_as_long_as_the_loop_around_it() -> None:
    """The lanes of a vectorized loop inside of another are not those of the outer one, even where they are as many."""
    func = parse_func("""
def f(A: Buffer((8,), "float32"), I: Buffer((8,), "int32"), O: Buffer((8,), "float32")):
    for j in vectorized(8):
        P = alloc((8,), "float32")
        for k in vectorized(8):
            P[k] = A[k] * 2.0
        O[j] = P[I[j] % 8]
""")
    check_same(func, apply(func, CPU, *ALL))


def test_a_fact_about_memory_ends_with_a_store() -> None:
    """What a condition read from memory is not known of it any more once the branch has written there."""
    func, out = lowered(
        """
def f(A: Buffer((8,), "int32"), C: Buffer((8,), "int32")):
    for i in range(8):
        x = alloc((1,), "int32", scope="local")
        x[0] = A[i]
        if x[0] > 0:
            x[0] = x[0] - 3
            if x[0] > 0:
                C[i] = 7
            else:
                C[i] = 9
        else:
            C[i] = 8
"""
    )
    assert count(out, S.IfThenElse) == 2
    check_same(func, out)


def test_a_vector_of_one_lane_is_a_number() -> None:
    func, out = lowered(
        """
def f(A: Buffer((4,), "float32"), C: Buffer((4,), "float32")):
    for i in range(4):
        for v in vectorized(1):
            C[i + v] = A[i + v] * 2.0
"""
    )
    assert "ramp" not in str(out).lower() and "broadcast" not in str(out).lower()
    check_same(func, out)


def test_an_index_is_divided_by_a_tile_where_its_terms_are() -> None:
    """Constants count as one term, each variable as another."""
    i, j = E.Var("i"), E.Var("j")
    for e, tile in (
        (i * 4 + j * 8 + 12, 4),
        (i * 4 + 6 + (j * 4 + 2), 4),
        (i * 16 + 16 + j * 32, 16),
        (i * 2 + j * 6 + i * 2, 2),
    ):
        got = _divide(e, tile)
        assert got is not None
        for values in ({i: 0, j: 0}, {i: 3, j: 5}, {i: 7, j: 1}):
            env = {v: E.IntImm(n) for v, n in values.items()}
            assert eval_expr(substitute(got, env)) * tile == eval_expr(substitute(e, env))
    assert _divide(i * 4 + 6, 4) is None and _divide(i * 4 + j * 6, 4) is None and _divide(i, 1) is i
