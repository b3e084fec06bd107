"""`run(..., races=True)`: a barrier that is missing shows, one that is there satisfies it."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.driver import run_passes
from tec.ir import Call, Evaluate, Func, IRModule, Stmt, seq
from tec.ir.interp import run
from tec.ir.passes.split_host_device import split_host_device
from tec.ir.visit import map_stmt
from tec.schedule import to_loops

TARGET = tec.Target("rocm -mcpu=gfx942")


def _lowered() -> Func:
    a = te.placeholder((128,), name="A")
    sh = te.compute((128,), lambda i: a[i], name="S")
    b = te.compute((128,), lambda i: sh[i // 128 * 128 + (i + 64) % 128], name="B")
    s = tec.create_schedule(b.op)
    bx, tx = s[b].split(b.op.axis[0], factor=128)
    s[b].bind(bx, te.thread_axis("blockIdx.x"))
    s[b].bind(tx, te.thread_axis("threadIdx.x"))
    s[sh].compute_at(s[b], bx)
    s[sh].set_scope("shared")
    s[sh].bind(sh.op.axis[0], te.thread_axis("threadIdx.x"))
    return run_passes(to_loops(s, [a, b], name="f"), TARGET)


def _without_barriers(s: Stmt) -> Stmt:
    if isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op == "barrier":
        return seq()
    return map_stmt(s, _without_barriers, lambda e: e)


def _run(func: Func) -> np.ndarray:
    host, kernels = split_host_device(func, TARGET)
    module = IRModule({f.name: f for f in (host, *kernels)})
    x, y = np.arange(128, dtype="f4"), np.zeros(128, "f4")
    run(host, [x, y], {}, wave=64, module=module, races=True)
    return y


def test_a_barrier_orders_the_threads() -> None:
    assert np.array_equal(_run(_lowered()), np.roll(np.arange(128, dtype="f4"), -64))


def test_a_missing_barrier_is_a_race() -> None:
    func = _lowered()
    with pytest.raises(tec.TecError):
        _run(func.with_body(_without_barriers(func.body)))
