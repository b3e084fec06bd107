"""Machine code of gfx1250 where it is not gfx12's: 64-bit literals, VOPD3, scaled WMMA, tensor copies, scaled offsets.

Source: LLVM 22's VOPDInstructions.td, VOP3PInstructions.td, FLATInstructions.td and its assembler, which `tools/encodings.py` asks.
"""

from __future__ import annotations

from ..isa.matrix import FORMATS
from .inst import Inst, Operand
from .memory import access_of
from .programs import RdnaProgram, adds_constant
from .words import (
    Encoding,
    Mods,
    bits,
    flagged,
    flags_on,
    integer,
    number,
    register,
    signed,
    special,
    vector_of,
)

_LITERAL, _LITERAL64 = 255, 254
_INLINE = 64
_SPECIAL = {230: "src_flat_scratch_base_lo", 231: "src_flat_scratch_base_hi"}
_SIX = ("max_num_f32", "min_num_f32", "dot2acc_f32_f16", "dot2acc_f32_bf16", "", "", "add_nc_u32", "lshlrev_b32")
_DUAL = (
    "fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32", "mul_dx9_zero_f32", "mov_b32", "cndmask_b32",
    *_SIX, "bitop2_b32", "fma_f32", "sub_nc_u32", "lshrrev_b32", "ashrrev_i32", "max_i32", "min_i32", *[""] * 7, "fma_f64", "add_f64", "mul_f64",
    "max_num_f64", "min_num_f64",
)  # fmt: skip
_LD_SCALE = {0x35: 1, 0x3A: 2}  # opcode -> registers of a scale; in front of the product that takes them
_PRODUCTS = {0x33: "f32_16x16x128_f8f6f4", 0x88: "f32_32x16x128_f4"}
_TENSOR = {0xC4: "tensor_load_to_lds", 0xC5: "tensor_store_from_lds"}


