"""Lanes of the race check that are looked at together (`support.race`): 16 lanes in sequence, by eight records at a time; lines of global memory of
which no load has more to tell; loads of LDS that repeat; tiles that are stored transposed.
"""

from __future__ import annotations

from .clash import turned
from .race_slow import conflict
from .template import ir

_RUN = 8  # records that are looked at together: as many as fill the host's widest vector


def runs(w: int, space: str, verb: str, n: int) -> str:
    """IR from the lanes to look at to %rest, those that are left for the loop over lanes, in block `gend`.

    Groups of 16 lanes in sequence are done here, eight records at a time, unless one of them asks for more than to be written down, or
    for the lock; of a group that loads one place from LDS one lane is left.
    """
    is_global = space == "global"
    at, size = ("i64", 8) if is_global else ("i32", 4)
    alike = verb == "ld" and not is_global
    steps = ", ".join(f"{at} {4 * n * i}" for i in range(16))
    base, end = ("%arena", "%arena_bytes") if is_global else ("0", "%lds_size")
    splats = _wide("gmev", "%me") + _wide("gmesv", "%mes") + _wide("ganyv", "%any") + _wide("gsitev", "%site", "i32")
    records = _lines(verb, n) if is_global else _records(verb, n, False, "glook", "gran")
    begin = "glines" if is_global else "gchunk"
    return ir(
        "race_runs.runs",
        splats=splats,
        w=w,
        lanes="%few" if alike else "%m",
        shift="add i64 %gsh64, 0" if w == 64 else "trunc i64 %gsh64 to i32",
        at=at,
        align=16 * size,
        steps=steps,
        wide_first="add i64 %gf, 0" if is_global else "zext i32 %gf to i64",
        base=base,
        run_bytes=64 * n,
        end=end,
        begin=begin,
        otherwise="gsame" if alike else "gskip",
        one_place=_one_place(w, at) if alike else "",
        records=records,
        from_gone=", [ %gone1, %gone ]" if alike else "",
        strips=w // 16,
    )


def _wide(name: str, value: str, ty: str = "i64") -> str:
    """IR that puts a scalar into every element of %<name>."""
    return (
        f"  %{name}_i = insertelement <{_RUN} x {ty}> poison, {ty} {value}, i64 0\n"
        f"  %{name} = shufflevector <{_RUN} x {ty}> %{name}_i, <{_RUN} x {ty}> poison, <{_RUN} x i32> zeroinitializer\n"
    )


def _one_place(w: int, at: str) -> str:
    """IR of a group of a load of LDS that is no run: to `gone` where all its lanes load one place."""
    return ir("race_runs.one_place", at=at, w=w)


def _lines(verb: str, n: int) -> str:
    """IR of a run in global memory: lines that are done need no look at their records, and a store ends that; a load that had no news may make it so."""
    line = "glines:\n  %gline = lshr i64 %goff, 6\n  %glp = getelementptr i8, ptr %lines, i64 %gline\n"
    if verb == "st":
        zeros = "".join(
            f"  %gz{i} = getelementptr i8, ptr %glp, i64 {i}\n  store i8 0, ptr %gz{i}\n" for i in range(n + 1)
        )
        return f"{line}{zeros}  br label %gchunk\n{_records(verb, n, True, 'glines', 'gran')}"
    looks = "".join(
        f"  %gce{i} = add i64 %goff, {64 * i}\n"
        f"  call void @tec_race_line(i64 %gce{i}, ptr %w0, ptr %r0, ptr %lines, i64 %any)\n" for i in range(n)
    )  # fmt: skip
    return ir("race_runs.lines", line=line, n=n, records=_records(verb, n, True, "glines", "gclose"), looks=looks)


def _records(verb: str, n: int, is_global: bool, before: str, after: str) -> str:
    """IR of a run's loop over its records, eight at a time, from block `before` to `after`, or to `gskip` where one asks for more."""
    vt = f"<{_RUN} x i64>"
    new, more, record, decide = "%gmev", "%grc", "w", ""
    if verb == "ld":
        new, more, record = "%gnew", "%glossy", "r"
        decide = ir("race_runs.decide_load", run=_RUN, vt=vt)
    conflicts = "".join(conflict(f"g{k}", f"%g{k}v", vt, str(_RUN), not is_global) for k in "wr").replace(
        "%mev", "%gmev"
    )
    return ir(
        "race_runs.records",
        before=before,
        vt=vt,
        conflicts=conflicts,
        decide=decide,
        run=_RUN,
        more=more,
        new=new,
        record=record,
        chunks=16 * n // _RUN,
        after=after,
    )


def turn(w: int, at: str, n: int) -> str:
    """IR that puts the addresses into %buf; a tile that is stored transposed column by column (%turned), so that 16 lanes follow each other."""
    q = w // 16
    rows = ", ".join(f"i32 {q * i}" for i in range(16))
    steps = ", ".join(f"{at} {4 * n * i}" for i in range(16))
    order = ", ".join(f"i32 {l}" for l in turned(w, q))
    return ir("race_runs.turn", w=w, at=at, rows=rows, steps=steps, order=order)


def alike(w: int) -> str:
    """%few: the lanes to look at of a load of LDS. Where each 16 lanes read what the first 16 do, as the tiles of products are read, those are enough."""

    def part(k: int) -> str:
        order = ", ".join(f"i32 {16 * k + i}" for i in range(16))
        return f"  %part{k} = shufflevector <{w} x i32> %addr, <{w} x i32> poison, <16 x i32> <{order}>\n"

    text = part(0)
    for k in range(1, w // 16):
        text += (
            part(k)
            + f"  %apart{k} = icmp ne <16 x i32> %part{k}, %part0\n  %apartb{k} = bitcast <16 x i1> %apart{k} to i16\n"
        )
        text += f"  %off{k} = or i16 %apartb{k}, {f'%off{k - 1}' if k > 1 else '0'}\n"
    return ir("race_runs.alike", text=text, last_strip=w // 16 - 1, w=w)


def turned_back(w: int) -> str:
    """IR from a place in %buf (%li) to the lane (%lfault) whose address `turn` put there."""
    return ir("race_runs.turned_back", strips=w // 16)


def line_of_lane(verb: str, nbytes: str) -> str:
    """IR of one lane's access to global memory (%off): a load of a line that is done needs no look (to `next`); a store ends what was known of its lines."""
    if verb == "ld":
        return ir("race_runs.load_line", nbytes=nbytes)
    return ir("race_runs.store_line", stores="%kind" if verb == "any" else 1, nbytes=nbytes)
