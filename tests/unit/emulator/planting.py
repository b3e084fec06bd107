"""Drawn kernels in assembly that are right, and the same ones with one bug planted: its line ends in `; BUG`.

A kernel loads, computes, exchanges values between waves through LDS (once or twice), and stores; registers, constants, offsets and what stands between are drawn. `PLANTS` are the mistakes,
`DIALECTS` the generations' spellings. Registers as in `planted`: s[4:5], s[6:7] arrays of 4 KiB, v0 the work-item, v1 four times it, v2 = 0, s9 the work-group (gfx9: s2).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Dialect:
    """How a generation spells what the kernels need. `lanes` of a wave, `group`: the scalar register of the work-group's number."""

    lanes: int
    load: str
    store: str
    lds_store: str
    lds_load: str
    add: str
    wait_load: str
    wait_lds: str
    barrier: tuple[str, ...]
    group: str
    exec: str


_GFX9 = Dialect(64, "global_load_dword", "global_store_dword", "ds_write_b32", "ds_read_b32", "v_add_u32_e32", "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)", ("s_barrier",), "s2", "s_mov_b64 exec")  # fmt: skip
_GFX11 = Dialect(32, "global_load_b32", "global_store_b32", "ds_store_b32", "ds_load_b32", "v_add_nc_u32_e32", "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)", ("s_barrier",), "s9", "s_mov_b32 exec_lo")  # fmt: skip
_GFX12 = Dialect(32, "global_load_b32", "global_store_b32", "ds_store_b32", "ds_load_b32", "v_add_nc_u32_e32", "s_wait_loadcnt 0x0", "s_wait_dscnt 0x0", ("s_barrier_signal -1", "s_barrier_wait -1"), "s9", "s_mov_b32 exec_lo")  # fmt: skip
DIALECTS = {"gfx942": _GFX9, "gfx950": _GFX9, "gfx1100": _GFX11, "gfx1201": _GFX12, "gfx1250": _GFX12}

# Mistake -> what a report says of it.
PLANTS = {
    "no wait for a load": "missing wait",
    "no wait for an LDS load": "missing wait",
    "no wait before a barrier": "LDS store may still be on its way",
    "no barrier before the reads": "race: address.*in LDS; the other access: a load by wave 0",
    "no barrier before the next stores": "race: address.*in LDS; the other access: a store by wave 0",
    "a load one element past the end": "out of bounds",
    "a store one element past the end": "out of bounds",
    "an LDS store past the end": "LDS access out of bounds",
    "an LDS load past the end": "LDS access out of bounds",
    "a register that nothing wrote": "uninitialized value stored",
    "lanes left out of the stores to LDS": "uninitialized value stored",
    "two groups at one place": "race: address",
    "a register of another wave": "is beyond",
    "lanes that store to one word of LDS": "lanes of one wave store different values to one word",
    "an address that nothing wrote": "uninitialized value in an address",
}


@dataclass
class Drawn:
    """A kernel: its lines, the launch, what the report says ("" of the right one)."""

    lines: list[str] = field(default_factory=list)
    block: int = 128
    grid: int = 1
    said: str = ""
    check: str = "all"  # "race" where a wave that runs ahead would read what nothing has written yet: one mistake, and "init" names the place where that shows

    @property
    def body(self) -> str:
        return "\n".join(self.lines)


def _filler(d: Dialect, rng: random.Random, free: list[int]) -> list[str]:
    """Instructions on registers of their own."""
    made = []
    for _ in range(rng.randrange(3)):
        r = rng.choice(free)
        made += rng.choice([[f"v_mov_b32_e32 v{r}, v0"], [f"v_mov_b32_e32 v{r}, {rng.randrange(64)}", f"{d.add} v{r}, v{r}, v{r}"], [f"s_mov_b32 s{rng.randrange(10, 14)}, {rng.randrange(64)}"], ["s_nop 1"]])  # fmt: skip
    return made


