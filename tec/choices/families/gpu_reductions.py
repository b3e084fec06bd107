"""One reduction with its epilogue on a GPU: a thread an output, or a work-group where outputs are few and sums long, or the threads of a work-group for
neighbouring outputs; windows over (pixels, channels) in 16-byte pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

from ...ir.dtype import dtype_info
from ...locks import cached_property
from ...schedule import Schedule
from ...target import Target
from ...te import ComputeOp
from ..cost import near_gbps
from ..group import Group, begin, const_shape, reduce_size, size_of
from ..parts.counts import moved_bytes
from ..parts.summed import along, in_a_row, most_read, run_between
from ..space import Choice, Cost, Scheduled, Space
from .sum_loops import a_thread_each, equal_parts, group_per_output, in_parts, neighbours, pixels, wide_sums

LONG_SUM = 256  # elements of a sum from which a GPU's threads share it
_THREADS_A_UNIT = 512  # two wavefronts a SIMD: with fewer, a unit waits for its loads
# Steps of a thread under a condition that LLVM 22 writes out, so that their loads do not wait for each other: of 35 it did in float16 and did not in bfloat16, of
# 47 in neither.
WRITTEN_OUT = 32
LINE_BYTES = 128
_MOST_GROUPS = (1 << 31) - 1  # of a launch
_GROUPS_A_UNIT = 4  # of which one's loads are under way while another waits
_SHARE = 16  # elements of a thread's part of a sum: with fewer, the partial sums' own traffic counts


class GpuReduction(Space):
    """`shared`: the threads of a work-group share a sum; else a thread has an output, or `piece` bytes of neighbours. `parts`: a kernel of its own
    sums so many parts of each sum before, so that there is work for all units. `wide`: a work-group shares the sums of so many threads' neighbours,
    each thread `piece` bytes of every so-manieth row. `rows`: sums of a work-group, a wavefront each. What a choice costs, and what a machine has beside, subclasses say
    (`priced_reductions`)."""

    template: ClassVar[str] = "gpu reduction"
    rows: ClassVar[tuple[int, ...]]  # numbers of sums that a work-group may have
    # Whether the last of wide work-groups may make some of its neighbour's sums again.
    begins_earlier: ClassVar[bool] = False

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.red, self.out = red, out
        self.outputs, self.length = size_of(red.output(0).shape), reduce_size(red)
        self.along = along(red)
        one = red.num_outputs == 1
        self.parameters = {
            "shared": (False, True), "threads": self.threads_up_to_limit(64, 32, 128, 256, 512, 1024),
            "parts": equal_parts(self.length, self.outputs) if one and self.length and self.outputs else (1,), "piece": (0, 4, 8, 16),
            "wide": (0, 8, 16, 32, 64), "rows": self.rows if self.along and self.outputs and self.length else (1,),
            **({"columns": (1, 2, 4, 8)} if red.tag == "pixels" and len(red.inputs) > 1 else {}),
        }  # fmt: skip

    @property
    def default(self) -> Choice:
        """Windows and weights over pixels by channels: some pixels a thread where a rule says so, which have most of these in common. Else see `_sums`."""
        choice = self._sums
        if "columns" in self.parameters:
            alone = not choice["shared"] and choice["parts"] == 1
            choice["columns"] = self._rule("columns", 1) if alone else 1
        return choice

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
            return self._short(alone)
        shared, units = self.along and outputs <= _MOST_GROUPS, self.target.machine.units
        threads = self._rule("threads", 256 if shared and length >= 256 * 16 else 64)
        options = [
            self._choice(shared, threads, p, b)
            for b in ((0,) if shared else self.parameters["piece"])
            for p in self.parameters["parts"]
        ]
        legal = [c for c in options if why_not(c) is None and (c["parts"] == 1 or self._own(c) >= _SHARE)]
        legal += () if shared else (*self._wides(512, 1024), *self._near())
        wanted = _THREADS_A_UNIT * units
        priced = [(self.cost(c).seconds, c) for c in legal]
        # Prices that lie so near say nothing: more threads have more loads under way.
        near = (1.0 + self._slack) * min(s for s, _ in priced)
        best = min(priced, key=lambda x: (max(near, x[0]), -min(wanted, self._threads(x[1])), x[1]["parts"]))[1]
        most = self._rule("whole_by", 0) if shared else 0
        more = [{**best, "threads": t, "parts": 1} for t in self.parameters["threads"] if threads < t <= most]
        # More threads a sum before a second kernel; and before a thread's loads wait for each other, where units have few other work-groups. Of a product twice as many
        # are under way.
        if best["parts"] > 1:
            best = min((best, *(c for c in more if why_not(c) is None)), key=lambda c: self.cost(c).seconds)
        elif len(self.red.inputs) == 1 and outputs < _GROUPS_A_UNIT * units:
            while more and self._own(best) > _SHARE:
                best = more.pop(0)
        return best

    # ---- what a machine has of its own

    @property
    def whole_threads(self) -> int:
        """Threads of a work-group that has a short sum."""
        raise NotImplementedError

    def _near(self) -> Iterator[Choice]:
        """Choices for sums across memory that a machine has beside the others."""
        return iter(())

    @property
    def _slack(self) -> float:
        """Of prices that lie so near that they say nothing."""
        return 0.0

    def _apart(self, choice: Choice) -> float:
        """Bytes that the caches give over those that lanes want."""
        return 1.0

    @property
    def _between(self) -> int:
        """Elements of runs that pieces of a thread are not to cross; 0 where there are none, or nobody measured it."""
        return 0

    def _joins_by_groups(self, choice: Choice) -> bool:
        """Whether a work-group takes a sum in the second kernel too: of few."""
        return (self.outputs or 0) <= 64

    def _short(self, alone: Choice) -> Choice:
        """Of sums that a thread each may make: so, or by the threads of a work-group where a rule or the price says so."""
        outputs, length, by_all = self.outputs, self.length, self._choice(True, self.whole_threads)
        if self.along and outputs and length and self._rule("short_shared", False) and self.why_not(by_all) is None:
            return by_all
        if outputs is None or length is None or self.why_not(by_all) is not None:
            return alone
        best = by_all if self.cost(by_all).seconds < self._rule("shared_below", 0.0) * self.cost(alone).seconds else alone  # fmt: skip
        return min((best, *self._wides(64, 128, 256)), key=lambda c: self.cost(c).seconds)

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
        if choice["shared"] and (self.outputs or 0) * parts > _MOST_GROUPS * choice["rows"]:
            return f"a launch has {_MOST_GROUPS:,} work-groups at most"
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
        if self.outputs % (choice["wide"] * lanes) and not (lanes == 1 and self.begins_earlier):
            return "the sums are no whole number of pieces for all threads"
        if choice["wide"] * lanes * self._element_bytes * (4 if self._on_a_die(choice) else 2) < LINE_BYTES:
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

    # ---- what prices ask

    def _lane_seconds(self, choice: Choice) -> float:
        """Of loads from the caches, and of the additions, of all sums. Sums that a thread makes together read what they have in common once."""
        machine, inputs = self.target.machine, len(self.red.inputs)
        if self.outputs is None or self.length is None or inputs < 2:
            return 0.0
        read = (1 + (inputs - 1) / choice.get("columns", 1)) * self._element_bytes / near_gbps(self.target) * 1e-9
        read *= self._apart(choice)
        lanes = self.target.chip.simds * self.target.chip.simd_lanes * machine.units * machine.clock_hz
        return float(self.outputs * self.length * (read + inputs / lanes))

    def _partial_bytes(self, choice: Choice) -> float:
        """Of the sums of parts, written and read."""
        parts = int(choice["parts"])
        return 2.0 * (self.outputs or 1) * parts * dtype_info(self.red.output(0).dtype).bytes if parts > 1 else 0.0

    def _waited(self, choice: Choice, memory: float) -> Cost:
        """Where threads wait for each of their loads: that, or what memory takes. Lanes that read far from each other bring a line each."""
        machine = self.target.machine
        latency = (machine.memory.latency_ns or 500.0) * 1e-9
        waves = self._threads(choice) / (machine.units * 1024)
        # Some eight loads are under way at once, unless each is under a condition of its own, as in the last of unequal parts.
        at_once = 1 if not choice["shared"] and (self.length or 0) % choice["parts"] else 8
        waiting = max(1.0, waves) * self._own(choice) / at_once * latency
        if choice["shared"] and (self.length or 0) % int(choice["threads"]) and self._own(choice) > WRITTEN_OUT:
            waiting *= 8  # each is under a condition, which the next waits for
        launches = 1 + (choice["parts"] > 1)
        if choice["parts"] > 1:  # the second kernel's chain
            waiting += choice["parts"] / (64 if self._joins_by_groups(choice) else 1) / 8 * latency
        most = max(memory, waiting, self._starts(choice))
        return Cost(launches * machine.launch_seconds + most, "memory" if memory == most else "latency")

    @cached_property
    def _run(self) -> int | None:
        """Elements of the runs in which a sum's elements lie between others'."""
        return run_between(self.red)

    @property
    def _dies(self) -> int:
        """Dies by which work-groups that share a sum each are ordered: those of runs between others' elements read parts of the same lines, which the L2 of one die has once."""
        return self.target.machine.dies if self._run else 1

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

    @cached_property
    def _is_window(self) -> bool:
        """Whether sums have elements in common."""
        most, taps = most_read(self.red), (self.outputs or 0) * (self.length or 0)
        return most is not None and taps > 0 and taps >= 2 * (size_of(most.tensor.shape) or taps)

    @property
    def _window_dies(self) -> int:
        """Dies by which work-groups of windows are ordered: neighbours have rows in common, which the L2 of one die brings once."""
        return self.target.machine.dies if self._is_window else 1

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
