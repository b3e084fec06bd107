"""Running passes on text and holding the result against the interpreter's reading of the text itself."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tec.ir import Buffer, Func, IntImm, IRModule
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.interp import run
from tec.ir.visit import visit
from tec.target import Target
from tests.ir.parser import parse

CPU = Target("llvm -mcpu=znver4")
GPU = Target("rocm -mcpu=gfx942")
GPU32 = Target("rocm -mcpu=gfx1100")
TO_BARRIERS = (
    "unify_threads", "inject_vthread", "pipeline", "pad_tiles", "partition_loops", "flatten_buffers", "simplify", "vectorize",
    "unroll", "remove_noop", "plan_storage", "insert_barriers",
)  # fmt: skip
ALL = (*TO_BARRIERS, "lower_allreduce", "lower_math", "simplify", "remove_noop")


def parse_func(text: str) -> Func:
    return next(iter(parse(text)))


def apply(func: Func, target: Target, *names: str) -> Func:
    """The passes by name, in order."""
    for name in names:
        func = getattr(importlib.import_module(f"tec.ir.passes.{name}"), name)(func, target)
    return func


def count(func: Func | S.Stmt, what: Any) -> int:
    """Statements of a class, or calls of an operation by name."""
    total = 0

    def on_expr(e: E.Expr) -> None:
        nonlocal total
        total += isinstance(what, str) and type(e) is E.Call and e.op == what

    def on_stmt(s: S.Stmt) -> None:
        nonlocal total
        total += not isinstance(what, str) and isinstance(s, what)

    visit(func.body if isinstance(func, Func) else func, on_expr, on_stmt)
    return total


def arrays_for(func: Func, sizes: dict[str, int], seed: int = 1) -> dict[str, np.ndarray]:
    """Random arrays for the buffers of a function; integers where they are integers."""
    rng = np.random.default_rng(seed)
    out = {}
    for p in func.params:
        if isinstance(p, Buffer):
            shape = tuple(d.value if isinstance(d, IntImm) else _size(d, sizes) for d in p.shape)
            values = rng.integers(-9, 10, shape)
            out[p.name] = values.astype(p.dtype)
    return out


def _size(e: E.Expr, sizes: dict[str, int]) -> int:
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, E.Var):
        return sizes[e.name]
    assert isinstance(e, E.BinaryExpr)
    a, b = _size(e.a, sizes), _size(e.b, sizes)
    return {E.Add: a + b, E.Sub: a - b, E.Mul: a * b}[type(e)]


def check_same(before: Func, after: Func, wave: int = 64, split: Target | None = None, **sizes: int) -> None:
    """Both functions write the same, after going through kernels where `split` names a GPU."""
    expected = arrays_for(before, sizes)
    got = {k: v.copy() for k, v in expected.items()}
    run(before, expected, sizes, wave=wave)
    flat = {k: v.reshape(-1) for k, v in got.items()}
    if split is not None:
        from tec.ir.passes.split_host_device import split_host_device

        host, kernels = split_host_device(after, split)
        module = IRModule({f.name: f for f in (host, *kernels)})
        run(host, flat, sizes, wave=wave, check=True, module=module)
    else:
        run(after, flat, sizes, wave=wave, check=True)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name].astype(np.float64), array.astype(np.float64), rtol=1e-5, atol=1e-5)
