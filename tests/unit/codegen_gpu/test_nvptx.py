"""PTX: everything compiles, instructions are the ones meant, ptxas takes it where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tec
from tec import te
from tec.choices.parts.threads import bind_rows
from tec.codegen.device import build_kernels
from tec.codegen.nvptx import extrema_in_words, machine_of
from tec.errors import CodegenError, TargetError
from tec.ir import Alloc, BufferLoad, BufferStore, Call, Evaluate, Func, Ramp, seq
from tec.ir import build as B
from tec.target import Target
from tests import seeds
from tests.thinned import thinned_rows

from . import kernels as K
from .test_amdgpu import compiled

QUICK = {"sm_70", "sm_90"}
CHIPS = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


@thinned_rows(1, "chip", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CHIPS])
def test_every_kernel_compiles(chip: str) -> None:
    done = compiled(f"cuda -arch={chip}")
    assert not {n: x["error"] for n, x in done.items() if "error" in x}
    assert len(done) > 140
    assert not [n for n, x in done.items() if ".extern .func" in x["asm"]], "calls of functions that nobody brings"


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ("mma_mma_sync_float32_16x8x16_float16", r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32"),
        ("mma_mma_sync_float32_16x8x16_bfloat16", r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32"),
        ("mma_mma_sync_int32_16x8x32_int8", r"mma\.sync\.aligned\.m16n8k32\.row\.col(\.satfinite)?\.s32\.s8\.s8\.s32"),
        ("dot4_int8", r"dp4a\.s32\.s32"),
        ("dot4_uint8", r"dp4a\.u32\.u32"),
        ("shuffle_float32", r"shfl\.sync\.bfly\.b32\s+%r\d+, %r\d+, 16, 31, -1"),
        ("shuffle_float32", r"shfl\.sync\.up\.b32\s+%r\d+, %r\d+, 3, 4096, -1"),
        ("barriers", r"bar\.sync\s+0"),
        ("barriers", r"bar\.warp\.sync"),
        ("async_copies", r"cp\.async\.cg\.shared\.global .*, 16"),
        ("async_copies", r"cp\.async\.wait_group\s+0"),
        ("vector_float32x4", r"ld\.global(\.nc)?\.v4\.b32"),
        ("guarded", r"ld\.global\.nc"),
        ("guarded", r"\.reqntid 64, 1, 1"),
        ("atomic_int32_global", r"atom(\.relaxed\.gpu)?\.global\.add"),
        ("atomic_float32_shared", r"atom(\.relaxed\.cta)?\.shared\.add\.f32"),
        ("wave_ops", r"vote\.sync\.ballot\.b32"),
    ],
)
def test_instruction_selection(kernel: str, wanted: str) -> None:
    assert re.search(wanted, compiled("cuda -arch=sm_90")[kernel]["asm"])


def test_ptx_version() -> None:
    assert ".version 6.3" in compiled("cuda -arch=sm_70")["guarded"]["asm"]
    code = build_kernels([K.guarded()], Target("cuda -arch=sm_90 -ptx=8.3"))
    assert ".version 8.3" in code.asm and code.image.decode().rstrip("\0") == code.asm
    with pytest.raises(TargetError, match="PTX version"):
        machine_of(Target("cuda -arch=sm_90 -ptx=70"))
    with pytest.raises(TargetError, match="PTX version"):
        machine_of(Target("cuda -arch=sm_90 -ptx=new"))


def big_shared(elements: int) -> Func:
    a = K.buf("a", "float32")
    parts = [K.buf(f"s{k}", "float32", elements, scope="shared") for k in range(2)]

    def body(i: Any) -> Any:
        t = B.floormod(i, B.const(64))
        put = [BufferStore(s, BufferLoad(a, (i,)), (t,)) for s in parts]
        total = BufferLoad(parts[0], (B.const(1),)) + BufferLoad(parts[1], (B.const(2),))
        inner = seq(*put, Evaluate(Call("barrier", (), "int32")), BufferStore(a, total, (i,)))
        return Alloc(parts[0], Alloc(parts[1], inner))

    return K.kernel("big", [a], body, lds_bytes=8 * elements)


def test_much_shared_memory_is_dynamic() -> None:
    target = Target("cuda -arch=sm_90")
    small, big = build_kernels([big_shared(6000)], target), build_kernels([big_shared(8001)], target)
    assert ".extern .shared" not in small.asm and small.kernels["big"]["dynamic_shared_bytes"] == 0
    assert ".extern .shared" in big.asm and big.kernels["big"]["dynamic_shared_bytes"] == 2 * 32016


def ldmatrix(num: int, trans: bool, dtype: str = "") -> Func:
    a, c = K.buf("a", "float16", 4 * K.N), K.buf("c", "float16", 64 * 2 * num)
    s = K.buf("s", "float16", 512, scope="shared")

    def body(i: Any) -> Any:
        t = B.floormod(i, B.const(32))
        put = BufferStore(s, BufferLoad(a, (i,)), (t,))
        row = BufferLoad(s, (B.mul(t, 8),))
        got = Call("ldmatrix", (row,), dtype or f"float16x{2 * num}", {"num": num, "trans": trans})
        store = BufferStore(c, got, (Ramp(B.mul(t, 2 * num), B.const(1), 2 * num),))
        return Alloc(s, seq(put, Evaluate(Call("barrier", (), "int32")), store))

    return K.kernel("ldm", [a, c], body, 32, 1)


@pytest.mark.parametrize("num", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix(num: int, trans: bool) -> None:
    asm = build_kernels([ldmatrix(num, trans)], Target("cuda -arch=sm_80")).asm
    assert f"ldmatrix.sync.aligned.m8n8.x{num}{'.trans' if trans else ''}.shared.b16" in asm


def test_mistakes_are_codegen_errors() -> None:
    with pytest.raises(CodegenError, match="ldmatrix of 4"):
        build_kernels([ldmatrix(4, False, "float16x2")], Target("cuda -arch=sm_80"))
    wmma = K.matrix.find(Target("rocm -mcpu=gfx1100"), "float16")
    assert wmma is not None
    with pytest.raises(CodegenError, match=r"mma\.sync has no"):
        build_kernels([K.product(wmma)], Target("cuda -arch=sm_80"))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@thinned_rows(1, "chip", ["sm_75", "sm_90"])
def test_ptxas_takes_it(chip: str, tmp_path: Path) -> None:
    texts = compiled(f"cuda -arch={chip}")
    step = 1 if chip == "sm_90" or seeds.number() else 4  # the older chip's text differs in few kernels
    for name in list(texts)[::step]:
        x = texts[name]
        source = tmp_path / "k.ptx"
        source.write_text(x["asm"])
        done = subprocess.run(
            ["ptxas", f"-arch={chip}", str(source), "-o", str(tmp_path / "k.o")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"


def test_kernels_that_may_begin_early_wait_before_they_read() -> None:
    """And by loads that stay behind the wait: ld.global.nc says that nothing writes the memory while the kernel is there."""
    import tec
    from tec import te

    a = te.placeholder((4096,), name="A")
    c = te.compute((4096,), lambda i: a[i] + 1, name="C")
    text = {}
    for chip in ("sm_89", "sm_90"):
        s = tec.create_schedule(c.op)
        bx, tx = s[c].split(c.op.axis[0], factor=128)
        s[c].bind(bx, te.thread_axis("blockIdx.x"))
        s[c].bind(tx, te.thread_axis("threadIdx.x"))
        s[c].pragma(tx, "early_start")
        module = tec.build(s, [a, c], f"cuda -arch={chip}", name="plus")
        text[chip] = module.get_source("asm")
        (step,) = [x for x in module.program if x["op"] == "launch"]
        assert step.get("early", False) == (chip == "sm_90")
    assert "griddepcontrol" not in text["sm_89"] and "ld.global.nc" in text["sm_89"]
    at = [text["sm_90"].find(x) for x in ("griddepcontrol.launch_dependents", "griddepcontrol.wait", "ld.global")]
    assert at == sorted(at) and min(at) > 0 and "ld.global.nc" not in text["sm_90"]


def test_what_begins_early_unasked() -> None:
    """Of a function that may, a reduction whose parts meet in shared memory, but no tiles of a product."""
    import tec
    from tec import te, topi
    from tec.choices import schedule
    from tec.schedule import to_loops

    x, w = (te.placeholder((1024, 1024), "float16", name=name) for name in "xw")
    for y, own, early in ((topi.sum(x, axis=1), [x], True), (topi.matmul(x, w), [x, w], False)):
        made = schedule([y], "cuda -arch=sm_90")
        f = to_loops(made.schedule, [*own, *made.outputs], name="f").with_attrs(early_start=True)
        module = tec.build(f, target="cuda -arch=sm_90")
        text = module.get_source("asm")
        assert ".shared" in text and ("griddepcontrol.wait" in text) == early
        assert [x.get("early", False) for x in module.program if x["op"] == "launch"] == [early]


def test_extrema_of_16_bits_that_are_compared_are_of_words(tmp_path: Path) -> None:
    """Where a row's first is the lesser of its own and the last, and asked for, LLVM takes both of 16 bits, and ptxas 12.9 and 13.0 answer for the empty half of a register."""
    a = te.placeholder((423, 2, 1288), name="a")
    b = te.compute((425, 9, 1293), lambda i, j, k: te.if_then_else(
        te.all(i >= 1, i < 424, j >= 5, j < 7, k >= 5), a[i - 1, j - 5, k - 5], 0.0
    ), name="b")  # fmt: skip
    s = tec.create_schedule(b.op)
    bind_rows(s, b.op, 64, 4)
    text = tec.build(s, [a, b], "cuda -arch=sm_90a").imported_modules[0].get_source("ptx")
    assert not re.search(r"\b(min|max)\.[su]16", text) and "min.u32 %word0" in text and "setp.eq.b16" in text
    if shutil.which("ptxas"):
        (tmp_path / "k.ptx").write_text(text)
        subprocess.run(["ptxas", "-arch=sm_90a", "k.ptx", "-o", "k.o"], cwd=tmp_path, check=True)


