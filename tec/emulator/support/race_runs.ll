;;; runs
$splats  br label %gnext
gnext:
  %g = phi i64 [ 0, %entry ], [ %g1, %gdone ]
  %grest = phi i$w [ $lanes, %entry ], [ %grest1, %gdone ]
  %gsh64 = shl i64 %g, 4
  %gsh = $shift
  %gm = lshr i$w %grest, %gsh
  %gm16 = trunc i$w %gm to i16
  %gall = icmp eq i16 %gm16, -1
  br i1 %gall, label %glook, label %gskip
glook:
  %gap = getelementptr $at, ptr %buf, i64 %gsh64
  %ga = load <16 x $at>, ptr %gap, align $align
  %gf = load $at, ptr %gap
  %gfi = insertelement <16 x $at> poison, $at %gf, i64 0
  %gfv = shufflevector <16 x $at> %gfi, <16 x $at> poison, <16 x i32> zeroinitializer
  %gd = sub <16 x $at> %ga, %gfv
  %gr = icmp eq <16 x $at> %gd, <$steps>
  %grb = bitcast <16 x i1> %gr to i16
  %grun = icmp eq i16 %grb, -1
  %gfz = $wide_first
  %goff = sub i64 %gfz, $base
  %glow = and i64 %goff, 3
  %geven = icmp eq i64 %glow, 0
  %gend0 = add i64 %goff, $run_bytes
  %gfits0 = icmp ule i64 %gend0, $end
  %gfits1 = icmp ult i64 %goff, $end
  %gfits = and i1 %gfits0, %gfits1
  %gok0 = and i1 %grun, %geven
  %gok = and i1 %gok0, %gfits
  br i1 %gok, label %$begin, label %$otherwise
$one_place${records}gran:
  %gwhole = shl i$w 65535, %gsh
  %gwholen = xor i$w %gwhole, -1
  %gran1 = and i$w %grest, %gwholen
  br label %gdone
gskip:
  br label %gdone
gdone:
  %grest1 = phi i$w [ %gran1, %gran ], [ %grest, %gskip ]$from_gone
  %g1 = add i64 %g, 1
  %gover = icmp ult i64 %g1, $strips
  br i1 %gover, label %gnext, label %gend
gend:
  %rest = or i$w %grest1, 0

;;; one_place
gsame:
  %gs = icmp eq <16 x $at> %gd, zeroinitializer
  %gsb = bitcast <16 x i1> %gs to i16
  %gsall = icmp eq i16 %gsb, -1
  br i1 %gsall, label %gone, label %gskip
gone:
  %gfirst = shl i$w 65534, %gsh
  %gfirstn = xor i$w %gfirst, -1
  %gone1 = and i$w %grest, %gfirstn
  br label %gdone

;;; lines
$line  %gin = and i64 %goff, 63
  %gwholes = icmp eq i64 %gin, 0
  %glv = load <$n x i8>, ptr %glp, align 1
  %gtag_i = insertelement <$n x i8> poison, i8 %tag, i64 0
  %gtag = shufflevector <$n x i8> %gtag_i, <$n x i8> poison, <$n x i32> zeroinitializer
  %gln = icmp ne <$n x i8> %glv, %gtag
  %glb = bitcast <$n x i1> %gln to i$n
  %gla = icmp eq i$n %glb, 0
  %gskips = and i1 %gla, %gwholes
  br i1 %gskips, label %gran, label %gchunk
${records}gclose:
  %gcalm0 = xor i1 %gnews1, true
  %gcalm = and i1 %gcalm0, %gwholes
  br i1 %gcalm, label %gcloses, label %gran
gcloses:
$looks  br label %gran

;;; decide_load
  %gnr = select <$run x i1> %grs, $vt %gmesv, $vt %gmev
  %gnew = select <$run x i1> %gro, $vt %ganyv, $vt %gnr
  %grm = and $vt %grv, splat (i64 15)
  %grmp = icmp ne $vt %grm, splat (i64 15)
  %glossy = and <$run x i1> %grc, %grmp

;;; records
gchunk:
  %gc = phi i64 [ 0, %$before ], [ %gc1, %gmore ]
  %gnews = phi i1 [ false, %$before ], [ %gnews1, %gmore ]
  %gcd = shl i64 %gc, 5
  %gco = add i64 %goff, %gcd
  %gc2 = shl i64 %gco, 1
  %gwp = getelementptr i8, ptr %w0, i64 %gc2
  %grp = getelementptr i8, ptr %r0, i64 %gc2
  %gwv = load $vt, ptr %gwp, align 8
  %grv = load $vt, ptr %grp, align 8
$conflicts$decide  %gcand0 = or <$run x i1> %gwc, $more
  %gupd0 = icmp ne $vt $new, %g${record}v
  %gcand1 = bitcast <$run x i1> %gcand0 to i$run
  %gupd1 = bitcast <$run x i1> %gupd0 to i$run
  %gcand = icmp ne i$run %gcand1, 0
  %gupd = icmp ne i$run %gupd1, 0
  %glocked = xor i1 %held0, true
  %gwants = and i1 %gupd, %glocked
  %gleave = or i1 %gcand, %gwants
  %gnews1 = or i1 %gnews, %gupd
  br i1 %gleave, label %gskip, label %gstay
