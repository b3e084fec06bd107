"""Memory opcodes with places of their own: loads into LDS, transposing ones, addresses by the lane's number, two exchanges at once."""

from __future__ import annotations

import numpy as np
import pytest

from tec.emulator.errors import EmulationError, KernelFault
from tec.emulator.isa.table import ROWS

from .rows import Bench
from .test_rows_memory import BY_THREAD, EXCHANGES, TO_LDS, TO_LDS_WIDTHS, TRANSPOSED
from .test_valu import U32

MASK = 0x5A5A_1234_8001_F00F
ON = np.array([MASK >> i & 1 for i in range(64)], bool)


def cleared(dwords: int) -> list[str]:
    """0x77 in every dword of LDS that lanes store to, from byte 64 on."""
    lines = ["v_mov_b32 v11, 0x77", f"v_mul_u32_u24 v10, {4 * dwords}, v0"]
    return [*lines, *(f"ds_write_b32 v10, v11 offset:{4 * k + 64}" for k in range(dwords)), "s_waitcnt lgkmcnt(0)"]


def back(dwords: int) -> list[str]:
    return [
        "s_mov_b64 exec, -1",
        *(f"ds_read_b32 v{2 + k}, v10 offset:{4 * k + 64}" for k in range(dwords)),
        "s_waitcnt lgkmcnt(0)",
    ]


def widened(data: np.ndarray, at: np.ndarray, suffix: str) -> np.ndarray:
    """[lane, dword] of what lies at byte `at` of each lane, as LDS gets it."""
    nbytes, _, signed = TO_LDS_WIDTHS[suffix]
    raw = data.view(np.uint8)
    rows = np.stack([raw[x : x + nbytes] for x in at])
    if nbytes >= 4:
        return np.ascontiguousarray(rows).view(U32)
    kind = {1: (np.uint8, np.int8), 2: (np.uint16, np.int16)}[nbytes][signed]
    return np.ascontiguousarray(rows).view(kind).astype(np.int64).astype(U32)


@pytest.mark.parametrize("name", sorted(TO_LDS))
def test_loads_into_lds(name: str) -> None:
    """Lane l's dwords go to M0 + offset + l times their size; lanes that are off store nothing."""
    suffix = name.rsplit("_", 1)[1]
    n = TO_LDS_WIDTHS[suffix][1] // 4
    bench = Bench("gfx950", {"a": 5}, masked=False)
    lines = [*cleared(n), "v_lshlrev_b32 v9, 4, v0"]
    address = "v9, s[30:31]"
    if name.startswith("scratch"):
        a = bench.place["a"]
        lines += [
            *(f"scratch_store_dword off, v{a + k}, off offset:{16 + 4 * k}" for k in range(5)),
            "s_waitcnt vmcnt(0)",
        ]
        address = "off, off"
    lines += ["s_mov_b32 m0, 48", "s_mov_b64 exec, s[34:35]", f"{name} {address} offset:16", "s_waitcnt vmcnt(0)"]
    bench.case(lines + back(n), dwords=n)
    data = np.random.default_rng(3).integers(0, 2**32, 5 * 64, dtype=U32)  # as it lies in memory
    out = bench.launch(lds=2048, check="wait")({"a": data.reshape(5, 64).T}, MASK)
    at = 16 + 16 * np.arange(64) if name.startswith("global") else 4 * np.arange(64)
    want = widened(data, at, suffix)
    for k in range(n):
        np.testing.assert_array_equal(out[k], np.where(ON, want[:, k], 0x77))


@pytest.mark.parametrize("suffix", ["dword", "ubyte", "sshort", "dwordx4"])
def test_buffer_loads_into_lds(suffix: str) -> None:
    """As global ones, by a buffer resource: what lies outside it is zero."""
    n = TO_LDS_WIDTHS[suffix][1] // 4
    bench = Bench("gfx950", {"a": 5}, masked=False)
    lines = [
        *cleared(n),
        "v_lshlrev_b32 v9, 4, v0",
        "s_mov_b64 s[48:49], s[30:31]",
        f"s_mov_b32 s50, {16 + 16 * 40}",
        "s_mov_b32 s51, 0x27000",
    ]
    lines += [
        "s_mov_b32 m0, 48",
        "s_mov_b64 exec, s[34:35]",
        f"buffer_load_{suffix} v9, s[48:51], 0 offen offset:16 lds",
        "s_waitcnt vmcnt(0)",
    ]
    bench.case(lines + back(n), dwords=n)
    data = np.random.default_rng(4).integers(0, 2**32, 5 * 64, dtype=U32)
    out = bench.launch(lds=2048)({"a": data.reshape(5, 64).T}, MASK)
    want = widened(data, 16 + 16 * np.arange(64), suffix)
    want[40:] = 0
    for k in range(n):
        np.testing.assert_array_equal(out[k], np.where(ON, want[:, k], 0x77))


