;;; check
define i32 @tec_check_$w(<$w x i64> %addr, i$w %bad, ptr %ctx, i32 %site, i64 %nbytes, i64 %align) noinline cold {
entry:
  %buf = alloca <$w x i64>, align 64
  store <$w x i64> %addr, ptr %buf
  %table_p = getelementptr i8, ptr %ctx, i64 $CTX.allocs
  %table = load ptr, ptr %table_p
  %count_p = getelementptr i8, ptr %ctx, i64 $CTX.alloc_count
  %count = load i64, ptr %count_p
  %cache_p = getelementptr i8, ptr %ctx, i64 $CTX.cache
  %cache = load ptr, ptr %cache_p

$lanes  %ap = getelementptr i64, ptr %buf, i64 %li
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
  %ep = getelementptr {i64, i64}, ptr %table, i64 %mid
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
  %cp = getelementptr {i64, i64}, ptr %cache, i64 %si
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
}
declare i$w @llvm.cttz.i$w(i$w, i1)
declare i64 @llvm.umin.i64(i64, i64)

;;; fault
define i32 @tec_fault(ptr %ctx, i64 %kind, i32 %site, i64 %lane, i64 %address) noinline cold {
  %p0 = getelementptr i8, ptr %ctx, i64 $CTX.status
  store i64 %kind, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 $CTX.site
  %s = zext i32 %site to i64
  store i64 %s, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 $CTX.lane
  store i64 %lane, ptr %p2
  %p3 = getelementptr i8, ptr %ctx, i64 $CTX.address
  store i64 %address, ptr %p3
  ret i32 1
}

;;; lds_fault
; Of a load within a strip: the first bad lane and its address.
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

;;; resolve_global
  %si = zext i32 %site to i64
  %cp = getelementptr {i64, i64}, ptr %cache, i64 %si
  %cbase = load i64, ptr %cp
  %cp8 = getelementptr i8, ptr %cp, i64 8
  %clim = load i64, ptr %cp8
  %vbase_i = insertelement <$w x i64> poison, i64 %cbase, i64 0
  %vbase = shufflevector <$w x i64> %vbase_i, <$w x i64> poison, <$w x i32> zeroinitializer
  %vlim_i = insertelement <$w x i64> poison, i64 %clim, i64 0
  %vlim = shufflevector <$w x i64> %vlim_i, <$w x i64> poison, <$w x i32> zeroinitializer
  %voff = sub <$w x i64> %addr, %vbase
  %oob = icmp ugt <$w x i64> %voff, %vlim
  %low = and <$w x i64> %addr, %almaskv
  %al = add i64 %almask, $align_offset
  %mis = icmp ne <$w x i64> %low, zeroinitializer
  %badv0 = or <$w x i1> %oob, %mis
  %badv = and <$w x i1> %badv0, %mask
  %bad = bitcast <$w x i1> %badv to i$w
  %anybad = icmp ne i$w %bad, 0
  br i1 %anybad, label %slow, label %go, !prof !0
slow:
  %rc = call i32 @tec_check_$w(<$w x i64> %addr, i$w %bad, ptr %ctx, i32 %site, i64 $nbytes, i64 %al)
  %isbad = icmp ne i32 %rc, 0
  br i1 %isbad, label %fail, label %go
fail:
  ret i32 1
go:

;;; resolve_local
  %lim64 = sub i64 %size, $nbytes
  %lim = trunc i64 %lim64 to i32
  %vlim_i = insertelement <$w x i32> poison, i32 %lim, i64 0
  %vlim = shufflevector <$w x i32> %vlim_i, <$w x i32> poison, <$w x i32> zeroinitializer
  %small = icmp slt i64 %lim64, 0
  %oob0 = icmp ugt <$w x i32> %addr, %vlim
  %vsmall_i = insertelement <$w x i1> poison, i1 %small, i64 0
  %vsmall = shufflevector <$w x i1> %vsmall_i, <$w x i1> poison, <$w x i32> zeroinitializer
  %oob1 = or <$w x i1> %oob0, %vsmall
  %oobm = and <$w x i1> %oob1, %mask
  %oob = bitcast <$w x i1> %oobm to i$w
  %low = and <$w x i32> %addr, %almaskv
  %mis0 = icmp ne <$w x i32> %low, zeroinitializer
  %mism = and <$w x i1> %mis0, %mask
  %mis = bitcast <$w x i1> %mism to i$w
  %bad = or i$w %oob, %mis
  %anybad = icmp ne i$w %bad, 0
  br i1 %anybad, label %fail, label %go, !prof !0
