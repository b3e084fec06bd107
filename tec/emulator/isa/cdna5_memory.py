"""gfx1250's memory opcodes: copies between global memory and LDS past the registers, transposing loads, loads for a cluster, prefetches.

An asynchronous copy is done when it is issued, as every access is; that a kernel waits for it (`s_wait_asynccnt`) is the waits' check's to say. Its
offset counts for both addresses. Work-groups never run in clusters here, so a load for a cluster is its own group's.
Places of transposing loads: ROCm's rocjitsu, isa/arch/amdgpu/shared/ds_transpose.h.
"""

from __future__ import annotations

from collections.abc import Callable

from ..decode.inst import Inst, Operand
from ..translate.wave import Wave
from .direct import rearranged
from .memory import ACCESS_BYTES, LOADS, access, get_data, global_address, load_to, take_policy
from .table import ROWS, custom

_COPIES = {"b8": "u8", "b32": "b32", "b64": "b64", "b128": "b128"}


def _async_copy(what: str, store: bool):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        offset = int(inst.mods.get("offset") or "0", 0)
        local, where, base = (inst.operands[i] for i in ((1, 0, 2) if store else (0, 1, 2)))
        if local.kind != "v" or local.count != 1:
            raise w.fail(f"{local.text} as an address of LDS")
        at = global_address(w, inst, where, base)
        lds = w.v.add(w.reg("v", local.index), w.v.const("i32", offset))
        if store:
            access(w, "lds", "ld", what, lds, w.exec_bits())
            access(w, "global", "st", what, at, w.exec_bits())
            w.fill(ACCESS_BYTES[what] // 4, lds, w.exec_bits(), True)  # type: ignore[attr-defined]
        else:
            access(w, "global", "ld", what, at, w.exec_bits())
            access(w, "lds", "st", what, lds, w.exec_bits())
            w.fill(ACCESS_BYTES[what] // 4, lds, w.exec_bits())  # type: ignore[attr-defined]

    return handler


for _n, _access in _COPIES.items():
    custom(f"global_load_async_to_lds_{_n} cluster_load_async_to_lds_{_n}", "vmem", (12,))(_async_copy(_access, False))
    custom(f"global_store_async_from_lds_{_n}", "vmem", (12,))(_async_copy(_access, True))


def _load(what: str, dwords: int):  # type: ignore[no-untyped-def]
    """A load that other work-groups share, or whose line is watched."""

    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        dst, where, *base = inst.operands
        load_to(w, "global", what, dst, dwords, "", global_address(w, inst, where, base[0] if base else None))

    return handler


for _n in ("b32", "b64", "b128"):
    custom(f"cluster_load_{_n} global_load_monitor_{_n}", "vmem", (12,))(_load(LOADS[_n][0], LOADS[_n][1]))
    custom(f"flat_load_monitor_{_n}", "vmem", (12,))(ROWS[f"flat_load_{_n}"].handler)


@custom("global_prefetch_b8 flat_prefetch_b8 s_monitor_sleep s_setprio_inc_wg", "wait")
def _hint(w: Wave, inst: Inst) -> None:
    take_policy(inst)
    for name in ("offset", "scale_offset"):
        inst.take(name)


def _place8(lane: int, element: int) -> tuple[int, int]:
    """Four lanes' bytes: (lane, element) that this lane's element comes from."""
    register, j = divmod(element, 4)
    return 16 * (lane // 16) + 8 * register + 4 * (lane // 8 % 2) + j, lane % 8


def _place4(lane: int, element: int) -> tuple[int, int]:
    register, j = divmod(element, 8)
    return 16 * register + 8 * (lane // 16) + j, lane % 16


def _place6(lane: int, element: int) -> tuple[int, int]:
    return 8 * (element // 4) + element % 4 + 4 * (lane // 16), lane % 16


def _place16(lane: int, element: int) -> tuple[int, int]:
    return lane & ~7 | element, lane % 8


# Bits of an element -> (the access, dwords, places)
TRANSPOSING: dict[int, tuple[str, int, Callable[[int, int], tuple[int, int]]]] = {
    4: ("b64", 2, _place4), 6: ("b96", 3, _place6), 8: ("b64", 2, _place8), 16: ("b128", 4, _place16),
}  # fmt: skip


def _transposing(bits: int, local: bool):  # type: ignore[no-untyped-def]
    what, dwords, place = TRANSPOSING[bits]

    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        dst = inst.operands[0]
        if dst.kind != "v" or dst.count != dwords:
            raise w.fail(f"{dst.text} as {dwords} dwords")
        if local:
            access(w, "lds", "ld", what, _lds_address(w, inst, inst.operands[1]), w.exec_bits())
        else:
            access(w, "global", "ld", what, global_address(w, inst, *inst.operands[1:3]), w.exec_bits())
        words = rearranged(w, [get_data(w, k) for k in range(dwords)], bits, place)
        for k, value in enumerate(words):
            w.write_reg(dst.kind, dst.index + k, value)

    return handler


def _lds_address(w: Wave, inst: Inst, op: Operand) -> str:
    return w.v.add(w.reg("v", op.index), w.v.const("i32", inst.take_int("offset")))


for _bits in TRANSPOSING:
    custom(f"ds_load_tr{_bits}_{TRANSPOSING[_bits][0]}", "lds", (12,))(_transposing(_bits, True))
    custom(f"global_load_tr{_bits}_{TRANSPOSING[_bits][0]}", "vmem", (12,))(_transposing(_bits, False))
