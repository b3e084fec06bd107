"""The host side of a GPU function: a list of steps (docs/architecture.md, "Runtime data") made ready for quick launches.

`HostProgram(steps, ...)` checks the data and compiles its expressions once. `specialise(env)` runs the steps for given shape
variables and yields a flat `BoundProgram`: launches with their grid, block and argument packer, and scratch allocations. A plan
is kept for as long as calls come with the same shapes, so a call costs one packing and one driver call a launch.

Addresses and scalars that no expression reads live in numbered slots: tensors first, then scalars, then scratch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from operator import itemgetter
from typing import Any

from ...errors import ArgumentError, DeviceError, PackageError
from ...records import dataclass
from ..arrays.dtypes import itemsize, scalar_packer, struct_code
from ..devices.device import Device
from ..devices.surface import Dim3
from . import exprs
from .callbacks import Argument, parse

_LAUNCH_END = 1 << 32  # extents of grids and work-groups and bytes of shared memory are numbers of 32 bits
PLAN_LIMIT = 4096  # entries of a plan; longer programs are walked anew at each call
LAUNCH, ALLOC, FREE, CALL = 0, 1, 2, 3
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGN = 128, 64  # CUtensorMap
_SMALL_SCRATCH = 1 << 20  # bytes that nobody misses while a few launches are queued
_MAPS_KEPT = 64  # of a launch: as many addresses as a caller may go round in; making one costs a microsecond or two


@dataclass(slots=True)
class LaunchStep:
    """A kernel and what follows from sizes, compiled."""

    kernel: str
    grid: tuple[exprs.Compiled, ...]
    block: tuple[exprs.Compiled, ...]
    shared: exprs.Compiled
    format: str
    sources: list[tuple[int, Any]]  # (slot, None), (slot, TensorMap) or (-1, compiled expression and packer)
    offsets: tuple[int, ...]  # of the arguments, in bytes
    early: bool = False  # see LaunchInfo


@dataclass(slots=True)
class TensorMap:
    """What a bulk copy names a tensor by, made at launch from the tensor's address; innermost dimension first."""

    dtype: str
    sizes: list[exprs.Compiled]
    strides: list[exprs.Compiled]
    box: tuple[int, ...]
    swizzle: bool


@dataclass(slots=True)
class _Alloc:
    slot: int
    name: str
    item_bytes: int
    size: exprs.Compiled


@dataclass(slots=True)
class _Free:
    slot: int


@dataclass(slots=True)
class _Call:
    """A registered Python function, called on arrays of device memory (a vendor library's face, mostly) and numbers."""

    name: str
    arguments: tuple[Argument, ...]
    values: list[tuple[int, exprs.Compiled]]  # (slot of an address, offset in bytes), or (-1, a number)


@dataclass(slots=True)
class _For:
    var: str
    min: exprs.Compiled
    extent: exprs.Compiled
    body: list[Any]


@dataclass(slots=True)
class _If:
    cond: exprs.Compiled
    then: list[Any]
    orelse: list[Any]


@dataclass(slots=True)
class _Assert:
    cond: exprs.Compiled
    message: str
    source: Any


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """One launch of a plan, as a profile shows it."""

    kernel: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    layout: str = ""  # of the arguments' block, as `struct` has it
    offsets: tuple[int, ...] = ()
    early: bool = False  # may begin before the kernel ahead of it ends, for which it waits by itself


# (LAUNCH, function, grid, block, shared bytes, pack, getter, info), (ALLOC, slot, bytes), (FREE, slot), (CALL, name, arguments, values)
Entry = tuple[Any, ...]


@dataclass(slots=True)
class BoundProgram:
    """A program for given shapes on one device. `entries` is None when it is too long to keep."""

    env: dict[str, Any]
    entries: list[Entry] | None
    launches_only: bool
    tail: tuple[Any, ...] = field(default=())
    prepared: list[Any] | None = None  # see `prepared`
    scratch: tuple[int, ...] = ()  # bytes of its scratch by slot, where it has prepared launches
    apart: list[Any] | None = None  # addresses of the last call, which share no memory


