"""The memory functions of the support library: LLVM IR text of checked loads, stores and atomics (see `support.library`)."""

from __future__ import annotations

from ..context import CTX
from .gather import grouped_loads
from .lane_loop import over_lanes

# name -> (bytes in memory, dwords in registers, sign-extended)
ACCESSES: dict[str, tuple[int, int, bool]] = {
    "b32": (4, 1, False), "b64": (8, 2, False), "b96": (12, 3, False), "b128": (16, 4, False),
    "u8": (1, 1, False), "i8": (1, 1, True), "u16": (2, 1, False), "i16": (2, 1, True),
}  # fmt: skip


def ctx_load(name: str, field: str, ty: str = "i64") -> str:
    return f"  %{name}_p = getelementptr i8, ptr %ctx, i64 {CTX[field]}\n  %{name} = load {ty}, ptr %{name}_p\n"


def _seq(n: int, start: int = 0, step: int = 1, ty: str = "i32") -> str:
    return "<" + ", ".join(f"{ty} {start + i * step}" for i in range(n)) + ">"


def splat(name: str, w: int, ty: str, value: str) -> str:
    return (
        f"  %{name}_i = insertelement <{w} x {ty}> poison, {ty} {value}, i64 0\n"
        f"  %{name} = shufflevector <{w} x {ty}> %{name}_i, <{w} x {ty}> poison, <{w} x i32> zeroinitializer\n"
    )


def check_function(w: int) -> str:
    """The slow path: look every offending lane's address up; remember the allocation for this site, or fault.

    %align has 256 added for loads. LLVM widens those of, say, three elements to the next size where the alignment of the address
    shows that this cannot leave the page, and throws away what is read beyond. So of a load only the last block of the
    address's own alignment must begin within the allocation; what follows an allocation is undefined, and NaN.
    """
    return f"""
define i32 @tec_check_{w}(<{w} x i64> %addr, i{w} %bad, ptr %ctx, i32 %site, i64 %nbytes, i64 %align) noinline cold {{
entry:
  %buf = alloca <{w} x i64>, align 64
  store <{w} x i64> %addr, ptr %buf
{ctx_load("table", "allocs", "ptr")}{ctx_load("count", "alloc_count")}{ctx_load("cache", "cache", "ptr")}
{over_lanes(w, "%bad", "entry", "[ %left1, %found ], [ %left1, %tail ]", "ok")}  %ap = getelementptr i64, ptr %buf, i64 %li
  %a = load i64, ptr %ap
  %alow = and i64 %align, 255
  %am = sub i64 %alow, 1
  %mis = and i64 %a, %am
  %ismis = icmp ne i64 %mis, 0
  br i1 %ismis, label %misaligned, label %search
search:
  br label %loop
loop:
  %lo = phi i64 [ 0, %search ], [ %lo1, %step ]
  %hi = phi i64 [ %count, %search ], [ %hi1, %step ]
  %empty = icmp uge i64 %lo, %hi
  br i1 %empty, label %missing, label %step0
step0:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %ep = getelementptr {{i64, i64}}, ptr %table, i64 %mid
  %base = load i64, ptr %ep
  %sp = getelementptr i8, ptr %ep, i64 8
  %size = load i64, ptr %sp
  %below = icmp ult i64 %a, %base
  %off = sub i64 %a, %base
  %above0 = icmp uge i64 %off, %size
  %above = select i1 %below, i1 false, i1 %above0
  %outside = or i1 %below, %above
  br i1 %outside, label %step, label %inside
step:
  %midp = add i64 %mid, 1
  %lo1 = select i1 %below, i64 %lo, i64 %midp
  %hi1 = select i1 %below, i64 %mid, i64 %hi
  br label %loop
inside:
  %lim = sub i64 %size, %nbytes
  %neg = icmp slt i64 %lim, 0
  %over = icmp ugt i64 %off, %lim
  %no = or i1 %neg, %over
  br i1 %no, label %tail, label %found
tail:
  %isload = icmp ugt i64 %align, 255
  %na = sub i64 0, %a
  %own0 = and i64 %a, %na
  %nn = sub i64 0, %nbytes
  %own1 = and i64 %nbytes, %nn
  %own = call i64 @llvm.umin.i64(i64 %own0, i64 %own1)
  %end = add i64 %off, %nbytes
  %block = sub i64 %end, %own
  %begins = icmp ult i64 %block, %size
  %widened = and i1 %isload, %begins
  br i1 %widened, label %next, label %missing
found:
  %si = zext i32 %site to i64
  %cp = getelementptr {{i64, i64}}, ptr %cache, i64 %si
  store i64 %base, ptr %cp
  %cp8 = getelementptr i8, ptr %cp, i64 8
  store i64 %lim, ptr %cp8
  br label %next
missing:
  br label %fault
misaligned:
  br label %fault
fault:
  %kind = phi i64 [ 1, %missing ], [ 2, %misaligned ]
  %r = call i32 @tec_fault(ptr %ctx, i64 %kind, i32 %site, i64 %li, i64 %a)
  ret i32 %r
ok:
  ret i32 0
}}
declare i{w} @llvm.cttz.i{w}(i{w}, i1)
declare i64 @llvm.umin.i64(i64, i64)
"""


