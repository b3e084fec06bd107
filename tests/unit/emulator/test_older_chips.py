"""Chips that share another one's instructions: what tec compiles for them runs and is modelled."""

from __future__ import annotations

import numpy as np

import tec
from tec.choices import schedule
from tec.emulator.chips import EMULATED
from tec.emulator.decode.words import encodings
from tec.ops.registry import TensorType, get_op
from tec.runtime import nd, rocm_emu
from tec.target import CHIPS, MACHINES
from tests.thinned import thinned_rows

CASES = [
    ("gfx900", "float32"),
    ("gfx900", "float16"),
    ("gfx906", "float32"),
    ("gfx906", "int8"),
    ("gfx908", "float16"),
    ("gfx908", "int8"),
    ("gfx1102", "float16"),
]


@thinned_rows(4, ("chip", "dtype"), CASES)
def test_products_run_right_and_are_modelled(chip: str, dtype: str) -> None:
    m, n, k = 96, 128, 64
    target = tec.Target(f"rocm -mcpu={chip}")
    xs = [tec.te.placeholder(s, dtype, name=name) for s, name in (((m, k), "a"), ((n, k), "b"))]
    op, attrs = get_op("matmul"), {"transpose_b": True}
    outs = op.compute(attrs, xs, op.infer([TensorType(dtype, x) for x in ((m, k), (n, k))], attrs))[:1]
    s = schedule(outs, target)
    f = tec.build(s.schedule, [*xs, *s.outputs], target, name="product")
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-4, 5, x).astype(dtype) for x in ((m, k), (n, k)))
    device = rocm_emu(chip)
    got = nd.empty((m, n), outs[0].dtype, device)
    f(nd.array(a, device), nd.array(b, device), got)
    want = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_allclose(got.numpy().astype(np.float32), want, rtol=1e-3)
    profile = tec.model(f, [(x.shape, str(x.dtype)) for x in (a, b)] + [((m, n), outs[0].dtype)])
    assert all(x.estimate.kernel_us > 0 for x in profile.launches)


def test_every_chip_that_compiles_is_emulated_and_has_a_product() -> None:
    assert set(EMULATED) == {name for name in CHIPS if name.startswith("gfx")}
    assert set(EMULATED) <= {m.chip for m in MACHINES.values()}


def test_gfx900_does_not_take_its_own_mixes_for_fused_ones() -> None:
    mixes = [(kind, op) for (kind, op), e in encodings("gfx906").items() if e.name.startswith("v_fma_mix")]
    assert len(mixes) == 3
    assert not [key for key in mixes if key in encodings("gfx900")]
