"""Tile registers (AMX): products and convolutions by the interpreter, the instructions in the code, and what a system without them says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.graph.graph import infer_types
from tec.ir.interp import run
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op

AMX = tec.Target("llvm -mcpu=sapphirerapids")
rng = np.random.default_rng(2)


def operator(op: str, attrs: dict[str, Any], *shapes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    xs = [te.placeholder(s, "bfloat16", name=f"x{k}") for k, s in enumerate(shapes)]
    definition = get_op(op)
    types = infer_types(definition, [TensorType("bfloat16", s) for s in shapes], attrs)
    (y,) = definition.compute(attrs, list(xs), types)
    return xs, [te.compute(y.shape, lambda *i: te.max(y(*i), te.const(0, y.dtype)), name="relu")]


def product(m: int, n: int, k: int) -> tuple[list[Any], list[Any]]:
    layout = Layout("NK32n2k")
    return operator("matmul", {"layout_b": layout, "columns": n}, (m, k), (n // 32, k // 2, 32, 2))


def convolution(size: int, kernel: int, stride: int, channels: int, outs: int) -> tuple[list[Any], list[Any]]:
    layouts = Layout("NCHW32c"), Layout("OHWI32o2i"), Layout("NCHW32c")
    pad = (kernel // 2,) * 2
    attrs = {"strides": (stride,) * 2, "dilations": (1, 1), "before": pad, "after": pad, "groups": 1, "kernel": (kernel,) * 2, "layouts": layouts}  # fmt: skip
    return operator(
        "conv", attrs, (1, channels // 32, size, size, 32), (outs // 32, kernel, kernel, channels // 2, 32, 2)
    )


PROGRAMS = {
    "product": lambda: product(28, 64, 96), "product of odd tiles": lambda: product(7, 32, 32), "1x1": lambda: convolution(8, 1, 1, 64, 32),
    "3x3": lambda: convolution(6, 3, 1, 32, 64), "3x3 of odd rows": lambda: convolution(7, 3, 1, 32, 32), "stride 2": lambda: convolution(13, 3, 2, 32, 32),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_by_the_interpreter(name: str) -> None:
    """Every choice of the template, against te's own meaning."""
    ins, outs = PROGRAMS[name]()
    space = spaces(outs, AMX)[0]
    assert space.template.startswith("cpu tile")
    arrays = [rng.standard_normal([d.value for d in t.shape]).astype(ml_dtypes.bfloat16) for t in ins]
    (want,) = te.evaluate(outs, dict(zip(ins, arrays)))
    for high in space.parameters["high"]:
        made = schedule(outs, AMX, {"template": space.template, "high": high, "parallel": True})
        func = next(iter(tec.lower(made.schedule, [*ins, *made.outputs], name="f", target=AMX)))
        got = np.zeros(want.size, ml_dtypes.bfloat16)
        named = dict(zip([p.name for p in func.params], [*(a.reshape(-1).copy() for a in arrays), got]))
        run(func, named, {}, check=True)
        np.testing.assert_allclose(got.astype("f4"), want.reshape(-1).astype("f4"), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["product", "3x3"])
def test_the_instructions(name: str) -> None:
    ins, outs = PROGRAMS[name]()
    made = schedule(outs, AMX)
    asm = tec.build(made.schedule, [*ins, *made.outputs], AMX, name="f").get_source("asm")
    for word in ("ldtilecfg", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease", "tec_tiles_on"):
        assert word in asm, word


def test_targets_without() -> None:
    for target in ("llvm -mcpu=znver4", "llvm -mcpu=sapphirerapids -mattr=-amx-bf16", "rocm -mcpu=gfx942"):
        assert te.intrin.tiles(target) is None
    ins, outs = PROGRAMS["3x3"]()
    assert spaces(outs, "llvm -mcpu=sapphirerapids -mattr=-amx-bf16")[0].template == "cpu convolution"


def test_a_system_that_grants_no_tiles() -> None:
    """A function whose process may not use tiles says so, before it touches one."""
    from tec.runtime import hostpool

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
