;;; group
  %${s}a = shufflevector <$w x i64> %addr, <$w x i64> poison, <16 x i32> $own_lanes
  %${s}mm = lshr i$w %m, $first_lane
  %${s}m = trunc i$w %${s}mm to i16
  %${s}all = icmp eq i16 %${s}m, -1
  br i1 %${s}all, label %${s}on, label %${s}part
${s}on:
  %${s}f = extractelement <16 x i64> %${s}a, i64 0
  %${s}fi = insertelement <16 x i64> poison, i64 %${s}f, i64 0
  %${s}fv = shufflevector <16 x i64> %${s}fi, <16 x i64> poison, <16 x i32> zeroinitializer
  %${s}d = sub <16 x i64> %${s}a, %${s}fv
  %${s}ne = icmp ne <16 x i64> %${s}d, $steps
  %${s}neb = bitcast <16 x i1> %${s}ne to i16
  %${s}run = icmp eq i16 %${s}neb, 0
  br i1 %${s}run, label %${s}row, label %${s}each
${s}row:
  %${s}rp = inttoptr i64 %${s}f to ptr
  %${s}rv = load $wide, ptr %${s}rp, align 1
  br label %${s}apart
${s}each:
