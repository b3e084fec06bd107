"""Matrix instructions of microscaling formats (gfx950's `v_mfma_scale_f32_*_f8f6f4`): D = C + (A * scales of A) (B * scales of B), for a wavefront.

A and B may be of different formats (`tec.ir.microscaling`). A lane holds 32 elements of a row of A (a column of B) and, in a byte, a scale: that of block l // m of its
row. Elements of 6 and 4 bits are that block's own; of 8 bits a lane holds 16 k of either half. Source: CDNA4 ISA manual 7.1.5.1, 7.2.1; the order was found the same on
hardware by Composable Kernel's probes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import CodegenError
from ..records import dataclass
from . import expr as E
from .dtype import with_lanes
from .matrix import MatrixInstr, gather, scatter
from .microscaling import BLOCK, Format, format_of, powers, unpack

CODES = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e2m1")  # by the value of CBSZ and BLGP
WAVE = 64


@dataclass(frozen=True)
class ScaledMatrix:
    """One shape for two formats."""

    a: str
    b: str
    m: int
    n: int
    k: int

    @property
    def formats(self) -> tuple[Format, Format]:
        return format_of(self.a), format_of(self.b)

    @property
    def sums(self) -> MatrixInstr:
        """Whose results lie as these do."""
        return MatrixInstr("mfma", "float8_e4m3", "float32", self.m, self.n, self.k)

    def bytes(self, role: str) -> int:
        """Of a lane's elements of "a" or "b"."""
        return self.formats["ab".index(role)].stored(BLOCK)

    def runs(self, role: str, group: Any) -> list[tuple[Any, int]]:
        """(first k, elements) of what lane l holds side by side; `group`: l // m."""
        if self.formats["ab".index(role)].bits == 8:
            return [(group * 16, 16), (group * 16 + self.k // 2, 16)]
        return [(group * BLOCK, BLOCK)]

    def call(self, a: E.Expr, b: E.Expr, c: E.Expr, scale_a: E.Expr, scale_b: E.Expr) -> E.Call:
        """The Call that computes c + a*b from the lanes' bytes; scales are int32, of which the low byte counts."""
        for role, e in (("a", a), ("b", b)):
            if e.dtype != with_lanes("uint8", self.bytes(role)):
                raise CodegenError(
                    f"operand {role} of a scaled product is {e.dtype}, want {self.bytes(role)} bytes",
                    hint="load the operand as one vector of the bytes that a lane holds",
                )
        attrs = {"a": self.a, "b": self.b, "m": self.m, "n": self.n, "k": self.k}
        return E.Call("mma_scaled", (a, b, c, scale_a, scale_b), c.dtype, attrs)


def scaled_of(attrs: dict[str, Any]) -> ScaledMatrix:
    """What a Call of "mma_scaled" names."""
    return ScaledMatrix(attrs["a"], attrs["b"], attrs["m"], attrs["n"], attrs["k"])


def compute(s: ScaledMatrix, a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
    """D's vectors [64, elements] from those of A and B (bytes), C, and the lanes' scales. Summed in float64, rounded once."""

    def matrix(role: str, stored: Any, scales: Any) -> Any:
        f, rows = s.formats["ab".index(role)], s.m if role == "a" else s.n
        numbers = f.numbers[unpack(np.asarray(stored, np.uint8), f)].astype(np.float64)
        lane, made = np.arange(WAVE), np.zeros((rows, s.k))
        at = 0
        for first, count in s.runs(role, lane // rows):
            for i in range(count):
                made[lane % rows, first + i] = numbers[:, at + i]
            at += count
        by_block = np.zeros((rows, s.k // BLOCK))
        by_block[lane % rows, lane // rows] = powers(np.asarray(scales) & 255)
        return made * np.repeat(by_block, BLOCK, 1)

    with np.errstate(invalid="ignore", over="ignore"):
        d = scatter(s.sums, "acc", np.asarray(c, np.float64)) + matrix("a", a, scale_a) @ matrix("b", b, scale_b).T
        return gather(s.sums, "acc", d.astype(np.float32))
