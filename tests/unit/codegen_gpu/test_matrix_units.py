"""Tensorized products: the loops after every pass compute the product, and the machine code is what was meant."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices.families.products import matrix_schedule, tilings
from tec.codegen.static_report import KernelReport, report
from tec.driver import run_passes
from tec.errors import LoweringError, TargetError
from tec.ir import interp
from tec.schedule import to_loops
from tec.target import Target
from tests.thinned import thinned, thinned_rows

GFX942 = "rocm -mcpu=gfx942"


def product(
    m: int,
    n: int,
    k: int,
    dtype: str = "float16",
    ta: bool = False,
    tb: bool = True,
    batch: int = 0,
    epilogue: str = "",
) -> tuple[list[te.Tensor], te.Tensor, te.Tensor]:
    """(arguments, the product, the output)."""
    acc = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
    lead = (batch,) if batch else ()
    a = te.placeholder((*lead, *((k, m) if ta else (m, k))), dtype, name="A")
    b = te.placeholder((*lead, *((n, k) if tb else (k, n))), dtype, name="B")
    kk = te.reduce_axis((0, k), name="k")

    def body(*at: Any) -> Any:
        *x, i, j = at
        left, right = a(*x, *((kk, i) if ta else (i, kk))), b(*x, *((j, kk) if tb else (kk, j)))
        if acc != dtype:
            left, right = left.astype(acc), right.astype(acc)
        return te.sum(left * right, axis=kk)

    c = te.compute((*lead, m, n), body, name="C")
    args, out = [a, b], c
    if epilogue:
        bias = te.placeholder((n,), acc, name="bias")
        args.append(bias)
        out = te.compute((*lead, m, n), lambda *at: (c(*at) + bias(at[-1])).astype(epilogue), name="D")
    return [*args, out], c, out


def scheduled(target: Target, args: list[te.Tensor], c: te.Tensor, out: te.Tensor, tiling: Any = None) -> Any:
    s = tec.create_schedule(out.op)
    assert matrix_schedule.schedule(s, c.op, out.op, target, tiling)
    return s


def run_lowered(target: Target, **kwargs: Any) -> None:
    tiling = kwargs.pop("tiling", None)
    args, c, out = product(**kwargs)
    s = scheduled(target, args, c, out, tiling)
    func = run_passes(to_loops(s, args, "mm"), target)
    rng = np.random.default_rng(0)
    values = [rng.integers(-4, 5, [int(d.value) for d in t.shape]) for t in args]
    a = values[0].swapaxes(-1, -2) if kwargs.get("ta") else values[0]
    b = values[1].swapaxes(-1, -2) if kwargs.get("tb", True) else values[1]
    want = a @ b + (values[2] if kwargs.get("epilogue") else 0)

    def held(x: Any, dtype: str) -> Any:
        if dtype == "bfloat16":
            return x.astype(pytest.importorskip("ml_dtypes").bfloat16)
        return x.astype(dtype)

    flat = [held(v, t.dtype).reshape(-1) for v, t in zip(values, args)]
    flat[-1][:] = 0
    interp.run(func, flat, wave=target.wavefront_size)
    np.testing.assert_array_equal(flat[-1].reshape(want.shape).astype("float64"), want)


@thinned_rows(
    10, ("target", "dtype"),
    [
        ("rocm -mcpu=gfx908", "float16"), ("rocm -mcpu=gfx908", "bfloat16"), ("rocm -mcpu=gfx908", "int8"),
        ("rocm -mcpu=gfx90a", "bfloat16"), ("rocm -mcpu=gfx90a", "float64"),
        (GFX942, "float16"), (GFX942, "float32"), (GFX942, "int8"), ("rocm -mcpu=gfx950", "bfloat16"),
        ("rocm -mcpu=gfx1100", "float16"), ("rocm -mcpu=gfx1100", "int8"), ("rocm -mcpu=gfx1201", "bfloat16"),
        ("rocm -mcpu=gfx1250", "float16"), ("rocm -mcpu=gfx1250", "bfloat16"), ("rocm -mcpu=gfx1250", "float32"), ("rocm -mcpu=gfx1250", "int8"),
        ("cuda -arch=sm_80", "float16"), ("cuda -arch=sm_90", "int8"),
    ],
)  # fmt: skip
def test_units_and_types(target: str, dtype: str) -> None:
    run_lowered(Target(target), m=64, n=128, k=128, dtype=dtype)


@thinned(
    1,
    ("target", [GFX942, "rocm -mcpu=gfx1100", "cuda -arch=sm_90"]),
    (
        "kwargs",
        [
            {"m": 64, "n": 64, "k": 64, "tb": False},
            {"m": 64, "n": 64, "k": 64, "ta": True, "tb": False},
            {"m": 64, "n": 64, "k": 64, "batch": 3},
            {"m": 100, "n": 70, "k": 128},
            {"m": 70, "n": 100, "k": 64, "tb": False, "epilogue": "float16"},
            {"m": 64, "n": 64, "k": 128, "epilogue": "float32"},
        ],
    ),
)
def test_layouts_edges_and_epilogues(target: str, kwargs: dict[str, Any]) -> None:
    run_lowered(Target(target), **kwargs)


@thinned(1, ("stages", [0, 1, 2, 3]), ("swizzle", [False, True]))
def test_stages(stages: int, swizzle: bool) -> None:
    tiling = tilings.Tiling(64, 64, 32, 2, 2, 32, 32, 16, swizzle, stages)
    run_lowered(Target(GFX942), m=64, n=64, k=160, tiling=tiling)
    tiling = tilings.Tiling(64, 64, 32, 2, 2, 16, 8, 16, swizzle, stages)
    run_lowered(Target("cuda -arch=sm_80"), m=64, n=64, k=160, tiling=tiling)


@pytest.mark.parametrize("mcpu", ["gfx942", "gfx90a"])  # eight dies, one
def test_bands(mcpu: str) -> None:
    target = Target(f"rocm -mcpu={mcpu}")
    tiling = tilings.Tiling(32, 32, 64, 2, 2, 16, 16, 32, True, 1, group_m=4)
    run_lowered(target, m=256, n=96, k=64, tiling=tiling)
    run_lowered(target, m=256, n=96, k=64, batch=2, tiling=tiling)
    shape = tilings.Shape(256, 96, 64, 1, "float16", "float32", padded=False)
    assert tilings.why_not(tiling, shape, target) is None
    assert "bands" in (tilings.why_not(tiling, replace(shape, m=192), target) or "")
    assert tilings.why_not(tiling, replace(shape, m=128), target) is None
    run_lowered(target, m=128, n=96, k=64, tiling=tiling)  # twelve tiles: not as many on each die


def test_operands_of_mma_sync_come_by_ldmatrix_and_cp_async() -> None:
    target = Target("cuda -arch=sm_80")
    for tb in (True, False):
        args, c, out = product(2048, 2048, 256, tb=tb)
        ptx = tec.build(scheduled(target, args, c, out), args, target, name="mm").imported_modules[0].get_source("ptx")
        assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in ptx
        assert ("ldmatrix.sync.aligned.m8n8.x2.trans" in ptx) == (not tb)
        assert "cp.async.cg.shared.global" in ptx and ptx.count("bar.sync") <= 2


@pytest.mark.parametrize(("row", "dtype"), [(64, "float16"), (32, "float16"), (32, "float32"), (64, "int8")])
def test_swizzled_reads_touch_every_bank_once(row: int, dtype: str) -> None:
    """8 lanes that read 16 bytes each of 8 neighbouring rows use the 32 banks without a conflict."""
    from tec.ir.passes.swizzle_shared import _shape

    buffer = te.decl_buffer((128, row), dtype, scope="shared")
    piece, line, turns = _shape(buffer, "f")
    bytes_ = 16 // piece
    for first in range(0, 32, 8):
        for column in range(row // piece):
            places = [x * row * bytes_ + ((column ^ (x // line % turns)) * 16) for x in range(first, first + 8)]
            assert len({p // 16 % 8 for p in places}) == 8


def kernel(target: str, dtype: str = "float16", tb: bool = True, **kwargs: Any) -> KernelReport:
    tgt = Target(target)
    args, c, out = product(4096, 4096, 4096, dtype, tb=tb, **kwargs)
    module = tec.build(scheduled(tgt, args, c, out), args, tgt, name="mm")
    return report(module.imported_modules[0].get_source("asm"))[0]


def test_lanes_with_32_bytes_of_a_tile_take_them_by_whole_accesses() -> None:
    """A lane's 32 elements of eight bits (gfx950) are two pieces of a swizzled row, 24 reads of 16 bytes; byte by byte it took 384, and 16 times as long."""
    r = kernel("rocm -mcpu=gfx950", dtype="float8_e4m3")
    assert "f8f6f4" in r.matrix_kind and r.matrix >= 8 and min(r.lds_reads) == 128 and r.spills == 0


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_the_main_loop_on_cdna(chip: str) -> None:
    """128 x 128 x 64 in float16: what a hand-tuned kernel looks like."""
    r = kernel(f"rocm -mcpu={chip}", epilogue="float16")
    assert r.spills == 0 and r.scratch_bytes == 0 and r.vgprs <= 256 and r.has_loop
    assert r.matrix >= 64 and "16x16x16" in r.matrix_kind and r.barriers <= 2
    assert set(r.global_loads) == {128} and min(r.lds_reads) >= 64 and set(r.lds_writes) == {128}
    assert r.valu <= 40


