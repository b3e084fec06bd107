"""The symbolic sizes of a fused group, under names of its own, so that groups that are equal but for names share a function.

A function takes the numbers that its shapes depend on as arguments after its tensors. Where names occur only as one product (batch * seq,
rows of a flattened matrix), the product is one number: loops over it are then loops over a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from ..ops.dim_bounds import Empty
from ..ops.dims import Dim, Size, data_of, evaluate
from ..ops.guards import Guard
from ..records import dataclass
from .passes.fuse import FusedGroup


@dataclass
class GroupSizes:
    """`names` are the function's own, `values` what is given for them (plain data), `env` how the network's names become them."""

    names: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    products: list[Size] = field(default_factory=list)
    env: dict[str, Size] = field(default_factory=dict)

    @property
    def back(self) -> dict[str, Size]:
        """What the function's names stand for in the network."""
        return dict(zip(self.names, self.products))

    def own_guards(self, guards: list[Guard]) -> list[Guard]:
        """The network's conditions as the function's, those that are on its sizes."""
        if any(not isinstance(x, Dim) for x in self.env.values()):
            return []  # names that occur as a product alone
        return [Guard(self.own(g.size), g.what) for g in guards if g.size.names() <= set(self.env)]

    def bound(self, name: str, value: int) -> GroupSizes:
        """The same function with a number for one of its own names, which it still takes."""
        return replace(self, env=evaluate(self.env, {name: value}))

    def own(self, x: Any) -> Any:
        """Shapes, types and attributes in the function's own names."""
        return evaluate(x, self.env) if self.env else x


def _dims(x: Any) -> Iterator[Dim]:
    """The symbolic sizes in a shape or an attribute."""
    if isinstance(x, Dim):
        yield x
    elif isinstance(x, (tuple, list)):
        for y in x:
            yield from _dims(y)


def _monomials(d: Any) -> Iterator[tuple[Any, ...]]:
    """The products of names in a size, and in the sizes that its quotients and rests are made of."""
    for m, _ in d.terms if isinstance(d, Dim) else ():
        yield m
        for a in m:
            if not isinstance(a, str):
                yield from _monomials(a[1])
                yield from _monomials(a[2])


def sizes_of_group(*groups: FusedGroup) -> GroupSizes:
    """Own names for the symbolic sizes in the types and attributes of a group, or of several that one function computes."""
    nodes = [n for g in groups for n in g.nodes]
    held = [x for n in nodes for x in (*(v.shape for v in (*n.inputs, *n.outputs)), *n.attrs.values())]
    dims = dict.fromkeys(_dims([*held, *(capacity for g in groups for _, capacity in g.rows.values())]))
    found = GroupSizes()
    if not dims:
        return found
    monomials = [m for d in dims for m in _monomials(d)]
    names = list(dict.fromkeys(a for m in monomials for a in m if isinstance(a, str)))
    for name in names:
        if name in found.env:
            continue
        together = _always_with(name, monomials)
        # Functions are told apart by what they may count on: a size of another name may be 0.
        empty = any(isinstance(other, Empty) for other in together)
        own = Empty(f"z{len(found.names)}") if empty else f"n{len(found.names)}"
        total: Size = 1
        for k, other in enumerate(together):
            found.env[other] = Dim(own) if k == 0 else 1
            total = total * Dim(other)
        found.names.append(own)
        found.values.append(data_of(total))
        found.products.append(total)
    return found


def _always_with(name: str, monomials: list[tuple[Any, ...]]) -> list[str]:
    """The names that occur once in every product that `name` is in, and nowhere else, itself among them."""
    holding = [m for m in monomials if name in m]
    if any(m.count(name) != 1 for m in holding):
        return [name]
    others = [a for a in holding[0] if isinstance(a, str) and a != name]
    return [
        name,
        *(
            a
            for a in others
            if all(m.count(a) == 1 for m in holding) and not any(a in m for m in monomials if name not in m)
        ),
    ]
