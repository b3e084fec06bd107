"""Statements of PTX on elements (`tl.inline_asm_elementwise`), and what a Gluon kernel is told."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tec
import tec.tile as tl
from tec.errors import KernelError, TecError
from tec.jit import triton_names

HOPPER = "cuda -arch=sm_90a"
BYTES = """
{ // four bytes at once, "unsigned"
  .reg .b8 t<4>;
  mov.b32 {t0, t1, t2, t3}, $8;
  cvt.u32.u8 $0, t0; cvt.u32.u8 $1, t1; cvt.u32.u8 $2, t2; cvt.u32.u8 $3, t3;
  mov.b32 $4, $9; mov.b32 $5, $10; mov.b32 $6, $11; mov.b32 $7, $12;
}
"""
REGISTERS = "=r,=r,=r,=r,=f,=f,=f,=f,r,f,f,f,f"


@tl.jit
def _functions(x, h, out, halves, N: tl.constexpr):
    at = tl.arange(0, N)
    y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [tl.load(x + at)], tl.float32, True, 1)
    z = tl.inline_asm_elementwise("neg.f16x2 $0, $1;", "=r,r", [tl.load(h + at)], tl.float16, is_pure=False, pack=2)
    tl.store(out + at, y)
    tl.store(halves + at, z + z)


@tl.jit
def _several(a, x, b, y, N: tl.constexpr):
    at = tl.arange(0, N)
    types: tl.constexpr = (tl.int32, tl.float32)
    p, q = tl.inline_asm_elementwise(BYTES, REGISTERS, [tl.load(a + at), tl.load(x + at)], types, is_pure=True, pack=4)
    tl.store(b + at, p)
    tl.store(y + at, q)


def arrays() -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal(512).astype(np.float32)
    return {"x": x, "h": x.astype(np.float16), "a": np.arange(512).astype(np.int8), "i": np.zeros(512, np.int32)}


def test_statements_stand_in_the_ptx() -> None:
    v = arrays()
    text = _functions.asm(HOPPER, v["x"], v["h"], v["x"], v["h"], N=512)
    each = text.count("st.global.v4.b32") and text.count("tanh.approx.f32")
    assert each == 4 and text.count("neg.f16x2") == 4  # a thread's elements, once each where several read the result
    text = _several.asm(HOPPER, v["a"], v["x"], v["i"], v["x"], N=512)
    assert 'four bytes at once, "unsigned"' in text and text.count("cvt.u32.u8") == 16


@pytest.mark.gpu
def test_values() -> None:
    v, device = arrays(), tec.cuda(0)
    out, halves, b, y = (np.zeros_like(v[n]) for n in "xhix")
    with tl.on_device(device):
        _functions[(1,)](v["x"], v["h"], out, halves, N=512)
        _several[(1,)](v["a"], v["x"], b, y, N=512)
    np.testing.assert_allclose(out, np.tanh(v["x"]), rtol=1e-3)
    np.testing.assert_array_equal(halves, -2 * v["h"])
    np.testing.assert_array_equal(b, v["a"].view(np.uint8))
    np.testing.assert_array_equal(y, v["x"])


@pytest.mark.parametrize("target", ["rocm -mcpu=gfx942", "llvm"])
def test_other_targets_say_what_it_is(target: str) -> None:
    v = arrays()
    with pytest.raises(TecError, match=r"assembly .* on a target other than NVIDIA") as e:
        _functions.asm(target, v["x"], v["h"], v["x"], v["h"], N=512)
    assert e.value.where and "test_assembly.py" in str(e.value.where)


@tl.jit
def _too_few(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.inline_asm_elementwise("neg.f16x2 $0, $1;", "=r,r", [tl.load(x + at)], tl.float16, True, 4))


def test_constraints_that_do_not_fit_the_types() -> None:
    with pytest.raises(KernelError, match="1 results and 1 operands; the types, 4 elements at a time, are 2 and 2"):
        _too_few.asm(HOPPER, arrays()["h"], N=512)


def test_numpy_cannot_execute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_INTERPRET", "1")
    v = arrays()
    with pytest.raises(TecError, match="PTX, which NumPy does not execute"):
        _functions[(1,)](v["x"], v["h"], v["x"].copy(), v["h"].copy(), N=512)


def test_gluon_is_imported_and_refused_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)
    triton_names.install()
    try:
        from triton.experimental import gluon
        from triton.experimental.gluon import language as gl
        from triton.experimental.gluon.language.amd.cdna4 import async_copy

        layout = gl.constexpr(gl.BlockedLayout([1], [64], [4], [0]))
        assert gl.float16 is tl.float16 and "async_copy" in repr(async_copy) and layout is not None
        copy = triton_names.autotune([triton_names.Config({})], [])(gluon.jit(_copied))
        with pytest.raises(KernelError, match=r"_copied is a Gluon kernel \(.*test_assembly.py:\d+\)") as e:
            copy[(1,)](np.zeros(4, "float32"))
        assert "triton.language" in str(e.value.hint)
        monkeypatch.setitem(globals(), "gl", gl)
        with pytest.raises(KernelError, match=r"uses gluon\.language\.arange, and tec has no Gluon"):
            tl.jit(_copied)[(1,)](np.zeros(4, "float32"))
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


def _copied(x):
    at = gl.arange(0, 4)  # noqa: F821
    tl.store(x + at, tl.load(x + at))


def test_a_gluon_kernel_is_no_triton_kernel() -> None:
    class GluonJITFunction:  # as Triton names it
        fn = staticmethod(test_statements_stand_in_the_ptx)
        __name__ = "copy"

    with pytest.raises(KernelError, match="copy is a Gluon kernel") as e:
        tl.from_triton(GluonJITFunction())
    assert "triton.language" in str(e.value.hint)
