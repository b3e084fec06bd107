"""Warpgroup products (wgmma) fed by bulk copies: what a schedule makes of them, against NumPy in the interpreter; and the PTX."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule
from tec.ir.interp import run
from tests.thinned import thinned_rows
from tests.unit.codegen_gpu.warpgroup_gemm import gemm

HOPPER = "cuda -arch=sm_90a"
SHAPES = [
    (128, 128, 128, {}),
    (256, 256, 64, {"trans_b": True}),
    (200, 136, 72, {}),
    (300, 264, 136, {"trans_b": True, "groups": 2, "band": 2}),
    (128, 256, 128, {"groups": 9}),  # more than there are tiles
    (192, 128, 128, {"stage_out": False}),
    (300, 264, 136, {"groups": 2, "band": 2, "turns": True}),
    (200, 400, 72, {"groups": 1, "bm": 64, "turns": True, "trans_b": True}),
]


def operands(m: int, n: int, k: int, dtype: str, trans_b: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * 7 + n * 3 + k)
    kind = _numpy(dtype)
    make = (lambda s: rng.integers(-8, 8, s)) if dtype == "int8" else rng.standard_normal
    return make((m, k)).astype(kind), make((n, k) if trans_b else (k, n)).astype(kind)


def _numpy(dtype: str) -> Any:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


@thinned_rows(2, ("m", "n", "k", "options"), SHAPES)
def test_the_product_is_numpys(m: int, n: int, k: int, options: dict[str, Any]) -> None:
    target, s, args = gemm(m, n, k, bn=128, **options)
    a, b = operands(m, n, k, "float16", options.get("trans_b", False))
    c = np.full((m, n), np.nan, np.float16)
    run(next(iter(tec.lower(s, args, simple_mode=True, target=target))), [a, b, c])
    want = a.astype(np.float64) @ (b.T if options.get("trans_b") else b).astype(np.float64)
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=2e-3, atol=2e-2)


@thinned_rows(1, ("dtype", "acc"), [("bfloat16", "float32"), ("int8", "int32")])
def test_other_types(dtype: str, acc: str) -> None:
    m, n, k = 128, 128, 256
    target, s, args = gemm(
        m, n, k, bn=128, bk=128 if dtype == "int8" else 64, trans_b=True, dtype=dtype, acc=acc, out=acc
    )
    a, b = operands(m, n, k, dtype, True)
    c = np.zeros((m, n), acc)
    run(next(iter(tec.lower(s, args, simple_mode=True, target=target))), [a, b, c])
    np.testing.assert_allclose(c, a.astype(acc) @ b.astype(acc).T, rtol=1e-5, atol=1e-5)
    assert f"k{32 if dtype == 'int8' else 16}." in ptx(s, args, target)


def ptx(s: Any, args: list[Any], target: Any) -> str:
    text: str = tec.build(s, args, target, name="gemm").imported_modules[0].get_source("ptx")
    return text


def test_what_the_kernel_is_made_of() -> None:
    text = ptx(*_swap(gemm(512, 512, 512, groups=4)))
    assert ".target sm_90a" in text and ".reqntid 128, 3, 1" in text
    assert "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16" in text
    assert "setmaxnreg.dec.sync.aligned.u32 40" in text and "setmaxnreg.inc.sync.aligned.u32 232" in text
    assert (
        "cp.async.bulk.tensor.2d.shared::cluster.global" in text
        and "cp.async.bulk.tensor.2d.global.shared::cta" in text
    )
    assert ".local" not in text and text.count("mbarrier.init") == 6
    main = text[: text.index("setmaxnreg.inc")]
    assert "wgmma" not in main, "the fetching warpgroup multiplies nothing"
    read, written = text.index("cp.async.bulk.wait_group.read"), text.index("st.shared", text.index("wgmma.mma_async"))
    assert read < written, "the tile before has been read before results overwrite it"


def test_two_warpgroups_in_turn() -> None:
    """Each has its results, its turn and its barrier; a slot is released once; the kernel does what it must before the products' end."""
    text = ptx(*_swap(gemm(512, 512, 512, bn=128, groups=4, turns=True)))
    assert ".reqntid 128, 3, 1" in text and ".local" not in text
    assert text.count("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16") == 8, "two blocks of 64 rows, four of k"
    inits = re.findall(r"mbarrier.init.shared::cta.b64 \[\S+\], (\S+);", text)
    assert len(inits) == 6 and len(set(inits)) == 1, "of a slot one arrival fills and one empties it"
    assert text.count("bar.arrive") == 2 and "setmaxnreg.inc.sync.aligned.u32 232" in text
    main = text[text.rindex("wgmma.mma_async") :]
    assert main.index("bar.arrive") < main.index("wgmma.wait_group.sync.aligned 0"), (
        "the turn goes on ahead of the products' end"
    )


