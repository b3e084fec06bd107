"""Threads, barriers, pipelines and kernels: what each pass leaves, and that it means the same."""

from __future__ import annotations

import re

import pytest
from pass_util import ALL, GPU, GPU32, TO_BARRIERS, apply, check_same, count, parse_func

from tec.errors import LoweringError
from tec.ir import Buffer, Func
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.arith import Analyzer
from tec.ir.notes import SoftwarePipeline
from tec.ir.passes.pipeline.hold_epilogue import hold_behind
from tec.ir.passes.pipeline.slots import MAX_REGISTER_BYTES
from tec.ir.passes.split_host_device import split_host_device
from tec.ir.visit import map_stmt
from tec.target import Target
from tests.thinned import thinned


def lowered(text: str, *names: str) -> tuple[Func, Func]:
    func = parse_func(text)
    return func, apply(func, GPU, *(names or TO_BARRIERS))


# ---- unify_threads


def test_loops_over_one_tag_become_one_index_with_guards() -> None:
    func, out = lowered(
        """
def f(A: Buffer((96,), "float32"), C: Buffer((96,), "float32")):
    for bx in thread("blockIdx.x", 1):
        s = alloc((32,), "float32", scope="shared")
        for t in thread("threadIdx.x", 32):
            s[t] = A[t]
        for u in thread("threadIdx.x", 64):
            C[u] = s[u % 32] * 2.0
""",
        "unify_threads",
    )
    assert str(out).count('thread("threadIdx.x", 64)') == 1
    assert "if threadIdx_x < 32:" in str(out)
    check_same(func, apply(out, GPU, *ALL[1:]), split=GPU)


def test_a_store_outside_of_the_threads_happens_once() -> None:
    func, out = lowered(
        """
def f(A: Buffer((64,), "float32"), C: Buffer((1,), "float32")):
    for bx in thread("blockIdx.x", 1):
        s = alloc((64,), "float32", scope="shared")
        for t in thread("threadIdx.x", 64):
            s[t] = A[t]
        C[0] = s[0] + s[63]
"""
    )
    assert "if threadIdx_x == 0:" in str(out)
    assert count(out, "barrier") == 1
    check_same(func, out, split=GPU)


def test_extent_that_changes_inside_the_kernel_is_an_error() -> None:
    with pytest.raises(LoweringError, match="changes inside the kernel"):
        lowered(
            """
def f(C: Buffer((64,), "float32")):
    for bx in thread("blockIdx.x", 8):
        for t in thread("threadIdx.x", bx):
            C[t] = 1.0
"""
        )


# ---- insert_barriers


def barriers(
    body: str, threads: int = 64, head: str = 'A: Buffer((64,), "float32"), C: Buffer((64,), "float32")'
) -> int:
    text = f"""
def f({head}):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", {threads}):
            s = alloc((1024,), "float32", scope="shared")
{body}
"""
    func = parse_func(text)
    out = apply(func, GPU, *TO_BARRIERS)
    check_same(func, out, split=GPU)
    return count(out, "barrier")


def test_a_threads_own_element_needs_no_barrier() -> None:
    assert barriers("            s[t] = A[t]\n            C[t] = s[t]") == 0


def test_own_elements_in_a_permuted_layout_need_no_barrier() -> None:
    assert barriers("            s[t // 8 + t % 8 * 9] = A[t]\n            C[t] = s[t // 8 + t % 8 * 9]") == 0


def test_a_neighbours_element_needs_one() -> None:
    assert barriers("            s[t] = A[t]\n            C[t] = s[63 - t]") == 1


def test_a_barrier_of_wavefronts_is_none_of_the_group() -> None:
    body = """            s[t] = A[t]
            barrier(scope="wave")
            C[t] = s[63 - t]"""
    assert barriers(body) == 2  # its own, and one for the group
    assert barriers(body.replace("wave", "shared")) == 1


