"""The steps of a plan: a compiled function's call, a copy, and what holds steps of its own: a loop and a branch.

    Call      a compiled function on values and numbers
    Copy      a value's bytes to another
    Exchange  a collective with the other ranks of a mesh axis (`tec.collectives`)
    Repeat    steps again and again: a number of times that sizes give or that is read when the loop begins, as long as a condition holds
    Choose    one of two lists of steps, by a condition that is read when it comes to it

A loop's state is two values: its steps read the one and write the other, and after each trip the two change places in memory, so nothing is copied.
When the loop is done the state is where the first one lies. A value of place "item" is one row of another value, a row further at each trip: what a
loop goes over, or what it makes of each trip, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...records import dataclass
from ..modules import exprs
from ..modules.arguments import Param
from ..modules.package import damaged

Size = int | str | list[Any] | tuple[Any, ...]
Env = Mapping[str, int]  # the numbers of symbolic sizes
Params = Callable[[str], Sequence[Param]]  # the parameters of a function; raises PackageError for an unknown one

LARGEST = 1 << 62  # bytes; addresses end before
_MAX_DEPTH = 32  # of loops and branches in one another


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number among a function's arguments."""

    value: Size


@dataclass(frozen=True, slots=True)
class Call:
    """A compiled function, called with values (by name) and numbers."""

    function: str
    args: tuple[str | Scalar, ...]

    @property
    def label(self) -> str:
        """What tables of steps call it."""
        return self.function

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it takes, in order."""
        return tuple(a for a in self.args if isinstance(a, str))

    def effects(self, signature: Params) -> tuple[list[str], list[str]]:
        """The values that it reads, and those that it writes."""
        tensors = [(a, p.writes) for p, a in zip(signature(self.function), self.args) if isinstance(a, str)]
        return [a for a, writes in tensors if not writes], [a for a, writes in tensors if writes]

    def bind(self, env: Env) -> Call:
        return Call(self.function, tuple(a if isinstance(a, str) else Scalar(number(a.value, env)) for a in self.args))

    def to_json(self) -> dict[str, Any]:
        args = [a if isinstance(a, str) else {"scalar": a.value} for a in self.args]
        return {"op": "call", "function": self.function, "args": args}

    @classmethod
    def from_own(cls, data: Mapping[str, Any]) -> Call:
        """See `Plan.from_own`."""
        return cls(data["function"], tuple(a if isinstance(a, str) else Scalar(a["scalar"]) for a in data["args"]))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Call:
        function, args = data.get("function"), data.get("args")
        if not isinstance(function, str):
            raise damaged("a step has no function")
        if not isinstance(args, (list, tuple)):
            raise damaged(f"the arguments of {function!r} are {brief(args)}")
        return cls(function, tuple(a if isinstance(a, str) else cls._scalar(function, a) for a in args))

    @staticmethod
    def _scalar(function: str, data: Any) -> Scalar:
        e = table(data, f"an argument of {function!r}").get("scalar")
        exprs.compile_expr(e)
        return Scalar(e)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Copy:
    """The bytes of one value, written to another of the same type."""

    source: str
    target: str

    @property
    def label(self) -> str:
        """What tables of steps call it."""
        return "copy"

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it takes, in order."""
        return self.source, self.target

    def effects(self, signature: Params) -> tuple[list[str], list[str]]:
        """The values that it reads, and those that it writes."""
        return [self.source], [self.target]

    def bind(self, env: Env) -> Copy:
        return self

    def to_json(self) -> dict[str, Any]:
        return {"op": "copy", "source": self.source, "target": self.target}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Copy:
        source, target = data.get("source"), data.get("target")
        if not isinstance(source, str) or not isinstance(target, str):
            raise damaged(f"a step copies {brief(source)} to {brief(target)}")
        return cls(source, target)


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective of the `size` ranks of a mesh axis: `kind` (one of `COLLECTIVES`) of one value, written to another. reduction: of those that reduce."""

    kind: str
    axis: str
    size: int
    source: str
    target: str
    reduction: str = ""

    @property
    def label(self) -> str:
        """What tables of steps call it."""
        return self.kind

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it takes, in order."""
        return self.source, self.target

    @property
    def ratio(self) -> tuple[int, int]:
        """The elements of the target by those of the source, as a fraction."""
        return {"all_gather": (self.size, 1), "reduce_scatter": (1, self.size)}.get(self.kind, (1, 1))

    def effects(self, signature: Params) -> tuple[list[str], list[str]]:
        """The values that it reads, and those that it writes."""
        return [self.source], [self.target]

    def bind(self, env: Env) -> Exchange:
        return self

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"op": "exchange", "kind": self.kind, "axis": self.axis, "size": self.size}
        out |= {"reduction": self.reduction} if self.reduction else {}
        return {**out, "source": self.source, "target": self.target}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Exchange:
        kind, axis, size = data.get("kind"), data.get("axis"), data.get("size")
        source, target, reduction = data.get("source"), data.get("target"), data.get("reduction", "")
        if kind not in COLLECTIVES or not isinstance(axis, str) or not isinstance(reduction, str):
            raise damaged(f"a step exchanges by {brief(kind)} along {brief(axis)}")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 1 << 16:
            raise damaged(f"a step exchanges among {brief(size)} ranks")
        if not isinstance(source, str) or not isinstance(target, str):
            raise damaged(f"a step exchanges {brief(source)} to {brief(target)}")
        return cls(kind, axis, size, source, target, reduction)