@pytest.mark.parametrize(("columns", "stays", "ahead"), [(192, True, True), (256, True, False), (64, True, False)])
def test_an_epilogues_operands_come_before_the_loop(columns: int, stays: bool, ahead: bool) -> None:
    """A bias and a residual: where registers hold them beside the sums. Of a wide tile they stay where they are, and in a loop over tiles."""
    x, w = te.placeholder((4096, 768), "float16", "x"), te.placeholder((768, 768), "float16", "w")
    bias, more = te.placeholder((768,), "float16", "bias"), te.placeholder((4096, 768), "float16", "more")
    k = te.reduce_axis((0, 768), "k")
    p = te.compute((4096, 768), lambda i, j: te.sum(x[i, k].astype("float32") * w[k, j].astype("float32"), k), "p")
    y = te.compute((4096, 768), lambda i, j: p[i, j].astype("float16") + bias[j] + more[i, j], "y")
    made = schedule([y], HOPPER, {"rows": 128, "columns": columns, "stages": 3, "turns": False, "stays": stays})
    text = ptx(made.schedule, [x, w, bias, more, *made.outputs], HOPPER)
    wait, first = text.index("griddepcontrol.wait") if ahead else 0, text.index("wgmma.mma_async")
    loads = [m.start() for m in re.finditer(r"ld\.global", text)]
    assert loads and all((wait < at < first) == ahead for at in loads) and ".local" not in text


