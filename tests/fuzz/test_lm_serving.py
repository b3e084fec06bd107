"""Engines under drawn requests: each text is what a plain run of the model writes with the same settings, whatever is served beside it.

Settings, stops, forms, probabilities and penalties are drawn together; prompts share beginnings, clients leave, blocks are few, and greedy texts are guessed ahead. What
differs must be a tie.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tec
from tec.lm import Checkpoint, load
from tec.lm.sampling import Sampling
from tec.lm.serve.compiled import engine_of
from tec.lm.serve.engine import Done, Request, Token
from tests import seeds
from tests.unit.lm.families import references
from tests.unit.lm.test_families import folder_of
from tests.unit.lm.tiny import VOCABULARY, Bytes, llama

CONTEXT, REQUESTS = 64, 14
SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]},
    {"enum": ["red", "green", "blue"]},
    {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 1, "maxItems": 3},
]
KINDS = ("mistral 0", "gemma3_text 1", "gpt_oss 0", "lfm2 0", "deepseek_v2 0", "qwen3 1")
TIE = {None: 2e-3, "int8": 5e-2}  # how far apart two logits may be of which either is the likeliest


class _Heard:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.end = threading.Event()

    def __call__(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, Done):
            self.end.set()

    @property
    def tokens(self) -> list[Token]:
        return [e for e in self.events if isinstance(e, Token)]

    @property
    def text(self) -> str:
        return "".join(t.text for t in self.tokens) + str(self.events[-1].rest)


def _sampling(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if rng.random() < 0.5:
        made = {"temperature": rng.choice([0.3, 0.8, 1.2]), "top_k": rng.choice([0, 5, 40]), "top_p": rng.choice([1.0, 0.9, 0.5]), "seed": rng.randrange(1000)}  # fmt: skip
    for name, value in (("repetition_penalty", 1.3), ("presence_penalty", 0.7), ("frequency_penalty", 0.4)):
        if rng.random() < 0.2:
            made[name] = value
    if rng.random() < 0.2:
        made["logit_bias"] = {rng.randrange(VOCABULARY): rng.choice([-100.0, 2.0]) for _ in range(3)}
    return made


def _is_tie(lm: Any, prompt: list[int], wanted: list[int], got: list[int], near: float) -> bool:
    """Whether the first token that differs is as likely, nearly."""
    at = next((k for k, (a, b) in enumerate(zip(wanted, got)) if a != b), None)
    if at is None:
        return False
    logits = lm.begin([*prompt, *wanted[:at]])
    return bool(abs(logits[wanted[at]] - logits[got[at]]) < near)


def _serve(lm: Any, rng: random.Random, near: float = TIE[None], **how: Any) -> None:
    engine = engine_of(lm, **how)
    heads = [[rng.randrange(4, VOCABULARY) for _ in range(rng.randrange(1, 30))] for _ in range(3)]
    asked = []
    try:
        for _ in range(REQUESTS):
            tail = [rng.randrange(4, VOCABULARY) for _ in range(rng.randrange(1, 10))]
            prompt = [*(rng.choice(heads) if rng.random() < 0.6 else []), *tail]
            prompt = [7, 8, 9] * rng.randrange(1, 8) if rng.random() < 0.2 else prompt
            prompt = (prompt * CONTEXT)[: CONTEXT - 1] if rng.random() < 0.1 else prompt
            settings = _sampling(rng)
            most = min(rng.randrange(1, 25), CONTEXT - len(prompt))
            stop, logprobs = rng.choice([(), (), ("a",), ("Q", "zz")]), rng.choice([None, None, 2])
            schema = rng.choice([None, None, None, *SCHEMAS])
            form = None if schema is None else lm._forms.of(schema)
            heard = _Heard()
            job = engine.submit(Request(prompt, most, Sampling(**settings), stop, logprobs, form=form), heard)
            if leaves := rng.random() < 0.15:
                time.sleep(rng.random() * 0.003)
                job.cancel()
            settings |= {"max_tokens": most, "stop": list(stop), "logprobs": logprobs or 0, "schema": schema}
            asked.append((prompt, settings, heard, leaves))
        for prompt, settings, heard, leaves in asked:
            assert heard.end.wait(120)
            end = heard.events[-1]
            assert end.error is None, end.error
            alone = lm.generate(prompt, **settings)
            text, got = "".join(alone), [t.id for t in heard.tokens]
            if leaves and end.reason == "cancelled":
                right = got == alone.ids[: len(got)]
            else:
                reason = "stop" if alone.reason == "end" else alone.reason
                right = (got, heard.text, end.reason) == (alone.ids, text, reason)
            assert right or _is_tie(lm, prompt, alone.ids, got, near), (prompt, settings, got, alone.ids, end.reason)
            for token, row in zip(heard.tokens, alone.logprobs if right and near == TIE[None] else ()):
                assert abs(float(token.logprob or 0) - row[0][1]) < near
        state = engine.state()
        assert state["running"] == 0 and state.get("free_blocks") == state.get("blocks")
    finally:
        engine.close()


@pytest.mark.parametrize("how", [{"block": 8, "blocks": 11, "ngrams": True}, {"block": 0}])
def test_drawn_requests(how: dict[str, Any]) -> None:
    made = llama({"eos_token_id": 3})
    lm = load(Checkpoint("llama", made.config, made.tensors, Bytes), target="llvm", context=CONTEXT)
    _serve(lm, random.Random(seeds.stream("serving")), slots=3, **how)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache_type", [None, "int8"])
def test_drawn_requests_of_architectures(kind: str, cache_type: str | None, tmp_path: Path) -> None:
    opened = tec.lm.open(folder_of(references()[kind], tmp_path))
    config = {**opened.config, "eos_token_id": 3}
    checkpoint = Checkpoint(opened.architecture, config, opened.tensors, Bytes)
    lm = load(checkpoint, target="llvm", context=CONTEXT, cache_type=cache_type)
    draft = load(llama(what=3), target="llvm", context=CONTEXT // 2)
    rng = random.Random(seeds.stream(f"serving {kind}"))
    for more in ({}, {} if kind == "lfm2 0" else {"ngrams": True}, {} if kind == "lfm2 0" else {"draft": draft}):
        _serve(lm, rng, TIE[cache_type], slots=rng.choice([2, 4, 6]), block=8, blocks=rng.choice([None, 9]), **more)
