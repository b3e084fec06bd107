"""Networks with 8-bit floats: casts at run time, and products of what is quantized to them as products on the matrix units that have them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tec_onnx.casts import cast_on_host

import tec
from tests.thinned import thinned, thinned_rows

KINDS = {
    "float8_e4m3": TensorProto.FLOAT8E4M3FN, "float8_e5m2": TensorProto.FLOAT8E5M2, "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
}  # fmt: skip
HELD = {k: getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(k, k)) for k in KINDS}


def model(
    nodes: list[Any],
    shape: tuple[int, ...],
    out: tuple[int, ...],
    constants: dict[str, Any],
    dtype: int = TensorProto.FLOAT,
) -> Any:
    tensors = [v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info("y", dtype, out)], tensors
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    made.ir_version = 10
    return made


@thinned(1, ("saturate", [0, 1]), ("kind", KINDS))
def test_casts_at_run_time(kind: str, saturate: int) -> None:
    """Ties, denormals, what is too large, infinities and NaN, as on the host."""
    rng = np.random.default_rng(0)
    special = [
        0,
        -0.0,
        448,
        464,
        465,
        1e6,
        -1e6,
        57344,
        61440,
        np.inf,
        -np.inf,
        np.nan,
        2.0**-9,
        2.0**-10,
        3 * 2.0**-11,
        240,
        248,
    ]
    x = np.concatenate([special, rng.standard_normal(111) * 100]).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["small"], to=KINDS[kind], saturate=saturate),
        helper.make_node("Cast", ["small"], ["y"], to=TensorProto.FLOAT),
    ]
    net = tec.compile(model(nodes, x.shape, x.shape, {}), target="llvm -mcpu=x86-64-v3")
    with np.errstate(all="ignore"):
        want = cast_on_host(x, kind, bool(saturate)).astype(np.float32)
    np.testing.assert_array_equal(net.run({"x": x})[0], want)


def quantized(kind: str, m: int, k: int, n: int, per_column: bool, transposed: bool) -> tuple[Any, Any]:
    """A product of quantized values with quantized weights, and a bias; and what it should say of x."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((n, k) if transposed else (k, n)).astype(np.float32).astype(HELD[kind])
    scale = np.float32(0.031)
    factor = rng.uniform(0.01, 0.02, n).astype(np.float32) if per_column else np.float32(0.015)
    bias = rng.standard_normal(n).astype(np.float32)
    raw = helper.make_tensor("w", KINDS[kind], weights.shape, weights.tobytes(), raw=True)
    axis = {"axis": 0 if transposed else 1} if per_column else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx"], ["q"], output_dtype=KINDS[kind]),
        helper.make_node("DequantizeLinear", ["q", "sx"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["wd"], **axis),
        helper.make_node("Gemm", ["xd", "wd", "b"], ["y"], transB=int(transposed)),
    ]
    made = model(nodes, (m, k), (m, n), {"w": raw, "sx": scale, "sw": np.asarray(factor), "b": bias})

    def want(x: Any) -> Any:
        q = cast_on_host(x / scale, kind, True).astype(np.float64)
        w = weights.astype(np.float64)
        return q @ (w.T if transposed else w) * float(scale) * np.asarray(factor, np.float64) + bias

    return made, want


@thinned_rows(3,
    ("chip", "kind", "per_column", "unit"),
    [
        ("gfx942", "float8_e4m3", True, "v_mfma_f32_16x16x32_fp8_fp8"), ("gfx942", "float8_e4m3fnuz", False, "v_mfma_f32_16x16x32_fp8_fp8"),
        ("gfx942", "float8_e5m2fnuz", True, "v_mfma_f32_16x16x32_bf8_bf8"), ("gfx950", "float8_e4m3", True, "f8f6f4"),
        ("gfx1201", "float8_e5m2", False, "v_wmma_f32_16x16x16_bf8_bf8"), ("gfx90a", "float8_e4m3", True, ""),
    ],
)  # fmt: skip
def test_products_on_matrix_units(chip: str, kind: str, per_column: bool, unit: str) -> None:
    """gfx942 takes the OCP's e4m3 as FNUZ numbers of half the size; a chip without a unit multiplies floats."""
    made, want = quantized(kind, 128, 256, 96, per_column, transposed=per_column)
    net = tec.compile(made, target=f"rocm -mcpu={chip}")
    found = set(re.findall(r"v_(?:mfma|wmma)_\w*(?:fp8|bf8|f8f6f4)\w*", net.get_source("asm")))
    assert (len(found) == 1 and unit in found.pop()) if unit else not found
    x = np.random.default_rng(2).standard_normal((128, 256)).astype(np.float32) * 3
    x[0, :4] = -0.0, 20.0, -20.0, 1e-4  # what is negative zero, too large, denormal
    got = net.run({"x": x}, device=tec.rocm_emu(chip))[0]
    np.testing.assert_allclose(got, want(x), rtol=0, atol=2e-6 * np.abs(want(x)).max())
