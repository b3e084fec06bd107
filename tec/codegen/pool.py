"""The thread pool and workspace allocator that CPU code calls, written as LLVM IR text; the loop over steps (`step_loop`) comes with it.

    int32 tec_parallel_for(int32 (*body)(void* closure, int64 begin, int64 end), void* closure, int64 n)
    void* tec_alloc(int64 bytes)            64-byte aligned; null where memory is out
    void  tec_free(void*)
    void  tec_pool_configure(int32 threads) how many threads work, the caller counted
    void  tec_pool_reset()                  after fork, in the child: the workers are gone
    void  tec_pool_stop()                   at exit: ends the workers and waits for them; parallel loops run in their caller from then

Workers persist; each knows its number, and those beyond the threads that are configured leave jobs to the others. After
a job they spin for a short while, then sleep on a condition variable. A job is open from `open = 1`
to `open = 0`; a worker first counts itself into `active`, then looks at `open`: so the caller, who closes the job and then
waits for `active` to be 0, never leaves while a worker may still read the job. Ranges are handed out by an atomic counter.
A body that returns not 0 stops the handing out, and its code is what the caller gets. A second caller, or a nested one,
finds the pool busy and runs its loop itself. `tec_alloc` keeps up to 64 freed blocks for reuse, since a large block fresh
from the system costs a page fault for every page.

Needs libc's pthread functions only, which every process of Linux and macOS has. `objects()` compiles it for the machines
that tec loads code on; the result stands in `tec/runtime/_pool_data.py` (`python -m tec.codegen.pool` writes it), so that
packages run where no compiler and no LLVM is.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zlib
from pathlib import Path

from . import llvm_util, step_loop, tile_permission

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
SPINS = 2000  # about 40 us of pauses before a worker sleeps
CACHED_BYTES = 256 << 20  # freed blocks kept for reuse, in all
SLOTS = 64
MOST_THREADS = 256  # beyond the cores of any host met, threads only wait for each other


def source(arch: str) -> str:
    """The pool's LLVM IR for an architecture."""
    pause = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}[arch]
    declare = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}[arch]
    tiles = tile_permission.TEXT if arch == "x86_64" else ""
    text = (
        (_TEXT + step_loop.TEXT + tiles)
        .replace("PAUSE", pause)
        .replace("SPINS", str(SPINS))
        .replace("SLOTS", str(SLOTS))
    )
    text = text.replace("MOST", str(MOST_THREADS))
    return f'target triple = "{TRIPLES[arch]}"\n' + text.replace("CACHED", str(CACHED_BYTES)) + declare + "\n"


