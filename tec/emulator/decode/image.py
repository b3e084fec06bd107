"""Image and typed buffer instructions from machine code, for every chip that has them.

Sources: the ISA manuals' formats MIMG, VIMAGE, VSAMPLE and MTBUF. gfx90a's name no dimension, which its resource has at run time: their text names the first
register of the address alone, as LLVM's does.
"""

from __future__ import annotations

import re

from .words import Encoding, Words, bits, register

DIMENSIONS = ("1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY")
_COUNT = {"1D": 1, "2D": 2, "3D": 3, "CUBE": 3, "1D_ARRAY": 2, "2D_ARRAY": 3, "2D_MSAA": 3, "2D_MSAA_ARRAY": 4}
_AXES = {"1D": 1, "1D_ARRAY": 1, "3D": 3}
_SAMPLE = re.compile(r"image_(?:sample|gather4h?|get_lod)(_c)?(_cd|_d|_l|_b|_lz)?(_cl)?(_o)?(_g16)?$")


def sampled(name: str) -> bool:
    """Whether an image instruction has a sampler."""
    return name.startswith(("image_sample", "image_gather", "image_get_lod"))


def address_registers(name: str, kind: str, a16: bool) -> int:
    """How many registers an image instruction's address fills."""
    n = _COUNT[kind]
    if "get_resinfo" in name:
        return 1
    if not sampled(name):
        n += "_mip" in name
        return (n + 1) // 2 if a16 else n
    form = _SAMPLE.match(name)
    if form is None:
        return n
    first = bool(form[4]) + (form[2] == "_b") + bool(form[1])
    if form[2] in ("_d", "_cd"):
        axes = _AXES.get(kind, 2)
        first += 2 * ((axes + 1) // 2 if form[5] else axes)
    n += (form[2] == "_l") + bool(form[3])
    return first + ((n + 1) // 2 if a16 else n)


class Images(Words):
    """Encodings of images and typed buffers."""

    def _image_text(self, e: Encoding, mask: int, kind: str, data: int, places: list[int], resource: int, sampler: int, more: str, *, a16: bool, d16: bool, file: str = "v", count: int = 0) -> str:  # fmt: skip
        """`places`: registers of the address, one each or, where there are fewer than it fills, the last of them the first of the rest."""
        n = mask.bit_count()
        if "gather4" in e.name or "msaa_load" in e.name:
            n = 4
        if d16:
            n = (n + 1) // 2
        want = count or address_registers(e.name, kind, a16)
        if len(places) > 1 or (want == 1 and places):
            parts = [register("v", p, 1) for p in places[: want - 1]]
            rest = want - len(parts)
            if len(places) < want:
                parts, rest = parts[: len(places) - 1], want - len(places) + 1
                parts.append(register("v", places[-1], rest))
            else:
                parts.append(register("v", places[want - 1], 1))
            address = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
        else:
            address = register("v", places[0], want)
        operands = [register(file, data, max(1, n)), address, self.scalar(resource, 8)]
        if sampled(e.name):
            operands.append(self.scalar(sampler, 4))
        tail = f" dmask:{mask:#x}" + (f" dim:SQ_RSRC_IMG_{kind}" if kind and self.gfx > 9 else "")
        return f"{e.name} {', '.join(operands)}{tail}{more}" + " a16" * a16 + " d16" * d16

    def image(self, w: int) -> str:
        """gfx9, gfx10 and gfx11."""
        gfx = self.gfx
        opcode = bits(w, 18, 8) if gfx >= 11 else bits(w, 18, 7) | bits(w, 0, 1) << 7
        e = self.find("MIMG", opcode)
        data, first, resource = bits(w, 40, 8), bits(w, 32, 8), 4 * bits(w, 48, 5)
        mask = bits(w, 8, 4)
        if gfx == 9:
            if bits(w, 17, 1):
                raise self.fail(f"{e.name} with lwe")
            more = "".join(
                f" {n}" for n, at in (("unorm", 12), ("glc", 13), ("slc", 25), ("scc", 7), ("da", 14)) if bits(w, at, 1)
            )
            file = "a" if bits(w, 16, 1) else "v"
            return self._image_text(e, mask, "1D", data, [first], resource, 4 * bits(w, 53, 5), more, a16=bool(bits(w, 15, 1)), d16=bool(bits(w, 63, 1)), file=file, count=1)  # fmt: skip
        nsa = bits(w, 1, 2) if gfx == 10 else w & 1
        kind = DIMENSIONS[bits(w, 3, 3) if gfx == 10 else bits(w, 2, 3)]
        fields = ("unorm", 12), ("glc", 13), ("slc", 25), ("dlc", 7)
        a16, d16, sampler, refused = bits(w, 62, 1), bits(w, 63, 1), 4 * bits(w, 53, 5), (15, 16, 17)
        if gfx == 11:
            fields = ("unorm", 7), ("glc", 14), ("slc", 12), ("dlc", 13)
            a16, d16, sampler, refused = bits(w, 16, 1), bits(w, 17, 1), 4 * bits(w, 58, 5), (15, 53, 54)
        if any(bits(w, at, 1) for at in refused):
            raise self.fail(f"{e.name} with r128, tfe or lwe")
        places = [first]
        for _ in range(nsa):
            word = self.word()
            places += [bits(word, 8 * k, 8) for k in range(4)]
        more = "".join(f" {n}" for n, at in fields if bits(w, at, 1))
        return self._image_text(e, mask, kind, data, places, resource, sampler, more, a16=bool(a16), d16=bool(d16))

    def image12(self, w: int) -> str:
        with_sampler = bits(w, 26, 6) == 0b111001
        e = self.find("VSAMPLE" if with_sampler else "VIMAGE", bits(w, 14, 8))
        if bits(w, 4, 1) or bits(w, 3 if with_sampler else 55, 1) or (with_sampler and bits(w, 40, 1)):
            raise self.fail(f"{e.name} with r128, tfe or lwe")
        places = [bits(w, 64 + 8 * k, 8) for k in range(4)] + ([] if with_sampler else [bits(w, 56, 8)])
        more = " unorm" if with_sampler and bits(w, 13, 1) else ""
        access = next((k for k in ("atomic", "store") if k in e.name), "load")
        more += self.policy(bits(w, 52, 3), bits(w, 50, 2), access)  # type: ignore[attr-defined]
        return self._image_text(e, bits(w, 22, 4), DIMENSIONS[bits(w, 0, 3)], bits(w, 32, 8), places, bits(w, 41, 9), bits(w, 55, 9) if with_sampler else 0, more,
                                a16=bool(bits(w, 6, 1)), d16=bool(bits(w, 5, 1)))  # fmt: skip

    def typed(self, w: int) -> str:
        """Typed buffers of gfx9, gfx10 and gfx11; gfx12's are of the buffers' encoding."""
        gfx = self.gfx
        e = self.find("MTBUF", bits(w, 16, 3) | bits(w, 53, 1) << 3 if gfx == 10 else bits(w, 15, 4))
        file = "v"
        if gfx == 9:
            names = ("glc", "slc", "scc") if self.chip == "gfx90a" else ("sc0", "nt", "sc1")
            form, fields = bits(w, 19, 4) | bits(w, 23, 3) << 4, tuple(zip(names, (14, 54, 53)))
            file = "a" if bits(w, 55, 1) else "v"
        else:
            form = bits(w, 19, 7)
            fields = (("glc", 14), ("slc", 54), ("dlc", 15)) if gfx == 10 else (("glc", 14), ("slc", 12), ("dlc", 13))
            if bits(w, 55 if gfx == 10 else 53, 1):
                raise self.fail("tfe")
        both = bits(w, 54, 2) if gfx == 11 else bits(w, 12, 2)
        policy = "".join(f" {n}" for n, at in fields if bits(w, at, 1))
        return self.typed_text(
            e, form, both, 4 * bits(w, 48, 5), bits(w, 56, 8), bits(w, 32, 8), bits(w, 40, 8), w & 0xFFF, policy, file
        )

    def typed_text(self, e: Encoding, form: int, both: int, resource: int, scalar: int, address: int, data: int, offset: int, policy: str, file: str = "v") -> str:  # fmt: skip
        """`both`: 1 an offset, 2 an index."""
        at = register("v", address, 2 if both == 3 else 1) if both else "off"
        parts = [register(file, data, e.operands[0][1]), at, self.scalar(resource, 4), self.source(scalar, 1)]
        tail = (
            f" format:{form}"
            + (" idxen" if both & 2 else "")
            + (" offen" if both & 1 else "")
            + (f" offset:{offset}" if offset else "")
        )
        return f"{e.name} {', '.join(parts)}{tail}{policy}"
