"""Memory opcodes with places of their own: loads of global memory and scratch into LDS, addresses by the lane's number, transposing loads.

Source: AMD ISA manuals, "LDS direct loads", "Flat memory"; what is said at the opcodes.
"""

from __future__ import annotations

from collections.abc import Callable

from ..decode.inst import Inst, Operand
from ..translate.wave import Wave
from .memory import access, data_at, get_data, global_address, into_lds, load_to, scratch_address, take_policy
from .table import custom


def _load_lds(space: str, what: str, dwords: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        vaddr, saddr = inst.operands
        offset = int(inst.mods.get("offset") or "0", 0)
        where = (global_address if space == "global" else scratch_address)(w, inst, vaddr, saddr)
        access(w, space, "ld", what, where, w.exec_bits())
        into_lds(w, dwords, offset)

    return handler


for _suffix, _what, _dwords in (("dword", "b32", 1), ("dwordx3", "b96", 3), ("dwordx4", "b128", 4), ("ubyte", "u8", 1), ("sbyte", "i8", 1),
                                ("ushort", "u16", 1), ("sshort", "i16", 1), ("b32", "b32", 1), ("u8", "u8", 1), ("i8", "i8", 1), ("u16", "u16", 1),
                                ("i16", "i16", 1)):  # fmt: skip
    custom(f"global_load_lds_{_suffix}", "vmem")(_load_lds("global", _what, _dwords))
    if _dwords == 1:
        custom(f"scratch_load_lds_{_suffix}", "vmem")(_load_lds("scratch", _what, 1))


def _by_thread(w: Wave, inst: Inst, saddr: Operand) -> str:
    """Addresses of a dword a lane, one after another."""
    if saddr.kind != "s" or saddr.count != 2:
        raise w.fail(f"address {saddr.text}")
    base = w.s.add(w.sgpr64(saddr.index), str(inst.take_int("offset")), "i64")
    return w.v.add(w.v.splat("i64", base), w.v.vector_const("i64", [4 * l for l in range(w.lanes)]), "i64")


@custom("global_load_addtid_b32 global_load_dword_addtid", "vmem")
def _load_by_thread(w: Wave, inst: Inst) -> None:
    take_policy(inst)
    dst, saddr = inst.operands
    load_to(w, "global", "b32", dst, 1, "", _by_thread(w, inst, saddr))


@custom("global_load_lds_addtid_b32", "vmem")
def _load_lds_by_thread(w: Wave, inst: Inst) -> None:
    take_policy(inst)
    offset = int(inst.mods.get("offset") or "0", 0)
    access(w, "global", "ld", "b32", _by_thread(w, inst, inst.operands[0]), w.exec_bits())
    into_lds(w, 1, offset)


@custom("global_store_addtid_b32 global_store_dword_addtid", "vmem")
def _store_by_thread(w: Wave, inst: Inst) -> None:
    take_policy(inst)
    data, saddr = inst.operands
    held = data_at(w, data, 1)
    access(w, "global", "st", "b32", _by_thread(w, inst, saddr), w.exec_bits(), held)


@custom("global_load_tr_b128", "vmem", (12,))
def _load_transposed(w: Wave, inst: Inst) -> None:
    """Eight lanes read eight halves each; lane i gets half i of each of them.

    Source: a measurement on an RX 9070 XT (tessera's notes on GLOBAL_LOAD_TR_B128); that of 8 bits (_b64) has other places, which nobody published.
    """
    if w.lanes != 32:
        raise w.fail("a transposing load in wave64")
    take_policy(inst)
    dst, vaddr, saddr = inst.operands
    if dst.count != 4:
        raise w.fail(f"{dst.text} as 4 dwords")
    access(w, "global", "ld", "b128", global_address(w, inst, vaddr, saddr), w.exec_bits())
    words = transposed(w, [get_data(w, k) for k in range(4)], 16, 8)
    for k, value in enumerate(words):
        w.write_reg(dst.kind, dst.index + k, value)


def transposed(w: Wave, words: list[str], bits: int, lanes: int) -> list[str]:
    """Columns of a matrix whose rows lie in neighbouring lanes, as many lanes as a row needs: of `lanes` lanes, lane i gets element i of each row in turn."""
    count = 32 * len(words) // bits  # elements of a lane; so many rows
    a_row = lanes // count  # lanes that a row takes
    return rearranged(
        w, words, bits, lambda l, row: ((l & -lanes) + row * a_row + (l % lanes) // count, l % lanes % count)
    )


def rearranged(w: Wave, words: list[str], bits: int, place: Callable[[int, int], tuple[int, int]]) -> list[str]:
    """Elements of `bits` bits from other lanes: element e of lane l is the one at `place(l, e)`, a lane and the number of an element there."""
    o, ty = w.v, w.v.type("i32")
    results = [o.const("i32", 0)] * len(words)
    for e in range(32 * len(words) // bits):
        found = [place(l, e) for l in range(w.lanes)]
        order = ", ".join(f"i32 {x}" for x, _ in found)
        first = [bits * x for _, x in found]  # the element's first bit in its lane
        value = o.const("i32", 0)
        for k, word in enumerate(words):
            here = [at < 32 * k + 32 and at + bits > 32 * k for at in first]
            if not any(here):
                continue
            moved = w.out.emit(f"shufflevector {ty} {word}, {ty} poison, <{w.lanes} x i32> <{order}>")
            down = o.lshr(moved, o.vector_const("i32", [max(0, at - 32 * k) if h else 0 for at, h in zip(first, here)]))
            both = o.shl(down, o.vector_const("i32", [max(0, 32 * k - at) if h else 0 for at, h in zip(first, here)]))
            value = o.or_(value, o.and_(both, o.vector_const("i32", [(1 << bits) - 1 if h else 0 for h in here])))
        k, at = divmod(bits * e, 32)
        results[k] = o.or_(results[k], o.shl(value, o.const("i32", at)))
        if at + bits > 32:
            results[k + 1] = o.or_(results[k + 1], o.lshr(value, o.const("i32", 32 - at)))
    return results
