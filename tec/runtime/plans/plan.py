"""A network's plan: its values and where they lie, and its steps in order, as records.

    Plan      inputs and outputs by name, values {name: Allocation}, steps, the bytes of the arena, guards
    Step      a call of a compiled function, a copy, a loop or a branch with steps of its own: see `steps`
    Size      an int, the name of a size that the inputs' shapes give, or [op, a, b]; see `exprs`

`to_json` gives plain data and `from_json` takes it back: what is missing, of another type or out of range there is a
PackageError. Whether the records fit together, `check_plan` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from ...errors import ArgumentError
from ...records import dataclass
from ..arrays.dtypes import itemsize
from ..modules import exprs
from ..modules.package import damaged
from .steps import (
    LARGEST,
    Call,
    Carried,
    Choose,
    Copy,
    Env,
    Exchange,
    Params,
    Plain,
    Repeat,
    Scalar,
    Size,
    Step,
    brief,
    flat,
    holders,
    items_of,
    number,
    size_of,
    steps_of,
    table,
    texts,
)

__all__ = [
    "LARGEST", "PLACES", "Allocation", "Call", "Carried", "Choose", "Copy", "Env", "Exchange", "Guard", "Output", "Params", "Plain", "Plan", "Repeat",
    "Scalar", "Size", "State", "Step", "number",
]  # fmt: skip

PLACES = ("input", "output", "param", "arena", "alias", "rows", "item")
_SHOWS = ("alias", "rows", "item")  # places in another value
_MAX_RANK = 64


@dataclass(frozen=True, slots=True)
class Allocation:
    """A value and its memory.

    place: "input" and "output", an array of its own; "param", a weight; "arena", from byte `offset` on of the network's working
    memory, None where offsets are found once sizes are bound; "alias", from byte `offset` on of value `of`, None where it is
    all of it; "rows", from row `offset` on of `of`, an input that is a state, along the axis on which that grows; "item",
    in a loop's first trip row `offset` of `of`, and a row on or back at each trip. parts: values in the arena, named before, that lie one behind the other and together are this one.
    """

    dtype: str
    shape: tuple[Size, ...]
    place: str
    offset: Size | None = None
    of: str | None = None
    parts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}{exprs.shape_text(self.shape)}"

    def bind(self, env: Env) -> Allocation:
        """With its sizes as numbers."""
        offset = None if self.offset is None else number(self.offset, env)
        return replace(self, shape=tuple(number(e, env) for e in self.shape), offset=offset)

    def nbytes(self, env: Env) -> int:
        n = itemsize(self.dtype)
        for e in self.shape:
            n *= number(e, env)
        return n

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape), "place": self.place}
        if self.offset is not None:
            out["offset"] = self.offset
        if self.of is not None:
            out["of"] = self.of
        if self.parts:
            out["parts"] = list(self.parts)
        return out

    @classmethod
    def from_own(cls, v: dict[str, Any]) -> Allocation:
        """See `Plan.from_own`."""
        parts = tuple(v["parts"]) if "parts" in v else ()
        return cls(v["dtype"], tuple(v["shape"]), v["place"], v.get("offset"), v.get("of"), parts)

    @classmethod
    def from_json(cls, name: str, data: Any) -> Allocation:
        v = table(data, f"value {name!r}")
        place = v.get("place")
        if place not in PLACES:
            raise damaged(f"{name!r} lies in {brief(place)}")
        try:
            itemsize(v.get("dtype"))  # type: ignore[arg-type]
        except (ArgumentError, TypeError) as error:
            raise damaged(f"{name!r}: {error}") from None
        shape = v.get("shape")
        if not isinstance(shape, (list, tuple)) or len(shape) > _MAX_RANK:
            raise damaged(f"the shape of {name!r} is {brief(shape)}")
        sizes = tuple(size_of(e, f"the shape of {name!r}") for e in shape)
        offset = size_of(v["offset"], f"the offset of {name!r}") if "offset" in v else None
        of = v.get("of") if place in _SHOWS else None
        if place in _SHOWS and not isinstance(of, str):
            raise damaged(f"{name!r} is another name of {brief(of)}, which is no value")
        parts = texts(v.get("parts", ()), f"the parts of {name!r}")
        return cls(v["dtype"], sizes, place, offset, of, parts)


@dataclass(frozen=True, slots=True)
class Output:
    """A network's output: its name, the value that it is, and, for one that is hidden, what to say where it is not all true."""

    name: str
    value: str
    check: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, **({} if self.check is None else {"check": self.check})}

    @classmethod
    def from_json(cls, data: Any) -> Output:
        o = table(data, "an output")
        name, value, check = o.get("name"), o.get("value"), o.get("check")
        if not isinstance(name, str) or not isinstance(value, str):
            raise damaged(f"an output has the name {brief(name)} and is value {brief(value)}")
        if check is not None and not isinstance(check, str):
            raise damaged(f"the check {name!r} has no text")
        return cls(name, value, check)


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on sizes under which the network was compiled: `size` >= 0; `what` says it in words."""

    size: Size
    what: str

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size, "what": self.what}

    @classmethod
    def from_json(cls, data: Any) -> Guard:
        g = table(data, "a condition on sizes")
        if not isinstance(g.get("what"), str):
            raise damaged("a condition on sizes has no text")
        size = g.get("size")
        exprs.compile_expr(size)
        return cls(size, g["what"])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class State:
    """Input `input` is what `output` was in the run before. With an `axis` it grows along it in place: its memory has room for as many rows as
    the size `capacity`, and the output is those that are filled. With a `window` a new row reads no rows further back than that, itself counted: those
    that no new row reads any more may be let go."""

    input: str
    output: str
    axis: int | None = None
    capacity: str = ""
    window: int = 0

    def to_json(self) -> dict[str, Any]:
        grows = {} if self.axis is None else {"axis": self.axis, "capacity": self.capacity}
        reach = {"window": self.window} if self.window else {}
        return {"input": self.input, "output": self.output, **grows, **reach}

    @classmethod
    def from_json(cls, data: Any) -> State:
        s = table(data, "a state")
        source, target, axis, capacity = s.get("input"), s.get("output"), s.get("axis"), s.get("capacity", "")
        if not all(isinstance(x, str) for x in (source, target, capacity)) or not (axis is None or type(axis) is int):
            raise damaged(f"a state is {brief(data)}")
        window = s.get("window", 0)
        if type(window) is not int or not 0 <= window <= LARGEST or (window and axis is None):
            raise damaged(f"the window of a state is {brief(window)}")
        return cls(source, target, axis, capacity, window)  # type: ignore[arg-type]


# ---- the whole


@dataclass(frozen=True, slots=True)
class Plan:
    """What a network does at each run. `arena_bytes` is None where offsets in the arena are found for each set of sizes. `empty` are the
    names of sizes that may be 0; others are at least 1."""

    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    values: dict[str, Allocation]
    steps: tuple[Step, ...]
    arena_bytes: Size | None
    guards: tuple[Guard, ...] = field(default=())
    empty: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    growing: dict[str, State] = field(init=False, repr=False, compare=False)  # the states that grow in place, by input
    held: dict[str, State] = field(init=False, repr=False, compare=False)  # those of which steps write some rows
    in_place: frozenset[str] = field(init=False, repr=False, compare=False)  # both: nothing copies them in or out
    kept_values: frozenset[str] = field(init=False, repr=False, compare=False)  # what outputs show of them

    def __post_init__(self) -> None:
        object.__setattr__(self, "growing", {s.input: s for s in self.states if s.axis is not None})
        outputs = {o.name: o.value for o in self.outputs}
        held = {s.input: s for s in self.states if s.axis is None and self._is_within(outputs.get(s.output), s.input)}
        object.__setattr__(self, "held", held)
        object.__setattr__(self, "in_place", frozenset({*self.growing, *held}))
        kept = {s.output for s in (*self.growing.values(), *held.values())}
        object.__setattr__(self, "kept_values", frozenset(o.value for o in self.outputs if o.name in kept))

    def _is_within(self, value: str | None, memory: str) -> bool:
        """Whether a value is all of another one's memory."""
        v = self.values.get(value or "")
        return v is not None and (v.place, v.of, v.offset) == ("alias", memory, None)

    @property
    def is_open(self) -> bool:
        """Whether the arena's offsets are left to be found when sizes are bound (see `memory.place`)."""
        return self.arena_bytes is None

    @property
    def is_fixed(self) -> bool:
        """Whether all sizes are numbers."""
        return isinstance(self.arena_bytes, int) and all(
            isinstance(e, int) for v in self.values.values() for e in (*v.shape, v.offset or 0)
        )

    @property
    def sizes(self) -> list[str]:
        """The names of the sizes that the inputs' shapes give, in order."""
        return list(dict.fromkeys(d for n in self.inputs for d in self.values[n].shape if isinstance(d, str)))

    def room(self, name: str) -> tuple[Size, ...]:
        """The shape of a value's memory: that of a state that grows has its capacity."""
        shape, state = self.values[name].shape, self.growing.get(name)
        if state is None:
            return shape
        assert state.axis is not None
        return (*shape[: state.axis], state.capacity, *shape[state.axis + 1 :])

    @property
    def flat(self) -> tuple[Plain, ...]:
        """All calls and copies, those of loops and branches too, each once, in the order in which they stand."""
        return tuple(flat(self.steps))

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Its collectives, in the order in which every rank of the network makes them."""
        return tuple(s for s in self.flat if isinstance(s, Exchange))

    @property
    def holders(self) -> list[tuple[Repeat | Choose, tuple[Repeat, ...]]]:
        """All loops and branches, the outer ones first, each with the loops that it is in."""
        return list(holders(self.steps))

    @property
    def trips(self) -> dict[str, Size]:
        """The trips of the loop that goes over each value of place "item"."""
        loops = (s for s, _ in holders(self.steps) if isinstance(s, Repeat))
        return {name: loop.trips for loop in loops for name, _ in loop.items if loop.trips is not None}

    def chain(self, name: str) -> list[str]:
        """A value, the one whose memory it shows, the one whose that shows, and so on."""
        out = [name]
        while (of := self.values[out[-1]].of) is not None and len(out) <= len(self.values):
            out.append(of)
        return out

    def root(self, name: str) -> str:
        """The value whose memory `name` shows. PackageError where aliases go in a circle or to nothing."""
        seen = 0
        while (of := self.values[name].of) is not None:
            seen += 1
            if of not in self.values or seen > len(self.values):
                raise damaged(f"{name!r} is another name of {of!r}, which is no value")
            name = of
        return name

    def made_of(self, name: str) -> Iterator[str]:
        """The values that steps make of which `name` consists."""
        stack = [self.root(name)]
        while stack:
            parts = self.values[stack[-1]].parts
            if parts:
                stack[-1:] = reversed(parts)
            else:
                yield stack.pop()

    def bind(self, env: Env) -> Plan:
        """With all sizes as numbers, and without conditions."""
        return Plan(
            self.inputs,
            self.outputs,
            {n: v.bind(env) for n, v in self.values.items()},
            tuple(s.bind(env) for s in self.steps),
            None if self.arena_bytes is None else number(self.arena_bytes, env),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": list(self.inputs),
            "outputs": [o.to_json() for o in self.outputs],
            "values": {n: v.to_json() for n, v in self.values.items()},
            "steps": [s.to_json() for s in self.steps],
            "arena_bytes": self.arena_bytes,
            "guards": [g.to_json() for g in self.guards],
            "empty": list(self.empty),
            "states": [s.to_json() for s in self.states],
        }

    @classmethod
    def from_own(cls, data: dict[str, Any]) -> Plan:
        """The plan of data that the same user's cache holds, values and calls unchecked: a large one takes a fifth of the time."""
        plain = {**data, "values": {}, "steps": []}
        values = {n: Allocation.from_own(v) for n, v in data["values"].items()}
        steps = tuple(Call.from_own(s) if s["op"] == "call" else steps_of((s,))[0] for s in data["steps"])
        return replace(cls.from_json(plain), values=values, steps=steps)

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """The plan of plain data. PackageError for what is no plan."""
        if not isinstance(data, dict):
            raise damaged("it has no plan")
        arena = data.get("arena_bytes")
        return cls(
            texts(data.get("inputs"), "the plan's inputs"),
            tuple(map(Output.from_json, items_of(data.get("outputs"), "the plan's outputs"))),
            {n: Allocation.from_json(n, v) for n, v in table(data.get("values"), "the table of values").items()},
            steps_of(data.get("steps")),
            None if arena is None else size_of(arena, "the arena's size"),
            tuple(map(Guard.from_json, items_of(data.get("guards"), "the conditions on sizes"))),
            texts(data.get("empty", ()), "the sizes that may be 0"),
            tuple(map(State.from_json, items_of(data.get("states", ()), "states"))),
        )
