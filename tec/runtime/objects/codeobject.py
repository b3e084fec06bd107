"""Read an AMDGPU code object: what a loader needs to know of a linked ELF, without a loader.

In: the bytes of an ELF64 shared object for AMDGPU (what `ld.lld -shared` or tec's own linker makes). Out: a
`CodeObject` with the chip, the loadable segments, the symbols, and one `KernelInfo` a kernel, which joins the 64-byte
kernel descriptor (symbol `<name>.kd`) with the kernel's entry in the msgpack metadata note (NT_AMDGPU_METADATA).
Source: LLVM's "User Guide for AMDGPU Backend", sections "ELF Code Object", "Code Object V3 and Above Metadata",
"Kernel Descriptor".
"""

from __future__ import annotations

import struct
from dataclasses import field
from typing import Any

from tec.errors import DeviceError

from ...records import dataclass

_EM_AMDGPU = 224
_EI_ABIVERSION = 8  # the byte that tells a code object's version, from 2 on
NEWEST_VERSION = 6  # LLVM 22's newest
_MAX_ARGUMENTS = 1 << 16  # bytes of a kernel's arguments; compilers stop at 4 KiB
_POINTERS = {"global_buffer": 8, "dynamic_shared_pointer": 4}  # kinds of arguments -> bytes
_MAX_IMAGE = 1 << 30  # bytes of a loaded code object; segments may ask for zeros that no file holds
_NT_AMDGPU_METADATA = 32
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_SHT_DYNSYM, _SHT_SYMTAB, _SHT_NOTE, _SHT_RELA = 11, 2, 7, 4

