"""Probabilities of a prompt's own tokens, as evaluation harnesses ask for them: `echo` with `logprobs`, and no token or one behind the prompt."""

from __future__ import annotations

import random
import threading

import httpx
import numpy as np
import pytest

from tec.lm import load
from tec.lm.joint import PagedModel
from tec.lm.sampling import log_probabilities
from tec.lm.serve.batches import BatchEngine
from tec.lm.serve.engine import Done, Read, Request, Token
from tec.lm.serve.slots import SlotEngine
from tests import seeds
from tests.unit.lm.tiny import llama

from .scripted import Scripted, ScriptedJoint, byte_tokenizer, server


class Kept:
    """Events, and that of the end."""

    def __init__(self):
        self.events, self.over = [], threading.Event()

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, Done):
            self.over.set()

    def wait(self):
        assert self.over.wait(60), "no end"
        assert self.events[-1].error is None, self.events[-1].error
        return self.events[-1]

    @property
    def read(self):
        return [t for e in self.events if isinstance(e, Read) for t in e.tokens]


def _is_right(read, prompt, logits_behind):
    """Each token of the prompt, told once and in order, with what the model thought of it."""
    assert [t.id for t in read] == list(prompt) and read[0].logprob is None
    for k, token in enumerate(read[1:], 1):
        x = np.asarray(logits_behind(prompt[:k]), np.float64)
        own = x[token.id] - x.max() - np.log(np.exp(x - x.max()).sum())
        assert abs(token.logprob - own) < 2e-4, (k, token.logprob, own)


@pytest.mark.parametrize("kind", ["together", "in turn"])
def test_what_a_model_thinks_of_prompts(kind):
    """Prompts of several pieces, some of them twice, with blocks for two thirds of them: whoever gives its blocks back is told nothing twice."""
    rng, script = random.Random(seeds.stream("scoring")), Scripted(context=400)
    bytes_of = byte_tokenizer().token_bytes
    if kind == "together":
        engine = BatchEngine(ScriptedJoint(script, blocks=60), bytes_of, slots=5, piece=48)
    else:
        engine = SlotEngine(script, bytes_of, slots=3)
    asked = []
    try:
        for k in range(10):
            length = rng.choice([1, 2, 47, 48, 49, 300])
            prompt = asked[-1][0] if k % 3 == 2 else [*b"say ", *(rng.randrange(97, 123) for _ in range(length))]
            one = Kept()
            engine.submit(Request(prompt, k % 3, logprobs=2, scores_prompt=True), one)
            asked.append((prompt, k % 3, one))
        whole = [0] * 399 + [65]  # as long as the context: nothing can follow, and nothing is asked for
        one = Kept()
        engine.submit(Request(whole, 0, logprobs=0, scores_prompt=True), one)
        asked.append((whole, 0, one))
        for prompt, most, one in asked:
            end = one.wait()
            _is_right(one.read, prompt, script.logits)
            written = [e for e in one.events if isinstance(e, Token)]
            assert len(written) <= most and (most or end.reason == "length") and end.cached == 0
    finally:
        engine.close()


def test_a_compiled_model_scores_as_it_writes():
    lm = load(llama(), context=48, target="llvm")
    engine = BatchEngine(PagedModel(lm, block=8, blocks=20), lm.checkpoint.tokenizer.token_bytes, slots=4, piece=16)
    rng = np.random.default_rng(seeds.first())
    try:
        asked = [(rng.integers(0, 128, n).tolist(), Kept()) for n in (1, 2, 30, 40, 48)]
        for prompt, one in asked:
            engine.submit(Request(prompt, 0, logprobs=3, scores_prompt=True), one)
        for prompt, one in asked:
            one.wait()
            _is_right(one.read, prompt, lm.begin)
            for k, token in enumerate(one.read[1:], 1):
                top = log_probabilities(lm.begin(prompt[:k]), 3)
                np.testing.assert_allclose([p for _, p in token.top], [p for _, p in top], atol=2e-4)
    finally:
        engine.close()


@pytest.fixture(scope="module")
def address():
    with server() as (address, _):
        yield address


def test_a_harness(address):
    """Requests as lm-evaluation-harness sends them: lists of tokens, greedy, a token behind each or none; its sums are over what follows the context."""
    script, tokenizer = Scripted(), byte_tokenizer()
    texts = ["say yes>yes", "say yes>no", "Grüß 🎉"]
    for most in (0, 1):
        body = {
            "model": "scripted", "prompt": [tokenizer.encode(t) for t in texts], "max_tokens": most, "temperature": 0,
            "logprobs": 1, "echo": True, "seed": 1234,
        }  # fmt: skip
        answer = httpx.post(f"{address}/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["usage"]["completion_tokens"] <= most * 3
        for text, choice in zip(texts, found["choices"], strict=True):
            told, ids = choice["logprobs"], tokenizer.encode(text)
            assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
            assert len({len(v) for v in told.values()}) == 1 and len(told["tokens"]) - len(ids) in (0, most)
            assert choice["text"].startswith(text) and (most or choice["text"] == text)
            assert (most, choice["finish_reason"]) in ((0, "length"), (1, "length"), (1, "stop"))
            for k in range(1, len(ids)):
                x = np.asarray(script.logits(ids[:k]), np.float64)
                assert abs(told["token_logprobs"][k] - (x[ids[k]] - np.log(np.exp(x).sum()))) < 1e-4
                assert max(told["top_logprobs"][k].values()) >= told["token_logprobs"][k] - 1e-6
            assert all(
                choice["text"][at:].startswith(t) for at, t in zip(told["text_offset"], told["tokens"]) if t.isascii()
            )
    yes, no = (sum(c["logprobs"]["token_logprobs"][8:]) for c in found["choices"][:2])
    assert yes > no + 10


def test_nothing_is_written_where_nothing_is_asked_for(openai, address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        one = client.completions.create(model="scripted", prompt="say abc>", max_tokens=0)
        assert (one.choices[0].text, one.choices[0].finish_reason, one.usage.completion_tokens) == ("", "length", 0)
        assert (
            client.completions.create(model="scripted", prompt="say abc>", max_tokens=0, echo=True).choices[0].text
            == "say abc>"
        )
        stream = list(
            client.completions.create(
                model="scripted", prompt="say abc>", max_tokens=2, echo=True, logprobs=1, stream=True
            )
        )
        assert "".join(c.choices[0].text for c in stream) == "say abc>ab"
        told = [c.choices[0].logprobs for c in stream if c.choices[0].logprobs is not None]
        assert "".join(t for p in told for t in p.tokens) == "say abc>ab"
        assert [at for p in told for at in p.text_offset] == list(range(10))
        with pytest.raises(openai.BadRequestError, match="max_tokens is -1"):
            client.completions.create(model="scripted", prompt="x", max_tokens=-1)
        with pytest.raises(openai.BadRequestError, match="max_tokens is 0"):
            client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x"}], max_tokens=0)
