"""Memory instructions from machine code, for every chip: LDS, flat, global, scratch and buffer."""

from __future__ import annotations

import re

from .inst import Inst, Operand
from .words import BEFORE_GFX940, OFF, Encoding, Mods, Words, bits, flags_on, number, register, scalar, signed

_TWO_PLACES = re.compile(r"ds_(read2|write2|wrxchg2|load_2addr|store_2addr|storexchg_2addr)")


def access_of(name: str) -> str:
    return next((k for k in ("atomic", "store", "load") if k in name), "")


class Memories(Words):
    """Encodings of memory instructions."""

    def lds(self, w: int) -> Inst:
        old = self.gfx == 9
        e = self.find("DS", bits(w, 17 if old else 18, 8))
        gds = bits(w, 16 if old else 17, 1)
        if old and gds != e.name.startswith("ds_gws_"):
            raise self.fail("GDS")
        file = "a" if old and bits(w, 25, 1) else "v"
        fields = {"A": ("v", 32), "0": (file, 40), "1": (file, 48), "D": (file, 56)}
        parts = [register(fields[k][0], bits(w, fields[k][1], 8), n) for k, n in e.operands]
        if _TWO_PLACES.match(e.name):
            mods = number("offset0", w & 255) | number("offset1", bits(w, 8, 8))
        elif e.name == "ds_swizzle_b32":
            mods = {"offset": str(w & 0xFFFF)}
        else:
            mods = number("offset", w & 0xFFFF)
        return self.make(e.name, parts, mods | flags_on(gds, "gds"))

    def _hints(self, *bit: int) -> Mods:
        """Cache hints before gfx12, of bits in the order of their names."""
        names = (
            ("glc", "slc", "dlc")
            if self.gfx > 9
            else ("glc", "slc", "scc")
            if self.chip in BEFORE_GFX940
            else ("sc0", "nt", "sc1")
        )
        return {n: "" for n, b in zip(names, bit) if b}

    def _flat_parts(
        self, e: Encoding, address: Operand, data: Operand, result: Operand, tail: list[Operand], returns: bool
    ) -> list[Operand]:
        if "addtid" in e.name:
            return [*([data] if "store" in e.name else [] if "_lds_" in e.name else [result]), *tail]
        if "prefetch" in e.name or "_load_lds_" in e.name:
            return [address, *tail]
        if "load" in e.name:
            return [result, address, *tail]
        if "store" in e.name:
            return [address, data, *tail]
        if "cmpswap" in e.name:
            result = register(result.kind, result.index, result.count // 2)
        return [*([result] if returns else []), address, data, *tail]

    def flat9(self, w: int) -> Inst:
        segment = bits(w, 14, 2)
        e = self.find("FLAT", segment << 8 | bits(w, 18, 7))
        switch = bits(w, 13, 1)  # of scratch: an address in a register; in gfx90a a load into LDS
        if switch and (segment != 1 or self.chip in BEFORE_GFX940):
            raise self.fail("a load into LDS")
        count = e.operands[0][1] if e.operands else 1
        file = "a" if bits(w, 55, 1) else "v"
        base = bits(w, 48, 7)
        has_base = segment != 0 and base != 127
        address = register("v", bits(w, 32, 8), 1 if segment == 1 or has_base else 2)
        if segment == 1 and not (switch if self.chip not in BEFORE_GFX940 else not has_base):
            address = OFF
        tail = [] if segment == 0 else [scalar(base, 1 if segment == 1 else 2) if has_base else OFF]
        data, result = register(file, bits(w, 40, 8), count), register(file, bits(w, 56, 8), count)
        offset = signed(bits(w, 0, 13), 13) if segment else bits(w, 0, 12)
        mods = number("offset", offset) | self._hints(bits(w, 16, 1), bits(w, 17, 1), bits(w, 25, 1))
        return self.make(e.name, self._flat_parts(e, address, data, result, tail, bool(bits(w, 16, 1))), mods)

    def flat(self, w: int) -> Inst:
        """gfx10 and gfx11."""
        old = self.gfx == 10
        segment = bits(w, 14, 2) if old else bits(w, 16, 2)  # 0 flat, 1 scratch, 2 global
        e = self.find("FLAT", segment << 8 | bits(w, 18, 7))
        if not e.operands:
            return self.make(e.name)
        base = bits(w, 48, 7)
        has_base = segment != 0 and base not in (125 if old else 124, 127)
        on = segment != 1 or (not has_base and base != 127 if old else bits(w, 55, 1))
        hints = [bits(w, at, 1) for at in ((16, 17, 12) if old else (14, 15, 13))]
        parts = self._flat_from10(e, w, segment, base if has_base else -1, bool(on), (32, 40, 56), bool(hints[0]))
        width = 12 if old else 13
        offset = signed(bits(w, 0, width), width) if segment else bits(w, 0, width - 1)
        mods = number("offset", offset) | self._hints(*hints) | flags_on(old and bits(w, 13, 1), "lds")
        return self.make(e.name, parts, mods)

    def _flat_from10(
        self, e: Encoding, w: int, segment: int, base: int, on: bool, at: tuple[int, int, int], returns: bool
    ) -> list[Operand]:
        """`at`: where the numbers of the address's, the data's and the result's registers lie; base: an SGPR's number, or -1."""
        count = e.operands[0][1]
        address = register("v", bits(w, at[0], 8), 1 if segment == 1 or base >= 0 else 2) if on else OFF
        tail = [self.scalar(base, 1 if segment == 1 else 2)] if base >= 0 else [OFF] if segment else []
        data, result = (register("v", bits(w, k, 8), count) for k in at[1:])
        return self._flat_parts(e, address, data, result, tail, returns)

    def flat12(self, w: int) -> Inst:
        segment = bits(w, 24, 2)
        e = self.find("FLAT", segment << 8 | bits(w, 14, 7))
        scope, hint = bits(w, 50, 2), bits(w, 52, 3)
        if not e.operands:
            return self.make(e.name, (), self.policy(hint, scope, "load"))
        kind, base = access_of(e.name), w & 127
        on = segment != 1 or bool(bits(w, 49, 1))
        returns = kind == "atomic" and bool(hint & 1)
        parts = self._flat_from10(e, w, segment, -1 if base == 124 else base, on, (64, 55, 32), returns)
        mods = (
            number("offset", signed(bits(w, 72, 24), 24)) | self.flat_mods(w) | self.policy(hint, scope, kind or "load")
        )
        return self.make(e.name, parts, mods)

    def flat_mods(self, w: int) -> Mods:
        """Modifiers that gfx1250 adds; so `buffer_mods`."""
        return {}

    def buffer_mods(self, w: int) -> Mods:
        return {}

    def buffer_parts(
        self, count: int, file: str, both: int, data: int, address: int, resource: int, offset: int
    ) -> tuple[list[Operand], Mods]:
        """The operands of a buffer instruction and how it finds its address: `both` is 1 with an offset, 2 with an index."""
        at = register("v", address, 2 if both == 3 else 1) if both else OFF
        parts = [register(file, data, count), at, self.scalar(resource, 4), self.source(offset, 1)]
        return parts, flags_on(both >> 1 | (both & 1) << 1, "idxen", "offen")

    def _addressed(self, w: int, count: int) -> tuple[list[Operand], Mods]:
        """`buffer_parts` of the two words that MUBUF and MTBUF have alike up to gfx11."""
        gfx = self.gfx
        if gfx > 9 and bits(w, 55 if gfx == 10 else 53, 1):
            raise self.fail("tfe")
        file = "a" if gfx == 9 and bits(w, 55, 1) else "v"
        both = bits(w, 54, 2) if gfx == 11 else bits(w, 12, 2)
        return self.buffer_parts(count, file, both, bits(w, 40, 8), bits(w, 32, 8), 4 * bits(w, 48, 5), bits(w, 56, 8))

    def buffer(self, w: int) -> Inst:
        gfx = self.gfx
        e = self.find("MUBUF", bits(w, 18, 7) | (bits(w, 25, 1) << 7 if gfx > 9 else 0))
        places = {9: (14, 17, 15), 10: (14, 54, 15), 11: (14, 12, 13)}[gfx]
        hints = self._hints(*(bits(w, at, 1) for at in places))
        if not access_of(e.name):
            return self.make(e.name, (), hints)
        parts, mods = self._addressed(w, e.operands[0][1])
        to_lds = gfx < 11 and bits(w, 16, 1)
        mods |= number("offset", w & 0xFFF) | hints | flags_on(to_lds, "lds")
        return self.make(e.name, parts[1:] if to_lds or "_lds_" in e.name else parts, mods)

    def buffer12(self, w: int) -> Inst:
        """Buffers of gfx12, typed ones too."""
        e = self.find("MUBUF", bits(w, 14, 8))
        if bits(w, 22, 1):
            raise self.fail("tfe")
        parts, mods = self.buffer_parts(
            e.operands[0][1], "v", bits(w, 62, 2), bits(w, 32, 8), bits(w, 64, 8), bits(w, 41, 9), w & 127
        )
        typed = {"format": str(bits(w, 55, 7))} if e.name[0] == "t" else {}
        own = {} if typed else self.buffer_mods(w)
        policy = self.policy(bits(w, 52, 3), bits(w, 50, 2), access_of(e.name))
        return self.make(e.name, parts, typed | mods | number("offset", bits(w, 72, 24)) | own | policy)

    def typed(self, w: int) -> Inst:
        """Typed buffers of gfx9, gfx10 and gfx11."""
        gfx = self.gfx
        e = self.find("MTBUF", bits(w, 16, 3) | bits(w, 53, 1) << 3 if gfx == 10 else bits(w, 15, 4))
        form = bits(w, 19, 4) | bits(w, 23, 3) << 4 if gfx == 9 else bits(w, 19, 7)
        places = {9: (14, 54, 53), 10: (14, 54, 15), 11: (14, 12, 13)}[gfx]
        parts, mods = self._addressed(w, e.operands[0][1])
        hints = self._hints(*(bits(w, at, 1) for at in places))
        return self.make(e.name, parts, {"format": str(form)} | mods | number("offset", w & 0xFFF) | hints)
