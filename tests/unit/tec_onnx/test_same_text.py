"""One model gives one text of LLVM IR: twice in a process, and whatever order Python's hashes give to its sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import hashlib, sys
import numpy as np
from onnx import TensorProto, helper, numpy_helper
import tec

def texts():
    for dtype, kind, m, k, n in ((np.float16, TensorProto.FLOAT16, 64, 64, 64), (np.float32, TensorProto.FLOAT, 100, 48, 37)):
        w = numpy_helper.from_array(np.zeros((k, n), dtype), "w")
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["r"]), helper.make_node("Softmax", ["r"], ["y"])]
        ends = [[helper.make_tensor_value_info(x, kind, s)] for x, s in (("x", [m, k]), ("y", [m, n]))]
        model = helper.make_model(helper.make_graph(nodes, "g", *ends, [w]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        for target in ("gfx1100",):
            yield hashlib.sha256(tec.compile(model, target=target).get_source().encode()).hexdigest()

first = list(texts())
assert sys.argv[1] != "1" or first == list(texts()), "twice in a process"
print(*first)
"""


def test_text_without_hashes(tmp_path: Path) -> None:
    said = []
    for seed in ("1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "TEC_CACHE_DIR": str(tmp_path / seed)}
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, seed], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert len(said[0]) == 2 and said[0] == said[1], [i for i, (a, b) in enumerate(zip(*said)) if a != b]
