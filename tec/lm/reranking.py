"""Rerankers: how well a document answers a query, as one number.

model = tec.lm.reranker("bge-reranker-base")        # a folder
model.score("what is a panda?", ["a bear of China", "a kind of fruit"])       # float32 [2], larger is better

Three kinds, told apart by the checkpoint's tensors:

    encoders     query and document as one text of two segments; a head of one or two small matrices over the first token (BERT, RoBERTa, XLM-RoBERTa)
    decoders     the same with a head `score` over the last token (Qwen3ForSequenceClassification)
    language models     a prompt that asks for "yes" or "no" (Qwen3-Reranker): the logit of the one less that of the other

So a score is a logit: 1 / (1 + exp(-score)) is the probability. Heads are computed by NumPy: they take a millionth of the encoder's work.
Sources: transformers' modeling_bert.py, modeling_roberta.py, modeling_layers.py (GenericForSequenceClassification); Qwen3-Reranker's model card for the prompt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ImportModelError
from ..target import Target
from .checkpoint import Checkpoint, PackedTensor
from .embedding import ENCODERS, Embedder
from .model import LanguageModel
from .opening import open as open_checkpoint

TASK = "Given a web search query, retrieve relevant passages that answer the query"
_ASK = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_ANSWER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_TYPES = "embeddings.token_type_embeddings.weight"


def reranker(
    path: str | os.PathLike[str] | Checkpoint, *, target: str | Target | None = None, device: Any = None, dtype: str = "float32",
    context: int | None = None, cache: bool = True,
) -> Reranker:  # fmt: skip
    """A model that scores documents for a query.

    path: a Hugging Face folder, a GGUF file, or an opened checkpoint. target, device, dtype, cache: as of `load`. context: the most tokens of a query with its document, by
    default those that the model was made for; longer documents are cut at their end. Raises ImportModelError for a checkpoint without a head whose model writes no
    texts, and ArgumentError.
    """
    checkpoint = path if isinstance(path, Checkpoint) else open_checkpoint(path)
    has_head = "score.weight" in checkpoint.tensors or checkpoint.architecture in ENCODERS
    made = _Classifier if has_head else _Judge
    return made(checkpoint, target=target, device=device, dtype=dtype, context=context, cache=cache)


class Reranker:
    """See `reranker`."""

    checkpoint: Checkpoint

    def score(self, query: str, documents: Sequence[str], *, instruction: str = TASK) -> Any:
        """How well each document answers the query: logits, float32 [documents]. instruction: what is looked for, which language models are told. Raises ArgumentError where
        the query alone fills the context."""
        if isinstance(documents, str):
            raise ArgumentError("documents is one text", hint="a list of texts")
        return np.array([self._score(query, d, instruction) for d in documents], np.float32)

    def _score(self, query: str, document: str, instruction: str) -> float:
        raise NotImplementedError

    def _encode(self, text: str) -> list[int]:
        """A text of somebody else's: nothing in it is a special token."""
        if self.checkpoint.tokenizer is None:
            raise ArgumentError("the model's files have no tokenizer", hint="give tokens: score_tokens")
        return self.checkpoint.tokenizer.encode(text, special=False, add_special=False)

    def _token(self, name: str) -> int:
        found = self.checkpoint.tokenizer.id_of(name) if self.checkpoint.tokenizer is not None else None
        if found is None:
            raise ImportModelError(f"the tokenizer has no token {name}", hint="it is another model's")
        return found


class _Classifier(Reranker):
    """Features, and a head."""

    def __init__(self, checkpoint: Checkpoint, *, context: int | None, **how: Any):
        self.checkpoint = checkpoint
        self._head = _head(checkpoint.tensors)
        self._is_encoder = checkpoint.architecture in ENCODERS
        target, device, dtype, cache = (how[n] for n in ("target", "device", "dtype", "cache"))
        self._model = Embedder(checkpoint, target, device, dtype, "first" if self._is_encoder else "last", False, cache)
        self.context = min(context or self._model.context, self._model.context)
        # What a token of the second segment is made of beside one of the first.
        types = checkpoint.tensors.get(_TYPES)
        rows = types.dequantize() if types is not None else np.zeros((1, 1), np.float32)
        self._second = rows[1] - rows[0] if len(rows) > 1 else None

    def score_tokens(self, tokens: Sequence[int], second: int | None = None) -> float:
        """The score of tokens as they are, special ones among them. second: where the second segment begins, of models that tell segments apart."""
        more = None
        if second is not None and self._second is not None:
            more = np.zeros((len(tokens), len(self._second)), np.float32)
            more[second:] = self._second
        features = self._model.features(tokens, more)
        x = features[0 if self._is_encoder else -1]
        for k, (weight, bias) in enumerate(self._head):
            x = weight @ (np.tanh(x) if k else x) + bias
        return float(x[0])

    def _score(self, query: str, document: str, instruction: str) -> float:
        if not self._is_encoder:
            found = [*self._encode(query), *self._encode(document)][: self.context]
            return self.score_tokens(found)
        is_bert = self.checkpoint.architecture == "bert"
        begin, end = map(self._token, ("[CLS]", "[SEP]") if is_bert else ("<s>", "</s>"))
        between = [end] if is_bert else [end, end]
        head = [begin, *self._encode(query), *between]
        room = self.context - len(head) - 1
        if room < 1:
            raise ArgumentError(
                f"a query of {len(head)} tokens, and the model reads {self.context} with a document",
                hint="a shorter query",
            )
        return self.score_tokens([*head, *self._encode(document)[:room], end], len(head))


def _head(tensors: Mapping[str, PackedTensor]) -> list[tuple[Any, Any]]:
    """Matrices [out, in] and biases, a tangent between them."""
    ways = (("pooler.dense", "classifier"), ("classifier.dense", "classifier.out_proj"), ("score",))
    names = next((w for w in ways if all(f"{n}.weight" in tensors for n in w)), None)
    if names is None:
        raise ImportModelError(
            "the checkpoint has no head that scores",
            hint="classifier.weight or score.weight; tec.lm.embedder makes vectors",
        )
    made = []
    for n in names:
        weight = tensors[f"{n}.weight"].dequantize()
        bias = tensors[f"{n}.bias"].dequantize() if f"{n}.bias" in tensors else np.zeros(len(weight), np.float32)
        made.append((weight, bias))
    outputs = len(made[-1][0])
    if outputs != 1:
        raise ImportModelError(f"a head of {outputs} classes", hint="a reranker has one")
    return made


class _Judge(Reranker):
    """A language model that is asked."""

    def __init__(self, checkpoint: Checkpoint, *, context: int | None, **how: Any):
        self.checkpoint = checkpoint
        self._yes, self._no = self._token("yes"), self._token("no")
        self._model = LanguageModel(
            checkpoint, context=context, **{**how, "dtype": None if how["dtype"] == "float32" else how["dtype"]}
        )
        self.context = self._model.context

    def _score(self, query: str, document: str, instruction: str) -> float:
        tokenizer = self.checkpoint.tokenizer
        assert tokenizer is not None
        head = tokenizer.encode(_ASK, add_special=False)
        head += self._encode(f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: ")
        tail = tokenizer.encode(_ANSWER, add_special=False)
        room = self.context - len(head) - len(tail)
        if room < 1:
            raise ArgumentError(
                f"a query of {len(head)} tokens, and the context has {self.context}",
                hint="a shorter query or instruction, or a larger context=",
            )
        logits = self._model.begin([*head, *self._encode(document)[:room], *tail])
        return float(logits[self._yes] - logits[self._no])
