"""More operators of com.microsoft against ONNX Runtime, with sizes that each night draws anew."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tec_onnx.backend import compiled_runner
from tec_onnx.importer import CONVERTERS
from tec_onnx.session import Session

import tec
from tests import seeds
from tests.thinned import thinned

ort = pytest.importorskip("onnxruntime")
MS = "com.microsoft"
# What a case draws: inputs by name in order, how many of them come first at run time (the rest are constants), names of outputs, attributes.
Drawn = tuple[dict[str, Any], int, tuple[str, ...], dict[str, Any]]
MISSING = "missing "  # names of inputs that are left out begin so


class Draw:
    def __init__(self, text: str):
        self.r = random.Random(seeds.stream(text))
        self.n = np.random.default_rng(self.r.getrandbits(32))

    def upto(self, low: int, high: int) -> int:
        return self.r.randint(low, high)

    def floats(self, *shape: int) -> Any:
        return self.n.standard_normal(shape).astype(np.float32)

    def bytes(self, *shape: int) -> Any:
        return self.n.integers(0, 256, shape).astype(np.uint8)


def pads(d: Draw) -> dict[str, Any]:
    return {"strides": [d.upto(1, 2), d.upto(1, 2)], "pads": [d.upto(0, 1) for _ in range(4)]}


def conv(d: Draw) -> Drawn:
    channels, out, last = d.upto(1, 5), d.upto(1, 6), d.upto(0, 1)
    space = (d.upto(4, 8), d.upto(4, 8))
    x = d.bytes(2, *space, channels) if last else d.bytes(2, channels, *space)
    # Weights of seven bits: without VNNI, ONNX Runtime adds two products in 16 bits, which saturate beyond them.
    w = d.n.integers(-64, 65, (out, channels, 3, 2)).astype(np.int8)
    scales = (0.001 + 0.01 * d.n.random(out)).astype(np.float32)
    ins = {"x": x, "sx": np.float32(0.02), "zx": np.uint8(120), "w": w, "sw": scales, "zw": np.zeros(out, np.int8), "sy": np.float32(0.05),
           "zy": np.uint8(128), "b": d.n.integers(-500, 500, out).astype(np.int32)}  # fmt: skip
    return ins, 1, ("y",), {"channels_last": last, "kernel_shape": [3, 2], **pads(d)}


def pool(d: Draw) -> Drawn:
    x = d.bytes(2, d.upto(4, 8), d.upto(4, 8), d.upto(1, 6))
    return {"x": x}, 1, ("y",), {"kernel_shape": [d.upto(2, 3), d.upto(2, 3)], **pads(d)}


def bnb4(d: Draw) -> Drawn:
    k, n, block = 2 * d.upto(8, 40), d.upto(1, 9), d.r.choice([16, 32, 64])
    scales = (0.1 + d.n.random(-(-n * k // block))).astype(np.float32)
    ins = {"a": d.floats(d.upto(1, 4), k), "b": d.bytes(-(-n * k // 2)), "s": scales}
    return ins, 1, ("y",), {"K": k, "N": n, "block_size": block, "quant_type": d.upto(0, 1)}


def gated_norm(d: Draw) -> Drawn:
    width = d.upto(2, 9)
    shape = (2, d.upto(1, 4), width * d.upto(1, 3))
    ins = {"x": d.floats(*shape), "s": d.floats(width), "g": d.floats(*shape)}
    return ins, 3, ("y",), {"activation": d.r.choice(["silu", "swish", "sigmoid"]), "epsilon": 1e-4}


def gated_add(d: Draw) -> Drawn:
    rows, wide = d.upto(1, 5), d.upto(1, 9)
    return {"x": d.floats(2, rows, wide), "y": d.floats(2, rows, wide), "g": d.floats(2, rows, 1)}, 3, ("z",), {}


def silu(d: Draw) -> Drawn:
    x = {"x": d.floats(d.upto(1, 5), d.upto(1, 9))}
    return (x, 1, ("y",), {"alpha": 1.7}) if d.upto(0, 1) else ({**x, "s": d.floats(1)[0]}, 2, ("y",), {})


def distances(d: Draw) -> Drawn:
    wide, metric = d.upto(1, 9), d.r.choice(["euclidean", "sqeuclidean"])
    return {"a": d.floats(d.upto(1, 6), wide), "b": d.floats(d.upto(1, 6), wide)}, 2, ("c",), {"metric": metric}


def unfolded(d: Draw) -> Drawn:
    x = d.floats(d.upto(4, 7), d.upto(4, 7), d.upto(4, 7))
    return {"x": x}, 1, ("y",), {"dim": d.upto(-3, 2), "size": d.upto(1, 4), "step": d.upto(1, 3)}


def picked(d: Draw) -> Drawn:
    x = d.floats(d.upto(2, 5), d.upto(2, 5), 3)
    return {"x": x, "i": d.n.integers(0, 2, (d.upto(1, 6), d.upto(1, 3))).astype(np.int64)}, 2, ("y",), {}


def steps(d: Draw) -> Drawn:
    ends = {"a": np.float32(d.upto(-3, 3)), "b": np.float32(d.upto(4, 9))}
    return ({**ends, "c": np.float32(0.5)} if d.upto(0, 1) else ends), 0, ("y",), {}


def distinct(d: Draw) -> Drawn:
    return {"x": d.n.integers(0, 6, d.upto(1, 20)).astype(np.float32)}, 1, ("y", "i", "n"), {}


def experts(d: Draw) -> Drawn:
    kind, many, inner, wide, batch = (
        d.r.choice(["relu", "gelu", "silu", "identity", "swiglu"]),
        d.upto(2, 5),
        d.upto(2, 6),
        d.upto(2, 6),
        d.upto(1, 3),
    )
    first = inner * 2 if kind == "swiglu" else inner
    ins = {"x": d.floats(batch, 3, wide), "r": d.floats(3 * batch, many), "w1": d.floats(many, first, wide), "b1": d.floats(many, first),
           "w2": d.floats(many, wide, inner), "b2": d.floats(many, wide)}  # fmt: skip
    attrs = {"k": d.upto(1, many), "activation_type": kind, "normalize_routing_weights": d.upto(0, 1)}
    gates = {"swiglu_fusion": 1, "swiglu_limit": 1.0, "activation_alpha": 1.702, "activation_beta": 1.0}
    return ins, 2, ("y",), attrs | (gates if kind == "swiglu" else {})


def quantized_experts(d: Draw) -> Drawn:
    """Blocks of 16 along the sums, with zero points, or one scale a row. ONNX Runtime rounds what it multiplies 8-bit blocks with to bytes."""
    kind, many, blocks, batch = d.r.choice(["relu", "silu", "swiglu"]), d.upto(2, 5), d.upto(0, 1), d.upto(1, 3)
    bits, wide, inner = 4 if blocks else d.r.choice([4, 8]), 16 * d.upto(1, 2), 32
    first = inner * 2 if kind == "swiglu" else inner

    def scales(rows: int, size: int) -> Any:
        return (0.01 + 0.02 * d.n.random((many, rows, size // 16) if blocks else (many, rows))).astype(np.float32)

    ins = {"x": d.floats(batch, 3, wide), "r": d.floats(3 * batch, many), "w1": d.bytes(many, first, wide * bits // 8), "s1": scales(first, wide),
           "b1": d.floats(many, first), "w2": d.bytes(many, wide, inner * bits // 8), "s2": scales(wide, inner), "b2": d.floats(many, wide)}  # fmt: skip
    if blocks:
        left_out = {f"{MISSING}{k}": 0 for k in range(3)}
        ins |= left_out | {"z1": d.bytes(many, first, -(-wide // 32)), "z2": d.bytes(many, wide, 1)}
    attrs = {
        "k": d.upto(1, many),
        "activation_type": kind,
        "normalize_routing_weights": d.upto(0, 1),
        "expert_weight_bits": bits,
    }
    gates = {"swiglu_fusion": 1, "swiglu_limit": 7.0, "activation_alpha": 1.702, "activation_beta": 1.0}
    return ins, 2, ("y",), attrs | (gates if kind == "swiglu" else {}) | ({"block_size": 16} if blocks else {})


def linear_attention(d: Draw) -> Drawn:
    rule, own = d.r.choice(["linear", "gated", "delta", "gated_delta"]), d.upto(1, 3)
    batch, tokens, size, width, n = d.upto(1, 2), d.upto(1, 5), d.upto(2, 6), d.upto(2, 6), own * d.upto(1, 2)
    k = d.floats(batch, tokens, own, size)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    ins = {"q": d.floats(batch, tokens, n * size), "k": k.reshape(batch, tokens, -1), "v": d.floats(batch, tokens, own * width),
           "s": d.floats(batch, own, size, width)}  # fmt: skip
    if "gated" in rule:
        ins["g"] = -np.abs(d.floats(batch, tokens, own))
    if "delta" in rule:
        ins |= {MISSING: 0} if "g" not in ins else {}
        ins["b"] = d.n.random((batch, tokens, own)).astype(np.float32)
    return ins, len(ins), ("y", "end"), {"update_rule": rule, "q_num_heads": n, "kv_num_heads": own}


def gates(d: Draw) -> Drawn:
    batch, tokens, heads = d.upto(1, 2), d.upto(1, 4), d.upto(1, 5)
    ins = {
        "a": d.floats(batch, tokens, heads),
        "t": d.floats(heads),
        "s": -np.abs(d.floats(heads)),
        "b": d.floats(batch, tokens, heads),
    }
    return ins, 4, ("decay", "beta"), {}


def causal(d: Draw) -> Drawn:
    batch, channels, tokens, taps, dilation = d.upto(1, 2), d.upto(1, 5), d.upto(1, 6), d.upto(2, 4), d.upto(1, 2)
    history = (taps - 1) * dilation
    ins = {
        "x": d.floats(batch, channels, tokens),
        "w": d.floats(channels, 1, taps),
        "b": d.floats(channels),
        "s": d.floats(batch, channels, history),
    }
    return ins, 4, ("y", "end"), {"activation": d.r.choice(["silu", "none"]), "dilation": dilation}


def three_positions(d: Draw) -> Drawn:
    layout, n, batch, tokens = d.upto(0, 1), d.upto(1, 3), d.upto(1, 2), d.upto(1, 4)
    parts = [d.upto(2, 4), *([d.upto(1, 2)] * 2)]
    half = sum(parts)
    ins = {"x": d.floats(batch, tokens, n * 2 * half), "p": d.n.integers(0, 9, (3, batch, tokens)).astype(np.int64), "c": d.floats(9, half),
           "s": d.floats(9, half)}  # fmt: skip
    attrs = {"mrope_section": parts, "mrope_layout": layout, "interleaved": d.upto(0, 1), "num_heads": n}
    return ins, 2, ("y",), attrs | ({"rotary_embedding_dim": 2 * half} if d.upto(0, 1) else {})


def embedded(d: Draw) -> Drawn:
    batch, tokens, wide = d.upto(1, 3), d.upto(1, 5), d.upto(2, 9)
    ids = {
        "i": d.n.integers(0, 7, (batch, tokens)).astype(np.int32),
        "j": d.n.integers(0, 2, (batch, tokens)).astype(np.int32),
    }
    tables = {
        "w": d.bytes(7, wide),
        "p": d.bytes(6, wide),
        "t": d.bytes(2, wide),
        "g": d.bytes(wide),
        "e": d.bytes(wide),
    }
    mask = {"m": (np.arange(tokens) < d.upto(1, tokens)).astype(np.int32)[None].repeat(batch, 0)}
    scales = {f"s{k}": np.float32(0.01 + 0.02 * d.n.random()) for k in range(5)}
    return (
        {**ids, **tables, **mask, **scales, **{f"z{k}": np.uint8(120 + k) for k in range(5)}},
        2,
        ("y", "n"),
        {"epsilon": 1e-5},
    )


CASES: dict[str, Callable[[Draw], Drawn]] = {
    "QLinearConv": conv, "NhwcMaxPool": pool, "MatMulBnb4": bnb4, "GatedRMSNorm": gated_norm, "GatedAdd": gated_add, "ScaledSiLU": silu,
    "CDist": distances, "UnfoldTensor": unfolded, "GatherND": picked, "Range": steps, "Unique": distinct, "MoE": experts,
    "QMoE": quantized_experts, "LinearAttention": linear_attention, "LinearAttentionGate": gates, "CausalConvWithState": causal,
    "MRotaryEmbedding": three_positions, "QEmbedLayerNormalization": embedded,
}  # fmt: skip


def model_of(op: str, drawn: Drawn) -> tuple[Any, dict[str, Any]]:
    ins, count, outs, attrs = drawn
    names = ["" if k.startswith(MISSING) else k for k in ins]
    arrays = {k: np.asarray(v) for k, v in ins.items() if k in names}
    given = {k: arrays[k] for k in list(arrays)[:count]}
    kinds = {k: helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in given.items()}
    graph = helper.make_graph(
        [helper.make_node(op, names, list(outs), domain=MS, **attrs)], "g",
        [helper.make_tensor_value_info(k, kinds[k], v.shape) for k, v in given.items()],
        [helper.make_empty_tensor_value_info(o) for o in outs],
        [numpy_helper.from_array(v, k) for k, v in arrays.items() if k not in given],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), given


@thinned(1, ("k", range(2)), ("op", CASES))
def test_against_onnx_runtime(op: str, k: int) -> None:
    model, given = model_of(op, CASES[op](Draw(f"{op} {k}")))
    ort.set_default_logger_severity(4)
    want = ort.InferenceSession(model.SerializeToString()).run(None, given)
    got = Session(model, compiled_runner("llvm")).run(given)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(b).max(initial=0))))
        else:
            step = 1 if op == "QLinearConv" else 0  # one step of the quantization, where a half rounds the other way
            assert np.abs(a.astype(int) - b.astype(int)).max(initial=0) <= step


@pytest.mark.parametrize(
    ("op", "drawn", "said"),
    [
        ("MatMulBnb4", ({"a": np.zeros((1, 32), np.float32), "b": np.zeros(3, np.uint8), "s": np.ones(2, np.float32)}, 1, ("y",),
                        {"K": 32, "N": 1, "block_size": 16, "quant_type": 1}), "3 bytes of weights"),
        ("CDist", ({"a": np.zeros((1, 2), np.float32), "b": np.zeros((1, 2), np.float32)}, 2, ("y",), {"metric": "cosine"}), "cosine"),
        ("UnfoldTensor", ({"x": np.zeros(3, np.float32)}, 1, ("y",), {"size": 4}), "size 4"),
        ("LinearAttention", ({k: np.zeros((1, 2, 4), np.float32) for k in ("q", "k", "v")} | {"s": np.zeros((1, 2, 2, 2), np.float32),
                              "g": np.zeros((1, 2, 4), np.float32)}, 5, ("y", "e"), {"update_rule": "gated", "q_num_heads": 2, "kv_num_heads": 2}),
         "gates of each feature"),
        ("QMoE", ({"x": np.zeros((1, 16), np.float32), "r": np.zeros((1, 2), np.float32), "w1": np.zeros((2, 4, 7), np.uint8),
                   "s1": np.ones((2, 4), np.float32), f"{MISSING}b": 0, "w2": np.zeros((2, 16, 2), np.uint8), "s2": np.ones((2, 16), np.float32)}, 2, ("y",), {}),
         r"fc1 weights uint8\[2, 4, 7\] .* \[2, 4, 8\] bytes are needed"),
        ("PagedAttention", ({"x": np.zeros(3, np.float32)}, 1, ("y",), {}), "PagedAttention"),
    ],
)  # fmt: skip
def test_refused(op: str, drawn: Drawn, said: str) -> None:
    model, given = model_of(op, drawn)
    with pytest.raises(tec.TecError, match=said):
        Session(model, compiled_runner("llvm")).run(given)


def test_every_registered_operator_is_converted_or_has_its_reason() -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    from tools.contrib_operators import REASONS

    reasons = [name for names in REASONS.values() for name in names.split()]
    converted = {name for domain, name in CONVERTERS if domain == MS}
    assert len(reasons) == len(set(reasons)) and not converted & set(reasons)
    assert {s.name for s in get_all_operator_schema() if s.domain == MS} <= converted | set(reasons)
