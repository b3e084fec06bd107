"""The process that builds and measures: run as a program by `measure`, one job after another from standard input to standard output.

A job's programs are loop IR. The worker builds them, checks the candidate's results against the default's, says that it is ready, and on "go" times
candidate and rival in turn. It may die of any of this: whoever started it takes note. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import threading
import time
from collections import OrderedDict
from typing import Any, BinaryIO

import numpy as np

from tec.choices.store.database import machine_text

_KEPT = 32  # functions that are kept built: the default and the rival of each task come again
_SLICE_S = 1e-3  # of a timing, at least: long beside the clock and a call from Python, short beside a turn of the system's scheduler
_TURNS = {"trial": (12, 0.4), "duel": (40, 3.0)}  # pairs of timings, and seconds for them
_HOPELESS = 1.5  # slower than this in each of the first three pairs: more pairs would not change it
# Of results, as a share of the largest: sums in another order differ by so much.
_CLOSE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}


class Bench:
    """Built functions, their arguments, and their times on one device."""

    def __init__(self) -> None:
        self.built: OrderedDict[tuple[str, bytes], Any] = OrderedDict()
        self.references: OrderedDict[Any, Any] = OrderedDict()

    def function(self, target: str, func: bytes) -> Any:
        """The module of pickled loop IR."""
        found = self.built.get((target, func))
        if found is None:
            found = self.built[target, func] = _build(func, target)
            if len(self.built) > _KEPT:
                self.built.popitem(last=False)
        self.built.move_to_end((target, func))
        return found

    def arguments(self, module: Any, dev: Any, seed: int) -> list[Any]:
        """Arrays for a function's parameters: inputs filled by the seed, outputs zeros."""
        import tec

        rng = np.random.default_rng(seed)
        out = []
        for p in module.signature["params"]:
            shape, dtype = tuple(p["shape"]), p["dtype"]
            if p["writes"]:
                data: Any = np.zeros(shape, _numpy(dtype))
            elif dtype == "bool" or "int" in dtype:
                data = rng.integers(0, 2, shape).astype(_numpy(dtype))
            else:
                data = rng.uniform(0.1, 1.0, shape).astype(_numpy(dtype))
            out.append(tec.nd.array(data, dev, dtype=dtype) if dtype == "bfloat16" else tec.nd.array(data, dev))
        return out

    def results(self, module: Any, args: list[Any]) -> list[Any]:
        module(*args)
        return [a.numpy() for a, p in zip(args, module.signature["params"]) if p["writes"]]

    def prepare(self, job: dict[str, Any]) -> Any:
        """Build, check, and give what times them: timer() -> {"ratio", "seconds", "rival_seconds"}."""
        import tec

        if job["is_timed"] and not tec.Target(job["target"]).is_gpu:
            here = machine_text(tec.Target(job["target"]).machine)
            if here != job["machine"]:
                raise WrongMachine(f"this worker runs on {here}, and the search is for {job['machine']}")
        dev = tec.device(job["device"])
        candidate, rival = (self.function(job["target"], job[k]) for k in ("candidate", "rival"))
        args = self.arguments(candidate, dev, job["seed"])
        key = job["target"], job["default"], job["seed"]
        if key not in self.references:
            self.references[key] = self.results(self.function(job["target"], job["default"]), list(args))
            if len(self.references) > 4:
                self.references.popitem(last=False)
        for got, want in zip(self.results(candidate, args), self.references[key]):
            _compare(got, want)
        if dev.is_emulated:
            return lambda: _modelled(dev, candidate, rival, args)
        return lambda: _timed(candidate, rival, args, dev, job["kind"])


def _build(func: bytes, target: str) -> Any:
    import tec
    from tec.ir.visit import deep_recursion

    @deep_recursion()
    def build() -> Any:
        return tec.build(pickle.loads(func), target=target)

    return build()


def _numpy(dtype: str) -> Any:
    return np.float32 if dtype == "bfloat16" else dtype


