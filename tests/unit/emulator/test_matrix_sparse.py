"""Sparse matrix products (v_smfmac, SWMMAC) against NumPy, with their elements where the manuals and AMD's calculator have them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.errors import EmulationError
from tec.emulator.isa import opcodes
from tec.emulator.isa.matrix import Mfma
from tec.emulator.isa.smfmac import SPARSE
from tec.emulator.isa.table import ROWS
from tec.emulator.isa.wmma_cdna5 import NAMES as GFX1250
from tests.thinned import thinned, thinned_rows

from .harness import compile_ir, download, function, upload
from .test_matrix import encode, number, packed, places, registers, spread_result

opcodes.load()
_SPARSE_IR = """define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, ptr addrspace(1) %i) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {A}, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr {B}, ptr addrspace(1) %b, i32 %t
  %pc = getelementptr {C}, ptr addrspace(1) %c, i32 %t
  %pi = getelementptr i32, ptr addrspace(1) %i, i32 %t
  %x = load {A}, ptr addrspace(1) %pa, align 4
  %y = load {B}, ptr addrspace(1) %pb, align 4
  %z = load {C}, ptr addrspace(1) %pc, align 4
  %w = load i32, ptr addrspace(1) %pi, align 4
  %r = {call}
  store {C} %r, ptr addrspace(1) %pc, align 4
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
{declare}
attributes #0 = {{ "amdgpu-flat-work-group-size"="{lanes},{lanes}" "amdgpu-no-implicitarg-ptr"{wave64} }}"""


def run_sparse(chip: str, text: str, *operands: np.ndarray, call: str = "", declare: str = "") -> np.ndarray:
    """a, b, c, indices, a row a lane; `call` in place of inline assembly."""
    lanes = len(operands[0])
    types = {n: registers(x.view(np.uint32).shape[1]) for n, x in zip("ABC", operands)}
    call = (
        call
        or f'call {types["C"]} asm sideeffect "{text}", "=&v,v,v,v,0"({types["A"]} %x, {types["B"]} %y, i32 %w, {types["C"]} %z)'
    )
    wave64 = ' "target-features"="+wavefrontsize64"' if lanes == 64 and chip.startswith("gfx1") else ""
    driver, kernel = function(_SPARSE_IR.format(call=call, declare=declare, lanes=lanes, wave64=wave64, **types), chip)
    held = [upload(driver, x) for x in operands]
    driver.launch(kernel, (1, 1, 1), (lanes, 1, 1), 0, struct.pack("<QQQQ", *held))
    return download(driver, held[2], operands[2])


