"""The caller's side: worker processes, started when needed, and what becomes of a job whose worker dies.

`submit` hands a job (see `jobs`) to a worker and gives a `Pending` whose `result()` waits for the answer. Jobs of one worker are
answered in order, so that when one dies the job that it had begun is the one that killed it: that job's answer is a CodegenError
which names the function and the file where its IR is kept, and the others go to a new worker. Several threads may submit. A
forked child begins with no worker. TEC_COMPILE_WORKERS says how many there may be (0: none, LLVM runs in this process, for
programs that cannot start Python), TEC_COMPILE_TIMEOUT how many seconds a job may take.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from functools import cache
from importlib.util import find_spec
from typing import Any, BinaryIO

from ..errors import CodegenError, MissingPackageError
from ..locks import adopt, fork_safe_lock
from . import jobs

MAX_WORKERS = 8  # Python lowers a network's functions about as fast as two workers compile them
TIMEOUT_S = 600.0  # the longest job met, a kernel of 20,000 instructions for the software GPU, takes 40 s
_HERE = os.path.dirname(os.path.abspath(jobs.__file__))
_TRIES = 3  # of a job whose worker was gone through no fault of its own
_LOG_BYTES = 1 << 16  # of a dead worker's last words

if hasattr(tempfile, "_once_lock"):
    adopt(tempfile._once_lock)  # held while the first temporary file of a process is made

TIMES: dict[str, float] = {}  # seconds by step, summed over the process and its workers


class Pending:
    """A job on its way."""

    def __init__(self, job: dict[str, Any], what: str):
        self.job = job
        self.what = what  # for messages: "function 'f'"
        self.size = len(job.get("text", "")) + 1000
        self.tries = 0
        self.begun = False
        self.unwanted = False
        self._done = threading.Event()
        self._answer: dict[str, Any] = {}
        self._error: CodegenError | None = None

    def finish(self, answer: dict[str, Any] | None = None, error: CodegenError | None = None) -> None:
        """The answer is there."""
        self._answer, self._error = answer or {}, error
        self.job = {}
        self._done.set()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def result(self) -> dict[str, Any]:
        """The answer. Raises CodegenError where LLVM refused, died or took too long."""
        try:
            self._done.wait()
        except BaseException:  # Ctrl-C: nobody waits for it any more
            POOL.abandon([self])
            raise
        if self._error is not None:
            raise self._error
        for step, seconds in self._answer.get("seconds", {}).items():
            TIMES[step] = TIMES.get(step, 0.0) + seconds
            if os.environ.get("TEC_TIME"):
                print(f"tec: {step:<16} {seconds * 1e3:8.2f} ms  {self.what}", file=sys.stderr)
        return self._answer


class Worker:
    """One process, and the jobs that it has."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.waiting: deque[Pending] = deque()
        path = _llvmlite_folder()
        self.log: BinaryIO = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            # As a module its bytecode is kept. -I -S: nothing of the user's folder or configuration runs in it.
            [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {_HERE!r}); import jobs; jobs.main()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, cwd=os.sep, bufsize=0,
            env={**os.environ, "TEC_COMPILE_WORKERS": "0"},  # whatever runs in it, a worker has no workers
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self.requests: Any = self.process.stdin
        self.answers: Any = self.process.stdout
        self._send({"path": path, "timeout_s": timeout_s(), "memory_bytes": _memory_bytes()})
        threading.Thread(target=self._listen, name="tec compile worker", daemon=True).start()

    @property
    def load(self) -> int:
        return sum(p.size for p in self.waiting)

    def give(self, pending: Pending) -> None:
        self.waiting.append(pending)
        self._send(pending.job)

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError, ValueError):  # a worker that is gone is found by who listens
            jobs.send(self.requests.fileno(), message)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            while True:
                answer = jobs.receive(self.answers.fileno())
                with self.pool.lock:
                    if answer == jobs.BEGUN:
                        self.waiting[0].begun = True
                        continue
                    pending = self.waiting.popleft()
                pending.finish(answer)
        self.pool.lost(self)

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        for stream in (self.requests, self.answers, self.log):
            with contextlib.suppress(OSError, ValueError):
                stream.close()

    def last_words(self) -> str:
        """What LLVM said last: the assertion or error where there is one."""
        self.log.seek(0)
        lines = [x.strip() for x in self.log.read()[-_LOG_BYTES:].decode(errors="replace").splitlines() if x.strip()]
        told = [x for x in lines if "Assertion" in x or "LLVM ERROR" in x or "Error:" in x]
        return (told or lines or [""])[-1]


