"""gfx1250's matrix instructions against NumPy: small numbers, whose sums are exact, in the places that rocjitsu's layouts give them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tec.emulator.errors import UnsupportedInstruction
from tec.emulator.isa import opcodes
from tec.emulator.isa.wmma_cdna5 import NAMES

from .rows import Bench
from .test_matrix import encode, number

opcodes.load()
NAME = re.compile(r"v_(wmma|swmmac)_(?:(scale|scale16)_)?(\w+?)_(\d+)x16x(\d+)_(\w+)$")
BITS = {"f32": 32, "f16": 16, "bf16": 16, "iu8": 8, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
SMALL = {"fp6": (2, 3), "bf6": (3, 2), "fp4": (2, 1)}


def values_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(codes, numbers) of the elements that are tried."""
    if kind in ("f32", "f16", "bf16", "iu8"):
        few = np.arange(-4, 5)
        return few, few.astype(float)
    if kind in ("fp8", "bf8"):
        every = np.array([number(x, kind, False) for x in range(256)])
    else:
        e, f = SMALL[kind]
        bias, n = (1 << e - 1) - 1, 1 << e + f
        every = np.array([
            (-1.0 if x >= n else 1.0) * ((x % n & (1 << f) - 1) * 2.0 ** (1 - bias - f) if x % n >> f == 0
                                         else (1 + (x % n & (1 << f) - 1) / (1 << f)) * 2.0 ** ((x % n >> f) - bias))
            for x in range(2 * n)
        ])  # fmt: skip
    codes = np.flatnonzero(np.isin(np.abs(every), (0.0, 0.5, 1.0, 2.0, 3.0)))
    return codes, every[codes]


def k_of(lane: int, i: int, bits: int, twice: bool) -> int:
    """The k of a lane's element: runs of 16 bytes (two f32; 32 elements of 6 and 4 bits), by turns of the lane groups."""
    run = {32: 2, 16: 8, 8: 16, 6: 32, 4: 32}[bits] * (1 + twice)
    return i // run * 2 * run + lane // 16 * run + i % run


