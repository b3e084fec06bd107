"""The order that atomics make between work-groups: locks, flags, and the last group of a reduction.

A wave that waits for its stores and then writes an atomic *releases* them; a wave that reads the atomic and then drops what its caches hold
*acquires* them: what comes before the first comes before what follows the second. LLVM lowers fences and atomics of agent scope to just
these instructions (AMDGPU usage guide, "Memory model"). `find_order` looks for them in a kernel's text; `Order` follows them as it runs, with
a vector of times: for each wave of the launch, how far its accesses are known. A time is a barrier interval and the releases within it, as
the race check's records have it (`support.race`). One vector serves a work-group.

It also sees who polls in vain: a wave that reads one value of one address over and over, where no earlier work-group is left to change it.
"""

from __future__ import annotations

import ctypes
import re
import threading
from dataclasses import dataclass

import numpy as np

from ..analyses.flow import forward
from ..analyses.roles import returns
from ..context import CTX
from ..decode.inst import Inst, KernelText, generation
from .race_record import EPOCH_BITS, EPOCH_SHIFT, TICK_BITS, TICK_SHIFT
from .waits import counter_of, store_counter, waits_for_stores, waits_of

READS, RELEASES, ACQUIRES = 1, 2, 4  # what an instruction does, for `Order`
POLLS = 20_000  # reads of one value before a wave counts as waiting in vain; a wave that waits for one that runs beside it sees a change long before
# Vectors of times take memory and time by the waves of a launch, for each atomic address and each group that synchronizes. Beyond these nothing is
# reported between work-groups that synchronize.
_MOST_BYTES, _MOST_WAVES = 1 << 28, 1 << 16
_TICKS = (1 << TICK_BITS) - 1


@dataclass(frozen=True, slots=True)
class Synchronization:
    """Places in a kernel's text. `atomics`: loads and stores that count as atomic; `kinds`: what each of those and each read-modify-write does."""

    atomics: frozenset[int]
    kinds: dict[int, int]
    acquires: frozenset[int]
    polls: bool  # whether one of them reads in a loop


def coherent(inst: Inst, chip: str) -> bool:
    """Whether a load or store goes past the caches that other compute units do not see, as atomic ones of agent scope do."""
    if chip.startswith("gfx12"):
        return inst.mods.get("scope") in ("SCOPE_DEV", "SCOPE_SYS")
    if chip in ("gfx942", "gfx950"):
        return "sc1" in inst.mods
    return "glc" in inst.mods and "_load" in inst.op


def _invalidates(insts: list[Inst], at: int, chip: str) -> bool:
    """Whether an instruction drops what the compute unit's caches hold, for the whole device. gfx10 and gfx11 have two, the farther one first: else the
    nearer one is filled from it again."""
    inst = insts[at]
    if chip in ("gfx942", "gfx950"):
        return inst.op == "buffer_inv" and "sc1" in inst.text.split()
    if chip.startswith("gfx12"):
        return inst.op == "global_inv" and inst.mods.get("scope") in ("SCOPE_DEV", "SCOPE_SYS")
    if generation(chip) >= 10:
        if inst.op != "buffer_gl0_inv":
            return False
        before = (i.op for i in reversed(insts[:at]) if not i.op.startswith(("s_wait", "s_nop", "s_delay", "s_clause")))
        return next(before, "") == "buffer_gl1_inv"
    return inst.op in ("buffer_wbinvl1_vol", "buffer_wbinvl1")


def _keeps_stores(chip: str) -> bool:
    """Whether the dies of a chip have an L2 each, in which stores stay until they are written back (LLVM writes so for releases of agent scope)."""
    return chip in ("gfx942", "gfx950", "gfx1250")


def _writes_back(inst: Inst) -> bool:
    """Whether an instruction gives what the die's L2 keeps to the whole device."""
    if inst.op == "buffer_wbl2":
        return "sc1" in inst.text.split()
    return inst.op == "global_wb" and inst.mods.get("scope") in ("SCOPE_DEV", "SCOPE_SYS")


