"""Caches of layers with a window hold what it sees and no more: the same logits to the last bit, whatever is cut off, guessed, saved, or placed by an input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.compiler import compile_graph
from tec.lm import Checkpoint, load, networks
from tec.lm.generation import Generation
from tec.lm.kept import Form
from tec.lm.model import LanguageModel
from tec.lm.sampling import Sampling
from tec.lm.serve import compiled_slots
from tec.lm.speculative import Speculative
from tec.lm.starting import code_of
from tec.ops.dims import Dim, Empty
from tec.runtime.networks import state
from tests.seeds import first
from tests.thinned import thinned_rows

from .families import CASES, KEPT, TOKENS, references
from .test_families import folder_of
from .test_speculative import Drawn
from .tiny import VOCABULARY, Bytes, llama

WINDOW = 20
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "no_rope_layers": [1, 0]}


def checkpoint(architecture: str = "mistral", **more: Any) -> Checkpoint:
    made = llama({"sliding_window": WINDOW, "max_position_embeddings": 2048, **more})
    return Checkpoint(architecture, made.config, made.tensors, Bytes)


def whole(monkeypatch: pytest.MonkeyPatch, *args: Any, **more: Any) -> LanguageModel:
    """A model whose caches hold whole texts."""
    with monkeypatch.context() as patch:
        plain = LanguageModel.form
        patch.setattr(LanguageModel, "form", lambda self, **k: replace(plain(self, **k), forgets=False))
        return load(*args, **more)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STEP", 8)
    monkeypatch.setattr(state, "SPARE", 4)
    monkeypatch.setattr(networks, "_FIRST_ROWS", 8)
    monkeypatch.setattr(compiled_slots, "_ROWS", 8)


@pytest.mark.parametrize(("architecture", "more", "cache_type"), [("mistral", {}, None), ("smollm3", MIXED, "int8")])
def test_the_same_logits_in_less_memory(
    architecture: str, more: dict[str, Any], cache_type: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt of three pieces, tokens one by one until rows go, and some tokens taken back: from within the rows that stay, and from beyond them."""
    made = checkpoint(architecture, **more)
    lm = load(made, target="llvm", cache_type=cache_type)
    plain = whole(monkeypatch, made, target="llvm", cache_type=cache_type)
    rng = np.random.default_rng(first())
    ids = rng.integers(0, VOCABULARY, 1300).tolist()
    assert (lm.begin(ids) == plain.begin(ids)).all()
    before = lm.executor.dropped["near"]
    for token in rng.integers(0, VOCABULARY, 400).tolist():
        assert (lm.next(token) == plain.next(token)).all()
    assert lm.executor.dropped["near"] > before > 0 and lm.executor.length == len(lm.ids) == 1700
    held = {n: x.shape[2] for n, x in lm.executor.state.items()}
    assert held["past.0.key"] < 1100 and held["past.1.value"] == (1700 if more else held["past.0.key"])
    assert lm.executor._states.nbytes < 0.8 * plain.executor._states.nbytes
    for back in (state.SPARE, 1 + 1700 - lm.executor.least):
        ids = [*lm.ids[: 1700 - back], 5]
        reads = lm.executor.dropped["near"]
        assert np.abs(lm.begin(ids) - plain.begin(ids)).max() < 1e-5
        assert (lm.executor.dropped["near"] == reads) == (back == state.SPARE)


def test_guesses_states_and_slots(monkeypatch: pytest.MonkeyPatch, small_steps: None, tmp_path: Path) -> None:
    """Far behind a window: the text of drawn guesses, one that another process goes on with, and a server's slot, whose last tokens are cut off."""
    made, rng = checkpoint("smollm3", **MIXED), np.random.default_rng(first(3))
    lm, plain = load(made, target="llvm"), whole(monkeypatch, made, target="llvm")
    prompt = rng.integers(0, VOCABULARY, 90).tolist()
    text = Generation(plain, Bytes(), prompt, 150, Sampling())
    "".join(text)
    run = Generation(guessing := Speculative(lm, Drawn([*prompt, *text.ids], rng)), Bytes(), prompt, 150, Sampling())
    "".join(run)
    assert run.ids == text.ids and guessing.accepted and lm.executor.dropped["near"] > 90
    lm.begin([*prompt, *text.ids])
    lm.save_state(tmp_path / "text.state")
    other, slot = load(made, target="llvm"), compiled_slots.CompiledSlot(lm, None)
    other.load_state(tmp_path / "text.state")
    slot.read([*prompt, *text.ids, 5, 6, 7])
    assert slot.cut(len(lm.ids)) == len(lm.ids) and slot.cut(len(lm.ids) + 1) == len(lm.ids)
    for token in rng.integers(0, VOCABULARY, 40).tolist():
        want = lm.next(token)
        assert max(np.abs(logits - want).max() for logits in (other.next(token), slot.read([token]))) < 1e-5
    assert other._cut(len(other.ids) - 4) and not other._cut(60) and not slot.cut(60) and not slot.ids
    assert (tmp_path / "text.state").stat().st_size < 2 * 4 * 2 * 16 * (240 + 60) * 4


