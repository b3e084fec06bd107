"""Intrinsics from outside of tec: one row, a meaning, a lowering; passes and every target take them as their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.codegen.emit import calls
from tec.errors import ExprError
from tec.ir import interp_calls, intrin
from tec.ir import stmt as S
from tec.ir.effects import effects
from tec.ir.interp import run
from tec.ir.intrin import INTRINS, Intrin
from tec.ir.passes.pipeline import pipeline
from tec.ir.visit import map_stmt
from tec.target import Target
from tests.ir.parser import parse


def _sat_add(machine: Any, e: Any) -> np.ndarray:
    a, b = (machine.eval(x) for x in e.args)
    return np.minimum(a.astype("int64") + b, 255).astype("uint8")


def _lower_sat_add(emitter: Any, e: Any) -> str:
    t = emitter.reg(e.dtype)
    name = f"llvm.uadd.sat.{emitter.mangle(e.dtype)}"
    return str(emitter.intrinsic(name, t, [(t, emitter.expr(a)) for a in e.args]))


@pytest.fixture(autouse=True)
def plugin() -> Iterator[None]:
    intrin.register(Intrin("sat_add", 2, "saturating sum of uint8"))
    intrin.register(
        Intrin("atomic_nand", 2, "(BufferLoad, value): old value", "scalar", writes=(0,), atomic=True, varying=True)
    )
    interp_calls.register_meaning("sat_add", _sat_add)
    calls.register_call("sat_add", _lower_sat_add)
    yield
    for name in ("sat_add", "atomic_nand"):
        del INTRINS[name]
    del interp_calls.CallMachine.calls["sat_add"], calls.CALLS["sat_add"]


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100"])
def test_one_that_works_lane_by_lane(target: str) -> None:
    n = 128
    a, b = te.placeholder((n,), "uint8", name="A"), te.placeholder((n,), "uint8", name="B")
    c = te.compute((n,), lambda i: te.call_intrin("uint8", "sat_add", a[i], b[i]), name="C")
    s = tec.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], 32)
    if target == "llvm":
        s[c].vectorize(inner)
        device = tec.cpu(0)
    else:
        s[c].bind(outer, te.thread_axis("blockIdx.x"))
        s[c].bind(inner, te.thread_axis("threadIdx.x"))
        device = tec.rocm_emu(target.rpartition("=")[2])
    x, y = (np.random.default_rng(k).integers(0, 256, n).astype("uint8") for k in range(2))
    want = np.minimum(x.astype(int) + y, 255).astype("uint8")
    out = np.zeros(n, "uint8")
    run(next(iter(tec.lower(s, [a, b, c], simple_mode=True))), [x, y, out])
    np.testing.assert_array_equal(out, want)
    arrays = [tec.nd.array(v, device) for v in (x, y, np.zeros(n, "uint8"))]
    tec.build(s, [a, b, c], target=target)(*arrays)
    np.testing.assert_array_equal(arrays[2].numpy(), want)


def test_passes_heed_what_its_row_says() -> None:
    """A loop whose work writes, by the new operation, what the next step's fill reads is not pipelined."""
    text = """
def f(A: Buffer((64,), "int32"), C: Buffer((64,), "int32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            for k in range(8):
                s = alloc((64,), "int32", scope="shared")
                s[t] = A[t]
                C[t] = C[t] + s[63 - t]
                {}
"""

    def pipelined(last: str) -> bool:
        func = next(iter(parse(text.format(last))))

        def mark(s: S.Stmt) -> S.Stmt:
            out = map_stmt(s, mark, lambda e: e)
            return (
                S.Alloc(out.buffer, out.body, S.StorageNotes(double_buffer=True)) if isinstance(out, S.Alloc) else out
            )

        return "s_next" in str(pipeline(func.with_body(mark(func.body)), Target("rocm -mcpu=gfx942")))

    assert pipelined("C[t] = C[t] + 1")
    assert not pipelined("atomic_nand(A[t], 3)")
    does = effects(next(iter(parse(text.format("atomic_nand(A[t], 3)")))).body)
    assert {a.buffer.name for a in does.accesses if a.is_write} == {"A", "C", "s"} and does.is_varying


def test_a_name_that_is_taken() -> None:
    with pytest.raises(ExprError, match="there is an operation 'barrier' already"):
        intrin.register(Intrin("barrier", 0))
