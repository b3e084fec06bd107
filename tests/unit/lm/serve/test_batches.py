"""The engine of batches: texts that go on together write what each writes alone, whenever they come and go, and however few blocks there are."""

from __future__ import annotations

import concurrent.futures
import random
import threading
import time

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, InternalError
from tec.lm import Checkpoint, load
from tec.lm.joint import Near, PagedModel, Piece, Rows, network_inputs
from tec.lm.model import LanguageModel
from tec.lm.sampling import Sampling
from tec.lm.serve.app import application
from tec.lm.serve.batches import BatchEngine
from tec.lm.serve.compiled import engine_of, served_of
from tec.lm.serve.engine import Done, Refused, Request
from tec.lm.serve.jobs import PIECE
from tests import seeds
from tests.unit.lm.tiny import Bytes, llama

from .scripted import Scripted, ScriptedJoint, running
from .test_slots import TOKENIZER, Kept, ask


@pytest.fixture
def made():
    engines = []

    def make(model=None, **more):
        engines.append(BatchEngine(model or ScriptedJoint(), TOKENIZER.token_bytes, **more))
        return engines[-1]

    yield make
    for e in engines:
        e.close()


def test_texts_share_runs(made):
    model = ScriptedJoint(Scripted(seconds=0.002))
    engine = made(model, slots=8)
    kept = [Kept() for _ in range(8)]
    for k, one in enumerate(kept):
        engine.submit(ask(f"say {'abcdefgh'[k] * 20}"), one)
    assert all(one.wait().reason == "stop" for one in kept)
    assert [one.text for one in kept] == [c * 20 for c in "abcdefgh"]
    assert len(model.batches) < 60, "not a run for each token of each text"


def test_a_long_prompt_is_read_beside_the_tokens_of_others(made):
    model = ScriptedJoint(Scripted(context=8192))
    engine = made(model, slots=4)
    short, long = Kept(), Kept()
    gate, script = threading.Event(), model.script.logits

    def logits(ids):
        gate.wait(10)
        return script(ids)

    model.script.logits = logits
    engine.submit(ask("say " + "b" * 60), short)
    engine.submit(ask("x" * (PIECE * 10) + "say zz"), long)
    gate.set()
    assert short.wait().reason == long.wait().reason == "stop"
    assert (short.text, long.text) == ("b" * 60, "zz")
    both = [b for b in model.batches if len(b) == 2 and max(b) > 1 and min(b) == 1]
    assert len(both) >= 9 and max(map(max, model.batches)) == PIECE


def test_prompts_take_over_blocks(made):
    model = ScriptedJoint(block=16)
    engine = made(model, slots=2)
    head = "y" * 100
    for text, cached in (("say ab", 0), ("say ab", 96), ("say cd", 96), ("say ab", 96)):
        one = Kept()
        engine.submit(ask(head + text), one)
        assert one.wait().cached == cached and one.text == text[4:]
    other = Kept()
    engine.submit(ask("z" * 100 + "say q"), other)
    assert other.wait().cached == 0
    assert engine.state()["free_blocks"] == engine.state()["blocks"]


def test_the_last_text_gives_its_blocks_back(made):
    model = ScriptedJoint(Scripted(context=64, seconds=0.001), block=8, blocks=10)
    engine = made(model, slots=4)
    kept = [Kept() for _ in range(4)]
    for k, one in enumerate(kept):
        engine.submit(ask("say " + "abcd"[k] * 25), one)
    assert [one.wait().reason for one in kept] == ["stop"] * 4
    assert [one.text for one in kept] == [c * 25 for c in "abcd"]
    assert engine.preempted > 0 and engine.state()["free_blocks"] == 10


def test_faults_end_one_text_alone(made):
    engine = made(slots=4)
    good, failed, broken = Kept(), Kept(), Kept()
    engine.submit(ask("say " + "g" * 50), good)
    engine.submit(ask("say fail"), failed)
    engine.submit(ask("say break"), broken)
    assert isinstance(failed.wait().error, ArgumentError) and isinstance(broken.wait().error, InternalError)
    assert good.wait().reason == "stop" and good.text == "g" * 50
    state = engine.state()
    assert state["running"] == 0 and state["free_blocks"] == state["blocks"]