FAULT = f"""
define i32 @tec_fault(ptr %ctx, i64 %kind, i32 %site, i64 %lane, i64 %address) noinline cold {{
  %p0 = getelementptr i8, ptr %ctx, i64 {CTX["status"]}
  store i64 %kind, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {CTX["site"]}
  %s = zext i32 %site to i64
  store i64 %s, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 {CTX["lane"]}
  store i64 %lane, ptr %p2
  %p3 = getelementptr i8, ptr %ctx, i64 {CTX["address"]}
  store i64 %address, ptr %p3
  ret i32 1
}}
"""


# Of a load within a strip: the first bad lane and its address.
LDS_FAULT = """
define void @tec_lds_fault(ptr %ctx, i32 %site, i16 %bad, <16 x i32> %addr, i64 %before) noinline cold {
  %l = call i16 @llvm.cttz.i16(i16 %bad, i1 true)
  %li = zext i16 %l to i64
  %a = extractelement <16 x i32> %addr, i64 %li
  %a64 = zext i32 %a to i64
  %lane = add i64 %li, %before
  %r = call i32 @tec_fault(ptr %ctx, i64 3, i32 %site, i64 %lane, i64 %a64)
  ret void
}
declare i16 @llvm.cttz.i16(i16, i1)
"""


def resolve(w: int, space: str, nbytes: int, align: int, strict: bool = False, load: bool = False) -> str:
    """Plain accesses may be unaligned (amdhsa turns unaligned access on), unless the context asks for alignment;
    `strict` ones (atomics) may not.
    From %addr, %m (mask bits): checked; falls through to label %go, where %mask is the vector mask."""
    wanted = (
        f"  %almask = add i64 0, {align - 1}\n"
        if strict
        else ctx_load("alctx", "align") + f"  %almask = and i64 %alctx, {align - 1}\n"
    )
    if space == "global":
        return (
            wanted
            + splat("almaskv", w, "i64", "%almask")
            + (
                f"  %mask = bitcast i{w} %m to <{w} x i1>\n"
                + ctx_load("cache", "cache", "ptr")
                + f"""  %si = zext i32 %site to i64
  %cp = getelementptr {{i64, i64}}, ptr %cache, i64 %si
  %cbase = load i64, ptr %cp
  %cp8 = getelementptr i8, ptr %cp, i64 8
  %clim = load i64, ptr %cp8
{splat("vbase", w, "i64", "%cbase")}{splat("vlim", w, "i64", "%clim")}  %voff = sub <{w} x i64> %addr, %vbase
  %oob = icmp ugt <{w} x i64> %voff, %vlim
  %low = and <{w} x i64> %addr, %almaskv
  %al = add i64 %almask, {257 if load else 1}
  %mis = icmp ne <{w} x i64> %low, zeroinitializer
  %badv0 = or <{w} x i1> %oob, %mis
  %badv = and <{w} x i1> %badv0, %mask
  %bad = bitcast <{w} x i1> %badv to i{w}
  %anybad = icmp ne i{w} %bad, 0
  br i1 %anybad, label %slow, label %go, !prof !0
slow:
  %rc = call i32 @tec_check_{w}(<{w} x i64> %addr, i{w} %bad, ptr %ctx, i32 %site, i64 {nbytes}, i64 %al)
  %isbad = icmp ne i32 %rc, 0
  br i1 %isbad, label %fail, label %go
fail:
  ret i32 1
go:
"""
            )
        )
    limit, oob_kind, mis_kind = ("lds_bytes", 3, 5) if space == "lds" else ("scratch_bytes", 4, 10)
    base = "lds" if space == "lds" else "scratch"
    return (
        wanted
        + "  %almask32 = trunc i64 %almask to i32\n"
        + splat("almaskv", w, "i32", "%almask32")
        + f"  %mask = bitcast i{w} %m to <{w} x i1>\n"
        + ctx_load("size", limit)
        + ctx_load("base", base, "ptr")
        + f"""  %lim64 = sub i64 %size, {nbytes}
  %lim = trunc i64 %lim64 to i32
{splat("vlim", w, "i32", "%lim")}  %small = icmp slt i64 %lim64, 0
  %oob0 = icmp ugt <{w} x i32> %addr, %vlim
{splat("vsmall", w, "i1", "%small")}  %oob1 = or <{w} x i1> %oob0, %vsmall
  %oobm = and <{w} x i1> %oob1, %mask
  %oob = bitcast <{w} x i1> %oobm to i{w}
  %low = and <{w} x i32> %addr, %almaskv
  %mis0 = icmp ne <{w} x i32> %low, zeroinitializer
  %mism = and <{w} x i1> %mis0, %mask
  %mis = bitcast <{w} x i1> %mism to i{w}
  %bad = or i{w} %oob, %mis
  %anybad = icmp ne i{w} %bad, 0
  br i1 %anybad, label %fail, label %go, !prof !0
fail:
  %isoob = icmp ne i{w} %oob, 0
  %kind = select i1 %isoob, i64 {oob_kind}, i64 {mis_kind}
  %which = select i1 %isoob, i{w} %oob, i{w} %mis
  %l = call i{w} @llvm.cttz.i{w}(i{w} %which, i1 true)
  %l128 = zext i{w} %l to i128
  %li = trunc i128 %l128 to i64
  %fbuf = alloca <{w} x i32>, align 64
  store <{w} x i32> %addr, ptr %fbuf
  %fap = getelementptr i32, ptr %fbuf, i64 %li
  %fa = load i32, ptr %fap
  %fa64 = zext i32 %fa to i64
  %frc = call i32 @tec_fault(ptr %ctx, i64 %kind, i32 %site, i64 %li, i64 %fa64)
  ret i32 1
go:
"""
    )


