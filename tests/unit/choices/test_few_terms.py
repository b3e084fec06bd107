"""Products of a few terms on GPUs: written out up to as many as the machine's judge says."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import preferred
from tec.ops.dims import Dim
from tec.ops.registry import TensorType, get_op
from tec.te import Tensor


def product(m: object, n: int, k: int, dtype: str = "float16") -> tuple[list[Tensor], list[Tensor]]:
    known, types = get_op("matmul"), [TensorType(dtype, (m, k)), TensorType(dtype, (k, n))]
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
    return xs, known.compute({}, xs, known.infer(types, {}))


def template(m: object, n: int, k: int, target: str) -> str:
    found = preferred(product(m, n, k)[1], tec.Target(target))
    assert found is not None
    return found[0].template


@pytest.mark.parametrize(("k", "target", "written"), [
    (7, "rocm -mcpu=gfx950", True), (8, "rocm -mcpu=gfx950", False), (5, "rocm -mcpu=gfx1030", True), (4, "cuda -arch=sm_90a", True),
    (5, "cuda -arch=sm_90a", False),
])  # fmt: skip
def test_which_are_written_out(k: int, target: str, written: bool) -> None:
    assert (template(400, 776, k, target) == "few terms") == written


def test_open_rows_are_tiles() -> None:
    """A sum a thread would be what is left of them."""
    rows = Dim("rows")
    assert template(rows, 776, 5, "rocm -mcpu=gfx950") in ("blocked product", "matrix product")


@pytest.mark.parametrize("k", [4, 7])
@pytest.mark.parametrize("n", [48, 51])
def test_values(k: int, n: int) -> None:
    xs, outs = product(37, n, k)
    found = preferred(outs, tec.Target("rocm -mcpu=gfx942"))
    assert found is not None and found[0].template == "few terms"
    made, dev = found[0].build(found[1]), tec.rocm_emu("gfx942", check="all")
    f, rng = tec.build(made.schedule, [*xs, *made.outputs], "rocm -mcpu=gfx942", name="f"), np.random.default_rng(k)
    a, b = (rng.standard_normal(s).astype("float16") for s in ((37, k), (k, n)))
    got = tec.nd.empty((37, n), "float16", dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), got)
    np.testing.assert_allclose(got.numpy().astype("f8"), a.astype("f8") @ b.astype("f8"), rtol=1e-2, atol=1e-2)