gstay:
  br i1 %gupd, label %gput, label %gmore
gput:
  store $vt $new, ptr %g${record}p, align 8
  %gsp = getelementptr i8, ptr %${record}s0, i64 %gco
  store <$run x i32> %gsitev, ptr %gsp, align 4
  br label %gmore
gmore:
  %gc1 = add i64 %gc, 1
  %gagain = icmp ult i64 %gc1, $chunks
  br i1 %gagain, label %gchunk, label %$after

;;; line
; A line of 64 bytes of global memory is done with when every load record of it says that several groups read it and no store record is of this launch:
; another load would change nothing. A byte for each line has the launch's number then. A store to the line takes it back.
define internal void @tec_race_line(i64 %at, ptr %w0, ptr %r0, ptr %lines, i64 %any) noinline {
  %o0 = and i64 %at, -64
  %o = shl i64 %o0, 1
  %wp = getelementptr i8, ptr %w0, i64 %o
  %rp = getelementptr i8, ptr %r0, i64 %o
  %wv = load <16 x i64>, ptr %wp, align 8
  %rv = load <16 x i64>, ptr %rp, align 8
  %anyi = insertelement <16 x i64> poison, i64 %any, i64 0
  %anyv = shufflevector <16 x i64> %anyi, <16 x i64> poison, <16 x i32> zeroinitializer
  %rn = icmp ne <16 x i64> %rv, %anyv
  %x = xor <16 x i64> %wv, %anyv
  %now = icmp ult <16 x i64> %x, splat (i64 $ONE_LAUNCH)
  %badv = or <16 x i1> %rn, %now
  %bad = bitcast <16 x i1> %badv to i16
  %good = icmp eq i16 %bad, 0
  br i1 %good, label %mark, label %leave
mark:
  %line = lshr i64 %at, 6
  %p = getelementptr i8, ptr %lines, i64 %line
  %tag64 = lshr i64 %any, $LAUNCH_SHIFT
  %tag = trunc i64 %tag64 to i8
  store i8 %tag, ptr %p
  fence seq_cst
  %again = load <16 x i64>, ptr %wp, align 8
  %xa = xor <16 x i64> %again, %anyv
  %nowa = icmp ult <16 x i64> %xa, splat (i64 $ONE_LAUNCH)
  %stored = bitcast <16 x i1> %nowa to i16
  %late = icmp ne i16 %stored, 0
  br i1 %late, label %undo, label %leave
undo:
  store i8 0, ptr %p
  br label %leave
leave:
  ret void
}

;;; turn
  %tc = shufflevector <$w x $at> %addr, <$w x $at> poison, <16 x i32> <$rows>
  %tf = shufflevector <$w x $at> %addr, <$w x $at> poison, <16 x i32> zeroinitializer
  %td = sub <16 x $at> %tc, %tf
  %te = icmp eq <16 x $at> %td, <$steps>
  %tb = bitcast <16 x i1> %te to i16
  %tall = icmp eq i16 %tb, -1
  %ton = icmp eq i$w %m, -1
  %turned = and i1 %tall, %ton
  %tt = shufflevector <$w x $at> %addr, <$w x $at> poison, <$w x i32> <$order>
  %taddr = select i1 %turned, <$w x $at> %tt, <$w x $at> %addr
  store <$w x $at> %taddr, ptr %buf

;;; alike
$text  %equal = icmp eq i16 %off$last_strip, 0
  %whole = icmp eq i$w %m, -1
  %enough = and i1 %equal, %whole
  %few = select i1 %enough, i$w 65535, i$w %m

;;; turned_back
  %lrow = and i64 %li, 15
  %lrows = mul i64 %lrow, $strips
  %lcolumn = lshr i64 %li, 4
  %lturned = add i64 %lrows, %lcolumn
  %lfault = select i1 %turned, i64 %lturned, i64 %li

;;; load_line
  %line = lshr i64 %off, 6
  %linep = getelementptr i8, ptr %lines, i64 %line
  %in = and i64 %off, 63
  %past = add i64 %in, $nbytes
  %one_line = icmp ule i64 %past, 64
  %known_line = load i8, ptr %linep
  %done_line = icmp eq i8 %known_line, %tag
  %skips = and i1 %one_line, %done_line
  br i1 %skips, label %next, label %look
look:

;;; store_line
  %writes = icmp ne i64 $stores, 0
  br i1 %writes, label %ends_lines, label %look
ends_lines:
  %line = lshr i64 %off, 6
  %linep = getelementptr i8, ptr %lines, i64 %line
  store i8 0, ptr %linep
  %end0 = add i64 %off, $nbytes
  %end1 = sub i64 %end0, 1
  %line2 = lshr i64 %end1, 6
  %linep2 = getelementptr i8, ptr %lines, i64 %line2
  store i8 0, ptr %linep2
  br label %look
look:

;;; close_line
; After a load that changed nothing: at the end of a line, which is read from its beginning, the whole of it may be done.
calm:
  %at_end = icmp eq i64 %past, 64
  br i1 %at_end, label %close, label %next
close:
  call void @tec_race_line(i64 %off, ptr %w0, ptr %r0, ptr %lines, i64 %any)
  br label %next