def _pointers(w: int, space: str, k: int) -> tuple[str, str]:
    """IR that makes %p<k>, the pointers of dword k, and its name."""
    if space == "global":
        text = f"  %a{k} = add <{w} x i64> %addr, splat (i64 {4 * k})\n"
        return text + f"  %p{k} = inttoptr <{w} x i64> %a{k} to <{w} x ptr>\n", f"%p{k}"
    if space == "lds":
        # A 32-bit index (checked, so never negative) lets the host gather and scatter 16 lanes at once.
        text = f"  %x{k} = add <{w} x i32> %addr, splat (i32 {4 * k})\n"
        return text + f"  %p{k} = getelementptr i8, ptr %base, <{w} x i32> %x{k}\n", f"%p{k}"
    text = f"""  %d{k} = and <{w} x i32> %addr, splat (i32 -4)
  %e{k} = mul <{w} x i32> %d{k}, splat (i32 {w})
  %b{k} = and <{w} x i32> %addr, splat (i32 3)
  %f{k} = add <{w} x i32> %e{k}, %b{k}
  %g{k} = add <{w} x i32> %f{k}, {_seq(w, 4 * w * k, 4)}
  %p{k} = getelementptr i8, ptr %base, <{w} x i32> %g{k}
"""
    return text, f"%p{k}"