def two_of_four(
    rng: np.random.Generator, m: int, k: int, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elements of A that are stored [row, group of four k, 2], their places among the four, and A with zeros between."""
    places = np.sort(np.argsort(rng.random((m, k // 4, 4)))[:, :, :2])
    stored = rng.choice(codes, (m, k // 4, 2))
    A = np.zeros((m, k // 4, 4), stored.dtype)
    np.put_along_axis(A, places, stored, 2)
    return stored, places, A.reshape(m, k)


def sparse_places(m: int, k: int, bits: int, new: bool) -> tuple[list[list[int]], list[list[int]]]:
    """(groups of four k that each two stored elements of a lane are of, k of each element of B), by the manuals' tables.

    CDNA3 7.1.5: neighbours in both. CDNA4 7.5.1.3: A is packed likewise; B[64][16] of 16 bits has k = 0-7, 8-15, 16-23, 24-31 in its rows' first four registers and 32
    more in the others, B[32][32] 0-7, 8-15 and 16 more; of 8 bits twice as many.
    """
    groups = 64 // m
    share = k // groups
    a = [[(l // m * share) // 4 + i for i in range(share // 4)] for l in range(64)]
    if not new:
        return a, [[l // m * share + i for i in range(share)] for l in range(64)]
    chunk = 128 // bits
    return a, [[k // 2 * (e // chunk) + chunk * (l // m) + e % chunk for e in range(share)] for l in range(64)]


def test_places_of_the_cdna4_manual() -> None:
    """Entries of its tables."""
    b = sparse_places(16, 64, 16, True)[1]
    assert b[16][:2] == [8, 9] and b[48][6:10] == [30, 31, 56, 57] and b[0][14:] == [38, 39]
    b = sparse_places(32, 32, 16, True)[1]
    assert b[17][6:10] == [6, 7, 16, 17] and b[40][:2] == [8, 9] and b[63][14:] == [30, 31]
    b = sparse_places(16, 128, 8, True)[1]
    assert b[32][:4] == [32, 33, 34, 35] and b[50][12:20] == [60, 61, 62, 63, 112, 113, 114, 115]
    b = sparse_places(32, 64, 8, True)[1]
    assert b[31][12:20] == [12, 13, 14, 15, 32, 33, 34, 35] and b[32][28:] == [60, 61, 62, 63]


@thinned_rows(10, "row", SPARSE)
def test_sparse_products(row: tuple[str, str, str, int, bool]) -> None:
    """Two of each four k of A are stored, anywhere among the four; the indices' byte or halfword by ABID."""
    out, size, source, bits, new = row
    m, _, k = (int(x) for x in size.split("x"))
    chip = "gfx950" if new else "gfx942"
    dense = Mfma("", out, source, m, m, k, 1)
    rng = np.random.default_rng(m + k)
    stored, where, A = two_of_four(rng, m, k, np.array([-3, -2, -1, 1, 2, 3]))
    B, C = rng.integers(-3, 4, (k, m)), rng.integers(-8, 8, (1, m, m))
    kinds = source.split("_") if "_" in source else [source, source]
    codes = [
        {number(x, t, not new): x for x in range(256) if x != 0x80} if t in ("fp8", "bf8") else None for t in kinds
    ]

    def encoded(values: np.ndarray, which: int) -> np.ndarray:
        table = codes[which]
        return np.vectorize(table.get)(values.astype(float)).astype(np.uint8) if table else encode(values, kinds[which])

    groups, ks = sparse_places(m, k, bits, new)
    half = 2 * len(groups[0])
    sets = 32 // (2 * half)
    a, index, which = np.zeros((64, half), int), np.zeros(64, np.uint32), sets - 1
    for l in range(64):
        for i in range(half):
            group = groups[l][i // 2]
            a[l, i] = stored[l % m, group, i % 2]
            index[l] |= np.uint32(int(where[l % m, group, i % 2]) << (2 * i + which * 2 * half))
    b = np.array([[B[x, l % m] for x in ks[l]] for l in range(64)])
    text = f"v_smfmac_{out}_{size}_{source} $0, $1, $2, $3" + f" abid:{which}" * (which > 0)
    got = run_sparse(chip, text, encoded(a, 0), encoded(b, 1), spread_result(dense, C), index)
    assert (got == spread_result(dense, C + (A @ B)[None])).all()
    if sets > 1:  # where cbsz is set the first indices count
        index = index >> np.uint32(which * 2 * half)
        text = f"v_smfmac_{out}_{size}_{source} $0, $1, $2, $3 cbsz:1 abid:1"
        got = run_sparse(chip, text, encoded(a, 0), encoded(b, 1), spread_result(dense, C), index)
        assert (got == spread_result(dense, C + (A @ B)[None])).all()


def test_sparse_products_that_a_chip_lacks() -> None:
    a, b, c = np.zeros((64, 4), np.uint32), np.zeros((64, 8), np.uint32), np.zeros((64, 4), np.float32)
    for chip, mods in (("gfx942", ""), ("gfx950", " abid:2"), ("gfx950", " cbsz:2")):
        with pytest.raises(EmulationError, match="not modelled"):
            run_sparse(chip, "v_smfmac_f32_16x16x64_f16 $0, $1, $2, $3" + mods, a, b, c, np.zeros(64, np.uint32))


@dataclass(frozen=True)
class Swmmac:
    """One SWMMAC opcode: types of A and B, of the result, k; and its places in wave32 and wave64 (AMD's matrix instruction calculator)."""

    name: str
    sources: tuple[str, str]
    out: str
    k: int = 32


SWMMAC = [
    *(Swmmac(f"v_swmmac_f32_16x16x32_{t}", (t, t), "f32") for t in ("f16", "bf16")),
    *(Swmmac(f"v_swmmac_{t}_16x16x32_{t}", (t, t), t) for t in ("f16", "bf16")),
    Swmmac("v_swmmac_i32_16x16x32_iu8", ("iu8", "iu8"), "i32"), Swmmac("v_swmmac_i32_16x16x32_iu4", ("iu4", "iu4"), "i32"),
    Swmmac("v_swmmac_i32_16x16x64_iu4", ("iu4", "iu4"), "i32", 64),
    *(Swmmac(f"v_swmmac_f32_16x16x32_{x}_{y}", (x, y), "f32") for x in ("fp8", "bf8") for y in ("fp8", "bf8")),
]  # fmt: skip


def swmmac_places(bits: int, k: int, lanes: int) -> tuple[list[list[int]], list[list[int]]]:
    """(first k of each group of four that two stored elements of a lane are of, k of each element of B): the calculator's equations, by register and bits."""
    a, b = [], []
    for l in range(lanes):
        half, third = l // 16 % 2, l // 32
        if bits == 16:
            regs = 8 if lanes == 32 else 4
            b.append([16 * (r // 4) + 8 * (l // 16) + 2 * (r % 4) + h for r in range(regs) for h in (0, 1)])
            a.append([16 * (r // 2) + 8 * (l // 16) + 4 * (r % 2) for r in range(regs // 2)])
        elif bits == 8:
            first = 16 * half + 8 * third
            regs = 4 if lanes == 32 else 2
            b.append([first + 4 * r + x for r in range(regs) for x in range(4)])
            a.append([first + 8 * r + 4 * h for r in range(regs // 2) for h in (0, 1)])
        elif k == 32:
            first = 16 * half + 8 * third
            b.append([first + 8 * r + x for r in range(2 if lanes == 32 else 1) for x in range(8)])
            a.append([16 * half + 4 * x for x in range(4)] if l < 32 else [])
        else:
            first = 32 * half + 16 * third
            regs = 4 if lanes == 32 else 2
            b.append([first + 8 * r + x for r in range(regs) for x in range(8)])
            a.append([first + 16 * r + 4 * x for r in range(regs // 2) for x in range(4)])
    return a, b


@thinned(1, ("lanes", [32, 64]), ("w", SWMMAC))
def test_swmmac(lanes: int, w: Swmmac) -> None:
    rng = np.random.default_rng(w.k)
    kinds = w.sources
    bits = {"f16": 16, "bf16": 16, "iu8": 8, "iu4": 4, "fp8": 8, "bf8": 8}[kinds[0]]
    if kinds[0] in ("fp8", "bf8"):
        tables = [np.array([number(x, t, False) for x in range(256)]) for t in kinds]
        few = [np.array([x for x in range(256) if abs(t[x]) in (0.5, 1.0, 2.0, 3.0)]) for t in tables]
        stored, where, A = two_of_four(rng, 16, w.k, few[0])
        B = rng.choice(few[1], (w.k, 16))
        numbers = [tables[0][A], tables[1][B]]
    else:
        lo, hi = (0, 16) if kinds[0] == "iu4" else (-2, 3) if w.out == "bf16" else (-8, 8)
        stored, where, A = two_of_four(rng, 16, w.k, np.array([x for x in range(lo, hi) if x]))
        B = rng.integers(lo, hi, (w.k, 16))
        numbers = [(x ^ 8) - 8 if kinds[0] == "iu4" else x for x in (A, B)]
    C = rng.integers(-8, 8, (16, 16))
    groups, ks = swmmac_places(bits, w.k, lanes)
    half = 2 * max(len(g) for g in groups)
    sets = 32 // (2 * half)
    a, index = np.full((lanes, half), 5), rng.integers(0, 2**32, lanes, dtype=np.uint32)
    key = sets - 1
    for l in range(lanes):
        for i in range(2 * len(groups[l])):
            group = groups[l][i // 2] // 4
            a[l, i] = stored[l % 16, group, i % 2]
            at = 2 * i + key * 2 * half
            index[l] = index[l] & ~np.uint32(3 << at) | np.uint32(int(where[l % 16, group, i % 2]) << at)
    b = np.array([[B[x, l % 16] for x in ks[l]] for l in range(lanes)])
    rows = places(True, lanes, 16)[1]

    def spread(m: np.ndarray) -> np.ndarray:
        by_lane = np.array([[m[r, l % 16] for r in rows[l]] for l in range(lanes)])
        plain = {"f32": np.float32, "i32": np.int32}
        return by_lane.astype(plain[w.out]) if w.out in plain else encode(by_lane, w.out).view(np.uint16)

    text = f"{w.name} $0, $1, $2, $3" + f" index_key:{key}" * (key > 0)
    regs = [np.ascontiguousarray(packed(a, kinds[0])), np.ascontiguousarray(packed(b, kinds[1])), spread(C), index]
    integer = w.out == "i32"
    got = run_sparse("gfx1200", text + " neg_lo:[1,1,0]" * integer, *regs)
    assert (got == spread(C + numbers[0] @ numbers[1])).all()
    if integer:
        far = np.where(C > 0, 2**31 - 1, -(2**31))
        got = run_sparse("gfx1200", text + " neg_lo:[1,1,0] clamp", *regs[:2], spread(far), index)
        assert (got == spread(np.clip(far + numbers[0] @ numbers[1], -(2**31), 2**31 - 1))).all()
    elif bits == 16:  # signs of the halves of the registers: of A's stored elements, of B's k
        second = np.zeros((16, w.k // 4, 4))
        np.put_along_axis(second, where, np.broadcast_to([1.0, -1.0], where.shape).copy(), 2)
        got = run_sparse("gfx1200", text + " neg_lo:[0,1,0] neg_hi:[1,0,0]", *regs)
        parity = np.array([(-1.0) ** (x % 2) for x in range(w.k)])
        assert (got == spread(C + (numbers[0] * second.reshape(16, w.k)) @ (numbers[1] * -parity[:, None]))).all()


def test_sparse_intrinsics() -> None:
    """LLVM's intrinsics, from the code object alone: operands and modifiers in their encodings."""
    cases = [
        ("gfx950", 64, "llvm.amdgcn.smfmac.f32.32x32x32.bf16", "<8 x bfloat>", "<16 x bfloat>", "<16 x float>", "v_smfmac_f32_32x32x32_bf16 {}, i32 0, i32 1", "abid:1"),
        ("gfx950", 64, "llvm.amdgcn.smfmac.i32.16x16x128.i8", "<4 x i32>", "<8 x i32>", "<4 x i32>", "v_smfmac_i32_16x16x128_i8 {}, i32 0, i32 0", ""),
        ("gfx1200", 32, "llvm.amdgcn.swmmac.f32.16x16x32.f16.v8f32.v8f16.v16f16.i16", "<8 x half>", "<16 x half>", "<8 x float>", "v_swmmac_f32_16x16x32_f16 {}", ""),
    ]  # fmt: skip
    rng = np.random.default_rng(5)
    for chip, lanes, name, a, b, c, text, mods in cases:
        sizes = [int(re.search(r"\d+", t)[0]) * (2 if "half" in t or "bfloat" in t else 4) // 4 for t in (a, b, c)]  # type: ignore[index]
        raw = [rng.integers(0, 2**32, (lanes, n), dtype=np.uint32) & np.uint32(0xBFFFBFFF) for n in sizes]
        index = np.full(lanes, 0x8D4E_E4D8, np.uint32)
        op, _, rest = text.partition(" {}")
        wide = "i16" if "swmmac" in name else "i32"
        value = "%w16" if wide == "i16" else "%w"
        types = [registers(n) for n in sizes]
        call = "\n  ".join(
            [f"bitcast {types[0]} %x to {a}", f"%y2 = bitcast {types[1]} %y to {b}", f"%z2 = bitcast {types[2]} %z to {c}", "%w16 = trunc i32 %w to i16",
             f"%r2 = call {c} @{name}({a} %r0, {b} %y2, {c} %z2, {wide} {value}{rest})", f"%r = bitcast {c} %r2 to {types[2]}"]
        )  # fmt: skip
        ir = _SPARSE_IR.replace("%r = {call}", "%r0 = {call}")
        declare = f"declare {c} @{name}({a}, {b}, {c}, {wide}{', i32 immarg, i32 immarg' if rest else ''})"
        asm, image = compile_ir(
            ir.format(call=call, declare=declare, lanes=lanes, wave64="", **dict(zip("ABC", types))), chip
        )
        assert op in asm
        driver = get_driver(chip)
        kernel = driver.get_function(driver.load_module(0, image), "k")
        held = [upload(driver, x) for x in (*raw, index)]
        driver.launch(kernel, (1, 1, 1), (lanes, 1, 1), 0, struct.pack("<QQQQ", *held))
        got = download(driver, held[2], raw[2])
        want = run_sparse(chip, f"{op} $0, $1, $2, $3 {mods}", *raw, index)
        assert (got == want).all() and (got != raw[2]).any(), name


def test_no_sparse_row_is_left_out() -> None:
    known = {f"v_smfmac_{out}_{size}_{source}" for out, size, source, *_ in SPARSE} | {w.name for w in SWMMAC}
    known |= {n for n in GFX1250 if "swmmac" in n}  # test_matrix_cdna5.py
    assert {n for n in ROWS if n.startswith(("v_smfmac_", "v_swmmac_"))} == known
