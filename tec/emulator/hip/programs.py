"""What a program that hipcc compiled registers of itself before `main`, and how it launches: kernels and variables by the addresses of their stubs.

Source: clang's CodeGen of HIP host code (CGCUDANV.cpp) and `hipLaunchKernel` of the runtime API.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field

from .base import need, pointer, put_int, put_size
from .entry import (
    INVALID_CONFIGURATION,
    INVALID_FUNCTION,
    INVALID_IMAGE,
    INVALID_SYMBOL,
    INVALID_VALUE,
    Dim3,
    HipError,
    entry,
)
from .modules import Function, Module, Modules, image_at
from .pools import Pools

_FAT_BINARY = 0x48495046  # "HIPF"
_MAX_DYNAMIC, _CARVEOUT = 8, 9  # hipFuncAttribute: the two that a program can set


@dataclass(eq=False)
class FatBinary:
    """The code that a program carries: loaded when its first kernel is wanted."""

    address: int
    module: Module | None = None
    managed: dict[str, int] = field(default_factory=dict)  # variables of managed memory: where each lies


class Programs(Modules, Pools):
    """__hipRegister*, hipLaunchKernel, and what takes a kernel or a variable of the program itself."""

    def __init__(self, chip: str, check: str):
        super().__init__(chip, check)
        self._calls: list[tuple[Dim3, Dim3, int, int]] = []
        self._by_host: dict[int, tuple[FatBinary, str]] = {}  # address of a stub or a variable -> where its namesake is

    def _found(self, host: int, what: str, status: int) -> tuple[Module, str]:
        found = self._by_host.get(host)
        if found is None:
            raise HipError(status, f"{host:#x} is no {what} that the program registered")
        fat, name = found
        if fat.module is None:
            fat.module = self._load(image_at(fat.address))
            for variable, place in fat.managed.items():  # the kernels' variable holds the address
                at, _ = self._global(fat.module, variable)
                pointer(at).value = place
                self.driver.memory.mark_written(at, 8)
        return fat.module, name

    def _of_host(self, host: int) -> Function:
        """The kernel whose stub in the program stands at `host`."""
        return self._function(*self._found(host, "kernel", INVALID_FUNCTION))

    @entry("p", "__hipRegisterFatBinary", value=True)
    def register_fat_binary(self, wrapper: int) -> int:
        magic, _, address = struct.unpack("<IIQ", ctypes.string_at(need(wrapper, "the fat binary"), 16))
        if magic != _FAT_BINARY:
            raise HipError(INVALID_IMAGE, f"a fat binary that begins with {magic:#x}")
        return self.handle(FatBinary(address))

    @entry("p", "__hipUnregisterFatBinary")
    def unregister_fat_binary(self, fat: int) -> None:
        gone = self.drop(fat, FatBinary)
        self._by_host = {k: v for k, v in self._by_host.items() if v[0] is not gone}

    @entry("ppssupppp", "__hipRegisterFunction")
    def register_function(
        self, fat: int, host: int, device: bytes, name: bytes, limit: int, tid: int, bid: int, block: int, grid: int
    ) -> None:
        self._by_host[host] = self.held(fat, FatBinary), name.decode()

    @entry("ppssizii", "__hipRegisterVar")
    def register_variable(
        self,
        fat: int,
        host: int,
        host_name: bytes,
        name: bytes,
        external: int,
        size: int,
        constant: int,
        everywhere: int,
    ) -> None:
        self._by_host[host] = self.held(fat, FatBinary), name.decode()

    @entry("pppszu", "__hipRegisterManagedVar")
    def register_managed(self, fat: int, host: int, value: int, name: bytes, nbytes: int, align: int) -> None:
        """`host`: the program's pointer to the variable; `value`: its bytes at the start."""
        self._alloc_host(host, nbytes)
        place = pointer(host).value or 0
        ctypes.memmove(place, need(value), nbytes)
        self.held(fat, FatBinary).managed[name.decode()] = place

    @entry("ppppiii", "__hipRegisterTexture", "__hipRegisterSurface")
    def register_texture(
        self, fat: int, host: int, name: int, device: int, kind: int, more: int, external: int
    ) -> None:
        """Programs register what no kernel of theirs may ever use; what uses it is refused."""

    @entry("DDzp", "__hipPushCallConfiguration")
    def push_call(self, grid: Dim3, block: Dim3, shared: int, stream: int) -> None:
        self._calls.append((grid, block, shared, stream))

    @entry("pppp", "__hipPopCallConfiguration")
    def pop_call(self, grid: int, block: int, shared: int, stream: int) -> None:
        if not self._calls:
            raise HipError(INVALID_CONFIGURATION, "no launch is under way")
        g, b, s, q = self._calls.pop()
        for address, value in ((grid, g), (block, b)):
            ctypes.memmove(need(address), bytes(value), ctypes.sizeof(Dim3))
        put_size(shared, s)
        pointer(stream).value = q or None

    @entry("pDDpzp", "hipLaunchKernel")
    def hipLaunchKernel(self, host: int, grid: Dim3, block: Dim3, params: int, shared: int, stream: int) -> None:
        self._launch(self._of_host(host), grid.dims(), block.dims(), shared, stream, params, 0)

    @entry("pppupp", "_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv")
    def launch_by_block(self, host: int, grid: int, block: int, shared: int, stream: int, extra: int) -> None:
        g, b = (Dim3.from_address(need(d)).dims() for d in (grid, block))
        self._launch(self._of_host(host), g, b, shared, stream, 0, extra)

    @entry("pDDpup")
    def hipLaunchCooperativeKernel(
        self, host: int, grid: Dim3, block: Dim3, params: int, shared: int, stream: int
    ) -> None:
        self._launch(self._of_host(host), grid.dims(), block.dims(), shared, stream, params, 0, True)

    @entry("pDDpzpppi")
    def hipExtLaunchKernel(
        self, host: int, grid: Dim3, block: Dim3, params: int, shared: int, stream: int, start: int, stop: int, flags: int
    ) -> None:  # fmt: skip
        if start:
            self._event(start, stream)
        self.hipLaunchKernel(host, grid, block, params, shared, stream)
        if stop:
            self._event(stop, stream)

    @entry("ppp")
    def hipLaunchKernelExC(self, config: int, host: int, params: int) -> None:
        """hipLaunchConfig_t: grid, block, bytes of LDS, stream, attributes, their number; the attribute 2 asks for a cooperative launch."""
        *dims, shared, stream, attributes, count = struct.unpack(
            "<6IQQQI", ctypes.string_at(need(config, "the configuration"), 52)
        )
        # An attribute has 72 bytes: its number, and its value from byte 8 on.
        asked = any(
            ctypes.c_int.from_address(attributes + 72 * k).value == 2
            and ctypes.c_int.from_address(attributes + 72 * k + 8).value
            for k in range(count)
        )
        self._launch(self._of_host(host), tuple(dims[:3]), tuple(dims[3:]), shared, stream, params, 0, asked)

    @entry("pp")
    def hipGetFuncBySymbol(self, out: int, host: int) -> None:
        pointer(out).value = self.handle(self._of_host(host))

    @entry("pp")
    def hipFuncGetAttributes(self, out: int, host: int) -> None:
        function = self._of_host(host)
        i = function.info
        row = struct.pack(
            "<iiQQiiiii4xQ",
            0,
            0,
            0,
            i.private_bytes,
            self._most_dynamic(function),
            i.max_workgroup_size,
            i.vgprs,
            0,
            0,
            i.lds_bytes,
        )
        ctypes.memmove(need(out), row, len(row))

    @entry("pii")
    def hipFuncSetAttribute(self, host: int, which: int, value: int) -> None:
        """hipFuncAttributeMaxDynamicSharedMemorySize is kept, and told by hipFuncGetAttributes. As on AMD GPUs no launch needs it."""
        function = self._of_host(host)
        i = function.info
        if which not in (_MAX_DYNAMIC, _CARVEOUT):
            raise HipError(INVALID_VALUE, f"{which} is no attribute that a program can set")
        if which == _CARVEOUT:
            if not -1 <= value <= 100:
                raise HipError(INVALID_VALUE, f"a preferred share of shared memory of {value} per cent")
            return
        room = self.driver.chip.limits.lds_bytes - i.lds_bytes
        if not 0 <= value <= room:
            raise HipError(INVALID_VALUE, f"{value:,} bytes of dynamic LDS for {i.name}, where the chip has {room:,}")
        function.allowed = value

    @entry("pi", "hipFuncSetCacheConfig", "hipFuncSetSharedMemConfig")
    def hipFuncSetCacheConfig(self, host: int, value: int) -> None: ...

    @entry("ppiz", "hipOccupancyMaxActiveBlocksPerMultiprocessor")
    def groups_of_host(self, out: int, host: int, size: int, dynamic: int) -> None:
        put_int(out, self._groups(self._of_host(host).info, size, dynamic))

    @entry("pppzi", "hipOccupancyMaxPotentialBlockSize")
    def best_of_host(self, grid: int, block: int, host: int, dynamic: int, limit: int) -> None:
        self._best(grid, block, self._of_host(host).info, dynamic, limit)

    @entry("ppizu", "hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")
    def groups_of_host_flags(self, out: int, host: int, size: int, dynamic: int, flags: int) -> None:
        self.groups_of_host(out, host, size, dynamic)

    @entry("ppii")
    def hipOccupancyAvailableDynamicSMemPerBlock(self, out: int, host: int, groups: int, size: int) -> None:
        room = self.driver.chip.limits.lds_bytes // max(1, groups) - self._of_host(host).info.lds_bytes
        put_size(out, max(0, room))

    @entry("pp", "hipKernelNameRefByPtr", value=True)
    def name_of_host(self, host: int, stream: int) -> int:
        return self.text(self._of_host(host).info.name)

    # ---- variables

    def _variable(self, host: int) -> tuple[int, int]:
        return self._global(*self._found(host, "variable", INVALID_SYMBOL))

    @entry("pp")
    def hipGetSymbolAddress(self, out: int, host: int) -> None:
        pointer(out).value = self._variable(host)[0]

    @entry("pp")
    def hipGetSymbolSize(self, out: int, host: int) -> None:
        put_size(out, self._variable(host)[1])

    @entry("ppzzi")
    def hipMemcpyToSymbol(self, host: int, src: int, nbytes: int, offset: int, kind: int) -> int:
        return self.hipMemcpy(self._variable(host)[0] + offset, src, nbytes, kind)

    @entry("ppzzi")
    def hipMemcpyFromSymbol(self, dst: int, host: int, nbytes: int, offset: int, kind: int) -> int:
        return self.hipMemcpy(dst, self._variable(host)[0] + offset, nbytes, kind)

    @entry("ppzzip")
    def hipMemcpyToSymbolAsync(self, host: int, src: int, nbytes: int, offset: int, kind: int, stream: int) -> None:
        self.hipMemcpyAsync(self._variable(host)[0] + offset, src, nbytes, kind, stream)

    @entry("ppzzip")
    def hipMemcpyFromSymbolAsync(self, dst: int, host: int, nbytes: int, offset: int, kind: int, stream: int) -> None:
        self.hipMemcpyAsync(dst, self._variable(host)[0] + offset, nbytes, kind, stream)
