"""Matrix units: which lane and register holds which element, for every instruction that tec uses.

A matrix instruction computes D = A*B + C for a whole wavefront: A is m x k, B is k x n, C and D are m x n, `blocks` times
side by side. Each lane holds some elements of each operand in a vector; `MatrixInstr` says which. The same formulas
serve the lowering (on expressions), the interpreter and the tests (on integers and arrays).

Units, and where their layouts are written down:

- "mfma" (CDNA): AMD Instinct MI300 (CDNA3) ISA, 7.1.4.2 "Matrix layout"; the 64-bit form has its own row order.
- "wmma" (RDNA3): RDNA3 ISA, 7.9: A and B are held twice, once in each half of the wavefront.
- "wmma.gfx12" (RDNA4, CDNA5): RDNA4 ISA, 7.12: every element is held once. The halves of a wavefront may share the k out otherwise than it says
  (CDNA5's do); A and B do so alike.
- "mma.sync" (NVIDIA, sm_80 on): PTX ISA, 9.7.14.5 "Matrix multiply-accumulate operation using mma instruction".
- "wgmma" (NVIDIA, sm_90a): PTX ISA, 9.7.15 "Asynchronous warpgroup level matrix instructions". Its "wavefront" is a warpgroup of
  128 threads; A and B stay in shared memory, so that only the accumulators have a layout in registers.

A and B may be handed over with k a multiple of the instruction's own: the lane's vector is then longer, and the unit is
run once for each part. That reorders k in A and B alike, so the product stays the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import CodegenError
from ..records import dataclass
from . import expr as E
from .dtype import dtype_info, with_lanes

UNITS = ("mfma", "wmma", "wmma.gfx12", "mma.sync", "wgmma")
WARPGROUP = 128  # threads that run a wgmma together
_UNIT_OF_FAMILY = {
    "cdna1": "mfma", "cdna2": "mfma", "cdna3": "mfma", "cdna4": "mfma",
    "rdna3": "wmma", "rdna4": "wmma.gfx12", "cdna5": "wmma.gfx12", "sm": "mma.sync",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MatrixInstr:
    """One shape of one matrix unit. in_dtype: element type of A and B ("tf32": float32 storage, 19 bits used)."""

    unit: str
    in_dtype: str
    acc_dtype: str
    m: int
    n: int
    k: int
    blocks: int = 1
    wave: int = 64
    swap: bool = False  # compute the transpose, from B^T and A^T: a lane then holds neighbours of a row of C
    runs: bool = False  # hand the unit its first operand's rows in another order: a lane's accumulators then lie side by side (`run_of`)

    @property
    def storage_dtype(self) -> str:
        """The dtype that A and B are stored in."""
        return "float32" if self.in_dtype == "tf32" else self.in_dtype

    @property
    def copies(self) -> int:
        """How often an element of A and B is held."""
        return self.wave // 16 if self.unit == "wmma" else 1

    @property
    def a_elems(self) -> int:
        """Elements of A in one lane's vector."""
        return self.m * self.k * self.blocks * self.copies // self.wave

    @property
    def b_elems(self) -> int:
        return self.k * self.n * self.blocks * self.copies // self.wave

    @property
    def acc_elems(self) -> int:
        return self.m * self.n * self.blocks // self.wave

    def elems(self, role: str) -> int:
        """Elements in one lane's vector of operand "a", "b" or "acc"."""
        return {"a": self.a_elems, "b": self.b_elems, "acc": self.acc_elems}[role]

    def shape(self, role: str) -> tuple[int, int]:
        """Rows and columns of an operand: a is m x k, b is k x n, acc is m x n."""
        return {"a": (self.m, self.k), "b": (self.k, self.n), "acc": (self.m, self.n)}[role]

    def dtype(self, role: str) -> str:
        """The dtype of one lane's vector."""
        return with_lanes(self.acc_dtype if role == "acc" else self.storage_dtype, self.elems(role))

    # Coordinates. `lane` and `i` (the place in the lane's vector) are ints, NumPy arrays or index expressions.

    def coords(self, role: str, lane: Any, i: Any) -> tuple[Any, Any, Any]:
        """(block, row, column) of element `i` of lane `lane`."""
        if role == "a":
            block, row, k = self._a(lane, i)
            return block, self._spread(row) if self.runs and not self.swap else row, k
        if role == "b":
            if self.unit == "mma.sync":
                return self._sync_b(lane, i)
            # B is laid out as the transpose of A is.
            block, col, k = self._a(lane, i, self.n)
            return block, k, self._spread(col) if self.runs and self.swap else col
        block, row, col = self._acc(lane, i)
        return (block, col, row) if self.swap else (block, row, col)

    def _spread(self, row: Any) -> Any:
        """Which row of the unit's first operand is handed over as its row `row`, with `runs`: even and odd ones go to either half of a wavefront."""
        half = self.m // 2
        return row % 2 * half + row // 2

    def _a(self, lane: Any, i: Any, rows: int = 0) -> tuple[Any, Any, Any]:
        m = rows or self.m
        if self.unit == "mma.sync":
            per, group, in_group = self._sync(lane)
            # Registers of 4 bytes alternate between rows r and r + 8, then move on in k.
            return lane * 0, group + 8 * (i // per % 2), in_group * per + i % per + 4 * per * (i // (2 * per))
        if self.unit == "wmma":
            return lane * 0, lane % m, i + lane * 0
        group = lane // m
        return group % self.blocks, lane % m, group // self.blocks * self.a_elems + i

    def _sync(self, lane: Any) -> tuple[int, Any, Any]:
        return 32 // dtype_info(self.storage_dtype).bits, lane // 4, lane % 4

    def _sync_b(self, lane: Any, i: Any) -> tuple[Any, Any, Any]:
        per, group, in_group = self._sync(lane)
        return lane * 0, in_group * per + i % per + 4 * per * (i // per), group + i * 0

    def _acc(self, lane: Any, i: Any) -> tuple[Any, Any, Any]:
        n = self.n
        if self.unit == "mma.sync":
            return lane * 0, lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2
        if self.unit == "wgmma":  # each of the four warps holds 16 rows, as tiles of 16 x 8
            return lane * 0, lane // 32 * 16 + lane % 32 // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + lane % 4 * 2 + i % 2
        if self.unit == "wmma" and self.runs:
            return lane * 0, lane // 16 * self.acc_elems + i, lane % 16 + i * 0
        if self.unit == "wmma":
            return lane * 0, i * (self.wave // 16) + lane // 16, lane % 16 + i * 0
        if self.unit == "wmma.gfx12":
            return lane * 0, lane // 16 * self.acc_elems + i, lane % 16 + i * 0
        groups = self.wave // n
        # Neighbouring rows in one lane: 4, but 1 for 64-bit elements.
        run = 1 if self.acc_dtype == "float64" else 4
        per_block = min(groups, self.m // run)
        regs = self.m // per_block
        r = i % regs
        block = lane // n // per_block + i // regs * (groups // per_block)
        return block, r // run * (run * per_block) + lane // n % per_block * run + r % run, lane % n + i * 0

    def attrs(self) -> dict[str, Any]:
        """What a Call of "mma" carries."""
        return {
            "unit": self.unit, "m": self.m, "n": self.n, "k": self.k, "blocks": self.blocks,
            "in_dtype": self.in_dtype, "acc_dtype": self.acc_dtype, "wave": self.wave,
        }  # fmt: skip

    def call(self, a: E.Expr, b: E.Expr, c: E.Expr) -> E.Call:
        """The Call that computes c + a*b from the lanes' vectors."""
        for role, e in (("a", a), ("b", b), ("acc", c)):
            if e.dtype != self.dtype(role):
                raise CodegenError(
                    f"operand {role} of a matrix product is {e.dtype}, want {self.dtype(role)}",
                    hint="cast the operand, or choose an instruction for its type",
                )
        # What A^T is to the unit as its second operand, A is as its first: only the order changes.
        return E.Call("mma", (b, a, c) if self.swap else (a, b, c), c.dtype, self.attrs())

    @property
    def name(self) -> str:
        blocks = f"x{self.blocks}b" if self.blocks > 1 else ""
        return f"{self.unit} {self.acc_dtype} {self.m}x{self.n}x{self.k}{blocks} {self.in_dtype}"


def instr_of(attrs: dict[str, Any]) -> MatrixInstr:
    """The MatrixInstr that a Call of "mma" names."""
    return MatrixInstr(
        attrs["unit"],
        attrs["in_dtype"],
        attrs["acc_dtype"],
        attrs["m"],
        attrs["n"],
        attrs["k"],
        attrs["blocks"],
        attrs["wave"],
    )


def instructions(target: Any) -> list[MatrixInstr]:
    """All matrix instructions of a target's chip, in the order of Target's table. `target`: a tec.target.Target."""
    unit = _UNIT_OF_FAMILY.get(target.chip.family)
    if unit is None or (unit.startswith("wmma") and target.wavefront_size != 32):
        return []
    return [MatrixInstr(unit, i, a, m, n, k, b, target.wavefront_size) for i, a, m, n, k, b in target.chip.matrix]


@lru_cache(maxsize=1024)
def native_k(instr: MatrixInstr, target: Any) -> int | None:
    """The k that the chip's unit runs at once for this shape: the largest that divides `instr.k`; None without one."""
    if instr.unit == "wgmma":
        known = [k for i, a, k in target.chip.warpgroup if (i, a) == (instr.in_dtype, instr.acc_dtype)]
        fits = instr.m == 64 and instr.n in warpgroup_columns(instr.in_dtype) and instr.wave == WARPGROUP
        return known[0] if known and fits and instr.k % known[0] == 0 else None
    same = [
        i.k
        for i in instructions(target)
        if (i.in_dtype, i.acc_dtype, i.m, i.n, i.blocks) == (instr.in_dtype, instr.acc_dtype, instr.m, instr.n, instr.blocks)
        and i.unit == instr.unit and i.wave == instr.wave and instr.k % i.k == 0
    ]  # fmt: skip
    return max(same, default=None)


def find(
    target: Any,
    in_dtype: str,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    blocks: int = 1,
    swap: bool = False,
    runs: bool = False,
) -> MatrixInstr | None:
    """The chip's instruction for an input dtype and, where given, a shape; k may be a multiple of the unit's on CDNA.

    swap: let a lane hold neighbours of a row of C (of a column else); on square shapes alone. runs: as many of them side by side as it holds, on
    RDNA3, whose unit deals rows out in turn; elsewhere they lie in runs anyway.
    """
    for i in instructions(target):
        if i.in_dtype == in_dtype and i.blocks == blocks and m in (None, i.m) and n in (None, i.n):
            if swap and i.m != i.n:
                continue
            far = runs and i.unit == "wmma" and i.wave == 32
            if k in (None, i.k):
                return replace(i, swap=swap, runs=far)
            if i.unit == "mfma" and k % i.k == 0:
                return replace(i, k=k, swap=swap)
    return None


def warpgroup_columns(in_dtype: str) -> tuple[int, ...]:
    """The columns that a wgmma of a type may have: multiples of 8 up to 256, of 8-bit integers beyond 32 of 16 (PTX ISA, "Matrix shape")."""
    by_16 = in_dtype in ("int8", "uint8")
    return tuple(n for n in range(8, 257, 8) if not (by_16 and n > 32 and n % 16))


def find_warpgroup(target: Any, in_dtype: str, n: int, k: int) -> MatrixInstr | None:
    """The wgmma of 64 x n accumulators for an input dtype, with k a multiple of the unit's own; None where the chip has none."""
    for i, acc, _ in target.chip.warpgroup:
        instr = MatrixInstr("wgmma", i, acc, 64, n, k, 1, WARPGROUP)
        if i == in_dtype and native_k(instr, target):
            return instr
    return None


# ---- reference


@lru_cache(maxsize=64)
def _table(instr: MatrixInstr, role: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lane = np.arange(instr.wave)[:, None]
    i = np.arange(instr.elems(role))[None, :]
    block, row, col = (np.broadcast_to(x, (instr.wave, instr.elems(role))) for x in instr.coords(role, lane, i))
    return block, row, col


def gather(instr: MatrixInstr, role: str, matrices: np.ndarray) -> np.ndarray:
    """The lanes' vectors [wave, elems] of an operand given as [blocks, rows, columns]."""
    result: np.ndarray = matrices[_table(instr, role)]
    return result


def scatter(instr: MatrixInstr, role: str, vectors: np.ndarray) -> np.ndarray:
    """The operand [blocks, rows, columns] that the lanes' vectors [wave, elems] hold."""
    result = np.zeros((instr.blocks, *instr.shape(role)), vectors.dtype)
    result[_table(instr, role)] = vectors
    return result


def compute(instr: MatrixInstr, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What one wavefront computes: D's vectors [wave, elems] from those of A, B and C.

    Floats are multiplied and summed in float64 and rounded once to the accumulator's type; integers wrap.
    """
    wide = np.int64 if instr.acc_dtype == "int32" else np.float64
    da, db, dc = (scatter(instr, r, np.asarray(x).astype(wide)) for r, x in (("a", a), ("b", b), ("acc", c)))
    d = dc + np.matmul(da, db)
    if wide is np.int64:
        d = (d & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return gather(instr, "acc", d.astype(instr.acc_dtype))


# ---- as text: how a fragment operation of loop IR names its instruction


def instr_to_text(instr: MatrixInstr) -> str:
    """`mfma float16 float32 32x32x8x1 64`, with ` swap` and ` runs` behind it where they are on; `instr_from_text` reads it."""
    i = instr
    options = " swap" * i.swap + " runs" * i.runs
    return f"{i.unit} {i.in_dtype} {i.acc_dtype} {i.m}x{i.n}x{i.k}x{i.blocks} {i.wave}{options}"


def instr_from_text(text: str) -> MatrixInstr:
    """The MatrixInstr of `instr_to_text`'s text. Raises CodegenError."""
    try:
        unit, in_dtype, acc_dtype, shape, wave, *options = text.split()
        m, n, k, blocks = map(int, shape.split("x"))
        swap, runs = "swap" in options, "runs" in options
        if unit not in UNITS or options != ["swap"] * swap + ["runs"] * runs:
            raise ValueError(text)
        return MatrixInstr(unit, in_dtype, acc_dtype, m, n, k, blocks, int(wave), swap, runs)
    except ValueError:
        raise CodegenError(
            f"not a matrix instruction: {text!r}", hint="the text that str() of a MatrixInstr gives"
        ) from None


@lru_cache(maxsize=64)
def run_of(instr: MatrixInstr, role: str) -> tuple[int, int]:
    """(axis, length): the longest aligned runs of a lane's elements along which one coordinate grows by one and the other
    stands still; axis 0 is the row, 1 the column."""
    elems = instr.elems(role)
    _, row, col = _table(instr, role)
    length = elems
    while length > 1:
        if elems % length == 0:
            for axis, moving, still in ((1, col, row), (0, row, col)):
                m, s = (x.reshape(instr.wave, -1, length) for x in (moving, still))
                if (np.diff(m, axis=2) == 1).all() and (np.diff(s, axis=2) == 0).all():
                    return axis, length
        length -= 1
    return 1, 1
