"""The JSON files of a Hugging Face folder: config.json with what its parts share, generation_config.json, tokenizer_config.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tec.errors import ImportModelError, one_line
from tec.lm.remedies import FETCH_AGAIN

from .defaults import complete
from .namesakes import known

MOST_BYTES = 64 << 20  # of a file of settings; a tokenizer_config.json with all its added tokens has some 5 MB
_MODULES = ("Transformer", "Pooling", "Normalize")  # of sentence-transformers, which are not layers of their own
# Norms that multiply by 1 + weight.
_OFFSET_NORMS = ("gemma", "gemma2", "gemma3_text", "nemotron", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
# Of a model for texts and pictures: the model_type of its part for texts where that part does not say it.
_TEXT_OF = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "mistral3": "mistral",
    "gemma3n": "gemma3n_text",
    "llama4": "llama4_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "kimi_k25": "kimi_k2",
}


# Of GPT-2 and those that follow it, and what others call the same.
_OLD_NAMES = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act", "rotary_pct": "partial_rotary_factor",
}  # fmt: skip


def text_of(token: Any) -> str | None:
    """The text of a token that settings name, by itself or with its flags; None where they say none."""
    said = token.get("content") if isinstance(token, dict) else token
    return said if isinstance(said, str) else None


def load(path: Path) -> dict[str, Any]:
    """A file's settings; {} where there is no such file. Raises ImportModelError for what is no JSON object."""
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ImportModelError(f"{path} has {path.stat().st_size} bytes", hint=f"{MOST_BYTES} at most")
        read = json.loads(path.read_text("utf-8"), object_hook=_number)
    except (OSError, ValueError, RecursionError) as error:
        raise ImportModelError(
            f"cannot read {path}: {one_line(str(error))[:200]}", hint="a file of JSON that this user may read"
        ) from None
    if not isinstance(read, dict):
        raise ImportModelError(f"{path} holds no settings", hint="a folder of a model has a config.json with an object")
    return read


def _number(made: dict[str, Any]) -> Any:
    """Infinity and NaN, which JSON does not have, as transformers writes them."""
    text = made.get("__float__")
    return float(text) if len(made) == 1 and text in ("Infinity", "-Infinity", "NaN") else made


def config_of(folder: Path) -> dict[str, Any]:
    """config.json; of a model for more than texts, its part for texts. `rope_parameters` (transformers 5) become `rope_theta`, `rope_scaling` and
    `rope_local_base_freq`, as they were called before."""
    whole = load(folder / "config.json")
    config = dict(whole)
    part = whole.get("text_config")
    if isinstance(part, dict):
        config = {**{k: whole[k] for k in ("tie_word_embeddings", "quantization_config") if k in whole}, **part}
        config |= {k: whole[k] for k in ("bos_token_id", "eos_token_id") if whole.get(k) is not None}
        config.setdefault("model_type", _TEXT_OF.get(str(whole.get("model_type")), whole.get("model_type")))
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise ImportModelError(f"{folder / 'config.json'} has no model_type", hint="it is no language model's folder")
    known(config)
    kind = str(config["model_type"])
    complete(config)
    for theirs, ours in _OLD_NAMES.items():
        if theirs in config:
            config.setdefault(ours, config[theirs])
    _rope(config)
    pooling = pooling_of(folder)
    if pooling is not None:
        config["pooling_type"] = pooling
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    config.setdefault("num_key_value_heads", heads)
    if config.get("head_dim") is None and type(heads) is int and type(hidden) is int and heads > 0:
        config["head_dim"] = hidden // heads
    config["rms_norm_offset"] = 1.0 if kind in _OFFSET_NORMS else 0.0
    return config


def pooling_of(folder: Path) -> str | None:
    """How sentence-transformers makes one vector of a text's: "mean", "first", "last"; None where the folder does not say. Raises ImportModelError for others."""
    said = load(folder / "1_Pooling" / "config.json")
    ways = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
    found = [way for way, key in ways.items() if said.get(key)]
    if said and len(found) != 1:
        named = ", ".join(sorted(k for k, v in said.items() if v is True))
        raise ImportModelError(
            f"{folder / '1_Pooling'} pools by {one_line(named)}", hint="one of the mean, the first and the last token"
        )
    return found[0] if found else None


def layers_of_vectors(folder: Path) -> list[tuple[Path, str]]:
    """The layers that sentence-transformers puts behind the pooling: where each lies, and the name of its activation. Raises ImportModelError for others than
    matrices."""
    listed = _listed_modules(folder)
    if listed is None:
        listed = [{"path": p.name, "type": "Dense"} for p in sorted(folder.glob("[0-9]_Dense")) if p.is_dir()]
    found = []
    for module in listed:
        said = module if isinstance(module, dict) else {}
        kind, place = str(said.get("type", "")).rpartition(".")[2], str(said.get("path", ""))
        if kind in _MODULES:
            continue
        if kind != "Dense" or re.fullmatch(r"\w[\w.-]*", place) is None:
            raise ImportModelError(
                f"{folder / 'modules.json'} has a {one_line(kind)[:80]} in {one_line(place)[:80]!r}",
                hint="a model whose vectors are pooled, go through Dense layers, and are normalized",
            )
        activation = str(load(folder / place / "config.json").get("activation_function", "Tanh")).rpartition(".")[2]
        found.append((folder / place, activation))
    return found


