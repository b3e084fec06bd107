"""Loops that become vectors without a schedule: which do, which must not, and that every bit is the scalar program's."""

from __future__ import annotations

import numpy as np
import pytest
from pass_util import CPU, apply, arrays_for, parse_func

from tec.ir import Func
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.interp import run
from tec.ir.visit import visit
from tec.target import Target
from tests.thinned import thinned

PLAIN = ("flatten_buffers", "simplify")


def lanes(func: Func) -> set[int]:
    """How many lanes the function's loops over vectors have."""
    found: set[int] = set()

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.For) and s.kind == S.ForKind.VECTORIZED:
            assert isinstance(s.extent, E.IntImm)
            found.add(s.extent.value)

    visit(func.body, None, on_stmt)
    return found


def vectors(text: str, target: Target = CPU, **sizes: int) -> set[int]:
    """Lanes of the vectors that a function's loops become; its results must be those of its text, bit for bit."""
    func = parse_func(text)
    loops = apply(func, target, *PLAIN, "vectorize_loops")
    after = apply(loops, target, "vectorize", "simplify", "remove_noop")
    rng = np.random.default_rng(3)
    arrays = arrays_for(func, sizes)
    for name, x in arrays.items():
        if x.dtype == np.float32:
            arrays[name] = rng.uniform(-2, 2, x.shape).astype("f4")
    got = {k: v.copy() for k, v in arrays.items()}
    run(func, arrays, sizes)
    run(after, {k: v.reshape(-1) for k, v in got.items()}, sizes, check=True)
    for name, want in arrays.items():
        assert got[name].tobytes() == want.tobytes(), name
    return lanes(loops)


HEAD = 'def f(A: Buffer((n, 24), "float32"), C: Buffer((n, 24), "float32"), *, n: size("int32")):\n'


def loop(body: str, n: int = 40, dtype: str = "float32", more: str = "") -> str:
    return f"""
def f(A: Buffer(({n},), "{dtype}"), B: Buffer(({n},), "{dtype}"), C: Buffer(({n},), "{dtype}"){more}):
{body}
"""


@pytest.mark.parametrize("n", [4, 16, 23, 32, 40, 47])
def test_maps_of_any_length(n: int) -> None:
    found = vectors(loop(f"    for i in range({n}):\n        C[i] = exp(A[i]) + B[i]", n))
    assert found == {max(k for k in (4, 16) if k <= n)}


@pytest.mark.parametrize("n", [1, 3, 15, 16, 17, 50])
def test_a_length_that_is_open(n: int) -> None:
    text = """
def f(A: Buffer((n,), "float32"), C: Buffer((n,), "float32"), *, n: size("int32")):
    for i in range(n):
        C[i] = A[i] * 2.0
"""
    assert vectors(text, n=n) == {16}
    assert vectors(text.replace("A[i] * 2.0", "C[i] + A[i]"), n=n) == {16}


