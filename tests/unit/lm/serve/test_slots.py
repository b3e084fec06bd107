"""The engine alone: batching in turn, what is shared between texts, cancellation, and faults."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tec.errors import ArgumentError, InternalError
from tec.lm.sampling import Sampling
from tec.lm.serve.engine import Done, Refused, Request, Token
from tec.lm.serve.slots import PIECE, SlotEngine
from tests.seeds import some

from .scripted import Scripted, ScriptedSlot, byte_tokenizer

TOKENIZER = byte_tokenizer()


class Kept:
    """What a listener heard."""

    def __init__(self):
        self.events, self.end = [], threading.Event()

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, Done):
            self.end.set()

    def wait(self) -> Done:
        assert self.end.wait(60)
        return self.events[-1]

    @property
    def text(self) -> str:
        return "".join(e.text if isinstance(e, Token) else e.rest for e in self.events)


def ask(text: str, most: int = 100, **more) -> Request:
    return Request(TOKENIZER.encode(f"{text}>"), most, more.pop("sampling", Sampling()), **more)


@pytest.fixture
def made():
    engines = []

    def make(model=None, **more):
        engines.append(SlotEngine(model or Scripted(), TOKENIZER.token_bytes, **more))
        return engines[-1]

    yield make
    for e in engines:
        e.close()


def test_texts_go_on_in_turn(made):
    """A long prompt is read in pieces between the tokens of another text."""
    model = Scripted(context=20_000)
    engine = made(model, slots=2)
    order = []
    first, second = Kept(), Kept()

    def heard(name, kept):
        def listen(event):
            order.append(name)
            kept(event)

        return listen

    start = threading.Event()
    model_read = model.logits

    def logits(ids):
        start.wait(10)
        return model_read(ids)

    model.logits = logits
    engine.submit(ask("say " + "b" * 40), heard("short", first))
    engine.submit(ask("x" * (PIECE * 10) + "say zz"), heard("long", second))
    start.set()
    first.wait(), second.wait()
    assert first.text == "b" * 40 and second.text == "zz"
    assert order.index("long") >= 9, "tokens of the short text come while the long prompt is read"
    assert order.index("long") < len(order) - 5, "and the long one does not wait for its end"
    assert max(model.reads) == PIECE


def test_what_texts_have_in_common_is_read_once(made):
    model = Scripted()
    engine = made(model, slots=2)
    head = "y" * 100
    for text, cached in (("say ab", 0), ("say ab", 106), ("say cd", 104)):
        kept = Kept()
        engine.submit(ask(head + text), kept)
        assert kept.wait().cached == cached and kept.text == text[4:]
    assert sum(model.reads) < 107 + 8 + 20, "only what is new is read"
    kept = Kept()
    engine.submit(ask("say other"), kept)
    assert kept.wait().cached == 0, "another text takes a free slot, and the first one keeps its own"
    kept = Kept()
    engine.submit(ask(head + "say ab"), kept)
    assert kept.wait().cached == 104


def test_ends(made):
    engine = made()
    for request, text, reason in (
        (ask("say abc"), "abc", "stop"), (ask("say abc", 2), "ab", "length"), (ask("say abcd", stop=["c"]), "ab", "stop"),
        (ask("say abc", 5, ignore_end=True), "abc", "length"), (ask("say ab€", 3), "ab\ufffd", "length"),
    ):  # fmt: skip
        kept = Kept()
        engine.submit(request, kept)
        assert (kept.wait().reason, kept.text) == (reason, text)


def test_a_cancelled_text_ends(made):
    model = Scripted(seconds=0.005)
    engine = made(model, slots=1)
    first, second, third = Kept(), Kept(), Kept()
    running = engine.submit(ask("say draw", 3000), first)
    waiting = engine.submit(ask("say draw", 3000), second)
    engine.submit(ask("say end"), third)
    waiting.cancel()
    running.cancel()
    assert first.wait().reason == second.wait().reason == "cancelled" and second.text == ""
    assert third.wait().reason == "stop" and third.text == "end"


def test_faults_end_one_text_alone(made):
    engine = made(slots=2)
    good, failed, broken = Kept(), Kept(), Kept()
    engine.submit(ask("say " + "g" * 50), good)
    engine.submit(ask("say fail"), failed)
    engine.submit(ask("say break"), broken)
    assert isinstance(failed.wait().error, ArgumentError)
    assert isinstance(broken.wait().error, InternalError) and isinstance(
        broken.events[-1].error.__cause__, ZeroDivisionError
    )
    assert good.wait().reason == "stop" and good.text == "g" * 50
    assert engine.state()["running"] == 0


def test_a_listener_that_is_gone(made):
    engine = made(slots=1)

    def gone(event):
        raise RuntimeError("the loop is closed")

    engine.submit(ask("say draw", 3000), gone)
    kept = Kept()
    engine.submit(ask("say x"), kept)
    assert kept.wait().reason == "stop"


def test_refusals(made):
    model = Scripted(context=64, seconds=0.01)
    engine = made(model, slots=1, queue=1)
    with pytest.raises(ArgumentError, match="the context has 64"):
        engine.submit(ask("x" * 64), Kept())
    with pytest.raises(ArgumentError, match="no tokens"):
        engine.submit(Request([], 5), Kept())
    with pytest.raises(ArgumentError, match="makes no embeddings"):
        engine.embed([1])
    kept = [Kept() for _ in range(2)]
    for k in kept:
        engine.submit(ask("say draw", 40), k)
    with pytest.raises(Refused, match="are under way"):
        for _ in range(3):
            engine.submit(ask("say draw", 40), Kept())
    engine.close()
    assert {k.wait().reason for k in kept} <= {"cancelled", "length"}
    with pytest.raises(Refused, match="stopping"):
        engine.submit(ask("say x"), Kept())
    with pytest.raises(ArgumentError, match="one slot"):
        SlotEngine(model, TOKENIZER.token_bytes, slots=0)


class Guessed(ScriptedSlot):
    """Guesses the script, with a wrong token now and then."""

    def __init__(self, model, rng):
        super().__init__(model)
        self.rng, self.right, self.runs = rng, 0, 0

    def guess(self, ids, room):
        found = []
        for _ in range(min(room, int(self.rng.integers(0, 6)))):
            best = int(np.argmax(self.model.logits([*ids, *found])))
            found.append(best if self.rng.random() < 0.8 else int(self.rng.integers(0, 256)))
        return found

    def check(self, tokens):
        self.runs += 1
        rows = []
        for t in tokens:
            self.ids.append(t)
            rows.append(self.model.logits(self.ids))
        return np.array(rows)

    def learn(self, right):
        self.right += right


@pytest.mark.parametrize("k", some(3))
def test_guessed_texts_are_the_same(made, k):
    rng = np.random.default_rng(k)
    model, slots = Scripted(), []
    model.slot = lambda: slots.append(Guessed(model, rng)) or slots[-1]
    engine, plain = made(model, slots=2), made(slots=2)
    requests = [
        ask(f"say {'abcdefgh' * int(rng.integers(1, 5))}", int(rng.integers(1, 40)), stop=["ha"] * int(n % 2))
        for n in range(6)
    ]
    for request in requests:
        got, want = Kept(), Kept()
        engine.submit(request, got)
        plain.submit(request, want)
        assert got.wait().reason == want.wait().reason and got.text == want.text
        assert [e.id for e in got.events[:-1]] == [e.id for e in want.events[:-1]]
    assert sum(s.runs for s in slots) < sum(r.most for r in requests) and sum(s.right for s in slots)
    drawn = Kept()
    runs = sum(s.runs for s in slots)
    engine.submit(ask("draw", 5, sampling=Sampling(temperature=1.0)), drawn)
    assert drawn.wait().reason and runs == sum(s.runs for s in slots)  # what is drawn is not guessed
