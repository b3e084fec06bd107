"""gfx1250's rows that stand alone: those whose operands have forms of their own. What fits the walks of `test_rows` and `test_rows_packed` is there."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tec.emulator.errors import UnsupportedInstruction
from tec.emulator.isa import opcodes
from tec.emulator.isa.cdna5_memory import TRANSPOSING
from tec.emulator.isa.table import ROWS

from .rows import Bench
from .test_rows_convert import as_out, bits_of, halves, is_nan, narrowed, numbers, step
from .test_valu import F16, F32, U32, values

opcodes.load()

MASK = 0x8001_F00F


def ramp(lanes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, lanes, dtype=U32)


def lanes_on(bits: int) -> np.ndarray:
    return np.array([bits >> l & 1 for l in range(32)], bool)


def test_dual_cndmask() -> None:
    """v_dual_cndmask_b32 by VCC, and by a mask that it names, in either half."""
    bench = Bench("gfx1250", {"a": 1, "b": 1})
    a, b = bench.reg("a"), bench.reg("b")
    before = ["s_mov_b32 vcc_lo, s36", "s_not_b32 s40, s36", "v_mov_b32 v2, 7", "v_mov_b32 v3, 7"]
    short = bench.case([f"v_dual_cndmask_b32 v2, {a}, {b} :: v_dual_mov_b32 v3, {b}"], before)
    long = bench.case([f"v_dual_mov_b32 v3, {a} :: v_dual_cndmask_b32 v2, {a}, {b}, s40"], before)
    raw = {"a": ramp(32, 1), "b": ramp(32, 2)}
    out = bench.launch()(raw, MASK, 0x3C5A_7781)
    on, pick = lanes_on(MASK), lanes_on(0x3C5A_7781)
    assert (out[short] == np.where(on, np.where(pick, raw["b"], raw["a"]), 7)).all()
    assert (out[long] == np.where(on, np.where(pick, raw["a"], raw["b"]), 7)).all()
    assert (out[short + 1] == np.where(on, raw["b"], 7)).all() and (out[long + 1] == np.where(on, raw["a"], 7)).all()


def test_clamped_integers() -> None:
    """With clamp the sum of v_add_max_i32 and its sisters saturates, before the other operand is looked at."""
    bench = Bench("gfx1250", {"a": 1, "b": 1, "c": 1})
    names = [f"v_add_{n}_{t}32" for n in ("min", "max") for t in "iu"]
    text = ", ".join(bench.reg(x) for x in "abc")
    first = {n: bench.case([f"{n} v2, {text} clamp"], ["v_mov_b32 v2, 7"], dwords=1) for n in names}
    raw = {x: ramp(32, k) for k, x in enumerate("abc")}
    out = bench.launch()(raw, MASK)
    for name, at in first.items():
        signed, pick = name.endswith("i32"), max if "max" in name else min
        a, b, c = (x.view(np.int32).astype(np.int64) if signed else x.astype(np.int64) for x in raw.values())
        ends = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)
        want = [pick(int(np.clip(x + y, *ends)), int(z)) & 0xFFFFFFFF for x, y, z in zip(a, b, c)]
        assert (out[at] == np.where(lanes_on(MASK), np.array(want, np.uint64).astype(U32), 7)).all(), name


def test_registers_beyond_v255() -> None:
    """`s_set_vgpr_msb` gives each place of an operand two more bits; they hold along both ways of a branch that agree, for LDS and memory too."""
    bench = Bench("gfx1250", {"a": 1})
    a = bench.reg("a")
    at = bench.case([
        "s_set_vgpr_msb 0x40",  # destinations from v256 on
        f"v_mov_b32 v2, {a}", f"v_lshlrev_b32 v3, 1, {a}",
        "s_cbranch_scc1 Lgo", "v_mov_b32 v4, 9", "Lgo:", "v_mov_b32 v4, 11",
        "s_set_vgpr_msb 0x85",  # src0 and src1 from v256 on, destinations from v512
        "v_add_nc_u32 v2, v2, v3", "v_dual_mov_b32 v6, v4 :: v_dual_add_nc_u32 v7, v2, v4",
        "s_set_vgpr_msb 2",  # src0 from v512 on
        "v_mov_b32 v2, v2", "v_mov_b32 v3, v7", "s_set_vgpr_msb 0",
    ])  # fmt: skip
    raw = {"a": ramp(32, 3)}
    out = bench.launch()(raw)
    assert (out[at] == raw["a"] * U32(3)).all() and (out[at + 1] == raw["a"] + U32(11)).all()


def test_paths_that_disagree_on_upper_bits() -> None:
    bench = Bench("gfx1250", {"a": 1})
    bench.case(["s_cbranch_scc1 Lgo", "s_set_vgpr_msb 1", "Lgo:", "v_mov_b32 v2, v3"])
    with pytest.raises(UnsupportedInstruction, match="differ between paths"):
        bench.launch()({"a": ramp(32, 3)})


# Conversions.

_WIDE = re.compile(r"v_cvt_scale_pk(8|16)_(f32|f16|bf16)_(\w+)$")
_NARROW = re.compile(r"v_cvt_scalef32_(sr_)?pk(8|16)_(\w+)_(f32|f16|bf16)$")
_PLAIN = {f"v_cvt_{n.format(k)}" for n in ("f16_{}", "pk_f16_{}", "pk_{}_f16", "sr_{}_f16") for k in ("fp8", "bf8")}
_PAIRS = {"v_cvt_sr_pk_f16_f32", "v_cvt_sr_pk_bf16_f32"}


def codes(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """[lane, element] out of [lane, register]."""
    every = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    return (every[:, : bits * count].reshape(32, count, bits) << np.arange(bits)).sum(axis=2)


def joined(elements: np.ndarray, bits: int) -> np.ndarray:
    """[lane, register] out of [lane, element]."""
    spread = elements.astype(np.uint32)[:, :, None] >> np.arange(bits, dtype=np.uint32) & 1
    return np.packbits(spread.reshape(32, -1).astype(np.uint8), axis=1, bitorder="little").view(U32)


def test_conversions() -> None:
    """Every conversion that gfx1250 adds: of eight and sixteen at a time with each byte of a scale, of f16 to and from 8 bits, with random numbers."""
    rng = np.random.default_rng(8)
    planes = {"f32": 16, "f16": 8, "bf16": 8, "w": 3, "seed": 1, "scale": 1, "bytes": 1}
    bench = Bench("gfx1250", planes, masked=False, first=60)
    raw = {n: rng.integers(0, 2**32, (32, k), dtype=U32) for n, k in planes.items()}
    raw["f32"] = values(F32, 512, 3).view(U32).reshape(32, 16)
    raw["f32"][:, ::2] = (rng.standard_normal((32, 8)) * 4).astype(F32).view(U32)
    raw["f16"] = (rng.standard_normal((32, 16)) * 8).astype(F16).view(U32)
    raw["bf16"] = ((rng.standard_normal((32, 16)) * 8).astype(F32).view(U32) >> U32(16)).astype(np.uint16).view(U32)
    raw["scale"] = (2.0 ** rng.integers(-3, 4, (32, 1))).astype(F32).view(U32)
    raw["bytes"] = rng.integers(120, 134, (32, 4)).astype(np.uint8).view(U32)
    numbers_of = {"f32": raw["f32"].view(F32), "f16": halves(raw["f16"], "f16"), "bf16": halves(raw["bf16"], "bf16")}
    power = (raw["scale"] >> U32(23)).astype(int) - 127

    def reg(name: str, n: int = 1) -> str:
        return f"v{bench.place[name]}" if n == 1 else f"v[{bench.place[name]}:{bench.place[name] + n - 1}]"

    cases: list[tuple[str, int, np.ndarray, str]] = []

    def case(text: str, want: np.ndarray, floats: str = "", before: tuple[str, ...] = ()) -> None:
        count = want.shape[1]
        dst = "v2" if count == 1 else f"v[2:{1 + count}]"
        name, _, rest = text.partition(" ")
        cases.append(
            (
                text,
                bench.case([f"{name} {dst}, {rest}"], ["v_mov_b32 v2, 0x5555aaaa", *before], dwords=count),
                want,
                floats,
            )
        )

    def small(x: np.ndarray, kind: str, exponent: np.ndarray | int = 0, seed: np.ndarray | None = None) -> np.ndarray:
        return narrowed(x, kind, exponent, seed, "gfx1200" if kind in ("fp8", "bf8") else "gfx950")

    def big(x: np.ndarray, t: str) -> np.ndarray:
        bits = as_out(x, t)
        return bits if t == "f32" else joined(bits, 16)

    tried = set()
    for name in ROWS:
        wide, narrow = _WIDE.match(name), _NARROW.match(name)
        if wide is not None:
            count, t, kind = int(wide[1]), wide[2], wide[3]
            for sel in range(4):
                given = numbers(kind, False)[codes(raw["w"], bits_of(kind), count)]
                scaled = given * 2.0 ** (raw["bytes"].view(np.uint8)[:, sel : sel + 1].astype(float) - 127)
                tail = f" scale_sel:{sel}" if sel else ""
                case(f"{name} {reg('w', bits_of(kind) * count // 32)}, {reg('bytes')}{tail}", big(scaled, t), t)
        elif narrow is not None:
            random, count, kind, t = bool(narrow[1]), int(narrow[2]), narrow[3], narrow[4]
            seeds = [raw["seed"][:, 0]]
            for _ in range(count - 1):
                seeds.append(step(seeds[-1]))
            columns = [
                small(numbers_of[t][:, i], kind, power[:, 0], seeds[i] if random else None) for i in range(count)
            ]
            sources = [reg(t, count if t == "f32" else count // 2), *([reg("seed")] * random), reg("scale")]
            case(f"{name} {', '.join(sources)}", joined(np.stack(columns, axis=1), bits_of(kind)))
        elif name in _PAIRS:
            t, seed = name.split("_")[4], raw["seed"][:, 0]
            pair = [small(numbers_of["f32"][:, i], t, 0, s) for i, s in ((0, seed), (1, step(seed)))]
            case(
                f"{name} {reg('f32')}, v{bench.place['f32'] + 1}, {reg('seed')}", joined(np.stack(pair, axis=1), 16), t
            )
        elif name in _PLAIN:
            kind = "fp8" if "fp8" in name else "bf8"
            table, of_bytes = numbers(kind, False), raw["w"][:, :1].view(np.uint8)
            keep = np.full(32, 0x5555, np.uint16)
            if name.startswith("v_cvt_f16_"):
                for byte in range(4):
                    one = as_out(table[of_bytes[:, byte]], "f16").astype(np.uint16)
                    case(f"{name} {reg('w')} byte_sel:{byte}", joined(np.stack([one, keep], axis=1), 16), "f16")
            elif name.startswith("v_cvt_pk_f16_"):
                case(f"{name} {reg('w')}", big(table[of_bytes[:, :2]], "f16"), "f16")
            elif name.startswith("v_cvt_pk_"):
                both = small(numbers_of["f16"][:, 0], kind) | small(numbers_of["f16"][:, 1], kind) << U32(8)
                case(f"{name} {reg('f16')}", joined(np.stack([both, keep], axis=1), 16))
            else:
                for byte in (0, 2):
                    one = small(numbers_of["f16"][:, 1], kind, 0, raw["seed"][:, 0])
                    want = np.where(True, U32(0x5555AAAA) & ~U32(255 << 8 * byte), 0) | one << U32(8 * byte)
                    case(f"{name} {reg('f16')}.h, {reg('seed')} byte_sel:{byte}", want[:, None].astype(U32))
        else:
            continue
        tried.add(name)
    out = bench.launch()({n: np.ascontiguousarray(x) for n, x in raw.items()})
    for text, at, want, floats in cases:
        got = out[at : at + want.shape[1]].T
        good = got == want
        if floats:
            bits = 32 if floats == "f32" else 16
            a, b = (codes(np.ascontiguousarray(x), bits, want.shape[1] * 32 // bits).astype(U32) for x in (got, want))
            fine = (a == b) | is_nan(a, floats) & is_nan(b, floats)
            good = fine.all(axis=1, keepdims=True)
        assert good.all(), (text, np.argwhere(~good)[:3], got[:2], want[:2])
    assert len(tried) == 55


def test_look_ups_and_exchanges() -> None:
    """Sixteen entries of a table by sixteen numbers; lanes within groups of any power of two, from outside of which comes 0."""
    bench = Bench("gfx1250", {"t": 4, "n": 2, "a": 1}, first=40)
    at = bench.place["t"]
    first = {}
    for bits, high, low in (
        (4, f"v{at + 1}", f"v{at}"),
        (6, f"v{at + 2}", f"v[{at}:{at + 1}]"),
        (8, f"v[{at + 2}:{at + 3}]", f"v[{at}:{at + 1}]"),
    ):
        count = bits // 2
        first[bits] = bench.case(
            [f"v_perm_pk16_b{bits}_u4 v[2:{1 + count}], {high}, {low}, {bench.reg('n')}"], dwords=count
        )
    moves = {}
    for how, number, width in (
        ("bcast", 5, 8),
        ("bcast", 37, 32),
        ("down", 3, 16),
        ("down", 1, 0),
        ("up", 2, 8),
        ("xor", 5, 16),
        ("xor", 9, 8),
        ("up", 40, 32),
    ):
        moves[how, number, width] = bench.case(
            [f"v_permlane_{how}_b32 v2, {bench.reg('a')}, {number}, {width}"], ["v_mov_b32 v2, 7"], dwords=1
        )
    index = bench.case([f"v_permlane_idx_gen_b32 v2, {bench.reg('a')}, 21"], ["v_mov_b32 v2, 7"], dwords=1)
    rng = np.random.default_rng(4)
    raw = {
        "t": rng.integers(0, 2**32, (32, 4), dtype=U32),
        "n": rng.integers(0, 2**32, (32, 2), dtype=U32),
        "a": ramp(32, 9),
    }
    out, on = bench.launch()(raw, MASK), lanes_on(MASK)
    for bits, place in first.items():
        entries, picks = codes(raw["t"], bits, 16), codes(raw["n"], 4, 16)
        want = joined(np.take_along_axis(entries, picks, axis=1), bits)
        assert (out[place : place + bits // 2].T[on] == want[on]).all(), bits
    for (how, number, width), place in moves.items():
        group = width if width in (1, 2, 4, 8, 16, 32) else 32
        for lane in np.flatnonzero(on):
            base, own = lane - lane % group, int(lane) % group
            goal = {"bcast": number % group, "down": own + number, "up": own - number, "xor": own ^ number}[how]
            assert out[place][lane] == (raw["a"][base + goal] if 0 <= goal < group else 0), (how, number, width, lane)
        assert (out[place][~on] == 7).all()
    assert (out[index] == np.where(on, raw["a"] ^ U32(21), 7)).all()


# Memory.


def test_copies_past_the_registers() -> None:
    """global_load_async_to_lds_b8 to _b128 and back, its offset on both sides; cluster_load_async_to_lds is a load of the own group."""
    for name, nbytes in (("b8", 1), ("b32", 4), ("b64", 8), ("b128", 16)):
        for verb in ("global_load", "cluster_load"):
            bench = Bench("gfx1250", {"a": 4})
            there = bench.case([
                "s_mov_b32 exec_lo, -1", "v_lshlrev_b32 v9, 4, v0", "v_mov_b32 v3, 0", f"v_mov_b32 v{bench.place['a']}, 0",
                *(f"ds_store_b32 v9, v3 offset:{16 + 4 * k}" for k in range(4)), "s_wait_dscnt 0x0", "s_mov_b32 exec_lo, s34",
                f"{verb}_async_to_lds_{name} v9, v9, s[30:31] offset:16", "s_wait_asynccnt 0x0", "s_mov_b32 exec_lo, -1",
                "ds_load_b128 v[2:5], v9 offset:16", "s_wait_dscnt 0x0",
            ], dwords=4)  # fmt: skip
            at = there + 4
            back = bench.case([
                f"global_store_async_from_lds_{name} v9, v9, s[30:31] offset:16", "s_wait_asynccnt 0x0", "s_mov_b32 exec_lo, 0x7fffffff",
                "global_load_b128 v[2:5], v9, s[30:31] offset:16", "s_wait_loadcnt 0x0",
            ], dwords=4)  # fmt: skip
            raw = {"a": np.random.default_rng(3).integers(0, 2**32, (32, 4), dtype=U32)}
            out, on = (
                bench.launch(lds=1024, check="bounds,race")(raw, MASK & 0x7FFFFFFF),
                lanes_on(MASK & 0x7FFFFFFF),
            )
            memory = raw["a"].T.reshape(-1).view(np.uint8)  # as it lies there, plane by plane
            rows = np.stack([memory[16 * l + 16 : 16 * l + 32] for l in range(31)])
            got = np.ascontiguousarray(out[there : there + 4].T).view(np.uint8)[:31]
            want = np.where(on[:31, None] & (np.arange(16) < nbytes), rows, 0)
            assert (got == want).all() and back == at, name
            after = np.ascontiguousarray(out[back : back + 4].T).view(np.uint8)[:31]
            assert (after == rows).all(), name


def test_loads_for_others() -> None:
    """cluster_load_b32, global_load_monitor_b32 and flat_load_monitor_b32, of each width; global_prefetch_b8 changes nothing."""
    bench = Bench("gfx1250", {"a": 4})
    cases = []
    for name in ("cluster_load", "global_load_monitor", "flat_load_monitor"):
        for width, count in (("b32", 1), ("b64", 2), ("b128", 4)):
            dst = "v2" if count == 1 else f"v[2:{1 + count}]"
            lines = [
                "v_lshlrev_b32 v9, 4, v0",
                "global_prefetch_b8 v9, s[30:31] scope:SCOPE_SE",
                f"{name}_{width} {dst}, v9, s[30:31]",
                "s_wait_loadcnt_dscnt 0x0",
            ]
            cases.append(
                (name, count, bench.case(lines, [f"v_mov_b32 v{2 + k}, 7" for k in range(count)], dwords=count))
            )
    raw = {"a": np.random.default_rng(3).integers(0, 2**32, (32, 4), dtype=U32)}
    out, on = bench.launch()(raw, MASK), lanes_on(MASK)
    rows = raw["a"].T.reshape(-1).reshape(32, 4)
    for name, count, at in cases:
        assert (out[at : at + count].T == np.where(on[:, None], rows[:, :count], 7)).all(), name


# What Triton's products count on, by the element's bits: (lane, element) of each lane's element, as the rows of a tile of 16 x 16 elements lie in lanes.
@pytest.mark.parametrize("bits", sorted(TRANSPOSING))
@pytest.mark.parametrize("local", [True, False])
def test_transposing_loads(bits: int, local: bool) -> None:
    """Each lane gets a column's part of the tiles that the wavefront reads."""
    what, dwords, _ = TRANSPOSING[bits]
    bench = Bench("gfx1250", {"a": dwords}, masked=False)
    a = bench.place["a"]
    size = 4 * dwords
    lines = [f"v_mul_u32_u24 v9, {size}, v0"]
    if local:
        lines += [f"ds_store_b32 v9, v{a + k} offset:{4 * k}" for k in range(dwords)]
        lines += ["s_wait_dscnt 0x0", f"ds_load_tr{bits}_{what} v[2:{1 + dwords}], v9", "s_wait_dscnt 0x0"]
    else:
        lines += [f"global_load_tr{bits}_{what} v[2:{1 + dwords}], v9, s[30:31]", "s_wait_loadcnt 0x0"]
    at = bench.case(lines, dwords=dwords)
    raw = {"a": np.random.default_rng(bits).integers(0, 2**32, (32, dwords), dtype=U32)}
    got = codes(np.ascontiguousarray(bench.launch(lds=1024)(raw)[at : at + dwords].T), bits, 32 * dwords // bits)
    lying = raw["a"] if local else raw["a"].T.reshape(-1).reshape(32, dwords)
    given = codes(lying, bits, 32 * dwords // bits)
    for lane in range(32):
        for e in range(given.shape[1]):
            half = lane // 16
            source = {
                16: (lane // 8 * 8 + e, lane % 8),
                8: (16 * half + 8 * (e // 4) + 4 * (lane // 8 % 2) + e % 4, lane % 8),
                6: (8 * (e // 4) + e % 4 + 4 * half, lane % 16),
                4: (16 * (e // 8) + 8 * half + e % 8, lane % 16),
            }[bits]
            assert got[lane, e] == given[source], (lane, e)


def test_a_clock() -> None:
    bench = Bench("gfx1250", {"a": 1}, masked=False)
    lines = [
        "s_get_shader_cycles_u64 s[40:41]",
        "s_get_shader_cycles_u64 s[42:43]",
        "v_mov_b32 v2, s40",
        "v_mov_b32 v3, s41",
        "v_mov_b32 v4, s42",
        "v_mov_b32 v5, s43",
    ]
    at = bench.case(lines, dwords=4)
    out = bench.launch()({"a": ramp(32, 1)}).astype(np.uint64)
    first, then = (out[at + k] | out[at + k + 1] << np.uint64(32) for k in (0, 2))
    assert (then > first).all()