@pytest.mark.parametrize("mcpu, wide", [("x86-64", 4), ("haswell", 8), ("znver4", 16)])
def test_lanes_are_the_register_s(mcpu: str, wide: int) -> None:
    text = loop("    for i in range(40):\n        C[i] = A[i] + B[i]")
    assert vectors(text, Target(f"llvm -mcpu={mcpu}")) == {wide}
    assert vectors(text.replace("float32", "int64"), Target(f"llvm -mcpu={mcpu}")) == {wide // 2}


def test_columns_of_a_product_whose_sum_is_innermost() -> None:
    text = """
def f(A: Buffer((6, 7), "float32"), B: Buffer((7, 21), "float32"), C: Buffer((6, 21), "float32")):
    for i in range(6):
        for j in range(21):
            C[i, j] = 0.0
            for k in range(7):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
    assert vectors(text) == {16}
    assert vectors(text.replace("            C[i, j] = 0.0\n", "")) == {16, 4}, (
        "a step runs once where it adds to what was there"
    )


def test_storage_of_a_step_and_conditions() -> None:
    text = loop(
        """    for i in range(40):
        T = alloc((2,), "float32", scope="local")
        T[0] = A[i]
        T[1] = B[i]
        if T[0] > T[1]:
            C[i] = T[0]
        else:
            if A[i] > 0.5:
                C[i] = T[1] + 1.0"""
    )
    assert vectors(text)


@pytest.mark.parametrize(
    "body",
    [
        "    for i in range(39):\n        C[i + 1] = C[i] + A[i]",
        "    for i in range(39):\n        C[i] = C[39 - i] + A[i]",
        "    for i in range(40):\n        C[0] = C[0] + A[i]",
        "    for i in range(40):\n        C[3] = A[i]",
        "    for i in range(20):\n        C[i * 2] = A[i]",
        "    for i in range(36):\n        for k in range(3):\n            C[i + k] = C[i + k] + A[i]",
        "    for i in range(40):\n        C[i] = A[7] + C[5]",
    ],
)
def test_steps_that_meet_stay_in_order(body: str) -> None:
    assert not vectors(loop(body))


def test_steps_that_are_far_apart_do_not_meet() -> None:
    assert vectors(loop("    for i in range(20):\n        C[i + 20] = C[i] + A[i]")) == {16, 4}
    assert vectors(loop("    for i in range(32):\n        C[i + 8] = C[i] + A[i]")) == set()
    rows = "    for i in range(20):\n        for k in range(2):\n            C[k * 20 + i] = C[k * 20 + i] + A[i]"
    assert vectors(loop(rows)) == {16, 4}


def test_gathers_and_places_from_memory_stay() -> None:
    more = ', I: Buffer((40,), "int32")'
    assert not vectors(loop("    for i in range(40):\n        C[i] = A[(I[i] + 9) % 19]", more=more))
    assert vectors(loop("    for i in range(40):\n        C[i] = A[(I[2] + 9) % 19]", more=more))


def test_a_lane_that_is_off_divides_by_nothing() -> None:
    text = loop("    for i in range(40):\n        if B[i] != 0:\n            C[i] = A[i] / B[i]", dtype="int32")
    assert not vectors(text)


@thinned(
    2,
    ("n", [16, 41, 150, 300]),
    ("dtype", ["int32", "int8", "float32"]),
    ("what", ["max(C[0], A[i])", "min(A[i] * B[i], C[0])", "C[0] + A[i] * B[i]", "max_nan(C[0], A[i])"]),
)
def test_reductions(n: int, dtype: str, what: str) -> None:
    """Exact ones in parts; a floating sum stays as it is."""
    found = vectors(loop(f"    for i in range({n}):\n        C[0] = {what}", n, dtype))
    assert bool(found) == (dtype != "float32" or "C[0] +" not in what)


@pytest.mark.parametrize("n", [16, 23, 100])
def test_costly_terms_of_a_floating_sum_are_vectors(n: int) -> None:
    assert 16 in vectors(loop(f"    for i in range({n}):\n        C[0] = C[0] + exp(A[i] - B[0])", n))


def test_marked_loops_and_gpus_are_left_alone() -> None:
    text = loop("    for i in range(40):\n        C[i] = A[i] + B[i]")
    func = parse_func(text)
    assert not lanes(apply(func, Target("rocm -mcpu=gfx942"), *PLAIN, "vectorize_loops"))
    aliased = func.with_attrs(noalias=False)
    assert not lanes(apply(aliased, CPU, *PLAIN, "vectorize_loops"))
    assert not vectors(text.replace("range(40)", "unrolled(40)"))


def test_threads_do_not_share_steps() -> None:
    """The last vector of a parallel loop repeats steps only where they read nothing that is written."""
    body = "    for i in parallel(23):\n        C[i] = 0.0\n        for k in range(3):\n            C[i] = C[i] + A[k] * B[i]"
    assert vectors(loop(body, 23)) == {16, 4}
    assert vectors(loop("    for i in parallel(23):\n        C[i] = A[i]", 23)) == {16}


@pytest.mark.parametrize("n", ["n", "43"])
def test_the_last_vector_stands_behind_the_loop(n: str) -> None:
    """A start that is the lesser of two would be computed and widened in every step."""
    text = f"""
def f(A: Buffer((40 + {n},), "float32"), C: Buffer((40 + {n},), "float32"){', *, n: size("int32")' if n == "n" else ""}):
    for i in range({n}):
        C[i] = A[i] * 2.0
"""
    assert vectors(text, **({"n": 29} if n == "n" else {})) == {16}
    after = str(apply(parse_func(text), CPU, *PLAIN, "vectorize_loops"))
    assert "min(" not in after
