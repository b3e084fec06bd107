"""Tensor maps: how a bulk copy names a tensor. The launch makes one, 128 bytes in the kernel's parameters; a copy names a place in it.

In: a kernel's body whose bulk copies say all about the tensor (see `bulk_copies`). Out: bodies whose copies are
`bulk_load(shared, map, coordinates..., barrier)` and `bulk_store(map, shared, coordinates...)`, and for each distinct tensor and box the
map's buffer (scope "param") with the Call that the launch makes it from:

    tensor_map(data pointer, sizes..., strides...)    attrs: dtype, box, swizzle where it is False; innermost dimension first, strides in elements
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import LoweringError
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...visit import any_expr, any_stmt, map_expr, map_stmt
from ..rewrite_util import same_expr

MAP_BYTES = 128
MAP_ALIGN = 64
SCOPE = "param"


def _is_bulk(e: E.Expr) -> bool:
    return type(e) is E.Call and e.op in ("bulk_load", "bulk_store")


def tensor_maps(body: S.Stmt) -> tuple[S.Stmt, list[tuple[Buffer, E.Call]]]:
    """The body with its copies through maps, and the maps."""
    found: list[tuple[Buffer, E.Call]] = []
    if not any_stmt(body, lambda s: isinstance(s, S.Evaluate) and any_expr(s.value, _is_bulk)):
        return body, found

    def map_of(tensor: Buffer, facts: tuple[E.Expr, ...], about: Mapping[str, Any]) -> Buffer:
        attrs = {
            "dtype": tensor.dtype,
            "box": tuple(about["box"]),
            **({} if about.get("swizzle", True) else {"swizzle": False}),
        }
        made = E.Call("tensor_map", (tensor.data, *facts), "handle", attrs)
        for known, call in found:
            if (
                call.args[0] is tensor.data
                and call.attrs == made.attrs
                and all(map(same_expr, call.args[1:], made.args[1:]))
            ):
                return known
        buffer = Buffer(
            f"{tensor.name}_map{len(found)}", "uint8", (E.IntImm(MAP_BYTES),), (), 0, SCOPE, MAP_ALIGN, loc=tensor.loc
        )
        found.append((buffer, made))
        return buffer

    def expr(e: E.Expr) -> E.Expr:
        if type(e) is E.Call and _is_bulk(e):
            attrs = e.attrs or {}
            rank, is_load = int(attrs["rank"]), e.op == "bulk_load"
            inside, outside = e.args[:2] if is_load else (e.args[1], e.args[0])
            coords, facts, rest = e.args[2 : 2 + rank], e.args[2 + rank : 1 + 3 * rank], e.args[1 + 3 * rank :]
            assert isinstance(outside, E.BufferLoad)
            if outside.buffer.scope == SCOPE:
                return e
            if (is_load and len(rest) != 1) or (not is_load and not attrs.get("ordered")):
                assert isinstance(inside, E.BufferLoad)
                raise LoweringError(
                    f"the bulk copy of {inside.buffer.name} is in no pipeline, so nothing waits for it",
                    where=inside.buffer.loc,
                    hint='fills: s[product].pragma(k_outer, "software_pipeline", 2) or "warp_specialize"; results go out under warp_specialize alone',
                    locate=False,
                )
            place = E.BufferLoad(map_of(outside.buffer, facts, attrs), (E.IntImm(0),))
            ends = (inside, place) if is_load else (place, inside)
            return E.Call(e.op, (*ends, *coords, *rest), e.dtype, attrs)
        return map_expr(e, expr)

    def stmt(s: S.Stmt) -> S.Stmt:
        return map_stmt(s, stmt, expr)

    return stmt(body), found
