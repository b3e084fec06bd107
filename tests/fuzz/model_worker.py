"""The worker of `test_models`: takes seeds, makes one bad model or package of each, and says what became of it.

    python -m tests.fuzz.model_worker FIRST SECONDS

Prints "start SEED" before and "end SEED OUTCOME" after each; OUTCOME is "refused", "ran" or "bad: why". Whoever reads it knows
which seed ended the process or hangs.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sys
import tempfile
import time
import warnings
import zipfile
from typing import Any

import numpy as np
import onnx
import tec_onnx
from onnx import TensorProto, helper, numpy_helper

import tec
from tec.errors import TecError
from tec.graph import Graph, run_graph
from tec.graph.builders import Builder, control
from tec.graph.regions import bodies, is_region
from tests.fuzz.test_onnx_mutations import mutate_bytes, mutate_graph, seed_model
from tests.unit.graph.random_graphs import feed, random_graph

LEAST = 24  # cases, however slow the machine is
LARGEST = 1 << 22  # elements of an input that a case may have
DTYPES = {"float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool"}


def attention_model() -> onnx.ModelProto:
    n = helper.make_node
    nodes = [
        n("LayerNormalization", ["x", "s", "b"], ["h"], axis=-1),
        n("MatMul", ["h", "wq"], ["q"]),
        n("MatMul", ["h", "wk"], ["k"]),
        n("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        n("MatMul", ["q", "kt"], ["a"]),
        n("Mul", ["a", "scale"], ["as"]),
        n("Softmax", ["as"], ["p"], axis=-1),
        n("MatMul", ["p", "h"], ["o"]),
        n("Add", ["o", "x"], ["r"]),
        n("Gelu", ["r"], ["g"]),
        n("Split", ["g"], ["u", "v"], axis=2, num_outputs=2),
        n("Where", ["mask", "u", "v"], ["y"]),
        n("ReduceL2", ["y", "ax"], ["z"], keepdims=0),
        n("Cast", ["z"], ["zi"], to=TensorProto.INT32),
        n("Gather", ["y", "ids"], ["e"], axis=1),
    ]
    rng = np.random.default_rng(1)
    weights = {
        "s": np.ones(8, "f"), "b": np.zeros(8, "f"), "wq": rng.normal(size=(8, 8)).astype("f"), "wk": rng.normal(size=(8, 8)).astype("f"),
        "scale": np.float32(0.3), "mask": np.array([True, False, True, True]), "ax": np.array([1]), "ids": np.array([2, 0, -1]),
    }  # fmt: skip
    return _model(nodes, {"x": (2, 5, 8)}, ("y", "z", "zi", "e"), weights, 20)


def control_model() -> onnx.ModelProto:
    n, info = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            n("Add", ["acc", "x"], ["next"]),
            n("Identity", ["go"], ["on"]),
            n("ReduceMax", ["next"], ["top"], keepdims=0),
        ],
        "body",
        [info("k", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ()), info("acc", TensorProto.FLOAT, (2, 3))],
        [info("on", TensorProto.BOOL, ()), info("next", TensorProto.FLOAT, (2, 3)), info("top", TensorProto.FLOAT, ())],
    )
    branch = [
        helper.make_graph([n(op, ["sum"], ["b"])], op, [], [info("b", TensorProto.FLOAT, (2, 3))])
        for op in ("Relu", "Neg")
    ]
    nodes = [
        n("Loop", ["three", "true", "x"], ["sum", "tops"], body=body),
        n("If", ["true"], ["c"], then_branch=branch[0], else_branch=branch[1]),
        n("QuantizeLinear", ["c", "qs", "qz"], ["q"]),
        n("DequantizeLinear", ["q", "qs", "qz"], ["d"]),
        n("Expand", ["d", "to"], ["y"]),
        n("CumSum", ["y", "zero"], ["cs"]),
        n("Tile", ["tops", "reps"], ["t"]),
    ]
    weights = {
        "three": np.int64(3), "true": np.bool_(True), "qs": np.float32(0.1), "qz": np.uint8(100), "to": np.array([4, 2, 3]),
        "zero": np.int64(0), "reps": np.array([2]),
    }  # fmt: skip
    return _model(nodes, {"x": (2, 3)}, ("y", "cs", "t", "q"), weights, 17)


def index_model() -> onnx.ModelProto:
    """Indices that are inputs: inside for some numbers, outside for others."""
    n = helper.make_node
    nodes = [
        n("Gather", ["x", "i"], ["a"], axis=1),
        n("GatherElements", ["x", "j"], ["b"], axis=0),
        n("ScatterElements", ["x", "j", "b"], ["c"], axis=1, reduction="add"),
        n("Unsqueeze", ["i", "last"], ["p"]),
        n("GatherND", ["x", "p"], ["d"]),
        n("ScatterND", ["x", "p", "d"], ["e"]),
        n("CumSum", ["c", "one"], ["f"], reverse=1),
        n("TopK", ["f", "two"], ["v", "k"], axis=1, sorted=1),
        n("OneHot", ["i", "depth", "values"], ["h"], axis=0),
        n("ArgMax", ["e"], ["m"], axis=1, keepdims=0),
        n("Mod", ["i", "three"], ["r"]),
        n("Equal", ["r", "one"], ["q"]),
        n("Compress", ["e", "mask"], ["z"], axis=0),
    ]
    weights = {
        "one": np.int64(1), "two": np.array([2]), "depth": np.int64(4), "values": np.array([0, 1], "f"), "three": np.int64(3),
        "last": np.array([1]), "mask": np.array([True, False, True, True]),
    }  # fmt: skip
    m = _model(nodes, {"x": (4, 5)}, ("a", "b", "f", "v", "k", "h", "m", "q", "z"), weights, 18)
    for name, shape in (("i", (3,)), ("j", (4, 5))):
        m.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    return m


def _model(nodes: Any, inputs: Any, outputs: Any, weights: Any, opset: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def loop_model() -> onnx.ModelProto:
    """Loops and branches of the plan: a count and conditions that are inputs, rows gone over and made, a loop in a branch."""
    return onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        agraph (float[3, 4] x, float[12, 4] rows, int64 n, bool flag) => (float[3, 4] y, float[4] s, float[12, 4] made, float[3, 4] z, float[9, 4] w) {
            y = Loop (n, flag, x) <body = body (int64 i, bool c, float[3, 4] now) => (bool more, float[3, 4] then) {
                five = Constant<value = int64 {5}>()
                more = Less (i, five)
                then = Add (now, x)
            }>
            zero = Constant<value_floats = [0.0, 0.0, 0.0, 0.0]>()
            s, made = Scan <num_scan_inputs = 1, scan_input_directions = [1], body = b (float[4] now, float[4] row) => (float[4] then, float[4] out) {
                then = Add (now, row)
                out = Tanh (then)
            }> (zero, rows)
            nine = Constant<value = int64 {9}>()
            z = If (flag) <
                then_branch = t () => (float[3, 4] p) {
                    p = Loop (nine, , y) <body = c (int64 i, bool c, float[3, 4] now) => (bool more, float[3, 4] then) {
                        more = Identity (c)
                        f = Cast<to = 1>(i)
                        then = Sub (now, f)
                    }>
                },
                else_branch = e () => (float[3, 4] p) { p = Neg (x) }>
            l, w = Loop (nine, , s) <body = d (int64 i, bool c, float[4] now) => (bool more, float[4] then, float[4] out) {
                more = Identity (c)
                then = Gather<axis = 0>(rows, i)
                out = Mul (then, now)
            }>
        }""")


