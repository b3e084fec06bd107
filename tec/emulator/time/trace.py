"""What chosen work-groups of a launch do, in order: which basic blocks their waves run, and what each access touches.

The model of time (`tec.emulator.timing`) is made of such traces: a few whole ones, and the beginnings of many for what work-groups share in
the caches. Global memory is not written, and where no address or branch depends on data, data is neither read nor computed (`skeleton`), so a
trace costs little and any launch can be traced, before or after it ran.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.devices.surface import Dim3
from .. import launch as launching
from ..beginning import aligned, initial_sgprs, initial_vgprs, kernarg_block
from ..context import PARAMS, PARAMS_BYTES, TRACE, TRACE_HEADER, state_bytes
from ..faults import fault_of
from ..translate.translation import Row

if TYPE_CHECKING:
    from ..driver import EmuDriver
    from ..modules import Compiled, EmuFunction


@dataclass(slots=True)
class WaveTrace:
    """One wave. `events`: (kind, row, count) each; `lines`: the cache lines of events of global memory, one event's after another's."""

    events: np.ndarray
    lines: np.ndarray
    cut: bool

    @property
    def kinds(self) -> np.ndarray:
        return self.events >> 30

    @property
    def rows(self) -> np.ndarray:
        return (self.events >> 12) & 0x3FFFF

    @property
    def counts(self) -> np.ndarray:
        return self.events & 0xFFF


@dataclass(slots=True)
class GroupTrace:
    """One work-group, by its number in the grid (x fastest)."""

    group: int
    waves: list[WaveTrace] = field(default_factory=list)

    @property
    def cut(self) -> bool:
        return any(w.cut for w in self.waves)


class Tracer:
    """Traces of one launch's work-groups."""

    def __init__(
        self, driver: EmuDriver, function: EmuFunction, grid: Dim3, block: Dim3, shared_bytes: int, kernargs: bytes
    ):
        info, chip = function.info, driver.chip
        launching.check_launch(chip, info, grid, block, shared_bytes)
        self.driver, self.function, self.grid, self.block = driver, function, grid, block
        self.lanes = info.wavefront_size
        threads = block[0] * block[1] * block[2]
        self.waves = -(-threads // self.lanes)
        self.total = grid[0] * grid[1] * grid[2]
        self.lds_bytes = info.lds_bytes + shared_bytes
        self.compiled: Compiled = function.traced(full=threads % self.lanes == 0, many=self.waves > 1)
        self._args = kernarg_block(info, kernargs, grid, block, shared_bytes)

    @property
    def rows(self) -> list[Row]:
        return self.compiled.translation.rows

    @property
    def branches(self) -> bool:
        """Whether work-groups may do unlike work: a kernel without a conditional branch runs every block once."""
        return any(i.op.startswith(("s_cbranch", "s_setpc", "s_swappc")) for i in self.function.text.insts)

    def count(self, groups: Iterable[int]) -> np.ndarray:
        """How often each of the groups executes each block: (groups, rows), blocks by the number of their row, waves together. Nothing is recorded."""
        groups = list(groups)
        counts = np.zeros((len(groups), len(self.rows)), np.int64)
        self.run(groups, 0, 0, lds=False, counts=counts)
        return counts

    def run(
        self, groups: Iterable[int], events: int, lines: int, lds: bool = True, counts: np.ndarray | None = None
    ) -> list[GroupTrace]:
        """Traces of the groups. A wave has room for `events` and `lines`, and ends where one of them is used up. `lds`: its clocks as well.
        `counts`: a row for each group, to count its blocks in, in the traces' place."""
        memory, function = self.driver.memory, self.function
        packet = struct.pack("<HHHHHHIII", 0, 3, *self.block, 0, *(g * b for g, b in zip(self.grid, self.block)))
        symbols = function.module.symbol_addresses(self.compiled.translation.symbols).tobytes()
        placed = []
        try:
            for data, room, label in (
                (self._args, max(64, (len(self._args) + 63) // 64 * 64), f"kernel arguments of {function.info.name}"),
                (packet, 64, "dispatch packet"),
                (symbols, max(64, len(symbols)), "symbol addresses"),
            ):
                placed.append(memory.place(data, room, label))
            return self._run(list(groups), events, lines, lds, placed[0], placed[1], placed[2], counts)
        finally:
            for base in placed:
                memory.displace(base)

    def _run(
        self,
        groups: list[int],
        events: int,
        lines: int,
        lds: bool,
        arg_at: int,
        packet_at: int,
        symbols: int,
        counts: np.ndarray | None,
    ) -> list[GroupTrace]:
        """Run some work-groups in the form that records them, with room for so many events and lines; what each of them did."""
        driver, info, chip = self.driver, self.function.info, self.driver.chip
        registers = initial_sgprs(chip, info, arg_at, packet_at, self._args)
        vgprs, exec_ = initial_vgprs(chip, self.lanes, self.waves, self.block)
        stop = np.zeros(16, np.uint32)
        params_buffer, params = aligned(PARAMS_BYTES, 0)
        values = {
            "grid_x": self.grid[0], "grid_y": self.grid[1], "waves": self.waves,
            "state_bytes": state_bytes(self.lanes, self.compiled.translation.vgprs), "template": vgprs.ctypes.data, "template_bytes": 0,
            "sgprs": registers.sgprs.ctypes.data, "vgprs": vgprs.ctypes.data, "exec": exec_.ctypes.data, "place_x": registers.places[0],
            "place_y": registers.places[1], "place_z": registers.places[2], "lds_bytes": self.lds_bytes, "vgpr_count": 3,
            "lanes": self.lanes, "ttmp_mode": int(chip.limits.ttmp_ids), "budget": driver.budget,
            "group_step": 1,  # work-groups by their numbers: each is asked for
        }  # fmt: skip
        for name, value in values.items():
            ctypes.c_int64.from_address(params + PARAMS[name]).value = value
        table = driver.memory.table()
        stride = 4 * (TRACE_HEADER + events + lines)
        room, trace_at = aligned(stride * self.waves)
        words = room[trace_at - room.ctypes.data :][: stride * self.waves].view(np.uint32).reshape(self.waves, -1)
        shared = {
            "allocs": table.ctypes.data, "alloc_count": len(table), "symbols": symbols, "stop": stop.ctypes.data, "align": 0,
            "trace": trace_at, "trace_stride": stride, "trace_events": events, "trace_lines": lines, "trace_lds": int(lds),
        }  # fmt: skip
        thread = launching.Thread(
            self.compiled, chip, self.lds_bytes, self.waves, launching.scratch_bytes(info), shared
        )
        work = launching.worker(driver, self.compiled, params, stop)
        out = []
        for k, g in enumerate(groups):
            words[:, :TRACE_HEADER] = 0
            thread._put("trace_counts", counts[k].ctypes.data if counts is not None else 0)
            ctypes.c_int64.from_address(params + PARAMS["next"]).value = g
            ctypes.c_int64.from_address(params + PARAMS["total"]).value = g + 1
            if launching.run_one(work, thread, self.compiled):
                raise fault_of(driver, self.function, self.compiled, thread, self.lds_bytes, self.grid)
            if counts is None:
                out.append(GroupTrace(g, [self._wave(w, events) for w in words]))
        del params_buffer
        return out

    @staticmethod
    def _wave(words: np.ndarray, events: int) -> WaveTrace:
        ne, nl = int(words[TRACE["events"]]), int(words[TRACE["lines"]])
        at = TRACE_HEADER + events
        return WaveTrace(
            words[TRACE_HEADER : TRACE_HEADER + ne].copy(), words[at : at + nl].copy(), bool(words[TRACE["cut"]])
        )
