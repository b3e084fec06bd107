"""Products of few float16 rows with packed weights on AMD's matrix units: right with every check, no spills, and the default for what they serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.codegen.static_report import report
from tec.ops.packed import Weights
from tec.ops.registry import TensorType, get_op


def product(m: int, n: int, k: int, bits: int, block: int, zeros: str = "") -> tuple[Any, list[Any], list[Any], Any]:
    """relu(x w + bias): the result, its parameters, arrays, and the result in float64."""
    rng = np.random.default_rng(m + n)
    attrs = {"bits": bits, "block": block, "panel": 0, "depth": k, "columns": n, "zero": float(1 << (bits - 1))}
    w, codes = Weights.of(attrs), rng.integers(0, 1 << bits, (n, k)).astype(np.uint8)
    scale = (rng.random((n, k // block)) * 0.1 + 0.01).astype(np.float16)
    zero = np.full(scale.shape, 1 << (bits - 1))
    x, bias = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal(n).astype(np.float16)
    arrays = [x, w.store(codes), w.store_blocks(scale)]
    if zeros:
        zero = rng.integers(0, 1 << bits, scale.shape).astype(zeros)
        arrays.append(w.store_blocks(zero))
    types, op = [TensorType(str(v.dtype), v.shape) for v in arrays], get_op("packed_matmul")
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
    b = te.placeholder((n,), "float16", name="bias")
    (c,) = op.compute(attrs, list(xs), op.infer(types, attrs))
    y = te.compute((m, n), lambda i, j: te.max(c(i, j) + b(j), te.const(0, "float16")), name="y")
    numbers = (codes - np.repeat(zero.astype("f8"), block, 1)) * np.repeat(scale.astype("f8"), block, 1)
    return y, [*xs, b], [*arrays, bias], np.maximum(x.astype("f8") @ numbers.T + bias, 0)


@pytest.mark.parametrize(
    ("chip", "shape", "bits", "block", "zeros", "choice"),
    [
        ("gfx942", (1, 64, 1024), 4, 32, "", {}),
        ("gfx942", (5, 70, 1056), 4, 32, "uint8", {"tiles": 2, "waves": 4, "ahead": 2}),  # columns and pieces that are no whole tiles and steps
        ("gfx950", (16, 70, 768), 8, 32, "float16", {}),
        ("gfx90a", (40, 48, 512), 4, 64, "", {}),
        ("gfx1100", (1, 64, 1024), 4, 128, "", {}),  # lanes that would all read one place
        ("gfx1100", (17, 64, 1024), 8, 32, "", {}),
        ("gfx1201", (3, 64, 512), 8, 16, "", {}),
        ("gfx1250", (2, 48, 512), 4, 64, "uint8", {}),
    ],
)  # fmt: skip
def test_few_rows(chip: str, shape: Any, bits: int, block: int, zeros: str, choice: Any) -> None:
    target = f"rocm -mcpu={chip}"
    y, params, arrays, want = product(*shape, bits, block, zeros)
    made = schedule([y], target, {"template": "packed rows", **choice} if choice else None)
    assert made.choice["template"] == "packed rows"
    f, dev = tec.build(made.schedule, [*params, *made.outputs], target), tec.rocm_emu(chip, check="all")
    out = tec.nd.empty(want.shape, "float16", dev)
    f(*[tec.nd.array(v, dev) for v in arrays], out)
    np.testing.assert_allclose(out.numpy(), want, rtol=0, atol=1e-3 * want.max())
    (r,) = report(f.get_source("asm"))  # one kernel, what follows included
    assert r.matrix_kind and r.spills == 0


def test_what_it_does_not_serve() -> None:
    for m, k, bits, block in ((1, 64 * 16, 4, 16), (100, 1024, 4, 32)):  # blocks less than a lane's load; many rows
        y, *_ = product(m, 64, k, bits, block)
        assert spaces([y], "rocm -mcpu=gfx942")[0].template != "packed rows"
    y, *_ = product(1, 64, 1024, 4, 32)
    assert all(s.template != "packed rows" for s in spaces([y], "rocm -mcpu=gfx1030"))
    space = spaces([y], "rocm -mcpu=gfx942")[0]
    with pytest.raises(tec.ScheduleError, match="less of the sum than they load"):
        space.apply({"template": "packed rows", "tiles": 1, "waves": 16, "ahead": 8})
