"""GroupQueryAttention as onnxruntime-genai's builder writes it: caches whose last dimension is a name, quantized caches, norms of queries and keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import tec
from tests.networks.genai import feeds, genai_decoder
from tests.thinned import thinned

HEADS, KV, SIZE = 4, 2, 16
KINDS = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float8_e4m3": TensorProto.FLOAT8E4M3FN}


def attention(
    cache: str = "", mode: str = "NONE", past: Any = "past", size: int = SIZE, norms: bool = False, **more: Any
) -> Any:
    """One node; the caches' last dimension is a name."""
    info, f32 = helper.make_tensor_value_info, TensorProto.FLOAT
    kind = KINDS.get(cache, f32)
    ins = {"q": (f32, ["b", "s", HEADS * size]), "k": (f32, ["b", "s", KV * size]), "v": (f32, ["b", "s", KV * size])}
    ins |= {f"past_key_values.0.{w}": (kind, ["b", KV, past, "kv_cache_dim"]) for w in ("key", "value")}
    ins |= {"ends": (TensorProto.INT32, ["b"]), "total": (TensorProto.INT32, [])}
    names = [*ins, *[""] * 9]
    if mode != "NONE":
        shape = [1] if mode == "PER_TENSOR" else [1, KV, 1, size]
        ins |= {"k_scale": (f32, shape), "v_scale": (f32, shape)}
        names[12:14] = "k_scale", "v_scale"
        more = {"k_quant_type": mode, "v_quant_type": mode, "kv_cache_bit_width": 4 if cache == "uint8" else 8, **more}
    if norms:
        ins |= {"q_norm": (f32, [size]), "k_norm": (f32, [size])}
        names[14:16] = "q_norm", "k_norm"
    outs = ["y", "present.0.key", "present.0.value"]
    node = helper.make_node("GroupQueryAttention", names, outs, "attention", domain="com.microsoft", **{"num_heads": HEADS, "kv_num_heads": KV, **more})  # fmt: skip
    made = [
        info(outs[0], f32, ["b", "s", HEADS * size]),
        *(info(n, kind, ["b", KV, "t", "kv_cache_dim"]) for n in outs[1:]),
    ]
    graph = helper.make_graph([node], "g", [info(n, *t) for n, t in ins.items()], made)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def values(
    cache: str, mode: str, past: int, steps: int, size: int = SIZE, batch: int = 1, seed: int = 0
) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    width = (size + 1) // 2 if cache == "uint8" else size
    out = {
        n: r.standard_normal((batch, steps, h * size), dtype=np.float32)
        for n, h in (("q", HEADS), ("k", KV), ("v", KV))
    }
    for w in ("key", "value"):
        shape = (batch, KV, past, width)
        low, high = (0, 256) if cache == "uint8" else (-128, 128)
        rows = (
            r.integers(low, high, shape).astype(cache)
            if cache in ("int8", "uint8")
            else r.standard_normal(shape, dtype=np.float32)
        )
        out[f"past_key_values.0.{w}"] = rows
    out |= {"ends": np.full(batch, past + steps - 1, np.int32), "total": np.array(past + steps, np.int32)}
    if mode != "NONE":
        unit = 0.35 if cache == "uint8" else 0.02
        shape = (1,) if mode == "PER_TENSOR" else (1, KV, 1, size)
        out |= {n: (unit * r.uniform(0.8, 1.25, shape)).astype(np.float32) for n in ("k_scale", "v_scale")}
    return out


@thinned(1, ("mode", ["PER_TENSOR", "PER_CHANNEL"]), ("cache, size", [("int8", SIZE), ("uint8", SIZE), ("uint8", 24)]))
def test_quantized_caches_are_onnx_runtimes(cache: str, size: int, mode: str) -> None:
    model = attention(cache, mode, size=size)
    net = tec.compile(model, cache=False, state=False)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for past, steps in ((2, 5), (7, 1)):
        f = values(cache, mode, past, steps, size, seed=past)
        y, keys, rows = net.run(f)
        want = session.run(None, f)
        np.testing.assert_allclose(np.asarray(y), want[0], rtol=0, atol=3e-6 * np.abs(want[0]).max())
        np.testing.assert_array_equal(np.asarray(keys), want[1])
        np.testing.assert_array_equal(np.asarray(rows), want[2])


def test_quantized_caches_grow_in_place() -> None:
    model = attention("uint8", "PER_CHANNEL", do_rotary=0)
    ex = tec.compile(model, cache=False).executor()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    kept = {n: x for n, x in values("uint8", "PER_CHANNEL", 0, 1).items() if n.startswith("past")}
    for at, steps in ((0, 4), (4, 1), (5, 1)):
        f = {n: x for n, x in values("uint8", "PER_CHANNEL", at, steps, seed=1).items() if n not in kept}
        want, *rows = session.run(None, {**f, **kept})
        kept = dict(zip(kept, rows))
        np.testing.assert_allclose(ex.run(f)[0].numpy(), want, rtol=0, atol=3e-6 * np.abs(want).max())
    assert ex.length == 6


