"""Products and plain convolutions of a CPU in register tiles: drawn sizes, of which few divide, and drawn tiles, against the computation itself."""

from __future__ import annotations

import re
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import Space, spaces
from tec.choices.families.plain_convolutions import PlainConvolution
from tec.choices.families.products import RegisterTiles, packing
from tec.choices.families.products.folded import Folded
from tec.choices.families.products.streamed_rows import StreamedRows
from tec.choices.families.products.tile_clocks import panel_vectors
from tec.choices.layout_options import options
from tec.graph import Graph
from tec.ops.layouts import Layout
from tests import seeds
from tests.thinned import thinned
from tests.unit.choices.test_spaces import feeds, program, run


def drawn_product(rng: Random, rows: int = 40) -> Any:
    m, n, k, batch = rng.randint(1, rows), rng.randint(4, 70), rng.randint(1, 50), rng.randint(1, 3)
    if rows < 40 or rng.random() < 0.5:
        return program("matmul", {}, ("float32", (batch, m, k)), ("float32", (batch, k, n)), bias=rng.random() < 0.5)
    block = rng.choice((8, 16, 24))
    attrs = {"layout_b": Layout(f"NK{block}n"), "columns": n}
    return program(
        "matmul", attrs, ("float32", (m, k)), ("float32", (-(-n // block), k, block)), bias=rng.random() < 0.5
    )


def drawn_convolution(rng: Random) -> Any:
    groups, own_in, own_out, nd = (
        rng.choice((1, 1, 2, 3, 5)),
        rng.randint(1, 6),
        rng.randint(1, 9),
        rng.choice((1, 2, 2, 3)),
    )
    kernel = tuple(rng.choice((1, 2, 3)) for _ in range(nd))
    stride, dilation = rng.choice((1, 1, 2)), rng.choice((1, 2))
    space = tuple(rng.randint(7, 9) for _ in range(nd - 1)) + (rng.randint(12, 45),)
    before, after = (tuple(rng.randint(0, 2) for _ in range(nd)) for _ in range(2))
    attrs = {
        "kernel": kernel, "strides": (stride,) * nd, "dilations": (dilation,) * nd, "before": before, "after": after, "groups": groups,
    }  # fmt: skip
    x, w = (rng.randint(1, 2), groups * own_in, *space), (groups * own_out, own_in, *kernel)
    return program("conv", attrs, ("float32", x), ("float32", w), bias=rng.random() < 0.5)


@thinned(
    1,
    ("seed", range(6)),
    ("kind", [RegisterTiles, StreamedRows, PlainConvolution, Folded]),
    ("target", ["llvm", "llvm -mcpu=haswell"]),
)
def test_every_tile_computes_the_same(kind: type[Space], seed: int, target: str) -> None:
    rng = Random(seeds.stream(f"register tiles {seed}"))
    drawn = {RegisterTiles: drawn_product, StreamedRows: partial(drawn_product, rows=4)}.get(kind, drawn_convolution)
    xs, outs = drawn(rng)
    values = feeds(xs)
    want = te.evaluate(outs, dict(zip(xs, values)))
    space = next((s for s in spaces(outs, target) if isinstance(s, kind)), None)
    if space is None:
        # Of groups that are computed together there is no product, and of few columns no vector.
        assert kind is Folded or (kind is StreamedRows and values[1].shape[-1] < 16)
        return
    for choice in (space.default, *rng.sample(some := list(space.all), min(2, len(some)))):
        assert space.why_not(choice) is None
        for got, w in zip(run(xs, space.apply(choice), target, values), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-4, err_msg=str(choice))


def test_few_rows_are_not_summed_by_strips_of_a_matrix_in_memory() -> None:
    """Its rows go by in order; many rows have tiles in registers."""
    templates = [
        spaces(program("matmul", {}, ("float32", (2, m, 512)), ("float32", (2, 512, 1501)))[1], "llvm")[0].template
        for m in (1, 2, 4, 64)
    ]
    assert templates == ["cpu product of few rows"] * 3 + ["cpu product"]


@pytest.mark.parametrize(("target", "n"), [("llvm -mcpu=haswell", 11), ("llvm -mcpu=znver4", 13), ("llvm", 15)])
def test_columns_that_fill_no_vector_are_a_panel_of_whole_ones(target: str, n: int) -> None:
    """Two tiles of half as many columns would load each element of A twice."""
    xs, outs = program("matmul", {}, ("float32", (3, 40, 48)), ("float32", (3, 48, n)))
    space = next(s for s in spaces(outs, target) if isinstance(s, RegisterTiles))
    assert (space.default["columns"], space.default["panels"]) == (16, 1)
    assert "beyond the last" in space.refusal({**space.default, "panels": 0})
    if target != "llvm -mcpu=znver4":  # which the host may not be
        values = feeds(xs)
        (got,) = run(xs, space.apply(space.default), target, values)
        np.testing.assert_allclose(got, values[0] @ values[1], rtol=1e-4, atol=1e-4)


def test_rows_go_along_all_of_six_panels_together() -> None:
    """Along four and then two of them all rows, and lines of the result, would come twice."""
    attrs = {"layout_b": Layout("NK32n"), "columns": 176}
    _, outs = program("matmul", attrs, ("float32", (8000, 120)), ("float32", (6, 120, 32)))
    space = next(s for s in spaces(outs, "llvm -mcpu=znver4") if isinstance(s, RegisterTiles))
    assert space.default["panels"] == 6


@thinned(1, ("seed", range(6)), ("target", ["llvm", "llvm -mcpu=haswell"]))
def test_a_long_sum_goes_in_parts(seed: int, target: str) -> None:
    """Parts of a panel stay in the caches while the rows go by: panels that lie so and those that are made, rows in several runs, columns that fill no panel, a batch, doubles."""
    rng = Random(seeds.stream(f"sums in parts {seed}"))
    m, n, k = rng.randint(1, 40), rng.randint(16, 80), rng.choice((1 << 15, 3 << 14))
    if seed == 0:  # panels of 3 MB for many rows
        m, k = packing.PART_ROWS + rng.randint(1, 40), 3 << 14
    block, bias, dtype = rng.choice((0, 16)), rng.random() < 0.5, rng.choice(("float32", "float64"))
    if block and dtype == "float32":
        attrs = {"layout_b": Layout(f"NK{block}n"), "columns": n}
        xs, outs = program("matmul", attrs, (dtype, (m, k)), (dtype, (-(-n // block), k, block)), bias=bias)
    else:
        batch = rng.randint(1, 2)
        xs, outs = program("matmul", {}, (dtype, (batch, m, k)), (dtype, (batch, k, n)), bias=bias)
    values = feeds(xs)
    a, b = (v.astype("float64") for v in values[:2])
    if b.ndim == 3 and a.ndim == 2:
        b = np.moveaxis(b, 0, 1).reshape(k, -1)[:, :n]
    want = np.maximum(a @ b + 1, 0) if bias else a @ b  # of small integers: no sum is rounded
    space = next(s for s in spaces(outs, target) if isinstance(s, RegisterTiles))
    parted = [c for c in space.all if c["parts"] > 1]
    if (
        target != "llvm" and not space.block
    ):  # the host's caches may hold a panel, and panels that lie so are read from further away
        assert space.default["parts"] > 1 or m <= max(space.parameters["rows"])
    for choice in rng.sample(parted, min(2, len(parted))):
        (got,) = run(xs, space.apply(choice), target, values)
        np.testing.assert_array_equal(got, want, err_msg=str(choice))


def test_no_panel_is_copied_for_one_tile_of_rows() -> None:
    """Of one row the copy takes as long as the product."""
    outs = program("matmul", {}, ("float32", (1, 1 << 19)), ("float32", (1 << 19, 32)))[1]
    space = next(s for s in spaces(outs, "llvm") if isinstance(s, RegisterTiles))
    assert space.default["parts"] == 1 and space.default["panels"] == 0


def test_tiles_of_doubles_are_as_large_as_the_registers() -> None:
    """A register holds half as many of them as of floats: a tile of as many columns would be kept in memory."""
    xs, outs = program("matmul", {}, ("float64", (60, 64)), ("float64", (64, 64)))
    for target, lanes in (("llvm -mcpu=haswell", 4), ("llvm -mcpu=znver4", 8)):
        space = next(s for s in spaces(outs, target) if isinstance(s, RegisterTiles))
        assert space.lanes == lanes
        rows, vectors = space.default["rows"], space.default["columns"] // lanes
        assert rows * vectors + vectors < tec.Target(target).core.registers
        made = space.apply()
        text = tec.build(made.schedule, [*xs, *made.outputs], target, name="group").get_source("asm")
        assert "Spill" not in text
    values = feeds(xs)
    (want,) = te.evaluate(outs, dict(zip(xs, values)))
    space = next(s for s in spaces(outs, "llvm") if isinstance(s, RegisterTiles))
    np.testing.assert_allclose(run(xs, space.apply(), "llvm", values)[0], want, rtol=1e-12)


@pytest.mark.parametrize(("target", "lanes"), [("llvm -mcpu=haswell", 8), ("llvm -mcpu=znver4", 16)])
def test_sums_of_tiles_of_six_vectors_stay_in_registers(target: str, lanes: int) -> None:
    """The results of a row of six vectors are no value that LLVM widens to eight and keeps in memory between the sum's steps; with panels and without, and of a plain convolution."""
    product = program("matmul", {}, ("float32", (5, 9, 8 * lanes)), ("float32", (5, 8 * lanes, 7 * lanes)))
    attrs = {"kernel": (3,), "strides": (1,), "dilations": (1,), "before": (1,), "after": (1,), "groups": 1}
    plain = program("conv", attrs, ("float32", (2, 9, 7 * lanes)), ("float32", (8, 9, 3)))
    for (xs, outs), kind in ((product, RegisterTiles), (plain, PlainConvolution)):
        space = next(s for s in spaces(outs, target) if isinstance(s, kind))
        wide = [
            c
            for c in space.all
            if c["columns"] == 6 * lanes and c["rows"] == 1 and not c["parallel"] and not c.get("panels")
        ][:2]
        assert wide
        for choice in wide:
            made = space.apply(choice)
            text = tec.build(made.schedule, [*xs, *made.outputs], target, name="group").get_source("asm")
            assert not re.search(r"vmov[au]ps\s+%[xyz]mm\d+, -?\d*\(%rsp\)", text), choice


def test_sums_of_ragged_tiles_stay_in_registers() -> None:
    """No condition stands in the loop over the sum, whose code has no masked load."""
    xs, outs = program("matmul", {}, ("float32", (3, 13, 30)), ("float32", (3, 30, 37)))
    made = spaces(outs, "llvm -mcpu=haswell")[0].apply()
    f = tec.build(made.schedule, [*xs, *made.outputs], "llvm -mcpu=haswell", name="group")
    assert "maskmov" not in f.get_source("asm") and " < " not in f.get_source("ir")


def test_panels_of_few_rows_are_wide() -> None:
    target = tec.Target("llvm -mcpu=haswell")
    assert panel_vectors(target, 8, 1, 4096) == 4
    assert panel_vectors(target, 8, 64, 72) == 3  # as wide as divides them
    assert panel_vectors(target, 8, 64, 4096) == 2


def test_what_tiles_of_a_plain_convolution_read_again_counts_beside_blocks() -> None:
    """Many channels over images beyond the caches go by blocks, which read them less often."""
    target = tec.Target("llvm -mcpu=znver3")
    for channels in (128, 256):
        g = Graph()
        x = g.input("x", "float32", (1, channels, 64, 64))
        w = g.constant(np.zeros((channels, channels, 3, 3), "float32"))
        attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "groups": 1}
        (y,) = g.add("conv", [x, w], attrs)
        best = min(options(target, x.type, w.type, y.type, g.nodes[-1].attrs, (8,)), key=lambda o: o.seconds)
        assert best.convolution is not None, channels


def test_groups_of_a_pixel_that_fill_no_block_are_products_as_they_lie() -> None:
    """Of 68 channels each: two groups as one, to fill blocks of 8, would take twice the sums."""
    g = Graph()
    x = g.input("x", "float32", (1, 272, 14, 14))
    w = g.constant(np.zeros((272, 68, 1, 1), "float32"))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "groups": 4}
    (y,) = g.add("conv", [x, w], attrs)
    found = options(tec.Target("llvm -mcpu=znver3"), x.type, w.type, y.type, g.nodes[-1].attrs, (8,))
    seconds = {o.convolution is None: o.seconds for o in found}
    assert seconds[True] < seconds[False]