def test_a_model_that_is_lost_ends_all_texts_and_refuses_others(made, monkeypatch, caplog):
    """Nobody waits for an engine whose thread has ended."""
    engine = made(slots=2)

    def lost():
        raise tec.errors.DeviceError("the device is lost")

    monkeypatch.setattr(engine, "_round", lost)
    kept = []
    for _ in range(4):  # the first ones are taken, before the thread has seen them
        one = Kept()
        try:
            engine.submit(ask("say hello"), one)
        except Refused:
            break
        kept.append(one)
    assert kept and all("the device is lost" in str(one.wait().error) for one in kept)
    with pytest.raises(Refused, match="stopping"):
        engine.submit(ask("say hello"), Kept())
    assert "the engine has ended" in caplog.text


class Woken(Kept):
    """One that is woken together with others."""

    def __init__(self, wake):
        super().__init__()
        self.wake = wake


def test_texts_are_told_beside_the_next_run_and_woken_once(made):
    """What listeners do takes no time between two runs, and a loop that many share is woken once for all of them."""
    model, heard, order, wakes = ScriptedJoint(), [], [], []

    def wake():
        wakes.append(1)

    kept = [Woken(wake) for _ in range(6)]
    begin = model.start

    def start(pieces):
        order.append(("start", sum(len(one.events) for one in kept)))
        wait = begin(pieces)

        def rows():
            heard.append(sum(len(one.events) for one in kept))
            return wait()

        return rows

    model.start = start
    gate = threading.Event()
    logits = model.script.logits
    model.script.logits = lambda ids: (gate.wait(10), logits(ids))[1]
    engine = made(model, slots=6)
    for k, one in enumerate(kept):
        engine.submit(ask("say " + "abcdef"[k] * 12), one)
    gate.set()
    assert [one.wait().reason for one in kept] == ["stop"] * 6
    assert [one.text for one in kept] == [c * 12 for c in "abcdef"]
    whole = [n for n, (_, before) in zip(heard[1:], order[1:]) if n > before]
    assert len(whole) > 8, "the run had begun when its predecessor's tokens were told"
    assert 0 < len(wakes) <= len(order) + 1


def test_the_likeliest_token_reads_no_logits(made):
    """Greedy texts go on by the token that the device chose; others read their own row."""

    class Far:
        def __init__(self, rows):
            self.rows, self.likeliest, self.read = rows, rows.likeliest, []

        def __getitem__(self, row):
            self.read.append(row)
            return self.rows[row]

    model, seen = ScriptedJoint(), []
    begin = model.start

    def start(pieces):
        found = Far(begin(pieces)())
        seen.append(found)
        return lambda: found

    model.start = start
    engine = made(model, slots=2)
    plain, drawn = Kept(), Kept()
    engine.submit(ask("say hello"), plain)
    assert plain.wait().reason == "stop" and plain.text == "hello" and not any(f.read for f in seen)
    engine.submit(ask("say hello", logprobs=2), drawn)
    assert drawn.wait().reason == "stop" and drawn.text == "hello" and any(f.read for f in seen)


def test_rows_without_numbers():
    x = np.random.default_rng(seeds.first()).standard_normal((4, 30)).astype(np.float32)
    x[1, 7], x[2, 3], x[3, 5] = np.nan, np.inf, x[3].max() + 1
    x[3, 9] = x[3, 5]
    rows = Rows(x)
    assert rows.likeliest == [int(x[0].argmax()), -1, -1, 5]
    assert (rows[3] == x[3]).all()


def test_what_is_no_number_ends_a_greedy_text(made):
    model = ScriptedJoint()
    model.script.logits = lambda ids: np.full(258, np.nan, np.float32)
    engine = made(model)
    one = Kept()
    engine.submit(ask("say hello"), one)
    assert "no numbers" in str(one.wait().error)


def test_a_token_that_the_tokenizer_has_not_ends_its_text_alone(made):
    """The vocabulary of a model may have more rows than its tokenizer has tokens."""
    model = ScriptedJoint()
    logits = model.script.logits
    model.script.logits = lambda ids: np.append(
        logits(ids), np.float32(50 if bytes(i for i in ids if i < 256).count(b"far>") else -50)
    )
    engine = made(model, slots=2)
    wrong, right = Kept(), Kept()
    engine.submit(ask("say far"), wrong)
    engine.submit(ask("say near enough"), right)
    assert isinstance(wrong.wait().error, ArgumentError) and "258" in str(wrong.wait().error)
    assert right.wait().reason == "stop" and right.text == "near enough"
    assert sum(isinstance(e, Done) for e in wrong.events) == 1 and not engine.state()["running"]


def test_a_pool_that_no_text_fits_is_refused():
    with pytest.raises(ArgumentError, match="no room for 64"):
        BatchEngine(ScriptedJoint(Scripted(context=64), block=16, blocks=3), TOKENIZER.token_bytes)


