"""Expressions of sizes as postfix code, which c/sizes.c evaluates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.modules.package import damaged
from .data import Data, Word

_CONST, _ENV = 0, 1
_BINARY = {
    name: k
    for k, name in enumerate(
        ("add", "sub", "mul", "floordiv", "floormod", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or"), 2
    )
}
_SELECT = 17


class Exprs:
    """The environment's names, and the expressions over them that were asked for."""

    def __init__(self, least: Callable[[str], int] = lambda name: 0) -> None:
        self.names: dict[str, int] = {}
        self._least = least
        self._known: dict[str, int] = {}
        self._begin = [0]
        self._code: list[int] = []

    def name(self, name: str) -> int:
        """The number of a name in the environment."""
        return self.names.setdefault(name, len(self.names))

    def add(self, e: Any) -> int:
        """The number of an expression."""
        key = repr(e)
        if key not in self._known:
            self._known[key] = len(self._begin) - 1
            self._emit(e)
            self._begin.append(len(self._code))
        return self._known[key]

    def _emit(self, e: Any) -> None:
        if isinstance(e, str):
            self._code += [_ENV, self.name(e)]
        elif isinstance(e, (list, tuple)):
            op, *args = e
            for a in args:
                self._emit(a)
            if op == "select" and len(args) == 3:
                self._code.append(_SELECT)
            elif op in _BINARY and len(args) == 2:
                self._code.append(_BINARY[op])
            else:
                raise damaged(f"{op!r} is no operation on sizes")
        else:
            self._code += [_CONST, int(e)]

    def words(self, data: Data) -> list[Word]:
        """The members of `tec_exprs`. No name may be asked for after it."""
        return [
            len(self.names), data.texts(list(self.names)), data.numbers(self._least(n) for n in self.names),
            len(self._begin) - 1, data.numbers(self._begin), data.numbers(self._code),
        ]  # fmt: skip


def begins(lists: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Where each list begins in all of them one behind the other, with the end; and that."""
    begin, flat = [0], list[int]()
    for x in lists:
        flat += x
        begin.append(len(flat))
    return begin, flat