def _wide(w: int, n: int, load: bool) -> str:
    """Contiguous lanes: one wide access, (de)interleaved. %first is the pointer of lane 0; ends in `ret i32 0`."""
    total = w * n
    out = ""
    if load:
        out += f"  %big = load <{total} x i32>, ptr %first, align 1\n"
        for k in range(n):
            if n == 1:
                out += f"  store <{w} x i32> %big, ptr %out, align 64\n"
            else:
                out += f"  %w{k} = shufflevector <{total} x i32> %big, <{total} x i32> poison, <{w} x i32> {_seq(w, k, n)}\n"
                out += f"  %o{k} = getelementptr i8, ptr %out, i64 {4 * w * k}\n"
                out += f"  store <{w} x i32> %w{k}, ptr %o{k}, align 64\n"
    elif n == 1:
        out += f"  %big = load <{w} x i32>, ptr %out, align 64\n  store <{w} x i32> %big, ptr %first, align 1\n"
    else:
        order = [k * w + l for l in range(w) for k in range(n)]
        seq = "<" + ", ".join(f"i32 {x}" for x in order) + ">"
        out += f"  %big = load <{total} x i32>, ptr %out, align 64\n"
        out += f"  %mix = shufflevector <{total} x i32> %big, <{total} x i32> poison, <{total} x i32> {seq}\n"
        out += f"  store <{total} x i32> %mix, ptr %first, align 1\n"
    return out + "  ret i32 0\n"


def memory_function(w: int, space: str, access: str, load: bool) -> str:
    nbytes, n, signed = ACCESSES[access]
    at = "i64" if space == "global" else "i32"
    verb = "ld" if load else "st"
    # What the manuals ask of LDS where unaligned access is off: b96 and b128 at multiples of 16, b64 of 8.
    align = {8: 8, 12: 16, 16: 16}.get(nbytes, nbytes) if space == "lds" else min(nbytes, 4)
    text = (
        f"\ndefine i32 @tec_{verb}_{space}_{access}_{w}(ptr %out, <{w} x {at}> %addr, i{w} %m, ptr %ctx, i32 %site) {{\n"
        f"entry:\n{resolve(w, space, nbytes, align, load=load)}"
    )
    if space == "scratch" and nbytes > 1:
        text += _scratch_unaligned(w, nbytes, align, load, signed)
    if nbytes >= 4 and (space == "global" or (space == "lds" and not load)):
        # All lanes on and contiguous: one wide move.
        text += f"""  %first0 = extractelement <{w} x {at}> %addr, i64 0
{splat("fv", w, at, "%first0")}  %delta = sub <{w} x {at}> %addr, %fv
  %ne = icmp ne <{w} x {at}> %delta, {_seq(w, 0, nbytes, at)}
  %neb = bitcast <{w} x i1> %ne to i{w}
  %nm = xor i{w} %m, -1
  %notc = or i{w} %neb, %nm
  %contig = icmp eq i{w} %notc, 0
  br i1 %contig, label %wide, label %general
wide:
"""
        if space == "global":
            text += "  %first = inttoptr i64 %first0 to ptr\n"
        else:
            text += "  %firstz = zext i32 %first0 to i64\n  %first = getelementptr i8, ptr %base, i64 %firstz\n"
        text += _wide(w, n, load) + "general:\n"
    if nbytes < 4:
        ptrs, p = _pointers(w, space, 0)
        ty = f"i{8 * nbytes}"
        text += ptrs
        if load:
            text += _narrow_load(w, ty, p, signed)
        else:
            text += (
                f"  %v = load <{w} x i32>, ptr %out, align 64\n  %t = trunc <{w} x i32> %v to <{w} x {ty}>\n"
                f"  call void @llvm.masked.scatter.v{w}{ty}.v{w}p0(<{w} x {ty}> %t, <{w} x ptr> align 1 {p}, <{w} x i1> %mask)\n"
            )
        return text + "  ret i32 0\n}\n"
    if load and space == "lds":
        return text + _lds_load(w, n) + "}\n"
    if load and space == "global" and n in (2, 4):
        return text + grouped_loads(w, n) + "  ret i32 0\n}\n"
    for k in range(n):
        ptrs, p = _pointers(w, space, k)
        text += ptrs + f"  %q{k} = getelementptr i8, ptr %out, i64 {4 * w * k}\n"
        if load:
            text += (
                f"  %v{k + 1} = call <{w} x i32> @llvm.masked.gather.v{w}i32.v{w}p0(<{w} x ptr> align 1 {p}, "
                f"<{w} x i1> %mask, <{w} x i32> zeroinitializer)\n  store <{w} x i32> %v{k + 1}, ptr %q{k}, align 64\n"
            )
        else:
            text += (
                f"  %v{k + 1} = load <{w} x i32>, ptr %q{k}, align 64\n"
                f"  call void @llvm.masked.scatter.v{w}i32.v{w}p0(<{w} x i32> %v{k + 1}, <{w} x ptr> align 1 {p}, <{w} x i1> %mask)\n"
            )
    return text + "  ret i32 0\n}\n"


