;;; another
  %${name}s1 = and $ty %${name}y, $waves
  %${name}s2 = icmp ne $ty %${name}s1, $zero
  %${name}s3 = icmp ult $ty %${name}y, $epoch_one
  %${name}s = and $bools %${name}s2, %${name}s3

;;; conflict
  %${name}x = xor $ty $record, $me
  %${name}y = and $ty %${name}x, $id
$another
  %${name}o1 = sub $ty %${name}y, $group_one
  %${name}o = icmp ult $ty %${name}o1, $span
  %${name}c = or $bools %${name}s, %${name}o

;;; stale
  %${name}z0 = icmp uge i64 %${name}y, $ONE_LAUNCH
  %${name}z1 = icmp uge i64 %${name}y, $ONE_EPOCH
  %${name}z2 = icmp ult i64 %${name}y, $ONE_GROUP
  %${name}z3 = and i1 %${name}z1, %${name}z2
  %${name}z4 = and i1 %${name}z3, %lds
  %${name}z = or i1 %${name}z0, %${name}z4

;;; expand
  %${k}g = and i64 %${k}v, $GROUP_FIELD
  %${k}issplit0 = icmp eq i64 %${k}g, $SPLIT_GROUP
  %${k}notold = icmp ult i64 %${k}y, $ONE_LAUNCH
  %${k}issplit = and i1 %${k}issplit0, %${k}notold
  br i1 %${k}issplit, label %${k}_done, label %${k}_bytes
${k}_bytes:
  %${k}id = and i64 %${k}v, -16

;;; expand_byte
  %${k}m$b = and i64 %${k}v, $bit
  %${k}h$b = icmp ne i64 %${k}m$b, 0
  %${k}e$b = select i1 %${k}h$b, i64 %${k}id, i64 0
  %${k}p$b = getelementptr i64, ptr %${k}bd, i64 $b
  store i64 %${k}e$b, ptr %${k}p$b

;;; collapse_byte
  %${k}i$b = icmp eq i64 %${k}a$b, %${k}f
  %${k}j$b = icmp eq i64 %${k}a$b, 0
  %${k}k$b = or i1 %${k}i$b, %${k}j$b
  %${k}g$b = and i1 $agree, %${k}k$b
  %${k}t$b = select i1 %${k}j$b, i64 0, i64 $bit
  %${k}u$b = or i64 $mask, %${k}t$b

