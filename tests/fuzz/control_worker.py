"""Models of control flow against ONNX Runtime: compiled once where that is possible, else by a session.

    python -m tests.fuzz.control_worker FIRST LAST [TARGET DEVICE]

JSON lines: {"seed", "now"}: whose turn it is; then one a seed: {"seed", "outcome"}; the outcome is "ran", "by a session: why", "refused: why"
(what depends on a size that is known at a run, and says so), "not by ONNX Runtime: why", or "bad: why".
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import numpy as np
import onnxruntime as ort
from tec_onnx.backend import compiled_runner
from tec_onnx.session import Session

import tec
from tec.errors import ArgumentError, ImportModelError
from tests.fuzz.control_programs import program


def wrong(got: list[Any], want: list[Any]) -> str | None:
    """How outputs differ."""
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        g = np.asarray(g)
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"output {k} is {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if not np.allclose(g, w, rtol=2e-4, atol=2e-5, equal_nan=True):
            return f"output {k} is off by {np.abs(g - w).max()}"
    return None


def check(seed: int, target: str = "llvm", device: str | None = None) -> str:
    """What becomes of a seed's model."""
    p = program(seed)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = ort.InferenceSession(p.model.SerializeToString(), options, ["CPUExecutionProvider"])
    wanted: list[Any] = []
    print(json.dumps({"seed": seed, "now": "onnxruntime"}), flush=True)
    try:
        wanted = [theirs.run(None, feeds) for feeds in p.feeds]
    except Exception as error:  # ONNX Runtime 1.31 loses values of the outermost graph in some nested scans
        return f"not by ONNX Runtime: {error}"
    print(json.dumps({"seed": seed, "now": "tec"}), flush=True)
    try:
        net: Any = tec.compile(p.model, target, cache=False, progress=lambda *_: None)
        why = None
    except ImportModelError as error:
        net = Session(p.model, compiled_runner(target, None if device is None else tec.device(device)))
        why = error.message.splitlines()[0]
    for feeds, want in zip(p.feeds, wanted):
        try:
            got = net.run(feeds) if why is not None else net.run(feeds, device)
        except ArgumentError as error:
            if "cannot be run with inputs of these shapes" not in error.message:
                raise
            return f"refused: {error.message.splitlines()[0]}"
        off = wrong(got, want)
        if off:
            sizes = {k: v.tolist() for k, v in feeds.items() if v.ndim == 0} | {"n": len(feeds["x"])}
            return f"bad: {off} with {sizes}" + (f" (by a session: {why})" if why else "")
    return "ran" if why is None else f"by a session: {why}"


def main() -> None:
    first, last = int(sys.argv[1]), int(sys.argv[2])
    ort.set_default_logger_severity(4)
    for seed in range(first, last):
        try:
            outcome = check(seed, *sys.argv[3:])
        except Exception as error:
            outcome = f"bad: {type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}"
        print(json.dumps({"seed": seed, "outcome": outcome}), flush=True)


if __name__ == "__main__":
    main()
