"""Every scalar opcode of the table against Python integers: values, SCC, EXEC."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS

from .row_reference import fmax, fmin, maximum, minimum, rtz16, s, to_int
from .rows import Bench
from .test_salu import bfe
from .test_valu import F32, exact_fma

opcodes.load()
M32, M64 = 2**32 - 1, 2**64 - 1
K = 0x9234  # the 16-bit immediate of the K forms
LIT = 0x40490FDB
# name -> (types of sources, type of the result or "", function of the sources, SCC before and the old destination)
SCALAR: dict[str, tuple[list[str], str, Callable[..., Any]]] = {}


def sref(names: str, signature: str, fn: Callable[..., Any]) -> None:
    """`fn(*sources, scc=..., old=...)` gives (value, SCC); SCC None: kept. Sources are unsigned integers, or f32."""
    left, _, right = signature.partition("=")
    for name in names.split():
        assert name not in SCALAR, name
        SCALAR[name] = (right.split(), left.strip(), fn)


def nz(fn: Callable[..., int], bits: int) -> Callable[..., Any]:
    """SCC tells whether the result is not zero."""
    m = (1 << bits) - 1
    return lambda *a, scc, old: (fn(*a) & m, fn(*a) & m != 0)


def keep(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a, scc, old: (fn(*a), None)


def f32(x: int) -> Any:
    return np.array([x], np.uint32).view(F32)


def word(x: Any) -> int:
    return int(np.asarray(x, F32).reshape(-1).view(np.uint32)[0])


def first_one(a: int) -> int:
    return (a & -a).bit_length() - 1


def half(v: int, part: str) -> int:
    return v >> 16 if part == "h" else v & 0xFFFF


LOGIC = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b), "andn2 and_not1": lambda a, b: a & ~b,
    "orn2 or_not1": lambda a, b: a | ~b,
}  # fmt: skip
SAVEEXEC = {**LOGIC, "andn1 and_not0": lambda a, b: ~a & b, "orn1 or_not0": lambda a, b: ~a | b}
for _n, _f in LOGIC.items():
    for _x, _w in itertools.product(_n.split(), (32, 64)):
        sref(f"s_{_x}_b{_w}", f"i{_w} = i{_w} i{_w}", nz(_f, _w))
sref("s_mov_b32", "i32 = i32", keep(lambda a: a))
sref("s_mov_b64", "i64 = i64", keep(lambda a: a))
sref("s_movk_i32", "i32 = K", keep(lambda k: s(k, 16)))
sref("s_cmov_b32", "i32 = i32", lambda a, scc, old: (a if scc else old, None))
sref("s_cmov_b64", "i64 = i64", lambda a, scc, old: (a if scc else old, None))
sref("s_cmovk_i32", "i32 = K", lambda k, scc, old: (s(k, 16) if scc else old, None))
for _w in (32, 64):
    _m = (1 << _w) - 1
    sref(f"s_not_b{_w}", f"i{_w} = i{_w}", nz(lambda a: ~a, _w))
    sref(f"s_brev_b{_w}", f"i{_w} = i{_w}", keep(lambda a, w=_w: int(f"{a:0{w}b}"[::-1], 2)))
    sref(f"s_bcnt1_i32_b{_w}", f"i32 = i{_w}", nz(lambda a: bin(a).count("1"), 32))
    sref(f"s_bcnt0_i32_b{_w}", f"i32 = i{_w}", nz(lambda a, w=_w: w - bin(a).count("1"), 32))
    sref(f"s_ff1_i32_b{_w} s_ctz_i32_b{_w}", f"i32 = i{_w}", keep(first_one))
    sref(f"s_ff0_i32_b{_w}", f"i32 = i{_w}", keep(lambda a, m=_m: first_one(~a & m)))
    sref(f"s_flbit_i32_b{_w} s_clz_i32_u{_w}", f"i32 = i{_w}", keep(lambda a, w=_w: w - a.bit_length() if a else -1))
    _cls = lambda a, w=_w, m=_m: -1 if a in (0, m) else w - (a ^ m if a >> (w - 1) else a).bit_length()  # noqa: E731
    sref("s_flbit_i32 s_cls_i32" if _w == 32 else "s_flbit_i32_i64 s_cls_i32_i64", f"i32 = i{_w}", keep(_cls))
    sref(f"s_bitset0_b{_w}", f"i{_w} = i32", lambda a, scc, old, w=_w: (old & ~(1 << (a & w - 1)), None))
    sref(f"s_bitset1_b{_w}", f"i{_w} = i32", lambda a, scc, old, w=_w: (old | 1 << (a & w - 1), None))
    sref(f"s_cselect_b{_w}", f"i{_w} = i{_w} i{_w}", lambda a, b, scc, old: (a if scc else b, None))
    sref(f"s_bfm_b{_w}", f"i{_w} = i32 i32", keep(lambda a, b, w=_w: ((1 << (a & w - 1)) - 1) << (b & w - 1)))
    sref(f"s_bfe_u{_w}", f"i{_w} = i{_w} i32", nz(lambda a, b, w=_w: bfe(a, b, False, w), _w))
    sref(f"s_bfe_i{_w}", f"i{_w} = i{_w} i32", nz(lambda a, b, w=_w: bfe(a, b, True, w), _w))
    sref(f"s_bitcmp1_b{_w}", f"= i{_w} i32", lambda a, b, scc, old, w=_w: (None, a >> (b & w - 1) & 1))
    sref(f"s_bitcmp0_b{_w}", f"= i{_w} i32", lambda a, b, scc, old, w=_w: (None, not a >> (b & w - 1) & 1))
    sref(f"s_lshl_b{_w}", f"i{_w} = i{_w} i32", nz(lambda a, b, w=_w: a << (b & w - 1), _w))
    sref(f"s_lshr_b{_w}", f"i{_w} = i{_w} i32", nz(lambda a, b, w=_w: a >> (b & w - 1), _w))
    sref(f"s_ashr_i{_w}", f"i{_w} = i{_w} i32", nz(lambda a, b, w=_w: s(a, w) >> (b & w - 1), _w))

    def _wqm(a: int, w: int = _w) -> int:
        return sum(15 << i for i in range(0, w, 4) if a >> i & 15)

    sref(f"s_wqm_b{_w}", f"i{_w} = i{_w}", nz(_wqm, _w))
sref("s_sext_i32_i8", "i32 = i32", keep(lambda a: s(a, 8)))
sref("s_sext_i32_i16", "i32 = i32", keep(lambda a: s(a, 16)))
sref("s_abs_i32", "i32 = i32", nz(lambda a: abs(s(a, 32)), 32))
sref("s_absdiff_i32", "i32 = i32 i32", nz(lambda a, b: abs(s(a - b, 32)), 32))
sref("s_add_u32 s_add_co_u32", "i32 = i32 i32", lambda a, b, scc, old: (a + b, a + b > M32))
sref("s_sub_u32 s_sub_co_u32", "i32 = i32 i32", lambda a, b, scc, old: (a - b, a < b))
_over = lambda x: not -(2**31) <= x < 2**31  # noqa: E731
sref("s_add_i32 s_add_co_i32", "i32 = i32 i32", lambda a, b, scc, old: (a + b, _over(s(a, 32) + s(b, 32))))
sref("s_sub_i32 s_sub_co_i32", "i32 = i32 i32", lambda a, b, scc, old: (a - b, _over(s(a, 32) - s(b, 32))))
sref("s_addc_u32 s_add_co_ci_u32", "i32 = i32 i32", lambda a, b, scc, old: (a + b + scc, a + b + scc > M32))
sref("s_subb_u32 s_sub_co_ci_u32", "i32 = i32 i32", lambda a, b, scc, old: (a - b - scc, a < b + scc))
sref("s_addk_i32 s_addk_co_i32", "i32 = K", lambda k, scc, old: (old + s(k, 16), _over(s(old, 32) + s(k, 16))))
sref("s_mulk_i32", "i32 = K", lambda k, scc, old: (old * s(k, 16), None))
sref("s_add_nc_u64 s_add_u64", "i64 = i64 i64", keep(lambda a, b: a + b))
sref("s_sub_nc_u64 s_sub_u64", "i64 = i64 i64", keep(lambda a, b: a - b))
sref("s_mul_i32", "i32 = i32 i32", keep(lambda a, b: a * b))
sref("s_mul_u64", "i64 = i64 i64", keep(lambda a, b: a * b))
sref("s_mul_hi_u32", "i32 = i32 i32", keep(lambda a, b: a * b >> 32))
sref("s_mul_hi_i32", "i32 = i32 i32", keep(lambda a, b: s(a, 32) * s(b, 32) >> 32))
for _n, _f in (("min", min), ("max", max)):
    sref(f"s_{_n}_u32", "i32 = i32 i32", lambda a, b, scc, old, f=_f: (f(a, b), a != b and f(a, b) == a))
    sref(f"s_{_n}_i32", "i32 = i32 i32", lambda a, b, scc, old, f=_f: (f(s(a, 32), s(b, 32)), a != b and f(s(a, 32), s(b, 32)) == s(a, 32)))  # fmt: skip
for _i in (1, 2, 3, 4):
    sref(f"s_lshl{_i}_add_u32", "i32 = i32 i32", lambda a, b, scc, old, n=_i: ((a << n) + b, (a << n) + b > M32))
for _x, _y in itertools.product("lh", "lh"):
    sref(f"s_pack_{_x}{_y}_b32_b16", "i32 = i32 i32", keep(lambda a, b, x=_x, y=_y: half(a, x) | half(b, y) << 16))
_CMP = {"eq": int.__eq__, "lg": int.__ne__, "gt": int.__gt__, "ge": int.__ge__, "lt": int.__lt__, "le": int.__le__}
for _n, _f in _CMP.items():
    sref(f"s_cmp_{_n}_u32", "= i32 i32", lambda a, b, scc, old, f=_f: (None, f(a, b)))
    sref(f"s_cmp_{_n}_i32", "= i32 i32", lambda a, b, scc, old, f=_f: (None, f(s(a, 32), s(b, 32))))
    sref(f"s_cmpk_{_n}_u32", "= i32 K", lambda a, k, scc, old, f=_f: (None, f(a, k)))
    sref(f"s_cmpk_{_n}_i32", "= i32 K", lambda a, k, scc, old, f=_f: (None, f(s(a, 32), s(k, 16))))
    if _n in ("eq", "lg"):
        sref(f"s_cmp_{_n}_u64", "= i64 i64", lambda a, b, scc, old, f=_f: (None, f(a, b)))


# Scalar floats; f16 in the lower half, zeros above.
def f16(x: int) -> Any:
    return np.array([x & 0xFFFF], np.uint16).view(np.float16)


_ORD = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_un = lambda a, b: bool(np.isnan(a) | np.isnan(b))  # noqa: E731
for _t, _kind, _old in (("f32", F32, f32), ("f16", np.float16, f16)):
    _two, _one = f"{_t} = {_t} {_t}", f"{_t} = {_t}"
    for _n, _ff in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        sref(f"s_{_n}_{_t}", _two, keep(_ff))
    _fma = exact_fma(_kind)
    sref(f"s_fmac_{_t}", _two, lambda a, b, scc, old, f=_fma, o=_old: (f(a, b, o(old)), None))
    sref(f"s_min_{_t} s_min_num_{_t}", _two, keep(fmin))
    sref(f"s_max_{_t} s_max_num_{_t}", _two, keep(fmax))
    sref(f"s_minimum_{_t}", _two, keep(minimum))
    sref(f"s_maximum_{_t}", _two, keep(maximum))
    for _n, _ff in (("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("rndne", np.rint)):
        sref(f"s_{_n}_{_t}", _one, keep(_ff))
    for _n, _ff in _ORD.items():
        sref(f"s_cmp_{_n}_{_t}", f"= {_t} {_t}", lambda a, b, scc, old, f=_ff: (None, bool(f(a, b)[0])))
        sref(f"s_cmp_n{_n}_{_t}", f"= {_t} {_t}", lambda a, b, scc, old, f=_ff: (None, not f(a, b)[0]))
    sref(f"s_cmp_lg_{_t}", f"= {_t} {_t}", lambda a, b, scc, old: (None, bool(a != b) and not _un(a, b)))
    sref(f"s_cmp_nlg_{_t}", f"= {_t} {_t}", lambda a, b, scc, old: (None, not (bool(a != b) and not _un(a, b))))
    sref(f"s_cmp_u_{_t}", f"= {_t} {_t}", lambda a, b, scc, old: (None, _un(a, b)))
    sref(f"s_cmp_o_{_t}", f"= {_t} {_t}", lambda a, b, scc, old: (None, not _un(a, b)))
_fma = exact_fma(F32)
sref("s_fmaak_f32", "f32 = f32 f32 LIT", keep(lambda a, b, k: _fma(a, b, f32(k))))
sref("s_fmamk_f32", "f32 = f32 LIT f32", keep(lambda a, k, b: _fma(a, f32(k), b)))
sref("s_cvt_f32_i32", "f32 = i32", keep(lambda a: F32(s(a, 32))))
sref("s_cvt_f32_u32", "f32 = i32", keep(lambda a: F32(a)))
sref("s_cvt_i32_f32", "i32 = f32", keep(lambda a: int(to_int(-(2**31), 2**31 - 1, math.trunc)(a)[0])))
sref("s_cvt_u32_f32", "i32 = f32", keep(lambda a: int(to_int(0, M32, math.trunc)(a)[0])))
sref("s_cvt_f16_f32", "f16 = f32", keep(lambda a: a.astype(np.float16)))
sref("s_cvt_f32_f16", "f32 = f16", keep(lambda a: a.astype(F32)))
sref("s_cvt_hi_f32_f16", "f32 = i32", keep(lambda a: f16(a >> 16).astype(F32)))
sref("s_cvt_pk_rtz_f16_f32", "h32 = f32 f32", keep(lambda a, b: rtz16(a[0]) | rtz16(b[0]) << 16))
for _w in (32, 64):
    sref(
        f"s_quadmask_b{_w}",
        f"i{_w} = i{_w}",
        nz(lambda a, w=_w: sum(1 << i for i in range(w // 4) if a >> 4 * i & 15), _w),
    )
sref("s_bitreplicate_b64_b32", "i64 = i32", keep(lambda a: sum((a >> i & 1) * 3 << 2 * i for i in range(32))))

MASK_OPS = {
    f"s_{x}_{form}_b{w}": (fn, form, w)
    for names, fn in SAVEEXEC.items() for x in names.split() for w in (32, 64)
    for form in ("saveexec", *(["wrexec"] if x in ("andn1", "and_not0", "andn2", "and_not1") else []))
}  # fmt: skip
WORDS = [
    0,
    1,
    5,
    31,
    0x7FFFFFFF,
    0x80000000,
    M32,
    0x12345678,
    0x00100004,
    0x3F800000,
    0xFF800000,
    0x7FC00000,
    K,
    0xFFFF9234,
]
QUADS = [0, 1, 63, 1 << 63, M64, 0x123456789ABCDEF0, 0x100000000, 0x3FF0000000000000, 0x0008001C, 0xFFFFFFFF00000000]


def pairs() -> list[tuple[int, int, int, int]]:
    """(a, b, old destination, SCC): words and quads, equal and unequal."""
    rng = np.random.default_rng(11)
    out = [(a, b) for a, b in zip(WORDS, WORDS[3:] + WORDS[:3])] + [(x, x) for x in WORDS[2::3]]
    out += [(a, b) for a, b in zip(QUADS, QUADS[4:] + QUADS[:4])]
    out += [(int(a), int(b)) for a, b in rng.integers(0, 2**63, (6, 2))]
    return [(a, b, int(rng.integers(0, 2**63)), i & 1) for i, (a, b) in enumerate(out)]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1200"])
def test_scalar_rows(chip: str) -> None:
    bench = Bench(chip, {"old": 2}, masked=False)
    first = {}
    at = bench.place["old"]
    for name, (sources, out, _) in SCALAR.items():
        texts, regs = [], iter(("36", "38"))
        for t in sources:
            r = "" if t in ("K", "LIT") else next(regs)
            texts.append({"K": hex(K), "LIT": hex(LIT), "i64": f"s[{r}:{int(r or 0) + 1}]"}.get(t, f"s{r}"))
        dst = {"i64": "s[40:41]", "": ""}.get(out, "s40")
        before = [f"v_readfirstlane_b32 s40, v{at}", f"v_readfirstlane_b32 s41, v{at + 1}", "s_bitcmp1_b32 s34, 0"]
        lines = [f"{name} {', '.join(([dst] if dst else []) + texts)}", "s_cselect_b32 s44, 1, 0"]
        after = ["v_mov_b32 v2, s40", "v_mov_b32 v3, s41", "v_mov_b32 v4, s44"]
        first[name] = bench.case(lines, before, after, 3)
    run = bench.launch()
    for a, b, old, scc in pairs():
        out_planes = run({"old": np.full(bench.lanes, old, np.uint64)}, scc, a, b)
        for name, (sources, out, fn) in SCALAR.items():
            values, regs = [], iter((a, b))
            for t in sources:
                v = K if t == "K" else LIT if t == "LIT" else next(regs)
                values.append(
                    f32(v & M32) if t == "f32" else f16(v) if t == "f16" else v if t in ("i64", "K", "LIT") else v & M32
                )
            with np.errstate(all="ignore"):
                value, flag = fn(*values, scc=scc, old=old if out == "i64" else old & M32)
            got = int(out_planes[first[name], 0]) | int(out_planes[first[name] + 1, 0]) << 32
            shown = f"{name} on {chip}: a {a:#x}, b {b:#x}, old {old:#x}, SCC {scc}"
            if out == "f32":
                same = word(value) == got & M32 or (
                    np.isnan(f32(got & M32)[0]) and bool(np.isnan(np.asarray(value)).all())
                )
                assert same, f"{shown}: {got & M32:#x}, want {value}"
            elif out == "f16":
                back = f16(got & M32)
                assert got & M32 < 2**16 and (
                    back.view(np.uint16) == value.view(np.uint16) or np.isnan(back) & np.isnan(value)
                ), f"{shown}: {got & M32:#x}, want {value}"
            elif out == "h32":  # two f16; of a NaN that it is one
                halves = zip(
                    *(np.array([x & 0xFFFF, x >> 16], np.uint16).view(np.float16) for x in (got & M32, int(value)))
                )
                assert all(x == y or (np.isnan(x) and np.isnan(y)) for x, y in halves), (
                    f"{shown}: {got & M32:#x}, want {value:#x}"
                )
            elif out:
                m = M64 if out == "i64" else M32
                assert got & m == int(value) & m, f"{shown}: {got & m:#x}, want {int(value) & m:#x}"
            wanted = scc if flag is None else int(bool(flag))
            assert int(out_planes[first[name] + 2, 0]) == wanted, f"{shown}: SCC is not {wanted}"


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_exec_rows(chip: str) -> None:
    """saveexec and wrexec: the destination, EXEC and SCC."""
    bench = Bench(chip, {}, masked=False)
    w = bench.lanes
    mine = {n: v for n, v in MASK_OPS.items() if v[2] == w}
    a, e, d = ("s[36:37]", "exec", "s[40:41]") if w == 64 else ("s36", "exec_lo", "s40")
    first = {}
    for name in mine:
        lines = [
            f"s_mov_{bench.b} {e}, {'s[38:39]' if w == 64 else 's38'}",
            f"{name} {d}, {a}",
            "s_cselect_b32 s44, 1, 0",
        ]
        lines += [f"s_mov_{bench.b} {'s[42:43]' if w == 64 else 's42'}, {e}", f"s_mov_{bench.b} {e}, -1"]
        after = [f"v_mov_b32 v{2 + k}, s{40 + k}" for k in range(5)]
        first[name] = bench.case(lines, [], after, 5)
    run = bench.launch()
    m = (1 << w) - 1
    for x, old in ((0, 5), (5, 0), (m, m), (0x0F0F_3377_8001_6C35 & m, 0x1234_5678_9ABC_DEF0 & m), (0, 0)):
        got = run({}, -1, x, old)
        for name, (fn, form, _) in mine.items():
            p = [int(v) for v in got[first[name] : first[name] + 5, 0]]
            new = fn(x, old) & m
            wide = w == 64
            dst, now = p[0] | (p[1] << 32 if wide else 0), p[2] | (p[3] << 32 if wide else 0)
            assert now == new, (name, hex(x), hex(old), hex(now))
            assert dst == (new if form == "wrexec" else old) and p[4] == (new != 0), (name, hex(x), hex(old))


def test_no_scalar_row_is_left_out() -> None:
    rows = {n for n, r in ROWS.items() if r.kind == "salu"}
    assert rows == SCALAR.keys() | MASK_OPS.keys(), rows ^ (SCALAR.keys() | MASK_OPS.keys())
