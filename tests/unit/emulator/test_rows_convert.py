"""Conversions from and to floats of 8, 6 and 4 bits against NumPy: every one, every byte and half that op_sel names, scales, random bits."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

import numpy as np
import pytest

from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS

from .harness import download, function, upload
from .rows import Bench
from .test_mixed_floats import _WIDTHS, packed, table
from .test_valu import F16, F32, U32, values

opcodes.load()
WIDTHS = _WIDTHS | {"f16": (5, 10), "bf16": (8, 7)}
_NAME = re.compile(
    r"v_cvt_(scalef32_)?(sr_)?(pk32_|pk_|2xpk16_)?(fp8|bf8|fp6|bf6|fp4|f32|f16|bf16)_(fp8|bf8|fp6|bf6|fp4|f32|f16|bf16)$"
)
SMALL = set(_WIDTHS)
OLD = 0xDEADBEEF
CHIPS = ("gfx942", "gfx950", "gfx1200")


@dataclass(frozen=True)
class Conversion:
    name: str
    scaled: bool
    random: bool
    group: str  # "", pk_, pk32_ or 2xpk16_
    out: str
    source: str

    @property
    def narrows(self) -> bool:
        return self.out in SMALL or self.random


def conversions() -> dict[str, Conversion]:
    found = {}
    for name, row in ROWS.items():
        m = _NAME.match(name) if row.generations != (12,) else None  # gfx1250's are test_rows_cdna5's
        if m and ({m[4], m[5]} & SMALL or m[2]):
            found[name] = Conversion(name, bool(m[1]), bool(m[2]), m[3] or "", m[4], m[5])
    return found


ALL = conversions()
PLAIN = sorted(n for n, c in ALL.items() if not c.scaled and c.out not in ("f16", "bf16"))


def numbers(kind: str, fnuz: bool) -> np.ndarray:
    """What each code of a format stands for; infinities and NaN of 8-bit formats are told apart."""
    out = table(kind)
    if kind == "bf8":
        out[[0x7C, 0xFC]] = np.inf, -np.inf
    if fnuz:
        exponent, fraction = _WIDTHS[kind]
        e, f = np.arange(128) >> fraction, np.arange(128) & (1 << fraction) - 1
        plus = np.where(e == 0, f, f + (1 << fraction)) * 2.0 ** (np.maximum(e, 1) - (1 << exponent - 1) - fraction)
        out = np.concatenate([plus, -plus])
        out[0x80] = np.nan
    return out


def narrowed(x: np.ndarray, kind: str, power: np.ndarray | int, random: np.ndarray | None, chip: str) -> np.ndarray:
    """Codes of x / 2**power, without FP16_OVFL: what overflows is infinite or NaN."""
    fnuz = chip == "gfx942" and kind in ("fp8", "bf8")
    exponent, m = WIDTHS[kind]
    least = 1 - ((1 << exponent - 1) - (not fnuz))
    with np.errstate(all="ignore"):
        v = np.abs(x.astype(np.float64)) * 2.0 ** -np.asarray(power, np.float64)
        finite = np.where(np.isfinite(v), v, 2.0**300)
        e = np.maximum(np.frexp(np.where(finite == 0, 1e-300, finite))[1] - 1, least)
        steps = finite / 2.0 ** (e - m)
        if random is None:
            n = np.rint(steps)
        else:
            drop = 23 - m
            n = np.floor((np.floor(steps * 2.0**drop) + (random >> U32(32 - drop))) / 2.0**drop)
        code = n + (e - least) * 2.0**m
    top = {"fp8": 0x7E, "bf8": 0x7B, "fp6": 31, "bf6": 31, "fp4": 7, "f16": 0x7BFF, "bf16": 0x7F7F}[kind]
    over = {"fp8": 0x7F, "bf8": 0x7C, "fp6": 31, "bf6": 31, "fp4": 7, "f16": 0x7C00, "bf16": 0x7F80}[kind]
    if fnuz:
        top, over = 0x7F, 0x80
    code = np.where(code > top, over, code).astype(np.uint32)
    nan = {"fp8": 0x7F, "bf8": 0x7E, "f16": 0x7E00, "bf16": 0x7FC0}.get(kind, over) if not fnuz else 0x80
    code = np.where(np.isnan(x), nan, code)
    negative = np.signbit(x) | np.isnan(x) & (chip == "gfx1200")
    sign = negative.astype(np.uint32) << (exponent + m)
    return np.where(fnuz & (code % 128 == 0), code, code | sign).astype(U32)


def step(seed: np.ndarray) -> np.ndarray:
    return (seed << U32(1)) ^ np.where(seed >> U32(31), U32(197), U32(0))


def bits_of(kind: str) -> int:
    return 1 + sum(WIDTHS[kind])


def halves(words: np.ndarray, t: str) -> np.ndarray:
    """[lane, register] of packed halves as [lane, element] numbers."""
    raw = np.ascontiguousarray(words).view(np.uint16)
    return raw.view(F16).astype(F32) if t == "f16" else (raw.astype(U32) << U32(16)).view(F32)


def as_out(x: np.ndarray, t: str) -> np.ndarray:
    """Numbers as bits of f32, f16 or bf16."""
    with np.errstate(all="ignore"):
        single = x.astype(F32)
    if t == "f32":
        return single.view(U32)
    if t == "f16":
        with np.errstate(all="ignore"):
            return single.astype(F16).view(np.uint16).astype(U32)
    raw = single.view(U32)
    return np.where(np.isnan(single), U32(0x7FC0), (raw + U32(0x7FFF) + (raw >> U32(16) & U32(1))) >> U32(16))


def is_nan(raw: np.ndarray, t: str) -> np.ndarray:
    infinity = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}[t]
    return (raw & U32(0x7FFFFFFF if t == "f32" else 0x7FFF)) > infinity


class Walk:
    """Cases of one chip, in one kernel."""

    def __init__(self, chip: str):
        self.chip = chip
        self.bench = Bench(chip, {"f": 32, "w": 6, "seed": 1, "scale": 1}, first=60)
        self.cases: list[tuple[Conversion, tuple[int, ...], int, int]] = []

    def add(self, c: Conversion, sel: tuple[int, ...]) -> None:
        def reg(name: str, n: int = 1, at: int = 0) -> str:
            first = self.bench.place[name] + at
            return f"v{first}" if n == 1 else f"v[{first}:{first + n - 1}]"

        block = c.group in ("pk32_", "2xpk16_")
        wide = c.out not in SMALL and not c.random
        if c.narrows:
            if block:
                sources = (
                    [reg("f", 16), reg("f", 16, 16)]
                    if c.group == "2xpk16_"
                    else [reg("f", 32 if c.source == "f32" else 16)]
                )
            elif c.group and c.source == "f32":
                sources = [reg("f", 2)] if c.random else [reg("f"), reg("f", 1, 1)]
            else:
                sources = [reg("f")]
        else:
            sources = [reg("w", 6 if block else 1)]
        count = 6 if block else 1
        if wide:
            count = (32 if c.out == "f32" else 16) if block else 2 if c.group and c.out == "f32" else 1
        texts = [f"v[2:{count + 1}]" if count > 1 else "v2", *sources]
        texts += [reg("seed")] * c.random + [reg("scale")] * c.scaled
        tail = ""
        if any(sel):
            tail = (
                f" byte_sel:{sel[0] + 2 * sel[1]}"
                if self.chip == "gfx1200" and not c.group
                else f" op_sel:[{','.join(map(str, sel))}]"
            )
        text = f"{c.name} {', '.join(texts)}{tail}"
        old = [f"v_mov_b32 v{2 + k}, {OLD:#x}" for k in range(count)]
        self.cases.append((c, sel, self.bench.case([text], old, dwords=count), count))


def places(c: Conversion, chip: str) -> list[tuple[int, ...]]:
    """The op_sel lists that a conversion takes."""
    if c.group in ("pk32_", "2xpk16_"):
        return [()]
    bits = (1 + bool(c.group)) * bits_of(c.out if c.narrows else c.source)
    if c.random and c.out in ("f16", "bf16"):
        bits = 16
    if c.narrows:
        packed_source = not c.group or c.source != "f32" or c.random
        sources = (1 if packed_source else 2) + c.random + c.scaled
        lists = [(0,) * sources + (h,) for h in (0, 1)]
        if bits == 8:
            lists = [(0,) * max(2, sources - (sources == 3)) + (b & 1, b >> 1) for b in range(4)]
        if chip == "gfx1200" and bits == 8:
            lists = [(b & 1, b >> 1) for b in range(4)]
        return lists
    if not c.scaled:
        if chip == "gfx1200":
            return [(b & 1, b >> 1) for b in range(4)] if not c.group else [(0, 0), (1, 0)]
        return [(0, 0)]  # SDWA names bytes here
    if bits == 16:
        return [(0, 0, 0), (1, 0, 0)]
    return [(b & 1, b >> 1, h) for b in range(4) for h in ((0, 1) if c.out == "f16" and not c.group else (0,))]


def inputs(lanes: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    f = values(F32, 32 * lanes, seed).reshape(lanes, 32).view(U32)
    near = (rng.standard_normal((lanes, 32)) * 2.0 ** rng.integers(-12, 10, (lanes, 32))).astype(F32).view(U32)
    f = np.where(rng.random((lanes, 32)) < 0.7, near, f)
    scale = (rng.integers(117, 138, lanes).astype(U32) << U32(23)) | rng.integers(0, 2**23, lanes, dtype=U32)
    scale[:3] = 0, 0x3F800000, 0xC0000000
    return {
        "f": f,
        "w": rng.integers(0, 2**32, (lanes, 6), dtype=U32),
        "seed": rng.integers(0, 2**32, lanes, dtype=U32),
        "scale": scale,
    }


def expected(c: Conversion, sel: tuple[int, ...], raw: dict[str, np.ndarray], chip: str) -> np.ndarray:
    """[register, lane] of what a conversion leaves."""
    lanes = len(raw["seed"])
    power = (raw["scale"] >> U32(23) & U32(255)).astype(int) - 127 if c.scaled else np.zeros(lanes, int)
    block = c.group in ("pk32_", "2xpk16_")
    old = np.full(lanes, OLD, U32)

    def inserted(value: np.ndarray, bits: int, at: int) -> np.ndarray:
        mask = ((1 << bits) - 1) << at
        return (old & U32(~mask & 0xFFFFFFFF) | value.astype(U32) << U32(at))[None]

    if c.narrows:
        count = 32 if block else 2 if c.group else 1
        if c.source == "f32":
            x = raw["f"].view(F32)[:, :count]
            if c.group == "2xpk16_":
                x = np.stack([x[:, :16], x[:, 16:]], 2).reshape(lanes, 32)
        else:
            x = halves(raw["f"][:, : max(1, count // 2)], c.source)[:, :count]
        codes, seed = [], raw["seed"]
        for i in range(count):
            codes.append(narrowed(x[:, i], c.out, power, seed if c.random else None, chip))
            seed = step(seed)
        if block:
            return packed(np.stack(codes, 1).astype(np.int64), c.out).T
        value = sum(code << U32(bits_of(c.out) * i) for i, code in enumerate(codes))
        width = count * bits_of(c.out)
        return inserted(value, width, 16 * sel[-1] if width == 16 else 8 * (sel[-2] + 2 * sel[-1]))
    known = numbers(c.source, chip == "gfx942")
    bits = bits_of(c.source)
    if block:
        spread = np.unpackbits(np.ascontiguousarray(raw["w"]).view(np.uint8), axis=1, bitorder="little")
        codes = (spread.reshape(lanes, 32, 6) << np.arange(6)).sum(2)
    else:
        width = bits * (1 + bool(c.group))
        at = 16 * sel[0] if width == 16 else 8 * (sel[0] + 2 * sel[1])
        codes = np.stack([raw["w"][:, 0] >> U32(at + bits * i) & U32((1 << bits) - 1) for i in range(width // bits)], 1)
    with np.errstate(all="ignore"):
        out = as_out(known[codes] * 2.0 ** power[:, None], c.out)
    if c.out == "f32":
        return out.T
    if c.group:
        return (out[:, ::2] | out[:, 1::2] << U32(16)).T
    return inserted(out[:, 0], 16, 16 * sel[2])


def agrees(c: Conversion, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal bits, or NaN for NaN where the result is a wider float (their payloads are the host's)."""
    same = got == want
    if c.out not in ("f32", "f16", "bf16") or c.random:
        return same
    if c.out == "f32":
        return same | is_nan(got, "f32") & is_nan(want, "f32")
    parts = [(got >> U32(s) & U32(0xFFFF), want >> U32(s) & U32(0xFFFF)) for s in (0, 16)]
    return np.logical_and.reduce([(g == w) | is_nan(g, c.out) & is_nan(w, c.out) for g, w in parts])


