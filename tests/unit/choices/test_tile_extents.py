"""Tiles of products beside the product's own extents: small ones, odd ones, columns that no usual tile parts."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import spaces
from tec.choices.parts.needs import extents
from tec.driver import run_passes
from tec.graph import Graph, run_graph
from tec.ir.interp import run
from tec.ir.matrix import warpgroup_columns
from tec.ops.conv import merged_groups
from tec.ops.dims import Dim
from tec.schedule import to_loops
from tests import seeds
from tests.thinned import thinned_rows

from .test_spaces import program

HOPPER = "cuda -arch=sm_90a"


def test_a_tile_is_no_larger_than_the_product_but_for_parts_that_are_whole() -> None:
    assert extents((64, 64), (49, 33)) and not extents((64, 64), (49, 33), (32, 32))
    assert extents((128, 64), (65, 64), (32, 32)) == "the product has 65 rows and 64 columns"


def test_sums_beside_a_narrow_result_are_not_stored() -> None:
    """A warpgroup's 64 columns for 5 pixels: the others, vectors under a condition that no lane meets, would lie where other rows do."""
    attrs = {"strides": (3,), "dilations": (1,), "before": (2,), "after": (2,), "groups": 1}
    xs, outs = program("conv", attrs, ("float16", (1, 8, 14)), ("float16", (16, 8, 5)))
    space = next(s for s in spaces(outs, HOPPER) if s.template == "padded warpgroup product")
    made = space.apply({**space.default, "stage_out": True})
    f = next(iter(tec.lower(made.schedule, [*xs, *made.outputs], target=HOPPER)))
    rng = np.random.default_rng(1)
    x, w = rng.integers(-3, 4, (1, 8, 14)).astype("e"), rng.integers(-3, 4, (16, 8, 5)).astype("e")
    (want,) = te.evaluate(outs, dict(zip(xs, (x, w))))
    got = np.full((1, 16, 5), np.nan, "e")
    run(f, [x, w, got], wave=32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("m, n, k", [(33, 4, 23), (60, 7, 16), (21, 48, 8), (28, 38, 27), (5, 40, 70)])
def test_small_products_by_blocks_have_the_values(m: int, n: int, k: int) -> None:
    """All threads of a work-group bring operands, also where the product's rows and columns take less of them."""
    xs, outs = program("matmul", {}, ("float32", (m, k)), ("float32", (k, n)))
    space = next(s for s in spaces(outs, "cuda -arch=sm_70") if s.template in ("blocked product", "gpu reduction"))
    made = space.apply()
    f = next(iter(tec.lower(made.schedule, [*xs, *made.outputs], target="cuda -arch=sm_70")))
    if n == 38:  # rows are even, and no whole runs
        assert re.search(r"result\[ramp\(.*, 1, 2\)\] = ", str(f))
    rng = np.random.default_rng(m)
    a, b = rng.integers(-3, 4, (m, k)).astype("f"), rng.integers(-3, 4, (k, n)).astype("f")
    c = np.full((m, n), np.nan, "f")
    run(f, [a, b, c])
    np.testing.assert_array_equal(c, a @ b)


RINGS = [
    ((50, 33, 41), False, {"rows": 64, "columns": 32, "step": 16, "block": "4x8", "stages": 2}),  # single elements
    ((48, 96, 72), True, {"rows": 48, "columns": 64, "step": 8, "block": "4x8", "stages": 4}),
    ((96, 60, 200), False, {"rows": 96, "columns": 64, "step": 8, "block": "8x8", "stages": 3, "split_k": 3}),
]


@thinned_rows(2, ("sizes", "turned", "choice"), RINGS)
def test_tiles_that_come_by_copies_in_the_background_have_the_values(
    sizes: tuple[int, int, int], turned: bool, choice: dict[str, Any]
) -> None:
    """Rings of slots, whose copies no thread waits for before their step; with the interpreter's check for races."""
    m, n, k = sizes
    xs, outs = program(
        "matmul", {"transpose_b": turned}, ("float32", (m, k)), ("float32", (n, k) if turned else (k, n))
    )
    space = next(s for s in spaces(outs, HOPPER) if s.template == "blocked product")
    made = space.build(space.check({"split_k": 1, **choice}))
    f = next(iter(tec.lower(made.schedule, [*xs, *made.outputs], target=HOPPER)))
    assert "async_copy" in str(f)
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, [int(d) for d in x.shape]).astype("f") for x in xs)
    c = np.full((m, n), np.nan, "f")
    run(f, [a, b, c], races=True)
    np.testing.assert_array_equal(c, a @ (b.T if turned else b))


