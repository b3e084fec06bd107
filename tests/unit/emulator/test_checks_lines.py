"""A fault of a kernel that was made from te names the line of the te statement."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.emulator import get_driver
from tec.emulator.errors import KernelFault
from tec.llvmworker.jobs import without_lines

CHIPS = ("gfx90a", "gfx942", "gfx1100")
HERE = __file__


def line() -> int:
    return sys._getframe(1).f_lineno


def fault(chip: str, check: str, s: Any, args: list[Any], *arrays: np.ndarray, fresh: bool = False) -> str:
    module = tec.build(s, args, f"rocm -mcpu={chip}", name="f")
    dev = tec.rocm_emu(chip, check=check)
    given = [
        tec.nd.empty(a.shape, str(a.dtype), dev) if fresh and k == 0 else tec.nd.array(a, dev)
        for k, a in enumerate(arrays)
    ]
    with pytest.raises(KernelFault) as e:
        module(*given)
    return str(e.value)


@pytest.mark.parametrize("chip", CHIPS)
def test_bounds(chip: str) -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    where = te.placeholder((64,), "int32", name="where")  # what is known when building would be refused then
    c = te.compute((64,), lambda i: a[where[i]] * b[i], name="C")
    at = line() - 1
    s = tec.create_schedule(c.op)
    s[b].compute_inline()
    s[c].bind(c.op.axis[0], tec.thread_axis("threadIdx.x"))
    said = fault(
        chip,
        "bounds",
        s,
        [a, where, c],
        np.zeros(64, np.float32),
        np.arange(3, 67, dtype=np.int32),
        np.zeros(64, np.float32),
    )
    assert "out of bounds" in said and f"from {HERE}:{at}" in said


@pytest.mark.parametrize("chip", CHIPS)
def test_race(chip: str) -> None:
    """Every thread stores the sum, which a reduction otherwise leaves to the first: the same value, so it is noted and no fault."""
    a = te.placeholder((256,), name="A", dtype="int32")
    r = te.reduce_axis((0, 256), name="r")
    b = te.compute((1,), lambda i: te.sum(a[r], axis=r), name="B")
    at = line() - 1
    s = tec.create_schedule(b.op)
    tx = tec.thread_axis("threadIdx.x")
    s[b].bind(b.op.reduce_axis[0], tx)
    s[b].set_store_predicate(tx.var >= 0)
    module, dev = tec.build(s, [a, b], f"rocm -mcpu={chip}", name="f"), tec.rocm_emu(chip, check="race")
    out = tec.nd.array(np.zeros(1, np.int32), dev)
    module(tec.nd.array(np.arange(256, dtype=np.int32), dev), out)
    assert out.numpy()[0] == 256 * 255 // 2
    notes = get_driver(chip, check="race").notes
    assert any(f"from {HERE}:{at}" in n and "several waves store the same value" in n for n in notes)


@pytest.mark.parametrize("chip", CHIPS)
def test_undefined(chip: str) -> None:
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: a[i] * 2.0, name="C")
    at = line() - 1
    s = tec.create_schedule(c.op)
    s[c].bind(c.op.axis[0], tec.thread_axis("threadIdx.x"))
    said = fault(chip, "init", s, [a, c], np.zeros(64, np.float32), np.zeros(64, np.float32), fresh=True)
    assert "uninitialized value stored" in said and f"from {HERE}:{at}" in said
    assert "last load of memory that was never written" in said


def test_the_object_does_not_depend_on_lines() -> None:
    texts = []
    for k in range(2):
        a = te.placeholder((64,), name="A")
        if k:
            c = te.compute((64,), lambda i, a=a: a[i] * 2.0, name="C")
        else:
            c = te.compute((64,), lambda i, a=a: a[i] * 2.0, name="C")
        s = tec.create_schedule(c.op)
        s[c].bind(c.op.axis[0], tec.thread_axis("threadIdx.x"))
        texts.append(tec.build(s, [a, c], "rocm -mcpu=gfx942", name="f").get_source("asm"))
    assert texts[0] != texts[1] and ".loc" in texts[0]
    bare = [re.sub(r"\t\.loc.*\n", "", t) for t in texts]
    assert bare[0] == bare[1]
    assert "dbg" not in without_lines("!llvm.dbg.cu = !{!1}\n!1 = distinct !DICompileUnit(x: 1)\n  ret void, !dbg !4\n")