def test_overwriting_what_others_read_needs_a_second() -> None:
    body = """            s[t] = A[t]
            x: float32 = s[63 - t]
            s[t] = x + 1.0
            C[t] = s[63 - t]"""
    # write | read | overwrite | read
    assert barriers(body) == 3


def test_a_loop_that_fills_and_reads_needs_two_a_step() -> None:
    body = """            acc = alloc((1,), "float32", scope="local")
            acc[0] = 0.0
            for k in range(7):
                s[t] = A[t] + float32(k)
                acc[0] = acc[0] + s[63 - t]
            C[t] = acc[0]"""
    assert barriers(body) == 2


def test_halves_that_alternate_need_one_a_step() -> None:
    body = """            acc = alloc((1,), "float32", scope="local")
            acc[0] = 0.0
            for k in range(7):
                s[k % 2 * 64 + t] = A[t] + float32(k)
                acc[0] = acc[0] + s[k % 2 * 64 + 63 - t]
            C[t] = acc[0]"""
    assert barriers(body) == 1


@pytest.mark.parametrize(("read", "scope"), [("t // 64 * 64 + 63 - t % 64", "wave"), ("255 - t", "shared")])
def test_wavefronts_with_parts_of_their_own_do_not_wait_for_each_other(read: str, scope: str) -> None:
    func = parse_func(f"""
def f(A: Buffer((256,), "float32"), C: Buffer((256,), "float32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 256):
            s = alloc((256,), "float32", scope="shared")
            acc = alloc((1,), "float32", scope="local")
            acc[0] = 0.0
            for k in range(7):
                s[t] = A[t] + float32(k)
                acc[0] = acc[0] + s[{read}]
            C[t] = acc[0]
""")
    out = apply(func, GPU, *TO_BARRIERS)
    assert re.findall("barrier.scope='(.*?)'", str(out)) == [scope] * 2
    check_same(func, out, split=GPU)
    # Lanes that another branch takes are in no order, and other chips' are not in step.
    cuda = apply(func, Target("cuda -arch=sm_90"), *TO_BARRIERS)
    assert re.findall("barrier.scope='(.*?)'", str(cuda)) == ["shared"] * 2


def test_shared_memory_that_is_too_small_is_shared_by_buffers_of_different_types() -> None:
    func, out = lowered("""
def f(A: Buffer((256,), "float16"), C: Buffer((256,), "float32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 256):
            x = alloc((1,), "float32", scope="local")
            a = alloc((8192,), "float16", scope="shared")
            b = alloc((8192,), "float16", scope="shared")
            a[t] = A[t]
            b[t + 7] = A[255 - t]
            x[0] = float32(a[255 - t]) + float32(b[(t + 9) % 256 + 7])
            s = alloc((12000,), "float32", scope="shared")
            s[t + 11] = x[0]
            C[t] = s[(t + 1) % 256 + 11]
""")
    (whole,) = re.findall(r"alloc\(\((\d+),\), .*shared", str(out))
    assert int(whole) == 12000
    assert count(out, "barrier") == 3  # the tiles are there; they have been read; the sums are there
    check_same(func, out, split=GPU)


def test_reads_of_different_places_after_one_barrier() -> None:
    body = """            s[t] = A[t]
            C[t] = s[63 - t] + s[(t + 1) % 64] + s[0]"""
    assert barriers(body) == 1


def test_a_fill_of_unknown_length_needs_none_within() -> None:
    text = """
def f(A: Buffer((1024,), "float32"), C: Buffer((64,), "float32"), n: int32):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            s = alloc((1024,), "float32", scope="shared")
            for i in range(n):
                s[i * 64 + t] = A[i * 64 + t]
            C[t] = s[63 - t]
"""
    func = parse_func(text)
    out = apply(func, GPU, *TO_BARRIERS)
    assert count(out, "barrier") == 1
    check_same(func, out, split=GPU, n=3)


