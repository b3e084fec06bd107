"""`tec_race_slow`: one lane's access against the records byte by byte, where `support.race` cannot decide it a dword at a time."""

from __future__ import annotations

from ..checks.race_record import EPOCH_SHIFT, GROUP_SHIFT, ID, OTHER_SPAN, WAVES
from .template import ir


def conflict(name: str, record: str, ty: str, splat: str = "", timeless: bool = False) -> str:
    """%<name>y: how a record's owner differs from %me; %<name>s: another wave of this interval; %<name>o: another group. `timeless`: no record has releases."""

    def const(value: int) -> str:
        return f"splat (i64 {value})" if splat else str(value)

    bools = "<" + splat + " x i1>" if splat else "i1"
    another = ir(
        "race_slow.another",
        name=name,
        ty=ty,
        waves=const(WAVES),
        zero=const(0),
        epoch_one=const(1 << EPOCH_SHIFT),
        bools=bools,
    )
    if timeless:
        another = f"""  %{name}s1 = sub {ty} %{name}y, {const(1)}
  %{name}s = icmp ult {ty} %{name}s1, {const((1 << EPOCH_SHIFT) - 1)}
"""
    return ir(
        "race_slow.conflict",
        name=name,
        ty=ty,
        record=record,
        me="%mev" if splat else "%me",
        id=const(ID),
        another=another.rstrip(),
        group_one=const(1 << GROUP_SHIFT),
        span=const(OTHER_SPAN),
        bools=bools,
    )


def slow_function() -> str:
    """One lane's access, byte by byte where needed. Returns the record in the way (its low bits 1: a load, 2: a store) or 0.

    %w, %r: the records of the first dword; %wb, %rb: those of its first byte; %sub: the access's offset in that dword;
    %kind: 0 load, 1 store, 2 atomic; %lds: records of older intervals mean nothing.
    """

    def stale(name: str) -> str:
        """%<name>z: the record is of another launch, or of LDS and an older interval."""
        return ir("race_slow.stale", name=name)

    def expand(k: str) -> str:
        """A record to the records of its bytes, unless it is split."""
        text = ir("race_slow.expand", k=k)
        for b in range(4):
            text += ir("race_slow.expand_byte", k=k, b=b, bit=1 << b)
        return text + f"  br label %{k}_done\n{k}_done:\n"

    def collapse(k: str) -> str:
        """The records of the bytes to one of the dword where they agree, or `SPLIT`."""
        text = ""
        for b in range(4):
            text += f"  %{k}q{b} = getelementptr i64, ptr %{k}bd, i64 {b}\n  %{k}l{b} = load i64, ptr %{k}q{b}\n"
            text += conflict(f"{k}n{b}", f"%{k}l{b}", "i64") + stale(f"{k}n{b}")
            text += f"  %{k}a{b} = select i1 %{k}n{b}z, i64 0, i64 %{k}l{b}\n"
        text += f"  %{k}f1 = call i64 @llvm.umax.i64(i64 %{k}a0, i64 %{k}a1)\n"
        text += f"  %{k}f2 = call i64 @llvm.umax.i64(i64 %{k}a2, i64 %{k}a3)\n"
        text += f"  %{k}f = call i64 @llvm.umax.i64(i64 %{k}f1, i64 %{k}f2)\n"
        agree, mask = "true", "0"
        for b in range(4):
            text += ir("race_slow.collapse_byte", k=k, b=b, agree=agree, bit=1 << b, mask=mask)
            agree, mask = f"%{k}g{b}", f"%{k}u{b}"
        return (
            text
            + f"""  %{k}whole = or i64 %{k}f, {mask}
  %{k}new = select i1 {agree}, i64 %{k}whole, i64 %split
  store i64 %{k}new, ptr %{k}d
"""
        )

    return ir(
        "race_slow.slow",
        conflict_w=conflict("w", "%wv", "i64"),
        conflict_r=conflict("r", "%rv", "i64"),
        stale_w=stale("w"),
        stale_r=stale("r"),
        expand_w=expand("w"),
        expand_r=expand("r"),
        conflict_bw=conflict("bw", "%bw", "i64"),
        conflict_br=conflict("br", "%br", "i64"),
        collapse_w=collapse("w"),
        collapse_r=collapse("r"),
    )
