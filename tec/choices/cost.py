"""What a choice costs: one price over a footprint and a machine, and what no machine has room for.

    choice -> Space.sketch(choice) -> Footprint    closed form: what its template thinks of
    Made -> footprint.read(made) -> Footprint      counted in its loops
    Footprint, target -> price -> Cost;  unfit -> why it does not fit, in words

A sketch and what is read are the same value, so that one price serves both, and a test holds the one against the other.

The price is a roofline with latencies: of each kernel the longest of what memory, the caches, shared memory, the vector lanes and the matrix pipes take, and what rounds of
work-groups wait; of the others a part is not hidden. Where a clock judged loops, each part has a share of its own that is not. Rates and latencies are the machine's (`tec.target.machines`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..records import dataclass
from ..target import Target, l2_gbps, latency_ns, level_gbps
from ..target.cpus import THREADS_AGAIN_CLOCKS
from . import parallel
from .parts import needs
from .rules import figures

UNDER_WAY = 8  # loads of a loop that a thread has under way: as LLVM unrolls a loop of loads
_REGISTERS = 32  # of a thread beside what it keeps: addresses, counters, what is being computed
_HELD = 0.8  # of a last cache's bytes that what the kernels before wrote, and a kernel reads again, may be
# Whose figures are asked: of a kernel's sketch, and of loops that were read; of these what each part takes, and how much of it adds to the longest.
_SECTORS, _KERNEL, _LOOPS, _SHARES, _BESIDE = "sectors", "kernel", "loops", "shares of loops", "beside in loops"
# Parts of a machine whose slowest counts in a sketch, and as what users read them.
_LIMITS = {"far memory": "memory", "near memory": "memory", "memory of a unit": "memory", "L2 of a unit": "L2"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a choice is thought to take, in seconds, and what limits it ("issue", "matrix", "LDS", "memory", "launch", ...)."""

    seconds: float
    limit: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, launched `launches` times. Bytes are of one launch, of all its work-groups; `issued` and `waits` are of one thread.

    groups: work-groups; on a CPU iterations that threads share. threads: of a work-group, on a CPU 1. registers: of 32 bits a thread needs for what it keeps,
    0 where a sketch does not say. memory_bytes: of buffers in main memory that are touched, each byte once. asked_bytes: what lanes' accesses ask the first cache
    for, in whole segments, so that lanes that read far from each other ask for more than they use. scratch_bytes: through shared memory. issued: operations of a lane, on a
    CPU clocks of a core. matrix: multiply-adds on matrix units of all threads. waits: trips to memory that a thread makes one after another. barriers: that a thread
    meets. dtype: of the sums on matrix units. guessed: whether a count stands on a number of trips that is not known. unused_bytes: of segments that a
    work-group's lanes ask for, of which none of them wants these; others may, but the first cache has lost them by then. copied_bytes: that copies in the background bring
    to shared memory past the first cache, or take from there. held_bytes: of what they bring, each byte once. narrow_bytes: of stores whose wavefronts write parts of segments.
    """

    groups: float = 1
    threads: int = 1
    shared_bytes: int = 0
    registers: int = 0
    memory_bytes: float = 0.0
    asked_bytes: float = 0.0
    scratch_bytes: float = 0.0
    issued: float = 0.0
    matrix: float = 0.0
    waits: float = 0.0
    barriers: float = 0.0
    launches: float = 1
    dtype: str = "float32"
    guessed: bool = False
    unused_bytes: float = 0.0
    copied_bytes: float = 0.0
    held_bytes: float = 0.0
    narrow_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """The kernels of a choice, in order; parallel: whether a CPU's threads share the work; is_read: whether they were counted in loops."""

    kernels: tuple[Kernel, ...]
    parallel: bool = False
    is_read: bool = False

    @property
    def threads(self) -> int:
        """Of the largest work-group."""
        return max((k.threads for k in self.kernels), default=1)

    @property
    def shared_bytes(self) -> int:
        """Of the work-group that has most."""
        return max((k.shared_bytes for k in self.kernels), default=0)

    @property
    def memory_bytes(self) -> float:
        """Of all launches."""
        return sum(k.memory_bytes * k.launches for k in self.kernels)


