"""The thread pool that CPU code calls, written as LLVM IR text; the allocator of workspaces (`heap`) and the loop over steps (`step_loop`) come with it.

    int32 tec_parallel_work(int32 (*body)(void* closure, int64 begin, int64 end), void* closure, int64 n, int64 clocks)
    int32 tec_parallel_for(body, closure, n)  the same for a loop of which nobody said how many clocks of one core it takes
    void  tec_pool_configure(int32 threads) how many threads work, the caller counted
    void  tec_pool_reset()                  after fork, in the child: the workers are gone
    void  tec_pool_stop()                   at exit: ends the workers and waits for them; parallel loops run in their caller from then

Workers persist; each knows its number, and those beyond the threads that are configured leave jobs to the others. After
a job they spin for a short while, then sleep on a condition variable. Each thread of a job has a range of it, the same one at every run, so that what
it reads (a step's weights) stays in its core's caches; who is through takes chunks of what others have left, so that nobody waits for a worker that
the system gives no core. A range's word holds the job's number and how many chunks are left: a worker that comes late, and has read a job that is over
or another that is just written, cannot take a chunk, and a caller leaves when as many elements are finished as there are. What is polled lies in a cache
line of its own; plain stores fill the rest. A body that returns not 0 closes all ranges, and its code is what the caller gets.

A second caller, or a nested one, finds the pool busy and runs its loop itself. So does the caller of a loop of fewer clocks than handing it out takes,
and, where workers sleep, of one that is shorter than waking them: until what was run alone so adds up to as much.

Needs libc's pthread functions only, which every process of Linux and macOS has. `objects()` compiles it for the machines
that tec loads code on; the result stands in `tec/runtime/modules/_pool_data.py` (`python -m tec.codegen.support.pool` writes it), so that
packages run where no compiler and no LLVM is.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zlib
from pathlib import Path

from .. import llvm_util
from . import heap, step_loop, tile_permission

# Of machines that tec loads code on.
TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
ALL_TRIPLES = {**TRIPLES, "riscv64": "riscv64-unknown-linux-gnu"}  # and of those that libraries are made for
SPINS = 2000  # about 40 us of pauses before a worker sleeps
# Of a loop: what a worker that waits takes to begin and end, three or four cache lines each way, twice.
SMALL_CLOCKS = 3000
WAKE_CLOCKS = 150_000  # 50 us: to the first piece of work of a worker that slept, on virtual machines
# What a thread does while it waits, by architecture: the instruction and its declaration.
_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
    "riscv64": ("", ""),  # its pause is an extension that not all cores have
}
MOST_THREADS = 256  # beyond the cores of any host met, threads only wait for each other


def source(arch: str) -> str:
    """The pool's LLVM IR for an architecture."""
    pause, declare = _PAUSES[arch]
    tiles = tile_permission.TEXT if arch == "x86_64" else ""
    text = (
        (_TEXT + heap.TEXT + step_loop.TEXT + tiles)
        .replace("PAUSE", pause)
        .replace("SPINS", str(SPINS))
        .replace("SMALL", str(SMALL_CLOCKS))
        .replace("WAKE", str(WAKE_CLOCKS))
    )
    # Fields of the job: body, closure, elements of a chunk, threads, whether workers are to end. Words of a range: see above; its first element, its
    # end, its chunks.
    text = re.sub(r"JOB\((\d)\)", r"getelementptr inbounds (%Job, ptr @job, i64 0, i32 \1)", text)
    text = text.replace("MOST", str(MOST_THREADS))
    return f'target triple = "{ALL_TRIPLES[arch]}"\n' + text + declare + "\n"


