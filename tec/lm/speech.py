"""Speech to text: Whisper from a Hugging Face folder.

model = tec.lm.transcriber("whisper-tiny")
print(model.transcribe(waveform).text)      # float32 [samples], 16,000 a second

sound -> log-mel features (`audio`) -> encoder, once for each 30 s -> decoder, token by token -> text
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..runtime.arrays.dtypes import numpy_dtype
from ..target import Target, as_target
from .audio import HOP, RATE, log_mel
from .checkpoint import Checkpoint
from .config import Config
from .kept import Form, key_of
from .lookup import Lookup
from .opening import open as open_checkpoint
from .starting import loaded
from .timestamps import Segment, Times

KINDS = ("whisper",)


@dataclass(frozen=True)
class Transcript:
    """What was heard: the text, its tokens without those that end it, the language's token, "<|en|>", where the model tells languages apart, and its parts with their times,
    where they were asked for."""

    text: str
    ids: list[int]
    language: str | None = None
    segments: tuple[Segment, ...] = ()


def transcriber(
    path: str | os.PathLike[str] | Checkpoint,
    *,
    target: str | Target | None = None,
    device: Any = None,
    dtype: str = "float32",
    cache: bool = True,
) -> Transcriber:
    """A model that writes down speech. path: a Hugging Face folder of Whisper's, or an opened checkpoint. Raises ImportModelError, and ArgumentError for another kind of model."""
    checkpoint = path if isinstance(path, Checkpoint) else open_checkpoint(path)
    if checkpoint.architecture not in KINDS:
        raise ArgumentError(
            f"{checkpoint.architecture} hears nothing", hint=f"a model of {', '.join(KINDS)}; tec.lm.load writes texts"
        )
    return Transcriber(checkpoint, as_target(target), device, dtype, cache)


