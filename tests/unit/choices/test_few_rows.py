"""Few rows times weights, and attention of few queries: right with every check, and what begins before the kernel ahead has ended reads only what that does not write."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import chain, schedule, spaces
from tec.choices.families.products.few_rows_matrix import most_rows
from tec.choices.proof import alone
from tec.driver import PIPELINE, run_passes
from tec.ir.interp import run
from tec.ops.packed import Weights
from tec.ops.registry import TensorType, get_op, static_shape
from tec.ops.size_vars import variable
from tec.ops.typical import typically
from tec.schedule import to_loops
from tests.thinned import thinned_rows

ROWS, MATRIX, PACKED, ATTENTION = "few rows", "few rows by matrix units", "few packed rows", "few rows attention"
DIRECT, BYTES = "few rows attention by matrix units", "few packed rows by bytes"
PASSES = PIPELINE[: [name for name, _ in PIPELINE].index("pipeline") + 1]


def computed(name: str, attrs: dict[str, Any], arrays: list[Any]) -> tuple[list[Any], Any, Any]:
    """The operator's parameters, its result, and what it is by NumPy."""
    op, types = get_op(name), [TensorType(str(a.dtype), a.shape) for a in arrays]
    xs = [te.placeholder(a.shape, str(a.dtype), name=f"x{k}") for k, a in enumerate(arrays)]
    outs = op.infer(types, attrs)
    (y,) = op.compute(attrs, list(xs), outs)
    want = op.host(attrs, arrays, outs)[0] if op.host is not None else arrays[0].astype("f8") @ arrays[1].astype("f8").T
    return xs, y, want


def check(chip: str, params: list[Any], y: Any, arrays: list[Any], want: Any, choice: dict[str, Any]) -> None:
    target = f"rocm -mcpu={chip}"
    made = schedule([y], target, choice)
    f, dev = tec.build(made.schedule, [*params, *made.outputs], target), tec.rocm_emu(chip, check="all")
    out = tec.nd.empty(want.shape, y.dtype, dev)
    f(*[tec.nd.array(a, dev) for a in arrays], out)
    atol = (1e-5 if y.dtype == "float32" else 4e-3) * np.abs(want).max()
    np.testing.assert_allclose(out.numpy().astype("f8"), want, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("chip", "m", "n", "k", "dtype", "choice"),
    [
        ("gfx942", 1, 70, 520, "float16", {"template": ROWS}),  # columns and pieces that are no whole tiles and steps
        ("gfx1100", 3, 64, 256, "float32", {"template": ROWS, "columns": 2, "waves": 4, "split_k": 2, "ahead": 1, "early": ""}),
        ("gfx942", 9, 70, 520, "float16", {"template": MATRIX}),
        ("gfx90a", 5, 64, 256, "float16", {"template": MATRIX, "columns": 16, "waves": 4, "split_k": 2, "ahead": 2, "early": ""}),
        ("gfx1201", 20, 80, 256, "float16", {"template": MATRIX}),
        ("gfx942", 20, 72, 1032, "float16", {"template": MATRIX, "columns": 16, "waves": 2, "split_k": 2, "ahead": 2, "early": "", "prefetch": True}),
    ],
)  # fmt: skip
def test_products(chip: str, m: int, n: int, k: int, dtype: str, choice: dict[str, Any]) -> None:
    """With what follows in the same kernel."""
    rng = np.random.default_rng(m)
    x, w = rng.standard_normal((m, k)).astype(dtype), (rng.standard_normal((n, k)) / 16).astype(dtype)
    beside = rng.standard_normal((m, n)).astype(dtype)
    params, c, want = computed("matmul", {"transpose_b": True}, [x, w])
    b = te.placeholder((m, n), dtype, name="beside")
    y = te.compute((m, n), lambda i, j: c(i, j) + b(i, j), name="y")
    check(chip, [*params, b], y, [x, w, beside], x.astype("f8") @ w.astype("f8").T + beside, choice)


