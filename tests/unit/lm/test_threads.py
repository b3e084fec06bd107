"""Threads that ask one model for texts: each gets what it would get alone, or its beginning where another text was begun."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tec.errors import ArgumentError
from tec.lm import load
from tests import seeds

from .tiny import llama

THREADS, TEXTS = 4, 10
KINDS = ("plain", "plain", "drawn", "likely", "ngrams", "draft", "beams", "samples", "saved")


@pytest.fixture(scope="module")
def models() -> Any:
    """One that threads share, one that goes on alone, and a smaller one that guesses."""
    return [load(llama(what=k), target="llvm") for k in (0, 0, 3)]


def written(lm: Any, draft: Any, kind: str, prompt: list[int], most: int) -> Any:
    """(tokens, text, why it ended), or the tokens of several texts."""
    if kind in ("beams", "samples"):
        more = {} if kind == "beams" else {"temperature": 0.9, "seed": most}
        return [text.ids for text in getattr(lm, kind)(prompt, 2, max_tokens=6, **more)]
    how = {"drawn": {"temperature": 0.8, "seed": most}, "likely": {"logprobs": 2}, "ngrams": {"ngrams": True}, "draft": {"draft": draft}}  # fmt: skip
    run = lm.generate(prompt, max_tokens=most, stop=["a"], **how.get(kind, {}))
    text = "".join(run)
    return run.ids, text, run.reason


def test_texts_of_several_threads(models: Any, tmp_path: Path) -> None:
    lm, alone, draft = models
    rng = random.Random(seeds.stream("threads"))
    prompts = [[rng.randrange(128) for _ in range(rng.randrange(1, 30))] for _ in range(4)]
    asked = [
        [(rng.choice(KINDS), rng.choice(prompts), rng.randrange(1, 24)) for _ in range(TEXTS)] for _ in range(THREADS)
    ]
    wanted = [[kind == "saved" or written(alone, draft, kind, *how) for kind, *how in some] for some in asked]
    wrong: list[Any] = []

    def ask(n: int) -> None:
        for (kind, *how), want in zip(asked[n], wanted[n]):
            try:
                if kind == "saved":
                    lm.save_state(tmp_path / f"state{n}")
                    continue
                got = written(lm, draft, kind, *how)
            except ArgumentError as error:  # a state may be asked for before there is a text
                got = str(error)
                if kind == "saved" and "no text yet" in got:
                    continue
            except Exception as error:
                got = repr(error)
            is_begun = isinstance(got, tuple) and got[2] == "stop" and want[0][: len(got[0])] == got[0]
            if got != want and not is_begun:
                wrong.append((kind, how, got, want))

    threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads) and not wrong, wrong[:3]
