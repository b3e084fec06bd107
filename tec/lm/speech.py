"""Speech to text: Whisper from a Hugging Face folder.

model = tec.lm.transcriber("whisper-tiny")
print(model.transcribe(waveform).text)      # float32 [samples], 16,000 a second

sound -> log-mel features (`audio`) -> encoder, once for each 30 s -> decoder, token by token -> text
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..runtime.arrays.dtypes import numpy_dtype
from ..runtime.networks.network import Network
from ..target import Target
from .asked import target_of
from .audio import HOP, RATE, log_mel
from .beams import BeamSearch
from .checkpoint import Checkpoint
from .config import Config
from .kept import Form, key_of
from .lookup import Lookup
from .opening import open as open_checkpoint
from .starting import loaded
from .timestamps import STEP, Segment, Times
from .voices import Voices
from .words import Word, places_of, words_of

KINDS = ("whisper",)
MOST_BEAMS = 64  # each has caches of its own


@dataclass(frozen=True)
class Search:
    """How a text is looked for. beams: texts side by side; 1: the likeliest token each time."""

    beams: int
    length_penalty: float

    def __post_init__(self) -> None:
        if isinstance(self.beams, bool) or not isinstance(self.beams, int) or not 1 <= self.beams <= MOST_BEAMS:
            raise ArgumentError(f"beams is {self.beams!r}", hint=f"a number of texts from 1 to {MOST_BEAMS}")


@dataclass(frozen=True)
class Transcript:
    """What was heard: the text, its tokens without those that end it, the language's token, "<|en|>", where the model tells languages apart, and its parts and words with their
    times, where they were asked for."""

    text: str
    ids: list[int]
    language: str | None = None
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()


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
    return Transcriber(checkpoint, target_of(target, device), device, dtype, cache)


class Transcriber:
    """See `transcriber`. There is one sound at a time."""

    def __init__(self, checkpoint: Checkpoint, target: Target, device: Any, dtype: str, cache: bool):
        self.checkpoint, self.config = checkpoint, Config(checkpoint.config, checkpoint.architecture)
        self._encoder = _network(checkpoint, Form(target, dtype, features=True), cache).executor(device)
        self._decoder_network = _network(checkpoint, Form(target, dtype), cache)
        self._decoder = self._decoder_network.executor(device)
        self._how = Form(target, dtype, all_logits=True), device, cache
        self._voices = Voices(self._another, self._read_by)
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
        words: bool = False,
        beams: int = 1,
        length_penalty: float = 1.0,
    ) -> Transcript:
        """The text of a sound, by the likeliest tokens.

        sound: floats [samples], or log-mel features float32 [bins, frames] as WhisperFeatureExtractor makes them. A sound that is longer than the model hears at once
        (30 s) is cut into such pieces. language: its token, "<|en|>", or "en"; by default what the model takes the first piece for. task: "transcribe" or
        "translate". max_tokens: of a piece. rate: samples a second. timestamps: the text comes in segments with
        their times, and what a piece cuts off in the middle of one is heard again with the next piece. words: when each
        word was said. beams: texts that a beam search has side by side for each piece, of which the likeliest is kept;
        length_penalty: as of `LanguageModel.beams`. Raises ArgumentError.
        """
        with self._lock:
            times, token = self._times() if timestamps else None, self._language(language)
            x, at, ids, segments = self._checked_sound(sound, rate), 0, list[int](), list[Segment]()
            said, named = list[Word](), {v: n for n, v in self._table("lang_to_id").items()}
            search = Search(beams, length_penalty)
            while True:
                features, heard = self._piece(x, at)
                self._hear(features)
                if at == 0 and token is None:
                    token = self._heard_language()
                head = self._head(token, task, times is not None)
                written = self._write(head, max_tokens, times, search)
                if times is not None:
                    parts, understood = times.segments(written, at / RATE, heard / RATE)
                    segments += [Segment(begin, end, self._text(part), tuple(part)) for begin, end, part in parts]
                    written = [t for part in segments[len(segments) - len(parts) :] for t in part.ids]
                    heard = round(understood * RATE) or heard
                if words:
                    said += self._words(head, written, at / RATE, heard / RATE, named.get(token, "") if token else "")
                ids += written
                at += heard
                if at >= len(x):
                    break
            spoken = None if token is None else named.get(token)
            return Transcript(self._text(ids), ids, spoken, tuple(segments), tuple(said))

    def token_times(
        self, features: Any, head: Sequence[int], ids: Sequence[int], seconds: float | None = None
    ) -> list[float]:
        """When each of some tokens is said, in seconds: tokens behind those of the head (the start, a language, a task) for log-mel features float32 [bins, frames], of which the
        first `seconds` are sound. Raises ArgumentError."""
        with self._lock:
            self._hear(self._checked(features))
            return self._times_of(head, ids, seconds)

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
        self._length += len(tokens)
        return self._read_by(self._decoder, tokens, self._length - len(tokens))

    def _read_by(self, executor: Any, tokens: Sequence[int], first: int) -> Any:
        """Logits [vocabulary] behind tokens from a place on, by an executor."""
        return np.array(self._run(executor, tokens, first)[-1])

    def _run(self, executor: Any, tokens: Sequence[int], first: int) -> Any:
        rows = {n: r.astype(self._kind, copy=False) for n, r in self._lookup(tokens, first).items()}
        wanted = executor.network.plan.inputs
        return executor.run({**rows, **{n: x for n, x in self._sound.items() if n in wanted}})[0].numpy()

    def _another(self) -> Any:
        """An executor of the decoder for a text of its own."""
        return self._decoder_network.executor(self._decoder.device)

    # ---- words

    @cached_property
    def _aligner(self) -> Any:
        """How the decoder attends to the sound."""
        said = self.checkpoint.generation.get("alignment_heads")
        named = replace(self.checkpoint, config={**self.checkpoint.config, "alignment_heads": said})
        return _network(named, self._how[0], self._how[2]).executor(self._how[1])

    def _times_of(self, head: Sequence[int], ids: Sequence[int], seconds: float | None) -> list[float]:
        if not ids:
            return []
        self._aligner.reset()
        weights = self._run(self._aligner, [*head, *ids], 0)[:, len(head) :]
        if seconds is not None:
            weights = weights[:, :, : max(1, round(seconds / STEP))]
        found: list[float] = (places_of(weights, self.config.size("median_filter_width", 7)) * STEP).tolist()
        return found

    def _words(
        self, head: Sequence[int], written: Sequence[int], start: float, seconds: float, language: str
    ) -> list[Word]:
        """The words of a piece that begins at `start`. Times among the tokens are no words."""
        tokenizer = self.checkpoint.tokenizer
        if tokenizer is None:
            raise ArgumentError(
                "the model's files have no tokenizer", hint="token_times(features, head, ids) needs none"
            )
        times = self._times_of(head, written, seconds)
        own = [k for k, t in enumerate(written) if self._is_text(t)]
        begins = [start + times[k] for k in own]
        return words_of(tokenizer, [written[k] for k in own], begins, start + seconds, language.strip("<|>"))

    # ---- texts

    def _write(self, head: list[int], most: int | None, times: Times | None, search: Search) -> list[int]:
        room = self.config.context - len(head)
        most = room if most is None else min(most, room)
        said = self.checkpoint.generation
        never = [t for t in said.get("suppress_tokens", ()) if 0 <= t < self.config.vocabulary]
        not_first = [t for t in said.get("begin_suppress_tokens", ()) if 0 <= t < self.config.vocabulary]

        def rule(logits: Any, ids: Sequence[int]) -> None:
            logits[never + ([] if ids else not_first)] = -np.inf
            if times is not None:
                times.rule(logits, ids)

        if search.beams == 1:
            return self._likeliest(head, most, rule)
        found = BeamSearch(self._voices, self._voices.step, search.beams, self.ends, search.length_penalty, rule)
        try:
            found.run(head, most)
        finally:
            self._voices.let_all_go()
        _, _, ids, reason = found.found[0]
        return ids[:-1] if reason == "end" else ids

    def _likeliest(self, head: list[int], most: int, rule: Callable[[Any, Sequence[int]], None]) -> list[int]:
        ids: list[int] = []
        logits = self._read(head)
        while len(ids) < most:
            rule(logits, ids)
            token = int(logits.argmax())
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
        tokenizer = self.checkpoint.tokenizer
        return tokenizer.decode([t for t in ids if self._is_text(t)]) if tokenizer is not None else ""

    def _is_text(self, token: int) -> bool:
        """Whether a token is no time."""
        quiet = self.checkpoint.generation.get("no_timestamps_token_id")
        return quiet is None or token <= quiet

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


def _network(checkpoint: Checkpoint, form: Form, cache: bool) -> Network:
    made, weights = loaded(checkpoint, form, key_of(checkpoint, form) if cache else None)
    return made.network(weights)
