"""Statements of a kernel to loop IR: assignments, branches, loops, and the ways out of them.

`return`, `break` and `continue` become structure: what follows a branch that always leaves goes into the other branch; else a flag
says that something was left, and what follows asks it. So every pass sees loops and branches alone.
"""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from .exits import EXITS, leaves
from .frames import SECRET, Key, Loop, reads_memory
from .stores import Stores
from .values import Array, Beside, Records, Turns, as_dtype, describe, is_number, is_storable, settle

_REFUSED: dict[type, tuple[str, str]] = {
    ast.With: ("with", "kernels have no context managers"),
    ast.Try: ("try", "kernels have no exceptions: test the condition with if"),
    ast.Raise: ("raise", "kernels have no exceptions: use assert, which comes back with the thread and the line"),
    ast.Import: ("import", "import outside of the kernel"),
    ast.ImportFrom: ("import", "import outside of the kernel"),
    ast.FunctionDef: ("a decorator inside of a kernel", "leave it out: functions are inlined as they stand"),
    ast.AsyncFunctionDef: ("a function inside of a kernel", "define it outside"),
    ast.ClassDef: ("a class inside of a kernel", "use numbers, tuples and arrays"),
    ast.Global: ("global", "write to an array that is an argument"),
    ast.Nonlocal: ("nonlocal", "write to an array that is an argument"),
    ast.Delete: ("del", "kernels free nothing: leave it out"),
    ast.Match: ("match", "use if and elif"),
    ast.AsyncFor: ("async", "kernels have no coroutines"),
    ast.AsyncWith: ("async", "kernels have no coroutines"),
}


