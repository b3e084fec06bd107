"""How a text is cut into words before pairs are merged: the rules that `tokenizer.ggml.pre` names. Their regular expressions are in no GGUF file.

A rule's expressions are applied one after the other, each to the pieces that the one before left; what an expression matches is a piece of its own, and so is
what lies between. The expressions are those of each model's tokenizer.json (the names: `llama_vocab` in llama.cpp); the syntax is Oniguruma's.
"""

from __future__ import annotations

from ...errors import ImportModelError, one_line
from ...records import dataclass


@dataclass(frozen=True)
class Rule:
    """patterns: in their order. whole_words: a piece that is a token is taken as one, without merges ("ignore_merges"). begins: texts begin with bos unless the
    file says otherwise. raw: characters are merged as they are, spaces as U+2581; otherwise bytes, each shown as a character (GPT-2's alphabet)."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    begins: bool = False
    raw: bool = False


_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # what English leaves of a word behind an apostrophe
_BREAKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


def _words(digits: str, letters: str = r"\p{L}", no_punctuation: str = r"\p{L}\p{N}", short: str = _SHORT + "|") -> str:
    """The expression of GPT-4 and its children: words with one sign before them, numbers, punctuation with ends of lines, white space."""
    return rf"{short}[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^\s{no_punctuation}]+[\r\n]*|{_BREAKS}"


def _cased(digits: str, short: str) -> str:
    """The expression of o200k: words also end where a small letter is followed by a large one."""
    large, small = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    return rf"{before}{large}*{small}+{short}|{before}{large}+{small}*{short}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BREAKS}"


_LLAMA3 = _words(r"\p{N}{1,3}")
_QWEN2 = _words(r"\p{N}")
_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + _BREAKS
)
# Letters of scripts that have large and small ones, as DeepSeek's tokenizer lists them.
_DEEPSEEK_LETTERS = "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
_DEEPSEEK_SIGNS = "!-/:-~！-／：-～‘-‟　-。"

_DEFAULT = Rule((r"[\p{P}$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_LLAMA = Rule((_LLAMA3,), whole_words=True, begins=True)
_SMOLLM = Rule((r"\p{N}", _GPT2))
_PLAIN = Rule((_GPT2,))
_QWEN = Rule((_QWEN2,))
_O200K = Rule((_cased(r"\p{N}{1,3}", _SHORT + "?"),))
_V3 = Rule((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))
_BAILING = Rule(
    (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",)
)
_LINES = Rule((r"[^\n]+|[\n]+",), raw=True)

RULES: dict[str, Rule] = {
    "default": _DEFAULT,
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"), _LLAMA),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), Rule((_LLAMA3,))),
    **dict.fromkeys(("glm4", "glm5"), Rule((_LLAMA3,), whole_words=True)),
    "minicpm5": Rule((r"\p{N}{1,3}", _words(r"\p{N}+")), whole_words=True),
    "deepseek-llm": Rule((r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", rf"\s?[{_DEEPSEEK_SIGNS}]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}+")),
    "deepseek-coder": Rule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _V3),
    "falcon": Rule((r"[\p{P}$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"), _SMOLLM),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code", "roberta-bpe", "a.x-4.0",
         "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"), _PLAIN),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"), _QWEN),
    "qwen35": Rule((_words(r"\p{N}", r"[\p{L}\p{M}]", r"\p{L}\p{M}\p{N}"),)),
    "ufakzeka": Rule((_words(r"\p{N}", short=""),)),
    "laguna": Rule((r"[^\n]+|[\n]+", _QWEN2)),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), Rule((" ?[^(\\s|.,!?…。，、।۔،)]+",))),
    "viking": Rule((" ?[^(\\s|.,!?…。，、।۔،)]+", r"\p{N}")),
    "tekken": Rule((_cased(r"\p{N}", ""),), whole_words=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _O200K),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), Rule((r"\d{1,3}(?=(?:\d{3})*\b)", *_O200K.patterns))),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "seed-coder": Rule((rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BREAKS}",)),
    **dict.fromkeys(("gemma4", "sarvam-moe", "granite-embed-multi-311m"), _LINES),
}  # fmt: skip


def rule(name: str) -> Rule:
    """The rule of a name. Raises ImportModelError for one that is not known: other pieces would give other tokens, and the model would read nonsense."""
    found = RULES.get(name)
    if found is None:
        raise ImportModelError(
            f"the tokenizer cuts texts by the rule {one_line(name)!r}, which is unknown",
            hint=f"known: {', '.join(sorted(RULES))}",
        )
    return found
