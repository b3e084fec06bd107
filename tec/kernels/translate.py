"""A Python function to loop IR: one thread's program under loops over the launch indices.

In: a function, the types of its arguments, the shape of a launch, a target. Out: a `Func` of stage "loops" that any `tec.build` takes,
whose parameters are the function's, then the grid's extents (or those of an ndrange), then the tables that it names, then the buffer of messages where it
prints.

    for bx in thread("blockIdx.x", grid_x):
        for tx in thread("threadIdx.x", 256):
            ... the function's body, with its `attrs["simt"]` set: threads meet where it says, and nowhere else
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from ..errors import KernelError
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import GLOBAL, Buffer
from ..ir.dtype import dtype_info
from ..ir.effects import Effects, effects, is_call
from ..ir.func import Func
from ..ir.visit import any_stmt, deep_recursion, map_stmts
from ..records import dataclass
from ..target import Target
from .below_zero import refuse_below_zero
from .frames import Binding, Frame, Known, Restart
from .output import Output, Place
from .source import Source, parameters
from .tables import Table
from .translator import Translator
from .values import PART, Array, Complex, Records, Weak, identity

_ROUNDS = 200  # each learns a slot, a type or a flag; a kernel of that many is no kernel


@dataclass(frozen=True)
class Argument:
    """The type of an argument. `kind`: "array" (of `ndim` dimensions; `compact`: row-major without gaps; `align`: bytes of its
    address), "scalar", "weak" (a Python float), "constant" (`value`, part of the type) or "group" (`parts`, of which `form` makes one value)."""

    kind: str
    dtype: str = ""
    ndim: int = 0
    compact: bool = True
    align: int = 1
    value: Any = field(default=None, compare=False)
    form: Any = None  # of a group, how its parts come together: ("complex",), ("tuple", class, n), ("dataclass", class, names), ("struct", names),
    # ("records", names, ndim); of a field of structs ("field", extents), or ("whole", extents) of complex numbers
    parts: tuple[Argument, ...] = ()
    # Extents of an array that are part of its type, the last: of a field of several numbers.
    trailing: tuple[int, ...] = ()
    told: Any = field(default=None, init=False)  # what tells a constant from others (`values.identity`)

    def __post_init__(self) -> None:
        if self.kind == "constant":
            object.__setattr__(self, "told", identity(self.value))

    def __str__(self) -> str:
        if self.kind == "group":
            return f"({', '.join(map(str, self.parts))})"
        if self.kind == "array":
            return f"{self.dtype}[{', '.join(':' * self.ndim)}]"
        return repr(self.value) if self.kind == "constant" else "float" if self.kind == "weak" else self.dtype


@dataclass(frozen=True)
class LaunchShape:
    """The shape of a launch, as far as code is made for it: `block`, threads along x, y and z; how many dimensions the grid has; how
    many extents an ndrange has (0 for a grid of blocks); bytes of shared memory that the launch sizes."""

    block: tuple[int, int, int]
    grid_ndim: int = 1
    ndrange: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True)
class Translated:
    """A kernel in loop IR; what it prints (`places`), and the names that it took from outside."""

    func: Func
    places: tuple[Place, ...]
    taken: tuple[tuple[Source, dict[str, Any]], ...]
    meets: bool = False  # whether threads wait for each other
    tables: tuple[Table, ...] = ()  # arrays from outside, parameters behind the sizes


@deep_recursion()
def translate(
    source: Source, arguments: Sequence[Argument], launch: LaunchShape, target: Target, alias: bool = False
) -> Translated:
    """The function in loop IR. `alias`: arguments may share memory. Raises KernelError, with the function's line."""
    names = parameters(source)
    if len(names) != len(arguments):
        raise KernelError(
            f"{source.name} takes {len(names)} argument{'s' * (len(names) != 1)} ({', '.join(names)}), {len(arguments)} given",
            hint="pass an array or number for each parameter",
        )
    known = Known()
    sources: dict[Any, Source] = {source.function: source}
    for _ in range(_ROUNDS):
        before = (len(known.slots), dict(known.types), dict(known.forms), len(known.flags))
        t = Translator(known)
        t.sources = sources
        try:
            out = _round(t, source, names, arguments, launch, target, alias)
        except Restart:
            continue
        if before == (len(known.slots), known.types, known.forms, len(known.flags)):
            taken = tuple((s, dict(s.taken)) for s in sources.values())
            return replace(out, taken=taken)
    raise KernelError(
        f"{source.name} has too many variables that change",
        where=source.loc,
        locate=False,
        hint="fewer that branches and loops assign to: parts of the kernel as functions",
    )