class HostProgram:
    """A checked and compiled host program.

    `tensors` and `scalars` name the parameters in slot order with their dtypes; `implicit` the shape variables.
    `key_scalars` are the scalars whose values a plan depends on.
    """

    def __init__(
        self,
        function: str,
        steps: Any,
        tensors: Sequence[str],
        scalars: Sequence[tuple[str, str]],
        implicit: Iterable[str] = (),
    ):
        self.function = function
        self.slots = {name: i for i, name in enumerate([*tensors, *(n for n, _ in scalars)])}
        self._n_params = len(self.slots)
        self._scalar_dtypes = dict(scalars)
        self._known = {*self._scalar_dtypes, *implicit}
        self._scratch: dict[str, int] = {}
        self.kernels: list[str] = []
        self.key_scalars: set[str] = set()
        self._source = steps
        self._steps = self._compile(steps, frozenset(self._known), frozenset(tensors))
        self.n_slots = self._n_params + len(self._scratch)

    def straight(self) -> list[tuple[dict[str, Any], Any]] | None:
        """Its steps as data without branches, each with what was compiled of it; None where it has loops, or branches that divide by a size (which may be 0 in
        the other branch). What stands in a branch is guarded by itself: a launch of the other branch has an empty grid, and is none; scratch memory of it has
        no bytes."""
        return _straight(self._source, self._steps, None)

    # ---- compile

    def _bad(self, what: str) -> PackageError:
        return PackageError(f"the host program of {self.function!r} is damaged: {what}", locate=False)

    def _expr(self, e: Any, known: frozenset[str]) -> exprs.Compiled:
        compiled = exprs.compile_expr(e)
        for name in exprs.names(e):
            if name not in known:
                raise self._bad(f"unknown variable {name!r} in {exprs.text(e)}")
            if name in self._scalar_dtypes:
                self.key_scalars.add(name)
        return compiled

    def _size(self, e: Any, known: frozenset[str], end: int = 1 << 63) -> exprs.Compiled:
        """An expression of a size: whole numbers, below `end` where it is a constant."""
        exprs.check_integral(e)
        compiled = self._expr(e, known)
        if not callable(compiled) and not -end <= compiled < end:
            raise self._bad(f"a size of {repr(compiled)[:60]}")
        return compiled

    def _compile(self, steps: Any, known: frozenset[str], buffers: frozenset[str]) -> list[Any]:
        """A list of steps as they are run. Raises DeviceError (`_bad`) for what is none."""
        if not isinstance(steps, (list, tuple)):
            raise self._bad("no list of steps")
        out: list[Any] = []
        for step in steps:
            try:
                op = step["op"]
                if op == "launch":
                    out.append(self._launch(step, known, buffers))
                elif op == "alloc":
                    name = step["name"]
                    slot = self._scratch.setdefault(name, self._n_params + len(self._scratch))
                    self.slots[name] = slot
                    out.append(_Alloc(slot, name, itemsize(step["dtype"]), self._size(step["size"], known)))
                    buffers |= {name}
                elif op == "free":
                    if step["name"] not in self._scratch:
                        raise self._bad(f"free of {step['name']!r}, which was not allocated")
                    out.append(_Free(self._scratch[step["name"]]))
                    buffers -= {step["name"]}
                elif op == "call":
                    out.append(self._call(step, known, buffers))
                elif op == "for":
                    lo, extent = self._size(step["min"], known), self._size(step["extent"], known)
                    body = self._compile(step["body"], known | {step["var"]}, buffers)
                    out.append(_For(step["var"], lo, extent, body))
                elif op == "if":
                    then = self._compile(step["then"], known, buffers)
                    orelse = self._compile(step.get("else") or [], known, buffers)
                    out.append(_If(self._expr(step["cond"], known), then, orelse))
                elif op == "assert":
                    out.append(_Assert(self._expr(step["cond"], known), str(step["message"]), step["cond"]))
                else:
                    raise self._bad(f"unknown step {op!r}")
            except (KeyError, TypeError, ValueError, AttributeError, ArgumentError) as error:
                raise self._bad(f"{type(error).__name__}: {error}") from None
        return out

    def _launch(self, step: Any, known: frozenset[str], buffers: frozenset[str]) -> LaunchStep:
        """A launch as it is run: the expressions of its grid and its block, and how its arguments are packed. Raises DeviceError (`_bad`) for what cannot be
        one."""
        kernel = step["kernel"]
        grid = [self._size(e, known, _LAUNCH_END) for e in step["grid"]]
        block = [self._size(e, known, _LAUNCH_END) for e in step["block"]]
        if len(grid) != 3 or len(block) != 3 or not isinstance(kernel, str):
            raise self._bad("a launch needs a kernel, three grid and three block extents")
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        layout, offset = "<", 0
        sources: list[tuple[int, Any]] = []
        offsets: list[int] = []
        for arg in step["args"]:
            if "buffer" in arg:
                if arg["buffer"] not in buffers:
                    raise self._bad(f"kernel {kernel!r} takes buffer {arg['buffer']!r}, which is not there")
                code, size = "Q", 8
                sources.append((self.slots[arg["buffer"]], None))
            elif "tensor_map" in arg:
                name, sizes, strides = arg["tensor_map"], arg["sizes"], arg["strides"]
                if name not in buffers:
                    raise self._bad(f"kernel {kernel!r} takes a map of {name!r}, which is not there")
                if not 1 <= len(sizes) <= 5 or len(strides) != len(sizes) - 1 or len(arg["box"]) != len(sizes):
                    raise self._bad(
                        f"the map of {name!r} has {len(sizes)} sizes, {len(strides)} strides, a box of {arg['box']}"
                    )
                facts = [[self._size(e, known) for e in es] for es in (sizes, strides)]
                itemsize(arg["dtype"])
                box = tuple(arg["box"])
                if any(type(n) is not int or not 0 < n < _LAUNCH_END for n in box):
                    raise self._bad(f"the map of {name!r} has a box of {repr(box)[:60]}")
                sources.append(
                    (
                        self.slots[name],
                        TensorMap(arg["dtype"], facts[0], facts[1], box, arg.get("swizzle") is not False),
                    )
                )
                code, size = f"{TENSOR_MAP_BYTES}s", TENSOR_MAP_ALIGN
                pad = -offset % size
                layout += f"{pad}x" * bool(pad) + code
                offsets.append(offset + pad)
                offset += pad + TENSOR_MAP_BYTES
                continue
            else:
                e, dtype = arg["scalar"], arg["dtype"]
                code, size = struct_code(dtype), itemsize(dtype)
                if isinstance(e, str) and self._scalar_dtypes.get(e) == dtype:
                    sources.append((self.slots[e], None))
                else:
                    sources.append((-1, (self._expr(e, known), scalar_packer(dtype))))
            pad = -offset % size
            layout += f"{pad}x" * bool(pad) + code
            offsets.append(offset + pad)
            offset += pad + size
        shared = self._size(step.get("dyn_shared", 0), known, _LAUNCH_END)
        early = step.get("early") is True
        return LaunchStep(kernel, tuple(grid), tuple(block), shared, layout, sources, tuple(offsets), early)

    def _call(self, step: Any, known: frozenset[str], buffers: frozenset[str]) -> _Call:
        found = parse(step["symbol"])
        if found is None:
            raise self._bad(f"{step['symbol']!r} is called")
        values: list[tuple[int, exprs.Compiled]] = []
        for a in step["args"]:
            if "buffer" in a:
                if a["buffer"] not in buffers:
                    raise self._bad(f"function {found[0]!r} takes buffer {a['buffer']!r}, which is not there")
                values.append((self.slots[a["buffer"]], self._size(a["offset"], known)))
            else:
                values.append((-1, self._expr(a["scalar"], known)))
        return _Call(*found, values)

    # ---- run

    def specialise(self, env: dict[str, Any], functions: Callable[[str], Any]) -> BoundProgram:
        """The plan for the environment; `functions` gives the driver's handle of a kernel."""
        entries: list[Entry] = []
        for entry in self.walk(env, functions):
            if len(entries) >= PLAN_LIMIT:
                return BoundProgram(env, None, False)
            entries.append(entry)
        return BoundProgram(env, entries, all(e[0] == LAUNCH for e in entries))

    def walk(self, env: dict[str, Any], functions: Callable[[str], Any]) -> Iterator[Entry]:
        """The entries of the plan, one after the other."""
        try:
            yield from self._walk(self._steps, dict(env), functions)
        except ZeroDivisionError:
            raise ArgumentError(
                f"{self.function}: a size of the host program divides by 0 for {env}",
                hint="a size that the program divides by must not be 0: call it with arrays that are not empty there",
            ) from None

    def _walk(self, steps: list[Any], env: dict[str, Any], functions: Callable[[str], Any]) -> Iterator[Entry]:
        """The entries of a run of some steps with sizes known."""
        evaluate = exprs.evaluate
        for s in steps:
            kind = type(s)
            if kind is LaunchStep:
                entry = self._launch_entry(s, env, functions)
                if entry is not None:
                    yield entry
            elif kind is _Alloc:
                yield ALLOC, s.slot, max(int(evaluate(s.size, env)), 0) * s.item_bytes
            elif kind is _Free:
                yield FREE, s.slot
            elif kind is _Call:
                yield CALL, s.name, s.arguments, [(slot, evaluate(e, env)) for slot, e in s.values]
            elif kind is _For:
                start = int(evaluate(s.min, env))
                inner = dict(env)
                for i in range(start, start + int(evaluate(s.extent, env))):
                    inner[s.var] = i
                    yield from self._walk(s.body, inner, functions)
            elif kind is _If:
                yield from self._walk(s.then if evaluate(s.cond, env) else s.orelse, env, functions)
            elif not evaluate(s.cond, env):
                known = {n: env[n] for n in exprs.names(s.source) if n in env}
                values = ", ".join(f"{k} = {v}" for k, v in known.items())
                raise ArgumentError(f"{self.function}: {s.message}" + (f" ({values})" if values else ""))

    def _launch_entry(self, s: LaunchStep, env: dict[str, Any], functions: Callable[[str], Any]) -> Entry | None:
        evaluate = exprs.evaluate
        grid: Any = tuple(int(evaluate(e, env)) for e in s.grid)
        block: Any = tuple(int(evaluate(e, env)) for e in s.block)
        shared = int(evaluate(s.shared, env))
        if min(grid) <= 0 or min(block) <= 0:
            return None  # nothing to do; drivers refuse an empty grid
        try:
            constants = [pack(evaluate(e, env)) for slot, x in s.sources if slot < 0 for e, pack in (x,)]
        except (OverflowError, TypeError, ValueError) as error:
            raise self._bad(f"a number for kernel {s.kernel!r}: {error}") from None
        pack = struct.Struct(s.format).pack
        function = functions(s.kernel)
        makers: list[tuple[int, Callable[[int], bytes]]] = []
        for place, (_, x) in enumerate(s.sources):
            if isinstance(x, TensorMap):
                facts = [tuple(int(evaluate(e, env)) for e in es) for es in (x.sizes, x.strides)]
                makers.append((place, map_maker(function, x, facts[0], facts[1])))
        getter = _getter(s.sources, constants)
        if makers:
            getter = _with_maps(getter, makers)
            function.offsets = s.offsets
        info = LaunchInfo(s.kernel, grid, block, shared, s.format, s.offsets, s.early)
        return LAUNCH, function, grid, block, shared, pack, getter, info


