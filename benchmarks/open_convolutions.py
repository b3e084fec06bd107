"""Convolutions with open height and width beside the same ones compiled for their sizes, on the CPU.

    python benchmarks/open_convolutions.py [--only dw,3x3] [--repeat 60]

One thread, processor time, runs in turn. One JSON line each: {"name", "value", "unit", "peer", "peer_value", "ratio", "least"}: medians in microseconds,
their ratio and that of the least; with what brings images into blocks and back. Goal: 1.15.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from functools import partial
from typing import Any

os.environ.setdefault("TEC_NUM_THREADS", "1")

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from turns import in_turn, line

import tec

# name: channels in and out, window, stride, rows and columns, groups
CASES = {
    "1x1, 64 at 56": (64, 64, 1, 1, 56, 1),
    "3x3, 64 at 56": (64, 64, 3, 1, 56, 1),
    "3x3, 64 at 57": (64, 64, 3, 1, 57, 1),
    "3x3, 16 at 160": (16, 16, 3, 1, 160, 1),
    "3x3, 8 at 160": (8, 8, 3, 1, 160, 1),
    "3x3, 128 at 36": (128, 128, 3, 1, 36, 1),
    "3x3 of 8 groups, 128 at 36": (128, 128, 3, 1, 36, 8),
    "3x3 by 2, 3 to 32 at 224": (3, 32, 3, 2, 224, 1),
    "depthwise, 96 at 56": (96, 96, 3, 1, 56, 96),
    "depthwise, 32 at 112": (32, 32, 3, 1, 112, 32),
    "depthwise 5x5 by 2, 24 at 57": (24, 24, 5, 2, 57, 24),
}


def model(inputs: int, outputs: int, window: int, stride: int, size: int, groups: int, is_open: bool) -> Any:
    """A convolution with a bias and a relu."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((outputs, inputs // groups, window, window)) / (window * (inputs // groups) ** 0.5)
    arrays = {"w": weights, "b": rng.standard_normal(outputs)}
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], pads=[window // 2] * 4, strides=[stride, stride], group=groups
        ),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    shape = [1, inputs, *(("h", "w") if is_open else (size, size))]
    graph = helper.make_graph(
        nodes, "convolution", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(name: str, repeat: int) -> None:
    inputs, _, _, _, size, _ = case = CASES[name]
    executors = [
        tec.compile(model(*case, is_open), cache=False, progress=lambda *_: None).executor()
        for is_open in (True, False)
    ]
    x = tec.nd.from_numpy(np.random.default_rng(1).standard_normal((1, inputs, size, size)).astype(np.float32))
    a, b = (e.run({"x": x})[0].numpy() for e in executors)
    np.testing.assert_allclose(a, b, atol=1e-5)
    taken = in_turn(*(partial(e.run, {"x": x}) for e in executors), rounds=repeat, clock=time.process_time)
    mine, bound = (statistics.median(t) * 1e6 for t in taken)
    line(name, mine, "us", "sizes bound", bound, least=round(min(taken[0]) / min(taken[1]), 2))


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", help="parts of names, with commas between them")
    args.add_argument("--repeat", type=int, default=60)
    given = args.parse_args()
    for name in CASES:
        if not given.only or any(part in name for part in given.only.split(",")):
            measure(name, given.repeat)


if __name__ == "__main__":
    main()
