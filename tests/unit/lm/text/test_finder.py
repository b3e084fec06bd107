"""Special tokens in a text, against a regular expression of all of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tec.lm.text.finder import Finder
from tests.seeds import some


@pytest.mark.parametrize("k", some(4))
def test_pieces_are_those_of_one_expression(k: int) -> None:
    rng = np.random.default_rng(k)
    letters = list("ab<|]^-\\\n\u2581é")

    def word(most: int) -> str:
        return "".join(rng.choice(letters, int(rng.integers(1, most))))

    for _ in range(60):
        ids = {word(6): n for n in range(int(rng.integers(0, 12)))}
        expression = re.compile("|".join(map(re.escape, sorted(ids, key=len, reverse=True))) or r"(?!)")
        text = word(40)
        expected: list[tuple[str, int | None]] = []
        at = 0
        for m in expression.finditer(text):
            expected += [(text[at : m.start()], None)] if m.start() > at else []
            expected.append((m[0], ids[m[0]]))
            at = m.end()
        expected += [(text[at:], None)] if at < len(text) else []
        assert list(Finder(ids).cut(text)) == expected
