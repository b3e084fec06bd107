"""Memory instructions of gfx10.3, gfx11 and gfx12 from machine code: LDS, flat, global, scratch and buffer."""

from __future__ import annotations

import re

from .words import Encoding, Words, bits, register, signed

_SCOPES = ("", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
_LOAD_HINTS = ("", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "RESERVED")
_STORE_HINTS = ("", "NT", "HT", "RT_WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB")


class RdnaMemories(Words):
    """Encodings of memory instructions."""

    def lds(self, w: int) -> str:
        e = self.find("DS", bits(w, 18, 8))
        fields = {"A": bits(w, 32, 8), "0": bits(w, 40, 8), "1": bits(w, 48, 8), "D": bits(w, 56, 8)}
        parts = [register("v", fields[k], n) for k, n in e.operands]
        if re.match(r"ds_(read2|write2|wrxchg2|load_2addr|store_2addr|storexchg_2addr)", e.name):
            tail = "".join(f" offset{i}:{v}" for i, v in enumerate((w & 255, bits(w, 8, 8))) if v)
        else:
            tail = f" offset:{w & 0xFFFF}" if w & 0xFFFF or e.name == "ds_swizzle_b32" else ""
        return f"{e.name} {', '.join(parts)}{tail}".rstrip() + (" gds" if bits(w, 17, 1) else "")

    def policy(self, hint: int, scope: int, kind: str) -> str:
        """gfx12's temporal hint and scope as modifiers."""
        out = ""
        if kind == "atomic":
            names = [
                n
                for n, bit in (("RETURN", 1), ("NT", 2), ("CASCADE_NT" if hint & 2 else "CASCADE_RT", 4))
                if hint & bit
            ]
            if hint & 4:
                names = [names[-1]] if not hint & 1 else ["RETURN", names[-1]]
            out = f" th:TH_ATOMIC_{'_'.join(names)}" if names else ""
        elif hint == 3 and scope == 3:
            out = f" th:TH_{kind.upper()}_BYPASS"
        elif hint:
            out = f" th:TH_{kind.upper()}_{(_LOAD_HINTS if kind == 'load' else _STORE_HINTS)[hint]}"
        return out + (f" scope:{_SCOPES[scope]}" if scope else "")

    @staticmethod
    def _access(name: str) -> str:
        return next((k for k in ("atomic", "store", "load") if k in name), "")

    def _flat_text(
        self, e: Encoding, segment: int, address: str, data: int, result: int, base: str | None, returns: bool
    ) -> list[str]:
        count = e.operands[0][1] if e.operands else 1
        tail = [base or "off"] if segment or base else []
        if "prefetch" in e.name:
            return [address, *tail]
        if "addtid" in e.name:
            return [register("v", data if "store" in e.name else result, count), *tail]
        if "_load_lds_" in e.name:
            return [address, *tail]
        kind = self._access(e.name)
        if kind == "load":
            return [register("v", result, count), address, *tail]
        if kind == "store":
            return [address, register("v", data, count), *tail]
        width = count // 2 if "cmpswap" in e.name else count
        got = [register("v", result, width)] if returns else []
        return [*got, address, register("v", data, count), *tail]

    def flat(self, w: int) -> str:
        old = self.gfx == 10
        segment = bits(w, 14, 2) if old else bits(w, 16, 2)
        e = self.find("FLAT", segment << 8 | bits(w, 18, 7))
        glc, slc, dlc = (16, 17, 12) if old else (14, 15, 13)
        if not e.operands:
            return e.name
        base = bits(w, 48, 7)
        null = 125 if old else 124
        has_base = segment != 0 and base not in (null, 127)
        if segment == 0:
            address = register("v", bits(w, 32, 8), 2)
        elif segment == 1:
            on = not has_base and base != 127 if old else bits(w, 55, 1)
            address = register("v", bits(w, 32, 8), 1) if on else "off"
        else:
            address = register("v", bits(w, 32, 8), 1 if has_base else 2)
        text = self.scalar(base, 1 if segment == 1 else 2) if has_base else None
        parts = self._flat_text(e, segment, address, bits(w, 40, 8), bits(w, 56, 8), text, bool(bits(w, glc, 1)))
        width = 12 if old else 13
        offset = signed(bits(w, 0, width), width) if segment else bits(w, 0, width - 1)
        tail = f" offset:{offset}" if offset else ""
        for name, bit in (("glc", glc), ("slc", slc), ("dlc", dlc)):
            tail += f" {name}" if bits(w, bit, 1) else ""
        if old and bits(w, 13, 1):
            tail += " lds"
        return f"{e.name} {', '.join(parts)}{tail}"

    def flat12(self, w: int) -> str:
        segment = bits(w, 24, 2)  # 0 flat, 1 scratch, 2 global
        e = self.find("FLAT", segment << 8 | bits(w, 14, 7))
        scope, hint = bits(w, 50, 2), bits(w, 52, 3)
        if not e.operands:
            return e.name + self.policy(hint, scope, "load")
        base = w & 127
        has_base = base != 124
        if segment == 1:
            address = register("v", bits(w, 64, 8), 1) if bits(w, 49, 1) else "off"
        else:
            address = register("v", bits(w, 64, 8), 1 if has_base else 2)
        text = self.scalar(base, 1 if segment == 1 else 2) if has_base else None
        kind = self._access(e.name)
        parts = self._flat_text(
            e, segment, address, bits(w, 55, 8), bits(w, 32, 8), text, kind == "atomic" and bool(hint & 1)
        )
        offset = signed(bits(w, 72, 24), 24)
        tail = (f" offset:{offset}" if offset else "") + self.flat_tail(w)
        return f"{e.name} {', '.join(parts)}{tail}" + self.policy(hint, scope, kind or "load")

    def flat_tail(self, w: int) -> str:
        """Modifiers that gfx1250 adds; so `buffer_tail`."""
        return ""

    def buffer_tail(self, w: int) -> str:
        return ""

    def _buffer_text(
        self, e: Encoding, w: int, both: int, resource: int, offset_register: int, address: int, data: int
    ) -> list[str]:
        at = register("v", address, 2 if both == 3 else 1) if both else "off"
        return [register("v", data, e.operands[0][1]), at, self.scalar(resource, 4), self.source(offset_register, 1)]

    def buffer(self, w: int) -> str:
        old = self.gfx == 10
        e = self.find("MUBUF", bits(w, 18, 7) | bits(w, 25, 1) << 7)
        bit = {"glc": 14, "slc": 54, "dlc": 15} if old else {"glc": 14, "slc": 12, "dlc": 13}
        policy = "".join(f" {n}" for n, b in bit.items() if bits(w, b, 1))
        if not self._access(e.name):
            return e.name + policy
        if bits(w, 55 if old else 53, 1):
            raise self.fail("tfe")
        both = bits(w, 12, 2) if old else bits(w, 54, 2)  # 1: an offset, 2: an index
        parts = self._buffer_text(e, w, both, 4 * bits(w, 48, 5), bits(w, 56, 8), bits(w, 32, 8), bits(w, 40, 8))
        tail = (" idxen" if both & 2 else "") + (" offen" if both & 1 else "")
        offset = w & 0xFFF
        if old and bits(w, 16, 1):
            parts, policy = parts[1:], policy + " lds"
        return f"{e.name} {', '.join(parts)}{tail}" + (f" offset:{offset}" if offset else "") + policy

    def buffer12(self, w: int) -> str:
        e = self.find("MUBUF", bits(w, 14, 8))
        if bits(w, 22, 1):
            raise self.fail("tfe")
        both = bits(w, 62, 2)
        if e.name[0] == "t":
            policy = self.policy(bits(w, 52, 3), bits(w, 50, 2), self._access(e.name))
            return self.typed_text(  # type: ignore[attr-defined, no-any-return]
                e,
                bits(w, 55, 7),
                both,
                bits(w, 41, 9),
                w & 127,
                bits(w, 64, 8),
                bits(w, 32, 8),
                bits(w, 72, 24),
                policy,
            )
        parts = self._buffer_text(e, w, both, bits(w, 41, 9), w & 127, bits(w, 64, 8), bits(w, 32, 8))
        tail = (" idxen" if both & 2 else "") + (" offen" if both & 1 else "")
        offset = bits(w, 72, 24)
        tail += (f" offset:{offset}" if offset else "") + self.buffer_tail(w)
        return f"{e.name} {', '.join(parts)}{tail}" + self.policy(bits(w, 52, 3), bits(w, 50, 2), self._access(e.name))
