"""Compiles models that nnsmith made and holds their numbers against ONNX Runtime and the reference evaluator of the graph.

    python -m tests.fuzz.nnsmith_worker FOLDER FIRST COUNT

Prints "start NAME" before and "end NAME OUTCOME" after each; OUTCOME is "ran", "refused: why" or "bad: why". Whoever reads it knows
which model ended the process or hangs. `test_nnsmith` reads it.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import tec_onnx
from onnx.reference import ReferenceEvaluator
from tec_onnx import reader

import tec
from tec.errors import TecError
from tec.graph import run_graph
from tests.fuzz.model_worker import agree


def feeds_of(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
    """Numbers as nnsmith takes them: from 1 to 2, where its operators are defined; small integers; both truths."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for name, entry in tec_onnx.input_info(model).items():
        assert entry is not None
        dtype, shape = entry
        kind = np.dtype(dtype)
        if kind.kind == "f":
            feeds[name] = rng.uniform(1, 2, shape).astype(kind)
        else:
            feeds[name] = rng.integers(0, 2 if kind.kind == "b" else 5, shape).astype(kind)
    return feeds


def nudged(feeds: dict[str, Any]) -> dict[str, Any]:
    """Every float moved to its neighbour above."""
    return {n: np.nextafter(x, np.asarray(np.inf, x.dtype)) if x.dtype.kind == "f" else x for n, x in feeds.items()}


def by_ort(model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    """ONNX Runtime's outputs; the reason where it does not take the model."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception as error:
        return str(error)


def one(path: Path) -> str:
    """What becomes of a model."""
    model = onnx.load(path)
    feeds = feeds_of(model, int(path.stem))
    theirs = by_ort(model, feeds)
    try:
        graph, _ = tec_onnx.from_onnx(model)
        got = tec.compile(model, target="llvm", cache=False, progress=lambda *_: None).run(feeds)
    except TecError as error:
        return "refused: " + error.message.splitlines()[0]
    except Exception as error:
        return f"bad: {type(error).__name__}: {error}"
    ours = run_graph(graph, feeds)
    why = agree(got, ours)
    if why:
        # The sine of a tangent near its pole: where an input's last bit changes the reference as much, no rounding is wrong.
        if agree(run_graph(graph, nudged(feeds)), ours) and not by_node(model, feeds):
            return "ran, rounded otherwise"
        return f"bad: against the reference: {why}"
    other = "ONNX Runtime"
    if isinstance(theirs, str):
        other = "the onnx package"
        try:
            theirs = ReferenceEvaluator(model).run(None, feeds)
        except Exception:
            return "ran, against our own reference alone"
    # A float that no integer of the type is near: x86 gives the least integer, tec the nearest end.
    theirs = [np.asarray(t) for t in theirs]
    least = [t == np.iinfo(t.dtype).min if t.dtype.kind == "i" else np.zeros(t.shape, bool) for t in theirs]
    if all(np.shape(g) == t.shape for g, t in zip(got, theirs)):
        got = [np.where(m, t, g) for g, t, m in zip(got, theirs, least)]
    if not agree(got, theirs):
        return f"ran as by {other}"
    return by_node(model, feeds) or "ran, rounded otherwise"


def by_node(model: onnx.ModelProto, feeds: dict[str, Any]) -> str:
    """Which node differs from ONNX Runtime's when both are given tec's own numbers; nothing where none does.

    Sums of 16 bits are rounded at other places, and what comes after (a floor, an argmax, a sine of a large number) makes much of it:
    the whole differs, and no part does.
    """
    full = onnx.shape_inference.infer_shapes(model)
    have = {o.name for o in full.graph.output}
    full.graph.output.extend(v for v in full.graph.value_info if v.name not in have)
    values = {t.name: onnx.numpy_helper.to_array(t) for t in full.graph.initializer} | feeds
    got = tec.compile(full, target="llvm", cache=False, progress=lambda *_: None).run(feeds)
    values |= {o.name: g for o, g in zip(full.graph.output, got)}
    for node in full.graph.node:
        names = list(dict.fromkeys(x for x in node.input if x))
        if not all(x in values for x in (*names, *node.output)):
            continue
        info = [
            onnx.helper.make_tensor_value_info(x, reader.elem_type(str(values[x].dtype)), values[x].shape)
            for x in names
        ]
        outs = [onnx.helper.make_empty_tensor_value_info(o) for o in node.output]
        alone = onnx.helper.make_model(
            onnx.helper.make_graph([node], "one", info, outs), opset_imports=model.opset_import
        )
        alone.ir_version = model.ir_version
        theirs = by_ort(alone, {x: values[x] for x in names})
        why = "" if isinstance(theirs, str) else agree([values[o] for o in node.output], theirs)
        if why:
            return f"bad: {node.op_type} {node.name!r} against ONNX Runtime: {why}"
    return ""


def main() -> None:
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    ort.set_default_logger_severity(4)
    for seed in range(first, first + count):
        path = folder / f"{seed}.onnx"
        if path.exists():
            print(f"start {seed}", flush=True)
            print(f"end {seed} {one(path)!r}", flush=True)


if __name__ == "__main__":
    main()