@pytest.mark.parametrize("chip", CHIPS)
def test_conversions(chip: str) -> None:
    walk = Walk(chip)
    for name, c in ALL.items():
        row = ROWS[name]
        if chip == "gfx950" or (name in PLAIN and not (row.generations and chip == "gfx1200")):
            for sel in places(c, chip):
                walk.add(c, sel)
    run = walk.bench.launch()
    lanes = walk.bench.lanes
    for seed, mask in ((1, -1), (2, 0x5A5A_1234_8001_F00F)):
        raw = inputs(lanes, seed)
        out = run(raw, mask)
        on = np.array([mask >> l & 1 for l in range(lanes)], bool)
        for c, sel, at, count in walk.cases:
            want = expected(c, sel, raw, chip)
            got = out[at : at + count]
            assert (got[:, ~on] == OLD).all(), c.name
            bad = np.argwhere(~agrees(c, got, want) & on)
            assert not len(bad), (
                c.name,
                sel,
                bad[0],
                hex(got[tuple(bad[0])]),
                hex(want[tuple(bad[0])]),
                [hex(x) for x in raw["f"][bad[0][1], :2]],
            )
    assert len(walk.cases) > (140 if chip == "gfx950" else 10)


def test_no_conversion_is_left_out() -> None:
    pattern = re.compile(r"v_cvt_(scalef32|sr)_|v_cvt_.*[fb][fp][864](_|$)")
    assert {
        n
        for n in ROWS
        if ROWS[n].generations != (12,) and pattern.match(n) and "bf16_f32" not in n.removeprefix("v_cvt_sr_")
    } - set(ALL) - {"v_cvt_sr_bf16_f32"} == set()