def test_threads_that_fill_the_same_places_together_do_not_wait_for_each_other() -> None:
    # Eight threads store the same element at the same iteration, which no barrier orders.
    fill = "for i in range(4):\n                    s[t // 8 * 4 + i] = A[t // 8 * 4 + i]"
    assert barriers(f"            if t < 40:\n                {fill}\n            C[t] = s[t // 16]") == 1
    # The next iteration's places are other threads': these meet.
    assert (
        barriers(
            f"            {fill.replace('* 4 + i]', '+ i]').replace('                    ', '                ')}\n            C[t] = s[0]"
        )
        == 2
    )


def test_the_condition_of_a_block_is_uniform() -> None:
    body = """            if bx < 1:
                s[t] = A[t]
                C[t] = s[63 - t]"""
    assert barriers(body) == 1


def test_a_condition_of_threads_moves_inside_past_the_barrier() -> None:
    body = """            if t < 32:
                s[t] = A[t]
                C[t] = s[31 - t]"""
    assert barriers(body) == 1


def test_a_condition_on_memory_is_evaluated_once() -> None:
    body = """            if A[t] > 0.0:
                s[t] = A[t]
                A[t] = -1.0
                C[t] = s[t] + s[(t + 1) % 64 * 0 + t]
            s[t] = A[t]
            C[t] = C[t] + s[63 - t]"""
    assert barriers(body) >= 1


def test_one_thread_alone_needs_none_inside_of_its_branch() -> None:
    body = """            if t == 0:
                s[0] = A[3]
                s[1] = s[0] * 2.0
            C[t] = s[1]"""
    assert barriers(body) == 1


def test_a_loop_whose_length_differs_between_threads_is_an_error() -> None:
    body = """            for k in range(t):
                s[t] = A[t] + float32(k)
                C[t] = s[(t + 1) % 64]"""
    with pytest.raises(LoweringError, match="barrier inside of a condition or a loop"):
        barriers(body)


def test_one_thread_needs_none() -> None:
    assert barriers("            s[t] = A[t]\n            C[t] = s[0]", threads=1) == 0


# ---- pipeline

_STAGED = """
def f(A: Buffer(({n}, 64), "float32"), C: Buffer((64,), "float32"){more}):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            acc = alloc((1,), "float32", scope="local")
            acc[0] = 0.0
            for k in range({n}):
                s = alloc((64,), "float32", scope="shared"{note})
                s[t] = A[k, t]
                for j in range(4):
                    acc[0] = acc[0] + s[(t + j) % 64]
            C[t] = acc[0]
"""


def staged(n: str, more: str = "") -> Func:
    func = parse_func(_STAGED.format(n=n, more=more, note=""))

    def mark(s: S.Stmt) -> S.Stmt:
        from tec.ir.visit import map_stmt

        out = map_stmt(s, mark, lambda e: e)
        if isinstance(out, S.Alloc) and out.buffer.scope == "shared":
            return S.Alloc(out.buffer, out.body, S.StorageNotes(double_buffer=True))
        return out

    return func.with_body(mark(func.body))


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_double_buffering_costs_one_barrier_a_step(n: int) -> None:
    func = staged(str(n))
    out = apply(func, GPU, *TO_BARRIERS)
    check_same(func, out, split=GPU)
    if n > 2:
        assert "s_next" in str(out)  # the next step's element waits in a register
        loop = next(x for x in str(out).split("for k in range(")[1:])
        assert loop.split("for k_1")[0].count("barrier") >= 1


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_double_buffering_of_a_loop_of_unknown_length(n: int) -> None:
    func = staged("n", ", n: int32")
    out = apply(func, GPU, *TO_BARRIERS)
    check_same(func, out, split=GPU, n=n)


