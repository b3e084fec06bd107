"""gfx1250's WMMA and SWMMAC: wave32 alone, k of 4 to 128, elements of 4 to 32 bits, with scales.

A lane group (lanes 0 to 15, or 16 to 31) holds alternating runs of a row's k: 16 bytes of 8-bit and 16-bit elements, 32 elements of 6 and 4 bits, two of f32; of
SWMMAC's dense operand twice as many. Lane l holds of A row l mod 16, of B column l mod 16; of a product of 32 rows the registers of rows 16 to 31 stand behind
the others. Item q of a lane's result is row 16 (q div 8) + 8 (l div 16) + q mod 8.
A scale is an E8M0 byte for 32 k of a row (`scale16`: for 16), the k in order from a register's lowest byte on; row r's register is lane r's, or lane 16 + r's
where `matrix_a_scale` or `_b_scale` says ROW1. SWMMAC: stored element c of a row has its two bits in lane group c div n, n entries a lane.
Source: ROCm's rocjitsu, isa/arch/amdgpu/shared/mma/layout.h, which names the CDNA 5 manual's 7.12, and says that the places of 8-bit SWMMAC were held against
Tensile's kernels on hardware where the manual's text has others. A product of an 8-bit and a narrower format without scales has two layouts there, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..decode.inst import Inst, Operand
from ..translate.ops import Ops
from ..translate.wave import Wave
from .float8 import e8m0
from .matrix import FORMATS
from .matrix_product import element
from .mfma import gather_lanes
from .packed import Selectors
from .smfmac import dense
from .table import Handler, custom
from .wmma import WmmaProduct, accumulator, bits_of, product_of, results, small_element, sums, vectors

_RUNS = {32: 2, 16: 8, 8: 16, 6: 32, 4: 32}  # k of one lane group in a row, by the bits of an element
_HINTS = ("matrix_a_reuse", "matrix_b_reuse")


@dataclass(frozen=True, slots=True)
class Cdna5Product(WmmaProduct):
    """One product; where it is scaled, the words of the scales stand behind those of the elements."""

    m: int = 16
    sparse: bool = False
    scaled: int = 0  # k that a scale is of; 0: none
    scale_rows: tuple[int, int] = (0, 0)  # of A and of B: the lane group that has the scales

    @property
    def items(self) -> int:
        return self.m * 16 // 32

    def regs_of(self, which: int) -> int:
        rows = self.m if which == 0 else 16
        return rows * self.k * bits_of(self.kinds[which]) // 1024

    def buffers(self) -> tuple[int, int]:
        extra = 128 // self.scaled // 4 if self.scaled else 0
        return self.regs_of(0) + extra, self.regs_of(1) + extra

    @property
    def type(self) -> str:
        return "i32" if self.kinds[0] in ("i8", "u8") else "f32"

    @property
    def name(self) -> str:
        signs = "".join(str(int(bool(f))) for pair in self.flips for f in pair)
        how = f"{int(self.clamp)}{int(self.sparse)}_{self.scaled}_{self.scale_rows[0]}{self.scale_rows[1]}"
        return f"wmma5_{self.m}_{self.k}_{'_'.join(self.kinds)}_{signs}_{how}"

    def place(self, which: int, k: int) -> tuple[int, int]:
        """(lane group, element of the lane) of one of a row's k."""
        run = _RUNS[bits_of(self.kinds[which])] * (2 if self.sparse else 1)
        return k // run % 2, k // (2 * run) * run + k % run

    def row(self, lane: int, q: int) -> int:
        return 16 * (q // 8) + 8 * (lane // 16) + q % 8

    def words(self, which: int) -> int:
        return self.regs_of(which)

    @property
    def halves(self) -> int:
        return self.m // 16

    def element(self, o: Ops, words: list[str], i: int, kind: str) -> str:
        return small_element(o, words, i, kind, True) if kind in ("fp8", "bf8") else element(o, words, i, kind, False)

    def scale(self, values: list[list[str]], o: Ops, words: list[str], which: int) -> list[list[str]]:
        if not self.scaled:
            return values
        return [self._scaled(o, v, words[self.regs_of(which) :], which, half) for half, v in enumerate(values)]

    def staged_like(self, which: int) -> object:
        scales = (self.m, self.scale_rows[which]) if self.scaled else ()
        return self.kinds[which], self.flips[which], self.words(which), scales

    def _scaled(self, o: Ops, values: list[str], words: list[str], which: int, half: int) -> list[str]:
        """A lane's elements times the scales of their k."""
        group = half if self.m == 32 and which == 0 else self.scale_rows[which]
        words = [gather_lanes(o, "i32", x, [16 * group + l % 16 for l in range(32)]) for x in words]
        scales = [e8m0(o, o.lshr(words[s // 4], o.const("i32", 8 * (s % 4)))) for s in range(self.k // self.scaled)]
        upper = o.vector_const("i1", [int(l >= 16) for l in range(32)])
        run = _RUNS[bits_of(self.kinds[which])]
        chosen: dict[tuple[int, int], str] = {}
        out = []
        for i, value in enumerate(values):
            first = i // run * 2 * run + i % run  # k in the lower lane group
            pair = first // self.scaled, (first + run) // self.scaled
            if pair not in chosen:
                chosen[pair] = o.select(upper, "f32", scales[pair[1]], scales[pair[0]])
            out.append(o.bin("fmul", "f32", value, chosen[pair]))
        return out


def _plain(kinds: tuple[str, str], k: int, result: str, c_wide: bool = False) -> Handler:
    """`result`: f16 or bf16 where the sums are given in that; c_wide: C is f32 all the same."""

    def handler(w: Wave, inst: Inst) -> None:
        _take_hints(inst)
        sel = Selectors(inst, 3)
        dst, a, b, c = inst.operands
        product = _of(product_of(w, sel, inst.take("clamp") is not None, kinds, k))
        start = accumulator(w, c, sel, "" if c_wide else result, product)
        words = [vectors(w, op, product.regs_of(i)) for i, op in enumerate((a, b))]
        results(w, dst, sums(w, product, words[0], words[1], start), sel, result, product)

    return handler


def _take_hints(inst: Inst) -> None:
    for name in _HINTS:
        inst.take(name)


def _of(p: WmmaProduct, **more: object) -> Cdna5Product:
    return replace(Cdna5Product(p.lanes, True, p.k, p.kinds, p.flips, p.clamp), **more)  # type: ignore[arg-type]


def _sparse(kinds: tuple[str, str], k: int, result: str) -> Handler:
    bits = bits_of(kinds[0] if kinds[0] != "iu8" else "i8")
    entries = 16 if bits == 16 else 32  # of a lane's index

    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        _take_hints(inst)
        sel = Selectors(inst, 3)
        if inst.take_int("index_key"):
            raise w.fail("index_key (which bits it picks here, no source says)")
        dst, a, b, places = inst.operands
        product = _of(product_of(w, sel, inst.take("clamp") is not None, kinds, k), sparse=True)
        index = _indices(w, vectors(w, places, entries // 16))
        stored = vectors(w, a, product.regs_of(0) // 2)
        half = len(stored) // 2
        words = [x for i in (0, 1) for x in dense(o, stored[half * i : half * (i + 1)], index[i], bits)]
        start = accumulator(w, dst, Selectors(Inst("", "", [], {}, 0, ""), 3), result, product)
        results(w, dst, sums(w, product, words, vectors(w, b, product.regs_of(1)), start), sel, result, product)

    return handler


def _indices(w: Wave, words: list[str]) -> list[str]:
    """The indices of a lane's first and second half of stored elements, from where they lie: the lane groups have a row's entries one after the other, while
    the elements alternate between them."""
    o = w.v
    groups = [[gather_lanes(o, "i32", x, [16 * g + l % 16 for l in range(32)]) for x in words] for g in (0, 1)]
    upper = o.vector_const("i1", [int(l >= 16) for l in range(32)])
    if len(words) == 2:  # 32 entries a lane: a word for each run of 16 elements
        return [o.select(upper, "i32", g[1], g[0]) for g in groups]
    return [o.select(upper, "i32", o.lshr(g[0], o.const("i32", 16)), g[0]) for g in groups]


def _formats(w: Wave, inst: Inst) -> tuple[str, str]:
    found = []
    for name in ("matrix_a_fmt", "matrix_b_fmt"):
        text = (inst.take(name) or "MATRIX_FMT_FP8").removeprefix("MATRIX_FMT_").lower()
        text = FORMATS[int(text)] if text.isdigit() and int(text) < len(FORMATS) else text
        if text not in FORMATS:
            raise w.fail(f"{name}:{text}")
        found.append(text)
    return found[0], found[1]


def _small(scaled: int, m: int) -> Handler:
    """f8f6f4 and f4: formats by modifiers; `scaled`: k that a scale is of."""

    def handler(w: Wave, inst: Inst) -> None:
        _take_hints(inst)
        kinds = _formats(w, inst) if m == 16 else ("fp4", "fp4")
        if not scaled and (bits_of(kinds[0]) == 8) != (bits_of(kinds[1]) == 8):
            raise w.fail("8-bit floats times narrower ones without scales (the one source has two layouts for it)")
        rows = []
        for name in ("matrix_a_scale", "matrix_b_scale"):
            text = (inst.take(name) or "0").removeprefix("MATRIX_SCALE_ROW")
            if text not in ("0", "1"):
                raise w.fail(f"{name}:{text}")
            rows.append(int(text))
        for name in ("matrix_a_scale_fmt", "matrix_b_scale_fmt"):
            if (inst.take(name) or "MATRIX_SCALE_FMT_E8").removeprefix("MATRIX_SCALE_FMT_") not in ("E8", "0"):
                raise w.fail(f"{name} other than E8M0")
        sel = Selectors(inst, 3)
        dst, a, b, c, *scales = inst.operands
        if any(sel.neg_lo[:2]) or any(sel.neg_hi[:2]):
            raise w.fail("signs of small floats")
        flips = ((0, 0), (0, 0))
        product = Cdna5Product(w.lanes, True, 128, kinds, flips, False, m, False, scaled, (rows[0], rows[1]))
        words = [vectors(w, op, product.regs_of(i)) for i, op in enumerate((a, b))]
        if scaled:
            words = [x + _scale_words(w, op, 128 // scaled // 4) for x, op in zip(words, scales)]
        start = accumulator(w, c, sel, "", product)
        results(w, dst, sums(w, product, words[0], words[1], start), sel, "", product)

    return handler


def _scale_words(w: Wave, op: Operand, count: int) -> list[str]:
    if op.kind == "v":
        return vectors(w, op, count)
    if op.kind == "s":
        return [w.v.splat("i32", w.reg("s", op.index + k)) for k in range(count)]
    if op.kind == "int":  # the assembler's inline constants
        return [w.v.const("i32", int(op.value) >> 32 * k) for k in range(count)]
    raise w.fail(f"scales {op.text}")


NAMES: list[str] = []  # of these rows


def _row(name: str, handler: Handler) -> None:
    NAMES.append(name)
    custom(name, "matrix", (12,))(handler)


_row("v_wmma_f32_16x16x4_f32", _plain(("f32", "f32"), 4, ""))
_row("v_wmma_i32_16x16x64_iu8", _plain(("iu8", "iu8"), 64, ""))
_row("v_swmmac_i32_16x16x128_iu8", _sparse(("iu8", "iu8"), 128, ""))
for _t in ("f16", "bf16"):
    for _out in ("f32", _t):
        _result = "" if _out == "f32" else _out
        _row(f"v_wmma_{_out}_16x16x32_{_t}", _plain((_t, _t), 32, _result))
        _row(f"v_swmmac_{_out}_16x16x64_{_t}", _sparse((_t, _t), 64, _result))
_row("v_wmma_bf16f32_16x16x32_bf16", _plain(("bf16", "bf16"), 32, "bf16", c_wide=True))
for _a in ("fp8", "bf8"):
    for _b in ("fp8", "bf8"):
        for _out in ("f32", "f16"):
            _result = "" if _out == "f32" else _out
            for _k in (64, 128):
                _row(f"v_wmma_{_out}_16x16x{_k}_{_a}_{_b}", _plain((_a, _b), _k, _result))
            _row(f"v_swmmac_{_out}_16x16x128_{_a}_{_b}", _sparse((_a, _b), 128, _result))
for _n, _m in (("16x16x128_f8f6f4", 16), ("32x16x128_f4", 32)):
    for _scale, _block in (("", 0), ("scale_", 32), ("scale16_", 16)):
        _row(f"v_wmma_{_scale}f32_{_n}", _small(_block, _m))