def packed(
    m: int, n: int, k: int, bits: int, zeros: str = "", format: str = "", **more: Any
) -> tuple[str, dict[str, Any], list[Any]]:
    """An operator with packed weights, its attributes and its arrays."""
    rng = np.random.default_rng(m)
    attrs = {
        "bits": bits,
        "block": 32,
        "panel": 0,
        "depth": k,
        "columns": n,
        "zero": 0.0 if format else float(1 << (bits - 1)),
        "format": format,
        **more,
    }
    w = Weights.of(attrs)
    shape = n, k // w.block
    scale = rng.integers(120, 130, shape).astype("u1") if format else (rng.random(shape) * 0.1 + 0.01).astype("f2")
    arrays = [rng.standard_normal((m, k)).astype("f2"), w.store(rng.integers(0, 1 << bits, (n, k)).astype("u1")), scale]
    if zeros:
        arrays.append((rng.integers(0, 1 << bits, shape) + (0.25 if "f" in zeros else 0)).astype(zeros))
    if "eps" in more:
        arrays.insert(1, (1 + 0.1 * rng.standard_normal(k)).astype("f4"))
    return "projection" if "eps" in more else "packed_matmul", attrs, arrays


@thinned_rows(3,
    ("chip", "given", "choice"),
    [
        ("gfx942", packed(2, 140, 288, 4, "u1", eps=1e-5, gate="silu"), {"template": PACKED, "columns": 16, "waves": 2, "split_k": 1, "ahead": 1, "early": ""}),  # columns and pieces that are no whole tiles and steps
        pytest.param("gfx90a", packed(17, 64, 256, 8, "f2"), {"template": PACKED, "columns": 16, "waves": 4, "split_k": 2, "ahead": 1, "early": ""}, marks=pytest.mark.slow),
        ("gfx942", packed(3, 64, 256, 4, format="mxfp4_e2m1"), {"template": PACKED, "columns": 16, "waves": 4, "split_k": 2, "ahead": 1, "early": ""}),
        ("gfx942", packed(25, 64, 1024, 4), {"template": PACKED}),  # x from where it lies, in two tiles of rows
        ("gfx1100", packed(17, 64, 1024, 8), {"template": PACKED}),  # lanes in pairs, a tile with one row
        ("gfx1250", packed(2, 70, 512, 4, "u1"), {"template": PACKED}),
        pytest.param("gfx90a", packed(40, 64, 512, 4), {"template": PACKED}, marks=pytest.mark.slow),
        pytest.param("gfx1201", packed(3, 64, 512, 8), {"template": PACKED}, marks=pytest.mark.slow),
        ("gfx1201", packed(2, 64, 256, 4, "f2"), {"template": ROWS, "columns": 1, "waves": 4, "split_k": 1, "ahead": 1, "early": ""}),
    ],
)  # fmt: skip
def test_packed_weights(chip: str, given: tuple[str, dict[str, Any], list[Any]], choice: dict[str, Any]) -> None:
    params, y, want = computed(*given)
    check(chip, params, y, given[2], want, choice)


def test_packed_weights_on_amd() -> None:
    """They are the default there where a matrix unit has the type, blocks are no less than a lane's load, and rows are not many."""
    templates = {}
    for chip, m, block in (
        ("gfx942", 1, 32),
        ("gfx1100", 64, 64),
        ("gfx1030", 1, 32),
        ("gfx942", 100, 32),
        ("gfx942", 1, 16),
    ):
        _, y, _ = computed(*packed(m, 64, 1024, 4, block=block))
        templates[chip, m, block] = spaces([y], f"rocm -mcpu={chip}")[0].template
    assert [t == PACKED for t in templates.values()] == [True, True, False, False, False], templates


def test_packed_weights_on_nvidia() -> None:
    """They are the default there from one row on, and codes stay codes up to the registers."""
    _, y, _ = computed(*packed(2, 128, 1024, 4, eps=1e-5))
    space = spaces([y], "cuda -arch=sm_90a")[0]
    assert space.template == PACKED
    params, y, _ = computed(*packed(2, 128, 1024, 4, eps=1e-5))
    made = schedule([y], "cuda -arch=sm_90a", space.default)
    ptx = tec.build(made.schedule, [*params, *made.outputs], "cuda -arch=sm_90a").get_source("ptx")
    assert "griddepcontrol.wait" in ptx and "lop3.b32" in ptx and "mma.sync" in ptx and ".local" not in ptx