def _swap(x: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    target, s, args = x
    return s, args, target


def test_the_launch_makes_the_maps() -> None:
    target, s, args = gemm(512, 256, 128, trans_b=True)
    f = tec.build(s, args, target, name="gemm")
    (launch,) = f.specs["gemm"]["program"]
    maps = [a for a in launch["args"] if "tensor_map" in a]
    assert [m["tensor_map"] for m in maps] == ["A", "B", "C"]
    assert maps[0]["sizes"] == [128, 512] and maps[0]["strides"] == [128] and maps[0]["box"] == [64, 128]
    assert maps[1]["box"] == [64, 256] and launch["block"] == [128, 3, 1]
    assert launch["dyn_shared"] % 16 == 0 and launch["dyn_shared"] >= 3 * (128 + 256) * 128


def test_sizes_may_be_open() -> None:
    m = te.var("m")
    target, s, args = gemm(m, 256, 128)
    f = tec.build(s, args, target, name="gemm")
    launch = next(step for step in f.specs["gemm"]["program"] if step["op"] == "launch")
    assert [a["sizes"] for a in launch["args"] if "tensor_map" in a] == [[128, "m"], [256, 128], [256, "m"]]


# ---- mistakes


def test_other_chips_have_no_warpgroup_products() -> None:
    with pytest.raises(tec.TecError, match="no warpgroup product"):
        te.intrin.warpgroup("cuda -arch=sm_90", "float16", 128, 64)


@pytest.mark.parametrize(("n", "k"), [(12, 64), (264, 64), (128, 8)])
def test_shapes_that_the_unit_has_not(n: int, k: int) -> None:
    with pytest.raises(tec.TecError, match="no warpgroup product"):
        te.intrin.warpgroup(HOPPER, "float16", n, k)


def test_a_tile_of_narrow_rows_is_refused() -> None:
    target, s, args = gemm(256, 256, 128, bk=32, trans_b=True)
    with pytest.raises(tec.TecError, match="rows of 32 elements are narrower than a box, 64 elements"):
        tec.build(s, args, target)


def test_one_stage_is_refused() -> None:
    with pytest.raises(tec.ScheduleError, match="stages is an integer of at least 2, not 1"):
        gemm(256, 256, 128, stages=1)


@pytest.mark.parametrize("turns", [False, True])
def test_a_sum_of_one_step_is_a_ring_too(turns: bool) -> None:
    text = ptx(*_swap(gemm(512, 512, 64, bn=128, groups=2, turns=turns)))
    assert "setmaxnreg.dec" in text and text.count("wgmma.mma_async") == (8 if turns else 4) and ".local" not in text


def test_turns_of_one_tile_are_refused() -> None:
    target, s, args = gemm(256, 256, 128, turns=True)
    with pytest.raises(tec.TecError, match="with turns is for a loop within a loop of tiles"):
        tec.build(s, args, target)


def test_turns_of_several_warpgroups_are_refused() -> None:
    target, s, args = gemm(256, 256, 128, groups=1)
    (stage,) = (x for x in s.stages if x.op.name == "P")
    stage.pragma(stage.leaf_iter_vars[0], "warp_specialize", (3, True))
    with pytest.raises(tec.TecError, match="for a kernel of one warpgroup, not 2"):
        tec.build(s, args, target)


def test_a_fill_by_threads_is_refused() -> None:
    target, s, args = gemm(256, 256, 128, bulk=False)
    with pytest.raises(tec.TecError, match="no bulk copy fills it"):
        tec.build(s, args, target)


def test_bulk_copies_need_the_chip() -> None:
    a = te.placeholder((128, 64), "float16", name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1, name="B")
    s = tec.create_schedule(b.op)
    staged = s.cache_read(a, "shared", [b])
    s[staged].pragma(s[staged].op.axis[0], "bulk_copy")
    with pytest.raises(tec.TecError, match="no bulk copies"):
        tec.build(s, [a, b], "cuda -arch=sm_80")


# ---- bulk copies without warpgroups


def sgemm(m: int, n: int, k: int, pipeline: str = "software_pipeline") -> tuple[Any, Any, list[Any]]:
    """f32 without matrix units: tiles by bulk copies, 128 threads of 8 x 8 results."""
    target = tec.Target(HOPPER)
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    kk = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C")
    s = tec.create_schedule(c.op)
    shared = [s.cache_read(x, "shared", [c]) for x in (a, b)]
    acc = s.cache_write(c, "local")
    i, j = s[c].op.axis
    bi, i = s[c].split(i, factor=128)
    bj, j = s[c].split(j, factor=64)
    iv, i = s[c].split(i, factor=32)
    ty, ir = s[c].split(i, factor=2)
    jv, j = s[c].split(j, factor=32)
    tx, jj = s[c].split(j, factor=4)
    s[c].reorder(bi, bj, iv, jv, ty, tx, ir, jj)
    thread = s[c].fuse(ty, tx)
    for axis, tag in (
        (bi, "blockIdx.y"),
        (bj, "blockIdx.x"),
        (iv, "vthread"),
        (jv, "vthread"),
        (thread, "threadIdx.x"),
    ):
        s[c].bind(axis, te.thread_axis(tag))
    s[acc].compute_at(s[c], thread)
    x, y = s[acc].op.axis
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=32)
    s[acc].reorder(ko, ki, x, y)
    for axis in (x, y):
        s[acc].unroll(axis)
    if pipeline:
        s[acc].pragma(ko, pipeline, 2)
    s[acc].pragma(ki, "min_blocks", 4)
    for t in shared:
        s[t].compute_at(s[acc], ko)
        s[t].pragma(s[t].op.axis[0], "bulk_copy")
    return target, s, [a, b, c]


def test_a_ring_of_tiles_that_one_thread_fills() -> None:
    target, s, args = sgemm(256, 128, 96)
    a, b = operands(256, 128, 96, "float32")
    c = np.zeros((256, 128), np.float32)
    run(next(iter(tec.lower(s, args, simple_mode=True, target=target))), [a, b, c])
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    text = ptx(s, args, target)
    assert ".minnctapersm 4" in text and "setmaxnreg" not in text and ".local" not in text
    assert text.count("mbarrier.init") == 2 and text.count("mbarrier.try_wait") == 1 and text.count("bar.sync") == 2


def test_a_copy_that_nothing_waits_for_is_refused() -> None:
    target, s, args = sgemm(256, 128, 96, pipeline="")
    with pytest.raises(tec.TecError, match="in no pipeline"):
        tec.build(s, args, target)


# ---- as a choice


