"""Mutated models: bytes and graphs. Whatever is done to a model, it is taken in or refused with a TecError; nothing else.

`TEC_FUZZ_SECONDS` says how long: 2 by default, 300 for the slow test.
"""

import os
import random
import time
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tec_onnx.backend import compiled_runner
from tec_onnx.session import Session, reference_runner

from tec.errors import ImportModelError, TecError
from tests import seeds

SECONDS = float(os.environ.get("TEC_FUZZ_SECONDS", "2"))


def seed_model():
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        n("BatchNormalization", ["c", "s", "s", "s", "s"], ["b"]),
        n("Relu", ["b"], ["r"]),
        n("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        n("Shape", ["p"], ["sh"]),
        n("Gather", ["sh", "zero"], ["batch"]),
        n("Unsqueeze", ["batch", "axes"], ["b1"]),
        n("Concat", ["b1", "minus"], ["to"], axis=0),
        n("Reshape", ["p", "to"], ["flat"]),
        n("Gemm", ["flat", "g"], ["logits"], transB=1),
        n("Softmax", ["logits"], ["y"], axis=1),
        n("TopK", ["y", "two"], ["v", "i"]),
        n("Slice", ["logits", "axes", "two", "axes"], ["part"]),
        n("Pad", ["part", "pads"], ["padded"]),
        n("ReduceMean", ["padded"], ["m"], axes=[1]),
    ]
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(4, 3, 3, 3)).astype("f"), "s": np.ones(4, "f"), "zero": np.int64(0), "axes": np.array([0]),
        "minus": np.array([-1]), "g": rng.normal(size=(5, 64)).astype("f"), "two": np.array([2]), "pads": np.array([0, 1, 0, 1]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 8, 8))],
        [helper.make_empty_tensor_value_info(o) for o in ("y", "v", "i", "m")],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def mutate_bytes(r, model):
    data = bytearray(model.SerializeToString())
    for _ in range(r.choice([1, 1, 2, 4, 16])):
        k = r.randrange(len(data))
        how = r.randrange(4)
        if how == 0:
            data[k] = r.randrange(256)
        elif how == 1:
            del data[k : k + r.choice([1, 2, 8, 100])]
        elif how == 2:
            data[k:k] = bytes(r.randrange(256) for _ in range(r.choice([1, 4])))
        else:
            data[k] ^= 1 << r.randrange(8)
        if not data:
            break
    return bytes(data)


def mutate_graph(r, model):
    m = onnx.ModelProto()
    m.CopyFrom(model)
    g = m.graph
    for _ in range(r.choice([1, 1, 2, 3])):
        node = r.choice(g.node)
        names = [o for x in g.node for o in x.output] + [t.name for t in g.initializer] + ["x", "", "nowhere"]
        how = r.randrange(10)
        if how == 0 and node.input:
            node.input[r.randrange(len(node.input))] = r.choice(names)
        elif how == 1:
            node.op_type = r.choice(
                [x.op_type for x in g.node]
                + ["Transpose", "Squeeze", "Split", "Loop", "If", "LSTM", "Resize", "Einsum", "Cast"]
            )
        elif how == 2 and node.attribute:
            a = r.choice(node.attribute)
            if a.type == onnx.AttributeProto.INTS and a.ints:
                a.ints[r.randrange(len(a.ints))] = r.choice([0, -1, 7, 2**40, -(2**63)])
            else:
                a.i = r.choice([0, -1, 5, 2**31])
        elif how == 3 and node.attribute:
            del node.attribute[r.randrange(len(node.attribute))]
        elif how == 4:
            t = r.choice(g.initializer)
            if t.dims:
                t.dims[r.randrange(len(t.dims))] = r.choice([0, 1, -1, 3, 10**6])
        elif how == 5:
            t = r.choice(g.initializer)
            t.data_type = r.choice([1, 6, 7, 9, 10, 11, 8, 16, 17, 99])
        elif how == 6:
            g.input[0].type.tensor_type.shape.dim[r.randrange(4)].dim_value = r.choice([0, 1, 3, 7, 64])
        elif how == 7 and len(g.node) > 1:
            a, b = r.randrange(len(g.node)), r.randrange(len(g.node))
            first = onnx.NodeProto()
            first.CopyFrom(g.node[a])
            g.node[a].CopyFrom(g.node[b])
            g.node[b].CopyFrom(first)
        elif how == 8:
            t = r.choice(g.initializer)
            try:
                values = numpy_helper.to_array(t)
            except (ValueError, TypeError, KeyError, MemoryError):
                continue  # an earlier mutation has damaged it
            if values.dtype == np.int64 and values.size:
                t.CopyFrom(numpy_helper.from_array(values * 0 + r.choice([-1, 0, 1, 99, 2**40]), t.name))
        elif how == 9:
            ask_for_more(r, m)
    return m


