;;; places
; The lanes' addresses: a base and each lane's 32 or 64 bits, summed ($op add) or, of shadows, joined ($op or).
define void @tec_${name}_$w(ptr %out, ptr %low, ptr %high, i64 %base) {
entry:
  %l = load <$w x i32>, ptr %low, align 64
  %narrow = zext <$w x i32> %l to <$w x i64>
  %two = icmp ne ptr %high, null
  br i1 %two, label %wide, label %go
wide:
  %h = load <$w x i32>, ptr %high, align 64
  %h64 = zext <$w x i32> %h to <$w x i64>
  %up = shl <$w x i64> %h64, splat (i64 32)
  %both = or <$w x i64> %narrow, %up
  br label %go
go:
  %own = phi <$w x i64> [ %narrow, %entry ], [ %both, %wide ]
  %one = insertelement <$w x i64> poison, i64 %base, i64 0
  %all = shufflevector <$w x i64> %one, <$w x i64> poison, <$w x i32> zeroinitializer
  %sum = $op <$w x i64> %own, %all
  store <$w x i64> %sum, ptr %out, align 64
  ret void
}

;;; ranged
; A raw buffer's addresses, and the lanes that are in range: a lane's 32 bits (none: 0) and %more, then the scalar offset in 64 bits.
define i$w @tec_ranged_$w(ptr %out, ptr %own, i32 %more, i64 %scalar, i64 %records, i64 %nbytes, i64 %base) {
entry:
  %some = icmp ne ptr %own, null
  br i1 %some, label %lanes, label %go
lanes:
  %l = load <$w x i32>, ptr %own, align 64
  br label %go
go:
  %o = phi <$w x i32> [ zeroinitializer, %entry ], [ %l, %lanes ]
  %more1 = insertelement <$w x i32> poison, i32 %more, i64 0
  %morev = shufflevector <$w x i32> %more1, <$w x i32> poison, <$w x i32> zeroinitializer
  %offset = add <$w x i32> %o, %morev
  %wide = zext <$w x i32> %offset to <$w x i64>
  %scalar1 = insertelement <$w x i64> poison, i64 %scalar, i64 0
  %scalarv = shufflevector <$w x i64> %scalar1, <$w x i64> poison, <$w x i32> zeroinitializer
  %whole = add <$w x i64> %wide, %scalarv
  %nbytes1 = insertelement <$w x i64> poison, i64 %nbytes, i64 0
  %nbytesv = shufflevector <$w x i64> %nbytes1, <$w x i64> poison, <$w x i32> zeroinitializer
  %end = add <$w x i64> %whole, %nbytesv
  %records1 = insertelement <$w x i64> poison, i64 %records, i64 0
  %recordsv = shufflevector <$w x i64> %records1, <$w x i64> poison, <$w x i32> zeroinitializer
  %inside = icmp ule <$w x i64> %end, %recordsv
  %base1 = insertelement <$w x i64> poison, i64 %base, i64 0
  %basev = shufflevector <$w x i64> %base1, <$w x i64> poison, <$w x i32> zeroinitializer
  %address = add <$w x i64> %whole, %basev
  store <$w x i64> %address, ptr %out, align 64
  %bits = bitcast <$w x i1> %inside to i$w
  ret i$w %bits
}

;;; zero
; 0 in some lanes of %n registers.
define void @tec_zero_$w(ptr %at, i$w %lanes, i64 %n) {
entry:
  %none = icmp eq i$w %lanes, 0
  br i1 %none, label %end, label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %p = getelementptr <$w x i32>, ptr %at, i64 %k
  %old = load <$w x i32>, ptr %p, align 64
  %mask = bitcast i$w %lanes to <$w x i1>
  %new = select <$w x i1> %mask, <$w x i32> zeroinitializer, <$w x i32> %old
  store <$w x i32> %new, ptr %p, align 64
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}

;;; marked
; The lanes of %n registers (at least one) in which any of these bits is 1.
define i$w @tec_marked_$w(ptr %at, i64 %n, i32 %bits) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %before = phi <$w x i32> [ zeroinitializer, %entry ], [ %total, %loop ]
  %p = getelementptr <$w x i32>, ptr %at, i64 %k
  %here = load <$w x i32>, ptr %p, align 64
  %total = or <$w x i32> %before, %here
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %end
end:
  %bits1 = insertelement <$w x i32> poison, i32 %bits, i64 0
  %bitsv = shufflevector <$w x i32> %bits1, <$w x i32> poison, <$w x i32> zeroinitializer
  %wanted = and <$w x i32> %total, %bitsv
  %found = icmp ne <$w x i32> %wanted, zeroinitializer
  %lanes = bitcast <$w x i1> %found to i$w
  ret i$w %lanes
}

;;; marked_wide
define i$w @tec_marked_wide_$w(ptr %at) {
  %here = load <$w x i64>, ptr %at, align 64
  %found = icmp ne <$w x i64> %here, zeroinitializer
  %lanes = bitcast <$w x i1> %found to i$w
  ret i$w %lanes
}
