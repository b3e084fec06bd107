"""Tokenizers of folders without a tokenizer.json: vocab.json with merges.txt, or BERT's vocab.txt. What such files mean is said by `tokenizer_class`, else by the model's type.

vocab.json, merges.txt, added_tokens.json, settings -> the text of a tokenizer.json, as transformers makes it of the same files
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tec.errors import ImportModelError, one_line
from tec.lm.remedies import FETCH_AGAIN

from .settings import text_of

# By `tokenizer_class`, without "Fast". GPT-2's cut words by its own rule; those with NFC compose characters first; RoBERTa's put a text between two tokens.
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PLAIN, _COMPOSED, _FRAMED = ("GPT2Tokenizer", "CodeGenTokenizer", "WhisperTokenizer"), ("GPTNeoXTokenizer", "Qwen2Tokenizer"), ("RobertaTokenizer", "BartTokenizer")  # fmt: skip
_PAIRS = (*_PLAIN, *_COMPOSED, *_FRAMED)
_PIECES = ("BertTokenizer", "DistilBertTokenizer")
_BY_KIND = {
    "gpt2": "GPT2Tokenizer", "gpt_bigcode": "GPT2Tokenizer", "gptj": "GPT2Tokenizer", "starcoder2": "GPT2Tokenizer", "gpt_neox": "GPTNeoXTokenizer",
    "mamba": "GPTNeoXTokenizer", "mamba2": "GPTNeoXTokenizer", "mpt": "GPTNeoXTokenizer", "olmo": "GPTNeoXTokenizer", "olmoe": "GPTNeoXTokenizer",
    "qwen2": "Qwen2Tokenizer", "qwen3": "Qwen2Tokenizer", "qwen2_moe": "Qwen2Tokenizer", "qwen3_moe": "Qwen2Tokenizer", "whisper": "WhisperTokenizer",
    "roberta": "RobertaTokenizer", "bert": "BertTokenizer",
}  # fmt: skip
_END = "<|endoftext|>"
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_USUAL = (
    ((*_PLAIN, "GPTNeoXTokenizer"), {"bos_token": _END, "eos_token": _END, "unk_token": _END}),
    (("Qwen2Tokenizer",), {"eos_token": _END, "unk_token": _END, "pad_token": _END}),
    (_FRAMED, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>", "cls_token": "<s>", "mask_token": "<mask>"}),
    (_PIECES, {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}),
)  # fmt: skip
_MOST_BYTES = 256 << 20


def described(folder: Path, settings: Mapping[str, Any], kind: str) -> str | None:
    """The text of the tokenizer.json that a folder's files stand for; None where it has none. settings: tokenizer_config.json; kind: the model's type. Raises
    ImportModelError for files that are damaged, and for kinds of tokenizers that are not known."""
    pairs = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    if not pairs and not (folder / "vocab.txt").is_file():
        return None
    said = settings.get("tokenizer_class")
    name = (
        said.removesuffix("Fast")
        if isinstance(said, str)
        else _BY_KIND.get(kind, f"that of {kind}" if kind else "not named")
    )
    known: tuple[str, ...] = _PAIRS if pairs else _PIECES
    if name not in known:
        raise ImportModelError(
            f"{folder} has no tokenizer.json, and its tokenizer is {one_line(name)[:80]}",
            hint=f"tokenizer.json, as transformers' save_pretrained writes it; without it {', '.join(known)} are known",
        )
    made = _pairs(folder, settings, name) if pairs else _pieces(folder, settings)
    usual = next(texts for names, texts in _USUAL if name in names)
    named = {n: text_of(settings.get(n, usual.get(n))) for n in _NAMES}
    made["added_tokens"] = list(_added(folder, settings, made["model"]["vocab"], named))
    ids = {**made["model"]["vocab"], **{t["content"]: t["id"] for t in made["added_tokens"]}}
    if name in (*_FRAMED, *_PIECES):
        ends = [named["cls_token"], named["sep_token"]]
    else:
        ends = [named[f"{n}_token"] if settings.get(f"add_{n}_token") is True else None for n in ("bos", "eos")]
    if any(t in ids for t in ends):
        made["post_processor"] = _framed(*((str(t), ids[t]) if t in ids else None for t in ends))
    return json.dumps(made)


def _framed(begin: tuple[str, int] | None, end: tuple[str, int] | None) -> dict[str, Any]:
    """A step that puts a text between two tokens, each by its text and id."""
    first, last = ([{"SpecialToken": {"id": t[0], "type_id": 0}}] if t is not None else [] for t in (begin, end))
    return {
        "type": "TemplateProcessing", "single": [*first, {"Sequence": {"id": "A", "type_id": 0}}, *last],
        "pair": [*first, {"Sequence": {"id": "A", "type_id": 0}}, *last, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {t[0]: {"id": t[0], "ids": [t[1]], "tokens": [t[0]]} for t in (begin, end) if t is not None},
    }  # fmt: skip


def _pairs(folder: Path, settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Pairs of bytes."""
    vocab = _json(folder / "vocab.json")
    lines = _read(folder / "merges.txt").split("\n")
    merges = [line.split(" ") for k, line in enumerate(lines) if line and not (k == 0 and line.startswith("#version"))]
    if any(len(m) != 2 or not all(m) for m in merges):
        raise ImportModelError(f"{folder / 'merges.txt'} has a line that is no pair", hint=FETCH_AGAIN)
    prefix = settings.get("add_prefix_space") is True
    step = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": name != "Qwen2Tokenizer"}  # fmt: skip
    cut = {"type": "Split", "pattern": {"Regex": _QWEN}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "post_processor": None, "decoder": {**step, "use_regex": True},
        "normalizer": {"type": "NFC"} if name in _COMPOSED else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, step]} if name == "Qwen2Tokenizer" else step,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges},
    }  # fmt: skip


