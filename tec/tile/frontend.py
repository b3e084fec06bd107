"""Python source to a tile program: the function's syntax tree, read with its arguments' types and constants.

What is constant is computed as Python computes it; what is not becomes ops. `if` on a constant reads one side, on a value both; a loop over
`range` is a loop at run time, over `tl.static_range` it is written out. Functions that a kernel calls are read in place.

A variable that a loop or branch changes must keep its type. A `return` within an `if` ends the function: what follows is its other side.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import KernelError
from ..kernels.source import Source
from . import access, arithmetic, reductions
from . import grammar as G
from .accumulate import into_products
from .assigned import assigned, written
from .blocks import tensor_descriptor
from .builder import building, current, describe, int32, int64, plain
from .expressions import (
    NOTHING,
    Expressions,
    flat,
    is_constexpr,
    language_name,
    leaves_by_return,
    rebuilt,
    same,
    spoken,
)
from .grammar import Program, TileType, pointer_type

MAX_UNROLLED = 1 << 12  # turns of a loop that is written out
_STORE = "only names can be assigned to; tl.store(x + i, v) writes memory, and tl.where(at == i, v, tile) gives a tile with another element"


class Bound(ast.stmt):
    """A turn's value for the target of a loop that is written out."""

    _fields = ()

    def __init__(self, loop: ast.For, value: Any):
        super().__init__()
        ast.copy_location(self, loop)
        self.target, self.value = loop.target, value


