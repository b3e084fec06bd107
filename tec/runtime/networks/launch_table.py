"""The launches of a plan as a table in an executor's hands: blocks of arguments, handles, geometry. A new binding fills it; a run is one call.

Where the driver is a library, machine code goes over the rows (`tec.codegen.support.step_loop`, "tec_launch_steps"); a driver in Python is called for each.
Source: CUDA driver API, cuLaunchKernel, cuLaunchKernelEx, CUlaunchConfig; HIP runtime API, hipModuleLaunchKernel.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..devices.device import Device
from ..devices.surface import NativeLaunch
from ..modules.cpu_code import launch_loop
from ..modules.module import Module
from ..modules.prepared_launch import EARLY, LaunchConfig
from ..modules.program import LaunchInfo, map_maker
from ..plans.launches import Launches
from ..plans.layout import Binding

# Of a row of "tec_launch_steps", in words of 64 bits.
_FUNCTION, _PARAMS, _EXTRA, _CONFIG, _GEOMETRY, _WORDS = 0, 1, 2, 3, 4, 11
_SHAPE = _WORDS - _GEOMETRY  # numbers of a launch's geometry
_CONFIG_WORDS = ctypes.sizeof(LaunchConfig) // 8
_EXTRA_WORDS = 5  # HIP_LAUNCH_PARAM_BUFFER_POINTER, the block, HIP_LAUNCH_PARAM_BUFFER_SIZE, where its size stands, HIP_LAUNCH_PARAM_END
_ALIGN = 64


def _zeros(n: int) -> Any:
    """So many bytes from a multiple of _ALIGN on."""
    raw = np.zeros(n + _ALIGN, np.uint8)
    at = -raw.ctypes.data % _ALIGN
    return raw[at : at + n]


class LaunchTable:
    """See the module."""

    def __init__(self, launches: Launches, module: Module, device: Device):
        self.launches, self.device = launches, device
        self._driver: Any = device.driver
        native = getattr(self._driver, "native_launch", None)
        loop = launch_loop()
        self._native: NativeLaunch | None = native() if native is not None and loop is not None else None
        self._loop = loop
        self._functions = [module[r.function].module.kernel(device, r.kernel) for r in launches.rows]
        self._block = _zeros(launches.nbytes + 8)
        self._views = {width: self._block.view(f"i{width}") for width in (1, 2, 4, 8)}
        self._rows = np.zeros((len(launches.rows), _WORDS), np.int64)
        self._rows[:, _GEOMETRY:] = launches.geometry
        self._cells = self._rows.reshape(-1)
        self._at: int = self._rows.ctypes.data  # asked once: numpy makes an object for each answer
        self.words = memoryview(self._views[8])  # of the arguments, 64 bits each
        self._moving = launches.moving[0] // _SHAPE * _WORDS + _GEOMETRY + launches.moving[0] % _SHAPE
        self._makers: dict[Any, Any] = {}  # of tensor maps, by argument and sizes
        # Of each tensor map its launch, which address it is of, the rows of its sizes and strides, and these numbers as it was made.
        shapes = [[*m.sizes, *m.strides] for m in launches.maps]
        width = max(map(len, shapes), default=0)
        self._map_launch = np.array([m.launch for m in launches.maps], np.intp)
        self._map_address = np.array([m.address for m in launches.maps], np.intp)
        self._map_rows = np.array([[*rows, *[0] * (width - len(rows))] for rows in shapes], np.intp)
        self._made_of = np.full((len(shapes), width + 1), -1, np.int64)
        self._filled: Binding | None = None
        self._entries: list[list[int]] | None = None  # the rows as Python has them
        for m in launches.maps:
            self._functions[m.launch].offsets = launches.rows[m.launch].offsets
        if self._native is not None:
            self._point(self._native)

    def _point(self, native: NativeLaunch) -> None:
        """Where the library finds each launch's arguments, and the configuration of those that may begin early."""
        rows, base = self.launches.rows, self._block.ctypes.data
        self._rows[:, _FUNCTION] = [f.handle for f in self._functions]
        if native.by_pointers:
            each = [base + r.begin + at for r in rows for at in r.offsets]
            self._pointers = np.array([*each, 0], np.int64)
            ends = np.cumsum([0, *(len(r.offsets) for r in rows)])[:-1]
            self._rows[:, _PARAMS] = self._pointers.ctypes.data + 8 * ends
        else:
            self._sizes = np.array([r.nbytes for r in rows], np.int64)
            at = self._sizes.ctypes.data
            extra = [(1, base + r.begin, 2, at + 8 * k, native.end) for k, r in enumerate(rows)]
            self._pointers = np.array(extra, np.int64).reshape(-1, _EXTRA_WORDS)
            where = self._pointers.ctypes.data + 8 * _EXTRA_WORDS * np.arange(len(rows))
            self._rows[:, _EXTRA] = np.where([r.nbytes > 0 for r in rows], where, 0)
        self._early = np.array([k for k, r in enumerate(rows) if r.early and native.launch_ex], np.int64)
        self._configs = np.zeros((len(self._early), _CONFIG_WORDS), np.int64)
        # The attributes and their number are the last two fields.
        self._configs[:, LaunchConfig.attributes.offset // 8] = ctypes.addressof(EARLY)
        self._configs[:, LaunchConfig.attribute_count.offset // 8] = 1
        self._rows[self._early, _CONFIG] = self._configs.ctypes.data + 8 * _CONFIG_WORDS * np.arange(len(self._early))

    def fill(self, binding: Binding, addresses: Any) -> None:
        """Write all that a binding changes. addresses: int64, of each array argument of the plan's calls and behind them of the scratch memory."""
        if binding is self._filled:
            return
        self._filled, self._entries = None, None
        launches, numbers = self.launches, binding.numbers
        self._cells[self._moving] = numbers[launches.moving[1]]
        to, of = launches.pointers
        self._views[8][to] = addresses[of]
        for width, (at, rows) in launches.numbers:
            self._views[width][at] = numbers[rows]
        if launches.maps:
            self._fill_maps(numbers, addresses)
        if self._native is not None:
            self._allow_shared()
            if len(self._early):
                self._configs.view(np.uint32)[:, :7] = self._rows[self._early, _GEOMETRY:]
        self._filled = binding

    def forget(self) -> None:
        """Addresses have changed."""
        self._filled = None

    def _fill_maps(self, numbers: Any, addresses: Any) -> None:
        """Make the tensor maps that have changed, of launches with a grid: of kernels for several classes of sizes most launches have none."""
        now = np.concatenate([numbers[self._map_rows], addresses[self._map_address, None]], 1)
        runs = (self._rows[self._map_launch, _GEOMETRY : _GEOMETRY + 3] > 0).all(1)
        for k in np.flatnonzero(runs & (now != self._made_of).any(1)).tolist():
            self._map(self.launches.maps[k], numbers, addresses)
        self._made_of[runs] = now[runs]

    def _map(self, m: Any, numbers: Any, addresses: Any) -> None:
        sizes, strides = (tuple(int(numbers[r]) for r in rows) for rows in (m.sizes, m.strides))
        key = m.begin, sizes, strides
        make = self._makers.get(key)
        if make is None:
            if len(self._makers) > 8 * len(self.launches.maps):
                self._makers.clear()
            make = self._makers[key] = map_maker(self._functions[m.launch], m.of, sizes, strides)
        made = make(int(addresses[m.address]))
        self._block[m.begin : m.begin + len(made)] = np.frombuffer(made, np.uint8)

    def _allow_shared(self) -> None:
        """More dynamic shared memory than a launch may have by default is asked for, once a kernel."""
        for k in np.flatnonzero(self._rows[:, -1]):
            function, shared = self._functions[k], int(self._rows[k, -1])
            if shared > function.shared_limit:
                self._driver._allow_shared(function, shared)

    def run(self, first: int, count: int) -> None:
        """Queue launches, by their numbers, in the thread's stream. Raises what a launch raises."""
        device, driver = self.device, self._driver
        stream = device.local.stream
        native = self._native
        if native is None or device.profile is not None:
            self._one_by_one(first, count, stream)
            return
        driver._enter(device.index)
        assert self._loop is not None
        at, status = self._loop(self._at + 8 * _WORDS * first, count, stream, native.launch, native.launch_ex)
        if status:
            row = self._rows[first + at, _GEOMETRY:].tolist()
            raise driver._launch_failed(self._functions[first + at], tuple(row[:3]), tuple(row[3:6]), row[6], status)

    def _one_by_one(self, first: int, count: int, stream: Any) -> None:
        device, driver = self.device, self._driver
        if self._entries is None:
            self._entries = self._rows[:, _GEOMETRY:].tolist()
        for k in range(first, first + count):
            row, of, function = self._entries[k], self.launches.rows[k], self._functions[k]
            if min(row[:6]) <= 0:
                continue
            grid, block, shared = tuple(row[:3]), tuple(row[3:6]), row[6]
            kernargs = self._block[of.begin : of.begin + of.nbytes].tobytes()
            if device.profile is None:
                driver.launch(function, grid, block, shared, kernargs, stream)
            else:
                info = LaunchInfo(of.kernel, grid, block, shared, of.layout, of.offsets, of.early)
                device.profile.launch(device, info, function, kernargs, stream)