def test_extrema_of_pairs_that_are_compared_are_of_words() -> None:
    pair = "max.s16x2 \t%r3, %r1, %r2;"
    text = extrema_in_words(f"{pair}\n\tmin.s16 \t%rs3, %rs2, -2;\n\tsetp.eq.b16 \t%p1, %rs1, 5;")
    assert text.count("max.s32 %word0, %word0, %word1") == 2 and "mov.b32 %word1, -2; min.s32" in text
    assert not re.search(r"\b(min|max)\.[su]16", text)
    assert extrema_in_words(pair) == pair  # nothing is compared


@pytest.mark.parametrize(("size", "other"), [(4096, 0.0), (4096, 7.0), (None, 0.0)])
def test_a_guarded_load_has_no_branch(size: int | None, other: float) -> None:
    """The place and the value are chosen; of a buffer whose size is not known no element is known to be there, and the load is under a predicate."""
    n = te.var("n") if size is None else size
    a = te.placeholder((n,), "float16", name="a")
    out = te.compute((4096,), lambda i: te.if_then_else(i > 7, a[i - 8], te.const(other, "float16")), name="out")
    s = te.create_schedule(out.op)
    block, thread = s[out].split(out.op.axis[0], factor=256)
    thread, lanes = s[out].split(thread, factor=4)
    s[out].vectorize(lanes)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    ptx = tec.build(s, [a, out], "cuda -arch=sm_90").imported_modules[0].get_source("ptx")
    assert " bra" not in ptx
    assert bool(re.search(r"@%p\d+ ld\.global\.nc", ptx)) == (size is None) and "ld.global.nc" in ptx


@pytest.mark.parametrize(("target", "wide"), [("rocm -mcpu=gfx942", "s_addc_u32"), ("cuda -arch=sm_90a", "s64")])
def test_outputs_of_2_to_the_31_elements(target: str, wide: str) -> None:
    """Their addresses take 64 bits; LLVM once refused them."""
    a = te.placeholder((1 << 31,), "int8", name="a")
    b = te.compute(a.shape, lambda i: a[i] + te.const(1, "int8"), name="b")
    s = tec.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=256)
    s[b].bind(block, tec.thread_axis("blockIdx.x"))
    s[b].bind(thread, tec.thread_axis("threadIdx.x"))
    assert wide in tec.build(s, [a, b], target, name="k").get_source("asm")
