"""Checks a network's plan: nothing in it may make a step read or write outside of what is there, or read what is not made yet.

In: a plan as plain data (see `network`), the parameters, and the parameters of each function's signature. Out: nothing, or
PackageError. `check_structure` holds for any sizes and is done once; `check_memory` needs sizes: it is done at once where all
are numbers, else for each set of sizes that a network is bound to. Compiled code trusts its arguments, so this is where a
forged or damaged plan is stopped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..errors import ArgumentError, PackageError
from . import exprs
from .arguments import Param
from .dtypes import dtype_name, itemsize
from .package import damaged
from .storage import ALIGN

PLACES = ("input", "output", "param", "arena", "alias")
_LARGEST = 1 << 62  # bytes; addresses end before
_MAX_RANK = 64
Params = Callable[[str], Sequence[Param]]  # the parameters of a function; raises PackageError for an unknown one


# ---- structure


def check_structure(plan: Mapping[str, Any], params: Mapping[str, Any], signature: Params) -> None:
    """Names, kinds, counts, dtypes; no cycles among aliases. PackageError otherwise."""
    try:
        _check_structure(plan, params, signature)
    except PackageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArgumentError, RecursionError) as error:
        raise damaged(f"{type(error).__name__}: {error}") from None


def _check_structure(plan: Mapping[str, Any], params: Mapping[str, Any], signature: Params) -> None:
    values = plan["values"]
    if not isinstance(values, dict):
        raise damaged("the plan has no table of values")
    symbols = {d for io in plan["inputs"] for d in io["shape"] if isinstance(d, str)}
    seen: set[str] = set()
    for name, v in values.items():
        if v["place"] not in PLACES:
            raise damaged(f"{name!r} lies in {v['place']!r}")
        itemsize(v["dtype"])
        _check_shape(f"the shape of {name!r}", v["shape"], symbols)
        if v["place"] == "param" and name not in params:
            raise damaged(f"parameter {name!r} is missing")
        if v["place"] == "alias" or (v["place"] == "arena" and not is_open(plan)):
            _check_size(
                f"the offset of {name!r}", v["offset"] if v["place"] == "arena" else v.get("offset", 0), symbols
            )
        if v.get("parts"):
            _check_parts(name, v, values, seen)
        seen.add(name)
    for name in values:
        root_of(values, name)
    if not is_open(plan):
        _check_size("the arena's size", plan["arena_bytes"], symbols)
    for guard in plan.get("guards", ()):
        if not isinstance(guard["what"], str):
            raise damaged("a condition on sizes has no text")
        _check_expr("a condition on sizes", guard["size"], symbols)
    _check_ends(plan, values, symbols)
    for step in plan["steps"]:
        _check_step(step, values, symbols, signature)


def _check_parts(name: str, v: Mapping[str, Any], values: Mapping[str, Any], seen: set[str]) -> None:
    """Parts are values in the arena that the table names before: so none is a part of itself."""
    if v["place"] != "arena" or not isinstance(v["parts"], (list, tuple)):
        raise damaged(f"{name!r} cannot have parts")
    for p in v["parts"]:
        if not isinstance(p, str) or p not in seen or values[p]["place"] != "arena":
            raise damaged(f"{_brief(p)} is no part of {name!r}")


def _check_ends(plan: Mapping[str, Any], values: Mapping[str, Any], symbols: set[str]) -> None:
    """Inputs and outputs: each a value, of the dtype and rank that the plan says."""
    for kind in ("inputs", "outputs"):
        if not isinstance(plan[kind], (list, tuple)):
            raise damaged(f"the plan has no list of {kind}")
        for io in plan[kind]:
            name = io.get("value", io["name"])
            if not isinstance(name, str) or not isinstance(io["name"], str) or name not in values:
                raise damaged(f"{name!r} is no value of the network")
            v = values[name]
            _check_shape(f"the shape of {io['name']!r}", io["shape"], symbols)
            if not isinstance(io.get("check", ""), str):
                raise damaged(f"the check {io['name']!r} has no text")
            if io["dtype"] != v["dtype"] or list(io["shape"]) != list(v["shape"]):
                raise damaged(f"{io['name']!r} is {_type(io)} among the {kind} and {_type(v)} among the values")
    names = [i["name"] for i in plan["inputs"]]
    if len(set(names)) != len(names):
        raise damaged("two inputs have one name")
    if any(values[n]["place"] != "input" for n in names):
        raise damaged("an input does not lie in an array of its own")
    strangers = [n for n, v in values.items() if v["place"] == "input" and n not in set(names)]
    if strangers:
        raise damaged(f"{strangers[0]!r} is an input that the network does not name")


def _check_step(step: Any, values: Mapping[str, Any], symbols: set[str], signature: Params) -> None:
    function, args = step["function"], step["args"]
    if not isinstance(function, str):
        raise damaged("a step has no function")
    wanted = signature(function)
    if not isinstance(args, (list, tuple)) or len(args) != len(wanted):
        raise damaged(f"{function!r} takes {len(wanted)} arguments, the plan gives another number")
    for p, a in zip(wanted, args):
        if isinstance(a, str):
            if a not in values:
                raise damaged(f"{a!r} is no value of the network")
            v = values[a]
            if not p.is_tensor or p.dtype != v["dtype"] or len(p.shape) != len(v["shape"]):
                raise damaged(f"{function!r} does not take {_type(v)} {a!r} as {p}")
            for want, is_ in zip(p.shape, v["shape"]):
                if _number(want) and _number(is_) and want != is_:
                    raise damaged(f"{function!r} does not take {_type(v)} {a!r} as {p}")
            if p.strides is not None and any(not isinstance(e, str) for e in p.strides):
                raise damaged(f"{p} of {function!r} has strides of its own")
        elif p.is_tensor:
            raise damaged(f"{function!r} takes an array as {p}, the plan gives a number")
        else:
            _check_expr(f"{p} of {function!r}", a["scalar"], symbols)


def root_of(values: Mapping[str, Any], name: str) -> str:
    """The value whose memory `name` shows. PackageError where aliases go in a circle or to nothing."""
    seen = 0
    while values[name]["place"] == "alias":
        target, seen = values[name]["of"], seen + 1
        if not isinstance(target, str) or target not in values or seen > len(values):
            raise damaged(f"{name!r} is another name of {target!r}, which is no value")
        name = target
    return name


def _check_shape(what: str, shape: Any, symbols: set[str]) -> None:
    if not isinstance(shape, (list, tuple)) or len(shape) > _MAX_RANK:
        raise damaged(f"{what} is {_brief(shape)}")
    for e in shape:
        _check_size(what, e, symbols)


def _check_size(what: str, e: Any, symbols: set[str]) -> None:
    if _number(e):
        if not 0 <= e < _LARGEST:
            raise damaged(f"{what} is {_brief(e)}")
    elif isinstance(e, (str, list, tuple)):
        _check_expr(what, e, symbols)
    else:
        raise damaged(f"{what} is {_brief(e)}")


def _check_expr(what: str, e: Any, symbols: set[str]) -> None:
    exprs.compile_expr(e)
    for name in exprs.names(e):
        if name not in symbols:
            raise damaged(f"{what} depends on {name!r}, which no input gives")


def _number(e: Any) -> bool:
    return type(e) is int or (hasattr(e, "__index__") and not isinstance(e, bool))


def _type(v: Mapping[str, Any]) -> str:
    return f"{v['dtype']}{exprs.shape_text(v['shape'])}"


def _brief(x: Any) -> str:
    return repr(x)[:60]


# ---- memory


def is_open(plan: Mapping[str, Any]) -> bool:
    """Whether the arena's offsets are left to be found when sizes are bound (see `memory.place`)."""
    return plan["arena_bytes"] is None


