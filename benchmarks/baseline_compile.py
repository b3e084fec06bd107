"""What compiling ResNet-50 costs, from cold: calls of Python functions (counted) and processor seconds (clocked), as rows of results.

Each figure is of a process of its own without any cache. Calls are those that the profiler of `sys` is told of in all threads, of Python functions alone; seconds are
of the compiler's own process, without LLVM's workers. `make test`'s processor seconds are of kind "tests" and come from whoever runs them: `python -m benchmarks.baseline_compile tests SECONDS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.records import ROOT, Maker, Record, append

TARGETS = {"x86-64-v4": "llvm -mcpu=x86-64-v4", "gfx942": "rocm -mcpu=gfx942"}
BAND = 1.25  # of processor seconds on a machine with other work
_CHILD = """
import json, resource, sys, threading
import tec
from tools import zoo
model, calls = zoo.resnet50(), [0]
def count(frame, event, arg):
    if event == "call":
        calls[0] += 1
if sys.argv[2] == "calls":
    threading.setprofile(count)
    sys.setprofile(count)
def seconds():
    mine = resource.getrusage(resource.RUSAGE_SELF)
    return mine.ru_utime + mine.ru_stime
before = seconds()
tec.compile(model, sys.argv[1], cache=False, progress=lambda *a: None)
sys.setprofile(None)
print(json.dumps([seconds() - before, calls[0]]))
"""


def child(target: str, what: str, tree: Path) -> tuple[float, int]:
    """Processor seconds of the process and calls of Python functions."""
    # In the tree's folder, since `python -c` looks there first; with bytecode, so that no module is compiled within the clocked part a second time.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "TEC_CACHE_DISABLE": "1", "PYTHONPATH": os.pathsep.join(map(str, (tree, tree / "frontends", ROOT)))}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, target, what], capture_output=True, text=True, check=True, env=env, cwd=tree
    )
    seconds, calls = json.loads(done.stdout.splitlines()[-1])
    return seconds, calls


def measure(make: Maker, quick: bool, only: list[str]) -> Iterator[Record]:
    for label, target in TARGETS.items():
        name = "ResNet-50 float32, cold"
        if only and not any(w in f"{name}, {label}" for w in only):
            continue
        if quick and label != "x86-64-v4":
            continue
        start = time.process_time()
        _, calls = child(target, "calls", make.tree)
        yield make.counted(
            name, "calls of Python functions", calls, "calls", target=label, note=f"Python {sys.version.split()[0]}"
        )
        if not quick:
            seconds, _ = child(target, "seconds", make.tree)
            yield make.clocked(name, "processor time", seconds, "s", target=label, band=BAND, note="of the process; LLVM's workers apart")  # fmt: skip
        print(f"{name}, {label}: {time.process_time() - start:.1f} s of this process", file=sys.stderr, flush=True)


def main() -> None:
    """Keep the processor seconds of a run of the tests."""
    if len(sys.argv) != 3 or sys.argv[1] != "tests":
        sys.exit(__doc__)
    make = Maker("tests", "make test")
    append([make.clocked("make test", "processor time", float(sys.argv[2]), "s", band=BAND)])


if __name__ == "__main__":
    main()
