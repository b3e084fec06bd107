"""Loads and stores of a pipeline's step between its sums: the order of the assembly, results on the software GPU, what the defaults ask for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import tec
from tec import te
from tec.choices import spaces
from tec.choices.space import Space
from tec.codegen.static_report import report
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op
from tec.runtime import nd
from tec.runtime.arrays.dtypes import numpy_dtype
from tests.thinned import thinned_rows


def product(
    chip: str, m: int, n: int, k: int, dtype: str = "float16", trans_b: bool = True
) -> tuple[Space, list[te.Tensor]]:
    """The space of m x k times k x n on the matrix units, and its operands."""
    kinds = [TensorType(dtype, (m, k)), TensorType(dtype, (n, k) if trans_b else (k, n))]
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(kinds)]
    known, attrs = get_op("matmul"), {"transpose_b": trans_b}
    outs = known.compute(attrs, xs, known.infer(kinds, attrs))[:1]
    found = next(s for s in spaces(outs, f"rocm -mcpu={chip}") if s.template == "matrix product")
    return found, xs


def built(space: Space, xs: list[te.Tensor], **choice: Any) -> Any:
    made = space.apply({**space.default, "slices": 1, **choice})
    return tec.build(made.schedule, [*xs, *made.outputs], space.target, name="product")


@thinned_rows(
    2,
    ("chip", "dtype", "shape", "trans_b", "choice"),
    [
        ("gfx942", "float16", (128, 128, 512), True, {}),
        ("gfx942", "float16", (64, 64, 576), True, {"rows": 64, "columns": 64, "waves_m": 2, "waves_n": 2, "ahead": 2}),
        (
            "gfx942",
            "float16",
            (64, 64, 576),
            True,
            {"rows": 64, "columns": 64, "waves_m": 2, "waves_n": 2, "ahead": 1, "stages": 2},
        ),
        (
            "gfx942",
            "float16",
            (256, 256, 128),
            True,
            {"rows": 64, "columns": 64, "step": 64, "ahead": 1, "waves_m": 4, "waves_n": 2, "uneven": True},
        ),
        ("gfx942", "float16", (100, 70, 333), False, {}),
        ("gfx90a", "float32", (64, 64, 256), False, {"rows": 64, "columns": 64, "waves_m": 2, "waves_n": 2}),
        ("gfx1100", "int8", (64, 64, 256), True, {"rows": 64, "columns": 64, "waves_m": 2, "waves_n": 2}),
    ],
)
def test_products_are_right(
    chip: str, dtype: str, shape: tuple[int, int, int], trans_b: bool, choice: dict[str, Any]
) -> None:
    m, n, k = shape
    space, xs = product(chip, m, n, k, dtype, trans_b)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, [int(d) for d in x.shape]).astype(dtype) for x in xs)
    want = a.astype(np.float64) @ (b.T if trans_b else b).astype(np.float64)
    dev = tec.rocm_emu(chip)
    out = nd.array(np.zeros((m, n), np.int32 if dtype == "int8" else dtype), dev)
    built(space, xs, interleave=True, **choice)(nd.array(a, dev), nd.array(b, dev), out)
    np.testing.assert_allclose(out.numpy().astype(np.float64), want, rtol=2e-3)


@thinned_rows(
    2,
    ("dtype", "shape", "choice"),
    [
        ("float16", (128, 64, 320), {"rows": 128, "columns": 64, "step": 64, "stages": 2}),
        ("float16", (64, 128, 321), {"rows": 64, "columns": 128, "step": 64, "stages": 2, "waves_m": 2}),
        (
            "bfloat16",
            (128, 128, 448),
            {"rows": 128, "columns": 128, "step": 32, "stages": 4, "instruction": "32x32x16"},
        ),
        ("int8", (64, 64, 256), {"rows": 64, "columns": 64, "step": 128, "stages": 2}),
    ],
)
def test_loads_straight_into_shared_memory_are_right(
    dtype: str, shape: tuple[int, int, int], choice: dict[str, Any]
) -> None:
    """On CDNA 4, under the check of races: in turning slots, by two of them, in steps of one leaf, and through registers where a row's end is filled up."""
    m, n, k = shape
    space, xs = product("gfx950", m, n, k, dtype)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, [int(d) for d in x.shape]) for x in xs)
    dev = tec.rocm_emu("gfx950", check="race,init")
    kind = {"int8": "int32", "float16": "float16", "bfloat16": "bfloat16"}[dtype]
    out = nd.empty((m, n), kind, dev)
    choice = {"waves_m": 2, "waves_n": 2, "instruction": space.default["instruction"], **choice}
    made = built(space, xs, interleave=True, direct=True, ahead=1, band=0, splits=1, uneven=False, **choice)
    (r,) = report(made.imported_modules[0].get_source("asm"))
    direct = [line.endswith(" lds") for line in r.body if re.match(r"\s+(buffer|global)_load_", line)]
    assert direct and set(direct) == {k % 8 == 0}, "what is filled up comes through registers"
    assert not r.has_loop or r.load_cover is None or r.load_cover > 0.5
    made(*(nd.array(x.astype(numpy_dtype(dtype)), dev) for x in (a, b)), out)
    np.testing.assert_allclose(out.numpy().astype(np.float64), a @ b.T, rtol=1e-2)


