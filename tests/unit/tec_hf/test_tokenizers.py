"""Tokenizers of folders: tokenizer.json against the package it is of, tokenizer.model against sentencepiece."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import sentencepiece
import tokenizers as tk

import tec.lm.opening as opening
from tec.errors import ArgumentError, ImportModelError
from tec.lm.text.guard import Guard
from tec.lm.text.template import template_of
from tec.lm.text.tokenizer import Stream
from tests.unit.lm.text.test_tokenizers import TEXTS, corpus, drawn

from .files import LLAMA, folder

NORM = {"model.norm.weight": np.ones(4, np.float32)}


@pytest.fixture(scope="module")
def made():
    made = tk.Tokenizer(tk.models.BPE())
    made.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "<|im_end|>"],
        show_progress=False,
    )
    made.train_from_iterator(corpus(), trainer)
    made.post_processor = tk.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made.enable_truncation(8)
    return made


def test_a_json(tmp_path, made):
    place = folder(
        tmp_path / "m", LLAMA, NORM, tokenizer_config={"bos_token": {"content": "<s>"}, "chat_template": "x"}
    )
    made.save(str(place / "tokenizer.json"))
    checkpoint = opening.open(place)
    tokenizer = checkpoint.tokenizer
    assert checkpoint.generation["bos_token_id"] == 0 and checkpoint.generation["eos_token_ids"] == [2, 1], (
        "ends are known by name"
    )
    peer = tk.Tokenizer.from_str(made.to_str())
    peer.no_truncation()
    for text in [*TEXTS, *drawn()]:
        assert tokenizer.encode(text) == peer.encode(text).ids
        ids = tokenizer.encode(text, add_special=False)
        assert ids == peer.encode(text, add_special_tokens=False).ids and tokenizer.decode(ids, special=True) == text
        stream = Stream(tokenizer.token_bytes)
        assert "".join(map(stream.add, tokenizer.encode(text, special=False))) + stream.rest() == text
    assert len(tokenizer.encode("the of and to in was that his it I for is")) > 8, (
        "a file's truncation is of its training"
    )
    assert 1 in tokenizer.encode("a<|im_end|>") and 1 not in tokenizer.encode("a<|im_end|>", special=False)
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>")) == "a" and tokenizer.token_bytes(1) == b""
    guarded = tokenizer.encode(Guard(tokenizer.special_texts).text("a<|im_end|>b"), add_special=False)
    assert 1 not in guarded and tokenizer.decode(guarded) == "a<|im_end|>b"
    assert tokenizer.id_of("<|im_end|>") == 1 and tokenizer.id_of("nonesuch") is None
    for k in (-1, tokenizer.size, 1 << 40):
        with pytest.raises(ArgumentError):
            tokenizer.decode([k])


@pytest.mark.parametrize(
    "model, before, decoder, said",
    [
        (tk.models.WordPiece, tk.pre_tokenizers.BertPreTokenizer(), tk.decoders.WordPiece(cleanup=False), {}),
        (tk.models.WordLevel, tk.pre_tokenizers.Whitespace(), None, {}),
        (tk.models.BPE, tk.pre_tokenizers.BertPreTokenizer(), tk.decoders.BPEDecoder("</w>"), {"end_of_word_suffix": "</w>"}),
        (tk.models.BPE, tk.pre_tokenizers.Metaspace("_"), tk.decoders.Metaspace("_"), {}),
        (tk.models.BPE, tk.pre_tokenizers.Metaspace(), tk.decoders.Sequence([tk.decoders.Replace("\u2581", " "), tk.decoders.Fuse()]), {}),
    ],
)  # fmt: skip
def test_a_text_that_is_streamed_is_what_the_decoder_makes(tmp_path, model, before, decoder, said):
    made = tk.Tokenizer(model(unk_token="[UNK]", **said))
    made.pre_tokenizer = before
    if decoder is not None:
        made.decoder = decoder
    trainer = {"WordPiece": tk.trainers.WordPieceTrainer, "WordLevel": tk.trainers.WordLevelTrainer, "BPE": tk.trainers.BpeTrainer}[model.__name__]  # fmt: skip
    made.train_from_iterator(corpus(), trainer(vocab_size=400, special_tokens=["[UNK]"], show_progress=False, **said))
    place = folder(tmp_path / "m", LLAMA, NORM)
    made.save(str(place / "tokenizer.json"))
    tokenizer = opening.open(place).tokenizer
    ids = tokenizer.encode("the court of that nation, is in this place: wonderful things")
    stream = Stream(tokenizer.token_bytes)
    text = "".join(map(stream.add, ids)) + stream.rest()
    assert len(text.split()) > 5 and text.strip() == tokenizer.decode(ids).strip()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_model_of_sentencepiece(tmp_path, kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, model_type=kind, vocab_size=600 if kind == "bpe" else 450, byte_fallback=True,
        hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity" if kind == "bpe" else "nmt_nfkc",
        remove_extra_whitespaces=kind == "unigram",
    )  # fmt: skip
    place = folder(
        tmp_path / "m", LLAMA, NORM, tokenizer_config={"add_bos_token": kind == "bpe", "add_eos_token": False}
    )
    (place / "tokenizer.model").write_bytes(model.getvalue())
    tokenizer = opening.open(place).tokenizer
    peer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    for text in [" ".join(t.split()) if kind == "unigram" else t for t in [*TEXTS, *drawn()]]:
        if text and not any(c in text for c in "\0\u2581<\x07\u200b"):
            assert tokenizer.encode(text, add_special=False) == peer.EncodeAsIds(text), repr(text)
    assert (tokenizer.encode("a")[0] == peer.bos_id()) == (kind == "bpe")
    raw = model.getvalue()
    for cut in (b"", raw[:100], b"\x0f" + raw, raw[:50] + b"\xff" * 20):
        (place / "tokenizer.model").write_bytes(cut)
        with pytest.raises(ImportModelError, match="SentencePiece"):
            opening.open(place)


def test_a_json_that_is_none(tmp_path):
    place = folder(tmp_path / "m", LLAMA, NORM)
    (place / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}))
    with pytest.raises(ImportModelError, match="is no tokenizer"):
        opening.open(place)


def test_what_a_template_gets_is_what_the_tokenizer_says(tmp_path, made):
    """Texts of tokenizer_config.json or special_tokens_map.json, whatever ids config.json has; of null none; of what neither says the ids' own."""
    place = folder(tmp_path / "m", {**LLAMA, "bos_token_id": 1, "eos_token_id": 1}, NORM)
    (place / "tokenizer.json").write_text(made.to_str())
    (place / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    ask = [{"role": "user", "content": "x"}]

    def rendered(settings, special):
        (place / "tokenizer_config.json").write_text(json.dumps(settings))
        (place / "special_tokens_map.json").write_text(json.dumps(special))
        return template_of(opening.open(place)).render(ask)

    assert rendered({}, {}) == "<|im_end|>x<|im_end|>"
    assert rendered({"bos_token": "<s>", "eos_token": {"content": "</s>"}}, {"eos_token": "no"}) == "<s>x</s>"
    assert rendered({"bos_token": None}, {"eos_token": "</s>"}) == "x</s>"


@pytest.mark.parametrize("where", ["a list", "a folder"])
def test_a_template_of_its_own_for_tools(tmp_path, where):
    plain, tools = "{{ messages[0].content }}", "{{ tools | length }} tools: {{ messages[0].content }}"
    named = [{"name": "default", "template": plain}, {"name": "tool_use", "template": tools}]
    place = folder(
        tmp_path / "m", LLAMA, NORM, tokenizer_config={"chat_template": named if where == "a list" else "none"}
    )
    if where == "a folder":
        (place / "chat_template.jinja").write_text(plain)
        (place / "additional_chat_templates").mkdir()
        (place / "additional_chat_templates" / "tool_use.jinja").write_text(tools)
    template, ask = template_of(opening.open(place)), [{"role": "user", "content": "x"}]
    assert (template.render(ask), template.render(ask, tools=[{"a": 1}])) == ("x", "1 tools: x")