class Cdna5Program(RdnaProgram):
    """The instructions of one kernel of gfx1250."""

    dual_names = _DUAL
    packed_bits = 8

    def instruction(self) -> Inst:
        first = int.from_bytes(self.data[self.at : self.at + 4], "little")
        if first >> 24 == 0xCF:
            return self._dual3(self.word(), self.word(), self.word())
        if first >> 26 == 0b110100:
            return self._tensor(self.word() | self.word() << 32 | self.word() << 64)
        if first >> 16 in (0xCC00 | op for op in _LD_SCALE):
            return self._scaled(self.word() | self.word() << 32)
        return super().instruction()

    def source(self, code: int, count: int, accumulate: bool = False) -> Operand:
        if code == _LITERAL64:
            return self._literal64()
        if code in _SPECIAL:
            return special(_SPECIAL[code])
        if code == _LITERAL and self.literal_word() <= _INLINE:  # the assembler would take it for an inline constant
            return integer(self.literal_word(), f"lit({self.literal_word():#x})")
        return super().source(code, count, accumulate)

    def _literal64(self) -> Operand:
        if self.literal is None:
            self.literal = self.word() | self.word() << 32
        return integer(self.literal, f"lit64({self.literal:#x})")

    def constant(self, e: Encoding) -> Operand:
        return self._literal64() if e.name.endswith("_f64") else super().constant(e)

    # VOPD3: three sources each, with signs.
    def _dual3(self, x: int, y: int, z: int) -> Inst:
        if bits(x, 9, 3):
            raise self.fail("VOPD3 with bits that mean nothing")
        first = self._half3(bits(x, 18, 6), x & 511, (bits(y, 16, 8), bits(y, 24, 8)), z & 255, bits(y, 9, 3))
        first.dual = self._half3(
            bits(x, 12, 6), y & 511, (bits(z, 8, 8), bits(z, 16, 8)), bits(z, 24, 8), bits(y, 12, 3)
        )
        return first

    def _half3(self, op: int, src0: int, others: tuple[int, int], dst: int, negative: int) -> Inst:
        name = _DUAL[op] if op < len(_DUAL) else ""
        if not name:
            raise self.fail(f"VOPD3 opcode {op:#x}")
        n = 2 if name.endswith("f64") else 1
        signs = [2 * (negative >> i & 1) for i in range(3)]
        src1, src2 = others
        parts = [register("v", dst, n), flagged(self.source(src0, n), signs[0])]
        if name != "mov_b32":
            parts.append(flagged(register("v", src1, n), signs[1]))
        if name.startswith("fma_"):
            parts.append(flagged(register("v", src2, n), signs[2]))
        elif name == "cndmask_b32":
            parts.append(self.scalar(src2, 1))
        return self.make(f"v_dual_{name}", parts, {"bitop3": f"{src2:#x}"} if name == "bitop2_b32" else {})

    # Matrix products.
    def own_mods(self, e: Encoding, w: int) -> Mods | None:
        if not e.name.startswith(("v_wmma", "v_swmmac")):
            return None
        if e.name.endswith("f8f6f4"):
            mods = self._formats(w)
        else:
            mods = number("index_key", bits(w, 11, 2)) | self._reuse(w ^ (e.halves >> 2) << 14)
        for name, value in (("neg_lo", bits(w, 61, 3)), ("neg_hi", bits(w, 8, 3))):
            mods |= {name: vector_of(value, len(e.operands) - 1)} if value else {}
        return mods | flags_on(bits(w, 15, 1), "clamp")

    @staticmethod
    def _reuse(w: int) -> Mods:
        return flags_on(bits(w, 13, 2), "matrix_a_reuse", "matrix_b_reuse")

    def _formats(self, w: int) -> Mods:
        mods: Mods = {}
        for which, code in zip("ab", self._format_codes(w)):
            if code >= len(FORMATS):
                raise self.fail(f"matrix format {code}")
            mods |= {f"matrix_{which}_fmt": f"MATRIX_FMT_{FORMATS[code].upper()}"} if code else {}
        return mods

    @staticmethod
    def _format_codes(w: int) -> tuple[int, int]:
        return bits(w, 11, 3), bits(w, 59, 2) | bits(w, 14, 1) << 2

    def packed_sizes(self, e: Encoding, w: int) -> list[int] | None:
        """Registers of A and B, where formats decide."""
        if not e.name.endswith("f8f6f4"):
            return None
        return [16 if c < 2 else 12 if c < 4 else 8 for c in self._format_codes(w)]

    def _scaled(self, w: int) -> Inst:
        """The load of the scales and the product behind it are one instruction of LLVM's."""
        n = _LD_SCALE[bits(w, 16, 8)]
        scales = [self.source(bits(w, 32 + 9 * i, 9), n) for i in (0, 1)]
        mods = {f"matrix_{m}_scale": "MATRIX_SCALE_ROW1" for m, at in (("a", 11), ("b", 59)) if bits(w, at, 1)}
        mods |= self._reuse(w)
        known = 0xFF << 16 | 0xCC << 24 | 1 << 11 | 3 << 13 | (0x3FFFF << 32) | 1 << 59 | 0x80 << 50
        if w & ~known & ~(bits(w, 50, 9) << 50):
            raise self.fail("fields of scales")
        after = int.from_bytes(self.data[self.at : self.at + 4], "little")
        if after >> 24 != 0xCC or after >> 16 & 255 not in _PRODUCTS:
            return self.make(f"v_wmma_ld_scale{'16' * (n == 2)}_paired_b{32 * n}", scales, mods)
        product = self.packed(self.word() | self.word() << 32)
        product.op = product.op.replace("v_wmma_", "v_wmma_scale16_" if n == 2 else "v_wmma_scale_")
        product.operands += scales
        product.mods |= mods
        return product

    # Memory.
    def _tensor(self, w: int) -> Inst:
        op = bits(w, 14, 8)
        if op not in _TENSOR:
            raise self.fail(f"VIMAGE opcode {op:#x}")
        groups = [bits(w, 64 + 8 * i, 8) for i in range(4)]
        parts = [self.scalar(g, n) for g, n in zip(groups, (4, 8, 4, 4)) if g != 124]
        return self.make(_TENSOR[op], parts, self.policy(bits(w, 52, 3), bits(w, 50, 2), access_of(_TENSOR[op])))

    def flat_mods(self, w: int) -> Mods:
        return flags_on(bits(w, 48, 1) | bits(w, 7, 1) << 1, "scale_offset", "nv")

    def buffer_mods(self, w: int) -> Mods:
        return flags_on(bits(w, 7, 1), "nv")

    def load_mods(self, w: int) -> Mods:
        return flags_on(bits(w, 56, 1) | bits(w, 20, 1) << 1, "scale_offset", "nv") | super().load_mods(w)

    def _addresses(self, found: list[tuple[int, Inst | None]]) -> None:
        """Sums of the program counter and a constant, which are one instruction here; jumps by a constant."""
        for k, (_, inst) in enumerate(found[:-1]):
            if inst is None:
                continue
            after = found[k + 1][0]
            if inst.op == "s_add_pc_i64" and inst.operands[0].kind == "int":
                goal = after + signed(int(inst.operands[0].value) & (1 << 64) - 1, 64)
                if 0 <= goal <= len(self.data):
                    found[k] = found[k][0], self.branch(goal)
            elif inst.op == "s_getpc_b64" and inst.operands[0].text[:2] == "s[":
                for n in range(k + 1, min(k + 9, len(found))):
                    own = found[n][1]
                    if (
                        own is not None
                        and own.op in ("s_add_nc_u64", "s_add_u64")
                        and adds_constant(own, inst.operands[0].text)
                    ):
                        goal = after + signed(int(own.operands[2].value) & (1 << 64) - 1, 64)
                        own.operands[2] = self.symbol(goal, "rel64", 4 * (n - k))
                        break