@thinned(
    1,
    ("chip", ["gfx90a", "gfx942"]),
    ("dtype, tb", [("float16", True), ("bfloat16", False), ("float32", True), ("int8", True)]),
)
def test_loads_of_a_step_are_covered_by_its_matrix_work(chip: str, dtype: str, tb: bool) -> None:
    """Each is waited for half a step and more after it was started; LLVM alone starts the last behind nearly all the work."""
    r = kernel(f"rocm -mcpu={chip}", dtype, tb)
    assert r.spills == 0 and (r.load_cover or 0) >= 0.5


@pytest.mark.parametrize(
    ("wait", "cover"), [("s_waitcnt vmcnt(0)", 0.5), ("s_waitcnt vmcnt(1)", 1.0), ("s_wait_loadcnt_dscnt 0x1ff", 1.0)]
)
def test_the_cover_of_loads(wait: str, cover: float) -> None:
    work = "\tv_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]"
    load = "\tglobal_load_dwordx4 v[20:23], v[16:17], off"
    body = [".LBB0_1:", load, work, load, work, f"\t{wait}", "\ts_cbranch_scc1 .LBB0_1"]
    assert KernelReport("k", has_loop=True, matrix=2, body=body).load_cover == cover
    assert KernelReport("k", has_loop=True, matrix=0, body=body).load_cover is None