def _scratch_unaligned(w: int, nbytes: int, align: int, load: bool, signed: bool) -> str:
    """Scratch interleaves the lanes dword by dword, so an access that is not aligned goes byte by byte where any lane's is not."""
    text = f"""  %sub = and <{w} x i32> %addr, splat (i32 {align - 1})
  %uneven0 = icmp ne <{w} x i32> %sub, zeroinitializer
  %uneven1 = and <{w} x i1> %uneven0, %mask
  %uneven2 = bitcast <{w} x i1> %uneven1 to i{w}
  %uneven = icmp ne i{w} %uneven2, 0
  br i1 %uneven, label %bytes, label %even, !prof !0
bytes:
  %bbuf = alloca <{w} x i32>, align 64
  store <{w} x i32> %addr, ptr %bbuf, align 64
  br label %blane
blane:
  %bl = phi i64 [ 0, %bytes ], [ %bl1, %bnext ]
  %bs = trunc i64 %bl to i{w if w == 32 else 64}
  %bm0 = lshr i{w} %m, %bs
  %bm = trunc i{w} %bm0 to i1
  br i1 %bm, label %bmove, label %bnext
bmove:
  %bap = getelementptr i32, ptr %bbuf, i64 %bl
  %ba0 = load i32, ptr %bap
  %ba = zext i32 %ba0 to i64
  %blane4 = shl i64 %bl, 2
  %bo = getelementptr i8, ptr %out, i64 %blane4
""".replace(f"trunc i64 %bl to i{64}", "add i64 %bl, 0")
    if load and nbytes < 4:
        text += "  store i32 0, ptr %bo\n"
    for b in range(nbytes):
        text += f"""  %bx{b} = add i64 %ba, {b}
  %bd{b} = and i64 %bx{b}, -4
  %be{b} = mul i64 %bd{b}, {w}
  %bf{b} = and i64 %bx{b}, 3
  %bg{b} = add i64 %be{b}, %bf{b}
  %bh{b} = add i64 %bg{b}, %blane4
  %bp{b} = getelementptr i8, ptr %base, i64 %bh{b}
  %bq{b} = getelementptr i8, ptr %bo, i64 {4 * w * (b // 4) + b % 4}
"""
        source, goal = (f"%bp{b}", f"%bq{b}") if load else (f"%bq{b}", f"%bp{b}")
        text += f"  %bv{b} = load i8, ptr {source}\n  store i8 %bv{b}, ptr {goal}\n"
    if load and signed and nbytes == 2:
        text += "  %bn = load i16, ptr %bo\n  %bw = sext i16 %bn to i32\n  store i32 %bw, ptr %bo\n"
    return (
        text
        + f"""  br label %bnext
bnext:
  %bl1 = add i64 %bl, 1
  %bmore = icmp ult i64 %bl1, {w}
  br i1 %bmore, label %blane, label %bdone
bdone:
  ret i32 0
even:
"""
    )


def _narrow_load(w: int, ty: str, p: str, signed: bool) -> str:
    """Bytes and 16-bit words, lane by lane under the mask (the host has no gather of them)."""
    ext = "sext" if signed else "zext"
    return (
        f"  %v = call <{w} x {ty}> @llvm.masked.gather.v{w}{ty}.v{w}p0(<{w} x ptr> align 1 {p}, <{w} x i1> %mask, "
        f"<{w} x {ty}> zeroinitializer)\n  %x = {ext} <{w} x {ty}> %v to <{w} x i32>\n"
        f"  store <{w} x i32> %x, ptr %out, align 64\n"
    )