_TEXT = """
@threads = internal global i32 1
@started = internal global i32 0
@sleepers = internal global i32 0, align 4
@busy = internal global i32 0, align 4
%Job = type { ptr, ptr, i64, i64, i32 }
@generation = internal global i64 0, align 64
@job = internal global %Job zeroinitializer, align 64
@ranges = internal global [MOST x [8 x i64]] zeroinitializer, align 64
@finished = internal global i64 0, align 64
@debt = internal global i64 0, align 8
@rc = internal global i32 0, align 64
@mutex = internal global [128 x i8] zeroinitializer, align 64
@cond = internal global [128 x i8] zeroinitializer, align 64
@workers = internal global [MOST x i64] zeroinitializer, align 64
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()

define internal i64 @run_job(i64 %me, i64 %g) nounwind {
entry:
  %f = load atomic ptr, ptr JOB(0) monotonic, align 8
  %c = load atomic ptr, ptr JOB(1) monotonic, align 8
  %step = load atomic i64, ptr JOB(2) monotonic, align 8
  %team = load atomic i64, ptr JOB(3) monotonic, align 8
  %tag = shl i64 %g, 32
  %in = icmp slt i64 %me, %team
  br i1 %in, label %range, label %none
none:
  ret i64 0
range:
  %v = phi i64 [ 0, %entry ], [ %v1, %over ]
  %before = phi i64 [ 0, %entry ], [ %done, %over ]
  %sum = add i64 %me, %v
  %wrapped = sub i64 %sum, %team
  %wraps = icmp sge i64 %sum, %team
  %r = select i1 %wraps, i64 %wrapped, i64 %sum
  %word = getelementptr [8 x i64], ptr @ranges, i64 %r
  br label %look
look:
  %done = phi i64 [ %before, %range ], [ %done, %take ], [ %more, %work ]
  %now = load atomic i64, ptr %word acquire, align 8
  %own = and i64 %now, -4294967296
  %same = icmp eq i64 %own, %tag
  %left = and i64 %now, 4294967295
  %some = icmp ne i64 %left, 0
  %can = and i1 %same, %some
  br i1 %can, label %take, label %over
take:
  %begin = call i64 @chunk(ptr %word, i64 %left, i64 %step)
  %lastp = getelementptr i64, ptr %word, i64 2
  %last = load atomic i64, ptr %lastp monotonic, align 8
  %less = sub i64 %now, 1
  %pair = cmpxchg ptr %word, i64 %now, i64 %less acq_rel acquire
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %work, label %look
work:
  %to = add i64 %begin, %step
  %past = icmp sgt i64 %to, %last
  %end = select i1 %past, i64 %last, i64 %to
  %count = sub i64 %end, %begin
  %more = add i64 %done, %count
  %code = call i32 %f(ptr %c, i64 %begin, i64 %end)
  %ok = icmp eq i32 %code, 0
  br i1 %ok, label %look, label %failed
over:
  %v1 = add i64 %v, 1
  %others = icmp slt i64 %v1, %team
  br i1 %others, label %range, label %through
through:
  ret i64 %done
failed:
  %was = cmpxchg ptr @rc, i32 0, i32 %code seq_cst seq_cst
  br label %close
close:
  %k = phi i64 [ 0, %failed ], [ %k1, %close ]
  %dropped = phi i64 [ %more, %failed ], [ %all, %close ]
  %closed = getelementptr [8 x i64], ptr @ranges, i64 %k
  %old = atomicrmw xchg ptr %closed, i64 %tag acq_rel
  %open = and i64 %old, 4294967295
  %first = call i64 @chunk(ptr %closed, i64 %open, i64 %step)
  %endp = getelementptr i64, ptr %closed, i64 2
  %stop = load atomic i64, ptr %endp monotonic, align 8
  %rest = sub i64 %stop, %first
  %any = icmp ne i64 %open, 0
  %lost = select i1 %any, i64 %rest, i64 0
  %all = add i64 %dropped, %lost
  %k1 = add i64 %k, 1
  %another = icmp slt i64 %k1, %team
  br i1 %another, label %close, label %ended
ended:
  ret i64 %all
}

define internal i64 @chunk(ptr %word, i64 %left, i64 %step) nounwind alwaysinline {
entry:
  %atp = getelementptr i64, ptr %word, i64 1
  %at = load atomic i64, ptr %atp monotonic, align 8
  %chunksp = getelementptr i64, ptr %word, i64 3
  %chunks = load atomic i64, ptr %chunksp monotonic, align 8
  %j = sub i64 %chunks, %left
  %skip = mul i64 %j, %step
  %begin = add i64 %at, %skip
  ret i64 %begin
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %both = ptrtoint ptr %argument to i64
  %first = lshr i64 %both, 16
  %number64 = and i64 %both, 65535
  br label %wait
wait:
  %seen = phi i64 [ %first, %entry ], [ %now, %finish ], [ %now, %begin ]
  br label %spin
spin:
  %k = phi i32 [ 0, %wait ], [ %k1, %again ]
  %g = load atomic i64, ptr @generation acquire, align 64
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
  %g2 = load atomic i64, ptr @generation seq_cst, align 64
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
  %q = load atomic i32, ptr JOB(4) seq_cst, align 8
  %isquit = icmp ne i32 %q, 0
  br i1 %isquit, label %end, label %begin
end:
  ret ptr null
begin:
  %me = add i64 %number64, 1
  %done = call i64 @run_job(i64 %me, i64 %now)
  %none = icmp eq i64 %done, 0
  br i1 %none, label %wait, label %finish
finish:
  %b = atomicrmw add ptr @finished, i64 %done acq_rel
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
  %g = load atomic i64, ptr @generation seq_cst, align 64
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
  %code = call i32 @tec_parallel_work(ptr %f, ptr %c, i64 %n, i64 4611686018427387904)
  ret i32 %code
}

define i32 @tec_parallel_work(ptr %f, ptr %c, i64 %n, i64 %clocks) nounwind {
entry:
  %empty = icmp sle i64 %n, 0
  br i1 %empty, label %nothing, label %some
nothing:
  ret i32 0
some:
  %t = load i32, ptr @threads
  %alone = icmp sle i32 %t, 1
  %single = icmp eq i64 %n, 1
  %small = icmp slt i64 %clocks, SMALL
  %either = or i1 %alone, %single
  %serial = or i1 %either, %small
  br i1 %serial, label %self, label %try
self:
  %code = call i32 %f(ptr %c, i64 0, i64 %n)
  ret i32 %code
try:
  %got = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %got, 1
  br i1 %mine, label %prepare, label %self
prepare:
  %s = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp ne i32 %s, 0
  br i1 %asleep, label %owe, label %staff
owe:
  %debt = load i64, ptr @debt
  %much = icmp sgt i64 %clocks, WAKE
  %some.clocks = select i1 %much, i64 WAKE, i64 %clocks
  %owed = add i64 %debt, %some.clocks
  %worth = icmp sge i64 %owed, WAKE
  %kept = select i1 %worth, i64 0, i64 %owed
  store i64 %kept, ptr @debt
  br i1 %worth, label %staff, label %leave
leave:
  store atomic i32 0, ptr @busy seq_cst, align 4
  br label %self
staff:
  %workers = sub i32 %t, 1
  %have = load i32, ptr @started
  %missing = icmp slt i32 %have, %workers
  br i1 %missing, label %start, label %post
start:
  call void @start_workers(i32 %workers)
  br label %post
post:
  %now = load i32, ptr @threads
  %t64 = zext i32 %now to i64
  %few = icmp slt i64 %n, %t64
  %team = select i1 %few, i64 %n, i64 %t64
  store atomic ptr %f, ptr JOB(0) monotonic, align 8
  store atomic ptr %c, ptr JOB(1) monotonic, align 8
  %parts = shl i64 %team, 3
  %c0 = sdiv i64 %n, %parts
  %c1 = icmp slt i64 %c0, 1
  %step = select i1 %c1, i64 1, i64 %c0
  store atomic i64 %step, ptr JOB(2) monotonic, align 8
  store atomic i64 %team, ptr JOB(3) monotonic, align 8
  store atomic i64 0, ptr @finished monotonic, align 8
  store i32 0, ptr @rc
  %each = sdiv i64 %n, %team
  %larger.ones = srem i64 %n, %team
  %g0 = load i64, ptr @generation
  %g = add i64 %g0, 1
  %tag = shl i64 %g, 32
  br label %deal
deal:
  %i = phi i64 [ 0, %post ], [ %i1, %deal ]
  %at = phi i64 [ 0, %post ], [ %to, %deal ]
  %word = getelementptr [8 x i64], ptr @ranges, i64 %i
  %is.larger = icmp slt i64 %i, %larger.ones
  %one = zext i1 %is.larger to i64
  %size = add i64 %each, %one
  %to = add i64 %at, %size
  %size1 = add i64 %size, %step
  %size2 = sub i64 %size1, 1
  %chunks = sdiv i64 %size2, %step
  %atp = getelementptr i64, ptr %word, i64 1
  store atomic i64 %at, ptr %atp monotonic, align 8
  %lastp = getelementptr i64, ptr %word, i64 2
  store atomic i64 %to, ptr %lastp monotonic, align 8
  %chunksp = getelementptr i64, ptr %word, i64 3
  store atomic i64 %chunks, ptr %chunksp monotonic, align 8
  %filled = or i64 %tag, %chunks
  store atomic i64 %filled, ptr %word release, align 8
  %i1 = add i64 %i, 1
  %another = icmp slt i64 %i1, %team
  br i1 %another, label %deal, label %publish
publish:
  %old = atomicrmw xchg ptr @generation, i64 %g seq_cst
  %still = load atomic i32, ptr @sleepers seq_cst, align 4
  %nap = icmp ne i32 %still, 0
  br i1 %nap, label %wake, label %join
wake:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @cond)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %join
join:
  %mine.done = call i64 @run_job(i64 0, i64 %g)
  %theirs = sub i64 %n, %mine.done
  br label %await
await:
  %k = phi i32 [ 0, %join ], [ %k1, %spin ], [ 0, %yield ]
  %a = load atomic i64, ptr @finished acquire, align 8
  %idle = icmp eq i64 %a, %theirs
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
  store atomic i32 0, ptr @busy release, align 4
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
  store atomic i32 1, ptr JOB(4) seq_cst, align 8
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
  store atomic i32 0, ptr JOB(4) seq_cst, align 8
  br label %done
done:
  ret void
}

define void @tec_pool_reset() nounwind {
entry:
  store i32 0, ptr @started
  store i32 0, ptr @sleepers
  store i32 0, ptr @heap_lock
  store i32 0, ptr @busy
  ret void
}

"""


def digest() -> str:
    """Identifies the source that the stored objects were made from."""
    return hashlib.sha256("".join(source(a) for a in TRIPLES).encode()).hexdigest()


def compiled(arch: str) -> bytes:
    """The object of the pool for the plainest CPU of an architecture."""
    cpu, features = {
        "x86_64": ("x86-64", ""), "aarch64": ("generic", "-outline-atomics"), "riscv64": ("generic-rv64", "+m,+a,+f,+d,+c"),
    }[arch]  # fmt: skip
    machine = llvm_util.LLVMMachine(ALL_TRIPLES[arch], cpu, features, opt=2)
    made: bytes = llvm_util.compile_text(source(arch), machine, "object", 2)
    return made


def objects() -> dict[str, bytes]:
    """`compiled` for each architecture that tec loads code on."""
    return {arch: compiled(arch) for arch in TRIPLES}


def write(path: Path) -> None:
    """Write the data module that the runtime reads."""
    lines = [
        '"""The compiled thread pool, generated by `python -m tec.codegen.support.pool` from tec/codegen/support/pool.py. Not written by hand."""',
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
    write(
        Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "runtime" / "modules" / "_pool_data.py")
    )