def _straight(source: Sequence[Any], steps: Sequence[Any], cond: Any) -> list[tuple[dict[str, Any], Any]] | None:
    """See `HostProgram.straight`. cond: whether the steps run at all; None for always."""
    out: list[tuple[dict[str, Any], Any]] = []
    for raw, made in zip(source, steps, strict=True):
        if isinstance(made, (_For, _Call)):
            return None
        if isinstance(made, _If):
            holds, fails = ["ne", raw["cond"], 0], ["eq", raw["cond"], 0]
            then = _straight(raw["then"], made.then, holds if cond is None else ["and", cond, holds])
            orelse = _straight(raw.get("else") or [], made.orelse, fails if cond is None else ["and", cond, fails])
            if then is None or orelse is None:
                return None
            out += [*then, *orelse]
        elif cond is None:
            out.append((raw, made))
        elif _divides_by_sizes(raw):
            return None
        else:
            out.append((_guarded(raw, cond), made))
    return out


def _divides_by_sizes(x: Any) -> bool:
    """Whether a quotient by something else than a number stands in the data of a step."""
    if isinstance(x, dict):
        return any(map(_divides_by_sizes, x.values()))
    if not isinstance(x, (list, tuple)):
        return False
    by = x[2] if len(x) == 3 and x[0] in ("floordiv", "floormod") else 1
    return not isinstance(by, int) or any(map(_divides_by_sizes, x))


