;;; put
  %has_$place = icmp sge i64 %$place, 0
  br i1 %has_$place, label %put_$place, label %past_$place
put_$place:
  %${place}_at = getelementptr i32, ptr %st, i64 %$place
  %${place}_v = trunc i64 $value to i32
  store i32 %${place}_v, ptr %${place}_at
  br label %past_$place
past_$place:

;;; run
define i32 @tec_run(ptr %ctx, ptr %fn, ptr %params) {
entry:
$fields$ctx$shadow
  %next_p = getelementptr i8, ptr %params, i64 $PARAMS.next
  %done_p = getelementptr i8, ptr %params, i64 $PARAMS.groups_done
  %wave_p = getelementptr i8, ptr %ctx, i64 $CTX.wave
  %group_p = getelementptr i8, ptr %ctx, i64 $CTX.group
  %gx_p = getelementptr i8, ptr %ctx, i64 $CTX.group_x
  %gy_p = getelementptr i8, ptr %ctx, i64 $CTX.group_y
  %gz_p = getelementptr i8, ptr %ctx, i64 $CTX.group_z
  %budget_p = getelementptr i8, ptr %ctx, i64 $CTX.budget
  %scratch_p = getelementptr i8, ptr %ctx, i64 $CTX.scratch
  %seen_p = getelementptr i8, ptr %ctx, i64 $CTX.race_seen
  %meets = icmp ne ptr %barrier_sites, null
  %fill = trunc i64 %screen_fill to i8
  %lane_bytes = mul i64 %lanes, 4
  %vbytes = mul i64 %vgpr_count, %lane_bytes
  br label %group_loop
group_loop:
  %stopped = load volatile i32, ptr %stop
  %isstop = icmp ne i32 %stopped, 0
  br i1 %isstop, label %finished, label %take
take:
  %turn = atomicrmw add ptr %next_p, i64 1 monotonic
  %more = icmp ult i64 %turn, %total
  br i1 %more, label %setup, label %finished
finished:
  ret i32 0
setup:
  ; the number of the work-group that begins after %turn others
  %turned = mul i64 %turn, %group_step
  %drawn = add i64 %turned, %group_first
  %g = urem i64 %drawn, %total
  store i64 %g, ptr %group_p
  store i64 %budget, ptr %budget_p
  %gx = urem i64 %g, %grid_x
  %gyz = udiv i64 %g, %grid_x
  %gy = urem i64 %gyz, %grid_y
  %gz = udiv i64 %gyz, %grid_y
  store i64 %gx, ptr %gx_p
  store i64 %gy, ptr %gy_p
  store i64 %gz, ptr %gz_p
  call void @llvm.memset.p0.i64(ptr %lds, i8 -1, i64 %lds_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %ulds, i8 -1, i64 %ulds_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %uscratch_all, i8 -1, i64 %uscratch_total, i1 false)
  call void @llvm.memset.p0.i64(ptr %lds_stores, i8 0, i64 %race_bytes, i1 false)
  %epoch_p = getelementptr i8, ptr %ctx, i64 $CTX.epoch
  store i64 0, ptr %epoch_p
  store ptr null, ptr %seen_p
  call void @llvm.memset.p0.i64(ptr %fills, i8 0, i64 %fills_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %screen_lds, i8 %fill, i64 %screen_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %screen_own, i8 0, i64 %screen_bytes, i1 false)
  br label %wave_setup
wave_setup:
  %w = phi i64 [ 0, %setup ], [ %w1, %wave_next ]
  %so = mul i64 %w, %state_bytes
  %st = getelementptr i8, ptr %states, i64 %so
  call void @llvm.memcpy.p0.p0.i64(ptr %st, ptr %sgprs, i64 512, i1 false)
  %zero_p = getelementptr i8, ptr %st, i64 512
  call void @llvm.memset.p0.i64(ptr %zero_p, i8 0, i64 64, i1 false)
  %first_p = getelementptr i8, ptr %st, i64 $STATE_RESUME
  store i32 0, ptr %first_p
  %ep = getelementptr i64, ptr %exec, i64 %w
  %ev = load i64, ptr %ep
  %est = getelementptr i8, ptr %st, i64 504
  store i64 %ev, ptr %est
  %lst = getelementptr i8, ptr %st, i64 $STATE_LANES
  store i64 %ev, ptr %lst
  %vst = getelementptr i8, ptr %st, i64 $STATE_VGPRS
  %vo = mul i64 %w, %vbytes
  %vsrc = getelementptr i8, ptr %vgprs, i64 %vo
  call void @llvm.memcpy.p0.p0.i64(ptr %vst, ptr %vsrc, i64 %vbytes, i1 false)
  %half = sub i64 %state_bytes, %template_bytes
  %ust = getelementptr i8, ptr %st, i64 %half
  call void @llvm.memcpy.p0.p0.i64(ptr %ust, ptr %template, i64 %template_bytes, i1 false)
  $put_place_x$put_place_y$put_place_z
  %tt = icmp ne i64 %ttmp_mode, 0
  br i1 %tt, label %ttmp, label %wave_next
ttmp:
  %t9 = getelementptr i8, ptr %st, i64 $ttmp9_at
  %t9v = trunc i64 %gx to i32
  store i32 %t9v, ptr %t9
  %t7 = getelementptr i8, ptr %st, i64 $ttmp7_at
  %gzs = shl i64 %gz, 16
  %gyz16 = or i64 %gzs, %gy
  %t7v = trunc i64 %gyz16 to i32
  store i32 %t7v, ptr %t7
  %t8 = getelementptr i8, ptr %st, i64 $ttmp8_at
  %w32 = trunc i64 %w to i32
  %t8v = shl i32 %w32, 25
  store i32 %t8v, ptr %t8
  br label %wave_next
wave_next:
  %w1 = add i64 %w, 1
  %wmore = icmp ult i64 %w1, %waves
  br i1 %wmore, label %wave_setup, label %rounds
rounds:
  br label %round
round:
  br label %pass
pass:
  ; again the waves that gave way to the others, as often as any does
  %first = phi i1 [ true, %round ], [ false, %passed ]
  %place_was = phi i32 [ 0, %round ], [ %place1, %passed ]
  %gone_was = phi i64 [ -1, %round ], [ %gone1, %passed ]
  br label %step
step:
  %i = phi i64 [ 0, %pass ], [ %i1, %stepped ]
  %alive = phi i64 [ 0, %pass ], [ %alive1, %stepped ]
  %place = phi i32 [ %place_was, %pass ], [ %place1, %stepped ]
  %gone = phi i64 [ %gone_was, %pass ], [ %gone1, %stepped ]
  %ways = phi i32 [ 0, %pass ], [ %ways1, %stepped ]
  %io = mul i64 %i, %state_bytes
  %ist = getelementptr i8, ptr %states, i64 %io
  %rp = getelementptr i8, ptr %ist, i64 $STATE_RESUME
  %res = load i32, ptr %rp
  %ended = icmp slt i32 %res, 0
  %there = xor i1 %ended, true
  %there64 = zext i1 %there to i64
  %gave = and i32 %res, $GAVE_WAY
  %waits = icmp ne i32 %gave, 0
  %turn_now = or i1 %first, %waits
  %runs = and i1 %there, %turn_now
  br i1 %runs, label %call, label %stepped
call:
  %from = and i32 %res, $RESUME_MASK
  store i64 %i, ptr %wave_p
  %sco = mul i64 %i, %scratch_stride
  %scp = getelementptr i8, ptr %scratch_all, i64 %sco
  store ptr %scp, ptr %scratch_p
  %uscp = getelementptr i8, ptr %uscratch_all, i64 %sco
  %uscratch_p = getelementptr i8, ptr %ctx, i64 $shadow_scratch
  store ptr %uscp, ptr %uscratch_p
  %me_p = getelementptr i8, ptr %ctx, i64 $CTX.race_me
  %ep_now = load i64, ptr %epoch_p
$me_of  store i64 %me, ptr %me_p
  ; what the wave's waits had covered when it began this round, which it may begin again after it gave way
  %round_p = getelementptr i8, ptr %ist, i64 $STATE_ROUND
  %round_was = load i32, ptr %round_p
  %ep_one = add i64 %ep_now, 1
  %round_is = trunc i64 %ep_one to i32
  %goes_on = icmp eq i32 %round_was, %round_is
  %covered_p = getelementptr i8, ptr %ist, i64 $STATE_COVERED
  %covered = load i32, ptr %covered_p
  %before_p = getelementptr i8, ptr %ist, i64 $STATE_COVERED_BEFORE
  %before_was = load i32, ptr %before_p
  %before_is = select i1 %goes_on, i32 %before_was, i32 %covered
  store i32 %before_is, ptr %before_p
  store i32 %round_is, ptr %round_p
  %r = call i32 %fn(ptr %ist, ptr %ctx, i32 %from)
  %fault = icmp slt i32 %r, 0
  br i1 %fault, label %faulted, label %fine
faulted:
  ret i32 %r
fine:
  call void @tec_screen_turn(ptr %screen_lds, ptr %screen_own, i64 %screen_turns)
  %isend = icmp eq i32 %r, 0
  %rn = select i1 %isend, i32 -1, i32 %r
  store i32 %rn, ptr %rp
  %live = zext i1 %isend to i64
  %live1 = xor i64 %live, 1
  ; the first barrier of this round, and a wave that ended in it after it had done something
  %wkp = getelementptr i8, ptr %ist, i64 $STATE_WORKED
  %wk = load i32, ptr %wkp
  %did = icmp ne i32 %wk, 0
  %sgp = getelementptr i8, ptr %ist, i64 $STATE_SIGNALLED
  %sg = load i32, ptr %sgp
  %quiet = icmp eq i32 %sg, 0
  %left0 = and i1 %isend, %did
  %left = and i1 %left0, %quiet
  %gone2 = select i1 %left, i64 %i, i64 %gone
  %nowhere0 = icmp eq i32 %place, 0
  %gives = and i32 %r, $GAVE_WAY
  %comes = icmp eq i32 %gives, 0
  %nowhere = and i1 %nowhere0, %comes
  %place2 = select i1 %nowhere, i32 %r, i32 %place
  %other0 = icmp ne i32 %r, %place2
  %other = and i1 %other0, %comes
  %notend = xor i1 %isend, true
  %apart0 = and i1 %other, %notend
  %apart = and i1 %apart0, %meets
  br i1 %apart, label %diverged, label %stepped
diverged:
  call i32 @tec_meet(ptr %ctx, ptr %barrier_sites, i32 %r, i32 %place, i64 %i)
  ret i32 -1
stepped:
  %plus = phi i64 [ %there64, %step ], [ %live1, %fine ]
  %way = phi i32 [ 0, %step ], [ %gives, %fine ]
  %place1 = phi i32 [ %place, %step ], [ %place2, %fine ]
  %gone1 = phi i64 [ %gone, %step ], [ %gone2, %fine ]
  %ways1 = or i32 %ways, %way
  %alive1 = add i64 %alive, %plus
  %i1 = add i64 %i, 1
  %imore = icmp ult i64 %i1, %waves
  br i1 %imore, label %step, label %passed
passed:
  %someone = icmp ne i32 %ways1, 0
  br i1 %someone, label %pass, label %round_end
round_end:
  call void @tec_screen_barrier(ptr %screen_lds, i64 %screen_turns)
  %ep0 = load i64, ptr %epoch_p
  %ep1 = add i64 %ep0, 1
  store i64 %ep1, ptr %epoch_p
  %any = icmp ne i64 %alive1, 0
  %without = icmp sge i64 %gone1, 0
  %skips0 = and i1 %any, %without
  %skips = and i1 %skips0, %meets
  br i1 %skips, label %skipped, label %again
skipped:
  call i32 @tec_meet(ptr %ctx, ptr %barrier_sites, i32 %place1, i32 0, i64 %gone1)
  ret i32 -1
again:
  br i1 %any, label %round, label %group_done
group_done:
  %dn = atomicrmw add ptr %done_p, i64 1 monotonic
  br label %group_loop
}
define internal i32 @tec_meet(ptr %ctx, ptr %sites, i32 %here, i32 %there, i64 %wave) noinline cold {
  %wp = getelementptr i8, ptr %ctx, i64 $CTX.wave
  store i64 %wave, ptr %wp
  %tp = getelementptr i32, ptr %sites, i32 %there
  %t = load i32, ptr %tp
  %t1 = add i32 %t, 1
  %none = icmp eq i32 %there, 0
  %other = select i1 %none, i32 0, i32 %t1
  %o64 = zext i32 %other to i64
  %op = getelementptr i8, ptr %ctx, i64 $CTX.other_site
  store i64 %o64, ptr %op
  %hp = getelementptr i32, ptr %sites, i32 %here
  %h = load i32, ptr %hp
  %rc = call i32 @tec_fault(ptr %ctx, i64 11, i32 %h, i64 0, i64 0)
  ret i32 %rc
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

;;; message
; A message to the host: take the requests that wait and hand them on (`hostcalls`).
define i32 @tec_message(ptr %ctx, i32 %site) noinline {
entry:
  %p = getelementptr i8, ptr %ctx, i64 $CTX.messages
  %entries = load ptr, ptr %p
  %nobody = icmp eq ptr %entries, null
  br i1 %nobody, label %leave, label %tell
tell:
  %call = load ptr, ptr %entries
  %at_p = getelementptr i64, ptr %entries, i64 1
  %at = load ptr, ptr %at_p
  %waiting = atomicrmw xchg ptr %at, i64 0 seq_cst
  %bad = call i32 %call(ptr %ctx, i64 %waiting)
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %leave, label %fault
fault:
  %rc = call i32 @tec_fault(ptr %ctx, i64 23, i32 %site, i64 0, i64 0)
  ret i32 %rc
leave:
  ret i32 0
}

;;; gws
; ds_gws_barrier: one wave of each work-group comes; the last of %more + 1 lets all go on. Work-groups are threads of the host here.
define i32 @tec_gws_barrier(ptr %ctx, i32 %id, i32 %more, i32 %site) noinline {
entry:
  %alone = icmp eq i32 %more, 0
  br i1 %alone, label %leave, label %together
together:
  %gp = getelementptr i8, ptr %ctx, i64 $CTX.gws
  %g = load ptr, ptr %gp
  %none = icmp eq ptr %g, null
  br i1 %none, label %apart, label %come
apart:
  %rc = call i32 @tec_fault(ptr %ctx, i64 24, i32 %site, i64 0, i64 0)
  ret i32 %rc
come:
  %i = zext i32 %id to i64
  %at = mul i64 %i, 16
  %count = getelementptr i8, ptr %g, i64 %at
  %turn = getelementptr i8, ptr %count, i64 8
  %before = load atomic i64, ptr %turn seq_cst, align 8
  %n = atomicrmw add ptr %count, i64 1 seq_cst
  %last = zext i32 %more to i64
  %all = icmp uge i64 %n, %last
  br i1 %all, label %open, label %sp
open:
  store atomic i64 0, ptr %count seq_cst, align 8
  %t = atomicrmw add ptr %turn, i64 1 seq_cst
  br label %leave
sp:
  %stp = getelementptr i8, ptr %ctx, i64 $CTX.stop
  %stop = load ptr, ptr %stp
  br label %wait
wait:
  %now = load atomic i64, ptr %turn seq_cst, align 8
  %gone = icmp ne i64 %now, %before
  br i1 %gone, label %leave, label %look
look:
  %s = load volatile i32, ptr %stop
  %stopped = icmp ne i32 %s, 0
  br i1 %stopped, label %halt, label %pause
pause:
  %y = call i32 @sched_yield()
  br label %wait
halt:
  %hc = call i32 @tec_fault(ptr %ctx, i64 7, i32 %site, i64 0, i64 0)
  ret i32 %hc
leave:
  ret i32 0
}
declare i32 @sched_yield()
