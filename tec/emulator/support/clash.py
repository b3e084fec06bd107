"""Lanes of one store that write one byte: LLVM IR of `tec_clash_<space>_<lanes>`, which `check="race"` runs before the store.

Which of the lanes' values stays is not defined. Lanes whose addresses rise by the size of the access or more, as nearly all do, are done at
once, so are those that do column by column, as a tile is stored transposed; else each lane is held against the others.
"""

from __future__ import annotations

from .lane_loop import over_lanes
from .template import ir


def clash_function(w: int, space: str) -> str:
    """Whether two lanes of one store write one byte, with different values: an i32, not 0 after the fault. %data: a vector of i32 a dword."""
    at = "i64" if space == "global" else "i32"
    up = "<" + ", ".join(f"i32 {min(i + 1, w - 1)}" for i in range(w)) + ">"
    wide = "%a0" if at == "i64" else "%az"
    columns = (4, 8)
    return ir(
        "clash.clash",
        space=space,
        w=w,
        at=at,
        size="add i64 %nbytes, 0" if at == "i64" else "trunc i64 %nbytes to i32",
        up=up,
        last_lane=-(1 << w - 1),
        first_turn=columns[0],
        turns="".join(
            (_turned(w, at, q, up, after) for q, after in zip(columns, [*(f"turn{q}" for q in columns[1:]), "look"]))
        ),
        lanes=over_lanes(w, "%m", "look", "[ %left1, %lane ], [ %left1, %alike ]", "leave"),
        widen="" if at == "i64" else "%az = zext i32 %a0 to i64",
        wide=wide,
    )


def _turned(w: int, at: str, q: int, up: str, after: str) -> str:
    """IR that leaves where the addresses rise with lanes 0, q, 2 q, ..., then 1, q + 1, ..., as the columns of a tile of q columns."""
    order = ", ".join(f"i32 {l}" for l in turned(w, q))
    return ir("clash.turned", q=q, w=w, at=at, order=order, up=up, last_lane=-(1 << w - 1), after=after)


def turned(w: int, q: int) -> list[int]:
    """The lanes of a wavefront column by column, where row by row there are q in a row."""
    return [row * q + column for column in range(q) for row in range(w // q)]


def order_function(w: int) -> str:
    """`tec_order_<lanes>`: tell `order.Order` of an access to these addresses; a fault where it says that the wave waits in vain."""
    return ir("clash.order", w=w)
