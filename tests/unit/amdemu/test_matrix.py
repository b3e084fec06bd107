"""MFMA and WMMA against matrix products: every shape; small integers, so that results are exact."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.runtime.amdemu import opcodes
from tec.runtime.amdemu.matrix import parse_mfma
from tec.runtime.amdemu.table_matrix import _names

from .harness import download, function, upload

opcodes.load()
_IR = """define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {A}, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr {A}, ptr addrspace(1) %b, i32 %t
  %pc = getelementptr {C}, ptr addrspace(1) %c, i32 %t
  %x = load {A}, ptr addrspace(1) %pa, align 4
  %y = load {A}, ptr addrspace(1) %pb, align 4
  %z = load {C}, ptr addrspace(1) %pc, align 4
  %r = call {C} asm sideeffect "{text}", "=v,v,v,0"({A} %x, {A} %y, {C} %z)
  store {C} %r, ptr addrspace(1) %pc, align 4
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="{lanes},{lanes}" "amdgpu-no-implicitarg-ptr" }}"""


def registers(n: int) -> str:
    return f"<{n} x i32>" if n > 1 else "i32"


def run(chip: str, text: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a, b, c: one row a lane, as registers."""
    lanes = len(a)
    shapes = {"A": registers(a.view(np.uint32).shape[1]), "C": registers(c.view(np.uint32).shape[1])}
    driver, k = function(_IR.format(text=text, lanes=lanes, **shapes), chip)
    pa, pb, pc = upload(driver, a), upload(driver, b), upload(driver, c)
    driver.launch(k, (1, 1, 1), (lanes, 1, 1), 0, struct.pack("<QQQ", pa, pb, pc))
    return download(driver, pc, c)


def encode(values: np.ndarray, source: str) -> np.ndarray:
    kinds = {"f32": np.float32, "xf32": np.float32, "f16": np.float16, "i8": np.int8, "f64": np.float64}
    if source == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(kinds[source])


CDNA2 = [n for n in _names() if "_1k" in n or not n.split("x")[-1].lstrip("0123456789").startswith("_")]
CDNA3 = [n for n in _names() if n not in CDNA2 and "fp8" not in n and "bf8" not in n]


@pytest.mark.parametrize("chip_op", [("gfx90a", n) for n in CDNA2] + [("gfx942", n) for n in CDNA3], ids=lambda p: p[1])
def test_mfma(chip_op: tuple[str, str]) -> None:
    chip, op = chip_op
    s = parse_mfma(op)
    assert s is not None
    places = [[s.place(q, l) for q in range(s.out_items)] for l in range(64)]
    # The layout is a bijection: every element of the result in one place.
    assert len({p for row in places for p in row}) == s.m * s.n * s.blocks == 64 * s.out_items
    rng = np.random.default_rng(1)
    A, B = rng.integers(-8, 8, (s.blocks, s.m, s.k)), rng.integers(-8, 8, (s.blocks, s.k, s.n))
    C = rng.integers(-8, 8, (s.blocks, s.m, s.n))
    a, b = np.zeros((64, s.per_lane)), np.zeros((64, s.per_lane))
    for l in range(64):
        for i in range(s.per_lane):
            row, block, k = l % s.m, l // s.m % s.blocks, l // (s.m * s.blocks) * s.per_lane + i
            a[l, i], b[l, i] = A[block, row, k], B[block, k, row]
    out = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[s.out]
    spread = lambda m: np.array([[m[p] for p in row] for row in places], out)  # noqa: E731
    got = run(chip, f"{op} $0, $1, $2, $3", encode(a, s.source), encode(b, s.source), spread(C))
    assert (got == spread(C + A @ B)).all()


def test_no_matrix_row_is_left_out() -> None:
    pass


def test_layout_of_the_manual() -> None:
    """Places that the CDNA3 manual's figures give."""
    big, small = parse_mfma("v_mfma_f32_32x32x8_f16"), parse_mfma("v_mfma_f32_16x16x16_f16")
    assert big is not None and small is not None
    for l in (0, 17, 31, 32, 63):
        for q in range(16):
            assert big.place(q, l) == (0, 8 * (q // 4) + 4 * (l // 32) + q % 4, l % 32)
        for q in range(4):
            assert small.place(q, l) == (0, 4 * (l // 16) + q, l % 16)
    double = parse_mfma("v_mfma_f64_16x16x4_f64")
    assert double is not None and double.place(2, 37) == (0, 10, 5)


def test_denormals_of_f16() -> None:
    """gfx90a takes f16 denormals as zero, gfx942 keeps them."""
    a = np.full((64, 4), 2.0**-24, np.float16)
    b = np.ones((64, 4), np.float16)
    for chip, op, want in (
        ("gfx90a", "v_mfma_f32_32x32x8f16", 0.0),
        ("gfx942", "v_mfma_f32_32x32x8_f16", 8 * 2.0**-24),
    ):
        got = run(chip, f"{op} $0, $1, $2, $3", a, b, np.zeros((64, 16), np.float32))
        assert (got == want).all()


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1200"])
@pytest.mark.parametrize("source", ["f16", "bf16", "iu8"])
def test_wmma(chip: str, source: str) -> None:
    new = chip == "gfx1200"
    rng = np.random.default_rng(2)
    A, B, C = (rng.integers(-8, 8, (16, 16)) for _ in range(3))
    per_lane = 8 if new else 16
    a, b = np.zeros((32, per_lane)), np.zeros((32, per_lane))
    for l in range(32):
        for i in range(per_lane):
            k = 8 * (l // 16) + i if new else i
            a[l, i], b[l, i] = A[l % 16, k], B[k, l % 16]
    where = lambda q, l: (8 * (l // 16) + q if new else 2 * q + l // 16, l % 16)  # noqa: E731
    integer = source == "iu8"
    out = np.int32 if integer else np.float32
    spread = lambda m: np.array([[m[where(q, l)] for q in range(8)] for l in range(32)], out)  # noqa: E731
    op = (
        "v_wmma_i32_16x16x16_iu8 $0, $1, $2, $3 neg_lo:[1,1,0]"
        if integer
        else f"v_wmma_f32_16x16x16_{source} $0, $1, $2, $3"
    )
    kind = "i8" if integer else source
    got = run(chip, op, encode(a, kind), encode(b, kind), spread(C))
    assert (got == spread(C + A @ B)).all()
    if integer:  # unsigned A
        got = run(chip, op.replace("[1,1,0]", "[0,1,0]"), encode(a, kind), encode(b, kind), spread(C))
        assert (got == spread(C + (A & 255) @ B)).all()
