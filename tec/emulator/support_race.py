"""What `check="race"` runs at each access: LLVM IR of `tec_race_<space>_<ld|st><dwords>_<lanes>` and its slow path.

Each dword of memory has two records of 64 bits, its last store and its last load, in arrays of their own:

    launch 8 | work-group 24 | barrier interval 21 | atomic 1 | wave 6 | bytes 4

A record of another launch counts as none. An access conflicts with a record whose bytes it touches where the groups differ, or
where in one interval of one group the waves differ; one of the two must be a store, and not both atomics. Loads by several
waves leave the wave `SEVERAL`, loads by several groups the group `ANY`, so nothing of them is lost. Where the bytes of a
dword have different stories its record is `SPLIT`, and each byte has one of its own in arrays that are touched only then.

Aligned accesses of whole dwords go lane by lane, all dwords of a lane at once; what they cannot decide, narrow accesses and
atomics go to `tec_race_slow`. Records of global memory are changed under the launch's lock (null on one thread);
accesses that need no change, as the third load of a word, do not take it.
"""

from __future__ import annotations

from .context import CTX
from .lane_loop import over_lanes
from .support_memory import ctx_load

SEVERAL = 63
ANY, SPLIT = 0xFFFFFF, 0xFFFFFE
GROUPS = 0xFFFFFD  # groups are numbered modulo this, from 1
EPOCH_BITS = 21
EPOCH_SHIFT, WAVE_SHIFT, GROUP_SHIFT, LAUNCH_SHIFT = 11, 4, 32, 56
ATOMIC = 1 << 10
WIDTHS = (1, 2, 3, 4)  # dwords a lane

_ID = -1 & ~(ATOMIC | 15)  # what names the accessor, the atomic bit apart
_LAUNCH = 0xFF << LAUNCH_SHIFT
_LAUNCH_I64 = _LAUNCH - (1 << 64)
_OTHER_SPAN = (1 << LAUNCH_SHIFT) - (1 << GROUP_SHIFT)


def names(w: int) -> list[str]:
    """The functions for kernels, both spaces."""
    forms = [f"{verb}{n}" for verb in ("ld", "st") for n in WIDTHS] + ["any"]
    return [f"tec_race_{space}_{form}_{w}" for space in ("global", "lds") for form in forms]


def _conflict(name: str, record: str, ty: str, splat: str = "") -> str:
    """%<name>y: how a record's owner differs from %me; %<name>s: another wave of this interval; %<name>o: another group."""

    def const(value: int) -> str:
        return f"splat (i64 {value})" if splat else str(value)

    return f"""  %{name}x = xor {ty} {record}, {"%mev" if splat else "%me"}
  %{name}y = and {ty} %{name}x, {const(_ID)}
  %{name}s1 = sub {ty} %{name}y, {const(1)}
  %{name}s = icmp ult {ty} %{name}s1, {const(1023)}
  %{name}o1 = sub {ty} %{name}y, {const(1 << GROUP_SHIFT)}
  %{name}o = icmp ult {ty} %{name}o1, {const(_OTHER_SPAN)}
  %{name}c = or {"<" + splat + " x i1>" if splat else "i1"} %{name}s, %{name}o
"""


