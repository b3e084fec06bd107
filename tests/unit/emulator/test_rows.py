"""Every vector opcode of the table against its reference, with each modifier that it takes; and no row without a test.

Random and special values (NaN, infinities, denormals, signed zeros, integer extremes), under several EXEC patterns, in wave64
and wave32; negation, absolute value, clamp, output scale, op_sel, DPP and SDWA on every row of the fitting form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS
from tests import seeds

from . import row_reference_cdna5  # noqa: F401  (its rows join the reference)
from .row_reference import REFERENCE, TYPES, Ref
from .rows import Bench
from .test_valu import F16, F32, F64, U32, U64, exact_fma, same, values

opcodes.load()
OLD = (0xDEADBEEF, 0x11223344)
WORDS = {"f64": 2, "i64": 2}
MASKS = {64: (-1, 0x5A5A_1234_8001_F00F, 0), 32: (-1, 0x8001_F00F, 0)}
PICK = 0xC3A5_5AF0_0FF1_9E37  # a lane mask as data
LITERAL = {"f16": ("0x4248", F16(3.140625)), "f32": ("0x40490fdb", F32(3.1415927)), "f64": ("0x40590000", F64(100.0))}


@dataclass
class Case:
    name: str
    ref: Ref
    form: str
    first: int = 0
    slots: list[str] = field(default_factory=list)


@cache
def inputs(lanes: int, seed: int) -> dict[str, np.ndarray]:
    """Three operands of each type; 16-bit ones in both halves of a register."""
    out = {}
    for n, (t, kind) in enumerate(TYPES.items()):
        for k in range(3):
            one = values(kind, lanes, 100 * seed + 10 * n + k)
            if t == "bf16":
                one = (one.view(U32) & U32(0xFFFF0000)).view(F32)
                out[t + str(k)] = one.view(U32) >> U32(16) | U32(0xABCD0000)
            elif one.dtype.itemsize == 2:
                high = values(kind, lanes, 100 * seed + 10 * n + k + 5)
                out[t + str(k)] = one.view(np.uint16).astype(U32) | high.view(np.uint16).astype(U32) << U32(16)
            else:
                out[t + str(k)] = one.view(U64 if one.dtype.itemsize == 8 else U32)
    return out


def read(t: str, raw: np.ndarray, high: bool = False) -> np.ndarray:
    """A register's content as its type."""
    if t == "bf16":
        return (raw << U32(16)).view(F32)
    if t in ("f16", "i16"):
        return (raw >> U32(16 if high else 0)).astype(np.uint16).view(TYPES[t])
    return raw.view(TYPES[t])


def planes() -> dict[str, int]:
    return {t + str(k): WORDS.get(t, 1) for t in TYPES for k in range(3)}


def sources_of(ref: Ref) -> list[tuple[str, str]]:
    """(token, plane) of each source; planes of one type are taken in turn."""
    used: dict[str, int] = {}
    out = []
    for token in ref.sources:
        t = token.removeprefix("acc:")
        if t in TYPES:
            out.append((token, t + str(used.get(t, 0))))
            used[t] = used.get(t, 0) + 1
        else:
            out.append((token, ""))
    return out


def out_type(ref: Ref) -> str:
    return ref.out[0]


def add_case(bench: Bench, case: Case) -> None:
    """Write the instruction in the form that the case asks for."""
    ref, form, wide = case.ref, case.form, bench.lanes == 64
    mask_in, mask_out = ("s[36:37]", "s[40:41]") if wide else ("s36", "s40")
    vcc = "vcc" if wide else "vcc_lo"
    t = out_type(ref)
    before = [f"v_mov_b32 v2, {OLD[0]:#x}", f"v_mov_b32 v3, {OLD[1]:#x}", f"s_mov_{bench.b} {vcc}, {mask_in}"]
    texts = []
    for i, (token, plane) in enumerate(sources_of(ref)):
        if token.startswith("acc:"):
            for k in range(WORDS.get(token[4:], 1)):
                before.append(f"v_mov_b32 v{2 + k}, v{bench.place[plane] + k}")
            continue
        if token == "vcc":
            continue
        text = {"mask": mask_in, "K": LITERAL.get(t, ("", 0))[0]}.get(token) or bench.reg(plane)
        if form == "signs" and token[0] in "fb":
            text = f"-|{text}|" if i == 0 else f"-{text}" if i == 1 else f"|{text}|"
        texts.append(text)
    dst = {"mask": mask_out, "exec": mask_out}.get(t) or ("v[2:3]" if WORDS.get(t) else "v2")
    dsts = [dst] + ([mask_out] if len(ref.out) == 2 else [])
    if t == "exec" and not bench.chip.startswith("gfx9"):
        dsts = []
    op, tail, then = case.name, ref.mods if ref.mods.startswith(" ") else "", []
    if form in ("clamp", "mul:2", "mul:4", "div:2"):
        tail += " " + form
    elif form == "op_sel":
        tail += " op_sel:[1" + ",0" * (len(texts) - 1) + ",1]"
    elif form.startswith(("quad_perm", "row_")):
        op, tail = op + "_dpp", f" {form} row_mask:0xf bank_mask:0xf bound_ctrl:1"
    elif form == "sdwa":
        op += "_sdwa"
        tail = " dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1" if t in ("f16", "i16") else " dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1"  # fmt: skip
        tail += " src1_sel:" + ("BYTE_0" if t == "i32" else "WORD_0") if len(texts) > 1 else ""
    elif op.startswith("v_dual_"):
        tail += " :: v_dual_mov_b32 v5, v0"
    lines = [f"{op} {', '.join(dsts + texts)}{tail}"]
    dwords = 2
    if t in ("mask", "exec"):
        if t == "exec":
            lines.append(f"s_mov_{bench.b} {mask_out}, {bench.exec}")
        then = ["v_mov_b32 v2, s40", "v_mov_b32 v3, s41" if wide else "v_mov_b32 v3, 0"]
    elif len(ref.out) == 2:
        then, dwords = ["v_mov_b32 v4, s40", "v_mov_b32 v5, s41" if wide else "v_mov_b32 v5, 0"], 4
    case.first = bench.case(lines, before, then, dwords)