@pytest.mark.parametrize("dtype, acc", [("float64", "float64"), ("int8", "int32")])
def test_blocks_take_all_types(dtype: str, acc: str) -> None:
    """Sums of 64 bits, and elements that no dot product takes."""
    xs, outs = program("matmul", {"out_dtype": acc}, (dtype, (2, 37, 29)), (dtype, (2, 29, 40)))
    space = spaces(outs, "cuda -arch=sm_70")[0]
    assert space.template == "blocked product"
    made, rng = space.apply(), np.random.default_rng(3)
    a, b = rng.integers(-3, 4, (2, 37, 29)).astype(dtype), rng.integers(-3, 4, (2, 29, 40)).astype(dtype)
    c = np.zeros((2, 37, 40), acc)
    run(next(iter(tec.lower(made.schedule, [*xs, *made.outputs], target="cuda -arch=sm_70"))), [a, b, c])
    np.testing.assert_array_equal(c, a.astype(acc) @ b.astype(acc))


def test_blocks_take_columns_terms_and_batches_of_any_number() -> None:
    g = Graph()
    batch, n, k = Dim("b"), Dim("n"), Dim("k")
    g.set_outputs(g.add("matmul", [g.input("x", "float32", (batch, 37, k)), g.input("y", "float32", (batch, k, n))]))
    net = tec.compile(g, target="rocm -mcpu=gfx1030", cache=False)
    (found,) = net.report.choices.values()
    assert found["choice"]["template"] == "blocked product"
    rng = np.random.default_rng(4)
    for sizes in ((2, 40, 29), (1, 5, 70)):
        b, columns, terms = sizes
        x, y = (rng.integers(-3, 4, s).astype("f") for s in ((b, 37, terms), (b, terms, columns)))
        (got,) = net.run({"x": x, "y": y}, device=tec.rocm_emu("gfx1030", check="all"))
        np.testing.assert_array_equal(got, x @ y)


@pytest.mark.parametrize("m, n, k, turned", [(100, 96, 72, False), (67, 136, 152, True), (130, 72, 136, False), (130, 200, 64, True)])  # fmt: skip
def test_columns_that_no_usual_tile_has_stay_on_warpgroups(m: int, n: int, k: int, turned: bool) -> None:
    xs, outs = program(
        "matmul", {"transpose_b": turned}, ("float16", (m, k)), ("float16", (n, k) if turned else (k, n))
    )
    space = next(s for s in spaces(outs, HOPPER) if s.template == "warpgroup product")
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-3, 4, [int(d.value) for d in x.shape]).astype("float16") for x in xs)
    want = a.astype("f") @ (b.T if turned else b).astype("f")
    # Tiles of more rows than there are too: the unit reads whole ones.
    tall = next(c for c in space.all if c["rows"] == (192 if m > 128 else 128) and c["columns"] <= n)
    whole = next(c for c in space.all if c["columns"] == n)
    for choice in (space.default, tall, whole):
        made = space.apply(choice)
        c = np.full((m, n), np.nan, "float16")
        f = next(iter(tec.lower(made.schedule, [*xs, *made.outputs], simple_mode=True, target=HOPPER)))
        run(f, [a, b, c])
        np.testing.assert_array_equal(c.astype("f"), want)


