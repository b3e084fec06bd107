"""Dot products of vectors on CPUs: the instruction where the core has it, plain arithmetic where not, one meaning."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te
from tec.ir import Func
from tec.ir.interp import run

M, N, K, COLUMNS = 10, 32, 24, 16
ARM = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu="


def product(dtype: str, target: Any, lanes: int) -> tuple[Any, list[Any]]:
    """A schedule of C = A B with B in panels, tensorized; None where the target has no such unit."""
    dot = te.intrin.vector_dot(target, dtype, lanes)
    assert dot is not None
    a = te.placeholder((M, K), dtype, name="A")
    b = te.placeholder((N // COLUMNS, K // dot.group, COLUMNS, dot.group), dot.other, name="B")
    k, g = te.reduce_axis((0, K), name="k"), dot.group
    c = te.compute(
        (M, N),
        lambda i, j: te.sum(
            a[i, k].astype(dot.acc) * b[j // COLUMNS, k // g, j % COLUMNS, k % g].astype(dot.acc), axis=k
        ),
        name="C",
    )
    s = tec.create_schedule(c.op)
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    io, ii = s[c].split(i, factor=4)
    jo, ji = s[c].split(j, factor=COLUMNS)
    s[c].reorder(jo, io, ii, ji)
    s[local].compute_at(s[c], io)
    ci, cj = s[local].op.axis
    ko, kk = s[local].split(s[local].op.reduce_axis[0], factor=g)
    cjo, cji = s[local].split(cj, factor=lanes)
    s[local].reorder(ko, ci, cjo, cji, kk)
    s[local].tensorize(cji, dot.intrin)
    return s, [a, b, c]


def operands(dtype: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    if dtype == "bfloat16":
        return tuple(rng.standard_normal(n).astype(ml_dtypes.bfloat16) for n in ((M, K), (K, N)))
    if dtype == "int16":
        return tuple(rng.integers(-9000, 9000, n).astype(dtype) for n in ((M, K), (K, N)))
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, (M, K)).astype(dtype), rng.integers(-128, 128, (K, N)).astype("int8")


def check(got: Any, a: Any, b: Any, dtype: str) -> None:
    want = a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(
        got, want, rtol=1e-5 if dtype == "bfloat16" else 0, atol=1e-5 if dtype == "bfloat16" else 0
    )


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "bfloat16"])
def test_the_interpreter(dtype: str, lanes: int) -> None:
    target = ARM + "neoverse-v1" if dtype == "int8" else "llvm -mcpu=znver4"
    s, args = product(dtype, target, lanes)
    func = next(iter(tec.lower(s, args, name="f", target=target)))
    assert isinstance(func, Func)
    a, b = operands(dtype)
    g = 2 if dtype in ("int16", "bfloat16") else 4
    panels = b.reshape(K // g, g, N // COLUMNS, COLUMNS).transpose(2, 0, 3, 1)
    c = np.zeros((M, N), "f4" if dtype == "bfloat16" else "i4")
    arrays = {"A": a.reshape(-1).copy(), "B": np.ascontiguousarray(panels).reshape(-1), "C": c.reshape(-1)}
    run(func, arrays, {})
    check(arrays["C"].reshape(M, N), a, b, dtype)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "bfloat16"])
def test_on_this_host(dtype: str, lanes: int) -> None:
    """Built for this host, by its instruction or, of a schedule for another core, in plain arithmetic."""
    target = tec.Target("llvm")
    for_core = target if dtype in target.core.dots else ARM + "neoverse-v1" if dtype == "int8" else "llvm -mcpu=znver4"
    s, args = product(dtype, for_core, lanes)
    f = tec.build(s, args, target, name="f")
    a, b = operands(dtype)
    g = 2 if dtype in ("int16", "bfloat16") else 4
    panels = np.ascontiguousarray(b.reshape(K // g, g, N // COLUMNS, COLUMNS).transpose(2, 0, 3, 1))
    c = tec.nd.empty((M, N), "float32" if dtype == "bfloat16" else "int32")
    f(tec.nd.array(a), tec.nd.array(panels), c)
    check(c.numpy(), a, b, dtype)


@pytest.mark.parametrize(
    "target, dtype, word",
    [
        ("llvm -mcpu=znver4", "uint8", "vpdpbusd\t%zmm"), ("llvm -mcpu=znver4", "bfloat16", "vdpbf16ps"),
        ("llvm -mcpu=sapphirerapids", "uint8", "vpdpbusd"), ("llvm -mcpu=alderlake", "uint8", "vpdpbusd\t%ymm"),
        ("llvm -mcpu=haswell -mattr=+avxvnni", "uint8", "vpdpbusd"), (ARM + "neoverse-n1", "int8", "sdot"),
        (ARM + "neoverse-v1", "bfloat16", "bfdot"), ("llvm -mcpu=x86-64", "int16", "pmaddwd"),
        ("llvm -mcpu=znver3", "int16", "vpmaddwd\t%ymm"), ("llvm -mcpu=skylake-avx512", "int16", "vpmaddwd\t%zmm"),
    ],
)  # fmt: skip
def test_the_instruction(target: str, dtype: str, word: str) -> None:
    lanes = tec.Target(target).vector_bytes // 4
    s, args = product(dtype, target, lanes)
    assert word in tec.build(s, args, target, name="f").get_source("asm").replace("{vex}\t", "")


def test_cores_without() -> None:
    for target in (
        "llvm -mcpu=haswell",
        "llvm -mcpu=skylake-avx512",
        "llvm -mcpu=znver4 -mattr=-avx512f",
        "rocm -mcpu=gfx942",
    ):
        assert te.intrin.vector_dot(target, "uint8") is None
    assert te.intrin.vector_dot("llvm -mcpu=znver4 -mattr=-avx512vnni", "uint8") is None
    assert te.intrin.vector_dot("llvm -mcpu=icelake-server", "bfloat16") is None
    assert te.intrin.vector_dot(ARM + "neoverse-n1", "int16") is None