def expected(case: Case, lanes: int, raw: dict[str, np.ndarray], mask: np.ndarray) -> tuple[object, np.ndarray]:
    """What the reference gives, and the lanes in which a NaN leaves the result open."""
    ref, form = case.ref, case.form
    args, open_ = [], np.zeros(lanes, bool)
    for i, (token, plane) in enumerate(sources_of(ref)):
        t = token.removeprefix("acc:")
        if token in ("mask", "vcc"):
            args.append(np.array([PICK >> l & 1 for l in range(lanes)], bool))
            continue
        if token == "K":
            args.append(np.full(lanes, LITERAL[out_type(ref)][1]))
            continue
        data = raw[plane]
        if form == "sdwa" and not token.startswith("acc:"):
            if i == 0:
                data = data >> U32(16)
            elif t == "i32":
                data = data & U32(255)
        value = read(t, data, form == "op_sel" and i == 0)
        if form.startswith(("quad_perm", "row_")) and i == 0:
            lane = np.arange(lanes)
            source = lane & ~3 | np.array([1, 0, 3, 2])[lane & 3] if form[0] == "q" else lane & ~15 | (lane - 3 & 15)
            value = np.where(mask[source], value[source], value.dtype.type(0))
        if form == "signs" and token[0] in "fb":
            value = -np.abs(value) if i == 0 else -value if i == 1 else np.abs(value)
        if ref.mods == "nonan" and t[0] == "f":
            open_ |= np.isnan(value)
        args.append(value)
    with np.errstate(all="ignore"):
        result = ref.fn(*args)
        if form in ("mul:2", "mul:4", "div:2"):
            kind = TYPES[out_type(ref)]
            result = (np.asarray(result).astype(kind) * kind({"mul:2": 2, "mul:4": 4, "div:2": 0.5}[form])).astype(kind)
        elif form == "clamp":
            result = np.where(result > 0, np.where(result < 1, result, 1), 0)
    return result, open_


def verify(case: Case, bench: Bench, raw: dict[str, np.ndarray], out: np.ndarray, bits: int) -> None:
    lanes, ref = bench.lanes, case.ref
    on = np.array([bits >> l & 1 for l in range(lanes)], bool)
    result, open_ = expected(case, lanes, raw, on)
    where = f"{case.name} ({case.form or 'plain'}) on {bench.chip}, EXEC {bits & (1 << lanes) - 1:#x}"
    got = out[case.first : case.first + 4]
    parts = result if isinstance(result, tuple) else (result,)
    for t, want, at in zip(ref.out, parts, (0, 2)):
        if t in ("mask", "exec"):
            word = int(got[at, 0]) | int(got[at + 1, 0]) << 32
            wanted = sum(1 << l for l in range(lanes) if on[l] and want[l])
            assert word == wanted, f"{where}: lane mask {word:#x}, want {wanted:#x}"
            continue
        old = [np.full(lanes, v, U32) for v in OLD]
        for token, plane in sources_of(ref):
            if token.startswith("acc:"):
                data = raw[plane]
                old = [data] if data.itemsize == 4 else [data.astype(U32), (data >> U64(32)).astype(U32)]
        assert all((got[k][~on] == old[k][~on]).all() for k in range(len(old))), f"{where}: a lane that is off changed"
        good = open_.copy()
        if t in ("f16", "i16", "bf16"):
            up = case.form in ("op_sel", "sdwa")
            value, rest = (got[0] >> U32(16), got[0] & U32(0xFFFF)) if up else (got[0] & U32(0xFFFF), got[0] >> U32(16))
            keeps = up or ref.keeps or not bench.chip.startswith("gfx9")
            kept = old[0] & U32(0xFFFF) if up else old[0] >> U32(16)
            assert (rest[on] == (kept[on] if keeps else 0)).all(), f"{where}: the other half {rest[on][:4]}"
            kind = np.uint16 if t == "bf16" else TYPES[t]
            wanted = np.asarray(want).astype(kind)
            if t == "bf16":
                good |= (value & U32(0x7F80)) == 0x7F80
        else:
            value = got[0].astype(U64) | got[1].astype(U64) << U64(32) if WORDS.get(t) else got[0]
            kind = TYPES[t]
            wanted = np.asarray(want)
            wanted = (wanted.astype(np.int64) if wanted.dtype == object else wanted).astype(kind)
        good |= near(value, wanted, ref.ulps)
        bad = np.flatnonzero(on & ~good)
        if len(bad):
            l = bad[0]
            given = [hex(int(raw[p][l])) if p else tok for tok, p in sources_of(ref)]
            raise AssertionError(f"{where}: lane {l}: sources {given}, want {wanted[l]!r}, got {int(value[l]):#x}")


