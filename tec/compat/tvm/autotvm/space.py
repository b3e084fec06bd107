"""The configuration of a template: knobs, splits, orders and annotations, whose values a search fills."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from tec.errors import ArgumentError
from tec.ir.expr import IntImm, IterVar
from tec.tuning.templates import Holes

CURRENT: ContextVar[Config | None] = ContextVar("tec_autotvm_config", default=None)


def _extent(axis: Any) -> int:
    size = axis.dom.extent if isinstance(axis, IterVar) and axis.dom is not None else axis
    size = size.value if isinstance(size, IntImm) else getattr(size, "length", size)
    if not isinstance(size, int):
        raise ArgumentError(f"a split of {axis!r}, whose extent is not a constant", hint="give tensors constant shapes")
    return size


class VirtualAxis:
    """An axis by its length alone."""

    def __init__(self, length: Any):
        self.length = _extent(length)


class SplitEntity:
    """Sizes of the loops of a split, outermost first; the outermost is -1 where it follows from the others."""

    def __init__(self, size: Sequence[int]):
        self.size = list(size)

    def apply(self, sch: Any, op: Any, axis: Any) -> list[Any]:
        """Split a loop; the new loops, outermost first."""
        loops, rest = [], axis
        for k in range(1, len(self.size)):
            outer, rest = sch[op].split(rest, factor=math.prod(self.size[k:]))
            loops.append(outer)
        return [*loops, rest]

    def __repr__(self) -> str:
        return str(self.size)


class ReorderEntity:
    """An order of loops."""

    def __init__(self, perm: Sequence[int]):
        self.perm = list(perm)

    def apply(self, sch: Any, op: Any, axes: Sequence[Any]) -> list[Any]:
        """Reorder loops; the loops in their new order."""
        order = [axes[k] for k in self.perm]
        sch[op].reorder(*order)
        return order


class AnnotateEntity:
    """What is done with each of some loops: "none", "vec", "unroll", "try_vec", "try_unroll"."""

    def __init__(self, anns: Sequence[str]):
        self.anns = list(anns)

    def apply(self, sch: Any, op: Any, axes: Sequence[Any], axis_lens: Any = None, **options: Any) -> list[Any]:
        """Annotate loops."""
        for axis, ann in zip(axes, self.anns):
            if ann in ("vec", "try_vec"):
                sch[op].vectorize(axis)
            elif ann in ("unroll", "try_unroll"):
                sch[op].unroll(axis)
        return list(axes)


class OtherOptionEntity:
    """The value of a knob."""

    def __init__(self, val: Any):
        self.val = val

    def __repr__(self) -> str:
        return str(self.val)


class Config:
    """What `autotvm.get_config()` gives inside of a template; each `define_*` is a hole of tec's template."""

    is_fallback = False

    def __init__(self, holes: Holes):
        self.holes = holes
        self._entities: dict[str, Any] = {}
        self.flops = 0.0

    def __getitem__(self, name: str) -> Any:
        if name not in self._entities:
            raise ArgumentError(f"the configuration has no {name!r}", hint=f"it has {', '.join(self._entities)}")
        return self._entities[name]

    def __setitem__(self, name: str, entity: Any) -> None:
        self._entities[name] = entity

    def __contains__(self, name: str) -> bool:
        return name in self._entities

    axis = reduce_axis = staticmethod(VirtualAxis)

    def add_flop(self, flop: Any) -> None:
        """Operations of the computation; tec counts them itself."""
        self.flops += float(flop)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """One of some values."""
        values = [v.value if isinstance(v, IntImm) else v for v in candidate]
        self._entities[name] = OtherOptionEntity(self.holes.choose(name, values))

    def define_split(
        self, name: str, axis: Any, policy: str = "factors", *, num_outputs: int = 2, filter: Callable[..., bool] | None = None,
        candidate: Sequence[Sequence[int]] | None = None, max_factor: int = 1 << 31, no_tail: bool = False, **options: Any,
    ) -> list[VirtualAxis]:  # fmt: skip
        """Sizes of the loops that an axis is split to: its factors, the powers of two, or those that are given."""
        sizes = (
            [list(c) for c in candidate]
            if candidate is not None
            else _splits(_extent(axis), num_outputs, policy, max_factor)
        )
        kept = [s for s in sizes if filter is None or filter(SplitEntity(s))]
        if not kept:
            raise ArgumentError(
                f"define_split {name!r}: no split fits the filter",
                hint="a filter that keeps at least one, or another policy",
            )
        kept.sort(key=lambda s: abs(math.log2(max(s[-1], 1)) - 4))  # the first is the default: 16 in the inner loop
        chosen = self.holes.choose(name, [",".join(map(str, s)) for s in kept])
        entity = SplitEntity([int(x) for x in chosen.split(",")])
        self._entities[name] = entity
        return [VirtualAxis(n if n > 0 else 1) for n in entity.size]

    def define_reorder(
        self, name: str, axes: Sequence[Any], policy: str = "all", candidate: Any = None, **options: Any
    ) -> list[Any]:
        """An order of loops: all of them, the identity, or those that are given."""
        if policy == "candidate" and candidate:
            orders = [tuple(axes.index(a) for a in order) for order in candidate]
        else:
            orders = [tuple(range(len(axes)))]
            if policy == "all":
                orders += [p for p in itertools.permutations(range(len(axes))) if p != orders[0]]
        chosen = self.holes.choose(name, [",".join(map(str, o)) for o in orders])
        self._entities[name] = ReorderEntity([int(x) for x in chosen.split(",")])
        return [axes[k] for k in self._entities[name].perm]

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[Any]:
        """What is done with loops; "try_vec", "try_unroll", "try_unroll_vec" and "locate_cache" are policies."""
        each = {
            "try_vec": ["none", "vec"],
            "try_unroll": ["none", "unroll"],
            "try_unroll_vec": ["none", "unroll", "vec"],
        }
        words = each.get(policy)
        if words is None:
            raise ArgumentError(f"define_annotate: the policy {policy!r}", hint=f"one of {', '.join(each)}")
        rows = [r for r in itertools.product(words, repeat=len(axes)) if r.count("vec") <= 1 and "vec" not in r[:-1]]
        chosen = self.holes.choose(name, [",".join(r) for r in rows])
        self._entities[name] = AnnotateEntity(chosen.split(","))
        return list(axes)


def _splits(extent: int, parts: int, policy: str, max_factor: int) -> list[list[int]]:
    factors = [d for d in range(1, extent + 1) if extent % d == 0] if policy in ("factors", "verbose") else []
    if policy in ("power2", "verbose"):
        factors = sorted({*factors, *(1 << k for k in range(extent.bit_length()))})
    factors = [f for f in factors if f <= max_factor]
    found = []
    for inner in itertools.product(factors, repeat=parts - 1):
        if math.prod(inner) <= extent and (policy != "factors" or extent % math.prod(inner) == 0):
            found.append([-1, *inner])
    return found
