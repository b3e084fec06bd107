"""The blocks of memory that translated code and this library share: their layouts, in one place.

`CTX`: one a thread, offsets in bytes. `STATE`: one a wave; scalars first (128 of 4 bytes), then SCC and the resume point,
then the vector registers. `PARAMS`: one a launch, read by the driver loop that sets up each work-group.
"""

from __future__ import annotations

CTX = {
    "status": 0, "site": 8, "lane": 16, "address": 24, "wave": 32, "group": 40, "lds": 48, "lds_bytes": 56,
    "allocs": 64, "alloc_count": 72, "cache": 80, "symbols": 88, "stop": 96, "budget": 104, "scratch": 112,
    "scratch_bytes": 120, "detail": 128, "states": 136, "counters": 144, "group_x": 152, "group_y": 160,
    "group_z": 168, "shadow": 176, "epoch": 184, "scratch_all": 192, "scratch_stride": 200,
    "lds_shadow": 208, "lds_shadow_bytes": 216, "align": 224,
    # Races: the wave's record, the launch's number (in its place), and where the records are; see `support.race`.
    "race_me": 232, "launch": 240, "arena": 248, "arena_bytes": 256, "lock": 264,
    "global_stores": 272, "global_loads": 280, "global_bytes_w": 288, "global_bytes_r": 296,
    "lds_stores": 304, "lds_loads": 312, "lds_bytes_w": 320, "lds_bytes_r": 328, "race_bytes": 336,
    # Undefined values: how far a shadow lies from its memory, the load that brought undefined bits last (site + 1).
    "undefined_offset": 344, "origin_site": 352, "origin_lane": 360, "origin_address": 368, "scratch_total": 376,
    # Traces: where the first wave's begins, bytes from one wave's to the next, words of events and of lines in each; see `support.trace`.
    "trace": 384, "trace_stride": 392, "trace_events": 400, "trace_lines": 408, "trace_lds": 416,
    # Races again: the site (+ 1) of the other access, the sites of the accesses on record, what this group knows of others (`order`), notes.
    "other_site": 424, "global_sites_w": 432, "global_sites_r": 440, "lds_sites_w": 448, "lds_sites_r": 456,
    "race_seen": 464, "race_waves": 472, "order_call": 480, "notes": 488, "polls": 496,
    # Whom to call for a message to the host, and where the requests begin (`hostcalls`); null where nobody listens.
    "messages": 504, "global_lines": 512,
    # Barriers of the whole grid (GWS): of each of 64 resources how many have come, and how often all had; null unless all work-groups run at once.
    "gws": 520,
    # Executions of each block, by its row, where they are counted and no trace is kept; else null.
    "trace_counts": 528,
    # The quick look of `checks.screening`: what the threads of a launch share of it (`SCREEN`); of LDS what others and this wave did, the bytes of either
    # that a work-group begins with `screen_fill` in and that are handed on at a wave's turn.
    # Loads straight into LDS (`checks.fills`): what filled each dword last, a mark and a site; its bytes, none where nobody asks; bytes of a wave's state.
    "fills": 592, "fills_bytes": 600, "state_stride": 608,
    "screen": 544, "screen_lds": 552, "screen_own": 560, "screen_bytes": 568, "screen_turns": 576, "screen_fill": 584,
}  # fmt: skip
CTX_BYTES = 640  # a second block follows: the same of the shadows of undefined bits

# The byte of the launch's stop flags whose word says that there are more threads than CPUs of the host.
CROWDED = 4

