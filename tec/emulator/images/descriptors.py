"""Image resources (T#) and samplers (S#): where their fields lie on each generation, and how one is made.

Sources: the ISA manuals, "Image resource definition" and "Image sampler definition"; ROCR-Runtime's `resource_ai.h`, `resource_nv.h`, `resource_gfx11.h`,
`resource_gfx12.h`, and its `image_manager_*.cpp` for what HIP's runtime writes into them.
"""

from __future__ import annotations

# field -> its parts, low bits first: (first bit of the descriptor, bits).
Layout = dict[str, tuple[tuple[int, int], ...]]
_SELECT = {f"select_{c}": ((96 + 3 * k, 3),) for k, c in enumerate("xyzw")}
_COMMON: Layout = {"base": ((0, 40),), **_SELECT, "swizzle": ((116, 5),), "type": ((124, 4),)}
IMAGE: dict[int, Layout] = {
    9: {
        **_COMMON, "format": ((52, 6), (58, 4)), "width": ((64, 14),), "height": ((78, 14),), "base_level": ((108, 4),), "last_level": ((112, 4),),
        "depth": ((128, 13),), "pitch": ((141, 16),), "first": ((160, 13),),
    },
    10: {
        **_COMMON, "format": ((52, 9),), "width": ((62, 2), (64, 12)), "height": ((78, 14),), "base_level": ((108, 4),), "last_level": ((112, 4),),
        "depth": ((128, 13),), "pitch": ((128, 14),), "first": ((144, 13),),
    },
    12: {
        **_COMMON, "format": ((49, 8),), "width": ((62, 2), (64, 14)), "height": ((78, 16),), "base_level": ((57, 5),), "last_level": ((111, 5),),
        "depth": ((128, 14),), "pitch": ((128, 16),), "first": ((144, 14),),
    },
}  # fmt: skip
IMAGE[11] = {**IMAGE[10], "format": ((52, 8),)}
SAMPLER: Layout = {
    "clamp_x": ((0, 3),), "clamp_y": ((3, 3),), "clamp_z": ((6, 3),), "aniso": ((9, 3),), "compare": ((12, 3),), "unnormalized": ((15, 1),),
    "truncate": ((27, 1),), "no_cube_wrap": ((28, 1),), "magnify": ((84, 2),), "minify": ((86, 2),), "z_filter": ((88, 2),), "mip_filter": ((90, 2),), "border": ((126, 2),),
}  # fmt: skip
# A sampler's MAX_LOD, in 256ths of a level: the highest there is.
_MAX_LOD = {9: ((44, 12),), 10: ((44, 12),), 11: ((44, 12),), 12: ((45, 13),)}
TYPES = {"1D": 8, "2D": 9, "3D": 10, "CUBE": 11, "1D_ARRAY": 12, "2D_ARRAY": 13}
CLAMPS = {"wrap": 0, "mirror": 1, "clamp": 2, "border": 6}
BORDERS = {"zero": 0, "black": 1, "white": 2}
PITCH_BYTES = 256  # rows of a linear image begin at multiples


def _put(layout: Layout, values: dict[str, int], words: int) -> list[int]:
    whole = 0
    for name, value in values.items():
        for first, bits in layout[name]:
            whole |= (value & (1 << bits) - 1) << first
            value >>= bits
        assert value == 0, f"{name} does not fit"
    return [whole >> 32 * k & 0xFFFFFFFF for k in range(words)]


def image_words(
    gfx: int,
    kind: str,
    address: int,
    number: int,
    size: tuple[int, int, int],
    pitch: int,
    select: tuple[int, int, int, int],
) -> list[int]:
    """The eight words of a linear image without levels. `kind` as in TYPES, `size`: width, height, depth or layers; `pitch`: elements from row to row."""
    width, height, depth = size
    values = {"base": address >> 8, "format": number, "width": width - 1, "height": height - 1, "type": TYPES[kind]}
    values |= {f"select_{c}": s for c, s in zip("xyzw", select)}
    if gfx == 9:
        values |= {"depth": depth - 1, "pitch": pitch - 1}
    elif kind in ("1D", "2D"):
        values["pitch"] = pitch - 1
    else:
        values["depth"] = depth - 1
    return _put(IMAGE[gfx], values, 8)


def sampler_words(
    gfx: int, *, address: tuple[str, str, str], linear: bool, normalized: bool, border: str = "zero"
) -> list[int]:
    """The four words of a sampler."""
    values = {f"clamp_{c}": CLAMPS[a] for c, a in zip("xyz", address)}
    values |= {
        "unnormalized": int(not normalized),
        "magnify": int(linear),
        "minify": int(linear),
        "border": BORDERS[border],
    }
    layout = {**SAMPLER, "max_lod": _MAX_LOD[gfx]}
    return _put(layout, {**values, "max_lod": (1 << _MAX_LOD[gfx][0][1]) - 1}, 4)
