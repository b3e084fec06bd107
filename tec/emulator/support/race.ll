;;; fetch_global
  %ap = getelementptr i64, ptr %buf, i64 %li
  %a = load i64, ptr %ap
  %repeat = icmp eq i64 %a, %last
  br i1 %repeat, label %next, label %fresh
fresh:
  %off = sub i64 %a, %arena
  %inside = icmp ult i64 %off, %arena_bytes
  br i1 %inside, label %known, label %next
known:

;;; fetch_lds
  %ap = getelementptr i32, ptr %buf, i64 %li
  %a32 = load i32, ptr %ap
  %a = zext i32 %a32 to i64
  %repeat = icmp eq i64 %a, %last
  br i1 %repeat, label %next, label %fresh
fresh:
  %off = add i64 %a, 0
  INSIDE
known:

;;; places
  %sub = and i64 %off, 3
  %first = and i64 %off, -4
  %o2 = shl i64 %first, 1
  %o8 = shl i64 %first, 3
  %wp = getelementptr i8, ptr %w0, i64 %o2
  %rp = getelementptr i8, ptr %r0, i64 %o2
  %wbp = getelementptr i8, ptr %wb0, i64 %o8
  %rbp = getelementptr i8, ptr %rb0, i64 %o8
  %wsp = getelementptr i8, ptr %ws0, i64 %first
  %rsp = getelementptr i8, ptr %rs0, i64 %first

;;; acquire
acquire:
  %was = atomicrmw xchg ptr %lock, i32 1 acquire
  %busy = icmp ne i32 %was, 0
  br i1 %busy, label %acquire, label %again

;;; slow
slow:
  %rec = call i64 @tec_race_slow(ptr %wp, ptr %rp, ptr %wbp, ptr %rbp, i64 %sub, i64 $nbytes, i64 %me, i64 $kind, i1 $timeless, ptr %wsp, ptr %rsp, i32 %site, ptr %ctx)
  %bad = icmp ne i64 %rec, 0
  br i1 %bad, label %fault, label %next

;;; always_slow
  br label %again
again:
  %now = phi i1 [ %held, %$here ]$acquired
${need}act:
  br label %slow
$slow

;;; decide_load
  %nr0 = select $bt %rs, $vt %mesv, $vt %mev
  %newv = select $bt %ro, $vt %anyv, $vt %nr0
  %rm = and $vt %rv, $ones
  %rmp = icmp ne $vt %rm, $ones
  %lossy = and $bt %rc, %rmp
  %candv = or $bt %wc, %lossy
  %updv = icmp ne $vt %newv, %rv

;;; decided
  %odd = icmp ne i64 %sub, 0
  br label %again
again:
  %now = phi i1 [ %held, %$here ]$acquired
  %wv = load $vt, ptr %wp, align 8
  %rv = load $vt, ptr %rp, align 8
$conflict_w$conflict_r$decide
  %cand0 = bitcast $bt %candv to i$n
  %cand1 = icmp ne i$n %cand0, 0
  %cand = or i1 %cand1, %odd
  %upd0 = bitcast $bt %updv to i$n
  %upd = icmp ne i$n %upd0, 0
  %needs = or i1 %cand, %upd
  br i1 %needs, label %need, label %$calm
${closes}need:
${need}act:
  br i1 %cand, label %slow, label %update
update:
  store $vt %newv, ptr $target, align 8
  store <$n x i32> %sitev, ptr ${sites}sp, align 4
  br label %next
$slow

;;; race
define i32 @tec_race_${space}_$name(<$w x $at> %addr, i$w %m, ptr %ctx, i32 %site$extra) noinline {
entry:
  %buf = alloca <$w x $at>, align 64
$addresses
$head  %me_now_p = getelementptr i8, ptr %ctx, i64 $CTX.race_me
  %me_now = load i64, ptr %me_now_p
  %me = and i64 %me_now, $me_mask
  %mes = or i64 %me, $SEVERAL_WAVES
  %launch = and i64 %me, $LAUNCH_I64
  %any = or i64 %launch, $any_15
  %tag64 = lshr i64 %launch, $LAUNCH_SHIFT
  %tag = trunc i64 %tag64 to i8
  %sitev_i = insertelement <$n x i32> poison, i32 %site, i64 0
  %sitev = shufflevector <$n x i32> %sitev_i, <$n x i32> poison, <$n x i32> zeroinitializer
$splat_mev$splat_mesv$splat_anyv$fewer$lanes$fetch$places$body${acquire}done:
  %mustdo = xor i1 %held, %held0
  br i1 %mustdo, label %unlock, label %leave
unlock:
$unlock  br label %leave
leave:
  ret i32 0
fault:
  %detp = getelementptr i8, ptr %ctx, i64 $detail
  store i64 %rec, ptr %detp
  %mustf = xor i1 %held0, true
  br i1 %mustf, label %funlock, label %fleave
funlock:
$unlock  br label %fleave
fleave:
$lane_of_place
  %rc0 = call i32 @tec_fault(ptr %ctx, i64 8, i32 %site, i64 %lfault, i64 %a)
  ret i32 %rc0
}
