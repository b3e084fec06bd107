"""Building what `tec.lower` gives is building the schedule: the same signature, the same function."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ArgumentError


def doubled(gpu=False):
    n = te.size_var("n")
    A = te.placeholder((n, 6), name="A")
    C = te.compute((n, 6), lambda i, j: A[i, j] * 2, name="C")
    s = tec.create_schedule(C.op)
    if gpu:
        block, thread = s[C].split(C.op.axis[0], factor=4)
        s[C].bind(block, te.thread_axis("blockIdx.x"))
        s[C].bind(thread, te.thread_axis("threadIdx.x"))
    return s, [A, C]


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_a_lowered_module_is_the_same_function(target):
    s, args = doubled(target != "llvm")
    lowered = tec.lower(s, args, name="f", target=target)
    assert str(tec.lower(lowered, target=target)) == str(lowered)
    plain, again = tec.build(s, args, target, name="f"), tec.build(lowered, target=target)
    assert again.signature == plain.signature
    dev = tec.cpu(0) if target == "llvm" else tec.rocm_emu("gfx942")
    a = np.arange(30, dtype="float32").reshape(5, 6)
    out = tec.nd.array(np.zeros((5, 6), "float32"), dev)
    again(tec.nd.array(a, dev), out)
    np.testing.assert_array_equal(out.numpy(), a * 2)


def test_a_module_lowered_for_another_target_is_refused():
    s, args = doubled(gpu=True)
    with pytest.raises(ArgumentError, match="was lowered for rocm -mcpu=gfx942, and is built for llvm"):
        tec.build(tec.lower(s, args, target="rocm -mcpu=gfx942"), target="llvm")
