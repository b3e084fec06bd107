"""One launch: the first state of the waves, the threads that run work-groups, faults to errors.

Work-groups are taken from a shared counter by `tec_run` on several threads; ctypes lets the interpreter lock go for as long
as it runs. The caller waits in short steps, so Ctrl-C stops a launch at its next backward branch or work-group.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from ..locks import fork_safe_lock
from ..runtime.devices.surface import Dim3
from ..runtime.objects.codeobject import KernelInfo
from .beginning import aligned, id_registers, initial_sgprs, initial_undefined, initial_vgprs, kernarg_block
from .checks.order import Order
from .checks.race_record import CLEARED_BYTES, LAUNCH_SHIFT, RECORD_BYTES, RECORDS, records_at
from .checks.screening import Screen, is_counted
from .chips import Chip
from .context import (
    BUDGET_SPENT,
    CTX,
    CTX_BYTES,
    PARAMS,
    PARAMS_BYTES,
    state_bytes,
)  # fmt: skip
from .errors import EmulationError
from .faults import fault_of
from .together import Held, groups_at_once, run_all, run_together, stack_bytes, stacks_of
from .translate.jit import WaveRunner

if TYPE_CHECKING:
    from .driver import EmuDriver
    from .modules import Compiled, EmuFunction

_pools: dict[int, ThreadPoolExecutor] = {}  # by the stacks of their threads (`stack_bytes`)
# The allocation that a site has not looked up yet: an odd address that no access has, unlike 1 << 63, which a resource's flags make.
_UNSET = 1 << 63 | 0x5EED1


_POOL_LOCK = fork_safe_lock()


def pool(stack: int) -> ThreadPoolExecutor:
    """The pool of threads with such stacks, where it is used within `stacks_of`."""
    with _POOL_LOCK:
        found = _pools.get(stack)
        if found is None:
            found = _pools[stack] = ThreadPoolExecutor(thread_count(), "emulator")
        return found


def _no_pool() -> None:
    """In a forked child the threads of its parent are not there."""
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_no_pool)


def thread_count() -> int:
    """`TEC_EMULATOR_THREADS`, or the CPUs that this process may use."""
    asked = os.environ.get("TEC_EMULATOR_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


class Thread:
    """What one thread needs: context, LDS, states, scratch, site caches."""

    def __init__(self, compiled: Compiled, chip: Chip, lds: int, waves: int, scratch: int, shared: dict[str, int]):
        lanes = compiled.lanes
        self.ctx_buffer, self.ctx = aligned(2 * CTX_BYTES, 0)
        self.lds_buffer, lds_at = aligned(lds + 64)
        follows = "init" in compiled.options.checks
        per_wave = state_bytes(lanes, compiled.translation.vgprs) * (1 + follows)
        self.state_buffer, states = aligned(per_wave * waves, 0xFF)
        self.per_wave, self.states = per_wave, states
        stride = (scratch * lanes + 63) // 64 * 64
        self.scratch_buffer, scratch_at = aligned(stride * waves + 64, 0xFF)
        self.cache = np.zeros((2, max(1, len(compiled.translation.sites)), 2), np.uint64)
        self.cache[:, :, 0] = _UNSET
        self.counters = np.zeros((max(1, len(compiled.translation.rows)), 4), np.uint64)
        self.records = np.zeros(64, np.uint64)
        self.notes = np.zeros(max(1, len(compiled.translation.sites)), np.uint8)
        if "race" in compiled.options.checks:
            room = (lds + 127) // 64 * 64  # a wide access may read records past the end
            self.records = np.zeros(RECORD_BYTES * room // 8, np.uint64)
            for field, at in records_at(self.records.ctypes.data, room):
                self._put(f"lds_{field}", at)
            self._put("race_bytes", CLEARED_BYTES * room)
        else:
            self._put("lds_stores", self.records.ctypes.data)
        if "screen" in compiled.options.checks:
            # A byte a dword, for others and for this wave; wide looks may go a little past the end.
            room = (lds // 4 + 64) // 64 * 64
            self.screen_maps, at = aligned(2 * (room + 128), 0)
            self._put("screen_lds", at)
            self._put("screen_own", at + room + 128)
            self._put("screen_bytes", room)
            self._put("screen_turns", room if "screen races" in compiled.options.checks and waves > 1 else 0)
        self._put("lds", lds_at)
        self._put("lds_bytes", lds)
        self._put("states", states)
        self._put("state_stride", per_wave)
        # A mark a dword; wide reads may go a little past the end.
        self.fills = np.zeros(lds // 4 + 16 if compiled.translation.fills_lds else 1, np.uint64)
        self._put("fills", self.fills.ctypes.data)
        self._put("fills_bytes", self.fills.nbytes if compiled.translation.fills_lds else 0)
        self._put("scratch_all", scratch_at)
        self._put("scratch_stride", stride)
        self._put("scratch_bytes", scratch)
        self._put("cache", self.cache.ctypes.data)
        self._put("counters", self.counters.ctypes.data)
        self._put("notes", self.notes.ctypes.data)
        for name, value in shared.items():
            self._put(name, value)
        if follows:
            self.lds_undefined, lds_at = aligned(lds + 64)
            self.scratch_undefined, scratch_at = aligned(stride * waves + 64)
            second = {
                "lds": lds_at, "lds_bytes": lds, "scratch_all": scratch_at, "scratch_bytes": scratch,
                "scratch_total": stride * waves, "cache": self.cache[1].ctypes.data, "alloc_count": shared["alloc_count"],
                "allocs": shared["undefined_allocs"],
            }  # fmt: skip
            for name, value in second.items():
                self._put(name, value, CTX_BYTES)

    def _put(self, name: str, value: int, block: int = 0) -> None:
        if name in CTX:
            ctypes.c_uint64.from_address(self.ctx + block + CTX[name]).value = value

    def get(self, name: str) -> int:
        return ctypes.c_uint64.from_address(self.ctx + CTX[name]).value


def run(
    driver: EmuDriver, function: EmuFunction, grid: Dim3, block: Dim3, shared_bytes: int, kernargs: bytes, estimate: Any = None,
    cooperative: bool = False,
) -> None:  # fmt: skip
    """Run a kernel to its end; raises `EmulationError` where it cannot or faults. `estimate`: its time, for the driver's observer."""
    info, chip = function.info, driver.chip
    check_launch(chip, info, grid, block, shared_bytes)
    lanes = info.wavefront_size
    threads_of_group = block[0] * block[1] * block[2]
    waves = (threads_of_group + lanes - 1) // lanes
    full, total = threads_of_group % lanes == 0, waves * grid[0] * grid[1] * grid[2]
    host = driver.hostcalls if function.asks_the_host else None
    hidden, over = host.begin(info, function.module.formats) if host is not None else ({}, lambda: None)
    args = kernarg_block(info, kernargs, grid, block, shared_bytes, hidden)
    packet = struct.pack("<HHHHHHIII", 0, 3, *block, 0, *(g * b for g, b in zip(grid, block)))
    memory = driver.memory
    placed: list[int] = []

    def place(data: bytes, room: int, label: str) -> int:
        placed.append(memory.place(data, room, label))
        return placed[-1]

    def execute(compiled: Compiled, screen: Screen | None) -> bool:
        symbols = function.module.symbol_addresses(compiled.translation.symbols).tobytes()
        symbols_at = place(symbols, len(symbols), "symbol addresses") if symbols else 0
        return _execute(driver, function, compiled, grid, block, waves, info.lds_bytes + shared_bytes, arg_at, packet_at,
                        args, memory.table(), symbols_at, estimate, cooperative, screen)  # fmt: skip

    try:
        arg_at = place(args, max(64, (len(args) + 63) // 64 * 64), f"kernel arguments of {info.name}")
        packet_at = place(packet, 64, "dispatch packet")
        quick = (
            driver.screened_from <= total and is_counted(total) and not cooperative
            and function.is_screened(full, initial_sgprs(chip, info, 0, 0, args).used, id_registers(chip, info))
        )  # fmt: skip
        if quick and _screened(
            driver, function, lambda: function.compiled(full, waves > 1, total, True), execute, waves
        ):
            return
        with memory.quiet:
            memory.running += 1
        try:
            execute(function.compiled(full, waves > 1, 0 if quick else total), None)
        finally:
            with memory.quiet:
                memory.running -= 1
    finally:
        over()
        for base in placed:
            memory.displace(base)


def _screened(
    driver: EmuDriver,
    function: EmuFunction,
    compile: Callable[[], Compiled],
    execute: Callable[[Compiled, Screen | None], bool],
    waves: int,
) -> bool:
    """Whether a launch ended under the quick look (`checks.screening`); where not, nothing is as if it had run."""
    memory, launches = driver.memory, function.launches
    compiled = compile()
    with memory.quiet:
        if memory.running:
            return False
        try:
            screen = Screen(memory, "race" in driver.checks, "init" in driver.checks, waves)
        except OSError:  # no addresses are left for the pages that would be put by
            return False
        try:
            if execute(compiled, screen):
                return True
            screen.put_back()
        finally:
            screen.close()
    function.screened = {False: False, True: False}
    function.launches = launches
    return False


def check_wave(chip: Chip, info: KernelInfo) -> None:
    """Raises EmulationError where a kernel's waves have as many lanes as the chip's do not, or its descriptor and its metadata disagree."""
    lanes, told = info.wavefront_size, info.metadata.get(".wavefront_size", info.wavefront_size)
    sizes = chip.limits.wavefront_sizes
    if lanes not in sizes:
        raise EmulationError(
            f"its waves have {lanes} lanes; {chip.name}'s have {' or '.join(map(str, sizes))}",
            kernel=info.name,
            hint=f"compile it for {chip.name}",
        )
    if told != lanes:
        raise EmulationError(
            f"its descriptor says waves of {lanes} lanes, its metadata {told}",
            kernel=info.name,
            hint="one of them was written by hand: .amdhsa_wavefront_size32 and .wavefront_size must agree",
        )


def check_launch(chip: Chip, info: KernelInfo, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    """Raises EmulationError where the chip or the kernel does not allow the launch."""
    if min(grid) < 1:
        raise EmulationError(
            f"grid {grid}: every dimension must be 1 or more",
            kernel=info.name,
            hint="leave the launch out where there is nothing to do",
        )
    if min(block) < 1:
        raise EmulationError(
            f"work-group {block}: every dimension must be 1 or more",
            kernel=info.name,
            hint="leave the launch out where there is nothing to do",
        )
    size = block[0] * block[1] * block[2]
    if size > 1024 or max(block) > 1024:
        raise EmulationError(
            f"work-group {block} has {size} threads; {chip.name} allows 1024",
            kernel=info.name,
            hint="more work-groups of fewer threads",
        )
    if size > info.max_workgroup_size:
        raise EmulationError(
            f"work-group {block} has {size} threads, but the kernel was compiled for at most {info.max_workgroup_size}",
            kernel=info.name, hint='compile it with a larger "amdgpu-flat-work-group-size"',
        )  # fmt: skip
    if info.required_workgroup_size and tuple(block) != info.required_workgroup_size:
        raise EmulationError(
            f"work-group {block}, but the kernel requires {info.required_workgroup_size}",
            kernel=info.name,
            hint="launch it with that size, which the kernel was compiled for",
        )
    if shared_bytes < 0 or info.lds_bytes + shared_bytes > chip.limits.lds_bytes:
        raise EmulationError(
            f"{info.lds_bytes} bytes of LDS and {shared_bytes} dynamic; {chip.name} has {chip.limits.lds_bytes} a work-group",
            kernel=info.name,
            hint="ask for less dynamic LDS, or a chip with more",
        )
    if any(g * b >= 2**32 for g, b in zip(grid, block)):
        raise EmulationError(
            f"grid {grid} of work-groups of {block} is too large: 2^32 - 1 threads are the most along a dimension",
            kernel=info.name,
            hint="a loop over the items in each thread, or several launches",
        )


def _execute(
    driver: EmuDriver, function: EmuFunction, compiled: Compiled, grid: Dim3, block: Dim3, waves: int, lds: int,
    arg_at: int, packet_at: int, args: bytes, table: np.ndarray, symbols: int, estimate: Any, cooperative: bool,
    screen: Screen | None,
) -> bool:  # fmt: skip
    """Run all work-groups of a launch; whether they ended, as all do but those of a screened launch that found something. Raises KernelFault where a
    check finds a fault, and what the driver's limits say."""
    info, chip = function.info, driver.chip
    lanes = compiled.lanes
    registers = initial_sgprs(chip, info, arg_at, packet_at, args)
    vgprs, exec_ = initial_vgprs(chip, lanes, waves, block)
    stop = np.zeros(16, np.uint32)
    state = state_bytes(lanes, compiled.translation.vgprs)
    follows = "init" in compiled.options.checks
    template = initial_undefined(chip, info, registers, state, lanes) if follows else np.zeros(1, np.uint8)
    total = grid[0] * grid[1] * grid[2]
    params_buffer, params = aligned(PARAMS_BYTES, 0)
    barrier_sites = np.array(compiled.translation.barrier_sites, np.int32)
    values = {
        "total": total, "grid_x": grid[0], "grid_y": grid[1], "waves": waves,
        "state_bytes": state * (1 + follows), "template": template.ctypes.data,
        "template_bytes": state if follows else 0, "sgprs": registers.sgprs.ctypes.data,
        "vgprs": vgprs.ctypes.data, "exec": exec_.ctypes.data, "place_x": registers.places[0],
        "place_y": registers.places[1], "place_z": registers.places[2], "lds_bytes": lds, "vgpr_count": 3,
        "barrier_sites": barrier_sites.ctypes.data if "barrier" in driver.checks and is_compiled(info) else 0,
        "lanes": lanes, "ttmp_mode": int(chip.limits.ttmp_ids), "budget": driver.budget,
    }  # fmt: skip
    values["group_step"], values["group_first"] = _group_order(driver, function, compiled, total, cooperative)
    for name, value in values.items():
        ctypes.c_int64.from_address(params + PARAMS[name]).value = value
    shared = {"allocs": table.ctypes.data, "alloc_count": len(table), "symbols": symbols, "stop": stop.ctypes.data}
    gates = np.zeros((64, 2), np.int64)
    if cooperative:
        shared["gws"] = gates.ctypes.data
    count, most, together = _threads_of(driver, function, compiled, total, lds, waves, cooperative)
    if function.asks_the_host:
        shared["messages"] = driver.hostcalls.entry
    watch = "progress" in driver.checks and compiled.translation.polls and not cooperative
    records, kept = _records(driver, compiled, table, total, waves, most, watch)
    shared |= records
    if screen is not None:
        shared |= {"screen": screen.address, "screen_fill": 15 if screen.init else 0}
    scratch = scratch_bytes(info)

    def more(n: int) -> list[Thread]:
        return [Thread(compiled, chip, lds, waves, scratch, shared) for _ in range(n)]

    threads, began = more(count), time.perf_counter()
    work = worker(driver, compiled, params, stop)
    stack = stack_of(compiled)
    with stacks_of(stack):
        if together:
            run_together(work, threads, more, Held(total, most, params, driver.budget, function.info.name), stop)
        else:
            own = count > thread_count()
            run_all(work, threads, stop, ThreadPoolExecutor(count, "cooperative") if own else pool(stack), own)
    del params_buffer, kept
    return _ended(driver, function, compiled, grid, block, lds, threads, screen, estimate, began)


def stack_of(compiled: Compiled) -> int:
    """The stacks of threads that run it: see `stack_bytes`."""
    return stack_bytes(sum(compiled.translation.classes.values()))


def run_one(work: Callable[[Thread], int], thread: Thread, compiled: Compiled) -> int:
    """What `work` gives, done by the caller's thread where its stack is large enough."""
    stack = stack_of(compiled)
    if not stack:
        return work(thread)
    with stacks_of(stack):
        return pool(stack).submit(work, thread).result()


def _ended(
    driver: EmuDriver, function: EmuFunction, compiled: Compiled, grid: Dim3, block: Dim3, lds: int, threads: list[Thread], screen: Screen | None,
    estimate: Any, began: float,
) -> bool:  # fmt: skip
    """What the threads of a launch left, told to the caller and the driver; see `_execute`."""
    faulted = [t for t in threads if t.get("status") not in (0, 7)]
    if screen is not None and (any(t.get("status") != BUDGET_SPENT for t in faulted) or not screen.is_clean()):
        return False
    if faulted:
        raise fault_of(driver, function, compiled, faulted[0], lds, grid)
    for site in np.flatnonzero(np.max([t.notes for t in threads], axis=0)):
        driver.note(function, *compiled.translation.sites[int(site)])
    if driver.observer is not None:
        counters = np.sum([t.counters for t in threads], axis=0, dtype=np.uint64)
        driver.observer(function, compiled, grid, block, estimate, counters, began, time.perf_counter())
    return True


def worker(driver: EmuDriver, compiled: Compiled, params: int, stop: np.ndarray) -> Callable[[Thread], int]:
    """What one of the host's threads does: work-groups until none is left, or `stop` is set, as it does at a fault."""
    runner = WaveRunner(driver.jit.runner())

    def work(thread: Thread) -> int:
        rc: int = runner(thread.ctx, compiled.address, params)
        if rc:
            stop[0] = 1
        return rc

    return work


def _threads_of(
    driver: EmuDriver, function: EmuFunction, compiled: Compiled, total: int, lds: int, waves: int, cooperative: bool
) -> tuple[int, int, bool]:
    """(the host's threads that begin, the most of them, whether there may be more later) of a launch of `total` work-groups."""
    count = max(1, min(driver.threads, total))
    if cooperative:
        return total, total, False  # one each, so that none waits for one that has not begun
    if not compiled.translation.polls:
        return count, count, False
    if "progress" in driver.checks:
        return 1, 1, False  # work-groups one after another: whoever waits for a later one waits in vain, always
    return (
        count,
        max(count, min(total, groups_at_once(driver.chip, function.info.vgprs, lds, waves, compiled.lanes))),
        True,
    )


def is_compiled(info: KernelInfo) -> bool:
    """Whether a compiler made the kernel, by the count of spills that LLVM always states. Its barriers are the source's; in assembly by hand waves that go different ways often have a
    barrier on each of them, and hardware counts waves, not places."""
    return ".vgpr_spill_count" in info.metadata


def _group_order(
    driver: EmuDriver, function: EmuFunction, compiled: Compiled, total: int, cooperative: bool
) -> tuple[int, int]:
    """(step, first) of the order that a launch's work-groups begin in: one after another, or drawn where races are looked for. A chip promises no order, and a
    program that needs one is wrong on some of them. Kernels that poll keep the order in which chips hand work-groups out: those that wait count on it."""
    if (
        "race" not in driver.checks
        or driver.seed is None
        or cooperative
        or compiled.translation.polls
        or not 2 < total < 1 << 31
    ):
        return 1, 0
    function.launches += 1
    drawn = random.Random(f"{driver.seed} {function.launches}")
    steps = [n for n in (drawn.randrange(1, total) for _ in range(16)) if gcd(n, total) == 1]
    return drawn.choice((total - 1, *steps[:3])), drawn.randrange(total)


def _records(
    driver: EmuDriver, compiled: Compiled, table: np.ndarray, groups: int, waves: int, threads: int, watch: bool
) -> tuple[dict[str, int], list[Any]]:
    """The context's fields for the checks that keep records, and what must live as long as the launch."""
    fields: dict[str, int] = {"align": 15 if "align" in driver.checks else 0}
    kept: list[Any] = []
    if "race" in compiled.options.checks:
        arena = driver.memory.arena
        for name in RECORDS:
            fields[f"global_{name}"] = arena.shadow[name]
        fields |= {
            "global_lines": arena.lines,
            "arena": arena.base,
            "arena_bytes": arena.watched,
            "launch": driver.memory.next_launch() << LAUNCH_SHIFT,
        }
        fields["lock"] = driver.memory.record_lock.ctypes.data if threads > 1 else 0
    if "init" in compiled.options.checks:
        offset = driver.memory.arena.shadow["undefined"] - driver.memory.arena.base
        kept.append(table + np.array([offset, 0], np.uint64))
        fields |= {"undefined_offset": offset, "undefined_allocs": kept[-1].ctypes.data}
    if compiled.translation.synchronizes:
        order = Order(groups, waves, watch)
        kept.append(order)
        fields |= {"race_waves": waves, "order_call": order.address}
    return fields, kept


# A lane's stack beyond what the compiler counted, for kernels with calls that it cannot follow (recursion, functions by address). ROCm's
# own default is 1 KiB (hipLimitStackSize), which recursion overflows soon; here it costs no more than memory.
_DYNAMIC_STACK = 16384


def scratch_bytes(info: KernelInfo) -> int:
    """Scratch of one lane."""
    return (info.private_bytes + 3) // 4 * 4 + _DYNAMIC_STACK * bool(info.metadata.get(".uses_dynamic_stack"))
