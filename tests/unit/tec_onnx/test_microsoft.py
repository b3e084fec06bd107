"""Operators of ONNX Runtime's own domain against ONNX Runtime: attention, quantized arithmetic, fused products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tec_onnx.backend import compiled_runner
from tec_onnx.session import Session

from tests.thinned import thinned_rows

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)
MS = "com.microsoft"


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return RNG.integers(0, 255, shape).astype(np.uint8)


def i8(*shape: int) -> Any:
    """Weights of seven bits: where the host has no VNNI, ONNX Runtime adds two products with bytes in 16 bits, which saturate beyond them."""
    return RNG.integers(-64, 65, shape).astype(np.int8)


def s(value: float) -> Any:
    return np.float32(value)


def z(value: int) -> Any:
    return np.uint8(value)


def i32(*values: int) -> Any:
    return np.array(values, np.int32)


CASES: list[Any] = []


def ms(
    op: str, ins: dict[str, Any], outs: tuple[str, ...] = ("y",), tol: float = 2e-4, weights: str = "", **attrs: Any
) -> None:
    """A case: inputs by name in order (None: left out), those of `weights` as constants."""
    label = f"{op}-{len(CASES)}"
    CASES.append(pytest.param(op, ins, outs, tol, weights.split(), attrs, id=label))


B, S, H, N = 2, 5, 16, 4
qkv = {"x": f(B, S, H), "w": f(H, 3 * H) * s(0.2), "b": f(3 * H)}
ms("Attention", qkv, num_heads=N)
ms("Attention", qkv, num_heads=N, unidirectional=1)
ms("Attention", {**qkv, "m": i32(3, 5)}, num_heads=N)
ms("Attention", {**qkv, "m": (RNG.random((B, S)) > 0.3).astype(np.int32)}, num_heads=N)
ms("Attention", {**qkv, "m": None, "past": f(2, B, N, 3, 4)}, ("y", "p"), num_heads=N, unidirectional=1)
ms(
    "QAttention",
    {"x": u8(B, S, H), "w": i8(H, 3 * H), "b": f(3 * H), "sx": s(0.02), "sw": s(0.01), "m": None, "zx": z(128), "zw": np.int8(0)},
    tol=2e-3, num_heads=N,
)  # fmt: skip
three = {"q": f(B, S, H), "k": f(B, 7, H), "v": f(B, 7, H)}
ms("MultiHeadAttention", three, num_heads=N)
ms("MultiHeadAttention", {**three, "b": f(3 * H), "m": (RNG.random((B, 7)) > 0.2).astype(np.int32)}, num_heads=N)
ms(
    "MultiHeadAttention",
    {"q": f(B, S, H), "k": f(B, S, H), "v": f(B, S, H), "b": None, "m": None, "rb": f(1, N, S, S + 3), "pk": f(B, N, 3, 4), "pv": f(B, N, 3, 4)},
    ("y", "k2", "v2"), num_heads=N,
)  # fmt: skip


def angles(count: int, half: int) -> dict[str, Any]:
    turn = np.arange(count)[:, None] / np.logspace(0, 2, half)[None]
    return {"c": np.cos(turn).astype(np.float32), "s": np.sin(turn).astype(np.float32)}


for inter in (0, 1):
    ms("RotaryEmbedding", {"x": f(B, S, H), "p": RNG.integers(0, 12, (B, S)), **angles(12, 2)}, interleaved=inter)
    ms("RotaryEmbedding", {"x": f(B, N, S, 4), "p": np.array([3]), **angles(12, 2)}, interleaved=inter)
group = {"num_heads": 4, "kv_num_heads": 2}
for rotary in (0, 1):
    turn = angles(32, 8) if rotary else {"c": None, "s": None}
    first = {
        "q": f(B, S, 64),
        "k": f(B, S, 32),
        "v": f(B, S, 32),
        "pk": None,
        "pv": None,
        "sl": i32(S - 1, S - 1),
        "t": np.int32(S),
        **turn,
    }
    ms("GroupQueryAttention", first, ("y", "k2", "v2"), do_rotary=rotary, **group)
    later = {"q": f(B, 1, 64), "k": f(B, 1, 32), "v": f(B, 1, 32), "pk": f(B, 2, 6, 16), "pv": f(B, 2, 6, 16), "sl": i32(6, 6), "t": np.int32(7), **turn}  # fmt: skip
    ms("GroupQueryAttention", later, ("y", "k2", "v2"), do_rotary=rotary, **group)
ms(
    "GroupQueryAttention",
    {"q": f(1, S, 64), "k": None, "v": None, "pk": None, "pv": None, "sl": i32(S - 1), "t": np.int32(S)},
    ("y", "k2", "v2"), local_window_size=2, softcap=5.0, **group,
)  # fmt: skip
ms("SkipLayerNormalization", {"x": f(B, S, H), "s": f(B, S, H), "g": f(H), "b": f(H), "bi": f(H)})
ms("SkipSimplifiedLayerNormalization", {"x": f(B, S, H), "s": f(B, S, H), "g": f(H)})
ms("BiasGelu", {"x": f(B, H), "b": f(H)})
ms("FastGelu", {"x": f(B, H), "b": f(H)}, tol=1e-3)
ms("QuickGelu", {"x": f(B, H)}, alpha=1.702)
ms("FusedMatMul", {"a": f(2, 3, 4), "b": f(2, 5, 4)}, transA=0, transB=1, alpha=0.5)
ms("FusedMatMul", {"a": f(2, 4, 3), "b": f(2, 5, 4)}, transA=1, transB=1)
ms("FusedGemm", {"a": f(3, 4), "b": f(4, 5), "c": f(5)}, activation="Relu")
two = {"a": u8(3, 4), "sa": s(0.02), "za": z(120), "b": u8(4), "sb": s(0.03), "zb": z(100), "sc": s(0.06), "zc": z(128)}
ms("QLinearAdd", two, weights="sa za sb zb sc zc")
ms("QLinearMul", two, weights="sa za sb zb sc zc")
one = {"sx": s(0.05), "zx": z(120)}
ms("QLinearSigmoid", {"x": u8(3, 4), **one, "sy": s(1 / 256), "zy": z(0)}, weights="sx zx sy zy")
ms("QLinearLeakyRelu", {"x": u8(3, 4), **one, "sy": s(0.05), "zy": z(100)}, weights="sx zx sy zy", alpha=0.1)
ms("QLinearSoftmax", {"x": u8(3, 6), **one, "sy": s(1 / 256), "zy": z(0)}, weights="sx zx sy zy", axis=-1, opset=13)
ms("QLinearGlobalAveragePool", {"x": u8(1, 3, 5, 5), **one, "sy": s(0.04), "zy": z(110)}, weights="sx zx sy zy")
pool = {"x": u8(1, 3, 6, 6), **one, "sy": s(0.04), "zy": z(110)}
ms("QLinearAveragePool", pool, weights="sx zx sy zy", kernel_shape=[2, 2], strides=[2, 2])
parts = {
    "sy": s(0.05),
    "zy": z(128),
    "a": u8(2, 3),
    "sa": s(0.02),
    "za": z(120),
    "b": u8(2, 2),
    "sb": s(0.03),
    "zb": z(100),
}
ms("QLinearConcat", parts, weights="sy zy sa za sb zb", axis=1)
either = {"c": RNG.random((3, 4)) > 0.5, "a": u8(3, 4), "sa": s(0.02), "za": z(120), "b": u8(3, 4), "sb": s(0.03), "zb": z(100), "sy": s(0.05), "zy": z(128)}  # fmt: skip
ms("QLinearWhere", either, weights="sa za sb zb sy zy")
bias = RNG.integers(-500, 500, 5).astype(np.int32)
left = {"a": u8(3, 8), "sa": s(0.02), "za": z(120)}
ms(
    "QGemm",
    {**left, "b": i8(8, 5), "sb": s(0.01), "zb": np.int8(0), "c": bias, "sy": s(0.05), "zy": z(128)},
    weights="sa za b sb zb c sy zy",
)
ms(
    "QGemm",
    {**left, "b": i8(5, 8), "sb": np.full(5, 0.01, np.float32), "zb": np.zeros(5, np.int8), "c": bias},
    weights="sa za b sb zb c",
    transB=1,
)
bits = {"a": f(2, 3, 64), "b": u8(7, 2, 16), "s": (RNG.random(14) * 0.1).astype(np.float32)}
ms("MatMulNBits", bits, weights="b s", tol=2e-3, K=64, N=7, bits=4, block_size=32)
ms("MatMulNBits", {**bits, "z": u8(7)}, weights="b s z", tol=2e-3, K=64, N=7, bits=4, block_size=32)
ms("DequantizeLinear", {"x": u8(3, 4), "s": s(0.1), "z": z(3)}, weights="s z")
ms("QuantizeLinear", {"x": f(3, 4), "s": s(0.1), "z": z(30)}, weights="s z")
ms(
    "DynamicQuantizeMatMul",
    {"a": f(3, 8), "b": u8(8, 5), "sb": f(1), "zb": np.array([120], np.uint8)},
    weights="b sb zb",
    tol=3e-3,
)
ms("Inverse", {"x": f(3, 3) + 3 * np.eye(3, dtype=np.float32)}, tol=1e-3)
words = {"i": RNG.integers(0, 9, (2, 4)).astype(np.int32), "se": RNG.integers(0, 2, (2, 4)).astype(np.int32)}
tables = {"w": f(9, 8), "p": f(6, 8), "st": f(2, 8), "g": f(8), "b": f(8), "m": np.ones((2, 4), np.int32)}
ms("EmbedLayerNormalization", {**words, **tables}, ("y", "mi"), weights="w p st g b")

for _dirs, _more in ((1, {}), (2, {"direction": "bidirectional"})):
    for _per_channel in (False, True):
        _n = (_dirs, 4 * 8) if _per_channel else (_dirs,)
        # The scales are such that gates lie between -3 and 3; ONNX Runtime quantizes rows in other portions.
        ms(
            "DynamicQuantizeLSTM",
            {
                "x": f(6, 2, 5), "w": i8(_dirs, 5, 32), "r": i8(_dirs, 8, 32), "b": f(_dirs, 64), "l": None, "h": f(_dirs, 2, 8),
                "c": f(_dirs, 2, 8), "p": None, "ws": np.full(_n, 0.008, np.float32), "wz": np.zeros(_n, np.int8),
                "rs": np.full(_n, 0.008, np.float32), "rz": np.zeros(_n, np.int8),
            },
            ("y", "yh", "yc"), 0.03, "w r b ws wz rs rz", hidden_size=8, **_more,
        )  # fmt: skip


@thinned_rows(16, ("op", "ins", "outs", "tol", "weights", "attrs"), CASES)
def test_against_onnx_runtime(op, ins, outs, tol, weights, attrs):
    node = helper.make_node(op, [k if v is not None else "" for k, v in ins.items()], list(outs), domain=MS, **attrs)
    given = {k: np.asarray(v) for k, v in ins.items() if v is not None}
    constants = {k: given.pop(k) for k in weights}
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in given.items()
    ]
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in outs],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    ort.set_default_logger_severity(4)
    want = ort.InferenceSession(model.SerializeToString()).run(None, given)
    got = Session(model, compiled_runner("llvm")).run(given)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(1.0, float(np.abs(b).max())))
        else:
            assert np.abs(a.astype(int) - b.astype(int)).max() <= 1  # one step of the quantization
