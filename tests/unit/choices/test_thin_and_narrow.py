"""Products of a few rows and sums over all but a few last elements, whose threads have neighbouring pieces of all rows: values by the interpreter, and what they load."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.choices import layouts, spaces
from tec.choices.space import Choice, Scheduled
from tec.graph import Graph
from tec.ir.interp import run
from tec.ops.dims import Dim, Size
from tec.ops.registry import TensorType
from tests.thinned import thinned_rows

from .test_spaces import program

HOPPER = "cuda -arch=sm_90a"


def computed(kernel: str, attrs: dict[str, Any], xs: list[np.ndarray], template: str, some: Choice) -> np.ndarray:
    """What a template's choice makes of some inputs."""
    shapes = [("float16" if x.dtype == np.float16 else "float32", x.shape) for x in xs]
    ins, outs = program(kernel, attrs, *shapes)
    space = next(s for s in spaces(outs, HOPPER) if s.template == template)
    made: Scheduled = space.apply(some)
    f = next(iter(tec.lower(made.schedule, [*ins, *made.outputs], target=HOPPER)))
    shape = [int(n.value) for n in outs[0].shape]
    out = np.full(shape, np.nan, xs[0].dtype)
    run(f, [*xs, out])
    return out


PRODUCTS = [
    ("float32", (2, 40, 21), {"piece": 4, "threads": 32, "parts": 1}),  # no whole number of work-groups or steps
    ("float32", (5, 44, 64), {"piece": 16, "threads": 32, "parts": 4}),
    ("float16", (3, 264, 24), {"piece": 16, "threads": 32, "parts": 1}),
]


@thinned_rows(2, ("dtype", "sizes", "some"), PRODUCTS)
def test_a_thread_has_columns_of_all_rows(dtype: str, sizes: tuple[int, int, int], some: Choice) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(n)
    x, w = rng.integers(-3, 4, (m, k)).astype(dtype), rng.integers(-3, 4, (k, n)).astype(dtype)
    np.testing.assert_array_equal(computed("matmul", {}, [x, w], "thin product", some), x @ w)


@pytest.mark.parametrize(
    ("sizes", "template"),
    [((4, 193, 364), "gpu reduction"), ((4, 193, 2048), "gpu reduction"), ((6, 400, 3000), "thin product"), ((99, 864, 56), "matrix product")],
)  # fmt: skip
def test_sums_by_themselves_where_parts_would_be_joined(sizes: tuple[int, int, int], template: str) -> None:
    """By the prices of all. Where lanes share a sum and read across the matrix, each brings a line of it: 99 x 864 by 56 columns took 17.8 us so, 4.1 by tiles."""
    m, k, n = sizes
    _, outs = program("matmul", {}, ("float16", (m, k)), ("float16", (k, n)))
    assert spaces(outs, "rocm -mcpu=gfx942")[0].template == template


@pytest.mark.parametrize(
    ("chip", "sizes", "template"),
    [
        ("gfx950", (11, 185, 24), "gpu reduction"),  # 2.8 us in the time model, 6.9 as tiles
        ("gfx950", (64, 185, 512), "matrix product"),
        ("gfx1030", (16, 323, 24), "gpu reduction"),
        ("gfx1030", (512, 323, 512), "blocked product"),
    ],
)
def test_sums_by_themselves_where_tiles_are_few(chip: str, sizes: tuple[int, int, int], template: str) -> None:
    m, k, n = sizes
    _, outs = program("matmul", {}, ("float32", (m, k)), ("float32", (k, n)))
    assert spaces(outs, f"rocm -mcpu={chip}")[0].template == template


def test_products_of_any_number_of_rows_stay_tiles() -> None:
    """Of sums by themselves no price is known there."""
    _, outs = program("matmul", {}, ("float32", (Dim("rows"), 185)), ("float32", (185, 24)))
    assert spaces(outs, "rocm -mcpu=gfx950")[0].template == "matrix product"


