"""Registers filled a step ahead of the sums, over the ends of a ring's slots: against NumPy in the interpreter, its barriers with it; and the PTX."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.choices import Made, layouts, schedule, spaces
from tec.choices.proof import alone, prove
from tec.driver import PIPELINE, run_passes
from tec.ir.interp import run
from tec.schedule import to_loops
from tests.ir.parser import parse_func
from tests.thinned import thinned_rows
from tests.unit.codegen_gpu.test_warpgroups import HOPPER, operands, sgemm

AHEAD = {"template": "bulk product", "ahead": True, "order": "turns", "step": 32, "stages": 2, "blocks": 2}


def product(m: int, n: int, k: int, trans_b: bool = False, **choice: Any) -> tuple[Any, list[Any]]:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k) if trans_b else (k, n), name="B")
    kk = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * (b[j, kk] if trans_b else b[kk, j]), axis=kk), name="C")
    made = schedule([c], HOPPER, {**AHEAD, **choice})
    return made.schedule, [a, b, *made.outputs]


def pipelined(s: Any, args: list[Any]) -> Any:
    """The function behind `pipeline`, with the ring's barriers and waits."""
    until = [name for name, _ in PIPELINE].index("pipeline") + 1
    return run_passes(to_loops(s, args, "main"), tec.Target(HOPPER), PIPELINE[:until])


@thinned_rows(
    2,
    ("m", "n", "k", "choice"),
    [
        (100, 68, 132, {"rows": 64, "columns": 64}),
        (100, 68, 132, {"rows": 64, "columns": 64, "step": 64, "stages": 3, "order": "blocks"}),
        (128, 96, 256, {"rows": 32, "columns": 32, "parts": 4}),
        (128, 64, 96, {"rows": 128, "columns": 64, "blocks": 4, "order": "blocks"}),
        (100, 67, 132, {"rows": 64, "columns": 64, "trans_b": True}),
        (128, 64, 96, {"rows": 64, "columns": 64, "trans_b": True, "order": "blocks", "ahead": False}),
        (64, 96, 256, {"rows": 32, "columns": 32, "parts": 4, "trans_b": True, "order": "blocks"}),
    ],
)
def test_each_step_reads_its_own_slot(m: int, n: int, k: int, choice: dict[str, Any]) -> None:
    s, args = product(m, n, k, **choice)
    a, b = operands(m, n, k, "float32")
    c = np.full((m, n), np.nan, np.float32)
    run(pipelined(s, args), [a, np.ascontiguousarray(b.T) if choice.get("trans_b") else b, c])
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


@functools.cache
def large() -> Any:
    """The module of a product of 256 cubed, by tiles of 128 x 64."""
    s, args = product(256, 256, 256, rows=128, columns=64, blocks=3, split_k=1)
    return tec.build(s, args, HOPPER, name="gemm")


def test_the_next_loads_stand_before_the_sums() -> None:
    text = large().imported_modules[0].get_source("ptx")
    assert ".local" not in text and text.count("ld.shared.v2") == 0
    runs = [(m[0][:2], len(m[0].split())) for m in re.finditer(r"(?:F ?)+|(?:L ?)+", shape_of(text))]
    sums = [n for kind, n in runs if kind[0] == "F"]
    assert sums == [64] * 16, "loads between each step's 64 sums and the next"
    loop = text[text.rindex("ld.shared") :]
    assert loop.count("fma.rn.f32") == 64, "the last step's sums stand behind the first loads of the next block"


def shape_of(text: str) -> str:
    """F for each sum and L for each load from shared memory, in order."""
    return " ".join("F" if "fma" in x else "L" for x in re.findall(r"fma\.rn\.f32|ld\.shared", text))


def test_rows_of_b_lie_as_they_come() -> None:
    (launch,) = large().specs["gemm"]["program"]
    a, b = [x for x in launch["args"] if "tensor_map" in x]
    assert "swizzle" not in a and a["box"] == [32, 128]
    assert b["swizzle"] is False and b["box"] == [64, 32]


def test_a_batch_of_one_is_summed_in_parts() -> None:
    m, n, k = 32, 64, 256
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((1, k, n), name="B"), te.placeholder((1, m, n), name="R")
    kk = te.reduce_axis((0, k), "k")
    c = te.compute((1, m, n), lambda z, i, j: te.sum(a[i, kk] * b[z, kk, j], axis=kk), name="C")
    out = te.compute((1, m, n), lambda *at: c[at] + r[at], name="out")
    made = schedule([out], HOPPER, {**AHEAD, "rows": 32, "columns": 32, "parts": 4})
    rng = np.random.default_rng(3)
    x, w, z = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (1, k, n), (1, m, n)))
    y = np.full((1, m, n), np.nan, np.float32)
    args = [a, b, r, *made.outputs]
    run(next(iter(tec.lower(made.schedule, args, simple_mode=True, target=HOPPER))), [x, w, z, y])
    np.testing.assert_allclose(y, x @ w + z, rtol=1e-4, atol=1e-4)