fail:
  %isoob = icmp ne i$w %oob, 0
  %kind = select i1 %isoob, i64 $oob_kind, i64 $mis_kind
  %which = select i1 %isoob, i$w %oob, i$w %mis
  %l = call i$w @llvm.cttz.i$w(i$w %which, i1 true)
  %l128 = zext i$w %l to i128
  %li = trunc i128 %l128 to i64
  %fbuf = alloca <$w x i32>, align 64
  store <$w x i32> %addr, ptr %fbuf
  %fap = getelementptr i32, ptr %fbuf, i64 %li
  %fa = load i32, ptr %fap
  %fa64 = zext i32 %fa to i64
  %frc = call i32 @tec_fault(ptr %ctx, i64 %kind, i32 %site, i64 %li, i64 %fa64)
  ret i32 1
go:

;;; strips
  store <$w x $at> %addr, ptr %lanes, align 64
  br label %strip
strip:
  %first = phi i64 [ 0, %$before ], [ %after, %stripped ]
  %here_p = getelementptr $at, ptr %lanes, i64 %first
  %here = load <16 x $at>, ptr %here_p, align 64
  %shift = $shift
  %shifted = lshr i$w %m, %shift
  %bits = trunc i$w %shifted to i16
  %on = bitcast i16 %bits to <16 x i1>
  %first4 = shl i64 %first, 2
  %to = getelementptr i8, ptr %out, i64 %first4
$body  br label %stripped
stripped:
  %after = add i64 %first, 16
  %more = icmp ult i64 %after, $w
  br i1 %more, label %strip, label %done
done:
  ret i32 0
}

;;; pointers_global
  %a$k = add <16 x i64> %here, splat (i64 $further)
  %p$k = inttoptr <16 x i64> %a$k to <16 x ptr>

;;; pointers_lds
; A 32-bit index (checked, so never negative) lets the host gather and scatter 16 lanes at once.
  %x$k = add <16 x i32> %here, splat (i32 $further)
  %p$k = getelementptr i8, ptr %base, <16 x i32> %x$k

;;; pointers_scratch
  %d$k = and <16 x i32> %here, splat (i32 -4)
  %e$k = mul <16 x i32> %d$k, splat (i32 $w)
  %b$k = and <16 x i32> %here, splat (i32 3)
  %f$k = add <16 x i32> %e$k, %b$k
  %g$k = add <16 x i32> %f$k, $lane_places
  %h$k = trunc i64 %first4 to i32
  %i$k = insertelement <16 x i32> poison, i32 %h$k, i64 0
  %j$k = shufflevector <16 x i32> %i$k, <16 x i32> poison, <16 x i32> zeroinitializer
  %k$k = add <16 x i32> %g$k, %j$k
  %p$k = getelementptr i8, ptr %base, <16 x i32> %k$k

;;; dword_ld
  %q$k = getelementptr i8, ptr %to, i64 $further
  %o$k = load <16 x i32>, ptr %q$k, align 64
  %v$k = call <16 x i32> @llvm.masked.gather.v16i32.v16p0(<16 x ptr> align 1 %p$k, <16 x i1> %on, <16 x i32> %o$k)
  store <16 x i32> %v$k, ptr %q$k, align 64

;;; dword_st
  %q$k = getelementptr i8, ptr %to, i64 $further
  %v$k = load <16 x i32>, ptr %q$k, align 64
  call void @llvm.masked.scatter.v16i32.v16p0(<16 x i32> %v$k, <16 x ptr> align 1 %p$k, <16 x i1> %on)

;;; bytes_begin
  %sub = and <$w x i32> %addr, splat (i32 $below_align)
  %uneven0 = icmp ne <$w x i32> %sub, zeroinitializer
  %uneven1 = and <$w x i1> %uneven0, %mask
  %uneven2 = bitcast <$w x i1> %uneven1 to i$w
  %uneven = icmp ne i$w %uneven2, 0
  br i1 %uneven, label %bytes, label %even, !prof !0
