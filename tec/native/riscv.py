"""Relocations of RISC-V, 64 bits, and the stubs by which calls reach other libraries.

An address takes two instructions: `auipc` gets the upper 20 bits of its distance (a HI20 relocation), the next one the lower 12. The LO12 relocation of the
second names the place of the first, and not the address. Source: "RISC-V ABIs Specification", chapter "ELF Object Files"; the unprivileged ISA's formats of instructions.
"""

from __future__ import annotations

import struct

CALLS = frozenset({18, 19})
GOT_KINDS = frozenset({20})
POINTER = (2, 2, 3)  # an address, a slot with a symbol's address, the load address plus a number
HIGH = frozenset({20, 23})
LOW = frozenset({24, 25})
_ADD, _SUB = {33: "B", 34: "H", 35: "I", 36: "Q"}, {37: "B", 38: "H", 39: "I", 40: "Q"}
_AUIPC_T3, _LOAD_T3, _JUMP_T3, _NOP = 0xE17, 0xE3E03, 0xE0367, 0x13


def _split(distance: int) -> tuple[int, int]:
    """The upper 20 bits in place, and the lower 12, which count with their sign."""
    if not -(1 << 31) - 0x800 <= distance < (1 << 31) - 0x800:
        raise struct.error("a distance past 32 bits")
    return (distance + 0x800) & 0xFFFFF000, distance & 0xFFF


def apply(data: bytearray, at: int, place: int, kind: int, target: int, addend: int) -> None:
    """Write a relocation. Of a LOW one, `target` is the distance that its HIGH one has. struct.error for what does not fit, or is not known."""
    if kind in _ADD or kind in _SUB:
        form = "<" + (_ADD.get(kind) or _SUB[kind])
        (old,) = struct.unpack_from(form, data, at)
        more = (target + addend) * (1 if kind in _ADD else -1)
        struct.pack_into(form, data, at, (old + more) & (1 << 8 * struct.calcsize(form)) - 1)
        return
    (word,) = struct.unpack_from("<I", data, at)
    high, low = _split(target if kind in LOW else target + addend - place)
    if kind in CALLS:
        (jump,) = struct.unpack_from("<I", data, at + 4)
        struct.pack_into("<II", data, at, word & 0xFFF | high, jump & 0xFFFFF | low << 20)
    elif kind in HIGH:
        struct.pack_into("<I", data, at, word & 0xFFF | high)
    elif kind == 24:
        struct.pack_into("<I", data, at, word & 0xFFFFF | low << 20)
    elif kind == 25:
        struct.pack_into("<I", data, at, word & 0x1FFF07F | low >> 5 << 25 | (low & 31) << 7)
    elif kind == 57:
        struct.pack_into("<i", data, at, target + addend - place)
    else:
        raise struct.error(f"relocation {kind} is not known")


def stub(at: int, slot: int) -> bytes:
    """16 bytes at an address that jump to where the slot says: auipc t3; ld t3; jalr t1, t3; nop."""
    high, low = _split(slot - at)
    return struct.pack("<IIII", _AUIPC_T3 | high, _LOAD_T3 | low << 20, _JUMP_T3, _NOP)
