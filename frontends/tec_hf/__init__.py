"""Folders as Hugging Face has them: config.json, .safetensors files, tokenizer.json. `tec.lm.open("folder")`.

path -> settings (JSON) -> safetensors (mapped) -> weights (names, quantized ones put together) -> tec.lm.checkpoint.Checkpoint
"""

from __future__ import annotations

from pathlib import Path

from tec.lm.checkpoint import Checkpoint

from .settings import config_of, generation_of, layers_of_vectors, load, templates_of
from .tokenizer import named_ends, tokenizer_of_folder
from .weights import dense_of, files_of, tensors_of

__all__ = ["accepts", "open"]


def accepts(path: Path) -> bool:
    """Whether a path is such a folder."""
    return path.is_dir() and (path / "config.json").is_file()


def open(path: Path) -> Checkpoint:
    """The folder's checkpoint. Raises ImportModelError."""
    config = config_of(path)
    tensors = tensors_of(path, config)
    layers = layers_of_vectors(path)
    if layers:
        tensors |= dense_of([place for place, _ in layers])
        config["dense_activations"] = [activation for _, activation in layers]
    settings = {**load(path / "special_tokens_map.json"), **load(path / "tokenizer_config.json")}
    tokenizer = tokenizer_of_folder(path, settings)
    if "vocab_size" not in config and "model.embed_tokens.weight" in tensors:
        config["vocab_size"] = tensors["model.embed_tokens.weight"].shape[0]
    config.setdefault("tie_word_embeddings", "lm_head.weight" not in tensors)
    generation = generation_of(path, config, named_ends(tokenizer))
    for name, token in (("bos_token_id", settings.get("bos_token")), ("pad_token_id", settings.get("pad_token"))):
        text = token.get("content") if isinstance(token, dict) else token
        if (
            name not in generation
            and isinstance(text, str)
            and tokenizer is not None
            and (k := tokenizer.id_of(text)) is not None
        ):
            generation[name] = k
    for name in ("bos_token", "eos_token"):  # a template gets these, whatever ids config.json has
        if name in settings:
            token = settings[name]
            text = token.get("content") if isinstance(token, dict) else token
            generation[name] = text if isinstance(text, str) else ""
    template, tool_template = templates_of(path, settings)
    return Checkpoint(
        architecture=config["model_type"], config=config, tensors=tensors, make_tokenizer=lambda: tokenizer,
        chat_template=template, tool_template=tool_template, generation=generation, path=str(path), files=tuple(files_of(path)),
    )  # fmt: skip