@pytest.mark.parametrize(
    ("place", "after", "refused"),
    [(8, "", ""), (6, "", "buffer_load"), (8, "ds_write_b128 v9, v[2:5] offset:8", "ds_write")],
)
def test_loads_into_lds_are_asked_for_dwords(place: int, after: str, refused: str) -> None:
    """Where alignment is checked, a wide load into LDS is asked for that of a dword; a store behind it for that of its size."""
    bench = Bench("gfx950", {"a": 5}, masked=False)
    lines = [
        "v_lshlrev_b32 v9, 4, v0",
        "s_mov_b64 s[48:49], s[30:31]",
        "s_mov_b32 s50, 0x1000",
        "s_mov_b32 s51, 0x27000",
    ]
    bench.case(
        [*lines, f"s_mov_b32 m0, {place}", "buffer_load_dwordx4 v9, s[48:51], 0 offen lds", "s_waitcnt vmcnt(0)", after]
    )
    launch = bench.launch(lds=2048, check="align")
    given = {"a": np.zeros((64, 5), U32)}
    if not refused:
        launch(given)
        return
    with pytest.raises(KernelFault, match=f"(?s)misaligned LDS access.*{refused}"):
        launch(given)


def test_wide_buffer_loads_into_lds_are_gfx950s() -> None:
    bench = Bench("gfx942", {"a": 1}, masked=False)
    bench.case(["buffer_load_dwordx4 v9, s[48:51], 0 offen lds"])
    with pytest.raises(EmulationError, match="not modelled"):
        bench.launch(lds=64)({"a": np.zeros(64, U32)})


@pytest.mark.parametrize("name", sorted(TRANSPOSED))
def test_transposed_reads(name: str) -> None:
    """Sixteen lanes read rows of 16 elements; lane i has column i."""
    bits, n = TRANSPOSED[name], 3 if "b96" in name else 2
    rows = 32 * n // bits
    bench = Bench("gfx950", {"a": n}, masked=False)
    a = bench.place["a"]
    width = {2: "b64", 3: "b96"}[n]
    lines = [
        f"v_lshlrev_b32 v9, {n + 1}, v0",  # rows of 6-bit elements lie at multiples of 16 bytes
        f"ds_write_{width} v9, v[{a}:{a + n - 1}] offset:16",
        "s_waitcnt lgkmcnt(0)",
    ]
    bench.case([*lines, f"{name} v[2:{1 + n}], v9 offset:16", "s_waitcnt lgkmcnt(0)"], dwords=n)
    tiles = np.random.default_rng(2).integers(0, 1 << bits, (4, rows, 16))  # (group of lanes, row, column)

    def packed(lanes: np.ndarray) -> np.ndarray:
        spread = lanes.reshape(64, -1)[:, :, None] >> np.arange(bits) & 1
        return np.packbits(spread.reshape(64, -1).astype(np.uint8), axis=1, bitorder="little").view(U32)

    out = bench.launch(lds=2048, check="all")({"a": packed(tiles)})
    np.testing.assert_array_equal(out[:n].T, packed(tiles.transpose(0, 2, 1)))


