"""Checks a network's plan: nothing in it may make a step read or write outside of what is there, or read what is not made yet.

In: a `Plan`, the parameters, and the parameters of each function's signature. Out: nothing, or PackageError. `check_structure`
holds for any sizes and is done once; `check_memory` needs sizes: it is done at once where all are numbers, else for each set of
sizes that a network is bound to. Compiled code trusts its arguments, so this is where a forged or damaged plan is stopped.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ...records import dataclass
from ..arrays.dtypes import dtype_name, itemsize
from ..devices.storage import ALIGN
from ..modules import exprs
from ..modules.package import damaged
from .check_holders import check_holders, check_made, check_made_after
from .plan import LARGEST, Allocation, Call, Choose, Copy, Env, Exchange, Params, Plan, Repeat, Step

# ---- structure


def check_structure(plan: Plan, params: Mapping[str, Any], signature: Params) -> None:
    """Names, counts, dtypes; no cycles among aliases. PackageError otherwise."""
    symbols = _check_ends(plan)
    seen: set[str] = set()
    for name, v in plan.values.items():
        for e in v.shape:
            _check_expr(f"the shape of {name!r}", e, symbols)
        if v.place == "param" and name not in params:
            raise damaged(f"parameter {name!r} is missing")
        if v.offset is not None:
            _check_expr(f"the offset of {name!r}", v.offset, symbols)
        elif v.place == "arena" and not plan.is_open:
            raise damaged(f"the offset of {name!r} is missing")
        if v.parts:
            _check_parts(name, v, plan, seen)
        seen.add(name)
        plan.root(name)
    if plan.arena_bytes is not None:
        _check_expr("the arena's size", plan.arena_bytes, symbols)
    for guard in plan.guards:
        _check_expr("a condition on sizes", guard.size, symbols)
    for step in plan.flat:
        for a in step.values:
            if a not in plan.values:
                raise damaged(f"{a!r} is no value of the network")
        if isinstance(step, Call):
            _check_call(step, plan, symbols, signature)
        elif isinstance(step, Exchange):
            _check_exchange(step, plan)
        else:
            _check_copy(step, plan)
    check_holders(plan, symbols, _check_expr)


def _check_ends(plan: Plan) -> set[str]:
    """Inputs and outputs: each a value. The names of the sizes that the inputs give."""
    for name in (*plan.inputs, *(o.value for o in plan.outputs)):
        if name not in plan.values:
            raise damaged(f"{name!r} is no value of the network")
    if len(set(plan.inputs)) != len(plan.inputs):
        raise damaged("two inputs have one name")
    if any(plan.values[n].place != "input" for n in plan.inputs):
        raise damaged("an input does not lie in an array of its own")
    strangers = [n for n, v in plan.values.items() if v.place == "input" and n not in set(plan.inputs)]
    if strangers:
        raise damaged(f"{strangers[0]!r} is an input that the network does not name")
    return set(plan.sizes) | _check_states(plan)


def _check_states(plan: Plan) -> set[str]:
    """States: an input and an output each, of one type but along the axis that grows. The names of their capacities."""
    sizes, outputs, capacities = set(plan.sizes), {o.name: o.value for o in plan.outputs}, set()
    for s in plan.states:
        if s.input not in plan.inputs or s.output not in outputs:
            raise damaged(f"{s.input!r} and {s.output!r} are no input and output that are a state")
        past, present = plan.values[s.input], plan.values[outputs[s.output]]
        if past.dtype != present.dtype or len(past.shape) != len(present.shape):
            raise damaged(f"state {s.input!r} is {past}, and its output {present}")
        if s.axis is None:
            continue
        if (
            not 0 <= s.axis < len(past.shape)
            or past.shape[s.axis] not in sizes
            or s.capacity in sizes
            or not s.capacity
        ):
            raise damaged(f"state {s.input!r} grows along axis {s.axis}")
        if (present.place, present.of, present.offset) != ("rows", s.input, 0):
            raise damaged(f"the output of state {s.input!r} is not its rows")
        capacities.add(s.capacity)
    if len({s.input for s in plan.states}) != len(plan.states):
        raise damaged("an input is two states")
    growing = plan.growing
    for name, v in plan.values.items():
        if v.place == "rows" and (v.of not in growing or v.offset is None or v.dtype != plan.values[v.of].dtype):
            raise damaged(f"{name!r} is rows of {v.of!r}, which is no state that grows")
        of = plan.values.get(v.of or "")
        if v.place == "alias" and (v.of in growing or (of is not None and of.place == "rows")):
            raise damaged(f"{name!r} shows {v.of!r}, whose rows lie apart")
    return capacities


def _check_parts(name: str, v: Allocation, plan: Plan, seen: set[str]) -> None:
    """Parts are values in the arena that the table names before: so none is a part of itself."""
    if v.place != "arena":
        raise damaged(f"{name!r} cannot have parts")
    for p in v.parts:
        if p not in seen or plan.values[p].place != "arena":
            raise damaged(f"{p!r} is no part of {name!r}")


def _check_call(step: Call, plan: Plan, symbols: set[str], signature: Params) -> None:
    function, wanted = step.function, signature(step.function)
    if len(step.args) != len(wanted):
        raise damaged(f"{function!r} takes {len(wanted)} arguments, the plan gives another number")
    for p, a in zip(wanted, step.args):
        if not isinstance(a, str):
            if p.is_tensor:
                raise damaged(f"{function!r} takes an array as {p}, the plan gives a number")
            _check_expr(f"{p} of {function!r}", a.value, symbols)
            continue
        v = plan.values[a]
        fits = p.is_tensor and p.dtype == v.dtype and len(p.shape) == len(v.shape)
        if not fits or any(isinstance(n, int) and isinstance(m, int) and n != m for n, m in zip(p.shape, v.shape)):
            raise damaged(f"{function!r} does not take {v} {a!r} as {p}")
        rows = v.place == "rows" or a in plan.growing
        own = not rows and p.strides is not None and any(not isinstance(e, str) for e in p.strides)
        if own and not _is_inside(a, p, plan):
            raise damaged(f"{p} of {function!r} has strides of its own")


def _is_inside(name: str, p: Any, plan: Plan) -> bool:
    """Whether a function that only reads a view, whose rows lie apart, stays inside of what it is a view of. All sizes are numbers."""
    v, whole = plan.values[name], plan.values[plan.root(name)]
    shape, strides, around, offset = ([*map(_number, x)] for x in (v.shape, p.strides, whole.shape, (v.offset or 0,)))
    if v.place != "alias" or p.writes or min((*shape, *strides, *around, *offset)) < 0:
        return False
    last = sum((n - 1) * s for n, s in zip(shape, strides)) if math.prod(shape) else -1
    return bool(offset[0] + (last + 1) * itemsize(v.dtype) <= math.prod(around) * itemsize(whole.dtype))


def _number(size: Any) -> int:
    """A size that is a number; -1 where it is open."""
    return size if isinstance(size, int) else -1


def _named(step: Call | Copy | Exchange) -> str:
    if isinstance(step, Call):
        return repr(step.function)
    return "a copy" if isinstance(step, Copy) else step.kind


def _check_copy(step: Copy, plan: Plan) -> None:
    source, target = plan.values[step.source], plan.values[step.target]
    if (source.dtype, source.shape) != (target.dtype, target.shape):
        raise damaged(f"a step copies {source} {step.source!r} to {target} {step.target!r}")


def _check_exchange(step: Exchange, plan: Plan) -> None:
    """Elements fit, where they are numbers; what sizes decide is what the compiler made of one dimension."""
    source, target = plan.values[step.source], plan.values[step.target]
    more, fewer = step.ratio
    fits = source.dtype == target.dtype
    if all(isinstance(d, int) for d in (*source.shape, *target.shape)):
        fits = fits and source.nbytes({}) * more == target.nbytes({}) * fewer
    if not fits or "rows" in (source.place, target.place):
        raise damaged(f"{step.kind} of {step.size} ranks makes no {target} {step.target!r} of {source} {step.source!r}")


def _check_expr(what: str, e: Any, symbols: set[str]) -> None:
    """A size: whole numbers, and names that inputs give."""
    exprs.check_integral(e)
    for name in exprs.names(e):
        if name not in symbols:
            raise damaged(f"{what} depends on {name!r}, which no input gives")


def check_order(plan: Plan, signature: Params) -> None:
    """For a plan whose arena is laid out when sizes are bound, so that values that live together lie apart: each value is made before it is
    read, and nothing writes to an input, a parameter or to one of its own arguments. PackageError otherwise."""
    made = _order(plan, plan.steps, {n for n, v in plan.values.items() if v.place in ("input", "param")}, signature)
    for o in plan.outputs:
        if not all(p in made for p in plan.made_of(o.value)):
            raise damaged(f"no step makes output {o.name!r}")


def _order(plan: Plan, steps: Sequence[Step], before: set[str], signature: Params) -> set[str]:
    """The values that are made once the steps have run; those of `before` are at the start."""
    made, kept = set(before), plan.kept_values
    for step in steps:
        if isinstance(step, Choose):
            check_made(plan, step, made)
            then, orelse = (_order(plan, part, made, signature) for part in step.parts)
            made = then & orelse
            continue
        if isinstance(step, Repeat):
            check_made(plan, step, made)
            made |= {plan.root(n) for n, _ in step.items}  # all rows, once it is done
            after = _order(plan, step.steps, made, signature)
            check_made_after(plan, step, after)
            continue
        what = _named(step)
        reads, writes = step.effects(signature)
        sources, targets = [plan.root(a) for a in reads], [plan.root(a) for a in writes]
        for r in sources:
            if not all(p in made for p in plan.made_of(r)):
                raise damaged(f"{what} reads {r!r}, which is not made yet")
        for k, (w, a) in enumerate(zip(targets, writes)):
            v = plan.values[w]
            if plan.values[a].place == "rows":
                if w in sources:
                    raise damaged(f"{what} writes {a!r} over another of its arguments")
                continue
            if a in kept and v.place == "input":  # rows of a state, in its place
                if w in sources:
                    raise damaged(f"{what} writes {a!r} over another of its arguments")
                continue
            if v.place in ("input", "param") or v.parts or (plan.values[a].offset is not None and a != w):
                raise damaged(f"{what} writes to {a!r}, which is an {v.place} or a piece of one")
            others = [*sources, *targets[:k]]
            if w in others or any(w in plan.made_of(o) for o in others):
                raise damaged(f"{what} writes {w!r} over another of its arguments")
        made.update(targets)
    return made


# ---- memory


@dataclass(slots=True)
class _Arena:
    """What the arena holds: the intervals of values that are made and not yet overwritten; they never overlap."""

    starts: list[int] = field(default_factory=list)
    held: list[tuple[int, int, str]] = field(default_factory=list)
    made: set[str] = field(default_factory=set)

    def copy(self) -> _Arena:
        return _Arena(list(self.starts), list(self.held), set(self.made))

    def both(self, other: _Arena) -> _Arena:
        """What this one and another hold alike."""
        made = self.made & other.made
        held = [h for h in self.held if h[2] in made]
        return _Arena([h[0] for h in held], held, made)

    def write(self, name: str, start: int, end: int) -> None:
        """`name` is made at [start, end); what was there is gone."""
        first = bisect_left(self.starts, start)
        if first and self.held[first - 1][1] > start:
            first -= 1
        last = first
        while last < len(self.held) and self.held[last][0] < end:
            self.made.discard(self.held[last][2])
            last += 1
        if end > start:
            self.starts[first:last] = [start]
            self.held[first:last] = [(start, end, name)]
        self.made.add(name)


def check_memory(plan: Plan, params: Mapping[str, Any], signature: Params, env: Env | None = None) -> None:
    """Sizes, places in the arena, and the order of steps: each value is read after it is made and before something else
    takes its place. PackageError otherwise. `env` binds symbolic sizes."""
    try:
        _Memory(plan, params, env or {}).run(signature)
    except ZeroDivisionError:
        raise damaged("a size divides by 0") from None


class _Memory:
    def __init__(self, plan: Plan, params: Mapping[str, Any], env: Env):
        self.plan = plan
        self.env = env
        self.values = values = plan.values
        self.nbytes: dict[str, int] = {}
        self.span: dict[str, tuple[int, int]] = {}  # of values in the arena
        self.root = {name: plan.root(name) for name in values}
        arena = self._size(plan.arena_bytes)
        needed = 0
        for name, v in values.items():
            n = itemsize(v.dtype)
            shape = tuple(map(self._size, v.shape))
            for d in shape:
                n *= d
            if n > LARGEST:
                raise damaged(f"{name!r} has {n} bytes")
            self.nbytes[name] = n
            if v.place == "param":
                _check_param(name, v, shape, params[name])
            elif v.place == "arena":
                start = self._size(v.offset)
                self.span[name] = start, start + n
                needed = max(needed, start + n)
                if start + n > arena or start % ALIGN:
                    raise damaged(f"{name!r}, {n} bytes at {start}, does not fit the arena of {arena} bytes")
        self._check_aliases()
        self._check_items()
        if arena > 2 * needed + (1 << 20):
            raise damaged(f"the arena has {arena} bytes, and {needed} are used")

    def _check_aliases(self) -> None:
        for name, root in self.root.items():
            v = self.values[name]
            begin, has, there = self._begin(name), self.nbytes[name], self.nbytes[root]
            # Without an offset of its own it is all of what it stands for, which may itself be a part of something.
            whole = v.of is None or v.offset is not None or has == self.nbytes[v.of]
            if v.place == "item":
                continue  # see `check_holders`, and `_check_items` for its rows
            if begin + has > there or begin % ALIGN or not whole:
                raise damaged(
                    f"{name!r} has {has} bytes from {begin} on of {root!r}, whose memory it is, with {there} bytes"
                )
            if v.parts:
                ends = [self.span[name][0], *(self.span[p][1] for p in v.parts)]
                if [self.span[p][0] for p in v.parts] != ends[:-1] or ends[-1] != self.span[name][1]:
                    raise damaged(f"the parts of {name!r} are not one behind the other")

    def _check_items(self) -> None:
        """The rows that loops go over are there."""
        for name, trips in self.plan.trips.items():
            item, whole = self.values[name], self.values[self.values[name].of or ""]
            rows, *row = map(self._size, whole.shape)
            if list(map(self._size, item.shape)) != row or self._size(trips) > rows:
                raise damaged(f"{name!r} is no row of {item.of!r} in each of {exprs.text(trips)} trips")

    def _size(self, e: Any) -> int:
        n = exprs.evaluate(exprs.compile_expr(e), self.env)
        if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < LARGEST:
            raise damaged(f"{exprs.text(e)} gives a size of {repr(n)[:60]}")
        return n

    def _begin(self, name: str) -> int:
        """The byte of its root's memory at which a value begins."""
        at = 0
        while (of := self.values[name].of) is not None:
            at += self._size(self.values[name].offset or 0)
            name = of
        return at

    def _is_made(self, arena: _Arena, name: str) -> bool:
        return all(p in arena.made for p in self.plan.made_of(name))

    def run(self, signature: Params) -> None:
        arena = _Arena()
        arena.made.update(n for n, v in self.values.items() if v.place in ("input", "param"))
        arena = self._walk(self.plan.steps, arena, signature)
        for o in self.plan.outputs:
            if not self._is_made(arena, o.value):
                raise damaged(f"no step makes output {o.name!r}, or another overwrites it")

    def _walk(self, steps: Sequence[Step], arena: _Arena, signature: Params) -> _Arena:
        """What the arena holds once the steps have run."""
        for step in steps:
            if isinstance(step, Choose):
                check_made(self.plan, step, arena.made)
                then, orelse = (self._walk(part, arena.copy(), signature) for part in step.parts)
                arena = then.both(orelse)
                continue
            if isinstance(step, Repeat):
                arena = self._repeat(step, arena, signature)
                continue
            what = _named(step)
            reads, writes = step.effects(signature)
            sources, made = [self.root[a] for a in reads], [self.root[a] for a in writes]
            for r in sources:
                if not self._is_made(arena, r):
                    raise damaged(f"{what} reads {r!r}, which is not made yet or overwritten")
            for k, (w, a) in enumerate(zip(made, writes)):
                v = self.values[w]
                part = self.nbytes[a] != self.nbytes[w] and self.values[a].place != "item"
                if v.place in ("input", "param") or v.parts or part:
                    raise damaged(f"{what} writes to {a!r}, which is an {v.place} or a piece of one")
                if any(self._overlap(w, other) for other in [*sources, *made[:k]]):
                    raise damaged(f"{what} writes {w!r} over another of its arguments")
            for w in made:
                arena.write(w, *self.span.get(w, (0, 0)))
        return arena

    def _repeat(self, step: Repeat, arena: _Arena, signature: Params) -> _Arena:
        """A loop that makes no trip, one or several: its steps must find what they need each time."""
        check_made(self.plan, step, arena.made)
        for name in (self.root[n] for n, _ in step.items):
            if name not in arena.made:
                arena.write(name, *self.span.get(name, (0, 0)))
        end = arena.copy()
        for _ in range(2):
            end = self._walk(step.steps, end, signature)
            check_made_after(self.plan, step, end.made)
        return arena.both(end)

    def _overlap(self, a: str, b: str) -> bool:
        if a == b:
            return self.nbytes[a] > 0
        if a not in self.span or b not in self.span:
            return False
        (a0, a1), (b0, b1) = self.span[a], self.span[b]
        return a0 < b1 and b0 < a1 and a1 > a0 and b1 > b0


def _check_param(name: str, v: Allocation, shape: tuple[int, ...], array: Any) -> None:
    given = getattr(array, "dtype", None)
    there = tuple(getattr(array, "shape", ()))
    dtype = dtype_name(given) if given is not None else None
    # Where ml_dtypes is missing, small floats are held as unsigned integers of the same width.
    same = dtype == v.dtype or (dtype in ("uint8", "uint16") and itemsize(dtype) == itemsize(v.dtype))
    if there != shape or not same:
        raise damaged(f"parameter {name!r} is {dtype}{there}, the plan says {v.dtype}{shape}")
