;;; conversions
; What LLVM calls for f16 on hosts without F16C (x86-64-v2), which libgcc has and a process need not. Exact, and to nearest even.
define float @__extendhfsf2(half %h) {
  %i = bitcast half %h to i16
  %w = zext i16 %i to i32
  %m = and i32 %w, 32767
  %u = shl i32 %m, 13
  %f = bitcast i32 %u to float
  %scaled = fmul float %f, 0x46F0000000000000 ; 2**112
  %bits = bitcast float %scaled to i32
  %big = icmp uge i32 %m, 31744
  %all = or i32 %bits, 2139095040
  %some = select i1 %big, i32 %all, i32 %bits
  %nan = icmp ugt i32 %m, 31744
  %quiet = or i32 %some, 4194304
  %value = select i1 %nan, i32 %quiet, i32 %some
  %s = and i32 %w, 32768
  %sign = shl i32 %s, 16
  %r = or i32 %value, %sign
  %out = bitcast i32 %r to float
  ret float %out
}
define half @__truncsfhf2(float %x) {
  %b = bitcast float %x to i32
  %u = and i32 %b, 2147483647
  %over = icmp uge i32 %u, 1199570944 ; 2**16
  %nan = icmp ugt i32 %u, 2139095040
  %payload = lshr i32 %u, 13
  %low = and i32 %payload, 1023
  %quiet = or i32 %low, 32256
  %large = select i1 %nan, i32 %quiet, i32 31744
  %under = icmp ult i32 %u, 947912704 ; 2**-14
  %a = bitcast i32 %u to float
  %added = fadd float %a, 5.0e-1
  %addedbits = bitcast float %added to i32
  %small = sub i32 %addedbits, 1056964608
  %odd0 = lshr i32 %u, 13
  %odd = and i32 %odd0, 1
  %moved = add i32 %u, -939520001 ; the exponent's bias, and almost half a unit
  %even = add i32 %moved, %odd
  %normal = lshr i32 %even, 13
  %v0 = select i1 %under, i32 %small, i32 %normal
  %v1 = select i1 %over, i32 %large, i32 %v0
  %s0 = lshr i32 %b, 16
  %s = and i32 %s0, 32768
  %r = or i32 %v1, %s
  %t = trunc i32 %r to i16
  %out = bitcast i16 %t to half
  ret half %out
}