def slow_function() -> str:
    """One lane's access, byte by byte where needed. Returns the record in the way (its low bits 1: a load, 2: a store) or 0.

    %w, %r: the records of the first dword; %wb, %rb: those of its first byte; %sub: the access's offset in that dword;
    %kind: 0 load, 1 store, 2 atomic; %lds: records of older intervals mean nothing.
    """

    def stale(name: str) -> str:
        """%<name>z: the record is of another launch, or of LDS and an older interval."""
        return f"""  %{name}z0 = icmp uge i64 %{name}y, {1 << LAUNCH_SHIFT}
  %{name}z1 = icmp uge i64 %{name}y, {1 << EPOCH_SHIFT}
  %{name}z2 = icmp ult i64 %{name}y, {1 << GROUP_SHIFT}
  %{name}z3 = and i1 %{name}z1, %{name}z2
  %{name}z4 = and i1 %{name}z3, %lds
  %{name}z = or i1 %{name}z0, %{name}z4
"""

    def expand(k: str) -> str:
        """A record to the records of its bytes, unless it is split."""
        text = f"""  %{k}g = and i64 %{k}v, {(0xFFFFFF << GROUP_SHIFT)}
  %{k}issplit0 = icmp eq i64 %{k}g, {SPLIT << GROUP_SHIFT}
  %{k}notold = icmp ult i64 %{k}y, {1 << LAUNCH_SHIFT}
  %{k}issplit = and i1 %{k}issplit0, %{k}notold
  br i1 %{k}issplit, label %{k}_done, label %{k}_bytes
{k}_bytes:
  %{k}id = and i64 %{k}v, -16
"""
        for b in range(4):
            text += f"""  %{k}m{b} = and i64 %{k}v, {1 << b}
  %{k}h{b} = icmp ne i64 %{k}m{b}, 0
  %{k}e{b} = select i1 %{k}h{b}, i64 %{k}id, i64 0
  %{k}p{b} = getelementptr i64, ptr %{k}bd, i64 {b}
  store i64 %{k}e{b}, ptr %{k}p{b}
"""
        return text + f"  br label %{k}_done\n{k}_done:\n"

    def collapse(k: str) -> str:
        """The records of the bytes to one of the dword where they agree, or `SPLIT`."""
        text = ""
        for b in range(4):
            text += f"  %{k}q{b} = getelementptr i64, ptr %{k}bd, i64 {b}\n  %{k}l{b} = load i64, ptr %{k}q{b}\n"
            text += _conflict(f"{k}n{b}", f"%{k}l{b}", "i64") + stale(f"{k}n{b}")
            text += f"  %{k}a{b} = select i1 %{k}n{b}z, i64 0, i64 %{k}l{b}\n"
        text += f"  %{k}f1 = call i64 @llvm.umax.i64(i64 %{k}a0, i64 %{k}a1)\n"
        text += f"  %{k}f2 = call i64 @llvm.umax.i64(i64 %{k}a2, i64 %{k}a3)\n"
        text += f"  %{k}f = call i64 @llvm.umax.i64(i64 %{k}f1, i64 %{k}f2)\n"
        agree, mask = "true", "0"
        for b in range(4):
            text += f"""  %{k}i{b} = icmp eq i64 %{k}a{b}, %{k}f
  %{k}j{b} = icmp eq i64 %{k}a{b}, 0
  %{k}k{b} = or i1 %{k}i{b}, %{k}j{b}
  %{k}g{b} = and i1 {agree}, %{k}k{b}
  %{k}t{b} = select i1 %{k}j{b}, i64 0, i64 {1 << b}
  %{k}u{b} = or i64 {mask}, %{k}t{b}
"""
            agree, mask = f"%{k}g{b}", f"%{k}u{b}"
        return (
            text
            + f"""  %{k}whole = or i64 %{k}f, {mask}
  %{k}new = select i1 {agree}, i64 %{k}whole, i64 %split
  store i64 %{k}new, ptr %{k}d
"""
        )

    return f"""
define internal i64 @tec_race_slow(ptr %w, ptr %r, ptr %wb, ptr %rb, i64 %sub, i64 %nbytes, i64 %me15, i64 %kind, i1 %lds) noinline {{
entry:
  %me = and i64 %me15, {_ID}
  %launch = and i64 %me, {_LAUNCH_I64}
  %split = or i64 %launch, {SPLIT << GROUP_SHIFT}
  %any = or i64 %launch, {ANY << GROUP_SHIFT}
  %meseveral = or i64 %me, {SEVERAL << WAVE_SHIFT}
  %isload = icmp eq i64 %kind, 0
  %isatomic = icmp eq i64 %kind, 2
  %notload = xor i1 %isload, true
  %end = add i64 %sub, %nbytes
  br label %dword
dword:
  %i = phi i64 [ 0, %entry ], [ %i1, %dword_end ]
  %start = shl i64 %i, 2
  %lo0 = sub i64 %sub, %start
  %lo = call i64 @llvm.smax.i64(i64 %lo0, i64 0)
  %hi0 = sub i64 %end, %start
  %hi = call i64 @llvm.smin.i64(i64 %hi0, i64 4)
  %tom0 = shl i64 1, %hi
  %tom = sub i64 %tom0, 1
  %frm0 = shl i64 1, %lo
  %frm1 = sub i64 %frm0, 1
  %frm = xor i64 %frm1, -1
  %touch = and i64 %tom, %frm
  %wd = getelementptr i64, ptr %w, i64 %i
  %rd = getelementptr i64, ptr %r, i64 %i
  %i4 = shl i64 %i, 2
  %wbd = getelementptr i64, ptr %wb, i64 %i4
  %rbd = getelementptr i64, ptr %rb, i64 %i4
  %wv = load i64, ptr %wd
  %rv = load i64, ptr %rd
{_conflict("w", "%wv", "i64")}{_conflict("r", "%rv", "i64")}{stale("w")}{stale("r")}
  ; nothing in the way and nothing to lose: one record of the dword is enough
  %clash = or i1 %wc, %rc
  %kv = select i1 %isload, i64 %rv, i64 %wv
  %ky = select i1 %isload, i64 %ry, i64 %wy
  %kz = select i1 %isload, i1 %rz, i1 %wz
  %same = icmp eq i64 %ky, 0
  %full = icmp eq i64 %touch, 15
  %free0 = or i1 %same, %kz
  %free = or i1 %free0, %full
  %fine = xor i1 %clash, true
  %quick = and i1 %free, %fine
  %kmask = and i64 %kv, 15
  %keep = select i1 %same, i64 %kmask, i64 0
  %bits = or i64 %keep, %touch
  ; an atomic after a plain store of one's own leaves that store to be seen, where it touches the same bytes only
  %kat = and i64 %kv, {ATOMIC}
  %katb = icmp ne i64 %kat, 0
  %wasat0 = xor i1 %same, true
  %wasat = or i1 %wasat0, %katb
  %at = and i1 %isatomic, %wasat
  %atbit = select i1 %at, i64 {ATOMIC}, i64 0
  %mixed0 = xor i1 %at, %katb
  %mixed1 = and i1 %mixed0, %same
  %mixed = and i1 %mixed1, %notload
  %pure = xor i1 %mixed, true
  %quick1 = and i1 %quick, %pure
  %qid = or i64 %me, %atbit
  %q = or i64 %qid, %bits
  br i1 %quick1, label %quickly, label %read
read:
  ; a load of bytes that several waves or groups are known to load changes nothing
  %rname = and i64 %rv, -16
  %rsev = icmp eq i64 %rname, %meseveral
  %rany = icmp eq i64 %rname, %any
  %rmany = or i1 %rsev, %rany
  %rhas0 = and i64 %rv, %touch
  %rhas = icmp eq i64 %rhas0, %touch
  %rknown0 = and i1 %rmany, %rhas
  %rknown1 = and i1 %rknown0, %isload
  %wfine = xor i1 %wc, true
  %rknown = and i1 %rknown1, %wfine
  br i1 %rknown, label %dword_end, label %expand
quickly:
  %kp = select i1 %isload, ptr %rd, ptr %wd
  store i64 %q, ptr %kp
  br label %dword_end
expand:
{expand("w")}{expand("r")}  br label %byte
byte:
  %b = phi i64 [ %lo, %r_done ], [ %b1, %byte_end ]
  %wp = getelementptr i64, ptr %wbd, i64 %b
  %rp = getelementptr i64, ptr %rbd, i64 %b
  %bw = load i64, ptr %wp
  %br = load i64, ptr %rp
{_conflict("bw", "%bw", "i64")}{_conflict("br", "%br", "i64")}
  %bwat0 = and i64 %bw, {ATOMIC}
  %bwat = icmp ne i64 %bwat0, 0
  %both = and i1 %bwat, %isatomic
  %alone = xor i1 %both, true
  %badw = and i1 %bwc, %alone
  %badr = and i1 %brc, %notload
  %bad = or i1 %badw, %badr
  br i1 %bad, label %found, label %note
found:
  %fw = or i64 %bw, 2
  %fr = or i64 %br, 1
  %fx = select i1 %badw, i64 %fw, i64 %fr
  ret i64 %fx
note:
  br i1 %isload, label %note_load, label %note_store
note_load:
  %nl0 = select i1 %brs, i64 %meseveral, i64 %me
  %nl = select i1 %bro, i64 %any, i64 %nl0
  store i64 %nl, ptr %rp
  br label %byte_end
note_store:
  %ns0 = select i1 %bws, i64 %meseveral, i64 %me
  %ns1 = select i1 %bwo, i64 %any, i64 %ns0
  %mine = icmp eq i64 %bwy, 0
  %notmine = xor i1 %mine, true
  %ok1 = or i1 %notmine, %bwat
  %ok2 = and i1 %ok1, %isatomic
  %nbit = select i1 %ok2, i64 {ATOMIC}, i64 0
  %ns = or i64 %ns1, %nbit
  store i64 %ns, ptr %wp
  br label %byte_end
byte_end:
  %b1 = add i64 %b, 1
  %bmore = icmp ult i64 %b1, %hi
  br i1 %bmore, label %byte, label %join
join:
{collapse("w")}{collapse("r")}  br label %dword_end
dword_end:
  %i1 = add i64 %i, 1
  %next = shl i64 %i1, 2
  %more = icmp ult i64 %next, %end
  br i1 %more, label %dword, label %done
done:
  ret i64 0
}}
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
"""