def test_the_main_loop_on_rdna3() -> None:
    r = kernel("rocm -mcpu=gfx1100")
    assert r.spills == 0 and r.vgprs <= 256 and r.matrix >= 32 and set(r.global_loads) == {128}


@thinned(1, ("mcpu", ["gfx1100", "gfx1201"]), ("epilogue", ["float16", "float32"]))
def test_results_are_stored_in_pieces_on_rdna(mcpu: str, epilogue: str) -> None:
    args, c, out = product(256, 256, 128, epilogue=epilogue)
    target = Target(f"rocm -mcpu={mcpu}")
    module = tec.build(scheduled(target, args, c, out), args, target)
    text = module.imported_modules[0].get_source("asm")
    assert set(re.findall(r"\b(?:global|buffer)_store_\w+", text)) == {"global_store_b128"}


def test_products_that_do_not_fit_are_left_alone() -> None:
    for kwargs in ({"m": 8, "n": 64, "k": 64}, {"m": 64, "n": 64, "k": 63}):
        args, c, out = product(**kwargs)
        assert not matrix_schedule.schedule(tec.create_schedule(out.op), c.op, out.op, Target(GFX942))
    args, c, out = product(64, 64, 64)
    assert not matrix_schedule.schedule(tec.create_schedule(out.op), c.op, out.op, Target("rocm -mcpu=gfx906"))
    turned = te.compute((64, 64), lambda i, j: c[j, i], name="T")
    assert not matrix_schedule.schedule(tec.create_schedule(turned.op), c.op, turned.op, Target(GFX942))


# ---- te.intrin


def test_names_and_lookup() -> None:
    names = te.intrin.names()
    assert "mfma float32 32x32x8 float16" in names and "wmma int32 16x16x16 int8" in names
    assert len(set(names)) == len(names)
    mx = te.intrin.get("mfma float32 32x32x8 float16")
    assert mx.instr.a_elems == 4 and mx.mma.reduce_init is not None
    with pytest.raises(TargetError, match="unknown matrix instruction"):
        te.intrin.get("mfma of everything")
    with pytest.raises(TargetError, match=r"no matrix instruction 64x64x\?"):
        te.intrin.matrix(GFX942, "float16", 64, 64)
    with pytest.raises(TargetError, match="no matrix instruction"):
        te.intrin.matrix("rocm -mcpu=gfx906", "float16")
    with pytest.raises(TargetError, match="dot4 takes"):
        te.intrin.dot4("float32")


def test_dot4_by_tensorize() -> None:
    a, b = te.placeholder((16, 32), "int8", name="A"), te.placeholder((8, 32), "int8", name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((16, 8), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="C")
    s = tec.create_schedule(c.op)
    i, j = c.op.axis
    ko, ki = s[c].split(k, factor=4)
    jo, ji = s[c].split(j, factor=1)
    s[c].reorder(i, jo, ko, ji, ki)
    s[c].bind(i, te.thread_axis("blockIdx.x"))
    s[c].bind(jo, te.thread_axis("threadIdx.x"))
    s[c].tensorize(ji, te.intrin.dot4())
    module = tec.build(s, [a, b, c], GFX942, name="dots")
    assert "v_dot4" in module.imported_modules[0].get_source("asm")


# ---- mistakes


def test_a_fragment_that_no_tile_operation_touches() -> None:
    args, c, out = product(64, 64, 64)
    s = tec.create_schedule(out.op)
    cached = s.cache_write(out, "fragment.acc")
    s[out].bind(out.op.axis[0], te.thread_axis("blockIdx.x"))
    s[cached].compute_at(s[out], s[out].op.axis[0])
    with pytest.raises(LoweringError, match="fragment"):
        tec.lower(s, args, target=GFX942)


def test_an_instruction_that_the_chip_lacks() -> None:
    args, c, out = product(128, 128, 64)
    s = scheduled(Target(GFX942), args, c, out)
    with pytest.raises(LoweringError, match="has no matrix instruction"):
        tec.lower(s, args, target="rocm -mcpu=gfx1100")