SUMS = [
    ("float16", (8, 72, 7), (0, 1), True, "reduce_max", {"blocks": 1, "threads": 128}),
    ("float32", (3, 512, 5), (1,), True, "reduce_sum", {"blocks": 2, "threads": 128}),
    ("float16", (1024, 3, 2), (0,), False, "reduce_sum", {"blocks": 2, "threads": 128}),
]


@thinned_rows(2, ("dtype", "shape", "axes", "keepdims", "kernel", "some"), SUMS)
def test_rows_of_a_few_elements_are_read_as_long_ones(
    dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, kernel: str, some: Choice
) -> None:
    x = np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype)
    got = computed(kernel, {"axes": axes, "keepdims": keepdims}, [x], "narrow sums", some)
    wanted = np.max if kernel == "reduce_max" else np.sum
    np.testing.assert_array_equal(got, wanted(x.astype("f4"), axis=axes, keepdims=keepdims))


def test_pieces_of_narrow_rows_are_loaded_whole() -> None:
    """Rows of 14 bytes, which begin between the bounds of a load."""
    ins, outs = program("reduce_max", {"axes": (0,), "keepdims": False}, ("float16", (1 << 18, 7)))
    space = next(s for s in spaces(outs, HOPPER) if s.template == "narrow sums")
    made = space.apply()
    text = str(next(iter(tec.lower(made.schedule, [*ins, *made.outputs], target=HOPPER))))
    assert "1, 8)]" in text


def test_rows_beyond_int32_are_no_long_ones() -> None:
    """A row's number is of all summed axes together."""
    _, outs = program("reduce_max", {"axes": (0, 1), "keepdims": False}, ("int8", (48000, 50001, 2)))
    assert "narrow sums" not in [s.template for s in spaces(outs, HOPPER)]


WINDOWS = [
    ("float32", (2, 3, 13, 11), (3, 3), {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1)}, {"rows": 4, "columns": 2}),
    ("float16", (4, 5, 19, 16), (5, 5), {"strides": (2, 2), "dilations": (1, 1), "before": (2, 2), "after": (2, 2)}, {"rows": 2, "columns": 4}),
    ("float32", (2, 4, 70), (3,), {"strides": (1,), "dilations": (2,), "before": (2,), "after": (2,)}, {"rows": 1, "columns": 4}),
]  # fmt: skip


@thinned_rows(2, ("dtype", "shape", "window", "attrs", "some"), WINDOWS)
def test_depthwise_windows_of_plain_images(
    dtype: str, shape: tuple[int, ...], window: tuple[int, ...], attrs: dict[str, Any], some: Choice
) -> None:
    """The last tiles of rows, of columns and of threads begin earlier and repeat others."""
    rng, channels, ndim = np.random.default_rng(shape[-1]), shape[1], len(window)
    x = rng.integers(-3, 4, shape).astype(dtype)
    w = rng.integers(-3, 4, (channels, 1, *window)).astype(dtype)
    got = computed("conv", {"groups": channels, **attrs}, [x, w], "gpu plain windows", {**some, "threads": 64})
    padded = np.pad(x, [(0, 0), (0, 0), *zip(attrs["before"], attrs["after"])])
    want = np.zeros(got.shape, "f4")
    for at in np.ndindex(*window):
        cut = [
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(at, attrs["dilations"], attrs["strides"], got.shape[2:])
        ]
        want += w[(slice(None), 0, *at)].reshape(1, channels, *(1,) * ndim) * padded[(..., *cut)]
    np.testing.assert_array_equal(got, want)


def test_depthwise_lanes_of_half_an_image_read_side_by_side_on_amd() -> None:
    """Columns of one thread put its neighbours' loads apart: of windows with holes that costs lines of the first cache, and rows of one thread share as much."""
    attrs = {"groups": 356, "strides": (1, 1), "dilations": (2, 2), "before": (4, 4), "after": (4, 4)}
    _, outs = program("conv", attrs, ("float16", (1, 356, 61, 61)), ("float16", (356, 1, 5, 5)))
    space = next(s for s in spaces(outs, "rocm -mcpu=gfx942") if s.template == "gpu plain windows")
    wide, high = ({"rows": r, "columns": c, "threads": 128} for r, c in ((1, 4), (4, 1)))
    usual = space.default
    asked = [space.sketch({**usual, **tile}).kernels[0].asked_bytes for tile in (wide, high)]
    assert asked[0] > 1.5 * asked[1]
    assert usual["columns"] == 1


