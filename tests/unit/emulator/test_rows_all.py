"""No row of the opcode table without a reference test: the walk over all of them, and the rows that stand alone."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter

import numpy as np
import pytest

from tec.emulator.analyses.calls import CALLS
from tec.emulator.decode.disassemble import encodings
from tec.emulator.errors import EmulationError
from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS, Row
from tec.emulator.translate.kernel import CONTROL

from . import row_reference_cdna5  # noqa: F401  (its rows join the reference)
from .row_reference import REFERENCE, sad
from .rows import Bench
from .test_valu import U32

opcodes.load()
# Rows whose test stands in another module, under its own name.
ELSEWHERE = {
    "s_setvskip": "test_skipped.test_a_set_bit_skips_the_instructions",
    "v_swap_b32": "test_rows_all.test_exchanges", "v_permlane64_b32": "test_rows_all.test_exchanges",
    "v_permlane16_swap_b32": "test_rows_all.test_row_swaps", "v_permlane32_swap_b32": "test_rows_all.test_row_swaps",
    "v_div_scale_f32": "test_valu.test_divide_by_steps", "v_div_scale_f64": "test_valu.test_divide_by_steps",
    "v_div_fmas_f32": "test_valu.test_divide_by_steps", "v_div_fmas_f64": "test_valu.test_divide_by_steps",
    "v_readlane_b32": "test_lanes.test_readlane_writelane_mbcnt",
    "v_readfirstlane_b32": "test_lanes.test_readlane_writelane_mbcnt",
    "v_writelane_b32": "test_lanes.test_readlane_writelane_mbcnt",
    "v_mbcnt_lo_u32_b32": "test_lanes.test_readlane_writelane_mbcnt",
    "v_mbcnt_hi_u32_b32": "test_lanes.test_readlane_writelane_mbcnt",
    "ds_swizzle_b32": "test_lanes.test_swizzle_and_permutes", "ds_permute_b32": "test_lanes.test_swizzle_and_permutes",
    "ds_bpermute_b32": "test_lanes.test_swizzle_and_permutes",
    "v_permlane16_b32": "test_lanes.test_permlane", "v_permlanex16_b32": "test_lanes.test_permlane",
    "v_mqsad_u32_u8": "test_rows_all.test_sums_of_differences_in_words", "v_permlane16_var_b32": "test_rows_all.test_permlanes_by_each_lane",
    "v_permlanex16_var_b32": "test_rows_all.test_permlanes_by_each_lane", "ds_bpermute_fi_b32": "test_rows_all.test_permlanes_by_each_lane",
    "v_swap_b16": "test_rows_all.test_halves_change_places", "v_dual_cndmask_b32": "test_rows_cdna5.test_dual_cndmask",
    "s_sendmsg": "test_rows_all.test_state_rows", "s_denorm_mode": "test_rows_all.test_state_rows",
    "s_round_mode": "test_rows_all.test_state_rows", "s_setreg_imm32_b32": "test_rows_all.test_state_rows",
    "s_setreg_b32": "test_modes.test_a_mode_kept_in_a_register", "s_getreg_b32": "test_modes.test_a_mode_kept_in_a_register",
    "v_movrels_b32": "test_modes.test_registers_by_index", "v_movreld_b32": "test_modes.test_registers_by_index",
    "v_movrelsd_b32": "test_modes.test_registers_by_index",
    **{f"s_set_gpr_idx_{n}": "test_modes.test_the_index_mode" for n in ("on", "off", "mode", "idx")},
    "s_sendmsg_rtn_b32": "test_rows_all.test_clocks_of_rdna", "s_sendmsg_rtn_b64": "test_rows_all.test_clocks_of_rdna",
    "s_sleep_var": "test_rows_all.test_hints_with_operands", "s_prefetch_data_pc_rel": "test_rows_all.test_hints_with_operands",
    **dict.fromkeys(("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64", "s_movrelsd_2_b32"), "test_by_index.test_scalars_by_index"),
    **dict.fromkeys(("v_movrelsd_2_b32", "v_swaprel_b32"), "test_by_index.test_two_vectors_by_index"),
    **dict.fromkeys(("ds_append", "ds_consume", "ds_condxchg32_rtn_b64"), "test_by_index.test_counters_in_lds"),
    "ds_gws_init": "test_grid_barrier.test_encodings", "ds_gws_barrier": "test_grid_barrier.test_encodings",
    "s_memtime": "test_rows_all.test_clocks", "s_get_shader_cycles_u64": "test_rows_cdna5.test_a_clock", "s_memrealtime": "test_rows_all.test_clocks",
    **{f"v_s_{n}_{t}": "test_rows_all.test_transcendentals_of_scalars" for n in ("exp", "log", "rcp", "rsq", "sqrt") for t in ("f16", "f32")},
}  # fmt: skip
# Kinds of which one module tries every row (each has its own test that none is left out).
WALKED = {
    "salu": "test_rows_scalar.test_no_scalar_row_is_left_out", "packed": "test_rows_packed.test_no_packed_row_is_left_out",
    "vmem": "test_rows_memory.test_no_memory_row_is_left_out", "lds": "test_rows_memory.test_no_memory_row_is_left_out",
    "smem": "test_rows_memory.test_scalar_loads", "wait": "test_rows_all.test_waits_change_nothing",
    "matrix": "test_matrix.test_no_matrix_row_is_left_out",
}  # fmt: skip
# Opcodes of which one module tries every row by the pattern of their names.
FAMILIES = {
    r"v_cvt_(scale_pk|scalef32_(sr_)?pk(8|16)_|sr_pk_|(pk_|sr_)?(f16_[fb][fp]8|[fb][fp]8_f16))": "test_rows_cdna5.test_conversions",
    r"v_perm(_pk16|lane_(bcast|down|up|xor|idx_gen))_": "test_rows_cdna5.test_look_ups_and_exchanges",
    r"v_(smfmac|swmmac)_": "test_matrix_sparse.test_no_sparse_row_is_left_out",
    r"v_cvt_(pk_|sr_)?(\w+_)?[fb][fp][864]": "test_rows_convert.test_conversions",
    r"s_(buffer_)?(store|atomic)_": "test_rows_scalar_memory.test_nothing_is_left_out",
    r"v_cvt_(sr|scalef32)_": "test_rows_convert.test_conversions",
    r"image_(sample|gather4)": "test_images.test_parts_of_addresses",
    r"image_atomic_": "test_images.test_atomics",
    r"image_(load|store|get_resinfo)": "test_images.test_loads_and_stores",
    r"t?buffer_(load|store)_\w*format_": "test_images.test_typed_rows",
}
MASK = 0x5A5A_1234_8001_F00F


def home(row: Row) -> str | None:
    """The test that holds a row against a reference."""
    if row.kind in ("valu", "trans") and row.name in REFERENCE:
        return "test_rows.test_vector_rows"
    family = next((test for pattern, test in FAMILIES.items() if re.match(pattern, row.name)), None)
    return ELSEWHERE.get(row.name) or family or WALKED.get(row.kind)


def uncovered(rows: dict[str, Row]) -> list[str]:
    out = []
    for row in rows.values():
        place = home(row)
        if place is None:
            out.append(row.name)
            continue
        module, _, test = place.partition(".")
        found = getattr(importlib.import_module(f".{module}", __package__), test, None)
        if found is None:
            out.append(row.name)
    return out


def test_every_row_has_a_reference_test() -> None:
    assert uncovered(ROWS) == []


# Rows of families, which their tests find in the table: so many are there at least.
ROWS_OF_FAMILIES = {
    "test_rows_memory.test_no_memory_row_is_left_out": 625, "test_rows_scalar.test_no_scalar_row_is_left_out": 242,
    "test_matrix.test_no_matrix_row_is_left_out": 116, "test_images.test_parts_of_addresses": 80, "test_rows_packed.test_no_packed_row_is_left_out": 65,
    "test_rows_all.test_waits_change_nothing": 63, "test_rows_convert.test_conversions": 59, "test_rows_scalar_memory.test_nothing_is_left_out": 58,
    "test_rows_cdna5.test_conversions": 55, "test_images.test_typed_rows": 52, "test_matrix_sparse.test_no_sparse_row_is_left_out": 52,
    "test_rows_memory.test_scalar_loads": 31, "test_images.test_atomics": 29, "test_rows_cdna5.test_look_ups_and_exchanges": 8,
    "test_images.test_loads_and_stores": 5,
}  # fmt: skip


def test_no_row_is_gone() -> None:
    """What has a reference or a test of its own is in the table, by name; of the families, as many as were."""
    assert sorted((REFERENCE.keys() | ELSEWHERE.keys()) - ROWS.keys()) == []
    found = Counter(home(row) for row in ROWS.values() if row.name not in REFERENCE and row.name not in ELSEWHERE)
    assert {h: n for h, n in ROWS_OF_FAMILIES.items() if found[h] < n} == {}


def test_a_new_row_is_noticed() -> None:
    new = Row("v_new_f32", ROWS["v_add_f32"].handler, "valu", "f32 = f32")
    assert uncovered({**ROWS, new.name: new}) == ["v_new_f32"]


def test_rows_tested_elsewhere_are_named_there() -> None:
    """The module that a row is sent to speaks of it (the steps of a division come from LLVM's expansion)."""
    for name, place in ELSEWHERE.items():
        if "divide" not in place and not name.startswith("v_s_"):
            module = importlib.import_module("." + place.partition(".")[0], __package__)
            text = inspect.getsource(getattr(module, place.partition(".")[2]))
            assert name in text or name.replace("permlanex16", "permlane16") in text, (name, place)


def ramp(lanes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, lanes, dtype=U32)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_exchanges(chip: str) -> None:
    bench = Bench(chip, {"a": 1, "b": 1})
    a, b = bench.reg("a"), bench.reg("b")
    swap = bench.case(["v_swap_b32 v2, v3"], [f"v_mov_b32 v2, {a}", f"v_mov_b32 v3, {b}"])
    halves = bench.case([f"v_permlane64_b32 v2, {a}"], ["v_mov_b32 v2, 7"], dwords=1)
    raw = {"a": ramp(bench.lanes, 1), "b": ramp(bench.lanes, 2)}
    out = bench.launch()(raw, MASK)
    on = np.array([MASK >> l & 1 for l in range(bench.lanes)], bool)
    assert (out[swap] == np.where(on, raw["b"], raw["a"])).all()
    assert (out[swap + 1] == np.where(on, raw["a"], raw["b"])).all()
    far = raw["a"][np.arange(64) ^ 32] if bench.lanes == 64 else raw["a"]
    assert (out[halves] == np.where(on, far, 7)).all()


def test_row_swaps() -> None:
    """Odd rows of the first register trade places with the even rows of the second."""
    bench = Bench("gfx950", {"a": 1, "b": 1})
    first = {}
    for n, name in ((16, "v_permlane16_swap_b32"), (32, "v_permlane32_swap_b32")):
        moves = [f"v_mov_b32 v2, {bench.reg('a')}", f"v_mov_b32 v3, {bench.reg('b')}"]
        first[n] = bench.case([f"{name} v2, v3"], moves)
    raw = {"a": ramp(64, 3), "b": ramp(64, 4)}
    out = bench.launch()(raw)
    for n, at in first.items():
        rows = {k: raw[k].reshape(-1, n) for k in "ab"}
        a, b = out[at].reshape(-1, n), out[at + 1].reshape(-1, n)
        for even in range(0, 64 // n, 2):
            assert (a[even] == rows["a"][even]).all() and (a[even + 1] == rows["b"][even]).all()
            assert (b[even] == rows["a"][even + 1]).all() and (b[even + 1] == rows["b"][even + 1]).all()


@pytest.mark.parametrize("chip", ["gfx942", "gfx1200"])
def test_waits_change_nothing(chip: str) -> None:
    bench = Bench(chip, {"a": 1})
    names = [n for n, r in ROWS.items() if r.kind == "wait"] + ["ds_nop"]
    before = ["s_mov_b32 s40, 0x1234", "s_cmp_eq_u32 s40, s40", f"v_mov_b32 v2, {bench.reg('a')}"]
    after = ["s_cselect_b32 s41, s40, 0", "v_mov_b32 v3, s41"]
    at = bench.case(names, before, after)
    raw = {"a": ramp(bench.lanes, 5)}
    out = bench.launch()(raw, MASK)
    assert len(names) > 50 and (out[at] == raw["a"]).all() and (out[at + 1] == 0x1234).all()


def test_state_rows() -> None:
    """What names the usual mode changes nothing; other messages and hardware registers are refused."""
    fine = ["s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", "s_denorm_mode 15", "s_round_mode 0x0",
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 15"]  # fmt: skip
    bench = Bench("gfx1100", {"a": 1})
    at = bench.case(fine, [f"v_mov_b32 v2, {bench.reg('a')}"], dwords=1)
    raw = {"a": ramp(32, 6)}
    assert (bench.launch()(raw)[at] == raw["a"]).all()
    for bad in ("s_sendmsg sendmsg(MSG_SAVEWAVE)", "s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS, 6, 2), 0",
                "s_getreg_b32 s40, hwreg(HW_REG_TRAPSTS)"):  # fmt: skip
        bench = Bench("gfx1100", {"a": 1})
        bench.case([bad])
        with pytest.raises(EmulationError, match="not modelled"):
            bench.launch()(raw)


def test_clocks() -> None:
    """Time goes on, and takes two SGPRs."""
    bench = Bench("gfx942", {}, masked=False)
    lines = ["s_memtime s[40:41]", "s_memrealtime s[42:43]", "s_memtime s[44:45]"]
    at = bench.case(lines, [], [f"v_mov_b32 v{2 + k}, s{40 + k}" for k in range(6)], 6)
    out = bench.launch()({})
    first, _, last = (int(out[at + k, 0]) | int(out[at + k + 1, 0]) << 32 for k in (0, 2, 4))
    assert 0 < first <= last


def test_transcendentals_of_scalars() -> None:
    """gfx12's v_s_exp_f32 and its sisters take an SGPR and give one; f16 results have zeros above them."""
    bench = Bench("gfx1200", {}, masked=False)
    ops = {"exp": np.exp2, "log": np.log2, "rcp": lambda x: 1 / x, "rsq": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt}
    cases = []
    for name, fn in ops.items():
        for t, source in (("f32", "s36"), ("f16", "s38")):
            cases.append(
                (t, fn, bench.case([f"v_s_{name}_{t} s40, {source}"], ["s_mov_b32 s40, -1"], ["v_mov_b32 v2, s40"], 1))
            )
    run = bench.launch()
    for value in (0.0, 0.3, 1.0, 2.0, 7.5, np.inf, np.nan, -1.5):
        single, half = np.float32(value), np.float16(value)
        out = run({}, -1, int(single.view(U32)), int(half.view(np.uint16)) | 0xABCD0000)
        for t, fn, at in cases:
            kind, given = (np.float32, single) if t == "f32" else (np.float16, half)
            with np.errstate(all="ignore"):
                want = kind(fn(np.float64(given)))
            got = int(out[at, 0])
            assert t == "f32" or got >> 16 == 0
            seen = (
                np.array([got], U32).view(np.float32)[0]
                if t == "f32"
                else np.array([got], np.uint16).view(np.float16)[0]
            )
            assert seen == want or (np.isnan(seen) and np.isnan(want)), (t, value, seen, want)


def test_sums_of_differences_in_words() -> None:
    bench = Bench("gfx942", {"a": 2, "b": 1, "c": 4})
    at = bench.case([f"v_mqsad_u32_u8 v[2:5], {bench.reg('a')}, {bench.reg('b')}, {bench.reg('c')}"], dwords=4)
    rng = np.random.default_rng(8)
    raw = {
        "a": rng.integers(0, 2**63, 64, dtype=np.uint64),
        "b": ramp(64, 3) & U32(0xFF00FFFF),
        "c": rng.integers(0, 2**32, (64, 4), dtype=U32),
    }
    out = bench.launch()(raw)
    for i in range(4):
        for l in range(64):
            want = sad(int(raw["a"][l]) >> 8 * i, int(raw["b"][l]), True) + int(raw["c"][l, i])
            assert int(out[at + i, l]) == want & 0xFFFFFFFF


def test_halves_change_places() -> None:
    bench = Bench("gfx1100", {"a": 1, "b": 1})
    at = bench.case(["v_swap_b16 v2.l, v3.h"], [f"v_mov_b32 v2, {bench.reg('a')}", f"v_mov_b32 v3, {bench.reg('b')}"])
    raw = {"a": ramp(32, 1), "b": ramp(32, 2)}
    out = bench.launch()(raw, MASK)
    on = np.array([MASK >> l & 1 for l in range(32)], bool)
    a, b = raw["a"], raw["b"]
    assert (out[at] == np.where(on, a & U32(0xFFFF0000) | b >> U32(16), a)).all()
    assert (out[at + 1] == np.where(on, b & U32(0xFFFF) | a << U32(16), b)).all()


def test_permlanes_by_each_lane() -> None:
    """gfx12: v_permlane16_var_b32 and v_permlanex16_var_b32 with selectors of the lanes' own; ds_bpermute_fi_b32 reads lanes that are off."""
    bench = Bench("gfx1200", {"a": 1, "pick": 1})
    a, pick = bench.reg("a"), bench.reg("pick")
    old = ["v_mov_b32 v2, 7"]
    cases = {}
    for name in ("v_permlane16_var_b32", "v_permlanex16_var_b32"):
        for sel in ((0, 0), (1, 0), (0, 1)):
            tail = f" op_sel:[{sel[0]},{sel[1]}]" if any(sel) else ""
            cases[name, sel] = bench.case([f"{name} v2, {a}, {pick}{tail}"], old, dwords=1)
    fi = bench.case([f"v_lshlrev_b32 v3, 2, {pick}", f"ds_bpermute_fi_b32 v2, v3, {a}"], old, dwords=1)
    raw = {"a": ramp(32, 4), "pick": ramp(32, 5)}
    lane = np.arange(32)
    for mask in (-1, MASK):
        out = bench.launch()(raw, mask)
        on = np.array([mask >> l & 1 for l in range(32)], bool)
        for (name, (inactive, bound)), at in cases.items():
            source = (lane & 16 ^ (16 if "x16" in name else 0)) + (raw["pick"] & U32(15)).astype(int)
            got = np.where(on[source] | bool(inactive), raw["a"][source], 0 if bound else 7)
            assert (out[at] == np.where(on, got, 7)).all(), (name, inactive, bound)
        assert (out[fi] == np.where(on, raw["a"][(raw["pick"] & U32(31)).astype(int)], 7)).all()


def test_clocks_of_rdna() -> None:
    bench = Bench("gfx1100", {}, masked=False)
    lines = ["s_sendmsg_rtn_b64 s[40:41], sendmsg(MSG_RTN_GET_REALTIME)", "s_waitcnt lgkmcnt(0)", "s_sendmsg_rtn_b32 s42, sendmsg(MSG_RTN_GET_REALTIME)", "s_waitcnt lgkmcnt(0)"]  # fmt: skip
    at = bench.case(lines, [], [f"v_mov_b32 v{2 + k}, s{40 + k}" for k in range(3)], 3)
    out = bench.launch()({})
    first = int(out[at, 0]) | int(out[at + 1, 0]) << 32
    assert first > 0 and (int(out[at + 2, 0]) - first) % 2**32 < 2**31
    bench = Bench("gfx1100", {}, masked=False)
    bench.case(["s_sendmsg_rtn_b32 s42, sendmsg(MSG_RTN_GET_DOORBELL)"])  # on the way into a trap
    with pytest.raises(EmulationError, match="trap"):
        bench.launch()({})


def test_hints_with_operands() -> None:
    bench = Bench("gfx1200", {"a": 1}, masked=False)
    at = bench.case(
        ["s_sleep_var s40", "s_prefetch_data_pc_rel 0x10, s40, 3"],
        ["s_mov_b32 s40, 5", f"v_mov_b32 v2, {bench.reg('a')}"],
        ["v_mov_b32 v3, s40"],
    )
    raw = {"a": ramp(32, 3)}
    out = bench.launch()(raw)
    assert (out[at] == raw["a"]).all() and (out[at + 1] == 5).all()


def test_traps() -> None:
    """The debugger's trap is passed over where there is none; the other one ends the launch."""
    for chip in ("gfx942", "gfx1100"):
        bench = Bench(chip, {"a": 1}, masked=False)
        at = bench.case(["s_trap 3"], [f"v_mov_b32 v2, {bench.reg('a')}"], dwords=1)
        raw = {"a": ramp(bench.lanes, 3)}
        assert (bench.launch()(raw)[at] == raw["a"]).all()
        bench = Bench(chip, {"a": 1}, masked=False)
        bench.case(["s_trap 2"])
        with pytest.raises(EmulationError, match="trap"):
            bench.launch()(raw)


# docs/emulator.md says why.
REFUSED = (
    r"image_(load_|store_)(mip_)?pck|image_(gather4h|get_lod)$|global_(load_tr_b64|atomic_ordered_add_b64)$"
    r"|s_(scratch_|barrier_(init|join|signal_isfirst)|alloc_vgpr|endpgm_|rfe|sendmsghalt|sethalt|setkill|setvskip)"
    r"|v_(cvt_pk_u8_f32|cvt_pkaccum_u8_f32|screen_partition_4se_b32|mullit_f32)$"
    r"|ds_atomic_(async_)?barrier_arrive|s_wakeup_barrier$|v_swmmac_bf16f32_16x16x64_bf16$|ds_gws_sema_|buffer_load_lds_format_x$"
)  # fmt: skip


# Read as s_getpc_b64 and the like; s_add_pc_i64 as a jump.
COUNTER_OF_GFX1250 = {f"s_{n}_i64" for n in ("get_pc", "set_pc", "swap_pc", "call", "add_pc")}


def test_what_is_refused_is_what_the_documentation_says() -> None:
    chips = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1250")
    known = {e.name for chip in chips for e in encodings(chip).values()}
    missing = {
        n
        for n in known - ROWS.keys() - CALLS - CONTROL - {"s_getpc_b64", "s_setpc_b64"} - COUNTER_OF_GFX1250
        if not n.startswith("s_cbranch")
    }
    assert {n for n in missing if not re.match(REFUSED, n)} == set()
    assert len(missing) == 40 and len(known) == 2203
