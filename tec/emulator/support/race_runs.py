"""Lanes of the race check that are looked at together (`support.race`): 16 lanes in sequence, by eight records at a time; lines of global memory of
which no load has more to tell; loads of LDS that repeat; tiles that are stored transposed.
"""

from __future__ import annotations

from ..checks.race_record import LAUNCH_SHIFT
from .clash import turned
from .race_slow import conflict

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
    return f"""{splats}  br label %gnext
gnext:
  %g = phi i64 [ 0, %entry ], [ %g1, %gdone ]
  %grest = phi i{w} [ {"%few" if alike else "%m"}, %entry ], [ %grest1, %gdone ]
  %gsh64 = shl i64 %g, 4
  %gsh = {"add i64 %gsh64, 0" if w == 64 else "trunc i64 %gsh64 to i32"}
  %gm = lshr i{w} %grest, %gsh
  %gm16 = trunc i{w} %gm to i16
  %gall = icmp eq i16 %gm16, -1
  br i1 %gall, label %glook, label %gskip
glook:
  %gap = getelementptr {at}, ptr %buf, i64 %gsh64
  %ga = load <16 x {at}>, ptr %gap, align {16 * size}
  %gf = load {at}, ptr %gap
  %gfi = insertelement <16 x {at}> poison, {at} %gf, i64 0
  %gfv = shufflevector <16 x {at}> %gfi, <16 x {at}> poison, <16 x i32> zeroinitializer
  %gd = sub <16 x {at}> %ga, %gfv
  %gr = icmp eq <16 x {at}> %gd, <{steps}>
  %grb = bitcast <16 x i1> %gr to i16
  %grun = icmp eq i16 %grb, -1
  %gfz = {"add i64 %gf, 0" if is_global else "zext i32 %gf to i64"}
  %goff = sub i64 %gfz, {base}
  %glow = and i64 %goff, 3
  %geven = icmp eq i64 %glow, 0
  %gend0 = add i64 %goff, {64 * n}
  %gfits0 = icmp ule i64 %gend0, {end}
  %gfits1 = icmp ult i64 %goff, {end}
  %gfits = and i1 %gfits0, %gfits1
  %gok0 = and i1 %grun, %geven
  %gok = and i1 %gok0, %gfits
  br i1 %gok, label %{begin}, label %{"gsame" if alike else "gskip"}
{_one_place(w, at) if alike else ""}{records}gran:
  %gwhole = shl i{w} 65535, %gsh
  %gwholen = xor i{w} %gwhole, -1
  %gran1 = and i{w} %grest, %gwholen
  br label %gdone
gskip:
  br label %gdone
gdone:
  %grest1 = phi i{w} [ %gran1, %gran ], [ %grest, %gskip ]{", [ %gone1, %gone ]" if alike else ""}
  %g1 = add i64 %g, 1
  %gover = icmp ult i64 %g1, {w // 16}
  br i1 %gover, label %gnext, label %gend
gend:
  %rest = or i{w} %grest1, 0
"""


def _wide(name: str, value: str, ty: str = "i64") -> str:
    """IR that puts a scalar into every element of %<name>."""
    return (
        f"  %{name}_i = insertelement <{_RUN} x {ty}> poison, {ty} {value}, i64 0\n"
        f"  %{name} = shufflevector <{_RUN} x {ty}> %{name}_i, <{_RUN} x {ty}> poison, <{_RUN} x i32> zeroinitializer\n"
    )


def _one_place(w: int, at: str) -> str:
    """IR of a group of a load of LDS that is no run: to `gone` where all its lanes load one place."""
    return f"""gsame:
  %gs = icmp eq <16 x {at}> %gd, zeroinitializer
  %gsb = bitcast <16 x i1> %gs to i16
  %gsall = icmp eq i16 %gsb, -1
  br i1 %gsall, label %gone, label %gskip
gone:
  %gfirst = shl i{w} 65534, %gsh
  %gfirstn = xor i{w} %gfirst, -1
  %gone1 = and i{w} %grest, %gfirstn
  br label %gdone
"""


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
    return f"""{line}  %gin = and i64 %goff, 63
  %gwholes = icmp eq i64 %gin, 0
  %glv = load <{n} x i8>, ptr %glp, align 1
  %gtag_i = insertelement <{n} x i8> poison, i8 %tag, i64 0
  %gtag = shufflevector <{n} x i8> %gtag_i, <{n} x i8> poison, <{n} x i32> zeroinitializer
  %gln = icmp ne <{n} x i8> %glv, %gtag
  %glb = bitcast <{n} x i1> %gln to i{n}
  %gla = icmp eq i{n} %glb, 0
  %gskips = and i1 %gla, %gwholes
  br i1 %gskips, label %gran, label %gchunk
{_records(verb, n, True, "glines", "gclose")}gclose:
  %gcalm0 = xor i1 %gnews1, true
  %gcalm = and i1 %gcalm0, %gwholes
  br i1 %gcalm, label %gcloses, label %gran
gcloses:
{looks}  br label %gran
"""