bytes:
  %bbuf = alloca <$w x i32>, align 64
  store <$w x i32> %addr, ptr %bbuf, align 64
  br label %blane
blane:
  %bl = phi i64 [ 0, %bytes ], [ %bl1, %bnext ]
  %bs = trunc i64 %bl to i$lane_bits
  %bm0 = lshr i$w %m, %bs
  %bm = trunc i$w %bm0 to i1
  br i1 %bm, label %bmove, label %bnext
bmove:
  %bap = getelementptr i32, ptr %bbuf, i64 %bl
  %ba0 = load i32, ptr %bap
  %ba = zext i32 %ba0 to i64
  %blane4 = shl i64 %bl, 2
  %bo = getelementptr i8, ptr %out, i64 %blane4

;;; byte_place
  %bx$b = add i64 %ba, $b
  %bd$b = and i64 %bx$b, -4
  %be$b = mul i64 %bd$b, $w
  %bf$b = and i64 %bx$b, 3
  %bg$b = add i64 %be$b, %bf$b
  %bh$b = add i64 %bg$b, %blane4
  %bp$b = getelementptr i8, ptr %base, i64 %bh$b
  %bq$b = getelementptr i8, ptr %bo, i64 $byte_at

;;; bytes_end
  br label %bnext
bnext:
  %bl1 = add i64 %bl, 1
  %bmore = icmp ult i64 %bl1, $w
  br i1 %bmore, label %blane, label %bdone
bdone:
  ret i32 0
even:

;;; scalar_load
define i32 @tec_scalar_$n(i64 %a, ptr %ctx, i32 %site) {
entry:
  %cache_p = getelementptr i8, ptr %ctx, i64 $CTX.cache
  %cache = load ptr, ptr %cache_p
  %si = zext i32 %site to i64
  %cp = getelementptr {i64, i64}, ptr %cache, i64 %si
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
  %rc = call i32 @tec_check_32(<32 x i64> %vi, i32 1, ptr %ctx, i32 %site, i64 $lane_bytes, i64 260)
  ret i32 %rc
}

;;; arrays
; Whether lanes of an instruction lie in another array than the lowest lane's first byte, or an access ends in another one than it begins in.
define i32 @tec_arrays_$w(<$w x i32> %addr, <$w x i32> %begins, <$w x i32> %ends, i$w %m, ptr %ctx, i32 %site) noinline {
entry:
  %nobody = icmp eq i$w %m, 0
  br i1 %nobody, label %fine, label %look
look:
  %low = call i$w @llvm.cttz.i$w(i$w %m, i1 true)
  %low128 = zext i$w %low to i128
  %low64 = trunc i128 %low128 to i64
  %numbers = alloca <$w x i32>, align 64
  store <$w x i32> %begins, ptr %numbers
  %np = getelementptr i32, ptr %numbers, i64 %low64
  %own = load i32, ptr %np
  %own_i = insertelement <$w x i32> poison, i32 %own, i64 0
  %ownv = shufflevector <$w x i32> %own_i, <$w x i32> poison, <$w x i32> zeroinitializer
  %b = icmp ne <$w x i32> %begins, %ownv
  %e = icmp ne <$w x i32> %ends, %ownv
  %apart = or <$w x i1> %b, %e
  %apartb = bitcast <$w x i1> %apart to i$w
  %bad = and i$w %apartb, %m
  %one = icmp eq i$w %bad, 0
  br i1 %one, label %fine, label %fault, !prof !0
fault:
  %which = call i$w @llvm.cttz.i$w(i$w %bad, i1 true)
  %which128 = zext i$w %which to i128
  %li = trunc i128 %which128 to i64
  %places = alloca <$w x i32>, align 64
  store <$w x i32> %addr, ptr %places
  %fp = getelementptr i32, ptr %places, i64 %low64
  %first = load i32, ptr %fp
  %first64 = zext i32 %first to i64
  %dp = getelementptr i8, ptr %ctx, i64 $CTX.detail
  store i64 %first64, ptr %dp
  %ap = getelementptr i32, ptr %places, i64 %li
  %a = load i32, ptr %ap
  %a64 = zext i32 %a to i64
  %rc = call i32 @tec_fault(ptr %ctx, i64 26, i32 %site, i64 %li, i64 %a64)
  ret i32 %rc
fine:
  ret i32 0
}