def test_many_rows_by_a_few_columns_are_tiles_of_warpgroups() -> None:
    """Sums by themselves, whose second operand lies apart, are priced at 4 to 5 times as long; where they are not, they stay."""
    for m, template in ((4096, "padded warpgroup product"), (62, "padded warpgroup product"), (9, "gpu reduction")):
        _, outs = program("matmul", {}, ("float16", (176, m, 256)), ("float16", (176, 256, 4)))
        assert spaces(outs, HOPPER)[0].template == template


@pytest.mark.parametrize("m", [1, 2, 8, 9])
def test_one_row_and_many_are_other_templates(m: int) -> None:
    _, outs = program("matmul", {}, ("float32", (m, 256)), ("float32", (256, 512)))
    assert any(s.template == "thin product" for s in spaces(outs, HOPPER)) == (m in (2, 8))


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "template"), [(4, 127, 2544, "gpu reduction"), (5, 4089, 13328, "thin product")]
)
def test_short_sums_of_a_few_rows_are_by_themselves(rows: int, terms: int, columns: int, template: str) -> None:
    """By an H200's clock 2.3 us and 4.9 of thin products, and 119 us and 59."""
    _, outs = program("matmul", {}, ("float32", (rows, terms)), ("float32", (terms, columns)))
    assert spaces(outs, HOPPER)[0].template == template


@pytest.mark.parametrize(
    ("chip", "columns", "terms", "template"),
    [
        ("gfx1030", 96, 256, "few rows"),
        ("gfx1030", 1536, 258, "thin product"),
        ("gfx1030", 96, 258, "gpu reduction"),
        ("gfx942", 96, 257, "gpu reduction"),
    ],
)
def test_a_matrix_whose_rows_are_cut_in_pieces_is_read_across_for_a_few_rows(
    chip: str, columns: int, terms: int, template: str
) -> None:
    """Constant weights lie across such a sum on an AMD GPU, with a matrix unit for them or without: along it each row of x had read them for itself."""
    g = Graph()
    rng = np.random.default_rng(terms)
    x, w = rng.standard_normal((5, terms), "f4"), rng.standard_normal((columns, terms), "f4")
    weights = g.add("transpose", [g.constant(w, "w")], {"perm": (1, 0)})[0]
    g.set_outputs(g.add("matmul", [g.input("x", "float32", (5, terms)), weights], {}))
    net = tec.compile(g, f"rocm -mcpu={chip}", cache=False)
    assert [c["choice"]["template"] for c in net.report.choices.values()] == [template]
    (got,) = net.run({"x": x}, device=tec.rocm_emu(chip, check="all"))
    np.testing.assert_allclose(got, x.astype("f8") @ w.T.astype("f8"), rtol=1e-4, atol=1e-4)


