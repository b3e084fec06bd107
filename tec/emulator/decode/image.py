"""Image instructions from machine code, for every chip that has them.

Sources: the ISA manuals' formats MIMG, VIMAGE and VSAMPLE. gfx90a's name no dimension, which its resource has at run time: their text names the first
register of the address alone, as LLVM's does.
"""

from __future__ import annotations

import re

from .inst import Inst, Operand, has_sampler
from .memory import Memories, access_of
from .words import Encoding, Mods, bits, flags_on, register

DIMENSIONS = ("1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY")
_COUNT = {"1D": 1, "2D": 2, "3D": 3, "CUBE": 3, "1D_ARRAY": 2, "2D_ARRAY": 3, "2D_MSAA": 3, "2D_MSAA_ARRAY": 4}
_AXES = {"1D": 1, "1D_ARRAY": 1, "3D": 3}
_SAMPLE = re.compile(r"image_(?:sample|gather4h?|get_lod)(_c)?(_cd|_d|_l|_b|_lz)?(_cl)?(_o)?(_g16)?$")


def address_registers(name: str, kind: str, a16: bool) -> int:
    """How many registers an image instruction's address fills."""
    n = _COUNT[kind]
    if "get_resinfo" in name:
        return 1
    if not has_sampler(name):
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


class Images(Memories):
    """Encodings of images."""

    def _image(self, e: Encoding, mask: int, kind: str, data: Operand, places: list[int], resource: int, sampler: int, mods: Mods, *, a16: int, d16: int, count: int = 0) -> Inst:  # fmt: skip
        """`places`: registers of the address, one each or, where there are fewer than it fills, the last of them the first of the rest.
        `data`: the first register of the data. `count`: of registers that the address is said to fill, 0 for as many as its form has."""
        n = 4 if "gather4" in e.name or "msaa_load" in e.name else mask.bit_count()
        n = (n + 1) // 2 if d16 else n
        want = count or address_registers(e.name, kind, bool(a16))
        single = places[:want] if len(places) >= want else places[:-1]
        address = [register("v", p, 1) for p in single]
        if len(places) < want:
            address.append(register("v", places[-1], want - len(single)))
        operands = [register(data.kind, data.index, max(1, n)), *address, self.scalar(resource, 8)]
        if has_sampler(e.name):
            operands.append(self.scalar(sampler, 4))
        shape = {"dim": f"SQ_RSRC_IMG_{kind}"} if self.gfx > 9 else {}
        return self.make(
            e.name, operands, {"dmask": f"{mask:#x}"} | shape | mods | flags_on(a16 | d16 << 1, "a16", "d16")
        )

    def image(self, w: int) -> Inst:
        """gfx9, gfx10 and gfx11."""
        gfx = self.gfx
        e = self.find("MIMG", bits(w, 18, 8) if gfx >= 11 else bits(w, 18, 7) | bits(w, 0, 1) << 7)
        first, resource, mask = bits(w, 32, 8), 4 * bits(w, 48, 5), bits(w, 8, 4)
        fields = {
            9: {"unorm": 12, "glc": 13, "slc": 25, "scc": 7, "da": 14},
            10: {"unorm": 12, "glc": 13, "slc": 25, "dlc": 7},
            11: {"unorm": 7, "glc": 14, "slc": 12, "dlc": 13},
        }[gfx]
        mods = {name: "" for name, at in fields.items() if bits(w, at, 1)}
        refused = {9: (17,), 10: (15, 16, 17), 11: (15, 53, 54)}[gfx]
        if any(bits(w, at, 1) for at in refused):
            raise self.fail(f"{e.name} with r128, tfe or lwe" if gfx > 9 else f"{e.name} with lwe")
        a16, d16, sampler = {9: (15, 63, 53), 10: (62, 63, 53), 11: (16, 17, 58)}[gfx]
        data = register("a" if gfx == 9 and bits(w, 16, 1) else "v", bits(w, 40, 8), 1)
        places, kind = [first], "1D"
        if gfx > 9:
            kind = DIMENSIONS[bits(w, 3, 3) if gfx == 10 else bits(w, 2, 3)]
            for _ in range(bits(w, 1, 2) if gfx == 10 else w & 1):
                word = self.word()
                places += [bits(word, 8 * k, 8) for k in range(4)]
        return self._image(e, mask, kind, data, places, resource, 4 * bits(w, sampler, 5), mods, a16=bits(w, a16, 1), d16=bits(w, d16, 1), count=int(gfx == 9))  # fmt: skip

    def image12(self, w: int) -> Inst:
        samples = bits(w, 26, 6) == 0b111001
        e = self.find("VSAMPLE" if samples else "VIMAGE", bits(w, 14, 8))
        if bits(w, 4, 1) or bits(w, 3 if samples else 55, 1) or (samples and bits(w, 40, 1)):
            raise self.fail(f"{e.name} with r128, tfe or lwe")
        places = [bits(w, 64 + 8 * k, 8) for k in range(4)] + ([] if samples else [bits(w, 56, 8)])
        mods = flags_on(bits(w, 13, 1) if samples else 0, "unorm")
        mods |= self.policy(bits(w, 52, 3), bits(w, 50, 2), access_of(e.name) or "load")
        return self._image(e, bits(w, 22, 4), DIMENSIONS[bits(w, 0, 3)], register("v", bits(w, 32, 8), 1), places, bits(w, 41, 9), bits(w, 55, 9) if samples else 0, mods,
                           a16=bits(w, 6, 1), d16=bits(w, 5, 1))  # fmt: skip