def network_product(m: int, n: int, k: int, batch: int = 0) -> list[Any]:
    """relu(A B + bias) in float16, as a network's group has it."""
    lead = (batch,) if batch else ()
    a, b = te.placeholder((*lead, m, k), "float16", name="A"), te.placeholder((*lead, k, n), "float16", name="B")
    bias = te.placeholder((n,), "float16", name="bias")
    kk = te.reduce_axis((0, k), "k")

    def product(*at: Any) -> Any:
        *i, r, c = at
        return te.sum(a[(*i, r, kk)].astype("float32") * b[(*i, kk, c)].astype("float32"), axis=kk)

    p = te.compute((*lead, m, n), product, name="P")

    def end(*at: Any) -> Any:
        return te.maximum(p[at] + bias[at[-1]].astype("float32"), te.const(0, "float32")).astype("float16")

    return [a, b, bias, te.compute((*lead, m, n), end, name="C")]


@pytest.mark.parametrize(("m", "n", "k", "batch"), [(1280, 1536, 192, 0), (256, 128, 136, 48)])
def test_networks_get_it_where_there_are_tiles_enough(m: int, n: int, k: int, batch: int) -> None:
    from tec.choices import schedule, spaces

    *ins, out = network_product(m, n, k, batch)
    first, *rest = spaces([out], HOPPER)
    assert first.template == "warpgroup product" and rest
    made = schedule([out], HOPPER)
    text = ptx(made.schedule, [*ins, *made.outputs], HOPPER)
    assert "wgmma.mma_async" in text and ".local" not in text
    small = network_product(128, 128, k)
    assert spaces([small[-1]], HOPPER)[0].template != "warpgroup product"
    assert "warpgroup product" not in [s.template for s in spaces([out], "cuda -arch=sm_90")]


def test_a_chosen_tile_with_an_epilogue_is_right() -> None:
    from tec.choices import schedule

    m, n, k = 200, 136, 136
    *ins, out = network_product(m, n, k)
    made = schedule(
        [out], HOPPER, {"template": "warpgroup product", "rows": 64, "columns": 64, "stages": 2, "stays": False}
    )
    a, b = operands(m, n, k, "float16")
    bias = np.linspace(-1, 1, n).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    low = tec.lower(made.schedule, [*ins, *made.outputs], simple_mode=True, target=HOPPER)
    run(next(iter(low)), [a, b, bias, c])
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=2e-3, atol=2e-2)


def test_a_batch_may_stay_too() -> None:
    """135 tiles of 45 products over 132 multiprocessors."""
    from tec.choices import schedule

    *ins, out = network_product(192, 64, 136, 45)
    choice = {"template": "warpgroup product", "rows": 64, "columns": 64, "stages": 2}
    made = schedule([out], HOPPER, choice)
    low = next(iter(tec.lower(made.schedule, [*ins, *made.outputs], simple_mode=True, target=HOPPER)))
    assert "132" in str(low), "work-groups that stay, one a multiprocessor"
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((45, 192, 136), (45, 136, 64)))
    bias, c = np.linspace(-1, 1, 64).astype(np.float16), np.full((45, 192, 64), np.nan, np.float16)
    run(low, [a, b, bias, c])
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(("m", "n", "k", "batch"), [(136, 72, 584, 0), (64, 136, 512, 3)])
def test_the_sum_may_be_in_parts(m: int, n: int, k: int, batch: int) -> None:
    """584 terms are nine whole steps and an eighth of one: of two parts the last ends within its fifth step."""
    from tec.choices import schedule

    lead = (batch,) if batch else ()
    *ins, out = network_product(m, n, k, batch)
    choice = {"template": "warpgroup product", "rows": 64, "columns": 64, "stages": 2, "split_k": 2}
    made = schedule([out], HOPPER, choice)
    low = next(iter(tec.lower(made.schedule, [*ins, *made.outputs], simple_mode=True, target=HOPPER)))
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal((*lead, *s)).astype(np.float16) for s in ((m, k), (k, n)))
    bias, c = np.linspace(-1, 1, n).astype(np.float16), np.full((*lead, m, n), np.nan, np.float16)
    run(low, [a, b, bias, c])
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=2e-3, atol=5e-2)
    assert "wgmma.mma_async" in ptx(made.schedule, [*ins, *made.outputs], HOPPER)


