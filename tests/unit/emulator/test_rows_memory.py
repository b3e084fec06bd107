"""Every memory opcode of the table: what it loads, stores or changes, byte by byte, under EXEC patterns."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS
from tests.thinned import thinned

from .harness import download, upload
from .row_reference import s
from .rows import Bench
from .test_valu import F16, F32, F64, U32, U64, fmax, fmin

opcodes.load()
CELL = 64  # bytes of one lane, one case
OLD = 0xDEADBEEF
CHIPS = ("gfx942", "gfx1100")
MASKS = (-1, 0x5A5A_1234_8001_F00F)
NUMBER = re.compile(r"(?:dword|b)(?:x?(\d+))?$")
_BYTES = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_SMALL = {"ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True), "u8": (1, False),
          "i8": (1, True), "u16": (2, False), "i16": (2, True), "short": (2, False), "b16": (2, False), "b8": (1, False),
          "byte": (1, False)}  # fmt: skip


def load_spec(suffix: str) -> tuple[int, bool, str]:
    """(bytes, signed, half of the register that it goes to) of a load or store suffix."""
    if suffix in _BYTES:
        return _BYTES[suffix], False, ""
    half = "hi" if "_hi" in suffix else "lo" if "d16" in suffix else ""
    stem = suffix.replace("_d16_hi", "").replace("_d16", "").replace("d16_hi_", "").replace("d16_", "")
    return *_SMALL[stem], half


TRANSPOSED = {"ds_read_b64_tr_b16": 16, "ds_read_b64_tr_b8": 8, "ds_read_b64_tr_b4": 4, "ds_read_b96_tr_b6": 6}
# suffix -> (bytes in memory, bytes in LDS, signed)
TO_LDS_WIDTHS = {"dword": (4, 4, False), "dwordx3": (12, 12, False), "dwordx4": (16, 16, False), "ubyte": (1, 4, False), "sbyte": (1, 4, True),
                 "ushort": (2, 4, False), "sshort": (2, 4, True)}  # fmt: skip
TO_LDS = {f"global_load_lds_{s}" for s in TO_LDS_WIDTHS} | {
    f"scratch_load_lds_{s}" for s, w in TO_LDS_WIDTHS.items() if w[1] == 4
}
BY_THREAD = {
    f"{unit}_{verb}_{name}"
    for unit in ("global", "ds")
    for verb in ("load", "store", "read", "write")
    for name in ("addtid_b32", "dword_addtid")
} & ROWS.keys()
EXCHANGES = {
    f"ds_{name}{st}_rtn_b{w}": (w, w // 8 * (64 if st not in ("", "_2addr") else 1))
    for name, forms in (("wrxchg2", ("", "st64")), ("storexchg", ("_2addr", "_2addr_stride64")))
    for st in forms
    for w in (32, 64)
}
COUNTERS = {"ds_append", "ds_consume", "ds_condxchg32_rtn_b64"}  # test_by_index
APART = TO_LDS | BY_THREAD | COUNTERS | {"global_load_tr_b128"}


# RDNA 3's loads into LDS, which AMD's file alone names: test_disassemble.py.
AMD_LISTS = r"(global|buffer|scratch)_load_lds_(addtid_)?[biu]\d+"
# test_rows_cdna5.py.
GFX1250 = r"cluster_load_|global_(load|store)_async_|(global|flat)_load_monitor_|global_load_tr\d+_"


def by_prefix(prefix: str, kind: str) -> list[str]:
    return [
        n
        for n, r in ROWS.items()
        if r.kind == kind
        and n.startswith(prefix)
        and n not in APART
        and "_format_" not in n
        and not re.match(f"{GFX1250}|{AMD_LISTS}", n)
    ]


def loads(space: str) -> list[str]:
    return by_prefix(f"{space}_load_", "vmem")


def stores(space: str) -> list[str]:
    return by_prefix(f"{space}_store_", "vmem")


def atomics(space: str) -> list[str]:
    return by_prefix(f"{space}_atomic_", "vmem")


LDS_LOADS = {
    n: load_spec(n.removeprefix("ds_read_").removeprefix("ds_load_"))
    for n in ROWS
    if re.match(r"ds_(read|load)_(?!2|tr\d)", n)
    and n not in TRANSPOSED
    and n not in BY_THREAD
    and ROWS[n].kind == "lds"
}
LDS_STORES = {
    n: load_spec(n.removeprefix("ds_write_").removeprefix("ds_store_"))
    for n in ROWS
    if re.match(r"ds_(write|store)_(?!2)", n) and n not in BY_THREAD and ROWS[n].kind == "lds"
}
LDS_PAIRS = {
    f"ds_{verb}2{st}_b{w}" if verb in ("read", "write") else f"ds_{verb}_2addr{'_stride64' if st else ''}_b{w}": (
        verb in ("read", "load"),
        w,
        w // 8 * (64 if st else 1),
    )
    for verb in ("read", "write", "load", "store")
    for st in ("", "st64")
    for w in (32, 64)
}
LDS_ATOMICS = [
    n
    for n, r in ROWS.items()
    if r.kind == "lds"
    and not n.startswith("ds_load_tr")
    and n not in {*LDS_LOADS, *LDS_STORES, *LDS_PAIRS, "ds_nop", *TRANSPOSED, *BY_THREAD, *EXCHANGES, *COUNTERS}
]


# What an atomic does: name -> (bits, function of (memory, data, compare) as unsigned integers).
def _float(kind: type, fn: Callable[..., object]) -> Callable[[int, int, int], int]:
    raw = {F32: U32, F64: U64}[kind]

    def run(m: int, d: int, c: int) -> int:
        a, b = (np.array([v], raw).view(kind) for v in (m, d))
        return int(np.asarray(fn(a, b)).astype(kind).view(raw)[0])

    return run


def _pk(bf: bool) -> Callable[[int, int, int], int]:
    def run(m: int, d: int, c: int) -> int:
        out = 0
        for h in (0, 16):
            a, b = m >> h & 0xFFFF, d >> h & 0xFFFF
            if bf:
                x = np.array([a << 16, b << 16], U32).view(F32)
                u = int(np.array([x[0] + x[1]], F32).view(U32)[0])
                r = (u + 0x7FFF + (u >> 16 & 1)) >> 16
            else:
                y = np.array([a, b], np.uint16).view(F16)
                r = int(np.array([y[0] + y[1]], F16).view(np.uint16)[0])
            out |= (r & 0xFFFF) << h
        return out

    return run


def operation(name: str) -> tuple[int, Callable[[int, int, int], int]]:
    """(bits, meaning) of an atomic by the words of its name, whatever its unit and spelling."""
    stem = re.sub(r"^(global|flat|buffer)_atomic_|^ds_", "", name).replace("_rtn", "")
    bits = 64 if re.search(r"64$|_x2$", stem) else 32
    word = re.sub(r"_x2$", "", stem)
    if word.startswith("pk_add"):
        return 32, _pk(word.endswith("bf16"))
    if word in ("fmin", "fmax"):
        return bits, _float(F32 if bits == 32 else F64, {"fmin": fmin, "fmax": fmax}[word])
    if word == "fcmpswap" or re.match(r"cmp\w+_f(32|64)$", word):
        kind = {32: F32, 64: F64}[bits]

        def same(m: int, c: int) -> bool:
            return bool(
                np.array([m], {32: U32, 64: U64}[bits]).view(kind)[0]
                == np.array([c], {32: U32, 64: U64}[bits]).view(kind)[0]
            )

        return bits, lambda m, d, c: d if same(m, c) else m
    if word.endswith(("_f32", "_f64")):
        kind = F32 if bits == 32 else F64
        return bits, _float(kind, {"add": lambda a, b: a + b, "min": fmin, "max": fmax}[word[:3]])
    signed = word.startswith(("smin", "smax")) or word.endswith(("_i32", "_i64"))
    verb = re.sub(r"_[ubi](32|64)$", "", word)
    if verb[0] in "su" and verb[1:] in ("min", "max"):
        verb = verb[1:]
    verb = {"wrxchg": "swap", "storexchg": "swap", "cmpst": "cmpswap", "cmpstore": "cmpswap"}.get(verb, verb)
    key = (lambda v: s(v, bits)) if signed else (lambda v: v)
    table: dict[str, Callable[[int, int, int], int]] = {
        "add": lambda m, d, c: m + d, "sub": lambda m, d, c: m - d, "and": lambda m, d, c: m & d,
        "or": lambda m, d, c: m | d, "xor": lambda m, d, c: m ^ d, "swap": lambda m, d, c: d,
        "min": lambda m, d, c: min(m, d, key=key), "max": lambda m, d, c: max(m, d, key=key),
        "inc": lambda m, d, c: 0 if m >= d else m + 1, "dec": lambda m, d, c: d if m == 0 or m > d else m - 1,
        "cmpswap": lambda m, d, c: d if m == c else m, "csub": lambda m, d, c: max(0, m - d), "sub_clamp": lambda m, d, c: max(0, m - d),
        "cond_sub": lambda m, d, c: m - d if m >= d else m, "rsub": lambda m, d, c: d - m, "mskor": lambda m, d, c: m & ~d | c,
        "wrap": lambda m, d, c: m - d if m >= d else m + c,
    }  # fmt: skip
    return bits, table[verb]


class Arena:
    """Memory of CELL bytes for each lane of each case; lanes take their cells in a shuffled order."""

    def __init__(self, bench: Bench, cases: int, seed: int):
        rng = np.random.default_rng(seed)
        self.lanes = bench.lanes
        self.order = rng.permutation(self.lanes)
        self.content = rng.integers(0, 256, (cases, self.lanes, CELL), dtype=np.uint8)
        self.data = rng.integers(0, 2**32, (self.lanes, 4), dtype=U32)

    def offsets(self) -> np.ndarray:
        return (self.order * CELL).astype(U32)

    def cell(self, case: int, lane: int) -> np.ndarray:
        return self.content[case, self.order[lane]]


PLANES = {"off": 1, "addr": 2, "data": 4}
RESOURCE = ["s_mov_b64 s[48:49], s[36:37]", "s_mov_b32 s50, 0x7fffffff", "s_mov_b32 s51, 0x27000"]


def run(bench: Bench, arena: Arena, mask: int, lds: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(results, arena afterwards)."""
    launch = _launch(bench, lds)
    driver = launch.driver
    where = upload(driver, arena.content)
    raw = {"off": arena.offsets(), "addr": where + arena.offsets().astype(U64), "data": arena.data}
    try:
        return launch(raw, mask, where), download(driver, where, arena.content)
    finally:
        driver.free(0, where)