def order(module: Any) -> str:
    """The main loop, a letter an instruction: G and S loads and stores of a step, R reads of shared memory, M matrix instructions, B barriers."""
    (kernel,) = report(module.imported_modules[0].get_source("asm"))
    names = {"global_load": "G", "buffer_load": "G", "ds_write": "S", "ds_read": "R", "v_mfma": "M", "s_barrier": "B"}
    return "".join(
        next((c for word, c in names.items() if line.split()[0].startswith(word)), "") for line in kernel.body
    )


def test_loads_and_stores_stand_between_the_sums() -> None:
    space, xs = product("gfx942", 512, 512, 1024)
    tile = {
        "rows": 128,
        "columns": 128,
        "step": 64,
        "waves_m": 2,
        "waves_n": 2,
        "instruction": "16x16x32",
        "ahead": 1,
        "band": 0,
        "splits": 1,
    }
    woven, plain = (order(built(space, xs, **tile, interleave=x)) for x in (True, False))
    assert "GGGGGGGG" in plain and "GG" not in woven and woven.count("G") == 8
    assert "SS" not in woven.replace("B", "") and woven.count("S") == plain.count("S") == 8
    assert re.sub("[^GS]", "", woven[woven.index("G") :])[:16] == "GGGGGGGGSSSSSSSS", (
        "stores come after all of the loads"
    )
    between = woven[woven.rindex("G") : woven.index("S")]
    assert woven.count("M") == plain.count("M") == 64 and "MMM" in between


def test_loads_under_a_windows_condition_stand_between_the_sums_too() -> None:
    """They are single instructions, no branches: a 3 x 3 of ResNet-50 at batch 32 takes 19 us for 25 (MI300X, by the time model)."""
    types = [TensorType("float16", (16 * 14 * 14, 256)), TensorType("float16", (256, 9 * 256))]
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
    ones = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1)}
    lies = Layout("(NHW)C"), Layout("O(HWI)"), Layout("(NHW)C")
    attrs = {**ones, "groups": 1, "kernel": (3, 3), "layouts": lies, "space": (16, 14, 14)}
    known = get_op("conv")
    space = next(
        s for s in spaces(known.compute(attrs, xs, known.infer(types, attrs)), "rocm -mcpu=gfx942") if s.template == "matrix product"
    )  # fmt: skip
    tile = {
        "rows": 64,
        "columns": 64,
        "step": 64,
        "waves_m": 2,
        "waves_n": 2,
        "instruction": "16x16x32",
        "band": 0,
        "splits": 1,
    }
    for ahead, steps in ((1, 1), (2, 2)):
        woven = order(built(space, xs, **tile, ahead=ahead))
        assert (
            woven.count("G") == woven.count("S") == 4 * steps and "GG" not in woven and woven.count("M") == 16 * steps
        )


def test_the_first_steps_loads_are_the_first() -> None:
    """What is asked for first comes first: of two steps ahead, the step that the first sums wait for."""
    space, xs = product("gfx942", 64, 64, 1024)
    tile = {"rows": 64, "columns": 64, "step": 64, "waves_m": 2, "waves_n": 2, "ahead": 2, "band": 0, "splits": 1}
    (texts,) = built(space, xs, **tile).imported_modules[0].texts.values()
    before = str(texts["ir"]() if callable(texts["ir"]) else texts["ir"]).split("for k_outer")[0]
    loaded, stored = (
        re.findall(p, before) for p in (r"(\w+_next\w*)\[.* = x\d\[", r"(?:left|right)\[.* = (\w+_next\w*)\[")
    )
    assert len(stored) == 4 and len(loaded) == 8 and loaded[:4] == stored


@thinned_rows(2, ("chip", "dtype"), [("gfx942", "float16"), ("gfx942", "int8"), ("gfx90a", "float32")])
def test_steps_have_no_vector_arithmetic(chip: str, dtype: str) -> None:
    """Loads of a step are by a lane's offset, the same in all steps, and a scalar one. LLVM makes three instructions a load else, and a wait."""
    space, xs = product(chip, 512, 512, 2048, dtype)
    module = built(space, xs, rows=128, columns=128, waves_m=2, waves_n=2, ahead=1, splits=1, band=0)
    (r,) = report(module.imported_modules[0].get_source("asm"))
    assert r.valu == 0 and r.matrix and r.load_cover is not None and r.load_cover > 0.5
    assert r.global_loads == {128: 8} and not any("global_load" in line for line in r.body)