def test_an_illegal_choice_says_why() -> None:
    from tec.choices import schedule

    *_, out = network_product(1280, 1536, 192)
    with pytest.raises(tec.ScheduleError, match="shared memory"):
        schedule([out], HOPPER, {"template": "warpgroup product", "rows": 128, "columns": 256, "stages": 6})


def test_tiles_beyond_the_end_are_fetched_without_question() -> None:
    """A fetch that is left out while its bytes are announced would never be done: 172 tiles over 132 work-groups in bands of 2 of 43 rows of tiles."""
    from tec.choices import schedule

    *ins, out = network_product(43 * 64, 256, 192)
    made = schedule(
        [out],
        HOPPER,
        {
            "template": "warpgroup product",
            "rows": 64,
            "columns": 64,
            "stages": 4,
            "band": 4,
            "stays": True,
            "resident": 1,
        },
    )
    lines = str(next(iter(tec.lower(made.schedule, [*ins, *made.outputs], target=HOPPER)))).splitlines()
    loads = [k for k, line in enumerate(lines) if "bulk_load" in line]
    assert loads and not any("if " in lines[k - 1] for k in loads)
    assert {line.strip() for line in lines if "mbarrier_expect" in line} == {"mbarrier_expect(full[slot[0]], 16384)"}


def test_bytes_under_a_condition_are_announced_where_it_holds() -> None:
    from tec.ir import build as B
    from tec.ir import expr as E
    from tec.ir import stmt as S
    from tec.ir.buffer import Buffer
    from tec.ir.passes.pipeline.bulk import loaded_bytes

    tile = Buffer("tile", "float16", (B.const(64), B.const(64)), (), 0, "shared")
    k = E.Var("k")
    load = S.Evaluate(E.Call("bulk_load", (E.BufferLoad(tile, (B.const(0), B.const(0))),), "int32", {"box": (64, 64)}))
    total = loaded_bytes([load, S.IfThenElse(E.LT(k, B.const(3)), load)])
    assert str(total) == "8192 + select(k < 3, 8192, 0)"


