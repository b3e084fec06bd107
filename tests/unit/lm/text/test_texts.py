"""Texts in mapped arrays against lists and dictionaries of them."""

from __future__ import annotations

import numpy as np
import pytest

from tec.lm.text.pieces import Pieces
from tec.lm.text.texts import Texts, are_distinct, bytes_of, ids_of, table_of
from tests.seeds import some


def _drawn(rng: np.random.Generator, n: int) -> list[str]:
    letters = list("ab \n\u2581é語\U0001f600\ud800")
    return ["".join(rng.choice(letters, int(rng.integers(0, 24)))) for _ in range(n)]


@pytest.mark.parametrize("k", some(6))
def test_texts_are_a_list_and_their_numbers_a_dictionary(k: int) -> None:
    rng = np.random.default_rng(k)
    listed = _drawn(rng, int(rng.integers(0, 300)))
    texts, ids = Texts(table_of(listed)), dict(zip(listed, range(len(listed))))
    assert list(texts) == listed and len(texts) == len(listed) and texts[1:5] == listed[1:5]
    assert [texts[i] for i in range(len(listed))] == listed
    assert dict(texts.ids) == ids == dict(ids_of(listed)) and are_distinct(texts) == are_distinct(listed)
    for t in [*listed, *_drawn(rng, 50)]:
        assert texts.ids.get(t) == ids.get(t) and (t in texts) == (t in ids)
        if t in ids:
            assert texts.index(t) == listed.index(t) and texts.ids[t] == ids[t]
    with pytest.raises(IndexError):
        texts[len(listed)]
    with pytest.raises(KeyError):
        texts.ids["not there"]


def test_long_texts_that_begin_and_end_alike_are_apart() -> None:
    listed = ["x" * 8 + str(k) + "y" * 8 for k in range(300)] + [" " * k for k in range(40)]
    texts = Texts(table_of(listed))
    assert [texts.ids[t] for t in listed] == list(range(len(listed))) and texts.is_distinct
    assert not Texts(table_of([*listed, listed[5]])).is_distinct


def test_what_stands_before_a_space_within_a_token_is_found_alike() -> None:
    listed = ["\u2581a", "b", ">\u2581</", "é\u2581", "\n\u2581x", "\u2581\u2581", "語\u2581\u2581z"]
    assert Pieces._boundary(listed) == Pieces._boundary(Texts(table_of(listed))) == "(?<=[^\u2581>é語])(?=\u2581)"
    assert bytes_of(listed).sum() == bytes_of(Texts(table_of(listed))).sum()