def _compare(got: Any, want: Any) -> None:
    name = str(got.dtype)
    if name not in _CLOSE:
        if not np.array_equal(got, want):
            raise WrongResult("other results than the default schedule's")
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    if not np.allclose(a, b, rtol=0.0, atol=_CLOSE[name] * scale + 1e-30, equal_nan=True):
        worst = float(np.nanmax(np.abs(a - b)))
        raise WrongResult(
            f"results differ from the default schedule's by {worst:.3g}, where the largest is {scale:.3g}"
        )


class WrongMachine(Exception):
    """A worker on another kind of machine: its times are not the search's."""


class WrongResult(Exception):
    """A candidate that computes something else."""


def _timed(candidate: Any, rival: Any, args: list[Any], dev: Any, kind: str) -> dict[str, float]:
    """Candidate and rival in turn, so that what else the machine does meets both."""
    turns, seconds = _TURNS[kind]
    timers = [m.time_evaluator(None, dev, number=1, warmup=1) for m in (candidate, rival)]
    numbers = []
    for t in timers:
        once = min(t(*args).mean, t(*args).mean)
        numbers.append(max(1, min(10_000, int(_SLICE_S / max(once, 1e-7)))))
        t.number, t.warmup = numbers[-1], 0
    pairs: list[tuple[float, float]] = []
    start = time.perf_counter()
    for k in range(turns):
        first = k % 2  # who goes first finds what the other left in the caches
        times = [0.0, 0.0]
        for side in (first, 1 - first):
            times[side] = timers[side](*args).mean
        pairs.append((times[0], times[1]))
        spent = time.perf_counter() - start
        if k >= 2 and (all(a > _HOPELESS * b for a, b in pairs) or spent > seconds):
            break
    # The lower quartile of each: on a busy host more than half of the slices may have met other work, which says nothing of the code; the minimum
    # alone hangs on one slice.
    mine, its = (sorted(p[side] for p in pairs)[len(pairs) // 4] for side in (0, 1))
    return {"ratio": mine / its, "seconds": mine, "rival_seconds": its}


def _modelled(dev: Any, candidate: Any, rival: Any, args: list[Any]) -> dict[str, float]:
    """Times of the software GPU's model: the same each time."""
    from tec.emulator import emulator_profile
    from tec.target import Target

    times = []
    for m in (candidate, rival):
        with emulator_profile(dev.driver, product=Target(m.target).machine.name) as p:
            m(*args)
        times.append(sum(r.estimate.microseconds for r in p.launches) * 1e-6)
    return {"ratio": times[0] / times[1], "seconds": times[0], "rival_seconds": times[1]}


# ---- the pipe


def send(stream: BinaryIO, message: Any) -> None:
    """A message behind its length."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def main() -> None:
    """Serve jobs until standard input ends."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what compiled code prints is no message
    inbox: list[Any] = []
    ready = threading.Condition()

    def read() -> None:
        # A thread of its own: the end of standard input ends the process in the middle of a job, too.
        while True:
            head = source.read(8)
            if len(head) < 8:
                os._exit(0)
            data = source.read(struct.unpack("<q", head)[0])
            with ready:
                inbox.append(pickle.loads(data))
                ready.notify()

    threading.Thread(target=read, daemon=True).start()

    def receive() -> Any:
        with ready:
            while not inbox:
                ready.wait()
            return inbox.pop(0)

    bench = Bench()
    while True:
        job = receive()
        try:
            timer = bench.prepare(job)
            send(sink, {"ready": True})
            if receive() == "go":
                send(sink, timer())
        except MemoryError:
            send(sink, {"error": "out of memory"})
        except WrongResult as error:
            send(sink, {"error": f"wrong result: {error}"})
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            hint = getattr(error, "hint", None)  # of tec's errors
            send(sink, {"error": f"{said} ({hint})" if hint else said})


if __name__ == "__main__":
    if "TEC_TUNE_PATH" in os.environ:
        sys.path[:] = json.loads(os.environ.pop("TEC_TUNE_PATH"))
    main()