@thinned(1, ("stages", [3, 4]), ("n", [1, 2, 4, 9]))
def test_deeper_pipelines(stages: int, n: int) -> None:
    func = staged(str(n))

    def mark(s: S.Stmt) -> S.Stmt:
        from tec.ir.visit import map_stmt

        out = map_stmt(s, mark, lambda e: e)
        if isinstance(out, S.For) and out.var.name == "k":
            return S.Attr(SoftwarePipeline(stages), out)
        return out

    func = func.with_body(mark(func.body))
    out = apply(func, GPU, *TO_BARRIERS)
    check_same(func, out, split=GPU)


@thinned(1, ("ahead", [2, 3]), ("n", [1, 2, 3, 4, 5, 6, 9]))
def test_steps_ahead_in_registers(ahead: int, n: int) -> None:
    """Each turn of the loop starts the loads of `ahead` steps, into registers of their own."""
    func = staged(str(n))

    def mark(s: S.Stmt) -> S.Stmt:
        from tec.ir.visit import map_stmt

        out = map_stmt(s, mark, lambda e: e)
        if isinstance(out, S.For) and out.var.name == "k":
            return S.Attr(SoftwarePipeline(1, ahead), out)
        return out

    out = apply(func.with_body(mark(func.body)), GPU, *TO_BARRIERS)
    check_same(func, out, split=GPU)
    registers = set(re.findall(r"s_next\w*", str(out)))
    assert len(registers) == (ahead if n > ahead else min(1, n - 1))


def test_the_first_steps_loads_are_under_way_together() -> None:
    """They go through registers as those of all steps do: no store into shared memory reads main memory itself, or LLVM waits for each load before the next."""
    func = staged("5")

    def mark(s: S.Stmt) -> S.Stmt:
        from tec.ir.visit import map_stmt

        out = map_stmt(s, mark, lambda e: e)
        return S.Attr(SoftwarePipeline(1), out) if isinstance(out, S.For) and out.var.name == "k" else out

    out = apply(func.with_body(mark(func.body)), GPU, *TO_BARRIERS)
    check_same(func, out, split=GPU)
    stored = re.findall(r"^ *s\[[^=]*\] = (.*)$", str(out), re.MULTILINE)
    assert len(stored) == 2 and all("s_next" in x for x in stored)


@pytest.mark.parametrize("both", [False, True])
def test_registers_hold_only_so_many_bytes_of_all_fills_together(both: bool) -> None:
    """Two fills of which each has room by itself."""
    each = MAX_REGISTER_BYTES // 8 + 1  # numbers of 4 bytes: more than the half
    two = f"""
                u = alloc(({16 * each},), "float32", scope="shared")
                for i in range({each}):
                    u[i * 16 + t] = B[k, i * 16 + t]"""
    func = parse_func(f"""
def f(A: Buffer((6, {16 * each}), "float32"), B: Buffer((6, {16 * each}), "float32"), C: Buffer((16,), "float32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 16):
            acc = alloc((1,), "float32", scope="local")
            acc[0] = 0.0
            for k in range(6):
                s = alloc(({16 * each},), "float32", scope="shared"){two if both else ""}
                for i in range({each}):
                    s[i * 16 + t] = A[k, i * 16 + t]
                acc[0] = acc[0] + s[(t + 1) % 16] * {"u[(t + 3) % 16]" if both else "2.0"}
            C[t] = acc[0]
""")

    def mark(s: S.Stmt) -> S.Stmt:
        from tec.ir.visit import map_stmt

        out = map_stmt(s, mark, lambda e: e)
        if isinstance(out, S.Alloc) and out.buffer.scope == "shared":
            return S.Alloc(out.buffer, out.body, S.StorageNotes(double_buffer=True))
        return out

    func = func.with_body(mark(func.body))
    out = apply(func, GPU, *TO_BARRIERS)
    assert ("_next" in str(out)) is not both
    check_same(func, out, split=GPU)


# ---- inject_vthread


def test_virtual_threads_interleave() -> None:
    func, out = lowered(
        """
def f(A: Buffer((128,), "float32"), C: Buffer((128,), "float32")):
    for bx in thread("blockIdx.x", 1):
        for v in thread("vthread", 2):
            for t in thread("threadIdx.x", 64):
                acc = alloc((1,), "float32", scope="local")
                acc[0] = 0.0
                for k in range(100):
                    acc[0] = acc[0] + A[v * 64 + t]
                C[v * 64 + t] = acc[0]
"""
    )
    assert str(out).count("in range(100") == 1  # the loop is kept once, with both threads' work in it
    assert "vthread" not in str(out)
    check_same(func, out, split=GPU)


# ---- lower_dot

_BYTES = """
def f(A: Buffer((8, {k}), "{a}"), B: Buffer((8, {k}), "{b}"), C: Buffer((8, 8), "int32")):
    for i in range(8):
        for j in range(8):
            for r in range({n}):
                C[i, j] = C[i, j] + int32(A[i, r + {shift}]) * int32(B[j, r])
"""


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("n", [4, 16])
def test_byte_products_are_summed_by_fours(dtype: str, n: int) -> None:
    func = parse_func(_BYTES.format(k=16, n=n, a=dtype, b=dtype, shift=0))
    out = apply(func, GPU, "flatten_buffers", "lower_dot")
    assert count(out, "dot4") == 1 and count(out, S.For) == (2 if n == 4 else 3)
    check_same(func, out)


@pytest.mark.parametrize(
    "change",
    [{"b": "uint8"}, {"shift": 1}, {"n": 6}, {"k": 18}, {"a": "int16", "b": "int16"}],
    ids=["mixed signs", "odd start", "not a multiple of four", "odd rows", "wider"],
)
def test_what_no_dot_product_fits_is_left(change: dict[str, object]) -> None:
    func = parse_func(_BYTES.format(**{"k": 17 + 3, "n": 16, "a": "int8", "b": "int8", "shift": 0, **change}))
    out = apply(func, GPU, "flatten_buffers", "lower_dot")
    assert count(out, "dot4") == 0


def test_dot_products_are_for_chips_that_have_them() -> None:
    from tec.target import Target

    func = parse_func(_BYTES.format(k=16, n=16, a="int8", b="int8", shift=0))
    assert count(apply(func, Target("rocm -mcpu=gfx900"), "flatten_buffers", "lower_dot"), "dot4") == 0


# ---- split_host_device


def kernel_error(text: str, match: str, target: object = GPU) -> None:
    func = parse_func(text)
    with pytest.raises(LoweringError, match=match):
        split_host_device(apply(func, target, *ALL), target)  # type: ignore[arg-type]


def test_work_outside_of_threads_is_an_error() -> None:
    kernel_error(
        """
def f(C: Buffer((8,), "float32")):
    for i in range(8):
        C[i] = 1.0
""",
        "C is computed outside of loops that are bound",
    )


def test_too_many_threads() -> None:
    kernel_error(
        """
def f(C: Buffer((2048,), "float32")):
    for x in thread("threadIdx.x", 1024):
        for y in thread("threadIdx.y", 2):
            C[x * 2 + y] = 1.0
""",
        r"2048 threads in a block \(threadIdx.x: 1024 x threadIdx.y: 2\)",
    )


def test_threads_need_a_constant_extent() -> None:
    kernel_error(
        """
def f(C: Buffer((n,), "float32"), n: int32):
    for x in thread("threadIdx.x", n):
        C[x] = 1.0
""",
        "threadIdx.x is n, which is not a constant",
    )


def test_too_much_shared_memory() -> None:
    kernel_error(
        """
def f(C: Buffer((64,), "float32")):
    for x in thread("threadIdx.x", 64):
        s = alloc((20000,), "float32", scope="shared")
        s[x] = 1.0
        C[x] = s[63 - x]
""",
        "80000 bytes of shared memory.*has 65536",
    )