class Statements(Stores):
    """Handlers for statements; expressions are `Expressions`'."""

    def statements(self, body: list[ast.stmt]) -> None:
        """The statements of a block; what cannot be reached is left out."""
        for k, s in enumerate(body):
            self.node = s
            rest = body[k + 1 :]
            if isinstance(s, EXITS):
                self.exit(s)
                return
            if isinstance(s, ast.If):
                if self.choice_of(s, rest):
                    return
            else:
                self.statement(s)
            left = self.exits(s)
            if rest and left:
                self.unless_left(left, s, partial(self.statements, rest))
                return

    def choice_of(self, s: ast.If, rest: list[ast.stmt]) -> bool:
        """An `if`, and maybe what follows it; whether that is so."""
        test = self.condition(s.test)
        if isinstance(test, bool):
            self.statements([*(s.body if test else s.orelse), *rest])
            return True
        if self.may_fail(s.test):
            self.unless_left({ast.Return}, s, lambda: self.branches_and_rest(test, s, rest))
            return True
        return self.branches_and_rest(test, s, rest, False)

    def branches_and_rest(self, test: E.Expr, s: ast.If, rest: list[ast.stmt], always: bool = True) -> bool:
        """The branches, and what follows where one of them always leaves (or `always`)."""
        if rest and self.exits(s) and (leaves(s.body) or leaves(s.orelse)):
            then = s.body if leaves(s.body) else [*s.body, *rest]
            orelse = s.orelse if leaves(s.orelse) else [*s.orelse, *rest]
            self.branches(test, then, orelse, s)
            return True
        self.branches(test, s.body, s.orelse, s)
        if always and rest:
            left = self.inner_exits([*s.body, *s.orelse])
            if left:
                self.unless_left(left, s, lambda: self.statements(rest))
            else:
                self.statements(rest)
        return always

    # ---- statements

    def statement(self, s: ast.stmt) -> None:
        handler = _HANDLERS.get(type(s))
        if handler is None:
            what, hint = _REFUSED.get(type(s), (type(s).__name__.lower(), ""))
            raise self.error(f"{what} is not in the language of kernels", hint=hint or None, node=s)
        getattr(self, handler)(s)

    # ---- ways out

    def exit(self, s: ast.stmt) -> None:
        frame = self.frame
        if isinstance(s, ast.Return):
            self.give_back(s)
            self.raise_flag(frame.returned, True, s)
        elif not frame.loops:
            raise self.error(
                f"{type(s).__name__.lower()} outside of a loop",
                node=s,
                hint="break and continue stand in a for or a while",
            )
        elif isinstance(s, ast.Break):
            frame.loops[-1].ends.append(set(self.assigned))
            self.raise_flag(frame.loops[-1].broken, True, s)
        else:
            self.raise_flag(frame.loops[-1].skipped, True, s)

    def give_back(self, s: ast.Return) -> None:
        """`return`: of the kernel, or of a function that is translated in place."""
        frame = self.frame
        value = None if s.value is None else self.expr(s.value)
        if frame.caller is None:
            if value is not None:
                raise self.error(
                    f"a kernel returns nothing, and this one returns {describe(value)}",
                    hint="write results to an array that is an argument",
                    node=s,
                )
            return
        if value is None:
            return
        if frame.result_slots is None and self.block_ids[-1] == frame.entry:
            frame.result = self.held(value, frame.source.name)  # the only one that is met
            return
        slots = frame.result_slots = frame.result_slots or []
        parts = value if isinstance(value, tuple) else (value,)
        for k, part in enumerate(parts):
            if not is_storable(part):
                raise self.error(
                    f"a function with several returns gives numbers, not {describe(part)}",
                    node=s,
                    hint="return numbers, or tuples of numbers",
                )
            key = (*frame.key, f"{SECRET}{frame.source.name}{k}")
            if key not in slots:
                slots.append(key)
            self.store(key, part, s)
        if len(slots) != len(parts) or (
            slots and frame.result_is_tuple != isinstance(value, tuple) and frame.result is True
        ):
            raise self.error(
                "returns give different numbers of values",
                node=s,
                hint="each return of a function gives as many values",
            )
        frame.result, frame.result_is_tuple = True, isinstance(value, tuple)

    # ---- assignments

    def assign(self, s: ast.Assign) -> None:
        value = self.expr(s.value)
        if len(s.targets) > 1:
            value = self.held(value, "value")
        for t in s.targets:
            self.put(t, value, s)

    def annotated(self, s: ast.AnnAssign) -> None:
        if s.value is None:
            raise self.error("a name without a value", hint="give it one: x: np.float32 = 0", node=s)
        dtype = as_dtype(self.expr(s.annotation))
        if dtype is None:
            raise self.error("the annotation is no type of numbers", hint="x: np.float32 = 0", node=s)
        self.put(s.target, B.cast(dtype, settle(self.number(self.expr(s.value), "the value"))), s)

    def augmented(self, s: ast.AugAssign) -> None:
        if isinstance(s.target, ast.Name):
            read = ast.copy_location(ast.Name(s.target.id, ast.Load()), s.target)
            old, value = self.ordered(lambda: self.expr(read), lambda: self.expr(s.value))
            self.put(s.target, self.operate(s.op, old, value, s), s)
        elif isinstance(s.target, (ast.Subscript, ast.Attribute)):
            array, index = self.place(s.target)
            if index is None:
                self.put_view(array, self.expr(s.value), s, s.op)
                return
            load = self.element(array, index, s.target)
            value = self.expr(s.value)
            self.put_element(array, index, self.operate(s.op, load, value, s), s)
        else:
            raise self.error(
                "this cannot be assigned to", node=s, hint="assign to a name, an element a[i], or a field s.x"
            )

    def put(self, target: ast.expr, value: Any, s: ast.stmt) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value, s)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if any(isinstance(t, ast.Starred) for t in target.elts):
                raise self.error("a starred name", hint="name each element", node=target)
            if isinstance(value, Array):
                value = self.elements_of(value, len(target.elts), s)
            if not isinstance(value, tuple):
                raise self.error(
                    f"{describe(value)} is taken apart into {len(target.elts)} names",
                    node=s,
                    hint="tuples and rows of arrays are taken apart",
                )
            if len(value) != len(target.elts):
                raise self.error(
                    f"{len(value)} values for {len(target.elts)} names", node=s, hint="as many names as values"
                )
            for t, v in zip(target.elts, self.held(value, "part")):
                self.put(t, v, s)
        elif isinstance(target, (ast.Subscript, ast.Attribute)):
            held = [value]
            _, (array, index) = self.ordered(lambda: held[0], lambda: self.place(target))
            self.put_element(array, index, value, s)
        else:
            raise self.error(
                "this cannot be assigned to", node=s, hint="assign to a name, an element a[i], or a field s.x"
            )

    # ---- branches

    def branches(self, test: E.Expr, then: list[ast.stmt], orelse: list[ast.stmt], s: ast.stmt) -> None:
        before = set(self.assigned)
        with self.block() as yes:
            self.statements(then)
            then_set = set(self.assigned)
            after_then = then_set if not leaves(then) else None
        self.assigned = set(before)
        with self.block() as no:
            self.statements(orelse)
            else_set = set(self.assigned)
            after_else = else_set if not leaves(orelse) else None
        if after_then is None and after_else is None:
            self.assigned = then_set & else_set
        elif after_then is None or after_else is None:
            self.assigned = after_then or after_else or before
        else:
            self.assigned = after_then & after_else
        self.node = s
        self.branch_on(test, yes, no, s)

    # ---- loops

    def while_loop(self, s: ast.While) -> None:
        """`while`, whose condition may need statements of its own in each turn."""
        if s.orelse:
            raise self.error("else of a loop", hint="set a variable where the loop is left, and test it after", node=s)
        left = self.inner_exits(s.body) | (self.exits(s) & {ast.Return})
        with self.branch() as trial:  # the condition may need statements of its own, and may be known
            test = self.condition(s.test)
        if test is False:
            return
        forever = test is True
        loop = self._open_loop(s, left)
        flags = self._loop_flags(loop, left)
        loc = self.where(s)
        entered = set(self.assigned)
        if forever or not trial:
            going = self.condition(s.test) if not forever else B.const(True)
            with self.branch() as items:
                self._turn(loop, left, s)
            cond = B.all_of(going, self.lowered(flags, s)) if flags else going
            self.emit(S.While(cond, self.body(items), loc))
        else:
            key = (*self.frame.key, f"{SECRET}going", id(s))
            self.known.flags.add(key)
            self.known.types[key] = "bool"
            self.store(key, True, s)
            with self.branch() as items:
                self.store(key, self.condition(s.test), s)
                with self.branch() as inner:
                    self._turn(loop, left, s)
                self.emit(S.IfThenElse(self.load(key), self.body(inner), None, loc))
            cond = B.all_of(self.load(key), self.lowered(flags, s)) if flags else self.load(key)
            self.emit(S.While(cond, self.body(items), loc))
        self.frame.loops.pop()
        self.assigned = entered
        if forever and loop.ends:
            self.assigned = set.intersection(*loop.ends)

    def _open_loop(self, s: ast.stmt, left: set[type]) -> Loop:
        key = self.frame.key
        loop = Loop((*key, f"{SECRET}broken", id(s)), (*key, f"{SECRET}skipped", id(s)))
        self.frame.loops.append(loop)
        if ast.Break in left:
            self.raise_flag(loop.broken, False, s)
        return loop

    def _loop_flags(self, loop: Loop, left: set[type]) -> list[Key]:
        return [k for k, kind in ((loop.broken, ast.Break), (self.frame.returned, ast.Return)) if kind in left]

    def _turn(self, loop: Loop, left: set[type], s: ast.While | ast.For) -> None:
        """One turn of a loop's body."""
        if ast.Continue in left:
            self.raise_flag(loop.skipped, False, s)
        self.statements(s.body)
        self.node = s

    def for_loop(self, s: ast.For) -> None:
        if s.orelse:
            raise self.error("else of a loop", hint="set a variable where the loop is left, and test it after", node=s)
        what = self.iterated(s.iter)
        if isinstance(what, tuple):
            self._written_out(s, what)
            return
        left = self.inner_exits(s.body)
        if left & {ast.Break, ast.Return}:
            self._range_with_exits(s, what, left)
        else:
            self._plain_range(s, what, left)

    def _written_out(self, s: ast.For, values: tuple[Any, ...]) -> None:
        """A loop over what is known at compile time: its body once for each."""
        left = self.inner_exits(s.body)
        loop = self._open_loop(s, left)
        flags = self._loop_flags(loop, left)
        outer_key = self.frame.key
        for v in values:
            if not flags:
                self.put(s.target, v, s)
                self._static_turn(loop, left, s)
                continue
            with self.branch() as items:
                self.put(s.target, v, s)
                self._static_turn(loop, left, s)
            self.emit(S.IfThenElse(self.lowered(flags, s), self.body(items), None, self.where(s)))
        self.frame.key = outer_key
        self.frame.loops.pop()

    def _static_turn(self, loop: Loop, left: set[type], s: ast.For) -> None:
        if ast.Continue in left:
            self.raise_flag(loop.skipped, False, s)
        self.statements(s.body)
        self.node = s

    def _turn_value(self, what: Turns, number: E.Expr, s: ast.For) -> Any:
        """What the loop's name stands for: the number, or that element of what the loop runs over."""
        if isinstance(what.of, Beside):
            return tuple([self._turn_value(p, self._number_of(p, number), s) for p in what.of.parts])
        if isinstance(what.of, Records):
            return self.record(what.of, number, s.iter)
        return number if what.of is None else self.element(what.of, number, s.iter)

    def _number_of(self, what: Turns, turn: E.Expr) -> E.Expr:
        """The number of a range in a turn that is counted from 0."""
        if what.of is not None:
            return turn
        start, step = settle(what.start), settle(what.step)
        dtype = B.promote(B.promote(start.dtype, step.dtype), turn.dtype)
        first, by, k = (B.cast(dtype, x) for x in (start, step, turn))
        return B.add(first, B.mul(k, by))

    def _plain_range(self, s: ast.For, what: Turns, left: set[type]) -> None:
        step = what.step
        loop = self._open_loop(s, left)
        first, extent = self._extent(what.start, what.stop, step, s)
        sure = isinstance(extent, E.IntImm) and extent.value > 0
        name = s.target.id if isinstance(s.target, ast.Name) and what.of is None else "i"
        nonneg = isinstance(first, E.IntImm) and first.value >= 0
        before = set(self.assigned)
        unit = is_number(step) and step == 1
        var = E.Var(name, extent.dtype, nonneg if unit else True)
        with self.block() as items:
            value: E.Expr = var
            if not unit:
                value = B.add(first, B.mul(var, settle(step)))
            self.put(s.target, self._turn_value(what, value, s), s)
            self._turn(loop, left, s)
            after = before | self.assigned
        self.assigned = after if sure else before
        low = first if unit else B.const(0, extent.dtype)
        self.frame.loops.pop()
        body = self.body(items)
        self.emit(S.For(var, B.cast(extent.dtype, low), extent, body, what.kind, what.thread))

    def _extent(self, start: Any, stop: Any, step: Any, s: ast.AST) -> tuple[E.Expr, E.Expr]:
        """The first value and the number of turns of a range."""
        lo, hi = B.match(settle(start), settle(stop))
        by = settle(step)
        dtype = B.promote(lo.dtype, by.dtype) if not is_number(step) else lo.dtype
        lo, hi = (self._bound(B.cast(dtype, x), s) for x in (lo, hi))
        if is_number(step):
            n = int(step)
            if n == 0:
                raise self.error("range() in steps of 0", node=s, hint="a step is not 0")
            if n == 1:
                return lo, B.sub(hi, lo)
            if n > 0:
                return lo, B.floordiv(B.add(B.sub(hi, lo), n - 1), B.const(n, dtype))
            return lo, B.floordiv(B.add(B.sub(lo, hi), -n - 1), B.const(-n, dtype))
        by = self._bound(B.cast(dtype, by), s)
        if isinstance(by, E.Var) and by.is_size:  # not negative: what grids and blocks have
            return lo, B.floordiv(B.sub(B.add(B.sub(hi, lo), by), 1), by)
        up = B.compare("gt", by, 0)
        span, size = B.select(up, B.sub(hi, lo), B.sub(lo, hi)), B.select(up, by, B.neg(by))
        # Python raises where the step is 0; here there is no turn then.
        safe = B.maximum(size, B.const(1, dtype))
        turns = B.floordiv(B.sub(B.add(span, safe), 1), safe)
        return lo, B.select(B.compare("eq", by, 0), B.const(0, dtype), turns)

    def _bound(self, e: E.Expr, s: ast.AST) -> E.Expr:
        """A bound of a loop, evaluated once."""
        return self.let("bound", e) if reads_memory(e) else e

    def _range_with_exits(self, s: ast.For, what: Turns, left: set[type]) -> None:
        """A loop that may be left: a counter, and flags in the condition."""
        loc = self.where(s)
        loop = self._open_loop(s, left)
        flags = self._loop_flags(loop, left)
        first, extent = self._extent(what.start, what.stop, what.step, s)
        extent = self.let("turns", extent) if not isinstance(extent, (E.IntImm, E.Var)) else extent
        key = (*self.frame.key, f"{SECRET}turn", id(s))
        if key not in self.known.types:
            self.known.types[key] = extent.dtype
        before = set(self.assigned)
        self.store(key, B.const(0, extent.dtype), s)
        with self.block() as items:
            turn = self.let("turn", self.load(key))
            value = B.add(first, B.mul(turn, B.cast(extent.dtype, settle(what.step))))
            self.put(s.target, self._turn_value(what, value, s), s)
            self._turn(loop, left, s)
            self.store(key, B.add(turn, 1), s)
        cond = B.all_of(B.compare("lt", self.load(key), extent), self.lowered(flags, s))
        self.emit(S.While(cond, self.body(items), loc))
        self.frame.loops.pop()
        self.assigned = before

    def iterated(self, node: ast.expr) -> Any:
        """What a loop runs over: `Turns`, or a tuple of values."""
        raise NotImplementedError

    # ---- the rest

    def expression(self, s: ast.Expr) -> None:
        if isinstance(s.value, ast.Constant):
            return  # a docstring, ...
        if isinstance(s.value, ast.IfExp):  # print(x) if c else None
            then, orelse = (ast.copy_location(ast.Expr(v), v) for v in (s.value.body, s.value.orelse))
            self.choice_of(ast.copy_location(ast.If(s.value.test, [then], [orelse]), s), [])
            return
        value = self.expr(s.value)
        if (
            isinstance(value, E.Expr)
            and not isinstance(value, (E.Var, E.IntImm, E.FloatImm))
            and not isinstance(s.value, ast.Call)
        ):
            raise self.error("a value that nothing takes", hint="assign it, or leave it out", node=s)

    def assertion(self, s: ast.Assert) -> None:
        if not __debug__:  # as in Python: `python -O` leaves assertions out
            return
        test = self.condition(s.test)
        if test is True:
            return
        failed = B.const(True) if test is False else B.logical_not(test)
        with self.branch() as items:
            self.output.failed(self, s)
            self.fail(s)
        self.emit(S.IfThenElse(failed, self.body(items), None, self.where(s)))

    def nothing(self, s: ast.stmt) -> None:
        """pass"""


_HANDLERS = {
    ast.Assign: "assign", ast.AnnAssign: "annotated", ast.AugAssign: "augmented", ast.While: "while_loop", ast.For: "for_loop",
    ast.Expr: "expression", ast.Assert: "assertion", ast.Pass: "nothing",
}  # fmt: skip
