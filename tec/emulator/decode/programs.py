"""The instructions of a kernel by its words: which encoding each is of on a chip, and what is found relative to the program counter.

Every field of an encoding is read or must be zero: what is not known raises `UnsupportedInstruction` with the word and its place.
Sources: "AMD Instinct MI300 Instruction Set Architecture", and "RDNA 2", "RDNA3", "RDNA3.5" and "RDNA4 Instruction Set Architecture", chapter
"Microcode Formats".
"""

from __future__ import annotations

from .image import Images
from .inst import Inst, Operand
from .memory import Memories
from .rdna_vector import RdnaVectors
from .scalars import Scalars
from .vector import Vectors
from .words import SYMBOL, bits, signed

_SUMS = frozenset(("s_add_u32", "s_addc_u32", "s_add_co_u32", "s_add_co_ci_u32"))
_NEAR = 9  # instructions within which LLVM writes such a sum


class Program(Scalars, Memories):
    """The instructions of one kernel; a generation's decoder reads one at `at` (`instruction`)."""

    names: dict[int, str] = {}  # of functions, by address

    def instruction(self) -> Inst:
        w = self.word()
        if w >> 31 == 0:
            return self.vector(w)
        if w >> 30 == 2:
            return self.scalar_alu(w)
        return self.longer(w)

    def vector(self, w: int) -> Inst:
        """A vector instruction of one word, or with a literal or DPP behind it."""
        raise NotImplementedError

    def longer(self, w: int) -> Inst:
        """An instruction of two words or more, of which `w` is the first."""
        raise NotImplementedError

    def next(self) -> Inst:
        """The instruction that begins at `at`."""
        self.start, self.literal = self.at, None
        return self.instruction()

    def instructions(self) -> list[tuple[int, Inst | None]]:
        """All, by their offset; None where one is of no meaning beside a branch that stands for several."""
        found: list[tuple[int, Inst | None]] = []
        while self.at + 4 <= len(self.data):
            start = self.at
            found.append((start, self.next()))
        self._addresses(found)
        return found

    def symbol(self, goal: int, reloc: str, addend: int) -> Operand:
        """What stands at offset `goal`, relative to an instruction."""
        at = self.entry + goal
        return Operand("symbol", self.names.get(at, f"{SYMBOL}{at:x}"), reloc=reloc, addend=addend)

    def branch(self, goal: int) -> Inst:
        return self.make("s_branch", [self.label(goal)])

    def _addresses(self, found: list[tuple[int, Inst | None]]) -> None:
        """Sums of the program counter and constants as symbols; a jump to one as a branch."""
        for k, (_, inst) in enumerate(found):
            if inst is None or inst.op != "s_getpc_b64" or inst.operands[0].text[:2] != "s[":
                continue
            pair = inst.operands[0]
            sums: list[tuple[int, Inst]] = []  # the additions to the lower and the upper half
            for n in range(k + 1, min(k + _NEAR, len(found))):
                own = found[n][1]
                if own is not None and own.op in _SUMS and adds_constant(own, f"s{pair.index + len(sums)}"):
                    sums.append((n, own))
                if len(sums) == 2:
                    break
            if len(sums) < 2:
                continue
            (low, first), (high, second) = sums
            a, b = (int(i.operands[2].value) & 0xFFFFFFFF for i in (first, second))
            goal = found[k + 1][0] + signed(b << 32 | a, 64)
            for n in range(high + 1, min(high + 3, len(found))):
                jump = found[n][1]
                if (
                    jump is not None
                    and jump.op == "s_setpc_b64"
                    and jump.operands[0] == pair
                    and 0 <= goal <= len(self.data)
                ):
                    for m in (k, low, high):
                        found[m] = found[m][0], None
                    found[n] = found[n][0], self.branch(goal)
                    break
            else:
                # The addends count the words since s_getpc as LLVM's text does, one an instruction and one a symbol.
                for own, part, after in ((first, "lo", 4 * (low - k)), (second, "hi", 4 * (high - k) + 4)):
                    own.operands[2] = self.symbol(goal, f"rel32@{part}", after)


def adds_constant(inst: Inst, to: str) -> bool:
    """Whether an addition is of a constant to a register of that name."""
    return inst.operands[0].text == inst.operands[1].text == to and inst.operands[2].kind == "int"


class Gfx9Program(Vectors, Images, Program):
    """The instructions of one kernel of gfx9."""

    def longer(self, w: int) -> Inst:
        read = {
            0b110000: self.smem, 0b110100: self._long, 0b110110: self.lds, 0b110111: self.flat9, 0b111000: self.buffer, 0b111010: self.typed,
            0b111100: self.image,
        }.get(w >> 26)  # fmt: skip
        if read is None:
            raise self.fail("an encoding that is not known")
        return read(w | self.word() << 32)

    def _long(self, w: int) -> Inst:
        return self.packed(w) if bits(w, 23, 9) == 0b110100111 else self.vop3(w)


class RdnaProgram(RdnaVectors, Images, Program):
    """The instructions of one kernel of gfx10.3, gfx11 or gfx12."""

    def longer(self, w: int) -> Inst:
        kind = bits(w, 26, 6)
        w |= self.word() << 32
        if kind == 0b110010 and self.gfx >= 11:
            return self.dual(w)
        if bits(w, 24, 8) == 0b11001100:
            return self.packed(w)
        both = {0b110101: self.vop3, 0b111101: self.scalar_load, 0b110110: self.lds}
        if kind in both:
            return both[kind](w)
        if self.gfx < 12:
            old = {0b110111: self.flat, 0b111000: self.buffer, 0b111010: self.typed, 0b111100: self.image}
            if kind in old:
                return old[kind](w)
        else:
            new = {0b111011: self.flat12, 0b110001: self.buffer12, 0b110100: self.image12, 0b111001: self.image12}
            if kind in new:
                return new[kind](w | self.word() << 64)
        raise self.fail("an encoding that is not known")
