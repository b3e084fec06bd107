"""Hold a scheduled computation, run by the interpreter, against the computation itself (tec.te.evaluate)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tec import te
from tec.ir import Func
from tec.ir import expr as E
from tec.ir.interp import run
from tec.ir.visit import free_vars
from tec.schedule import Schedule, to_loops
from tec.te.operation import PlaceholderOp


def _size(dim: E.Expr, sizes: Mapping[str, int]) -> int:
    from tec.ir.visit import substitute

    e = substitute(dim, {v: E.IntImm(sizes[v.name], v.dtype) for v in free_vars(dim)})
    assert isinstance(e, E.IntImm), dim
    return e.value


def fill(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> Any:
    if dtype.startswith("float"):
        return (rng.integers(-8, 9, size=shape) / 4).astype(dtype)  # sums stay exact in any order
    if dtype == "bool":
        return rng.integers(0, 2, size=shape).astype(bool)
    return rng.integers(0, 7, size=shape).astype(dtype)


def held(
    s: Schedule, args: Sequence[Any], sizes: Mapping[str, int] | None = None, seed: int = 0, inputs: Any = None
) -> Func:
    """Lower, run with every access checked, compare all outputs with the unscheduled computation; returns the Func."""
    sizes = sizes or {}
    func = to_loops(s, args)
    rng = np.random.default_rng(seed)
    feeds: dict[Any, Any] = {}
    arrays: list[Any] = []
    outs: list[tuple[Any, Any]] = []
    for t in args:
        if isinstance(t, E.Var):
            continue
        shape = [_size(d, sizes) for d in t.shape]
        if isinstance(t.op, PlaceholderOp):
            x = (inputs or {}).get(t.op.name)
            feeds[t] = x = fill(shape, t.dtype, rng) if x is None else x
            arrays.append(x.copy())
        else:
            arrays.append(np.full(shape, 99, t.dtype))
            outs.append((t, arrays[-1]))
    variables = {v: sizes[v.name] for a in args if isinstance(a, E.Var) for v in [a]}
    want = te.evaluate([t for t, _ in outs], feeds, variables)
    scalars = {v.name: n for v, n in variables.items()}
    run(
        func,
        {p.name: a for p, a in zip([p for p in func.params if not isinstance(p, E.Var)], arrays)},
        scalars,
        check=True,
    )
    for (t, got), expected in zip(outs, want):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=f"{t.name}\n{func}")
    return func
