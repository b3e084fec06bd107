"""A compiled model behind the engine and the API: texts that are under way together are those that it writes alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tec.lm import LanguageModel, embedder, load
from tec.lm.serve.app import application
from tec.lm.serve.batches import BatchEngine
from tec.lm.serve.compiled import engine_of, served_embedder, served_of
from tec.lm.serve.engine import Done, Request, Token
from tec.lm.serve.slots import SlotEngine
from tests.unit.lm.tiny import llama

from .scripted import running

PROMPTS = ["abcabc", "abcabd", "hello there", "x", "abcabcabc", "another one"]


@pytest.fixture(scope="module")
def lm():
    return load(llama(), context=48, target="llvm")


def alone(lm, prompt: str, most: int = 12) -> list[int]:
    generation = lm.generate(prompt, max_tokens=most)
    list(generation)
    return generation.ids


@pytest.fixture(scope="module")
def draft():
    return load(llama(what=3), context=48, target="llvm")


@pytest.mark.parametrize("slots, guesses, block", [(3, "", 0), (2, "ngrams", 0), (4, "ngrams", 8), (4, "draft", 8)])
def test_texts_together(lm, draft, slots, guesses, block):
    more = {"ngrams": guesses == "ngrams", "draft": draft if guesses == "draft" else None}
    engine = engine_of(lm, slots=slots, block=block, **more)
    assert isinstance(engine, BatchEngine if block else SlotEngine)
    ends = [threading.Event() for _ in PROMPTS]
    tokens: list[list[int]] = [[] for _ in PROMPTS]

    def listener(k):
        def listen(event):
            if isinstance(event, Token):
                tokens[k].append(event.id)
            elif isinstance(event, Done):
                assert event.error is None, event.error
                ends[k].set()

        return listen

    try:
        for k, prompt in enumerate(PROMPTS):
            engine.submit(Request(lm.encode(prompt), 12), listener(k))
        assert all(e.wait(120) for e in ends)
        assert tokens == [alone(lm, p) for p in PROMPTS]
        assert not (guesses and block) or engine.state()["guessed"]
    finally:
        engine.close()


@pytest.mark.parametrize("block", [8, 0])
def test_a_server_has_no_network_that_it_does_not_run(lm, block):
    """The model's own is made where texts go on in turn, and when somebody asks for it."""
    later = LanguageModel(llama(), context=48, target="llvm", later=True)
    engine = engine_of(later, slots=2, block=block)
    try:
        assert later.is_made == (block == 0) and "MB" in repr(later)
        heard = threading.Event()
        tokens: list[int] = []

        def listen(event):
            tokens.append(event.id) if isinstance(event, Token) else heard.set()

        engine.submit(Request(lm.encode("abcabc"), 12), listen)
        assert heard.wait(120) and tokens == alone(lm, "abcabc") and later.is_made == (block == 0)
    finally:
        engine.close()
    assert alone(later, "abcabc") == tokens and later.is_made and later.report["weight_bytes"]


def test_the_api(openai, lm):
    served = served_of(lm, "tiny", slots=2, block=8)
    with (
        running(application(served)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0) as client,
    ):
        answer = client.completions.create(model="tiny", prompt="abcabc", temperature=0, max_tokens=12)
        assert answer.choices[0].text == lm.checkpoint.tokenizer.decode(alone(lm, "abcabc"))
        with pytest.raises(openai.BadRequestError, match="the context has 48 tokens"):
            client.completions.create(model="tiny", prompt="x" * 48)
        with pytest.raises(openai.BadRequestError, match="has no chat template"):
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}])
    served.engine.close()


def test_a_model_for_embeddings_alone(openai):
    model = embedder(llama(), target="llvm", cache=False)
    served = served_embedder(model, "vectors")
    with (
        running(application(served)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0) as client,
    ):
        found = client.embeddings.create(model="vectors", input=["abc", "hello there"])
        for text, one in zip(("abc", "hello there"), found.data):
            np.testing.assert_allclose(one.embedding, model.embed(text), atol=1e-6)
        with pytest.raises(openai.APIStatusError, match="writes no texts"):
            client.completions.create(model="vectors", prompt="abc")
    served.engine.close()
