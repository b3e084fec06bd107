"""Folders as Hugging Face has them: config.json, .safetensors files, tokenizer.json. `tec.lm.open("folder")`.

path -> settings (JSON) -> safetensors (mapped) -> weights (names, quantized ones put together) -> tec.lm.checkpoint.Checkpoint
"""

from __future__ import annotations

from pathlib import Path

from tec.lm.checkpoint import Checkpoint

from .settings import config_of, generation_of, layers_of_vectors
from .texts import texts_of
from .tokenizer import named_ends
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
    texts = texts_of(path, str(config["model_type"]))
    tokenizer = texts.tokenizer
    if "vocab_size" not in config and "model.embed_tokens.weight" in tensors:
        config["vocab_size"] = tensors["model.embed_tokens.weight"].shape[0]
    config.setdefault("tie_word_embeddings", "lm_head.weight" not in tensors)
    generation = generation_of(path, config, named_ends(tokenizer))
    generation = {**texts.ids, **generation, **texts.named}
    return Checkpoint(
        architecture=config["model_type"], config=config, tensors=tensors, make_tokenizer=lambda: tokenizer,
        chat_template=texts.template, tool_template=texts.tool_template, generation=generation, path=str(path), files=tuple(files_of(path)),
    )  # fmt: skip
