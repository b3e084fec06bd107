"""GGUF files as checkpoints: `tec.lm.open("model.gguf")`.

    path -> reader (header, mapped) -> names, config (Hugging Face's) -> tec.lm.checkpoint.Checkpoint

Format: ggml's docs/gguf.md, versions 2 and 3; files in several parts (NAME-00001-of-00003.gguf) are one model.
"""

from __future__ import annotations

from pathlib import Path

from tec.lm.checkpoint import Checkpoint

from .assemble import checkpoint_of
from .reader import is_gguf

__all__ = ["accepts", "open"]


def accepts(path: Path) -> bool:
    """Whether a path is a GGUF file, by its first bytes."""
    return path.is_file() and is_gguf(path)


def open(path: Path) -> Checkpoint:
    """A GGUF file's checkpoint; of a model in several parts any one may be given. Raises ImportModelError."""
    return checkpoint_of(path)