def recurrent_model() -> onnx.ModelProto:
    """The three recurrent layers, with lengths that are an input."""
    n, rng = helper.make_node, np.random.default_rng(2)
    weights: dict[str, Any] = {}
    for name, gates, features, directions in (("l", 4, 5, 2), ("g", 3, 6, 1), ("r", 1, 6, 2)):
        weights[f"{name}w"] = rng.normal(size=(directions, gates * 6, features)).astype("f") / 2
        weights[f"{name}r"] = rng.normal(size=(directions, gates * 6, 6)).astype("f") / 2
        weights[f"{name}b"] = rng.normal(size=(directions, gates * 12)).astype("f") / 2
    weights |= {"p": rng.normal(size=(2, 18)).astype("f") / 2, "ax": np.array([1])}
    nodes = [
        n(
            "LSTM",
            ["x", "lw", "lr", "lb", "n", "", "", "p"],
            ["a", "ah", "ac"],
            hidden_size=6,
            direction="bidirectional",
            clip=2.0,
        ),
        n("ReduceMean", ["a", "ax"], ["m"], keepdims=0),
        n("GRU", ["m", "gw", "gr", "gb"], ["b", "bh"], hidden_size=6, linear_before_reset=1, direction="reverse"),
        n("Squeeze", ["b", "ax"], ["c"]),
        n(
            "RNN",
            ["c", "rw", "rr", "rb", "n", "ah"],
            ["d", "dh"],
            hidden_size=6,
            direction="bidirectional",
            activations=["Relu", "Tanh"],
        ),
    ]
    m = _model(nodes, {"x": (7, 2, 5)}, ("ac", "bh", "d", "dh"), weights, 18)
    m.graph.input.append(helper.make_tensor_value_info("n", TensorProto.INT32, (2,)))
    return m


