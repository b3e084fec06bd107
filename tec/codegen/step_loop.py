"""The loop over a plan's steps, written as LLVM IR text; part of the object that `pool` makes.

    int64 tec_run_steps(const Step* steps, int64 n)     Step: {int32 (*code)(void** buffers, int64* scalars), void** buffers, int64* scalars}
    int32 tec_copy_bytes(void** buffers, int64* scalars) a step of a plan that copies: scalars[0] bytes from buffers[1] to buffers[0]

`tec_run_steps` calls one step after the other. It stops at the first that gives a status other than 0 and returns
(1 + its number) * 2^32 + the status's 32 bits; 0 where all went well.
"""

from __future__ import annotations

TEXT = """
declare ptr @memmove(ptr, ptr, i64)

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
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %step, label %done
step:
  %k = phi i64 [ 0, %entry ], [ %next, %ok ]
  %at = getelementptr [3 x ptr], ptr %steps, i64 %k
  %code = load ptr, ptr %at
  %a = getelementptr ptr, ptr %at, i64 1
  %buffers = load ptr, ptr %a
  %b = getelementptr ptr, ptr %at, i64 2
  %scalars = load ptr, ptr %b
  %status = call i32 %code(ptr %buffers, ptr %scalars)
  %next = add nuw nsw i64 %k, 1
  %good = icmp eq i32 %status, 0
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