def test_every_code() -> None:
    """All 256 codes of the 8-bit formats, through each byte, as LLVM selects it from its intrinsics (SDWA on gfx9)."""
    ir = """define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %c) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %x = load i32, ptr addrspace(1) %p
  %q = getelementptr [12 x float], ptr addrspace(1) %c, i32 %t
{body}
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.amdgcn.cvt.f32.fp8(i32, i32)
declare float @llvm.amdgcn.cvt.f32.bf8(i32, i32)
declare <2 x float> @llvm.amdgcn.cvt.pk.f32.fp8(i32, i1)
declare <2 x float> @llvm.amdgcn.cvt.pk.f32.bf8(i32, i1)
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }}"""
    body, n = "", 0
    order: list[tuple[str, int]] = []
    for kind in ("fp8", "bf8"):
        for byte in range(4):
            body += f"  %r{n} = call float @llvm.amdgcn.cvt.f32.{kind}(i32 %x, i32 {byte})\n"
            order.append((kind, byte))
            n += 1
    for word in (0, 1):
        body += f"  %v{word} = call <2 x float> @llvm.amdgcn.cvt.pk.f32.fp8(i32 %x, i1 {'true' if word else 'false'})\n"
        for e in (0, 1):
            body += f"  %r{n} = extractelement <2 x float> %v{word}, i32 {e}\n"
            order.append(("fp8", 2 * word + e))
            n += 1
    for k in range(n):
        body += f"  %g{k} = getelementptr float, ptr addrspace(1) %q, i32 {k}\n  store float %r{k}, ptr addrspace(1) %g{k}\n"
    words = np.arange(256, dtype=np.uint8).view(U32)
    for chip in CHIPS:
        driver, k = function(ir.format(body=body), chip)
        out = np.zeros((64, 12), F32)
        held = upload(driver, words), upload(driver, out)
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQ", *held))
        got = download(driver, held[1], out)
        for i, (kind, byte) in enumerate(order):
            want = numbers(kind, chip == "gfx942")[words >> U32(8 * byte) & U32(255)].astype(F32)
            assert np.array_equal(got[:, i], want, equal_nan=True), (chip, kind, byte)


