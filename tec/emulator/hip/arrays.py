"""Arrays, and copies to and from them. An array is linear memory whose rows begin at multiples of 256 bytes; kernels do not see how elements lie.

Structures: HIP's header `driver_types.h`. Not there: levels (mipmapped arrays).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ...errors import DeviceError
from ..images.textures import require_images
from .base import need, pointer, put_int, refuse
from .entry import INVALID_VALUE, Extent, HipError, PitchedPointer, entry
from .memories import Memories

_LAYERED, _CUBE = 1, 4  # flags of arrays
SIGNED, UNSIGNED, FLOAT = range(3)  # hipChannelFormatKind
KINDS = {SIGNED: "SINT", UNSIGNED: "UINT", FLOAT: "FLOAT"}
# hipArray_Format -> (kind, bits)
_FORMATS = {
    1: (UNSIGNED, 8), 2: (UNSIGNED, 16), 3: (UNSIGNED, 32), 8: (SIGNED, 8), 9: (SIGNED, 16), 10: (SIGNED, 32), 16: (FLOAT, 16), 32: (FLOAT, 32),
}  # fmt: skip


class ChannelDesc(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int) for n in "xyzwf"]


def _sizes(*names: str) -> list[tuple[str, type]]:
    return [(n, ctypes.c_size_t) for n in names]


class ArrayDescriptor(ctypes.Structure):
    _fields_ = [*_sizes("width", "height"), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


class Array3DDescriptor(ctypes.Structure):
    _fields_ = [
        *_sizes("width", "height", "depth"),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("flags", ctypes.c_uint),
    ]


def _place(prefix: str, deep: bool) -> list[tuple[str, type]]:
    """One side of a driver's copy."""
    first = [prefix + n for n in ("x", "y", *(("z", "level") if deep else ()))]
    last = [prefix + n for n in ("pitch", *(("height",) if deep else ()))]
    middle = [(prefix + "type", ctypes.c_int), *((prefix + n, ctypes.c_size_t) for n in ("host", "device", "array"))]
    return [*_sizes(*first), *middle, *_sizes(*last)]


class Copy2D(ctypes.Structure):
    _fields_ = [*_place("src_", False), *_place("dst_", False), *_sizes("width", "height")]


class Copy3D(ctypes.Structure):
    _fields_ = [*_place("src_", True), *_place("dst_", True), *_sizes("width", "height", "depth")]


class Copy3DParms(ctypes.Structure):
    _fields_ = [("src_array", ctypes.c_size_t), ("src_pos", Extent), ("src_ptr", PitchedPointer), ("dst_array", ctypes.c_size_t), ("dst_pos", Extent),
                ("dst_ptr", PitchedPointer), ("extent", Extent), ("kind", ctypes.c_int)]  # fmt: skip


@dataclass(eq=False)
class Array:
    """An array of the device. `height` and `depth` are 0 where there are none."""

    address: int
    channels: int
    bits: int
    format: int
    width: int
    height: int
    depth: int
    flags: int
    pitch: int

    @property
    def element(self) -> int:
        return self.channels * self.bits // 8

    @property
    def kind(self) -> str:
        if self.flags & _CUBE:
            return "CUBE"
        if self.flags & _LAYERED:
            return "2D_ARRAY" if self.height else "1D_ARRAY"
        return "3D" if self.depth else "2D" if self.height else "1D"

    def at(self, x_bytes: int, y: int = 0, z: int = 0) -> tuple[int, int, int]:
        """(address, bytes from row to row, rows from slice to slice) of an element."""
        rows = max(1, self.height)
        return self.address + (z * rows + y) * self.pitch + x_bytes, self.pitch, rows


