"""The launches of a plan without loops as rows of the layout's matrix: a new size is its product, and no function is asked anything.

In: a network for a GPU. Out: `Launches`, which `launch_table` makes a table of for an executor. A step belongs to it whose host program has launches, scratch
memory and conditions alone, all of integers; any other (loops and branches on the host) is called as a function.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError
from ...records import dataclass
from ..arrays.dtypes import itemsize
from ..modules import exprs
from ..modules.package import damaged
from ..modules.program import LaunchStep, TensorMap
from .layout import Binding, past_32_bits, sizes_of
from .plan import Call
from .size_table import substitute

if TYPE_CHECKING:
    from ..networks.network import Network

_BLOCK = 64  # bytes; blocks of arguments begin at multiples of it, as a tensor map among them must
_SCRATCH_ALIGN = 256  # bytes, as blocks of the allocator
_INTEGERS = {f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class MapArgument:
    """A tensor map among the arguments: the launch that it is for, where it goes, which address it is of, the rows of its sizes and strides."""

    launch: int
    begin: int
    address: int
    of: TensorMap
    sizes: list[int]
    strides: list[int]


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """A launch: its kernel, and where its arguments lie among all arguments."""

    function: str
    kernel: str
    begin: int
    nbytes: int
    layout: str
    offsets: tuple[int, ...]
    early: bool


class Launches:
    """See the module.

    `sections`: in order, (first launch, how many), or the number of a step that is called as a function. `geometry`: of each launch its grid, block and
    dynamic shared memory, 0 for what sizes change; `moving`: which of those numbers they change, and the rows. `pointers`: (where it goes, in words of 64 bits; which address: an array argument's, behind them the scratch memory's).
    `numbers`: for each width in bytes, where a number goes, counted in numbers of that width, and its row.
    """

    def __init__(self, network: Network):
        self.layout = network._layout
        self.rows: list[LaunchRow] = []
        self.sections: list[tuple[int, int] | int] = []
        self.nbytes = 0
        self.maps: list[MapArgument] = []
        self.geometry_rows: list[list[int]] = []  # of each launch: grid, block, dynamic shared memory
        self.per_step: dict[int, int] = {}  # how many launches a step has
        self._pointers: list[tuple[int, int]] = []
        self._numbers: dict[int, list[tuple[int, int]]] = {}
        self.scratch_rows: list[list[int]] = []  # of each call that has any, the rows of their bytes
        self._scratches = 0
        for k, step in enumerate(network.plan.flat):
            if not (isinstance(step, Call) and self._step(k, step, network)):
                self.sections.append(k)
        table = self.layout.table
        known = [[table.constant(r) for r in rows] for rows in self.geometry_rows]
        try:
            self.geometry = np.array([[n or 0 for n in row] for row in known], np.int64).reshape(-1, 7)
        except OverflowError:
            raise damaged("a launch has a size past 64 bits") from None
        flat = [r for rows in self.geometry_rows for r in rows]
        self.moving = _columns([(k, flat[k]) for k, n in enumerate(n for row in known for n in row) if n is None], 2)
        self.pointers = _columns(self._pointers, 2)
        self.numbers = [(width, _columns(x, 2)) for width, x in self._numbers.items()]

    # ---- rows

    def _row(self, e: Any, env: dict[str, Any]) -> int:
        return self.layout.table.row(substitute(e, env))

    def _step(self, k: int, step: Call, network: Network) -> bool:
        """Add the launches of a step; whether it has nothing else."""
        function = network.module[step.function]
        checker, program = function.checker, function.program
        steps = program.straight() if program is not None else None
        if program is None or steps is None or any(isinstance(p.offset, str) for p in checker.tensors):
            return False
        env = sizes_of(step, checker.params, network.plan)
        taken = [e for raw, _ in steps for e in _expressions(raw)]
        types = [a["dtype"] for raw, _ in steps for a in raw.get("args", ()) if "scalar" in a]
        if not set(types) <= _INTEGERS or any(n not in env for e in taken for n in exprs.names(e)):
            return False
        pointer = self.layout.calls[k][0]
        address = {p.name: pointer + i for i, p in enumerate(checker.tensors)}
        first, scratch = len(self.rows), list[int]()
        for raw, made in steps:
            if isinstance(made, LaunchStep):
                self._launch(step.function, raw, made, env, address)
            elif raw["op"] == "alloc":
                address[raw["name"]] = len(self.layout.argument_bases) + self._scratches
                self._scratches += 1
                scratch.append(self._row(["mul", ["max", raw["size"], 0], itemsize(raw["dtype"])], env))
            elif raw["op"] == "assert":
                text = f"{step.function}: {raw['message']}"
                holds = self._row(["ne", raw["cond"], 0], env)
                self.layout.limits.add(holds, 1, 1, partial(_refused, text))
        if scratch:
            self.scratch_rows.append(scratch)
        last = self.sections[-1] if self.sections else None
        count = self.per_step[k] = len(self.rows) - first
        if isinstance(last, tuple):
            self.sections[-1] = last[0], last[1] + count
        else:
            self.sections.append((first, count))
        return True

    def _launch(self, function: str, raw: Any, made: LaunchStep, env: dict[str, Any], address: dict[str, int]) -> None:
        begin, nbytes = self.nbytes, struct.calcsize(made.format)
        for a, offset, (_, of) in zip(raw["args"], made.offsets, made.sources):
            at = begin + offset
            if "buffer" in a:
                self._pointers.append((at // 8, address[a["buffer"]]))
            elif "tensor_map" in a:
                facts = [[self._row(e, env) for e in a[key]] for key in ("sizes", "strides")]
                self.maps.append(MapArgument(len(self.rows), at, address[a["tensor_map"]], of, *facts))
            else:
                width, row = itemsize(a["dtype"]), self._row(a["scalar"], env)
                self._numbers.setdefault(width, []).append((at // width, row))
                if width < 8:
                    least = -(1 << (8 * width - 1)) if a["dtype"][0] == "i" else 0
                    most = least + (1 << 8 * width) - 1
                    self.layout.limits.add(row, least, most, past_32_bits)
        self.geometry_rows.append([self._row(e, env) for e in (*raw["grid"], *raw["block"], raw.get("dyn_shared", 0))])
        self.rows.append(LaunchRow(function, made.kernel, begin, nbytes, made.format, made.offsets, made.early))
        self.nbytes = -(-(begin + nbytes) // _BLOCK) * _BLOCK

    # ---- numbers

    def scratch(self, binding: Binding) -> tuple[list[int], int]:
        """Where each piece of scratch memory begins, and the bytes of all: calls follow one another, and share it."""
        begins, most = list[int](), 0
        for rows in self.scratch_rows:
            end = 0
            for r in rows:
                begins.append(end)
                end += -(-int(binding.numbers[r]) // _SCRATCH_ALIGN) * _SCRATCH_ALIGN
            most = max(most, end)
        return begins, most


def _refused(text: str, _: int, sizes: Mapping[str, int]) -> Exception:
    """A condition of a host program does not hold."""
    return ArgumentError(f"{text} ({', '.join(f'{n} = {v}' for n, v in sizes.items())})")


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> Any:
    """Tuples as an array a column, int64."""
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, width).T)


def _expressions(raw: Any) -> list[Any]:
    """What a step of a host program works out."""
    if raw["op"] == "launch":
        found = [*raw["grid"], *raw["block"], raw.get("dyn_shared", 0)]
        for a in raw["args"]:
            found += [a["scalar"]] if "scalar" in a else [*a.get("sizes", ()), *a.get("strides", ())]
        return found
    return [raw[key] for key in ("size", "cond") if key in raw]
