"""What rerankers give their models: segments, special tokens, documents that are cut, and a question whose answer is yes or no."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tec.errors import ArgumentError, ImportModelError
from tec.lm import Checkpoint, reranking
from tec.lm.reranking import reranker

from . import tiny

SPECIAL = {"[CLS]": 1, "[SEP]": 2, "<s>": 3, "</s>": 4, "yes": 5, "no": 6}


class Words(tiny.Bytes):
    def id_of(self, token: str) -> int | None:
        return SPECIAL.get(token)


class Model:
    """In an embedder's place, and a language model's: keeps what it is given."""

    context = 20

    def __init__(self, *args: Any, **how: Any):
        self.given: list[Any] = []
        self.context = how.get("context") or self.context

    def features(self, tokens: Any, more: Any = None) -> Any:
        self.given.append((list(tokens), None if more is None else more[:, 0].tolist()))
        return np.arange(len(tokens) * 2, dtype=np.float32).reshape(-1, 2) / 8

    def begin(self, tokens: Any) -> Any:
        self.given.append(list(tokens))
        return np.arange(128, dtype=np.float32) ** 2


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranking, "Embedder", Model)
    monkeypatch.setattr(reranking, "LanguageModel", Model)


def _checkpoint(kind: str, **tensors: Any) -> Checkpoint:
    found = {n.replace("__", "."): tiny.tensor(n.replace("__", "."), v) for n, v in tensors.items()}
    return Checkpoint(kind, {}, found, Words)


BERT = {
    "pooler__dense__weight": [[0.0, 1.0], [1.0, 0.0]], "pooler__dense__bias": [0.5, 0.0], "classifier__weight": [[2.0, -1.0]], "classifier__bias": [0.25],
    "embeddings__token_type_embeddings__weight": [[1.0, 1.0], [4.0, 2.0]],
}  # fmt: skip
ROBERTA = {
    "classifier__dense__weight": np.eye(2),
    "classifier__out_proj__weight": [[1.0, 1.0]],
    "classifier__out_proj__bias": [0.0],
}


def test_segments_of_encoders() -> None:
    model: Any = reranker(_checkpoint("bert", **BERT))
    got = model.score("ab", ["c", "de"])
    assert model._model.given[0] == ([1, 97, 98, 2, 99, 2], [0, 0, 0, 0, 3, 3])
    x = np.tanh([1 / 8 + 0.5, 0.0])  # of the first token
    np.testing.assert_allclose(got, [2 * x[0] - x[1] + 0.25] * 2, rtol=1e-6)
    other: Any = reranker(_checkpoint("xlm-roberta", **ROBERTA))
    other.score("ab", ["c"])
    assert other._model.given == [([3, 97, 98, 4, 4, 99, 4], None)]


def test_the_end_of_a_long_document_is_left_out() -> None:
    model: Any = reranker(_checkpoint("bert", **BERT), context=8)
    model.score("ab", ["c" * 50])
    assert model._model.given[0][0] == [1, 97, 98, 2, 99, 99, 99, 2]
    with pytest.raises(ArgumentError, match="a query of 12 tokens, and the model reads 8"):
        model.score("a" * 10, ["b"])
    with pytest.raises(ArgumentError, match="documents is one text"):
        model.score("a", "b")


def test_language_models_are_asked() -> None:
    model: Any = reranker(_checkpoint("qwen3"), context=400)
    assert model.score("q", ["d"]).tolist() == [25 - 36]
    text = bytes(model._model.given[0]).decode()
    assert (
        "<Query>: q\n<Document>: d<|im_end|>" in text and text.endswith("</think>\n\n") and "retrieve relevant" in text
    )


def test_heads_that_score_nothing() -> None:
    with pytest.raises(ImportModelError, match="a head of 3 classes"):
        reranker(_checkpoint("bert", **{**BERT, "classifier__weight": np.ones((3, 2)), "classifier__bias": np.ones(3)}))
    with pytest.raises(ImportModelError, match="no head that scores"):
        reranker(_checkpoint("bert"))
    with pytest.raises(ImportModelError, match="no token yes"):
        reranker(replace(_checkpoint("qwen3"), make_tokenizer=tiny.Bytes))
