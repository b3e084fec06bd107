"""The lane layouts of the matrix units: complete, and right where a manual's table can be written down by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tec.ir import matrix
from tec.ir.matrix import MatrixInstr
from tec.target import Target

TARGETS = [f"rocm -mcpu={c}" for c in ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")] + [
    "cuda -arch=sm_90"
]
ALL = sorted({i for t in TARGETS for i in matrix.instructions(Target(t))}, key=lambda i: i.name)


# The unit's rows in an order in which a lane's accumulators lie side by side.
RUNS = [replace(i, swap=swap, runs=True) for i in ALL if i.unit == "wmma" for swap in (True, False)]


@pytest.mark.parametrize("instr", [*ALL, *RUNS], ids=matrix.instr_to_text)
def test_every_element_is_held(instr: MatrixInstr) -> None:
    for role in ("a", "b", "acc"):
        places = [instr.coords(role, lane, i) for lane in range(instr.wave) for i in range(instr.elems(role))]
        rows, cols = instr.shape(role)
        copies = 1 if role == "acc" else instr.copies
        assert len(places) == copies * instr.blocks * rows * cols
        assert set(places) == {(b, r, c) for b in range(instr.blocks) for r in range(rows) for c in range(cols)}


@pytest.mark.parametrize("instr", RUNS, ids=matrix.instr_to_text)
def test_runs(instr: MatrixInstr) -> None:
    assert matrix.instr_from_text(matrix.instr_to_text(instr)) == instr
    assert matrix.run_of(instr, "acc") == (1 if instr.swap else 0, 8)
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-4, 5, (1, *instr.shape(r))) for r in ("a", "b", "acc"))
    operands = {r: matrix.gather(instr, r, x) for r, x in (("a", a), ("b", b), ("acc", c))}
    unit = replace(instr, swap=False, runs=False)  # which knows nothing of the order
    first, second = ("b", "a") if instr.swap else ("a", "b")
    d = matrix.compute(unit, operands[first], operands[second], operands["acc"])
    np.testing.assert_array_equal(matrix.scatter(instr, "acc", d), c + a @ b)


@pytest.mark.parametrize("instr", ALL, ids=lambda i: i.name)
def test_reference_multiplies(instr: MatrixInstr) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (instr.blocks, instr.m, instr.k))
    b = rng.integers(-4, 5, (instr.blocks, instr.k, instr.n))
    c = rng.integers(-4, 5, (instr.blocks, instr.m, instr.n))
    d = matrix.compute(instr, *(matrix.gather(instr, r, x) for r, x in (("a", a), ("b", b), ("acc", c))))
    np.testing.assert_array_equal(matrix.scatter(instr, "acc", d), c + a @ b)


# role, lane, element -> (block, row, column), read off the manuals' tables.
KNOWN = [
    (MatrixInstr("mfma", "float32", "float32", 32, 32, 2), "a", 37, 0, (0, 5, 1)),
    (MatrixInstr("mfma", "float16", "float32", 32, 32, 8), "a", 37, 2, (0, 5, 6)),
    (MatrixInstr("mfma", "float16", "float32", 32, 32, 8), "b", 37, 2, (0, 6, 5)),
    (MatrixInstr("mfma", "float16", "float32", 32, 32, 8), "acc", 37, 6, (0, 14, 5)),
    (MatrixInstr("mfma", "float16", "float32", 16, 16, 16), "acc", 37, 3, (0, 11, 5)),
    (MatrixInstr("mfma", "float16", "float32", 4, 4, 4, 16), "acc", 37, 3, (9, 3, 1)),
    (MatrixInstr("mfma", "float64", "float64", 16, 16, 4), "acc", 37, 3, (0, 14, 5)),
    (MatrixInstr("wmma", "float16", "float32", 16, 16, 16, 1, 32), "a", 21, 9, (0, 5, 9)),
    (MatrixInstr("wmma", "float16", "float32", 16, 16, 16, 1, 32), "acc", 21, 3, (0, 7, 5)),
    (MatrixInstr("wmma.gfx12", "float16", "float32", 16, 16, 16, 1, 32), "a", 21, 3, (0, 5, 11)),
    (MatrixInstr("wmma.gfx12", "float16", "float32", 16, 16, 16, 1, 32), "acc", 21, 3, (0, 11, 5)),
    (MatrixInstr("mma.sync", "float16", "float32", 16, 8, 16, 1, 32), "a", 6, 3, (0, 9, 5)),
    (MatrixInstr("mma.sync", "float16", "float32", 16, 8, 16, 1, 32), "a", 6, 4, (0, 1, 12)),
    (MatrixInstr("mma.sync", "float16", "float32", 16, 8, 16, 1, 32), "b", 6, 3, (0, 13, 1)),
    (MatrixInstr("mma.sync", "float16", "float32", 16, 8, 16, 1, 32), "acc", 6, 3, (0, 9, 5)),
    (MatrixInstr("mma.sync", "int8", "int32", 16, 8, 32, 1, 32), "a", 6, 13, (0, 9, 25)),
    (MatrixInstr("mma.sync", "tf32", "float32", 16, 8, 8, 1, 32), "a", 6, 2, (0, 1, 6)),
]


@pytest.mark.parametrize(("instr", "role", "lane", "i", "want"), KNOWN)
def test_known_places(instr: MatrixInstr, role: str, lane: int, i: int, want: tuple[int, int, int]) -> None:
    assert instr.coords(role, lane, i) == want


def test_find() -> None:
    gfx942 = Target("rocm -mcpu=gfx942")
    wide = matrix.find(gfx942, "float16", 32, 32, 16)
    assert wide is not None and wide.a_elems == 8 and matrix.native_k(wide, gfx942) == 8
    gfx950 = Target("rocm -mcpu=gfx950")
    wide = matrix.find(gfx950, "float16", 32, 32, 16)
    assert wide is not None and matrix.native_k(wide, gfx950) == 16
    assert matrix.find(Target("rocm -mcpu=gfx906"), "float16") is None
    assert matrix.find(gfx942, "float16", 64, 64) is None