def _records(verb: str, n: int, is_global: bool, before: str, after: str) -> str:
    """IR of a run's loop over its records, eight at a time, from block `before` to `after`, or to `gskip` where one asks for more."""
    vt = f"<{_RUN} x i64>"
    new, more, record, decide = "%gmev", "%grc", "w", ""
    if verb == "ld":
        new, more, record = "%gnew", "%glossy", "r"
        decide = f"""  %gnr = select <{_RUN} x i1> %grs, {vt} %gmesv, {vt} %gmev
  %gnew = select <{_RUN} x i1> %gro, {vt} %ganyv, {vt} %gnr
  %grm = and {vt} %grv, splat (i64 15)
  %grmp = icmp ne {vt} %grm, splat (i64 15)
  %glossy = and <{_RUN} x i1> %grc, %grmp
"""
    conflicts = "".join(conflict(f"g{k}", f"%g{k}v", vt, str(_RUN), not is_global) for k in "wr").replace(
        "%mev", "%gmev"
    )
    return f"""gchunk:
  %gc = phi i64 [ 0, %{before} ], [ %gc1, %gmore ]
  %gnews = phi i1 [ false, %{before} ], [ %gnews1, %gmore ]
  %gcd = shl i64 %gc, 5
  %gco = add i64 %goff, %gcd
  %gc2 = shl i64 %gco, 1
  %gwp = getelementptr i8, ptr %w0, i64 %gc2
  %grp = getelementptr i8, ptr %r0, i64 %gc2
  %gwv = load {vt}, ptr %gwp, align 8
  %grv = load {vt}, ptr %grp, align 8
{conflicts}{decide}  %gcand0 = or <{_RUN} x i1> %gwc, {more}
  %gupd0 = icmp ne {vt} {new}, %g{record}v
  %gcand1 = bitcast <{_RUN} x i1> %gcand0 to i{_RUN}
  %gupd1 = bitcast <{_RUN} x i1> %gupd0 to i{_RUN}
  %gcand = icmp ne i{_RUN} %gcand1, 0
  %gupd = icmp ne i{_RUN} %gupd1, 0
  %glocked = xor i1 %held0, true
  %gwants = and i1 %gupd, %glocked
  %gleave = or i1 %gcand, %gwants
  %gnews1 = or i1 %gnews, %gupd
  br i1 %gleave, label %gskip, label %gstay
gstay:
  br i1 %gupd, label %gput, label %gmore
gput:
  store {vt} {new}, ptr %g{record}p, align 8
  %gsp = getelementptr i8, ptr %{record}s0, i64 %gco
  store <{_RUN} x i32> %gsitev, ptr %gsp, align 4
  br label %gmore
gmore:
  %gc1 = add i64 %gc, 1
  %gagain = icmp ult i64 %gc1, {16 * n // _RUN}
  br i1 %gagain, label %gchunk, label %{after}
"""


# A line of 64 bytes of global memory is done with when every load record of it says that several groups read it and no store record is of this launch:
# another load would change nothing. A byte for each line has the launch's number then. A store to the line takes it back.
LINE_FUNCTION = f"""
define internal void @tec_race_line(i64 %at, ptr %w0, ptr %r0, ptr %lines, i64 %any) noinline {{
  %o0 = and i64 %at, -64
  %o = shl i64 %o0, 1
  %wp = getelementptr i8, ptr %w0, i64 %o
  %rp = getelementptr i8, ptr %r0, i64 %o
  %wv = load <16 x i64>, ptr %wp, align 8
  %rv = load <16 x i64>, ptr %rp, align 8
  %anyi = insertelement <16 x i64> poison, i64 %any, i64 0
  %anyv = shufflevector <16 x i64> %anyi, <16 x i64> poison, <16 x i32> zeroinitializer
  %rn = icmp ne <16 x i64> %rv, %anyv
  %x = xor <16 x i64> %wv, %anyv
  %now = icmp ult <16 x i64> %x, splat (i64 {1 << LAUNCH_SHIFT})
  %badv = or <16 x i1> %rn, %now
  %bad = bitcast <16 x i1> %badv to i16
  %good = icmp eq i16 %bad, 0
  br i1 %good, label %mark, label %leave
mark:
  %line = lshr i64 %at, 6
  %p = getelementptr i8, ptr %lines, i64 %line
  %tag64 = lshr i64 %any, {LAUNCH_SHIFT}
  %tag = trunc i64 %tag64 to i8
  store i8 %tag, ptr %p
  fence seq_cst
  %again = load <16 x i64>, ptr %wp, align 8
  %xa = xor <16 x i64> %again, %anyv
  %nowa = icmp ult <16 x i64> %xa, splat (i64 {1 << LAUNCH_SHIFT})
  %stored = bitcast <16 x i1> %nowa to i16
  %late = icmp ne i16 %stored, 0
  br i1 %late, label %undo, label %leave
undo:
  store i8 0, ptr %p
  br label %leave
leave:
  ret void
}}
"""


