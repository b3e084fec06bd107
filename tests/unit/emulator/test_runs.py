"""Accesses whose lanes lie in runs: of each length, in any order, of every width, loaded and stored under full and other masks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from .harness import download, upload
from .rows import Bench
from .test_rows_memory import MASKS, OLDS, load_spec, loaded, stored, vector

RUNS = (1, 2, 4, 8, 16, 0)  # lanes that follow each other; 0: all lanes at one place
LOADS = {"global": "global_load_{}", "lds": "ds_read_{}"}
STORES = {"global": "global_store_{}", "lds": "ds_write_{}"}
WIDTHS = {
    "global": (("ubyte", "byte"), ("sshort", "short"), ("dword",) * 2, ("dwordx2",) * 2, ("dwordx3",) * 2, ("dwordx4",) * 2),
    "lds": (("u8", "b8"), ("i16", "b16"), ("b32",) * 2, ("b64",) * 2, ("b96",) * 2, ("b128",) * 2),
}  # fmt: skip


def places(run: int, lanes: int) -> np.ndarray:
    """Each lane's element."""
    if not run:
        return np.full(lanes, 3)
    order = np.random.default_rng(run).permutation(lanes // run)
    return (order[:, None] * run + np.arange(run)).reshape(-1)


@pytest.mark.parametrize("space", ["global", "lds"])
def test_runs_of_lanes(space: str) -> None:
    chip = "gfx942"
    bench = Bench(chip, {f"run{run}": 1 for run in RUNS} | {"data": 4})
    lanes, cases, size = bench.lanes, [], 16 * bench.lanes
    if space == "lds":  # which the content comes to, from s[36:37] on
        bench.lines.append("v_lshlrev_b32 v9, 4, v0")
        bench.lines += ["global_load_dwordx4 v[2:5], v9, s[36:37]", "s_waitcnt vmcnt(0)", "ds_write_b128 v9, v[2:5]"]

    for load, _ in WIDTHS[space]:
        spec = load_spec(load)
        for run in RUNS:
            scaled = [f"v_mul_u32_u24 v8, {spec[0]}, {bench.reg(f'run{run}')}"]
            text = (
                f"{LOADS[space].format(load)} {vector(2, max(1, spec[0] // 4))}, v8{', s[36:37]' * (space == 'global')}"
            )
            cases.append((load, spec, run, bench.case([text], [*OLDS, *scaled], dwords=4)))
    written = []
    for n, ((load, store), run) in enumerate(product(WIDTHS[space], RUNS)):
        # Each to a place of its own; LDS is read back, 16 bytes a lane.
        spec = load_spec(load)
        before = [f"v_mul_u32_u24 v8, {spec[0]}, {bench.reg(f'run{run}')}"]
        value = vector(bench.place["data"], max(1, spec[0] // 4))
        if space == "global":
            before.append(f"v_add_u32 v8, {size * (n + 1)}, v8")
            bench.case([f"{STORES[space].format(store)} v8, {value}, s[36:37]"], before, dwords=0)
            written.append((spec, run, -1))
            continue
        text = f"{STORES[space].format(store)} v8, {value}"
        back = [f"v_add_u32 v8, {size}, v9", "ds_read_b128 v[2:5], v8", "s_waitcnt lgkmcnt(0)"]
        clear = [*(f"v_mov_b32 v{k}, -1" for k in range(2, 6)), f"v_add_u32 v7, {size}, v9", "ds_write_b128 v7, v[2:5]"]
        before.append(f"v_add_u32 v8, {size}, v8")
        written.append((spec, run, bench.case([text], [*clear, *before], back, dwords=4)))
    rng = np.random.default_rng(7)
    content = rng.integers(0, 256, size * (1 + len(written)), dtype=np.uint8)
    data = rng.integers(0, 2**32, (lanes, 4), dtype=np.uint32)
    raw = {f"run{run}": places(run, lanes).astype(np.uint32) for run in RUNS} | {"data": data}
    launch = bench.launch(lds=2 * size)
    for mask in MASKS:
        where = upload(launch.driver, content)
        out = launch(raw, mask, where)
        after = download(launch.driver, where, content)
        launch.driver.free(0, where)
        for name, spec, run, at in cases:
            for lane, place in enumerate(places(run, lanes)):
                want = loaded(content[place * spec[0] :][: spec[0]], 0, spec) if mask >> lane & 1 else []
                want += [0xDEADBEEF] * (4 - len(want))
                assert [int(out[at + k, lane]) for k in range(4)] == want, (name, run, lane)
        for n, (spec, run, at) in enumerate(written):
            whole = np.full(size, 255, np.uint8) if at >= 0 else content[size * (n + 1) :][:size].copy()
            for lane, place in enumerate(places(run, lanes)):
                if mask >> lane & 1:
                    whole[place * spec[0] :][: spec[0]] = np.frombuffer(stored(data[lane], spec), np.uint8)
            if at >= 0:
                got = np.ascontiguousarray(out[at : at + 4].T).view(np.uint8).reshape(-1)
            else:
                got = after[size * (n + 1) :][:size]
            assert (got == whole).all(), (spec, run, mask)