def _guarded(raw: dict[str, Any], cond: Any) -> dict[str, Any]:
    """A step that does nothing where the condition does not hold."""
    if raw["op"] == "launch":
        first, *others = raw["grid"]
        return {**raw, "grid": [["select", cond, first, 0], *others]}
    if raw["op"] == "alloc":
        return {**raw, "size": ["select", cond, raw["size"], 0]}
    if raw["op"] == "assert":
        return {**raw, "cond": ["or", ["eq", cond, 0], raw["cond"]]}
    return raw


def prepared(device: Device, plan: BoundProgram, n_params: int) -> list[Any] | None:
    """The launches of a plan as the driver makes them ready; None where it does not. Scratch is then taken ahead of all launches and given back behind them
    (`BoundProgram.scratch`), where that holds little more than the steps would."""
    prepare = getattr(device.driver, "prepare_launch", None)
    if prepare is None or not plan.entries:
        return None
    scratch = _scratch(plan.entries, n_params)
    if scratch is None:
        return None
    made = [prepare(e[1], e[7], e[6]) for e in plan.entries if e[0] == LAUNCH]
    if not made or None in made:
        return None
    plan.scratch = scratch
    return made


def _scratch(entries: Iterable[Entry], n_params: int) -> tuple[int, ...] | None:
    """Bytes of each scratch slot; None where one is taken twice, or all at once would be more than the steps hold at their most and not small."""
    sizes: dict[int, int] = {}
    held: dict[int, int] = {}
    most = 0
    for e in entries:
        if e[0] == CALL:
            return None
        if e[0] == ALLOC:
            if e[1] in sizes:
                return None
            sizes[e[1]] = held[e[1]] = e[2]
            most = max(most, sum(held.values()))
        elif e[0] == FREE:
            held.pop(e[1], None)
    if sum(sizes.values()) > max(most, _SMALL_SCRATCH):
        return None
    return tuple([sizes.get(k, 0) for k in range(n_params, max(sizes, default=n_params - 1) + 1)])


