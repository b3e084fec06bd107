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