class Arrays(Memories):
    """hipMallocArray and its kin, copies to and from arrays."""

    # ---- arrays

    def _make_array(
        self, out: int, kind: int, bits: int, channels: int, size: tuple[int, int, int], flags: int
    ) -> None:
        """Allocate an array with its rows apart as textures want; its handle goes to `out`."""
        try:
            require_images(self.driver.chip.name)
        except DeviceError as e:
            raise refuse(str(e)) from None
        width, height, depth = size
        if (
            kind not in KINDS
            or bits not in (8, 16, 32)
            or channels not in (1, 2, 4)
            or (kind == FLOAT and bits == 8)
            or not width
        ):
            raise HipError(
                INVALID_VALUE,
                f"an array of {width} x {height} x {depth} elements of {channels} channels of {bits} bits",
            )
        if flags & _CUBE and (width != height or depth % 6 or not depth):
            raise HipError(INVALID_VALUE, f"a cube of {width} x {height} x {depth}: six square faces for each cube")
        pitch = -(-width * channels * bits // 8 // 256) * 256
        address = self.driver.memory.alloc(
            pitch * max(1, height) * max(1, depth), f"array of {width} x {height} x {depth}"
        )
        pointer(out).value = self.handle(Array(address, channels, bits, kind, width, height, depth, flags, pitch))

    def _channels(self, desc: int) -> tuple[int, int, int]:
        """(kind, bits, channels)"""
        d = ChannelDesc.from_address(need(desc, "the channels"))
        bits = [b for b in (d.x, d.y, d.z, d.w) if b]
        if not bits or len(set(bits)) > 1:
            raise HipError(INVALID_VALUE, f"channels of {d.x}, {d.y}, {d.z} and {d.w} bits")
        return d.f, bits[0], len(bits)

    @entry("piiiii", value=True)
    def hipCreateChannelDesc(self, out: int, x: int, y: int, z: int, w: int, kind: int) -> int:
        """Returns a structure, whose place is handed over ahead of the arguments."""
        ctypes.memmove(out, bytes(ChannelDesc(x, y, z, w, kind)), ctypes.sizeof(ChannelDesc))
        return out

    @entry("ppzzu")
    def hipMallocArray(self, out: int, desc: int, width: int, height: int, flags: int) -> None:
        self._make_array(out, *self._channels(desc), (width, height, 0), flags)

    @entry("ppEu")
    def hipMalloc3DArray(self, out: int, desc: int, extent: Extent, flags: int) -> None:
        self._make_array(out, *self._channels(desc), (extent.width, extent.height, extent.depth), flags)

    def _format(self, number: int) -> tuple[int, int]:
        if number not in _FORMATS:
            raise HipError(INVALID_VALUE, f"array format {number}")
        return _FORMATS[number]

    @entry("pp")
    def hipArrayCreate(self, out: int, desc: int) -> None:
        d = ArrayDescriptor.from_address(need(desc))
        self._make_array(out, *self._format(d.format), d.channels, (d.width, d.height, 0), 0)

    @entry("pp")
    def hipArray3DCreate(self, out: int, desc: int) -> None:
        d = Array3DDescriptor.from_address(need(desc))
        self._make_array(out, *self._format(d.format), d.channels, (d.width, d.height, d.depth), d.flags)

    @entry("p", "hipFreeArray", "hipArrayDestroy")
    def hipFreeArray(self, array: int) -> None:
        if array:
            self.driver.memory.free(self.drop(array, Array).address)

    def _describe(self, out: int, array: Array) -> None:
        bits = [array.bits] * array.channels + [0] * (4 - array.channels)
        ctypes.memmove(need(out), bytes(ChannelDesc(*bits, array.format)), ctypes.sizeof(ChannelDesc))

    @entry("pp")
    def hipGetChannelDesc(self, out: int, array: int) -> None:
        self._describe(out, self.held(array, Array))

    @entry("pppp")
    def hipArrayGetInfo(self, desc: int, extent: int, flags: int, array: int) -> None:
        found = self.held(array, Array)
        if desc:
            self._describe(desc, found)
        if extent:
            ctypes.memmove(extent, bytes(Extent(found.width, found.height, found.depth)), ctypes.sizeof(Extent))
        if flags:
            put_int(flags, found.flags)

    def _number(self, array: Array) -> int:
        return next(n for n, f in _FORMATS.items() if f == (array.format, array.bits))

    @entry("pp")
    def hipArrayGetDescriptor(self, out: int, array: int) -> None:
        a = self.held(array, Array)
        ctypes.memmove(
            need(out),
            bytes(ArrayDescriptor(a.width, a.height, self._number(a), a.channels)),
            ctypes.sizeof(ArrayDescriptor),
        )

    @entry("pp")
    def hipArray3DGetDescriptor(self, out: int, array: int) -> None:
        a = self.held(array, Array)
        made = Array3DDescriptor(a.width, a.height, a.depth, self._number(a), a.channels, a.flags)
        ctypes.memmove(need(out), bytes(made), ctypes.sizeof(made))

    # ---- copies

    def _copy_box(
        self, dst: tuple[int, int, int], src: tuple[int, int, int], width: int, height: int, depth: int, kind: int
    ) -> None:
        """Rows of `width` bytes; a place is (address, bytes from row to row, rows from slice to slice)."""
        for z in range(max(1, depth)):
            for y in range(max(1, height)):
                to, source = (p[0] + (z * p[2] + y) * p[1] for p in (dst, src))
                self._copy(to, source, width, kind)

    @entry("pzzpzzzi")
    def hipMemcpy2DToArray(
        self, dst: int, x: int, y: int, src: int, pitch: int, width: int, height: int, kind: int
    ) -> int:
        self._copy_box(self.held(dst, Array).at(x, y), (src, pitch, 0), width, height, 1, kind)
        return self.wait()

    @entry("pzzpzzzip")
    def hipMemcpy2DToArrayAsync(
        self, dst: int, x: int, y: int, src: int, pitch: int, width: int, height: int, kind: int, stream: int
    ) -> None:
        self.submit(
            stream, lambda: self._copy_box(self.held(dst, Array).at(x, y), (src, pitch, 0), width, height, 1, kind)
        )

    @entry("pzpzzzzi")
    def hipMemcpy2DFromArray(
        self, dst: int, pitch: int, src: int, x: int, y: int, width: int, height: int, kind: int
    ) -> int:
        self._copy_box((dst, pitch, 0), self.held(src, Array).at(x, y), width, height, 1, kind)
        return self.wait()

    @entry("pzpzzzzip")
    def hipMemcpy2DFromArrayAsync(
        self, dst: int, pitch: int, src: int, x: int, y: int, width: int, height: int, kind: int, stream: int
    ) -> None:
        self.submit(
            stream, lambda: self._copy_box((dst, pitch, 0), self.held(src, Array).at(x, y), width, height, 1, kind)
        )

    @entry("pzzpzzzzi")
    def hipMemcpy2DArrayToArray(
        self, dst: int, x: int, y: int, src: int, sx: int, sy: int, width: int, height: int, kind: int
    ) -> int:
        self._copy_box(self.held(dst, Array).at(x, y), self.held(src, Array).at(sx, sy), width, height, 1, kind)
        return self.wait()

    def _runs(self, array: Array, x: int, y: int, count: int) -> list[tuple[int, int, int]]:
        """A run of `count` bytes through the rows of an array: (address, offset in the run, bytes)."""
        row, out, done = array.width * array.element, [], 0
        while done < count:
            n = min(count - done, row - x)
            if n <= 0 or y >= max(1, array.height):
                raise HipError(INVALID_VALUE, f"{count} bytes at ({x}, {y}) of an array of {row} bytes per row")
            out.append((array.at(x, y)[0], done, n))
            done, x, y = done + n, 0, y + 1
        return out

    @entry("pzzpzi")
    def hipMemcpyToArray(self, dst: int, x: int, y: int, src: int, count: int, kind: int) -> int:
        for address, offset, n in self._runs(self.held(dst, Array), x, y, count):
            self._copy(address, src + offset, n, kind)
        return self.wait()

    @entry("ppzzzi")
    def hipMemcpyFromArray(self, dst: int, src: int, x: int, y: int, count: int, kind: int) -> int:
        for address, offset, n in self._runs(self.held(src, Array), x, y, count):
            self._copy(dst + offset, address, n, kind)
        return self.wait()

    @entry("pzpz")
    def hipMemcpyHtoA(self, dst: int, x: int, src: int, count: int) -> int:
        return self.hipMemcpyToArray(dst, x, 0, src, count, 1)

    @entry("ppzz")
    def hipMemcpyAtoH(self, dst: int, src: int, x: int, count: int) -> int:
        return self.hipMemcpyFromArray(dst, src, x, 0, count, 2)

    def _side(self, c: ctypes.Structure, prefix: str) -> tuple[int, int, int]:
        def get(name: str) -> int:
            return int(getattr(c, prefix + name, 0))

        if get("level"):
            raise refuse("levels of arrays")
        if get("type") == 10:
            held: Array = self.held(get("array"), Array)
            return held.at(get("x"), get("y"), get("z"))
        base, pitch, rows = (
            get("host") if get("type") == 1 else get("device") or get("host"),
            get("pitch"),
            get("height"),
        )
        return base + (get("z") * rows + get("y")) * pitch + get("x"), pitch, rows

    def _driver_copy(self, c: ctypes.Structure, width: int, height: int, depth: int) -> None:
        self._copy_box(self._side(c, "dst_"), self._side(c, "src_"), width, height, depth, 4)

    @entry("p", "hipMemcpyParam2D", "hipDrvMemcpy2DUnaligned")
    def hipMemcpyParam2D(self, what: int) -> int:
        c = Copy2D.from_address(need(what))
        self._driver_copy(c, c.width, c.height, 1)
        return self.wait()

    @entry("pp")
    def hipMemcpyParam2DAsync(self, what: int, stream: int) -> None:
        c = Copy2D.from_buffer_copy(ctypes.string_at(need(what), ctypes.sizeof(Copy2D)))
        self.submit(stream, lambda: self._driver_copy(c, c.width, c.height, 1))

    @entry("p")
    def hipDrvMemcpy3D(self, what: int) -> int:
        c = Copy3D.from_address(need(what))
        self._driver_copy(c, c.width, c.height, c.depth)
        return self.wait()

    @entry("pp")
    def hipDrvMemcpy3DAsync(self, what: int, stream: int) -> None:
        c = Copy3D.from_buffer_copy(ctypes.string_at(need(what), ctypes.sizeof(Copy3D)))
        self.submit(stream, lambda: self._driver_copy(c, c.width, c.height, c.depth))

    def _copy3d(self, p: Copy3DParms) -> None:
        """Positions and widths are in elements of an array where one takes part, in bytes else."""
        arrays = [self.held(a, Array) for a in (p.src_array, p.dst_array) if a]
        unit = arrays[0].element if arrays else 1

        def side(array: int, pos: Extent, ptr: PitchedPointer) -> tuple[int, int, int]:
            if array:
                found: Array = self.held(array, Array)
                return found.at(pos.width * found.element, pos.height, pos.depth)
            rows = int(ptr.ysize)
            return int(ptr.ptr) + (pos.depth * rows + pos.height) * ptr.pitch + pos.width, int(ptr.pitch), rows

        dst, src = side(p.dst_array, p.dst_pos, p.dst_ptr), side(p.src_array, p.src_pos, p.src_ptr)
        self._copy_box(dst, src, p.extent.width * unit, p.extent.height, p.extent.depth, p.kind)

    @entry("p")
    def hipMemcpy3D(self, what: int) -> int:
        self._copy3d(Copy3DParms.from_address(need(what)))
        return self.wait()

    @entry("pp")
    def hipMemcpy3DAsync(self, what: int, stream: int) -> None:
        p = Copy3DParms.from_buffer_copy(ctypes.string_at(need(what), ctypes.sizeof(Copy3DParms)))
        self.submit(stream, lambda: self._copy3d(p))

    # ---- memory of three dimensions

    @entry("pE")
    def hipMalloc3D(self, out: int, extent: Extent) -> None:
        pitch = -(-extent.width // 256) * 256
        address = self.driver.memory.alloc(pitch * max(1, extent.height) * max(1, extent.depth))
        made = PitchedPointer(address, pitch, extent.width, extent.height)
        ctypes.memmove(need(out), bytes(made), ctypes.sizeof(made))

    @entry("QiE")
    def hipMemset3D(self, what: PitchedPointer, value: int, extent: Extent) -> None:
        for z in range(extent.depth):
            self._fill_rows(
                int(what.ptr) + z * what.pitch * what.ysize, what.pitch, value, 1, extent.width, extent.height
            )

    @entry("QiEp")
    def hipMemset3DAsync(self, what: PitchedPointer, value: int, extent: Extent, stream: int) -> None:
        self.submit(stream, lambda: self.hipMemset3D(what, value, extent))

    @entry("ppzzu")
    def hipMemAllocPitch(self, out: int, pitch: int, width: int, height: int, element: int) -> None:
        self.hipMallocPitch(out, pitch, width, height)