def near(value: np.ndarray, want: np.ndarray, ulps: int) -> np.ndarray:
    if want.dtype.kind != "f":
        return value == want
    if ulps >= 0:
        return same(value, want, ulps)
    got = value.astype(np.uint16).view(F16) if want.dtype == F16 else value.view(want.dtype)
    limit = 1e-3 if want.dtype == F16 else 2e-7
    with np.errstate(invalid="ignore"):
        return (np.abs(got.astype(F64) - want.astype(F64)) <= limit) | (np.isnan(got) & np.isnan(want))


def forms(name: str, ref: Ref, chip: str) -> list[str]:
    """The forms that an opcode takes on a chip, beside the plain one."""
    sources = [t for t in ref.sources if t != "vcc"]
    plain = not name.startswith(("v_dual_", "v_accvgpr")) and "K" not in sources and not ref.mods
    floats, t = [x for x in sources if x[0] in "fb"], out_type(ref)
    out = []
    if plain and chip == "gfx942":
        if floats and "bf16" not in sources:
            out.append("signs")
        if t[0] == "f" and len(ref.out) == 1:
            out += ["clamp", "mul:2", "mul:4", "div:2"]
    narrow = {"f16", "i16"}
    if plain and chip == "gfx1100" and set(sources) <= narrow and t in narrow:
        out.append("op_sel")
    dword = {"f32", "i32", "acc:f32", "acc:i32"}
    dpp = set(sources) <= dword and t in ("f32", "i32") and len([x for x in sources if x[:3] != "acc"]) <= 2
    if plain and len(ref.out) == 1 and dpp:
        out.append("quad_perm:[1,0,3,2]" if chip == "gfx942" else "row_ror:3")
    if plain and chip == "gfx90a" and len(ref.out) == 1 and len(sources) <= 2:
        if (set(sources) == {"i32"} and t == "i32") or (set(sources) <= narrow and t in narrow):
            out.append("sdwa")
    return out


def rows_of(kinds: tuple[str, ...]) -> list[str]:
    return [n for n, r in ROWS.items() if r.kind in kinds]


VECTOR = [n for n in rows_of(("valu", "trans")) if n in REFERENCE]
PARTS = 6


@pytest.mark.parametrize(
    ("chip", "part"),  # of gfx90a, whose rows are gfx942's but for a few, a night runs all parts
    [
        (c, p)
        for c in ("gfx942", "gfx1100", "gfx90a")
        for p in range(PARTS)
        if c != "gfx90a" or p % 3 == 0 or seeds.number()
    ],
)
def test_vector_rows(chip: str, part: int) -> None:
    bench = Bench(chip, planes())
    cases = []
    for name in VECTOR[part::PARTS]:
        generations = ROWS[name].generations
        if generations and int(chip[3:-2]) not in generations:
            continue
        if name.startswith("v_dual_") and chip != "gfx1100":
            continue
        for form in ["", *forms(name, REFERENCE[name], chip)]:
            cases.append(Case(name, REFERENCE[name], form))
            add_case(bench, cases[-1])
    run = bench.launch()
    for seed, mask in enumerate(MASKS[bench.lanes]):
        raw = inputs(bench.lanes, 1 + seed // 2)
        out = run(raw, mask, PICK)
        for case in cases:
            verify(case, bench, raw, out, mask)


def test_without_masks() -> None:
    """The same rows in a kernel that never writes EXEC, which is translated without lane masks."""
    bench = Bench("gfx942", planes(), masked=False)
    cases = []
    for name in VECTOR[3::11]:
        if not name.startswith(("v_dual_", "v_cmpx")) and 9 in (ROWS[name].generations or (9,)):
            cases.append(Case(name, REFERENCE[name], ""))
            add_case(bench, cases[-1])
    raw = inputs(64, 9)
    out = bench.launch()(raw, -1, PICK)
    for case in cases:
        verify(case, bench, raw, out, -1)


def test_the_forms_are_tried() -> None:
    """The walk reaches every form on many rows."""
    count: dict[str, int] = {}
    for chip in ("gfx942", "gfx1100", "gfx90a"):
        for name in VECTOR:
            for form in forms(name, REFERENCE[name], chip):
                count[form] = count.get(form, 0) + 1
    assert count["signs"] > 150 and count["clamp"] > 60 and count["op_sel"] > 40 and count["sdwa"] > 40, count
    assert count["quad_perm:[1,0,3,2]"] > 40 and count["row_ror:3"] > 40, count
    assert exact_fma
