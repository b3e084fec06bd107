"""Language models beside llama.cpp: reading prompts of 128 and 512 tokens, and writing 64.

    TEC_NUM_THREADS=1 python -m benchmarks.lm model.gguf [--repeats 5] [--json out.json]

One process, and the two in turn, so that a clock that changes meets both alike; medians of the processor time of this process, which other processes do not
lengthen (with more than one thread it is that of all of them together, and the wall's is said beside it). llama.cpp is the package xllamacpp; without it tec's figures stand
alone. Writing is what a text of a prompt and some tokens takes longer than the prompt and one token.
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
from benchmarks.lm_texts import LlamaCpp

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

    def text(self, tokens: list[int], count: int) -> None:
        """A prompt, and `count` tokens behind it."""
        self.lm.executor.reset()
        self.lm.ids = []
        token = int(self.lm.begin(tokens).argmax())
        for _ in range(count - 1):
            token = int(self.lm.next(token).argmax())


class Peer:
    """Greedy, by llama.cpp. Raises ImportError without it."""

    def __init__(self, path: Path, threads: int):
        self.server = LlamaCpp(path, threads).server

    def text(self, tokens: list[int], count: int) -> None:
        """See `Tec`."""
        asked = {"prompt": tokens, "max_tokens": count, "temperature": 0, "ignore_eos": True, "stream": False, "cache_prompt": False}  # fmt: skip
        self.server.handle_completions(asked)


def measure(engines: dict[str, Any], vocabulary: int, repeats: int) -> dict[str, dict[str, float]]:
    """Tokens a second by engine and work."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {n: {} for n in engines}
    tokens = [(7919 * k + 13) % vocabulary for k in range(max(PROMPTS))]
    for _ in range(repeats + 1):
        for name, engine in engines.items():
            for count in PROMPTS:
                found[name].setdefault(f"read {count}", []).append(
                    timed(lambda e=engine, n=count: e.text(tokens[:n], 1))
                )
            short, long = (timed(lambda e=engine, n=n: e.text(tokens[:PAST], n)) for n in (1, WRITTEN + 1))
            found[name].setdefault(f"write {WRITTEN}", []).append((long[0] - short[0], long[1] - short[1]))
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
        engines["llama.cpp"] = Peer(given.model, threads)
    except ImportError:
        print("xllamacpp is not installed: tec's figures stand alone")
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