def _lds_load(w: int, n: int) -> str:
    """Groups of 16 lanes: all at one address (a broadcast), contiguous, or apart."""
    text = ""
    for g in range(w // 16):
        s = f"g{g}"
        text += f"""  %{s}a = shufflevector <{w} x i32> %addr, <{w} x i32> poison, <16 x i32> {_seq(16, 16 * g)}
  %{s}m = shufflevector <{w} x i1> %mask, <{w} x i1> poison, <16 x i32> {_seq(16, 16 * g)}
  %{s}mb = bitcast <16 x i1> %{s}m to i16
  %{s}0 = extractelement <16 x i32> %{s}a, i64 0
  %{s}vi = insertelement <16 x i32> poison, i32 %{s}0, i64 0
  %{s}v = shufflevector <16 x i32> %{s}vi, <16 x i32> poison, <16 x i32> zeroinitializer
  %{s}d = sub <16 x i32> %{s}a, %{s}v
  %{s}off = xor i16 %{s}mb, -1
  %{s}ne = icmp ne <16 x i32> %{s}d, zeroinitializer
  %{s}neb = bitcast <16 x i1> %{s}ne to i16
  %{s}neo = or i16 %{s}neb, %{s}off
  %{s}isb = icmp eq i16 %{s}neo, 0
  %{s}z = zext i32 %{s}0 to i64
  %{s}p = getelementptr i8, ptr %base, i64 %{s}z
  br i1 %{s}isb, label %{s}bc, label %{s}nb
{s}bc:
"""
        for k in range(n):
            text += f"""  %{s}bp{k} = getelementptr i8, ptr %{s}p, i64 {4 * k}
  %{s}bl{k} = load i32, ptr %{s}bp{k}, align 1
  %{s}bi{k} = insertelement <16 x i32> poison, i32 %{s}bl{k}, i64 0
  %{s}b{k} = shufflevector <16 x i32> %{s}bi{k}, <16 x i32> poison, <16 x i32> zeroinitializer
"""
        text += f"""  br label %{s}jn
{s}nb:
  %{s}nc = icmp ne <16 x i32> %{s}d, {_seq(16, 0, 4 * n)}
  %{s}ncb = bitcast <16 x i1> %{s}nc to i16
  %{s}nco = or i16 %{s}ncb, %{s}off
  %{s}isc = icmp eq i16 %{s}nco, 0
  br i1 %{s}isc, label %{s}co, label %{s}ge
{s}co:
  %{s}big = load <{16 * n} x i32>, ptr %{s}p, align 1
"""
        for k in range(n):
            text += (
                f"  %{s}c{k} = shufflevector <{16 * n} x i32> %{s}big, <{16 * n} x i32> poison, "
                f"<16 x i32> {_seq(16, k, n)}\n"
            )
        text += f"  br label %{s}jn\n{s}ge:\n"
        for k in range(n):
            text += f"""  %{s}x{k} = add <16 x i32> %{s}a, splat (i32 {4 * k})
  %{s}xp{k} = getelementptr i8, ptr %base, <16 x i32> %{s}x{k}
  %{s}e{k} = call <16 x i32> @llvm.masked.gather.v16i32.v16p0(<16 x ptr> align 1 %{s}xp{k}, <16 x i1> %{s}m, <16 x i32> zeroinitializer)
"""
        text += f"  br label %{s}jn\n{s}jn:\n"
        for k in range(n):
            text += f"  %{s}r{k} = phi <16 x i32> [ %{s}b{k}, %{s}bc ], [ %{s}c{k}, %{s}co ], [ %{s}e{k}, %{s}ge ]\n"
        for k in range(n):
            text += (
                f"  %{s}o{k} = getelementptr i8, ptr %out, i64 {4 * w * k + 64 * g}\n"
                f"  store <16 x i32> %{s}r{k}, ptr %{s}o{k}, align 64\n"
            )
    return text + "  ret i32 0\n"


def scalar_load(n: int) -> str:
    """s_load of n dwords: the range checked, then nothing more; the kernel loads by itself."""
    return f"""
define i32 @tec_scalar_{n}(i64 %a, ptr %ctx, i32 %site) {{
entry:
{ctx_load("cache", "cache", "ptr")}  %si = zext i32 %site to i64
  %cp = getelementptr {{i64, i64}}, ptr %cache, i64 %si
  %cbase = load i64, ptr %cp
  %cp8 = getelementptr i8, ptr %cp, i64 8
  %clim = load i64, ptr %cp8
  %off = sub i64 %a, %cbase
  %oob = icmp ugt i64 %off, %clim
  %low = and i64 %a, 3
  %mis = icmp ne i64 %low, 0
  %bad = or i1 %oob, %mis
  br i1 %bad, label %slow, label %ok
ok:
  ret i32 0
slow:
  %vi = insertelement <32 x i64> zeroinitializer, i64 %a, i64 0
  %rc = call i32 @tec_check_32(<32 x i64> %vi, i32 1, ptr %ctx, i32 %site, i64 {4 * n}, i64 260)
  ret i32 %rc
}}
"""
