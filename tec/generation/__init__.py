"""Text from models that write: decoders, and encoders with decoders, as ONNX files of the usual exporters.

    for piece in tec.generate("folder", "Once upon a time", max_tokens=50):
        print(piece, end="", flush=True)

`Generator` keeps the compiled networks for several prompts.

    paths -> files (which is the encoder, which the decoder) -> models (networks, caches) -> sampling (a token) -> text
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .files import find
from .models import Decoder, Options
from .sampling import Sampling
from .text import ENDS, PADS, Stream, Tokenizer, tokenizer_of

__all__ = ["Generation", "Generator", "Sampling", "generate"]


class Generation:
    """A text while it is written: an iterator over its pieces. `ids`: its tokens so far; `reason`: why it ended ("end", "length", "stop"), None before;
    `prompt_tokens`, `prompt_seconds`, `seconds` (of the tokens behind the first), `tokens_per_second`."""

    def __init__(self, generator: Generator, prompt: str, max_tokens: int, sampling: Sampling, stop: Sequence[str]):
        if max_tokens < 1:
            raise ArgumentError(f"max_tokens is {max_tokens}", hint="1 at least")
        self._generator, self._picker = generator, sampling.picker()
        self._prompt = generator.tokenizer.encode(prompt)
        self._most, self._stop = max_tokens, [s for s in stop if s]
        self.ids: list[int] = []
        self.text = ""
        self.reason: str | None = None
        self.prompt_tokens = len(self._prompt)
        self.prompt_seconds = self.seconds = 0.0
        self._pieces = self._write()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def tokens_per_second(self) -> float:
        """Of the tokens behind the first."""
        return (len(self.ids) - 1) / self.seconds if len(self.ids) > 1 and self.seconds else 0.0

    def _write(self) -> Iterator[str]:
        decoder, stream = self._generator.decoder, Stream(self._generator.tokenizer)
        start = time.perf_counter()
        logits = decoder.begin(self._prompt)
        self.prompt_seconds = time.perf_counter() - start
        while True:
            token = self._picker.pick(logits)
            if token in self._generator.ends:
                self.reason = "end"
                break
            self.ids.append(token)
            piece = self._shown(stream.add(token))
            if piece:
                yield piece
            if self.reason is not None or len(self.ids) == self._most:
                self.reason = self.reason or "length"
                break
            start = time.perf_counter()
            logits = decoder.next(token)
            self.seconds += time.perf_counter() - start
        if self.reason != "stop" and (piece := self._shown(stream.rest())):
            yield piece

    def _shown(self, piece: str) -> str:
        """A piece up to where the text is to stop."""
        before, self.text = len(self.text), self.text + piece
        ends = [k for s in self._stop if (k := self.text.find(s)) >= 0]
        if ends:
            self.text, self.reason = self.text[: min(ends)], "stop"
        return self.text[before:]


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
        stop: Sequence[str] = (),
    ) -> Generation:  # fmt: skip
        """What the model writes behind (or in answer to) a prompt, as it is written: `max_tokens` at the most, up to a text in `stop`. See `Sampling`. One
        text at a time: a new one ends the one before."""
        return Generation(self, prompt, max_tokens, Sampling(temperature, top_k, top_p, seed), stop)


def generate(
    model: str | Path | Sequence[str | Path], prompt: str, *, max_tokens: int = 128, temperature: float = 0.0, top_k: int = 0,
    top_p: float = 1.0, seed: int = 0, stop: Sequence[str] = (), **options: Any,
) -> Generation:  # fmt: skip
    """`Generator(model, **options).generate(prompt, ...)`: an iterator over pieces of text."""
    return Generator(model, **options).generate(
        prompt, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop
    )
