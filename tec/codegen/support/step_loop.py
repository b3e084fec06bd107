"""The loop over a plan's steps, written as LLVM IR text; part of the object that `pool` makes.

    int64 tec_run_steps(const Step* steps, int64 n)     Step: {int32 (*code)(void** buffers, int64* scalars), void** buffers, int64* scalars}
    int32 tec_copy_bytes(void** buffers, int64* scalars) a step of a plan that copies: scalars[0] bytes from buffers[1] to buffers[0]

    int64 tec_run_trips(Loop* loop)                      steps again and again
        Loop: {Step* steps, int64 n, int64 trips, uint8* going, int64 cells, Cell* cell, int64 done}
        Cell: {void** at, int64 start, int64 swap, int64 move}

    int64 tec_launch_steps(Launch* rows, int64 n, void* stream, void* launch, void* launch_ex)      kernels of a GPU
        Launch: {void* function, void** params, void** extra, Config* config, int64 grid[3], int64 block[3], int64 shared_bytes}

`tec_run_steps` calls one step after the other. It stops at the first that gives a status other than 0 and returns
(1 + its number) * 2^32 + the status's 32 bits; 0 where all went well.

`tec_run_trips` calls `tec_run_steps` up to `trips` times, as long as `*going` is not 0 (where there is one). Before trip t it writes each cell:
start + t * move, and swap more where t is odd. `done` is then the number of trips made; what fails ends it, with the answer of the steps.

`tec_launch_steps` launches one kernel after the other by the driver's own function `launch` (cuLaunchKernel, hipModuleLaunchKernel), or by `launch_ex`
(cuLaunchKernelEx) where a row has a configuration, whose stream it writes. A grid or a block of nothing is passed over. It answers as `tec_run_steps` does.
"""

from __future__ import annotations

# Steps 0 to n, %k this one and %next the one after; what is between sets %next and %status.
_EACH = """entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %step, label %done
step:
  %k = phi i64 [ 0, %entry ], [ %next, %ok ]
"""
_UNTIL_ONE_FAILS = """  %good = icmp eq i32 %status, 0
  br i1 %good, label %ok, label %failed
ok:
  %more = icmp slt i64 %next, %n
  br i1 %more, label %step, label %done
failed:
  %low = zext i32 %status to i64
  %high = shl i64 %next, 32
  %answer = or i64 %high, %low
  ret i64 %answer
done:
  ret i64 0
}
"""

