"""Single convolutions of the kinds that real networks have, tec against ONNX Runtime: one thread, processor time, in turn.

    python benchmarks/conv_kinds.py [--rounds 25] [WORD ...]

The lower quartile of the turns of each side counts: other work on the machine lengthens some turns of both. The exit status says whether a kind takes more than
1.2 times ONNX Runtime's time. With words, only the kinds whose names hold one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from typing import Any

os.environ.setdefault("TEC_NUM_THREADS", "1")

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper
from turns import in_turn, line

import tec

GOAL = 1.2
PAD = {"pads": [1] * 4}
Kind = tuple[list[int], list[int], dict[str, Any]]  # of the image, of the weights, attributes and more
KINDS: dict[str, Kind] = {
    "3x3 float32, 128 to 128, 36 x 36": ([1, 128, 36, 36], [128, 128, 3, 3], PAD),
    "the same, open height and width": ([1, 128, 36, 36], [128, 128, 3, 3], {**PAD, "open": ["n", 128, "h", "w"]}),
    "the same, 8 groups": ([1, 128, 36, 36], [128, 16, 3, 3], {**PAD, "group": 8}),
    "3x3 of 32 groups, 256 to 256, 28 x 28": ([1, 256, 28, 28], [256, 8, 3, 3], {**PAD, "group": 32}),
    "3x3 float32, 64 to 64, 33 x 33": ([1, 64, 33, 33], [64, 64, 3, 3], PAD),
    "3x3 ConvInteger, 64 to 64, 36 x 36": ([1, 64, 36, 36], [64, 64, 3, 3], {**PAD, "dtype": "u1"}),
    "3x3 float16, 64 to 64, 36 x 36": ([1, 64, 36, 36], [64, 64, 3, 3], {**PAD, "dtype": "f2"}),
    "1-D, k = 3, 384 to 384, 1500": ([1, 384, 1500], [384, 384, 3], {"pads": [1, 1]}),
    "(64, 1) on images of one column, 256 to 128": ([1, 256, 190, 1], [128, 256, 64, 1], {}),
    "3-D, 3x3x3, 32 to 32, 16 x 32 x 32": ([1, 32, 16, 32, 32], [32, 32, 3, 3, 3], {"pads": [1] * 6}),
    "3-D, 3x3x3, channel by channel": ([1, 32, 16, 32, 32], [32, 1, 3, 3, 3], {"pads": [1] * 6, "group": 32}),
    "3-D, 1x3x3 by 2, 64 to 128, 8 x 28 x 28": ([1, 64, 8, 28, 28], [128, 64, 1, 3, 3], {"pads": [0, 1, 1] * 2, "strides": [1, 2, 2]}),
}  # fmt: skip


def model(kind: Kind, rng: np.random.Generator) -> tuple[Any, np.ndarray[Any, Any]]:
    """The model and its input."""
    x_shape, w_shape, rest = kind
    attrs = dict(rest)
    dtype, shape = attrs.pop("dtype", "f4"), attrs.pop("open", x_shape)
    if dtype == "u1":
        x, w = rng.integers(0, 255, x_shape).astype("u1"), rng.integers(-127, 127, w_shape).astype("i1")
    else:
        x, w = rng.standard_normal(x_shape).astype(dtype), rng.standard_normal(w_shape).astype(dtype)
    node = helper.make_node("ConvInteger" if dtype == "u1" else "Conv", ["x", "w"], ["y"], **attrs)
    out = {"u1": 6, "f2": 10}.get(dtype, 1)
    graph = helper.make_graph([node], "conv", [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), shape)],
        [helper.make_tensor_value_info("y", out, None)], [numpy_helper.from_array(w, "w")])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), x


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--target", default="llvm")
    args = parser.parse_args()
    missed = 0
    for name, kind in KINDS.items():
        if args.words and not any(w in name for w in args.words):
            continue
        made, x = model(kind, np.random.default_rng(0))
        net = tec.compile(made, target=args.target)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(made.SerializeToString(), options)
        (got,), (want,) = net.run({"x": x}), session.run(None, {"x": x})
        np.testing.assert_allclose(
            got.numpy() if hasattr(got, "numpy") else got, want, rtol=2e-2, atol=1e-2 * float(np.abs(want).max())
        )
        sides = partial(net.run, {"x": x}), partial(session.run, None, {"x": x})
        taken = in_turn(*sides, rounds=args.rounds, clock=time.process_time)
        mine, theirs = (float(np.quantile(t, 0.25)) * 1e3 for t in taken)  # a busy host only ever adds
        missed += line(name, mine, "ms", "onnxruntime", theirs) > GOAL
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
