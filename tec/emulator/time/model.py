"""The time that a launch takes on the chip, modelled: what one of its compute units does, in time, with its share of the memory.

1. The work-groups that one unit gets are traced whole (`trace`; where work-groups have unlike work, those of the unit that ends last: `strata`), and those that the chip holds at the same time in their beginnings: which of
   their lines each cache has (`traffic`).
2. The unit runs them (`unit`): as many at once as registers, LDS and wave slots allow, each level of memory giving it its part of what that
   level gives all units that have work. Where a unit gets more than `ROUNDS` times what it holds, the rest goes on at the pace of the last ones.
3. The clock: chips run as slow as their power makes them, under matrix work and streams of memory (`Machine.held_mhz`).

Sources of all figures: `tec.target`. What the model does not know: TLBs, instruction fetch, conflicts of memory
channels, power that data decides, what a kernel leaves in the caches for the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.devices.surface import Dim3
from ...target import Machine, latency_ns, level_gbps
from ...target.lds import lds_phase
from ..chips import DTYPES, Chip, places
from . import traffic as memory
from .counters import KernelCounts, summarize
from .issue import KIND_NAMES, MATRIX, SCALAR, SMEM, TRANS, VALU, decode
from .steps import GroupSteps, Program, group_steps
from .strata import Chosen, choose
from .trace import Tracer
from .unit import Rates, Share, Unit, UnitTime

if TYPE_CHECKING:
    from ..driver import EmuDriver
    from ..modules import EmuFunction

ROUNDS = 3
LEAST_WAVES = 256  # that a unit runs, where it gets so many: small work-groups show their pace late
EVENTS, LINES = 1 << 21, 1 << 22  # room for a whole wave


@dataclass(frozen=True, slots=True)
class Estimate:
    """A launch's time. `parts`: microseconds that each resource is busy, on the mean unit, and "launch"; `limit`: the resource that is busy for most
    of the time, "latency" where none is for half of it, or "launch". `waits`: shares of the waves' time, by what they wait for.
    `held`: the same shares by the number of the instruction that waited. `traffic`: bytes that each level gives. `groups`: work-groups that a unit holds."""

    microseconds: float
    limit: str
    parts: dict[str, float]
    waits: dict[str, float] = field(default_factory=dict)
    traffic: dict[str, float] = field(default_factory=dict)
    clock_mhz: float = 0.0
    groups: int = 0
    macs: dict[str, float] = field(default_factory=dict)  # multiply-adds of matrix instructions, by type
    held: dict[int, float] = field(default_factory=dict)
    counts: KernelCounts | None = None  # of the sampled work-groups, scaled to all of them
    lds_bytes: int = 0  # of a work-group, dynamic LDS with it
    assumed: str = ""  # what the machine table has by another product, or at its peak, for want of a source

    @property
    def kernel_us(self) -> float:
        """Without the launch."""
        return self.microseconds - self.parts.get("launch", 0.0)


def _rates(
    chip: Chip,
    t: memory.Traffic,
    used: list[int],
    lines_of: np.ndarray,
    bytes_of: np.ndarray,
    units: int,
    mhz: float,
) -> Rates:
    """What one of `units` units at work sees of the memory, in its clocks."""
    m = chip.machine
    levels = {n: m.level(n) for n in ("L1", "L2", "MALL", "memory")}
    width = 64.0 if chip.limits.simd_lanes == 16 else 128.0
    ns = {n: latency_ns(m, n) for n in levels}
    clock = mhz * 1e-3  # clocks a nanosecond
    give: dict[str, float] = {}
    alone: dict[str, float] = {}
    for name in ("L2", "MALL", "memory"):
        level = levels[name]
        if level is None:
            continue
        gbps = level_gbps(m, name)
        if name == "L2":
            gbps *= mhz / m.clock_mhz  # it runs at the units' clock
        each = gbps / units
        if name == "memory":
            each = min(each, gbps * m.unit_share)
        give[name] = min(each / clock, width if name == "L2" else each / clock)
        # The L2's part is about what the path to a unit takes; of the levels behind it one alone reaches a share.
        alone[name] = 1.0 if name == "L2" else min(1.0, each / (gbps * m.unit_share))
    servers = tuple(give)
    shares = {}
    for r in used:
        n = max(1.0, float(lines_of[r]))
        l1, l2, last = float(t.l1_miss[r]), float(t.l2_miss[r]), float(t.last_miss[r])
        # Lines of which a wave takes a part only still come whole from below the L2; between L1 and L2 they go by halves.
        asked = float(np.clip(bytes_of[r] / n, 64.0, memory.LINE_BYTES))
        parts = {"L2": l1 * asked, "MALL": min(l1, l2) * memory.LINE_BYTES, "memory": min(l1, last) * memory.LINE_BYTES}
        any2, any3 = 1 - (1 - min(l1, float(t.l2_late[r]))) ** n, 1 - (1 - min(l1, float(t.last_late[r]))) ** n
        any1 = 1 - (1 - l1) ** n
        late = (
            ns["L1"]
            + (ns["L2"] - ns["L1"]) * any1
            + (ns["MALL"] - ns["L2"]) * any2
            + (ns["memory"] - ns["MALL"]) * min(any2, any3)
        )
        shares[r] = Share(tuple(parts[s] / give[s] for s in servers), late * clock)
    return Rates(
        servers, shares, width, memory.LINE_BYTES, chip.limits.lds_latency, ns["L2"] * clock, ns["memory"] * clock,
        tuple(alone[n] for n in servers),
    )  # fmt: skip


@dataclass(slots=True)
class _Work:
    """What the sampled work-groups do, on the mean: clocks of each resource of a unit, lines by row."""

    busy: dict[str, float]
    lines: np.ndarray
    events: np.ndarray
    macs: dict[str, float]


def _work(samples: list[GroupSteps], program: Program, chip: Chip, rows: int, mean: float) -> _Work:
    """What a work-group does on the mean. `mean`: how many such the sampled ones make."""
    busy: dict[str, float] = {}
    lines, events = np.zeros(rows), np.zeros(rows)
    macs: dict[str, float] = {}
    slot = 1 if chip.limits.simd_lanes > 16 else 4
    lds = 0.0
    for g in samples:
        for block, n in g.executions.items():
            for i in program.blocks[block].code:
                if i.kind in (VALU, TRANS, MATRIX):
                    name = KIND_NAMES[i.kind]
                    busy[name] = busy.get(name, 0.0) + n * i.busy / chip.limits.simds
                elif i.kind in (SCALAR, SMEM):
                    busy["scalar"] = busy.get("scalar", 0.0) + n * slot / chip.limits.simds
                if i.kind == MATRIX and i.macs:
                    macs[i.dtype] = macs.get(i.dtype, 0.0) + n * i.macs
        for w in g.trace.waves:
            touches = (w.kinds == 1) | (w.kinds == 3)
            lines += np.bincount(w.rows[touches], weights=w.counts[touches], minlength=rows)
            events += np.bincount(w.rows[touches], minlength=rows)
            lds += float(w.counts[w.kinds == 2].sum())
    busy["LDS"] = lds
    k = mean
    return _Work({n: v / k for n, v in busy.items()}, lines / k, events / k, {d: v / k for d, v in macs.items()})


def model_launch(
    driver: EmuDriver, function: EmuFunction, grid: Dim3, block: Dim3, shared_bytes: int, kernargs: bytes, warm: bool = False
) -> Estimate:  # fmt: skip
    """The time of a launch, which is not run. `warm`: its operands are in the last cache where that holds them, as in a benchmark that repeats it.

    Launches that differ in nothing but where their buffers lie are modelled once, unless data decides what the kernel does.
    """
    info = function.info
    pointers = [(a.offset, a.size) for a in info.explicit_args if a.kind == "global_buffer"]
    values = bytearray(kernargs)
    where = [bytes(values[o : o + n]) for o, n in pointers]
    for o, n in pointers:
        values[o : o + n] = bytes(n)
    aliases = tuple(where.index(x) for x in where)
    key = (driver.chip.product, grid, block, shared_bytes, warm, bytes(values), aliases)
    found: Estimate | None = function.estimates.get(key)
    if found is None:
        tracer = Tracer(driver, function, grid, block, shared_bytes, kernargs)
        found = _model(tracer, warm)
        if not function.needs_data:
            function.estimates[key] = found
    return found


def _model(tracer: Tracer, warm: bool) -> Estimate:
    """The time of a launch: some work-groups of one unit are simulated with what they did, and the rest follows. warm: the caches hold what launches before
    left."""
    function, chip = tracer.function, tracer.driver.chip
    info = function.info
    machine, total = chip.machine, tracer.total
    held = places(chip, info.vgprs, tracer.lds_bytes, tracer.waves, tracer.lanes)
    count = -(-total // machine.units)  # work-groups of the unit that has most
    simulated = min(count, max(ROUNDS * held, LEAST_WAVES // tracer.waves))
    first = 0 if total <= machine.units else (total - 1) % machine.units  # a unit that has them all
    if total <= machine.units:
        first = total // 2
    ids = [first + i * machine.units for i in range(simulated)]
    program = Program(decode(function.text, chip, tracer.lanes), tracer.rows)
    chosen = choose(tracer, program, chip, held, max(ROUNDS * held, LEAST_WAVES // tracer.waves))
    if chosen is not None:
        ids, count, simulated = chosen.groups, chosen.count, len(chosen.groups)
    # Those that have work, on the mean of the launch's time: what memory gives is theirs.
    units = min(machine.units, total) if chosen is None else min(machine.units, max(1, round(chosen.busy)))
    traces = tracer.run([g for g in ids if g < total], EVENTS, LINES)
    known = {t.group: group_steps(program, t) for t in traces}
    samples = list(known.values())
    rows = len(tracer.rows)
    # So many work-groups of the mean have the samples' work.
    mean = chosen.share * total if chosen is not None else float(max(1, len(samples)))
    t = memory.measure(tracer, chip, held, traces, warm, mean)
    work = _work(samples, program, chip, rows, mean)
    used = [r for r in range(rows) if work.events[r]]
    lines_of = np.divide(work.lines, work.events, out=np.ones(rows), where=work.events > 0)
    bytes_of = np.array([r.nbytes * tracer.lanes for r in tracer.rows], float)

    # Of the work-groups that a die starts one after another the unit has `count`.
    wave_clocks = total / count / machine.dies / machine.waves_a_clock if machine.waves_a_clock else 0.0

    def run(mhz: float) -> tuple[float, UnitTime]:
        rates = _rates(chip, t, used, lines_of, bytes_of, units, mhz)
        got = Unit(chip, tracer.lanes, rates, wave_clocks).run(samples, held)
        return _of_unit(got, held, simulated, count, chosen), got

    mhz = float(machine.clock_mhz)
    clocks, got = run(mhz)
    dtype = max(work.macs, key=lambda d: work.macs[d], default="")
    to_memory = float((work.lines * np.minimum(t.l1_miss, t.last_miss)).sum()) * memory.LINE_BYTES * total
    for _ in range(3):
        us = clocks / mhz
        shares = [work.busy.get(n, 0.0) * total / machine.units / clocks for n in ("matrix", "VALU")]
        # Half of the lanes' arithmetic is at work in most vector instructions: the reference is of packed multiply-adds.
        after = machine.held_mhz(DTYPES.get(dtype, dtype), shares[0], 0.5 * shares[1], to_memory / us * 1e-6)
        if abs(after - mhz) < 0.02 * mhz:
            break
        mhz = after
        clocks, got = run(mhz)
    counts = _counts(samples, tracer, total / mean)
    estimate = _estimate(chip, work, t, got, clocks, mhz, total, held, counts)
    return replace(estimate, lds_bytes=tracer.lds_bytes)


def _of_unit(got: UnitTime, held: int, simulated: int, count: int, chosen: Chosen | None) -> float:
    """Clocks of all of a unit's work-groups, of which `simulated` were run: the rest of the work goes at the pace of those that came after the first
    ones, or of all where they are few. Of work-groups that were drawn and have more work than a unit, its part."""
    ends = sorted(got.ends)
    if chosen is not None and chosen.unit < 1.0:
        head = held if simulated > 2 * held else 0
        pace = (ends[-1] - (ends[head - 1] if head else 0.0)) / (simulated - head)
        return got.clocks + simulated * (1.0 / chosen.unit - 1.0) * pace
    if chosen is not None:
        return got.clocks / chosen.unit
    if count > simulated:
        return got.clocks + (count - simulated) * (ends[-1] - ends[held - 1]) / (simulated - held)
    return got.clocks


def _counts(samples: list[GroupSteps], tracer: Tracer, times_more: float) -> KernelCounts:
    """The counters that a run would have, of the samples scaled to all work-groups; every lane taken as on."""
    counters = np.zeros((len(tracer.rows), 4))
    for g in samples:
        for w in g.trace.waves:
            times = np.bincount(w.rows, minlength=len(counters))
            counters[:, 0] += times
            counters[:, 2] += np.bincount(w.rows, weights=w.counts, minlength=len(counters))
    for r, row in enumerate(tracer.rows):
        counters[r, 1] = counters[r, 0] * tracer.lanes * (1 if row.kind == "block" else row.nbytes)
        if row.kind.startswith("lds"):
            limits = tracer.driver.chip.limits
            phase = lds_phase(limits.name, limits.lds_banks, row.kind.removeprefix("lds_"), row.nbytes)
            least = -(-tracer.lanes // phase.lanes)
            counters[r, 3] = max(0.0, counters[r, 2] - least * counters[r, 0])
    return summarize(tracer.rows, np.round(counters * times_more), tracer.lanes)


def _estimate(
    chip: Chip,
    work: _Work,
    t: memory.Traffic,
    got: UnitTime,
    clocks: float,
    mhz: float,
    total: int,
    held: int,
    counts: KernelCounts,
) -> Estimate:
    """What the model says of a launch of `total` work-groups: times by pipe and by memory level, and what limits it."""
    machine = chip.machine
    mean = total / machine.units  # work-groups of a unit
    parts = {n: v * mean / mhz for n, v in work.busy.items() if v}
    traffic = {
        "L1": float(work.lines.sum()) * memory.LINE_BYTES * total,
        "L2": float((work.lines * t.l1_miss).sum()) * memory.LINE_BYTES * total,
        "MALL": float((work.lines * np.minimum(t.l1_miss, t.l2_miss)).sum()) * memory.LINE_BYTES * total,
        "memory": float((work.lines * np.minimum(t.l1_miss, t.last_miss)).sum()) * memory.LINE_BYTES * total,
    }
    if machine.level("MALL") is None:
        del traffic["MALL"]
    for name, moved in traffic.items():
        gbps = level_gbps(machine, name)
        if name in ("L1", "L2"):
            gbps *= mhz / machine.clock_mhz
        parts[name] = moved / (gbps * 1e3)
    # Units that have less to do than the one that was run do not finish before the memory.
    kernel = max(clocks / mhz, *parts.values())
    limit = max(parts, key=lambda k: parts[k]) if parts else "latency"
    if not parts or parts[limit] < 0.5 * kernel:
        limit = "latency"
    launch = machine.launch_us
    if kernel < launch:
        limit = "launch"
    parts["launch"] = launch
    waits = {n: v / got.lives for n, v in sorted(got.stalls.items(), key=lambda x: -x[1])} if got.lives else {}
    by_inst = {n: v / got.lives for n, v in sorted(got.held.items())} if got.lives else {}
    macs = {d: v * total for d, v in work.macs.items()}
    assumed = "; ".join(x for x in (machine.assumed, _beyond(machine, macs, kernel)) if x)
    return Estimate(kernel + launch, limit, parts, waits, traffic, mhz, held, macs, by_inst, counts, assumed=assumed)


def _beyond(machine: Machine, macs: dict[str, float], us: float) -> str:
    """What is to be said of a time that is shorter than any published product's would be: its clock under such power is not known."""
    named = {DTYPES.get(d, d): 2e-6 * n / us for d, n in macs.items()}  # 10^12 operations a second
    part = sum(v / machine.peak_tflops(d) for d, v in named.items() if d in machine.matrix_macs)
    if not machine.published or part <= machine.published:
        return ""
    return f"{part:.2f} of the peak, and no published product sustains more than {machine.published}: the clock that power leaves at this rate is not known"