@pytest.mark.parametrize(
    "lead, m, n, k", [((), 25088, 96, 384), ((), 25088, 72, 64), ((3,), 2056, 320, 768), ((296,), 491, 200, 144)]
)
def test_wide_and_batched_products_are_lowered_for_warpgroups(lead: tuple[int, ...], m: int, n: int, k: int) -> None:
    xs, outs = program("matmul", {}, ("float16", (*lead, m, k)), ("float16", (*lead, k, n)))
    target = tec.Target(HOPPER)
    space = next(s for s in spaces(outs, target) if s.template == "warpgroup product")
    made = space.apply()
    with target:
        run_passes(to_loops(made.schedule, [*xs, *made.outputs], name="g", on_cpu=False), target)
    assert lead or made.choice["columns"] == n, "one tile has all columns"


def test_columns_of_a_warpgroup_are_the_units() -> None:
    assert warpgroup_columns("float16") == tuple(range(8, 257, 8))
    assert {24, 32, 48, 208} <= set(warpgroup_columns("int8")) and not {40, 72, 200} & set(warpgroup_columns("int8"))


def test_a_digit_that_is_always_zero_tells_nothing_apart() -> None:
    """Images of one row: 1-D convolutions in groups are stored so."""
    a: Any = te.placeholder((2, 13), name="a")
    b = te.compute((2, 13), lambda i, j: a[i, j] * 2, name="b")
    s = tec.create_schedule(b.op)
    s[b].transform_layout(lambda i, j: [i, j // 13, j % 13], keep_loops=True)
    x = np.arange(26, dtype="f").reshape(2, 13)
    got = np.zeros((2, 1, 13), "f")
    f = next(iter(tec.lower(s, [a, b], target="llvm")))
    run(f, [x, got.reshape([int(d.value) for d in f.params[1].shape]) if hasattr(f.params[1], "shape") else got])
    np.testing.assert_array_equal(got.reshape(2, 13), 2 * x)


def test_any_sum_is_made_in_parts_and_tiles_reach_beyond_the_product_on_amd() -> None:
    """Sums that are no whole number of steps in each part, by wavefronts or kernels; tiles of 32 of fewer rows or columns."""
    rng, dev = random.Random(seeds.first(32)), tec.rocm_emu("gfx942", check="all")
    m, n, k = rng.choice([24, 40, 100]), rng.choice([20, 24, 40]), rng.choice([456, 1000])
    xs, outs = program("matmul", {"transpose_b": True}, ("float16", (m, k)), ("float16", (n, k)))
    space = next(s for s in spaces(outs, "rocm -mcpu=gfx942") if s.template == "matrix product")
    drafts = [c for c in space.drafts() if space.why_not(c) is None]
    in_parts = [
        c for c in drafts if max(c["split_k"], c["slice_k"]) > 1 and k % (c["split_k"] * c["slice_k"] * c["step"])
    ]
    beyond = [c for c in drafts if c["rows"] > m or c["columns"] > n]
    a, b = (np.random.default_rng(m).integers(-3, 4, s).astype("float16") for s in ((m, k), (n, k)))
    for choice in (rng.choice(in_parts), rng.choice(beyond)):
        made = space.apply(choice)
        c = tec.nd.array(np.full((m, n), np.nan, "float16"), dev)
        tec.build(made.schedule, [*xs, *made.outputs], "rocm -mcpu=gfx942")(
            tec.nd.array(a, dev), tec.nd.array(b, dev), c
        )
        np.testing.assert_array_equal(c.numpy(), a @ b.T, err_msg=str(dict(choice)))


FEW_CHANNELS = [
    ("gfx942", "float32", (2, 20, 30, 30), 12, 1), ("gfx950", "float16", (2, 40, 24, 24), 16, 1), ("gfx1100", "float16", (1, 96, 20, 20), 9, 1),
    ("gfx90a", "float16", (2, 72, 17, 17), 32, 4),
]  # fmt: skip


@thinned_rows(2, ("mcpu", "dtype", "image", "channels", "groups"), FEW_CHANNELS)
def test_few_channels_have_tiles_of_no_more_rows(
    mcpu: str, dtype: str, image: tuple[int, ...], channels: int, groups: int
) -> None:
    """A tile of 32 rows would be half empty; one of 16 has its wavefronts along the pixels."""
    rng = np.random.default_rng(channels)
    w = rng.integers(-2, 3, (channels, image[1] // groups, 3, 3)).astype(dtype)
    g = Graph()
    window = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": groups}
    g.set_outputs(g.add("conv", [g.input("x", dtype, image), g.constant(w)], window))
    net = tec.compile(g, f"rocm -mcpu={mcpu}", cache=False)
    (choice,) = (u["choice"] for u in net.report.choices.values() if u["choice"].get("template") == "matrix product")
    assert 16 in (choice["rows"], choice["columns"]), choice
    a = rng.integers(-2, 3, image).astype(dtype)
    (got,) = net.run({"x": a}, device=tec.rocm_emu(mcpu, check="all"))
    (want,) = run_graph(g, {"x": a})
    np.testing.assert_array_equal(got, want)


def test_a_short_sum_by_blocks_has_steps_enough_for_a_pipeline() -> None:
    """45 terms in steps of 32, two of 16 bits a word, are two, and nothing is under way while a step is computed; in steps of 16 they are three."""
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}
    _, outs = program("conv", attrs, ("float16", (8, 5, 161, 161)), ("float16", (9, 5, 3, 3)))
    space = next(s for s in spaces(outs, "rocm -mcpu=gfx1030") if s.template == "blocked product")
    assert space.default["step"] == 8


@pytest.mark.parametrize("mcpu", ["gfx1030", "gfx942"])
def test_groups_of_few_channels_with_many_results_are_products_without_zeros(mcpu: str) -> None:
    """A group's 4 channels are 36 terms of each of 24 results: neither sums one by one, nor groups with zeros between them."""
    rng = np.random.default_rng(3)
    w = rng.integers(-2, 3, (96, 4, 3, 3)).astype("float16")
    g = Graph()
    window = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 4}
    (y,) = g.add("conv", [g.input("x", "float16", (1, 16, 20, 20)), g.constant(w)], window)
    g.set_outputs([y])
    net = tec.compile(g, f"rocm -mcpu={mcpu}", cache=False)
    assert any("product" in u["choice"]["template"] for u in net.report.choices.values())
    a = rng.integers(-2, 3, (1, 16, 20, 20)).astype("float16")
    (got,) = net.run({"x": a}, device=tec.rocm_emu(mcpu, check="all"))
    np.testing.assert_array_equal(got, run_graph(g, {"x": a})[0])
    assert merged_groups(4, 36, 24) == 1 and merged_groups(32, 36, 4) == 4


def test_sums_are_read_behind_the_last_wait_and_whole() -> None:
    """ptxas takes halves of a pair, and sums behind a loop that it writes out, ahead of the wait for the last products. On an H200 1,104 x 399 x 152 came out wrong by 192 x 256."""
    xs, outs = program("matmul", {}, ("float16", (2, 200, 152)), ("float16", (2, 152, 399)))
    space = next(s for s in spaces(outs, HOPPER) if s.template == "padded warpgroup product")
    tile = {"rows": 192, "columns": 256, "stages": 3, "occupancy": 1, "stage_out": True}
    made = space.apply({**space.default, **tile, "split_k": 1})
    build = tec.build(made.schedule, [*xs, *made.outputs], HOPPER, name="product")
    ptx = build.imported_modules[0].get_source("ptx")
    loop, behind = ptx.split("wgmma.wait_group.sync.aligned 0;")
    assert '.pragma "nounroll";' in loop[: loop.rindex("wgmma.mma_async")].split("// %bb")[-1]
    assert "cvt.rn.f16" in behind and "selp" not in behind
