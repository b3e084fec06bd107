"""gfx950's products of floats of 8, 6 and 4 bits, by formats that modifiers give, with and without powers of two for blocks of 32."""

from __future__ import annotations

import struct
from itertools import product

import numpy as np

from tec.emulator.isa.matrix import FORMATS, Mfma, parse_mixed
from tests.thinned import thinned

from .harness import download, function, upload

_IR = """define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %s, ptr addrspace(1) %c) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {PA}, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr {PB}, ptr addrspace(1) %b, i32 %t
  %ps = getelementptr <2 x i32>, ptr addrspace(1) %s, i32 %t
  %pc = getelementptr {C}, ptr addrspace(1) %c, i32 %t
  %x = load {A}, ptr addrspace(1) %pa, align 4
  %y = load {B}, ptr addrspace(1) %pb, align 4
  %s2 = load <2 x i32>, ptr addrspace(1) %ps, align 4
  %sa = extractelement <2 x i32> %s2, i32 0
  %sb = extractelement <2 x i32> %s2, i32 1
  %z = load {C}, ptr addrspace(1) %pc, align 4
  %r = call {C} asm sideeffect "{text}", "=&v,v,v,0,v,v"({A} %x, {B} %y, {C} %z, i32 %sa, i32 %sb)
  store {C} %r, ptr addrspace(1) %pc, align 4
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }}"""
_WIDTHS = {"fp8": (4, 3), "bf8": (5, 2), "fp6": (2, 3), "bf6": (3, 2), "fp4": (2, 1)}


def table(kind: str) -> np.ndarray:
    """Every number of a format; NaN where 8 bits are none."""
    exponent, fraction = _WIDTHS[kind]
    bits = 1 + exponent + fraction
    out = []
    for code in range(1 << bits):
        e, f = code >> fraction & (1 << exponent) - 1, code & (1 << fraction) - 1
        bias = (1 << exponent - 1) - 1
        value = (f if e == 0 else f + (1 << fraction)) * 2.0 ** (max(e, 1) - bias - fraction)
        if bits == 8 and (code & 127) >= (0x7F if kind == "fp8" else 0x7C):
            value = np.nan
        out.append(-value if code >> bits - 1 else value)
    return np.array(out)


def packed(codes: np.ndarray, kind: str) -> np.ndarray:
    """Codes [lane, element] as registers."""
    bits = 1 + sum(_WIDTHS[kind])
    spread = (codes[:, :, None] >> np.arange(bits)) & 1
    return np.packbits(spread.reshape(len(codes), -1).astype(np.uint8), axis=1, bitorder="little").view(np.uint32)


def run(s: Mfma, text: str, a: np.ndarray, b: np.ndarray, scales: np.ndarray, c: np.ndarray) -> np.ndarray:
    types = {"A": f"<{a.shape[1]} x i32>", "B": f"<{b.shape[1]} x i32>", "C": f"<{c.shape[1]} x float>"}
    # Six registers are no multiple of a vector's alignment.
    types |= {"PA": f"[{a.shape[1]} x i32]", "PB": f"[{b.shape[1]} x i32]"}
    driver, k = function(_IR.format(text=text, **types), "gfx950")
    places = [upload(driver, x) for x in (a, b, scales, c)]
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQQQ", *places))
    return download(driver, places[3], c)