@thinned_rows(1, "dtype", ["float8_e4m3", "float8_e5m2", "int8"])
def test_bytes_are_multiplied_along_k(dtype: str) -> None:
    from tec.choices import schedule, spaces
    from tec.ops.registry import TensorType, get_op

    m, n, k = 192, 192, 256
    xs = [te.placeholder((m, k), dtype, name="A"), te.placeholder((n, k), dtype, name="B")]
    matmul = get_op("matmul")
    types = [TensorType(dtype, s) for s in ((m, k), (n, k))]
    attrs = {"transpose_b": True, "out_dtype": "int32" if dtype == "int8" else "bfloat16"}
    outs = matmul.compute(attrs, xs, matmul.infer(types, attrs))[:1]
    assert "warpgroup product" in [s.template for s in spaces(outs, HOPPER)]
    made = schedule(outs, HOPPER, {"template": "warpgroup product", "rows": 64, "columns": 64, "stages": 3})
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(_numpy(dtype)) for s in ((m, k), (n, k)))
    c = np.zeros((m, n), _numpy(attrs["out_dtype"]))
    run(next(iter(tec.lower(made.schedule, [*xs, *made.outputs], simple_mode=True, target=HOPPER))), [a, b, c])
    want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=1e-2)
    unit = {"float8_e4m3": "k32.f32.e4m3.e4m3", "float8_e5m2": "k32.f32.e5m2.e5m2", "int8": "k32.s32.s8.s8"}[dtype]
    assert f"m64n64{unit}" in ptx(made.schedule, [*xs, *made.outputs], HOPPER)
    flat = [te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")]
    types = [TensorType(dtype, s) for s in ((m, k), (k, n))]
    outs = matmul.compute(
        {"out_dtype": attrs["out_dtype"]}, flat, matmul.infer(types, {"out_dtype": attrs["out_dtype"]})
    )[:1]
    assert "warpgroup product" not in [s.template for s in spaces(outs, HOPPER)]


def test_two_work_groups_share_a_multiprocessor() -> None:
    from tec.choices import schedule

    *ins, out = network_product(4096, 3072, 192)
    made = schedule(
        [out], HOPPER, {"template": "warpgroup product", "rows": 64, "columns": 192, "stages": 2, "resident": 2}
    )
    text = ptx(made.schedule, [*ins, *made.outputs], HOPPER)
    assert ".minnctapersm 2" in text and ".reqntid 128, 2, 1" in text
    assert "setmaxnreg.dec.sync.aligned.u32 40" in text and "setmaxnreg.inc.sync.aligned.u32 216" in text
    with pytest.raises(tec.ScheduleError, match="registers of a multiprocessor"):
        schedule(
            [out], HOPPER, {"template": "warpgroup product", "rows": 128, "columns": 128, "stages": 2, "resident": 2}
        )


# ---- without matrix units


@thinned_rows(
    1,
    ("m", "n", "k", "choice"),
    [
        (100, 68, 132, {"rows": 64, "columns": 64, "step": 32, "blocks": 3, "parts": 1}),
        (128, 96, 256, {"rows": 32, "columns": 32, "step": 32, "parts": 4, "blocks": 2}),
        (64, 64, 256, {"rows": 64, "columns": 32, "step": 64, "parts": 2, "order": "blocks", "blocks": 2}),
    ],
)
def test_float32_by_bulk_copies(m: int, n: int, k: int, choice: dict[str, Any]) -> None:
    from tec.choices import schedule, spaces
    from tec.ops.registry import TensorType, get_op

    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    bias = te.placeholder((n,), name="bias")
    matmul = get_op("matmul")
    (y,) = matmul.compute({}, [a, b], matmul.infer([TensorType("float32", (m, k)), TensorType("float32", (k, n))], {}))
    out = te.compute((m, n), lambda i, j: te.max(y[i, j] + bias[j], te.const(0, "float32")), name="relu")
    assert "bulk product" in [s.template for s in spaces([out], HOPPER)]
    assert "bulk product" not in [s.template for s in spaces([out], "cuda -arch=sm_90")]
    made = schedule([out], HOPPER, {"template": "bulk product", **choice})
    rng = np.random.default_rng(1)
    x, w, z = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    c = np.full((m, n), np.nan, np.float32)
    args = [a, b, bias, *made.outputs]
    run(next(iter(tec.lower(made.schedule, args, simple_mode=True, target=HOPPER))), [x, w, z, c])
    np.testing.assert_allclose(c, np.maximum(x @ w + z, 0), rtol=1e-4, atol=1e-4)
    text = ptx(made.schedule, args, HOPPER)
    assert "cp.async.bulk.tensor.2d" in text and ".local" not in text and "ld.shared.v4" in text
    kernels = tec.build(made.schedule, args, HOPPER, name="gemm").get_source("ptx").count(".visible .entry")
    assert kernels == (1 if choice["parts"] == 1 else 2)


def test_parts_are_whole_steps() -> None:
    from tec.choices import schedule

    a, b = te.placeholder((128, 200), name="A"), te.placeholder((200, 128), name="B")
    k = te.reduce_axis((0, 200), "k")
    c = te.compute((128, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    with pytest.raises(tec.ScheduleError, match="4 parts of 200 terms are not whole steps"):
        schedule([c], HOPPER, {"template": "bulk product", "rows": 64, "columns": 64, "step": 32, "parts": 4})


@pytest.mark.parametrize("residual", [False, True])
def test_sums_of_one_step_with_and_without_a_residual_go_in_turn(residual: bool) -> None:
    """What the epilogue reads and writes is most of the work there: beside the other warpgroup's products."""
    m, n = 32768, 256
    x, w, r = (
        te.placeholder((m, 64), "float16", "x"),
        te.placeholder((64, n), "float16", "w"),
        te.placeholder((m, n), "float16", "r"),
    )
    k = te.reduce_axis((0, 64), "k")
    y = te.compute((m, n), lambda i, j: te.sum(x[i, k].astype("float32") * w[k, j].astype("float32"), k), "y")
    out = te.compute(
        (m, n), lambda i, j: (y[i, j] + (r[i, j].astype("float32") if residual else 1.0)).astype("float16"), "out"
    )
    made = schedule([out], HOPPER)
    assert made.choice["template"] == "warpgroup product" and made.choice["ping_pong"]
    assert "wgmma.mma_async" in ptx(made.schedule, [x, w, *([r] if residual else []), *made.outputs], HOPPER)
    # A tile named without it has none.
    assert not schedule([out], HOPPER, {"rows": 128, "columns": 256, "stages": 3}).choice["ping_pong"]
