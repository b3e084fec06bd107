"""The state of a translation: blocks under construction, names and what they stand for, variables in storage, exits of loops.

A name that is bound once, or again in a straight line, is a value (`LetStmt`). One that is bound again inside of a branch or a loop,
or read after the block that bound it, needs storage: a local buffer of one element (a slot), which LLVM turns into registers. That is
found out on the way: `Restart` begins the translation anew with one more slot, one more type, one more flag known (`Known`), until
nothing is new.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from ..errors import KernelError, Loc
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import Open, close
from ..ir.buffer import LOCAL, Buffer
from ..ir.dtype import dtype_info
from ..ir.effects import effects
from ..ir.visit import walk_exprs
from ..records import dataclass
from .source import Source
from .values import (
    Complex,
    Record,
    Weak,
    describe,
    is_scalar,
    is_storable,
    merge,
    settle,
    storage_type,
    type_of,
    with_elements,
)

Key = tuple[Any, ...]
_COMPLEX = "complex"  # the form of a variable that is a complex number
SECRET = "#"  # starts the names of variables that the translation adds


class Restart(Exception):
    """Internal: something was learnt that changes what was translated before."""


@dataclass
class Known:
    """What earlier rounds of a translation found out."""

    slots: set[Key] = field(default_factory=set)
    types: dict[Key, str] = field(default_factory=dict)
    forms: dict[Key, Any] = field(default_factory=dict)  # of variables of several parts: how they are put together
    flags: set[Key] = field(default_factory=set)  # flags that something reads
    failing: set[int] = field(default_factory=set)  # calls (ids of nodes) of helpers with assertions


@dataclass(slots=True)
class Binding:
    """What a name stands for, and the block that bound it; gone once that block has ended."""

    value: Any
    block: int
    gone: bool = False


@dataclass(slots=True)
class Loop:
    """A loop around: the flags that leave it or its body. `ends`: what had a value at each break."""

    broken: Key
    skipped: Key
    ends: list[set[Key]] = field(default_factory=list)


class Frame:
    """One function that is translated: the kernel's own, or a helper's at one place of call."""

    def __init__(
        self, source: Source, key: Key, caller: Frame | None = None, called_at: Loc | None = None, outer: Frame | None = None
    ):  # fmt: skip
        self.source = source
        self.outer = outer  # of the function that it is defined in, whose names it reads
        self.key = key
        self.caller = caller
        self.called_at = called_at
        self.names: dict[str, Binding] = {}
        self.loops: list[Loop] = []
        self.returned: Key = (*key, SECRET + "returned")
        self.failed: Key = (*key, SECRET + "failed")
        self.fails = False  # whether an assertion in it may fail
        self.result: Any = None  # where the value of the one return is
        self.result_slots: list[Key] | None = None  # where there are several
        self.result_is_tuple = False
        self.entry = 0  # the block that its body starts in

    def loc(self, node: ast.AST) -> Loc:
        return Loc(self.source.file, getattr(node, "lineno", self.source.tree.lineno))

    def assigns(self) -> frozenset[str]:
        """The names that the function binds itself."""
        return self.source.own


class State:
    """Blocks, names and slots; what statements and expressions are translated with."""

    def __init__(self, known: Known):
        self.known = known
        self.blocks: list[list[S.Stmt | Open]] = [[]]
        self.block_ids = [0]
        self.count = 0
        self.frame: Frame = None  # type: ignore[assignment]
        self.slots: dict[Key, Buffer] = {}
        self.assigned: set[Key] = set()
        self.effects_so_far = 0
        self.node: ast.AST | None = None

    # ---- messages

    def where(self, node: ast.AST | None = None) -> Loc:
        node = node if node is not None else self.node
        return self.frame.loc(node) if node is not None else self.frame.source.loc

    def error(self, message: str, hint: str | None = None, node: ast.AST | None = None) -> KernelError:
        """A KernelError at a line of the function; it says through which calls a helper came in."""
        where = self.where(node)
        frame: Frame | None = self.frame
        while frame is not None and frame.called_at is not None:
            message += f"\n  in {frame.source.name}, called at {frame.called_at}"
            frame = frame.caller
        return KernelError(message, where=where, hint=hint, locate=False)

    @property
    def here(self) -> ast.AST:
        """The node that is being translated."""
        return self.node if self.node is not None else self.frame.source.tree

    # ---- blocks

    def emit(self, s: S.Stmt | Open) -> None:
        self.blocks[-1].append(s)

    @contextmanager
    def block(self) -> Iterator[list[S.Stmt | Open]]:
        """A block inside of the present one; `close` makes a statement of it. Names that it binds end with it."""
        self.count += 1
        mine = self.count
        items: list[S.Stmt | Open] = []
        self.blocks.append(items)
        self.block_ids.append(mine)
        try:
            yield items
        finally:
            self.blocks.pop()
            self.block_ids.pop()
        frame: Frame | None = self.frame
        while frame is not None:
            for b in frame.names.values():
                b.gone = b.gone or b.block == mine
            frame = frame.caller

    @contextmanager
    def branch(self) -> Iterator[list[S.Stmt | Open]]:
        """A block that may not run: what it gives values to is forgotten behind it."""
        before = set(self.assigned)
        with self.block() as items:
            yield items
        self.assigned = before

    # ---- names

    def bind(self, name: str, value: Any, node: ast.AST) -> None:
        """`name = value`."""
        frame, key = self.frame, (*self.frame.key, name)
        if key in self.known.slots:
            self.store(key, value, node)
            return
        old = frame.names.get(name)
        here = self.block_ids[-1]
        if old is not None and not old.gone and old.block != here:
            if not is_storable(old.value) or not is_storable(value):
                raise self.error(
                    f"{name} is {describe(old.value)}, and a branch or a loop makes it {describe(value)}",
                    hint="only numbers and tuples of them can change at run time; use another name",
                    node=node,
                )
            self.needs_slot(key)
        frame.names[name] = Binding(self.held(value, name), here)

    def needs_slot(self, key: Key) -> None:
        self.known.slots.add(key)
        raise Restart

    def held(self, value: Any, name: str) -> Any:
        """A value that stays as it is now, whatever is written later."""
        if isinstance(value, tuple):
            return with_elements(value, [self.held(v, name) for v in value])
        if isinstance(value, Weak):
            return Weak(self.held(value.expr, name))
        if isinstance(value, Complex):
            return Complex(self.held(value.real, name), self.held(value.imag, name))
        if isinstance(value, Record):
            return Record(value.of, self.held(value.indices, name))
        if not isinstance(value, E.Expr) or isinstance(value, (E.Var, E.IntImm, E.FloatImm)):
            return value
        return self.let(name, value)

    def let(self, name: str, value: E.Expr, at: int | None = None) -> E.Var:
        """A variable with a value for the rest of the block (from its `at`-th item on)."""
        var, loc = E.Var(name.strip(SECRET), value.dtype), self.where()
        opened = Open(lambda body: S.LetStmt(var, value, body, loc))
        items = self.blocks[-1]
        items.insert(len(items) if at is None else at, opened)
        return var

    def read(self, name: str, node: ast.AST) -> Any:
        """What a name of the function stands for; raises where it may stand for nothing."""
        key = (*self.frame.key, name)
        if key in self.known.slots:
            if key not in self.assigned:
                raise self.unassigned(name, node)
            return self.value_of(key)
        b = self.frame.names.get(name)
        if b is None:
            raise self.unassigned(name, node)
        if b.gone:
            if not is_storable(b.value):
                raise self.error(
                    f"{name} is {describe(b.value)}, made inside of a branch or a loop that has ended",
                    hint="make it before",
                    node=node,
                )
            self.needs_slot(key)
        return b.value

    def unassigned(self, name: str, node: ast.AST) -> KernelError:
        return self.error(
            f"{name} may have no value here",
            hint=f"give {name} a value on every way to this line, before the branch or the loop",
            node=node,
        )

    # ---- slots

    def slot(self, key: Key, dtype: str) -> Buffer:
        found = self.slots.get(key)
        if found is None:
            name = spoken_name(key)
            found = self.slots[key] = Buffer(name, dtype, (E.IntImm(1),), scope=LOCAL, loc=self.where())
        return found

    def store(self, key: Key, value: Any, node: ast.AST) -> None:
        """A number into a variable that has storage."""
        name = spoken_name(key)
        if key in self.known.forms or isinstance(value, (Complex, tuple)):
            self._store_parts(key, value, node)
            return
        if not is_scalar(value):
            raise self.error(
                f"{name} is a number elsewhere, and {describe(value)} here",
                hint="only numbers can change at run time; use another name",
                node=node,
            )
        t, old = type_of(value), self.known.types.get(key)
        if t == "int" and not -(2**31) <= value < 2**31:
            t = "int64"
        new = t if old is None else merge(old, t)
        if new is None:
            raise self.error(
                f"{name} holds {_spoken(old or t)} elsewhere and {_spoken(t)} here, and neither holds all of the other",
                hint=f"use another name, or convert: {name} = np.float32(...)",
                node=node,
            )
        if new != old:
            self.known.types[key] = new
            if old is not None:
                raise Restart
        buffer = self.slot(key, storage_type(new))
        e = B.cast(buffer.dtype, settle(value) if not isinstance(value, Weak) else value.expr)
        self.emit(S.BufferStore(buffer, e, (E.IntImm(0),), None, self.where(node)))
        self.assigned.add(key)

    def _store_parts(self, key: Key, value: Any, node: ast.AST) -> None:
        """A complex number or a tuple into a variable: each part has storage of its own."""
        name, old = spoken_name(key), self.known.forms.get(key)
        if is_scalar(value) and old == _COMPLEX:
            value = Complex(value, 0.0)
        new = (
            _COMPLEX if isinstance(value, Complex) else (type(value), len(value)) if isinstance(value, tuple) else None
        )
        number = key in self.known.types  # so far
        if new is None or not is_storable(value) or (number and new != _COMPLEX) or (old is not None and old != new):
            was = (
                "a number"
                if number
                else "a complex number"
                if old == _COMPLEX
                else f"a tuple of {old[1]}"
                if old
                else "another value"
            )
            raise self.error(
                f"{name} is {was} elsewhere, and {describe(value)} here",
                hint="a variable keeps its form: use another name",
                node=node,
            )
        self.known.forms[key] = new
        if number:  # what was stored before was a real number
            del self.known.types[key]
            raise Restart
        for k, part in enumerate(_parts(value)):
            self.store((*key, f"{name}_{k}"), part, node)
        self.assigned.add(key)

    def value_of(self, key: Key) -> Any:
        """What a variable in storage holds."""
        form = self.known.forms.get(key)
        if form is None:
            return self.load(key)
        name = spoken_name(key)
        if form == _COMPLEX:
            return Complex(*[self.value_of((*key, f"{name}_{k}")) for k in range(2)])
        make = getattr(form[0], "_make", form[0])
        return make([self.value_of((*key, f"{name}_{k}")) for k in range(form[1])])

    def load(self, key: Key) -> E.Expr:
        return E.BufferLoad(self.slot(key, storage_type(self.known.types[key])), (E.IntImm(0),))

    # ---- flags: whether the function, a loop or a turn of it has been left

    def raise_flag(self, key: Key, value: bool, node: ast.AST) -> None:
        """Set a flag, where something reads it."""
        if key in self.known.flags:
            self.store(key, value, node)

    def lowered(self, keys: list[Key], node: ast.AST) -> E.Expr:
        """That none of the flags is set."""
        for key in keys:
            if key not in self.known.flags:
                self.known.flags.add(key)
                self.known.types[key] = "bool"
                raise Restart
        return B.all_of(*[B.logical_not(self.load(key)) for key in keys])

    # ---- order

    def ordered(self, *evaluate: Any) -> list[Any]:
        """The values of functions called in order; what an earlier one reads from memory is read before a later one writes."""
        values: list[Any] = []
        marks: list[int] = []
        for f in evaluate:
            before = self.effects_so_far
            values.append(f())
            marks.append(len(self.blocks[-1]))
            if self.effects_so_far == before:
                continue
            for k in range(len(values) - 2, -1, -1):
                v = values[k]
                if isinstance(v, E.Expr) and reads_memory(v):
                    values[k] = self.let("before", v, marks[k])
                    marks = [m + 1 if j >= k else m for j, m in enumerate(marks)]
        return values

    def effect(self, value: E.Expr, name: str = "old") -> E.Expr:
        """A call that does something, done here; its value."""
        self.effects_so_far += 1
        return self.let(name, value)

    def perform(self, s: S.Stmt) -> None:
        """A statement that writes memory."""
        self.effects_so_far += 1
        self.emit(s)

    def body(self, items: list[S.Stmt | Open]) -> S.Stmt:
        return close(items)

    def branch_on(
        self, test: E.Expr, yes: list[S.Stmt | Open], no: list[S.Stmt | Open], node: ast.AST | None = None
    ) -> None:
        """An `if` of what was translated for both of its sides."""
        if yes:
            self.emit(S.IfThenElse(test, close(yes), close(no) if no else None, self.where(node)))
        elif no:
            self.emit(S.IfThenElse(B.logical_not(test), close(no), None, self.where(node)))


def _parts(value: Any) -> tuple[Any, ...]:
    return (_as_part(value.real), _as_part(value.imag)) if isinstance(value, Complex) else tuple(value)


def _as_part(v: Any) -> Any:
    """A part of a complex number is a float."""
    return float(v) if isinstance(v, int) else v


def spoken_name(key: Key) -> str:
    """The name of a variable: what it is of (a loop's node) comes behind the name of those that the translation adds."""
    return str(key[-1] if isinstance(key[-1], str) else key[-2]).strip(SECRET)


def reads_memory(e: E.Expr) -> bool:
    """Whether an expression's value depends on memory."""
    return any(type(x) is E.BufferLoad for x in walk_exprs(e)) or bool(effects(e).accesses)


def may_fault(e: E.Expr) -> bool:
    """Whether an expression must not be evaluated where the program does not ask for it."""
    for x in walk_exprs(e):
        if type(x) is E.BufferLoad and not isinstance(x.indices[-1], E.IntImm):
            return True
        if type(x) is E.BufferLoad and x.buffer.scope != LOCAL:
            return True
        if type(x) in (E.FloorDiv, E.FloorMod, E.Div, E.Mod) and not isinstance(x.b, (E.IntImm, E.FloatImm)):  # type: ignore[attr-defined]
            if not dtype_info(x.dtype).is_float:
                return True
    return False


def _spoken(t: str) -> str:
    return {"int": "a whole number", "float": "a float"}.get(t, t)
