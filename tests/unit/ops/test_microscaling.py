"""Microscaling formats: NumPy's conversions against ml_dtypes, products on gfx950's scaled matrix unit and on targets without one, in the interpreter and in software."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te, topi
from tec.choices import schedule, spaces
from tec.codegen.static_report import report
from tec.ir.microscaling import BLOCK, FORMATS, dequantize, encode, format_of, pack, powers, quantize, unpack
from tec.ir.scaled_matrix import CODES, WAVE, ScaledMatrix, compute
from tests.thinned import thinned, thinned_rows

TYPES = {
    "mxfp8_e4m3": ml_dtypes.float8_e4m3fn, "mxfp8_e5m2": ml_dtypes.float8_e5m2, "mxfp6_e2m3": ml_dtypes.float6_e2m3fn,
    "mxfp6_e3m2": ml_dtypes.float6_e3m2fn, "mxfp4_e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
GFX950 = "rocm -mcpu=gfx950"
SMALL = {
    "template": "scaled matrix product",
    "rows": 32,
    "columns": 32,
    "step": 128,
    "waves_m": 1,
    "waves_n": 2,
    "instruction": "16x16x128",
}
DEFAULT = {"rows": 128, "columns": 128, "waves_m": 2, "waves_n": 2}  # of 4096 cubed on an MI355X


def numbers(*shape: int, seed: int = 0) -> Any:
    """Blocks of many sizes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).reshape(*shape[:-1], -1, BLOCK) * 2.0 ** rng.integers(-6, 6, (*shape[:-1], shape[-1] // BLOCK, 1))  # fmt: skip
    return x.reshape(shape).astype(np.float32)


# ---- formats


@pytest.mark.parametrize("name", FORMATS)
def test_elements_are_as_ml_dtypes_has_them(name: str) -> None:
    f, dtype = format_of(name), TYPES[name]
    codes = np.arange(1 << f.bits, dtype=np.uint8)
    np.testing.assert_array_equal(f.numbers, codes.view(dtype).astype(np.float32))
    assert f.numbers[f.largest] == ml_dtypes.finfo(dtype).max and 2.0**f.top <= f.numbers[f.largest] < 2.0 ** (
        f.top + 1
    )
    finite = f.numbers[: f.largest + 1]
    halves = (finite[:-1] + finite[1:]) / 2
    x = np.concatenate(
        [np.random.default_rng(1).standard_normal(4000) * 3, finite, -finite, halves, -halves, [1e30, -1e30]]
    )
    x = x.astype(np.float32)
    largest = f.numbers[f.largest]
    np.testing.assert_array_equal(encode(x, f), np.clip(x, -largest, largest).astype(dtype).view(np.uint8))
    assert encode([np.inf], f)[0] == f.largest
    some = np.random.default_rng(2).integers(0, 1 << f.bits, (3, 64)).astype(np.uint8)
    stored = pack(some, f)
    assert stored.shape == (3, f.stored(64)) and np.array_equal(unpack(stored, f), some)
    bits = np.unpackbits(some[..., None], axis=-1, count=f.bits, bitorder="little").reshape(3, -1)
    np.testing.assert_array_equal(stored, np.packbits(bits, axis=-1, bitorder="little"))


@pytest.mark.parametrize("name", FORMATS)
def test_blocks(name: str) -> None:
    f, x = format_of(name), numbers(5, 96)
    elements, scales = quantize(x, name)
    assert elements.shape == (5, f.stored(96)) and scales.shape == (5, 3) and elements.dtype == scales.dtype == np.uint8
    most = np.abs(x.reshape(5, 3, BLOCK)).max(-1)
    np.testing.assert_array_equal(scales.astype(int) - 127, np.floor(np.log2(most)).astype(int) - f.top)
    np.testing.assert_array_equal(powers(scales).view(np.uint8), scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32).view(np.uint8))  # fmt: skip
    back = dequantize(elements, scales, name)
    # Half a unit of the largest exponent's last place, or what the largest number leaves out below the next power of two.
    bound = most * max(2.0 ** -(f.mantissa + 1), 1 - float(f.numbers[f.largest]) / 2.0 ** (f.top + 1))
    assert (np.abs(back - x).reshape(5, 3, BLOCK).max(-1) <= bound).all()
    np.testing.assert_array_equal(quantize(back, name)[0], elements)  # what is of the format stays
    odd = np.zeros((2, 64), np.float32)
    odd[0, 3], odd[1, 40] = np.nan, np.inf
    assert np.isnan(dequantize(*quantize(odd, name), name)).reshape(2, 2, BLOCK).all(-1).tolist() == [[True, False], [False, True]]  # fmt: skip
    with pytest.raises(tec.TecError, match="blocks of 32"):
        quantize(np.zeros((2, 33)), name)


# ---- products


def product(target: str, a: str, b: str, m: int, n: int, k: int, out: str = "float32", **choice: Any) -> tuple[Any, list[Any], Any, Any]:  # fmt: skip
    """(schedule, parameters, arrays, result in float64)."""
    ins = [*topi.mx.placeholders((m, k), a, "a"), *topi.mx.placeholders((n, k), b, "b")]
    c = topi.mx.mx_matmul(*ins, a, b, out)
    made = schedule([c], target, {**SMALL, **choice} if choice else None)
    x, y = quantize(numbers(m, k, seed=m), a), quantize(numbers(n, k, seed=n), b)
    want = dequantize(*x, a).astype("f8") @ dequantize(*y, b).astype("f8").T
    return made, [*ins, *made.outputs], [*x, *y], want


def on_device(target: str, made: Any, params: list[Any], arrays: list[Any], want: Any, tol: float, check: str) -> Any:
    f = tec.build(made.schedule, params, target, name="product")
    chip = target.rpartition("=")[2] if target.startswith("rocm") else ""
    dev = tec.rocm_emu(chip, check=check) if chip else tec.cpu()
    out = tec.nd.empty(want.shape, params[-1].dtype, dev)
    f(*[tec.nd.array(x, dev) for x in arrays], out)
    np.testing.assert_allclose(out.numpy().astype("f8"), want, rtol=0, atol=tol * np.abs(want).max())
    return f


@thinned_rows(
    3,
    ("a", "b", "shape", "out", "choice", "check"),
    [
        ("mxfp4", "mxfp4", (64, 32, 256), "float16", {}, "all"),
        ("mxfp8", "mxfp8", (64, 96, 256), "float32", {"rows": 64, "columns": 64, "instruction": "32x32x64"}, "bounds"),
        ("mxfp8_e5m2", "mxfp6_e3m2", (70, 67, 256), "float32", {}, "bounds"),
        ("mxfp6", "mxfp6", (64, 64, 256), "bfloat16", {"interleave": False}, "bounds"),
        ("mxfp4", "mxfp8", (33, 100, 256), "float32", {"step": 256}, "bounds"),
    ],
)  # fmt: skip
def test_on_the_scaled_unit(a: str, b: str, shape: Any, out: str, choice: Any, check: str) -> None:
    made, params, arrays, want = product(GFX950, a, b, *shape, out, **choice)
    assert made.choice["template"] == "scaled matrix product"
    # Sums are float32, of numbers of many sizes.
    tol = {"float32": 5e-6, "float16": 6e-4, "bfloat16": 5e-3}[out]
    f = on_device(GFX950, made, params, arrays, want, tol, check)
    (r,) = report(f.get_source("asm"))
    assert "scale" in r.matrix_kind and r.spills == 0


@thinned_rows(1, "name", ["mxfp4", "mxfp6", "mxfp8"])
def test_what_large_products_are_made_of(name: str) -> None:
    """By default: no spills, 128-bit reads of shared memory (64 of six bits), and loads that half a step covers."""
    made, params, _, _ = product(
        GFX950, name, name, 512, 512, 1024, **{**DEFAULT, "step": 128 if name == "mxfp8" else 256}
    )
    (r,) = report(tec.build(made.schedule, params, GFX950).get_source("asm"))
    assert "scale" in r.matrix_kind and r.spills == 0 and r.load_cover is not None and r.load_cover >= 0.5
    assert {128, 64} & set(r.lds_reads) and r.vgprs <= 256


@thinned(
    1,
    ("target", ["llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100"]),
    ("a, b", [("mxfp4", "mxfp8"), ("mxfp6_e3m2", "mxfp6_e2m3")]),
)
def test_elsewhere_elements_become_numbers_on_their_way(target: str, a: str, b: str) -> None:
    made, params, arrays, want = product(target, a, b, 64, 48, 128)
    f = on_device(target, made, params, arrays, want, 5e-6, "bounds")
    if target != "llvm":
        assert made.choice["template"] == "matrix product" and "bf16" in f.get_source("asm")
    ins = params[:-1]
    c = topi.mx.mx_matmul(*ins, a, b)
    (got,) = te.evaluate([c], dict(zip(ins, arrays)))
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-6 * np.abs(want).max())


