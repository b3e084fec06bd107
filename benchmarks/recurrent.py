"""Recurrent layers, loops and branches on the CPU against ONNX Runtime, two threads each.

    python benchmarks/recurrent.py
    python benchmarks/recurrent.py --only lstm,loop --repeat 60

One JSON line each: {"name", "value", "unit", "peer", "peer_value", "ratio"}; medians of blocks of runs, one side's and the other's in turn. Layers have
random weights and an open length: one compilation serves any. Networks come from tools.zoo; those that cannot be had are left out. "us a trip" is a Loop
whose body adds two vectors of 256: what a trip costs beside its work. The worst difference of the outputs from the peer's stands in "difference".
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TEC_NUM_THREADS", "2")

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, parser
from turns import REST_S, in_turn, line

import tec

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# name: operator, steps, batch, features, hidden, directions
LAYERS = {
    "lstm, 300 steps of 256": ("LSTM", 300, 1, 256, 256, 1),
    "gru, 300 steps of 256": ("GRU", 300, 1, 256, 256, 1),
    "rnn, 300 steps of 256": ("RNN", 300, 1, 256, 256, 1),
    "lstm, 100 steps of 128, batch 8, both ways": ("LSTM", 100, 8, 128, 128, 2),
    "lstm, 480 steps of 256": ("LSTM", 480, 1, 40, 256, 1),
    "lstm, 50 steps of 512": ("LSTM", 50, 1, 64, 512, 1),
    "lstm, 1 step of 128": ("LSTM", 1, 1, 128, 128, 1),
}
NETWORKS: dict[str, Callable[[], dict[str, Any]]] = {
    "silero_vad": lambda: {"input": _rand(1, 576) * 0.1, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)},
    "d_vector": lambda: {"input": _rand(1, 160, 40) ** 2},
}  # fmt: skip
SHAPES = {"silero_vad": {"input": (1, 576), "state": (2, 1, 128)}}


def _rand(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def layer(kind: str, steps: int, batch: int, features: int, hidden: int, directions: int) -> tuple[Any, dict[str, Any]]:
    rows = GATES[kind] * hidden
    weights = {
        "W": _rand(directions, rows, features) / features**0.5,
        "R": _rand(directions, rows, hidden) / hidden**0.5,
        "B": _rand(directions, 2 * rows) / 10,
    }
    outs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(kind, ["X", *weights], outs, hidden_size=hidden, direction=direction)
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["steps", batch, features])
    graph = helper.make_graph(
        [node], "layer", [x], [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"X": _rand(steps, batch, features)}


def trips(count: int) -> tuple[Any, dict[str, Any]]:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        agraph (int64 n, float[256] x) => (float[256] y) {
            y = Loop (n, , x) <body = body (int64 i, bool c, float[256] now) => (bool more, float[256] then) {
                more = Identity (c)
                then = Add (now, x)
            }>
        }""")
    return model, {"n": np.array(count), "x": _rand(256)}


def compare(name: str, model: Any, feeds: dict[str, Any], repeat: int, shapes: Any = None, per: int = 0) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    start = time.perf_counter()
    net = tec.compile(model, cache=False, progress=lambda *_: None, shapes=shapes, state=False)
    seconds = time.perf_counter() - start
    executor = net.executor()
    want, got = session.run(None, feeds), [o.numpy() for o in executor.run(feeds)]
    difference = max(float(np.abs(a - b).max()) for a, b in zip(want, got))
    sides = lambda: executor.run(feeds), lambda: session.run(None, feeds)
    mine, theirs = map(statistics.median, in_turn(*sides, rounds=max(1, repeat // 10), block=10, rest=REST_S))
    if per:
        line(name, mine / per * 1e6, "us a trip", "onnxruntime", theirs / per * 1e6, difference=difference)
        return
    line(name, mine * 1e3, "ms", "onnxruntime", theirs * 1e3, difference=difference)
    line(f"{name}, compilation", seconds, "s", "goal", 2.0)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", help="beginnings of names, with commas between them")
    args.add_argument("--repeat", type=int, default=40)
    given = args.parse_args()
    ort.set_default_logger_severity(4)

    def wanted(name: str) -> bool:
        return not given.only or any(name.startswith(o) for o in given.only.split(","))

    for name, sizes in LAYERS.items():
        if wanted(name):
            compare(name, *layer(*sizes), given.repeat)
    if wanted("loop"):
        compare("loop", *trips(1000), given.repeat, per=1000)
    for name, feeds in NETWORKS.items():
        if not wanted(name):
            continue
        from tools import zoo

        try:
            model = onnx.load(str(zoo.get(name)))
        except Exception as error:  # a network of another package
            print(f"{name}: left out, {type(error).__name__}")
            continue
        inputs = dict(zip((i.name for i in model.graph.input), feeds().values()))
        compare(name, model, inputs, given.repeat, SHAPES.get(name))


if __name__ == "__main__":
    main()