def ask_for_more(r, m):
    """One thing that asks for more than a small file should get: memory, time, another file."""
    g = m.graph
    how = r.randrange(5)
    node = r.choice(g.node)
    if how == 0 and node.input:  # a sparse tensor in place of an input, right or not
        dims = r.choice([[4], [2, 3], [1 << 40], [1 << 40, 1 << 40], [-4], []])
        index = np.array([r.choice([0, 3, 7, -1, 1 << 40])] * r.choice([0, 1, 2]), np.int64)
        values = numpy_helper.from_array(np.ones(r.choice([0, 1, 2]), "f"), "sparse")
        g.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(index, "i"), dims))
        node.input[r.randrange(len(node.input))] = "sparse"
    elif how == 1:  # an operator that makes much of a number
        op = r.choice(["ConstantOfShape", "Range", "HannWindow", "EyeLike", "RegexFullMatch", "StringSplit"])
        g.initializer.append(
            numpy_helper.from_array(np.array([r.choice([0, -1, 3, 1 << 31, 1 << 40, 1 << 62])]), "much")
        )
        made = helper.make_node(op, ["much"] * (3 if op == "Range" else 1), ["made"])
        if op == "RegexFullMatch":
            made.attribute.append(helper.make_attribute("pattern", "(a+)+$"))
        g.node.insert(0, made)
        if node.input:
            node.input[r.randrange(len(node.input))] = "made"
    elif how == 2 and node.input:  # one of very many
        many = [node.input[0]] * r.choice([33, 200, 1000])
        node.CopyFrom(helper.make_node("Concat", many, node.output[:1], axis=r.choice([0, 1, -1, 9])))
    elif how == 3:  # weights elsewhere
        t = r.choice(g.initializer)
        t.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (
            ("location", r.choice(["w", "../w", "/dev/zero", "a\0b", ""])),
            ("offset", r.choice(["0", "-1", "x"])),
        ):
            t.external_data.add(key=key, value=value)
    elif how == 4 and node.input:  # a long loop
        name = node.input[0]
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Neg", ["a"], ["b"])], "body",
            [info("k", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("a", TensorProto.FLOAT, None)],
            [info("c2", TensorProto.BOOL, []), info("b", TensorProto.FLOAT, None)],
        )  # fmt: skip
        trips = r.choice([0, 1, 7, 200, 50_000, 1 << 62, -1])
        g.initializer.append(numpy_helper.from_array(np.int64(trips), "trips"))
        g.initializer.append(numpy_helper.from_array(np.bool_(True), "going"))
        at = list(g.node).index(node)
        g.node.insert(at, helper.make_node("Loop", ["trips", "going", name], ["looped"], body=body))
        g.node[at + 1].input[0] = "looped"


def limited(runner):
    """Networks that would run for long are refused: a mutated shape may ask for anything."""

    def make(graph):
        largest = max([v.type.size for n in graph.nodes for v in n.outputs], default=0)
        if graph.flops() > 1e8 or largest > 1e7:
            raise ImportModelError("too much work for a test")
        return runner(graph)

    return make


def attempt(model, runner=reference_runner):
    """What came of it: outputs, or None where it was refused."""
    try:
        session = Session(model, limited(runner))
        shapes = {k: [d if isinstance(d, int) else 1 for d in v[1]] for k, v in session.info.items() if v}
        if any(np.prod(s, dtype=float) > 1e6 for s in shapes.values()):
            return None
        kinds = {k: v[0] for k, v in session.info.items() if v}
        plain = ("float32", "int64", "int32", "float64", "bool", "float16")
        feeds = {k: np.ones(s, kinds[k]) for k, s in shapes.items() if kinds[k] in plain}
        return session.run(feeds)
    except TecError:
        return None
    except MemoryError:
        return None


def test_mutations_are_taken_in_or_refused():
    model = seed_model()
    assert len(attempt(model)) == 4
    seed, ran, end = seeds.first(), 0, time.monotonic() + SECONDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while time.monotonic() < end:
            r = random.Random(seed)
            made = mutate_bytes(r, model) if seed % 2 else mutate_graph(r, model)
            try:
                ran += attempt(made) is not None
            except Exception as e:
                raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}") from e
            seed += 1
    assert ran > 0


def agree(got, want):
    """Whether a compiled network gives what the operators mean. Ties and signs of NaN apart, numbers are near."""
    assert len(got) == len(want)
    for a, b in zip(got, want):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind == "f" and np.isfinite(b).all():
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(b).max(initial=0))))


@pytest.mark.slow
def test_mutations_compiled():
    """Each model that the reference runs is compiled as well, and gives the same."""
    model = seed_model()
    runner = compiled_runner("llvm")
    seed, ran, end = seeds.first(), 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        r = random.Random(seed)
        made = mutate_bytes(r, model) if seed % 2 else mutate_graph(r, model)
        want = attempt(made)
        if want is not None:
            got = attempt(made, runner)
            assert got is not None, f"seed {seed}: refused by the compiler"
            agree(got, want)
            ran += 1
        seed += 1
    assert ran > 0


@pytest.mark.slow
def test_mutations_for_minutes(monkeypatch):
    monkeypatch.setattr("tests.fuzz.test_onnx_mutations.SECONDS", float(os.environ.get("TEC_FUZZ_SECONDS", "300")))
    test_mutations_are_taken_in_or_refused()
