"""What the profile runs at each access: LLVM IR of the measuring functions.

`tec_lines_<lanes>` and `tec_banks_<lanes>` count distinct cache lines and LDS clocks of one access; `tec_bank_clocks_<lanes>` gives an
access's clocks, and those of them that bank conflicts cost.
"""

from __future__ import annotations

from ..context import CTX
from .lane_loop import over_lanes
from .template import ir


def measure_functions(w: int) -> str:
    """`tec_lines`: distinct lines of 2**shift bytes. `tec_banks`: clocks of an LDS access of n dwords a lane."""
    counters = f"""  %cp = getelementptr i8, ptr %ctx, i64 {CTX["counters"]}
  %counters = load ptr, ptr %cp
  %row = getelementptr [4 x i64], ptr %counters, i64 %slot
"""

    def bump(k: int, value: str) -> str:
        return (
            f"  %b{k}p = getelementptr i64, ptr %row, i64 {k}\n  %b{k}o = load i64, ptr %b{k}p\n"
            f"  %b{k}n = add i64 %b{k}o, {value}\n  store i64 %b{k}n, ptr %b{k}p\n"
        )

    def first_of(name: str, vec: str, extra: str, done: str) -> str:
        """A loop over active lanes; %{name}_first are those whose value no active lane before them (and in `extra`) has."""
        carried = f"  %{name}_first = phi i{w} [ 0, %{name}_entry ], [ %{name}_first1, %{name}_lane ]\n"
        arrivals = f"[ %{name}_left1, %{name}_lane ]"
        return ir(
            "track.first_of",
            lanes=over_lanes(w, "%m", f"{name}_entry", arrivals, done, carried, f"{name}_"),
            name=name,
            w=w,
            vec=vec,
            extra=extra,
        )

    plain = f"  %d_bef = and i{w} %d_bef1, -1\n"
    grouped = ir("track.groups", d="add i64 %d_gs, 0" if w == 64 else "trunc i64 %d_gs to i32", w=w)
    worst = "  %worst = phi i64 [ 0, %group ], [ %worst1, %bank_lane ]\n"
    return ir(
        "track.measure",
        w=w,
        first_lines=first_of("d", "%line32", plain, "done"),
        counters=counters,
        bump_accesses=bump(0, "1"),
        bump_bytes=bump(1, "%bytes"),
        bump_lines=bump(2, "%n64"),
        bump_lanes=bump(3, "%act64"),
        bump_clocks=bump(2, "%clocks"),
        bump_extra=bump(3, "%extra"),
        first_words=first_of("d", "%word", grouped, "groups"),
        group_start="add i64 %gstart, 0" if w == 64 else "trunc i64 %gstart to i32",
        group_ones="add i64 %ones1, 0" if w == 64 else "trunc i64 %ones1 to i32",
        lanes=over_lanes(w, "%f0", "group", "[ %bank_left1, %bank_lane ]", "group_end", worst, "bank_"),
    )
