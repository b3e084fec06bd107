"""Where everything of a network lies, as expressions of its sizes: found once for a plan, worked out in microseconds for a size.

In: a `Plan` and its functions' signatures. `PlanLayout.bind(env)` gives a `Binding`: the bytes of the arena, the place of every value
behind a base (the arena, an input, an output, a weight), and the numbers that functions take; all as arrays that one matrix product makes
(`size_table`).

An open plan's arena is laid out in slots: values of which no two live at the same step share one, which is as large as the largest
of them. Who shares is decided once, for sizes of a middling kind; it is right for all sizes, and close to the smallest for sizes that are alike.

That functions get arrays of the shapes that they take is proved here as polynomials. What is not proved so is a row that must be 0,
and a PackageError where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...polynomials import Polynomial, add_to, minus, times
from ...records import dataclass
from ..arrays.dtypes import itemsize
from ..devices.storage import ALIGN
from ..modules.arguments import Param
from ..modules.package import damaged
from . import memory_plan
from .plan import Allocation, Call, Params, Plan, Repeat, Size
from .size_table import EXACT, Limits, SizeTable, substitute

_TYPICAL = 64  # a size for which values are put together in slots: neither 1 nor large
_INT32 = 1 << 31
_BIND = "compile with these sizes bound: shapes={name: size}"


@dataclass(frozen=True, slots=True)
class Binding:
    """The numbers of a network for given sizes."""

    env: dict[str, int]
    arena_bytes: int
    offsets: Any  # int64, of each value behind its base
    pointers: Any  # int64, of each array argument of each call behind its base
    scalars: Any  # int64, of each number argument of each call
    numbers: Any  # the rows of the table
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of values, those that were asked for
    outputs: list[tuple[int, list[Place | None]]] = field(default_factory=list)  # once they were asked for


@dataclass(frozen=True, slots=True)
class Place:
    """An output among all outputs, one behind the other."""

    begin: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


class PlanLayout:
    """See the module. `bases` are the names of the values that have memory of their own, behind the arena, which is number 0."""

    def __init__(self, plan: Plan, signature: Params):
        self.plan = plan
        self.table = SizeTable()
        self.names = {name: k for k, name in enumerate(plan.values)}
        self._zeros: list[tuple[int, str]] = []  # rows that must be 0, and what is wrong where one is not
        self._bytes = [self._nbytes(n) for n in plan.values]
        self._room_strides: dict[str, list[Polynomial]] = {}
        self.bases: list[str] = [""]
        self._trips = plan.trips
        self._find_bases()
        self._slots()
        self._alias_sizes()
        self.shapes = {n: [self.table.row(e) for e in v.shape] for n, v in plan.values.items()}
        self._calls(signature)
        self._stride_rows = {n: [self.table.row_of(x) for x in s] for n in plan.values if (s := self._strides(n))}
        self.limits = Limits()
        self._limit()
        self._whole = 0 if plan.arena_bytes is None else self.table.row(plan.arena_bytes)
        self.table.row(0)

    # ---- what it is made of

    def _nbytes(self, name: str) -> int:
        return self.table.row_of(self._product(self.plan.room(name), itemsize(self.plan.values[name].dtype)))

    def _product(self, sizes: Sequence[Size], factor: int = 1) -> Polynomial:
        total: Polynomial = {(): factor}
        for e in sizes:
            total = times(total, self.table.polynomial(e))
        return total

    def _find_bases(self) -> None:
        """The base of every value, and the row of its offset there, slots not counted."""
        plan, table = self.plan, self.table
        number: dict[str, int] = {}
        base, rows = [], []
        part_of = {p: n for n, v in plan.values.items() for p in v.parts}
        self.holder = {n: n for n in plan.values}  # what a value's slot is: that of the join that it is a part of
        for name in reversed(plan.values):
            if name in part_of:
                self.holder[name] = self.holder[part_of[name]]
        for name in plan.values:
            root, at = name, table.polynomial(0)
            while (of := plan.values[root].of) is not None:
                v = plan.values[root]
                begin = table.polynomial(0 if v.offset is None else v.offset)
                if v.place == "rows":
                    axis = plan.growing[of].axis
                    assert axis is not None
                    begin = times(begin, self._product(v.shape[axis + 1 :], itemsize(v.dtype)))
                add_to(at, begin)
                root = of
            self.holder[name] = self.holder[root]
            if plan.values[root].place == "arena":
                base.append(0)
                if plan.is_open:
                    add_to(at, self._within(root, part_of))
                else:
                    add_to(at, table.polynomial(plan.values[root].offset))
            else:
                if root not in number:
                    number[root] = len(self.bases)
                    self.bases.append(root)
                base.append(number[root])
            rows.append(table.row_of(at))
        self.base_of = np.array(base, np.int64)
        self._offset_rows = np.array(rows, np.int64)

    def _within(self, name: str, part_of: Mapping[str, str]) -> Any:
        """The place of a part in the outermost value that it is a part of, as a polynomial."""
        at: dict[Any, int] = {}
        while name in part_of:
            whole = part_of[name]
            for p in self.plan.values[whole].parts:
                if p == name:
                    break
                v = self.plan.values[p]
                add_to(at, self._product(v.shape, itemsize(v.dtype)))
            name = whole
        return at

    def _slots(self) -> None:
        """Which values of the arena share memory."""
        plan = self.plan
        slot_of: dict[str, int] = {}
        if plan.is_open:
            lives = memory_plan.lifetimes(plan, dict.fromkeys(plan.sizes, _TYPICAL), strict=False)
            slot_of = memory_plan.share(lives)
        members = sorted(slot_of, key=slot_of.__getitem__)
        self._members = np.array([self._bytes[self.names[n]] for n in members], np.int64)
        self._starts = np.array(
            [k for k, n in enumerate(members) if k == 0 or slot_of[n] != slot_of[members[k - 1]]], np.int64
        )
        # Values that no step takes have no slot; nothing reads where they are.
        self._slot_of = np.array([slot_of.get(self.holder[n], -1) + 1 for n in plan.values], np.int64)

    def _alias_sizes(self) -> None:
        """What shows all of another value has its size, what shows a part lies within it, and parts make up the whole."""
        inside: list[tuple[int, str]] = []  # rows that must not be negative
        offsets: list[int] = []
        for name, v in self.plan.values.items():
            if v.place == "rows":
                inside += self._rows_inside(name)
                continue
            if v.place == "item":
                inside += self._item_inside(name)
                continue
            wrong = f"{name!r} has not the size of {v.of!r}, whose memory it is"
            if v.of is not None and v.offset is None:
                self._equal(self._bytes[self.names[name]], self._bytes[self.names[v.of]], wrong)
            elif v.of is not None:
                offsets.append(self.table.row(v.offset))
                rest = self.table.polynomial_of(self._bytes[self.names[v.of]])
                for row in (self._bytes[self.names[name]], offsets[-1]):
                    rest = minus(rest, self.table.polynomial_of(row))
                inside += [(self.table.row_of(rest), wrong), (offsets[-1], wrong)]
            if v.parts:
                rest = self.table.polynomial_of(self._bytes[self.names[name]])
                own = [self._bytes[self.names[p]] for p in v.parts]
                for row in own:
                    rest = minus(rest, self.table.polynomial_of(row))
                offsets += own[:-1]  # behind the last one none begins
                self._zeros.append((self.table.row_of(rest), f"the parts of {name!r} are not one behind the other"))
        self._inside = inside
        self._aligned = np.array(offsets, np.int64)

    def _rows_inside(self, name: str) -> list[tuple[int, str]]:
        """Rows of a state lie within the room that it has."""
        v, table = self.plan.values[name], self.table
        assert v.of is not None
        room, axis, wrong = self.plan.room(v.of), self.plan.growing[v.of].axis, f"{name!r} is no rows of {v.of!r}"
        assert axis is not None
        for k, (e, is_) in enumerate(zip(room, v.shape)):
            if k != axis:
                self._equal(table.row(e), table.row(is_), wrong)
        if len(room) != len(v.shape):
            raise damaged(wrong)
        rest = minus(minus(table.polynomial(room[axis]), table.polynomial(v.offset)), table.polynomial(v.shape[axis]))
        return [(table.row_of(rest), wrong), (table.row(v.offset), wrong)]

    def _item_inside(self, name: str) -> list[tuple[int, str]]:
        """The rows that a loop goes over are there."""
        v, table = self.plan.values[name], self.table
        assert v.of is not None
        rows, *row = self.plan.values[v.of].shape
        wrong = f"{name!r} is no row of {v.of!r} in each of the loop's trips"
        for e, is_ in zip(row, v.shape):
            self._equal(table.row(e), table.row(is_), wrong)
        return [(table.row_of(minus(table.polynomial(rows), table.polynomial(self._trips[name]))), wrong)]

    def _strides(self, name: str) -> list[Polynomial] | None:
        """The strides of rows of a state; None for a compact value."""
        v = self.plan.values[name]
        state = v.of if v.place == "rows" else name if name in self.plan.growing else None
        if state is None:
            return None
        found = self._room_strides.get(state)
        if found is None:
            room = self.plan.room(state)
            found = self._room_strides[state] = [self._product(room[k + 1 :]) for k in range(len(room))]
        return found

    def _equal(self, a: int, b: int, wrong: str | Callable[[], str]) -> None:
        """Note that two rows must be equal, where they are not the same. wrong: what is told where they differ, or a function that makes it, as most are the
        same and nobody reads the text."""
        if a != b:
            gap = minus(self.table.polynomial_of(a), self.table.polynomial_of(b))
            self._zeros.append((self.table.row_of(gap), wrong if isinstance(wrong, str) else wrong()))

    def _calls(self, signature: Params) -> None:
        """The arguments of every step, one step's behind the other's: a call's, and those of a copy, which are two arrays and a number of bytes."""
        values: list[int] = []
        scalars: list[int] = []
        narrow: list[int] = []
        self.calls: list[tuple[int, int]] = []  # for each call and copy: where its arrays and its numbers begin
        for step in self.plan.flat:
            self.calls.append((len(values), len(scalars)))
            if not isinstance(step, Call):
                values += [self.names[step.target], self.names[step.source]]
                scalars.append(self._bytes[self.names[step.target]])
                continue
            wanted = signature(step.function)
            env = sizes_of(step, wanted, self.plan)
            for p, a in zip(wanted, step.args):
                if not isinstance(a, str):
                    scalars.append(self.table.row(a.value))
                    if p.dtype in ("int32", "uint32"):
                        narrow.append(scalars[-1])
                    continue
                values.append(self.names[a])
                v = self.plan.values[a]
                wrong = partial(_untaken, step.function, v, a, p)
                for e, is_ in zip(p.shape, v.shape):
                    self._equal(self.table.row(substitute(e, env)), self.table.row(is_), wrong)
                self._check_strides(step.function, a, p, env)
        self.trips = {
            id(s): self.table.row(s.trips)
            for s, _ in self.plan.holders
            if isinstance(s, Repeat) and s.trips is not None
        }
        self._arguments = np.array(values, np.int64)
        self.argument_bases = self.base_of[self._arguments] if values else np.zeros(0, np.int64)
        self._scalar_rows = np.array(scalars, np.int64)
        self._narrow = sorted(set(narrow))

    def _check_strides(self, function: str, name: str, p: Param, env: Mapping[str, Any]) -> None:
        """What takes rows of a state is told how far they lie apart."""
        strides = self._strides(name)
        if strides is None:
            return
        wrong = f"{function!r} does not take the rows {name!r} as {p}"
        if p.strides is None:
            raise damaged(wrong)
        for e, is_ in zip(p.strides, strides):
            self._equal(self.table.row(substitute(e, env)), self.table.row_of(is_), wrong)

    # ---- numbers

    def bind(self, env: dict[str, int]) -> Binding:
        """The numbers for `env`. ArgumentError for sizes that the network cannot take, PackageError for a damaged plan."""
        try:
            numbers = self.table.evaluate(env)
        except (ZeroDivisionError, OverflowError, KeyError) as error:
            raise damaged(f"a size cannot be worked out: {error}") from None
        self._check(numbers, env)
        starts = np.zeros(len(self._starts) + 1, np.int64)
        total = int(numbers[self._whole]) if not self.plan.is_open else 0
        if len(self._starts):
            rounded = (numbers[self._members] + (memory_plan.ALIGN - 1)) & -memory_plan.ALIGN
            ends = np.cumsum(np.maximum.reduceat(rounded, self._starts))
            starts[2:] = ends[:-1]
            total = int(ends[-1])
        offsets = (
            numbers[self._offset_rows] + starts[self._slot_of] if self.plan.is_open else numbers[self._offset_rows]
        )
        return Binding(env, total, offsets, offsets[self._arguments], numbers[self._scalar_rows], numbers)

    def arguments_in(self, names: frozenset[str], first: int, count: int) -> list[int]:
        """Of the array arguments of `count` calls and copies, from number `first` on, those that lie in the memory of a value of `names`."""
        begin = self.calls[first][0] if first < len(self.calls) else len(self._arguments)
        end = self.calls[first + count][0] if first + count < len(self.calls) else len(self._arguments)
        of = list(self.plan.values)
        return [k for k in range(begin, end) if not names.isdisjoint(self.plan.chain(of[self._arguments[k]]))]

    @property
    def scalar_rows(self) -> Any:
        """Of each number that calls take, one call's behind the other's: its row of the table of sizes."""
        return self._scalar_rows

    @property
    def n_scalars(self) -> int:
        """How many numbers the calls take, all together."""
        return len(self._scalar_rows)

    def nbytes(self, binding: Binding, value: int) -> int:
        """The bytes of a value, by its number."""
        return int(binding.numbers[self._bytes[value]])

    def shape(self, binding: Binding, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        shape = binding.shapes.get(name)
        if shape is None:
            shape = binding.shapes[name] = tuple(int(binding.numbers[r]) for r in self.shapes[name])
        return shape

    def outputs(self, binding: Binding) -> tuple[int, list[Place | None]]:
        """(bytes, where each output of the plan may lie in so many; None for rows of a state)."""
        if not binding.outputs:
            end, places = 0, list[Place | None]()
            kept = self.plan.kept_values
            for o in self.plan.outputs:
                v = self.plan.values[o.value]
                if o.value in kept:
                    places.append(None)
                    continue
                nbytes = self.nbytes(binding, self.names[o.value])
                places.append(Place(end, nbytes, self.shape(binding, o.value), v.dtype))
                end += -(-nbytes // ALIGN) * ALIGN
            binding.outputs.append((end, places))
        return binding.outputs[0]

    def strides_of(self, binding: Binding, name: str) -> tuple[int, ...] | None:
        """The strides of rows of a state; None for a compact value."""
        rows = self._stride_rows.get(name)
        return None if rows is None else tuple(int(binding.numbers[r]) for r in rows)

    def _limit(self) -> None:
        """What the code was compiled under, that the plan is in itself right, and that places in every value are 32-bit numbers."""
        add, table = self.limits.add, self.table
        for g in self.plan.guards:
            add(table.row(g.size), 0, EXACT, partial(_unguarded, g.what))
        for r, what in self._zeros:
            add(r, 0, 0, partial(_damaged, what))
        for r, what in self._inside:
            add(r, 0, EXACT, partial(_damaged, what))
        for n, v in self.plan.values.items():
            if not all(isinstance(e, int) for e in v.shape):
                width = itemsize(v.dtype)
                add(self._bytes[self.names[n]], 0, _INT32 * width - 1, partial(_too_large, n, width))
        for r in self._narrow:
            add(r, 1 - _INT32, _INT32 - 1, past_32_bits)

    def _check(self, numbers: Any, env: Mapping[str, int]) -> None:
        self.limits.check(numbers, env)
        if len(self._aligned) and (numbers[self._aligned] & (ALIGN - 1)).any():
            raise damaged("a value begins between two multiples of the alignment")


def _unguarded(what: str, _: int, env: Mapping[str, int]) -> Exception:
    text = f"the network was compiled for sizes with {what}, not for {_text(env)}"
    return ArgumentError(text, hint=f"give sizes for which that holds, or {_BIND}")


def _untaken(function: str, value: Allocation, name: str, p: Param) -> str:
    return f"{function!r} does not take {value} {name!r} as {p}"


def _damaged(what: str, _: int, env: Mapping[str, int]) -> Exception:
    return damaged(what)


def _too_large(name: str, width: int, nbytes: int, env: Mapping[str, int]) -> Exception:
    text = f"with {_text(env)} value {name!r} has {nbytes // width} elements; a network with symbolic sizes takes fewer than {_INT32}"
    return ArgumentError(text, hint=_BIND)


def past_32_bits(_: int, env: Mapping[str, int]) -> Exception:
    """A number is larger than what takes it."""
    return ArgumentError(f"with {_text(env)} a size is past 32 bits", hint=_BIND)


def sizes_of(step: Call, params: Sequence[Param], plan: Plan) -> dict[str, Any]:
    """What a call's function knows by name, as expressions of the plan's sizes: its numbers, and a size that none of them gives from the shape where it
    stands first."""
    env: dict[str, Any] = {p.name: a.value for p, a in zip(params, step.args) if not isinstance(a, str)}
    for p, a in zip(params, step.args):
        if isinstance(a, str):
            for e, is_ in zip(p.shape, plan.values[a].shape):
                if isinstance(e, str):
                    env.setdefault(e, is_)
    return env


def _text(env: Mapping[str, int]) -> str:
    return ", ".join(f"{n} = {v}" for n, v in env.items())
