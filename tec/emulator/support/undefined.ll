;;; address
  %buf = alloca <$w x $at>, align 64
  store <$w x $at> %addr, ptr %buf
  %p = getelementptr $at, ptr %buf, i64 %li
  %a0 = load $at, ptr %p
$wide

;;; undefined
define void @tec_undefined_${at}_$w(<$w x $at> %addr, i$w %where, i$w %what, i64 %kind, ptr %ctx, i32 %site) noinline cold {
  %isaddr = icmp ne i$w %where, 0
  %bits = select i1 %isaddr, i$w %where, i$w %what
  %k = select i1 %isaddr, i64 $in_address, i64 %kind
$lane$address  %r = call i32 @tec_fault(ptr %ctx, i64 %k, i32 %site, i64 %li, i64 %a)
  ret void
}
define void @tec_origin_${at}_$w(<$w x $at> %addr, i$w %bits, ptr %ctx, i32 %site) noinline cold {
$lane$address  %p0 = getelementptr i8, ptr %ctx, i64 $CTX.origin_site
  %s = zext i32 %site to i64
  %s1 = add i64 %s, 1
  store i64 %s1, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 $CTX.origin_lane
  store i64 %li, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 $CTX.origin_address
  store i64 %a, ptr %p2
  ret void
}
