"""Operators that ONNX Runtime's graph optimizers write, most of which its CPU provider lacks, against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import ValueInfoProto, helper, numpy_helper
from tec_onnx.backend import compiled_runner
from tec_onnx.session import Session

from tests.seeds import first

MS = "com.microsoft"
RNG = np.random.default_rng(first())


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def results(op: str, ins: dict[str, Any], outs: tuple[str, ...] = ("y",), weights: str = "", **attrs: Any) -> list[Any]:
    """What the compiled operator gives; inputs of `weights` are constants."""
    constant = weights.split()
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in ins.items() if n not in constant]  # fmt: skip
    node = helper.make_node(op, list(ins), list(outs), domain=MS, **attrs)
    graph = helper.make_graph(
        [node], "g", info, [ValueInfoProto(name=n) for n in outs],
        [numpy_helper.from_array(np.asarray(ins[n]), n) for n in constant],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(MS, 1)])
    session = Session(model, runner=compiled_runner("llvm"))
    found: list[Any] = session.run({n: x for n, x in ins.items() if n not in constant})
    return found


def close(got: Any, want: Any, near: float = 2e-5) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=near, atol=near * max(1.0, float(np.abs(want).max())))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("last, whole", [(1, True), (0, True), (1, False)])
def test_skip_group_norm(last: int, whole: bool) -> None:
    shape = (2, 5, 4, 6) if last else (2, 6, 5, 4)
    x, gamma, beta, bias = f(*shape), f(6), f(6), f(6)
    skip = f(*shape) if whole else f(2, 6)
    of = (1, 1, 1, 6) if last else (1, 6, 1, 1)
    total = x + (skip if whole else skip.reshape(2, *of[1:])) + bias.reshape(of)
    t = total.transpose(0, 3, 1, 2) if last else total
    g = t.reshape(2, 3, -1)
    n = ((g - g.mean(2, keepdims=True)) / np.sqrt(g.var(2, keepdims=True) + 1e-5)).reshape(t.shape)
    n = n * gamma.reshape(1, 6, 1, 1) + beta.reshape(1, 6, 1, 1)
    n = n * sigmoid(n)
    ins = {"x": x, "gamma": gamma, "beta": beta, "skip": skip, "bias": bias}
    y, s = results("SkipGroupNorm", ins, ("y", "s"), "gamma beta bias", groups=3, activation=1, channels_last=last)
    close(y, n.transpose(0, 2, 3, 1) if last else n, 1e-4)
    close(s, total)


@pytest.mark.parametrize("op, added", [("NhwcConv", False), ("NhwcFusedConv", False), ("NhwcFusedConv", True)])
def test_convolutions_with_channels_last(op: str, added: bool) -> None:
    x, w, b, z = f(1, 5, 6, 3), f(4, 3, 1, 1), f(4), f(1, 5, 6, 4)
    want = x @ w[:, :, 0, 0].T + b + (z if added else 0)
    ins = {"x": x, "w": w, "b": b, **({"z": z} if added else {})}
    more = {"activation": "Relu"} if op == "NhwcFusedConv" else {}
    close(results(op, ins, weights="w b", kernel_shape=[1, 1], **more)[0], np.maximum(want, 0) if more else want)


@pytest.mark.parametrize("both", [0, 1])
def test_relative_positions(both: int) -> None:
    """As T5 of transformers counts its buckets; the table is stored by heads."""
    buckets, heads, n, most = 8, 3, 40, 20
    table = f(heads, buckets)

    def bucket(d: int) -> int:
        count, start = (buckets // 2, buckets // 2 * (d > 0)) if both else (buckets, 0)
        d = abs(d) if both else -min(d, 0)
        exact = count // 2
        far = exact + int(math.log(max(d, 1) / exact) / math.log(most / exact) * (count - exact))
        return start + (d if d < exact else min(far, count - 1))

    want = np.stack([[[table[h, bucket(j - i)] for j in range(n)] for i in range(n)] for h in range(heads)])[None]
    ins = {"t": table.reshape(buckets, heads), "q": np.array([n]), "k": np.array([n])}
    close(results("RelativePositionBias", ins, weights="q k", is_bidirectional=both, max_distance=most)[0], want)


def test_gated_relative_positions() -> None:
    batch, n, heads, size, d = 2, 5, 3, 4, 8
    x, bias, rel, w, wb, eco = f(batch, n, heads * size), f(heads * size), f(1, heads, n, n), f(size, d), f(d), f(1, heads, 1, 1)  # fmt: skip
    q = (x + bias).reshape(batch, n, heads, size).transpose(0, 2, 1, 3)
    u, r = np.split(sigmoid((q @ w + wb).reshape(batch, heads, n, 2, d // 2).sum(-1)), 2, -1)
    ins = {"x": x, "b": bias, "r": rel, "w": w, "wb": wb, "e": eco}
    close(results("GatedRelativePositionBias", ins, weights="w wb", num_heads=heads)[0], (u * (r * eco - 1) + 2) * rel)


def test_turned_queries_and_keys() -> None:
    angles, parts = f(2, 5, 4), [f(2, 3, 5, 4) for _ in range(4)]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    got = results("GemmaRotaryEmbedding", dict(zip("aqrks", (angles, *parts))), ("y", "z"))
    close(got[0], parts[0] * cos + parts[1] * sin)
    close(got[1], parts[2] * cos + parts[3] * sin)


@pytest.mark.parametrize("apart, limit", [(True, 0.0), (False, 0.7)])
def test_gates(apart: bool, limit: float) -> None:
    both = f(3, 10)
    gate, up = both[:, :5], both[:, 5:]
    g, u = (np.minimum(gate, limit), np.clip(up, -limit, limit)) if limit else (gate, up)
    ins = {"g": np.ascontiguousarray(gate), "u": np.ascontiguousarray(up)} if apart else {"g": both}
    got = results("SwiGLU", ins, limit=limit, activation_alpha=1.7, activation_beta=1.0)
    close(got[0], g * sigmoid(np.float32(1.7) * g) * (u + 1))


@pytest.mark.parametrize("shape, branches, scale", [((2, 3, 4), 0, (4,)), ((2, 12), 3, (12,)), ((2, 12), 3, None)])
def test_norms_by_branches(shape: tuple[int, ...], branches: int, scale: Any) -> None:
    x = f(*shape)
    split = x.reshape(2, 3, 4)
    w = f(*scale) if scale else np.ones(4, np.float32)
    want = split / np.sqrt((split**2).mean(-1, keepdims=True) + 1e-6) * (w.reshape(3, 4) if w.size == 12 else w)
    ins = {"x": x, "s": w} if scale else {"x": x}
    close(results("BranchwiseRMSNorm", ins, num_branches=branches, epsilon=1e-6)[0], want.reshape(shape))


def test_transforms_and_complex_products() -> None:
    x = f(2, 3, 8)
    spectrum = np.fft.rfft(x)
    parts = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    close(results("Rfft", {"x": x}, onesided=1, signal_ndim=1)[0], parts)
    close(results("Irfft", {"x": parts}, onesided=1, signal_ndim=1)[0], x)
    a, b = f(2, 3, 2), f(2, 3, 2)
    za, zb = (v[..., 0] + 1j * v[..., 1] for v in (a, b))
    for op, z in (("ComplexMul", za * zb), ("ComplexMulConj", za * zb.conj())):
        close(results(op, {"a": a, "b": b})[0], np.stack([z.real, z.imag], -1))


def test_whole_numbers() -> None:
    a, b = RNG.integers(0, 256, (2, 5)).astype(np.uint8), RNG.integers(0, 256, (2, 5)).astype(np.uint8)
    za, zb = np.uint8(100), np.uint8(3)
    got = results("MulInteger", {"a": a, "za": za, "b": b, "zb": zb}, weights="za zb")[0]
    np.testing.assert_array_equal(got, (a.astype(np.int32) - 100) * (b.astype(np.int32) - 3))
    x = RNG.integers(-128, 128, (3, 4, 5)).astype(np.int8)
    got = results("ReduceSumInteger", {"x": x}, axes=[0, -1], keepdims=0)[0]
    np.testing.assert_array_equal(got, x.astype(np.int32).sum((0, 2)))
    p, q = (RNG.integers(-3000, 3000, s).astype(np.int16) for s in ((2, 3, 4), (4, 5)))
    np.testing.assert_array_equal(results("MatMulInteger16", {"p": p, "q": q})[0], p.astype(np.int32) @ q)