def test_places_as_the_intrinsics_number_them() -> None:
    """LLVM's indices of result bytes and halves land there."""
    calls = {
        "fp8": "call <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32(<2 x i16> %o2, float %x, float %y, float 2.0, i1 {h})",
        "fp4": "call i32 @llvm.amdgcn.cvt.scalef32.pk.fp4.f32(i32 %o, float %x, float %y, float 2.0, i32 {b})",
        "sr": "call i32 @llvm.amdgcn.cvt.sr.fp8.f32(float %x, i32 0, i32 %o, i32 {b})",
    }
    for what, call in calls.items():
        for b in range(2 if what == "fp8" else 4):
            text = call.format(h="true" if b else "false", b=b)
            ir = f"""define amdgpu_kernel void @k(ptr addrspace(1) %c, float %x, float %y, i32 %o) #0 {{
  %o2 = bitcast i32 %o to <2 x i16>
  %r = {text}
  store {"<2 x i16>" if what == "fp8" else "i32"} %r, ptr addrspace(1) %c
  ret void
}}
declare <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32(<2 x i16>, float, float, float, i1)
declare i32 @llvm.amdgcn.cvt.scalef32.pk.fp4.f32(i32, float, float, float, i32)
declare i32 @llvm.amdgcn.cvt.sr.fp8.f32(float, i32, i32, i32)
attributes #0 = {{ "amdgpu-flat-work-group-size"="1,1" "amdgpu-no-implicitarg-ptr" }}"""
            driver, k = function(ir, "gfx950")
            out = np.zeros(1, U32)
            at = upload(driver, out)
            driver.launch(k, (1, 1, 1), (1, 1, 1), 0, struct.pack("<QffI", at, 1.0, 4.0, OLD))
            bits, value = {"fp8": (16, 0x4030), "fp4": (8, 0x41), "sr": (8, 0x38)}[what]
            mask = ((1 << bits) - 1) << bits * b
            assert int(download(driver, at, out)[0]) == OLD & ~mask | value << bits * b, (what, b)


def test_overflow_as_the_mode_says() -> None:
    """FP16_OVFL: the largest number in place of an infinity or NaN; an infinity stays one on gfx12."""
    for chip, infinite in (("gfx942", 0x7F), ("gfx950", 0x7E), ("gfx1200", 0x7F)):
        bench = Bench(chip, {"f": 1}, masked=False)
        name = "HW_REG_WAVE_MODE" if chip == "gfx1200" else "HW_REG_MODE"
        at = bench.case(
            [
                f"s_setreg_imm32_b32 hwreg({name}, 23, 1), 1",
                f"v_cvt_pk_fp8_f32 v2, {bench.reg('f')}, -{bench.reg('f')}",
            ],
            ["v_mov_b32 v2, 0"],
            dwords=1,
        )
        x = np.full(bench.lanes, 1e6, F32)
        x[0], x[1] = np.inf, np.nan
        got = bench.launch()({"f": x.view(U32)})[at]
        top = 0x7F if chip == "gfx942" else 0x7E
        assert (got[2:] == (top | (top | 0x80) << 8)).all()
        assert got[0] == (infinite | (infinite | 0x80) << 8)
        assert got[1] & 0x7F == (0 if chip == "gfx942" else 0x7F)