def race_function(w: int, space: str, verb: str, n: int) -> str:
    """`verb` "ld" or "st" of n dwords a lane; "any" takes %nbytes and %kind and always goes the slow way."""
    is_global = space == "global"
    at = "i64" if is_global else "i32"
    name, extra = (f"any_{w}", ", i64 %nbytes, i64 %kind") if verb == "any" else (f"{verb}{n}_{w}", "")
    if verb == "any":
        nbytes, kind = "%nbytes", "%kind"
    else:
        nbytes, kind = str(4 * n), str(int(verb == "st"))
    vt, bt = f"<{n} x i64>", f"<{n} x i1>"
    head = "".join(
        ctx_load(k, f"{space}_{f}", "ptr") for k, f in (("w0", "stores"), ("r0", "loads"), ("wb0", "bytes_w"), ("rb0", "bytes_r"))
    )  # fmt: skip
    if is_global:
        head += ctx_load("arena", "arena") + ctx_load("arena_bytes", "arena_bytes") + ctx_load("lock", "lock", "ptr")
        head += "  %held0 = icmp eq ptr %lock, null\n"
        fetch = """  %ap = getelementptr i64, ptr %buf, i64 %li
  %a = load i64, ptr %ap
  %repeat = icmp eq i64 %a, %last
  br i1 %repeat, label %next, label %fresh
fresh:
  %off = sub i64 %a, %arena
  %inside = icmp ult i64 %off, %arena_bytes
  br i1 %inside, label %known, label %next
known:
"""
        skips: tuple[str, ...] = ("lane", "fresh")
    else:
        head += "  %held0 = icmp eq i1 true, true\n"
        fetch = """  %ap = getelementptr i32, ptr %buf, i64 %li
  %a32 = load i32, ptr %ap
  %a = zext i32 %a32 to i64
  %repeat = icmp eq i64 %a, %last
  br i1 %repeat, label %next, label %fresh
fresh:
  %off = add i64 %a, 0
  br label %known
known:
"""
        skips = ("lane",)
    places = """  %sub = and i64 %off, 3
  %first = and i64 %off, -4
  %o2 = shl i64 %first, 1
  %o8 = shl i64 %first, 3
  %wp = getelementptr i8, ptr %w0, i64 %o2
  %rp = getelementptr i8, ptr %r0, i64 %o2
  %wbp = getelementptr i8, ptr %wb0, i64 %o8
  %rbp = getelementptr i8, ptr %rb0, i64 %o8
"""
    stays = [f"[ %left1, %{s} ], " for s in skips]
    held_stays = [f"[ %held, %{s} ], " for s in skips]
    last_stays = [f"[ {'%a' if s == 'fresh' else '%last'}, %{s} ], " for s in skips]
    unlock = "  store atomic i32 0, ptr %lock release, align 4\n" if is_global else ""
    acquire = (
        """acquire:
  %was = atomicrmw xchg ptr %lock, i32 1 acquire
  %busy = icmp ne i32 %was, 0
  br i1 %busy, label %acquire, label %again
"""
        if is_global
        else ""
    )
    slow = f"""slow:
  %rec = call i64 @tec_race_slow(ptr %wp, ptr %rp, ptr %wbp, ptr %rbp, i64 %sub, i64 {nbytes}, i64 %me, i64 {kind}, i1 {"false" if is_global else "true"})
  %bad = icmp ne i64 %rec, 0
  br i1 %bad, label %fault, label %next
"""
    need = "  br i1 %now, label %act, label %acquire\n" if is_global else "  br label %act\n"
    if verb == "any":
        body = f"""  br label %again
again:
  %now = phi i1 [ %held, %known ]{", [ true, %acquire ]" if is_global else ""}
{need}act:
  br label %slow
{slow}"""
        ends = "[ %left1, %slow ]", "[ true, %slow ]", "[ %a, %slow ]"
    else:
        ones = f"splat (i64 {15})"
        if verb == "ld":
            decide = f"""  %nr0 = select {bt} %rs, {vt} %mesv, {vt} %mev
  %newv = select {bt} %ro, {vt} %anyv, {vt} %nr0
  %rm = and {vt} %rv, {ones}
  %rmp = icmp ne {vt} %rm, {ones}
  %lossy = and {bt} %rc, %rmp
  %candv = or {bt} %wc, %lossy
  %updv = icmp ne {vt} %newv, %rv
"""
            target = "%rp"
        else:
            decide = f"""  %candv = or {bt} %wc, %rc
  %updv = icmp ne {vt} %wv, %mev
  %newv = or {vt} %mev, zeroinitializer
"""
            target = "%wp"
        body = f"""  %odd = icmp ne i64 %sub, 0
  br label %again
again:
  %now = phi i1 [ %held, %known ]{", [ true, %acquire ]" if is_global else ""}
  %wv = load {vt}, ptr %wp, align 8
  %rv = load {vt}, ptr %rp, align 8
{_conflict("w", "%wv", vt, str(n))}{_conflict("r", "%rv", vt, str(n))}{decide}
  %cand0 = bitcast {bt} %candv to i{n}
  %cand1 = icmp ne i{n} %cand0, 0
  %cand = or i1 %cand1, %odd
  %upd0 = bitcast {bt} %updv to i{n}
  %upd = icmp ne i{n} %upd0, 0
  %needs = or i1 %cand, %upd
  br i1 %needs, label %need, label %next
need:
{need}act:
  br i1 %cand, label %slow, label %update
update:
  store {vt} %newv, ptr {target}, align 8
  br label %next
{slow}"""
        ends = (
            "[ %left1, %again ], [ %left1, %update ], [ %left1, %slow ]",
            "[ %now, %again ], [ true, %update ], [ true, %slow ]",
            "[ %a, %again ], [ %a, %update ], [ %a, %slow ]",
        )

    def splat(out: str, value: str) -> str:
        return (
            f"  %{out}_i = insertelement {vt} poison, i64 {value}, i64 0\n"
            f"  %{out} = shufflevector {vt} %{out}_i, {vt} poison, <{n} x i32> zeroinitializer\n"
        )

    carried = (
        f"  %held = phi i1 [ %held0, %entry ], {''.join(held_stays)}{ends[1]}\n"
        f"  %last = phi i64 [ -1, %entry ], {''.join(last_stays)}{ends[2]}\n"
    )
    return f"""
define i32 @tec_race_{space}_{name}(<{w} x {at}> %addr, i{w} %m, ptr %ctx, i32 %site{extra}) noinline {{
entry:
  %buf = alloca <{w} x {at}>, align 64
  store <{w} x {at}> %addr, ptr %buf
{head}{ctx_load("me", "race_me")}  %mes = or i64 %me, {SEVERAL << WAVE_SHIFT}
  %launch = and i64 %me, {_LAUNCH_I64}
  %any = or i64 %launch, {ANY << GROUP_SHIFT | 15}
{splat("mev", "%me")}{splat("mesv", "%mes")}{splat("anyv", "%any")}{over_lanes(w, "%m", "entry", "".join(stays) + ends[0], "done", carried)}{fetch}{places}{body}{acquire}done:
  %mustdo = xor i1 %held, %held0
  br i1 %mustdo, label %unlock, label %leave
unlock:
{unlock}  br label %leave
leave:
  ret i32 0
fault:
  %detp = getelementptr i8, ptr %ctx, i64 {_detail()}
  store i64 %rec, ptr %detp
  %mustf = xor i1 %held0, true
  br i1 %mustf, label %funlock, label %fleave
funlock:
{unlock}  br label %fleave
fleave:
  %rc0 = call i32 @tec_fault(ptr %ctx, i64 8, i32 %site, i64 %li, i64 %a)
  ret i32 %rc0
}}
"""


def _detail() -> int:
    return CTX["detail"]


def race_functions(w: int, space: str) -> str:
    forms = [(verb, n) for verb in ("ld", "st") for n in WIDTHS] + [("any", 1)]
    return "".join(race_function(w, space, verb, n) for verb, n in forms)


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