def pack(elements: np.ndarray, kind: str) -> np.ndarray:
    """[lane, element] codes or numbers to registers."""
    bits = BITS[kind]
    if bits >= 16:
        return encode(elements, kind).reshape(32, -1).view(np.uint32)
    words = np.zeros((32, elements.shape[1] * bits // 32 + 1), np.uint64)
    for i in range(elements.shape[1]):
        k, at = divmod(bits * i, 32)
        code = elements[:, i].astype(np.int64).astype(np.uint64) & np.uint64((1 << bits) - 1)
        words[:, k] |= code << np.uint64(at)
        words[:, k + 1] |= words[:, k] >> np.uint64(32)
        words[:, k] &= np.uint64(0xFFFFFFFF)
    return np.ascontiguousarray(words[:, :-1].astype(np.uint32))


class Trial:
    """Operands of one instruction, and what it must give."""

    def __init__(self, name: str, kinds: tuple[str, str], m: int, k: int, out: str, seed: int = 0, scaled: int = 0):
        rng = np.random.default_rng(seed)
        self.m, self.out, self.scaled = m, out, scaled
        sparse = "swmmac" in name
        picks = []
        for kind, shape in zip(kinds, ((m, k), (k, 16))):
            codes, numbers = values_of(kind)
            which = rng.integers(0, len(codes), shape)
            picks.append((codes[which], numbers[which]))
        (a_codes, self.a), (b_codes, self.b) = picks
        self.places = np.sort(np.argsort(rng.random((m, k // 4, 4)))[:, :, :2]) if sparse else None
        self.index = self.stored = None
        if self.places is not None:
            kept = np.zeros((m, k), bool)
            np.put_along_axis(kept.reshape(m, k // 4, 4), self.places, True, axis=2)
            self.a = np.where(kept, self.a, 0)
            stored = a_codes.reshape(m, -1)[kept].reshape(m, k // 2)
            self.words_a = pack(self._lanes(stored, kinds[0], False), kinds[0])
            entries = self.places.reshape(m, k // 2)
            n = k // 4  # of a lane: the first half of a row's in lanes 0 to 15
            index = [sum(int(entries[l % 16, n * (l // 16) + i]) << 2 * i for i in range(n)) for l in range(32)]
            self.index = np.array(index, np.uint64).view(np.uint32).reshape(32, 2)[:, : n // 16]
        else:
            self.words_a = np.concatenate([pack(self._lanes(a_codes[r : r + 16], kinds[0], False), kinds[0]) for r in range(0, m, 16)], axis=1)  # fmt: skip
        self.words_b = pack(self._lanes(b_codes.T, kinds[1], sparse), kinds[1])
        self.c = rng.integers(-3, 4, (m, 16)).astype(float)
        if scaled:
            self.exponents = [rng.integers(126, 129, (rows_, k // scaled)) for rows_ in (m, 16)]
            self.a = self.a * 2.0 ** (np.repeat(self.exponents[0], scaled, axis=1) - 127.0)
            self.b = self.b * 2.0 ** (np.repeat(self.exponents[1], scaled, axis=1).T - 127.0)

    def _lanes(self, matrix: np.ndarray, kind: str, twice: bool) -> np.ndarray:
        count = matrix.shape[1] // 2
        ks = np.array([[k_of(l, i, BITS[kind], twice) for i in range(count)] for l in range(32)])
        return np.take_along_axis(matrix[np.arange(32) % 16], ks, axis=1)

    def scales(self, which: int, group: int) -> np.ndarray:
        """The registers of the scales, in the lanes of one group (all, of 32 rows); the other lanes have scales that would show."""
        e = self.exponents[which]
        words = np.full((32, e.shape[1]), 140, np.uint8)
        words[(0 if len(e) == 32 else 16 * group) : (32 if len(e) == 32 else 16 * group + 16)] = e
        return words.view(np.uint32)

    def spread(self, matrix: np.ndarray, out: str) -> np.ndarray:
        items = np.array([[matrix[16 * (q // 8) + 8 * (l // 16) + q % 8, l % 16] for q in range(self.m // 2)] for l in range(32)])  # fmt: skip
        return encode(items, out) if out in ("f16", "bf16") else items.astype(np.float32 if out == "f32" else np.int32)

    def registers(self, matrix: np.ndarray, out: str) -> np.ndarray:
        return np.ascontiguousarray(self.spread(matrix, out)).reshape(32, -1).view(np.uint32)


def launch(
    name: str, t: Trial, tail: str = "", out: str = "", c_out: str = "", groups: tuple[int, int] = (0, 0)
) -> np.ndarray:
    """The result's registers [lane, register]."""
    c = t.registers(t.c, c_out or out)
    given = {"a": t.words_a, "b": t.words_b, "c": c}
    if t.index is not None:
        given["i"] = t.index
    if t.scaled:
        given |= {"s": t.scales(0, groups[0]), "t": t.scales(1, groups[1])}
    bench = Bench("gfx1250", {n: x.shape[1] for n, x in given.items()}, masked=False)
    count = t.registers(t.c, out).shape[1]
    dst = f"v[2:{1 + count}]"
    if t.index is not None:
        before = [f"v_mov_b32 v{2 + i}, v{bench.place['c'] + i}" for i in range(count)]
        text = f"{name} {dst}, {bench.reg('a')}, {bench.reg('b')}, {bench.reg('i')}"
    else:
        before, text = [], f"{name} {dst}, {bench.reg('a')}, {bench.reg('b')}, {bench.reg('c')}"
    if t.scaled:
        text += f", {bench.reg('s')}, {bench.reg('t')}"
    at = bench.case([text + tail], before, dwords=count)
    return bench.launch()({n: np.ascontiguousarray(x) for n, x in given.items()})[at : at + count].T


PLAIN = [n for n in NAMES if not n.endswith(("_f8f6f4", "x128_f4"))]
MIXED = [n for n in NAMES if n not in PLAIN]


def test_every_row_is_tried() -> None:
    assert len(PLAIN) == 36 and len(MIXED) == 6


@pytest.mark.parametrize("name", PLAIN)
def test_products(name: str) -> None:
    m = NAME.match(name)
    assert m is not None
    out, source = m[3], m[6]
    kinds = tuple(source.split("_")) if "_" in source else (source, source)
    c_out, out = ("f32", "bf16") if out == "bf16f32" else (out, out)
    t = Trial(name, (kinds[0], kinds[1]), 16, int(m[5]), out, seed=len(name))
    signed = " neg_lo:[1,1,0]" if source == "iu8" else ""
    if out == "bf16":  # 8 bits hold such sums alone
        t.words_a[:, 1:] = 0
        keep = np.array([k_of(l, i, 16, False) for l in (0, 16) for i in (0, 1)])
        if t.places is None:
            t.a = np.where(np.isin(np.arange(t.a.shape[1]), keep), t.a, 0)
        else:
            first = [np.flatnonzero(np.arange(t.a.shape[1]) // 4 == k // 2) for k in keep]
            t.a = np.where(np.isin(np.arange(t.a.shape[1]), np.concatenate(first)), t.a, 0)
    got = launch(name, t, signed + " matrix_a_reuse matrix_b_reuse" * (source != "f32"), out, c_out)
    assert (got == t.registers(t.c + t.a @ t.b, out)).all()
    if source == "iu8":
        unsigned = (t.a.astype(int) & 255).astype(float)
        assert (launch(name, t, " neg_lo:[0,1,0]", out) == t.registers(t.c + unsigned @ t.b, out)).all()
        t.c = np.where(t.c > 0, 2.0**31 - 1, -(2.0**31))
        want = np.clip(t.c + t.a @ t.b, -(2.0**31), 2.0**31 - 1)
        assert (launch(name, t, signed + " clamp", out) == t.registers(want, out)).all()
    elif t.index is None:
        got = launch(name, t, " neg_lo:[0,0,1] neg_hi:[0,0,1]", out, c_out)
        assert (got == t.registers(-np.abs(t.c) + t.a @ t.b, out)).all()


PAIRS = [("fp8", "bf8"), ("bf8", "fp4"), ("fp6", "bf6"), ("fp4", "fp4"), ("bf6", "fp8")]
TRIED = [(n, k) for n in MIXED for k in (PAIRS if n.endswith("f8f6f4") else PAIRS[3:4])]


@pytest.mark.parametrize(("name", "kinds"), TRIED, ids=str)
def test_small_floats(name: str, kinds: tuple[str, str]) -> None:
    """Each pair of formats; scales of 32 or 16 k, in the lanes of either group."""
    m = NAME.match(name)
    assert m is not None
    scaled = {None: 0, "scale": 32, "scale16": 16}[m[2]]
    t = Trial(name, kinds, int(m[4]), 128, "f32", seed=3, scaled=scaled)
    formats = (
        ""
        if name.endswith("x128_f4")
        else f" matrix_a_fmt:MATRIX_FMT_{kinds[0].upper()} matrix_b_fmt:MATRIX_FMT_{kinds[1].upper()}"
    )
    if not scaled and (BITS[kinds[0]] == 8) != (BITS[kinds[1]] == 8):
        with pytest.raises(UnsupportedInstruction, match="two layouts"):
            launch(name, t, formats, "f32")
        return
    want = t.registers(t.c + t.a @ t.b, "f32")
    assert (launch(name, t, formats, "f32") == want).all()
    if scaled and kinds == ("fp4", "fp4"):
        row1 = " matrix_b_scale:MATRIX_SCALE_ROW1"
        assert (launch(name, t, formats + row1, "f32", groups=(0, 1)) == want).all()
        with pytest.raises(UnsupportedInstruction, match="E8M0"):
            launch(name, t, formats + " matrix_a_scale_fmt:MATRIX_SCALE_FMT_E5M3", "f32")


def test_what_is_refused() -> None:
    t = Trial("v_swmmac_f32_16x16x64_f16", ("f16", "f16"), 16, 64, "f32")
    with pytest.raises(UnsupportedInstruction, match="index_key"):
        launch("v_swmmac_f32_16x16x64_f16", t, " index_key:1", "f32")
