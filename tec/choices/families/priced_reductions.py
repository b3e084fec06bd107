"""What sums on a GPU cost (`gpu_reductions`), in two ways: by what a dependent load takes of each level, as the software GPU's time model has it (AMD); and by what an H200's clock
took of loads that are under way together (NVIDIA). Each has the choices with it that only its machines are offered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ...locks import cached_property
from ...target import Target, latency_ns, level_gbps
from ..cost import far_gbps, near_gbps
from ..footprint import SEGMENT_BYTES
from ..group import Group, size_of
from ..parts.counts import moved_bytes
from ..parts.summed import in_a_row, reads_apart
from ..space import Choice, Cost
from .gpu_reductions import LINE_BYTES, LONG_SUM, WRITTEN_OUT, GpuReduction

# Parts of a sum from which a work-group adds them up, of so many sums a unit: a thread alone takes half a microsecond for each eight.
_CHAINED, _JOINED = 32, 16
_NOT_HIDDEN = 0.2  # of the shorter of what memory takes and what one work-group waits
_PIECE_BYTES = 16  # of a load
_SCATTERED = 8  # lines over bytes where lanes read far from each other, with half of what a line has more still in the caches when it is asked for


def match(group: Group, target: Target) -> GpuReduction | None:
    """The space of a group of one reduction and its epilogue."""
    found = group.ended_sum() if target.is_gpu else None
    if found is None or size_of(found[0].output(0).shape) != size_of(found[1].output(0).shape):
        return None
    return (ModelledReduction if target.machine.priced_by_model else ClockedReduction)(group, target, *found)


class ModelledReduction(GpuReduction):
    """Elements are read once from memory, or by as many threads as there are: a thread alone waits for each of its loads."""

    rows: ClassVar[tuple[int, ...]] = (1, 4, 8)
    begins_earlier: ClassVar[bool] = True  # no clock has judged it

    @property
    def whole_threads(self) -> int:
        return self.target.wavefront_size

    @property
    def _between(self) -> int:
        return self._run or 0

    def _joins_by_groups(self, choice: Choice) -> bool:
        """So too where a thread would wait for many parts one after another."""
        few = (self.outputs or 0) <= _JOINED * self.target.machine.units
        return super()._joins_by_groups(choice) or (choice["parts"] >= _CHAINED and few)

    def cost(self, choice: Choice) -> Cost:
        """What memory takes, and what the lanes do, which counts for products: there an element is read for each sum that it is in."""
        moved, work = self._moved_cost(choice), self._lane_seconds(choice)
        return Cost(moved.seconds + work, moved.limit if work < moved.seconds else "issue")

    @cached_property
    def _lines_along(self) -> float:
        """Bytes that caches give for each that is asked for, where lanes share a product's sum: of an operand whose rows the lanes are in, each lane's part of a line, or of its row."""
        if not self.red.reduce_axis or len(self.red.inputs) < 2:
            return 1.0
        apart = reads_apart(self.red, self.red.reduce_axis[-1].var)
        row = (size_of(self.red.output(0).shape[-1:]) or 1) * self._element_bytes
        line = min(2 * SEGMENT_BYTES, max(row, self._element_bytes)) / self._element_bytes
        return 1.0 + sum(apart) / max(1, len(apart)) * (line - 1.0)

    def _apart(self, choice: Choice) -> float:
        return self._lines_along if choice["shared"] and not choice["wide"] else 1.0

    def _moved_cost(self, choice: Choice) -> Cost:
        bytes_ = float(moved_bytes(self.group))
        if choice["wide"]:
            return self._wide_cost(choice, bytes_)
        if self.along != choice["shared"]:
            bytes_ *= self._scattered(choice)
        memory = (bytes_ + self._partial_bytes(choice)) / (self.target.machine.reached_gbps * 1e9)
        if choice["shared"]:
            memory /= self._even((self.outputs or 1) * int(choice["parts"]))
        return self._waited(choice, max(memory, self._lines(choice, bytes_)))

    def _scattered(self, choice: Choice) -> float:
        """Lines that come over bytes that are asked for, where lanes read far from each other. Short sums one behind the other are all of their lines, which the first
        cache keeps meanwhile as long as figures say."""
        if self.along and choice["parts"] == 1 and in_a_row(self.red):
            return min(_SCATTERED, self.figures.along("short_rows", (self.length or 0) * self._element_bytes))
        return _SCATTERED

    def _lines(self, choice: Choice, bytes_: float) -> float:
        """Seconds in which the last cache gives whole lines, of which a work-group reads short runs between others' elements, or a wavefront of neighbours less than all."""
        again = 1.0
        if choice["shared"] and self._run:
            run = self._run * self._element_bytes
            touched = (
                max(1.0, run / LINE_BYTES) if LINE_BYTES % run == 0 else 1 + (run - self._element_bytes) / LINE_BYTES
            )
            again = touched * LINE_BYTES / run
        elif not (choice["shared"] or self.along):
            again = LINE_BYTES / (self.target.wavefront_size * self._lanes(choice) * self._element_bytes)
        return bytes_ * again / (near_gbps(self.target) * 1e9) if again > 1 else 0.0

    def _wide_cost(self, choice: Choice, bytes_: float) -> Cost:
        """Units that have a work-group more than others are what all wait for; of a line that work-groups read parts of, each brings it from the last cache."""
        machine, wide = self.target.machine, choice["wide"] * self._lanes(choice)
        groups = -(-(self.outputs or 1) // wide)
        even = self._even(groups)
        memory = bytes_ / (level_gbps(machine, "memory") * 1e9 * min(1.0, groups * machine.unit_share) * even)
        again = 1.0 if self._on_a_die(choice) else max(1.0, LINE_BYTES / (wide * self._element_bytes))
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

    def _window_seconds(self) -> float:
        """What the lanes do where the threads of a work-group share windows, whose elements each find their place and are asked whether they are inside; no clock has judged it."""
        machine, taps = self.target.machine, (self.outputs or 0) * (self.length or 0)
        if not self._is_window:
            return 0.0
        lanes = self.target.chip.simds * self.target.chip.simd_lanes * machine.units * machine.clock_hz
        return float(taps * self.figures["tap_operations"] / lanes)


class ClockedReduction(GpuReduction):
    """Memory gives its rate as long as loads enough are under way."""

    rows: ClassVar[tuple[int, ...]] = (1, 8, 7, 6, 5, 4, 3, 2)  # work-groups take their time to begin

    @property
    def whole_threads(self) -> int:
        return 64

    @property
    def _sums(self) -> Choice:
        """Some sums may be of one work-group, a wavefront each."""
        choice, wave = super()._sums, self.target.wavefront_size
        is_short = self.along and (self.length or LONG_SUM) < LONG_SUM
        if not (choice["shared"] or is_short) or choice["parts"] > 1 or (is_short and (self.length or 0) < wave):
            return choice
        alike = {**choice, "shared": True, "wide": 0, "piece": 0, "threads": wave}
        by_waves = [{**alike, "rows": n} for n in self.parameters["rows"][1:]]
        legal = [c for c in by_waves if self.length and self.why_not(c) is None and self._own(c) <= WRITTEN_OUT]
        return min((choice, *legal), key=lambda c: self.cost(c).seconds)

    def _short(self, alone: Choice) -> Choice:
        """The price says what reads across cost."""
        if self.along:
            return super()._short(alone)
        by_groups = (self._choice(True, t) for t in (64, 128, 256))
        others = [c for c in (*by_groups, *self._wides(64, 128, 256)) if self.why_not(c) is None]
        return min((alone, *others), key=lambda c: self.cost(c).seconds)

    def _near(self) -> Iterator[Choice]:
        """Work-groups that share a sum each, of so few bytes that the caches keep lines until others have read theirs."""
        if moved_bytes(self.group) <= self.figures["near_bytes"]:
            yield from (c for t in (512, 1024) if self.why_not(c := self._choice(True, t)) is None)

    @property
    def _slack(self) -> float:
        return self.figures["as_near"] if len(self.red.inputs) > 1 else 0.0

    @cached_property
    def _lie_apart(self) -> list[list[bool]]:
        """Of each operand whether its elements lie apart for lanes side by side: of lanes with a sum each, and of those that share one."""
        by_last = (axes[-1:] for axes in (self.red.axis, self.red.reduce_axis))
        return [reads_apart(self.red, last[0].var) if last else [] for last in by_last]

    def _apart(self, choice: Choice) -> float:
        """Of an operand whose elements lie apart for lanes side by side a sector for each."""
        apart = self._lie_apart[bool(choice["shared"])]
        return 1.0 + sum(apart) / max(1, len(apart)) * (max(1.0, SEGMENT_BYTES / self._element_bytes) - 1.0)

    def cost(self, choice: Choice) -> Cost:
        """What memory takes, and beside it what the lanes do while loads are under way."""
        moved, work = self._moved_cost(choice), self._lane_seconds(choice)
        seconds = max(moved.seconds, work) + _NOT_HIDDEN * min(moved.seconds, work)
        return Cost(seconds, moved.limit if work < moved.seconds else "issue")

    def _moved_cost(self, choice: Choice) -> Cost:
        bytes_, partial = float(moved_bytes(self.group)), self._partial_bytes(choice)
        if not (self.along or choice["shared"]):
            return self._across(choice, bytes_)
        if self.along and choice["shared"]:
            return self._queued(choice, bytes_ + partial)
        if choice["shared"]:
            sectors = max(1.0, SEGMENT_BYTES / self._element_bytes) * self.figures["lone_sector"]
            return self._queued(choice, bytes_ * sectors + partial)
        return self._waited(choice, (bytes_ * _SCATTERED + partial) / (self.target.machine.reached_gbps * 1e9))

    def _across(self, choice: Choice, bytes_: float) -> Cost:
        """Sums across memory: what memory or the last cache gives, or one multiprocessor takes of it; or the steps of a thread, whose loads are under way together, and come
        later the wider they are. The threads of a wide work-group meet, and parts do in a second kernel."""
        machine, figures = self.target.machine, self.figures
        parts, lanes = int(choice["parts"]), self._lanes(choice)
        rate = far_gbps(bytes_, self.target)
        is_near = rate > machine.reached_gbps
        trip = figures["near_trip_ns" if is_near else "far_trip_ns"] * 1e-9
        high = choice["threads"] // choice["wide"] if choice["wide"] else parts  # threads of a sum
        own, threads = -(-(self.length or 1) // high), (self.outputs or 1) * high / lanes
        groups = math.ceil(threads / choice["threads"])
        each = math.ceil(groups / machine.units) / groups  # of the multiprocessor that has most
        memory = max(
            (bytes_ + self._partial_bytes(choice)) / (rate * 1e9),
            bytes_ * each / figures["unit_bytes"] / machine.clock_hz,
        )
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
        """Seconds from a work-group's begin to the next one's, which go by its wavefronts where it has many."""
        waves = choice["threads"] * choice["rows"] / self.target.wavefront_size
        return float(max(self.figures["group_ns"], self.figures["wave_ns"] * waves)) * 1e-9

    def _queued(self, choice: Choice, bytes_: float) -> Cost:
        """Memory's rate as long as loads enough are under way, of each input some of a thread."""
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
