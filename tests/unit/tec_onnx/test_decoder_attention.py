"""Attention over caches as ONNX Runtime's decoders keep it, drawn and compared with ONNX Runtime: sinks, windows, padded chunks, tables of blocks, beams."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import tec
from tests.seeds import some
from tests.thinned import thinned_rows

MS = "com.microsoft"
TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}


def model(op: str, inputs: dict[str, Any], outs: list[str], constants: tuple[str, ...] = (), **attrs: Any) -> Any:
    """One node; an input that is None is left out, those of `constants` are part of the model."""
    node = helper.make_node(op, [n if x is not None else "" for n, x in inputs.items()], outs, domain=MS, **attrs)
    given = {n: np.asarray(x) for n, x in inputs.items() if x is not None}
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, TYPES[str(x.dtype)], x.shape) for n, x in given.items() if n not in constants],
        [helper.make_empty_tensor_value_info(o) for o in outs],
        [helper.make_tensor(n, TYPES[str(given[n].dtype)], given[n].shape, given[n].ravel()) for n in constants],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def in_place(session: Any, feeds: dict[str, Any], outs: list[str], pairs: dict[str, str]) -> list[Any]:
    """What a session gives, outputs of `pairs` in the buffers of their inputs."""
    bound, values = session.io_binding(), {n: ort.OrtValue.ortvalue_from_numpy(x.copy()) for n, x in feeds.items()}
    for n, x in values.items():
        bound.bind_ortvalue_input(n, x)
    for n in outs:
        if n in pairs:
            bound.bind_ortvalue_output(n, values[pairs[n]])
        else:
            bound.bind_output(n)
    session.run_with_iobinding(bound)
    return [np.array(x) for x in bound.copy_outputs_to_cpu()]


def theirs(
    op: str, inputs: dict[str, Any], outs: list[str], constants: tuple[str, ...] = (), pairs: Any = None, **attrs: Any
) -> Any:
    """What ONNX Runtime gives. pairs: outputs that it wants in the buffers of inputs."""
    m = model(op, inputs, outs, constants, **attrs)
    feeds = {n: np.asarray(x) for n, x in inputs.items() if x is not None and n not in constants}
    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    return in_place(session, feeds, outs, pairs or {})


def both(op: str, inputs: dict[str, Any], outs: list[str], frozen: tuple[str, ...] = (), **attrs: Any) -> Any:
    """(tec's outputs, ONNX Runtime's). frozen: inputs that are constants of tec's network."""
    fixed = {n: np.asarray(inputs[n]) for n in frozen}
    feeds = {n: np.asarray(x) for n, x in inputs.items() if x is not None and n not in fixed}
    got = tec.compile(model(op, inputs, outs, **attrs), cache=False, state=False, freeze=fixed).run(feeds)
    return [np.asarray(x) for x in (got if isinstance(got, (list, tuple)) else [got])], theirs(
        op, inputs, outs, **attrs
    )


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1.0, float(np.abs(b).max(initial=0))))


def angles(count: int, half: int) -> dict[str, Any]:
    turn = np.arange(count)[:, None] / np.logspace(0, 2, half)[None]
    return {"cos": np.cos(turn).astype(np.float32), "sin": np.sin(turn).astype(np.float32)}


