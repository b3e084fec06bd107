"""The records of the race check: how an access is written down in 64 bits, and what a record says (see `support.race`)."""

from __future__ import annotations

from collections.abc import Iterator

# What is recorded -> bytes a byte of memory, in the order in which it lies. A launch begins with the first two cleared: they say whether the rest counts.
RECORDS = {"stores": 2, "loads": 2, "bytes_w": 8, "bytes_r": 8, "sites_w": 1, "sites_r": 1}
RECORD_BYTES = sum(RECORDS.values())
CLEARED_BYTES = RECORDS["stores"] + RECORDS["loads"]
LINE = 64  # bytes of global memory of which it is kept whether loads of them have more to tell
SEVERAL = 63
ANY, SPLIT = 0xFFFFFF, 0xFFFFFE
GROUPS = 0xFFFFFD  # groups are numbered modulo this, from 1
EPOCH_BITS, TICK_BITS = 15, 6
EPOCH_SHIFT, TICK_SHIFT, WAVE_SHIFT, GROUP_SHIFT, LAUNCH_SHIFT = 17, 11, 4, 32, 56
WAVES = 63 << WAVE_SHIFT
ATOMIC = 1 << 10

ID = -1 & ~(ATOMIC | 15)  # what names the accessor, the atomic bit apart
LAUNCH = 0xFF << LAUNCH_SHIFT
LAUNCH_I64 = LAUNCH - (1 << 64)  # in the texts of `support`
OTHER_SPAN = (1 << LAUNCH_SHIFT) - (1 << GROUP_SHIFT)
# The same in their places in a record.
ONE_LAUNCH, ONE_EPOCH, ONE_GROUP = 1 << LAUNCH_SHIFT, 1 << EPOCH_SHIFT, 1 << GROUP_SHIFT
EPOCHS = (1 << EPOCH_BITS) - 1 << EPOCH_SHIFT
GROUP_MASK = 0xFFFFFF
GROUP_FIELD, SPLIT_GROUP, ANY_GROUP, SEVERAL_WAVES = (
    GROUP_MASK << GROUP_SHIFT,
    SPLIT << GROUP_SHIFT,
    ANY << GROUP_SHIFT,
    SEVERAL << WAVE_SHIFT,
)
TICK_MASK, TIME_MASK = (1 << TICK_BITS) - 1, (1 << EPOCH_BITS + TICK_BITS) - 1


def me_of(launch: str, group: str, epoch: str, wave: str, out: str) -> str:
    """IR that makes the record of the wave that runs, all bytes: %<out>; `launch` is shifted already."""
    return f"""  %{out}g0 = urem i64 {group}, {GROUPS}
  %{out}g1 = add i64 %{out}g0, 1
  %{out}g = shl i64 %{out}g1, {GROUP_SHIFT}
  %{out}e0 = and i64 {epoch}, {(1 << EPOCH_BITS) - 1}
  %{out}e = shl i64 %{out}e0, {EPOCH_SHIFT}
  %{out}w = shl i64 {wave}, {WAVE_SHIFT}
  %{out}1 = or i64 {launch}, %{out}g
  %{out}2 = or i64 %{out}1, %{out}e
  %{out}3 = or i64 %{out}2, %{out}w
  %{out} = or i64 %{out}3, 15
"""


def records_at(base: int, room: int) -> Iterator[tuple[str, int]]:
    """The records of `room` bytes of memory that lie from `base` on: each one's name and address."""
    for name, nbytes in RECORDS.items():
        yield name, base
        base += nbytes * room


def who(record: int, grid: tuple[int, int, int]) -> str:
    """The access that a record names, for a message."""
    group, wave = (record >> GROUP_SHIFT) & 0xFFFFFF, (record >> WAVE_SHIFT) & 63
    what = "an atomic" if record & ATOMIC else "a load" if record & 1 else "a store"
    if group == ANY:
        return f"{what} by several work-groups"
    number = group - 1
    place = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
    waves = "several waves" if wave == SEVERAL else f"wave {wave}"
    return f"{what} by {waves} of work-group {place}"