_TEXT = """
@threads = internal global i32 1
@started = internal global i32 0
@sleepers = internal global i32 0, align 4
@busy = internal global i32 0, align 4
@generation = internal global i64 0, align 64
@open = internal global i32 0, align 4
@body = internal global ptr null
@closure = internal global ptr null
@count = internal global i64 0
@chunk = internal global i64 0
@next = internal global i64 0, align 64
@active = internal global i32 0, align 64
@rc = internal global i32 0, align 4
@mutex = internal global [128 x i8] zeroinitializer, align 64
@cond = internal global [128 x i8] zeroinitializer, align 64
@heap_lock = internal global i32 0, align 64
@heap_bytes = internal global i64 0
@quit = internal global i32 0, align 4
@workers = internal global [MOST x i64] zeroinitializer, align 64
@slots = internal global [SLOTS x ptr] zeroinitializer, align 64

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)

define internal void @run_job() nounwind {
entry:
  %f = load ptr, ptr @body
  %c = load ptr, ptr @closure
  %n = load i64, ptr @count
  %step = load i64, ptr @chunk
  br label %take
take:
  %begin = atomicrmw add ptr @next, i64 %step seq_cst
  %more = icmp slt i64 %begin, %n
  br i1 %more, label %work, label %done
work:
  %to = add i64 %begin, %step
  %over = icmp sgt i64 %to, %n
  %end = select i1 %over, i64 %n, i64 %to
  %code = call i32 %f(ptr %c, i64 %begin, i64 %end)
  %ok = icmp eq i32 %code, 0
  br i1 %ok, label %take, label %failed
failed:
  %was = cmpxchg ptr @rc, i32 0, i32 %code seq_cst seq_cst
  store atomic i64 %n, ptr @next seq_cst, align 8
  br label %done
done:
  ret void
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %both = ptrtoint ptr %argument to i64
  %first = lshr i64 %both, 16
  %number64 = and i64 %both, 65535
  %number = trunc i64 %number64 to i32
  br label %wait
wait:
  %seen = phi i64 [ %first, %entry ], [ %now, %finish ], [ %now, %begin ]
  br label %spin
spin:
  %k = phi i32 [ 0, %wait ], [ %k1, %again ]
  %g = load atomic i64, ptr @generation seq_cst, align 8
  %fresh = icmp ne i64 %g, %seen
  br i1 %fresh, label %job, label %again
again:
  PAUSE
  %k1 = add i32 %k, 1
  %tired = icmp sgt i32 %k1, SPINS
  br i1 %tired, label %sleep, label %spin
sleep:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %s = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %check
check:
  %g2 = load atomic i64, ptr @generation seq_cst, align 8
  %fresh2 = icmp ne i64 %g2, %seen
  br i1 %fresh2, label %awake, label %nap
nap:
  %w = call i32 @pthread_cond_wait(ptr @cond, ptr @mutex)
  br label %check
awake:
  %s2 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %job
job:
  %now = phi i64 [ %g, %spin ], [ %g2, %awake ]
  %q = load atomic i32, ptr @quit seq_cst, align 4
  %isquit = icmp ne i32 %q, 0
  br i1 %isquit, label %end, label %begin
end:
  ret ptr null
begin:
  %threads = load atomic i32, ptr @threads seq_cst, align 4
  %workers = sub i32 %threads, 1
  %wanted = icmp slt i32 %number, %workers
  br i1 %wanted, label %join, label %wait
join:
  %a = atomicrmw add ptr @active, i32 1 seq_cst
  %is = load atomic i32, ptr @open seq_cst, align 4
  %isopen = icmp ne i32 %is, 0
  br i1 %isopen, label %run, label %finish
run:
  call void @run_job()
  br label %finish
finish:
  %b = atomicrmw sub ptr @active, i32 1 seq_cst
  br label %wait
}

define internal void @start_workers(i32 %wanted) nounwind {
entry:
  %have = load i32, ptr @started
  %none = icmp eq i32 %have, 0
  br i1 %none, label %init, label %loop.pre
init:
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @cond, ptr null)
  br label %loop.pre
loop.pre:
  br label %loop
loop:
  %n = phi i32 [ %have, %loop.pre ], [ %n1, %made ]
  %enough = icmp sge i32 %n, %wanted
  br i1 %enough, label %done, label %make
make:
  %g = load atomic i64, ptr @generation seq_cst, align 8
  %high = shl i64 %g, 16
  %at = sext i32 %n to i64
  %both = or i64 %high, %at
  %p = inttoptr i64 %both to ptr
  %id = getelementptr i64, ptr @workers, i64 %at
  %e = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %p)
  %ok = icmp eq i32 %e, 0
  br i1 %ok, label %made, label %fewer
made:
  %n1 = add i32 %n, 1
  store i32 %n1, ptr @started
  br label %loop
fewer:
  %all = add i32 %n, 1
  store i32 %all, ptr @threads
  br label %done
done:
  ret void
}

define i32 @tec_parallel_for(ptr %f, ptr %c, i64 %n) nounwind {
entry:
  %empty = icmp sle i64 %n, 0
  br i1 %empty, label %nothing, label %some
nothing:
  ret i32 0
some:
  %t = load i32, ptr @threads
  %alone = icmp sle i32 %t, 1
  %single = icmp eq i64 %n, 1
  %serial = or i1 %alone, %single
  br i1 %serial, label %self, label %try
self:
  %code = call i32 %f(ptr %c, i64 0, i64 %n)
  ret i32 %code
try:
  %got = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %got, 1
  br i1 %mine, label %prepare, label %self
prepare:
  %workers = sub i32 %t, 1
  %have = load i32, ptr @started
  %missing = icmp slt i32 %have, %workers
  br i1 %missing, label %start, label %post
start:
  call void @start_workers(i32 %workers)
  br label %post
post:
  store ptr %f, ptr @body
  store ptr %c, ptr @closure
  store i64 %n, ptr @count
  %t64 = zext i32 %t to i64
  %parts = shl i64 %t64, 3
  %c0 = sdiv i64 %n, %parts
  %c1 = icmp slt i64 %c0, 1
  %step = select i1 %c1, i64 1, i64 %c0
  store i64 %step, ptr @chunk
  store i32 0, ptr @rc
  store atomic i64 0, ptr @next seq_cst, align 8
  store atomic i32 1, ptr @open seq_cst, align 4
  %g = atomicrmw add ptr @generation, i64 1 seq_cst
  %s = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp ne i32 %s, 0
  br i1 %asleep, label %wake, label %join
wake:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @cond)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %join
join:
  call void @run_job()
  store atomic i32 0, ptr @open seq_cst, align 4
  br label %await
await:
  %k = phi i32 [ 0, %join ], [ %k1, %spin ], [ 0, %yield ]
  %a = load atomic i32, ptr @active seq_cst, align 4
  %idle = icmp eq i32 %a, 0
  br i1 %idle, label %close, label %spin
spin:
  PAUSE
  %k1 = add i32 %k, 1
  %long = icmp sgt i32 %k1, SPINS
  br i1 %long, label %yield, label %await
yield:
  %y = call i32 @sched_yield()
  br label %await
close:
  %result = load atomic i32, ptr @rc seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret i32 %result
}

define void @tec_pool_configure(i32 %n) nounwind {
entry:
  %low = icmp slt i32 %n, 1
  %some = select i1 %low, i32 1, i32 %n
  %high = icmp sgt i32 %some, MOST
  %t = select i1 %high, i32 MOST, i32 %some
  store i32 %t, ptr @threads
  ret void
}

define void @tec_pool_stop() nounwind {
entry:
  %got = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %got, 1
  br i1 %mine, label %look, label %done
look:
  %have = load i32, ptr @started
  %none = icmp eq i32 %have, 0
  br i1 %none, label %done, label %tell
tell:
  store atomic i32 1, ptr @quit seq_cst, align 4
  %g = atomicrmw add ptr @generation, i64 1 seq_cst
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @cond)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %loop
loop:
  %k = phi i32 [ 0, %tell ], [ %k1, %join ]
  %more = icmp slt i32 %k, %have
  br i1 %more, label %join, label %all
join:
  %at = sext i32 %k to i64
  %p = getelementptr i64, ptr @workers, i64 %at
  %id = load i64, ptr %p
  %j = call i32 @pthread_join(i64 %id, ptr null)
  %k1 = add i32 %k, 1
  br label %loop
all:
  store i32 0, ptr @started
  store atomic i32 0, ptr @quit seq_cst, align 4
  br label %done
done:
  ret void
}

define void @tec_pool_reset() nounwind {
entry:
  store i32 0, ptr @started
  store i32 0, ptr @sleepers
  store i32 0, ptr @open
  store i32 0, ptr @active
  store i32 0, ptr @heap_lock
  store i32 0, ptr @busy
  ret void
}

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
"""