def test_what_32_bits_do_not_reach_is_loaded_by_pointers() -> None:
    """A buffer load's offsets have 32 bits: operands of 2 GiB and more keep 64-bit addresses."""
    space, xs = product("gfx942", 1 << 15, 512, 1 << 15)
    (r,) = report(built(space, xs).imported_modules[0].get_source("asm"))
    kinds = [line.split()[0] for line in r.body if "_load_" in line]
    assert any(k.startswith("global_load") for k in kinds) and any(k.startswith("buffer_load") for k in kinds)


def test_two_slots_have_one_barrier_a_step_and_registers_ready_behind_it() -> None:
    space, xs = product("gfx942", 512, 512, 1024)
    tile = {"rows": 128, "columns": 128, "step": 64, "waves_m": 2, "waves_n": 2, "instruction": "16x16x32", "band": 0, "splits": 1}  # fmt: skip
    woven = order(built(space, xs, **tile, stages=2, ahead=2, interleave=True))
    assert woven.count("M") == 128 and woven.count("G") == woven.count("S") == 16, "two steps, written out"
    assert woven.count("B") == 2
    _, second, _ = woven.split("B")
    behind = second[: second.index("M")]
    assert behind.count("R") == 8 and second[len(behind) :].count("M") > 32, "sums follow that need none of these"


@thinned_rows(2, "k", [192, 448, 512])
def test_two_slots_are_right(k: int) -> None:
    """Under the checks for races and memory never written: there is one barrier a step."""
    space, xs = product("gfx942", 64, 96, k)
    rng, dev = np.random.default_rng(0), tec.rocm_emu("gfx942", check="race,init")
    a, b = (rng.integers(-8, 8, (n, k)).astype("float16") for n in (64, 96))
    out = nd.array(np.zeros((64, 96), "float16"), dev)
    tile = {"rows": 64, "columns": 96, "step": 64, "waves_m": 2, "waves_n": 2, "ahead": 2, "stages": 2}
    built(space, xs, interleave=True, **tile)(nd.array(a, dev), nd.array(b, dev), out)
    np.testing.assert_allclose(out.numpy().astype(float), a.astype(float) @ b.T.astype(float), rtol=2e-3)


def test_cdna_has_it_by_default() -> None:
    for chip, wanted in (("gfx90a", True), ("gfx942", True), ("gfx950", True), ("gfx1100", False)):
        space, _ = product(chip, 512, 512, 1024)
        assert space.default["interleave"] is wanted, chip


def test_short_steps_start_their_loads_two_steps_ahead() -> None:
    def ahead(chip: str, m: int) -> int:
        space, _ = product(chip, m, 4096, 4096)
        return int(space.default["prefetch_distance"])

    assert ahead("gfx942", 512) == 2, "a work-group a unit"
    assert product("gfx942", 512, 4096, 4096)[0].default["stages"] == 2, "which has room for two slots"
    assert product("gfx942", 4096, 4096, 4096)[0].default["stages"] == 1
    assert ahead("gfx942", 4096) == 1
    assert ahead("gfx950", 1024) == 2, "steps of half the clocks"


def test_large_products_on_cdna_4_have_large_tiles() -> None:
    """128 by 128 is bound by shared memory there. 256 by 256 of instructions of 32 by 32 spill nothing, and half of the wavefronts come first."""
    space, xs = product("gfx950", 4096, 4096, 4096, "bfloat16")
    large = {
        "rows": 256,
        "columns": 256,
        "waves_m": 4,
        "waves_n": 2,
        "instruction": "32x32x16",
        "ping_pong": True,
        "direct_to_lds": True,
        "stages": 2,
    }
    assert {k: space.default[k] for k in large} == large
    assembly = built(space, xs).imported_modules[0].get_source("asm")
    (r,) = report(assembly)
    assert (
        r.spills == 0
        and r.matrix == 64
        and r.load_cover is not None
        and r.load_cover > 0.5
        and not r.lds_writes
        and r.valu < 4
    )
    assert assembly.count("s_setprio 1") == 1
    # More than the last cache: four stages of these tiles, and two work-groups a unit of 128 by 128, take 669 and 672 us by the model.
    beyond = product("gfx950", 8192, 8192, 8192, "bfloat16")[0].default
    assert beyond["split_k"] == 1 and (beyond["rows"], beyond["columns"]) in ((256, 256), (128, 128))
    for chip, m, dtype in (("gfx942", 4096, "float16"), ("gfx950", 1024, "float16"), ("gfx950", 4096, "float8_e4m3")):
        assert product(chip, m, 4096, 4096, dtype)[0].default["rows"] < 256, (chip, m, dtype)
