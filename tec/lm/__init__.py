"""Language models: their files, their tokenizers, and what runs them.

checkpoint = tec.lm.open("model.gguf")      # or a folder as Hugging Face has it
lm = tec.lm.load("model.gguf")              # compiled, on a device
for piece in lm.generate("Once upon a time", max_tokens=50):
    print(piece, end="", flush=True)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .checkpoint import Checkpoint, PackedTensor, Tokenizer
from .elsewhere import FUNCTIONS, hint
from .formats import Format
from .opening import open, open_adapter

_LAZY = {  # what compiles is imported when it is asked for
    "load": "model", "embedder": "embedding", "Embedder": "embedding", "reranker": "reranking", "Reranker": "reranking", "transcriber": "speech", "Transcriber": "speech", "LanguageModel": "model", "Generation": "generation", "Sampling": "sampling", "Beam": "beams", "Sample": "samples", "Generator": "exported", "generate": "writing",
}  # fmt: skip

if TYPE_CHECKING:  # what type checkers see of those
    from .beams import Beam as Beam
    from .embedding import Embedder as Embedder
    from .embedding import embedder as embedder
    from .exported import Generator as Generator
    from .generation import Generation as Generation
    from .model import LanguageModel as LanguageModel
    from .model import load as load
    from .reranking import Reranker as Reranker
    from .reranking import reranker as reranker
    from .samples import Sample as Sample
    from .sampling import Sampling as Sampling
    from .speech import Transcriber as Transcriber
    from .speech import transcriber as transcriber
    from .writing import generate as generate

__all__ = ["Checkpoint", "Format", "PackedTensor", "Tokenizer", "open", "open_adapter", *_LAZY]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        said = "" if name.startswith("_") else hint(name, FUNCTIONS, __all__)
        raise AttributeError(f"module 'tec.lm' has no attribute {name!r}" + (f": {said}" if said else ""))
    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