TEXT = (
    """
declare ptr @memmove(ptr, ptr, i64)
declare i64 @llvm.smin.i64(i64, i64)

define i32 @tec_copy_bytes(ptr %buffers, ptr %scalars) nounwind {
entry:
  %to = load ptr, ptr %buffers
  %slot = getelementptr ptr, ptr %buffers, i64 1
  %from = load ptr, ptr %slot
  %bytes = load i64, ptr %scalars
  %same = call ptr @memmove(ptr %to, ptr %from, i64 %bytes)
  ret i32 0
}

define i64 @tec_run_steps(ptr %steps, i64 %n) nounwind {
"""
    + _EACH
    + """  %at = getelementptr [3 x ptr], ptr %steps, i64 %k
  %code = load ptr, ptr %at
  %a = getelementptr ptr, ptr %at, i64 1
  %buffers = load ptr, ptr %a
  %b = getelementptr ptr, ptr %at, i64 2
  %scalars = load ptr, ptr %b
  %status = call i32 %code(ptr %buffers, ptr %scalars)
  %next = add nuw nsw i64 %k, 1
"""
    + _UNTIL_ONE_FAILS
    + """
define i64 @tec_launch_steps(ptr %rows, i64 %n, ptr %stream, ptr %launch, ptr %launch_ex) nounwind {
"""
    + _EACH
    + """  %next = add nuw nsw i64 %k, 1
  %row = getelementptr [11 x i64], ptr %rows, i64 %k
  %function = load ptr, ptr %row
  %pp = getelementptr i64, ptr %row, i64 1
  %params = load ptr, ptr %pp
  %pe = getelementptr i64, ptr %row, i64 2
  %extra = load ptr, ptr %pe
  %pc = getelementptr i64, ptr %row, i64 3
  %config = load ptr, ptr %pc
  %p0 = getelementptr i64, ptr %row, i64 4
  %g0 = load i64, ptr %p0
  %p1 = getelementptr i64, ptr %row, i64 5
  %g1 = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %row, i64 6
  %g2 = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %row, i64 7
  %b0 = load i64, ptr %p3
  %p4 = getelementptr i64, ptr %row, i64 8
  %b1 = load i64, ptr %p4
  %p5 = getelementptr i64, ptr %row, i64 9
  %b2 = load i64, ptr %p5
  %p6 = getelementptr i64, ptr %row, i64 10
  %s = load i64, ptr %p6
  %m0 = call i64 @llvm.smin.i64(i64 %g0, i64 %g1)
  %m1 = call i64 @llvm.smin.i64(i64 %g2, i64 %b0)
  %m2 = call i64 @llvm.smin.i64(i64 %b1, i64 %b2)
  %m3 = call i64 @llvm.smin.i64(i64 %m0, i64 %m1)
  %least = call i64 @llvm.smin.i64(i64 %m3, i64 %m2)
  %any = icmp sgt i64 %least, 0
  br i1 %any, label %work, label %ok
work:
  %early = icmp ne ptr %config, null
  br i1 %early, label %by_config, label %plain
by_config:
  %ps = getelementptr i64, ptr %config, i64 4
  store ptr %stream, ptr %ps
  %status_ex = call i32 %launch_ex(ptr %config, ptr %function, ptr %params, ptr %extra)
  br label %launched
plain:
  %gx = trunc i64 %g0 to i32
  %gy = trunc i64 %g1 to i32
  %gz = trunc i64 %g2 to i32
  %bx = trunc i64 %b0 to i32
  %by = trunc i64 %b1 to i32
  %bz = trunc i64 %b2 to i32
  %shared = trunc i64 %s to i32
  %status_plain = call i32 %launch(ptr %function, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared, ptr %stream, ptr %params, ptr %extra)
  br label %launched
launched:
  %status = phi i32 [ %status_ex, %by_config ], [ %status_plain, %plain ]
"""
    + _UNTIL_ONE_FAILS
    + """
define i64 @tec_run_trips(ptr %loop) nounwind {
entry:
  %steps = load ptr, ptr %loop
  %pn = getelementptr i64, ptr %loop, i64 1
  %n = load i64, ptr %pn
  %pt = getelementptr i64, ptr %loop, i64 2
  %trips = load i64, ptr %pt
  %pg = getelementptr i64, ptr %loop, i64 3
  %going = load ptr, ptr %pg
  %pc = getelementptr i64, ptr %loop, i64 4
  %cells = load i64, ptr %pc
  %pa = getelementptr i64, ptr %loop, i64 5
  %table = load ptr, ptr %pa
  %done = getelementptr i64, ptr %loop, i64 6
  store i64 0, ptr %done
  %asks = icmp ne ptr %going, null
  %some = icmp sgt i64 %trips, 0
  br i1 %some, label %trip, label %end
trip:
  %t = phi i64 [ 0, %entry ], [ %t1, %again ]
  %bit = and i64 %t, 1
  %any = icmp sgt i64 %cells, 0
  br i1 %any, label %cell, label %run
cell:
  %j = phi i64 [ 0, %trip ], [ %j1, %cell ]
  %c = getelementptr [4 x i64], ptr %table, i64 %j
  %at = load ptr, ptr %c
  %c1 = getelementptr i64, ptr %c, i64 1
  %start = load i64, ptr %c1
  %c2 = getelementptr i64, ptr %c, i64 2
  %swap = load i64, ptr %c2
  %c3 = getelementptr i64, ptr %c, i64 3
  %move = load i64, ptr %c3
  %moved = mul i64 %t, %move
  %swapped = mul i64 %bit, %swap
  %a = add i64 %start, %moved
  %b = add i64 %a, %swapped
  store i64 %b, ptr %at
  %j1 = add nuw nsw i64 %j, 1
  %more = icmp slt i64 %j1, %cells
  br i1 %more, label %cell, label %run
run:
  %answer = call i64 @tec_run_steps(ptr %steps, i64 %n)
  %good = icmp eq i64 %answer, 0
  br i1 %good, label %made, label %failed
made:
  %t1 = add nuw nsw i64 %t, 1
  store i64 %t1, ptr %done
  br i1 %asks, label %ask, label %again
ask:
  %truth = load i8, ptr %going
  %goes = icmp ne i8 %truth, 0
  br i1 %goes, label %again, label %end
again:
  %next = icmp slt i64 %t1, %trips
  br i1 %next, label %trip, label %end
failed:
  ret i64 %answer
end:
  ret i64 0
}
"""
)
