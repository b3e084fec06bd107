"""A code object's machine code to assembly text, for chips whose encodings are known (gfx90a, gfx942, gfx950).

In: a `CodeObject`. Out: the text of its kernels in LLVM's syntax, which `asmparse` reads. Every field of an encoding is read or must be zero: what is not
known raises `UnsupportedInstruction` with the word and its place. Constants that code finds relative to the program counter
become symbols `__tec_at_<address>`.

`encodings_gfx9.txt` names the opcodes: encoding, opcode, mnemonic, chips (a: gfx90a, b: gfx942, c: gfx950), operands (register file and
dwords; for memory the field: D result, A address, 0 and 1 data). VOP1, VOP2 and VOPC stand under their VOP3 opcodes.
Source: "AMD Instinct MI300 Instruction Set Architecture", chapter "Microcode Formats".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

from ..runtime.codeobject import CodeObject, KernelInfo
from .asmparse import TTMP0
from .errors import UnsupportedInstruction

_CHIPS = {"gfx90a": "a", "gfx942": "b", "gfx950": "c"}
SYMBOL = "__tec_at_"  # before the hexadecimal address that such a symbol stands for
_NAMED = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494")
_SPECIAL = {
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit", 251: "src_vccz",
    252: "src_execz", 253: "src_scc",
}  # fmt: skip
_SDWA, _DPP, _LITERAL = 249, 250, 255
_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_CARRY = frozenset(f"v_{n}_co_u32" for n in ("add", "sub", "subrev", "addc", "subb", "subbrev"))
_READS_CARRY = frozenset(("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32", "v_cndmask_b32"))
_TWO_RESULTS = _CARRY | {"v_div_scale_f32", "v_div_scale_f64", "v_mad_u64_u32", "v_mad_i64_i32"}
_HWREG = {1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 20: "HW_REG_XCC_ID"}
_MESSAGES = {1: "MSG_INTERRUPT", 4: "MSG_SAVEWAVE", 9: "MSG_GS_ALLOC_REQ"}


@dataclass(frozen=True, slots=True)
class Encoding:
    name: str
    operands: tuple[tuple[str, int], ...]


@cache
def encodings(chip: str) -> dict[tuple[str, int], Encoding]:
    """(encoding, opcode) -> mnemonic and operands on `chip`."""
    out = {}
    with open(os.path.join(os.path.dirname(__file__), "encodings_gfx9.txt")) as file:
        for line in file:
            kind, op, name, chips, *operands = line.split()
            if _CHIPS[chip] in chips:
                out[kind, int(op, 16)] = Encoding(name, tuple((o[0], int(o[1:])) for o in operands))
    return out


def can_disassemble(chip: str) -> bool:
    return chip in _CHIPS


def disassemble(code: CodeObject) -> str:
    """The assembly of every kernel of a code object."""
    lines = [f'.amdgcn_target "amdgcn-amd-amdhsa--{code.chip}"']
    for info in code.kernels.values():
        lines += [
            f"{info.name}:",
            *Decoder(code.chip, _machine_code(code, info), info.name, info.entry).lines(),
            f".Lfunc_end_{len(lines)}:",
        ]
    return "\n".join(lines) + "\n"


def _machine_code(code: CodeObject, info: KernelInfo) -> bytes:
    """A kernel's bytes: as many as its symbol says, else to the end of the segment."""
    segment = next((s for s in code.segments if s.vaddr <= info.entry < s.vaddr + len(s.data)), None)
    if segment is None:
        raise UnsupportedInstruction("the kernel's entry lies in no segment", kernel=info.name)
    start = info.entry - segment.vaddr
    symbol = code.symbols.get(info.name)
    return segment.data[start : start + symbol.size if symbol is not None and symbol.size else None]


def _bits(word: int, low: int, count: int) -> int:
    return word >> low & ((1 << count) - 1)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def register(kind: str, index: int, count: int) -> str:
    return f"{kind}{index}" if count == 1 else f"{kind}[{index}:{index + count - 1}]"


