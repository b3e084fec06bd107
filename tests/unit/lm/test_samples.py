"""Several texts of one prompt: each is what `generate` draws with its own seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec.lm
from tec.errors import ArgumentError
from tec.lm import saved
from tests.seeds import first

from .test_families import folder_of, known  # noqa: F401  (a fixture)
from .tiny import llama


@pytest.fixture(scope="module")
def lm() -> Any:
    return tec.lm.load(llama(), target="llvm", context=64)


def test_each_is_what_generate_draws_with_its_seed(lm: Any) -> None:
    seed = first()
    prompt = np.random.default_rng(seed).integers(3, 120, 37).tolist()  # more than a block, which is shared
    settings = {"max_tokens": 12, "temperature": 1.3, "top_k": 40, "top_p": 0.95, "repetition_penalty": 1.1}
    found = lm.samples(prompt, 3, seed=seed, **settings)
    for k, sample in enumerate(found):
        alone = lm.generate(prompt, seed=seed + k, **settings)
        assert sample.text == "".join(alone)
        assert (list(sample.ids), sample.reason) == (alone.ids, alone.reason)
    assert len({s.ids for s in found}) == 3


def test_what_ends_them(lm: Any) -> None:
    ids = lm.samples([5, 6, 7], 2, max_tokens=9)[0].ids
    assert len(ids) == 9
    lm.ends.add(ids[4])
    try:
        for sample in lm.samples([5, 6, 7], 2, max_tokens=9):
            assert (sample.reason, sample.ids) == ("end", ids[: ids.index(ids[4])])
    finally:
        lm.ends.discard(ids[4])
    text = lm.samples([5, 6, 7], max_tokens=9)[0].text
    assert [(s.reason, s.text) for s in lm.samples([5, 6, 7], 2, max_tokens=9, stop=text[3])] == [
        ("stop", text[: text.index(text[3])])
    ] * 2
    full = lm.samples([5] * 60, 2)
    assert [(s.reason, len(s.ids)) for s in full] == [("length", 5)] * 2  # as of `generate`


def test_the_text_under_way_is_left_as_it_is(lm: Any) -> None:
    alone = "".join(lm.generate([9, 8, 7], max_tokens=10))
    run = lm.generate([9, 8, 7], max_tokens=10)
    begun = next(run)
    lm.samples([1, 2, 3], 2, max_tokens=4, temperature=1.0)
    assert begun + "".join(run) == alone


def test_mistakes(lm: Any) -> None:
    for wrong, said in (({"count": 0}, "count is 0"), ({"count": 2, "max_tokens": 0}, "max_tokens is 0"), ({"count": 2, "stop": 3}, "stop is 3"), ({"count": 2, "draft": None}, "no setting")):  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            lm.samples([1, 2], **wrong)
    with pytest.raises(ArgumentError, match=r"(?s)setting .n.*lm.samples"):
        lm.generate([1, 2], n=3)


def test_models_whose_states_are_no_rows(known: Any, tmp_path: Any) -> None:  # noqa: F811
    lm = tec.lm.load(folder_of(known["mamba2 0"], tmp_path), target="llvm", cache=False)
    with pytest.raises(ArgumentError, match="no row of a token"):
        lm.samples([1, 2], 2, max_tokens=3)


def test_a_model_is_told_from_others_once(lm: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is saved after each message of a chat reads the model's files no more than once."""
    calls: list[int] = []
    made = saved.fingerprint_of
    monkeypatch.setattr(saved, "fingerprint_of", lambda c: (calls.append(1), made(c))[1])
    vars(lm).pop("fingerprint", None)
    for _ in range(3):
        "".join(lm.generate([9, 8], max_tokens=2))
        lm.save_state(tmp_path / "state")
        lm.load_state(tmp_path / "state")
    assert len(calls) == 1
