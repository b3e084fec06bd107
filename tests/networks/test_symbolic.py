"""Real networks with open dimensions, one module for several sizes, against ONNX Runtime at each."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tec
from tests.networks import opened

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

SIZES: dict[str, list[dict[str, int]]] = {
    "minilm": [{"batch": 1, "seq": 1}, {"batch": 3, "seq": 17}, {"batch": 1, "seq": 128}],
    "bert_layer": [{"batch": 1, "seq": 128}, {"batch": 2, "seq": 24}],
    "mobilenet_v2": [{"batch": 1}, {"batch": 3}],
    "resnet50": [{"batch": 1}, {"batch": 2}],
    "squeezenet": [{"batch": 1}, {"batch": 2}],
    "magika": [{"batch": 1}, {"batch": 3}],
    "silero_vad": [{"batch": 1}, {"batch": 4}],
    "ppocr_rec": [{"batch": 1, "width": 320}, {"batch": 2, "width": 100}],
    "mtcnn_p": [{"height": 52, "width": 40}, {"height": 71, "width": 33}],
    "t5_encoder": [{"batch_size": 1, "encoder_sequence_length": 12}, {"batch_size": 2, "encoder_sequence_length": 7}],
}
EMULATED = ["minilm", "mobilenet_v2", "silero_vad", "bert_layer"]
SHAPES: dict[str, Any] = {"silero_vad": {"input": ("batch", 576), "state": (2, "batch", 128)}}
# Quantized while it runs: a value at the edge of two steps may fall to either side (see test_networks.QUANTIZED).
TOLERANCE = {"t5_encoder": 0.03}
FREEZE: dict[str, Any] = {"silero_vad": {"sr": np.array(16000, np.int64)}}


def feeds_of(session: Any, name: str, env: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(sum(env.values()))
    out: dict[str, Any] = {}
    given = SHAPES.get(name, {})
    for i in session.get_inputs():
        if i.name in FREEZE.get(name, {}):
            continue
        shape = [d if isinstance(d, int) else env[d] for d in given.get(i.name, i.shape)]
        if "mask" in i.name:
            out[i.name] = np.broadcast_to(np.arange(shape[-1]) < max(1, shape[-1] - 2), shape).astype(np.int64)
        elif "int" in i.type:
            out[i.name] = rng.integers(1, 250, shape).astype(i.type[7:-1])
        else:
            out[i.name] = (rng.standard_normal(shape) * 0.5).astype(np.float32)
    return out


def check(name: str, target: str, device: Any = None) -> None:
    model: onnx.ModelProto = opened.MODELS[name]()
    session = ort.InferenceSession(model.SerializeToString())
    freeze = FREEZE.get(name)
    net = tec.compile(model, target=target, shapes=SHAPES.get(name), freeze=freeze)
    assert net.open_sizes == list(SIZES[name][0])
    for env in SIZES[name]:
        feeds = feeds_of(session, name, env)
        want = session.run(None, {**feeds, **(freeze or {})})
        for g, w in zip(net.run(feeds, device), want, strict=True):
            assert g.shape == w.shape and g.dtype == w.dtype
            error = float(np.abs(g.astype(np.float64) - w).max()) / max(float(np.abs(w).max()), 1e-6)
            print(f"{name} {env}: largest error {error:.1e} of the largest value")
            assert error < TOLERANCE.get(name, 2e-4), (name, env, error)


@pytest.mark.parametrize("name", SIZES)
def test_on_the_cpu(name: str) -> None:
    check(name, "llvm")


@pytest.mark.parametrize("name", EMULATED)
def test_on_the_software_gpu(name: str) -> None:
    check(name, "rocm -mcpu=gfx942", tec.rocm_emu("gfx942"))


@pytest.mark.parametrize("target", ["rocm -mcpu=gfx1100", "cuda"])
@pytest.mark.parametrize("name", ["minilm", "mobilenet_v2"])
def test_compiles(name: str, target: str) -> None:
    net = tec.compile(opened.MODELS[name](), target=target)
    assert net.open_sizes and net.get_binary()
