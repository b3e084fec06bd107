"""Folders as Hugging Face has them: config.json, .safetensors files, tokenizer.json. `tec.lm.open("folder")`."""

from __future__ import annotations

from pathlib import Path

from tec.errors import ImportModelError
from tec.lm.checkpoint import Checkpoint

__all__ = ["accepts", "open"]


def accepts(path: Path) -> bool:
    """Whether a path is such a folder."""
    return path.is_dir() and (path / "config.json").is_file()


def open(path: Path) -> Checkpoint:
    """The folder's checkpoint. Raises ImportModelError."""
    raise ImportModelError(f"{path} is a folder as Hugging Face has it, which cannot be read yet", hint="a .gguf file")