def test_sums_that_are_no_whole_steps_take_the_plain_unit() -> None:
    ins = [*topi.mx.placeholders((64, 96), "mxfp4", "a"), *topi.mx.placeholders((64, 96), "mxfp4", "b")]
    assert spaces([topi.mx.mx_matmul(*ins, "mxfp4")], GFX950)[0].template == "matrix product"
    with pytest.raises(tec.ExprError, match="is not mxfp6_e2m3"):
        topi.mx.mx_matmul(*ins, "mxfp6")
    with pytest.raises(tec.TecError, match="no microscaling format"):
        topi.mx.placeholders((64, 96), "mxint8")


@thinned(1, ("target", ["llvm", GFX950]), ("name", FORMATS))
def test_quantizing_as_it_comes(target: str, name: str) -> None:
    x = numbers(6, 128)
    x[1, :32], x[2, 40], x[3, 70] = 0, np.nan, -np.inf
    x[4, 5:8] = 1e-42, -1e-45, 3e38
    p = te.placeholder(x.shape, name="x")
    outs = topi.mx.mx_quantize(p, name)
    made = schedule(list(outs), target)
    f = tec.build(made.schedule, [p, *made.outputs], target)
    dev = tec.cpu() if target == "llvm" else tec.rocm_emu("gfx950", check="all")
    want = quantize(x, name)
    got = [tec.nd.empty(w.shape, "uint8", dev) for w in want]
    f(tec.nd.array(x, dev), *got)
    for g, w in zip(got, want):
        np.testing.assert_array_equal(g.numpy(), w)


