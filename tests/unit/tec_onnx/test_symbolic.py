"""Networks whose dimensions stay open: one module, any size; against the reference at each size."""

import numpy as np
import pytest
import tec_onnx
from onnx.parser import parse_model

import tec
from tec.errors import ArgumentError, ImportModelError
from tec.graph import run_graph

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def compiled(text, target="llvm", **options):
    model = parse_model(HEAD + text)
    graph, _ = tec_onnx.from_onnx(model, **options)
    graph.check()
    return tec.compile(model, target=target, shapes=options.get("shape"), cache=False), graph


def check(net, graph, feeds, tol=1e-5, device=None):
    got, want = net.run(feeds, device), run_graph(graph, feeds)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, tol, tol)


def data(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("f")


GEMM = """g (float[batch, 16] x, float[batch, 32] z, float[16, 32] w) => (float[batch, 32] y, float[batch] t) {
  axes = Constant<value_ints=[1]>()
  a = Gemm(x, w)
  b = Relu(a)
  y = Add(b, z)
  t = ReduceSum<keepdims=0>(y, axes)
}"""


def gemm_feeds(n):
    return {"x": data(n, 16), "z": data(n, 32), "w": data(16, 32)}


def test_one_module_for_any_batch_saved_and_loaded(tmp_path):
    net, graph = compiled(GEMM)
    assert net.inputs[0]["shape"] == ["batch", 16] and "batch" in repr(net)
    net.save(tmp_path / "n.tec")
    for n in (net, tec.load(tmp_path / "n.tec")):
        for batch in (1, 2, 7, 33, 64):
            check(n, graph, gemm_feeds(batch))


def test_sizes_that_do_not_fit_are_refused():
    net, _ = compiled(GEMM)
    with pytest.raises(ArgumentError, match="size batch is 4 elsewhere and 3"):
        net.run({**gemm_feeds(4), "z": data(3, 32)})
    with pytest.raises(ArgumentError, match="batch, is 0"):
        net.run({**gemm_feeds(4), "x": data(0, 16)})


def test_names_may_be_given_and_bound():
    text = "g (float[N, 4] x, float[M, 4] z) => (float[N, 4] y) { y = Add(x, z) }"
    with pytest.raises(ImportModelError, match="broadcast is not known while sizes are symbolic") as error:
        compiled(text)
    assert "one name" in error.value.hint
    net, graph = compiled(text, shape={"M": "N"})
    check(net, graph, {"x": data(5, 4), "z": data(5, 4)})
    net, graph = compiled(text, shape={"x": ("k", 4), "z": (1, 4)})
    check(net, graph, {"x": data(3, 4), "z": data(1, 4)})
    net, graph = compiled(text, shape={"N": 2, "M": 2})
    assert net.inputs[0]["shape"] == [2, 4]
