"""What the checks "race" and "init" and the profile run at each access: LLVM IR of the tracking functions.

`tec_track_<space>_<lanes>(addresses, mask, ctx, site, bytes, kind)`, kind 0 a load, 1 a store, 2 an atomic. Each dword of
memory has a shadow of 24 bytes: who wrote it last, who read it last, which of its bytes were written at all. "Who" is a number:
work-group + 1, barrier interval, wave. Two accesses conflict where the groups differ, or where in one interval of one
group the waves differ, one of them being a store and not both atomics.

`tec_lines_<lanes>` and `tec_banks_<lanes>` count distinct cache lines and LDS clocks of one access.
"""

from __future__ import annotations

from .context import CTX

SHADOW_BYTES = 24
_ATOMIC, _SHARED = 1 << 11, 1 << 10
_ANY_GROUP = 0xFFFFFFFF


def track_function(w: int, space: str) -> str:
    at = "i64" if space == "global" else "i32"

    def load(name: str, field: str, ty: str = "i64") -> str:
        return f"  %{name}_p = getelementptr i8, ptr %ctx, i64 {CTX[field]}\n  %{name} = load {ty}, ptr %{name}_p\n"

    if space == "global":
        find = """  br label %loop
loop:
  %lo = phi i64 [ 0, %lane ], [ %lo1, %step ]
  %hi = phi i64 [ %count, %lane ], [ %hi1, %step ]
  %empty = icmp uge i64 %lo, %hi
  br i1 %empty, label %next, label %step0
step0:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %ep = getelementptr {i64, i64}, ptr %table, i64 %mid
  %base = load i64, ptr %ep
  %sp = getelementptr i8, ptr %ep, i64 8
  %size = load i64, ptr %sp
  %below = icmp ult i64 %a, %base
  %off = sub i64 %a, %base
  %above = icmp uge i64 %off, %size
  %outside = or i1 %below, %above
  br i1 %outside, label %step, label %inside
step:
  %midp = add i64 %mid, 1
  %lo1 = select i1 %below, i64 %lo, i64 %midp
  %hi1 = select i1 %below, i64 %mid, i64 %hi
  br label %loop
inside:
  %shp = getelementptr ptr, ptr %shadows, i64 %mid
  %sh = load ptr, ptr %shp
  %nosh = icmp eq ptr %sh, null
  br i1 %nosh, label %next, label %have
"""
        head = load("table", "allocs", "ptr") + load("count", "alloc_count") + load("shadows", "shadow", "ptr")
        fetch = "  %ap = getelementptr i64, ptr %buf, i64 %li\n  %a = load i64, ptr %ap\n"
    else:
        find = "  %off = add i64 %a, 0\n  br label %have\n"
        head = load("sh", "lds_shadow", "ptr")
        fetch = (
            "  %ap = getelementptr i32, ptr %buf, i64 %li\n  %a32 = load i32, ptr %ap\n  %a = zext i32 %a32 to i64\n"
        )
    return f"""
define i32 @tec_track_{space}_{w}(<{w} x {at}> %addr, i{w} %m, ptr %ctx, i32 %site, i64 %nbytes, i64 %kind, i64 %what) noinline {{
entry:
  %buf = alloca <{w} x {at}>, align 64
  store <{w} x {at}> %addr, ptr %buf
{head}{load("group", "group")}{load("wave", "wave")}{load("epoch", "epoch")}
  %g1 = add i64 %group, 1
  %gs = shl i64 %g1, 32
  %em = and i64 %epoch, 1048575
  %es = shl i64 %em, 12
  %ge = or i64 %gs, %es
  %isatomic = icmp eq i64 %kind, 2
  %af = select i1 %isatomic, i64 {_ATOMIC}, i64 0
  %gew = or i64 %ge, %wave
  %me = or i64 %gew, %af
  %isload = icmp eq i64 %kind, 0
  %wr = and i64 %what, 1
  %races = icmp ne i64 %wr, 0
  %wi = and i64 %what, 2
  %inits = icmp ne i64 %wi, 0
  br label %next
next:
  %left = phi i{w} [ %m, %entry ], [ %left1, {"%loop ], [ %left1, %inside ], [ %left1, " if space == "global" else ""}%dword_end ]
  %none = icmp eq i{w} %left, 0
  br i1 %none, label %done, label %lane
done:
  ret i32 0
lane:
  %ln = call i{w} @llvm.cttz.i{w}(i{w} %left, i1 true)
  %less = sub i{w} %left, 1
  %left1 = and i{w} %left, %less
  %l128 = zext i{w} %ln to i128
  %li = trunc i128 %l128 to i64
{fetch}{find}have:
  %first = lshr i64 %off, 2
  %endb = add i64 %off, %nbytes
  %endm = sub i64 %endb, 1
  %last = lshr i64 %endm, 2
  br label %dword
dword:
  %d = phi i64 [ %first, %have ], [ %d1, %again ]
  %so = mul i64 %d, {SHADOW_BYTES}
  %s = getelementptr i8, ptr %sh, i64 %so
  %rp = getelementptr i8, ptr %s, i64 8
  %ip = getelementptr i8, ptr %s, i64 16
  ; the bytes of this dword that are touched
  %dstart = shl i64 %d, 2
  %from0 = sub i64 %off, %dstart
  %from1 = call i64 @llvm.smax.i64(i64 %from0, i64 0)
  %to0 = sub i64 %endb, %dstart
  %to1 = call i64 @llvm.smin.i64(i64 %to0, i64 4)
  %tom = shl i64 1, %to1
  %tom1 = sub i64 %tom, 1
  %frm = shl i64 1, %from1
  %frm1 = sub i64 %frm, 1
  %nfrm = xor i64 %frm1, -1
  %touch = and i64 %tom1, %nfrm
  %old = load i64, ptr %ip
  %needs = icmp ne i64 %kind, 1
  %chk = and i1 %needs, %inits
  %miss0 = xor i64 %old, -1
  %miss = and i64 %miss0, %touch
  %ismiss = icmp ne i64 %miss, 0
  %uninit = and i1 %chk, %ismiss
  br i1 %uninit, label %fault_init, label %init_ok
init_ok:
  %set = or i64 %old, %touch
  %keep = select i1 %isload, i64 %old, i64 %set
  store i64 %keep, ptr %ip
  br i1 %races, label %race, label %dword_next
race:
  %wid = load i64, ptr %s
  %rid = load i64, ptr %rp
  ; against the last store
  %w_some = icmp ne i64 %wid, 0
  %w_group = lshr i64 %wid, 32
  %m_group = lshr i64 %me, 32
  %w_other = icmp ne i64 %w_group, %m_group
  %w_iv = lshr i64 %wid, 12
  %m_iv = lshr i64 %me, 12
  %w_same = icmp eq i64 %w_iv, %m_iv
  %w_wave = and i64 %wid, 1023
  %w_diff = icmp ne i64 %w_wave, %wave
  %w_sd = and i1 %w_same, %w_diff
  %w_conf0 = or i1 %w_other, %w_sd
  %w_at = and i64 %wid, {_ATOMIC}
  %w_isat = icmp ne i64 %w_at, 0
  %bothat = and i1 %w_isat, %isatomic
  %notat = xor i1 %bothat, true
  %w_conf1 = and i1 %w_conf0, %notat
  %w_conf = and i1 %w_conf1, %w_some
  ; against the last load
  %r_some = icmp ne i64 %rid, 0
  %r_group = lshr i64 %rid, 32
  %r_other = icmp ne i64 %r_group, %m_group
  %r_iv = lshr i64 %rid, 12
  %r_same = icmp eq i64 %r_iv, %m_iv
  %r_wave = and i64 %rid, 1023
  %r_diff0 = icmp ne i64 %r_wave, %wave
  %r_sh = and i64 %rid, {_SHARED}
  %r_shared = icmp ne i64 %r_sh, 0
  %r_diff = or i1 %r_diff0, %r_shared
  %r_sd = and i1 %r_same, %r_diff
  %r_conf0 = or i1 %r_other, %r_sd
  %r_conf1 = and i1 %r_conf0, %r_some
  %notload = xor i1 %isload, true
  %r_conf = and i1 %r_conf1, %notload
  %conf = or i1 %w_conf, %r_conf
  br i1 %conf, label %fault_race, label %race_ok
race_ok:
  br i1 %isload, label %note_load, label %note_store
note_store:
  store i64 %me, ptr %s
  br label %dword_next
note_load:
  ; several readers: of one interval they are marked shared, of several groups the group becomes "any"
  %mark0 = and i1 %r_same, %r_diff
  %shared = or i64 %me, {_SHARED}
  %new0 = select i1 %mark0, i64 %shared, i64 %me
  %grp = and i1 %r_some, %r_other
  %anyg = or i64 %me, {_ANY_GROUP << 32}
  %new1 = select i1 %grp, i64 %anyg, i64 %new0
  store i64 %new1, ptr %rp
  br label %dword_next
dword_next:
  %d1 = add i64 %d, 1
  %dmore = icmp ule i64 %d1, %last
  br i1 %dmore, label %again, label %dword_end
again:
  br label %dword
dword_end:
  br label %next
fault_init:
  br label %fault
fault_race:
  %other = select i1 %w_conf, i64 %wid, i64 %rid
  br label %fault
fault:
  %fk = phi i64 [ 9, %fault_init ], [ 8, %fault_race ]
  %det = phi i64 [ 0, %fault_init ], [ %other, %fault_race ]
  %detp = getelementptr i8, ptr %ctx, i64 {CTX["detail"]}
  store i64 %det, ptr %detp
  %r = call i32 @tec_fault(ptr %ctx, i64 %fk, i32 %site, i64 %li, i64 %a)
  ret i32 %r
}}
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
"""


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
        return f"""  br label %{name}_next
{name}_next:
  %{name}_left = phi i{w} [ %m, %{name}_entry ], [ %{name}_left1, %{name}_lane ]
  %{name}_first = phi i{w} [ 0, %{name}_entry ], [ %{name}_first1, %{name}_lane ]
  %{name}_none = icmp eq i{w} %{name}_left, 0
  br i1 %{name}_none, label %{done}, label %{name}_lane
{name}_lane:
  %{name}_l = call i{w} @llvm.cttz.i{w}(i{w} %{name}_left, i1 true)
  %{name}_less = sub i{w} %{name}_left, 1
  %{name}_left1 = and i{w} %{name}_left, %{name}_less
  %{name}_bit = shl i{w} 1, %{name}_l
  %{name}_x = zext i{w} %{name}_l to i128
  %{name}_i = trunc i128 %{name}_x to i64
  %{name}_p = getelementptr i32, ptr %{name}_buf, i64 %{name}_i
  %{name}_v = load i32, ptr %{name}_p
  %{name}_s0 = insertelement <{w} x i32> poison, i32 %{name}_v, i64 0
  %{name}_s = shufflevector <{w} x i32> %{name}_s0, <{w} x i32> poison, <{w} x i32> zeroinitializer
  %{name}_eq = icmp eq <{w} x i32> {vec}, %{name}_s
  %{name}_eqb = bitcast <{w} x i1> %{name}_eq to i{w}
  %{name}_low = sub i{w} %{name}_bit, 1
  %{name}_bef0 = and i{w} %{name}_eqb, %{name}_low
  %{name}_bef1 = and i{w} %{name}_bef0, %m
{extra}  %{name}_isnew = icmp eq i{w} %{name}_bef, 0
  %{name}_add = select i1 %{name}_isnew, i{w} %{name}_bit, i{w} 0
  %{name}_first1 = or i{w} %{name}_first, %{name}_add
  br label %{name}_next
"""

    plain = f"  %d_bef = and i{w} %d_bef1, -1\n"
    grouped = f"""  %d_grp = udiv i64 %d_i, %glanes
  %d_gs = mul i64 %d_grp, %glanes
  %d_gsw = {"add i64 %d_gs, 0" if w == 64 else "trunc i64 %d_gs to i32"}
  %d_gm = shl i{w} -1, %d_gsw
  %d_bef = and i{w} %d_bef1, %d_gm
"""
    return f"""
define void @tec_lines_{w}(<{w} x i64> %addr, i{w} %m, ptr %ctx, i64 %slot, i64 %nbytes, i64 %shift) noinline {{
entry:
  br label %d_entry
d_entry:
  %d_buf = alloca <{w} x i32>, align 64
  %shi = insertelement <{w} x i64> poison, i64 %shift, i64 0
  %shv = shufflevector <{w} x i64> %shi, <{w} x i64> poison, <{w} x i32> zeroinitializer
  %line = lshr <{w} x i64> %addr, %shv
  %line32 = trunc <{w} x i64> %line to <{w} x i32>
  store <{w} x i32> %line32, ptr %d_buf
{first_of("d", "%line32", plain, "done")}done:
  %n = call i{w} @llvm.ctpop.i{w}(i{w} %d_first)
  %n128 = zext i{w} %n to i128
  %n64 = trunc i128 %n128 to i64
  %act = call i{w} @llvm.ctpop.i{w}(i{w} %m)
  %act128 = zext i{w} %act to i128
  %act64 = trunc i128 %act128 to i64
  %bytes = mul i64 %act64, %nbytes
{counters}{bump(0, "1")}{bump(1, "%bytes")}{bump(2, "%n64")}{bump(3, "%act64")}  ret void
}}
define void @tec_banks_{w}(<{w} x i32> %addr, i{w} %m, ptr %ctx, i64 %slot, i64 %dwords, i64 %banks) noinline {{
entry:
  br label %d_entry
d_entry:
  %d_buf = alloca <{w} x i32>, align 64
  %bank_buf = alloca <{w} x i32>, align 64
  %glanes0 = udiv i64 32, %dwords
  %glanes = call i64 @llvm.umax.i64(i64 %glanes0, i64 1)
  %dw32 = trunc i64 %dwords to i32
  %by = mul i32 %dw32, 4
  %byi = insertelement <{w} x i32> poison, i32 %by, i64 0
  %byv = shufflevector <{w} x i32> %byi, <{w} x i32> poison, <{w} x i32> zeroinitializer
  %word = udiv <{w} x i32> %addr, %byv
  store <{w} x i32> %word, ptr %d_buf
  %nb0 = udiv i64 %banks, %dwords
  %nb = trunc i64 %nb0 to i32
  %nbi = insertelement <{w} x i32> poison, i32 %nb, i64 0
  %nbv = shufflevector <{w} x i32> %nbi, <{w} x i32> poison, <{w} x i32> zeroinitializer
  %bank = urem <{w} x i32> %word, %nbv
  store <{w} x i32> %bank, ptr %bank_buf
{first_of("d", "%word", grouped, "groups")}groups:
  ; for each group of lanes: the most distinct words that one bank must give
  br label %group
group:
  %gstart = phi i64 [ 0, %groups ], [ %gnext, %group_end ]
  %clocks = phi i64 [ 0, %groups ], [ %clocks1, %group_end ]
  %base = phi i64 [ 0, %groups ], [ %base1, %group_end ]
  %gsw = {"add i64 %gstart, 0" if w == 64 else "trunc i64 %gstart to i32"}
  %ones0 = shl i64 1, %glanes
  %ones1 = sub i64 %ones0, 1
  %onesw = {"add i64 %ones1, 0" if w == 64 else "trunc i64 %ones1 to i32"}
  %gmask = shl i{w} %onesw, %gsw
  %f0 = and i{w} %d_first, %gmask
  %some = icmp ne i{w} %f0, 0
  br label %bank_next
bank_next:
  %left = phi i{w} [ %f0, %group ], [ %left1, %bank_lane ]
  %worst = phi i64 [ 0, %group ], [ %worst1, %bank_lane ]
  %none = icmp eq i{w} %left, 0
  br i1 %none, label %group_end, label %bank_lane
bank_lane:
  %l = call i{w} @llvm.cttz.i{w}(i{w} %left, i1 true)
  %less = sub i{w} %left, 1
  %left1 = and i{w} %left, %less
  %lx = zext i{w} %l to i128
  %li = trunc i128 %lx to i64
  %bp = getelementptr i32, ptr %bank_buf, i64 %li
  %bv = load i32, ptr %bp
  %bs0 = insertelement <{w} x i32> poison, i32 %bv, i64 0
  %bs = shufflevector <{w} x i32> %bs0, <{w} x i32> poison, <{w} x i32> zeroinitializer
  %beq = icmp eq <{w} x i32> %bank, %bs
  %beqb = bitcast <{w} x i1> %beq to i{w}
  %same = and i{w} %beqb, %f0
  %cnt = call i{w} @llvm.ctpop.i{w}(i{w} %same)
  %cntx = zext i{w} %cnt to i128
  %cnt64 = trunc i128 %cntx to i64
  %worst1 = call i64 @llvm.umax.i64(i64 %worst, i64 %cnt64)
  br label %bank_next
group_end:
  %clocks1 = add i64 %clocks, %worst
  %somez = zext i1 %some to i64
  %base1 = add i64 %base, %somez
  %gnext = add i64 %gstart, %glanes
  %more = icmp ult i64 %gnext, {w}
  br i1 %more, label %group, label %done
done:
  %act = call i{w} @llvm.ctpop.i{w}(i{w} %m)
  %act128 = zext i{w} %act to i128
  %act64 = trunc i128 %act128 to i64
  %by64 = zext i32 %by to i64
  %bytes = mul i64 %act64, %by64
  %extra = sub i64 %clocks1, %base1
{counters}{bump(0, "1")}{bump(1, "%bytes")}{bump(2, "%clocks1")}{bump(3, "%extra")}  ret void
}}
declare i{w} @llvm.ctpop.i{w}(i{w})
declare i64 @llvm.umax.i64(i64, i64)
"""