class Pool:
    """The workers of this process."""

    def __init__(self) -> None:
        self.lock = fork_safe_lock()
        self.workers: list[Worker] = []
        self.facts: dict[Any, Any] = {}
        self.owner = os.getpid()

    def start(self) -> None:
        """Have a worker on its way, if there is none."""
        if _limit() and not self.workers:
            with self.lock:
                if not self.workers:
                    self._start()

    def _start(self) -> Worker:
        try:
            worker = Worker(self)
        except OSError as e:
            raise CodegenError(
                f"no process for the compiler could be started: {e}",
                hint="TEC_COMPILE_WORKERS=0 compiles in this process",
                locate=False,
            ) from None
        self.workers.append(worker)
        return worker

    def submit(self, job: dict[str, Any], what: str) -> Pending:
        """Hand a job to the worker with the least to do, a new one where all are busy and there may be more."""
        pending = Pending(job, what)
        limit = _limit()
        if limit == 0:
            _llvmlite_folder()
            with self.lock:
                pending.finish(jobs.run(job))
            return pending
        with self.lock:
            self._place(pending, limit)
        return pending

    def _place(self, pending: Pending, limit: int) -> None:
        worker = min(self.workers, key=lambda w: w.load, default=None)
        if worker is None or (worker.waiting and len(self.workers) < limit):
            worker = self._start()
        pending.tries += 1
        worker.give(pending)

    def abandon(self, some: list[Pending]) -> None:
        """Nobody wants these any more: a worker that is at one is ended."""
        with self.lock:
            for p in some:
                p.unwanted = not p.done
            for w in self.workers:
                if w.waiting and w.waiting[0].unwanted:
                    w.process.kill()

    def lost(self, worker: Worker) -> None:
        """A worker is gone: its job is told, the jobs behind it are given to others."""
        code = worker.process.wait()
        with self.lock:
            if worker not in self.workers:
                return
            self.workers.remove(worker)
            left = [p for p in worker.waiting if not p.unwanted]
            guilty = next(iter(left), None)
            if guilty is not None and (guilty.begun or guilty.tries >= _TRIES):
                left.remove(guilty)
            else:
                guilty = None
            worker.waiting.clear()
            words = worker.last_words()
            worker.close()
            for p in left:
                try:
                    self._place(p, max(1, _limit()))
                except CodegenError as e:
                    p.finish(error=e)
        if guilty is not None:
            guilty.finish(error=_death(guilty, code, words))

    def close(self) -> None:
        """End all workers, at the end of this process."""
        if self.owner != os.getpid():
            return
        with self.lock:
            workers, self.workers = self.workers, []
        for w in workers:
            w.close()

    def fact(self, do: str, machine: tuple[Any, ...] | None = None) -> dict[str, Any]:
        """The answer to a job that has always the same one."""
        found: dict[str, Any] | None = self.facts.get((do, machine))
        if found is None:
            found = self.submit({"do": do, "machine": machine}, do).result()
            if "error" not in found:
                self.facts[do, machine] = found
        return found


def _limit() -> int:
    """How many workers there may be."""
    asked = os.environ.get("TEC_COMPILE_WORKERS", "")
    if asked.isdigit():
        return int(asked)
    if not sys.executable or getattr(sys, "frozen", False):
        return 0
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count() or 1
    return min(cores, MAX_WORKERS)


