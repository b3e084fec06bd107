"""Texture and surface objects: see `tec.emulator.textures` for what a kernel reads of one.

Structures: HIP's header `texture_types.h`. Not there: texture references, which HIP no longer documents.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ...errors import DeviceError
from ..images.textures import TEXTURE_BYTES, Sampling, texture_words
from .arrays import FLOAT, KINDS, UNSIGNED, Array, Arrays
from .base import need, pointer, put_size, refuse
from .entry import INVALID_VALUE, HipError, entry

_ADDRESSES = ("wrap", "clamp", "mirror", "border")
_BORDERS = {(0.0, 0.0, 0.0, 0.0): "zero", (0.0, 0.0, 0.0, 1.0): "black", (1.0, 1.0, 1.0, 1.0): "white"}


class TextureDesc(ctypes.Structure):
    _fields_ = [("address", ctypes.c_int * 3), ("filter", ctypes.c_int), ("read", ctypes.c_int), ("srgb", ctypes.c_int), ("border", ctypes.c_float * 4),
                ("normalized", ctypes.c_int), ("anisotropy", ctypes.c_uint), ("mip_filter", ctypes.c_int), ("levels", ctypes.c_float * 3)]  # fmt: skip


class DriverTextureDesc(ctypes.Structure):
    _fields_ = [("address", ctypes.c_int * 3), ("filter", ctypes.c_int), ("flags", ctypes.c_uint), ("anisotropy", ctypes.c_uint), ("mip_filter", ctypes.c_int),
                ("levels", ctypes.c_float * 3), ("border", ctypes.c_float * 4), ("reserved", ctypes.c_int * 12)]  # fmt: skip


@dataclass(eq=False)
class Texture:
    """A texture or surface object; what it was made of."""

    resource: bytes
    texture: bytes = b""
    view: bytes = b""


class Textures(Arrays):
    """hipCreateTextureObject and its kin."""

    def _resource(self, desc: int, by_format: bool) -> tuple[str, int, int, int, int, tuple[int, int, int], int]:
        """(kind, address, format's kind, bits, channels, size, pitch) of a resource."""
        which = ctypes.c_int.from_address(need(desc, "the resource")).value
        if which == 0:
            a: Array = self.held(pointer(desc + 8).value or 0, Array)
            size = (a.width, 1, a.depth) if a.kind == "1D_ARRAY" else (a.width, max(1, a.height), max(1, a.depth))
            return a.kind, a.address, a.format, a.bits, a.channels, size, a.pitch
        if which not in (2, 3):
            raise refuse("textures of levels (mipmapped arrays)")
        address = pointer(desc + 8).value or 0
        if by_format:
            kind, bits = self._format(ctypes.c_int.from_address(desc + 16).value)
            channels, at = ctypes.c_uint.from_address(desc + 20).value, desc + 24
        else:
            kind, bits, channels = self._channels(desc + 16)
            at = desc + 40
        first, second, third = (ctypes.c_size_t.from_address(at + 8 * k).value for k in range(3))
        if which == 2:
            return "LINEAR", address, kind, bits, channels, (first * 8 // (bits * channels), 1, 1), 0
        return "2D", address, kind, bits, channels, (first, second, 1), third

    def _make(
        self, out: int, desc: int, by_format: bool, read: str, how: Sampling, texture: Texture, surface: bool = False
    ) -> None:
        """Make a texture's words in device memory, whose address becomes the handle at `out`; how it is read must suit its elements."""
        kind, address, number, bits, channels, size, pitch = self._resource(desc, by_format)
        name = KINDS[number]
        if read != "element" and number != FLOAT and bits < 32:
            name = (
                "SRGB"
                if read == "srgb" and bits == 8 and number == UNSIGNED
                else {"UINT": "UNORM", "SINT": "SNORM"}[name]
            )
        try:
            words = texture_words(
                self.driver.chip.name,
                "2D_ARRAY" if surface and kind == "CUBE" else kind,
                address,
                channels,
                bits,
                name,
                size,
                pitch,
                how,
            )
        except DeviceError as e:
            raise refuse(str(e)) from None
        place = self.driver.memory.alloc(TEXTURE_BYTES, "texture object")
        data = (ctypes.c_uint32 * len(words))(*words)
        self.driver.copy_to_device(0, place, ctypes.addressof(data), TEXTURE_BYTES)
        self._handles[place] = texture
        pointer(out).value = place

    def _sampling(self, d: TextureDesc | DriverTextureDesc, normalized: bool) -> Sampling:
        border = (d.border[0], d.border[1], d.border[2], d.border[3])
        if border not in _BORDERS and 3 in list(d.address):
            raise refuse(f"the border colour {border}: zero, opaque black and white are modelled")
        if d.anisotropy > 1:
            raise refuse(f"anisotropic filters ({d.anisotropy})")
        modes = [_ADDRESSES[a & 3] for a in d.address]
        # Without normalized coordinates nothing repeats: HIP clamps.
        x, y, z = (m if normalized or m == "border" else "clamp" for m in modes)
        return Sampling(bool(d.filter), normalized, (x, y, z), _BORDERS.get(border, "zero"))

    @entry("pppp")
    def hipCreateTextureObject(self, out: int, resource: int, texture: int, view: int) -> None:
        if view and ctypes.c_int.from_address(view).value:
            raise refuse("views of resources in other formats")
        d = TextureDesc.from_address(need(texture, "the texture"))
        how = self._sampling(d, bool(d.normalized))
        read = "srgb" if d.srgb and d.read else "normalized" if d.read else "element"
        kept = Texture(ctypes.string_at(resource, 64), bytes(d), ctypes.string_at(view, 48) if view else b"")
        self._make(out, resource, False, read, how, kept)

    @entry("pppp")
    def hipTexObjectCreate(self, out: int, resource: int, texture: int, view: int) -> None:
        if view and ctypes.c_int.from_address(view).value:
            raise refuse("views of resources in other formats")
        d = DriverTextureDesc.from_address(need(texture, "the texture"))
        how = self._sampling(d, bool(d.flags & 2))
        read = "element" if d.flags & 1 else "srgb" if d.flags & 16 else "normalized"
        kept = Texture(ctypes.string_at(resource, 144), bytes(d), ctypes.string_at(view, 112) if view else b"")
        self._make(out, resource, True, read, how, kept)

    @entry("pp", "hipCreateSurfaceObject", "_Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc")
    def hipCreateSurfaceObject(self, out: int, resource: int) -> None:
        if ctypes.c_int.from_address(need(resource)).value != 0:
            raise HipError(INVALID_VALUE, "a surface is of an array")
        self._make(out, resource, False, "element", Sampling(), Texture(ctypes.string_at(resource, 64)), surface=True)

    @entry(
        "p",
        "hipDestroyTextureObject",
        "hipTexObjectDestroy",
        "hipDestroySurfaceObject",
        "_Z23hipDestroySurfaceObjectP13__hip_surface",
    )
    def hipDestroyTextureObject(self, made: int) -> None:
        if made:
            self.drop(made, Texture)
            self.driver.memory.free(made)

    def _give(self, out: int, data: bytes) -> None:
        if not data:
            raise HipError(INVALID_VALUE, "the texture has none")
        ctypes.memmove(need(out), data, len(data))

    @entry("pp", "hipGetTextureObjectResourceDesc", "hipTexObjectGetResourceDesc")
    def hipGetTextureObjectResourceDesc(self, out: int, made: int) -> None:
        self._give(out, self.held(made, Texture).resource)

    @entry("pp", "hipGetTextureObjectTextureDesc", "hipTexObjectGetTextureDesc")
    def hipGetTextureObjectTextureDesc(self, out: int, made: int) -> None:
        self._give(out, self.held(made, Texture).texture)

    @entry("pp", "hipGetTextureObjectResourceViewDesc", "hipTexObjectGetResourceViewDesc")
    def hipGetTextureObjectResourceViewDesc(self, out: int, made: int) -> None:
        self._give(out, self.held(made, Texture).view)

    @entry("ppi")
    def hipDeviceGetTexture1DLinearMaxWidth(self, out: int, desc: int, device: int) -> None:
        put_size(out, self.properties.get("maxTexture1DLinear", 0))
