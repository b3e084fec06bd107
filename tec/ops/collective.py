"""Collectives as operators: what the ranks of a mesh axis exchange, between functions of a network (`tec.shard` adds them).

    all_reduce      the reduction of all ranks' tensors, elementwise
    all_gather      all ranks' tensors one behind the other along the first dimension
    reduce_scatter  this rank's part, along the first dimension, of that reduction
    all_to_all      part r along the first dimension goes to rank r; the parts that came, in the order of ranks

Attributes: `mesh_axis`, its name; `ranks`, how many stand along it; `reduction` of those that reduce. No function computes them: a plan has a step for each
(`runtime.plans.steps.Exchange`), which a communicator does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import LoweringError
from .registry import COLLECTIVE, FOLLOWS_16, OPAQUE, Attrs, TensorType, fail, register

_REDUCTIONS = ("sum", "prod", "max", "min", "avg")


def _same(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [types[0]]


def _gathered(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if not types[0].ndim:
        raise fail(f"all_gather of {types[0]}: it has no first dimension", hint="reshape the number to one element")
    return [TensorType(types[0].dtype, (types[0].shape[0] * attrs["ranks"], *types[0].shape[1:]))]


def _divided(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    first = types[0].shape[0] if types[0].ndim else 0
    ranks = attrs["ranks"]
    if not isinstance(first, int) or not types[0].ndim or first % ranks:
        raise fail(
            f"{types[0]} cannot be divided among {ranks} ranks along its first dimension",
            hint=f"make the first dimension a multiple of {ranks}, by padding for instance",
        )
    return [TensorType(types[0].dtype, (first // ranks, *types[0].shape[1:]))]


def _swapped(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    _divided(types, attrs)
    return [types[0]]


def _checked(name: str, infer: Any) -> Any:
    def checked(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
        ranks, reduces = attrs["ranks"], name in ("all_reduce", "reduce_scatter")
        if not isinstance(ranks, int) or ranks < 1 or not isinstance(attrs["mesh_axis"], str):
            raise fail(f"{name} among {ranks!r} ranks of mesh axis {attrs['mesh_axis']!r}")
        if reduces and attrs.get("reduction") not in _REDUCTIONS:
            raise fail(f"{name} by {attrs.get('reduction')!r}; there are {', '.join(_REDUCTIONS)}")
        found: list[TensorType] = infer(types, attrs)
        return found

    return checked


def _add(name: str, infer: Any) -> None:
    def compute(attrs: Attrs, inputs: list[Any], outputs: list[TensorType]) -> list[Any]:
        raise LoweringError(f"{name} is no computation of one device", hint="tec.shard compiles networks that exchange")

    def host(attrs: Attrs, arrays: Sequence[Any], outputs: Sequence[TensorType]) -> list[Any]:
        compute(attrs, [], [])
        return []

    register(name, OPAQUE, _checked(name, infer), traits=[COLLECTIVE, FOLLOWS_16], host=host, takes=1)(compute)


for _name, _infer in (
    ("all_reduce", _same), ("all_gather", _gathered), ("reduce_scatter", _divided), ("all_to_all", _swapped),
):  # fmt: skip
    _add(_name, _infer)