def test_a_step_that_is_told_its_row(small_steps: None) -> None:
    """Rows of both kinds of caches are inputs; sizes change when the caches of whole texts grow, and never for windows."""
    made = checkpoint("smollm3", **MIXED)
    lm = load(made, target="llvm")
    form = Form(lm.target, lm.dtype, tokens=1, placed=True, forgets=True)
    code = code_of(made, form, None)
    step = code.network(lm._weights).executor(capacity=512)
    tokens = np.random.default_rng(first()).integers(0, VOCABULARY, 130).tolist()

    def logits() -> list[Any]:
        return [lm.begin(tokens[:40]), *map(lm.next, tokens[40:]), lm.begin([*tokens[:126], 1]), lm.next(3)]

    want = logits()
    lm.begin([0])
    lm._step = step
    assert max(np.abs(a - b).max() for a, b in zip(logits(), want)) < 1e-4
    assert lm.is_placed and step.dropped["near"] > 40
    lm.make_room()
    assert step.length >= len(lm.ids)
    # A slot of the same model is not told the rows of its step.
    assert np.abs(compiled_slots.CompiledSlot(lm, None).read([*tokens[:126], 1, 3]) - want[-1]).max() < 1e-4


@thinned_rows(
    1,
    "kind",
    [
        "gemma2",
        "gemma3_text",
        "gemma4_text",
        "gemma3n_text",
        "gpt_oss",
        "mistral",
        "phi3",
        "smollm3",
        "cohere2",
        "olmo3",
        "afmoe",
    ],
)
def test_architectures(kind: str, small_steps: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits of transformers behind windows of 5 tokens."""
    known = references()
    monkeypatch.setattr(state, "STEP", 2)
    monkeypatch.setattr(state, "SPARE", 1)
    for name in (n for n in CASES if n.split()[0] == kind and known[n]["config"].get("sliding_window")):
        case = known[name]
        lm = load(folder_of(case, tmp_path), target="llvm")
        if not lm.executor.dropped:
            continue  # all of its layers see whole texts
        want = np.array(case["logits"])
        lm.begin(TOKENS[:3])
        rows = [lm.next(t) for t in TOKENS[3:]][-KEPT:]
        assert np.abs(np.stack(rows) - want).max() < 1e-4 * max(1.0, np.abs(want).max())
        assert lm.executor.dropped["near"] > 5
        return
    pytest.fail("no case has a window")


def test_a_network_with_a_window(small_steps: None) -> None:
    """Sums of the last 3 rows, of many and of one at a time; a run that fails leaves what there was."""
    graph = Graph("sums")
    b = Builder(graph)
    x = graph.input("x", "float32", (1, Dim("tokens"), 4))
    past = graph.input("past", "float32", (1, Dim(Empty("near")), 4))
    rows = b.concat([past, x], 1)
    last = b.slice(rows, 1, Dim(Empty("near")) + Dim("tokens") - 1, 1)
    graph.set_outputs([b.reshape(last, (1, 4)), rows], ["y", "present"])
    graph.windows["near"] = 3
    net = compile_graph(graph, tec.Target("llvm"), state={"past": "present"})
    assert net.plan.states[0].window == 3 and type(net.plan).from_json(net.plan.to_json()) == net.plan
    ex, rng, seen = net.executor(capacity=4), np.random.default_rng(first()), np.zeros((0, 4), "f4")
    for _ in range(40):
        x_of = rng.standard_normal((1, int(rng.integers(1, 30)), 4)).astype("f4")
        if rng.random() < 0.3:
            with pytest.raises(ArgumentError):
                ex.run({"x": x_of}, outputs=[tec.nd.empty((2, 4), "float32")])
        else:
            ex.run({"x": x_of})
            seen = np.concatenate([seen, x_of[0]])
        held = ex.state["past"].numpy()[0]
        assert ex.length == len(seen) and (held == seen[len(seen) - len(held) :]).all()
        assert len(held) >= min(len(seen), 2 + state.SPARE) and len(held) + ex.dropped["near"] == len(seen)
        if rng.random() < 0.3 and len(seen) > 20:
            ex.truncate(len(seen) - 3)
            seen = seen[:-3]
    assert ex.nbytes < 4 * 4 * 100
    with pytest.raises(ArgumentError, match="let rows go"):
        ex.truncate(ex.least - 1)
    ex.truncate(0)
    assert ex.length == 0 and not any(ex.dropped.values())
