"""Encoders with decoders as optimum exports them: two decoders, or one merged of both; a tiny model of random weights, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tec
from tec.lm import Generator

ort = pytest.importorskip("onnxruntime")

SIZE, LETTERS, START = 16, 128, 1
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


class Model:
    """Graphs over the same weights: self-attention with a cache, attention to what the encoder said, logits."""

    def __init__(self, seed: int = 3):
        rng = np.random.default_rng(seed)
        self.weights = {
            n: rng.standard_normal((SIZE, SIZE)).astype(np.float32) / 3 for n in ("q", "k", "v", "cq", "ck", "cv")
        }
        self.weights |= {
            "embed": rng.standard_normal((LETTERS, SIZE)).astype(np.float32),
            "head": rng.standard_normal((SIZE, LETTERS)).astype(np.float32),
        }

    def decoder(self, past: bool, outputs: list[str]) -> list[Any]:
        """Nodes from input_ids, attention to a prefix; with `past` from caches."""
        op = helper.make_node
        nodes = [op("Gather", ["embed", "input_ids"], ["x"], axis=0)]
        nodes += [op("MatMul", ["x", w], [w + ".x"]) for w in ("q", "k", "v")]
        for w, name in (("k", "key"), ("v", "value")):
            own = f"present.0.decoder.{name}"
            nodes.append(op("Unsqueeze", [w + ".x", "one"], [w + ".new"]))
            if past:
                nodes.append(op("Concat", [f"past_key_values.0.decoder.{name}", w + ".new"], [own], axis=2))
            else:
                nodes.append(op("Identity", [w + ".new"], [own]))
                nodes.append(op("MatMul", ["encoder_hidden_states", "c" + w], [f"c{w}.x"]))
                nodes.append(op("Unsqueeze", [f"c{w}.x", "one"], [f"present.0.encoder.{name}"]))
        said = "past_key_values" if past else "present"
        nodes += self.attention("q.x", "present.0.decoder.key", "present.0.decoder.value", "self", causal=not past)
        nodes += [op("Add", ["x", "self"], ["y"]), op("MatMul", ["y", "cq"], ["cq.x"])]
        nodes += self.attention("cq.x", f"{said}.0.encoder.key", f"{said}.0.encoder.value", "cross", causal=False)
        nodes += [op("Add", ["y", "cross"], ["z"]), op("MatMul", ["z", "head"], ["logits"])]
        del outputs
        return nodes

    @staticmethod
    def attention(q: str, k: str, v: str, out: str, causal: bool) -> list[Any]:
        op = helper.make_node
        nodes = [
            op("Unsqueeze", [q, "one"], [out + ".q"]), op("Transpose", [k], [out + ".k"], perm=[0, 1, 3, 2]),
            op("MatMul", [out + ".q", out + ".k"], [out + ".s"]), op("Mul", [out + ".s", "scale"], [out + ".t"]),
        ]  # fmt: skip
        scores = out + ".t"
        if causal:
            nodes += [
                op("Shape", ["input_ids"], [out + ".shape"]), op("Gather", [out + ".shape", "one.s"], [out + ".n"], axis=0),
                op("Range", ["zero.s", out + ".n", "one.s"], [out + ".r"]), op("Unsqueeze", [out + ".r", "one"], [out + ".c"]),
                op("LessOrEqual", [out + ".r", out + ".c"], [out + ".see"]), op("Where", [out + ".see", out + ".t", "low"], [out + ".m"]),
            ]  # fmt: skip
            scores = out + ".m"
        return [
            *nodes, op("Softmax", [scores], [out + ".p"], axis=-1), op("MatMul", [out + ".p", v], [out + ".o"]), op("Squeeze", [out + ".o", "one"], [out]),
        ]  # fmt: skip

    def constants(self) -> list[Any]:
        more = {
            "one": np.array([1], np.int64),
            "one.s": np.array(1, np.int64),
            "zero.s": np.array(0, np.int64),
            "scale": np.float32(SIZE**-0.5),
            "low": np.float32(-1e9),
        }
        return [numpy_helper.from_array(np.asarray(w), n) for n, w in (self.weights | more).items()]

    def made(self, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
        graph = helper.make_graph(nodes, "g", inputs, outputs, self.constants())
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def save(self, folder: Path, merged: bool) -> None:
        info = helper.make_tensor_value_info
        ids, mask = (
            info("input_ids", INT, ["batch_size", "encoder_sequence_length"]),
            info("attention_mask", INT, ["batch_size", "encoder_sequence_length"]),
        )
        said = info("last_hidden_state", FLOAT, ["batch_size", "encoder_sequence_length", SIZE])
        onnx.save(
            self.made(
                [helper.make_node("Gather", ["embed", "input_ids"], ["last_hidden_state"], axis=0)], [ids, mask], [said]
            ),
            folder / "encoder_model.onnx",
        )
        steps = info("input_ids", INT, ["batch_size", "decoder_sequence_length"])
        mask = info("encoder_attention_mask", INT, ["batch_size", "encoder_sequence_length"])
        hidden = info("encoder_hidden_states", FLOAT, ["batch_size", "encoder_sequence_length", SIZE])
        logits = info("logits", FLOAT, ["batch_size", "decoder_sequence_length", LETTERS])
        kinds = [(side, name) for side in ("decoder", "encoder") for name in ("key", "value")]
        lengths = {"decoder": "past_decoder_sequence_length", "encoder": "encoder_sequence_length_out"}
        pasts = [info(f"past_key_values.0.{s}.{n}", FLOAT, ["batch_size", 1, lengths[s], SIZE]) for s, n in kinds]
        presents = [info(f"present.0.{s}.{n}", FLOAT, None) for s, n in kinds]
        if not merged:
            onnx.save(
                self.made(self.decoder(False, []), [steps, mask, hidden], [logits, *presents]),
                folder / "decoder_model.onnx",
            )
            onnx.save(
                self.made(self.decoder(True, []), [steps, mask, *pasts], [logits, *presents[:2]]),
                folder / "decoder_with_past_model.onnx",
            )
        else:
            ends = [
                helper.make_node("Identity", [f"past_key_values.0.encoder.{n}"], [f"present.0.encoder.{n}"])
                for n in ("key", "value")
            ]
            outs = [logits, *presents]
            branches = [
                helper.make_graph(nodes, name, [], outs)
                for name, nodes in (("with", [*self.decoder(True, []), *ends]), ("without", self.decoder(False, [])))
            ]
            use = info("use_cache_branch", TensorProto.BOOL, [1])
            choose = helper.make_node(
                "If", ["use_cache_branch"], [o.name for o in outs], then_branch=branches[0], else_branch=branches[1]
            )
            onnx.save(
                self.made([choose], [mask, steps, hidden, *pasts, use], outs), folder / "decoder_model_merged.onnx"
            )
        config = {"decoder_start_token_id": START, "eos_token_id": 0}
        (folder / "generation_config.json").write_text(json.dumps(config))

    def greedy(self, prompt: str, count: int) -> list[int]:
        """In NumPy, all read anew each time."""
        w, said = self.weights, self.weights["embed"][list(prompt.encode())]

        def attend(q: Any, k: Any, v: Any, mask: Any = 0) -> Any:
            s = q @ k.T * SIZE**-0.5 + mask
            p = np.exp(s - s.max(1, keepdims=True))
            return p / p.sum(1, keepdims=True) @ v

        ids = [START]
        for _ in range(count):
            x = w["embed"][ids]
            y = x + attend(x @ w["q"], x @ w["k"], x @ w["v"], np.where(np.tri(len(ids)), 0, -1e9))
            z = y + attend(y @ w["cq"], said @ w["ck"], said @ w["cv"])
            ids.append(int((z[-1] @ w["head"]).argmax()))
        return ids[1:]


@pytest.mark.parametrize("merged", [pytest.param(False, marks=pytest.mark.slow), True], ids=["two", "merged"])
def test_tokens_with_and_without_caches(tmp_path: Path, merged: bool) -> None:
    model = Model()
    model.save(tmp_path, merged)
    want = model.greedy("hello", 12)
    assert len(set(want)) > 2
    generator = Generator(tmp_path, tokenizer="bytes", target="llvm", end=[])
    for _ in range(2):  # a second text begins anew
        run = generator.generate("hello", max_tokens=12)
        list(run)
        assert run.ids == want
    other = generator.generate("world, said the sea", max_tokens=12)
    list(other)
    assert other.ids == model.greedy("world, said the sea", 12)
    if not merged:
        anew = Generator(tmp_path, tokenizer="bytes", target="llvm", end=[], cached=False).generate(
            "hello", max_tokens=12
        )
        list(anew)
        assert anew.ids == want


def test_a_decoder_without_its_encoder_is_refused(tmp_path: Path) -> None:
    Model().save(tmp_path, False)
    (tmp_path / "encoder_model.onnx").unlink()
    with pytest.raises(tec.ImportModelError, match="encoder_hidden_states"):
        Generator([tmp_path / "decoder_model.onnx"], tokenizer="bytes", target="llvm")


def test_the_start_of_an_answer_must_be_known(tmp_path: Path) -> None:
    Model().save(tmp_path, False)
    (tmp_path / "generation_config.json").unlink()
    generator = Generator(tmp_path, tokenizer="bytes", target="llvm")
    with pytest.raises(tec.ArgumentError, match="start="):
        list(generator.generate("hello"))
