"""ONNX node cases with their sizes left open: right at the case's sizes and at others, or refused with what to bind."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tec_onnx
from onnx import numpy_helper

import tec
from tec.errors import ArgumentError
from tec.graph import run_graph
from tests.conformance.onnx_suite import data_of, load_cases
from tests.thinned import thinned

CASES = """abs add_bcast argmax_keepdims_example averagepool_2d_pads batchnorm_epsilon clip concat_2d_axis_0 conv_with_strides_padding
cumsum_1d einsum_batch_matmul expand_dim_changed flatten_axis1 gather_0 gemm_all_attributes globalaveragepool hardmax_axis_1
instancenorm_example layer_normalization_2d_axis1 logsoftmax_axis_1 matmul_3d maxpool_2d_strides mean_example nllloss_NC
prelu_broadcast reduce_l2_do_not_keepdims_example reduce_mean_keepdims_example rms_normalization_3d_axis1_epsilon scatternd
shape_example size softmax_axis_0 split_equal_parts_2d squeeze tile top_k transpose_all_permutations_2 where_example""".split()

# Indices that may be fewer than elements, and a split into unequal parts.
REFUSED = {("nllloss_NC", False), ("nllloss_NC", True), ("split_equal_parts_2d", True)}


def arrays(case: Any) -> tuple[Any, dict[str, Any], list[Any]]:
    model, sets = data_of(case)

    def read(x: Any) -> Any:
        return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x

    inputs, outputs = sets[0]
    return model, dict(zip([i.name for i in model.graph.input], map(read, inputs))), list(map(read, outputs))


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    return {c.name.removeprefix("test_"): c for c in load_cases(["node"])}


def opened(model: Any, values: dict[str, Any], every: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """(shapes with names for sizes: equal sizes have one name, constant inputs): small integer inputs decide on shapes."""
    freeze = {k: v for k, v in values.items() if v.dtype.kind in "iub" and v.ndim <= 1}
    shapes = {
        k: tuple(f"d{n}" if n > 1 and (every or d == 0) else int(n) for d, n in enumerate(v.shape))
        for k, v in values.items()
        if k not in freeze
    }
    for i in model.graph.input:
        for entry, d in zip(i.type.tensor_type.shape.dim, shapes.get(i.name, ())):
            if isinstance(d, str):
                entry.Clear()
    return shapes, freeze


@thinned(1, ("every", [False, True]), ("name", CASES))
def test_case(cases: dict[str, Any], name: str, every: bool) -> None:
    model, values, want = arrays(cases[name])
    shapes, freeze = opened(model, values, every)
    if not any(isinstance(d, str) for s in shapes.values() for d in s):
        pytest.skip("nothing to leave open")
    try:
        graph, _ = tec_onnx.from_onnx(model, shapes, freeze=freeze)
        net = tec.compile(graph, target="llvm", cache=False)
    except tec.ImportModelError as e:
        assert e.hint is not None and "shapes=" in e.hint, e
        assert (name, every) in REFUSED, e
        return
    assert (name, every) not in REFUSED

    def size(d: int | str) -> int:
        return int(d[1:]) if isinstance(d, str) else d

    for more in (0, 1, 4):
        sizes = {k: [size(d) + more * (d in net.open_sizes) for d in s] for k, s in shapes.items()}
        feeds = {k: np.resize(values[k], s) for k, s in sizes.items()}
        feeds = {i["name"]: feeds[i["name"]] for i in net.inputs}
        try:
            got = net.run(feeds)
        except ArgumentError as e:
            assert more and "compiled for sizes with" in e.message
            continue
        for g, w in zip(got, run_graph(graph, feeds) if more else want, strict=True):
            assert g.shape == np.shape(w) and g.dtype == np.asarray(w).dtype
            np.testing.assert_allclose(g, w, 1e-3, 1e-5)


NAMELESS_REFUSED = {"nllloss_NC", "split_equal_parts_2d"}
BROADCAST = {"expand_dim_changed", "gemm_all_attributes"}  # an open size that is 1 in the case, and meets another


@thinned(1, ("name", CASES))
def test_no_dimension_has_a_name_or_a_size(cases: dict[str, Any], name: str) -> None:
    """What the operators ask of sizes is enough: nobody gives shapes."""
    model, values, want = arrays(cases[name])
    _, freeze = opened(model, values, True)
    for i in model.graph.input:
        for d in i.type.tensor_type.shape.dim if i.name not in freeze else ():
            d.Clear()
    try:
        graph, _ = tec_onnx.from_onnx(model, freeze=freeze)
        net = tec.compile(graph, target="llvm", cache=False)
    except tec.ImportModelError as e:
        assert e.hint is not None and "shapes=" in e.hint, e
        assert name in NAMELESS_REFUSED, e
        return
    assert name not in NAMELESS_REFUSED
    if name in BROADCAST:
        with pytest.raises(ArgumentError, match=r"is 3 elsewhere and 1|has shape \(3, 1\)"):
            net.run({i["name"]: values[i["name"]] for i in net.inputs})
        return
    for g, w in zip(net.run({i["name"]: values[i["name"]] for i in net.inputs}), want, strict=True):
        assert g.shape == np.shape(w) and g.dtype == np.asarray(w).dtype
        np.testing.assert_allclose(g, w, 1e-3, 1e-5)