def in_global(op: str) -> bool:
    """Whether an opcode may access global memory."""
    return op.startswith(("global_", "cluster_", "flat_", "buffer_", "s_atomic", "s_buffer_atomic"))


def polling_branches(kernel: KernelText, chip: str) -> frozenset[int]:
    """The backward branches of loops in which an atomic or a coherent load stands: there a work-group may wait for another one."""
    changes, loads = _reads(kernel, chip)
    return _polling(kernel, changes, loads | _scalar_reads(kernel))


def waiting_branches(kernel: KernelText, chip: str) -> frozenset[int]:
    """Those of `polling_branches` whose loop does nothing but look: no store, no atomic, no matrix work. What they wait for comes from another work-group."""
    insts = kernel.insts

    def looks(branch: int) -> bool:
        body = insts[kernel.labels[insts[branch].operands[0].text] : branch]
        return not any(
            "_store" in i.op or "_atomic" in i.op or i.op.startswith(("v_mfma", "ds_", "s_barrier")) for i in body
        )

    return frozenset(i for i in polling_branches(kernel, chip) if looks(i))


def waiting_places(kernel: KernelText, chip: str) -> frozenset[int]:
    """All instructions of the loops of `waiting_branches`."""
    insts = kernel.insts
    loops = ((kernel.labels[insts[b].operands[0].text], b) for b in waiting_branches(kernel, chip))
    return frozenset(i for first, last in loops for i in range(first, last + 1))


def _scalar_reads(kernel: KernelText) -> set[int]:
    """Scalar loads of gfx9 that pass the caches over (glc), as AMD's assembly polls a semaphore."""
    return {i for i, inst in enumerate(kernel.insts) if inst.op.startswith("s_load") and "glc" in inst.mods}


def _reads(kernel: KernelText, chip: str) -> tuple[set[int], set[int]]:
    """The read-modify-writes, and the loads that see what other compute units write."""
    insts = kernel.insts
    changes = {i for i, inst in enumerate(insts) if in_global(inst.op) and "_atomic" in inst.op}
    loads = {i for i, inst in enumerate(insts) if in_global(inst.op) and "_load" in inst.op and coherent(inst, chip)}
    return changes, loads


def _polling(kernel: KernelText, changes: set[int], loads: set[int]) -> frozenset[int]:
    found = set()
    for i, inst in enumerate(kernel.insts):
        if inst.op.startswith(("s_branch", "s_cbranch")):
            goal = kernel.labels.get(inst.operands[0].text, len(kernel.insts))
            if any(goal <= at < i for at in changes | loads):
                found.add(i)
    return frozenset(found)


def find_order(kernel: KernelText, chip: str) -> Synchronization | None:
    """The instructions that synchronize work-groups; None where there are none."""
    insts, gfx = kernel.insts, generation(chip)
    acquires = frozenset(i for i in range(len(insts)) if _invalidates(insts, i, chip))
    changes, loads = _reads(kernel, chip)
    polls = bool(_polling(kernel, changes, loads | _scalar_reads(kernel)))
    gates = any(inst.op == "ds_gws_barrier" for inst in insts)  # these release and acquire by themselves
    # LLVM writes a read-modify-write that changes nothing as a coherent load, so that this one is an atomic also where nothing synchronizes.
    if not gates and (not (acquires or polls or (changes and loads)) or not changes | loads):
        return None
    stores = {
        i for i, inst in enumerate(insts) if in_global(inst.op) and "_store" in inst.op and _flag(insts, i, chip, gfx)
    }
    early = _unfinished(kernel, chip, changes | stores)
    kinds = dict.fromkeys(changes | loads, READS)
    for i in (changes | stores) - early:
        kinds[i] = kinds.get(i, 0) | RELEASES
    scalars = _scalar_reads(kernel) if gfx == 9 else set()
    return Synchronization(frozenset(loads | stores | scalars | _guesses(kernel)), kinds, acquires, polls)