def test_kernels_and_their_parameters() -> None:
    func, out = lowered(
        """
def f(A: Buffer((n, m), "float32"), C: Buffer((n, m), "float32"), n: int32, m: int32):
    T = alloc((n, m), "float32")
    for b in thread("blockIdx.x", n):
        for t in thread("threadIdx.x", 32):
            for i in range((m + 31) // 32):
                if likely(i * 32 + t < m):
                    T[b, i * 32 + t] = A[b, i * 32 + t] * 2.0
    for b in thread("blockIdx.x", n):
        for t in thread("threadIdx.x", 32):
            for i in range((m + 31) // 32):
                if likely(i * 32 + t < m):
                    C[b, i * 32 + t] = T[b, m - 1 - (i * 32 + t)]
""",
        *ALL,
    )
    host, kernels = split_host_device(out, GPU)
    assert [k.name for k in kernels] == ["f_kernel0", "f_kernel1"]
    assert [p.name for p in kernels[0].params] == ["A", "T", "n", "m"]
    assert kernels[0].attrs["writes"] == ("T",) and kernels[0].attrs["max_threads"] == 32
    assert count(host, "launch") == 2 and count(host, S.Alloc) == 1
    check_same(func, out, split=GPU, n=3, m=70)


@pytest.mark.parametrize("target", [GPU, GPU32])
def test_lanes_of_both_wavefront_sizes(target: object) -> None:
    func = parse_func(_STAGED.format(n="3", more="", note=""))
    check_same(func, apply(func, target, *ALL), split=target, wave=target.wavefront_size)  # type: ignore[arg-type,attr-defined]


# ---- pad_tiles

_RAGGED = """
def f(A: Buffer((100, 20), "float32"), C: Buffer((100,), "float32")):
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 64):
            acc = alloc((1,), "float32", scope="local")
            if likely(b * 64 + t < 100):
                acc[0] = 0.0
            for k in range({steps}):
                s = alloc((64,), "float32", scope="shared")
                if likely(b * 64 + t < 100):
                    {fill}
                if likely(b * 64 + t < 100):
                    acc[0] = acc[0] + s[t]
            if likely(b * 64 + t < 100):
                C[b * 64 + t] = acc[0]
"""


def test_tiles_on_chip_are_computed_in_full() -> None:
    func = parse_func(_RAGGED.format(steps=20, fill="s[t] = A[b * 64 + t, k]"))
    out = apply(func, GPU, "unify_threads", "pad_tiles")
    assert count(out, S.IfThenElse) == 1  # the store to global memory
    assert count(out, "if_then_else") == 1  # the load from it
    check_same(func, apply(out, GPU, *ALL[1:]), split=GPU)


def test_the_ragged_end_of_a_reduction_keeps_its_guard() -> None:
    text = _RAGGED.replace(
        "acc[0] = acc[0] + s[t]", "if likely(k < 20):\n                        acc[0] = acc[0] + s[t]"
    )
    func = parse_func(text.format(steps=24, fill="if likely(k < 20):\n                        s[t] = A[b * 64 + t, k]"))
    out = apply(func, GPU, "unify_threads", "pad_tiles")
    assert str(out).count("if likely(k < 20)") == 1  # the sum's; the fill's went into its load
    check_same(func, apply(out, GPU, *ALL[1:]), split=GPU)


def test_a_guard_of_the_index_itself_stays() -> None:
    func = parse_func(
        """
def f(A: Buffer((40,), "float32"), C: Buffer((40,), "float32")):
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            s = alloc((40,), "float32", scope="shared")
            if likely(t < 40):
                s[t] = A[t]
            if likely(t < 40):
                C[t] = s[39 - t]
"""
    )
    out = apply(func, GPU, "unify_threads", "pad_tiles")
    assert count(out, S.IfThenElse) == 2 and count(out, "if_then_else") == 0
    check_same(func, apply(out, GPU, *ALL[1:]), split=GPU)