def map_maker(function: Any, x: TensorMap, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Callable[[int], bytes]:
    """A function from a tensor's address to its map, which remembers the addresses that it has seen last."""
    encode = getattr(function, "encode_tensor_map", None)
    if encode is None:
        raise DeviceError("a kernel copies by tensor maps, which are of sm_90 and later", hint="compile for this chip")
    in_bytes = tuple(n * itemsize(x.dtype) for n in strides)
    return lru_cache(maxsize=_MAPS_KEPT)(lambda address: encode(address, x.dtype, sizes, in_bytes, x.box, x.swizzle))


def _with_maps(
    getter: Callable[[Sequence[Any]], Sequence[Any]], makers: list[tuple[int, Callable[[int], bytes]]]
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The getter with addresses replaced by the maps of their tensors."""

    def get(values: Sequence[Any]) -> Sequence[Any]:
        out = list(getter(values))
        for place, make in makers:
            out[place] = make(out[place])
        return out

    return get


def _getter(sources: list[tuple[int, Any]], constants: list[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function from the slots' values to a kernel's arguments."""
    if not sources:
        return lambda values: ()
    if not constants:
        slots = [slot for slot, _ in sources]
        if len(slots) == 1:
            only = slots[0]
            return lambda values: (values[only],)
        return itemgetter(*slots)
    supply = iter(constants)
    fixed = [None if slot >= 0 else next(supply) for slot, _ in sources]
    moving = [(i, slot) for i, (slot, _) in enumerate(sources) if slot >= 0]

    def get(values: Sequence[Any]) -> Sequence[Any]:
        out = fixed.copy()
        for i, slot in moving:
            out[i] = values[slot]
        return out

    return get