def is_fixed(plan: Mapping[str, Any]) -> bool:
    """Whether all sizes are numbers. The structure must have been checked."""
    if is_open(plan):
        return False
    sizes = [plan["arena_bytes"]]
    for v in plan["values"].values():
        sizes += [*v["shape"], v.get("offset", 0) if v["place"] == "arena" else 0]
    return all(map(_number, sizes))


@dataclass(slots=True)
class _Arena:
    """What the arena holds: the intervals of values that are made and not yet overwritten; they never overlap."""

    starts: list[int] = field(default_factory=list)
    held: list[tuple[int, int, str]] = field(default_factory=list)
    made: set[str] = field(default_factory=set)

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


def check_memory(
    plan: Mapping[str, Any], params: Mapping[str, Any], signature: Params, env: Mapping[str, int] | None = None
) -> None:
    """Sizes, places in the arena, and the order of steps: each value is read after it is made and before something else
    takes its place. PackageError otherwise. `env` binds symbolic sizes."""
    try:
        _Memory(plan, params, env or {}).run(signature)
    except ZeroDivisionError:
        raise damaged("a size divides by 0") from None


class _Memory:
    def __init__(self, plan: Mapping[str, Any], params: Mapping[str, Any], env: Mapping[str, int]):
        self.plan = plan
        self.env = env
        self.values = values = plan["values"]
        self.nbytes: dict[str, int] = {}
        self.span: dict[str, tuple[int, int]] = {}  # of values in the arena
        self.root = {name: root_of(values, name) for name in values}
        arena = self._size(plan["arena_bytes"])
        needed = 0
        for name, v in values.items():
            shape = tuple(map(self._size, v["shape"]))
            n = self.nbytes[name] = prod(shape) * itemsize(v["dtype"])
            if n > _LARGEST:
                raise damaged(f"{name!r} has {n} bytes")
            if v["place"] == "param":
                _check_param(name, v, shape, params[name])
            elif v["place"] == "arena":
                start = self._size(v["offset"])
                self.span[name] = start, start + n
                needed = max(needed, start + n)
                if start + n > arena or start % ALIGN:
                    raise damaged(f"{name!r}, {n} bytes at {start}, does not fit the arena of {arena} bytes")
        for name, root in self.root.items():
            begin, has, there = self._begin(name), self.nbytes[name], self.nbytes[root]
            # Without an offset of its own it is all of what it stands for, which may itself be a part of something.
            whole = "offset" in values[name] or has == self.nbytes[values[name].get("of", name)]
            if begin + has > there or begin % ALIGN or not whole:
                raise damaged(
                    f"{name!r} has {has} bytes from {begin} on of {root!r}, whose memory it is, with {there} bytes"
                )
        for name, v in values.items():
            if v.get("parts"):
                ends = [self.span[name][0], *(self.span[p][1] for p in v["parts"])]
                if [self.span[p][0] for p in v["parts"]] != ends[:-1] or ends[-1] != self.span[name][1]:
                    raise damaged(f"the parts of {name!r} are not one behind the other")
        if arena > 2 * needed + (1 << 20):
            raise damaged(f"the arena has {arena} bytes, and {needed} are used")

    def _size(self, e: Any) -> int:
        n = exprs.evaluate(exprs.compile_expr(e), self.env)
        if not _number(n) or not 0 <= n < _LARGEST:
            raise damaged(f"{exprs.text(e)} gives a size of {_brief(n)}")
        return int(n)

    def _begin(self, name: str) -> int:
        """The byte of its root's memory at which a value begins."""
        at = 0
        while self.values[name]["place"] == "alias":
            at += self._size(self.values[name].get("offset", 0))
            name = self.values[name]["of"]
        return at

    def _is_made(self, arena: _Arena, name: str) -> bool:
        parts = self.values[name].get("parts")
        return all(self._is_made(arena, p) for p in parts) if parts else name in arena.made

    def run(self, signature: Params) -> None:
        arena = _Arena()
        place = {name: v["place"] for name, v in self.values.items()}
        arena.made.update(n for n, p in place.items() if p in ("input", "param"))
        for step in self.plan["steps"]:
            function, wanted = step["function"], signature(step["function"])
            tensors = [(p, self.root[a], a) for p, a in zip(wanted, step["args"]) if isinstance(a, str)]
            reads = [r for p, r, _ in tensors if not p.writes]
            made = [(r, a) for p, r, a in tensors if p.writes]
            writes = [r for r, _ in made]
            for r in reads:
                if not self._is_made(arena, r):
                    raise damaged(f"{function!r} reads {r!r}, which is not made yet or overwritten")
            for k, (w, a) in enumerate(made):
                if place[w] in ("input", "param") or self.values[w].get("parts") or self.nbytes[a] != self.nbytes[w]:
                    raise damaged(f"{function!r} writes to {a!r}, which is an {place[w]} or a piece of one")
                if any(self._overlap(w, other) for other in [*reads, *writes[:k]]):
                    raise damaged(f"{function!r} writes {w!r} over another of its arguments")
            for w in writes:
                arena.write(w, *self.span.get(w, (0, 0)))
        for io in self.plan["outputs"]:
            name = io.get("value", io["name"])
            if not self._is_made(arena, self.root[name]):
                raise damaged(f"no step makes output {io['name']!r}, or another overwrites it")

    def _overlap(self, a: str, b: str) -> bool:
        if a == b:
            return self.nbytes[a] > 0
        if a not in self.span or b not in self.span:
            return False
        (a0, a1), (b0, b1) = self.span[a], self.span[b]
        return a0 < b1 and b0 < a1 and a1 > a0 and b1 > b0


def _check_param(name: str, v: Mapping[str, Any], shape: tuple[int, ...], array: Any) -> None:
    given = getattr(array, "dtype", None)
    there = tuple(getattr(array, "shape", ()))
    dtype = dtype_name(given) if given is not None else None
    # Where ml_dtypes is missing, small floats are held as unsigned integers of the same width.
    same = dtype == v["dtype"] or (dtype in ("uint8", "uint16") and itemsize(dtype) == itemsize(v["dtype"]))
    if there != shape or not same:
        raise damaged(f"parameter {name!r} is {dtype}{there}, the plan says {v['dtype']}{shape}")