def test_lanes_against_the_plain_product() -> None:
    """The reference of an instruction puts rows and blocks together again, for every pair of formats."""
    rng = np.random.default_rng(3)
    for a in CODES:
        for b in CODES[::2]:
            s = ScaledMatrix(a, b, 16, 16, 128)
            rows = [rng.integers(0, 1 << f.bits, (16, 128)).astype(np.uint8) for f in s.formats]
            rows = [np.where(np.isfinite(f.numbers[r]), r, 1).astype(np.uint8) for f, r in zip(s.formats, rows)]
            scales = rng.integers(120, 134, (2, 16, 4)).astype(np.uint8)
            lane, held = np.arange(WAVE), []
            for role, f, r in zip("ab", s.formats, rows):
                k = np.concatenate([first[:, None] + np.arange(n) for first, n in s.runs(role, lane // 16)], 1)
                held.append(pack(r[(lane % 16)[:, None], k], f))
            of_lane = [x[lane % 16, lane // 16] for x in scales]
            got = compute(s, *held, np.zeros((WAVE, 4), np.float32), *of_lane)
            full = [f.numbers[r] * np.repeat(powers(x), 32, 1) for f, r, x in zip(s.formats, rows, scales)]
            _, row, column = s.sums.coords("acc", lane[:, None], np.arange(4)[None])
            np.testing.assert_allclose(got, (full[0].astype("f8") @ full[1].astype("f8").T)[row, column], 1e-6)


@pytest.mark.parametrize(("m", "n"), [(64, 96), (33, 70)])
def test_what_follows_is_in_the_kernel(m: int, n: int) -> None:
    """A bias, an activation and a residual, at whole tiles and at edges where rows begin anywhere."""
    k, (bias, residual) = 256, (te.placeholder((n,), name="bias"), te.placeholder((m, n), "float16", name="residual"))
    ins = [*topi.mx.placeholders((m, k), "mxfp4", "a"), *topi.mx.placeholders((n, k), "mxfp8", "b")]
    c = topi.mx.mx_matmul(*ins, "mxfp4", "mxfp8", "float16")
    biased = te.compute((m, n), lambda i, j: c(i, j) + bias(j).astype("float16"), name="biased")
    y = te.compute((m, n), lambda i, j: te.max(biased(i, j), te.const(0, "float16")) + residual(i, j), name="y")
    made = schedule([y], GFX950)
    assert made.choice["template"] == "scaled matrix product"
    a, b, rng = quantize(numbers(m, k), "mxfp4"), quantize(numbers(n, k, seed=1), "mxfp8"), np.random.default_rng(2)
    more = [rng.standard_normal(n).astype(np.float32), rng.standard_normal((m, n)).astype(np.float16)]
    want = np.maximum(dequantize(*a, "mxfp4").astype("f8") @ dequantize(*b, "mxfp8").T + more[0], 0) + more[1]
    f = on_device(GFX950, made, [*ins, bias, residual, *made.outputs], [*a, *b, *more], want, 2e-3, "all")
    assert len(report(f.get_source("asm"))) == 1
