"""What a host's program launches of kernels: work-groups, times, and the tensors that bulk copies name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..ir import expr as E
from ..ir import stmt as S
from ..ir.index_values import evaluated
from ..ir.work import UNKNOWN_TRIPS
from ..records import dataclass

OPEN_GROUPS = 1  # work-groups where their number depends on what is not a size


@dataclass(frozen=True, slots=True)
class Launch:
    """Of a kernel: its work-groups, how often it is launched, and extents of the tensors that its bulk copies name, by the number of the argument."""

    groups: float
    times: float
    mapped: Mapping[int, tuple[float, ...]]


def launches(host: S.Stmt, sizes: dict[E.Var, Any]) -> dict[str, Launch]:
    """By kernel's name. sizes: what the host's parameters are thought to be."""
    found: dict[str, Launch] = {}

    def walk(s: S.Stmt, times: float) -> None:
        if isinstance(s, S.Seq):
            for x in s.stmts:
                walk(x, times)
        elif isinstance(s, S.For):
            walk(s.body, times * float(evaluated(s.extent, sizes) or UNKNOWN_TRIPS))
        elif isinstance(s, S.IfThenElse):
            walk(s.then, times)
            if s.orelse is not None:
                walk(s.orelse, times)
        elif isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "launch":
            attrs = s.value.attrs or {}
            groups = [float(evaluated(n, sizes) or OPEN_GROUPS) for n in attrs["grid"]]
            before = found[attrs["kernel"]].times if attrs["kernel"] in found else 0.0
            named = {
                k: _mapped(a, sizes)
                for k, a in enumerate(s.value.args)
                if isinstance(a, E.Call) and a.op == "tensor_map"
            }
            found[attrs["kernel"]] = Launch(math.prod(groups), before + times, named)
        elif (body := getattr(s, "body", None)) is not None:
            walk(body, times)

    walk(host, 1.0)
    return found


def _mapped(e: E.Call, sizes: dict[E.Var, Any]) -> tuple[float, ...]:
    """Extents of a tensor that bulk copies name."""
    return tuple(float(evaluated(n, sizes) or 1) for n in e.args[1 : 1 + len((e.attrs or {})["box"])])