def digest() -> str:
    """Identifies the source that the stored objects were made from."""
    return hashlib.sha256("".join(source(a) for a in TRIPLES).encode()).hexdigest()


def objects() -> dict[str, bytes]:
    """The pool compiled for the plainest CPU of each architecture."""
    cpus = {"x86_64": "x86-64", "aarch64": "generic"}
    out = {}
    for arch, triple in TRIPLES.items():
        features = "-outline-atomics" if arch == "aarch64" else ""
        machine = llvm_util.Machine(triple, cpus[arch], features, opt=2)
        out[arch] = llvm_util.compile_text(source(arch), machine, "object", 2)
    return out


def write(path: Path) -> None:
    """Write the data module that the runtime reads."""
    lines = [
        '"""The compiled thread pool, generated by `python -m tec.codegen.pool` from tec/codegen/pool.py. Not written by hand."""',
        "",
    ]
    lines += [f'SOURCE = "{digest()}"', "# zlib, then base85", "OBJECTS = {"]
    for arch, data in objects().items():
        text = base64.b85encode(zlib.compress(data, 9)).decode()
        lines.append(f'    "{arch}": (')
        lines += [f'        b"{text[k : k + 100]}"' for k in range(0, len(text), 100)]
        lines.append("    ),")
    path.write_text("\n".join([*lines, "}", ""]))


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "runtime" / "_pool_data.py"))
