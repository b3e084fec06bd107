"""Expressions and calls of a kernel, read from its syntax tree: what is constant is computed as Python computes it, what is not becomes ops."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

from ..errors import KernelError, Loc, TecError
from ..kernels.source import MISSING, Source, source_of
from . import access, arithmetic, elsewhere, reductions, words
from . import grammar as G
from .assigned import assigned, computed, in_type, is_assigned, number_type
from .blocks import block_ptr
from .builder import Builder, constexpr, describe, plain
from .values import METHODS, tensor

MAX_DEPTH = 64  # of calls; more are recursion
MAX_UNROLLED = 1 << 12  # turns of a loop that is written out
NOTHING = object()  # what a function gives that has not returned

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Returned(Exception):
    """Internal: the function has given its value."""

    def __init__(self, value: Any):
        self.value = value


def flat(v: Any) -> list[Any]:
    """The values in a value: itself, or those of a tuple or a bundle."""
    if isinstance(v, G.Value):
        return [v]
    if isinstance(v, (tuple, list)):
        return [x for e in v for x in flat(e)]
    return v.flat() if isinstance(v, block_ptr) else []


def rebuilt(v: Any, values: list[Any]) -> Any:
    """A value of the same form with its values taken from the front of a list."""
    if isinstance(v, G.Value):
        return values.pop(0)
    if isinstance(v, (tuple, list)):
        parts = [rebuilt(e, values) for e in v]
        return type(v)(*parts) if hasattr(v, "_fields") else type(v)(parts)
    if isinstance(v, block_ptr):
        n = len(v.flat())
        taken, values[:n] = values[:n], []
        made = v.of(taken)
        made.__dict__.update({k: x for k, x in v.__dict__.items() if k == "padding"})
        return made
    return v


class Frame:
    """A function that is being read."""

    def __init__(self, source: Source, names: dict[str, Any], called_at: Loc | None):
        self.source, self.names, self.called_at = source, names, called_at
        self.loops = 0


class Expressions:
    """Reads expressions into a builder's blocks; `frontend.Reader` adds statements."""

    def body(self, stmts: Sequence[ast.stmt]) -> Any:
        raise NotImplementedError

    def joined(
        self, s: ast.AST, test: Any, sides: list[G.Block], results: list[dict[str, Any]], names: list[str]
    ) -> dict[str, Any]:
        raise NotImplementedError

    def scalar_truth(self, v: Any, what: str) -> Any:
        raise NotImplementedError

    def iterated(self, node: ast.expr) -> Any:
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Any) -> None:
        raise NotImplementedError

    def __init__(self, translate: Callable[[Any], Any]):
        self.frames: list[Frame] = []
        self.node: ast.AST | None = None
        self.translate = translate  # what a global or attribute stands for here (Triton's words: ours)
        self.b = Builder(tensor, self.where)
        self.b.trace = self.traced
        self.b.options["item"] = reductions.item
        self.b.options["call"] = lambda f, args: self.call(f, list(args), {})

    # ---- places

    def where(self) -> Loc | None:
        if not self.frames:
            return None
        f = self.frames[-1]
        return Loc(f.source.file, getattr(self.node, "lineno", f.source.tree.lineno))

    def traced(self, message: str) -> str:
        for f in reversed(self.frames):
            if f.called_at is not None:
                message += f"\n  in {f.source.name}, called at {f.called_at}"
        return message

    def error(self, message: str, hint: str | None = None) -> KernelError:
        return self.b.error(message, hint)

    # ---- functions

    def enter(self, source: Source, names: dict[str, Any]) -> Any:
        """Read a function's body with names bound; what it returns."""
        if len(self.frames) >= MAX_DEPTH or sum(f.source.function is source.function for f in self.frames) > 8:
            raise self.error(f"{source.name} calls itself", hint="kernels have no stack: write a loop")
        called_at = self.where()
        self.frames.append(Frame(source, names, called_at))
        node = self.node
        try:
            made = self.body(source.body)
        finally:
            self.frames.pop()
            self.node = node
        return None if made is NOTHING else made

    def call(self, f: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """A call: words as they are, functions read in place, Python's own on constants."""
        f = plain(f)
        f = self.translate(f)
        f = getattr(f, "__tec_tile__", f)
        if isinstance(f, FunctionType) and not (f.__module__ or "").startswith("tec.tile."):
            return self.inlined(f, args, named)
        if (
            hasattr(f, "__func__")
            and isinstance(f.__func__, FunctionType)
            and not (f.__func__.__module__ or "").startswith("tec.tile.")
        ):
            return self.inlined(f.__func__, [f.__self__, *args], named)
        if f in _PYTHON:
            return _PYTHON[f](self, *args, **named)
        try:
            return f(*args, **named)
        except (TypeError, AttributeError, ValueError) as e:
            if isinstance(e, TecError):
                raise
            name = getattr(f, "__name__", repr(f))
            raise self.error(f"{name}({', '.join(map(describe, args))}): {e}") from None

    def inlined(self, f: FunctionType, args: list[Any], named: dict[str, Any]) -> Any:
        if getattr(f, "__triton_constexpr__", False) or getattr(f, "__tec_constexpr__", False):
            return f(*[plain(a) for a in args], **{k: plain(v) for k, v in named.items()})
        source = source_of(f, "what is called")
        return self.enter(source, self.bound(source, args, named))

    def bound(self, source: Source, args: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """Arguments by the names of the parameters, defaults filled in. Raises KernelError."""
        a = source.tree.args
        f = source.function
        names = [x.arg for x in (*a.posonlyargs, *a.args)]
        if len(args) > len(names):
            raise self.error(
                f"{source.name} takes {len(names)} arguments, {len(args)} are given", hint="give one for each parameter"
            )
        out = dict(zip(names, args))
        for k, v in named.items():
            if k in out or k not in [*names, *(x.arg for x in a.kwonlyargs)]:
                raise self.error(
                    f"{source.name} has no free parameter {k}", hint="pass each parameter once, by place or by name"
                )
            out[k] = v
        defaults = dict(zip(names[len(names) - len(f.__defaults__ or ()) :], f.__defaults__ or ()))
        defaults.update(f.__kwdefaults__ or {})
        for x in (*a.posonlyargs, *a.args, *a.kwonlyargs):
            if x.arg not in out:
                if x.arg not in defaults:
                    raise self.error(
                        f"{source.name} is called without {x.arg}", hint="give it, or write a default in the def"
                    )
                out[x.arg] = defaults[x.arg]
            if is_constexpr(x.annotation):
                v = plain(out[x.arg])
                out[x.arg] = v
        return {k: plain(v) for k, v in out.items()}

    # ---- expressions

    def expr(self, e: ast.expr) -> Any:
        before, self.node = self.node, e if hasattr(e, "lineno") else self.node
        method = getattr(self, "of_" + type(e).__name__, None)
        if method is None:
            raise self.error(
                f"a kernel cannot have {spoken(e)}",
                hint="expressions are arithmetic, comparisons, calls, indices, tuples and `a if c else b`",
            )
        made = method(e)
        self.node = before
        return made

    def of_Constant(self, e: ast.Constant) -> Any:
        return e.value

    def of_Name(self, e: ast.Name) -> Any:
        frame = self.frames[-1]
        if e.id in frame.names:
            return frame.names[e.id]
        found = frame.source.lookup(e.id)
        if found is MISSING:
            hint = "give it a value on every way to this line" if e.id in frame.source.own else None
            raise self.error(f"{e.id} is not defined", hint)
        frame.source.taken[e.id] = found
        return self.outside(found, e.id)

    def outside(self, v: Any, name: str) -> Any:
        """A global or closed-over value: constants, functions, modules."""
        v = plain(self.translate(v))
        if isinstance(
            v, (bool, int, float, str, tuple, list, type(None), FunctionType, ModuleType, type, G.dtype)
        ) or callable(v):
            return v
        if hasattr(v, "dtype") and hasattr(v, "shape"):
            raise self.error(f"the array {name} is no argument of the kernel", hint="pass it")
        return v

    def of_Tuple(self, e: ast.Tuple) -> Any:
        return tuple(
            x for a in e.elts for x in (tuple(self.expr(a.value)) if isinstance(a, ast.Starred) else (self.expr(a),))
        )

    def of_List(self, e: ast.List) -> Any:
        return [self.expr(x) for x in e.elts]

    def of_Slice(self, e: ast.Slice) -> Any:
        return slice(
            *(
                None if x is None else words.constant(self.expr(x), "a bound of a slice")
                for x in (e.lower, e.upper, e.step)
            )
        )

    def of_Starred(self, e: ast.Starred) -> Any:
        raise self.error("* outside of a call or tuple", hint="f(*t) and (*t, x) take a tuple apart")

    def of_JoinedStr(self, e: ast.JoinedStr) -> str:
        return "".join(
            str(x.value if isinstance(x, ast.Constant) else plain(self.expr(x.value)))
            for x in e.values
            if isinstance(x, (ast.Constant, ast.FormattedValue))
        )

    def of_Attribute(self, e: ast.Attribute) -> Any:
        v = plain(self.expr(e.value))
        if isinstance(v, ModuleType):
            found = getattr(v, e.attr, MISSING)
            if found is MISSING:
                raise self.error(f"{v.__name__} has no {e.attr}", hint=elsewhere.hint(e.attr, dir(v)))
            return plain(self.translate(found))
        if (
            e.attr == "value"
            and not isinstance(v, G.Value)
            and isinstance(v, (int, float, str, tuple, type(None), G.dtype))
        ):
            return v  # a constexpr's value
        if isinstance(v, (bool, int, float)) and (hasattr(tensor, e.attr) or e.attr in METHODS):
            v = self.b.of_number(v)
        try:
            return plain(self.translate(getattr(v, e.attr)))
        except AttributeError:
            raise self.error(
                f"{describe(v)} has no {e.attr}",
                hint="docs/tiles.md lists the words; functions of tiles are also methods: x.sum(axis=0)",
            ) from None

    def of_Subscript(self, e: ast.Subscript) -> Any:
        v, item = plain(self.expr(e.value)), plain(self.expr(e.slice))
        try:
            return (
                v[item]
                if not isinstance(v, (tuple, list))
                else v[words.constant(item, "an index") if not isinstance(item, slice) else item]
            )
        except (TypeError, IndexError, KeyError) as x:
            raise self.error(f"{describe(v)}[{item!r}]: {x}") from None

    def of_UnaryOp(self, e: ast.UnaryOp) -> Any:
        v = plain(self.expr(e.operand))
        if isinstance(e.op, ast.Not):
            return self.b.invert(self.b.truth(v)) if isinstance(v, G.Value) else not v
        made = _UNARY[type(e.op)](v)
        return assigned(in_type(made, number_type(v))) if is_assigned(v) else made

    def of_BinOp(self, e: ast.BinOp) -> Any:
        left = self.expr(e.left)
        right = self.expr(e.right)
        return self.apply(type(e.op), left, right)

    def apply(self, op: type, a: Any, c: Any) -> Any:
        a, c = plain(a), plain(c)
        f = _BINARY.get(op)
        if f is None or (op is ast.Pow and (isinstance(a, G.Value) or isinstance(c, G.Value))):
            raise self.error(
                "** of tiles" if op is ast.Pow else f"the operator {op.__name__} of tiles",
                hint="tl.exp, tl.exp2, x * x",
            )
        if isinstance(a, list):
            a = tuple(a)
        if isinstance(c, list):
            c = tuple(c)
        try:
            t = None if op is ast.Pow else self._type_of_both(op, a, c)
            return f(a, c) if t is None else computed(op, f, a, c, t)
        except TecError:
            raise
        except (TypeError, ZeroDivisionError, ValueError) as x:
            raise self.error(str(x)) from None

    def _type_of_both(self, op: type, a: Any, c: Any) -> G.dtype | None:
        """The type of two numbers of which a variable holds one; None of anything else."""
        if not (is_assigned(a) or is_assigned(c)) or not (isinstance(a, (int, float)) and isinstance(c, (int, float))):
            return None
        of_a, of_c = number_type(a), number_type(c)
        return None if of_a is None or of_c is None else self.b.promoted(of_a, of_c, op is ast.Div)

    def of_BoolOp(self, e: ast.BoolOp) -> Any:
        both = isinstance(e.op, ast.And)
        v = plain(self.expr(e.values[0]))
        for x in e.values[1:]:
            if not isinstance(v, G.Value):
                if bool(v) != both:
                    return v
                v = plain(self.expr(x))
                continue
            w = plain(self.expr(x))
            if isinstance(w, G.Value):
                v = self.b.logical("and" if both else "or", v, w)
            elif bool(w) != both:  # decides, as in Triton, whatever is on its left
                return w
        return v

    def of_Compare(self, e: ast.Compare) -> Any:
        left, made = plain(self.expr(e.left)), None
        for op, x in zip(e.ops, e.comparators):
            right = plain(self.expr(x))
            if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
                left, right = tuple(map(plain, left)), tuple(map(plain, right))
            if isinstance(op, (ast.Is, ast.IsNot)) or not (isinstance(left, G.Value) or isinstance(right, G.Value)):
                one = _COMPARE[type(op)](left, right)
            elif isinstance(op, (ast.In, ast.NotIn)):
                raise self.error(
                    "`in` of a tile",
                    hint="`in` looks through constant tuples; of a tile, tl.sum((x == v).to(tl.int32)) > 0",
                )
            elif right is None or left is None or isinstance(left, str) or isinstance(right, str):
                one = isinstance(op, ast.NotEq)
            else:
                one = _COMPARE[type(op)](left, right)
            made = (
                one if made is None else self.b.logical("and", made, one) if isinstance(made, G.Value) else made and one
            )
            left = right
        return made

    def of_IfExp(self, e: ast.IfExp) -> Any:
        test = plain(self.expr(e.test))
        if not isinstance(test, G.Value):
            return self.expr(e.body if test else e.orelse)
        test = self.scalar_truth(test, "if")
        sides, given = [], []
        for x in (e.body, e.orelse):
            with self.b.block() as block:
                given.append({"": self.expr(x)})
            sides.append(block)
        return self.joined(e, test, sides, given, [""])[""]

    def of_ListComp(self, e: ast.ListComp) -> Any:
        if len(e.generators) != 1 or e.generators[0].ifs:
            raise self.error(
                "a comprehension of more than one loop or with a condition",
                hint="write loops: for i in tl.static_range(n)",
            )
        g, out = e.generators[0], []
        for v in self.iterated(g.iter) if not isinstance(g.iter, ast.Name) else plain(self.expr(g.iter)):
            self.assign(g.target, v)
            out.append(self.expr(e.elt))
        return out

    of_GeneratorExp = of_ListComp

    def of_Call(self, e: ast.Call) -> Any:
        f = self.expr(e.func)
        args: list[Any] = []
        for a in e.args:
            if isinstance(a, ast.Starred):
                args += list(plain(self.expr(a.value)))
            else:
                args.append(self.expr(a))
        named: dict[str, Any] = {}
        for k in e.keywords:
            if k.arg is None:
                named.update(self.expr(k.value))
            else:
                named[k.arg] = self.expr(k.value)
        self.node = e
        for extra in ("_builder", "_generator", "_semantic"):
            named.pop(extra, None)
        return self.call(f, args, named)


def is_constexpr(annotation: ast.expr | None) -> bool:
    """Whether an annotation says that a name is known when the kernel is compiled."""
    return annotation is not None and "constexpr" in ast.unparse(annotation)


def same(a: Any, b: Any) -> bool:
    """Whether two values of a name are the same one."""
    if a is b:
        return True
    if isinstance(a, G.Value) or isinstance(b, G.Value):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return all(map(same, a, b))
    if isinstance(a, block_ptr) and isinstance(b, block_ptr):
        return all(map(same, a.flat(), b.flat()))
    return type(a) is type(b) and bool(a == b)


def leaves_by_return(stmts: Sequence[ast.stmt]) -> bool:
    return any(isinstance(x, ast.Return) for s in stmts for x in ast.walk(s))


def spoken(node: ast.AST) -> str:
    names = {
        "Break": "break", "Continue": "continue", "Try": "try", "With": "with", "Raise": "raise", "Import": "import", "Global": "global",
        "Lambda": "a lambda", "Delete": "del", "Yield": "yield", "Await": "await", "Dict": "a dictionary", "ClassDef": "a class", "Match": "match",
    }  # fmt: skip
    return names.get(type(node).__name__, f"{type(node).__name__} ({ast.unparse(node)[:40]})")


def language_name(t: G.dtype) -> str:
    return next((k for k, d in G.DTYPES.items() if d == t), t.name)


def _extreme(fn: str) -> Any:
    def word(r: Expressions, *args: Any) -> Any:
        if not any(isinstance(plain(a), G.Value) for a in args):
            return getattr(builtins, fn)(*[plain(a) for a in args])
        made = args[0]
        for a in args[1:]:
            made = arithmetic.extremum(fn, made, a, None)
        return made

    return word


def _converted(t: str) -> Any:
    def word(r: Expressions, x: Any) -> Any:
        x = plain(x)
        if isinstance(x, G.Value):
            x = words.constant(x, f"the argument of {t}()")
        return getattr(builtins, t)(x)

    return word


def _isinstance(r: Expressions, x: Any, types: Any) -> bool:
    return isinstance(x, types) or (types is constexpr and not isinstance(x, G.Value))


_PYTHON: dict[Any, Any] = {
    builtins.min: _extreme("min"),
    builtins.max: _extreme("max"),
    builtins.abs: lambda r, x: arithmetic.abs(x),
    builtins.len: lambda r, x: len(plain(x)) if not isinstance(plain(x), G.Value) else x.ty.shape[0],
    builtins.print: lambda r, *a, **n: access.device_print(
        " ".join(x for x in a if isinstance(x, str)), *[x for x in a if not isinstance(x, str)]
    ),
    builtins.float: _converted("float"),
    builtins.int: _converted("int"),
    builtins.bool: _converted("bool"),
    builtins.isinstance: _isinstance,
    constexpr: lambda r, x: words.constant(x, "a constexpr"),
}