def on_cores(clocks: float, memory_bytes: float = 0.0, parallel: bool = True, tasks: float = math.inf) -> Footprint:
    """What a function of a CPU asks: clocks of one core, bytes of memory, whether threads share it, in so many `tasks` (as many as there are cores)."""
    return Footprint((Kernel(tasks, memory_bytes=memory_bytes, issued=clocks),), parallel)


def unfit(found: Footprint, target: Target) -> str | None:
    """Why no kernel of such a footprint runs on a target, in words; None where it has room."""
    for k in found.kernels:
        if k.threads > target.max_threads:
            return f"{k.threads} threads of a work-group, {target.max_threads} threads at most"
        if (wrong := needs.shared_memory(k.shared_bytes, target.lds_bytes)) is not None:
            return wrong
    return None


def price(found: Footprint, target: Target) -> Cost:
    """The seconds that a footprint should take on a target's machine, one kernel after another."""
    of = _kernel if target.is_gpu else _on_cores
    parts = [of(k, found, target) for k in found.kernels]
    longest = max(parts, key=lambda c: c.seconds, default=Cost(0.0, "launch"))
    seconds = sum(c.seconds for c in parts)
    if target.is_gpu and "first_us" in (known := _known(found, target)):  # of a graph, once
        seconds += known["first_us"] * 1e-6
    return Cost(seconds, longest.limit)


def _on_cores(k: Kernel, found: Footprint, target: Target) -> Cost:
    """Clocks of a core, shared by as many as have iterations; or what memory gives; and the start of threads."""
    machine = target.machine
    clock = machine.clock_hz
    threads: float = 1
    if found.parallel:
        threads = machine.units if math.isinf(k.groups) else k.groups / math.ceil(k.groups / machine.units)
    issue = k.issued / clock / threads
    memory = k.memory_bytes / (machine.reached_gbps * 1e9)
    # Threads that have just ended wait for what follows.
    start = parallel.START_SECONDS + (k.launches - 1) * THREADS_AGAIN_CLOCKS / clock if found.parallel else 0.0
    return Cost(start + k.launches * max(issue, memory), "issue" if issue >= memory else "memory")


def _kernel(k: Kernel, found: Footprint, target: Target) -> Cost:
    """See the module."""
    known = _known(found, target)
    parts = _parts(k, target, known)
    rest: Mapping[str, float]
    if known.template == _LOOPS:
        shares, rest = figures.of(_SHARES, target), figures.of(_BESIDE, target)
        times = {name: shares[name] * seconds for name, seconds in parts.items()}
    else:
        times = dict(parts)
        for name in _LIMITS:
            times[_LIMITS[name]] = max(times.get(_LIMITS[name], 0.0), times.pop(name))
        rest = dict.fromkeys(times, known["not_hidden"])
    limit = max(times, key=lambda name: times[name])
    # Of what takes less a part is not hidden under what takes most: groups begin and end, and not all at once.
    seconds = (
        times[limit] + sum(rest[name] * s for name, s in times.items() if name != limit) + known["start_us"] * 1e-6
    )
    launch = target.machine.launch_seconds
    return Cost(k.launches * (launch + seconds), _LIMITS.get(limit, limit) if seconds > launch else "launch")


def _known(found: Footprint, target: Target) -> figures.Figures:
    """The figures of loops, where they were read and the machine has some; of sketches else, which leave out what loops have."""
    loops = figures.of(_LOOPS, target)
    return loops if found.is_read and loops else figures.of(_KERNEL, target)


