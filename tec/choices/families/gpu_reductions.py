"""One reduction with its epilogue on a GPU: a thread an output, or a work-group where outputs are few and sums long, or the threads of a work-group for
neighbouring outputs; windows over (pixels, channels) in 16-byte pieces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from ...ir.dtype import dtype_info
from ...locks import cached_property
from ...schedule import Schedule
from ...target import Target, latency_ns, level_gbps
from ...te import ComputeOp, thread_axis
from ..cost import near_gbps
from ..group import Group, begin, const_shape, reduce_size, size_of
from ..parts.pointwise import bind_all, moved_bytes, neighbours_on_a_die
from ..parts.summed import along, in_a_row
from ..space import Choice, Cost, Scheduled, Space, Value

LONG_SUM = 256  # elements of a sum from which a GPU's threads share it
_THREADS_A_UNIT = 512  # two wavefronts a SIMD: with fewer, a unit waits for its loads
_MOST_PARTS = 1 << 12  # of a sum: by then a few sums fill any GPU
_SHARE = 16  # elements of a thread's part of a sum: with fewer, the partial sums' own traffic counts


class GpuReduction(Space):
    """`shared`: the threads of a work-group share a sum; else a thread has an output, or `piece` bytes of neighbours. `parts`: a kernel of its own
    sums so many parts of each sum before, so that there is work for all units. `wide`: a work-group shares the sums of so many threads' neighbours,
    each thread `piece` bytes of every so-manieth row. `rows`: sums of a work-group, a wavefront each."""

    template: ClassVar[str] = "gpu reduction"
    neutral: ClassVar[Mapping[str, Value]] = {"rows": 1}

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.red, self.out = red, out
        self.outputs, self.length = size_of(red.output(0).shape), reduce_size(red)
        self.along = along(red)
        one = red.num_outputs == 1
        self.parameters = {
            "shared": (False, True), "threads": self.threads_up_to_limit(64, 32, 128, 256, 512, 1024),
            "parts": equal_parts(self.length, self.outputs) if one and self.length and self.outputs else (1,), "piece": (0, 4, 8, 16),
            "wide": (0, 8, 16, 32, 64), "rows": (1, 4, 8) if self.along and self.outputs and self.length else (1,),
            **({"columns": (1, 2, 4, 8)} if red.tag == "pixels" and len(red.inputs) > 1 else {}),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target) -> GpuReduction | None:
        (red,) = group.reductions()
        if len(group.output_ops) != 1:
            return None
        out = group.output_ops[0]
        if not isinstance(out, ComputeOp):
            return None
        if out is not red and (out.reduce_axis or size_of(out.output(0).shape) != size_of(red.output(0).shape)):
            return None
        return cls(group, target, red, out)

    @property
    def default(self) -> Choice:
        """Windows and weights over pixels by channels: some pixels a thread where a rule says so, which have most of these in common. Else see `_sums`."""
        choice = self._sums
        if choice["shared"] and choice["parts"] == 1 and "group_ns" in self.figures:
            by_waves = [
                {**choice, "threads": self.target.wavefront_size, "rows": n} for n in self.parameters["rows"][1:]
            ]
            legal = [c for c in by_waves if self.why_not(c) is None and self._own(c) <= _WRITTEN_OUT]
            choice = min((choice, *legal), key=lambda c: self.cost(c).seconds)
        if "columns" in self.parameters:
            alone = not choice["shared"] and choice["parts"] == 1
            choice["columns"] = self._rule("columns", 1) if alone else 1
        return choice

    def _rule(self, name: str, otherwise: Any) -> Any:
        """What the rules say of a name for these sums."""
        lead = const_shape(self.red.output(0))[0] if self.red.axis else None
        return self.rule(
            name, otherwise, outputs=self.outputs, length=self.length, bytes=self._element_bytes, results=self.red.num_outputs, pixels=lead or 1
        )  # fmt: skip

    @property
    def _sums(self) -> Choice:
        """Sums along the data are shared; else neighbours load neighbouring sums' elements. Parts where that leaves units without work."""
        outputs, length, why_not = self.outputs, self.length, self.why_not
        if outputs is None or length is None or length < LONG_SUM:
            # More threads a work-group where so many of them take longer to start than a launch, and than what they sum takes to come.
            machine, alone = self.target.machine, self._choice(False, 64)
            read = float(moved_bytes(self.group)) / (machine.memory_gbps * 1e9)
            if machine.groups_a_clock and outputs and self._starts(alone) > max(read, machine.launch_us * 1e-6):
                alone = self._choice(False, 256)
            by_all = self._choice(True, self.target.wavefront_size if machine.has_latencies else 64)
            if self.along and outputs and length and self._rule("short_shared", False) and why_not(by_all) is None:
                return by_all
            if outputs is None or length is None or why_not(by_all) is not None:
                return alone
            best = by_all if self.cost(by_all).seconds < self._rule("shared_below", 0.0) * self.cost(alone).seconds else alone  # fmt: skip
            return min((best, *self._wides(64, 128, 256)), key=lambda c: self.cost(c).seconds)
        shared, units = self.along, self.target.machine.units
        threads = self._rule("threads", 256 if shared and length >= 256 * 16 else 64)
        options = [
            self._choice(shared, threads, p, b)
            for b in ((0,) if shared else self.parameters["piece"])
            for p in self.parameters["parts"]
        ]
        legal = [c for c in options if why_not(c) is None and (c["parts"] == 1 or self._own(c) >= _SHARE)]
        legal += () if shared else self._wides(512, 1024)
        wanted = _THREADS_A_UNIT * units
        best = min(legal, key=lambda c: (self.cost(c).seconds, -min(wanted, self._threads(c)), c["parts"]))
        if shared and best["parts"] > 1:  # more threads a sum before a second kernel
            most = self._rule("whole_by", 0)
            more = [{**best, "threads": t, "parts": 1} for t in self.parameters["threads"] if threads < t <= most]
            best = min((best, *(c for c in more if why_not(c) is None)), key=lambda c: self.cost(c).seconds)
        return best

    def _choice(self, shared: bool, threads: int, parts: int = 1, piece: int = 0, wide: int = 0) -> Choice:
        return self.choice(shared=shared, threads=threads, parts=parts, piece=piece, wide=wide, rows=1)

    def _wides(self, *threads: int) -> Iterator[Choice]:
        """Legal choices of work-groups that share neighbours' sums, as wide as a rule says."""
        for w, b, t in itertools.product(self._rule("wide", ()), self.parameters["piece"], self.threads_up_to_limit(*threads)):  # fmt: skip
            if self.why_not(made := self._choice(False, t, piece=b, wide=w)) is None:
                yield made

    @property
    def all(self) -> Iterator[Choice]:
        """Every legal choice. Options that are for other ways to share a sum than a choice's are left out whole: of tens of thousands of combinations some hundreds are legal."""
        names, none = self.parameters, {"piece": (0,), "wide": (0,), "rows": (1,), "columns": (1,)}
        for shared, threads, parts in itertools.product(names["shared"], names["threads"], names["parts"]):
            own = {"columns"} if parts == 1 and not shared else set()
            own |= {"rows"} if shared and parts == 1 and threads == self.target.wavefront_size else set()
            own |= set() if shared or self.along else {"piece"} if parts > 1 else {"piece", "wide"}
            rest = {n: names[n] if n in own else value for n, value in none.items() if n in names}
            yield from self.legal({"shared": (shared,), "threads": (threads,), "parts": (parts,), **rest})

    def why_not(self, choice: Choice) -> str | None:
        parts, lanes = choice["parts"], self._lanes(choice)
        if choice["wide"]:
            return self._why_not_wide(choice)
        if choice["rows"] > 1:
            if not choice["shared"] or parts > 1 or choice["threads"] != self.target.wavefront_size:
                return "a work-group has several sums where a wavefront has each of them whole"
            if (self.outputs or 1) % choice["rows"]:
                return "the last work-group would have less sums than others"
        if choice["piece"]:
            last = self._last
            if choice["shared"] or self.along or parts == 1:
                return "pieces are for parts of sums whose neighbours lie side by side"
            if lanes < 2 or last is None or last % lanes:
                return "the sums are no whole number of pieces"
        return None

    def _why_not_wide(self, choice: Choice) -> str | None:
        lanes, rows = self._lanes(choice), choice["threads"] // choice["wide"]
        last = self._last
        if choice["shared"] or self.along or choice["parts"] > 1 or self.red.tag == "pixels":
            return "a work-group is wide where neighbours lie side by side, and has all of its sums' parts"
        if not self.length or self.length < 4 * rows or rows < 2:
            return "sums are too short for so many threads"
        if not self.outputs or self.outputs % (choice["wide"] * lanes) or (choice["piece"] and lanes < 2):
            return "the sums are no whole number of pieces for all threads"
        if choice["wide"] * lanes * self._element_bytes * (4 if self._on_a_die(choice) else 2) < _LINE_BYTES:
            return "a line would come in more than two parts, or four on one die"
        if lanes > 1 and (self.red.num_outputs > 1 or last is None or last % lanes):
            return "tuples, and sums that do not lie side by side, come one by one"
        return None

    def _on_a_die(self, choice: Choice) -> bool:
        """Whether work-groups whose columns are of one line run on one die, whose L2 puts the parts together."""
        groups, dies = (self.outputs or 1) // (choice["wide"] * self._lanes(choice)), self.target.machine.dies
        return dies > 1 and groups % dies == 0

    def _lanes(self, choice: Choice) -> int:
        return max(1, int(choice["piece"]) // self._element_bytes)

    @cached_property
    def _element_bytes(self) -> int:
        return min((dtype_info(t.dtype).bytes for t in self.red.inputs), default=4)

    @cached_property
    def _last(self) -> int | None:
        """Sums along the last axis; None where their number is open, or there is one."""
        return const_shape(self.red.output(0))[-1] if self.red.axis else None

    def _threads(self, choice: Choice) -> int:
        """Of the launch that reads the elements."""
        own = choice["threads"] if choice["shared"] else 1
        return (self.outputs or 1) * int(choice["parts"]) * int(own) // self._lanes(choice)

    def _own(self, choice: Choice) -> int:
        """Elements of a sum that a thread adds up one after another."""
        threads = int(choice["threads"]) if choice["shared"] else 1
        return -(-(self.length or 1) // (int(choice["parts"]) * threads))

    def cost(self, choice: Choice) -> Cost:
        """What memory takes, and beside it what the lanes do, which counts for products: there an element is read for each sum that it is in."""
        moved = self._moved_cost(choice)
        work = self._lane_seconds(choice)
        return Cost(moved.seconds + work, moved.limit if work < moved.seconds else "issue")

    def _lane_seconds(self, choice: Choice) -> float:
        """Of loads from the caches, and of the additions, of all sums. Sums that a thread makes together read what they have in common once."""
        machine, inputs = self.target.machine, len(self.red.inputs)
        if self.outputs is None or self.length is None or inputs < 2:
            return 0.0
        read = (1 + (inputs - 1) / choice.get("columns", 1)) * self._element_bytes / near_gbps(self.target) * 1e-9
        lanes = self.target.chip.simds * self.target.chip.simd_lanes * machine.units * machine.clock_mhz * 1e6
        return float(self.outputs * self.length * (read + inputs / lanes))

    def _moved_cost(self, choice: Choice) -> Cost:
        """Elements read once from memory, or by as many threads as there are: a thread alone waits for each of its loads. Lanes that read far from
        each other bring a line each."""
        machine = self.target.machine
        bytes_ = float(moved_bytes(self.group))
        if choice["wide"]:
            return self._wide_cost(choice, bytes_)
        if self.along != choice["shared"]:
            bytes_ *= self._scattered(choice)
        elif not self.along:  # a wavefront whose lanes side by side read less than a line reads it in as many turns
            width = self.target.wavefront_size * self._lanes(choice) * self._element_bytes
            bytes_ *= max(1.0, _LINE_BYTES / width)
        partial = 2.0 * (self.outputs or 1) * choice["parts"] * dtype_info(self.red.output(0).dtype).bytes
        gbps = machine.memory.gbps or machine.memory_gbps
        memory = (bytes_ + (partial if choice["parts"] > 1 else 0)) / (gbps * 1e9)
        if self.target.chip.family == "sm" and choice["shared"]:
            return self._queued(choice, memory, bytes_)
        if choice["shared"]:
            memory /= self._even((self.outputs or 1) * int(choice["parts"]))
        latency = (machine.memory.latency_ns or 500.0) * 1e-9
        waves = self._threads(choice) / (machine.units * 1024)
        waiting = max(1.0, waves) * self._own(choice) / 8 * latency  # some eight loads are under way at once
        if choice["shared"] and (self.length or 0) % int(choice["threads"]) and self._own(choice) > _WRITTEN_OUT:
            waiting *= 8  # each is under a condition, which the next waits for
        launches = 1 + (choice["parts"] > 1)
        if choice["parts"] > 1:  # the second kernel's chain
            waiting += choice["parts"] / (64 if self._few() else 1) / 8 * latency
        most = max(memory, waiting, self._starts(choice))
        return Cost(launches * machine.launch_us * 1e-6 + most, "memory" if memory == most else "latency")

    def _scattered(self, choice: Choice) -> float:
        """Lines that come over bytes that are asked for, where lanes read far from each other. Short sums one behind the other are all of their lines, which the first
        cache keeps meanwhile as long as figures say."""
        row = (self.length or 0) * self._element_bytes
        if self.along and choice["parts"] == 1 and "short_rows" in self.figures and in_a_row(self.red):
            return min(_SCATTERED, self.figures.along("short_rows", row))
        return _SCATTERED

    def _starts(self, choice: Choice) -> float:
        """Seconds in which the machine starts the work-groups, or their wavefronts; 0 where its rate is not known."""
        machine = self.target.machine
        if not machine.groups_a_clock:
            waves = self._threads(choice) / self.target.wavefront_size
            return (
                waves / (machine.waves_a_clock * machine.dies * machine.clock_mhz * 1e6)
                if machine.waves_a_clock
                else 0.0
            )
        return self._threads(choice) / int(choice["threads"]) / (machine.groups_a_clock * machine.clock_mhz * 1e6)

    def _even(self, groups: int) -> float:
        """How busy the mean unit is, where all wait for the one that has a work-group more."""
        busy = min(self.target.machine.units, groups)
        return groups / (-(-groups // busy) * busy)

    def _wide_cost(self, choice: Choice, bytes_: float) -> Cost:
        """Units that have a work-group more than others are what all wait for; of a line that work-groups read parts of, each brings it from the last cache."""
        machine, wide = self.target.machine, choice["wide"] * self._lanes(choice)
        groups = (self.outputs or 1) // wide
        even = self._even(groups)
        memory = bytes_ / (level_gbps(machine, "memory") * 1e9 * min(1.0, groups * machine.unit_share) * even)
        again = 1.0 if self._on_a_die(choice) else max(1.0, _LINE_BYTES / (wide * self._element_bytes))
        near = bytes_ * again / (level_gbps(machine, "MALL") * 1e9 * even)
        own = -(-(self.length or 1) // (choice["threads"] // choice["wide"]))
        latency = latency_ns(machine, "memory") * 1e-9
        moved, waiting = max(memory, near), own / 8 * latency
        several = self.red.num_outputs > 1 or len(self.red.inputs) > 1
        if self._on_a_die(choice) and not (several and self._element_bytes < 4):
            # Smaller work-groups wait beside each other, and meet sooner. Short elements that are worked at, tuples and products, want more threads to share that.
            waiting *= choice["threads"] / self.figures["whole_wait_threads"]
        # Two trips to memory, and the meeting of the threads, which takes a register after another through LDS.
        start = (2 + 0.5 * self._lanes(choice)) * latency
        seconds = machine.launch_us * 1e-6 + start + max(moved, waiting) + _NOT_HIDDEN * min(moved, waiting)
        return Cost(seconds, "memory" if moved >= waiting else "latency")

    def _queued(self, choice: Choice, memory: float, bytes_: float) -> Cost:
        """NVIDIA: memory's rate as long as loads enough are under way, of each input some of a thread."""
        machine, chip, figures = self.target.machine, self.target.chip, self.figures
        full = chip.simds * chip.waves_a_simd * self.target.wavefront_size * machine.units
        threads = self._threads(choice)
        under_way = min(threads, full) * _PIECE_BYTES * max(figures["loads_under_way"], len(self.red.inputs))
        waiting = bytes_ / under_way * machine.queued_ns * 1e-9
        last = 1 + figures["last_round"] * full / max(
            threads, full * figures["least_full"]
        )  # groups that end together leave memory idle
        second = 0.0
        if choice["parts"] > 1:
            own = -(-choice["parts"] // (choice["threads"] if self._few() else 1))
            second = machine.launch_us * 1e-6 + own / figures["second_loads"] * machine.queued_ns * 1e-9
        groups = threads / (choice["threads"] * choice["rows"])
        begun = groups * figures["group_ns"] * 1e-9
        seconds = machine.launch_us * 1e-6 + max(max(memory, waiting) * last, begun) + second
        return Cost(seconds, "memory" if memory >= waiting else "latency")

    def _few(self) -> bool:
        """Whether a work-group takes a sum in the second kernel too: of so few."""
        return (self.outputs or 0) <= 64

    def build(self, choice: Choice) -> Scheduled:
        s, out, red, threads = begin(self.group), self.out, self.red, choice["threads"]
        shared = choice["shared"]
        if choice["parts"] > 1:
            red = in_parts(s, red, choice["parts"], lambda p: self._partial(s, p, choice))
            out, shared = (red if self.out is self.red else s[self.out].op), self._few()  # type: ignore[assignment]
        if choice["wide"]:
            _wide(s, out, red, choice["wide"], threads // choice["wide"], self._lanes(choice), self.target)
        elif shared:
            group_per_output(s, out, red, threads, choice["rows"])
        elif not (
            red.tag == "pixels"
            and _pixels(s, out, red, threads, choice.get("columns", 1), self.figures.count("short_window"))
        ):
            _alone(s, out, red, threads, self._loads())
        return Scheduled(s, self.group.outputs, choice)

    def _partial(self, s: Schedule, op: ComputeOp, choice: Choice) -> None:
        """The kernel of the parts: a work-group or a thread each, or a thread for some neighbours."""
        if choice["shared"]:
            group_per_output(s, op, op, choice["threads"])
        elif choice["piece"]:
            _neighbours(s, op, self._lanes(choice), choice["threads"])
        else:
            _alone(s, op, op, choice["threads"], self._loads())

    def _loads(self) -> int:
        """Loads that a thread is to ask for at once: LLVM writes out loops of sums of one array by itself, others not."""
        alike = len(self.red.inputs) == 1 and self.red.tag != "pixels"
        return self.figures.count("loads") if alike and "loads" in self.figures else 1


_NOT_HIDDEN = 0.2  # of the shorter of what memory takes and what one work-group waits
_LINE_BYTES = 128
_FEW_LOADS = 4  # with so many of a thread's loads under way at once, no more are worth a condition
_PIECE_BYTES = 16  # of a load
_CHANNELS = 4  # of a thread that makes several pixels of a window
# Steps of a thread under a condition that LLVM 22 writes out, so that their loads do not wait for each other: of 35 it did in float16 and did not in bfloat16, of
# 47 in neither.
_WRITTEN_OUT = 32
_SCATTERED = 8  # lines over bytes where lanes read far from each other, with half of what a line has more still in the caches when it is asked for


def equal_parts(length: int, outputs: int) -> tuple[int, ...]:
    """In how many equal parts a sum may go: a power of two up to `_MOST_PARTS`, or where that is no divisor of the length, the least divisor between it and
    the next one. A sum of 3 * 5^9 elements has few powers of two, and 8 parts of a sum alone leave a GPU idle. Indices of the parts of all sums are int32."""
    found = [1]
    for k in range(1, _MOST_PARTS.bit_length()):
        part = next((p for p in range(1 << k, min(2 << k, _MOST_PARTS + 1)) if length % p == 0), None)
        found.append(1 << k if part is None else part)
    return tuple(p for p in found if p * outputs < 1 << 31)


def in_parts(s: Schedule, red: ComputeOp, parts: int, place: Callable[[ComputeOp], None]) -> ComputeOp:
    """`red` as the reduction of `parts` partial ones, which `place` schedules; what is left of it."""
    stage = s[red]
    k = stage.fuse(*red.reduce_axis) if len(red.reduce_axis) > 1 else red.reduce_axis[0]
    outer, _ = stage.split(k, nparts=parts)
    partial = s.rfactor(red.output(0), outer)
    op = s[partial].op
    assert isinstance(op, ComputeOp)
    place(op)
    left = stage.op
    assert isinstance(left, ComputeOp)
    return left


def _alone(s: Schedule, out: ComputeOp, red: ComputeOp, threads: int, loads: int) -> None:
    """A thread for each sum, which asks for `loads` of its elements at once. Where they do not divide the sum, the last ones come under a condition."""
    inner, stage, length = bind_all(s, out, threads), s[red], reduce_size(red) or 1
    run = exact if (exact := math.gcd(loads, length)) >= min(loads, _FEW_LOADS) or along(red) else min(loads, length)
    if run > 1 and (red.axis or out is not red):  # the only sum of a kernel has its loop bound to threads
        k = stage.fuse(*red.reduce_axis) if len(red.reduce_axis) > 1 else red.reduce_axis[0]
        stage.unroll(stage.split(k, factor=run)[1])
    if out is not red:
        stage.compute_at(s[out], inner)
        stage.set_scope("local")


def _neighbours(s: Schedule, op: ComputeOp, lanes: int, threads: int) -> None:
    """A thread for `lanes` neighbouring sums, whose elements it loads at once."""
    acc = s.cache_write(op.output(0), "local")
    final, own = s[op.output(0)], s[acc]
    axes = list(final.op.axis)
    last, vec = final.split(axes[-1], factor=lanes)
    outer, inner = final.split(final.fuse(*axes[:-1], last), factor=threads)
    final.bind(outer, thread_axis("blockIdx.x"))
    final.bind(inner, thread_axis("threadIdx.x"))
    final.vectorize(vec)
    own.compute_at(final, inner)
    own.reorder(*own.op.reduce_axis, *own.op.axis)
    own.vectorize(own.op.axis[-1])


def _wide(s: Schedule, out: ComputeOp, red: ComputeOp, wide: int, rows: int, lanes: int, target: Target) -> None:
    """A work-group of `wide` by `rows` threads: a thread has `lanes` neighbouring sums' elements of every `rows`-th row, and those of its column meet."""
    final = s[out]
    acc = s[s.cache_write(out.output(0), "local")] if out is red else s[red]
    at = final.fuse(*out.axis) if len(out.axis) > 1 else out.axis[0]
    if lanes > 1:
        at, vec = final.split(at, factor=lanes)
        final.vectorize(vec)
    block, tx = final.split(at, factor=wide)
    block = neighbours_on_a_die(
        final, block, (size_of(red.output(0).shape) or 1) // (wide * lanes), target.machine.dies
    )
    final.bind(block, thread_axis("blockIdx.x"))
    final.bind(tx, thread_axis((0, wide), "threadIdx.x"))
    k = acc.fuse(*acc.op.reduce_axis) if len(acc.op.reduce_axis) > 1 else acc.op.reduce_axis[0]
    turns, own = acc.split(k, factor=rows)
    if red.num_outputs > 1:  # loads of several turns at once, which LLVM does by itself for sums
        acc.unroll(acc.split(turns, factor=math.gcd(8, (reduce_size(red) or 1) // rows))[1])
    partial = s[s.rfactor(acc.op.output(0), own)] if lanes > 1 else None
    acc.compute_at(final, tx)
    acc.set_scope("local")
    own = own if partial is None else acc.op.reduce_axis[0]
    acc.bind(own, thread_axis((0, rows), "threadIdx.y"))
    if partial is None:
        return
    acc.reorder(own, *acc.op.axis)
    acc.unroll(acc.op.axis[-1])
    partial.set_scope("local")
    partial.compute_at(acc, own)
    partial.reorder(*partial.op.reduce_axis, *partial.op.axis)
    partial.vectorize(partial.op.axis[-1])


def _pixels(s: Schedule, out: ComputeOp, red: ComputeOp, threads: int, columns: int, short_window: int) -> bool:
    """Windows over (pixels, channels): 16 bytes of channels a thread, neighbours side by side, so that they touch whole cache
    lines; or some pixels of fewer channels a thread. Windows of up to `short_window` taps are written out; of longer ones a row is, for fewer channels."""
    channels = const_shape(out.output(0))[-1]
    if len(out.axis) != 2 or channels is None:
        return False
    short = (reduce_size(red) or 0) <= short_window
    lanes = math.gcd(channels, _CHANNELS if columns > 1 or not short else 16 // dtype_info(out.output(0).dtype).bytes)
    acc = s.cache_write(out.output(0), "local") if out is red else red.output(0)
    final, own = s[out.output(0)], s[acc]
    own.set_scope("local")
    p, c = final.op.axis
    c, vec = final.split(c, factor=lanes)
    if columns > 1:
        p, column = final.split(p, factor=columns)
        final.reorder(p, c, column, vec)
        final.unroll(column)
    outer, inner = final.split(final.fuse(p, c), factor=threads)
    final.bind(outer, thread_axis("blockIdx.x"))
    final.bind(inner, thread_axis("threadIdx.x"))
    final.vectorize(vec)
    own.compute_at(final, inner)
    op = own.op
    own.reorder(*op.reduce_axis, *op.axis)
    own.vectorize(op.axis[-1])
    if columns > 1:
        own.unroll(op.axis[0])
    for axis in op.reduce_axis if short else op.reduce_axis[-1:]:
        own.unroll(axis)
    return True


def group_per_output(s: Schedule, out: ComputeOp, red: ComputeOp, threads: int, rows: int = 1) -> None:
    """Long sums: the threads of a work-group share one, or each wavefront of it has one of some `rows`."""
    tx = thread_axis("threadIdx.x")
    stage = s[out]
    fused = out.axis[0] if len(out.axis) == 1 else stage.fuse(*out.axis) if out.axis or out is not red else None
    if fused is not None and rows > 1:
        block, fused = stage.split(fused, factor=rows)
        stage.bind(block, thread_axis("blockIdx.x"))
        stage.bind(fused, thread_axis((0, rows), "threadIdx.y"))
    elif fused is not None:
        stage.bind(fused, thread_axis("blockIdx.x"))
    rstage = s[red]
    k = rstage.fuse(*red.reduce_axis) if len(red.reduce_axis) > 1 else red.reduce_axis[0]
    # Neighbours of the sum in one thread: its loads come in pieces of up to 16 bytes, or as words of several codes.
    size = min((dtype_info(t.dtype).bytes for t in red.inputs), default=4)
    length = reduce_size(red) or threads
    most = red.attrs.get("run", max(1, 16 // size))
    # Pieces that all threads have as many of need no condition. Where the threads do not divide the sum there is one in any case, and one for a piece will do.
    run = math.gcd(
        most, length if length % threads and length >= most * threads and in_a_row(red) else max(1, length // threads)
    )
    if run > 1:
        k, own = rstage.split(k, factor=run)
        rstage.unroll(own)
    rstage.bind(rstage.split(k, factor=threads)[1], tx)
    if out is red or fused is None:
        return
    rstage.compute_at(stage, fused)
    rstage.set_scope("local")
