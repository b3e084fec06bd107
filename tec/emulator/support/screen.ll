;;; ranges
; The quick look of `checks.screening` at ranges of memory. A result other than 0: the launch is to be done again under the full checks.
define internal i64 @nothing_undefined(ptr %p, i64 %len) {
entry:
  br label %wide
wide:
  %i = phi i64 [ 0, %entry ], [ %i1, %widen ]
  %i1 = add i64 %i, 64
  %fits = icmp ule i64 %i1, %len
  br i1 %fits, label %widen, label %half
widen:
  %wp = getelementptr i8, ptr %p, i64 %i
  %wv = load <64 x i8>, ptr %wp, align 1
  %wc = icmp ne <64 x i8> %wv, zeroinitializer
  %wb = bitcast <64 x i1> %wc to i64
  %wz = icmp eq i64 %wb, 0
  br i1 %wz, label %wide, label %bad
half:
  %h = phi i64 [ %i, %wide ], [ %h1, %halve ]
  %h1 = add i64 %h, 16
  %hfits = icmp ule i64 %h1, %len
  br i1 %hfits, label %halve, label %word
halve:
  %hp = getelementptr i8, ptr %p, i64 %h
  %hv = load i128, ptr %hp, align 1
  %hz = icmp eq i128 %hv, 0
  br i1 %hz, label %half, label %bad
word:
  %o = phi i64 [ %h, %half ], [ %o1, %words ]
  %o1 = add i64 %o, 4
  %ofits = icmp ule i64 %o1, %len
  br i1 %ofits, label %words, label %byte
words:
  %op = getelementptr i8, ptr %p, i64 %o
  %ov = load i32, ptr %op, align 1
  %oz = icmp eq i32 %ov, 0
  br i1 %oz, label %word, label %bad
byte:
  %b = phi i64 [ %o, %word ], [ %b1, %bytes ]
  %bfits = icmp ult i64 %b, %len
  br i1 %bfits, label %bytes, label %good
bytes:
  %bp = getelementptr i8, ptr %p, i64 %b
  %bv = load i8, ptr %bp
  %b1 = add i64 %b, 1
  %bz = icmp eq i8 %bv, 0
  br i1 %bz, label %byte, label %bad
good:
  ret i64 0
bad:
  ret i64 1
}
; What was done by this wave: the launch's number in the upper 8 bits, the wave's in the grid, from 1, below.
define internal i32 @screen_me(ptr %ctx, ptr %s) alwaysinline {
  %gp = getelementptr i8, ptr %ctx, i64 $CTX.group
  %g = load i64, ptr %gp
  %wp = getelementptr i8, ptr %ctx, i64 $CTX.wave
  %w = load i64, ptr %wp
  %np = getelementptr i8, ptr %s, i64 $SCREEN.waves
  %n = load i64, ptr %np
  %lp = getelementptr i8, ptr %s, i64 $SCREEN.launch
  %l = load i64, ptr %lp
  %a = mul i64 %g, %n
  %b = add i64 %a, %w
  %c = add i64 %b, 1
  %d = or i64 %c, %l
  %e = trunc i64 %d to i32
  ret i32 %e
}
define internal i64 @range_ld_global(i64 %a, i64 %len, ptr %ctx) noinline {
entry:
  %sp = getelementptr i8, ptr %ctx, i64 $CTX.screen
  %s = load ptr, ptr %sp
  %base = load i64, ptr %s
  %off = sub i64 %a, %base
  %wp = getelementptr i8, ptr %s, i64 $SCREEN.watched
  %watched = load i64, ptr %wp
  %inside = icmp ult i64 %off, %watched
  br i1 %inside, label %defined, label %bad
defined:
  %up = getelementptr i8, ptr %s, i64 $SCREEN.undefined
  %u = load ptr, ptr %up
  %any = icmp ne ptr %u, null
  br i1 %any, label %look, label %lines
look:
  %dp = getelementptr i8, ptr %s, i64 $SCREEN.defined
  %d = load ptr, ptr %dp
  %page = lshr i64 %off, 12
  %until0 = add i64 %off, %len
  %until1 = sub i64 %until0, 1
  %until = lshr i64 %until1, 12
  %pp = getelementptr i8, ptr %d, i64 %page
  %pv = load i8, ptr %pp
  %qp = getelementptr i8, ptr %d, i64 %until
  %qv = load i8, ptr %qp
  %both = and i8 %pv, %qv
  %whole = icmp eq i8 %both, 1
  br i1 %whole, label %lines, label %scan
scan:
  ; %page's bytes all at once, now and then
  %again = add i8 %pv, 2
  %due = icmp eq i8 %pv, 0
  %counted = select i1 %due, i8 2, i8 %again
  br i1 %due, label %page_look, label %part
page_look:
  %po = shl i64 %page, 12
  %pa = getelementptr i8, ptr %u, i64 %po
  %pu = call i64 @nothing_undefined(ptr %pa, i64 4096)
  %full = icmp eq i64 %pu, 0
  %state = select i1 %full, i8 1, i8 2
  store i8 %state, ptr %pp
  br label %here
part:
  %known = icmp eq i8 %pv, 1
  %keep = select i1 %known, i8 1, i8 %counted
  store i8 %keep, ptr %pp
  br label %here
here:
  %ua = getelementptr i8, ptr %u, i64 %off
  %some = call i64 @nothing_undefined(ptr %ua, i64 %len)
  %fine = icmp eq i64 %some, 0
  br i1 %fine, label %lines, label %bad
lines:
  %rp = getelementptr i8, ptr %s, i64 $SCREEN.loads
  %r = load ptr, ptr %rp
  %follows = icmp ne ptr %r, null
  br i1 %follows, label %mark, label %good
mark:
  %me = call i32 @screen_me(ptr %ctx, ptr %s)
  %several = or i32 %me, 16777215
  %first = lshr i64 %off, 6
  %end0 = add i64 %off, %len
  %end1 = sub i64 %end0, 1
  %last = lshr i64 %end1, 6
  br label %line
line:
  %i = phi i64 [ %first, %mark ], [ %i1, %next ], [ %i, %write ]
  %lp = getelementptr i32, ptr %r, i64 %i
  %l = load i32, ptr %lp
  %mine = icmp eq i32 %l, %me
  %all = icmp eq i32 %l, %several
  %old = or i1 %mine, %all
  br i1 %old, label %next, label %write
write:
  %x = xor i32 %l, %me
  %other = icmp ult i32 %x, 16777216
  %new = select i1 %other, i32 %several, i32 %me
  ; another thread's wave may come to the line between: neither's load is lost
  %was = cmpxchg ptr %lp, i32 %l, i32 %new monotonic monotonic
  %wrote = extractvalue { i32, i1 } %was, 1
  br i1 %wrote, label %next, label %line
next:
  %i1 = add i64 %i, 1
  %more = icmp ule i64 %i1, %last
  br i1 %more, label %line, label %good
good:
  ret i64 0
bad:
  ret i64 1
}
; What lay in a page before the launch first wrote to it, with what of it was undefined, is put by: 2 in the page's byte, or 3 where nothing was, and stays so.
define internal i64 @save_page(ptr %s, i64 %page) noinline {
entry:
  %mp = getelementptr i8, ptr %s, i64 $SCREEN.saved
  %m = load ptr, ptr %mp
  %p = getelementptr i8, ptr %m, i64 %page
  br label %try
try:
  %was = cmpxchg ptr %p, i8 0, i8 1 seq_cst seq_cst
  %got = extractvalue { i8, i1 } %was, 1
  br i1 %got, label %save, label %others
others:
  %v = extractvalue { i8, i1 } %was, 0
  %done = icmp uge i8 %v, 2
  br i1 %done, label %good, label %try
save:
  %np = getelementptr i8, ptr %s, i64 $SCREEN.next
  %n = atomicrmw add ptr %np, i64 1 monotonic
  %lp = getelementptr i8, ptr %s, i64 $SCREEN.room
  %room = load i64, ptr %lp
  %fits = icmp ult i64 %n, %room
  br i1 %fits, label %copy, label %full
full:
  store atomic i8 0, ptr %p release, align 1
  ret i64 1
copy:
  %ip = getelementptr i8, ptr %s, i64 $SCREEN.pages
  %list = load ptr, ptr %ip
  %at = getelementptr i64, ptr %list, i64 %n
  store i64 %page, ptr %at
  %pp = getelementptr i8, ptr %s, i64 $SCREEN.pool
  %pool = load ptr, ptr %pp
  %po = shl i64 %n, 13
  %goal = getelementptr i8, ptr %pool, i64 %po
  %off = shl i64 %page, 12
  %base = load ptr, ptr %s
  %from = getelementptr i8, ptr %base, i64 %off
  call void @llvm.memcpy.p0.p0.i64(ptr %goal, ptr %from, i64 4096, i1 false)
  %up = getelementptr i8, ptr %s, i64 $SCREEN.undefined
  %u = load ptr, ptr %up
  %any = icmp ne ptr %u, null
  br i1 %any, label %shadow, label %told
shadow:
  %ua = getelementptr i8, ptr %u, i64 %off
  %dp = getelementptr i8, ptr %s, i64 $SCREEN.defined
  %d = load ptr, ptr %dp
  %dq = getelementptr i8, ptr %d, i64 %page
  %dv = load i8, ptr %dq
  %known = icmp eq i8 %dv, 1
  br i1 %known, label %told, label %scan
scan:
  %some = call i64 @nothing_undefined(ptr %ua, i64 4096)
  %whole = icmp eq i64 %some, 0
  br i1 %whole, label %whole_page, label %part
whole_page:
  store i8 1, ptr %dq
  br label %told
part:
  %ugoal = getelementptr i8, ptr %goal, i64 4096
  call void @llvm.memcpy.p0.p0.i64(ptr %ugoal, ptr %ua, i64 4096, i1 false)
  br label %told
told:
  %state = phi i8 [ 2, %copy ], [ 3, %shadow ], [ 3, %whole_page ], [ 2, %part ]
  store atomic i8 %state, ptr %p release, align 1
  br label %good
good:
  ret i64 0
}
define internal i64 @range_st_global(i64 %a, i64 %len, ptr %ctx) noinline {
entry:
  %sp = getelementptr i8, ptr %ctx, i64 $CTX.screen
  %s = load ptr, ptr %sp
  %base = load i64, ptr %s
  %off = sub i64 %a, %base
  %wp = getelementptr i8, ptr %s, i64 $SCREEN.watched
  %watched = load i64, ptr %wp
  %inside = icmp ult i64 %off, %watched
  br i1 %inside, label %pages, label %bad
pages:
  %mp = getelementptr i8, ptr %s, i64 $SCREEN.saved
  %saved = load ptr, ptr %mp
  %first = lshr i64 %off, 12
  %end0 = add i64 %off, %len
  %end1 = sub i64 %end0, 1
  %last = lshr i64 %end1, 12
  br label %page
page:
  %i = phi i64 [ %first, %pages ], [ %i1, %kept ]
  %ip = getelementptr i8, ptr %saved, i64 %i
  %is = load atomic i8, ptr %ip acquire, align 1
  %ready = icmp uge i8 %is, 2
  br i1 %ready, label %kept, label %keep
keep:
  %full = call i64 @save_page(ptr %s, i64 %i)
  %fine = icmp eq i64 %full, 0
  br i1 %fine, label %kept, label %bad
kept:
  %i1 = add i64 %i, 1
  %more = icmp ule i64 %i1, %last
  br i1 %more, label %page, label %races
races:
  %tp = getelementptr i8, ptr %s, i64 $SCREEN.stores
  %t = load ptr, ptr %tp
  %follows = icmp ne ptr %t, null
  br i1 %follows, label %mark, label %define
mark:
  %me = call i32 @screen_me(ptr %ctx, ptr %s)
  %mi = insertelement <16 x i32> poison, i32 %me, i64 0
  %mv = shufflevector <16 x i32> %mi, <16 x i32> poison, <16 x i32> zeroinitializer
  %d0 = lshr i64 %off, 2
  %d1 = lshr i64 %end1, 2
  %dend = add i64 %d1, 1
  br label %wide
wide:
  %d = phi i64 [ %d0, %mark ], [ %dn, %widen2 ]
  %dn = add i64 %d, 16
  %wfits = icmp ule i64 %dn, %dend
  br i1 %wfits, label %widen, label %word
widen:
  %vp = getelementptr i32, ptr %t, i64 %d
  %v = load <16 x i32>, ptr %vp, align 4
  %x = xor <16 x i32> %v, %mv
  %x1 = sub <16 x i32> %x, splat (i32 1)
  %foreign = icmp ult <16 x i32> %x1, splat (i32 16777215)
  %fb = bitcast <16 x i1> %foreign to i16
  %none = icmp eq i16 %fb, 0
  br i1 %none, label %widen2, label %bad
widen2:
  store <16 x i32> %mv, ptr %vp, align 4
  br label %wide
word:
  %e = phi i64 [ %d, %wide ], [ %en, %words2 ]
  %efits = icmp ult i64 %e, %dend
  br i1 %efits, label %words, label %define
words:
  %ep = getelementptr i32, ptr %t, i64 %e
  %ev = load i32, ptr %ep
  %ex = xor i32 %ev, %me
  %ex1 = sub i32 %ex, 1
  %eforeign = icmp ult i32 %ex1, 16777215
  br i1 %eforeign, label %bad, label %words2
words2:
  store i32 %me, ptr %ep
  %en = add i64 %e, 1
  br label %word
define:
  %up = getelementptr i8, ptr %s, i64 $SCREEN.undefined
  %u = load ptr, ptr %up
  %any = icmp ne ptr %u, null
  br i1 %any, label %whole, label %good
whole:
  %dp = getelementptr i8, ptr %s, i64 $SCREEN.defined
  %defined = load ptr, ptr %dp
  %dq = getelementptr i8, ptr %defined, i64 %first
  %dv = load i8, ptr %dq
  %dknown = icmp eq i8 %dv, 1
  %one_page = icmp eq i64 %first, %last
  %all = and i1 %dknown, %one_page
  br i1 %all, label %good, label %clear
clear:
  %ua = getelementptr i8, ptr %u, i64 %off
  call void @llvm.memset.p0.i64(ptr %ua, i8 0, i64 %len, i1 false)
  br label %good
good:
  ret i64 0
bad:
  ret i64 1
}
; LDS has two bytes a dword. In the first the bits of 15 are its bytes that nothing was stored to, 16 and 32 that another wave stored to it, and loaded it,
; since the last barrier; in the second 16 and 32 are this wave's.
define internal i64 @range_lds(i64 %a, i64 %len, ptr %ctx, i8 %wrong, i8 %does) noinline {
entry:
  %np = getelementptr i8, ptr %ctx, i64 $CTX.lds_bytes
  %size = load i64, ptr %np
  %end = add i64 %a, %len
  %over = icmp ugt i64 %end, %size
  br i1 %over, label %bad, label %begin
begin:
  %mp = getelementptr i8, ptr %ctx, i64 $CTX.screen_lds
  %map = load ptr, ptr %mp
  %op = getelementptr i8, ptr %ctx, i64 $CTX.screen_own
  %own = load ptr, ptr %op
  %stores = icmp eq i8 %does, 16
  %odd0 = or i64 %a, %len
  %odd = and i64 %odd0, 3
  %whole = icmp eq i64 %odd, 0
  %d0 = lshr i64 %a, 2
  %dend = lshr i64 %end, 2
  br i1 %whole, label %wide0, label %byte
wide0:
  %wi = insertelement <16 x i8> poison, i8 %wrong, i64 0
  %wv = shufflevector <16 x i8> %wi, <16 x i8> poison, <16 x i32> zeroinitializer
  %di = insertelement <16 x i8> poison, i8 %does, i64 0
  %dv = shufflevector <16 x i8> %di, <16 x i8> poison, <16 x i32> zeroinitializer
  br label %wide
wide:
  %d = phi i64 [ %d0, %wide0 ], [ %dn, %widened ]
  %dn = add i64 %d, 16
  %fits = icmp ule i64 %dn, %dend
  br i1 %fits, label %widen, label %word
widen:
  %p = getelementptr i8, ptr %map, i64 %d
  %v = load <16 x i8>, ptr %p, align 1
  %vw = and <16 x i8> %v, %wv
  %vb = bitcast <16 x i8> %vw to i128
  %vz = icmp eq i128 %vb, 0
  br i1 %vz, label %note, label %bad
note:
  %q = getelementptr i8, ptr %own, i64 %d
  %o = load <16 x i8>, ptr %q, align 1
  %o1 = or <16 x i8> %o, %dv
  store <16 x i8> %o1, ptr %q, align 1
  br i1 %stores, label %fill, label %widened
fill:
  store <16 x i8> zeroinitializer, ptr %p, align 1
  br label %widened
widened:
  br label %wide
word:
  %e = phi i64 [ %d, %wide ], [ %en, %worded ]
  %efits = icmp ult i64 %e, %dend
  br i1 %efits, label %words, label %good
words:
  %ep = getelementptr i8, ptr %map, i64 %e
  %ev = load i8, ptr %ep
  %ew = and i8 %ev, %wrong
  %ez = icmp eq i8 %ew, 0
  br i1 %ez, label %enote, label %bad
enote:
  %eq = getelementptr i8, ptr %own, i64 %e
  %eo = load i8, ptr %eq
  %eo1 = or i8 %eo, %does
  store i8 %eo1, ptr %eq
  br i1 %stores, label %efill, label %worded
efill:
  store i8 0, ptr %ep
  br label %worded
worded:
  %en = add i64 %e, 1
  br label %word
byte:
  %b = phi i64 [ %a, %begin ], [ %bn, %bdone ]
  %bfits = icmp ult i64 %b, %end
  br i1 %bfits, label %bytes, label %good
bytes:
  %bd = lshr i64 %b, 2
  %bp = getelementptr i8, ptr %map, i64 %bd
  %bv = load i8, ptr %bp
  %bk = trunc i64 %b to i8
  %bk3 = and i8 %bk, 3
  %bit = shl i8 1, %bk3
  %bs = or i8 %bit, 48
  %bm = and i8 %bs, %wrong
  %bw = and i8 %bv, %bm
  %bz = icmp eq i8 %bw, 0
  br i1 %bz, label %bnote, label %bad
bnote:
  %bq = getelementptr i8, ptr %own, i64 %bd
  %bo = load i8, ptr %bq
  %bo1 = or i8 %bo, %does
  store i8 %bo1, ptr %bq
  br i1 %stores, label %bfill, label %bdone
bfill:
  %keep = xor i8 %bit, -1
  %bv1 = and i8 %bv, %keep
  store i8 %bv1, ptr %bp
  br label %bdone
bdone:
  %bn = add i64 %b, 1
  br label %byte
good:
  ret i64 0
bad:
  ret i64 1
}
define internal i64 @range_ld_lds(i64 %a, i64 %len, ptr %ctx) alwaysinline {
  %r = call i64 @range_lds(i64 %a, i64 %len, ptr %ctx, i8 31, i8 32)
  ret i64 %r
}
define internal i64 @range_st_lds(i64 %a, i64 %len, ptr %ctx) alwaysinline {
  %r = call i64 @range_lds(i64 %a, i64 %len, ptr %ctx, i8 48, i8 16)
  ret i64 %r
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

;;; scattered
; Sixteen lanes of $size bytes of LDS wherever they are. 0: nothing to report; 1: something; 2: not looked at, as a lane is no whole dwords or past the end.
define internal i32 @scattered_${verb}_$size(ptr %at, ptr %map, ptr %own, i64 %lds_size) noinline {
entry:
  %v = load <16 x i32>, ptr %at, align 64
  %odd = and <16 x i32> %v, splat (i32 3)
  %odd1 = icmp ne <16 x i32> %odd, zeroinitializer
  %size = trunc i64 %lds_size to i32
  %room = icmp uge i32 %size, $size
  %last = sub i32 %size, $size
  %li = insertelement <16 x i32> poison, i32 %last, i64 0
  %lv = shufflevector <16 x i32> %li, <16 x i32> poison, <16 x i32> zeroinitializer
  %past = icmp ugt <16 x i32> %v, %lv
  %others0 = or <16 x i1> %odd1, %past
  %others1 = bitcast <16 x i1> %others0 to i16
  %others2 = icmp eq i16 %others1, 0
  %all = and i1 %others2, %room
  br i1 %all, label %lane, label %not
lane:
  %l = phi i64 [ 0, %entry ], [ %l1, %lane ]
  %found = phi i$bits [ 0, %entry ], [ %found1, %lane ]
  %ap = getelementptr i32, ptr %at, i64 %l
  %a = load i32, ptr %ap
  %d0 = lshr i32 %a, 2
  %d = zext i32 %d0 to i64
  %p = getelementptr i8, ptr %map, i64 %d
  %x = load i$bits, ptr %p, align 1
  %found1 = or i$bits %found, %x
$stored  %q = getelementptr i8, ptr %own, i64 %d
  %o = load i$bits, ptr %q, align 1
  %o1 = or i$bits %o, $does
  store i$bits %o1, ptr %q, align 1
  %l1 = add i64 %l, 1
  %more = icmp ult i64 %l1, 16
  br i1 %more, label %lane, label %end
end:
  %wrong0 = and i$bits %found1, $wrong
  %wrong = icmp ne i$bits %wrong0, 0
  %r = zext i1 %wrong to i32
  ret i32 %r
not:
  ret i32 2
}

;;; scattered_sizes
define internal i32 @scattered_$verb(ptr %at, i64 %nbytes, ptr %map, ptr %own, i64 %lds_size) alwaysinline {
entry:
  switch i64 %nbytes, label %not [ i64 4, label %four i64 8, label %eight i64 16, label %sixteen ]
four:
  %r4 = call i32 @scattered_${verb}_4(ptr %at, ptr %map, ptr %own, i64 %lds_size)
  ret i32 %r4
eight:
  %r8 = call i32 @scattered_${verb}_8(ptr %at, ptr %map, ptr %own, i64 %lds_size)
  ret i32 %r8
sixteen:
  %r16 = call i32 @scattered_${verb}_16(ptr %at, ptr %map, ptr %own, i64 %lds_size)
  ret i32 %r16
not:
  ret i32 2
}

;;; again
; Leaves the wave: under the full checks this launch may have something to report.
define internal i32 @screen_again(ptr %ctx, i32 %site) noinline cold {
  %p = getelementptr i8, ptr %ctx, i64 $CTX.status
  store i64 $SCREENED, ptr %p
  %q = getelementptr i8, ptr %ctx, i64 $CTX.site
  %s = zext i32 %site to i64
  store i64 %s, ptr %q
  ret i32 1
}

;;; scalar
define i32 @tec_screen_scalar_$w(i64 %a, i64 %len, ptr %ctx, i32 %site) {
  %r = call i64 @range_ld_global(i64 %a, i64 %len, ptr %ctx)
  %z = icmp eq i64 %r, 0
  br i1 %z, label %good, label %bad
good:
  ret i32 0
bad:
  %x = call i32 @screen_again(ptr %ctx, i32 %site)
  ret i32 %x
}

;;; access
; 0: nothing to report. 1: the full checks are to look. 2, of a store: nothing either, but for lanes that store to one place.
define i32 @tec_screen_${verb}_${space}_$w(<$w x $at> %addr, i$w %m, ptr %ctx, i32 %site, i64 %nbytes) noinline {
entry:
  %buf = alloca [2 x <$w x $at>], align 64
  store <$w x $at> %addr, ptr %buf
  %size = $size
  %ni = insertelement <16 x $at> poison, $at %size, i64 0
  %nv = shufflevector <16 x $at> %ni, <16 x $at> poison, <16 x i32> zeroinitializer
  %steps = mul <16 x $at> %nv, <$sixteen>
  %whole = shl i64 %nbytes, 4
  %a00 = extractelement <$w x $at> %addr, i64 0
$prepare  ; all lanes in one run
  %everyone = icmp eq i$w %m, -1
  %ali = insertelement <$w x $at> poison, $at %size, i64 0
  %alv = shufflevector <$w x $at> %ali, <$w x $at> poison, <$w x i32> zeroinitializer
  %along = mul <$w x $at> %alv, <$lanes>
  %a0i = insertelement <$w x $at> poison, $at %a00, i64 0
  %a0v = shufflevector <$w x $at> %a0i, <$w x $at> poison, <$w x i32> zeroinitializer
  %apart = sub <$w x $at> %addr, %a0v
  %unlike = icmp ne <$w x $at> %apart, %along
  %unlikeb = bitcast <$w x i1> %unlike to i$w
  %alike = icmp eq i$w %unlikeb, 0
  %row = and i1 %everyone, %alike
  br i1 %row, label %rowed, label %$otherwise
${block}columns:
  ; as a tile is stored transposed: lane %apart_by begins where lane 0 ends, each lane is so far from one that it meets, and all are that many runs
  %meeting = add $at %a00, %size
  %mi = insertelement <$w x $at> poison, $at %meeting, i64 0
  %mv = shufflevector <$w x $at> %mi, <$w x $at> poison, <$w x i32> zeroinitializer
  %meets = icmp eq <$w x $at> %addr, %mv
  %meetsb = bitcast <$w x i1> %meets to i$w
  %some = icmp ne i$w %meetsb, 0
  %columned = and i1 %everyone, %some
  br i1 %columned, label %columns_look, label %strip
columns_look:
  %apart_by = call i$w @llvm.cttz.i$w(i$w %meetsb, i1 true)
  %period = $widen_mask
  %later_p = getelementptr $at, ptr %buf, i64 %period
  %later = load <$w x $at>, ptr %later_p, align 4
  %between = sub <$w x $at> %later, %addr
  %parted = icmp ne <$w x $at> %between, %alv
  %partedb = bitcast <$w x i1> %parted to i$w
  %those = lshr i$w -1, %apart_by
  %wrongly = and i$w %partedb, %those
  %rightly = icmp eq i$w %wrongly, 0
  %lower = sub i64 %period, 1
  %shared = and i64 %period, %lower
  %divides_w = icmp eq i64 %shared, 0
  %in_columns = and i1 %rightly, %divides_w
  %height = udiv i64 $w, %period
  %column_bytes = mul i64 %height, %nbytes
  br i1 %in_columns, label %column, label %strip
column:
  %c = phi i64 [ 0, %columns_look ], [ %c1, %column_done ]
  %cp = getelementptr $at, ptr %buf, i64 %c
  %ca = load $at, ptr %cp
  %cw = $widen_column
  %cr = call i64 @range_${verb}_$space(i64 %cw, i64 %column_bytes, ptr %ctx)
  %cz = icmp eq i64 %cr, 0
  br i1 %cz, label %column_done, label %bad
column_done:
  %c1 = add i64 %c, 1
  %cmore = icmp ult i64 %c1, %period
  br i1 %cmore, label %column, label %leave
rowed:
  %begins = $begins
  %a00w = $widen_first
  %rowlen = mul i64 %nbytes, $w
  %rr = call i64 @range_${verb}_$space(i64 %a00w, i64 %rowlen, ptr %ctx)
  %rz = icmp eq i64 %rr, 0
  br i1 %rz, label %good, label %bad
good:
  ret i32 0
strip:
  %k = phi i64 $strips_begin, [ %k1, %stripped ]
  %sh = shl i64 %k, 4
  %shw = $shift
  %mk0 = lshr i$w %m, %shw
  %mk = trunc i$w %mk0 to i16
  %kp = getelementptr <16 x $at>, ptr %buf, i64 %k
  %ka = load <16 x $at>, ptr %kp, align 64
  %first = extractelement <16 x $at> %ka, i64 0
  %wide = $widen
  %fi = insertelement <16 x $at> poison, $at %first, i64 0
  %fv = shufflevector <16 x $at> %fi, <16 x $at> poison, <16 x i32> zeroinitializer
  %delta = sub <16 x $at> %ka, %fv
  %run0 = icmp ne <16 x $at> %delta, %steps
  %run1 = bitcast <16 x i1> %run0 to i16
  %on = icmp eq i16 %mk, -1
  %follow = icmp eq i16 %run1, 0
  %run = and i1 %on, %follow
  br i1 %run, label %together, label %same
together:
  %tr = call i64 @range_${verb}_$space(i64 %wide, i64 %whole, ptr %ctx)
  %tz = icmp eq i64 %tr, 0
  br i1 %tz, label %stripped, label %bad
same:
  %single0 = icmp ne <16 x $at> %delta, zeroinitializer
  %single1 = bitcast <16 x i1> %single0 to i16
  %single2 = icmp eq i16 %single1, 0
  %single = and i1 %on, %single2
  br i1 %single, label %place, label %lanes
place:
  %pr = call i64 @range_${verb}_$space(i64 %wide, i64 %nbytes, ptr %ctx)
  %pz = icmp eq i64 %pr, 0
  br i1 %pz, label %stripped, label %bad
lanes:
  ; lanes of which each begins where the one before ends are looked at together
  %next = shufflevector <16 x $at> %ka, <16 x $at> poison, <16 x i32> <i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 15>
  %pace = sub <16 x $at> %next, %ka
  %goes0 = icmp eq <16 x $at> %pace, %nv
  %goes1 = bitcast <16 x i1> %goes0 to i16
  %mk_next = lshr i16 %mk, 1
  %goes = and i16 %goes1, %mk_next
${scattered}  br label %run_of_lanes
run_of_lanes:
  %left = phi i16 [ %mk, %$by_runs ], [ %left1, %done ]
  %none = icmp eq i16 %left, 0
  br i1 %none, label %stripped, label %lane
lane:
  %low = call i16 @llvm.cttz.i16(i16 %left, i1 true)
  %goes_on = lshr i16 %goes, %low
  %ends = xor i16 %goes_on, -1
  %further = call i16 @llvm.cttz.i16(i16 %ends, i1 true)
  %final = add i16 %low, %further
  %behind = shl i16 -2, %final
  %left1 = and i16 %left, %behind
  %further64 = zext i16 %further to i64
  %count = add i64 %further64, 1
  %run_bytes = mul i64 %count, %nbytes
  %li = zext i16 %low to i64
  %lp = getelementptr $at, ptr %kp, i64 %li
  %la = load $at, ptr %lp
  %lw = $widen_lane
$quick  %lr = call i64 @range_${verb}_$space(i64 %lw, i64 %run_bytes, ptr %ctx)
  %lz = icmp eq i64 %lr, 0
  br i1 %lz, label %done, label %bad
done:
  br label %run_of_lanes
stripped:
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, $strips
  br i1 %more, label %strip, label %leave
leave:
  ret i32 $disorder
bad:
  %x = call i32 @screen_again(ptr %ctx, i32 %site)
  ret i32 %x
}

;;; prepare_ld_global
  %sp = getelementptr i8, ptr %ctx, i64 $CTX.screen
  %s = load ptr, ptr %sp
  %base = load i64, ptr %s
  %watched_p = getelementptr i8, ptr %s, i64 $SCREEN.watched
  %watched = load i64, ptr %watched_p
  %undefined_p = getelementptr i8, ptr %s, i64 $SCREEN.undefined
  %undefined = load ptr, ptr %undefined_p
  %no_init = icmp eq ptr %undefined, null
  %defined_p = getelementptr i8, ptr %s, i64 $SCREEN.defined
  %defined = load ptr, ptr %defined_p
  %loads_p = getelementptr i8, ptr %s, i64 $SCREEN.loads
  %loads = load ptr, ptr %loads_p
  %no_race = icmp eq ptr %loads, null
  %me = call i32 @screen_me(ptr %ctx, ptr %s)
  %several = or i32 %me, 16777215
  %one = alloca i8
  store i8 1, ptr %one
  %self = alloca i32
  store i32 %me, ptr %self

;;; quick_ld_global
  %qo = sub i64 %lw, %base
  %qe0 = add i64 %qo, %run_bytes
  %qe = sub i64 %qe0, 1
  %ql = lshr i64 %qo, 6
  %qm = lshr i64 %qe, 6
  %qone = icmp eq i64 %ql, %qm
  %qin = icmp ult i64 %qo, %watched
  %qok = and i1 %qone, %qin
  br i1 %qok, label %quick, label %slow
quick:
  %qp = lshr i64 %qo, 12
  %qd0 = getelementptr i8, ptr %defined, i64 %qp
  %qd = select i1 %no_init, ptr %one, ptr %qd0
  %qdv = load i8, ptr %qd
  %qdz = icmp eq i8 %qdv, 1
  %qr0 = getelementptr i32, ptr %loads, i64 %ql
  %qr = select i1 %no_race, ptr %self, ptr %qr0
  %qrv = load i32, ptr %qr
  %qmine = icmp eq i32 %qrv, %me
  %qall = icmp eq i32 %qrv, %several
  %qknown = or i1 %qmine, %qall
  %qgood = and i1 %qknown, %qdz
  br i1 %qgood, label %done, label %slow
slow:

;;; prepare_lds
  %lds_size_p = getelementptr i8, ptr %ctx, i64 $CTX.lds_bytes
  %lds_size = load i64, ptr %lds_size_p
  %map_p = getelementptr i8, ptr %ctx, i64 $CTX.screen_lds
  %map = load ptr, ptr %map_p
  %own_p = getelementptr i8, ptr %ctx, i64 $CTX.screen_own
  %own = load ptr, ptr %own_p

;;; quick_lds
  ; up to eight whole dwords by one look
  %qodd0 = or i64 %lw, %run_bytes
  %qodd = and i64 %qodd0, 3
  %qwhole = icmp eq i64 %qodd, 0
  %qe = add i64 %lw, %run_bytes
  %qin = icmp ule i64 %qe, %lds_size
  %qshort = icmp ule i64 %run_bytes, 32
  %qok0 = and i1 %qwhole, %qin
  %qok = and i1 %qok0, %qshort
  br i1 %qok, label %quick, label %slow
quick:
  %qbits = shl i64 %run_bytes, 1
  %qunused = sub i64 64, %qbits
  %touched = lshr i64 -1, %qunused
  %wrong = and i64 %touched, $wrong
  %does = and i64 %touched, $does
  %qd = lshr i64 %lw, 2
  %qp = getelementptr i8, ptr %map, i64 %qd
  %qv = load i64, ptr %qp, align 1
  %qw = and i64 %qv, %wrong
  %qz = icmp eq i64 %qw, 0
  br i1 %qz, label %fine, label %bad
fine:
  %qq = getelementptr i8, ptr %own, i64 %qd
  %qo = load i64, ptr %qq, align 1
  %qo1 = or i64 %qo, %does
  store i64 %qo1, ptr %qq, align 1
$stored  br label %$then
slow:

;;; scattered_look
  br i1 %on, label %scattered, label %$by_runs
scattered:
  %scattered_r = call i32 @scattered_$verb(ptr $at, i64 %nbytes, ptr %map, ptr %own, i64 %lds_size)
  switch i32 %scattered_r, label %$by_runs [ i32 0, label %$fine i32 1, label %bad ]
$by_runs:
;;; block
; A block that the lanes fill without a gap, in any order: rows of a tile of which each is turned by another number.
block:
  %lowest = call i32 @llvm.vector.reduce.umin.v${w}i32(<$w x i32> %addr)
  %lowest_i = insertelement <$w x i32> poison, i32 %lowest, i64 0
  %lowest_v = shufflevector <$w x i32> %lowest_i, <$w x i32> poison, <$w x i32> zeroinitializer
  %in_block = sub <$w x i32> %addr, %lowest_v
  %power = call i32 @llvm.cttz.i32(i32 %size, i1 false)
  %power_i = insertelement <$w x i32> poison, i32 %power, i64 0
  %power_v = shufflevector <$w x i32> %power_i, <$w x i32> poison, <$w x i32> zeroinitializer
  ; with the low bits above, so that an address between two places is none of the block's
  %slots = call <$w x i32> @llvm.fshr.v${w}i32(<$w x i32> %in_block, <$w x i32> %in_block, <$w x i32> %power_v)
  %outside = icmp uge <$w x i32> %slots, splat (i32 $w)
  %outside_b = bitcast <$w x i1> %outside to i$w
  %inside = icmp eq i$w %outside_b, 0
  %powers = call i32 @llvm.ctpop.i32(i32 %size)
  %divides = icmp eq i32 %powers, 1
  %maybe0 = and i1 %everyone, %inside
  %maybe = and i1 %maybe0, %divides
  br i1 %maybe, label %fill_block, label %columns
fill_block:
  %slots_w = $widen_slots
  %ones = shl <$w x i$w> splat (i$w 1), %slots_w
  %taken = call i$w @llvm.vector.reduce.or.v${w}i$w(<$w x i$w> %ones)
  %full = icmp eq i$w %taken, -1
  br i1 %full, label %rowed, label %columns

;;; stored_lds
  %qkeep = xor i64 %touched, -1
  %qv1 = and i64 %qv, %qkeep
  store i64 %qv1, ptr %qp, align 1

;;; scratch
define i32 @tec_screen_${verb}_scratch_$w(<$w x i32> %addr, i$w %m, ptr %ctx, i32 %site, i64 %nbytes) {
entry:
  %none = icmp eq i$w %m, 0
  br i1 %none, label %good, label %bad
good:
  ret i32 0
bad:
  %x = call i32 @screen_again(ptr %ctx, i32 %site)
  ret i32 %x
}

;;; strip
; A load of LDS in a loop over strips: 16 lanes' addresses, those that are on, bytes a lane.
define i1 @tec_screen_strip(<16 x i32> %addr, i16 %m, ptr %ctx, i64 %nbytes) noinline {
entry:
  %buf = alloca <16 x i32>, align 64
  store <16 x i32> %addr, ptr %buf
  %size = trunc i64 %nbytes to i32
  %ni = insertelement <16 x i32> poison, i32 %size, i64 0
  %nv = shufflevector <16 x i32> %ni, <16 x i32> poison, <16 x i32> zeroinitializer
  %next = shufflevector <16 x i32> %addr, <16 x i32> poison, <16 x i32> <i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 15>
  %pace = sub <16 x i32> %next, %addr
  %goes0 = icmp eq <16 x i32> %pace, %nv
  %goes1 = bitcast <16 x i1> %goes0 to i16
  %m_next = lshr i16 %m, 1
  %goes = and i16 %goes1, %m_next
$prepare  %on = icmp eq i16 %m, -1
${scattered}  br label %lanes
lanes:
  %left = phi i16 [ %m, %$by_runs ], [ %left1, %fine ], [ %left1, %slow ]
  %none = icmp eq i16 %left, 0
  br i1 %none, label %good, label %lane
lane:
  %low = call i16 @llvm.cttz.i16(i16 %left, i1 true)
  %goes_on = lshr i16 %goes, %low
  %ends = xor i16 %goes_on, -1
  %further = call i16 @llvm.cttz.i16(i16 %ends, i1 true)
  %final = add i16 %low, %further
  %behind = shl i16 -2, %final
  %left1 = and i16 %left, %behind
  %further64 = zext i16 %further to i64
  %count = add i64 %further64, 1
  %run_bytes = mul i64 %count, %nbytes
  %li = zext i16 %low to i64
  %lp = getelementptr i32, ptr %buf, i64 %li
  %la = load i32, ptr %lp
  %lw = zext i32 %la to i64
$quick  %lr = call i64 @range_ld_lds(i64 %lw, i64 %run_bytes, ptr %ctx)
  %lz = icmp eq i64 %lr, 0
  br i1 %lz, label %lanes, label %bad
good:
  ret i1 true
bad:
  %x = call i32 @screen_again(ptr %ctx, i32 0)
  ret i1 false
}

;;; turn
; Another wave's turn: what the last one did becomes another wave's doing.
define internal void @tec_screen_turn(ptr %map, ptr %own, i64 %bytes) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp ult i64 %i, %bytes
  br i1 %more, label %step, label %done
step:
  %p = getelementptr i8, ptr %map, i64 %i
  %q = getelementptr i8, ptr %own, i64 %i
  %v = load <64 x i8>, ptr %p, align 64
  %o = load <64 x i8>, ptr %q, align 64
  %n = or <64 x i8> %v, %o
  store <64 x i8> %n, ptr %p, align 64
  store <64 x i8> zeroinitializer, ptr %q, align 64
  %i1 = add i64 %i, 64
  br label %loop
done:
  ret void
}
; Behind a barrier nothing is known of any wave.
define internal void @tec_screen_barrier(ptr %map, i64 %bytes) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp ult i64 %i, %bytes
  br i1 %more, label %step, label %done
step:
  %p = getelementptr i8, ptr %map, i64 %i
  %v = load <64 x i8>, ptr %p, align 64
  %n = and <64 x i8> %v, splat (i8 15)
  store <64 x i8> %n, ptr %p, align 64
  %i1 = add i64 %i, 64
  br label %loop
done:
  ret void
}

;;; declares
declare i16 @llvm.cttz.i16(i16, i1)
declare i32 @llvm.cttz.i32(i32, i1)
declare i$w @llvm.cttz.i$w(i$w, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.vector.reduce.umin.v${w}i32(<$w x i32>)
declare <$w x i32> @llvm.fshr.v${w}i32(<$w x i32>, <$w x i32>, <$w x i32>)
declare i$w @llvm.vector.reduce.or.v${w}i$w(<$w x i$w>)
