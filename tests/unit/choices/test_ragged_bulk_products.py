"""Products whose tiles come by bulk copies: rows that the last tile has beyond the product are zeros in shared memory, so that no thread asks whether it has one."""

from __future__ import annotations

import pytest

import tec
from tec import te, topi
from tec.choices import spaces


@pytest.mark.parametrize("rows", [136, 200, 260])
def test_loads_from_shared_memory_have_no_conditions(rows: int) -> None:
    """Of 4,616 rows, 8 in the last tile of 128, LLVM made branches of them: 1,105 us on an H200 for the 535 of 4,700 rows."""
    a, b = te.placeholder((rows, 256), "float32", name="A"), te.placeholder((256, 128), "float32", name="B")
    with tec.Target("cuda -arch=sm_90a") as target:
        space = next(s for s in spaces([topi.matmul(a, b)], target) if s.template == "bulk product")
        choice = {**space.default, "rows": 128, "columns": 64, "split_k": 1}
        made = space.apply(choice)
        lines = str(tec.lower(made.schedule, [a, b, *made.outputs], target=target)).splitlines()
    loads = [x for x in lines if "A_shared[" in x and "_local" in x.partition("=")[0]]
    assert loads and not any("if_then_else" in x for x in loads), loads[0]


@pytest.mark.parametrize("rows, columns, depth", [(799, 768, 768), (400, 384, 3072), (1499, 512, 1024)])
def test_sums_lie_along_whole_rows(rows: int, columns: int, depth: int) -> None:
    """By blocks of two by two the registers of 128 x 64 sums spill: 290 us on an H200 for the 55 of 602 x 384 x 4096 in eight parts."""
    a, b = te.placeholder((rows, depth), "float32", name="A"), te.placeholder((depth, columns), "float32", name="B")
    with tec.Target("cuda -arch=sm_90a") as target:
        space = next(s for s in spaces([topi.matmul(a, b)], target) if s.template == "bulk product")
        assert {c["order"] for c in space.drafts()} == {"serpentine"}


@pytest.mark.parametrize("rows, columns, depth", [(1984, 2456, 4112), (1323, 3232, 680), (3518, 1712, 2844)])
def test_groups_of_three_wavefronts_cost_the_fourth_scheduler(rows: int, columns: int, depth: int) -> None:
    """By 64 x 96, the default before, they take 1.2 to 1.3 times the time of 128 x 64 on an H200; and columns that fill no tile cost what the tile costs."""
    a, b = te.placeholder((rows, depth), "float32", name="A"), te.placeholder((depth, columns), "float32", name="B")
    with tec.Target("cuda -arch=sm_90a") as target:
        found = {s.template: s for s in spaces([topi.matmul(a, b)], target)}
        blocks, bulk = found["blocked product"], found["bulk product"]
        choice = {**blocks.default, "rows": 128, "columns": 64, "step": 16, "block": "8x8", "split_k": 1, "stages": 2}
        assert blocks.cost(choice).seconds < blocks.cost({**choice, "rows": 64, "columns": 96}).seconds
        whole = te.placeholder((depth, -(-columns // 64) * 64), "float32", name="B")
        wide = next(s for s in spaces([topi.matmul(a, whole)], target) if s.template == "bulk product")
        tile = {**bulk.default, "rows": 128, "columns": 64, "split_k": 1}
        assert bulk.cost(tile).seconds < 1.1 * wide.cost(tile).seconds
