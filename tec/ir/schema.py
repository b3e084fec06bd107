"""What the nodes of the IR are made of, read off their declarations: which fields are expressions, statements, plain facts.

A node class says it once, by the annotations of its fields, and by `binds` where it names something anew. From here come the functions that
rebuild a node from rewritten children (`tec.ir.visit`) and those that renew what it names (`renewers`), written out for each shape of node so
that no loop over fields is left in them, and what counts where two nodes are compared (`tec.ir.structural`). A new node needs none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter, is_
from typing import Any

from ..records import dataclass
from . import expr as E
from . import stmt as S

# Annotation: what the field holds, and whether it is a tuple of them or may be None.
_ROLES = {
    "Expr": ("expr", "one"), "tuple[Expr, ...]": ("expr", "many"), "Expr | None": ("expr", "maybe"),
    "Stmt": ("stmt", "one"), "tuple[Stmt, ...]": ("stmt", "many"), "Stmt | None": ("stmt", "maybe"),
    "Var": ("var", "one"), "tuple[Var, ...]": ("var", "many"), "Buffer": ("buffer", "one"), "tuple[Buffer, ...]": ("buffer", "many"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a node is made with. `holds`: "expr", "stmt", "var", "buffer" or "fact"; `how`: "one", "many" (a tuple) or "maybe" (or None)."""

    name: str
    holds: str = "fact"
    how: str = "one"


@cache
def fields_of(cls: type) -> tuple[Field, ...]:
    """The fields that `cls` is made with, in the order of its constructor."""
    if not is_dataclass(cls):  # arithmetic and comparisons: operands alone
        return tuple(Field(name, "expr") for name in cls.__match_args__)  # type: ignore[attr-defined]
    return tuple(Field(f.name, *_ROLES.get(str(f.type), ("fact",))) for f in fields(cls) if f.init)


@cache
def compared(cls: type) -> tuple[str, ...]:
    """The fields that tell two nodes apart: all but the place in the user's program."""
    return tuple(f.name for f in fields_of(cls) if f.name != "loc")


@cache
def outside(cls: type) -> tuple[str, ...]:
    """The fields that stand outside of what a node binds: all that are compared, but for `binds` and the body."""
    return tuple(n for n in compared(cls) if n not in (*cls.binds, "body"))  # type: ignore[attr-defined]


def _leaves(base: type) -> list[type]:
    """The classes of nodes below `base`."""
    below: list[type] = base.__subclasses__()
    if below:
        return [c for b in below for c in _leaves(b)]
    # A dataclass with slots is made anew; what it was made from is no node.
    return [base] if vars(sys.modules[base.__module__]).get(base.__name__) is base else []


EXPRS: tuple[type, ...] = tuple(_leaves(E.Expr))
STMTS: tuple[type, ...] = tuple(_leaves(S.Stmt))
FIELDS: dict[type, tuple[Field, ...]] = {cls: fields_of(cls) for cls in (*EXPRS, *STMTS)}