@thinned_rows(
    2,
    ("given", "more"),
    [
        (packed(1, 128, 2048, 4, eps=1e-5, gate="silu"), {}),  # columns and their gates in one tile
        (packed(1, 140, 8192, 4), {"early": "start"}),  # columns that are no whole tiles
        (packed(1, 70, 768, 4, eps=1e-5), {"columns": 32, "waves": 2, "split_k": 2, "ahead": 2}),  # pieces that are no whole steps
        (packed(1, 4400, 512, 4), {"turns": 2, "columns": 16, "waves": 2, "split_k": 2, "ahead": 2}),
    ],
)  # fmt: skip
def test_a_row_in_whole_numbers(given: tuple[str, dict[str, Any], list[Any]], more: dict[str, Any]) -> None:
    """Bytes of codes by two bytes of x are as near as float16 numbers of codes, and nearer than float16 is: what is left is the result's own rounding."""
    params, y, want = computed(*given)
    for p in params[1:]:
        p.op.attrs["constant"] = True
    target = tec.Target("cuda -arch=sm_90a")
    space = spaces([y], target)[0]
    assert space.template == BYTES
    made = schedule([y], target, {**space.default, "early": "held", **more})
    out = np.full(want.shape, np.nan, "float16")
    func = run_passes(to_loops(made.schedule, [*params, *made.outputs], "main"), target, PASSES)
    run(func, [*given[2], out])
    np.testing.assert_allclose(out.astype("f8"), want.astype("f8"), rtol=1e-3, atol=1e-3 * np.abs(want).max())
    x = given[2][0]
    for value, is_right in (
        (0.0, lambda y: not y.any()),
        (np.nan, lambda y: np.isnan(y).all()),
        (np.inf, lambda y: not np.isfinite(y).any()),
    ):
        x[0, :] = 0 if not value else x[0, :]
        x[0, 7] = value  # all of it zero; one number that is none
        run(func, [*given[2], out])
        assert is_right(out.astype("f8")), value


def test_rows_and_codes_that_are_not_taken_in_whole_numbers() -> None:
    for given in (
        packed(2, 128, 1024, 4), packed(1, 128, 1024, 8), packed(1, 128, 1024, 4, "u1"), packed(1, 128, 1056, 4),
        packed(1, 128, 1024, 4, format="mxfp4_e2m1"), packed(1, 128, 1024, 4, block=64),
    ):  # fmt: skip
        _, y, _ = computed(*given)
        assert BYTES not in [s.template for s in spaces([y], "cuda -arch=sm_90a")]
    _, y, _ = computed(*packed(1, 128, 1024, 4))
    assert BYTES not in [s.template for s in spaces([y], "cuda -arch=sm_80")]


@pytest.mark.parametrize(
    ("given", "more"),
    [
        (packed(1, 128, 2048, 4, eps=1e-5, gate="silu"), {}),  # columns and their gates in one tile
        (packed(3, 140, 2048, 4, "u1", eps=1e-5, gate="silu"), {}),
        (packed(1, 128, 2048, 4, eps=1e-5, gate="silu"), {"columns": 16}),
        (packed(2, 64, 1024, 4, "u1"), {}),
    ],
)
def test_packed_weights_that_come_early(given: tuple[str, dict[str, Any], list[Any]], more: dict[str, Any]) -> None:
    """The first of constant codes, scales and zero points are loaded before the wait for the kernel ahead, in this order for ptxas, and nothing else is."""
    params, y, want = computed(*given)
    target = tec.Target("cuda -arch=sm_90a")
    assert all(s.parameters["early"] == ("start", "") for s in spaces([y], target) if s.template == PACKED)
    for p in params[1:]:
        p.op.attrs["constant"] = True
    space = next(s for s in spaces([y], target) if s.template == PACKED)
    assert (space.default["columns"] == 8) == ("gate" in given[1])
    made = schedule([y], target, {**space.default, **more, "early": "held"})
    out = np.full(want.shape, np.nan, "float16")
    run(run_passes(to_loops(made.schedule, [*params, *made.outputs], "main"), target, PASSES), [*given[2], out])
    np.testing.assert_allclose(out.astype("f8"), want.astype("f8"), rtol=0, atol=4e-3 * np.abs(want).max())
    ptx = tec.build(made.schedule, [*params, *made.outputs], target).get_source("ptx")
    before, _, after = ptx.partition("griddepcontrol.wait")
    early = re.findall(r"ld\.\S+", before)
    assert {x for x in early if "param" not in x} <= {f"ld.relaxed.cta.global.{t}" for t in ("v4.b32", "b16", "b8")}
    assert (
        "ld.relaxed.cta.global.v4.b32" in early
        and "ld.relaxed.cta" not in after
        and not re.search(r"\bst\.global", before)
    )


