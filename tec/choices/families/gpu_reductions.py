"""One reduction with its epilogue on a GPU: a thread an output, or a work-group where outputs are few and sums long, or the threads of a work-group for
neighbouring outputs; windows over (pixels, channels) in 16-byte pieces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ...ir.dtype import dtype_info
from ...locks import cached_property
from ...schedule import Schedule
from ...target import Target, latency_ns, level_gbps
from ...te import ComputeOp
from ..cost import far_gbps, near_gbps
from ..footprint import SEGMENT_BYTES
from ..group import Group, begin, const_shape, reduce_size, size_of
from ..parts.counts import moved_bytes
from ..parts.summed import along, in_a_row, most_read, reads_apart, run_between
from ..space import Choice, Cost, Scheduled, Space, Value
from .sum_loops import a_thread_each, equal_parts, group_per_output, in_parts, neighbours, pixels, wide_sums

LONG_SUM = 256  # elements of a sum from which a GPU's threads share it
_THREADS_A_UNIT = 512  # two wavefronts a SIMD: with fewer, a unit waits for its loads
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
            "wide": (0, 8, 16, 32, 64), "rows": self._rows(),
            **({"columns": (1, 2, 4, 8)} if red.tag == "pixels" and len(red.inputs) > 1 else {}),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target) -> GpuReduction | None:
        found = group.ended_sum() if target.is_gpu else None
        if found is None or size_of(found[0].output(0).shape) != size_of(found[1].output(0).shape):
            return None
        return cls(group, target, *found)

    @property
    def default(self) -> Choice:
        """Windows and weights over pixels by channels: some pixels a thread where a rule says so, which have most of these in common. Else see `_sums`."""
        choice = self._sums
        short = self.along and (self.length or LONG_SUM) < LONG_SUM
        if (choice["shared"] or short) and choice["parts"] == 1 and "group_ns" in self.figures:
            by_waves = [
                {**choice, "shared": True, "wide": 0, "piece": 0, "threads": self.target.wavefront_size, "rows": n}
                for n in self.parameters["rows"][1:]
            ]
            least = self.target.wavefront_size if short else 1
            legal = [
                c
                for c in by_waves
                if self.why_not(c) is None and self._own(c) <= _WRITTEN_OUT and (self.length or 0) >= least
            ]
            choice = min((choice, *legal), key=lambda c: self.cost(c).seconds)
        if "columns" in self.parameters:
            alone = not choice["shared"] and choice["parts"] == 1
            choice["columns"] = self._rule("columns", 1) if alone else 1
        return choice

    def _rows(self) -> tuple[int, ...]:
        """Numbers of sums that a work-group may have, a wavefront each: more of them to choose from where a machine's work-groups take their time to begin."""
        if not (self.along and self.outputs and self.length):
            return (1,)
        return (1, 8, 7, 6, 5, 4, 3, 2) if "group_ns" in self.figures else (1, 4, 8)

    def _rule(self, name: str, otherwise: Any) -> Any:
        """What the rules say of a name for these sums."""
        lead = const_shape(self.red.output(0))[0] if self.red.axis else None
        return self.rule(
            name, otherwise, outputs=self.outputs, length=self.length, bytes=self._element_bytes, results=self.red.num_outputs, pixels=lead or 1, inputs=len(self.red.inputs)
        )  # fmt: skip

    @property
    def _sums(self) -> Choice:
        """Sums along the data are shared; else neighbours load neighbouring sums' elements. Parts where that leaves units without work."""
        outputs, length, why_not = self.outputs, self.length, self.why_not
        if outputs is None or length is None or length < LONG_SUM:
            # More threads a work-group where so many of them take longer to start than a launch, and than what they sum takes to come.
            machine, alone = self.target.machine, self._choice(False, 64)
            read = float(moved_bytes(self.group)) / (machine.memory_gbps * 1e9)
            if machine.groups_a_clock and outputs and self._starts(alone) > max(read, machine.launch_seconds):
                alone = self._choice(False, 256)
            by_all = self._choice(True, self.target.wavefront_size if machine.priced_by_model else 64)
            if "lone_sector" in self.figures and not self.along:  # whose price says what reads across cost
                by_groups = (self._choice(True, t) for t in (64, 128, 256))
                others = [c for c in (*by_groups, *self._wides(64, 128, 256)) if why_not(c) is None]
                return min((alone, *others), key=lambda c: self.cost(c).seconds)
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
        if not shared and "near_bytes" in self.figures and moved_bytes(self.group) <= self.figures["near_bytes"]:
            legal += [c for t in (512, 1024) if why_not(c := self._choice(True, t)) is None]
        wanted = _THREADS_A_UNIT * units
        priced = [(self.cost(c).seconds, c) for c in legal]
        # Prices of products that lie so near say nothing: more threads have more loads under way.
        slack = self.figures.get("as_near", 0.0) if len(self.red.inputs) > 1 else 0.0
        near = (1.0 + slack) * min(s for s, _ in priced)
        best = min(priced, key=lambda x: (max(near, x[0]), -min(wanted, self._threads(x[1])), x[1]["parts"]))[1]
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
        if not self.outputs or self.outputs < choice["wide"] * lanes or (choice["piece"] and lanes < 2):
            return "the sums are fewer than the threads side by side have pieces"
        # The last work-group begins earlier, and makes some of its neighbour's sums again; no clock has judged it.
        again = lanes == 1 and self.target.machine.priced_by_model
        if self.outputs % (choice["wide"] * lanes) and not again:
            return "the sums are no whole number of pieces for all threads"
        if choice["wide"] * lanes * self._element_bytes * (4 if self._on_a_die(choice) else 2) < _LINE_BYTES:
            return "a line would come in more than two parts, or four on one die"
        if lanes > 1 and (self.red.num_outputs > 1 or last is None or last % lanes):
            return "tuples, and sums that do not lie side by side, come one by one"
        return None

    def _on_a_die(self, choice: Choice) -> bool:
        """Whether work-groups whose columns are of one line run on one die, whose L2 puts the parts together."""
        groups, dies = -(-(self.outputs or 1) // (choice["wide"] * self._lanes(choice))), self.target.machine.dies
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
        limit = moved.limit if work < moved.seconds else "issue"
        if "near_trip_ns" in self.figures:  # lanes work while loads are under way
            return Cost(max(moved.seconds, work) + _NOT_HIDDEN * min(moved.seconds, work), limit)
        return Cost(moved.seconds + work, limit)

    def _lane_seconds(self, choice: Choice) -> float:
        """Of loads from the caches, and of the additions, of all sums. Sums that a thread makes together read what they have in common once."""
        machine, inputs = self.target.machine, len(self.red.inputs)
        if self.outputs is None or self.length is None or inputs < 2:
            return 0.0
        read = (1 + (inputs - 1) / choice.get("columns", 1)) * self._element_bytes / near_gbps(self.target) * 1e-9
        read *= self._apart(choice)
        lanes = self.target.chip.simds * self.target.chip.simd_lanes * machine.units * machine.clock_hz
        return float(self.outputs * self.length * (read + inputs / lanes))

    def _apart(self, choice: Choice) -> float:
        """Bytes that the caches give over those that lanes want: of an operand whose elements lie apart for lanes side by side a sector for each."""
        if self.target.chip.family != "sm":
            return 1.0
        axes = self.red.reduce_axis if choice["shared"] else self.red.axis
        apart = reads_apart(self.red, axes[-1].var) if axes else []
        return 1.0 + sum(apart) / max(1, len(apart)) * (max(1.0, SEGMENT_BYTES / self._element_bytes) - 1.0)

    def _moved_cost(self, choice: Choice) -> Cost:
        """Elements read once from memory, or by as many threads as there are: a thread alone waits for each of its loads. Lanes that read far from
        each other bring a line each."""
        machine = self.target.machine
        bytes_ = float(moved_bytes(self.group))
        if not (self.along or choice["shared"]) and "near_trip_ns" in self.figures:
            return self._across(choice, bytes_)
        if choice["wide"]:
            return self._wide_cost(choice, bytes_)
        if self.along != choice["shared"]:
            bytes_ *= self._scattered(choice)
        partial = 2.0 * (self.outputs or 1) * choice["parts"] * dtype_info(self.red.output(0).dtype).bytes
        gbps = machine.reached_gbps
        memory = (bytes_ + (partial if choice["parts"] > 1 else 0)) / (gbps * 1e9)
        if self.target.chip.family == "sm" and choice["shared"]:
            return self._queued(choice, bytes_ + (partial if choice["parts"] > 1 else 0))
        if choice["shared"]:
            memory /= self._even((self.outputs or 1) * int(choice["parts"]))
        latency = (machine.memory.latency_ns or 500.0) * 1e-9
        waves = self._threads(choice) / (machine.units * 1024)
        # Some eight loads are under way at once, unless each is under a condition of its own, as in the last of unequal parts.
        at_once = 1 if not choice["shared"] and (self.length or 0) % choice["parts"] else 8
        waiting = max(1.0, waves) * self._own(choice) / at_once * latency
        if choice["shared"] and (self.length or 0) % int(choice["threads"]) and self._own(choice) > _WRITTEN_OUT:
            waiting *= 8  # each is under a condition, which the next waits for
        launches = 1 + (choice["parts"] > 1)
        if choice["parts"] > 1:  # the second kernel's chain
            waiting += choice["parts"] / (64 if self._joins_by_groups(choice) else 1) / 8 * latency
        memory = max(memory, self._lines(choice, bytes_))
        most = max(memory, waiting, self._starts(choice))
        return Cost(launches * machine.launch_seconds + most, "memory" if memory == most else "latency")

    def _lines(self, choice: Choice, bytes_: float) -> float:
        """Seconds in which the last cache gives whole lines, of which a work-group reads short runs between others' elements, or a wavefront of neighbours less than all."""
        machine, again = self.target.machine, 1.0
        if choice["shared"] and self._run and machine.priced_by_model:
            run = self._run * self._element_bytes
            touched = (
                max(1.0, run / _LINE_BYTES) if _LINE_BYTES % run == 0 else 1 + (run - self._element_bytes) / _LINE_BYTES
            )
            again = touched * _LINE_BYTES / run
        elif not (choice["shared"] or self.along) and machine.priced_by_model:
            again = _LINE_BYTES / (self.target.wavefront_size * self._lanes(choice) * self._element_bytes)
        return bytes_ * again / (near_gbps(self.target) * 1e9) if again > 1 else 0.0

    @cached_property
    def _run(self) -> int | None:
        """Elements of the runs in which a sum's elements lie between others'."""
        return run_between(self.red)

    @property
    def _dies(self) -> int:
        """Dies by which work-groups that share a sum each are ordered: those of runs between others' elements read parts of the same lines, which the L2 of one die has once."""
        return self.target.machine.dies if self._run else 1

    @property
    def _between(self) -> int:
        """Elements of runs that pieces of a thread are not to cross; 0 where there are none, or nobody measured it."""
        return self._run or 0 if self.target.machine.priced_by_model else 0

    def _scattered(self, choice: Choice) -> float:
        """Lines that come over bytes that are asked for, where lanes read far from each other. Short sums one behind the other are all of their lines, which the first
        cache keeps meanwhile as long as figures say."""
        row = (self.length or 0) * self._element_bytes
        if self.along and choice["parts"] == 1 and "short_rows" in self.figures and in_a_row(self.red):
            return min(_SCATTERED, self.figures.along("short_rows", row))
        if "lone_sector" in self.figures and not self.along:
            return max(1.0, SEGMENT_BYTES / self._element_bytes) * self.figures["lone_sector"]
        return _SCATTERED

    def _starts(self, choice: Choice) -> float:
        """Seconds in which the machine starts the work-groups, or their wavefronts; 0 where its rate is not known."""
        machine = self.target.machine
        if not machine.groups_a_clock:
            waves = self._threads(choice) / self.target.wavefront_size
            return waves / (machine.waves_a_clock * machine.dies * machine.clock_hz) if machine.waves_a_clock else 0.0
        return self._threads(choice) / int(choice["threads"]) / (machine.groups_a_clock * machine.clock_hz)

    def _even(self, groups: int) -> float:
        """How busy the mean unit is, where all wait for the one that has a work-group more."""
        busy = min(self.target.machine.units, groups)
        return groups / (-(-groups // busy) * busy)

    def _wide_cost(self, choice: Choice, bytes_: float) -> Cost:
        """Units that have a work-group more than others are what all wait for; of a line that work-groups read parts of, each brings it from the last cache."""
        machine, wide = self.target.machine, choice["wide"] * self._lanes(choice)
        groups = -(-(self.outputs or 1) // wide)
        even = self._even(groups)
        memory = bytes_ / (level_gbps(machine, "memory") * 1e9 * min(1.0, groups * machine.unit_share) * even)
        again = 1.0 if self._on_a_die(choice) else max(1.0, _LINE_BYTES / (wide * self._element_bytes))
        near = bytes_ * again / (level_gbps(machine, "MALL") * 1e9 * even)
        own = -(-(self.length or 1) // (choice["threads"] // choice["wide"]))
        latency = latency_ns(machine, "memory") * 1e-9
        moved, waiting = max(memory, near), own / 8 * latency
        several = self.red.num_outputs > 1 or len(self.red.inputs) > 1
        if self._on_a_die(choice) and not (several and self._element_bytes < 4):
            # Smaller work-groups wait beside each other, as many as there are of a unit's, and meet sooner. Short elements that are worked at, tuples and products, want
            # more threads to share that.
            beside = max(1.0, groups / machine.units)
            waiting *= max(choice["threads"] / self.figures["whole_wait_threads"], 1.0 / beside)
        # Two trips to memory, and the meeting of the threads, which takes a register after another through LDS.
        start = (2 + 0.5 * self._lanes(choice)) * latency
        moved = max(moved, self._window_seconds())
        seconds = machine.launch_seconds + start + max(moved, waiting) + _NOT_HIDDEN * min(moved, waiting)
        return Cost(seconds, "memory" if moved >= waiting else "latency")

    @cached_property
    def _is_window(self) -> bool:
        """Whether sums have elements in common."""
        most, taps = most_read(self.red), (self.outputs or 0) * (self.length or 0)
        return most is not None and taps > 0 and taps >= 2 * (size_of(most.tensor.shape) or taps)

    @property
    def _window_dies(self) -> int:
        """Dies by which work-groups of windows are ordered: neighbours have rows in common, which the L2 of one die brings once."""
        return self.target.machine.dies if self._is_window else 1

    def _window_seconds(self) -> float:
        """What the lanes do where the threads of a work-group share windows, whose elements each find their place and are asked whether they are inside; no clock has judged it."""
        machine, taps = self.target.machine, (self.outputs or 0) * (self.length or 0)
        if not self._is_window or "tap_operations" not in self.figures:
            return 0.0
        lanes = self.target.chip.simds * self.target.chip.simd_lanes * machine.units * machine.clock_hz
        return float(taps * self.figures["tap_operations"] / lanes)

    def _across(self, choice: Choice, bytes_: float) -> Cost:
        """NVIDIA, sums across memory: what memory or the last cache gives, or one multiprocessor takes of it; or the steps of a thread, whose loads are under way together, and come
        later the wider they are. The threads of a wide work-group meet, and parts do in a second kernel."""
        machine, figures = self.target.machine, self.figures
        parts, lanes = int(choice["parts"]), self._lanes(choice)
        rate = far_gbps(bytes_, self.target)
        is_near = rate > machine.reached_gbps
        trip = figures["near_trip_ns" if is_near else "far_trip_ns"] * 1e-9
        high = choice["threads"] // choice["wide"] if choice["wide"] else parts  # threads of a sum
        own, threads = -(-(self.length or 1) // high), (self.outputs or 1) * high / lanes
        groups = math.ceil(threads / choice["threads"])
        partial = 2.0 * (self.outputs or 1) * parts * dtype_info(self.red.output(0).dtype).bytes * (parts > 1)
        each = math.ceil(groups / machine.units) / groups  # of the multiprocessor that has most
        memory = max((bytes_ + partial) / (rate * 1e9), bytes_ * each / figures["unit_bytes"] / machine.clock_hz)
        later = 1.0 + figures["later"] * (max(1.0, lanes * self._element_bytes / 4) - 1.0)
        # Unequal parts have each load under a condition of its own.
        at_once = 1 if (self.length or 0) % parts else figures["steps"]
        rounds = max(1.0, threads / (machine.units * 2048))
        waiting = rounds * max(1.0, own / at_once) * trip * later
        meet = trip * (2 + lanes / 2) if choice["wide"] else 0.0
        if parts > 1:
            joined = parts / (64 if self._joins_by_groups(choice) else 1) / figures["steps"]
            meet += machine.launch_seconds + figures["join_trip_ns"] * 1e-9 * (1 + joined)
        most = max(memory, waiting, groups * self._begun(choice))
        if choice["wide"]:  # whose wavefronts meet in shared memory
            meet += groups * choice["threads"] / self.target.wavefront_size * figures["meet_ns"] * 1e-9
        seconds = machine.launch_seconds + trip + most + meet + _NOT_HIDDEN * min(memory, waiting)
        return Cost(seconds, "memory" if most == memory else "latency")

    def _begun(self, choice: Choice) -> float:
        """NVIDIA: seconds from a work-group's begin to the next one's, which go by its wavefronts where it has many."""
        waves = choice["threads"] * choice["rows"] / self.target.wavefront_size
        return float(max(self.figures["group_ns"], self.figures["wave_ns"] * waves)) * 1e-9

    def _queued(self, choice: Choice, bytes_: float) -> Cost:
        """NVIDIA: memory's rate as long as loads enough are under way, of each input some of a thread."""
        machine, chip, figures = self.target.machine, self.target.chip, self.figures
        memory = bytes_ / (far_gbps(bytes_, self.target) * 1e9)
        full = chip.simds * chip.waves_a_simd * self.target.wavefront_size * machine.units
        threads = self._threads(choice)
        under_way = min(threads, full) * _PIECE_BYTES * max(figures["loads_under_way"], len(self.red.inputs))
        waiting = bytes_ / under_way * machine.queued_ns * 1e-9
        # Groups that end together leave memory idle.
        last = 1 + figures["last_round"] * full / max(threads, full * figures["least_full"])
        second = 0.0
        if choice["parts"] > 1:
            own = -(-choice["parts"] // (choice["threads"] if self._joins_by_groups(choice) else 1))
            second = machine.launch_seconds + own / figures["second_loads"] * machine.queued_ns * 1e-9
        begun = threads / (choice["threads"] * choice["rows"]) * self._begun(choice)
        seconds = (
            machine.launch_seconds
            + max(max(memory, waiting) * last, begun)
            + self._lone_seconds(choice, threads / full)
            + second
        )
        return Cost(seconds, "memory" if memory >= waiting else "latency")

    def _lone_seconds(self, choice: Choice, rounds: float) -> float:
        """What all wait for where the last round of work-groups has few: loads of a thread one after another, with nothing beside them. Of one round all are there at once; behind
        several, work-groups no longer end together."""
        if rounds <= 1:
            return 0.0
        loads = -(-self._own(choice) * self._element_bytes // _PIECE_BYTES)
        idle = (math.ceil(rounds) - rounds) / math.floor(rounds)
        return float(idle * loads / self.figures["lone_loads"] * self.target.machine.queued_ns * 1e-9)

    def _joins_by_groups(self, choice: Choice) -> bool:
        """Whether a work-group takes a sum in the second kernel too: of few, or where a thread would wait for many parts one after another."""
        machine, outputs = self.target.machine, self.outputs or 0
        chained = machine.priced_by_model and choice["parts"] >= _CHAINED and outputs <= _JOINED * machine.units
        return outputs <= 64 or chained

    def build(self, choice: Choice) -> Scheduled:
        s, out, red, threads = begin(self.group), self.out, self.red, choice["threads"]
        shared = choice["shared"]
        if choice["parts"] > 1:
            red = in_parts(s, red, choice["parts"], lambda p: self._partial(s, p, choice))
            out, shared = (red if self.out is self.red else s[self.out].op), self._joins_by_groups(choice)  # type: ignore[assignment]
        if choice["wide"]:
            wide_sums(
                s, out, red, choice["wide"], threads // choice["wide"], self._lanes(choice), self.target, self._steps
            )
        elif shared:
            dies, between = (1, 0) if choice["parts"] > 1 else (self._dies, self._between)
            group_per_output(s, out, red, threads, choice["rows"], dies, between)
        elif not (
            red.tag == "pixels"
            and pixels(
                s, out, red, threads, choice.get("columns", 1), self.figures.count("short_window"), self._window_dies
            )
        ):
            a_thread_each(s, out, red, threads, self._loads(), self._window_dies)
        return Scheduled(s, self.group.outputs, choice)

    def _partial(self, s: Schedule, op: ComputeOp, choice: Choice) -> None:
        """The kernel of the parts: a work-group or a thread each, or a thread for some neighbours."""
        if choice["shared"]:
            group_per_output(
                s, op, op, choice["threads"], dies=self._dies, between=self._between, is_run=in_a_row(self.red)
            )
        elif choice["piece"]:
            neighbours(s, op, self._lanes(choice), choice["threads"], self._steps)
        else:
            a_thread_each(s, op, op, choice["threads"], self._loads())

    def _loads(self) -> int:
        """Loads that a thread is to ask for at once: LLVM writes out loops of sums of one array by itself, others not."""
        alike = len(self.red.inputs) == 1 and self.red.tag != "pixels"
        return self.figures.count("loads") if alike and "loads" in self.figures else self._steps

    @property
    def _steps(self) -> int:
        """Steps of a thread that are written out whichever way threads have the sums."""
        return self.figures.count("steps") if "steps" in self.figures and self.red.tag != "pixels" else 1


# Parts of a sum from which a work-group adds them up, of so many sums a unit: a thread alone takes half a microsecond for each eight.
_CHAINED, _JOINED = 32, 16
_NOT_HIDDEN = 0.2  # of the shorter of what memory takes and what one work-group waits
_LINE_BYTES = 128
_PIECE_BYTES = 16  # of a load
# Steps of a thread under a condition that LLVM 22 writes out, so that their loads do not wait for each other: of 35 it did in float16 and did not in bfloat16, of
# 47 in neither.
_WRITTEN_OUT = 32
_SCATTERED = 8  # lines over bytes where lanes read far from each other, with half of what a line has more still in the caches when it is asked for
