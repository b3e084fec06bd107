"""Decoders, and encoders with decoders, as ONNX files of the usual exporters: text from their networks by the runtime of `tec.lm`.

`Generator` keeps the compiled networks for several prompts.

    paths -> files (which is the encoder, which the decoder) -> models (networks, caches) -> tec.lm.generation
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..generation import Generation
from ..sampling import Sampling
from .files import find
from .models import Decoder, Options
from .text import ENDS, PADS, Tokenizer, tokenizer_of

__all__ = ["Generator", "generate"]


class Generator:
    """A model that writes, compiled.

    model: a folder (onnxruntime-genai's or optimum's), or .onnx files. tokenizer: a tokenizer.json, a folder with one, or "bytes"; that beside the model by
    default. cached: keep keys and values from token to token (False: all tokens are read anew each time). end, start: tokens
    that end a text, and that an answer behind an encoder begins with, where the model's settings do not say. target, device, dtype, cache, progress: as for
    `tec.compile` and executors. Raises ArgumentError, ImportModelError.
    """

    def __init__(
        self, model: str | Path | Sequence[str | Path], *, tokenizer: str | Path | None = None, target: Any = None, device: Any = None,
        dtype: str | None = None, cached: bool = True, cache: bool = True, progress: Any = None, end: Sequence[int] | None = None,
        start: int | None = None,
    ):  # fmt: skip
        paths = [model] if isinstance(model, (str, Path)) else list(model)
        files = find(paths, cached)
        self.tokenizer: Tokenizer = tokenizer_of(tokenizer, files.folders)
        if start is not None or files.start is None:
            files.start = start if start is not None else self.tokenizer.id_of(PADS)  # T5 begins so
        found = self.tokenizer.id_of(ENDS)
        self.ends: set[int] = set(end) if end is not None else files.ends or ({found} if found is not None else set())
        self.decoder = Decoder(files, Options(target, device, dtype, cache, progress), cached)

    def generate(
        self, prompt: str, *, max_tokens: int = 128, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0,
        stop: Sequence[str] = (), **sampling: Any,
    ) -> Generation:  # fmt: skip
        """What the model writes behind (or in answer to) a prompt, as it is written: `max_tokens` at the most, up to a text in `stop`. See `Sampling`. One
        text at a time: a new one ends the one before."""
        settings = Sampling(temperature, top_k, top_p, seed, **sampling)
        return Generation(
            self.decoder, self.tokenizer, self.tokenizer.encode(prompt), max_tokens, settings, stop, self.ends
        )