def _parts(k: Kernel, target: Target, known: figures.Figures) -> dict[str, float]:
    """The seconds that each part of a machine has to do with a kernel, by the machine's rates."""
    machine, chip, wave = target.machine, target.chip, target.wavefront_size
    sectors = figures.of(_SECTORS, target)
    clock = machine.clock_hz
    waves = math.ceil(k.threads / wave)
    slots, _ = chip.occupancy(k.registers + _REGISTERS, k.shared_bytes, waves, wave)
    resident = max(1, slots * chip.simds // waves)  # work-groups that a unit has at once
    busy = min(machine.units, max(1.0, k.groups))
    most = math.ceil(k.groups / machine.units)  # of the unit that has most, for which all others wait
    even = k.groups / (most * busy) if most else 1.0
    each = most / max(1.0, k.groups)  # of what all work-groups ask, that unit's share
    rounds = (
        math.ceil(most / resident) if most <= known["even_rounds"] * resident else k.groups / machine.units / resident
    )
    trip = known["trip_ns"] if "trip_ns" in known else machine.queued_ns or latency_ns(machine, "memory")
    waiting = trip * 1e-9 * max(min(k.waits, 1.0), k.waits / UNDER_WAY)
    # A wavefront alone: some operations wait for the one before them, and at a barrier it waits for what all others have under way.
    apart = known["apart_clocks"] if known.template == _LOOPS else max(known["apart_clocks"], wave / chip.simd_lanes)
    lone = k.issued * apart + k.barriers * (known["barrier_clocks"] if "barrier_clocks" in known else chip.lds_latency)
    reached, unit_rate = far_gbps(k.memory_bytes, target), known["unit_bytes"] * clock
    moved = k.memory_bytes / (reached * 1e9 * min(1.0, busy * machine.unit_share) * even)
    is_far = reached == machine.reached_gbps
    return {
        "far memory": moved if is_far else 0.0,
        "near memory": 0.0 if is_far else moved,
        "memory of a unit": k.memory_bytes * each / unit_rate,
        "L1": k.asked_bytes / (near_gbps(target) * 1e9 * busy / machine.units * even),
        # From the L2: what it gives to all units, and what one of them takes.
        "L2": k.copied_bytes / (copied_gbps(target, k.held_bytes) * 1e9) if k.copied_bytes else 0.0,
        "L2 of a unit": k.copied_bytes * each / unit_rate,
        "sectors": k.unused_bytes / busy / sectors["bytes_a_clock"] / clock if k.unused_bytes and "bytes_a_clock" in sectors else 0.0,
        "LDS": k.scratch_bytes * each / max(1, machine.scratch_bytes_a_clock) / clock,
        "issue": most * waves * wave * k.issued / (chip.simds * chip.simd_lanes) / clock,
        "matrix": k.matrix * each / machine.macs(k.dtype) / known["matrix_rate"] / clock if k.matrix else 0.0,
        "latency": rounds * (waiting + lone / clock),
        "dispatch": _starts(k, waves, target) / clock,
        "stores": k.narrow_bytes * each / known["store_bytes"] / clock if "store_bytes" in known else 0.0,
    }  # fmt: skip


def _starts(k: Kernel, waves: int, target: Target) -> float:
    """Clocks in which the machine starts a kernel's work-groups."""
    machine = target.machine
    if machine.groups_a_clock:
        return k.groups / machine.groups_a_clock
    return k.groups * waves / machine.dies / machine.waves_a_clock if machine.waves_a_clock else 0.0


def far_gbps(touched: float, target: Target) -> float:
    """Memory's rate, or of a GPU whose last cache holds the bytes that a kernel touches, that cache's: the kernels before have brought them."""
    machine = target.machine
    memory, last = machine.reached_gbps, machine.level("L2")
    if machine.priced_by_model or last is None or touched > _HELD * last.size_bytes:
        return memory
    return max(memory, l2_gbps(machine))


def copied_gbps(target: Target, held_bytes: float) -> float:
    """What the L2 gives to copies in the background that bring so many bytes, each of them to several units. Hopper's L2 has two halves, each of which keeps a copy of what its multiprocessors
    read; what does not fit into one comes from the other."""
    machine, known = target.machine, figures.of(_KERNEL, target)
    last = machine.level("L2")
    is_near = last is None or held_bytes <= known["near_l2"] * last.size_bytes
    return l2_gbps(machine) * (1.0 if is_near else known["far_rate"])


def copied_bytes_a_clock(target: Target, held_bytes: float) -> float:
    """What each unit has of `copied_gbps` in a clock."""
    machine = target.machine
    return copied_gbps(target, held_bytes) / machine.units / machine.clock_mhz * 1e3


def near_gbps(target: Target) -> float:
    """What the caches near the units give to all of them: the L2, the L1 where no source has a figure of the L2."""
    machine = target.machine
    l1, l2 = machine.level("L1"), machine.level("L2")
    if machine.priced_by_model:
        return level_gbps(machine, "L2")
    found = l2.gbps if l2 is not None and l2.gbps is not None else l1.gbps if l1 is not None else None
    return found or machine.memory_gbps
