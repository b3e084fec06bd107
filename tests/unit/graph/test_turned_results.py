"""Products whose results are transposed read the transposed operands; what would read both transposed stays, and what something else reads."""

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.optimize import optimize

TARGET = tec.Target("cuda -arch=sm_90a")
RNG = np.random.default_rng(4)


def _chain(batch=(), between=None, **attrs):
    """x times y, by dimensions of extent 1 to its transpose, as torch.einsum writes it."""
    g = Graph("g")
    a, b = ((*batch, 40, 30), (*batch, 40, 50)) if attrs.get("transpose_a") else ((*batch, 30, 40), (*batch, 40, 50))
    x, y = g.input("x", "float32", a), g.input("y", "float32", b)
    (z,) = g.add("matmul", [x, y], attrs)
    n = len(batch)
    (apart,) = g.add("reshape", [z], {"shape": (*batch, 30, 1, 50, 1)})
    (turned,) = g.add("transpose", [apart], {"perm": (*range(n), n + 2, n, n + 3, n + 1)})
    (out,) = g.add("reshape", [turned], {"shape": (*batch, 50, 30)})
    g.set_outputs([out] if between is None else [out, g.add(between, [z])[0]], ["z"] if between is None else ["z", "w"])
    return g


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_transposed_result_is_no_copy(batch):
    g = _chain(batch, transpose_a=True)
    assert [n.op for n in optimize(g, TARGET).nodes if n.op != "reshape"] == ["matmul"]
    x, y = (RNG.standard_normal(v.shape).astype("float32") for v in g.inputs)
    net = tec.compile(g, "rocm -mcpu=gfx942", cache=False)
    (z,) = net.run([x, y], device=tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(z, np.swapaxes(np.swapaxes(x, -1, -2) @ y, -1, -2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("g", [_chain(), _chain(transpose_a=True, between="exp")])
def test_others_stay(g):
    assert "transpose" in [n.op for n in optimize(g, TARGET).nodes]


def test_an_operand_seen_through_dimensions_of_1_is_a_transposed_one():
    g = Graph("g")
    x, y = g.input("x", "float32", (40, 30)), g.input("y", "float32", (40, 50))
    (apart,) = g.add("reshape", [x], {"shape": (40, 30, 1)})
    (turned,) = g.add("transpose", [apart], {"perm": (1, 2, 0)})
    g.set_outputs([g.add("matmul", [g.add("reshape", [turned], {"shape": (30, 40)})[0], y])[0]], ["z"])
    (product,) = optimize(g, TARGET).nodes
    assert product.attrs.get("transpose_a") and not product.attrs.get("view_a")