class Transcriber:
    """See `transcriber`. There is one sound at a time."""

    def __init__(self, checkpoint: Checkpoint, target: Target, device: Any, dtype: str, cache: bool):
        self.checkpoint, self.config = checkpoint, Config(checkpoint.config, checkpoint.architecture)
        self._encoder = _executor(checkpoint, Form(target, dtype, features=True), device, cache)
        self._decoder = _executor(checkpoint, Form(target, dtype), device, cache)
        self._lookup, self._kind, self._lock = Lookup(checkpoint.tensors), numpy_dtype(dtype), threading.Lock()
        self._sound: dict[str, Any] = {}
        self._length = 0
        self.bins, self.frames = self.config.size("num_mel_bins"), 2 * self.config.size("max_source_positions")
        self.ends = set(checkpoint.generation.get("eos_token_ids", ()))

    def transcribe(
        self,
        sound: Any,
        *,
        language: str | None = None,
        task: str = "transcribe",
        max_tokens: int | None = None,
        rate: int = RATE,
        timestamps: bool = False,
    ) -> Transcript:
        """The text of a sound, by the likeliest tokens.

        sound: floats [samples], or log-mel features float32 [bins, frames] as WhisperFeatureExtractor makes them. A sound that is longer than the model hears at once
        (30 s) is cut into such pieces. language: its token, "<|en|>", or "en"; by default what the model takes the first piece for. task: "transcribe" or
        "translate". max_tokens: of a piece. rate: samples a second. timestamps: the text comes in segments with
        their times, and what a piece cuts off in the middle of one is heard again with the next piece. Raises ArgumentError.
        """
        with self._lock:
            times, token = self._times() if timestamps else None, self._language(language)
            x, at, ids, segments = self._checked_sound(sound, rate), 0, list[int](), list[Segment]()
            while True:
                features, heard = self._piece(x, at)
                self._hear(features)
                if at == 0 and token is None:
                    token = self._heard_language()
                written = self._write(self._head(token, task, times is not None), max_tokens, times)
                if times is not None:
                    parts, understood = times.segments(written, at / RATE, heard / RATE)
                    segments += [Segment(begin, end, self._text(part), tuple(part)) for begin, end, part in parts]
                    written = [t for part in segments[len(segments) - len(parts) :] for t in part.ids]
                    heard = round(understood * RATE) or heard
                ids += written
                at += heard
                if at >= len(x):
                    break
            named = {v: n for n, v in self._table("lang_to_id").items()}
            spoken = None if token is None else named.get(token)
            return Transcript(self._text(ids), ids, spoken, tuple(segments))

    def logits(self, features: Any, tokens: Sequence[int]) -> Any:
        """Logits float32 [vocabulary] behind tokens for log-mel features float32 [bins, frames]. Raises ArgumentError."""
        with self._lock:
            self._hear(self._checked(features))
            return self._read(tokens)

    # ---- sound

    def _checked_sound(self, sound: Any, rate: int) -> Any:
        """Samples [samples], or features [frames, bins], of which there is one piece."""
        x = np.asarray(sound)
        if x.ndim == 2:
            return self._checked(x)
        if rate != RATE:
            raise ArgumentError(f"{rate} samples a second", hint=f"resample it: the model hears {RATE}")
        return x

    def _piece(self, x: Any, at: int) -> tuple[Any, int]:
        """The features of a piece that begins at a sample, and how many samples it has."""
        size = self.frames * HOP
        if x.ndim == 2:
            return x, size
        part = x[at : at + size] if x.ndim == 1 else x
        return log_mel(part, self.bins, self.frames), len(part)

    def _checked(self, features: Any) -> Any:
        x = np.asarray(features)
        if x.shape != (self.bins, self.frames) or x.dtype.kind != "f":
            raise ArgumentError(
                f"features of shape {x.shape} and type {x.dtype}", hint=f"floats [{self.bins}, {self.frames}]"
            )
        return x.T

    def _hear(self, features: Any) -> None:
        """The encoder's keys and values for features [frames, bins]; the decoder begins a text."""
        made = self._encoder.run({"features": np.ascontiguousarray(features, self._kind)})[0]
        names = [f"sound.{k}.{n}" for k in range(self.config.layers) for n in ("key", "value")]
        self._sound = {name: made[k] for k, name in enumerate(names)}
        self._forget()

    # ---- tokens

    def _forget(self) -> None:
        self._decoder.reset()
        self._length = 0

    def _read(self, tokens: Sequence[int]) -> Any:
        """The text goes on with tokens."""
        rows = {n: r.astype(self._kind, copy=False) for n, r in self._lookup(tokens, self._length).items()}
        self._length += len(tokens)
        return np.array(self._decoder.run({**rows, **self._sound})[0].numpy()[-1])

    def _write(self, head: list[int], most: int | None, times: Times | None) -> list[int]:
        room = self.config.context - len(head)
        most = room if most is None else min(most, room)
        said, first = self.checkpoint.generation, True
        never = [t for t in said.get("suppress_tokens", ()) if 0 <= t < self.config.vocabulary]
        not_first = [t for t in said.get("begin_suppress_tokens", ()) if 0 <= t < self.config.vocabulary]
        ids: list[int] = []
        logits = self._read(head)
        while len(ids) < most:
            logits[never + (not_first if first else [])] = -np.inf
            if times is not None:
                times.rule(logits, ids)
            token, first = int(logits.argmax()), False
            if not np.isfinite(logits[token]):
                raise ArgumentError("the model's logits are no numbers", hint="another dtype")
            if token in self.ends:
                break
            ids.append(token)
            if len(ids) < most:
                logits = self._read([token])
        return ids

    def _table(self, name: str) -> Mapping[str, int]:
        found: Mapping[str, int] = self.checkpoint.generation.get(name, {})
        return found

    @property
    def _start(self) -> int:
        return int(self.checkpoint.generation.get("decoder_start_token_id", 0))

    def _language(self, said: str | None) -> int | None:
        """The token of a language that was asked for. ArgumentError for one that the model does not know."""
        known = self._table("lang_to_id")
        if said is None:
            return None
        found = known.get(said, known.get(f"<|{said}|>"))
        if found is None:
            raise ArgumentError(
                f"the model knows no language {said!r}", hint=", ".join(sorted(known)[:20]) or "it is for English"
            )
        return found

    def _heard_language(self) -> int | None:
        """The likeliest language of the sound; None of a model for one."""
        known = sorted(self._table("lang_to_id").values())
        if not known:
            return None
        logits = self._read([self._start])
        self._forget()
        return known[int(logits[known].argmax())]

    def _text(self, ids: Sequence[int]) -> str:
        """What tokens say, without times."""
        tokenizer, quiet = self.checkpoint.tokenizer, self.checkpoint.generation.get("no_timestamps_token_id")
        own = [t for t in ids if quiet is None or t <= quiet]
        return tokenizer.decode(own) if tokenizer is not None else ""

    def _times(self) -> Times:
        """Tokens that are times. ArgumentError for a model that tells none."""
        said = self.checkpoint.generation
        if said.get("no_timestamps_token_id") is None:
            raise ArgumentError("the model tells no times", hint="transcribe(sound) without timestamps")
        return Times(int(said["no_timestamps_token_id"]) + 1, self.ends, said.get("max_initial_timestamp_index"))

    def _head(self, language: int | None, task: str, timed: bool) -> list[int]:
        """The tokens ahead of a text."""
        tasks = self._table("task_to_id")
        if task not in tasks and (task != "transcribe" or language is not None):
            raise ArgumentError(f"the model knows no task {task!r}", hint=", ".join(tasks) or "transcribe")
        head = [self._start]
        if language is not None:
            head += [language, tasks[task]]
        quiet = self.checkpoint.generation.get("no_timestamps_token_id")
        return head if quiet is None or timed else [*head, int(quiet)]


def _executor(checkpoint: Checkpoint, form: Form, device: Any, cache: bool) -> Any:
    key = key_of(checkpoint, form) if cache else None
    made, weights = loaded(checkpoint, form, key)
    return made.network(weights).executor(device)