def turn(w: int, at: str, n: int) -> str:
    """IR that puts the addresses into %buf; a tile that is stored transposed column by column (%turned), so that 16 lanes follow each other."""
    q = w // 16
    rows = ", ".join(f"i32 {q * i}" for i in range(16))
    steps = ", ".join(f"{at} {4 * n * i}" for i in range(16))
    order = ", ".join(f"i32 {l}" for l in turned(w, q))
    return f"""  %tc = shufflevector <{w} x {at}> %addr, <{w} x {at}> poison, <16 x i32> <{rows}>
  %tf = shufflevector <{w} x {at}> %addr, <{w} x {at}> poison, <16 x i32> zeroinitializer
  %td = sub <16 x {at}> %tc, %tf
  %te = icmp eq <16 x {at}> %td, <{steps}>
  %tb = bitcast <16 x i1> %te to i16
  %tall = icmp eq i16 %tb, -1
  %ton = icmp eq i{w} %m, -1
  %turned = and i1 %tall, %ton
  %tt = shufflevector <{w} x {at}> %addr, <{w} x {at}> poison, <{w} x i32> <{order}>
  %taddr = select i1 %turned, <{w} x {at}> %tt, <{w} x {at}> %addr
  store <{w} x {at}> %taddr, ptr %buf"""


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
    return f"""{text}  %equal = icmp eq i16 %off{w // 16 - 1}, 0
  %whole = icmp eq i{w} %m, -1
  %enough = and i1 %equal, %whole
  %few = select i1 %enough, i{w} 65535, i{w} %m
"""


def turned_back(w: int) -> str:
    """IR from a place in %buf (%li) to the lane (%lfault) whose address `turn` put there."""
    return f"""  %lrow = and i64 %li, 15
  %lrows = mul i64 %lrow, {w // 16}
  %lcolumn = lshr i64 %li, 4
  %lturned = add i64 %lrows, %lcolumn
  %lfault = select i1 %turned, i64 %lturned, i64 %li"""


def line_of_lane(verb: str, nbytes: str) -> str:
    """IR of one lane's access to global memory (%off): a load of a line that is done needs no look (to `next`); a store ends what was known of its lines."""
    if verb == "ld":
        return f"""  %line = lshr i64 %off, 6
  %linep = getelementptr i8, ptr %lines, i64 %line
  %in = and i64 %off, 63
  %past = add i64 %in, {nbytes}
  %one_line = icmp ule i64 %past, 64
  %known_line = load i8, ptr %linep
  %done_line = icmp eq i8 %known_line, %tag
  %skips = and i1 %one_line, %done_line
  br i1 %skips, label %next, label %look
look:
"""
    return f"""  %writes = icmp ne i64 {"%kind" if verb == "any" else 1}, 0
  br i1 %writes, label %ends_lines, label %look
ends_lines:
  %line = lshr i64 %off, 6
  %linep = getelementptr i8, ptr %lines, i64 %line
  store i8 0, ptr %linep
  %end0 = add i64 %off, {nbytes}
  %end1 = sub i64 %end0, 1
  %line2 = lshr i64 %end1, 6
  %linep2 = getelementptr i8, ptr %lines, i64 %line2
  store i8 0, ptr %linep2
  br label %look
look:
"""


# After a load that changed nothing: at the end of a line, which is read from its beginning, the whole of it may be done.
CLOSE_LINE = """calm:
  %at_end = icmp eq i64 %past, 64
  br i1 %at_end, label %close, label %next
close:
  call void @tec_race_line(i64 %off, ptr %w0, ptr %r0, ptr %lines, i64 %any)
  br label %next
"""
