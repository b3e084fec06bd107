"""Tokenizers made of a GGUF file's vocabulary, against those that the vocabularies come from: `sentencepiece` and `tokenizers`, trained here."""

from __future__ import annotations

import io
import json
import random
import re

import numpy as np
import pytest
import sentencepiece
import tokenizers

from tec.errors import ArgumentError, ImportModelError
from tec.lm.text.bytelevel import SHORT, alphabet
from tec.lm.text.guard import MARK, Guard
from tec.lm.text.splitting import RULES
from tec.lm.text.tokenizer import Stream, tokenizer_of
from tec.lm.text.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER, Vocabulary, end_ids, vocabulary_of
from tests import seeds

WORDS = "the of and to in was that his it I for is you with he on as at be had not but this from have which said they her we him or an are".split()
TEXTS = [
    "", " ", "  ", "a", "Hello world", " leading", "trailing ", "two  spaces   three", "tabs\tand\nends\n\nof lines\r\n", "naïve café, Ελληνικά",
    "你好，世界", "日本語のテキスト", "emoji 🎉👍🏽 and \u200b zero", "12345 3.14 1,000,000", "I'm you're WE'LL it's", "code: if (x >= 10) { return y[3]; }",
    "a\u0301 combining", "\ufffd\u0000\x07", "ﬁ ligature ½", "ALLCAPS CamelCase snake_case", "..........", "the the the", "<0x41> <s>", "\u2581",
]  # fmt: skip


def corpus() -> list[str]:
    rng = random.Random(3)
    lines = [
        " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 12))) + rng.choice([".", "!", "?", ",", "'s", " 12"])
        for _ in range(400)
    ]
    return lines + [t for t in TEXTS if t.strip() and "\0" not in t] * 3


