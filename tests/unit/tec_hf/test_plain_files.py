"""Folders without a tokenizer.json: vocab.json and merges.txt, or vocab.txt, against tokenizers made by hand of the same vocabulary."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers as tk
from tec_hf.texts import beside_an_adapter

import tec.lm.opening as opening
from tec.errors import ImportModelError
from tests.unit.lm.text.test_tokenizers import TEXTS, corpus, drawn

from .files import LLAMA, folder

NORM = {"model.norm.weight": np.ones(4, np.float32)}
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def pairs():
    made = tk.Tokenizer(tk.models.BPE())
    made.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tk.pre_tokenizers.ByteLevel.alphabet()
    trainer = tk.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<s>", "</s>", END], show_progress=False)  # fmt: skip
    made.train_from_iterator(corpus(), trainer)
    return made


def of_pairs(place, pairs, **settings):
    folder(place, LLAMA, NORM, tokenizer_config=settings)
    pairs.model.save(str(place))
    return place


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "GPTNeoXTokenizerFast", "Qwen2Tokenizer", "RobertaTokenizer"])
def test_pairs_of_bytes(tmp_path, pairs, name):
    listed = {"400": {"content": "<|im_end|>", "special": True}, "401": {"content": "<tool>", "special": False, "normalized": False}}  # fmt: skip
    tokenizer = opening.open(
        of_pairs(tmp_path / "m", pairs, tokenizer_class=name, added_tokens_decoder=listed)
    ).tokenizer
    peer = tk.Tokenizer.from_str(pairs.to_str())
    if name.startswith(("GPTNeoX", "Qwen")):
        peer.normalizer = tk.normalizers.NFC()
    if name.startswith("Qwen"):  # whose digits stand alone
        assert len(tokenizer.encode("20260")) == 5
    begin, end = ([0], [1]) if name.startswith("Roberta") else ([], [])
    for text in [*TEXTS, *drawn()]:
        if not name.startswith("Qwen") and "s>" not in text:  # which the peer knows as tokens
            assert tokenizer.encode(text) == [*begin, *peer.encode(text).ids, *end], repr(text)
        if name == "GPT2Tokenizer":
            assert tokenizer.decode(tokenizer.encode(text, special=False)) == text
    assert tokenizer.encode("the<|im_end|> <tool>", add_special=False)[-3:] == [400, tokenizer.id_of("Ġ"), 401]
    assert 400 not in tokenizer.encode("the<|im_end|>", special=False) and tokenizer.token_bytes(400) == b""
    assert tokenizer.decode([401]) == "<tool>"


def test_what_is_added_and_where_tokens_are_listed(tmp_path, pairs):
    place = of_pairs(
        tmp_path / "m", pairs, tokenizer_class="GPT2Tokenizer", add_bos_token=True, eos_token="<|im_end|>", add_prefix_space=True
    )  # fmt: skip
    (place / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 400}))
    tokenizer = opening.open(place).tokenizer
    assert tokenizer.encode("the") == [tokenizer.id_of(END), *pairs.encode(" the").ids]
    assert tokenizer.encode("<|im_end|>", add_special=False) == [400] and tokenizer.special_texts == [END, "<|im_end|>"]


def test_pieces_of_words(tmp_path):
    made = tk.Tokenizer(tk.models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = tk.normalizers.BertNormalizer(), tk.pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(corpus(), tk.trainers.WordPieceTrainer(vocab_size=400, special_tokens=names, show_progress=False))  # fmt: skip
    place = folder(tmp_path / "m", {**LLAMA, "model_type": "bert"}, NORM)
    ids = made.get_vocab()
    (place / "vocab.txt").write_text("\n".join(sorted(ids, key=ids.__getitem__)) + "\n")
    tokenizer = opening.open(place).tokenizer
    for text in [*TEXTS, *drawn()]:
        if "[" not in text:
            assert tokenizer.encode(text) == [2, *made.encode(text).ids, 3], repr(text)


def test_what_is_not_known_or_damaged(tmp_path, pairs):
    place = of_pairs(tmp_path / "m", pairs, tokenizer_class="CLIPTokenizer")
    with pytest.raises(ImportModelError, match="its tokenizer is CLIPTokenizer"):
        opening.open(place)
    (place / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ImportModelError, match="that of llama"):
        opening.open(place)
    (place / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    whole = (place / "merges.txt").read_text("utf-8")
    for name, text, said in (
        ("merges.txt", whole + "a b c\n", "no pair"),
        ("merges.txt", whole + "nonesuch x\n", "no tokenizer"),
        ("vocab.json", "[1]", "holds no ids"),
        ("vocab.json", '{"a": -1}', "holds no ids"),
        ("vocab.json", "{", "cannot read"),
    ):
        before = (place / name).read_text("utf-8")
        (place / name).write_text(text, "utf-8")
        with pytest.raises(ImportModelError, match=said):
            opening.open(place)
        (place / name).write_text(before, "utf-8")


def test_added_tokens_of_no_place_and_pieces_without_one_for_the_unknown(tmp_path, pairs):
    listed = {"9" * 5000: {"content": "<far>"}, "x": {"content": "<x>"}, "400": {"content": "<near>"}}
    place = of_pairs(tmp_path / "m", pairs, tokenizer_class="GPT2Tokenizer", added_tokens_decoder=listed)
    tokenizer = opening.open(place).tokenizer
    assert tokenizer.id_of("<near>") == 400 and tokenizer.id_of("<far>") is tokenizer.id_of("<x>") is None
    place = folder(tmp_path / "b", {**LLAMA, "model_type": "bert"}, NORM)
    (place / "vocab.txt").write_text("[CLS]\n[SEP]\na\n")
    with pytest.raises(ImportModelError, match="no token for unknown words"):
        opening.open(place)
    (place / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ImportModelError, match="its tokenizer is not named"):  # as in an adapter's folder
        beside_an_adapter(place)