# EF_AMDGPU_MACH, the low byte of e_flags.
MACH: dict[int, str] = {
    0x2A: "gfx803", 0x2C: "gfx900", 0x2F: "gfx906", 0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950",
    0x33: "gfx1010", 0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032", 0x39: "gfx1033", 0x3E: "gfx1034",
    0x3D: "gfx1035", 0x45: "gfx1036", 0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103",
    0x43: "gfx1150", 0x4A: "gfx1151", 0x55: "gfx1152", 0x58: "gfx1153", 0x48: "gfx1200", 0x4E: "gfx1201",
    0x49: "gfx1250",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelArg:
    """One entry of a kernel's argument list, as the metadata states it. Sizes and offsets are in bytes."""

    offset: int
    size: int
    kind: str  # "global_buffer", "by_value", "dynamic_shared_pointer", "hidden_block_count_x", ...
    name: str = ""

    @property
    def hidden(self) -> bool:
        return self.kind.startswith("hidden_")


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What a launch must know of one kernel: descriptor and metadata together. Sizes are in bytes."""

    name: str
    lds_bytes: int
    private_bytes: int  # scratch of one lane
    kernarg_bytes: int
    args: tuple[KernelArg, ...]
    wavefront_size: int
    max_workgroup_size: int
    required_workgroup_size: tuple[int, int, int] | None
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    # The descriptor's register set-up.
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    kernarg_preload_dwords: int  # kernel arguments that arrive in SGPRs, after the other user SGPRs
    kernarg_preload_offset: int  # the first of them, in dwords
    entry: int  # virtual address of the first instruction
    metadata: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def user_sgprs(self) -> int:
        return (self.rsrc2 >> 1) & 31

    @property
    def explicit_args(self) -> tuple[KernelArg, ...]:
        return tuple(a for a in self.args if not a.hidden)

    @property
    def explicit_bytes(self) -> int:
        """Up to the end of the last explicit argument."""
        return max((a.offset + a.size for a in self.explicit_args), default=0)


@dataclass(frozen=True, slots=True)
class Segment:
    """A loadable piece: `data` goes to `vaddr`; the rest up to `memory_bytes` is zero."""

    vaddr: int
    data: bytes
    memory_bytes: int
    executable: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    value: int
    size: int
    defined: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """A dynamic relocation that a loader applies (RELA)."""

    offset: int
    kind: int
    symbol: str
    addend: int


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A code object, read."""

    chip: str
    flags: int
    kernels: dict[str, KernelInfo]
    segments: tuple[Segment, ...]
    symbols: dict[str, Symbol]
    relocations: tuple[Relocation, ...]
    target_id: str
    text: bytes
    metadata: dict[str, Any] = field(repr=False, default_factory=dict)
    debug: dict[str, bytes] = field(repr=False, default_factory=dict)  # sections of debug information, by name
    version: int = 5  # of code objects, as LLVM counts them


def read_code_object(image: bytes) -> CodeObject:
    """Read a linked AMDGPU code object; raises `DeviceError` where it is not one or is damaged."""
    try:
        return _read(image)
    except (
        struct.error,
        IndexError,
        KeyError,
        ValueError,
        OverflowError,
        UnicodeDecodeError,
        TypeError,
        RecursionError,
    ) as error:
        what = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise DeviceError(
            f"damaged code object: {what}",
            hint="pass the linked ELF (ld.lld -shared), whole",
        ) from None


def read_metadata(image: bytes) -> dict[str, Any]:
    """The msgpack metadata alone; works on relocatable objects too."""
    _check_header(image)
    for kind, _, _, data, _ in _sections(image).values():
        if kind == _SHT_NOTE:
            found = _metadata_note(data)
            if found is not None:
                return found
    return {}


def _check_header(image: bytes) -> None:
    if image[:4] != b"\x7fELF":
        raise DeviceError("this is not a code object: no ELF header", hint="pass the bytes of a .hsaco file")
    if image[4:6] != b"\x02\x01" or struct.unpack_from("<H", image, 18)[0] != _EM_AMDGPU:
        machine = struct.unpack_from("<H", image, 18)[0]
        raise DeviceError(
            f"an ELF file for machine {machine}, not for AMDGPU ({_EM_AMDGPU})",
            hint="pass the code object of a GPU: a .hsaco file, or a bundle or fat binary that holds one",
        )


def _sections(image: bytes) -> dict[int, tuple[int, int, int, bytes, tuple[int, int, str]]]:
    """index -> (type, flags, vaddr, contents, (link, info, name))."""
    (shoff,) = struct.unpack_from("<Q", image, 40)
    count, shstr = struct.unpack_from("<HH", image, 60)
    raw = [struct.unpack_from("<IIQQQQIIQQ", image, shoff + 64 * i) for i in range(count)]
    names = image[raw[shstr][4] : raw[shstr][4] + raw[shstr][5]] if count else b""
    out: dict[int, tuple[int, int, int, bytes, tuple[int, int, str]]] = {}
    for i, s in enumerate(raw):
        data = b"" if s[1] == 8 else image[s[4] : s[4] + s[5]]
        out[i] = (s[1], s[2], s[3], data, (s[6], s[7], _cstring(names, s[0])))
    return out


def _read(image: bytes) -> CodeObject:
    """An AMD code object: segments to load, kernels with their descriptors, notes. Raises ValueError, struct.error or KeyError for a broken file; the caller
    names it."""
    _check_header(image)
    elf_type, _, _, _, phoff, _, flags, _, _, phnum = struct.unpack_from("<HHIQQQIHHH", image, 16)
    if elf_type != 3:
        raise DeviceError(
            f"this object is not linked (ELF type {elf_type}, want 3)", hint="link it first: ld.lld -shared"
        )
    segments = []
    metadata: dict[str, Any] = {}
    for i in range(phnum):
        kind, pflags, offset, vaddr, _, filesz, memsz, _ = struct.unpack_from("<IIQQQQQQ", image, phoff + 56 * i)
        if offset + filesz > len(image):
            raise ValueError(f"segment {i} ends at {offset + filesz}, the file at {len(image)}")
        if kind == _PT_LOAD:
            if memsz < filesz or vaddr + memsz > _MAX_IMAGE:
                raise ValueError(f"segment {i} asks for {memsz} bytes at {vaddr}, and has {filesz}")
            segments.append(Segment(vaddr, image[offset : offset + filesz], memsz, bool(pflags & 1), bool(pflags & 2)))
        elif kind == _PT_NOTE:
            metadata = _metadata_note(image[offset : offset + filesz]) or metadata
    sections = _sections(image)
    symbols: dict[str, Symbol] = {}
    relocations: list[Relocation] = []
    text = b""
    debug = {name: data for _, _, _, data, (_, _, name) in sections.values() if name.startswith(".debug_")}
    for kind, sflags, _, data, (link, _, name) in sections.values():
        if kind in (_SHT_DYNSYM, _SHT_SYMTAB):
            strings = sections[link][3]
            for o in range(24, len(data), 24):
                st_name, _, _, shndx, value, size = struct.unpack_from("<IBBHQQ", data, o)
                label = _cstring(strings, st_name)
                if label:
                    symbols[label] = Symbol(label, value, size, shndx != 0)
        elif kind == _SHT_RELA and sflags & 2:
            table = sections[link][3]
            strings = sections[sections[link][4][0]][3]
            for o in range(0, len(data), 24):
                offset, info, addend = struct.unpack_from("<QQq", data, o)
                st_name = struct.unpack_from("<I", table, 24 * (info >> 32))[0]
                if not any(s.vaddr <= offset and offset + 8 <= s.vaddr + s.memory_bytes for s in segments):
                    raise ValueError(f"a relocation at {offset}, where nothing is loaded")
                relocations.append(Relocation(offset, info & 0xFFFFFFFF, _cstring(strings, st_name), addend))
        if name == ".text":
            text = data
    mach = flags & 0xFF
    chip = MACH.get(mach)
    if chip is None:
        raise DeviceError(
            f"a code object for an AMDGPU chip this version does not know (EF_AMDGPU_MACH {mach:#x})",
            hint=f"chips that it knows: {', '.join(sorted(set(MACH.values())))}",
        )
    kernels: dict[str, KernelInfo] = {}
    for entry in metadata.get("amdhsa.kernels", []):
        info = _kernel(entry, symbols, segments)
        kernels[info.name] = info
    return CodeObject(
        chip, flags, kernels, tuple(segments), symbols, tuple(relocations),
        str(metadata.get("amdhsa.target", "")), text, metadata, debug, image[_EI_ABIVERSION] + 2,
    )  # fmt: skip


def _kernel(entry: dict[str, Any], symbols: dict[str, Symbol], segments: list[Segment]) -> KernelInfo:
    """A kernel from its entry in the metadata and the 64 bytes of its descriptor. Raises ValueError where one of them is not there."""
    name, kd_name = entry[".name"], entry[".symbol"]
    kd = symbols.get(kd_name)
    if kd is None:
        raise ValueError(f"kernel {name} has no descriptor symbol {kd_name}")
    for seg in segments:
        if seg.vaddr <= kd.value and kd.value + 64 <= seg.vaddr + len(seg.data):
            raw = seg.data[kd.value - seg.vaddr : kd.value - seg.vaddr + 64]
            break
    else:
        raise ValueError(f"the descriptor of kernel {name} lies in no segment")
    lds, private, kernarg, _, entry_offset = struct.unpack_from("<IIIIq", raw, 0)
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", raw, 44)
    args = tuple(
        KernelArg(_count(a, ".offset"), _count(a, ".size"), str(a[".value_kind"]), str(a.get(".name", "")))
        for a in entry.get(".args", [])
    )
    for a in args:
        if a.offset + a.size > _MAX_ARGUMENTS or a.size != _POINTERS.get(a.kind, a.size):
            raise ValueError(f"kernel {name} has an argument of {a.size} bytes ({a.kind}) at {a.offset}")
    required = entry.get(".reqd_workgroup_size")
    if required is not None and (len(required) != 3 or not all(type(n) is int and 0 < n < 1 << 16 for n in required)):
        raise ValueError(f"kernel {name} requires work-groups of {required}")
    start = kd.value + entry_offset
    if start % 4 or not any(s.executable and s.vaddr <= start < s.vaddr + len(s.data) for s in segments):
        raise ValueError(f"kernel {name} begins at {start:#x}, where no code is")
    return KernelInfo(
        name=name,
        lds_bytes=lds,
        private_bytes=private,
        kernarg_bytes=kernarg,
        args=args,
        wavefront_size=32 if properties & (1 << 10) else 64,
        max_workgroup_size=_count(entry, ".max_flat_workgroup_size", 1024),
        required_workgroup_size=tuple(required) if required else None,
        vgprs=_count(entry, ".vgpr_count", 0),
        agprs=_count(entry, ".agpr_count", 0),
        sgprs=_count(entry, ".sgpr_count", 0),
        vgpr_spills=_count(entry, ".vgpr_spill_count", 0),
        sgpr_spills=_count(entry, ".sgpr_spill_count", 0),
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        kernarg_preload_dwords=preload & 0x7F,
        kernarg_preload_offset=preload >> 7,
        entry=start,
        metadata=entry,
    )


def _count(entry: dict[str, Any], key: str, default: int | None = None) -> int:
    """A number of the metadata: bytes, registers, work-items. Raises ValueError for what none of them can be."""
    value = entry[key] if default is None else entry.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ValueError(f"{key} is {value!r} in the metadata")
    return value


def _cstring(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _metadata_note(data: bytes) -> dict[str, Any] | None:
    pos = 0
    while pos + 12 <= len(data):
        name_bytes, desc_bytes, kind = struct.unpack_from("<III", data, pos)
        name = data[pos + 12 : pos + 12 + name_bytes].rstrip(b"\0")
        start = pos + 12 + (name_bytes + 3) // 4 * 4
        if kind == _NT_AMDGPU_METADATA and name == b"AMDGPU":
            found, _ = _msgpack(data[start : start + desc_bytes], 0)
            if not isinstance(found, dict):
                raise ValueError("the metadata note holds no map")
            return found
        pos = start + (desc_bytes + 3) // 4 * 4
    return None


_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {
    0xC4: (">B", "bin"), 0xC5: (">H", "bin"), 0xC6: (">I", "bin"), 0xD9: (">B", "str"), 0xDA: (">H", "str"),
    0xDB: (">I", "str"), 0xDC: (">H", "list"), 0xDD: (">I", "list"), 0xDE: (">H", "map"), 0xDF: (">I", "map"),
}  # fmt: skip


def _msgpack(b: bytes, pos: int) -> tuple[Any, int]:
    """One msgpack value at `pos`: (value, position after it). The types that the metadata uses; others raise."""
    tag = b[pos]
    pos += 1
    if tag < 0x80:
        return tag, pos
    if tag >= 0xE0:
        return tag - 256, pos
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], pos
    if tag in _NUMBERS:
        fmt = _NUMBERS[tag]
        return struct.unpack_from(fmt, b, pos)[0], pos + struct.calcsize(fmt)
    if tag in _LENGTHS:
        fmt, kind = _LENGTHS[tag]
        size = struct.unpack_from(fmt, b, pos)[0]
        pos += struct.calcsize(fmt)
    elif tag < 0x90:
        kind, size = "map", tag & 15
    elif tag < 0xA0:
        kind, size = "list", tag & 15
    elif tag < 0xC0:
        kind, size = "str", tag & 31
    else:
        raise ValueError(f"msgpack type {tag:#x} in the metadata")
    if kind in ("str", "bin"):
        if pos + size > len(b):
            raise ValueError("the metadata ends within a string")
        raw = b[pos : pos + size]
        return (raw.decode() if kind == "str" else raw), pos + size
    if kind == "list":
        items = []
        for _ in range(size):
            item, pos = _msgpack(b, pos)
            items.append(item)
        return items, pos
    out = {}
    for _ in range(size):
        key, pos = _msgpack(b, pos)
        out[key], pos = _msgpack(b, pos)
    return out, pos