class Reader(Expressions):
    """Reads a kernel's tree into a builder's blocks."""

    # ---- statements

    def body(self, stmts: Sequence[ast.stmt]) -> Any:
        """Read statements in order: what they return, or NOTHING."""
        for k, s in enumerate(stmts):
            self.node = s
            if isinstance(s, ast.If):
                made = self.branch(s, stmts[k + 1 :])
                if made is not None:
                    return made[0]
                continue
            if isinstance(s, ast.Return):
                return None if s.value is None else self.expr(s.value)
            if isinstance(s, ast.For) and not s.orelse and leaves_by_return(s.body):
                over = self.iterated(s.iter)
                # Written out with what follows it, which a turn's return leaves out.
                if not isinstance(over, arithmetic.range):
                    turns = [x for v in self.turns(over) for x in (Bound(s, v), *s.body)]
                    return self.body([*turns, *stmts[k + 1 :]])
            if isinstance(s, Bound):
                self.assign(s.target, s.value)
                continue
            method = getattr(self, "do_" + type(s).__name__, None)
            if method is None:
                hint = "it takes assignments, if, for over range, while, calls, assert and return"
                if isinstance(s, (ast.Break, ast.Continue)):
                    hint = "while with a condition ends a loop early, and if passes over a turn's statements"
                raise self.error(f"a kernel cannot have {spoken(s)}", hint=hint)
            made = method(s)
            if made is not None:
                return made[0]
        return NOTHING

    def do_Pass(self, s: ast.Pass) -> None: ...

    def do_Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.expr(s.value)

    def do_Assert(self, s: ast.Assert) -> None:
        test = plain(self.expr(s.test))
        message = self.expr(s.msg) if s.msg is not None else ast.unparse(s.test)
        if isinstance(test, G.Value):
            access.device_assert(test, message)
        elif not test:
            raise self.error(
                f"assert failed: {message}", hint="it was known when the kernel was compiled: give other constants"
            )

    def do_Assign(self, s: ast.Assign) -> None:
        value = assigned(plain(self.expr(s.value)))
        for t in s.targets:
            self.assign(t, value)

    def do_AnnAssign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            value = plain(self.expr(s.value))
            if not is_constexpr(s.annotation):
                value = assigned(value)
            else:
                value = written(value)
                if isinstance(value, G.Value) and value.of is not None and value.of.name == "const":
                    value = value.of.attrs["value"]  # what is known at run time alone stays so, as in Triton
            self.assign(s.target, value)

    def do_AugAssign(self, s: ast.AugAssign) -> None:
        load = (
            ast.copy_location(ast.Name(s.target.id, ast.Load()), s.target) if isinstance(s.target, ast.Name) else None
        )
        if load is None:
            raise self.error("an assignment to a part of a value", hint=_STORE)
        self.assign(s.target, assigned(self.apply(type(s.op), self.expr(load), self.expr(s.value))))

    def do_FunctionDef(self, s: ast.FunctionDef) -> None:
        raise self.error("a function within a kernel", hint="write it outside, under @tec.tile.jit")

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.frames[-1].names[target.id] = plain(value) if not isinstance(value, list) else tuple(value)
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            values = list(value) if isinstance(value, (tuple, list)) else None
            if values is None or len(values) != len(target.elts):
                raise self.error(
                    f"{len(target.elts)} names for {describe(value)}", hint="as many names as the tuple has values"
                )
            for t, v in zip(target.elts, values):
                self.assign(t, v)
            return
        raise self.error("an assignment to a part of a value", hint=_STORE)

    # ---- branches

    def branch(self, s: ast.If, rest: Sequence[ast.stmt]) -> tuple[Any] | None:
        """An `if`; where a side returns, with all that follows it. None, or what was returned."""
        test = plain(self.expr(s.test))
        if not isinstance(test, G.Value):
            part = s.body if test else s.orelse
            if leaves_by_return(part):  # what follows is left only where the return is reached
                return (self.body([*part, *rest]),)
            made = self.body(part)
            return None if made is NOTHING else (made,)
        test = self.scalar_truth(test, "if")
        returns = leaves_by_return(s.body) or leaves_by_return(s.orelse)
        if returns and self.frames[-1].loops:
            raise self.error("a return within a loop", hint="end the loop first, or use a mask")
        before = dict(self.frames[-1].names)
        sides, results, given = [], [], []
        for part in (s.body, s.orelse):
            self.frames[-1].names = dict(before)
            with self.b.block() as block:
                made = self.body([*part, *rest] if returns else part)
            sides.append(block)
            results.append(self.frames[-1].names)
            given.append(None if made is NOTHING else made)
        self.frames[-1].names = dict(before)
        if returns:
            return (self.joined(s, test, sides, [{"": g} for g in given], [""])[""],)
        changed = [n for n in results[0] if n in results[1] and not same(results[0][n], results[1][n])]
        changed = [n for n in changed if n in before or n in results[1]]
        common = {n: v for n, v in results[0].items() if n in results[1] and n not in changed}
        merged = self.joined(s, test, sides, results, changed)
        self.frames[-1].names = {**common, **merged}
        return None

    def joined(
        self, s: ast.AST, test: Any, sides: list[G.Block], results: list[dict[str, Any]], names: list[str]
    ) -> dict[str, Any]:
        """The op of a branch whose sides give `names` different values: those values behind it."""
        flats: list[list[Any]] = [[], []]
        forms: dict[str, Any] = {}
        for n in names:
            a, c = results[0][n], results[1][n]
            pair = []
            for v, block in zip((a, c), sides):
                with self._within(block):
                    pair.append(self.valued(v))
            pair = self.matched(n, pair, sides)
            forms[n] = pair[0]
            for k in (0, 1):
                flats[k] += flat(pair[k])
        self.node = s
        for block, values in zip(sides, flats):
            block.yields = values
        op = self.b.op("if", (test,), [v.ty for v in flats[0]], sides)
        values = list(op.results)
        return {n: rebuilt(forms[n], values) for n in names}

    @contextmanager
    def _within(self, block: G.Block) -> Iterator[None]:
        self.b.blocks.append(block)
        try:
            yield
        finally:
            self.b.blocks.pop()

    def matched(self, name: str, pair: list[Any], sides: list[G.Block]) -> list[Any]:
        """Both sides' values of a name with one type; constants take the other's."""
        a, c = flat(pair[0]), flat(pair[1])
        if len(a) != len(c):
            raise self.error(
                f"{name or 'the result'} is {describe(pair[0])} on one side of the if and {describe(pair[1])} on the other",
                hint="give it the same type and shape on both sides: x.to(dtype), tl.zeros(shape, dtype)",
            )
        for k, (x, y) in enumerate(zip(a, c)):
            if x.ty == y.ty:
                continue
            for one, other, values, block in ((x, y, a, sides[0]), (y, x, c, sides[1])):
                if (
                    one.ty.shape == other.ty.shape == ()
                    and one.of is not None
                    and one.of.name == "const"
                    and not other.ty.dtype.is_ptr()
                ):
                    with self._within(block):
                        values[k] = self.b.cast(one, other.ty.dtype)
                    break
            else:
                raise self.error(
                    f"Mismatched type for {name or 'the result'}: {x.ty} on one side of the if, and {y.ty} on the other",
                    hint="give it one type and shape before, or convert: x.to(tl.float32)",
                )
        return [rebuilt(pair[0], a), rebuilt(pair[1], c)]

    def valued(self, v: Any) -> Any:
        """Python numbers in a value as scalars, so that it may change at run time."""
        if isinstance(v, (bool, int, float)) and not isinstance(v, G.Value):
            return self.b.of_number(v)
        if isinstance(v, tuple):
            parts = [self.valued(x) for x in v]
            return type(v)(*parts) if hasattr(v, "_fields") else tuple(parts)
        return v

    def scalar_truth(self, v: Any, what: str) -> Any:
        if v.ty.size != 1:
            raise self.error(
                f"{what} on a tile {v.ty}",
                hint="tl.where(condition, a, b) picks by element; tl.sum, tl.max make a number",
            )
        return self.b.truth(reductions.item(v))

    # ---- loops

    def do_For(self, s: ast.For) -> Any:
        if s.orelse:
            raise self.error(
                "an else behind a loop", hint="kernels have no break, so what stands in the else can follow the loop"
            )
        over = self.iterated(s.iter)
        if isinstance(over, arithmetic.range):
            return self.loop(s, over)
        for v in self.turns(over):
            self.assign(s.target, v)
            made = self.body(s.body)
            if made is not NOTHING:
                return (made,)
        return None

    def turns(self, over: Any) -> list[Any]:
        """The values of a loop that is written out."""
        turns = list(over)
        if len(turns) > MAX_UNROLLED:
            raise self.error(f"a loop of {len(turns)} turns that is written out", hint="range()")
        return turns

    def iterated(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call):
            f = self.translate(plain(self.expr(node.func)))
            args = [self.expr(a) for a in node.args]
            named = {k.arg: self.expr(k.value) for k in node.keywords if k.arg}
            if f is builtins.range or f is arithmetic.range:
                return arithmetic.range(*args, **named)
            if f is arithmetic.static_range:
                return builtins.range(*arithmetic.static_range(*args, **named).range)
            return self.call(f, args, named)
        over = plain(self.expr(node))
        if isinstance(over, (arithmetic.range, tuple, list, builtins.range)):
            return over
        if isinstance(over, arithmetic.static_range):
            return builtins.range(*over.range)
        raise self.error(f"a loop over {describe(over)}", hint="range(), tl.static_range(), or a tuple")

    def carried(self, s: ast.For | ast.While) -> list[str]:
        """Names that the loop's body assigns and that have a value before it."""
        stored = {n.id for x in s.body for n in ast.walk(x) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        names = self.frames[-1].names
        return [n for n in names if n in stored and (flat(names[n]) or isinstance(names[n], (int, float)))]

    def loop(self, s: ast.For, over: arithmetic.range) -> None:
        """A `for` over numbers that are known when the program runs; what changes in it goes around as values."""
        low, high, step = (self.b.of_number(x) for x in (over.low, over.high, over.step))
        for x in (low, high, step):
            if x.ty.shape or not x.ty.dtype.is_int():
                raise self.error(f"a bound of a loop is {describe(x)}", hint="bounds are whole numbers")
        t = int32
        for x in (low, high, step):
            t = self.b.promoted(t, x.ty.dtype)
        low, high, step = (self.b.cast(x, t) for x in (low, high, step))
        frame = self.frames[-1]
        names = self.carried(s)
        start = {n: self.valued(frame.names[n]) for n in names}
        inits = [v for n in names for v in flat(start[n])]
        before = dict(frame.names)
        with self.b.block([TileType((), t), *[v.ty for v in inits]]) as block:
            values = list(block.args[1:])
            frame.names = {**before, **{n: rebuilt(start[n], values) for n in names}}
            self.assign(s.target, block.args[0])
            frame.loops += 1
            made = self.body(s.body)
            frame.loops -= 1
            if made is not NOTHING:
                raise self.error("a return within a loop", hint="end the loop first, or use a mask")
            self.node = s
            block.yields = self.yielded(s, names, start, frame.names)
        stages = over.num_stages if over.num_stages is not None else self.b.options.get("num_stages")
        asked = over.num_stages is not None
        op = self.b.op("for", (low, high, step, *inits), [v.ty for v in inits], [block], stages=stages, asked=asked)
        values = list(op.results)
        frame.names = {**before, **{n: rebuilt(start[n], values) for n in names}}

    def yielded(self, s: ast.AST, names: list[str], start: dict[str, Any], after: dict[str, Any]) -> list[Any]:
        out: list[Any] = []
        for n in names:
            v = self.valued(after[n])
            have, want = flat(v), flat(start[n])
            if len(have) != len(want):
                raise self.error(
                    f"{n} is {describe(start[n])} before the loop, and {describe(v)} behind a turn of it",
                    hint="give it one form before the loop and in it",
                )
            for x, y in zip(have, want):
                if x.ty != y.ty:
                    if not x.ty.shape and not y.ty.shape and x.of is not None and x.of.name == "const":
                        x = self.b.cast(x, y.ty.dtype)
                    else:
                        raise self.error(
                            f"Loop-carried variable {n} has initial type {y.ty} but is re-assigned to {x.ty} in loop! "
                            "Please make sure that the type stays consistent.",
                            hint=f"begin with a tile: {n} = tl.zeros({list(x.ty.shape)}, tl.{language_name(x.ty.dtype)})"
                            if x.ty.shape
                            else f"begin with that type: {n} = tl.full((), {'0.0' if x.ty.dtype.is_floating() else '0'}, tl.{language_name(x.ty.dtype)})",
                        )
                out.append(x)
        return out

    def do_While(self, s: ast.While) -> None:
        """A while loop: its test and its body as blocks over the names that it carries."""
        if s.orelse:
            raise self.error(
                "an else behind a loop", hint="kernels have no break, so what stands in the else can follow the loop"
            )
        frame = self.frames[-1]
        names = self.carried(s)
        start = {n: self.valued(frame.names[n]) for n in names}
        inits = [v for n in names for v in flat(start[n])]
        before = dict(frame.names)
        blocks = []
        for part in ("test", "body"):
            with self.b.block([v.ty for v in inits]) as block:
                values = list(block.args)
                frame.names = {**before, **{n: rebuilt(start[n], values) for n in names}}
                if part == "test":
                    self.node = s
                    test = plain(self.expr(s.test))
                    if isinstance(test, arithmetic.condition):
                        test = plain(test.value)
                    block.yields = [self.scalar_truth(self.b.of_number(test), "while")]
                    if stays_true(block):
                        raise self.error(
                            "the condition of this while never changes: the loop would not end",
                            hint="the condition reads a variable that the loop assigns, or loads what another program stores",
                        )
                else:
                    frame.loops += 1
                    if self.body(s.body) is not NOTHING:
                        raise self.error("a return within a loop", hint="end the loop first, or use a mask")
                    frame.loops -= 1
                    self.node = s
                    block.yields = self.yielded(s, names, start, frame.names)
            blocks.append(block)
        self.node = s
        op = self.b.op("while", inits, [v.ty for v in inits], blocks)
        values = list(op.results)
        frame.names = {**before, **{n: rebuilt(start[n], values) for n in names}}


# What an op gives besides its operands: memory that others write, or what assembly reads.
_CHANGING = {"load", "atomic", "atomic_cas", "assembly", "while", "for", "if"}


def stays_true(condition: G.Block) -> bool:
    """Whether a loop's condition is the same each turn, and not known to be false: it reads neither what the loop carries nor memory."""
    ops = set(map(id, condition.ops))
    stack, seen = list(condition.yields), set(map(id, condition.args))
    if any(id(v) in seen for v in stack):
        return False
    while stack:
        op = stack.pop().of
        if op is None or id(op) not in ops:
            continue
        if op.name in _CHANGING or any(id(v) in seen for v in op.operands):
            return False
        stack.extend(op.operands)
    value = condition.yields[0].of
    return value is None or value.name != "const" or bool(value.attrs["value"])


def read(
    source: Source, arguments: dict[str, Any], options: dict[str, Any], translate: Callable[[Any], Any]
) -> tuple[Program, Reader]:
    """A kernel as a tile program. `arguments`: by name, a TileType (a parameter of the program; a pointer's for an array), or a
    constant. Raises KernelError with the function's line."""
    r = Reader(translate)
    r.b.options.update(options)
    params: list[tuple[str, TileType]] = []
    with building(r.b):
        names: dict[str, Any] = {}

        def value(name: str, a: Any) -> Any:
            if isinstance(a, TileType):
                params.append((name, a))
                return r.b.value("arg", (), a, index=len(params) - 1)
            if isinstance(a, tuple):
                parts = [value(f"{name}_{k}", x) for k, x in enumerate(a)]
                return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
            if isinstance(a, Described):
                return a.made(lambda n, t: value(f"{name}_{n}", t))
            return plain(a)

        for name, a in arguments.items():
            names[name] = value(name, a)
        if r.enter(source, names) is not None:
            raise KernelError(
                f"{source.name} is a kernel, and returns a value",
                where=source.loc,
                hint="store it through a pointer argument",
                locate=False,
            )
    into_products(r.b.blocks[0])
    prints = any(op.name in ("print", "assert") for op in G.walk(r.b.blocks[0]))
    return Program(source.name, params, r.b.blocks[0], source.loc, prints), r


class Described:
    """A host-made tensor descriptor as an argument: its rank, element type and tile. `wide`: offsets in the array need 64 bits."""

    def __init__(self, element: G.dtype, block: tuple[int, ...], padding: str = "zero", wide: bool = True):
        self.element, self.block, self.padding, self.wide = element, block, padding, wide

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.element, self.block, self.padding, self.wide))

    def made(self, value: Callable[[str, TileType], Any]) -> Any:
        """The descriptor of its parameters: `base`, sizes and strides."""
        rank = len(self.block)
        base = value("base", TileType((), pointer_type(self.element)))
        shape = [value(f"size_{k}", TileType((), int32)) for k in range(rank)]
        given = int64 if self.wide else int32  # a product of two numbers of 32 bits is one instruction
        strides = [value(f"stride_{k}", TileType((), given)) for k in range(rank)]
        strides[-1] = current().const(1, given)  # it is asserted of every descriptor: neighbours are side by side
        made = tensor_descriptor(base, shape, strides, (), self.block)
        made.padding, made.narrow = self.padding, not self.wide
        return made
