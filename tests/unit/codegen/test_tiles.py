"""Tile registers (AMX): products and convolutions by the interpreter, the instructions in the code, and what a system without them says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.graph.operators import infer_types
from tec.ir.interp import run
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned_rows

AMX = tec.Target("llvm -mcpu=sapphirerapids")
rng = np.random.default_rng(2)


def operator(op: str, attrs: dict[str, Any], dtype: str, *shapes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    dtypes = (dtype, "int8" if dtype == "uint8" else dtype)
    xs = [te.placeholder(s, d, name=f"x{k}") for k, (s, d) in enumerate(zip(shapes, dtypes))]
    definition = get_op(op)
    types = infer_types(definition, [TensorType(d, s) for s, d in zip(shapes, dtypes)], attrs)
    (y,) = definition.compute(attrs, list(xs), types)
    return xs, [te.compute(y.shape, lambda *i: te.max(y(*i), te.const(0, y.dtype)), name="relu")]


def product(m: int, n: int, k: int, dtype: str = "bfloat16") -> tuple[list[Any], list[Any]]:
    group = 4 if dtype == "uint8" else 2
    layout = Layout(f"NK32n{group}k")
    return operator("matmul", {"layout_b": layout, "columns": n}, dtype, (m, k), (n // 32, k // group, 32, group))


def convolution(
    size: int, kernel: int, stride: int, channels: int, outs: int, dtype: str = "bfloat16"
) -> tuple[list[Any], list[Any]]:
    block, group = (64, 4) if dtype == "uint8" else (32, 2)  # of channels: a tile's row of 64 bytes
    layouts = Layout(f"NCHW{block}c"), Layout(f"OHWI{block}o{group}i"), Layout(f"NCHW{block}c")
    pad = (kernel // 2,) * 2
    attrs = {"strides": (stride,) * 2, "dilations": (1, 1), "before": pad, "after": pad, "groups": 1, "kernel": (kernel,) * 2, "layouts": layouts}  # fmt: skip
    image = (1, channels // block, size, size, block)
    return operator("conv", attrs, dtype, image, (outs // block, kernel, kernel, channels // group, block, group))


PROGRAMS = {
    "product": lambda: product(28, 64, 96), "product of odd tiles": lambda: product(7, 32, 32), "1x1": lambda: convolution(8, 1, 1, 64, 32),
    "3x3": lambda: convolution(6, 3, 1, 32, 64), "3x3 of odd rows": lambda: convolution(7, 3, 1, 32, 32), "stride 2": lambda: convolution(13, 3, 2, 32, 32),
    "bytes": lambda: product(28, 64, 128, "uint8"), "1x1 of bytes": lambda: convolution(8, 1, 1, 128, 64, "uint8"),
    "3x3 of bytes": lambda: convolution(6, 3, 1, 64, 64, "uint8"), "bytes, stride 2": lambda: convolution(13, 3, 2, 64, 64, "uint8"),
}  # fmt: skip


def numbers(t: Any) -> Any:
    """Values for a placeholder: of bytes the whole range, whose sums are exact."""
    shape = [d.value for d in t.shape]
    if t.dtype == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    info = np.iinfo(t.dtype)
    return rng.integers(info.min, info.max, shape, t.dtype, True)


@thinned_rows(3, "name", PROGRAMS)
def test_by_the_interpreter(name: str) -> None:
    """Every choice of the template, against te's own meaning."""
    ins, outs = PROGRAMS[name]()
    space = spaces(outs, AMX)[0]
    assert space.template.startswith("cpu tile")
    arrays = [numbers(t) for t in ins]
    (want,) = te.evaluate(outs, dict(zip(ins, arrays)))
    for high in space.parameters["high"]:
        made = schedule(outs, AMX, {"template": space.template, "high": high, "parallel": True})
        func = next(iter(tec.lower(made.schedule, [*ins, *made.outputs], name="f", target=AMX)))
        got = np.zeros(want.size, want.dtype)
        named = dict(zip([p.name for p in func.params], [*(a.reshape(-1).copy() for a in arrays), got]))
        run(func, named, {}, check=True)
        if want.dtype == np.int32:
            np.testing.assert_array_equal(got, want.reshape(-1))
        else:
            np.testing.assert_allclose(got.astype("f4"), want.reshape(-1).astype("f4"), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    "name,dot", [("product", "tdpbf16ps"), ("3x3", "tdpbf16ps"), ("bytes", "tdpbusd"), ("3x3 of bytes", "tdpbusd")]
)
def test_the_instructions(name: str, dot: str) -> None:
    ins, outs = PROGRAMS[name]()
    made = schedule(outs, AMX)
    asm = tec.build(made.schedule, [*ins, *made.outputs], AMX, name="f").get_source("asm")
    for word in ("ldtilecfg", "tileloadd", dot, "tilestored", "tilerelease", "tec_tiles_on"):
        assert word in asm, word


def test_targets_without() -> None:
    for target in ("llvm -mcpu=znver4", "llvm -mcpu=sapphirerapids -mattr=-amx-bf16", "rocm -mcpu=gfx942"):
        assert te.intrin.tiles(target) is None
    ins, outs = PROGRAMS["3x3"]()
    assert spaces(outs, "llvm -mcpu=sapphirerapids -mattr=-amx-bf16")[0].template == "cpu convolution"


def test_a_system_that_grants_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function whose process may not use tiles says so, before it touches one."""
    from tec.runtime.modules import host_cpu, hostpool

    # As where the system does not name its processor: the feature check refuses nothing before.
    monkeypatch.setattr(host_cpu, "_flags", frozenset)

    if "tec_tiles_on" not in hostpool.symbols():
        pytest.skip("no x86 pool")
    if tec.Target("llvm").core.tiles:
        pytest.skip("this host has tiles")
    ins, outs = PROGRAMS["product"]()
    made = schedule(outs, AMX, {**schedule(outs, AMX).choice, "parallel": False})
    f = tec.build(made.schedule, [*ins, *made.outputs], AMX, name="f")
    arrays = [tec.nd.array(np.zeros([d.value for d in t.shape], ml_dtypes.bfloat16)) for t in (*ins, *made.outputs)]
    with pytest.raises(tec.DeviceError, match="tile registers"):
        f(*arrays)