MODELS = [seed_model, attention_model, control_model, index_model, loop_model, recurrent_model]
MOST_TRIPS = 10_000  # of a loop that is run: a mutated one may be told not to end, and is right then


def _endless(graph: Graph) -> bool:
    """Whether a loop goes on for very long, or as long as a condition lets it."""
    for node in graph.nodes:
        if is_region(node):
            trips = node.attrs.get("trips")
            open_ = node.op == "loop" and trips is None and "count" not in node.attrs.get("extras", ())
            if open_ or (trips is not None and trips > MOST_TRIPS) or any(_endless(b) for _, b in bodies(node)):
                return True
    return False


# ---- what is done with a case


def agree(got: list[Any], want: list[Any]) -> str:
    """Why the numbers differ, or nothing. Where the reference has no finite number, anything may stand."""
    if len(got) != len(want):
        return f"{len(got)} outputs, not {len(want)}"
    for k, (a, b) in enumerate(zip(got, want)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        x, y = a.astype("float64"), b.astype("float64")
        fine = np.isfinite(y)
        size = float(np.abs(y[fine]).max(initial=1.0))
        if not np.all(np.abs(x[fine] - y[fine]) <= 2e-3 * size + (a.dtype.kind in "iu")):
            return f"output {k} is off by {np.nanmax(np.abs(x[fine] - y[fine])):.3g} of {size:.3g}"
    return ""


def case_onnx(r: random.Random, as_bytes: bool) -> str:
    model = r.choice(MODELS)()
    try:
        made: Any = mutate_bytes(r, model) if as_bytes else mutate_graph(r, model)
    except (IndexError, ValueError):
        return "refused"  # the mutation found nothing to change
    proto = tec_onnx.load_model(made)
    shapes = {}
    for name, entry in tec_onnx.input_info(proto).items():
        if entry is None or entry[0] not in DTYPES:
            return "refused"
        shapes[name] = [d if isinstance(d, int) else 1 for d in entry[1]]
        if np.prod(shapes[name], dtype=float) > LARGEST:
            return "refused"
    graph = tec_onnx.from_onnx(made, shapes)[0]
    if any(np.prod(v.shape, dtype=float) > LARGEST for n in graph.nodes for v in n.outputs):
        return "refused"
    if _endless(graph):
        return "refused"
    net = tec.compile(proto, target="llvm", shapes=shapes, cache=False)
    given = np.random.default_rng(r.randrange(1 << 30))
    feeds = {v.name: (given.normal(size=v.shape) * 2).astype(v.dtype) for v in graph.inputs}
    got = net.run(feeds)
    return agree(got, run_graph(graph, feeds)) or _against_ort(proto, feeds, got) or "ran"


def _against_ort(model: onnx.ModelProto, feeds: dict[str, Any], got: list[Any]) -> str:
    """Why ONNX Runtime gives something else; nothing where it is not installed or does not take the model."""
    try:
        import onnxruntime as ort
    except ImportError:
        return ""
    if any(a.name == "sorted" and a.i != 1 for n in model.graph.node for a in n.attribute):
        return ""  # TopK in any order
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        want = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, feeds)
    except Exception:
        return ""
    # A float that no integer of the type is near: x86 gives the least integer, tec the nearest end.
    least = [None if w.dtype.kind != "i" else w == np.iinfo(w.dtype).min for w in map(np.asarray, want)]
    if len(got) == len(want) and all(m is None or np.shape(g) == m.shape for g, m in zip(got, least)):
        got = [g if m is None else np.where(m, np.asarray(w), g) for g, w, m in zip(got, want, least)]
    why = agree(got, want)
    return f"against ONNX Runtime: {why}" if why else ""


