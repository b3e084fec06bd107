"""Attributes of operators of ai.onnx.ml and com.microsoft against ONNX Runtime, run by the operators' meaning: a few milliseconds each, so many are tried.

What is compiled is held in other files; here it is how an attribute is read: each value that it can have, and that it is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tec_onnx.session import Session

from tests.thinned import thinned_rows

ort = pytest.importorskip("onnxruntime")
ML, MS = "ai.onnx.ml", "com.microsoft"
RNG = np.random.default_rng(11)
X = RNG.standard_normal((7, 4)).astype(np.float32)
WORDS = np.array(["a", "bc", "never seen", "a"], dtype=object)
NUMBERS = np.array([[1, 3], [4, 9]], np.int64)


def svm(classes: int, **more: Any) -> dict[str, Any]:
    """A machine of one-against-one: two vectors a class."""
    r, pairs, count = np.random.default_rng(classes), classes * (classes - 1) // 2, 2 * classes
    attrs: dict[str, Any] = {
        "vectors_per_class": [2] * classes, "support_vectors": r.standard_normal(count * 4).tolist(), "rho": r.standard_normal(pairs).tolist(),
        "coefficients": r.standard_normal((classes - 1) * count).tolist(), "classlabels_ints": list(range(3, 3 + classes)), **more,
    }  # fmt: skip
    if attrs.pop("chances", False):
        attrs |= {"prob_a": (-1 - r.random(pairs)).tolist(), "prob_b": (r.random(pairs) * 0.2).tolist()}
    return attrs


def linear(classes: int, **more: Any) -> dict[str, Any]:
    r = np.random.default_rng(classes)
    weights, offsets = r.standard_normal((classes, 4)) * 0.1, 0.3 + 0.1 * r.random(classes)
    labels = {"classlabels_ints": list(range(5, 5 + classes))}
    return {"coefficients": weights.reshape(-1).tolist(), "intercepts": offsets.tolist(), **labels, **more}


KERNELS = [
    {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}, {"kernel_type": "RBF", "kernel_params": [0.3, 0.0, 0.0]}, {"kernel_type": "POLY", "kernel_params": [0.5, 1.0, 2.0]},
    {"kernel_type": "SIGMOID", "kernel_params": [0.2, 0.1, 0.0]},
]  # fmt: skip
REGRESSOR = {
    "n_supports": 3,
    "support_vectors": RNG.standard_normal(12).tolist(),
    "coefficients": [0.7, -1.2, 0.4],
    "rho": [0.1],
}
IMAGE, WINDOW = (
    RNG.standard_normal((2, 3, 6, 6)).astype(np.float32),
    RNG.standard_normal((4, 3, 3, 3)).astype(np.float32),
)
ADDED = RNG.standard_normal((2, 4, 4, 4)).astype(np.float32)


def rows() -> Iterator[tuple[str, str, tuple[Any, ...], dict[str, Any]]]:
    """(domain, operator, inputs, attributes)."""
    for kernel in KERNELS:
        for classes, chances in itertools.product((2, 3, 4), (False, True)):
            yield ML, "SVMClassifier", (X,), svm(classes, chances=chances, **kernel)
        for one_class in (0, 1):
            yield ML, "SVMRegressor", (X,), {**REGRESSOR, **kernel, "one_class": one_class}
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        for classes in (2, 3):
            yield ML, "LinearClassifier", (X,), linear(classes, post_transform=post, multi_class=1)
        yield (
            ML,
            "LinearRegressor",
            (X,),
            {"coefficients": [0.1] * 8, "intercepts": [0.3, -0.2], "targets": 2, "post_transform": post},
        )
    for norm in ("L1", "L2", "MAX", None):
        yield ML, "Normalizer", (X,), {"norm": norm} if norm else {}
    for zeros in (0, 1, None):
        more = {} if zeros is None else {"zeros": zeros}
        yield ML, "OneHotEncoder", (NUMBERS,), {"cats_int64s": [1, 3, 4, 9], **more}
        yield ML, "OneHotEncoder", (NUMBERS.astype(np.float32),), {"cats_int64s": [9, 4, 3, 1], **more}
        yield ML, "OneHotEncoder", (WORDS,), {"cats_strings": ["bc", "never seen", "a"], **more}
    yield ML, "OneHotEncoder", (WORDS,), {"cats_strings": ["bc", "x"], "zeros": 1}
    mapped = {"cats_strings": ["a", "bc"], "cats_int64s": [4, 1]}
    for more in ({}, {"default_int64": 7, "default_string": "none"}):
        yield ML, "CategoryMapper", (WORDS,), {**mapped, **more}
        yield ML, "CategoryMapper", (NUMBERS,), {**mapped, **more}
    for threshold in (0.0, 0.5, None):
        yield ML, "Binarizer", (X,), {} if threshold is None else {"threshold": threshold}
    yield ML, "ArrayFeatureExtractor", (X, np.array([[2, 0, 3]], np.int64)), {}
    yield ML, "Scaler", (X,), {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 1.0, 2.0, 4.0]}
    text = (
        ({"keys_strings": ["a", "bc"], "values_int64s": [5, 6], "default_int64": 9}, WORDS),
        ({"keys_int64s": [1, 9], "values_floats": [0.5, 2.5]}, NUMBERS),
    )
    for attrs, x in text:
        yield ML, "LabelEncoder", (x,), attrs
    activations = (
        ("", []),
        ("Relu", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 0.7]),
        ("HardSigmoid", [0.3, 0.4]),
        ("Sigmoid", []),
        ("Tanh", []),
    )
    for kind, params in activations:
        attrs = {
            **({"activation": kind} if kind else {}),
            **({"activation_params": params} if params else {}),
            "kernel_shape": [3, 3],
        }
        yield MS, "FusedConv", (IMAGE, WINDOW), attrs
        if kind in ("", "Relu"):
            yield MS, "FusedConv", (IMAGE, WINDOW, RNG.standard_normal(4).astype(np.float32), ADDED), attrs
    for separators, mark, least in itertools.product(([" "], [" ", "e"], [""]), (0, 1), (1, 2)):
        if separators == [""] and least > 1:
            continue  # single characters
        words = np.array(["one tree", "never", ""], dtype=object)
        yield MS, "Tokenizer", (words,), {"separators": separators, "mark": mark, "mincharnum": least, "pad_value": "#"}


def model_of(domain: str, op: str, inputs: tuple[Any, ...], attrs: dict[str, Any], outputs: int) -> Any:
    names = [f"x{k}" for k in range(len(inputs))]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], domain=domain, **attrs)
    types = [8 if v.dtype == object else helper.np_dtype_to_tensor_dtype(v.dtype) for v in inputs]
    infos = [helper.make_tensor_value_info(n, t, v.shape) for n, t, v in zip(names, types, inputs)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in node.output])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


OPERATORS = sorted({(domain, op) for domain, op, _, _ in rows()})


@thinned_rows(6, "domain, op", OPERATORS)
def test_each_value_of_an_attribute(domain: str, op: str) -> None:
    for _, _, inputs, attrs in (row for row in rows() if row[:2] == (domain, op)):
        model = model_of(domain, op, inputs, attrs, 2 if op.endswith("Classifier") else 1)
        feeds = {f"x{k}": v for k, v in enumerate(inputs)}
        want = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
        got = Session(model).run(feeds)
        assert len(got) == len(want)
        for a, b in zip(got, want):
            a, b = np.asarray(a), np.asarray(b)
            assert a.shape == b.shape, f"{attrs}: {a.shape}, not {b.shape}"
            if b.dtype.kind in "OU":
                assert a.astype(str).tolist() == b.astype(str).tolist(), attrs
            else:
                assert a.dtype == b.dtype, attrs
                np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=f"{op} {attrs}")


@pytest.mark.parametrize("given", [{}, {"weight": 0.5}, {"weight": 2.0, "turned": 0}])
def test_a_function_hands_attributes_on(given: dict[str, Any]) -> None:
    """A node in a function has attributes of its own, those of the call by name, and their defaults where the call leaves them out."""
    function = onnx.parser.parse_function(
        """<domain: "own", opset_import: ["": 17]>
        Weighted<weight: float = 3.0, turned: int = 1>(a, b, c) => (y) {
            y = Gemm<alpha: float = @weight, beta: float = 0.25, transB: int = @turned>(a, b, c)
        }"""
    )
    ins = {"a": X, "b": RNG.standard_normal((4, 4)).astype(np.float32), "c": RNG.standard_normal(4).astype(np.float32)}
    infos = [helper.make_tensor_value_info(k, 1, v.shape) for k, v in ins.items()]
    node = helper.make_node("Weighted", list(ins), ["y"], domain="own", **given)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)
    (got,) = Session(model).run(ins)
    b = ins["b"].T if given.get("turned", 1) else ins["b"]
    np.testing.assert_allclose(got, given.get("weight", 3.0) * (X @ b) + 0.25 * ins["c"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape, along", [((3,), 1), ((5,), 3), ((1,), 3), ((3, 1, 1), None)])
def test_slopes_of_channels(shape: tuple[int, ...], along: int | None) -> None:
    """One dimension of as many slopes as channels is of the channels, as networks of old opsets have it; else they are broadcast."""
    x, slope = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32), RNG.random(shape).astype(np.float32)
    (got,) = Session(model_of("", "PRelu", (x, slope), {}, 1)).run({"x0": x, "x1": slope})
    per = slope.reshape(3, 1, 1) if along == 1 else slope
    np.testing.assert_allclose(got, np.where(x < 0, x * per, x), rtol=1e-6)