@dataclass(frozen=True, slots=True)
class Carried:
    """A loop's state: value `now`, which holds it before the first trip and after the last, and `after`, which the steps write."""

    now: str
    after: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps that run again and again; see the module.

    trips: the most times, None without a bound; count: a value (int64, one element) that bounds them too, read when the loop begins; start: a value
    (bool) without which there is no trip at all; going: one that the steps write, which ends the loop where it is false. items: values of place
    "item", each with the rows that it moves at a trip, 1 or -1.
    """

    steps: tuple[Step, ...]
    trips: Size | None = None
    count: str | None = None
    start: str | None = None
    going: str | None = None
    carried: tuple[Carried, ...] = ()
    items: tuple[tuple[str, int], ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """Values that are read before the first trip."""
        return tuple(n for n in (self.count, self.start) if n is not None)

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it takes by itself, its steps' not counted."""
        going = () if self.going is None else (self.going,)
        return (*self.asked, *going, *(n for c in self.carried for n in (c.now, c.after)), *(n for n, _ in self.items))

    @property
    def parts(self) -> tuple[tuple[Step, ...], ...]:
        """Its lists of steps."""
        return (self.steps,)

    @property
    def is_fixed(self) -> bool:
        """Whether sizes alone say how often it runs."""
        return self.count is None and self.start is None and self.going is None

    def bind(self, env: Env) -> Repeat:
        trips = None if self.trips is None else number(self.trips, env)
        return Repeat(
            tuple(s.bind(env) for s in self.steps), trips, self.count, self.start, self.going, self.carried, self.items
        )

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"op": "repeat", "steps": [s.to_json() for s in self.steps]}
        out |= {k: v for k in ("trips", "count", "start", "going") if (v := getattr(self, k)) is not None}
        return {**out, "carried": [[c.now, c.after] for c in self.carried], "items": [list(i) for i in self.items]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], depth: int = 0) -> Repeat:
        names = tuple(data.get(k) for k in ("count", "start", "going"))
        if not all(n is None or isinstance(n, str) for n in names):
            raise damaged(f"a loop asks {brief(names)}")
        pairs = [texts(c, "a loop's state") for c in items_of(data.get("carried", ()), "a loop's states")]
        if any(len(c) != 2 for c in pairs):
            raise damaged("a loop's state is not two values")
        moved = items_of(data.get("items", ()), "a loop's items")
        if not all(
            isinstance(m, (list, tuple)) and len(m) == 2 and isinstance(m[0], str) and m[1] in (1, -1) for m in moved
        ):
            raise damaged(f"a loop's items are {brief(moved)}")
        trips = data.get("trips")
        return cls(
            steps_of(data.get("steps"), depth + 1),
            None if trips is None else size_of(trips, "a loop's trips"),
            names[0],
            names[1],
            names[2],
            tuple(Carried(c[0], c[1]) for c in pairs),
            tuple((m[0], int(m[1])) for m in moved),
        )


@dataclass(frozen=True, slots=True)
class Choose:
    """`then` where the value `condition` (bool, one element) is true, `orelse` where it is not."""

    condition: str
    then: tuple[Step, ...]
    orelse: tuple[Step, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it takes by itself, its steps' not counted."""
        return (self.condition,)

    @property
    def parts(self) -> tuple[tuple[Step, ...], ...]:
        """Its lists of steps."""
        return self.then, self.orelse

    def bind(self, env: Env) -> Choose:
        return Choose(self.condition, tuple(s.bind(env) for s in self.then), tuple(s.bind(env) for s in self.orelse))

    def to_json(self) -> dict[str, Any]:
        then, orelse = ([s.to_json() for s in part] for part in self.parts)
        return {"op": "choose", "condition": self.condition, "then": then, "else": orelse}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], depth: int = 0) -> Choose:
        condition = data.get("condition")
        if not isinstance(condition, str):
            raise damaged(f"a branch asks {brief(condition)}")
        return cls(condition, steps_of(data.get("then"), depth + 1), steps_of(data.get("else"), depth + 1))


