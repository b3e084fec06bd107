"""What a device says of itself through the HIP API: `hipDeviceProp_t` in both of its layouts, and the numbered attributes.

Layouts: HIP's header `hip_runtime_api.h` (R0600, since ROCm 6) and `hip_deprecated.h` (R0000, what `hipGetDeviceProperties` fills). What the
software GPU does not have (managed memory over PCI; textures on chips without image instructions) is 0.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ..images.textures import WITHOUT_IMAGES

if TYPE_CHECKING:
    from ..driver import EmuDriver

_LETTERS: dict[str, Any] = {
    "i": ctypes.c_int,
    "u": ctypes.c_uint32,
    "z": ctypes.c_size_t,
    "p": ctypes.c_void_p,
    "c": ctypes.c_char,
}

_R0600 = """name:256c uuid:16c luid:8c luidDeviceNodeMask:u totalGlobalMem:z sharedMemPerBlock:z regsPerBlock:i warpSize:i memPitch:z
maxThreadsPerBlock:i maxThreadsDim:3i maxGridSize:3i clockRate:i totalConstMem:z major:i minor:i textureAlignment:z texturePitchAlignment:z
deviceOverlap:i multiProcessorCount:i kernelExecTimeoutEnabled:i integrated:i canMapHostMemory:i computeMode:i maxTexture1D:i
maxTexture1DMipmap:i maxTexture1DLinear:i maxTexture2D:2i maxTexture2DMipmap:2i maxTexture2DLinear:3i maxTexture2DGather:2i maxTexture3D:3i
maxTexture3DAlt:3i maxTextureCubemap:i maxTexture1DLayered:2i maxTexture2DLayered:3i maxTextureCubemapLayered:2i maxSurface1D:i
maxSurface2D:2i maxSurface3D:3i maxSurface1DLayered:2i maxSurface2DLayered:3i maxSurfaceCubemap:i maxSurfaceCubemapLayered:2i
surfaceAlignment:z concurrentKernels:i ECCEnabled:i pciBusID:i pciDeviceID:i pciDomainID:i tccDriver:i asyncEngineCount:i
unifiedAddressing:i memoryClockRate:i memoryBusWidth:i l2CacheSize:i persistingL2CacheMaxSize:i maxThreadsPerMultiProcessor:i
streamPrioritiesSupported:i globalL1CacheSupported:i localL1CacheSupported:i sharedMemPerMultiprocessor:z regsPerMultiprocessor:i
managedMemory:i isMultiGpuBoard:i multiGpuBoardGroupID:i hostNativeAtomicSupported:i singleToDoublePrecisionPerfRatio:i
pageableMemoryAccess:i concurrentManagedAccess:i computePreemptionSupported:i canUseHostPointerForRegisteredMem:i cooperativeLaunch:i
cooperativeMultiDeviceLaunch:i sharedMemPerBlockOptin:z pageableMemoryAccessUsesHostPageTables:i directManagedMemAccessFromHost:i
maxBlocksPerMultiProcessor:i accessPolicyMaxWindowSize:i reservedSharedMemPerBlock:z hostRegisterSupported:i sparseHipArraySupported:i
hostRegisterReadOnlySupported:i timelineSemaphoreInteropSupported:i memoryPoolsSupported:i gpuDirectRDMASupported:i
gpuDirectRDMAFlushWritesOptions:u gpuDirectRDMAWritesOrdering:i memoryPoolSupportedHandleTypes:u deferredMappingHipArraySupported:i
ipcEventSupported:i clusterLaunch:i unifiedFunctionPointers:i reserved:63i hipReserved:32i gcnArchName:256c
maxSharedMemoryPerMultiProcessor:z clockInstructionRate:i arch:u hdpMemFlushCntl:p hdpRegFlushCntl:p
cooperativeMultiDeviceUnmatchedFunc:i cooperativeMultiDeviceUnmatchedGridDim:i cooperativeMultiDeviceUnmatchedBlockDim:i
cooperativeMultiDeviceUnmatchedSharedMem:i isLargeBar:i asicRevision:i"""

_R0000 = """name:256c totalGlobalMem:z sharedMemPerBlock:z regsPerBlock:i warpSize:i maxThreadsPerBlock:i maxThreadsDim:3i maxGridSize:3i
clockRate:i memoryClockRate:i memoryBusWidth:i totalConstMem:z major:i minor:i multiProcessorCount:i l2CacheSize:i
maxThreadsPerMultiProcessor:i computeMode:i clockInstructionRate:i arch:u concurrentKernels:i pciDomainID:i pciBusID:i pciDeviceID:i
maxSharedMemoryPerMultiProcessor:z isMultiGpuBoard:i canMapHostMemory:i gcnArch:i gcnArchName:256c integrated:i cooperativeLaunch:i
cooperativeMultiDeviceLaunch:i maxTexture1DLinear:i maxTexture1D:i maxTexture2D:2i maxTexture3D:3i hdpMemFlushCntl:p hdpRegFlushCntl:p
memPitch:z textureAlignment:z texturePitchAlignment:z kernelExecTimeoutEnabled:i ECCEnabled:i tccDriver:i
cooperativeMultiDeviceUnmatchedFunc:i cooperativeMultiDeviceUnmatchedGridDim:i cooperativeMultiDeviceUnmatchedBlockDim:i
cooperativeMultiDeviceUnmatchedSharedMem:i isLargeBar:i asicRevision:i managedMemory:i directManagedMemAccessFromHost:i
concurrentManagedAccess:i pageableMemoryAccess:i pageableMemoryAccessUsesHostPageTables:i"""


def _struct(name: str, spec: str) -> Any:
    fields = []
    for word in spec.split():
        field, _, form = word.partition(":")
        kind = _LETTERS[form[-1]]
        fields.append((field, kind * int(form[:-1]) if len(form) > 1 else kind))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


DevicePropR0600 = _struct("DevicePropR0600", _R0600)
DevicePropR0000 = _struct("DevicePropR0000", _R0000)

# hipDeviceAttribute_t of HIP 5.0 and later -> the property that it is, with the element of arrays.
_ATTRIBUTES = {
    3: "canMapHostMemory", 5: "clockRate", 8: "concurrentKernels", 10: "cooperativeLaunch", 19: "l2CacheSize", 23: "major", 26: "maxThreadsDim.0",
    27: "maxThreadsDim.1", 28: "maxThreadsDim.2", 29: "maxGridSize.0", 30: "maxGridSize.1", 31: "maxGridSize.2", 56: "maxThreadsPerBlock",
    57: "maxThreadsPerMultiProcessor", 58: "memPitch", 59: "memoryBusWidth", 60: "memoryClockRate", 61: "minor", 63: "multiProcessorCount",
    32: "maxSurface1D", 39: "maxTexture1D", 41: "maxTexture1DLinear", 43: "maxTexture2D.0", 44: "maxTexture2D.1", 49: "maxTexture3D.0", 50: "maxTexture3D.1",
    51: "maxTexture3D.2", 53: "maxTextureCubemap", 79: "surfaceAlignment", 81: "textureAlignment", 82: "texturePitchAlignment", 10014: "imageSupport",
    71: "regsPerBlock", 72: "regsPerMultiprocessor", 74: "sharedMemPerBlock", 75: "sharedMemPerBlockOptin", 76: "sharedMemPerMultiprocessor",
    83: "totalConstMem", 84: "totalGlobalMem", 85: "unifiedAddressing", 87: "warpSize", 88: "memoryPoolsSupported", 10000: "clockInstructionRate",
    10002: "maxSharedMemoryPerMultiProcessor", 10015: "multiProcessorCount",
}  # fmt: skip


def properties(driver: EmuDriver) -> dict[str, Any]:
    """The fields of either layout that are not 0, by name."""
    chip, machine, limits = driver.chip, driver.chip.machine, driver.chip.limits
    number = chip.name.removeprefix("gfx")
    lds, wave = limits.lds_bytes, chip.wavefront_size
    l2 = machine.level("L2")
    registers = limits.vgpr_file * wave * limits.simds
    memory_khz = 1_000_000  # the width follows from it, so that 2 x clock x width is the bandwidth
    wide, deep = 16384, 8192  # of images, as ROCR says for all of these chips
    images: dict[str, Any] = {
        "imageSupport": 1, "maxTexture1D": wide, "maxTexture1DLinear": 2**27, "maxTexture2D": (wide, wide), "maxTexture3D": (wide, wide, deep),
        "textureAlignment": 256, "texturePitchAlignment": 256, "maxTexture1DLayered": (wide, deep), "maxTexture2DLayered": (wide, wide, deep),
        "maxTextureCubemap": wide, "maxSurface1D": wide, "maxSurface2D": (wide, wide), "maxSurface3D": (wide, wide, deep), "surfaceAlignment": 256,
    }  # fmt: skip
    return {
        **(images if chip.name not in WITHOUT_IMAGES else {}),
        "name": f"{chip.product} (emulated)".encode(), "gcnArchName": chip.name.encode(), "uuid": b"GPU-tec-" + chip.name.encode(),
        "totalGlobalMem": driver.memory.total_bytes, "sharedMemPerBlock": lds, "sharedMemPerBlockOptin": lds,
        "sharedMemPerMultiprocessor": limits.unit_lds_bytes, "maxSharedMemoryPerMultiProcessor": limits.unit_lds_bytes,
        "regsPerBlock": registers, "regsPerMultiprocessor": registers, "warpSize": wave, "memPitch": 2**31 - 1, "maxThreadsPerBlock": 1024,
        "maxThreadsDim": (1024, 1024, 1024), "maxGridSize": (2**31 - 1, 65535, 65535), "clockRate": machine.clock_mhz * 1000,
        "clockInstructionRate": 100_000, "totalConstMem": 2**31 - 1, "major": int(number[:-2]), "minor": int(number[-2], 16),
        "gcnArch": int(number) if number.isdigit() else 0, "multiProcessorCount": chip.compute_units, "canMapHostMemory": 1, "concurrentKernels": 1, "cooperativeLaunch": 1, "memoryPoolsSupported": 1,
        "unifiedAddressing": 1, "memoryClockRate": memory_khz, "memoryBusWidth": round(machine.memory_gbps * 8e6 / (2 * memory_khz)),
        "l2CacheSize": l2.size_bytes if l2 else 0, "maxThreadsPerMultiProcessor": wave * limits.simds * limits.waves_a_simd,
        "arch": 0x1FFFF & ~(1 << 16),  # every feature but dynamic parallelism
    }  # fmt: skip


def fill(address: int, layout: Any, values: dict[str, Any]) -> None:
    """Write a struct of `layout` at `address`; fields that `values` does not name become 0."""
    ctypes.memset(address, 0, ctypes.sizeof(layout))
    out = layout.from_address(address)
    for name, kind in layout._fields_:
        if name in values:
            value = values[name]
            setattr(out, name, kind(*value) if isinstance(value, tuple) else value)


def attribute(number: int, values: dict[str, Any]) -> int:
    """The attribute of that number; 0 for what the software GPU does not have."""
    field, _, element = _ATTRIBUTES.get(number, "").partition(".")
    value = values.get(field, 0)
    return min(int(value[int(element)] if element else value), 2**31 - 1)
