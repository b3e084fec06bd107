"""Text of any model that tec reads, in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .generation import Generation
from .model import load

_SAMPLING = (
    "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
)  # fmt: skip


def is_exported(paths: Sequence[Path]) -> bool:
    """Whether these are ONNX files, or a folder of some."""
    return len(paths) != 1 or paths[0].suffix == ".onnx" or (
        os.path.isdir(paths[0]) and not any(paths[0].glob("*.safetensors")) and bool([*paths[0].glob("*.onnx"), *paths[0].glob("onnx/*.onnx")])
    )  # fmt: skip


def generate(model: str | Path | Sequence[str | Path], prompt: str, **options: Any) -> Generation:
    """What a model writes behind a prompt: an iterator over pieces of text. model: a GGUF file, a folder as Hugging Face has it, or ONNX files. options: those
    of `LanguageModel.generate` (or `Generator.generate`), and those of `load` (or `Generator`)."""
    paths = [Path(p) for p in ([model] if isinstance(model, (str, Path)) else model)]
    said = {k: options.pop(k) for k in _SAMPLING if k in options}
    if is_exported(paths):
        from .exported import Generator  # with the compiler, which a model that is kept on the disk does without

        return Generator(paths, **options).generate(prompt, **said)
    return load(paths[0], **options).generate(prompt, **said)