def test_group_attention_of_drawn_kinds() -> None:
    """Buffers: a prompt, a step or a chunk, entries of their own lengths; whole or a window; with sinks, biases, soft caps, rotary."""
    for seed in some(5):
        r = np.random.default_rng(seed)
        f = lambda *shape: r.standard_normal(shape).astype(np.float32)  # noqa: E731, B023
        kv, group, size = int(r.integers(1, 3)), int(r.integers(1, 4)), 16 * int(r.integers(1, 3))
        heads, room = kv * group, int(r.integers(6, 20))
        windowed, padded, causal = bool(r.integers(2)), bool(r.integers(2)), True
        window = int(r.integers(2, room + 1)) if windowed else int(r.choice([-1, 3]))
        batch = int(r.integers(1, 4))
        steps = 1 if batch > 1 and not padded else int(r.integers(1, 6))
        before = r.integers(1, 30 if windowed else room - steps + 1, batch)
        if not windowed and not padded and window < 0:
            causal = bool(r.integers(2)) or steps == 1
        valid = r.integers(0, steps + 1, batch) if padded else np.full(batch, steps)
        ends = before + valid - 1
        total = int(ends.max()) + 1
        if total < steps:
            continue
        turned = bool(r.integers(2))
        inputs = {
            "q": f(batch, steps, heads * size), "k": f(batch, steps, kv * size), "v": f(batch, steps, kv * size),
            "past_k": f(batch, kv, room, size), "past_v": f(batch, kv, room, size), "ends": ends.astype(np.int32), "total": np.int32(total),
            **(angles(64, size // 2) if turned else {"cos": None, "sin": None}), "ids": None,
            "bias": f(1, heads, steps, total) if r.integers(2) else None, "sink": f(heads) if r.integers(2) else None,
            **dict.fromkeys(("k_scale", "v_scale", "q_norm", "k_norm")), "query_seqlens": valid.astype(np.int32) if padded else None,
        }  # fmt: skip
        attrs = {
            "num_heads": heads, "kv_num_heads": kv, "do_rotary": int(turned), "local_window_size": window, "causal": int(causal),
            "sliding_window_cache": int(windowed), "smooth_softmax": int(r.integers(2)), "softcap": float(r.choice([0.0, 5.0])),
        }  # fmt: skip
        frozen = () if windowed or padded else ("total",)
        try:
            (y, k, v), want = both("GroupQueryAttention", inputs, ["y", "k2", "v2"], frozen, **attrs)
        except Exception as e:
            raise AssertionError(f"seed {seed}: {attrs} {before} {valid} {room}") from e
        step = room - window + 1
        for entry in range(batch):
            used = int(valid[entry])
            close(y[entry, :used], want[0][entry, :used])
            tokens = int(ends[entry]) + 1
            rows = tokens if tokens <= room else tokens - step * -(-(tokens - room) // step)
            for mine, theirs in ((k, want[1]), (v, want[2])):
                close(mine[entry, :, :rows], theirs[entry, :, :rows])


def test_sparse_attention_of_drawn_tables() -> None:
    for seed in some(3):
        r = np.random.default_rng(seed)
        f = lambda *shape: r.standard_normal(shape).astype(np.float32)  # noqa: E731, B023
        kv, group, size, block = int(r.integers(1, 3)), 2 * int(r.integers(1, 3)), 16, 16
        heads, blocks, tables = kv * group, int(r.integers(2, 5)), int(r.choice([1, 2]))
        room = block * blocks
        prompt = bool(seed % 2)
        batch, steps = (int(r.integers(1, 3)), int(r.integers(2, room))) if prompt else (2, 1)
        # ONNX Runtime 1.32 leaves scores of the shorter texts of a batch unset, so each text has a session of its own there.
        lengths = np.full(batch, steps) if prompt else r.integers(2, room + 1, batch)
        total = int(lengths.max())
        seen = np.tril(r.random((tables, blocks, blocks)) < 0.6) | np.eye(blocks, dtype=bool)
        rows = np.zeros((tables, blocks + 1), np.int32)
        rows[:, 1:] = np.cumsum(seen.sum(2), axis=1)
        columns = np.full((tables, int(rows.max())), -1, np.int32)
        for t in range(tables):
            own = np.nonzero(seen[t])[1]
            columns[t, : len(own)] = own
        turned = bool(r.integers(2))
        inputs = {
            "q": f(batch, steps, heads * size), "k": f(batch, steps, kv * size), "v": f(batch, steps, kv * size),
            "past_k": f(batch, kv, room, size), "past_v": f(batch, kv, room, size), "rows": rows, "columns": columns,
            "total": np.array([total], np.int32), "lengths": lengths.astype(np.int32),
            **(angles(room, size // 2) if turned else {"cos": None, "sin": None}),
        }  # fmt: skip
        attrs = {"num_heads": heads, "kv_num_heads": kv, "sparse_block_size": block, "do_rotary": int(turned)}
        whole = ("rows", "columns", "cos", "sin")
        made, pairs = ["y", "k2", "v2"], {"k2": "past_k", "v2": "past_v"}
        m = model("SparseAttention", inputs, made, whole[:2], **attrs)
        got = tec.compile(m, cache=False, state=False).run({n: x for n, x in inputs.items() if x is not None and n not in whole[:2]})  # fmt: skip
        for entry in range(batch):
            own = {n: x if x is None or n in (*whole, "total") else x[entry : entry + 1] for n, x in inputs.items()}
            own["total"] = lengths[entry : entry + 1].astype(np.int32)
            want = theirs("SparseAttention", own, made, whole[:2], pairs, **attrs)
            close(np.asarray(got[0])[entry], want[0][0])
            for mine, rows_there in zip(got[1:], want[1:]):
                close(np.asarray(mine)[entry, :, : lengths[entry]], rows_there[0, :, : lengths[entry]])


@thinned_rows(3, "kind", ["grows", "buffer", "beams", "crosses", "packed"])
def test_one_token_of_each_text(kind: str) -> None:
    """DecoderMaskedMultiHeadAttention, with and without biases. ONNX Runtime's CPU provider takes queries, keys and values apart
    and shared buffers alone: other forms are compared with these."""
    for seed in some(2):
        r = np.random.default_rng(seed)
        f = lambda *shape: r.standard_normal(shape).astype(np.float32)  # noqa: E731, B023
        heads, size, before, beams = int(r.integers(1, 5)), 8, int(r.integers(1, 9)), 2
        batch = 2 * beams if kind == "beams" else int(r.integers(1, 4))
        hidden, shared = heads * size, kind != "crosses"
        total, room = before + 1, before + (4 if shared else 0)
        inputs: dict[str, Any] = {"q": f(batch, 1, hidden), "k": f(batch, 1, hidden), "v": f(batch, 1, hidden)}
        if kind == "crosses":
            total = before
            inputs |= {"k": f(batch, heads, total, size), "v": f(batch, heads, total, size)}
        inputs["mask"] = (r.random((batch, total)) > 0.2).astype(np.int32) | (np.arange(total) == 0)
        inputs["bias"] = f(1, heads, 1, total) if r.integers(2) and kind != "crosses" else None
        past = (batch, heads, room, size)
        inputs |= {"past_k": None, "past_v": None} if kind == "crosses" else {"past_k": f(*past), "past_v": f(*past)}
        inputs["length"] = np.array([before], np.int32) if shared else None
        inputs["beams"] = np.array([beams], np.int32) if kind == "beams" else None
        inputs["of"] = r.integers(0, beams, (batch // beams, beams, room)).astype(np.int32) if kind == "beams" else None
        inputs["own"] = f(3 * hidden) if r.integers(2) and kind != "crosses" else None
        inputs["mask"] = inputs["mask"].astype(np.int32)
        outs = ["y"] if kind == "crosses" else ["y", "k2", "v2"]
        attrs = {"num_heads": heads, "past_present_share_buffer": int(shared)}
        got, want = both("DecoderMaskedMultiHeadAttention", inputs, outs, **attrs)
        if kind == "grows":
            inputs |= {n: inputs[n][:, :, :before] for n in ("past_k", "past_v")} | {"length": None}
            feeds = {n: x for n, x in inputs.items() if x is not None}
            m = model("DecoderMaskedMultiHeadAttention", inputs, outs, num_heads=heads)
            got = [np.asarray(x) for x in tec.compile(m, cache=False, state=False).run(feeds)]
            assert got[1].shape[2] == total
        if kind == "packed":
            inputs |= {"q": np.concatenate([inputs[n] for n in "qkv"], 2), "k": None, "v": None}
            m = model("DecoderMaskedMultiHeadAttention", inputs, outs, **attrs)
            got = tec.compile(m, cache=False, state=False).run({n: x for n, x in inputs.items() if x is not None})
            got = [np.asarray(x) for x in got]
        close(got[0], want[0])
        for mine, theirs_there in zip(got[1:], want[1:]):
            close(mine[:, :, :total], theirs_there[:, :, :total])
