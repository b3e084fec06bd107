"""Long sums on a CPU keep their digits: of numbers of one sign, each chain of additions is rounded the same way."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import tec
from tests.seeds import first

LENGTH = 300_007  # in one chain of additions 1e-5 to 1e-4 of a sum are lost


def _run(text, known, **arrays):
    model = parser.parse_model('<ir_version: 9, opset_import: ["" : 20]>\n' + text)
    shapes = {k: v.shape for k, v in arrays.items()} if known else {}
    return tec.compile(model, "llvm", shapes=shapes, cache=False).run(arrays)[0]


@pytest.mark.parametrize("known", [False, True], ids=["open", "known"])
def test_products_and_sums(known):
    rng = np.random.default_rng(first(11))
    a, b = rng.random((3, LENGTH), "float32"), rng.random((LENGTH, 18), "float32")
    y = _run("agraph (float[m,k] a, float[k,n] b) => (float[m,n] y) { y = MatMul(a, b) }", known, a=a, b=b)
    np.testing.assert_allclose(y, a.astype("f8") @ b.astype("f8"), rtol=3e-6)
    x = rng.random((LENGTH, 2), "float32")
    for axes, text in (((0,), "{0}"), ((0, 1), "{0, 1}")):
        made = f"axes = Constant<value=int64[{len(axes)}] {text}>() y = ReduceL2<keepdims=0>(x, axes)"
        y = _run(f"agraph (float[a,b] x) => (float[{'b' * (len(axes) == 1)}] y) {{ {made} }}", known, x=x)
        np.testing.assert_allclose(y, np.sqrt((x.astype("f8") ** 2).sum(axes)), rtol=3e-6)


@pytest.mark.parametrize("known", [False, True], ids=["open", "known"])
def test_a_small_spread_about_a_large_mean(known):
    x = (100 + 1e-2 * np.random.default_rng(first(12)).standard_normal((2, 3, 50, 41))).astype("float32")
    text = "agraph (float[a,b,c,d] x) => (float[a,b,c,d] y) { y = MeanVarianceNormalization<axes=[0, 2, 3]>(x) }"
    wide = x.astype("f8")
    wanted = (wide - wide.mean((0, 2, 3), keepdims=True)) / wide.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(_run(text, known, x=x), wanted, atol=1e-5)
