;;; first_of
$lanes  %${name}_bit = shl i$w 1, %${name}_lowest
  %${name}_p = getelementptr i32, ptr %${name}_buf, i64 %${name}_li
  %${name}_v = load i32, ptr %${name}_p
  %${name}_s0 = insertelement <$w x i32> poison, i32 %${name}_v, i64 0
  %${name}_s = shufflevector <$w x i32> %${name}_s0, <$w x i32> poison, <$w x i32> zeroinitializer
  %${name}_eq = icmp eq <$w x i32> $vec, %${name}_s
  %${name}_eqb = bitcast <$w x i1> %${name}_eq to i$w
  %${name}_low = sub i$w %${name}_bit, 1
  %${name}_bef0 = and i$w %${name}_eqb, %${name}_low
  %${name}_bef1 = and i$w %${name}_bef0, %m
$extra  %${name}_isnew = icmp eq i$w %${name}_bef, 0
  %${name}_add = select i1 %${name}_isnew, i$w %${name}_bit, i$w 0
  %${name}_first1 = or i$w %${name}_first, %${name}_add
  br label %${name}_next

;;; groups
  %d_grp = udiv i64 %d_li, %glanes
  %d_gs = mul i64 %d_grp, %glanes
  %d_gsw = $d
  %d_gm = shl i$w -1, %d_gsw
  %d_bef = and i$w %d_bef1, %d_gm

;;; measure
define void @tec_lines_$w(<$w x i64> %addr, i$w %m, ptr %ctx, i64 %slot, i64 %nbytes, i64 %shift) noinline {
entry:
  br label %d_entry
d_entry:
  %d_buf = alloca <$w x i32>, align 64
  %shi = insertelement <$w x i64> poison, i64 %shift, i64 0
  %shv = shufflevector <$w x i64> %shi, <$w x i64> poison, <$w x i32> zeroinitializer
  %line = lshr <$w x i64> %addr, %shv
  %line32 = trunc <$w x i64> %line to <$w x i32>
  store <$w x i32> %line32, ptr %d_buf
${first_lines}done:
  %n = call i$w @llvm.ctpop.i$w(i$w %d_first)
  %n128 = zext i$w %n to i128
  %n64 = trunc i128 %n128 to i64
  %act = call i$w @llvm.ctpop.i$w(i$w %m)
  %act128 = zext i$w %act to i128
  %act64 = trunc i128 %act128 to i64
  %bytes = mul i64 %act64, %nbytes
$counters$bump_accesses$bump_bytes$bump_lines$bump_lanes  ret void
}
define void @tec_banks_$w(<$w x i32> %addr, i$w %m, ptr %ctx, i64 %slot, i64 %dwords, i64 %banks, i64 %glanes) noinline {
  %found = call {i64, i64} @tec_bank_clocks_$w(<$w x i32> %addr, i$w %m, i64 %dwords, i64 %banks, i64 %glanes)
  %clocks = extractvalue {i64, i64} %found, 0
  %extra = extractvalue {i64, i64} %found, 1
  %act = call i$w @llvm.ctpop.i$w(i$w %m)
  %act128 = zext i$w %act to i128
  %act64 = trunc i128 %act128 to i64
  %by64 = mul i64 %dwords, 4
  %bytes = mul i64 %act64, %by64
$counters$bump_accesses$bump_bytes$bump_clocks$bump_extra  ret void
}
define {i64, i64} @tec_bank_clocks_$w(<$w x i32> %addr, i$w %m, i64 %dwords, i64 %banks, i64 %glanes) noinline {
entry:
  br label %d_entry
d_entry:
  %d_buf = alloca <$w x i32>, align 64
  %bank_buf = alloca <$w x i32>, align 64
  %dw32 = trunc i64 %dwords to i32
  %by = mul i32 %dw32, 4
  %byi = insertelement <$w x i32> poison, i32 %by, i64 0
  %byv = shufflevector <$w x i32> %byi, <$w x i32> poison, <$w x i32> zeroinitializer
  %word = udiv <$w x i32> %addr, %byv
  store <$w x i32> %word, ptr %d_buf
  %nb0 = udiv i64 %banks, %dwords
  %nb = trunc i64 %nb0 to i32
  %nbi = insertelement <$w x i32> poison, i32 %nb, i64 0
  %nbv = shufflevector <$w x i32> %nbi, <$w x i32> poison, <$w x i32> zeroinitializer
  %bank = urem <$w x i32> %word, %nbv
  store <$w x i32> %bank, ptr %bank_buf
${first_words}groups:
  ; for each group of lanes: the most distinct words that one bank must give
  br label %group
group:
  %gstart = phi i64 [ 0, %groups ], [ %gnext, %group_end ]
  %clocks = phi i64 [ 0, %groups ], [ %clocks1, %group_end ]
  %base = phi i64 [ 0, %groups ], [ %base1, %group_end ]
  %gsw = $group_start
  %ones0 = shl i64 1, %glanes
  %ones1 = sub i64 %ones0, 1
  %onesw = $group_ones
  %gmask = shl i$w %onesw, %gsw
  %f0 = and i$w %d_first, %gmask
  %some = icmp ne i$w %f0, 0
$lanes  %bp = getelementptr i32, ptr %bank_buf, i64 %bank_li
  %bv = load i32, ptr %bp
  %bs0 = insertelement <$w x i32> poison, i32 %bv, i64 0
  %bs = shufflevector <$w x i32> %bs0, <$w x i32> poison, <$w x i32> zeroinitializer
  %beq = icmp eq <$w x i32> %bank, %bs
  %beqb = bitcast <$w x i1> %beq to i$w
  %same = and i$w %beqb, %f0
  %cnt = call i$w @llvm.ctpop.i$w(i$w %same)
  %cntx = zext i$w %cnt to i128
  %cnt64 = trunc i128 %cntx to i64
  %worst1 = call i64 @llvm.umax.i64(i64 %worst, i64 %cnt64)
  br label %bank_next
group_end:
  %clocks1 = add i64 %clocks, %worst
  %somez = zext i1 %some to i64
  %base1 = add i64 %base, %somez
  %gnext = add i64 %gstart, %glanes
  %more = icmp ult i64 %gnext, $w
  br i1 %more, label %group, label %done
done:
  %extra = sub i64 %clocks1, %base1
  %r0 = insertvalue {i64, i64} poison, i64 %clocks1, 0
  %r1 = insertvalue {i64, i64} %r0, i64 %extra, 1
  ret {i64, i64} %r1
}
declare i$w @llvm.ctpop.i$w(i$w)
declare i64 @llvm.umax.i64(i64, i64)
