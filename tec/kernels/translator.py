"""The translator as a whole: handlers for statements, expressions, words and functions, and helpers, which are inlined."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.dtype import dtype_info
from . import language
from .frames import SECRET, Frame, Restart
from .functions import Functions, hashable, known
from .source import Source, parameters, source_of
from .values import Array, Beside, InnerFunction, Records, Turns, describe, is_number, settle

MAX_DEPTH = 32  # helpers that call helpers


class Translator(Functions):
    """A kernel under translation; see `tec.kernels.translate`."""

    sources: dict[FunctionType, Source]

    # ---- helpers

    def inlined(self, f: FunctionType | InnerFunction, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
        """A call of a Python function: its body in this place."""
        caller = self.frame
        inner = f if isinstance(f, InnerFunction) else None
        source: Source = f.source if isinstance(f, InnerFunction) else self.source(f, node)
        depth, up = 0, caller
        while up is not None:
            if up.source is source:
                raise self.error(f"{source.name} calls itself", hint="kernels have no stack: write a loop", node=node)
            depth, up = depth + 1, up.caller  # type: ignore[assignment]
        if depth > MAX_DEPTH:
            raise self.error(f"helpers call each other {depth} deep", node=node, hint="a loop in place of recursion")
        bound = self._arguments(source, args, named, node, None if inner is None else inner.defaults)
        outer_frame = None if inner is None else inner.frame
        frame = Frame(source, (*caller.key, source.name, id(node)), caller, self.where(node), outer_frame)
        frame.entry = self.block_ids[-1]
        self.frame, outer = frame, self.node
        try:
            for name, value in bound.items():
                self.bind(name, value, node)
            if frame.returned in self.known.flags:
                self.store(frame.returned, False, node)
            if id(node) in self.known.failing:
                self._prepare_to_fail(frame, node)
            self.statements(source.body)
            result = self._result(frame, node)
        finally:
            self.frame, self.node = caller, outer
        if frame.fails:
            self._pass_on(frame, node)
        return result

    def _prepare_to_fail(self, frame: Frame, node: ast.Call) -> None:
        """No assertion has failed yet; where one does, the helper gives zeros."""
        self.store(frame.failed, False, node)
        for key, t in list(self.known.types.items()):
            if key[:-1] == frame.key and str(key[-1]).startswith(f"{SECRET}{frame.source.name}"):
                self.store(key, False if t == "bool" else 0, node)
                self.assigned.discard(key)

    def _pass_on(self, frame: Frame, node: ast.Call) -> None:
        """Where an assertion in a helper has failed, the function that called it is left as well."""
        if id(node) not in self.known.failing:
            self.known.failing.add(id(node))
            raise Restart
        failed = self.load(frame.failed)
        with self.branch() as items:
            self.fail(node)
        if items:
            self.emit(S.IfThenElse(failed, self.body(items), None, self.where(node)))

    def _result(self, frame: Frame, node: ast.Call) -> Any:
        if frame.result_slots is None:
            return frame.result
        for key in frame.result_slots:
            if key not in self.assigned:
                raise self.error(
                    f"{frame.source.name} returns a value on some of its ways only",
                    hint="end it with a return",
                    node=frame.source.tree,
                )
        values = tuple(self.held(self.value_of(key), "result") for key in frame.result_slots)
        return values if frame.result_is_tuple else values[0]

    def source(self, f: FunctionType, node: ast.AST) -> Source:
        found = self.sources.get(f)
        if found is None:
            found = self.sources[f] = source_of(f, "what is called", rest=True)
        return found

    def _arguments(
        self, source: Source, args: list[Any], named: dict[str, Any], node: ast.AST, made: dict[str, Any] | None
    ) -> dict[str, Any]:
        """What parameters stand for. made: defaults that are values already, of a function within another."""
        names = parameters(source)
        f, a = source.function, source.tree.args
        most = len(names) if a.vararg is None else len(a.posonlyargs) + len(a.args)
        if len(args) > most and a.vararg is None:
            raise self.error(
                f"{source.name} takes {len(names)} arguments, {len(args)} are given",
                node=node,
                hint=f"{source.name}({', '.join(names)})",
            )
        bound = dict(zip(names, args[:most]))
        for k, v in named.items():
            if k not in names or k in bound:
                raise self.error(
                    f"{source.name} has no free parameter {k}", node=node, hint=f"{source.name}({', '.join(names)})"
                )
            bound[k] = v
        defaults = made
        if defaults is None:
            positional = names[: f.__code__.co_argcount]
            defaults = dict(zip(positional[len(positional) - len(f.__defaults__ or ()) :], f.__defaults__ or ()))
            defaults.update(f.__kwdefaults__ or {})
        for name in names:
            if name not in bound:
                if name not in defaults:
                    raise self.error(
                        f"{source.name} is called without {name}", node=node, hint=f"{source.name}({', '.join(names)})"
                    )
                bound[name] = self.outside(defaults[name], name) if made is None else defaults[name]
        if a.vararg is not None:
            bound[a.vararg.arg] = tuple(args[most:])
        return bound

    # ---- heads of loops

    def iterated(self, node: ast.expr) -> Any:
        """What a loop runs over: a range, or a tuple of values, for which the loop is written out."""
        if isinstance(node, ast.Call):
            f = self.expr(node.func)
            word = language.WORDS.get(f) if hashable(f) else None
            if f is range or word in ("static_range", "unrolled"):
                what = "range" if f is range else f"tec.{word}"
                if node.keywords or not 1 <= len(node.args) <= 3:
                    raise self.error(
                        f"{what} takes one to three numbers", node=node, hint="range(stop) or range(start, stop, step)"
                    )
                bounds = self.ordered(*[lambda x=x: self.expr(x) for x in node.args])
                for b in bounds:
                    e = settle(self.number(b, f"a bound of {what}"))
                    if not dtype_info(e.dtype).is_int or dtype_info(e.dtype).lanes > 1:
                        raise self.error(
                            f"a bound of {what} is {e.dtype}", hint="a bound is a whole number: int(x)", node=node
                        )
                bounds = [b.value if isinstance(b, E.IntImm) else b for b in bounds]
                if word == "static_range":
                    if not known(bounds):
                        raise self.error(
                            "tec.static_range with a bound that is known at run time alone", hint="range()", node=node
                        )
                    return tuple(range(*(int(b) for b in bounds)))
                bounds = [self._signed(b) for b in bounds]
                start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
                step = bounds[2] if len(bounds) == 3 else 1
                return Turns(start, stop, step, "unrolled" if word == "unrolled" else "serial")
            joined = self._joined(node, f) if any(f is g for g in (zip, enumerate, reversed)) else None
            if joined is not None:
                return joined
        v = self.expr(node)
        if isinstance(v, tuple):
            return v
        if isinstance(v, (Array, Records)):
            return Turns(0, v.shape[0], 1, "serial", of=v)
        raise self.error(f"a loop over {describe(v)}", hint="for i in range(...)", node=node)

    def _joined(self, node: ast.Call, f: Any) -> Any:
        """What a loop over `zip`, `enumerate` or `reversed` of arrays, ranges and tuples runs over; None of a call that functions refuse."""
        most = {zip: len(node.args), enumerate: 2, reversed: 1}[f]
        words = {k.arg for k in node.keywords}
        if not 1 <= len(node.args) + len(words) <= most or words - ({"start"} if f is enumerate else set()):
            return None
        if not node.args or any(isinstance(a, ast.Starred) for a in node.args):
            return None
        parts = [self.iterated(a) for a in (node.args if f is zip else node.args[:1])]
        starts = [self.expr(e) for e in (*node.args[1:], *[k.value for k in node.keywords])] if f is enumerate else []
        counted = [p for p in parts if isinstance(p, Turns)]
        if len(counted) < len(parts):
            if counted or not known(starts):
                raise self.error(
                    f"{f.__name__}() of a tuple beside what is counted when the kernel runs",
                    hint="count: for i in range(n): ... a[i], t[i]",
                    node=node,
                )
            return parts[0][::-1] if f is reversed else tuple(self.compute(f, *parts, *starts))
        return self._backwards(counted[0], node) if f is reversed else self._beside(counted, f, starts, node)

    def _beside(self, parts: list[Turns], f: Any, starts: list[Any], node: ast.Call) -> Turns:
        """The loop over several at once; the shortest ends it."""
        made, end = [], None
        for p in parts:
            first, length = self._extent(p.start, p.stop, p.step, node)
            step = p.step if is_number(p.step) else self._bound(settle(p.step), node)
            made.append(p if p.of is not None else Turns(first, first, step, "serial"))
            end = length if end is None else B.minimum(*B.match(end, length))
        if f is enumerate:
            first = settle(self.number(starts[0], "the start")) if starts else B.const(0, "int32")
            made.insert(0, Turns(self._bound(first, node), first, 1, "serial"))
        return Turns(0, end, 1, "serial", of=Beside(tuple(made)))

    def _backwards(self, part: Turns, node: ast.Call) -> Turns:
        """The loop from the last to the first."""
        if isinstance(part.of, (Beside, Records)):
            raise self.error(
                f"reversed() of {'zip or enumerate' if isinstance(part.of, Beside) else describe(part.of)}",
                hint="reversed() of each array: zip(reversed(a), reversed(b))"
                if isinstance(part.of, Beside)
                else f"count: for k in range(len({part.of.name})): ... {part.of.name}[len({part.of.name}) - 1 - k]",
                node=node,
            )
        if part.of is not None:
            return Turns(part.start, part.stop, 1, part.kind, of=self.view(part.of, (slice(None, None, -1),), node))
        first, length = self._extent(part.start, part.stop, part.step, node)
        step: Any = part.step if is_number(part.step) else self._bound(settle(part.step), node)
        by = B.cast(first.dtype, settle(step))
        last = B.add(first, B.mul(B.sub(length, 1), by))
        return Turns(last, B.sub(first, by), -step if is_number(step) else B.neg(by), part.kind)

    def _signed(self, b: Any) -> Any:
        if isinstance(b, E.Expr) and (dtype_info(b.dtype).kind == "uint" or dtype_info(b.dtype).bits < 32):
            return B.cast("int64" if dtype_info(b.dtype).bits >= 32 else "int32", b)
        return b
