;;; head
$fields  %at = mul i64 %wave, %trace_stride
  %head = getelementptr i8, ptr %trace, i64 %at
  %nep = getelementptr i32, ptr %head, i64 $TRACE.events
  %nlp = getelementptr i32, ptr %head, i64 $TRACE.lines
  %cutp = getelementptr i32, ptr %head, i64 $TRACE.cut
  %ne32 = load i32, ptr %nep
  %ne = zext i32 %ne32 to i64
  %events = getelementptr i32, ptr %head, i64 $TRACE_HEADER
  %event = getelementptr i32, ptr %events, i64 %ne
  %room = icmp ult i64 %ne, %trace_events

;;; trace
define i1 @tec_trace_block_$w(ptr %ctx, i32 %word) noinline {
  %counts_q = getelementptr i8, ptr %ctx, i64 $CTX.trace_counts
  %counts = load ptr, ptr %counts_q
  %traced = icmp eq ptr %counts, null
  br i1 %traced, label %record, label %tally
tally:
  %row32 = lshr i32 %word, 12
  %row = zext i32 %row32 to i64
  %place = getelementptr i64, ptr %counts, i64 %row
  %times = load i64, ptr %place
  %times1 = add i64 %times, 1
  store i64 %times1, ptr %place
  ret i1 false
record:
$context  br i1 %room, label %put, label %full
put:
$append  %cut = load i32, ptr %cutp
  %is = icmp ne i32 %cut, 0
  ret i1 %is
full:
  store i32 1, ptr %cutp
  ret i1 true
}
define void @tec_trace_lds_$w(<$w x i32> %addr, i$w %m, ptr %ctx, i32 %tag, i64 %dwords, i64 %banks, i64 %glanes) noinline {
  %wanted_q = getelementptr i8, ptr %ctx, i64 $CTX.trace_lds
  %wanted = load i64, ptr %wanted_q
  %want = icmp ne i64 %wanted, 0
  br i1 %want, label %look, label %done
look:
$context  br i1 %room, label %put, label %full
put:
  %found = call {i64, i64} @tec_bank_clocks_$w(<$w x i32> %addr, i$w %m, i64 %dwords, i64 %banks, i64 %glanes)
  %clocks = extractvalue {i64, i64} %found, 0
  %c32 = trunc i64 %clocks to i32
  %word = or i32 %tag, %c32
$append  br label %done
full:
  store i32 1, ptr %cutp
  br label %done
done:
  ret void
}
define void @tec_trace_global_$w(<$w x i64> %addr, i$w %m, ptr %ctx, i32 %tag) noinline {
entry:
$context  %buf = alloca <$w x i32>, align 64
  %nl32 = load i32, ptr %nlp
  %nl = zext i32 %nl32 to i64
  %all = getelementptr i32, ptr %events, i64 %trace_events
  %mine = getelementptr i32, ptr %all, i64 %nl
  %most = add i64 %nl, $w
  %fits = icmp ule i64 %most, %trace_lines
  %both = and i1 %fits, %room
  br i1 %both, label %begin, label %full
begin:
  %line64 = lshr <$w x i64> %addr, splat (i64 $line_shift)
  %line = trunc <$w x i64> %line64 to <$w x i32>
  store <$w x i32> %line, ptr %buf
  ; lanes whose line is not that of the lane before, and those whose lane before is off
  %prev = shufflevector <$w x i32> %line, <$w x i32> poison, <$w x i32> $before
  %other = icmp ne <$w x i32> %line, %prev
  %otherb = bitcast <$w x i1> %other to i$w
  %on_before = shl i$w %m, 1
  %off_before = xor i$w %on_before, -1
  %maybe = or i$w %otherb, %off_before
  %first = and i$w %maybe, %m
$lanes  %vp = getelementptr i32, ptr %buf, i64 %li
  %v = load i32, ptr %vp
  br label %search
search:
  %k = phi i64 [ 0, %lane ], [ %k1, %again ]
  %past = icmp uge i64 %k, %n
  br i1 %past, label %fresh, label %compare
compare:
  %op = getelementptr i32, ptr %mine, i64 %k
  %o = load i32, ptr %op
  %same = icmp eq i32 %o, %v
  br i1 %same, label %found, label %again
again:
  %k1 = add i64 %k, 1
  br label %search
found:
  br label %next
fresh:
  %fp = getelementptr i32, ptr %mine, i64 %n
  store i32 %v, ptr %fp
  %n1 = add i64 %n, 1
  br label %next
end:
  %n32 = trunc i64 %n to i32
  %nl1 = add i32 %nl32, %n32
  store i32 %nl1, ptr %nlp
  %word = or i32 %tag, %n32
$append  ret void
full:
  store i32 1, ptr %cutp
  ret void
}
declare i$w @llvm.cttz.i$w(i$w, i1)

;;; append
  store i32 %word, ptr %event
  %ne1 = add i32 %ne32, 1
  store i32 %ne1, ptr %nep