def mutate_tec_graph(r: random.Random, g: Graph) -> None:
    """Other wiring, attributes, types and order: what a program that builds a graph by hand may get wrong."""
    for _ in range(r.choice([1, 1, 2])):
        node = r.choice(g.nodes)
        values = [*g.inputs, *(v for n in g.nodes for v in n.outputs)]
        how = r.randrange(6)
        if how == 0:
            node.inputs[r.randrange(len(node.inputs))] = r.choice(values)
        elif how == 1 and node.attrs:
            key = r.choice(list(node.attrs))
            node.attrs[key] = r.choice([None, 0, -1, "x", (), (0, 0), (-1, 2), (1 << 40, 1), [1, 1], 2.5, True])
        elif how == 2:
            node.op = r.choice([n.op for n in g.nodes] + ["nothing", "matmul", "transpose"])
        elif how == 3:
            v = r.choice(node.outputs)
            v.type = v.type._replace(
                shape=r.choice([(), (1,), v.shape[:-1], (*v.shape[:-1], v.shape[-1] + 1), (-1, *v.shape[1:])])
            )
        elif how == 4:
            r.shuffle(g.nodes)
        elif how == 5 and node.attrs:
            del node.attrs[r.choice(list(node.attrs))]


def case_graph(r: random.Random) -> str:
    seed = r.randrange(1 << 20)
    g, twin = random_graph(seed, 10), random_graph(seed, 10)
    if r.random() < 0.7:
        state = r.getstate()
        mutate_tec_graph(r, g)
        r.setstate(state)
        mutate_tec_graph(r, twin)
    net = tec.compile(g, target="llvm", cache=False)
    # The third run of some shapes goes the short way; what the others gave must be whole behind it.
    feeds = [feed(twin, k) for k in range(1, 4)]
    got = [net.run(f) for f in feeds]
    return agree(got[0], run_graph(twin, feeds[0])) or agree(got[2], run_graph(twin, feeds[2])) or "ran"


_PACKAGES: dict[bool, list[Any]] = {False: [], True: []}


def looping_graph() -> Graph:
    """A loop over rows that makes rows, and a branch: how often it runs is bounded by what memory there is."""
    g = Graph("loops")
    b, w, flag = Builder(g, "l"), g.input("w", "float32", (9, 6)), g.input("flag", "bool", ())

    def step(b: Any, number: Any, states: Any, rows: Any) -> Any:
        s = b.op("add", states[0], rows[0])
        return [s], [b.op("tanh", s)], None

    final, made = control.loop(b, step, [b.const(np.zeros(6, "f"))], 9, rows=[(w, True)], made=[False])
    last = control.choose(b, flag, lambda body: [Builder(body).op("neg", final[0])], lambda body: [final[0]])
    g.set_outputs([*made, *last])
    return g