_launches: dict[int, object] = {}


def _launch(bench: Bench, lds: int):  # type: ignore[no-untyped-def]
    if id(bench) not in _launches:
        _launches.clear()
        _launches[id(bench)] = bench.launch(lds=lds)
    return _launches[id(bench)]


def fresh(chip: str) -> Bench:
    bench = Bench(chip, PLANES)
    bench.lines += RESOURCE
    return bench


def vector(first: int, dwords: int) -> str:
    return f"v{first}" if dwords == 1 else f"v[{first}:{first + dwords - 1}]"


def address(bench: Bench, space: str, offset: int, saddr: bool = False) -> tuple[str, str]:
    """(operands, modifiers) of an address in the arena."""
    off, addr = bench.reg("off"), bench.reg("addr")
    if space == "global":
        return (f"{off}, s[36:37]", f" offset:{offset}") if saddr else (f"{addr}, off", f" offset:{offset}")
    if space == "flat":
        return addr, f" offset:{offset}"
    return f"{off}, s[48:51], 0", f" offen offset:{offset}"


OLDS = [f"v_mov_b32 v{2 + k}, {OLD:#x}" for k in range(4)]


def loaded(cell: np.ndarray, at: int, spec: tuple[int, bool, str]) -> list[int]:
    """The registers after a load."""
    nbytes, signed, half = spec
    value = int.from_bytes(cell[at : at + nbytes].tobytes(), "little")
    if half:
        value = (s(value, 8 * nbytes) if signed else value) & 0xFFFF
        return [value | OLD & 0xFFFF0000 if half == "lo" else value << 16 | OLD & 0xFFFF]
    if nbytes < 4:
        return [(s(value, 8 * nbytes) if signed else value) & 0xFFFFFFFF]
    return [value >> (32 * k) & 0xFFFFFFFF for k in range(nbytes // 4)]


def stored(data: np.ndarray, spec: tuple[int, bool, str]) -> bytes:
    nbytes, _, half = spec
    if half:
        return int(data[0] >> U32(16)).to_bytes(4, "little")[:nbytes]
    return data.tobytes()[:nbytes]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("space", ["global", "flat", "buffer"])
def test_vector_loads(chip: str, space: str) -> None:
    bench, cases = fresh(chip), []
    for i, name in enumerate(loads(space)):
        spec = load_spec(name.removeprefix(f"{space}_load_"))
        at = i % 3 * 4 + (spec[0] < 4) * (i % 2) * spec[0]
        where, mods = address(bench, space, i * bench.lanes * CELL + at, saddr=bool(i & 1))
        text = f"{name} {vector(2, max(1, spec[0] // 4))}, {where}{mods}"
        cases.append((name, spec, at, bench.case([text], OLDS, dwords=4)))
    for mask in MASKS:
        arena = Arena(bench, len(cases), 1)
        out, after = run(bench, arena, mask)
        assert (after == arena.content).all()
        for i, (name, spec, at, first) in enumerate(cases):
            for l in range(bench.lanes):
                want = loaded(arena.cell(i, l), at, spec) if mask >> l & 1 else []
                want += [OLD] * (4 - len(want))
                assert [int(out[first + k, l]) for k in range(4)] == want, (name, chip, l)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("space", ["global", "flat", "buffer"])
def test_vector_stores(chip: str, space: str) -> None:
    bench, cases = fresh(chip), []
    for i, name in enumerate(stores(space)):
        spec = load_spec(name.removeprefix(f"{space}_store_"))
        at = i % 3 * 4
        where, mods = address(bench, space, i * bench.lanes * CELL + at, saddr=bool(i & 1))
        data = vector(bench.place["data"], max(1, spec[0] // 4))
        before, _, after_ = where.partition(",")
        text = f"{name} {data}, {where}{mods}" if space == "buffer" else f"{name} {before}, {data}" + (f",{after_}" if after_ else "") + mods  # fmt: skip
        cases.append((name, spec, at))
        bench.case([text], dwords=0)
    for mask in MASKS:
        arena = Arena(bench, len(cases), 2)
        _, after = run(bench, arena, mask)
        want = arena.content.copy()
        for i, (_, spec, at) in enumerate(cases):
            for l in range(bench.lanes):
                if mask >> l & 1:
                    part = stored(arena.data[l], spec)
                    want[i, arena.order[l], at : at + len(part)] = np.frombuffer(part, np.uint8)
        for i, (name, _, _) in enumerate(cases):
            assert (after[i] == want[i]).all(), (name, chip)


def atomic_inputs(bench: Bench, names: list[str]) -> Arena:
    """Cells with numbers that suit each opcode: finite floats, compare values that hit in every other lane."""
    arena = Arena(bench, len(names), 3)
    rng = np.random.default_rng(5)
    floats = rng.standard_normal((bench.lanes, 2)).astype(F32)
    # As f32 pairs, halves and doubles alike these bits are finite.
    arena.data[:, :2] = floats.view(U32) & U32(0xBFFFBFFF)
    for i, name in enumerate(names):
        bits, _ = operation(name)
        for l in range(bench.lanes):
            cell = arena.content[i, arena.order[l]]
            cell[:8] = (rng.standard_normal(2).astype(F32).view(U32) & U32(0xBFFFBFFF)).view(np.uint8)
            if "inc" in name or "dec" in name:
                cell[: bits // 8] = 0
                cell[: bits // 8] = arena.data[l].view(np.uint8)[: bits // 8] if l % 3 == 0 else cell[: bits // 8]
    return arena


def check_atomics(
    bench: Bench, cases: list[tuple[str, bool, int]], mask: int, lds: int = 0, swapped: bool = False
) -> None:
    names = [c[0] for c in cases]
    arena = atomic_inputs(bench, names)
    n = bench.lanes
    for i, name in enumerate(names):  # compare values: data words after the new value
        bits, _ = operation(name)
        if "cmp" in name:
            for l in range(0, n, 2):
                words = bits // 32
                arena.content[i, arena.order[l], : bits // 8] = arena.data[l, words : 2 * words].view(np.uint8)
    out, after = run(bench, arena, mask, lds)
    for i, (name, returns, first) in enumerate(cases):
        bits, fn = operation(name)
        words = bits // 32
        for l in range(n):
            memory = int.from_bytes(arena.cell(i, l)[: bits // 8].tobytes(), "little")
            data = int.from_bytes(arena.data[l, :words].tobytes(), "little")
            compare = int.from_bytes(arena.data[l, words : 2 * words].tobytes(), "little")
            on = bool(mask >> l & 1)
            want = fn(memory, data, compare) & ((1 << bits) - 1) if on else memory
            got = int.from_bytes(after[i, arena.order[l], : bits // 8].tobytes(), "little")
            assert got == want, (name, bench.chip, l, hex(memory), hex(data), hex(got), hex(want))
            if returns:
                back = sum(int(out[first + k, l]) << 32 * k for k in range(words))
                old = memory if on else sum(OLD << 32 * k for k in range(words))
                assert back == old, (name, bench.chip, l, hex(back), hex(old))


@thinned(1, ("chip", CHIPS), ("space", ["global", "flat", "buffer"]))
def test_vector_atomics(chip: str, space: str) -> None:
    bench, cases = fresh(chip), []
    glc = "sc0" if chip == "gfx942" else "glc"
    for name in atomics(space):
        bits, _ = operation(name)
        words = bits // 32 * (2 if "cmp" in name else 1)
        for returns in (True, False):
            where, mods = address(bench, space, len(cases) * bench.lanes * CELL, saddr=returns)
            data = vector(bench.place["data"], words)
            before, _, rest = where.partition(",")
            tail = (f",{rest}" if rest else "") + mods + (f" {glc}" if returns else "")
            if space == "buffer":  # the data register takes the result
                moves = [f"v_mov_b32 v{2 + k}, v{bench.place['data'] + k}" for k in range(words)]
                lines = [*moves, f"{name} {vector(2, words)}, {where}{mods}" + (f" {glc}" if returns else "")]
            else:
                lines = [f"{name} {vector(2, bits // 32) + ', ' if returns else ''}{before}, {data}{tail}"]
            cases.append((name, returns, bench.case(lines, OLDS, dwords=2)))
    for mask in MASKS:
        check_atomics(bench, cases, mask)


def lds_copy(bench: Bench, case: int, out: bool) -> list[str]:
    """A case's cells from the arena to LDS, or back; 16 bytes a lane."""
    where, mods = address(bench, "global", case * bench.lanes * CELL, saddr=True)
    off, _, base = where.partition(",")
    gl, gs = ("global_load_dwordx4", "global_store_dwordx4") if bench.chip.startswith("gfx9") else ("global_load_b128", "global_store_b128")  # fmt: skip
    if out:
        return [f"ds_read_b32 v{6 + k}, {off} offset:{4 * k}" for k in range(4)] + [f"{gs} {off}, v[6:9],{base}{mods}"]
    return [f"{gl} v[6:9], {off},{base}{mods}"] + [f"ds_write_b32 {off}, v{6 + k} offset:{4 * k}" for k in range(4)]


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_loads_and_stores(chip: str) -> None:
    bench, cases = fresh(chip), []
    off = bench.reg("off")
    for name, spec in LDS_LOADS.items():
        text = f"{name} {vector(2, max(1, spec[0] // 4))}, {off}"
        cases.append((name, spec, True, bench.case([text], lds_copy(bench, len(cases), False) + OLDS, dwords=4)))
    for name, spec in LDS_STORES.items():
        text = f"{name} {off}, {vector(bench.place['data'], max(1, spec[0] // 4))}"
        i = len(cases)
        cases.append((name, spec, False, bench.case([text], lds_copy(bench, i, False), lds_copy(bench, i, True), 0)))
    for mask in MASKS:
        arena = Arena(bench, len(cases), 6)
        out, after = run(bench, arena, mask, lds=bench.lanes * CELL)
        want = arena.content.copy()
        for i, (name, spec, load, first) in enumerate(cases):
            for l in range(bench.lanes):
                on = bool(mask >> l & 1)
                if load:
                    regs = loaded(arena.cell(i, l), 0, spec) if on else []
                    regs += [OLD] * (4 - len(regs))
                    assert [int(out[first + k, l]) for k in range(4)] == regs, (name, chip, l)
                elif on:
                    part = stored(arena.data[l], spec)
                    want[i, arena.order[l], : len(part)] = np.frombuffer(part, np.uint8)
            assert (after[i] == want[i]).all(), (name, chip)


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_in_pairs(chip: str) -> None:
    """Two addresses at once: offsets count elements, or 64 of them."""
    bench = fresh(chip)
    cases = []
    data = bench.place["data"]
    for name, (load, w, unit) in LDS_PAIRS.items():
        n = w // 32
        near = unit >= 64  # the strided forms: lanes side by side, the second element past all of them
        o0, o1 = (0, 1) if near else (1, 3)
        off = "v7" if near else bench.reg("off")
        lane = [f"v_lshlrev_b32 v7, {1 + n}, v0"]
        spots = [(unit * o + 4 * k, n * j + k) for j, o in enumerate((o0, o1)) for k in range(n)]
        if load:
            fill = [f"ds_write_b32 {off}, v{data + k} offset:{at}" for at, k in spots]
            first = bench.case(
                [f"{name} {vector(2, 2 * n)}, {off} offset0:{o0} offset1:{o1}"], lane + fill + OLDS, dwords=4
            )
        else:
            text = f"{name} {off}, {vector(data, n)}, {vector(data + n, n)} offset0:{o0} offset1:{o1}"
            clear = [f"v_mov_b32 v6, {OLD:#x}", *(f"ds_write_b32 {off}, v6 offset:{at}" for at, _ in spots)]
            back = [f"ds_read_b32 v{2 + k}, {off} offset:{at}" for at, k in spots]
            first = bench.case([text], lane + clear + OLDS, back, 4)
        cases.append((name, n, first))
    for mask in MASKS:
        arena = Arena(bench, 1, 8)
        out, _ = run(bench, arena, mask, lds=bench.lanes * CELL)
        for name, n, at in cases:
            for l in range(bench.lanes):
                want = [int(v) for v in arena.data[l, : 2 * n]] if mask >> l & 1 else []
                want += [OLD] * (4 - len(want))
                if n == 1 and len(want) > 2:
                    want[2:] = [OLD, OLD]
                assert [int(out[at + k, l]) for k in range(4)] == want, (name, chip, l)


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_atomics(chip: str) -> None:
    bench, cases = fresh(chip), []
    off, d = bench.reg("off"), bench.place["data"]
    for name in LDS_ATOMICS:
        bits, _ = operation(name)
        n = bits // 32
        returns = "_rtn" in name
        operands = [vector(2, n)] if returns else []
        operands.append(off)
        if "cmpst_" in name:  # the old spelling takes the compare value first
            operands += [vector(d + n, n), vector(d, n)]
        else:
            operands.append(vector(d, n))
            if re.search("cmpstore|mskor|wrap", name):
                operands.append(vector(d + n, n))
        i = len(cases)
        first = bench.case(
            [f"{name} {', '.join(operands)}"], lds_copy(bench, i, False) + OLDS, lds_copy(bench, i, True)
        )
        cases.append((name, returns, first))
    for mask in MASKS:
        check_atomics(bench, cases, mask, lds=bench.lanes * CELL)


@pytest.mark.parametrize("chip", CHIPS)
def test_scratch(chip: str) -> None:
    """Each lane has its own bytes: dwords stored and read narrow, and the other way round."""
    bench, cases = fresh(chip), []
    store, load = ("scratch_store_dword", "scratch_load_dword") if chip == "gfx942" else ("scratch_store_b32", "scratch_load_b32")  # fmt: skip
    d = bench.place["data"]
    fill = [f"{store} off, v{d + k}, off offset:{16 + 4 * k}" for k in range(4)]
    for i, name in enumerate(loads("scratch")):
        spec = load_spec(name.removeprefix("scratch_load_"))
        at = 16 + (spec[0] < 4) * (i % 2) * spec[0]
        text = f"{name} {vector(2, max(1, spec[0] // 4))}, off, off offset:{at}"
        cases.append((name, spec, at - 16, True, bench.case([text], fill + OLDS, dwords=4)))
    for name in stores("scratch"):
        spec = load_spec(name.removeprefix("scratch_store_"))
        text = f"{name} off, {vector(d, max(1, spec[0] // 4))}, off offset:32"
        clear = ["v_mov_b32 v6, 0x55667788", *(f"{store} off, v6, off offset:{32 + 4 * k}" for k in range(4))]
        back = [f"{load} v{2 + k}, off, off offset:{32 + 4 * k}" for k in range(4)]
        cases.append((name, spec, 0, False, bench.case([text], clear, back, 4)))
    for mask in MASKS:
        arena = Arena(bench, 1, 9)
        out, _ = run(bench, arena, mask)
        for name, spec, at, is_load, first in cases:
            for l in range(bench.lanes):
                on = bool(mask >> l & 1)
                if is_load:
                    want = loaded(arena.data[l].view(np.uint8), at, spec) if on else []
                    want += [OLD] * (4 - len(want))
                else:
                    cell = bytearray((0x55667788).to_bytes(4, "little") * 4)
                    if on:
                        part = stored(arena.data[l], spec)
                        cell[: len(part)] = part
                    want = [int.from_bytes(cell[4 * k : 4 * k + 4], "little") for k in range(4)]
                assert [int(out[first + k, l]) for k in range(4)] == want, (name, chip, l)


SCALAR_LOADS = [n for n, r in ROWS.items() if r.kind == "smem"]


@cache
def scalar_spec(name: str) -> tuple[int, bool]:
    suffix = re.sub(r"^s_(buffer_)?load_", "", name)
    if suffix in ("u8", "i8", "u16", "i16"):
        return int(suffix[1:]) // 8, suffix[0] == "i"
    n = re.fullmatch(r"dword(?:x(\d+))?", suffix)
    return (4 * int(n[1] or 1) if n else int(suffix[1:]) // 8), False


@pytest.mark.parametrize("chip", [*CHIPS, "gfx1200"])
def test_scalar_loads(chip: str) -> None:
    bench, cases = fresh(chip), []
    for i, name in enumerate(SCALAR_LOADS):
        nbytes, _ = scalar_spec(name)
        n = max(1, nbytes // 4)
        at = i % 4 * 64 + (nbytes if nbytes < 4 else 0)
        base = "s[48:51]" if "buffer" in name else "s[36:37]"
        dst = "s52" if n == 1 else f"s[52:{51 + n}]"
        after = [f"v_mov_b32 v{2 + k}, s{52 + k}" for k in range(n)]
        cases.append((name, at, n, bench.case([f"{name} {dst}, {base}, {at:#x}"], [], after, n)))
    arena = Arena(bench, 1, 12)
    out, _ = run(bench, arena, -1)
    flat = arena.content.reshape(-1)
    for name, at, n, first in cases:
        nbytes, signed = scalar_spec(name)
        value = int.from_bytes(flat[at : at + nbytes].tobytes(), "little")
        if nbytes < 4:
            value = (s(value, 8 * nbytes) if signed else value) & 0xFFFFFFFF
        got = sum(int(out[first + k, 0]) << 32 * k for k in range(n))
        assert got == value, (name, chip, hex(got), hex(value))


def test_no_memory_row_is_left_out() -> None:
    spaces = ("global", "flat", "buffer")
    known = {n for sp in spaces for n in (*loads(sp), *stores(sp), *atomics(sp))}
    known |= {*loads("scratch"), *stores("scratch")}
    rows = {n for n, r in ROWS.items() if r.kind == "vmem" and n[:2] != "s_"}  # scalar ones: test_rows_scalar_memory
    rows = {n for n in rows if not n.startswith("image_") and "_format_" not in n}  # test_images
    known |= APART - {n for n in APART if n.startswith("ds_")}
    known |= {n for n in rows if re.match(f"{GFX1250}|{AMD_LISTS}", n)}
    assert rows == known, rows ^ known
    lds = {n for n, r in ROWS.items() if r.kind == "lds"}
    known = {
        *LDS_LOADS,
        *LDS_STORES,
        *LDS_PAIRS,
        *LDS_ATOMICS,
        "ds_nop",
        *TRANSPOSED,
        *EXCHANGES,
        *(n for n in BY_THREAD if n.startswith("ds_")),
        *COUNTERS,
    }
    assert lds - {n for n in lds if n.startswith("ds_load_tr")} == known, lds ^ known
    for name in LDS_ATOMICS:
        operation(name)  # each has a meaning here