def timeout_s() -> float:
    """Seconds that a job may take."""
    try:
        return max(0.001, float(os.environ.get("TEC_COMPILE_TIMEOUT", "")))
    except ValueError:
        return TIMEOUT_S


def _llvmlite_folder() -> list[str]:
    """The folder that this process has llvmlite from; it needs the standard library alone. Raises MissingPackageError."""
    try:
        spec = find_spec("llvmlite")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise MissingPackageError("compiling", "llvmlite")
    return [os.path.dirname(os.path.abspath(p)) for p in (spec.submodule_search_locations or ())]


def _memory_bytes() -> int:
    """Half of the machine's memory: the rest is the caller's."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 0


def _death(pending: Pending, code: int, words: str) -> CodegenError:
    """What is told of a job that ended its worker, and where its IR lies."""
    job, alarm = pending.job, getattr(signal, "SIGALRM", None)
    if alarm is not None and code == -alarm:
        how = f"took more than {timeout_s():g} s"
        hint = "TEC_COMPILE_TIMEOUT sets the limit in seconds"
    else:
        try:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        except ValueError:
            name = f"signal {-code}"
        how = f"died ({name})" + (f": {words}" if words else "")
        hint = "please report it with that file; this process is unharmed, and another schedule or target may do"
        if "64-bit code requested on a subtarget" in words:  # what LLVM says of each name that it does not know
            hint = (
                f"LLVM knows no processor {job['machine'][1]!r} of this kind: -mcpu takes LLVM's names, such as x86-64-v3, "
                "znver4, sapphirerapids or neoverse-v1"
            )
    kept = _keep(job, words) if job.get("text") else ""
    return CodegenError(
        f"LLVM {how}\n  while compiling {pending.what}" + (f"\n  its IR is kept in {kept}" if kept else ""),
        hint=hint,
        locate=False,
    )


def _keep(job: dict[str, Any], words: str) -> str:
    """Write the IR of a job to a file in a folder of this process's own, one a content; returns its path."""
    triple, cpu, features, opt, _ = job["machine"]
    head = f"; {time.strftime('%Y-%m-%d %H:%M:%S')}: {words}\n"
    head += f"; opt -O{job['speed']} | llc -O{opt} -mtriple={triple} -mcpu={cpu} -mattr={features}\n"
    name = f"{hashlib.sha256(job['text'].encode()).hexdigest()[:12]}.ll"
    try:
        path = os.path.join(_kept_folder(os.getpid()), name)
        with open(path, "w") as f:
            f.write(head + job["text"])
    except OSError as e:
        return f"no file ({e})"
    return path


@cache
def _kept_folder(process: int) -> str:
    """Where IR is kept that LLVM died of; it stays when the process ends, for a report. Nobody else can have put anything there."""
    return tempfile.mkdtemp(prefix="tec-llvm-")


POOL = Pool()


def submit(job: dict[str, Any], what: str) -> Pending:
    """Hand a job to this process's workers; `what` says in messages what it is about."""
    return POOL.submit(job, what)


def fact(do: str, machine: tuple[Any, ...] | None = None) -> dict[str, Any]:
    """The answer to the job "facts" or "layout", asked for once a process."""
    return POOL.fact(do, machine)


def start() -> None:
    """Have a worker on its way, so that it is there when the first job is."""
    POOL.start()


def _in_child() -> None:
    """A forked child leaves its parent's workers alone: their pipes are closed, so that they end with the parent."""
    global POOL
    inherited, POOL = POOL, Pool()
    POOL.facts = inherited.facts
    for w in inherited.workers:
        w.process.returncode = 0  # it is no child of this process
        for stream in (w.requests, w.answers):
            with contextlib.suppress(OSError):
                os.close(stream.fileno())
    _FORGOTTEN.append(inherited)


_FORGOTTEN: list[Pool] = []  # its streams must not be closed a second time, under numbers that are others' by now

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
atexit.register(lambda: POOL.close())
