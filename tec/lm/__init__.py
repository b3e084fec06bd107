"""Language models: their files, their tokenizers, and what runs them.

checkpoint = tec.lm.open("model.gguf")      # or a folder as Hugging Face has it
"""

from __future__ import annotations

from .checkpoint import Checkpoint, PackedTensor, Tokenizer
from .formats import Format
from .opening import open, open_adapter

__all__ = ["Checkpoint", "Format", "PackedTensor", "Tokenizer", "open", "open_adapter"]