def draw(chip: str, plant: str, seed: int) -> Drawn:
    """The kernel of a seed with a mistake of `PLANTS`, or without ("" as `plant`): else they are the same."""
    d, rng = DIALECTS[chip], random.Random(f"planted {chip} {seed}")
    block = rng.choice([2, 4]) * d.lanes  # each wave has another one to exchange with
    r = rng.sample(range(3, 30), 12)
    x, y, z, w, at, free = r[0], r[1], r[2], r[3], r[4], r[5:9]
    exchanges = 2 if "next stores" in plant else rng.choice([1, 2])
    offset = 4 * rng.randrange(8)
    grid = 2 if "two groups" in plant else 1
    bug = {name: name == plant for name in PLANTS}
    out: list[str] = []

    def put(line: str, wrong: bool = False) -> None:
        out.append(line + " ; BUG" * wrong)

    def fill() -> None:
        out.extend(_filler(d, rng, free))

    def barrier(wrong: bool = False) -> None:
        for k, line in enumerate(d.barrier):
            put(line, wrong and k == 0)

    fill()
    past = 4096 - 4 * block + 4  # the last lane's word begins behind the last one
    put(f"{d.load} v{x}, v1, s[4:5] offset:{past if bug['a load one element past the end'] else offset}", bug["a load one element past the end"])  # fmt: skip
    fill()
    if not bug["no wait for a load"]:
        put(d.wait_load)
    if bug["a register of another wave"]:
        put("v_mov_b32_e32 v120, 0", True)
    other = r[9] if bug["a register that nothing wrote"] else x
    put(f"{d.add} v{y}, {rng.randrange(1, 64)}, v{other}", bug["no wait for a load"])
    for turn in range(exchanges):
        put(f"v_xor_b32_e32 v{at}, {4 * d.lanes}, v1")  # the same lane of the next wave
        last = turn == exchanges - 1
        place = "v1"
        if bug["lanes that store to one word of LDS"] and last:
            put(f"v_and_b32_e32 v{w}, 60, v1")
            place = f"v{w}"
        narrow = bug["lanes left out of the stores to LDS"] and turn == 0
        if narrow:
            put(f"{d.exec}, 0xff")
        far = bug["an LDS store past the end"] and last
        # Of two accesses the second one in time is reported, which for waves in turn is the second wave's first.
        first_of_race = bug["no barrier before the reads"] and last
        put(f"{d.lds_store} {place}, v{y}{' offset:1024' * far}", far or first_of_race or place != "v1")
        if narrow:
            put(f"{d.exec}, -1")
        if not (bug["no wait before a barrier"] and last):
            put(d.wait_lds)
        fill()
        if not first_of_race:
            barrier(bug["no wait before a barrier"] and last)
        far = bug["an LDS load past the end"] and last
        racing = bug["no barrier before the next stores"] and turn == 0
        where = r[10] if bug["an address that nothing wrote"] and last else at
        put(f"{d.lds_load} v{z}, v{where}{' offset:1024' * far}", far or racing or where != at)
        fill()
        late = bug["no wait for an LDS load"] and last
        if not late:
            put(d.wait_lds)
        put(f"{d.add} v{y}, v{y}, v{z}", late)
        if not last and not racing:
            barrier()
    fill()
    undefined = bug["a register that nothing wrote"] or bug["lanes left out of the stores to LDS"]
    if grid > 1:
        put(f"v_mov_b32_e32 v{w}, {d.group}")
        put("s_nop 1")
        put(f"{d.add} v{y}, v{y}, v{w}")
    behind = bug["a store one element past the end"]
    put(f"{d.store} v1, v{y}, s[6:7] offset:{past if behind else offset}", behind or undefined or grid > 1)
    check = "race" if "no barrier" in plant else "all"
    return Drawn(
        out, block if not bug["lanes that store to one word of LDS"] else d.lanes, grid, PLANTS.get(plant, ""), check
    )
