"""Memory instructions from machine code: scalar loads, LDS, flat, global, scratch and buffer."""

from __future__ import annotations

import re

from .words import Words, bits, register, scalar, signed


class Memories(Words):
    """Encodings of memory instructions."""

    def smem(self, w: int) -> str:
        e = self.find("SMEM", bits(w, 18, 8))
        if e.name.startswith(("s_mem", "s_dcache")):
            return f"{e.name} {scalar(bits(w, 6, 7), 2)}" if e.name.startswith("s_mem") else e.name
        if bits(w, 15, 1) or len(e.operands) < 2:
            raise self.fail(e.name)
        offset, base = signed(bits(w, 32, 21), 21), scalar(2 * (w & 63), e.operands[1][1])
        parts = [scalar(bits(w, 6, 7), e.operands[0][1]), base]
        tail = " glc" if bits(w, 16, 1) else ""
        if bits(w, 14, 1):  # an SGPR offset, beside the constant where there is one
            parts.append(scalar(bits(w, 57, 7), 1))
            tail = (f" offset:{offset:#x}" if bits(w, 17, 1) else "") + tail
        else:
            parts.append(hex(offset) if bits(w, 17, 1) else scalar(bits(w, 32, 7), 1))
        return f"{e.name} {', '.join(parts)}{tail}"

    def lds(self, w: int) -> str:
        e = self.find("DS", bits(w, 17, 8))
        file = "a" if bits(w, 25, 1) else "v"
        fields = {
            "A": ("v", bits(w, 32, 8)),
            "0": (file, bits(w, 40, 8)),
            "1": (file, bits(w, 48, 8)),
            "D": (file, bits(w, 56, 8)),
        }
        gws = e.name.startswith("ds_gws_")
        if bits(w, 16, 1) != gws:
            raise self.fail("GDS")
        parts = [register(*fields[k], n) for k, n in e.operands]
        if re.match(r"ds_(read2|write2|wrxchg2)", e.name):
            tail = "".join(f" offset{i}:{v}" for i, v in enumerate((w & 255, bits(w, 8, 8))) if v)
        elif e.name == "ds_swizzle_b32":
            tail = f" offset:{w & 0xFFFF}"
        else:
            tail = f" offset:{w & 0xFFFF}" if w & 0xFFFF else ""
        return f"{e.name} {', '.join(parts)}{tail}".rstrip() + " gds" * gws

    def _policy(self, w: int, sc1: int) -> str:
        names = ("glc", "slc", "scc") if self.chip == "gfx90a" else ("sc0", "nt", "sc1")
        return "".join(f" {n}" for n, bit in zip(names, (bits(w, 16, 1), bits(w, 17, 1), sc1)) if bit)

    def flat(self, w: int) -> str:
        segment = bits(w, 14, 2)
        e = self.find("FLAT", segment << 8 | bits(w, 18, 7))
        if bits(w, 13, 1) and (segment != 1 or self.chip == "gfx90a"):
            raise self.fail("a load into LDS")
        count = e.operands[0][1] if e.operands else 1
        file = "a" if bits(w, 55, 1) else "v"
        base = bits(w, 48, 7)
        has_base = segment != 0 and base != 127
        result, data = register(file, bits(w, 56, 8), count), register(file, bits(w, 40, 8), count)
        if segment == 1:
            uses = bits(w, 13, 1) if self.chip != "gfx90a" else not has_base
            address = register("v", bits(w, 32, 8), 1) if uses else "off"
        else:
            address = register("v", bits(w, 32, 8), 1 if has_base else 2)
        tail = [] if segment == 0 else [scalar(base, 1 if segment == 1 else 2) if has_base else "off"]
        if "_load_lds_" in e.name:
            parts = [address, *tail]
        elif "load" in e.name:
            parts = [result, address, *tail]
        elif "store" in e.name:
            parts = [address, data, *tail]
        else:
            returned = (
                [register(file, bits(w, 56, 8), count // 2 if "cmpswap" in e.name else count)] if bits(w, 16, 1) else []
            )
            parts = [*returned, address, data, *tail]
        offset = bits(w, 0, 13) if segment else bits(w, 0, 12)
        offset = signed(offset, 13) if segment else offset
        return (
            f"{e.name} {', '.join(parts)}" + (f" offset:{offset}" if offset else "") + self._policy(w, bits(w, 25, 1))
        )

    def buffer(self, w: int) -> str:
        e = self.find("MUBUF", bits(w, 18, 7))
        sc1 = bits(w, 15, 1)
        policy = "".join(
            f" {n}"
            for n, bit in zip(
                ("glc", "slc", "scc") if self.chip == "gfx90a" else ("sc0", "nt", "sc1"),
                (bits(w, 14, 1), bits(w, 17, 1), sc1),
            )
            if bit
        )
        if "load" not in e.name and "store" not in e.name and "atomic" not in e.name:
            return e.name + policy
        file = "a" if bits(w, 55, 1) else "v"
        both = bits(w, 12, 2)
        address = register("v", bits(w, 32, 8), 2 if both == 3 else 1) if both else "off"
        parts = [
            register(file, bits(w, 40, 8), e.operands[0][1]),
            address,
            scalar(4 * bits(w, 48, 5), 4),
            self.source(bits(w, 56, 8), 1),
        ]
        tail = (" idxen" if both & 2 else "") + (" offen" if both & 1 else "")
        offset = w & 0xFFF
        if bits(w, 16, 1):
            parts, policy = parts[1:], policy + " lds"
        return f"{e.name} {', '.join(parts)}{tail}" + (f" offset:{offset}" if offset else "") + policy
