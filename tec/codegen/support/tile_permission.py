"""Asking Linux for tile registers (AMX), written as LLVM IR text; part of the object that `pool` makes for x86.

    int32 tec_tiles_on()        0 where the process may use tiles, from its first call on: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)

The kernel grants them to the whole process, threads that run already included.
"""

from __future__ import annotations

TEXT = """
@tiles = internal global i32 0, align 4

declare i64 @syscall(i64, ...)

define i32 @tec_tiles_on() nounwind {
entry:
  %known = load atomic i32, ptr @tiles seq_cst, align 4
  %on = icmp ne i32 %known, 0
  br i1 %on, label %done, label %ask
ask:
  %answer = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  %good = icmp eq i64 %answer, 0
  br i1 %good, label %granted, label %refused
granted:
  store atomic i32 1, ptr @tiles seq_cst, align 4
  ret i32 0
refused:
  ret i32 1
done:
  ret i32 0
}
"""
