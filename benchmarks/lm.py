"""Language models beside llama.cpp: reading prompts of 128 and 512 tokens, and writing 64.

    TEC_NUM_THREADS=1 python -m benchmarks.lm model.gguf [--repeats 5] [--json out.json]

One process, and the two in turn, so that a clock that changes meets both alike; medians of the processor time of this process, which other processes do not
lengthen (with more than one thread it is that of all of them together, and the wall's is said beside it). llama.cpp is the package llama-cpp-python; without
it tec's figures stand alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tec.lm

PROMPTS, WRITTEN, PAST = (128, 512), 64, 128


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """(processor seconds, wall seconds) of a piece of work."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


class Tec:
    """Greedy, by `tec.lm`."""

    def __init__(self, path: Path):
        self.lm = tec.lm.load(path, target="llvm", context=1024)
        self.vocabulary = self.lm.config.vocabulary

    def read(self, tokens: list[int]) -> None:
        self.lm.executor.reset()
        self.lm.ids = []
        self.lm.begin(tokens)

    def write(self, token: int) -> int:
        return int(self.lm.next(token).argmax())


class LlamaCpp:
    """Greedy, by llama-cpp-python. Raises ImportError without it."""

    def __init__(self, path: Path, threads: int):
        from llama_cpp import Llama

        self.model: Any = Llama(
            str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False
        )

    def read(self, tokens: list[int]) -> None:
        self.model.reset()
        self.model.eval(tokens)

    def write(self, token: int) -> int:
        self.model.eval([token])
        return int(self.model.sample(temp=0.0))


def measure(engines: dict[str, Any], vocabulary: int, repeats: int) -> dict[str, dict[str, float]]:
    """Tokens a second by engine and work."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {n: {} for n in engines}
    tokens = [(7919 * k + 13) % vocabulary for k in range(max(PROMPTS))]
    for _ in range(repeats + 1):
        for name, engine in engines.items():
            for count in PROMPTS:
                found[name].setdefault(f"read {count}", []).append(timed(lambda e=engine, n=count: e.read(tokens[:n])))

            def write(e: Any = engine) -> None:
                token = tokens[-1]
                for _ in range(WRITTEN):
                    token = e.write(token)

            engine.read(tokens[:PAST])
            found[name].setdefault(f"write {WRITTEN}", []).append(timed(write))
    out: dict[str, dict[str, float]] = {}
    for name, works in found.items():
        for work, times in works.items():
            count = int(work.split()[1])
            for k, clock in enumerate(("processor", "wall")):
                out.setdefault(name, {})[f"{work}, {clock}"] = count / statistics.median(t[k] for t in times[1:])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    threads = int(os.environ.get("TEC_NUM_THREADS", "") or os.cpu_count() or 1)
    engines: dict[str, Any] = {"tec": Tec(given.model)}
    vocabulary = engines["tec"].vocabulary
    try:
        engines["llama.cpp"] = LlamaCpp(given.model, threads)
    except ImportError:
        print("llama-cpp-python is not installed: tec's figures stand alone")
    found = measure(engines, vocabulary, given.repeats)
    print(f"{given.model.name}, {threads} threads, tokens a second (medians of {given.repeats})")
    for work in found["tec"]:
        ratio = found["tec"][work] / found["llama.cpp"][work] if "llama.cpp" in found else float("nan")
        print(
            f"{work:24}" + "".join(f"{name} {works[work]:9.1f}   " for name, works in found.items()) + f"{ratio:5.2f}"
        )
    if given.json is not None:
        given.json.write_text(json.dumps({"model": given.model.name, "threads": threads, "figures": found}, indent=1))


if __name__ == "__main__":
    main()