def test_a_store_without_the_guard_keeps_it_everywhere() -> None:
    func = parse_func(
        """
def f(A: Buffer((100,), "float32"), C: Buffer((128,), "float32")):
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 64):
            acc = alloc((1,), "float32", scope="local")
            acc[0] = 7.0
            if likely(b * 64 + t < 100):
                acc[0] = A[b * 64 + t]
            C[b * 64 + t] = acc[0]
"""
    )
    out = apply(func, GPU, "unify_threads", "pad_tiles")
    assert count(out, S.IfThenElse) == 1
    check_same(func, apply(out, GPU, *ALL[1:]), split=GPU)


def test_what_the_kernel_writes_is_not_loaded_ahead() -> None:
    """Of an epilogue's operands the residual is, the buffer that was stored to before is not."""
    i = E.Var("i")
    a, r, c = (Buffer(n, "float32", (E.IntImm(4),)) for n in "ARC")
    first = S.BufferStore(a, E.FloatImm(1.0), (E.IntImm(0),))
    value = E.Add(E.BufferLoad(a, (i,)), E.BufferLoad(r, (i,)))
    last = S.For(i, E.IntImm(0), E.IntImm(4), S.BufferStore(c, value, (i,)), S.ForKind.UNROLLED)
    whole = S.Seq((first, last))
    out = str(hold_behind(whole, 0, 16))
    assert "R_held" in out and "A_held" not in out
    assert hold_behind(whole, 0, 2) is whole  # no room


def test_a_bias_is_held_once_for_all_rows_and_waited_for_once() -> None:
    """Its place depends on the column alone: the loop over rows and the rows' condition are not around its load; that of the columns chooses the value. Behind the sums, and not in
    each branch of the stores, it has arrived."""
    func = parse_func(
        """
def f(R: Buffer((7,), "float32"), C: Buffer((3, 7), "float32")):
    acc = alloc((4, 8), "float32", scope="local")
    for i in unrolled(4):
        for j in unrolled(8):
            acc[i, j] = 1.0
    for i in unrolled(4):
        for j in vectorized(8):
            if likely(i < 3):
                if likely(j < 7):
                    C[i, j] = acc[i, j] + R[j]
"""
    )

    def held(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Seq):
            return hold_behind(s, 0, 16, chosen=True)
        return map_stmt(s, held, lambda e: e)

    out = func.with_body(held(func.body))
    assert "R_held = alloc((8,)" in str(out)
    assert "R_held[j] = if_then_else(likely(j < 7), R[j], 0.0)" in str(out)
    assert "computed(R_held[" in str(out)
    check_same(func, apply(out, GPU, "flatten_buffers", "vectorize"))


def test_a_bias_of_rows_is_held_for_all_columns_of_a_place_that_rows_and_columns_share() -> None:
    """Conditions of both say nothing of its place, which lies inside of it by the rows' own; where no condition on rows keeps it inside, all choose the value."""
    text = """
def f(R: Buffer((3,), "float32"), C: Buffer((3, 8), "float32")):
    acc = alloc((4, 8), "float32", scope="local")
    for i in unrolled(4):
        for j in unrolled(8):
            acc[i, j] = 1.0
    for i in unrolled(4):
        for j in unrolled(8):
            if likely(i < LIMIT):
                if likely(i + j < 6):
                    C[i, j] = acc[i, j] + R[i]
"""
    for limit, extents in ((3, "(4,)"), (4, "(4, 8)")):
        func = parse_func(text.replace("LIMIT", str(limit)).replace("i + j", "i + j" if limit == 3 else "i * 2 + j"))

        def held(s: S.Stmt) -> S.Stmt:
            if isinstance(s, S.Seq):
                return hold_behind(s, 0, 32, chosen=True, known=Analyzer())
            return map_stmt(s, held, lambda e: e)

        out = func.with_body(held(func.body))
        assert f"R_held = alloc({extents}" in str(out)
        if limit == 3:
            check_same(func, apply(out, GPU, "flatten_buffers", "vectorize"))