def scalar(index: int, count: int) -> str:
    """A scalar register by its number in operand encodings below 128."""
    for first, name in _NAMED.items():
        if first <= index <= first + 1 and index >= 102:
            if count == 2 and index == first:
                return name
            if count == 1:
                return f"{name}_{('lo', 'hi')[index - first]}"
    if index == 124:
        return "m0"
    if index >= TTMP0:
        return f"ttmp{index - TTMP0}" if count == 1 else f"ttmp[{index - TTMP0}:{index - TTMP0 + count - 1}]"
    return register("s", index, count)


class Decoder:
    """The instructions in `data`, the machine code of `kernel` that begins at virtual address `entry`."""

    def __init__(self, chip: str, data: bytes, kernel: str = "", entry: int = 0):
        self.chip, self.data, self.kernel, self.entry = chip, data, kernel, entry
        self.table = encodings(chip)
        self.at = self.start = 0  # offsets in data: of what is read next, of the instruction
        self.literal: int | None = None
        self.targets: set[int] = set()

    def fail(self, what: str) -> UnsupportedInstruction:
        word = self.data[self.start : self.start + 8].hex()
        return UnsupportedInstruction(
            f"not decoded on {self.chip}: {what} (bytes {word} at {self.entry + self.start:#x})", kernel=self.kernel,
            hint="give the assembly beside the code object (kernel.s)",
        )  # fmt: skip

    def lines(self) -> list[str]:
        found: list[tuple[int, str]] = []
        while self.at + 4 <= len(self.data):
            self.start, self.literal = self.at, None
            found.append((self.start, self.instruction()))
        self._addresses(found)
        out = []
        for at, text in found:
            if at in self.targets:
                out.append(f".L_{at:x}:")
            if text:
                out.append(f"\t{text}")
        if len(self.data) in self.targets:
            out.append(f".L_{len(self.data):x}:")
        return out

    def _addresses(self, found: list[tuple[int, str]]) -> None:
        """Sums of the program counter and constants as symbols; a jump to one as a branch."""
        for k in range(len(found) - 2):
            if not found[k][1].startswith("s_getpc_b64"):
                continue
            texts = [t for _, t in found[k : k + 4]]
            m = re.match(
                r"s_getpc_b64 s\[(\d+):(\d+)\]\ns_add_u32 s\1, s\1, (\S+)\ns_addc_u32 s\2, s\2, (\S+)(?:\n(s_setpc_b64 s\[\1:\2\]))?$",
                "\n".join(texts[: 4 if texts[-1].startswith("s_setpc") else 3]),
            )
            if m is None:
                continue
            after = found[k + 1][0]
            delta = (int(m[4], 0) & 0xFFFFFFFF) << 32 | (int(m[3], 0) & 0xFFFFFFFF)
            goal = after + _signed(delta, 64)
            if m[5]:
                self.targets.add(goal)
                found[k] = found[k][0], f"s_branch .L_{goal:x}"
                for n in (1, 2, 3):
                    found[k + n] = found[k + n][0], ""
                continue
            name = f"{SYMBOL}{self.entry + goal:x}"
            found[k + 1] = found[k + 1][0], f"s_add_u32 s{m[1]}, s{m[1]}, {name}@rel32@lo+4"
            found[k + 2] = found[k + 2][0], f"s_addc_u32 s{m[2]}, s{m[2]}, {name}@rel32@hi+12"

    # Words.
    def word(self) -> int:
        if self.at + 4 > len(self.data):
            raise self.fail("the code ends within an instruction")
        self.at += 4
        return int.from_bytes(self.data[self.at - 4 : self.at], "little")

    def find(self, kind: str, op: int) -> Encoding:
        found = self.table.get((kind, op))
        if found is None:
            raise self.fail(f"{kind} opcode {op:#x}")
        return found

    def source(self, code: int, count: int, accumulate: bool = False) -> str:
        """A 9-bit source operand."""
        if code >= 256:
            return register("a" if accumulate else "v", code - 256, count)
        if code < 128:
            return scalar(code, count)
        if code <= 192:
            return str(code - 128)
        if code <= 208:
            return str(192 - code)
        if 240 <= code <= 248:
            return _FLOATS[code - 240]
        if code in _SPECIAL:
            return _SPECIAL[code]
        if code == _LITERAL:
            if self.literal is None:
                self.literal = self.word()
            return f"{self.literal:#x}"
        raise self.fail(f"source operand {code}")

    def instruction(self) -> str:
        w = self.word()
        if w >> 31 == 0:
            return self.vector(w)
        if w >> 30 == 2:
            return self.scalar(w)
        kind = w >> 26
        if kind == 0b110000:
            return self.smem(w | self.word() << 32)
        if kind == 0b110100:
            w |= self.word() << 32
            return self.packed(w) if _bits(w, 23, 9) == 0b110100111 else self.vop3(w)
        if kind == 0b110110:
            return self.lds(w | self.word() << 32)
        if kind == 0b110111:
            return self.flat(w | self.word() << 32)
        if kind == 0b111000:
            return self.buffer(w | self.word() << 32)
        raise self.fail("an encoding that is not known")

    # Scalar.
    def scalar(self, w: int) -> str:
        if _bits(w, 23, 9) == 0b101111111:
            return self.program(self.find("SOPP", _bits(w, 16, 7)).name, w & 0xFFFF)
        if _bits(w, 23, 9) == 0b101111110:
            e = self.find("SOPC", _bits(w, 16, 7))
            fields = [w & 255, _bits(w, 8, 8)]
        elif _bits(w, 23, 9) == 0b101111101:
            e = self.find("SOP1", _bits(w, 8, 8))
            fields = [_bits(w, 16, 7), w & 255]
            if len(e.operands) == 1:
                fields = [fields[1]] if e.name in ("s_setpc_b64", "s_rfe_b64", "s_set_gpr_idx_idx") else [fields[0]]
        elif _bits(w, 28, 4) == 0b1011:
            return self.sopk(w)
        else:
            e = self.find("SOP2", _bits(w, 23, 7))
            fields = [_bits(w, 16, 7), w & 255, _bits(w, 8, 8)]
        if len(fields) != len(e.operands):
            raise self.fail(f"{e.name} with {len(fields)} operands")
        return f"{e.name} " + ", ".join(self.source(f, n) for f, (_, n) in zip(fields, e.operands))

    def sopk(self, w: int) -> str:
        e = self.find("SOPK", _bits(w, 23, 5))
        imm = w & 0xFFFF
        if "reg" in e.name:
            number = imm & 63
            if number not in _HWREG:
                raise self.fail(f"hardware register {number}")
            text = f"hwreg({_HWREG[number]}, {_bits(imm, 6, 5)}, {_bits(imm, 11, 5) + 1})"
            if e.name == "s_setreg_imm32_b32":
                return f"{e.name} {text}, {self.word():#x}"
            raise self.fail(e.name)
        if e.name.startswith(("s_cbranch", "s_call")):
            raise self.fail(e.name)
        return f"{e.name} {scalar(_bits(w, 16, 7), e.operands[0][1])}, {imm:#x}"

    def program(self, name: str, imm: int) -> str:
        if name.startswith(("s_branch", "s_cbranch")):
            goal = self.at + 4 * _signed(imm, 16)
            self.targets.add(goal)
            return f"{name} .L_{goal:x}"
        if name == "s_waitcnt":
            parts = []
            for label, value, most in (("vmcnt", imm & 15 | _bits(imm, 14, 2) << 4, 63), ("expcnt", _bits(imm, 4, 3), 7),
                                       ("lgkmcnt", _bits(imm, 8, 4), 15)):  # fmt: skip
                if value != most:
                    parts.append(f"{label}({value})")
            return f"s_waitcnt {' '.join(parts)}" if parts else "s_nop 0"
        if name == "s_sendmsg":
            if imm not in _MESSAGES:
                raise self.fail(f"message {imm}")
            return f"s_sendmsg sendmsg({_MESSAGES[imm]})"
        return f"{name} {imm}" if imm or name in ("s_nop", "s_setprio", "s_sleep") else name

    def smem(self, w: int) -> str:
        e = self.find("SMEM", _bits(w, 18, 8))
        if e.name.startswith(("s_mem", "s_dcache")):
            return f"{e.name} {scalar(_bits(w, 6, 7), 2)}" if e.name.startswith("s_mem") else e.name
        if _bits(w, 15, 1) or len(e.operands) < 2:
            raise self.fail(e.name)
        offset, base = _signed(_bits(w, 32, 21), 21), scalar(2 * (w & 63), e.operands[1][1])
        parts = [scalar(_bits(w, 6, 7), e.operands[0][1]), base]
        if _bits(w, 14, 1):  # an SGPR offset, beside the constant where there is one
            if _bits(w, 17, 1) and offset:
                raise self.fail("an SGPR and a constant offset")
            parts.append(scalar(_bits(w, 57, 7), 1))
        else:
            parts.append(hex(offset) if _bits(w, 17, 1) else scalar(_bits(w, 32, 7), 1))
        return f"{e.name} {', '.join(parts)}" + (" glc" if _bits(w, 16, 1) else "")

    # Vector.
    def vector(self, w: int) -> str:
        if _bits(w, 25, 7) == 0b0111110:
            e = self.find("V", _bits(w, 17, 8))
            return self._short(e, w & 511, _bits(w, 9, 8), None)
        if _bits(w, 25, 7) == 0b0111111:
            e = self.find("V", 0x140 + _bits(w, 9, 8))
            return self._short(e, w & 511, None, _bits(w, 17, 8))
        e = self.find("V", 0x100 + _bits(w, 25, 6))
        return self._short(e, w & 511, _bits(w, 9, 8), _bits(w, 17, 8))

    def _short(self, e: Encoding, src0: int, src1: int | None, dst: int | None) -> str:
        """VOP1, VOP2 and VOPC, with DPP, SDWA or a literal after them."""
        if not e.operands:
            return e.name
        ops = list(e.operands)
        parts: list[str] = []
        suffix, tail, more = "", "", 0
        if src0 in (_SDWA, _DPP):
            more = self.word()
            suffix = "_sdwa" if src0 == _SDWA else "_dpp"
        if dst is None:
            parts.append("vcc" if not (suffix == "_sdwa" and more >> 15 & 1) else scalar(_bits(more, 8, 7), 2))
        elif ops[0][0] == "s":
            parts.append(scalar(dst, ops[0][1]))
        else:
            parts.append(register(ops[0][0] if ops[0][0] != "?" else "v", dst, ops[0][1]))
        if e.name in _CARRY:
            parts.append("vcc")
            del ops[1]
        if suffix:
            scalar0 = suffix == "_sdwa" and more >> 23 & 1
            first = scalar(more & 255, 1) if scalar0 else register("v", more & 255, ops[1][1])
            second = (
                None
                if src1 is None
                else scalar(src1, 1)
                if suffix == "_sdwa" and more >> 31 & 1
                else register("v", src1, ops[2][1])
            )
            flags0, flags1 = (
                (_bits(more, 19, 3), _bits(more, 27, 3))
                if suffix == "_sdwa"
                else (_bits(more, 20, 2) << 1, _bits(more, 22, 2) << 1)
            )
            parts.append(_flagged(first, flags0))
            if second is not None:
                parts.append(_flagged(second, flags1))
            tail = self._sdwa(more, src1 is not None, dst is None) if suffix == "_sdwa" else self._dpp(more)
        else:
            parts.append(
                self.source(src0, ops[1][1], e.name.startswith("v_accvgpr") and len(ops) > 1 and ops[1][0] == "a")
            )
            if e.name.startswith(("v_fmamk", "v_madmk")):
                parts.append(f"{self.word():#x}")
            if src1 is not None:
                parts.append(
                    register("v", src1, ops[-1][1] if e.name.startswith(("v_fmamk", "v_madmk")) else ops[2][1])
                )
            if e.name.startswith(("v_fmaak", "v_madak")):
                parts.append(f"{self.word():#x}")
        if e.name in _READS_CARRY:
            parts.append("vcc")
        only_short = e.name.startswith(("v_fmamk", "v_fmaak", "v_madmk", "v_madak", "v_accvgpr"))
        return f"{e.name}{suffix or ('' if only_short else '_e32')} {', '.join(parts)}{tail}"

    def _sdwa(self, w: int, two: bool, compare: bool) -> str:
        out = ""
        if not compare:
            if _bits(w, 13, 1):
                out += " clamp"
            out += ("", " mul:2", " mul:4", " div:2")[_bits(w, 14, 2)]
            out += f" dst_sel:{_SELECT[_bits(w, 8, 3)]} dst_unused:{('UNUSED_PAD', 'UNUSED_SEXT', 'UNUSED_PRESERVE')[_bits(w, 11, 2)]}"
        out += f" src0_sel:{_SELECT[_bits(w, 16, 3)]}"
        return out + (f" src1_sel:{_SELECT[_bits(w, 24, 3)]}" if two else "")

    def _dpp(self, w: int) -> str:
        control = _bits(w, 8, 9)
        if control < 0x100:
            text = f"quad_perm:[{','.join(str(control >> 2 * i & 3) for i in range(4))}]"
        elif 0x101 <= control <= 0x12F and control & 15:
            text = f"{('row_shl', 'row_shr', 'row_ror')[(control >> 4) - 16]}:{control & 15}"
        elif control in (0x130, 0x134, 0x138, 0x13C):
            text = {0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1"}[control]
        elif control in (0x140, 0x141, 0x142, 0x143):
            text = {0x140: "row_mirror", 0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31"}[
                control
            ]
        elif 0x150 <= control <= 0x15F:
            text = f"row_newbcast:{control & 15}"
        else:
            raise self.fail(f"DPP control {control:#x}")
        return f" {text} row_mask:{_bits(w, 28, 4):#x} bank_mask:{_bits(w, 24, 4):#x}" + (
            " bound_ctrl:0" if _bits(w, 19, 1) else ""
        )

    def vop3(self, w: int) -> str:
        e = self.find("V", _bits(w, 16, 10))
        ops = list(e.operands)
        kind, count = ops.pop(0) if ops else ("v", 0)
        parts = [scalar(w & 255, count) if kind == "s" else register("v", w & 255, count)] if count else []
        absolute, select = _bits(w, 8, 3), _bits(w, 11, 4)
        if e.name in _TWO_RESULTS:
            parts.append(scalar(_bits(w, 8, 7), 2))
            ops.pop(0)
            absolute = select = 0
        negative = _bits(w, 61, 3)
        if e.name.startswith("v_bitop3"):
            table = _bits(w, 59, 2) << 6 | absolute << 3 | negative
            sources = ", ".join(self.source(_bits(w, 32 + 9 * i, 9), n) for i, (_, n) in enumerate(ops))
            halves = f" op_sel:[{','.join(str(select >> i & 1) for i in range(4))}]" if select else ""
            return f"{e.name} {parts[0]}, {sources} bitop3:{table:#x}{halves}"
        for i, (_, n) in enumerate(ops):
            parts.append(
                _flagged(self.source(_bits(w, 32 + 9 * i, 9), n), (absolute >> i & 1) << 2 | (negative >> i & 1) << 1)
            )
        if (absolute | negative) >> len(ops):
            raise self.fail("flags of operands that it has not")
        tail = ""
        if select:
            chosen = [select >> i & 1 for i in range(len(ops))] + [select >> 3]
            tail += f" op_sel:[{','.join(map(str, chosen))}]"
        if _bits(w, 15, 1):
            tail += " clamp"
        long = "_e64" if _bits(w, 16, 10) < 0x200 else ""  # there is a short form
        return f"{e.name}{long} {', '.join(parts)}{tail}" + ("", " mul:2", " mul:4", " div:2")[_bits(w, 59, 2)]

    def packed(self, w: int) -> str:
        e = self.find("VOP3P", _bits(w, 16, 7))
        ops = e.operands
        if "mfma" in e.name:
            acc, wide = _bits(w, 59, 2), _bits(w, 15, 1)
            parts = [register("a" if wide else "v", w & 255, ops[0][1])]
            for i, (_, n) in enumerate(ops[1:]):
                parts.append(self.source(_bits(w, 32 + 9 * i, 9), n, bool(acc >> i & 1 if i < 2 else wide)))
            last = _bits(w, 61, 3)
            tail = "".join(f" {n}:{v}" for n, v in (("cbsz", _bits(w, 8, 3)), ("abid", _bits(w, 11, 4))) if v)
            if last:  # f64 has signs there since gfx942
                signs = "f64" in e.name and self.chip != "gfx90a"
                tail += f" neg:[{last & 1},{last >> 1 & 1},{last >> 2}]" if signs else f" blgp:{last}"
            return f"{e.name} {', '.join(parts)}{tail}"
        if e.name.startswith("v_accvgpr"):
            return self._accumulator(e, w)
        n = len(ops) - 1
        parts = [register("v", w & 255, ops[0][1])]
        high, low = _bits(w, 8, 3), _bits(w, 61, 3)
        mix = e.name.startswith(("v_fma_mix", "v_mad_mix"))
        for i, (_, count) in enumerate(ops[1:]):
            flags = (high >> i & 1) << 2 | (low >> i & 1) << 1 if mix else 0
            parts.append(_flagged(self.source(_bits(w, 32 + 9 * i, 9), count), flags))
        halves = _bits(w, 59, 2) | _bits(w, 14, 1) << 2
        tail = ""
        every = (1 << n) - 1
        for name, value, default in (
            ("op_sel", _bits(w, 11, 3), 0),
            ("op_sel_hi", halves, 0 if mix else every),
            ("neg_lo", 0 if mix else low, 0),
            ("neg_hi", 0 if mix else high, 0),
        ):
            if value & every != default:
                tail += f" {name}:[{','.join(str(value >> i & 1) for i in range(n))}]"
        return f"{e.name} {', '.join(parts)}{tail}" + (" clamp" if _bits(w, 15, 1) else "")

    def _accumulator(self, e: Encoding, w: int) -> str:
        read = e.name.startswith("v_accvgpr_read")
        return f"{e.name} {register('v' if read else 'a', w & 255, 1)}, {self.source(_bits(w, 32, 9), 1, read)}"

    # Memory.
    def lds(self, w: int) -> str:
        e = self.find("DS", _bits(w, 17, 8))
        file = "a" if _bits(w, 25, 1) else "v"
        fields = {
            "A": ("v", _bits(w, 32, 8)),
            "0": (file, _bits(w, 40, 8)),
            "1": (file, _bits(w, 48, 8)),
            "D": (file, _bits(w, 56, 8)),
        }
        if _bits(w, 16, 1):
            raise self.fail("GDS")
        parts = [register(*fields[k], n) for k, n in e.operands]
        if re.match(r"ds_(read2|write2|wrxchg2)", e.name):
            tail = "".join(f" offset{i}:{v}" for i, v in enumerate((w & 255, _bits(w, 8, 8))) if v)
        elif e.name == "ds_swizzle_b32":
            tail = f" offset:{w & 0xFFFF}"
        else:
            tail = f" offset:{w & 0xFFFF}" if w & 0xFFFF else ""
        return f"{e.name} {', '.join(parts)}{tail}".rstrip()

    def _policy(self, w: int, sc1: int) -> str:
        names = ("glc", "slc", "scc") if self.chip == "gfx90a" else ("sc0", "nt", "sc1")
        return "".join(f" {n}" for n, bit in zip(names, (_bits(w, 16, 1), _bits(w, 17, 1), sc1)) if bit)

    def flat(self, w: int) -> str:
        segment = _bits(w, 14, 2)
        e = self.find("FLAT", segment << 8 | _bits(w, 18, 7))
        if _bits(w, 13, 1) and (segment != 1 or self.chip == "gfx90a"):
            raise self.fail("a load into LDS")
        count = e.operands[0][1] if e.operands else 1
        file = "a" if _bits(w, 55, 1) else "v"
        base = _bits(w, 48, 7)
        has_base = segment != 0 and base != 127
        result, data = register(file, _bits(w, 56, 8), count), register(file, _bits(w, 40, 8), count)
        if segment == 1:
            uses = _bits(w, 13, 1) if self.chip != "gfx90a" else not has_base
            address = register("v", _bits(w, 32, 8), 1) if uses else "off"
        else:
            address = register("v", _bits(w, 32, 8), 1 if has_base else 2)
        tail = [] if segment == 0 else [scalar(base, 1 if segment == 1 else 2) if has_base else "off"]
        if "load" in e.name:
            parts = [result, address, *tail]
        elif "store" in e.name:
            parts = [address, data, *tail]
        else:
            returned = (
                [register(file, _bits(w, 56, 8), count // 2 if "cmpswap" in e.name else count)]
                if _bits(w, 16, 1)
                else []
            )
            parts = [*returned, address, data, *tail]
        offset = _bits(w, 0, 13) if segment else _bits(w, 0, 12)
        offset = _signed(offset, 13) if segment else offset
        return (
            f"{e.name} {', '.join(parts)}" + (f" offset:{offset}" if offset else "") + self._policy(w, _bits(w, 25, 1))
        )

    def buffer(self, w: int) -> str:
        e = self.find("MUBUF", _bits(w, 18, 7))
        sc1 = _bits(w, 15, 1)
        policy = "".join(
            f" {n}"
            for n, bit in zip(
                ("glc", "slc", "scc") if self.chip == "gfx90a" else ("sc0", "nt", "sc1"),
                (_bits(w, 14, 1), _bits(w, 17, 1), sc1),
            )
            if bit
        )
        if "load" not in e.name and "store" not in e.name and "atomic" not in e.name:
            return e.name + policy
        if _bits(w, 16, 1):
            raise self.fail("a load into LDS")
        file = "a" if _bits(w, 55, 1) else "v"
        both = _bits(w, 12, 2)
        address = register("v", _bits(w, 32, 8), 2 if both == 3 else 1) if both else "off"
        parts = [
            register(file, _bits(w, 40, 8), e.operands[0][1]),
            address,
            scalar(4 * _bits(w, 48, 5), 4),
            self.source(_bits(w, 56, 8), 1),
        ]
        tail = (" idxen" if both & 2 else "") + (" offen" if both & 1 else "")
        offset = w & 0xFFF
        return f"{e.name} {', '.join(parts)}{tail}" + (f" offset:{offset}" if offset else "") + policy


def _flagged(text: str, flags: int) -> str:
    """Sign extension (1), negation (2) and absolute value (4) around an operand."""
    if flags & 1:
        text = f"sext({text})"
    if flags & 4:
        text = f"|{text}|"
    return f"-{text}" if flags & 2 else text