@pytest.mark.parametrize(
    ("chip", "shape", "attrs", "choice"),
    [
        ("gfx942", (1, 4, 2, 1, 40, 80), {"turned": True}, {"template": ATTENTION, "waves": 2, "ahead": 2, "splits": 2}),  # ten lanes of sixteen have a piece
        ("gfx942", (1, 4, 2, 1, 70, 64), {"turned": True}, {"template": DIRECT, "waves": 2, "keys": 32, "splits": 2}),
        pytest.param("gfx1201", (2, 8, 2, 2, 137, 64), {"right": 0, "offset": 135, "left": 120}, {"template": DIRECT, "waves": 1, "keys": 16, "splits": 1}, marks=pytest.mark.slow),
        pytest.param("gfx1100", (2, 4, 4, 2, 37, 32), {"right": 0, "offset": 35, "left": 20}, {"template": ATTENTION, "waves": 1, "ahead": 4, "splits": 1}, marks=pytest.mark.slow),
        pytest.param("gfx1100", (1, 4, 1, 1, 9, 32), {"softcap": 2.0}, {"template": ATTENTION, "waves": 1, "ahead": 1, "splits": 4}, marks=pytest.mark.slow),  # splits without keys
    ],
)  # fmt: skip
def test_attention(chip: str, shape: Any, attrs: dict[str, Any], choice: dict[str, Any]) -> None:
    params, y, arrays, want = attention(shape, attrs)
    check(chip, params, y, arrays, want.astype("f8"), choice)


@pytest.mark.parametrize("format", ["mxfp4_e2m1", ""])
def test_codes_whose_numbers_are_halves_are_made_two_at_a_time(format: str) -> None:
    """Without a conversion of each: some of the results are all that is converted."""
    params, y, _ = computed(*packed(2, 64, 512, 4, format=format))
    made = schedule([y], "rocm -mcpu=gfx942", {"template": PACKED})
    code = tec.build(made.schedule, [*params, *made.outputs], "rocm -mcpu=gfx942").imported_modules[0].get_source("asm")
    assert code.count("_cvt_") <= 4


@pytest.mark.parametrize(("most", "splits"), [(None, 4), (64, 1)])
def test_a_cache_of_any_length_is_split(most: int | None, splits: int) -> None:
    """Eight texts leave half of the units without work, and many keys pay for the kernel that joins, whatever number sizes are classed by; few keys do not."""
    past = variable("past")
    shapes = {"q": (8, 32, 1, 64), "k": (8, 8, past, 64), "v": (8, 8, past, 64)}
    xs = [te.placeholder(s, "float16", name=name) for name, s in shapes.items()]
    op, attrs = get_op("attention"), {"scale": 64**-0.5}
    (y,) = op.compute(attrs, list(xs), op.infer([TensorType("float16", static_shape(x)) for x in xs], attrs))
    with typically({"past": 16}, {"past": most}):
        choice = chain([y], "cuda -arch=sm_90a", alone).first().choice
    assert (choice["template"], choice["splits"]) == (DIRECT, splits)