def _listed_modules(folder: Path) -> list[Any] | None:
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        read = json.loads(path.read_text("utf-8")) if path.stat().st_size <= MOST_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise ImportModelError(f"cannot read {path}: {one_line(str(error))[:200]}", hint=FETCH_AGAIN) from None
    if not isinstance(read, list):
        raise ImportModelError(f"{path} holds no list of modules", hint=FETCH_AGAIN)
    return read


# Whose positions are by kinds of layers, and the bases of those that see everything and of those with a window.
_BY_LAYERS = {"gemma3_text": (1e6, 1e4), "gemma3n_text": (1e6, 1e4), "olmo3": (5e5, 5e5)}


def _by_layers(config: dict[str, Any], whole: float, near: float) -> None:
    """`rope_parameters` of both kinds of layers. `rope_scaling` and `rope_theta` are of those that see everything, and a table that is for no kind is not read."""
    said, scaling = config.get("rope_parameters"), config.get("rope_scaling")
    tables = said if isinstance(said, dict) else {}
    made: dict[str, dict[str, Any]] = {}
    for name, outside, base in (
        ("full_attention", "rope_theta", whole),
        ("sliding_attention", "rope_local_base_freq", near),
    ):
        own = tables.get(name)
        more = scaling if name == "full_attention" and isinstance(scaling, dict) else {}
        table = {"rope_type": "default"} | (own if isinstance(own, dict) else {}) | more
        if "type" in more and "rope_type" not in more:
            table["rope_type"] = more["type"]
        if table.get("rope_theta") is None:
            table["rope_theta"] = base if config.get(outside) is None else config[outside]
        made[name] = table
    config["rope_parameters"] = {**tables, **made}  # what is not read is held to what such a key may hold all the same


def _rope(config: dict[str, Any]) -> None:
    if config["model_type"] in _BY_LAYERS:
        _by_layers(config, *_BY_LAYERS[config["model_type"]])
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict):
        scaling = config.get("rope_scaling")
        if isinstance(scaling, dict):
            if "rope_type" not in scaling and "type" in scaling:
                said = scaling["type"]
                config["rope_scaling"] = {**scaling, "rope_type": {"su": "longrope"}.get(str(said), said)}
            if scaling.get("rope_theta") is not None:  # before the one beside it, as transformers reads both
                config["rope_theta"] = scaling["rope_theta"]
        return
    local = rope.get("sliding_attention")
    if isinstance(local, dict) and local.get("rope_theta") is not None:
        config["rope_local_base_freq"] = local["rope_theta"]
    full = rope.get("full_attention", rope)
    if not isinstance(full, dict):
        return
    if full.get("rope_theta") is not None:
        config["rope_theta"] = full["rope_theta"]
    if full.get("partial_rotary_factor") is not None:
        config["partial_rotary_factor"] = full["partial_rotary_factor"]
    if full.get("rope_type", "default") != "default":
        config["rope_scaling"] = {k: v for k, v in full.items() if k != "rope_theta"}


def generation_of(folder: Path, config: Mapping[str, Any], named: list[int]) -> dict[str, Any]:
    """What `Checkpoint.generation` has: generation_config.json before config.json. named: tokens that end an answer by their names."""
    said = load(folder / "generation_config.json")
    found: dict[str, Any] = {}
    end = said.get("eos_token_id", config.get("eos_token_id"))
    ends = [k for k in (end if isinstance(end, list) else [end]) if type(k) is int]
    found["eos_token_ids"] = list(dict.fromkeys([*ends, *named]))
    for name in ("bos_token_id", "pad_token_id"):
        value = said.get(name, config.get(name))
        if type(value) is int:
            found[name] = value
    for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "do_sample"):
        if isinstance(said.get(name), (int, float)):
            found[name] = said[name]
    return found | _of_speech(said, config)


def _of_speech(said: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a model that writes what it hears: the tokens that begin a text, and those that it never has."""
    found: dict[str, Any] = {}
    for name in ("decoder_start_token_id", "no_timestamps_token_id", "max_initial_timestamp_index"):
        value = said.get(name, config.get(name))
        if type(value) is int:
            found[name] = value
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        value = said.get(name, config.get(name))
        if isinstance(value, list):
            found[name] = [t for t in value if type(t) is int]
    for name in ("lang_to_id", "task_to_id"):
        value = said.get(name)
        if isinstance(value, dict):
            found[name] = {str(k): v for k, v in value.items() if type(v) is int}
    return found


def templates_of(folder: Path, tokenizer: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The chat template, and the one for conversations with tools where it is another: chat_template.jinja with those of additional_chat_templates beside it,
    chat_template.json, or in tokenizer_config.json, where a list names several."""
    file, more = folder / "chat_template.jinja", folder / "additional_chat_templates" / "tool_use.jinja"
    if file.is_file():
        return _text_of(file), _text_of(more) if more.is_file() else None
    said = load(folder / "chat_template.json").get("chat_template", tokenizer.get("chat_template"))
    named: dict[Any, Any] = {}
    if isinstance(said, list):
        named = {t.get("name"): t.get("template") for t in said if isinstance(t, dict)}
        said = named.get("default", next(iter(named.values()), None))
    tools = named.get("tool_use")
    return said if isinstance(said, str) else None, tools if isinstance(tools, str) else None


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ImportModelError(f"cannot read {file}: {error}", hint="a file of JSON that this user may read") from None