def _guesses(kernel: KernelText) -> set[int]:
    """Plain loads whose value is the first guess of a loop of compare and swap, as LLVM writes atomics that a chip lacks (float additions): whatever they find, the
    swap checks it. Found from the register that it compares with, through copies."""
    insts, found = kernel.insts, set[int]()
    loops = [
        (kernel.labels[i.operands[0].text], k)
        for k, i in enumerate(insts)
        if i.op.startswith(("s_branch", "s_cbranch")) and kernel.labels.get(i.operands[0].text, k + 1) <= k
    ]
    for at, swap in enumerate(insts):
        if "_atomic_cmpswap" not in swap.op or not in_global(swap.op) or not any(a <= at <= b for a, b in loops):
            continue
        data = swap.operands[0 if swap.op.startswith("buffer_") else 1 + int(returns(swap))]
        load = _loaded_into(insts, at, (data.kind, data.index + data.count // 2))
        found |= {load} if load is not None else set()
    return found


def _loaded_into(insts: list[Inst], at: int, register: tuple[str, int]) -> int | None:
    """The load from memory whose value a register has at a place, through copies between; None where something else gives it. By the order of the text."""
    for k in range(at - 1, -1, -1):
        for inst in (i for i in (insts[k], insts[k].dual) if i is not None and i.operands):
            dst = inst.operands[0]
            if dst.kind != register[0] or not dst.index <= register[1] < dst.index + max(1, dst.count):
                continue
            if "_store" in inst.op or inst.op.startswith(("s_cmp", "s_cbranch")):
                continue
            if re.match(r"[vs]_(dual_)?mov_b", inst.op) and inst.operands[1].is_reg:
                register = (inst.operands[1].kind, inst.operands[1].index + register[1] - dst.index)
                break
            return k if "_load" in inst.op and (in_global(inst.op) or inst.op.startswith("s_load")) else None
    return None


def _flag(insts: list[Inst], at: int, chip: str, gfx: int) -> bool:
    """Whether a store is an atomic one. gfx90a, gfx10 and gfx11 write those as any other: there, one that right before it all others are waited for."""
    inst = insts[at]
    if chip in ("gfx942", "gfx950") or gfx == 12:
        return coherent(inst, chip)
    for before in reversed(insts[:at]):
        if waits_for_stores(before, gfx):
            return True
        if in_global(before.op) or before.op.startswith(("ds_", "s_cbranch", "s_branch", "s_barrier")):
            return False
    return False


def _unfinished(kernel: KernelText, chip: str, places: set[int]) -> set[int]:
    """Those of the places that on some path a plain store of the wave may not have reached what the whole device sees before."""
    found: set[int] = set()
    gfx, kept = generation(chip), _keeps_stores(chip)

    def step(state: set[str], at: int) -> None:
        """state: counters of what is on its way, and "L2" of what lies there."""
        inst = kernel.insts[at]
        state.difference_update(counter for counter, n in waits_of(inst).items() if n == 0)
        if kept and _writes_back(inst) and "L2" in state:
            state.remove("L2")
            state.add(store_counter(gfx))
        if at in places:
            if state:
                found.add(at)
        elif in_global(inst.op) and "_store" in inst.op:
            state.add(counter_of(inst, gfx) or store_counter(gfx))
            if kept and not coherent(inst, chip):
                state.add("L2")

    def join(into: set[str], other: set[str]) -> bool:
        grown = not other <= into
        into |= other
        return grown

    start: set[str] = set()
    forward(kernel, start, set, step, join)
    return found


class Order:
    """What the work-groups of one launch know of each other. `callback` is called by translated code (`tec_order_<lanes>`)."""

    def __init__(self, groups: int, waves: int, watch: bool):
        self.waves, self.total, self.watch = waves, groups * waves, watch
        self._lock = threading.Lock()
        self._flags: dict[int, np.ndarray] = {}  # what a reader of an address learns
        self._read: dict[int, np.ndarray] = {}  # what a group read and has not acquired yet
        self._seen: dict[int, np.ndarray] = {}
        self._running: dict[int, int] = {}  # the work-group of each thread's context
        self._all: np.ndarray | None = None
        self._polled: tuple[tuple[int, ...], int] = ((), 0)
        self.callback = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64
        )(self._event)

    @property
    def address(self) -> int:
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def _event(self, ctx: int, addresses: int, mask: int, kind: int) -> int:
        """Follow an atomic access or a fence; whether a read is in vain (`_in_vain`)."""

        def field(name: str) -> int:
            return ctypes.c_uint64.from_address(ctx + CTX[name]).value

        group, wave, me = field("group"), field("wave"), field("race_me")
        where = {ctypes.c_uint64.from_address(addresses + 8 * lane).value for lane in range(64) if mask >> lane & 1}
        with self._lock:
            before = self._running.get(ctx, group)
            self._running[ctx] = group
            if before != group:  # what an ended group knew is of no use
                self._seen.pop(before, None)
                self._read.pop(before, None)
            if kind & ACQUIRES:
                self._acquire(group, ctx)
                return 0
            if kind & RELEASES:
                self._release(group, wave, me, where)
                if (me >> TICK_SHIFT & _TICKS) < _TICKS:
                    ctypes.c_uint64.from_address(ctx + CTX["race_me"]).value = me + (1 << TICK_SHIFT)
            if kind & READS:
                known = self._read.get(group)
                for found in (self._flags[a] for a in where if a in self._flags):
                    known = found.copy() if known is None else np.maximum(known, found)
                if known is not None:
                    self._read[group] = known
                return int(self.watch and self._in_vain(group, wave, where))
        return 0

    def _release(self, group: int, wave: int, me: int, where: set[int]) -> None:
        epoch = me >> EPOCH_SHIFT & (1 << EPOCH_BITS) - 1
        tick = me >> TICK_SHIFT & _TICKS
        first = group * self.waves
        for a in where:
            flag = self._flags.get(a)
            if flag is None:
                if self.total > _MOST_WAVES or 4 * self.total * (len(self._flags) + 1) > _MOST_BYTES:
                    flag = np.full(1, 0xFFFFFFFF, np.uint32)  # everything is known: nothing will be reported
                else:
                    flag = np.zeros(self.total, np.uint32)
                self._flags[a] = flag
            if len(flag) == self.total:
                mine = flag[first : first + self.waves]
                np.maximum(mine, np.uint32(epoch << TICK_BITS), out=mine)
                mine[wave] = max(int(mine[wave]), (epoch << TICK_BITS) + min(tick + 1, _TICKS))
                if group in self._seen:
                    np.maximum(flag, self._seen[group], out=flag)

    def _acquire(self, group: int, ctx: int) -> None:
        read = self._read.pop(group, None)
        if read is None:
            return
        seen = self._seen.get(group)
        if len(read) != self.total:
            if self._all is None:
                self._all = np.full(self.total, 0xFFFFFFFF, np.uint32)
            seen = self._seen[group] = self._all
        elif seen is None:
            seen = self._seen[group] = np.zeros(self.total, np.uint32)
        if seen is not self._all:
            np.maximum(seen, read, out=seen)
        ctypes.c_uint64.from_address(ctx + CTX["race_seen"]).value = seen.ctypes.data

    def _in_vain(self, group: int, wave: int, where: set[int]) -> bool:
        now = (group, wave, *(x for a in sorted(where) for x in (a, ctypes.c_uint32.from_address(a).value)))
        before, count = self._polled
        self._polled = (now, count + 1 if now == before else 0)
        return self._polled[1] >= POLLS
