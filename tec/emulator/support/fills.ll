;;; fill
; A load straight into LDS, or a store out of it: the mark of each dword that it fills or takes is the wave's number and the load's, among the operations of its counter.
define void @tec_fill_$w(<$w x i32> %addr, i$w %m, ptr %ctx, ptr %st, i32 %dwords, i32 %site) noinline {
entry:
  %fq = getelementptr i8, ptr %ctx, i64 $CTX.fills
  %fills = load ptr, ptr %fq
  %wq = getelementptr i8, ptr %ctx, i64 $CTX.wave
  %wave = load i64, ptr %wq
  %nq = getelementptr i8, ptr %st, i64 $STATE_ISSUED
  %n = load i32, ptr %nq
  %n64 = zext i32 %n to i64
  %high = shl i64 %wave, $FILL_WAVE
  %own = or i64 %high, %n64
  %s64 = zext i32 %site to i64
  %sh = shl i64 %s64, $FILL_SITE
  %mark = or i64 %own, %sh
  %places = alloca <$w x i32>, align 64
  store <$w x i32> %addr, ptr %places
$lanes  %ap = getelementptr i32, ptr %places, i64 %li
  %a = load i32, ptr %ap
  %d = lshr i32 %a, 2
  br label %dword
dword:
  %k = phi i32 [ 0, %lane ], [ %k1, %dword ]
  %at = add i32 %d, %k
  %at64 = zext i32 %at to i64
  %fp = getelementptr i64, ptr %fills, i64 %at64
  store i64 %mark, ptr %fp
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, %dwords
  br i1 %more, label %dword, label %next
done:
  ret void
}

;;; filled
; A read of LDS, or a store to it: what filled a dword must have been waited for by its wave; by another than this one before the last barrier that both passed.
define i32 @tec_filled_$w(<$w x i32> %addr, i$w %m, ptr %ctx, ptr %st, i32 %bytes, i32 %site, i1 %stores) noinline {
entry:
  %fq = getelementptr i8, ptr %ctx, i64 $CTX.fills
  %fills = load ptr, ptr %fq
  %wq = getelementptr i8, ptr %ctx, i64 $CTX.wave
  %me = load i64, ptr %wq
  %sq = getelementptr i8, ptr %ctx, i64 $CTX.states
  %states = load ptr, ptr %sq
  %tq = getelementptr i8, ptr %ctx, i64 $CTX.state_stride
  %stride = load i64, ptr %tq
  %eq = getelementptr i8, ptr %ctx, i64 $CTX.epoch
  %epoch = load i64, ptr %eq
  %epoch1 = add i64 %epoch, 1
  %round = trunc i64 %epoch1 to i32
  %places = alloca <$w x i32>, align 64
  store <$w x i32> %addr, ptr %places
$lanes  %ap = getelementptr i32, ptr %places, i64 %li
  %a = load i32, ptr %ap
  %last = add i32 %a, %bytes
  %last1 = sub i32 %last, 1
  %d = lshr i32 %a, 2
  %e = lshr i32 %last1, 2
  br label %dword
dword:
  %k = phi i32 [ %d, %lane ], [ %k1, %on ]
  %k64 = zext i32 %k to i64
  %fp = getelementptr i64, ptr %fills, i64 %k64
  %mark = load i64, ptr %fp
  %unfilled = icmp eq i64 %mark, 0
  br i1 %unfilled, label %on, label %marked, !prof !1
marked:
  ; what is on its way out may be read
  %out = icmp slt i64 %mark, 0
  %reads = xor i1 %stores, true
  %fine = and i1 %out, %reads
  br i1 %fine, label %on, label %look
look:
  %high = lshr i64 %mark, $FILL_WAVE
  %wave = and i64 %high, $FILL_WAVES
  %number = and i64 %mark, $FILL_NUMBERS
  %far = mul i64 %wave, %stride
  %other = getelementptr i8, ptr %states, i64 %far
  %mine = icmp eq i64 %wave, %me
  %of = select i1 %mine, ptr %st, ptr %other
  %cq = getelementptr i8, ptr %of, i64 $STATE_COVERED
  %now = load i32, ptr %cq
  %bq = getelementptr i8, ptr %of, i64 $STATE_COVERED_BEFORE
  %before = load i32, ptr %bq
  %rq = getelementptr i8, ptr %of, i64 $STATE_ROUND
  %ran = load i32, ptr %rq
  %theirs = icmp ne i32 %ran, %round
  %whole = or i1 %mine, %theirs
  %covered = select i1 %whole, i32 %now, i32 %before
  %covered64 = zext i32 %covered to i64
  %late = icmp ugt i64 %number, %covered64
  br i1 %late, label %fault, label %on, !prof !0
on:
  %k1 = add i32 %k, 1
  %more = icmp ule i32 %k1, %e
  br i1 %more, label %dword, label %next
fault:
  %was0 = lshr i64 %mark, $FILL_SITE
  %was = and i64 %was0, $FILL_SITES
  %was1 = add i64 %was, 1
  %oq = getelementptr i8, ptr %ctx, i64 $CTX.other_site
  store i64 %was1, ptr %oq
  %dq = getelementptr i8, ptr %ctx, i64 $CTX.detail
  store i64 %wave, ptr %dq
  %a64 = zext i32 %a to i64
  %kind = select i1 %out, i64 30, i64 27
  %rc = call i32 @tec_fault(ptr %ctx, i64 %kind, i32 %site, i64 %li, i64 %a64)
  ret i32 %rc
done:
  ret i32 0
}