def lanes(s: Mfma, rows: np.ndarray, kind: str) -> np.ndarray:
    """[row, k] by lane: 32 neighbours along k each; of 8 bits 16 from each half of the k (CDNA4 ISA manual 7.1.5.1)."""
    if kind in ("fp8", "bf8"):
        ks = [[16 * (l // s.m) + i % 16 + s.k // 2 * (i // 16) for i in range(32)] for l in range(64)]
    else:
        ks = [list(range(32 * (l // s.m), 32 * (l // s.m) + 32)) for l in range(64)]
    return np.array([rows[l % s.m, ks[l]] for l in range(64)])


@thinned(
    2,
    ("shape", ["16x16x128", "32x32x64"]),
    ("kind_a, kind_b", [*zip(FORMATS, FORMATS), ("fp8", "fp4"), ("fp4", "bf6"), ("fp6", "bf8")]),
    ("scaled", [False, True]),
)
def test_products(shape: str, kind_a: str, kind_b: str, scaled: bool) -> None:
    """Numbers of few bits, so that sums are exact."""
    op = f"v_mfma_{'scale_' * scaled}f32_{shape}_f8f6f4"
    cbsz, blgp = FORMATS.index(kind_a), FORMATS.index(kind_b)
    s = parse_mixed(op, cbsz, blgp)
    assert s is not None and s.per_lane == 32
    rng = np.random.default_rng(cbsz + 8 * blgp)
    tables = [table(kind_a), table(kind_b)]
    plain = [np.flatnonzero(np.isin(np.abs(t), (0.0, 0.5, 1.0, 1.5, 2.0))) for t in tables]
    A, B = (rng.choice(p, (s.m, s.k)) for p in plain)
    C = rng.integers(-8, 8, (s.m, s.m)).astype(np.float32)
    places = [[s.place(q, l)[1:] for q in range(s.out_items)] for l in range(64)]
    spread = np.array([[C[p] for p in row] for row in places], np.float32)
    exponents = rng.integers(124, 130, (2, 64, 4)).astype(np.uint8)  # four bytes a lane, of which one counts
    text = f"{op} $0, $1, $2, $3" + ", $4, $5 op_sel:[1,0,0] op_sel_hi:[0,1,0]" * scaled
    text += f" cbsz:{cbsz}" * (cbsz > 0) + f" blgp:{blgp}" * (blgp > 0)
    scales = np.ascontiguousarray(exponents.transpose(1, 0, 2)).view(np.uint32).reshape(64, 2)
    a, b = packed(lanes(s, A, kind_a), kind_a), packed(lanes(s, B, kind_b), kind_b)
    numbers = [tables[0][A], tables[1][B]]
    if scaled:  # A by byte 1, B by byte 2 of its lanes' registers
        for which, byte in ((0, 1), (1, 2)):
            power = 2.0 ** (exponents[which, :, byte].astype(float) - 127)
            by_row = power.reshape(s.k // 32, s.m).T
            numbers[which] = numbers[which] * np.repeat(by_row, 32, axis=1)
    want = C + numbers[0] @ numbers[1].T
    got = run(s, text, a, b, scales, spread)
    assert np.array_equal(got, np.array([[want[p] for p in row] for row in places], np.float32))


def test_every_code_of_the_small_formats() -> None:
    for kind in ("fp4", "fp6", "bf6"):
        code = FORMATS.index(kind)
        s = parse_mixed("v_mfma_f32_16x16x128_f8f6f4", code, code)
        assert s is not None
        numbers = table(kind)
        one = int(np.flatnonzero(numbers == 1.0)[0])
        for first in range(0, len(numbers), 16):
            A, B = np.zeros((16, 128), int), np.zeros((16, 128), int)
            A[:, 0], B[:, 0] = np.arange(first, first + 16), one
            zero = np.zeros((64, 4), np.float32)
            text = f"v_mfma_f32_16x16x128_f8f6f4 $0, $1, $2, $3 cbsz:{code} blgp:{code}"
            got = run(
                s,
                text,
                packed(lanes(s, A, kind), kind),
                packed(lanes(s, B, kind), kind),
                np.zeros((64, 2), np.uint32),
                zero,
            )
            want = [[numbers[first + s.place(q, l)[1]] for q in range(4)] for l in range(64)]
            assert np.array_equal(got, np.array(want, np.float32))


def test_formats_that_there_are() -> None:
    for cbsz, blgp in product(range(8), range(8)):
        assert (parse_mixed("v_mfma_f32_32x32x64_f8f6f4", cbsz, blgp) is not None) == (max(cbsz, blgp) < 5)


def test_scales_of_bytes_as_hardware_has_them() -> None:
    """What a probe on gfx950 found (Composable Kernel, test/mx_mfma_op/scale_mapping_16x16x128.txt): whose scale element `i` of a lane of row 0 takes."""
    s = parse_mixed("v_mfma_scale_f32_16x16x128_f8f6f4", 0, 0)
    assert s is not None
    scales = np.stack([np.arange(64) + 127, np.full(64, 127)], 1).astype(np.uint32)
    b = packed(np.full((64, 32), 0x38), "fp8")
    for group, item, source in (
        (0, 15, 0),
        (0, 16, 32),
        (1, 3, 0),
        (1, 31, 32),
        (2, 0, 16),
        (2, 17, 48),
        (3, 15, 16),
        (3, 16, 48),
    ):
        a = np.zeros((64, 32), np.uint8)
        a[16 * group, item] = 0x38
        got = run(
            s,
            "v_mfma_scale_f32_16x16x128_f8f6f4 $0, $1, $2, $3, $4, $5",
            packed(a, "fp8"),
            b,
            scales,
            np.zeros((64, 4), np.float32),
        )
        assert got[0, 0] == 2.0**source, (group, item)