;;; slow
define internal i64 @tec_race_slow(ptr %w, ptr %r, ptr %wb, ptr %rb, i64 %sub, i64 %nbytes, i64 %me15, i64 %kind, i1 %lds, ptr %sitew, ptr %siter, i32 %site, ptr %ctx) noinline {
entry:
  %me = and i64 %me15, $ID
  %launch = and i64 %me, $LAUNCH_I64
  %split = or i64 %launch, $SPLIT_GROUP
  %any = or i64 %launch, $ANY_GROUP
  %meseveral = or i64 %me, $SEVERAL_WAVES
  %isload = icmp eq i64 %kind, 0
  %isatomic = icmp eq i64 %kind, 2
  %notload = xor i1 %isload, true
  %end = add i64 %sub, %nbytes
  br label %dword
dword:
  %i = phi i64 [ 0, %entry ], [ %i1, %dword_end ]
  %start = shl i64 %i, 2
  %lo0 = sub i64 %sub, %start
  %lo = call i64 @llvm.smax.i64(i64 %lo0, i64 0)
  %hi0 = sub i64 %end, %start
  %hi = call i64 @llvm.smin.i64(i64 %hi0, i64 4)
  %tom0 = shl i64 1, %hi
  %tom = sub i64 %tom0, 1
  %frm0 = shl i64 1, %lo
  %frm1 = sub i64 %frm0, 1
  %frm = xor i64 %frm1, -1
  %touch = and i64 %tom, %frm
  %wd = getelementptr i64, ptr %w, i64 %i
  %rd = getelementptr i64, ptr %r, i64 %i
  %wsd = getelementptr i32, ptr %sitew, i64 %i
  %rsd = getelementptr i32, ptr %siter, i64 %i
  %i4 = shl i64 %i, 2
  %wbd = getelementptr i64, ptr %wb, i64 %i4
  %rbd = getelementptr i64, ptr %rb, i64 %i4
  %wv = load i64, ptr %wd
  %rv = load i64, ptr %rd
$conflict_w$conflict_r$stale_w$stale_r
  ; nothing in the way and nothing to lose: one record of the dword is enough
  %clash = or i1 %wc, %rc
  %kv = select i1 %isload, i64 %rv, i64 %wv
  %ky = select i1 %isload, i64 %ry, i64 %wy
  %kz = select i1 %isload, i1 %rz, i1 %wz
  %same = icmp eq i64 %ky, 0
  %full = icmp eq i64 %touch, 15
  %free0 = or i1 %same, %kz
  %free = or i1 %free0, %full
  %fine = xor i1 %clash, true
  %quick = and i1 %free, %fine
  %kmask = and i64 %kv, 15
  %keep = select i1 %same, i64 %kmask, i64 0
  %bits = or i64 %keep, %touch
  ; an atomic after a plain store of one's own leaves that store to be seen, where it touches the same bytes only
  %kat = and i64 %kv, $ATOMIC
  %katb = icmp ne i64 %kat, 0
  %wasat0 = xor i1 %same, true
  %wasat = or i1 %wasat0, %katb
  %at = and i1 %isatomic, %wasat
  %atbit = select i1 %at, i64 $ATOMIC, i64 0
  %mixed0 = xor i1 %at, %katb
  %mixed1 = and i1 %mixed0, %same
  %mixed = and i1 %mixed1, %notload
  %pure = xor i1 %mixed, true
  %quick1 = and i1 %quick, %pure
  %qid = or i64 %me, %atbit
  %q = or i64 %qid, %bits
  br i1 %quick1, label %quickly, label %read
read:
  ; a load of bytes that several waves or groups are known to load changes nothing
  %rname = and i64 %rv, -16
  %rsev = icmp eq i64 %rname, %meseveral
  %rany = icmp eq i64 %rname, %any
  %rmany = or i1 %rsev, %rany
  %rhas0 = and i64 %rv, %touch
  %rhas = icmp eq i64 %rhas0, %touch
  %rknown0 = and i1 %rmany, %rhas
  %rknown1 = and i1 %rknown0, %isload
  %wfine = xor i1 %wc, true
  %rknown = and i1 %rknown1, %wfine
  br i1 %rknown, label %dword_end, label %expand
quickly:
  %kp = select i1 %isload, ptr %rd, ptr %wd
  store i64 %q, ptr %kp
  %ksp = select i1 %isload, ptr %rsd, ptr %wsd
  store i32 %site, ptr %ksp
  br label %dword_end
expand:
$expand_w$expand_r  br label %byte
byte:
  %b = phi i64 [ %lo, %r_done ], [ %b1, %byte_end ]
  %wp = getelementptr i64, ptr %wbd, i64 %b
  %rp = getelementptr i64, ptr %rbd, i64 %b
  %bw = load i64, ptr %wp
  %br = load i64, ptr %rp
$conflict_bw$conflict_br
  %bwat0 = and i64 %bw, $ATOMIC
  %bwat = icmp ne i64 %bwat0, 0
  %both = and i1 %bwat, %isatomic
  %alone = xor i1 %both, true
  %badw0 = and i1 %bwc, %alone
  %badr0 = and i1 %brc, %notload
  %bad0 = or i1 %badw0, %badr0
  br i1 %bad0, label %ask, label %note
ask:
  %wbefore = call i1 @tec_race_ordered(i64 %bw, ptr %ctx)
  %rbefore = call i1 @tec_race_ordered(i64 %br, ptr %ctx)
  %wafter = xor i1 %wbefore, true
  %rafter = xor i1 %rbefore, true
  %badw = and i1 %badw0, %wafter
  %badr = and i1 %badr0, %rafter
  %bad = or i1 %badw, %badr
  br i1 %bad, label %found, label %note
found:
  %osp = select i1 %badw, ptr %wsd, ptr %rsd
  %os0 = load i32, ptr %osp
  %os1 = add i32 %os0, 1
  %osplit = select i1 %badw, i1 %wissplit, i1 %rissplit  ; of a split dword the site may be another byte's
  %os = select i1 %osplit, i32 0, i32 %os1
  %os64 = zext i32 %os to i64
  %ositep = getelementptr i8, ptr %ctx, i64 $CTX.other_site
  store i64 %os64, ptr %ositep
  %fw = or i64 %bw, 2
  %fr = or i64 %br, 1
  %fx = select i1 %badw, i64 %fw, i64 %fr
  ret i64 %fx
note:
  %ordered = phi i1 [ false, %byte ], [ %wbefore, %ask ]
  %nsp = select i1 %isload, ptr %rsd, ptr %wsd
  store i32 %site, ptr %nsp
  br i1 %isload, label %note_load, label %note_store
note_load:
  %nl0 = select i1 %brs, i64 %meseveral, i64 %me
  %nl = select i1 %bro, i64 %any, i64 %nl0
  store i64 %nl, ptr %rp
  br label %byte_end
note_store:
  %unordered = xor i1 %ordered, true
  %bwsu = and i1 %bws, %unordered
  %bwou = and i1 %bwo, %unordered
  %ns0 = select i1 %bwsu, i64 %meseveral, i64 %me
  %ns1 = select i1 %bwou, i64 %any, i64 %ns0
  %mine = icmp eq i64 %bwy, 0
  %notmine = xor i1 %mine, true
  %ok1 = or i1 %notmine, %bwat
  %ok2 = and i1 %ok1, %isatomic
  %nbit = select i1 %ok2, i64 $ATOMIC, i64 0
  %ns = or i64 %ns1, %nbit
  store i64 %ns, ptr %wp
  br label %byte_end
byte_end:
  %b1 = add i64 %b, 1
  %bmore = icmp ult i64 %b1, %hi
  br i1 %bmore, label %byte, label %join
join:
$collapse_w$collapse_r  br label %dword_end
dword_end:
  %i1 = add i64 %i, 1
  %next = shl i64 %i1, 2
  %more = icmp ult i64 %next, %end
  br i1 %more, label %dword, label %done
done:
  ret i64 0
}
; Whether a record's access comes before this group's present one: the group knows a later time of its owner. What several groups
; loaded has no one owner: a group that has learned from others is not held to that.
define internal i1 @tec_race_ordered(i64 %rec, ptr %ctx) {
  %seen_p = getelementptr i8, ptr %ctx, i64 $CTX.race_seen
  %seen = load ptr, ptr %seen_p
  %waves_p = getelementptr i8, ptr %ctx, i64 $CTX.race_waves
  %waves = load i64, ptr %waves_p
  %none = icmp eq ptr %seen, null
  br i1 %none, label %no, label %look
look:
  %g0 = lshr i64 %rec, $GROUP_SHIFT
  %g = and i64 %g0, $GROUP_MASK
  %many = icmp uge i64 %g, $SPLIT
  br i1 %many, label %yes, label %one
one:
  %w0 = lshr i64 %rec, $WAVE_SHIFT
  %w1 = and i64 %w0, 63
  %several = icmp eq i64 %w1, $SEVERAL
  %w = select i1 %several, i64 0, i64 %w1
  %g1 = sub i64 %g, 1
  %row = mul i64 %g1, %waves
  %at = add i64 %row, %w
  %p = getelementptr i32, ptr %seen, i64 %at
  %known32 = load i32, ptr %p
  %known = zext i32 %known32 to i64
  %t0 = lshr i64 %rec, $TICK_SHIFT
  %time = and i64 %t0, $TIME_MASK
  %later = icmp ugt i64 %known, %time
  %same = icmp eq i64 %known, %time
  %tick = and i64 %time, $TICK_MASK
  %full = icmp eq i64 %tick, $TICK_MASK
  %over = and i1 %same, %full
  %r = or i1 %later, %over
  ret i1 %r
yes:
  ret i1 true
no:
  ret i1 false
}
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