def test_large_products_of_float32_are_so_by_default() -> None:
    a, b = te.placeholder((2048, 2048), name="A"), te.placeholder((2048, 2048), name="B")
    k = te.reduce_axis((0, 2048), "k")
    c = te.compute((2048, 2048), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    made = schedule([c], HOPPER)
    assert made.choice["prefetch"] and made.choice["order"] == "serpentine" and made.choice["occupancy"] == 3


def convolution(images: int, width: int, window: int, target: str) -> tuple[Any, Any]:
    """What a small convolution's layouts are, and the template of its kernel."""
    from tec.graph.compiler import compile_graph
    from tec.graph.graph import Graph

    g = Graph()
    x = g.input("x", "float32", (images, 64, width, width))
    w = g.constant(np.zeros((64, 64, window, window), np.float32))
    pad = (window // 2,) * 2
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": pad, "after": pad, "groups": 1}
    (y,) = g.add("conv", [x, w], attrs)
    g.outputs = [y]
    choices = compile_graph(g, tec.Target(target)).report.choices
    (template,) = (c["choice"]["template"] for name, c in choices.items() if name.endswith("conv"))
    return layouts.convolution(tec.Target(target), x.type, w.type, attrs, ()), template


def test_pointwise_convolutions_are_products_of_channels_by_pixels() -> None:
    found, template = convolution(1, 32, 1, HOPPER)
    assert found.x.name == "NC(HW)" and template == "bulk product"
    found, _ = convolution(2, 8, 1, HOPPER)  # of a larger network: alone it stays as it is
    assert found.x.name == "C(NHW)"
    found, template = convolution(2, 28, 3, HOPPER)
    assert found.x.name == "NCHW" and template == "blocked product"
    _, template = convolution(1, 7, 1, HOPPER)
    assert template != "bulk product", "rows of 49 elements begin where no bulk copy can"


@pytest.mark.parametrize(("m", "n"), [(1152, 128), (1100, 128), (1024, 100)])
def test_ragged_bands_rows_and_columns_leave_the_main_loop_whole(m: int, n: int) -> None:
    """Nine tiles in bands of about eight, rows and columns that end within a tile: TMA copies fill what is beyond with zeros, and stores alone are guarded."""
    a, b = te.placeholder((m, 256), name="A"), te.placeholder((256, n), name="B")
    space = next(s for s in spaces([topi.matmul(a, b)], HOPPER) if s.template == "bulk product")
    choice = space.choice(rows=128, columns=64, step=32, stages=2, occupancy=3, group_m=8, split_k=1, order="serpentine", prefetch=True)  # fmt: skip
    made = prove(space, choice, alone)
    assert isinstance(made, Made)
    loop = str(made.lowered.func).partition("_ahead in range")[2]
    sums = loop.rpartition("matmul_local[0] = matmul_local[0] + ")[0]
    assert sums and "likely" not in sums


# ---- mistakes


def test_loops_that_are_not_unrolled_are_refused() -> None:
    target, s, args = sgemm(256, 128, 96)
    acc = next(x for x in s.stages if x.op.name.endswith("local"))
    acc.pragma(acc.leaf_iter_vars[-3], "fragments_ahead")
    with pytest.raises(tec.LoweringError, match="fragments_ahead is for a nest of loops"):
        tec.build(s, args, target)


@pytest.mark.parametrize(
    ("word", "match"), [("bulk_copy", "swizzle is True or False"), ("fragments_ahead", "turns is")]
)
def test_flags_are_checked(word: str, match: str) -> None:
    _, s, args = sgemm(256, 128, 96)
    with pytest.raises(tec.TecError, match=match):
        s[args[2]].pragma(s[args[2]].leaf_iter_vars[0], word, 2)


def test_a_wait_for_a_phase_that_nobody_began() -> None:
    text = """
def f(A: Buffer((1,), "float32")):
    for i in thread("threadIdx.x", 32):
        full = alloc((1,), "uint64", scope="shared")
        mbarrier_init(full[0], 1)
        mbarrier_expect(full[0], 4)
        mbarrier_wait(full[0], 1)
        A[0] = 1.0
"""
    run(parse_func(text.replace("full[0], 1)\n        A", "full[0], 0)\n        A")), [np.zeros(1, np.float32)])
    with pytest.raises(tec.TecError, match="nobody has begun"):
        run(parse_func(text), [np.zeros(1, np.float32)])