Plain = Call | Copy | Exchange
Step = Call | Copy | Exchange | Repeat | Choose
_PLAIN: dict[str, type[Call] | type[Copy] | type[Exchange]] = {"call": Call, "copy": Copy, "exchange": Exchange}
_HOLDING: dict[str, type[Repeat] | type[Choose]] = {"repeat": Repeat, "choose": Choose}


def flat(steps: Iterable[Step]) -> Iterator[Plain]:
    """All calls, copies and exchanges, those of loops and branches too, each once, in the order in which they stand."""
    for s in steps:
        if isinstance(s, (Repeat, Choose)):
            for part in s.parts:
                yield from flat(part)
        else:
            yield s


def bursts(steps: Sequence[Step]) -> Iterator[range]:
    """The numbers of collectives that stand one behind the other along one mesh axis, two at least, of which none reads what another writes: they may run
    at the same time."""
    first = 0
    while first < len(steps):
        behind, written = first, set[str]()
        while behind < len(steps):
            s, head = steps[behind], steps[first]
            if not isinstance(s, Exchange) or not isinstance(head, Exchange):
                break
            if s.axis != head.axis or not written.isdisjoint((s.source, s.target)):
                break
            written.add(s.target)
            behind += 1
        if behind - first > 1:
            yield range(first, behind)
        first = max(behind, first + 1)


def burst_of(steps: Sequence[Step]) -> dict[int, range]:
    """The burst of each step that is in one, by the numbers of both."""
    return {k: burst for burst in bursts(steps) for k in burst}


def holders(steps: Iterable[Step]) -> Iterator[tuple[Repeat | Choose, tuple[Repeat, ...]]]:
    """All loops and branches, the outer ones first, each with the loops that it is in."""

    def walk(steps: Iterable[Step], inside: tuple[Repeat, ...]) -> Iterator[tuple[Repeat | Choose, tuple[Repeat, ...]]]:
        for s in steps:
            if isinstance(s, (Repeat, Choose)):
                yield s, inside
                for part in s.parts:
                    yield from walk(part, (*inside, s) if isinstance(s, Repeat) else inside)

    return walk(steps, ())


def steps_of(data: Any, depth: int = 0) -> tuple[Step, ...]:
    """Steps from plain data."""
    if depth > _MAX_DEPTH:
        raise damaged(f"loops and branches are in one another more than {_MAX_DEPTH} deep")
    return tuple(_step(s, depth) for s in items_of(data, "the plan's steps"))


def _step(data: Any, depth: int) -> Step:
    s = table(data, "a step")
    op = s.get("op")
    if isinstance(op, str) and op in _HOLDING:
        return _HOLDING[op].from_json(s, depth)
    if not isinstance(op, str) or op not in _PLAIN:
        raise damaged(f"a step is {brief(op)}")
    return _PLAIN[op].from_json(s)


def number(e: Any, env: Env) -> int:
    """A size as a number."""
    return e if type(e) is int else int(exprs.evaluate(exprs.compile_expr(e), env))


# ---- reading plain data


def table(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict) or not all(isinstance(k, str) for k in data):
        raise damaged(f"{what} is {brief(data)}")
    return data


def items_of(data: Any, what: str) -> Sequence[Any]:
    if not isinstance(data, (list, tuple)):
        raise damaged(f"there is no list of {what}: {brief(data)}")
    return data


def texts(data: Any, what: str) -> tuple[str, ...]:
    items = items_of(data, what)
    if not all(isinstance(x, str) for x in items):
        raise damaged(f"{what} are {brief(items)}")
    return tuple(items)


def size_of(e: Any, what: str) -> Size:
    """A size: its expression well formed, a number in range."""
    if isinstance(e, (str, list, tuple)):
        exprs.compile_expr(e)
        return e
    if isinstance(e, bool) or not hasattr(e, "__index__") or not 0 <= e < LARGEST:
        raise damaged(f"{what} is {brief(e)}")
    return int(e)


def brief(x: Any) -> str:
    return repr(x)[:60]