def test_transposing_load() -> None:
    """gfx12: eight lanes' eight halves each; lane i gets half i of each. The places are those that were measured on an RX 9070 XT: with 16 elements a row and lane L at
    element 8 L, lane 15 got columns 7 and 15 of rows 4 to 7."""
    bench = Bench("gfx1200", {"a": 4}, masked=False)
    bench.case(["v_lshlrev_b32 v9, 4, v0", "global_load_tr_b128 v[2:5], v9, s[30:31]", "s_wait_loadcnt 0x0"], dwords=4)
    memory = np.arange(256, dtype=np.uint16).reshape(16, 16)
    planes = np.ascontiguousarray(memory).view(U32).reshape(4, 32).T  # planes as they lie in memory
    out = bench.launch()({"a": planes})
    got = out[:4].T.copy().view(np.uint16)
    for lane in range(32):
        want = [memory[lane // 8 * 4 + j // 2, lane % 8 + 8 * (j % 2)] for j in range(8)]
        assert list(got[lane]) == want, lane
    assert list(got[15]) == [memory[r, c] for r in range(4, 8) for c in (7, 15)]


@pytest.mark.parametrize("name", sorted(BY_THREAD))
def test_addresses_by_the_lanes_number(name: str) -> None:
    bench = Bench("gfx942", {"a": 2}, masked=False)
    a, wait = bench.place["a"], "s_waitcnt vmcnt(0) lgkmcnt(0)"
    fresh = ["v_lshlrev_b32 v9, 2, v0", "s_mov_b32 m0, 32", "s_mov_b64 exec, s[34:35]"]
    if name.startswith("global"):
        if "_load_" in name:
            lines = [*fresh, f"{name} v2, s[30:31] offset:256", wait]
        else:
            lines = [
                *fresh,
                f"{name} v{a}, s[30:31] offset:256",
                wait,
                "s_mov_b64 exec, -1",
                "global_load_dword v2, v9, s[30:31] offset:256",
                wait,
            ]
    else:
        fill = (
            [f"ds_write_b32 v9, v{a + 1} offset:48", wait]
            if "read" in name or "load" in name
            else ["v_mov_b32 v3, 0x55", "ds_write_b32 v9, v3 offset:48"]
        )
        verb = f"{name} v2 offset:16" if "read" in name or "load" in name else f"{name} v{a} offset:16"
        lines = [*fresh[:2], *fill, fresh[2], verb, wait, "s_mov_b64 exec, -1"]
        if "write" in name or "store" in name:
            lines += ["ds_read_b32 v2, v9 offset:48", wait]
    bench.case(lines, ["v_mov_b32 v2, 0x55"], ["s_mov_b64 exec, -1"], dwords=1)
    data = np.random.default_rng(5).integers(0, 2**32, (64, 2), dtype=U32)
    out = bench.launch(lds=512)({"a": data}, MASK)
    stored = "store" in name or "write" in name
    old = data[:, 1] if stored and name.startswith("global") else np.full(64, 0x55, U32)
    np.testing.assert_array_equal(out[0], np.where(ON, data[:, 0] if stored else data[:, 1], old))


@pytest.mark.parametrize("name", sorted(EXCHANGES))
def test_two_exchanges(name: str) -> None:
    w, unit = EXCHANGES[name]
    n = w // 32
    bench = Bench("gfx942", {"a": 2 * n, "b": 2 * n}, masked=False)
    a, b = bench.place["a"], bench.place["b"]
    reg = lambda first, count: f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"  # noqa: E731
    near = unit > 8
    shift = 2 + n if not near else 1 + n
    spots = [(unit * o + 4 * k, n * j + k) for j, o in enumerate((0, 1)) for k in range(n)]
    lines = [
        f"v_lshlrev_b32 v15, {shift}, v0",
        *(f"ds_write_b32 v15, v{b + k} offset:{at}" for at, k in spots),
        "s_waitcnt lgkmcnt(0)",
        "s_mov_b64 exec, s[34:35]",
    ]
    lines += [
        f"{name} {reg(2, 2 * n)}, v15, {reg(a, n)}, {reg(a + n, n)} offset1:1",
        "s_waitcnt lgkmcnt(0)",
        "s_mov_b64 exec, -1",
    ]
    lines += [*(f"ds_read_b32 v{6 + k}, v15 offset:{at}" for at, k in spots), "s_waitcnt lgkmcnt(0)"]
    bench.case(lines, [f"v_mov_b32 v{2 + k}, 0x33" for k in range(4)], dwords=8)
    rng = np.random.default_rng(6)
    raw = {k: rng.integers(0, 2**32, (64, 2 * n), dtype=U32) for k in "ab"}
    out = bench.launch(lds=4096)(raw, MASK)
    for k in range(2 * n):
        np.testing.assert_array_equal(out[k], np.where(ON, raw["b"][:, k], 0x33))
        np.testing.assert_array_equal(out[4 + k], np.where(ON, raw["a"][:, k], raw["b"][:, k]))


def test_nothing_is_left_out() -> None:
    assert ROWS.keys() >= TO_LDS | BY_THREAD | TRANSPOSED.keys() | EXCHANGES.keys()
