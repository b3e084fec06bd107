"""What an executor remembers from run to run: a network's states.

A state that grows has memory for `capacity` rows along its axis, of which `length` are filled; a run writes the new rows behind them and
nothing else moves. Where there is no room the capacity doubles. All states whose size has one name have one length. A state of another kind
is the array that its output was, and zeros before the first run.

Of a state with a window the rows that no new one reads are let go where the capacity would grow beyond the window and a block: those that stay move to the front, and
`dropped` counts the others. Rows are let go by whole `STEP`s, so that blocks of rows begin where they would without. `SPARE` rows beside the window stay, for rows
that are cut off again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..arrays.dtypes import itemsize
from ..arrays.filled import zeros
from ..arrays.ndarray import NDArray, empty
from ..devices.device import Device
from ..modules import exprs
from ..plans.plan import Plan, State

_FIRST = 64  # rows of a state that nobody gave a capacity
STEP, SPARE = 256, 256  # see the module


class States:
    """See the module. `lengths` are the rows that are filled, by the size's name, and `dropped` those before them that were let go."""

    def __init__(self, plan: Plan, device: Device, capacity: int | None = None):
        self.plan = plan
        self.device = device
        self.growing = plan.growing
        self.others = [s for s in plan.states if s.axis is None]
        self.names = [s.input for s in plan.states]
        self._first = capacity
        self._size = {
            s.input: str(plan.values[s.input].shape[s.axis]) for s in self.growing.values() if s.axis is not None
        }
        self._shapes = {n: [exprs.compile_expr(e) for e in plan.values[n].shape] for n in self.names}
        outputs = {o.name: o.value for o in plan.outputs}
        self._grown = {
            self._size[n]: exprs.compile_expr(plan.values[outputs[s.output]].shape[s.axis or 0])
            for n, s in self.growing.items()
        }
        # Those whose other dimensions are numbers: where there is room, a run finds nothing to check.
        self._plain = {
            n for n, s in self.growing.items()
            if all(isinstance(e, int) for k, e in enumerate(plan.values[n].shape) if k != s.axis)
        }  # fmt: skip
        self.lengths: dict[str, int] = dict.fromkeys(self._size.values(), 0)
        windows = {size: [s.window for n, s in self.growing.items() if self._size[n] == size] for size in self.lengths}
        self._windows = {size: max(found) for size, found in windows.items() if all(found)}
        self.dropped: dict[str, int] = dict.fromkeys(self._windows, 0)
        self._buffers: dict[str, NDArray] = {}
        self._values: dict[str, NDArray] = {}
        self._whole: dict[str, NDArray] = {}  # memory of which all rows hold numbers

    @property
    def nbytes(self) -> int:
        """Bytes that the states take, room for more rows counted."""
        return sum(a.nbytes for a in (*self._buffers.values(), *self._values.values()))

    # ---- for a run

    def known(self) -> dict[str, int]:
        """The sizes that the states give."""
        env = dict(self.lengths)
        for s in self.others:
            a = self._values.get(s.input)
            for e, n in zip(self.plan.values[s.input].shape, a.shape if a is not None else ()):
                if isinstance(e, str):
                    env[e] = n
        return env

    def prepare(self, env: dict[str, int], given: Mapping[str, NDArray] | None) -> dict[str, int]:
        """Make room for what a run with the sizes `env` appends; `given` are the states' contents, where they come from outside. Puts the
        sizes that nothing else gives and the capacities into `env`, and returns the lengths that there are afterwards."""
        for s in self.others:
            for e in self.plan.values[s.input].shape:
                if isinstance(e, str) and e in self.plan.empty:
                    env.setdefault(e, 0)
        if given is not None:
            self.dropped = dict.fromkeys(self.dropped, 0)
        after = {n: int(exprs.evaluate(c, env)) for n, c in self._grown.items()}
        for size in self._windows if given is None else ():
            after[size] -= self._let_go(size, after[size] - self.lengths[size])
            env[size] = self.lengths[size]
        for name, s in self.growing.items():
            size, held = self._size[name], self._buffers.get(name)
            if held is not None and given is None and name in self._plain and held.shape[s.axis or 0] >= after[size]:
                env[s.capacity] = held.shape[s.axis or 0]
                continue
            buffer = self._room(name, s, env, after[size], None if given is None else given[name])
            env[s.capacity] = buffer.shape[s.axis or 0]
        for s in self.others:
            shape = self._shape(s.input, env)
            if given is not None:
                self._values[s.input] = self._own(given[s.input]) if s.input in self.plan.held else given[s.input]
            elif s.input not in self._values:
                self._values[s.input] = zeros(shape, self.plan.values[s.input].dtype, self.device)
            if self._values[s.input].shape != shape:
                raise ArgumentError(
                    f"state {s.input} has shape {self._values[s.input].shape}, a run with these inputs takes {shape}",
                    hint="executor.reset() begins anew",
                )
        return after

    def _shape(self, name: str, env: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(int(exprs.evaluate(c, env)) for c in self._shapes[name])

    def _room(self, name: str, s: State, env: Mapping[str, int], rows: int, given: NDArray | None) -> NDArray:
        """The memory of a state, with room for `rows`, filled with what there is."""
        axis, held, size = s.axis or 0, self._buffers.get(name), self._size[name]
        shape = self._shape(name, env)
        filled = shape[axis]
        if held is not None and given is None and filled:
            kept = (*held.shape[:axis], filled, *held.shape[axis + 1 :])
            if kept != shape:
                raise ArgumentError(
                    f"state {name} has shape {kept}, a run with these inputs takes {shape}",
                    hint="executor.reset() begins anew; executor.reorder(indices) takes other beams",
                )
        # What is given never goes over rows that a run which fails would have to bring back.
        fits = held is not None and held.shape[axis] >= rows and (given is None or not self.lengths[size])
        same = held is not None and held.shape[:axis] == shape[:axis] and held.shape[axis + 1 :] == shape[axis + 1 :]
        if held is not None and fits and same:
            buffer = held
        else:
            # States of one size have one capacity; the first of them that is too small decides.
            capacity = self._rows_for(size, rows)
            buffer = empty((*shape[:axis], capacity, *shape[axis + 1 :]), self.plan.values[name].dtype, self.device)
            if held is not None and same and given is None and filled:
                copy_rows(held, buffer, axis, filled)
            self._buffers[name] = buffer
        if given is not None and filled:
            _slice(buffer, axis, filled).copyfrom(given)
        return buffer

    def _rows_for(self, size: str, rows: int) -> int:
        """The capacity of the states of a size: as given, then doubled; with a window no more than it takes."""
        held = self._held(size)
        capacity = max(self._first or _FIRST, held)
        while capacity < rows:
            capacity *= 2
        return max(held, rows, min(capacity, self._kept(size) + 2 * STEP)) if size in self._windows else capacity

    def _held(self, size: str) -> int:
        """The capacity that states of a size have."""
        found = (b.shape[self.growing[n].axis or 0] for n, b in self._buffers.items() if self._size[n] == size)
        return max(found, default=0)

    def _kept(self, size: str) -> int:
        """The rows of a window, and those that stay beside it."""
        return self._windows[size] - 1 + SPARE

    def _let_go(self, size: str, more: int) -> int:
        """Let rows go that `more` new ones do not read, where there is no room for these. How many went."""
        filled, kept = self.lengths[size], self._kept(size)
        gone = (filled - kept) // STEP * STEP
        if gone <= 0 or filled + more <= max(self._held(size), kept + STEP + max(more, STEP)):
            return 0
        for name, s in self.growing.items():
            if self._size[name] == size:
                _to_front(self._buffers[name], s.axis or 0, gone, filled - gone)
        self.lengths[size] -= gone
        self.dropped[size] += gone
        return gone

    @property
    def rows(self) -> dict[str, int]:
        """The rows that there were, those that were let go among them, by the size's name."""
        return {size: n + self.dropped.get(size, 0) for size, n in self.lengths.items()}

    @property
    def least(self) -> int:
        """The fewest rows to which states can be cut, beside none: of fewer a new row would read some that were let go."""
        return max((gone + self._windows[size] - 1 for size, gone in self.dropped.items() if gone), default=0)

    def reserve(self, rows: int, free: int = 0) -> int:
        """Room for `rows` rows, or for more where there is more; all but the last `free` of them count as filled, with zeros behind those that were. How many there
        are, those that were let go among them."""
        there = self.rows
        for size in self._windows:
            self._let_go(size, max(0, rows - there[size]))
        for name, s in self.growing.items():
            axis, held, wanted = s.axis or 0, self._buffers.get(name), rows - self.dropped.get(self._size[name], 0)
            if held is not None and held is self._whole.get(name) and held.shape[axis] >= wanted:
                continue
            if name not in self._plain:
                raise ArgumentError(f"state {name} has a size that only a run gives", hint="run the network first")
            n, filled = self._rows_for(self._size[name], wanted), self.lengths[self._size[name]]
            shape = [n if k == axis else e for k, e in enumerate(self._shape(name, {self._size[name]: 0}))]
            made = zeros(tuple(shape), self.plan.values[name].dtype, self.device)
            if held is not None and filled:
                copy_rows(held, made, axis, filled)
            self._buffers[name] = self._whole[name] = made
        self.lengths.update((size, self._held(size)) for size in self.lengths)
        most = min(self.rows.values(), default=0)
        self.lengths.update((size, n - free) for size, n in self.lengths.items())
        return most

    def array(self, name: str) -> NDArray:
        """What a run reads as an input: of a state that grows its whole memory."""
        return self._buffers[name] if name in self.growing else self._values[name]

    def advance(self, after: Mapping[str, int], results: Mapping[str, NDArray]) -> None:
        """A run was queued: rows are filled, and outputs are the next run's inputs."""
        self.lengths.update(after)
        self._values.update((s.input, results[s.output]) for s in self.others if s.output in results)

    def _own(self, given: NDArray) -> NDArray:
        """A copy, which runs may write."""
        made = empty(given.shape, given.dtype, self.device)
        made.copyfrom(given)
        return made

    def begin_with(self, states: Mapping[str, NDArray], length: int | None = None) -> None:
        """See `Executor.begin_with`."""
        rows: dict[str, set[int]] = {n: set() for n in self.lengths}
        for name, a in states.items():
            v = self.plan.values[name] if name in self.names else None
            if v is None or a.dtype != v.dtype or len(a.shape) != len(v.shape) or a.device is not self.device:
                raise ArgumentError(
                    f"{a.dtype}{a.shape} on {a.device} is no state {name!r} of the network",
                    hint=f"states: {', '.join(f'{n}: {self.plan.values[n]}' for n in self.names)}",
                )
            if name in self.growing:
                rows[self._size[name]].add(a.shape[self.growing[name].axis or 0])
        wanted = {n for n in self.growing if rows[self._size[n]]}
        if not wanted <= set(states) or any(len(r) > 1 for r in rows.values()):
            raise ArgumentError(
                f"states of one length are given together: {', '.join(sorted(wanted))}",
                hint="as `Executor.state` shows them",
            )
        for name, s in self.growing.items():
            if name in states:
                axis, a = s.axis or 0, states[name]
                capacity = self._rows_for(self._size[name], a.shape[axis])
                made = empty((*a.shape[:axis], capacity, *a.shape[axis + 1 :]), a.dtype, self.device)
                copy_rows(a, made, axis, a.shape[axis])
                self._buffers[name] = made
        self.lengths.update((size, r.pop()) for size, r in rows.items() if r)
        self.dropped.update((n, 0 if length is None else length - self.lengths[n]) for n in self.dropped)
        self._values.update((n, a) for n, a in states.items() if n not in self.growing)

    def take(self, other: States) -> None:
        """What another network's states are, which has them by the same names. Raises ArgumentError where it has not."""
        if set(self.names) != set(other.names) or self._size != other._size:
            raise ArgumentError(
                f"states {', '.join(self.names)} cannot go on from {', '.join(other.names)}",
                hint="both networks have the same states",
            )
        self.lengths, self._buffers, self._values = dict(other.lengths), dict(other._buffers), dict(other._values)
        self.dropped = dict(other.dropped)

    def snapshot(self) -> Any:
        """What `restore` takes back after a run that failed."""
        return self.rows, dict(self._values), dict(self._buffers)

    def restore(self, kept: Any) -> None:
        rows, self._values, self._buffers = kept
        # What was let go since stays so.
        self.lengths = {size: n - self.dropped.get(size, 0) for size, n in rows.items()}

    def view(self, name: str) -> NDArray:
        """A state as it is now, in its place."""
        state = self.growing.get(name)
        if state is None:
            return self._values[name]
        return _slice(self._buffers[name], state.axis or 0, self.lengths[self._size[name]])

    @property
    def filled(self) -> bool:
        """Whether there is anything to show."""
        return all(n in self._buffers or n in self._values for n in self.names)

    # ---- for users

    def reset(self) -> None:
        """As before the first run; the memory stays."""
        self.lengths, self.dropped = dict.fromkeys(self.lengths, 0), dict.fromkeys(self.dropped, 0)
        self._values.clear()

    def truncate(self, rows: int) -> None:
        """Forget all rows but the first. ArgumentError where there are fewer, or where a state has no rows."""
        if self.others:
            raise ArgumentError(
                f"state {self.others[0].input} has no rows that could be cut off", hint="executor.reset()"
            )
        if isinstance(rows, bool) or not hasattr(rows, "__index__") or not 0 <= rows:
            raise ArgumentError(
                f"truncate({rows!r}): a number of rows from 0 on", hint="truncate(n) keeps the first n rows"
            )
        if not rows:
            self.dropped = dict.fromkeys(self.dropped, 0)
        for size, n in self.rows.items():
            if rows > n:
                raise ArgumentError(
                    f"truncate({rows}): the state has {n} rows ({size})",
                    hint="a state is only cut, not extended: run to add rows",
                )
        if rows < self.least:
            raise ArgumentError(
                f"truncate({rows}): a state with a window has let rows go that a new one would read",
                hint=f"{self.least} rows or more, or executor.reset()",
            )
        self.lengths = {size: int(rows) - self.dropped.get(size, 0) for size in self.lengths}

    def reorder(self, indices: Sequence[int]) -> None:
        """Along axis 0, the batch: element k becomes what element `indices[k]` was. There may be more or fewer of them than there were."""
        index = np.asarray(indices)
        if index.ndim != 1 or index.dtype.kind not in "iu" or not index.size:
            raise ArgumentError(
                f"reorder takes a row of indices, not {indices!r}",
                hint="whole numbers in one dimension: ex.reorder([0, 0, 2])",
            )
        made: dict[str, NDArray] = {}
        for name in self.names:
            if not self.filled:
                raise ArgumentError(
                    "reorder: there is no state yet", hint="run once, or give the first states as inputs"
                )
            old = self.array(name)
            if self.growing.get(name) is not None and self.growing[name].axis == 0:
                raise ArgumentError(
                    f"state {name} grows along axis 0, where reorder would take beams",
                    hint="reorder takes rows along axis 0: let the state grow along another axis, such as (beams, heads, tokens, size)",
                )
            if not old.shape or index.min() < 0 or index.max() >= old.shape[0]:
                raise ArgumentError(
                    f"reorder: indices {index.tolist()} into {old.shape[:1]} of state {name}",
                    hint="indices from 0 to the number of beams - 1",
                )
            new = made[name] = empty((len(index), *old.shape[1:]), old.dtype, self.device)
            state = self.growing.get(name)
            for k, source in enumerate(index.tolist()):
                if state is None:
                    _copy(old[source], new[k])
                else:
                    copy_rows(old[source], new[k], (state.axis or 0) - 1, self.lengths[self._size[name]])
        for name, a in made.items():
            (self._buffers if name in self.growing else self._values)[name] = a


def _slice(a: NDArray, axis: int, rows: int) -> NDArray:
    return a[(*(slice(None),) * axis, slice(0, rows))]


def _to_front(a: NDArray, axis: int, first: int, rows: int) -> None:
    """Rows from `first` on become the first ones."""
    source, target = a[(*(slice(None),) * axis, slice(first, first + rows))], _slice(a, axis, rows)
    if rows > first and a.device.driver is not None:  # they overlap, which copies of NumPy's allow
        made = empty(source.shape, a.dtype, a.device)
        _copy(source, made)
        source = made
    _copy(source, target)


def copy_rows(source: NDArray, target: NDArray, axis: int, rows: int) -> None:
    """The first rows along an axis, on the device."""
    _copy(_slice(source, axis, rows), _slice(target, axis, rows))


def _copy(source: NDArray, target: NDArray) -> None:
    """Of one shape and device, the inner dimension without gaps. No host in between."""
    device, width = source.device, itemsize(source.dtype)
    if not source.size:
        return
    if device.driver is None:
        np.copyto(target._cpu_view(), source._cpu_view())
        return
    inner, count = source.ndim, 1
    while inner and (source.shape[inner - 1] == 1 or source.strides[inner - 1] == target.strides[inner - 1] == count):
        inner -= 1
        count *= source.shape[inner]
    for index in np.ndindex(*source.shape[:inner]):
        a, b = (sum(i * s for i, s in zip(index, x.strides)) * width for x in (source, target))
        device.driver.copy_on_device(
            device.index, target.address + b, source.address + a, count * width, device.local.stream
        )