# Faults, by number.
FAULTS = {
    20: "ran past the end of the kernel's code",
    1: "out of bounds", 2: "misaligned", 3: "LDS access out of bounds", 4: "scratch access out of bounds",
    5: "misaligned LDS access", 6: "instruction budget spent", 7: "stopped", 8: "race", 9: "uninitialized memory in an atomic",
    10: "misaligned scratch access", 11: "waves at different barriers", 12: "unsupported buffer resource",
    13: "trap", 14: "uninitialized value decides a branch", 15: "uninitialized value in an address",
    16: "uninitialized value stored", 17: "uninitialized value in EXEC", 18: "lanes of one wave store different values to one word",
    19: "no forward progress", 21: "stopped at a line",
    23: "a request to the host that is not answered",
    22: "a call or return to a place that is no function's",
    25: "lanes of one wave at different barriers",
    26: "LDS access across arrays",
    27: "missing wait: LDS is read or overwritten while what a load brings there may still be on its way",
    30: "missing wait: LDS is overwritten while a store out of it may still be on its way",
    24: "a barrier of the whole grid in a launch that is not cooperative",
    28: "a wave waits at a barrier that it has not signalled", 29: "a wave signals a barrier again before it has waited there",
    40: "an image whose elements are not in rows (swizzle mode 0 is modelled)", 41: "an image with levels (one level is modelled)",
    42: "a sampler that is not modelled (anisotropic; a border colour out of a table; one filter for larger and another for smaller, where no level is given)",
    43: "an element format that is not modelled", 44: "a descriptor of another kind than the instruction's",
}  # fmt: skip

# A wave's trace: these words, then its events, then the cache lines that they name.
TRACE = {"events": 0, "lines": 1, "cut": 2}
TRACE_HEADER = 16

PEEK = "  ; peek"  # behind a call in the text of a translation: its load is of the race check, not of the kernel

STATE_SCC = 512
STATE_RESUME = 516
STATE_WORKED = 520  # whether the wave touched LDS or stored anything (only under `check="barrier"`)
# Lanes that the wave began with; those that came to its last barrier, none before the first; that barrier's site + 1 (`meeting`).
STATE_LANES, STATE_MET, STATE_MET_SITE = 528, 536, 544
# Of the counter that loads straight into LDS add to (`checks.fills`): how many operations the wave has issued; how many of them its waits have covered, now and
# when it began what it does since its last barrier; and the number of that barrier, from 1.
STATE_ISSUED, STATE_COVERED, STATE_COVERED_BEFORE, STATE_ROUND = 552, 556, 560, 564
STATE_SIGNALLED = 568  # whether the wave has signalled a barrier that it has not waited for yet (`meeting`)
STATE_VGPRS = 1024

PARAMS = {
    "next": 0, "total": 8, "grid_x": 16, "grid_y": 24, "waves": 32, "state_bytes": 40, "sgprs": 48, "vgprs": 56,
    "exec": 64, "place_x": 72, "place_y": 80, "place_z": 88, "lds_bytes": 96, "vgpr_count": 104, "lanes": 112,
    "ttmp_mode": 120, "budget": 128, "scratch_sgpr": 136, "groups_done": 144, "template": 152, "template_bytes": 160,
    "barrier_sites": 168,  # of each barrier by its number, from 1; null where nobody asks whether waves meet at the same ones
    "group_step": 176, "group_first": 184,  # the n-th work-group to run is number (n * step + first) mod total
}  # fmt: skip
PARAMS_BYTES = 256

# Of a launch that is screened: the arena and its bytes of which accesses are recorded; which bits are undefined, a number a dword that was stored to and
# one a line that was loaded (each null where no check asks); pages that are put by: a state each, their numbers, room for so many, what was in them, how many;
# the launch's number in its place, wavefronts of a work-group; of each page 1 where all of it is defined, even numbers count up to the next look.
SCREEN = {
    "base": 0, "watched": 8, "undefined": 16, "stores": 24, "loads": 32, "saved": 40, "pages": 48, "room": 56, "pool": 64, "next": 72,
    "launch": 80, "waves": 88, "defined": 96,
}  # fmt: skip
SCREEN_BYTES = 128
BUDGET_SPENT = 6

# In what a wave returns and resumes by: it has come to no barrier, and lets the other waves of its work-group run first.
GAVE_WAY, RESUME_MASK = 1 << 16, (1 << 16) - 1
SCREENED = 45  # a launch that the full checks are to look at; no fault that anybody sees


def state_bytes(lanes: int, vgprs: int) -> int:
    """Bytes of one wave's state, a multiple of 64."""
    return STATE_VGPRS + 4 * lanes * vgprs
