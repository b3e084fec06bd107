"""Matrix instructions: the layouts of MFMA (CDNA). `matrix_product` has the functions that compute them.

Source: CDNA3 ISA manual 7.1.4 ("Dense matrix layout"), RDNA3 ISA manual 7.9, RDNA4 ISA manual ("WMMA"). For MFMA with blocks of
M x N x K over 64 lanes: lane l holds of A the row l mod M, of block (l div M) mod B, and of the k that belong to l div (M B),
as many as fit its registers; B likewise by columns. The result's rows come four by four: register q of lane l holds row
4 * (rows' group) + q mod 4.

Numbers: f16, bf16 and 8-bit inputs are widened (exact); how products are summed is `matrix_sums`'s. 8-bit floats are FNUZ on gfx942, OCP on gfx950.

Modifiers, from the same manual and AMD's matrix instruction calculator: CBSZ and ABID give one block of A to each group of
2**CBSZ blocks, the one that ABID names; BLGP lets B's lanes read other lanes. In f64 instructions of gfx942 its bits are signs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by the value of CBSZ (of A) and BLGP (of B) in an f8f6f4
_MIXED = re.compile(r"v_mfma_(?:scale_)?f32_(\d+x\d+x\d+)_f8f6f4$")
_NAME = re.compile(
    r"v_mfma_(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(f32|f16|bf16|i8|f64|xf32|(?:fp8|bf8|fp6|bf6|fp4)_(?:fp8|bf8|fp6|bf6|fp4))(_1k)?(_scaled|_sparse)?$"
)


@dataclass(frozen=True, slots=True)
class Mfma:
    """One MFMA shape. `per_lane`: how many k a lane holds of one row; `a_regs` and so on count 32-bit registers."""

    name: str
    out: str  # f32, i32 or f64
    source: str  # f32, f16, bf16, i8, f64, xf32, fp8_bf8, ...
    m: int
    n: int
    k: int
    blocks: int
    scaled: bool = False  # a power of two for each lane's elements of A and of B, behind their registers

    @property
    def per_lane(self) -> int:
        return self.m * self.k * self.blocks // 64

    @property
    def sources(self) -> tuple[str, str]:
        """The types of A's and B's elements."""
        a, _, b = self.source.partition("_")
        return a, b or a

    def regs(self, which: int) -> int:
        """Registers of A (0) or B (1)."""
        bits = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "f64": 64, "fp6": 6, "bf6": 6, "fp4": 4}
        return max(1, self.per_lane * bits.get(self.sources[which], 8) // 32)

    @property
    def out_items(self) -> int:
        return self.m * self.n * self.blocks // 64

    @property
    def out_regs(self) -> int:
        return self.out_items * (2 if self.out == "f64" else 1)

    def a_lane(self, row: int, group: int, block: int) -> int:
        """The lane that holds row (or column) `row` of `block`, for k in [group * per_lane, ...)."""
        return row + self.m * (block + self.blocks * group)

    def place(self, item: int, lane: int) -> tuple[int, int, int]:
        """(block, row, column) of a result item."""
        if self.out == "f64":
            if self.m == 4:
                return lane // 4 % 4, lane // 16, lane % 4
            return 0, 4 * item + lane // 16, lane % 16
        if self.m == 4:
            return lane // 4, item, lane % 4
        per_block = self.m * self.m // 64
        block, q = divmod(item, per_block)
        groups = 64 // self.m  # lane groups of one block's columns
        row = 4 * groups * (q // 4) + 4 * (lane // self.m) + q % 4
        return block, row, lane % self.m

    # Operands that read other lanes.
    def broadcasts(self) -> bool:
        """Whether BLGP means lanes: not of f64, of the 8-bit floats, of xf32 or of the shapes that gfx950 added."""
        wide = {"f16": 8, "bf16": 8, "i8": 16}.get(self.source)
        return self.source in ("f32", "f16", "bf16", "i8") and self.per_lane != wide

    def a_source(self, lane: int, cbsz: int, abid: int) -> int:
        """The lane whose A this lane takes."""
        row, rest = lane % self.m, lane // self.m
        block, group = rest % self.blocks, rest // self.blocks
        return self.a_lane(row, group, block >> cbsz << cbsz | abid)


def b_source(lane: int, blgp: int) -> int:
    """The lane whose B this lane takes: all, one half of the wave for both, a turn by 16, or one quarter for all."""
    if blgp in (1, 2):
        return lane % 32 + 32 * (blgp - 1)
    if blgp == 3:
        return (lane + 16) % 64
    return lane % 16 + 16 * (blgp - 4) if blgp else lane


def parse_mfma(op: str) -> Mfma | None:
    """The shape that a mnemonic names, in gfx90a's spelling (32x32x8f16) or gfx942's (32x32x8_f16, 2b for blocks)."""
    m = _NAME.match(op)
    if m is None or m[2] != m[3]:
        return None
    size, k = int(m[2]), int(m[4])
    if m[8] == "_sparse":  # the dense product that a sparse one is
        return Mfma(op, m[1], m[6], size, size, k, 1)
    per_lane = _per_lane(m[6], bool(m[7]), size, k)
    blocks = int(m[5]) if m[5] else _blocks(size, k, per_lane)
    return Mfma(op, m[1], m[6], size, size, k, blocks, m[8] == "_scaled")


def parse_mixed(op: str, cbsz: int, blgp: int) -> Mfma | None:
    """The shape of an f8f6f4, whose types its modifiers give."""
    m = _MIXED.match(op)
    if m is None or max(cbsz, blgp) >= len(FORMATS):
        return None
    return parse_mfma(f"v_mfma_f32_{m[1]}_{FORMATS[cbsz]}_{FORMATS[blgp]}{'_scaled' * ('_scale_' in op)}")


def _per_lane(source: str, one_k: bool, size: int, k: int) -> int:
    """How many k one lane holds, where the spelling does not give the blocks."""
    if source in ("f32", "f64"):
        return 1
    if source == "xf32":
        return 2
    if source == "f16" or (source == "bf16" and one_k):
        return 8 if size * k >= 512 else 4
    if source == "bf16":
        # gfx908's form holds two; gfx942 names (x8_bf16, x16_bf16) hold four, gfx950's eight.
        return {(32, 2): 2, (16, 2): 2, (4, 2): 2, (32, 4): 2, (16, 8): 2}.get((size, k), 8 if size * k >= 512 else 4)
    if source == "i8":
        return 16 if size * k >= 1024 else 8 if size * k >= 512 else 4
    return 32 if size * k > 1024 else 8


def _blocks(size: int, k: int, per_lane: int) -> int:
    return max(1, 64 * per_lane // (size * k))


def function_name(s: Mfma) -> str:
    return "mfma_" + s.name.removeprefix("v_mfma_")
