"""Texture objects: what the HIP runtime lays out in memory for a kernel's texture and surface functions.

A texture object is the address of twenty dwords: an image resource of eight (a buffer resource of four for linear memory), the channel's type and order and the
width, which surface functions and queries read, and a sampler from dword 12 on. Source: ROCm-Device-Libs' `image.cl`, hip/texture_types.h, ROCR-Runtime's image managers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DeviceError
from ..decode.inst import generation
from .descriptors import image_words, sampler_words
from .formats import element_bytes, number

TEXTURE_BYTES = 80
# HSA's numbers of channel types, by kind and bits, and of channel orders, by how many there are.
_TYPES = {
    ("SNORM", 8): 0, ("SNORM", 16): 1, ("UNORM", 8): 2, ("UNORM", 16): 3, ("SRGB", 8): 2, ("SINT", 8): 8, ("SINT", 16): 9, ("SINT", 32): 10, ("UINT", 8): 11,
    ("UINT", 16): 12, ("UINT", 32): 13, ("FLOAT", 16): 14, ("FLOAT", 32): 15,
}  # fmt: skip
_ORDERS = {1: 1, 2: 3, 3: 6, 4: 8}
_SELECT = {1: (4, 0, 0, 1), 2: (4, 5, 0, 1), 3: (4, 5, 6, 1), 4: (4, 5, 6, 7)}
WITHOUT_IMAGES = frozenset(("gfx940", "gfx941", "gfx942", "gfx950"))


@dataclass(frozen=True)
class Sampling:
    """How a texture is read. `address`: wrap, mirror, clamp or border for each axis; `border`: zero, black or white."""

    linear: bool = False
    normalized: bool = False
    address: tuple[str, str, str] = ("clamp", "clamp", "clamp")
    border: str = "zero"


def format_name(channels: int, bits: int, kind: str) -> str:
    """ "8_8_8_8_UNORM" of 4, 8, "UNORM"."""
    return "_".join([str(bits)] * channels + [kind])


def require_images(chip: str) -> None:
    """Raises DeviceError for a chip that has no image instructions."""
    if chip in WITHOUT_IMAGES:
        raise DeviceError(
            f"{chip} has no image instructions, so no textures",
            hint="gfx90a, gfx1030, gfx1100, gfx1151, gfx1200 and gfx1201 have",
        )


def texture_words(
    chip: str,
    kind: str,
    address: int,
    channels: int,
    bits: int,
    number_kind: str,
    size: tuple[int, int, int],
    pitch: int,
    sampling: Sampling,
) -> list[int]:
    """The twenty dwords. `kind`: "1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", or "LINEAR" for linear memory read by index; `size`: width, height,
    depth or layers; `pitch`: bytes from row to row. Raises DeviceError for a format that the chip has not."""
    require_images(chip)
    gfx = generation(chip)
    name = format_name(channels, bits, number_kind)
    found = number(min(gfx, 11), name)
    if found is None or (channels == 3 and kind != "LINEAR"):
        raise DeviceError(
            f"{chip} has no images of format {name}", hint="32-bit floats and 8-bit integers are formats of all chips"
        )
    element = element_bytes(name)
    if kind == "LINEAR":
        resource = _buffer_words(gfx, address, found, size[0], element, _SELECT[channels]) + [0] * 4
    else:
        if address % 256 or pitch % element:
            raise DeviceError(
                f"an image at {address:#x} with rows of {pitch} bytes: images begin at multiples of 256, rows are of whole elements",
                hint="allocate the image by the runtime, which aligns it",
            )
        resource = image_words(gfx, kind, address, found, size, pitch // element, _SELECT[channels])
    about = [_TYPES[number_kind, bits], _ORDERS[channels], size[0], 0]
    sampler = sampler_words(
        gfx, address=sampling.address, linear=sampling.linear, normalized=sampling.normalized, border=sampling.border
    )
    return [*resource, *about, *sampler, 0, 0, 0, 0]


def _buffer_words(gfx: int, address: int, number: int, count: int, element: int, select: tuple[int, ...]) -> list[int]:
    """A structured buffer resource; out of range by index."""
    word3 = sum(s << 3 * k for k, s in enumerate(select))
    if gfx == 9:
        word3 |= (number >> 6) << 12 | (number & 63) << 15
    else:
        word3 |= number << 12 | 1 << 28  # OOB_SELECT 1: an index at or past NUM_RECORDS
    return [address & 0xFFFFFFFF, address >> 32 | element << 16, count, word3]
