"""MFMA and WMMA against matrix products: every shape; small integers, so that results are exact."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tec.emulator.errors import EmulationError
from tec.emulator.isa import opcodes
from tec.emulator.isa.matrix import Mfma, parse_mfma
from tec.emulator.isa.mfma import _names
from tec.emulator.isa.table import ROWS
from tec.emulator.isa.wmma_cdna5 import NAMES as GFX1250  # test_matrix_cdna5.py
from tests import seeds
from tests.thinned import thinned

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
  %r = call {C} asm sideeffect "{text}", "=&v,v,v,0"({A} %x, {A} %y, {C} %z)
  store {C} %r, ptr addrspace(1) %pc, align 4
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="{lanes},{lanes}" "amdgpu-no-implicitarg-ptr"{wave64} }}"""


def registers(n: int) -> str:
    return f"<{n} x i32>" if n > 1 else "i32"


@cache
def kernel(chip: str, text: str, lanes: int, operand: int, result: int) -> Any:
    """(driver, kernel) of one instruction, of so many registers: compiled once for all its values."""
    wave64 = ' "target-features"="+wavefrontsize64"' if lanes == 64 and chip.startswith("gfx1") else ""
    shapes = {"A": registers(operand), "C": registers(result)}
    return function(_IR.format(text=text, lanes=lanes, wave64=wave64, **shapes), chip)


def run(chip: str, text: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a, b, c: one row a lane, as registers."""
    lanes = len(a)
    driver, k = kernel(chip, text, lanes, a.view(np.uint32).shape[1], c.view(np.uint32).shape[1])
    assert k.info.wavefront_size == lanes
    pa, pb, pc = upload(driver, a), upload(driver, b), upload(driver, c)
    driver.launch(k, (1, 1, 1), (lanes, 1, 1), 0, struct.pack("<QQQ", pa, pb, pc))
    return download(driver, pc, c)


def encode(values: np.ndarray, source: str) -> np.ndarray:
    kinds = {"f32": np.float32, "xf32": np.float32, "f16": np.float16, "i8": np.int8, "f64": np.float64}
    if source == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(kinds[source])


CDNA2 = [n for n in _names() if "_1k" in n or not n.split("x")[-1].lstrip("0123456789").startswith("_")]
GFX950 = [n for n in _names() if re.search(r"(32x32x16|16x16x32)_b?f16$|32x32x32_i8$|16x16x64_i8$", n)]
FLOAT8 = [n for n in _names() if "fp8" in n or "bf8" in n]
CDNA3 = [n for n in _names() if n not in {*CDNA2, *GFX950, *FLOAT8}]
TRIED = [("gfx90a", n) for n in CDNA2] + [("gfx942", n) for n in CDNA3] + [("gfx950", n) for n in GFX950]


def number(byte: int, kind: str, fnuz: bool) -> float:
    """An 8-bit float by its definition: sign, exponent, mantissa; FNUZ has no negative zero, no infinity, one NaN."""
    width, fraction = {"fp8": (4, 3), "bf8": (5, 2)}[kind]
    sign, e, f = -1.0 if byte >> 7 else 1.0, byte >> fraction & (1 << width) - 1, byte & (1 << fraction) - 1
    bias = (1 << width - 1) - (not fnuz)
    if fnuz and byte == 0x80:
        return float("nan")
    if not fnuz and e == (1 << width) - 1 and (kind == "bf8" or f == (1 << fraction) - 1):
        return sign * float("inf") if kind == "bf8" and f == 0 else float("nan")
    if e == 0:
        return sign * f * 2.0 ** (1 - bias - fraction)
    return sign * (1 + f / (1 << fraction)) * 2.0 ** (e - bias)


def spread_inputs(s: Mfma, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A (block, row, k) and B (block, k, column) by lane and element, in the manual's layout."""
    a, b = np.zeros((64, s.per_lane), A.dtype), np.zeros((64, s.per_lane), B.dtype)
    for l in range(64):
        for i in range(s.per_lane):
            row, block, k = l % s.m, l // s.m % s.blocks, l // (s.m * s.blocks) * s.per_lane + i
            a[l, i], b[l, i] = A[block, row, k], B[block, k, row]
    return a, b


def spread_result(s: Mfma, m: np.ndarray) -> np.ndarray:
    out = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[s.out]
    return np.array([[m[s.place(q, l)] for q in range(s.out_items)] for l in range(64)], out)


@pytest.mark.parametrize("chip_op", TRIED, ids=lambda p: p[1])
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
    a, b = spread_inputs(s, A, B)
    got = run(chip, f"{op} $0, $1, $2, $3", encode(a, s.source), encode(b, s.source), spread_result(s, C))
    assert (got == spread_result(s, C + A @ B)).all()


@thinned(1, ("chip", ["gfx942", "gfx950"]), ("op", FLOAT8))
def test_mfma_of_8_bit_floats(chip: str, op: str) -> None:
    """Every pair of formats: FNUZ on gfx942, OCP on gfx950; small values, so that sums are exact; and all 256 codes."""
    s = parse_mfma(op)
    assert s is not None
    fnuz = chip == "gfx942"
    kinds = s.source.split("_")
    rng = np.random.default_rng(3)
    tables = [np.array([number(x, k, fnuz) for x in range(256)]) for k in kinds]
    # Codes of numbers with few bits and a small exponent: a sum of 32 products is then exact in f32.
    plain = [[x for x in range(256) if abs(t[x]) in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)] for t in tables]
    A = rng.choice(plain[0], (1, s.m, s.k)).astype(np.uint8)
    B = rng.choice(plain[1], (1, s.k, s.n)).astype(np.uint8)
    C = rng.integers(-8, 8, (1, s.m, s.n))
    a, b = spread_inputs(s, A, B)
    got = run(chip, f"{op} $0, $1, $2, $3", a, b, spread_result(s, C))
    assert (got == spread_result(s, C + tables[0][A] @ tables[1][B])).all()
    if op.startswith("v_mfma_f32_16x16"):  # each code of A alone against a one
        one = int(np.flatnonzero(tables[1] == 1.0)[0])
        for first in range(0, 256, 16):
            A, B = np.zeros((1, s.m, s.k), np.uint8), np.zeros((1, s.k, s.n), np.uint8)
            A[0, :, 0], B[0, 0, :] = np.arange(first, first + 16), one
            got = run(chip, f"{op} $0, $1, $2, $3", *spread_inputs(s, A, B), spread_result(s, np.zeros((1, s.m, s.n))))
            want = spread_result(s, np.broadcast_to(tables[0][A[:, :, :1]], (1, s.m, s.n)))
            assert np.array_equal(got, want, equal_nan=True), first


