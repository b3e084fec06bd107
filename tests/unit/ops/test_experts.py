"""Products with chosen experts: the definition, NumPy and the CPU's loops against float64, packed with and without zero points, in bytes, and as floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.ops import get_op
from tec.ops.dims import Dim
from tec.ops.packed import Weights
from tec.te.evaluation import evaluate
from tests.seeds import first
from tests.thinned import thinned_rows

EXPERTS, K, N, BLOCK = 5, 64, 32, 32


def drawn(
    bits: int, zeros: bool, group: int, panel: int, rows: int = 7, chosen: int = 2
) -> tuple[Graph, dict[str, Any], Any]:
    """A graph, what it is fed, and its result in float64."""
    rng = np.random.default_rng(first(bits + 10 * group + zeros))
    x = rng.standard_normal((rows, K)).astype(np.float32)
    places = rng.integers(0, EXPERTS, (rows, chosen))
    g, count = Graph("experts"), Dim("rows")
    attrs: dict[str, Any] = {"experts": EXPERTS, "bits": bits, "depth": K, "columns": EXPERTS * N}
    ins = [g.input("x", "float32", (count, K))]
    if bits:
        w = Weights(bits, BLOCK, panel, K, EXPERTS * N, 0.0 if zeros else float(1 << (bits - 1)), group)
        attrs |= {"block": BLOCK, "panel": panel, "zero": w.zero, **({"group": group} if group > 1 else {})}
        codes = rng.integers(0, 1 << bits, (w.n, K)).astype(np.uint8)
        scale = (rng.random((w.n, w.blocks)) + 0.5).astype(np.float16)
        zero = (rng.random((w.n, w.blocks)) * 8).astype(np.float16) if zeros else None
        held = [w.store(codes), w.store_blocks(scale), *([] if zero is None else [w.store_blocks(zero)])]
        middle = np.float64(w.zero) if zero is None else np.repeat(zero.astype(np.float64), BLOCK, 1)
        matrix = (codes - middle) * np.repeat(scale.astype(np.float64), BLOCK, 1)
    else:
        matrix = rng.standard_normal((EXPERTS * N, K))
        held = [matrix.astype(np.float32)]
    extra = []
    if group > 1:
        rounded = g.add("round_blocks", ins, {"block": BLOCK})
        ins, extra = [rounded[0]], [rounded[1]]
    ins += [g.constant(a, f"w{k}") for k, a in enumerate(held)]
    made = g.add("expert_matmul", [*ins, g.input("places", "int64", (count, chosen)), *extra], attrs)
    g.set_outputs(made, ["y"])
    want = np.einsum("rk,rcnk->rcn", x.astype(np.float64), matrix.reshape(EXPERTS, N, K)[places])
    return g, {"x": x, "places": places}, want.reshape(-1, N)


@thinned_rows(
    3,
    ("bits", "zeros", "group"),
    [(0, False, 1), (4, False, 1), (8, True, 1), (4, True, 4), (8, False, 4), (6, False, 1), (6, True, 4)],
)
def test_experts(bits: int, zeros: bool, group: int) -> None:
    from tec.choices import layouts

    target = tec.target.Target("llvm -mcpu=haswell")
    g, feeds, want = drawn(bits, zeros, group, layouts.packed(target))
    near = (0.02 if group > 1 else 1e-5) * np.abs(want).max()
    assert np.abs(run_graph(g, feeds)[0] - want).max() < near
    net = tec.compile(g, target=target, cache=False)
    assert "cpu products with experts" in str(net.report.choices)
    assert np.abs(net.run(feeds)[0] - want).max() < near
    one = net.run({"x": feeds["x"][3:4], "places": feeds["places"][3:4]})[0]
    assert np.abs(one - want[6:8]).max() < near


@pytest.mark.parametrize("bits", [4, 6])
def test_the_definition_is_the_same(bits: int) -> None:
    g, feeds, want = drawn(bits, True, 1, 32, rows=2)
    node = g.nodes[-1]
    arrays = [v.data if v.is_const else feeds[v.name] for v in node.inputs]
    ins = [te.placeholder(a.shape, v.dtype, f"i{k}") for k, (a, v) in enumerate(zip(arrays, node.inputs))]
    outs = get_op("expert_matmul").infer(
        [type(v.type)(v.dtype, a.shape) for a, v in zip(arrays, node.inputs)], node.attrs
    )
    (made,) = evaluate(get_op("expert_matmul").compute(node.attrs, ins, outs), dict(zip(ins, arrays)))
    np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit_is_refused() -> None:
    g = Graph("wrong")
    x, w, places = (
        g.input("x", "float32", (2, K)),
        g.input("w", "float32", (EXPERTS * N, K + 1)),
        g.input("p", "int64", (2, 1)),
    )
    with pytest.raises(ImportModelError, match="with experts"):
        g.add("expert_matmul", [x, w, places], {"experts": EXPERTS, "bits": 0, "depth": K, "columns": EXPERTS * N})
