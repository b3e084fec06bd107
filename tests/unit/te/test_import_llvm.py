"""LLVM IR of the user's own, called from an extern or an intrinsic: on the CPU, on software GPUs, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec import te

F32 = np.float32
DOT = """
target triple = "aarch64-somewhere"
define internal float @times(float %x, float %y) {
  %r = fmul float %x, %y
  ret float %r
}
define i32 @dot(ptr %out, ptr %a, ptr %b, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %more, %loop ]
  %pa = getelementptr float, ptr %a, i32 %i
  %pb = getelementptr float, ptr %b, i32 %i
  %x = load float, ptr %pa
  %y = load float, ptr %pb
  %xy = call float @times(float %x, float %y)
  %more = fadd float %sum, %xy
  %next = add i32 %i, 1
  %left = icmp slt i32 %next, %n
  br i1 %left, label %loop, label %done
done:
  store float %more, ptr %out
  ret i32 0
}
"""


def row_products(n: int = 6, m: int = 8) -> Any:
    """Row i of A times B, by an intrinsic that calls `dot`."""
    x, y = te.placeholder((m,), name="x"), te.placeholder((m,), name="y")
    k = te.reduce_axis((0, m), "k")
    z = te.compute((1,), lambda i: te.sum(x[k] * y[k], axis=k), name="z")

    def body(ins: Any, outs: Any) -> Any:
        return te.call_extern(
            "int32", "dot", outs[0].access_ptr("w"), ins[0].access_ptr("r"), ins[1].access_ptr("r"), m
        )

    intrin = te.decl_tensor_intrin(z.op, body, name="dot")
    A, B = te.placeholder((n, m), name="A"), te.placeholder((n, m), name="B")
    k2 = te.reduce_axis((0, m), "k")
    C = te.compute((n,), lambda i: te.sum(A[i, k2] * B[i, k2], axis=k2), name="C")
    s = tec.create_schedule(C.op)
    o, i = s[C].split(C.op.axis[0], 1)
    s[C].tensorize(i, intrin)
    return s, C, o, [A, B, C]


@pytest.mark.parametrize("as_file", [False, True])
def test_on_the_cpu(as_file: bool, tmp_path: Path) -> None:
    s, C, o, args = row_products()
    text = DOT
    if as_file:
        (tmp_path / "dot.ll").write_text(DOT)
        text = str(tmp_path / "dot.ll")
    s[C].parallel(o)
    s[C].pragma(o, "import_llvm", text)
    a, b = np.random.default_rng(0).random((2, 6, 8)).astype(F32)
    out = np.zeros(6, F32)
    f = tec.build(s, args, "llvm")
    f(a, b, out)
    np.testing.assert_allclose(out, (a * b).sum(1), 1e-6)
    saved = tmp_path / "f.tecmod"
    f.export_library(str(saved))
    again = np.zeros(6, F32)
    tec.load_module(str(saved))(a, b, again)
    np.testing.assert_array_equal(again, out)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_on_a_gpu(chip: str) -> None:
    s, C, o, args = row_products()
    s[C].bind(o, te.thread_axis("blockIdx.x"))
    s[C].pragma(o, "import_llvm", DOT)
    a, b = np.random.default_rng(0).random((2, 6, 8)).astype(F32)
    dev = tec.rocm_emu(chip)
    out = tec.nd.array(np.zeros(6, F32), dev)
    tec.build(s, args, f"rocm -mcpu={chip}")(tec.nd.array(a, dev), tec.nd.array(b, dev), out)
    np.testing.assert_allclose(out.numpy(), (a * b).sum(1), 1e-6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DOT.replace("ret i32 0", "ret i32 zero"), r"(?s)import_llvm: .*ret i32 zero"),
        (DOT.replace("@dot", "@main"), "main"),
        ("nothing.ll", "nothing.ll: No such file"),
        ("declare i32 @dot()", "defines no function"),
        (b"BC", "not bytes"),
    ],
)
def test_mistakes(text: Any, says: str) -> None:
    s, C, o, args = row_products()
    with pytest.raises(tec.TecError, match=says):
        s[C].pragma(o, "import_llvm", text)
        tec.build(s, args, "llvm")