def lanes_of_b(blgp: int) -> np.ndarray:
    """The manual's list: all lanes; lanes 0-31 twice; 32-63 twice; a turn by 16; one quarter four times."""
    lane = np.arange(64)
    halves = {0: lane, 1: np.tile(lane[:32], 2), 2: np.tile(lane[32:], 2), 3: np.roll(lane, -16)}
    return halves[blgp] if blgp < 4 else np.tile(lane[16 * (blgp - 4) : 16 * (blgp - 3)], 4)


BROADCAST = [
    ("gfx90a", "v_mfma_f32_4x4x1f32"), ("gfx90a", "v_mfma_f32_32x32x4f16"), ("gfx90a", "v_mfma_i32_16x16x4i8"),
    ("gfx942", "v_mfma_f32_4x4x4_16b_f16"), ("gfx942", "v_mfma_f32_16x16x1_4b_f32"), ("gfx942", "v_mfma_i32_32x32x4_2b_i8"),
    ("gfx942", "v_mfma_f32_16x16x4_4b_bf16"),
]  # fmt: skip


@pytest.mark.parametrize("chip_op", BROADCAST, ids=lambda p: p[1])
def test_broadcast_and_lane_patterns(chip_op: tuple[str, str]) -> None:
    """cbsz and abid: a group of 2**cbsz blocks takes A from one of them; blgp: B's lanes read others."""
    chip, op = chip_op
    s = parse_mfma(op)
    assert s is not None
    rng = np.random.default_rng(7)
    A, B = rng.integers(-8, 8, (s.blocks, s.m, s.k)), rng.integers(-8, 8, (s.blocks, s.k, s.n))
    C = rng.integers(-8, 8, (s.blocks, s.m, s.n))
    a, b = spread_inputs(s, A, B)
    top = s.blocks.bit_length() - 1
    kinds = [(0, 0, p) for p in range(1, 8)] + [(1, 1, 0), (top, 0, 0), (top, s.blocks - 1, 3), (1, 0, 6)]
    if not seeds.number():  # each kind with two or three of the instructions
        kinds = kinds[BROADCAST.index(chip_op) % 3 :: 3]
    for cbsz, abid, blgp in kinds:
        # Block by block: A by whole blocks, B by lanes and then back to blocks.
        taken = A[[n // 2**cbsz * 2**cbsz + abid for n in range(s.blocks)]]
        moved, Bp = b[lanes_of_b(blgp)], np.zeros_like(B)
        for l in range(64):
            for i in range(s.per_lane):
                Bp[l // s.m % s.blocks, l // (s.m * s.blocks) * s.per_lane + i, l % s.m] = moved[l, i]
        mods = "".join(f" {n}:{v}" for n, v in (("cbsz", cbsz), ("abid", abid), ("blgp", blgp)) if v)
        got = run(chip, f"{op} $0, $1, $2, $3{mods}", encode(a, s.source), encode(b, s.source), spread_result(s, C))
        assert (got == spread_result(s, C + taken @ Bp)).all(), mods


def test_broadcasts_that_no_chip_has() -> None:
    for chip, op, mods in (
        ("gfx90a", "v_mfma_f32_32x32x2f32", "cbsz:1"), ("gfx90a", "v_mfma_f32_32x32x1f32", "cbsz:2"),
        ("gfx90a", "v_mfma_f32_4x4x1f32", "cbsz:1 abid:2"), ("gfx90a", "v_mfma_f64_16x16x4f64", "blgp:1"),
        ("gfx942", "v_mfma_f32_16x16x8_xf32", "blgp:1"), ("gfx90a", "v_mfma_f64_4x4x4f64", "neg:[1,0,0]"),
    ):  # fmt: skip
        s = parse_mfma(op)
        assert s is not None
        a = encode(np.zeros((64, s.per_lane)), s.source)
        with pytest.raises(EmulationError, match="not modelled"):
            run(chip, f"{op} $0, $1, $2, $3 {mods}", a, a, spread_result(s, np.zeros((s.blocks, s.m, s.n))))


def test_signs_of_doubles() -> None:
    """gfx942's f64 instructions negate whole operands."""
    for op in ("v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"):
        s = parse_mfma(op)
        assert s is not None
        rng = np.random.default_rng(9)
        A, B, C = (rng.standard_normal((s.blocks, *z)) for z in ((s.m, s.k), (s.k, s.n), (s.m, s.n)))
        a, b = spread_inputs(s, A, B)
        for neg in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)):
            x, y, z = (-1.0 if n else 1.0 for n in neg)
            text = f"{op} $0, $1, $2, $3 neg:[{neg[0]},{neg[1]},{neg[2]}]"
            got = run("gfx942", text, a, b, spread_result(s, C))
            assert np.allclose(got, spread_result(s, z * C + (x * A) @ (y * B)), rtol=0, atol=1e-13)


def test_no_matrix_row_is_left_out() -> None:
    rows = {n for n, r in ROWS.items() if r.kind == "matrix"}
    mixed = {n for n in rows if n.endswith("_f8f6f4")}  # test_mixed_floats.py
    sparse = {n for n in rows if n.startswith(("v_smfmac_", "v_swmmac_"))}  # test_matrix_sparse.py
    known = {n for _, n in TRIED} | set(FLOAT8) | {w.name for w in WMMA} | mixed | sparse | set(GFX1250)
    assert rows == known, rows ^ known


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


@dataclass(frozen=True)
class Wmma:
    """One WMMA opcode: types of A and B, of the products' sum, of the result, and k."""

    name: str
    sources: tuple[str, str]
    out: str
    k: int = 16
    new_only: bool = False


WMMA = [
    Wmma("v_wmma_f32_16x16x16_f16", ("f16", "f16"), "f32"), Wmma("v_wmma_f32_16x16x16_bf16", ("bf16", "bf16"), "f32"),
    Wmma("v_wmma_f16_16x16x16_f16", ("f16", "f16"), "f16"), Wmma("v_wmma_bf16_16x16x16_bf16", ("bf16", "bf16"), "bf16"),
    Wmma("v_wmma_i32_16x16x16_iu8", ("iu8", "iu8"), "i32"), Wmma("v_wmma_i32_16x16x16_iu4", ("iu4", "iu4"), "i32"),
    Wmma("v_wmma_i32_16x16x32_iu4", ("iu4", "iu4"), "i32", 32, True),
    *(Wmma(f"v_wmma_f32_16x16x16_{x}_{y}", (x, y), "f32", 16, True) for x in ("fp8", "bf8") for y in ("fp8", "bf8")),
]  # fmt: skip


def places(new: bool, lanes: int, k: int, bits: int = 16) -> tuple[list[list[int]], list[list[int]]]:
    """(k of each element of a lane's A, row of each item of a lane's result): AMD's matrix instruction calculator.

    gfx11: a lane has all k; row (lanes / 16) q + lane div 16. gfx12: its equations for RDNA 4, by type and size of the wave.
    """
    groups, items = lanes // 16, 256 // lanes
    if not new:
        return [list(range(k))] * lanes, [[groups * q + l // 16 for q in range(items)] for l in range(lanes)]
    ks = []
    for l in range(lanes):
        half, third = l // 16 % 2, l // 32
        if bits == 16:
            ks.append([8 * (r // 2) + 4 * (l // 16) + 2 * (r % 2) + h for r in range(128 // lanes) for h in (0, 1)])
        elif bits == 4 and k == 16:
            ks.append([8 * half + x for x in range(8)])  # in wave64 lanes from 32 on are not looked at
        else:
            share = k // 2
            ks.append([share * half + share // 2 * third + x for x in range(share * 32 // lanes)])
    if lanes == 32:
        return ks, [[8 * (l // 16) + q for q in range(8)] for l in range(32)]
    return ks, [[8 * (l // 16 % 2) + 4 * (l // 32) + q for q in range(4)] for l in range(64)]


def packed(values: np.ndarray, kind: str) -> np.ndarray:
    """Elements of each lane as registers."""
    if kind == "iu4":
        nibbles = values.astype(np.uint8) & 15
        return np.ascontiguousarray(nibbles[:, ::2] | nibbles[:, 1::2] << 4)
    if kind in ("iu8", "fp8", "bf8"):
        return values.astype(np.int8 if kind == "iu8" else np.uint8)
    return encode(values, kind)


@thinned(1, ("chip_lanes", [("gfx1100", 32), ("gfx1100", 64), ("gfx1200", 32), ("gfx1200", 64)]), ("w", WMMA))
def test_wmma(chip_lanes: tuple[str, int], w: Wmma) -> None:
    chip, lanes = chip_lanes
    new = chip == "gfx1200"
    if w.new_only and not new:
        pytest.skip("an opcode of gfx12")
    rng = np.random.default_rng(2)
    lo, hi = (0, 16) if w.sources[0] == "iu4" else (-2, 3) if w.out == "bf16" else (-8, 8)  # bf16 sums: 8 bits
    A, B = rng.integers(lo, hi, (16, w.k)), rng.integers(lo, hi, (w.k, 16))
    if w.sources[0] in ("fp8", "bf8"):
        table = [np.array([number(x, kind, False) for x in range(256)]) for kind in w.sources]
        few = [[x for x in range(256) if abs(t[x]) in (0.0, 0.5, 1.0, 2.0, 3.0)] for t in table]
        A, B = rng.choice(few[0], (16, w.k)), rng.choice(few[1], (w.k, 16))
        values = table[0][A], table[1][B]
    else:
        values = A, B
    C = rng.integers(-8, 8, (16, 16))
    bits = {"f16": 16, "bf16": 16, "iu4": 4}.get(w.sources[0], 8)
    ks, rows = places(new, lanes, w.k, bits)
    ignored = [new and (bits, w.k) == (4, 16) and l >= 32 for l in range(lanes)]
    a = packed(np.array([[A[l % 16, k] ^ 5 * ignored[l] for k in ks[l]] for l in range(lanes)]), w.sources[0])
    b = packed(np.array([[B[k, l % 16] ^ 5 * ignored[l] for k in ks[l]] for l in range(lanes)]), w.sources[1])

    def spread(m: np.ndarray, old: np.ndarray | None = None, high: bool = False) -> np.ndarray:
        by_lane = np.array([[m[r, l % 16] for r in rows[l]] for l in range(lanes)])
        if w.out in ("f32", "i32"):
            return by_lane.astype({"f32": np.float32, "i32": np.int32}[w.out])
        halves = encode(by_lane, w.out).view(np.uint16)
        if new:
            return halves
        # gfx11: one value a register, in the half that op_sel names.
        out = np.full((*halves.shape, 2), 0x1234, np.uint16)
        out[..., int(high)] = halves
        return out.reshape(lanes, -1)

    integer = w.out == "i32"
    signed = " neg_lo:[1,1,0]" if integer else ""
    if w.sources[0] == "iu4":
        values = tuple((v ^ 8) - 8 for v in values)
    text = f"{w.name} $0, $1, $2, $3"
    got = run(chip, text + signed, a, b, spread(C))
    assert (got == spread(C + values[0] @ values[1])).all()
    if integer:  # unsigned A; and a result that saturates
        plain = (A & (255 if w.sources[0] == "iu8" else 15), values[1])
        got = run(chip, text + " neg_lo:[0,1,0]", a, b, spread(C))
        assert (got == spread(C + plain[0] @ plain[1])).all()
        far = np.where(C > 0, 2**31 - 1, -(2**31))
        got = run(chip, text + signed + " clamp", a, b, spread(far))
        assert (got == spread(np.clip(far + values[0] @ values[1], -(2**31), 2**31 - 1))).all()
        return
    if w.out in ("f16", "bf16") and not new:
        got = run(chip, text + " op_sel:[0,0,1]", a, b, spread(C, high=True))
        assert (got == spread(C + values[0] @ values[1], high=True)).all()
    if w.sources[0] in ("f16", "bf16"):  # signs of the low and the high halves of A's and B's registers; |C| and -|C|
        parity = np.array([(-1.0) ** (k % 2) for k in range(w.k)])
        got = run(chip, text + " neg_lo:[0,1,0] neg_hi:[1,0,0]", a, b, spread(C))
        assert (got == spread(C + (A * parity) @ (B * -parity[:, None]))).all()
        got = run(chip, text + " neg_lo:[0,0,1] neg_hi:[0,0,1]", a, b, spread(C))
        assert (got == spread(-np.abs(C) + A @ B)).all()


def test_wmma_forms_that_are_refused() -> None:
    a, c = np.zeros((32, 4), np.uint32), np.zeros((32, 8), np.float32)
    wide = np.zeros((32, 8), np.uint32)
    for chip, text, x, y in (
        ("gfx1200", "v_wmma_f32_16x16x16_fp8_fp8 $0, $1, $2, $3 neg_lo:[1,0,0]", a[:, :2].copy(), c),
        ("gfx1100", "v_wmma_i32_16x16x16_iu8 $0, $1, $2, $3 neg_hi:[1,0,0]", a, c),
        ("gfx1100", "v_wmma_f32_16x16x16_f16 $0, $1, $2, $3 clamp", wide, c),
        ("gfx1100", "v_wmma_i32_16x16x32_iu4 $0, $1, $2, $3", a[:, :2].copy(), c),
    ):
        with pytest.raises(EmulationError, match="not modelled"):
            run(chip, text, x, x, y)


def test_operands_are_staged_anew_when_their_registers_change() -> None:
    """Three products of two registers, one of which changes after the first and is A as well as B in the third."""
    op = "v_mfma_f32_16x16x4_f32"
    s = parse_mfma(op)
    assert s is not None
    rng = np.random.default_rng(2)
    A, B, C = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((1, 16, 4), (1, 4, 16), (1, 16, 16)))
    lines = [
        f"{op} $0, $1, $2, $3", "v_add_f32 $2, $2, $2", f"{op} $0, $1, $2, $0", f"{op} $0, $2, $2, $0", "s_nop 15"
    ]  # fmt: skip
    got = run("gfx942", "\\0A".join(lines), *spread_inputs(s, A, B), spread_result(s, C))
    twice = 2 * B
    assert (got == spread_result(s, C + A @ B + A @ twice + twice.transpose(0, 2, 1) @ twice)).all()
