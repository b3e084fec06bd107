;;; clash
define i32 @tec_clash_${space}_$w(<$w x $at> %addr, i$w %m, ptr %data, ptr %ctx, i32 %site, i64 %nbytes) noinline {
entry:
  %size = $size
  %ni = insertelement <$w x $at> poison, $at %size, i64 0
  %nv = shufflevector <$w x $at> %ni, <$w x $at> poison, <$w x i32> zeroinitializer
  %upv = shufflevector <$w x $at> %addr, <$w x $at> poison, <$w x i32> $up
  %step = sub <$w x $at> %upv, %addr
  %rises = icmp sge <$w x $at> %step, %nv
  %rb = bitcast <$w x i1> %rises to i$w
  %rb1 = or i$w %rb, $last_lane
  %plain = icmp eq i$w %rb1, -1
  br i1 %plain, label %leave, label %turn$first_turn
${turns}look:
  %buf = alloca <$w x $at>, align 64
  store <$w x $at> %addr, ptr %buf
  %narrow = icmp ult i64 %nbytes, 4
  %nb = shl i64 %nbytes, 3
  %nb32 = trunc i64 %nb to i32
  %nb31 = and i32 %nb32, 31
  %nm0 = shl i32 1, %nb31
  %nm1 = sub i32 %nm0, 1
  %nm = select i1 %narrow, i32 %nm1, i32 -1
  %dw0 = lshr i64 %nbytes, 2
  %dw = call i64 @llvm.umax.i64(i64 %dw0, i64 1)
$lanes  %ap = getelementptr $at, ptr %buf, i64 %li
  %a0 = load $at, ptr %ap
  $widen
  %ai = insertelement <$w x $at> poison, $at %a0, i64 0
  %av = shufflevector <$w x $at> %ai, <$w x $at> poison, <$w x i32> zeroinitializer
  %diff = sub <$w x $at> %addr, %av
  %over = icmp ult <$w x $at> %diff, %nv
  %ob = bitcast <$w x i1> %over to i$w
  %bit = shl i$w 1, %lowest
  %notme = xor i$w %bit, -1
  %ob1 = and i$w %ob, %m
  %others = and i$w %ob1, %notme
  %free = icmp eq i$w %others, 0
  br i1 %free, label %next, label %compare
compare:
  %apart = icmp ne <$w x $at> %diff, zeroinitializer
  %apb = bitcast <$w x i1> %apart to i$w
  br label %word
word:
  %k = phi i64 [ 0, %compare ], [ %k1, %word ]
  %bad0 = phi i$w [ %apb, %compare ], [ %bad1, %word ]
  %wp = getelementptr <$w x i32>, ptr %data, i64 %k
  %wv = load <$w x i32>, ptr %wp, align 4
  %mp = getelementptr i32, ptr %wp, i64 %li
  %mine = load i32, ptr %mp
  %mi = insertelement <$w x i32> poison, i32 %mine, i64 0
  %mv = shufflevector <$w x i32> %mi, <$w x i32> poison, <$w x i32> zeroinitializer
  %xi = insertelement <$w x i32> poison, i32 %nm, i64 0
  %xv = shufflevector <$w x i32> %xi, <$w x i32> poison, <$w x i32> zeroinitializer
  %x0 = xor <$w x i32> %wv, %mv
  %x1 = and <$w x i32> %x0, %xv
  %ne = icmp ne <$w x i32> %x1, zeroinitializer
  %neb = bitcast <$w x i1> %ne to i$w
  %bad1 = or i$w %bad0, %neb
  %k1 = add i64 %k, 1
  %kmore = icmp ult i64 %k1, %dw
  br i1 %kmore, label %word, label %judge
judge:
  %clash = and i$w %bad1, %others
  %fine = icmp eq i$w %clash, 0
  br i1 %fine, label %alike, label %fault
alike:
  br label %next
fault:
  %other = call i$w @llvm.cttz.i$w(i$w %clash, i1 true)
  %o128 = zext i$w %other to i128
  %o64 = trunc i128 %o128 to i64
  %detp = getelementptr i8, ptr %ctx, i64 $CTX.detail
  store i64 %o64, ptr %detp
  %rc = call i32 @tec_fault(ptr %ctx, i64 18, i32 %site, i64 %li, i64 $wide)
  ret i32 %rc
leave:
  ret i32 0
}

;;; turned
turn$q:
  %t$q = shufflevector <$w x $at> %addr, <$w x $at> poison, <$w x i32> <$order>
  %t${q}up = shufflevector <$w x $at> %t$q, <$w x $at> poison, <$w x i32> $up
  %t${q}s = sub <$w x $at> %t${q}up, %t$q
  %t${q}r = icmp sge <$w x $at> %t${q}s, %nv
  %t${q}b = bitcast <$w x i1> %t${q}r to i$w
  %t${q}b1 = or i$w %t${q}b, $last_lane
  %t${q}p = icmp eq i$w %t${q}b1, -1
  br i1 %t${q}p, label %leave, label %$after

;;; order
define i32 @tec_order_$w(<$w x i64> %addr, i$w %m, ptr %ctx, i32 %site, i64 %kind) noinline {
entry:
  %fp = getelementptr i8, ptr %ctx, i64 $CTX.order_call
  %f = load ptr, ptr %fp
  %off = icmp eq ptr %f, null
  br i1 %off, label %leave, label %tell
tell:
  %buf = alloca <$w x i64>, align 64
  store <$w x i64> %addr, ptr %buf
  %mask = zext i$w %m to i128
  %mask64 = trunc i128 %mask to i64
  %bad = call i32 %f(ptr %ctx, ptr %buf, i64 %mask64, i64 %kind)
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %leave, label %fault
fault:
  %low = call i$w @llvm.cttz.i$w(i$w %m, i1 false)
  %low128 = zext i$w %low to i128
  %li = trunc i128 %low128 to i64
  %ap = getelementptr i64, ptr %buf, i64 %li
  %a = load i64, ptr %ap
  %rc = call i32 @tec_fault(ptr %ctx, i64 19, i32 %site, i64 %li, i64 %a)
  ret i32 %rc
leave:
  ret i32 0
}
