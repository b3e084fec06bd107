"""The te variables that stand for named sizes: one a name."""

from __future__ import annotations

from ..ir import Var

_variables: dict[str, Var] = {}
names: dict[int, str] = {}  # by the variable's identity; variables stay


def variable(name: str) -> Var:
    """The te variable of a dimension; one a name."""
    v = _variables.get(name)
    if v is None:
        safe = "".join(ch if ch.isalnum() and ch.isascii() else "_" for ch in name)
        made = Var(safe if safe[:1].isalpha() else f"n_{safe}", "int32", True)
        v = _variables.setdefault(name, made)  # another thread may have been first
        names[id(v)] = name
    return v


def adopt(v: Var) -> None:
    """Make a variable of a user's own te program a named size: by its name, or by that and a number where another has the name."""
    if id(v) in names:
        return
    name, k = v.name, 1
    while _variables.setdefault(name, v) is not v:
        k += 1
        name = f"{v.name}_{k}"
    names[id(v)] = name