def _pieces(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """BERT's word pieces."""
    vocab = {t: k for k, t in enumerate(_read(folder / "vocab.txt").rstrip("\n").split("\n"))}
    unknown = text_of(settings.get("unk_token", "[UNK]"))
    if unknown not in vocab:
        raise ImportModelError(f"{folder / 'vocab.txt'} has no token for unknown words ({unknown})", hint=FETCH_AGAIN)
    return {
        "version": "1.0", "truncation": None, "padding": None, "post_processor": None, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
                       "strip_accents": settings.get("strip_accents"), "lowercase": settings.get("do_lower_case", True)},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    }  # fmt: skip


def _added(
    folder: Path, settings: Mapping[str, Any], vocab: Mapping[str, int], named: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    """Tokens that are found in a text before it is cut: those that files list, and those with a name. Of these the ones without an id come last."""
    listed: dict[int, dict[str, Any]] = {}
    if (folder / "added_tokens.json").is_file():
        listed = {k: {"content": t} for t, k in _json(folder / "added_tokens.json").items()}
    more = settings.get("added_tokens_decoder")
    for k, said in more.items() if isinstance(more, dict) else ():
        if isinstance(said, dict) and isinstance(said.get("content"), str) and k.isdecimal() and len(k) < 11:
            listed[int(k)] = said
    also = [settings.get(n) for n in ("additional_special_tokens", "extra_special_tokens")]
    texts = [*named.values(), *(text_of(t) for some in also if isinstance(some, list) for t in some)]
    special = list(dict.fromkeys(t for t in texts if t))
    ids = {**vocab, **{said["content"]: k for k, said in listed.items()}}
    for text in special:
        if text not in ids:
            ids[text] = max(ids.values(), default=-1) + 1
        if all(said["content"] != text for said in listed.values()):
            listed[ids[text]] = {"content": text, "special": True}
    for k, said in sorted(listed.items()):
        is_special = bool(said.get("special", said["content"] in special))
        flags = {f: bool(said.get(f)) for f in ("single_word", "lstrip", "rstrip")}
        yield {"id": k, "content": said["content"], "special": is_special, "normalized": bool(said.get("normalized", not is_special)), **flags}  # fmt: skip


def _json(path: Path) -> dict[str, int]:
    """Tokens by their texts. Raises ImportModelError."""
    try:
        read = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ImportModelError(f"cannot read {path}: {one_line(str(error))[:200]}", hint=FETCH_AGAIN) from None
    if not isinstance(read, dict) or not all(type(k) is int and 0 <= k < 1 << 31 for k in read.values()):
        raise ImportModelError(f"{path} holds no ids of tokens", hint=FETCH_AGAIN)
    return read


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ImportModelError(f"{path} has {path.stat().st_size} bytes", hint=f"{_MOST_BYTES} at most")
        return path.read_text("utf-8").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise ImportModelError(f"cannot read {path}: {one_line(str(error))[:200]}", hint=FETCH_AGAIN) from None
