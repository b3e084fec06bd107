"""How the elements of images and typed buffers lie in memory, and the numbers that the chips give their formats.

A format is named as in AMD's manuals, most significant component first ("2_10_10_10_UNORM" has its red in the low ten bits). `row` is what kernels
read at run time: bytes of an element, whether components are integers, and place, size and kind of each of the four.
Sources: the ISA manuals' tables of image and buffer data formats (RDNA 2, RDNA3, RDNA4 "Image resource definition"; Vega for gfx9's pair of data and number
format); ROCR-Runtime's `resource_*.h` has the same numbers.
"""

from __future__ import annotations

from functools import cache

KINDS = {"UNORM": 0, "SNORM": 1, "USCALED": 2, "SSCALED": 3, "UINT": 4, "SINT": 5, "FLOAT": 7, "SRGB": 9, "SHARED": 10}
# Of gfx9, by its number: the sizes of the components, most significant first.
GFX9_DATA = (
    "", "8", "16", "8_8", "32", "16_16", "10_11_11", "11_11_10", "10_10_10_2", "2_10_10_10", "8_8_8_8", "32_32", "16_16_16_16", "32_32_32",
    "32_32_32_32", "", "5_6_5", "1_5_5_5", "5_5_5_1", "4_4_4_4", "8_24", "24_8",
)  # fmt: skip
GFX9_NUMBER = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "", "FLOAT", "", "SRGB")
_SIX = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT")
_32 = ("UINT", "SINT", "FLOAT")


def _run(*groups: tuple[str, tuple[str, ...]]) -> list[str]:
    return [f"{sizes}_{kind}" for sizes, kinds in groups for kind in kinds]


_COMMON = (("8", _SIX), ("16", (*_SIX, "FLOAT")), ("8_8", _SIX), ("32", _32), ("16_16", (*_SIX, "FLOAT")))
_WIDE = (("32_32", _32), ("16_16_16_16", (*_SIX, "FLOAT")), ("32_32_32", _32), ("32_32_32_32", _32))
_IMAGES_ONLY = ["8_SRGB", "8_8_SRGB", "8_8_8_8_SRGB"]
_SMALL = ["5_9_9_9_SHARED", "5_6_5_UNORM", "1_5_5_5_UNORM", "5_5_5_1_UNORM", "4_4_4_4_UNORM", "4_4_UNORM"]


@cache
def numbers(gfx: int) -> dict[int, str]:
    """Number -> name. gfx9 has a pair; here it is the data format with the number format above it (bit 6 on)."""
    if gfx == 9:
        out = {}
        for d, sizes in enumerate(GFX9_DATA):
            for n, kind in enumerate(GFX9_NUMBER):
                if sizes and kind:
                    out[n << 6 | d] = f"{sizes}_{kind}"
        return out
    if gfx == 10:
        buffers = _run(*_COMMON, ("10_11_11", (*_SIX, "FLOAT")), ("11_11_10", (*_SIX, "FLOAT")), ("10_10_10_2", _SIX), ("2_10_10_10", _SIX), ("8_8_8_8", _SIX), *_WIDE)  # fmt: skip
        found = dict(enumerate(buffers, 1))
        found.update(enumerate(_IMAGES_ONLY, 128))
        found.update(enumerate(_SMALL, 132))
        found.update(enumerate(("8_24_UNORM", "8_24_UINT", "24_8_UNORM", "24_8_UINT"), 141))
        return found
    buffers = _run(
        *_COMMON, ("10_11_11", ("FLOAT",)), ("11_11_10", ("FLOAT",)), ("10_10_10_2", ("UNORM", "SNORM", "UINT", "SINT")), ("2_10_10_10", _SIX),
        ("8_8_8_8", _SIX), *_WIDE,
    )  # fmt: skip
    found = dict(enumerate([*buffers, *_IMAGES_ONLY, *_SMALL], 1))
    found.update(enumerate(("8_24_UNORM", "8_24_UINT", "24_8_UNORM", "24_8_UINT"), 76))
    return found


@cache
def number(gfx: int, name: str) -> int | None:
    """A format's number on a chip's generation; None where it has none."""
    return next((n for n, found in numbers(gfx).items() if found == name), None)


def element_bytes(name: str) -> int:
    return sum(int(s) for s in name.split("_")[:-1]) // 8


def row(name: str) -> tuple[int, ...]:
    """(bytes, 1 of integers, then of red, green, blue and alpha: place | size << 8 | kind << 16, size 0 where there is none)."""
    *sizes, kind = name.split("_")
    place, fields = 0, []
    for k, size in enumerate(reversed(sizes)):
        own = kind
        if kind == "SRGB" and k == 3:
            own = "UNORM"
        fields.append(place | int(size) << 8 | KINDS[own] << 16)
        place += int(size)
    if kind == "SHARED":
        fields = [f | 0 for f in fields[:3]]
    fields += [0] * (4 - len(fields))
    return (place // 8, int(kind in ("UINT", "SINT")), *fields)


@cache
def table(gfx: int) -> list[tuple[int, ...]]:
    """`row` by number; (0, ...) for numbers that are no format."""
    known = numbers(gfx)
    return [row(known[n]) if n in known else (0,) * 6 for n in range(max(known) + 1)]