@pytest.mark.parametrize("seed", seeds.some(6))
def test_drawn_arrivals(made, seed):
    """Lengths, arrivals, cancellations, blocks, windows and pieces are drawn: every text that is not cancelled is exactly what was asked for."""
    rng = random.Random(seed)
    context, block = rng.choice([48, 100, 160]), rng.choice([4, 8, 16])
    least = -(-context // block)
    piece, window = rng.choice([1, 7, 64]), rng.choice([1, 3, block, 30])
    near = Near(-(-(window + piece) // block) + 1 + rng.randint(0, least), window) if rng.random() < 0.7 else None
    model = ScriptedJoint(Scripted(context=context), block=block, blocks=rng.randint(least, 3 * least), near=near)
    engine = made(model, slots=rng.randint(1, 12), queue=100, piece=piece)
    texts, kept, cancelled = [], [], []
    for _ in range(40):
        head = rng.choice(["", "common head " * 2, "h" * rng.randint(0, context // 3)])
        text = "".join(rng.choice("abcdef") for _ in range(rng.randint(1, context - len(head) - 6)))
        text = text[: (context - len(head) - 6) // 2 or 1]
        one = Kept()
        job = engine.submit(ask(f"{head}say {text}", sampling=Sampling()), one)
        if rng.random() < 0.2:
            cancelled.append(one)
            threading.Timer(rng.random() * 0.02, job.cancel).start()
        texts.append(text)
        kept.append(one)
        if rng.random() < 0.3:
            time.sleep(rng.random() * 0.005)
    for text, one in zip(texts, kept):
        end = one.wait()
        assert end.error is None, end.error
        assert one.text == text or (one in cancelled and end.reason == "cancelled" and text.startswith(one.text))
    state = engine.state()
    assert state["running"] == state["waiting"] == 0 and state["free_blocks"] == model.blocks
    assert near is None or engine._near.free == near.blocks


def test_a_window_holds_what_it_sees(made):
    """A long text in few blocks of layers with a window; what another one begins with is found as far as such blocks are there."""
    model = ScriptedJoint(Scripted(context=640), block=4, near=Near(24, 9))
    engine = made(model, slots=2, piece=8)
    head = "many words of one and the same beginning, "
    for text, least in ((f"{head}say {'abc' * 90}", 0), (f"{head}say {'abd' * 9}", 0), (f"{head}say {'abd' * 9}", 72)):
        one = Kept()
        engine.submit(ask(text, 300), one)
        assert one.wait().cached >= least and one.text == text.partition("say ")[2]
    assert engine._near.free == 24 and one.wait().cached % 4 == 0
    model.near_pool[:] = -1  # what was found is not read any more
    engine.submit(ask("say again", 20), other := Kept())
    assert other.wait().cached == 0 and other.text == "again"


class Oracle:
    """Guesses the script, with a wrong token now and then."""

    def __init__(self, script, rng):
        self.script, self.rng = script, rng

    def guess(self, ids, count):
        found = []
        for _ in range(self.rng.randint(0, count)):
            best = int(np.argmax(self.script.logits([*ids, *found])))
            found.append(best if self.rng.random() < 0.8 else self.rng.randrange(256))
        return found


def test_guessed_texts_are_the_same(made):
    """Drawn texts in few blocks, of which some are cancelled: each is what it is without guesses, of fewer runs; what is drawn is not guessed."""
    rng = random.Random(seeds.stream("guessed batches"))
    script = Scripted(context=96, seconds=0.0005)
    model = ScriptedJoint(script, block=8, blocks=20, near=Near(20, 11))
    engine = made(model, slots=5, guesses=lambda: Oracle(script, rng))
    texts, kept = [], []
    for k in range(25):
        text = "".join(rng.choice("abcdef") for _ in range(rng.randint(1, 38)))
        head, one = rng.choice(["", "common head "]), Kept()
        most, stop = rng.choice([4, 90]), ["fa"] if rng.random() < 0.3 else []
        job = engine.submit(ask(f"{head}say {text}", most, stop=stop), one)
        if k % 8 == 7:
            threading.Timer(rng.random() * 0.01, job.cancel).start()
        text = text.partition(stop[0])[0] if stop else text
        texts.append(text[:most])
        kept.append(one)
    for text, one in zip(texts, kept):
        end = one.wait()
        assert end.error is None, end.error
        assert one.text == text or (end.reason == "cancelled" and text.startswith(one.text))
    state = engine.state()
    assert state["free_blocks"] == 20 and 0 < state["accepted"] < state["guessed"]
    assert any(n > 1 for batch in model.batches for n in batch)
    drawn = Kept()
    engine.submit(ask("draw", 5, sampling=Sampling(temperature=1.0)), drawn)
    assert drawn.wait().reason and engine.state()["guessed"] == state["guessed"]


def test_a_piece_whose_rows_are_all_wanted():
    """Guesses attend as single rows, each at its place, and a prompt beside them as a chunk."""
    made = network_inputs([Piece([5, 6, 7], 9, [3, 1], 3), Piece([1, 2], 0, [0]), Piece([4], 30, [2, 5, 6, 7])], 8)
    assert made["single_rows"].tolist() == [0, 1, 2, 5] and made["single_starts"].tolist() == [9, 10, 11, 30]
    assert made["single_tables"].tolist() == [[3, 1, 0, 0]] * 3 + [[2, 5, 6, 7]]
    assert made["chunk_rows"].tolist() == [[3, 4]] and made["wanted"].tolist() == [0, 1, 2, 4, 5]
    assert made["order"].tolist() == [0, 1, 2, 4, 5, 3] and made["slots"].tolist()[:3] == [9, 10, 11]


# ---- a compiled model

MIXED = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "no_rope_layers": [1, 1]}


@pytest.fixture(scope="module")
def lm():
    return load(llama(), context=48, target="llvm")


@pytest.fixture(scope="module")
def paged(lm):
    return PagedModel(lm, block=8, blocks=20)


def test_logits_of_many_texts_are_those_of_each(lm, paged):
    """Texts are read in drawn pieces, several in each run, in blocks that lie anywhere."""
    rng = np.random.default_rng(seeds.first())
    texts = [rng.integers(0, 128, n).tolist() for n in (1, 8, 13, 40)]
    spread = rng.permutation(paged.blocks).tolist()
    tables = [spread[5 * k : 5 * k + 5] for k in range(len(texts))]
    at, found = [0] * len(texts), {}
    while any(a < len(t) for a, t in zip(at, texts)):
        pieces, ends = [], []
        for k, t in enumerate(texts):
            count = min(len(t) - at[k], int(rng.integers(0, 12)))
            if count:
                pieces.append(Piece(t[at[k] : at[k] + count], at[k], tables[k], at[k] + count == len(t)))
                ends += [k] * pieces[-1].wanted
                at[k] += count
        if pieces:
            found.update(zip(ends, paged.step(pieces).copy()))
    for k, t in enumerate(texts):
        np.testing.assert_allclose(found[k], lm.begin(t), atol=2e-5)


@pytest.mark.parametrize("architecture", ["mistral", "smollm3"])
def test_a_model_with_windows(architecture):
    """Some texts of a model whose every layer has a window, and of one that has others too, far behind it: those of the model alone, in fewer blocks."""
    more = {
        "layer_types": ["sliding_attention", "full_attention"],
        "use_sliding_window": True,
        "no_rope_layers": [1, 1],
    }
    made = llama({"sliding_window": 12, "max_position_embeddings": 256, **(more if architecture == "smollm3" else {})})
    lm = load(Checkpoint(architecture, made.config, made.tensors, Bytes), target="llvm")
    model, whole = (PagedModel(lm, block=8, blocks=80, slots=3, piece=piece) for piece in (16, 0))
    assert model.near == Near(21, 12) and whole.near is None and model.pool_bytes < 0.7 * whole.pool_bytes
    engine = BatchEngine(model, lm.checkpoint.tokenizer.token_bytes, slots=3, piece=16)
    rng = random.Random(seeds.stream("windows"))
    try:
        head = [rng.randrange(128) for _ in range(40)]
        asked = []
        for n in (5, 70, 30, 120, 60):
            prompt, one = [*head, *(rng.randrange(128) for _ in range(n))], Kept()
            engine.submit(Request(prompt, 60, ignore_end=True), one)
            asked.append((prompt, one))
        for prompt, one in asked:
            assert one.wait().error is None
            ids = [e.id for e in one.events if not isinstance(e, Done)]
            logits = lm.begin(prompt)
            for token in ids:
                assert logits[token] > logits.max() - 1e-4
                logits = lm.next(token)
            assert len(ids) == 60
        assert engine._near.free == 21 and engine.state()["free_blocks"] == 80
    finally:
        engine.close()


def test_greedy_texts_together_are_those_alone(lm, paged, monkeypatch):
    """Drawn prompts come at drawn times into few blocks, and some clients leave."""
    rng = random.Random(seeds.stream("batches"))
    monkeypatch.setattr(paged, "blocks", 9)  # of the pool's 20
    engine = BatchEngine(paged, lm.checkpoint.tokenizer.token_bytes, slots=6, piece=16)
    asked = []
    try:
        for _ in range(24):
            prompt = [rng.randrange(128) for _ in range(rng.randint(1, 12))] if rng.random() < 0.7 else [7] * 20
            one = Kept()
            job = engine.submit(Request(prompt, rng.randint(8, 27)), one)
            asked.append((prompt, one))
            if rng.random() < 0.15:
                job.cancel()
            time.sleep(rng.random() * 0.002)
        for prompt, one in asked:
            end = one.wait()
            assert end.error is None, end.error
            ids = [e.id for e in one.events if not isinstance(e, Done)]
            logits = lm.begin(prompt)
            for token in ids:  # to the tolerance of ties
                assert logits[token] > logits.max() - 1e-4
                logits = lm.next(token) if lm.room else logits
            assert end.reason in ("length", "cancelled", "stop")
        assert engine.preempted > 0, "blocks were too few for all"
    finally:
        engine.close()


@pytest.mark.slow
def test_on_the_software_gpu():
    """Every kernel of a run with a piece of a prompt and tokens of other texts, on gfx942; one of two layers has a window, whose blocks are its own."""
    made = llama({"sliding_window": 6, **MIXED})
    lm = load(Checkpoint("smollm3", made.config, made.tensors, Bytes), context=32, target="llvm")
    like = LanguageModel(lm.checkpoint, target="rocm -mcpu=gfx942", dtype="float32", context=32, later=True)
    model = PagedModel(like, tec.rocm_emu("gfx942"), block=8, blocks=12, slots=1, piece=8)
    assert model.near == Near(4, 6)
    texts, tables = [[1, 2, 3], [9, 8, 7, 6, 5, 4, 3, 2, 1, 11], [5]], [[3, 1], [0, 7], [10, 2]]
    nears = [0, 0], [2, 3], [1, 1]
    for more in ([], [4], [17]):
        at = [len(t) if more else 0 for t in texts]
        texts = [[*t, *more] for t in texts]
        pieces = [Piece(t[a:], a, table, near=near) for t, a, table, near in zip(texts, at, tables, nears)]
        for row, t in zip(model.step(pieces), texts):
            np.testing.assert_allclose(row, lm.begin(t), atol=2e-5)


@pytest.mark.slow
def test_64_clients_of_a_compiled_model(openai, lm):
    """They come at drawn times, and each gets its own greedy text."""
    rng = random.Random(seeds.stream("compiled clients"))
    prompts = ["".join(rng.choice("abc") for _ in range(rng.randint(1, 20))) for _ in range(64)]
    waits = [rng.random() for _ in prompts]
    served = served_of(lm, "tiny", slots=16, block=8, blocks=40)
    with (
        running(application(served)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=3, timeout=120) as client,
    ):

        def one(k: int) -> str:
            time.sleep(waits[k])
            stream = client.completions.create(
                model="tiny", prompt=prompts[k], temperature=0, max_tokens=12, stream=True
            )
            return "".join(chunk.choices[0].text for chunk in stream)

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            found = list(pool.map(one, range(64)))
    state = served.engine.state()
    served.engine.close()
    for prompt, text in zip(prompts, found):
        generation = lm.generate(prompt, max_tokens=12)
        assert text == "".join(generation)
    assert state["running"] == 0 and state["free_blocks"] == state["blocks"]


def test_what_is_no_number_reaches_no_other_text(lm):
    model = PagedModel(lm, block=8, blocks=6)
    model.step([Piece([5] * 40, 0, range(5))])
    for pool in model._pools.values():
        pool[2].copyfrom(np.full(pool[2].shape, np.nan, np.float32))
    model.clear([2])
    got = model.step([Piece([1, 2, 3], 0, [2])])[0]
    np.testing.assert_allclose(got, lm.begin([1, 2, 3]), atol=2e-5)


def test_models_with_other_states_go_on_in_turn(lm, caplog, monkeypatch):
    """A Llama whose places turn by the length of the text."""
    monkeypatch.setattr(lm, "checkpoint", llama({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}))
    engine = engine_of(lm, slots=2)
    try:
        assert "texts go on in turn" in caplog.text and "length of the text" in caplog.text
        one = Kept()
        engine.submit(Request([1, 2, 3], 4), one)
        assert one.wait().reason == "length"
    finally:
        engine.close()