def map_tuple(items: tuple[Any, ...], f: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The items with `f` applied; the same tuple where none changed."""
    if len(items) == 1:  # most indices
        (item,) = items
        one = f(item)
        return items if one is item else (one,)
    out = tuple(map(f, items))
    return items if all(map(is_, items, out)) else out


def _source(own: tuple[Field, ...], name: str, functions: dict[str, str]) -> str:
    """A function that rebuilds a node of these fields; `functions` names the one for each kind of child."""
    return _rebuilding(own, f"def {name}(x, {', '.join(functions.values())}):", functions, own)


def _rebuilding(own: tuple[Field, ...], head: str, functions: dict[str, str], order: Sequence[Field]) -> str:
    """The function below `head`: it rewrites the fields that hold what `functions` names, in `order`, and rebuilds a node where one changed."""
    lines = [head]
    children = [f for f in order if f.holds in functions]
    for f in children:
        call = {
            "one": "{g}(x.{n})",
            "many": "map_tuple(x.{n}, {g})",
            "maybe": "{g}(x.{n}) if x.{n} is not None else None",
        }
        lines.append(f"    {f.name}_ = " + call[f.how].format(g=functions[f.holds], n=f.name))
    if not children:
        return "\n".join([*lines, "    return x"])
    same = " and ".join(f"{f.name}_ is x.{f.name}" for f in children)
    made = ", ".join(f"{f.name}_" if f in children else f"x.{f.name}" for f in own)
    return "\n".join([*lines, f"    return x if {same} else type(x)({made})"])


def rebuilders(classes: tuple[type, ...], functions: dict[str, str]) -> dict[type, Callable[..., Any]]:
    """For each class the function that rebuilds its nodes from rewritten children, and gives the node itself where none changed."""
    shapes: dict[tuple[Field, ...], str] = {}
    for cls in classes:
        shapes.setdefault(fields_of(cls), f"map_{len(shapes)}")
    space: dict[str, Any] = {"map_tuple": map_tuple}
    exec("\n".join(_source(own, name, functions) for own, name in shapes.items()), space)
    return {cls: space[shapes[fields_of(cls)]] for cls in classes}


def listers(classes: tuple[type, ...], kind: str) -> dict[type, Callable[[Any], tuple[Any, ...]]]:
    """For each class the function that gives a node's children of a kind ("expr", "stmt"), in order."""
    out: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
    for cls in classes:
        parts = {"one": "x.{n},", "many": "*x.{n},", "maybe": "*(() if x.{n} is None else (x.{n},)),"}
        own = [parts[f.how].format(n=f.name) for f in fields_of(cls) if f.holds == kind]
        names = tuple(f.name for f in fields_of(cls) if f.holds == kind)
        hows = [f.how for f in fields_of(cls) if f.holds == kind]
        if hows == ["many"] or (len(hows) > 1 and set(hows) == {"one"}):
            out[cls] = attrgetter(*names)  # the tuple that is wanted, without a call of Python
        else:
            out[cls] = eval(f"lambda x: ({' '.join(own)})") if own else no_children
    return out


def no_children(x: Any) -> tuple[Any, ...]:
    """Of a class that has none; told apart by identity."""
    return ()


def walkers(
    classes: tuple[type, ...], calls: dict[str, str], **names: Callable[..., Any]
) -> dict[type, Callable[..., None]]:
    """For each class the function (node, walk) that makes a call for each of the node's children, in order. calls: by kind of child, the call
    as text, in which `{}` is the child. names: what the calls name. No closure is made to walk a tree: walks are many, and closures that call
    themselves are cycles, which only the garbage collector frees."""
    shapes: dict[tuple[Field, ...], str] = {}
    for cls in classes:
        shapes.setdefault(fields_of(cls), f"walk_{len(shapes)}")
    source = []
    for own, name in shapes.items():
        source += [f"def {name}(x, walk):", "    pass"]
        for f in own:
            if f.holds in calls:
                before = {
                    "one": "    ",
                    "many": f"    for y in x.{f.name}: ",
                    "maybe": f"    if x.{f.name} is not None: ",
                }
                source.append(before[f.how] + calls[f.holds].format("y" if f.how == "many" else f"x.{f.name}"))
    exec("\n".join(source), names)
    return {cls: names[shapes[fields_of(cls)]] for cls in classes}


def renewers(classes: tuple[type, ...]) -> dict[type, Callable[[Any, Any], Any]]:
    """For each class a function (node, c) that copies a node whose names are renewed; the node itself where nothing changed. `c` has
    `expr` and `stmt` for children, `new_var` and `new_buffer` for what the node binds, `var` and `buffer` for what it names. What stands
    outside of the body is seen to before anything is bound."""
    out = {}
    for cls in classes:
        own = fields_of(cls)
        steps = [Field(f.name, f"new_{f.holds}" if f.name in cls.binds else f.holds, f.how) for f in own]  # type: ignore[attr-defined]
        rank = {"expr": 0, "new_var": 1, "new_buffer": 1, "stmt": 2, "var": 3, "buffer": 3}
        order = sorted(steps, key=lambda f: rank.get(f.holds, 4))
        space: dict[str, Any] = {"map_tuple": map_tuple}
        exec(_rebuilding(tuple(steps), "def renew(x, c):", {k: f"c.{k}" for k in rank}, order), space)
        out[cls] = space["renew"]
    return out