def _package(loops: bool) -> Any:
    """(a saved network's entries, its inputs, what it gives)."""
    _PACKAGE = _PACKAGES[loops]
    if not _PACKAGE:
        g = looping_graph() if loops else random_graph(5, 12)
        path = os.path.join(tempfile.mkdtemp(), "n.tec")
        net = tec.compile(g, target="llvm", cache=False)
        net.save(path)
        with open(path, "rb") as f:
            data = f.read()
        with zipfile.ZipFile(path) as z:
            entries = {n: z.read(n) for n in z.namelist()}
        _PACKAGE.extend([data, entries, feed(g, 2), net.run(feed(g, 2)), path])
    return _PACKAGE


def _mutate_json(r: random.Random, tree: Any) -> tuple[Any, ...]:
    """One leaf or branch becomes something else; where it was."""
    at: list[Any] = []
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = r.choice(keys)
        at.append(key)
        child = node[key]
        if not isinstance(child, (dict, list)) or not child or r.random() < 0.1:
            break
        node = child
    how = r.randrange(5)
    if how == 0:
        del node[key]
    elif how == 1 and isinstance(child, int) and not isinstance(child, bool):
        node[key] = child + r.choice([-1, 1, 64, -64, 256, 1 << 20, 1 << 40, -(1 << 62), 1 << 65])
    elif how == 2 and isinstance(node, list):
        node.insert(r.randrange(len(node) + 1), copy.deepcopy(r.choice(node)))
    elif how == 3 and len(keys) > 1:
        other = r.choice(keys)
        node[key], node[other] = node[other], node[key]
    else:
        node[key] = r.choice(
            [
                None,
                -1,
                0,
                1,
                7,
                1 << 33,
                1.5,
                "zzz",
                "x",
                [],
                {},
                [[]],
                [10**13, "x"],
                [1 << 30] * 3,
                [1] * 100,
                True,
                ["mul", 1 << 30, 1 << 30],
                "float64",
                float("nan"),
            ]
        )
    return tuple(at)


def case_package(r: random.Random) -> str:
    data, entries, feeds, want, path = _package(r.random() < 0.3)
    path += ".bad"
    semantic = False
    if r.random() < 0.3:
        bad = bytearray(data)
        for _ in range(r.choice([1, 2, 8])):
            bad[r.randrange(len(bad))] = r.randrange(256)
        if r.random() < 0.3:
            del bad[r.randrange(len(bad)) :]
        with open(path, "wb") as f:
            f.write(bad)
    else:
        manifest = json.loads(entries["manifest.json"])
        at = _mutate_json(r, manifest)
        # Which function a step runs on which values is what the network is: another choice that fits is another network.
        semantic = any(k in ("steps", "functions", "function", "outputs", "blobs", "arrays", "entry_name", "meta", "plan", "module", "image") for k in at[-4:-1] + at[-1:]) or "args" in at  # fmt: skip
        with zipfile.ZipFile(path, "w") as z:
            for name, content in {**entries, "manifest.json": json.dumps(manifest).encode()}.items():
                z.writestr(name, content)
    got = tec.load(path).run(feeds)
    if semantic:
        return "ran"
    return agree(got, want) or "ran"


CASES = [lambda r: case_onnx(r, True), lambda r: case_onnx(r, False), case_graph, case_package, case_package]


def one(seed: int) -> str:
    """What becomes of a seed's case."""
    try:
        outcome = CASES[seed % len(CASES)](random.Random(seed))
    except TecError:
        return "refused"
    except Exception as e:
        return f"bad: {type(e).__name__}: {e}"
    return outcome if outcome in ("ran", "refused") else "bad: " + outcome


def main() -> None:
    first, seconds = int(sys.argv[1]), float(sys.argv[2])
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    end = time.monotonic() + seconds
    seed = first
    while time.monotonic() < end or seed < first + LEAST:
        print(f"start {seed}", flush=True)
        print(f"end {seed} {one(seed)!r}", flush=True)
        seed += 1


if __name__ == "__main__":
    main()
