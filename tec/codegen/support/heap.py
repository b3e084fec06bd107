"""The allocator of workspaces that CPU code calls, written as LLVM IR text; part of the object that `pool` makes.

    void* tec_alloc(int64 bytes)            64-byte aligned; null where memory is out
    void  tec_free(void*)
    void  tec_heap_trim()                   gives back the blocks that are kept for reuse

`tec_alloc` keeps up to 64 freed blocks for reuse, since a large block fresh from the system costs a page fault for every page.
"""

from __future__ import annotations

CACHED_BYTES = 256 << 20  # freed blocks kept for reuse, in all
SLOTS = 64

_TEXT = """
@heap_lock = internal global i32 0, align 64
@heap_bytes = internal global i64 0
@slots = internal global [SLOTS x ptr] zeroinitializer, align 64

declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)

define internal i1 @heap_try() nounwind {
entry:
  %got = cmpxchg ptr @heap_lock, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %got, 1
  ret i1 %mine
}

define noalias ptr @tec_alloc(i64 %bytes) nounwind {
entry:
  %out = alloca ptr, align 8
  %negative = icmp slt i64 %bytes, 0
  %huge = icmp sgt i64 %bytes, 1152921504606846976
  %bad = or i1 %negative, %huge
  br i1 %bad, label %none, label %look
look:
  %b1 = add i64 %bytes, 127
  %need = and i64 %b1, -64
  %twice = shl i64 %need, 1
  %most = add i64 %twice, 4096
  %mine = call i1 @heap_try()
  br i1 %mine, label %scan, label %fresh
scan:
  %i = phi i64 [ 0, %look ], [ %i1, %step ]
  %at = getelementptr inbounds ptr, ptr @slots, i64 %i
  %p = load ptr, ptr %at
  %free = icmp eq ptr %p, null
  br i1 %free, label %step, label %fits
fits:
  %size = load i64, ptr %p
  %large = icmp uge i64 %size, %need
  %close = icmp ule i64 %size, %most
  %good = and i1 %large, %close
  br i1 %good, label %reuse, label %step
step:
  %i1 = add i64 %i, 1
  %end = icmp eq i64 %i1, SLOTS
  br i1 %end, label %miss, label %scan
reuse:
  store ptr null, ptr %at
  %held = load i64, ptr @heap_bytes
  %less = sub i64 %held, %size
  store i64 %less, ptr @heap_bytes
  store atomic i32 0, ptr @heap_lock seq_cst, align 4
  %user = getelementptr i8, ptr %p, i64 64
  ret ptr %user
miss:
  store atomic i32 0, ptr @heap_lock seq_cst, align 4
  br label %fresh
fresh:
  %big = icmp ugt i64 %need, 4194304
  %align = select i1 %big, i64 2097152, i64 64
  %e = call i32 @posix_memalign(ptr %out, i64 %align, i64 %need)
  %ok = icmp eq i32 %e, 0
  br i1 %ok, label %given, label %none
given:
  %q = load ptr, ptr %out
  store i64 %need, ptr %q
  %user2 = getelementptr i8, ptr %q, i64 64
  ret ptr %user2
none:
  ret ptr null
}

define void @tec_free(ptr %user) nounwind {
entry:
  %null = icmp eq ptr %user, null
  br i1 %null, label %done, label %some
some:
  %p = getelementptr i8, ptr %user, i64 -64
  %size = load i64, ptr %p
  %mine = call i1 @heap_try()
  br i1 %mine, label %room, label %give
room:
  %held = load i64, ptr @heap_bytes
  %total = add i64 %held, %size
  %fits = icmp ule i64 %total, CACHED
  br i1 %fits, label %scan, label %unlock
scan:
  %i = phi i64 [ 0, %room ], [ %i1, %step ]
  %at = getelementptr inbounds ptr, ptr @slots, i64 %i
  %q = load ptr, ptr %at
  %free = icmp eq ptr %q, null
  br i1 %free, label %keep, label %step
step:
  %i1 = add i64 %i, 1
  %end = icmp eq i64 %i1, SLOTS
  br i1 %end, label %unlock, label %scan
keep:
  store ptr %p, ptr %at
  store i64 %total, ptr @heap_bytes
  store atomic i32 0, ptr @heap_lock seq_cst, align 4
  br label %done
unlock:
  store atomic i32 0, ptr @heap_lock seq_cst, align 4
  br label %give
give:
  call void @free(ptr %p)
  br label %done
done:
  ret void
}

define void @tec_heap_trim() nounwind {
entry:
  %mine = call i1 @heap_try()
  br i1 %mine, label %scan, label %done
scan:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %at = getelementptr inbounds ptr, ptr @slots, i64 %i
  %p = load ptr, ptr %at
  store ptr null, ptr %at
  %none = icmp eq ptr %p, null
  br i1 %none, label %step, label %give
give:
  call void @free(ptr %p)
  br label %step
step:
  %i1 = add i64 %i, 1
  %end = icmp eq i64 %i1, SLOTS
  br i1 %end, label %unlock, label %scan
unlock:
  store i64 0, ptr @heap_bytes
  store atomic i32 0, ptr @heap_lock seq_cst, align 4
  br label %done
done:
  ret void
}
"""

TEXT = _TEXT.replace("SLOTS", str(SLOTS)).replace("CACHED", str(CACHED_BYTES))