@thinned_rows(
    2, ("shape", "perm"), [((3, 1000, 12), (0, 2, 1)), ((60, 7, 90), (0, 2, 1)), ((40, 5, 19, 10), (0, 3, 1, 2))]
)
def test_short_lines_that_follow_one_another_are_turned_by_tiles(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    ins, outs = program("transpose", {"perm": perm}, ("float32", shape))
    space = next(s for s in spaces(outs, HOPPER))
    assert space.template == "gpu transpose"
    made = space.apply()
    f = next(iter(tec.lower(made.schedule, [*ins, *made.outputs], target=HOPPER)))
    out = np.full([shape[k] for k in perm], np.nan, "f4")
    run(f, [x, out])
    np.testing.assert_array_equal(out, x.transpose(perm))


@pytest.mark.parametrize(
    ("image", "window", "is_plain"),
    [((8, 64, 31, 31), (3, 3), True), ((8, 64, 100), (5,), True), ((8, 64, 31, 31), (31, 31), False), ((2, 64, 9, 15, 15), (3, 3, 3), False),
     ((Dim("n"), 64, 31, 31), (3, 3), False)],
)  # fmt: skip
def test_images_stay_plain_where_the_template_takes_their_windows(
    image: tuple[Size, ...], window: tuple[int, ...], is_plain: bool
) -> None:
    """Long windows, volumes and open sizes have no template for plain images: pixels by channels serve them."""
    x, w = TensorType("float16", image), TensorType("float16", (64, 1, *window))
    assert (layouts.convolution(tec.Target(HOPPER), x, w, {"groups": 64}, ()) is None) is is_plain


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_many_rows_of_few_columns_are_tiles(chip: str) -> None:
    """Lanes of sums by themselves would read rows that lie apart: 4,096 x 1,024 by 5 columns 46 us on an MI355X by the time model, 9 by tiles."""
    target = f"rocm -mcpu={chip}"
    ins, outs = program("matmul", {}, ("float16", (4096, 1024)), ("float16", (1024, 5)))
    space = spaces(outs, target)[0]
    assert space.template in ("matrix product", "blocked product")
    made, dev = space.apply(space.default), tec.rocm_emu(chip)
    rng = np.random.default_rng(6)
    x, w = (rng.integers(-2, 3, s).astype("float16") for s in ((4096, 1024), (1024, 5)))
    got = tec.nd.array(np.zeros((4096, 5), "float16"), dev)
    tec.build(made.schedule, [*ins, *made.outputs], target)(tec.nd.array(x, dev), tec.nd.array(w, dev), got)
    np.testing.assert_array_equal(got.numpy(), x @ w)
    assert (
        spaces(program("matmul", {}, ("float16", (8, 512)), ("float16", (512, 6)))[1], target)[0].template
        == "gpu reduction"
    )


@pytest.mark.parametrize(("transposed", "template"), [(True, "blocked product"), (False, "thin product")])
def test_few_rows_by_rows_that_lie_apart_are_tiles_where_these_are_well_quicker(
    transposed: bool, template: str
) -> None:
    """888 products of 7 rows and 112 columns of 52 terms, 215 us on an MI210 by the time model as sums whose lanes read a line each, take 12. Lanes that read side by side stay sums."""
    target, keys = "rocm -mcpu=gfx90a", (888, 112, 52) if transposed else (888, 52, 112)
    ins, outs = program("matmul", {"transpose_b": transposed}, ("float16", (888, 7, 52)), ("float16", keys))
    space = spaces(outs, target)[0]
    assert space.template == template
    if transposed:
        made, dev = space.apply(space.default), tec.rocm_emu("gfx90a", check="all")
        rng = np.random.default_rng(8)
        x, w = (rng.integers(-2, 3, s).astype("float16") for s in ((888, 7, 52), keys))
        got = tec.nd.array(np.zeros((888, 7, 112), "float16"), dev)
        tec.build(made.schedule, [*ins, *made.outputs], target)(tec.nd.array(x, dev), tec.nd.array(w, dev), got)
        np.testing.assert_array_equal(got.numpy(), x @ w.swapaxes(1, 2))


def test_elements_of_16_bits_are_widened_in_a_thin_product() -> None:
    """As many of a thread, of the same shapes: operations of its own for each, which float32 does not take."""
    issued = {}
    for dtype in ("float16", "float32"):
        _, outs = program("matmul", {}, (dtype, (4, 2048)), (dtype, (2048, 4096)))
        space = next(s for s in spaces(outs, HOPPER) if s.template == "thin product")
        choice = next(c for c in space.all if space.lanes(c) == 4 and c["parts"] == 1 and c["threads"] == 64)
        issued[dtype] = space.sketch(choice).kernels[0].issued
    assert issued["float16"] >= issued["float32"] + 2048 * 4