def attention(shape: Any, attrs: dict[str, Any]) -> tuple[list[Any], Any, list[Any], Any]:
    """Parameters, result, arrays, and what it is by NumPy; shape: (batch, heads, key heads, queries, keys, size)."""
    batch, heads, key_heads, queries, keys, size = shape
    rng = np.random.default_rng(keys)
    shapes = [(batch, heads, queries, size), *[(batch, key_heads, keys, size)] * 2]
    arrays = [rng.standard_normal(s).astype("float16") for s in shapes]
    attrs = {"scale": size**-0.5, **attrs}
    if attrs.pop("turned", False):
        arrays += [rng.standard_normal((1, 1, queries, size // 2)).astype("float32") for _ in "cs"]
        attrs["extras"] = ("cos", "sin")
    params, y, want = computed("attention", attrs, arrays)
    return params, y, arrays, want


@pytest.mark.parametrize(
    ("shape", "attrs", "choice"),
    [
        ((1, 8, 2, 1, 70, 64), {"turned": True}, {"waves": 2, "keys": 32, "splits": 2}),  # steps of unlike number
        ((2, 6, 2, 3, 37, 80), {"right": 0, "offset": 34, "left": 20, "softcap": 2.0}, {"waves": 1, "keys": 16, "splits": 1}),  # nine rows; loads of 8 and 4 bytes
    ],
)  # fmt: skip
def test_attention_by_nvidias_matrix_units(shape: Any, attrs: dict[str, Any], choice: dict[str, Any]) -> None:
    """In the interpreter; keys and values go from memory to registers."""
    params, y, arrays, want = attention(shape, attrs)
    target = tec.Target("cuda -arch=sm_90a")
    made = schedule([y], target, {"template": DIRECT, **choice})
    func = to_loops(made.schedule, [*params, *made.outputs], "main")
    out = np.full(want.shape, np.nan, "float16")
    run(run_passes(func, target, PASSES), [*arrays, out])
    np.testing.assert_allclose(out.astype("f8"), want.astype("f8"), rtol=0, atol=4e-3 * np.abs(want).max())
    ptx = tec.build(made.schedule, [*params, *made.outputs], target).get_source("ptx")
    assert "mma.sync" in ptx and ".local" not in ptx and "cp.async" not in ptx


def product(constant: bool, m: int) -> tuple[list[Any], Any]:
    x, w = te.placeholder((m, 512), "float16", name="x"), te.placeholder((128, 512), "float16", name="w")
    if constant:
        w.op.attrs["constant"] = True
    attrs = {"transpose_b": True}
    types = [TensorType("float16", t) for t in ((m, 512), (128, 512))]
    (y,) = get_op("matmul").compute(attrs, [x, w], get_op("matmul").infer(types, attrs))
    return [x, w], y


@pytest.mark.parametrize("m", [1, 8])
def test_only_constant_weights_come_early(m: int) -> None:
    """Before the wait for the kernel ahead stand loads of weights alone, which may not move behind it; what may be written is refused."""
    params, y = product(True, m)
    template = MATRIX if m > 1 else ROWS
    space = next(s for s in spaces([y], "cuda -arch=sm_90a") if s.template == template)
    choice = next(c for c in space.drafts() if c["early"] == "held")
    assert space.default["early"] == "held"
    made = schedule([y], "cuda -arch=sm_90a", choice)
    ptx = tec.build(made.schedule, [*params, *made.outputs], "cuda -arch=sm_90a").get_source("ptx")
    before, wait, after = ptx.partition("griddepcontrol.wait")
    assert wait and "griddepcontrol.launch_dependents" in before
    assert "ld.relaxed.cta.global.v4.b32" in before and "ld.relaxed.cta" not in after
    assert not re.search(r"\b(ld|st)\.global", before) and "ld.global" in after
    _, y = product(False, m)
    space = next(s for s in spaces([y], "cuda -arch=sm_90a") if s.template == template)
    assert space.default["early"] == "start"
    with pytest.raises(tec.ScheduleError, match="early cannot be 'held'"):
        space.apply(choice)


def test_rows_of_a_vocabulary_have_their_norm_apart() -> None:
    """Each work-group norms its rows again: of many columns that is more than a kernel."""
    target = tec.Target("cuda -arch=sm_90a")
    assert [most_rows(target, "float16", 2048, n) for n in (16_384, 32_000)] == [16, 4]


@pytest.mark.parametrize(("n", "k"), [(2048, 2048), (2048, 8192), (32_000, 2048)])
def test_a_wavefront_loads_a_quarter_of_its_sum_at_once(n: int, k: int) -> None:
    """Two quarters are under way at a time; with more at once it holds registers that the next kernel's work-groups would come into."""
    types = [TensorType("float16", t) for t in ((8, k), (n, k))]
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{j}") for j, t in enumerate(types)]
    attrs = {"transpose_b": True}
    (y,) = get_op("matmul").compute(attrs, list(xs), get_op("matmul").infer(types, attrs))
    space = next(s for s in spaces([y], "cuda -arch=sm_90a") if s.template == MATRIX)
    assert space.default["prefetch"] and space.steps(space.default) == 4 * space.default["ahead"]


@pytest.mark.parametrize("given", [(1, 3072, ROWS), (8, 3072, MATRIX)])
def test_choices_that_clocks_ranked_are_no_rivals(given: tuple[int, int, str]) -> None:
    """By the price of loops fewer loads under way would do, which took up to 1.5 times as long."""
    m, n, template = given
    attrs = {"depth": 2048, "columns": n, "eps": 1e-5}
    types = [TensorType("float16", (m, 2048)), TensorType("float32", (2048,)), TensorType("float16", (n, 2048))]
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
    (y,) = get_op("projection").compute(attrs, list(xs), get_op("projection").infer(types, attrs))
    made = chain([y], "cuda -arch=sm_90a", alone).first()
    assert made.space.template == template and made.choice == made.space.default