def drawn() -> list[str]:
    """Texts of letters, signs and spaces that the tests draw."""
    rng = random.Random(seeds.stream("tokenizers"))
    signs = "abcdeXYZ  \n\t'.,!-_()0123456789éß中文🎉" + "".join(chr(rng.randint(0xA0, 0x2FF)) for _ in range(20))
    return ["".join(rng.choice(signs) for _ in range(rng.randint(1, 60))) for _ in range(60)] + [
        " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 30))) for _ in range(20)
    ]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def piece_model(request):
    """A SentencePiece model with bytes for what it has no tokens for, without a normalization of its own, and the vocabulary that a file has of it."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=made, model_type=request.param, vocab_size=700 if request.param == "bpe" else 500,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=request.param == "unigram", character_coverage=0.985,
        minloglevel=2, hard_vocab_limit=False, split_digits=True, allow_whitespace_only_pieces=True, user_defined_symbols=["<h1>"],
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())

    def kind(k: int) -> int:
        if model.IsUnknown(k):
            return UNKNOWN
        if model.IsControl(k):
            return CONTROL
        return BYTE if model.IsByte(k) else USER if model.IdToPiece(k) == "<h1>" else NORMAL

    count = model.GetPieceSize()
    vocabulary = Vocabulary(
        model="llama" if request.param == "bpe" else "t5", tokens=[model.IdToPiece(k) for k in range(count)],
        kinds=np.array([kind(k) for k in range(count)], np.int32), scores=np.array([model.GetScore(k) for k in range(count)], np.float32),
        begin=model.bos_id(), end=model.eos_id(), unknown=model.unk_id(),
    )  # fmt: skip
    return model, vocabulary


def test_pieces(piece_model):
    model, vocabulary = piece_model
    tokenizer = tokenizer_of(vocabulary)
    pairs = vocabulary.model == "llama"
    for text in [*TEXTS, *drawn()]:
        text = text.replace("\0", "").replace("\u2581", "")
        if not pairs:  # the model was made to leave one space of several
            text = re.sub(r"\s+", " ", text).strip()
        if text and "<" not in text:
            assert tokenizer.encode(text, add_special=False) == model.EncodeAsIds(text), repr(text)
            assert not pairs or tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.encode("Hello")[0] == model.bos_id()) == pairs
    assert (tokenizer.encode("Hello")[-1] == model.eos_id()) != pairs


def library(rule: str) -> tuple[tokenizers.Tokenizer, Vocabulary]:
    """A tokenizer of pairs of bytes that cuts texts as a rule says, trained by its own package."""
    tk = tokenizers
    made = tk.Tokenizer(tk.models.BPE(ignore_merges=RULES[rule].whole_words))
    steps = [tk.pre_tokenizers.Split(tk.Regex(p), "isolated") for p in RULES[rule].patterns]
    made.pre_tokenizer = tk.pre_tokenizers.Sequence(
        [*steps, tk.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=sorted(alphabet()),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    made.train_from_iterator(corpus(), trainer)

    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    kinds = np.array([CONTROL if t.startswith("<|") else NORMAL for t in tokens], np.int32)
    merges = [" ".join(m) for m in model["merges"]]
    return made, Vocabulary("gpt2", tokens, kinds, merges=merges, pre=rule, begin=0, end=0)


@pytest.mark.parametrize("rule", ["llama-bpe", "qwen2", "smollm", "gpt-2", "gpt-4o", "deepseek-v3", "default"])
def test_pairs_of_bytes(rule):
    made, vocabulary = library(rule)
    tokenizer = tokenizer_of(vocabulary)
    long = "\n".join(drawn() * 8)[: 2 * SHORT]  # the package's model is made for the last one alone
    for text in [*TEXTS, *drawn(), "<|im_start|>user\nHi<|im_end|> there", long]:
        found = tokenizer.encode(text, add_special=False)
        assert found == made.encode(text).ids, repr(text)
        assert tokenizer.decode(found, special=True) == text
    assert (tokenizer.encode("x")[0] == 0) == (rule == "llama-bpe"), (
        "texts begin with bos where the rule or the file says so"
    )


# What the rules cut, by the models' own descriptions: digits alone or in threes, English endings, words with the space before them.
CUTS = {
    "llama-bpe": ("I'LL pay 12345 now!!\n\nok", ["I", "'LL", " pay", " ", "123", "45", " now", "!!\n\n", "ok"]),
    "qwen2": ("pay 123 now", ["pay", " ", "1", "2", "3", " now"]),
    "smollm": ("a1b 22", ["a", "1", "b", " ", "2", "2"]),
    "gpt-2": ("it's 123  x\t\ty", ["it", "'s", " 123", " ", " x", "\t", "\t", "y"]),
    "gpt-4o": ("CamelCase's x/y//\n", ["Camel", "Case's", " x", "/y", "//\n"]),
    "tekken": ("CamelCase 12", ["Camel", "Case", " ", "1", "2"]),
    "deepseek-v3": ("中文字abc 1234", ["中文字", "abc", " ", "123", "4"]),
    "qwen35": ("a\u0301b 12", ["a\u0301b", " ", "1", "2"]),
    "gemma4": ("a b\n\nc", ["a b", "\n\n", "c"]),
    "falcon": ("a==b 12345", ["a", "==", "b", " ", "123", "45"]),
    "deepseek-coder": ("x, y = 12", ["x", ",", " y", " = ", "1", "2"]),
}  # fmt: skip


@pytest.mark.parametrize("rule", CUTS)
def test_cuts(rule):
    text, wanted = CUTS[rule]
    steps = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(p), "isolated") for p in RULES[rule].patterns]
    assert [p for p, _ in tokenizers.pre_tokenizers.Sequence(steps).pre_tokenize_str(text)] == wanted


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_a_regular_expression_that_loses_nothing(rule):
    steps = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Split(tokenizers.Regex(p), "isolated") for p in RULES[rule].patterns]
    )
    for text in [*TEXTS, *drawn()]:
        assert "".join(p for p, _ in steps.pre_tokenize_str(text)) == text


def test_special_tokens_of_strangers_are_text():
    made, vocabulary = library("qwen2")
    tokenizer = tokenizer_of(vocabulary)
    end = tokenizer.id_of("<|im_end|>")
    text = "Hi<|im_end|><|im_start|>system"
    assert end in tokenizer.encode(text)
    plain = tokenizer.encode(text, special=False)
    assert end not in plain and tokenizer.decode(plain) == text
    assert tokenizer.decode(tokenizer.encode(text)) == "Hisystem"
    assert tokenizer.token_bytes(end) == b""


def test_a_guard_makes_special_tokens_text():
    _, vocabulary = library("qwen2")
    tokenizer = tokenizer_of(vocabulary)
    guard = Guard(tokenizer.special_texts)
    for text in (
        "Hi<|im_end|>",
        "<|im_start|><|im_end|>",
        f"<|im{MARK}_end|>",
        f"{MARK}a",
        "<|im_<|im_end|>end|>",
        "plain",
    ):
        ids = tokenizer.encode(guard.text(text), add_special=False)
        assert tokenizer.decode(ids, special=True) == text.replace(MARK, "")
        assert not {tokenizer.id_of("<|im_start|>"), tokenizer.id_of("<|im_end|>")} & set(ids)
    nested = {"content": ["<|im_end|>", 7, None], "<|im_end|>": {"x": "<|im_end|>"}}
    assert str(guard.all(nested)).count("<|im_end|>") == 0 and guard.all(nested)["content"][1:] == [7, None]


def test_characters_of_several_tokens_come_whole():
    made, vocabulary = library("gpt-2")
    tokenizer = tokenizer_of(vocabulary)
    text = "x 🎉 中 é"
    stream = Stream(tokenizer.token_bytes)
    pieces = [stream.add(k) for k in tokenizer.encode(text)]
    assert "".join(pieces) + stream.rest() == text and "\ufffd" not in "".join(pieces)
    half = Stream(tokenizer.token_bytes)
    assert half.add(tokenizer.encode("🎉")[0]) == "" and half.rest() == "\ufffd"


def test_halves_of_surrogate_pairs():
    _, vocabulary = library("gpt-2")
    tokenizer = tokenizer_of(vocabulary)
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_characters_with_spaces_as_they_are():
    """ "gemma4": pairs of characters; what is no token is written in bytes."""
    tokens = ["<unk>", "a", "b", "\u2581", "ab", "\u2581ab", "\n", *(f"<0x{b:02X}>" for b in range(256))]
    kinds = np.array([UNKNOWN, *[NORMAL] * 6, *[BYTE] * 256], np.int32)
    tokenizer = tokenizer_of(Vocabulary("gemma4", tokens, kinds, merges=["a b", "\u2581 ab"], unknown=0))
    assert [tokens[k] for k in tokenizer.encode("ab ab\né", add_special=False)] == [
        "ab",
        "\u2581ab",
        "\n",
        "<0xC3>",
        "<0xA9>",
    ]
    assert tokenizer.decode(tokenizer.encode("ab ab\né")) == "ab ab\né"


def test_word_pieces():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581hello", "\u2581wor", "ld", "\u2581,"]
    kinds = np.array([CONTROL, CONTROL, CONTROL, CONTROL, 1, 1, 1, 1], np.int32)
    tokenizer = tokenizer_of(Vocabulary("bert", tokens, kinds, unknown=1, classifier=2, separator=3))
    assert [tokens[k] for k in tokenizer.encode("Hello, world xyz")] == [
        "[CLS]",
        "\u2581hello",
        "\u2581,",
        "\u2581wor",
        "ld",
        "[UNK]",
        "[SEP]",
    ]


MISTAKES = {
    "a rule that is not known": ({"model": "gpt2", "pre": "x\x1by"}, r"the rule 'x\\\\x1by', which is unknown"),
    "a kind that is not known": ({"model": "rwkv"}, "the kind 'rwkv'"),
    "no scores": ({"model": "llama"}, "has no scores"),
    "no scores of unigrams": ({"model": "t5"}, "has no scores"),
    "a merge of no tokens": ({"model": "gpt2", "merges": ["a q"]}, "a merge 'a q' of what are no tokens"),
    "a merge to no token": ({"model": "gpt2", "merges": ["b a"]}, "a merge 'b a' of what are no tokens"),
    "a merge of one": ({"model": "gpt2", "merges": ["ab"]}, "a merge 'ab'"),
    "no token for unknown words": ({"model": "bert"}, "no token for unknown words"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes(what):
    facts, match = MISTAKES[what]
    with pytest.raises(ImportModelError, match=match):
        tokenizer_of(Vocabulary(**{"tokens": ["a", "b", "ab"], "kinds": np.ones(3, np.int32), **facts})).encode("baq")


METADATA = {
    "scores for other tokens": ({"tokenizer.ggml.scores": np.zeros(2, np.float32)}, "3 tokens and 2 values of scores"),
    "kinds that are no list": ({"tokenizer.ggml.token_type": 7}, "3 tokens and no values of token_type"),
    "scores that are no numbers": (
        {"tokenizer.ggml.scores": np.array([0, np.nan, 0], np.float32)},
        "scores that are no numbers",
    ),
    "an end outside": ({"tokenizer.ggml.eos_token_id": 3}, "3 as eos_token_id, and 3 tokens"),
    "tokens that are numbers": ({"tokenizer.ggml.tokens": np.zeros(3)}, "no list of tokens"),
    "merges that are numbers": ({"tokenizer.ggml.merges": np.zeros(3)}, "merges that are no texts"),
}


@pytest.mark.parametrize("what", METADATA)
def test_metadata_that_does_not_fit(what):
    facts, match = METADATA[what]
    with pytest.raises(ImportModelError, match=match):
        vocabulary_of({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b", "c"], **facts})


def test_no_tokenizer():
    assert vocabulary_of({}) is None and vocabulary_of({"tokenizer.ggml.model": "none"}) is None


def test_ends_by_name():
    assert end_ids({"a": 0, "<|im_end|>": 1, "<|endoftext|>": 2}.get) == [1, 2]
    assert end_ids({"<|end|>": 0, "<|return|>": 1, "<|call|>": 2}.get) == [1, 2], (
        "in gpt-oss <|end|> ends a message, not an answer"
    )


def test_a_token_outside():
    _, vocabulary = library("gpt-2")
    tokenizer = tokenizer_of(vocabulary)
    for k in (-1, tokenizer.size):
        with pytest.raises(ArgumentError, match="of a vocabulary of"):
            tokenizer.decode([k])


def test_a_long_text_takes_time_in_proportion(piece_model):
    """A word without an end is joined in n log n steps; what is said again is remembered."""
    _, vocabulary = piece_model
    tokenizer = tokenizer_of(vocabulary)
    assert len(tokenizer.encode("a" * 200_000, add_special=False)) > 1000
    assert len(tokenizer.encode("the of " * 50_000, add_special=False)) > 50_000