def test_a_quantized_cache_that_is_a_buffer() -> None:
    """Rows go to their places in a cache of 12; entries have their own lengths."""
    model = attention("int8", "PER_CHANNEL", past=12)
    net = tec.compile(model, cache=False, state=False, freeze={"total": np.array(9, np.int32)})
    f = {**values("int8", "PER_CHANNEL", 12, 1, batch=2), "ends": np.array([8, 4], np.int32)}
    del f["total"]
    y, keys, _ = (np.asarray(x) for x in net.run(f))
    want, present, _ = ort.InferenceSession(model.SerializeToString()).run(None, {**f, "total": np.array(9, np.int32)})
    np.testing.assert_allclose(y, want, rtol=0, atol=3e-6 * np.abs(want).max())
    for entry, end in enumerate((8, 4)):
        np.testing.assert_array_equal(keys[entry, :, : end + 1], present[entry, :, : end + 1])


def test_a_cache_of_8_bit_floats_has_what_rounding_gives() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    net = tec.compile(attention("float8_e4m3", "PER_TENSOR"), cache=False, state=False)
    f = values("float8_e4m3", "PER_TENSOR", 3, 2)
    past = {n: x.astype(ml_dtypes.float8_e4m3fn) for n, x in f.items() if n.startswith("past")}
    y, keys, rows = net.run({**f, **past})
    made = []
    for got, name, scale in ((keys, "k", "k_scale"), (rows, "v", "v_scale")):
        new = f[name].reshape(1, 2, KV, SIZE).transpose(0, 2, 1, 3) / f[scale]
        kind = {"k": "key", "v": "value"}[name]
        want = np.concatenate([past[f"past_key_values.0.{kind}"], new.astype(ml_dtypes.float8_e4m3fn)], 2)
        np.testing.assert_array_equal(np.asarray(got).view(np.uint8), want.view(np.uint8))
        made.append(np.repeat(want.astype(np.float32) * f[scale], HEADS // KV, 1))
    scores = f["q"].reshape(1, 2, HEADS, SIZE).transpose(0, 2, 1, 3) @ made[0].transpose(0, 1, 3, 2) / SIZE**0.5
    scores = np.where(np.arange(5) <= np.arange(2)[:, None] + 3, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = (p / p.sum(-1, keepdims=True) @ made[1]).transpose(0, 2, 1, 3).reshape(1, 2, -1)
    np.testing.assert_allclose(np.asarray(y), want, rtol=0, atol=3e-6 * np.abs(want).max())


def test_norms_of_queries_and_keys_are_those_of_nodes_ahead() -> None:
    r = np.random.default_rng(2)
    weights = {n: r.uniform(0.5, 1.5, SIZE).astype(np.float32) for n in ("q_norm", "k_norm")}
    f = values("", "NONE", 3, 2)
    got = tec.compile(attention(norms=True, qk_norm_epsilon=1e-5), cache=False, state=False).run({**f, **weights})
    for x, name in (("q", "q_norm"), ("k", "k_norm")):
        heads = f[x].reshape(1, 2, -1, SIZE)
        inverse = 1 / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-5)
        f[x] = (heads * inverse * weights[name]).reshape(f[x].shape)
    want = ort.InferenceSession(attention().SerializeToString()).run(None, f)
    for a, b in zip(got, want):
        np.testing.assert_allclose(np.asarray(a), b, rtol=0, atol=3e-6 * np.abs(b).max())


def test_a_decoder_whose_caches_leave_their_last_dimension_open() -> None:
    """As the builder exports since it can pack caches: nothing is given by the user, and the caches grow in place."""
    plain, model = genai_decoder(layers=2), genai_decoder(layers=2)
    for value in (*model.graph.input, *model.graph.output):
        if "key" in value.name or "value" in value.name:
            value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    ids = np.random.default_rng(0).integers(0, 96, (1, 6))
    runs = [tec.compile(m, cache=False).executor() for m in (plain, model)]
    for a, b in ((0, 4), (4, 5), (5, 6)):
        one, other = (ex.run(feeds(ids[:, a:b], a))[0].numpy() for ex in runs)
        np.testing.assert_array_equal(one, other)
    assert runs[1].length == 6


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (attention("int8", "PER_TOKEN"), "k_quant_type 'PER_TOKEN'"),
        (attention("int8", "PER_TENSOR", kv_cache_bit_width=4), "kv_cache_bit_width 4 and a cache of int8"),
        (attention("int8"), "a cache of int8 and k_quant_type 'NONE'"),
        (attention(sliding_window_cache=1, local_window_size=4), "sliding_window_cache and a cache whose length is not a number"),
        (attention(past=6, sliding_window_cache=1, local_window_size=8), "a window of 8 in a cache of 6"),
        (attention(qk_output=2), "output_qk"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_refused_is_named_with_its_value(model: Any, words: str) -> None:
    with pytest.raises(tec.TecError, match=words):
        tec.compile(model, cache=False)


def test_two_sizes_for_one_name_are_refused() -> None:
    with pytest.raises(tec.TecError, match=r"heads of 16 features and a cache of .*8\]"):
        tec.compile(attention(), shapes={"kv_cache_dim": 8}, cache=False)