def _round(
    t: Translator,
    source: Source,
    names: list[str],
    arguments: Sequence[Argument],
    launch: LaunchShape,
    target: Target,
    alias: bool,
) -> Translated:
    """One translation by what is known of the variables so far, in `t`. Raises `Restart` where more is to be known before it can go on."""
    t.launch, t.target, t.output, t.required, t.tables = launch, target, Output(), {}, {}
    t.frame = Frame(source, ())
    t.frame.entry = t.block_ids[-1]
    params: list[Buffer | E.Var] = []
    for name, a in zip(names, arguments):
        value, made = _parameter(name, a, source)
        params += made
        t.frame.names[name] = Binding(value, t.block_ids[-1])
    t.threads, t.extents, sizes = _launch_indices(launch)
    params += sizes
    for name in names:  # those that change get storage
        key = (name,)
        if key in t.known.slots:
            t.store(key, t.frame.names[name].value, source.tree)
    if t.frame.returned in t.known.flags:
        t.store(t.frame.returned, False, source.tree)
    t.statements(source.body)
    body = close(t.blocks[0])
    refuse_below_zero(body)
    does = effects(body)
    if not alias:
        body = _cheaper_barriers(body, does)
    for b in reversed(list(t.slots.values())):
        body = S.Alloc(b, body)
    if launch.ndrange:
        inside = [B.compare("lt", t._global(a), n) for a, n in zip("zyx"[3 - launch.ndrange :], t.extents)]
        body = S.IfThenElse(B.all_of(*inside), body, None, source.loc)
    for tag, (var, extent) in reversed(t.threads.items()):
        body = S.For(var, E.IntImm(0), extent, body, S.ForKind.THREAD, tag)
    if t.required:
        body = S.seq(*t.required.values(), body)
    tables = tuple(t.tables.values())
    params += [x.buffer for x in tables]
    if t.output.places:
        params.append(t.output.buffer)
    attrs: dict[str, Any] = {"simt": True, "loc": source.loc}
    # Behind a fence memory holds what other threads wrote; LLVM takes memory that only one parameter reaches to be its own.
    if alias or any_stmt(body, lambda s: is_call(s, "fence")):
        attrs["noalias"] = False
    return Translated(
        Func(_identifier(source.name), tuple(params), body, attrs),
        tuple(t.output.places),
        (),
        bool(does.collective),
        tables,
    )


def _cheaper_barriers(body: S.Stmt, does: Effects) -> S.Stmt:
    """Barriers that order shared memory alone, where no thread reads global memory that another writes: loads from there then stay
    under way across them."""
    scopes = {id(a.buffer): a.buffer.scope for a in does.accesses}
    if any(scopes[k] == GLOBAL for k in does.reads & does.writes):
        return body

    def fs(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Evaluate) and is_call(s, "barrier") and (s.value.attrs or {}).get("scope") == "global":  # type: ignore[attr-defined]
            return S.Evaluate(E.Call("barrier", (), "int32", {"scope": "shared"}), s.loc)
        return map_stmts(s, fs)

    return fs(body)


def _identifier(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "kernel"


def _parameter(name: str, a: Argument, source: Source) -> tuple[Any, list[Buffer | E.Var]]:
    """What a parameter is in the function, and in the IR."""
    if a.kind == "constant":
        return a.value, []
    if a.kind == "weak":
        var = E.Var(name, "float64")
        return Weak(var), [var]
    if a.kind == "scalar":
        var = E.Var(name, a.dtype)
        return var, [var]
    if a.kind == "group":
        names = (
            a.form[2]
            if a.form[0] == "dataclass"
            else a.form[1]
            if a.form[0] in ("records", "struct")
            else range(len(a.parts))
        )
        found = [_parameter(f"{name}__{n}", p, source) for n, p in zip(names, a.parts)]
        return _together(name, a.form, [value for value, _ in found]), [p for _, made in found for p in made]
    fixed = dict(zip(range(a.ndim - len(a.trailing), a.ndim), a.trailing))
    shape: tuple[E.Expr, ...] = tuple(
        E.IntImm(fixed[k]) if k in fixed else E.Var(f"{name}_{k}", "int32", True) for k in range(a.ndim)
    )
    strides = () if a.compact else tuple(E.Var(f"{name}_stride_{k}", "int64") for k in range(a.ndim))
    dtype = PART.get(a.dtype, a.dtype)
    whole = dtype != a.dtype
    if whole:
        shape, strides = (*shape, E.IntImm(2)), (*strides, E.Var(f"{name}_part", "int64")) if strides else ()
    info = dtype_info(dtype)
    buffer = Buffer(name, dtype, shape, strides, 0, GLOBAL, max(a.align, info.bytes), loc=source.loc)
    return Array(buffer, (), whole), [buffer]


def _together(name: str, form: tuple[Any, ...], parts: list[Any]) -> Any:
    """The value that a group of parameters is."""
    if form[0] == "complex":
        return Complex(*parts)
    if form[0] in ("whole", "field"):
        return Array(parts[0].buffer, (), form[0] == "whole")
    if form[0] == "records":
        return Records(name, dict(zip(form[1], parts)), form[2])
    if form[0] == "struct":
        return namedtuple("struct", form[1], rename=True)(*parts)
    if form[0] == "tuple":
        return getattr(form[1], "_make", form[1])(parts)
    made = object.__new__(form[1])
    for n, part in zip(form[2], parts):
        object.__setattr__(made, n, part)
    return made


def _launch_indices(launch: LaunchShape) -> tuple[dict[str, tuple[E.Var, E.Expr]], tuple[E.Var, ...], list[E.Var]]:
    """The launch's variables with their extents, by tag, blocks first; the extents of an ndrange; the parameters that say sizes."""
    threads: dict[str, tuple[E.Var, E.Expr]] = {}
    extents: tuple[E.Var, ...] = ()
    sizes: list[E.Var] = []
    if launch.ndrange:
        extents = tuple(E.Var(f"extent_{k}", "int32", True) for k in range(launch.ndrange))
        sizes = list(extents)
        for axis, n in zip("xyz", reversed(extents)):
            b = launch.block["xyz".index(axis)]
            threads[f"blockIdx.{axis}"] = (E.Var(f"block_{axis}", "int32", True), B.floordiv(B.add(n, b - 1), b))
    else:
        for axis in "xyz"[: launch.grid_ndim]:
            n = E.Var(f"grid_{axis}", "int32", True)
            sizes.append(n)
            threads[f"blockIdx.{axis}"] = (E.Var(f"block_{axis}", "int32", True), n)
    for axis, count in zip("xyz", launch.block):
        if count > 1 or axis == "x":
            threads[f"threadIdx.{axis}"] = (E.Var(f"thread_{axis}", "int32", True), E.IntImm(count))
    return threads, extents, sizes
