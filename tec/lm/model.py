"""A language model on a device: `load` compiles its checkpoint, or finds the code, and gives the weights a place; `generate` writes.

checkpoint -> compiled (code, recipes) -> weights -> executor (caches that grow in place) -> generation (tokens, text)
"""

from __future__ import annotations

import os
import reprlib
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..runtime.arrays.dtypes import numpy_dtype
from ..target import Target
from . import architectures
from .asked import SETTINGS_OF_GENERATE, common, context_of, ends_of, is_chat, settings_of, target_of, usual_dtype
from .caching import type_of
from .checkpoint import Checkpoint, Tokenizer
from .config import Config
from .elsewhere import METHODS, hint
from .embedding import ENCODERS
from .forms.form import Forms
from .generation import Generation
from .kept import Form
from .lookup import Lookup
from .memory import available_bytes
from .networks import MADE, make
from .opening import open as open_checkpoint
from .rope import boundary
from .sampling import Sampling
from .speculative import Speculative, Verifier, guesser_of
from .text.guard import Guard
from .text.template import ChatTemplate, template_of

if TYPE_CHECKING:
    from ..runtime.networks.executor import Executor
    from ..runtime.networks.network import Network
    from .beams import Beam
    from .joint import PagedModel
    from .recipes import Recipe
    from .samples import Sample

_PIECE = 512  # tokens of a prompt that are read at once: more fill no unit better, and their activations take memory
SPEECH = ("whisper",)  # of models for sound: `speech`, which is imported by who asks for it
_DTYPES = ("float32", "float16", "bfloat16")

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


def load(
    path: str | os.PathLike[str] | Checkpoint, *, target: str | Target | None = None, device: Any = None, dtype: str | None = None,
    context: int | None = None, cache: bool = True, cache_type: str | None = None, progress: Any = None,
) -> LanguageModel:  # fmt: skip
    """A language model, compiled and ready to generate.

    path: a GGUF file, a Hugging Face folder, or an opened checkpoint. target, device: as of `tec.compile` and
    executors. dtype: of activations and caches; by default float32 on CPUs, and the 16-bit float of the checkpoint on
    GPUs. context: the most tokens of a text; by default what the model was trained for. cache: keep compiled code on
    the disk. cache_type: of the caches of keys and values: "int8" or "fp8" with a scale of each head and token,
    "float16", "bfloat16" or "float32"; by default `dtype`. progress: a function that is told what is being done.
    Returns a LanguageModel. Raises ImportModelError for files that cannot be read, and ArgumentError if the memory is
    too small.
    """
    checkpoint = path if isinstance(path, Checkpoint) else open_checkpoint(path)
    return LanguageModel(
        checkpoint, target=target, device=device, dtype=dtype, context=context, cache=cache, cache_type=cache_type, progress=progress
    )  # fmt: skip


class LanguageModel:
    """A language model on a device, made by `load`. `report` says what loading took, and which formats became floats. later: compiled when its own networks are
    first needed."""

    network: Network
    executor: Executor
    report: dict[str, Any]
    _weights: Mapping[str, Any]
    _recipes: list[Recipe]
    _whole: Executor
    _step: Executor | None

    def __init__(
        self, checkpoint: Checkpoint, *, target: str | Target | None = None, device: Any = None, dtype: str | None = None,
        context: int | None = None, cache: bool = True, cache_type: str | None = None, progress: Any = None, later: bool = False,
    ):  # fmt: skip
        start = time.perf_counter()
        if checkpoint.architecture in ENCODERS:
            raise ArgumentError(
                f"{checkpoint.architecture} writes no texts", hint="tec.lm.embedder makes vectors with it"
            )
        if checkpoint.architecture in SPEECH:
            raise ArgumentError(f"{checkpoint.architecture} writes what it hears", hint="tec.lm.transcriber loads it")
        architectures.place(checkpoint.architecture)
        self.checkpoint = checkpoint
        self.config = Config(checkpoint.config, checkpoint.architecture)
        self.target = target_of(target, device)
        self.dtype = dtype or usual_dtype(self.config, self.target)
        if self.dtype not in _DTYPES:
            raise ArgumentError(f"dtype is {dtype!r}", hint=", ".join(_DTYPES))
        self.cache_type = type_of(cache_type, self.dtype)  # of keys and values
        self.context = context_of(context, self.config)
        self._check_memory()
        self.device, self.progress, self.cached = device, progress, cache
        self._verifier: Verifier | None = None
        self._kind, self._boundary = numpy_dtype(self.dtype), boundary(self.config)
        self._lookup = Lookup(checkpoint.tensors, kind=self._kind)
        self.ids: list[int] = []  # what the caches hold
        self.length = self.begun = 0  # tokens of the text that they were made for; texts that were begun
        self.ends = ends_of(checkpoint)
        self._template: ChatTemplate | None = None
        self.turn = threading.RLock()  # held while the text goes on by a token
        self.branching = threading.Lock()  # held by beams and samples
        self._making = threading.Lock()  # held while networks are made: some may ask for them at once
        self._choosers: dict[int, Any] = {}  # by how many tokens they draw from
        self._writer: Generator[int, None, None] | None = None
        self.paged: PagedModel | None = None  # for several texts at once, made by who has them
        if not later:
            make(self, start)

    def form(self, **more: Any) -> Form:
        """What the code of a network of its own is compiled for. more: fields of `Form`."""
        return Form(self.target, self.dtype, cache=self.cache_type, forgets=True, **more)

    def hold(self, one: bool) -> None:
        """What runs next is one token, or some: the executor for it goes on from the caches."""
        wanted = self._step if one and self._step is not None else self._whole
        if wanted is not self.executor:
            wanted.go_on_from(self.executor)
            self.executor = wanted
            if self.has_rows_alone:
                wanted.truncate(len(self.ids))
        if self.is_placed:
            self.make_room()
            self._whole.go_on_from(self.executor)  # memory that was outgrown is nobody's

    @property
    def has_rows_alone(self) -> bool:
        """Whether all that is kept between tokens are rows of keys and values."""
        return all(s.axis is not None for s in self.network.plan.states)

    @property
    def is_placed(self) -> bool:
        """Whether the device is told where the next token stands."""
        return self.executor is self._step and self.has_rows_alone

    def make_room(self) -> int:
        """Caches with room for the next token, of an executor that is told its row: they count as full but for a row. The tokens that they have room for."""
        self.executor.truncate(len(self.ids))
        return self.executor.reserve(len(self.ids) + 1, free=1)

    @property
    def is_made(self) -> bool:
        """Whether it has networks of its own."""
        return "_step" in self.__dict__

    def __getattr__(self, name: str) -> Any:
        if name in MADE and "_making" in self.__dict__:
            with self._making:
                if not self.is_made:
                    make(self, time.perf_counter())
            return getattr(self, name)
        said = "" if name.startswith("_") else hint(name, METHODS, [n for n in dir(type(self)) if n[0] != "_"])
        raise AttributeError(f"a LanguageModel has no {name!r}" + (f": {said}" if said else ""), name=name, obj=self)

    def __repr__(self) -> str:
        nbytes = self.report["weight_bytes"] if self.is_made else self.checkpoint.nbytes
        return f"<tec.lm.LanguageModel {self.checkpoint.architecture} of {nbytes / 1e6:.0f} MB, {self.target}>"

    @property
    def memory_bytes(self) -> int:
        """Bytes of weights, caches and working memory."""
        return int(self.report["weight_bytes"]) + self.executor.nbytes

    def _check_memory(self) -> None:
        """ArgumentError where the weights alone are more than the memory has."""
        needed, there = self.checkpoint.nbytes, available_bytes()
        if there is not None and not self.target.is_gpu and needed > there:
            raise ArgumentError(
                f"the weights take {needed / 1e9:.1f} GB, and {there / 1e9:.1f} GB of memory are free",
                hint="a smaller model, or the same in fewer bits",
            )

    # ---- text

    def generate(
        self, prompt: Prompt, *, max_tokens: int | None = None, temperature: float | None = None, top_k: int | None = None,
        top_p: float | None = None, min_p: float = 0.0, seed: int = 0, stop: str | Sequence[str] = (), logprobs: int = 0, ngrams: bool = False,
        draft: LanguageModel | None = None, schema: Mapping[str, Any] | bool | None = None, **penalties: Any,
    ) -> Generation:  # fmt: skip
        """Generates text behind a prompt. Returns an iterator over pieces of text (`Generation`).

        prompt: a text, tokens, or messages ({"role": "user", "content": ...}), from which the model's chat template
        makes a text. Without a tokenizer in the model's files it is tokens, and `ids` of what is returned are the answer. max_tokens: by default as many as the context has room for. temperature, top_k, top_p, min_p:
        see `Sampling`; for messages the defaults are those of the model's files, and otherwise the most likely token.
        seed: equal seeds draw equal texts. stop: texts that end the generation. logprobs: how many of the most likely
        tokens are kept for each step. ngrams, draft: guess the next tokens from the text, or by a smaller model of the
        same vocabulary, and check them in one run (`speculative`); the text is the same. schema: a JSON schema; the text
        is JSON of it, unless `max_tokens` cuts it off (True: any JSON). There is one text at a time: a new one ends the one before, and their common
        beginning is not processed again. Raises ArgumentError for a prompt that does not fit the context.
        """
        ids, most, settings = self._asked(
            prompt, max_tokens, temperature, top_k, top_p, min_p, seed, SETTINGS_OF_GENERATE, penalties
        )
        guesser = guesser_of(self, ngrams, draft)
        decoder = self if guesser is None else Speculative(self, guesser)
        form = None if schema is None or schema is False else self._forms.of(schema)(self.ends)
        return Generation(decoder, self.checkpoint.tokenizer, ids, most, settings, stop, self.ends, logprobs, form)

    def beams(
        self, prompt: Prompt, count: int = 4, *, max_tokens: int = 128, length_penalty: float = 1.0
    ) -> list[Beam]:
        """The likeliest texts behind a prompt that a beam search finds, the best first.

        prompt: as of `generate`. count: texts that go on side by side, and the most that are returned. max_tokens: of
        each text. length_penalty: a text's score is the logarithm of its probability divided by its number of tokens to
        this power; 0 favours short texts, and values above 1 long ones. Returns a list of `Beam`. The text that
        `generate` has under way is left as it is. Raises ArgumentError for a model whose states are not rows of keys and
        values, and for a prompt that does not fit the context.
        """
        from .beams import search

        return search(self, prompt, count, max_tokens, length_penalty)

    def samples(
        self, prompt: Prompt, count: int = 4, *, max_tokens: int | None = None, temperature: float | None = None, top_k: int | None = None,
        top_p: float | None = None, min_p: float = 0.0, seed: int = 0, stop: str | Sequence[str] = (), schema: Mapping[str, Any] | bool | None = None,
        **penalties: Any,
    ) -> list[Sample]:  # fmt: skip
        """Several texts behind one prompt, drawn side by side: one run gives each its next token, and the prompt is read once.

        prompt, and the settings: as of `generate`. count: of texts. seed: text k draws as `generate` does with the seed `seed` + k, up to ties. Returns a list
        of `Sample`. The text that `generate` has under way is left as it is. Raises ArgumentError for a model whose states are not rows of keys and values, and for a
        prompt that does not fit the context.
        """
        from .samples import draw

        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            raise ArgumentError(f"count is {count!r}", hint="a number of texts, 1 at least")
        known = tuple(s for s in SETTINGS_OF_GENERATE if s not in ("logprobs", "ngrams", "draft"))
        ids, most, settings = self._asked(prompt, max_tokens, temperature, top_k, top_p, min_p, seed, known, penalties)
        form = None if schema is None or schema is False else self._forms.of(schema)
        return draw(self, ids, int(count), most, settings, stop, form)

    def _asked(
        self, prompt: Prompt, max_tokens: int | None, temperature: float | None, top_k: int | None, top_p: float | None, min_p: float, seed: int,
        known: Sequence[str], penalties: Mapping[str, Any],
    ) -> tuple[list[int], int, Sampling]:  # fmt: skip
        """A prompt's tokens, how many may be written, and how they are chosen."""
        ids = self.encode(prompt)
        usual = self.checkpoint.generation if is_chat(prompt) else {}
        settings = settings_of(usual, self.config.vocabulary, temperature, top_k, top_p, min_p, seed, known, penalties)
        self.check_room(len(ids))
        return ids, self.context - len(ids) + 1 if max_tokens is None else max_tokens, settings

    def save_state(self, path: str | os.PathLike[str], messages: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write the tokens of the present text and its caches into a file, for `load_state`.

        path: a file of safetensors is written there. messages: of a conversation, kept with them. Raises ArgumentError
        before the first text, and where the file cannot be written.
        """
        from .saved import written

        with self.turn:
            self._end_writer()
            if not self.ids:
                raise ArgumentError("there is no text yet", hint="generate one, and read it to its end")
            if self.has_rows_alone:
                self.executor.truncate(len(self.ids))  # rows behind them are room
            written(self, path, messages)

    def load_state(self, path: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """Take up the text of a file that `save_state` wrote: a prompt that begins as that text does is read from where
        the two part. Returns the messages that were kept with it. Raises ArgumentError for a state of another model, dtype or
        longer context, and ImportModelError for a damaged file; then the text is the one before.
        """
        from .saved import taken_up

        with self.turn:
            self._end_writer()
            ids, length, states, messages = taken_up(self, path)
            self._whole.begin_with(states, len(ids))
            self.executor = self._whole
            self.ids, self.length = ids, length
            self.begun += 1
        return messages

    @cached_property
    def fingerprint(self) -> Any:
        """What tells this model from others in saved states, uint8 [32]."""
        from .saved import fingerprint_of

        return fingerprint_of(self.checkpoint)

    @cached_property
    def _forms(self) -> Forms:
        return Forms(self.tokenizer)

    def encode(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt. Raises ArgumentError if there are none."""
        found: list[int]
        given: Any = prompt
        if isinstance(prompt, (bytes, bytearray)):
            raise ArgumentError("the prompt is bytes", hint="a text: prompt.decode()")
        if isinstance(prompt, str):
            found = self.tokenizer.encode(prompt)
        elif is_chat(prompt):
            guard = Guard(getattr(self.tokenizer, "special_texts", ()))  # what stands in a message ends no message
            found = self.tokenizer.encode(self.conversation(guard.all(list(given))), add_special=False)
        else:
            listed: list[Any] = list(given) if isinstance(given, Iterable) else [None]
            if not all(isinstance(t, Integral) for t in listed):
                raise ArgumentError(
                    f"the prompt is {reprlib.repr(given)}", hint="a text, a list of tokens, or messages with roles"
                )
            found = [int(t) for t in listed]
        wrong = next((t for t in found if not 0 <= t < self.config.vocabulary), None)
        if wrong is not None:
            raise ArgumentError(
                f"token {wrong} is none of the model's {self.config.vocabulary}",
                hint=f"tokens from 0 to {self.config.vocabulary - 1}; if a text gave it, the tokenizer is another model's",
            )
        if not found:
            raise ArgumentError("the prompt has no tokens", hint="a text that is not empty, tokens, or messages")
        return found

    @property
    def template(self) -> ChatTemplate | None:
        """The chat template of the model's files, or one that fits their tokens; None where there is neither."""
        if self._template is None:
            self._template = template_of(self.checkpoint)
        return self._template

    def conversation(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text that the model's chat template makes from messages, up to the beginning of the answer. Raises
        ArgumentError without a template.
        """
        if self.template is None:
            raise ArgumentError(
                "the model's files have no chat template",
                hint="give the prompt as a text: generate(text), or `tec generate`",
            )
        for m in messages:
            if not isinstance(m.get("role"), str) or not ("content" in m or "tool_calls" in m):
                raise ArgumentError(f"a message is {reprlib.repr(m)}", hint="{'role': 'user', 'content': 'Hello'}")
        return self.template.render(messages)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model's files. Raises ArgumentError where they have none."""
        if self.checkpoint.tokenizer is None:
            raise ArgumentError("the model's files have no tokenizer", hint="give tokens in place of a text")
        return self.checkpoint.tokenizer

    # ---- tokens

    def begin(self, prompt: Sequence[int]) -> Any:
        """Begin a new text. Returns the logits [vocabulary] of the next token. The caches keep what the text has in
        common with the one before.
        """
        with self.turn:
            self._end_writer()
            self.begun += 1
            self.check_room(len(prompt))
            same = common(self.ids, prompt[:-1])
            if same < len(self.ids):
                same = self._cut(same)
            return self._read(list(prompt[same:]))

    def next(self, *tokens: int) -> Any:
        """Continue the text with these tokens. Returns the logits [vocabulary] of the next token."""
        with self.turn:
            self._end_writer()
            self.check_room(len(self.ids) + len(tokens))
            return self._read(list(tokens))

    def checked(self, ids: Sequence[int], guesses: Sequence[int]) -> Any:
        """The logits [1 + guesses, vocabulary] behind a text and behind each guess that follows it. The caches hold all of them then. Raises ArgumentError for a
        model that cannot take tokens back."""
        with self.turn:
            self._end_writer()
            verifier = self.verifier()
            self.check_room(len(ids) + len(guesses))
            same = common(self.ids, ids[:-1])
            if same < len(self.ids):
                same = self._cut(same)
            return verifier.logits(self, [*ids[same:], *guesses])[len(ids) - same - 1 :]

    def verifier(self) -> Verifier:
        """What gives the logits of all tokens of a run. Raises ArgumentError for a model that cannot take tokens back."""
        if not self.has_rows_alone or self._boundary is not None or self._takes_length:
            raise ArgumentError(
                f"{self.checkpoint.architecture} cannot take back tokens that were guessed wrong",
                hint="without ngrams and draft",
            )
        if self._verifier is None:
            self._verifier = Verifier(self, self._weights, self._recipes, self.cached)
        return self._verifier

    def ahead(self, token: int, sampling: Sampling, rng: Any, most: int) -> Generator[int, None, None] | None:
        """The tokens behind `token`, `most` of them, chosen by the device, which does not wait for the host between them; None where the host has to choose: on
        a CPU, for penalties and biases, for more tokens to draw from than 256, and for models with more inputs than the tokens' rows.
        """
        plain = (
            self._boundary is None and self._lookup.is_plain and next(iter(self.network.plan.inputs)) == "embeddings"
        )
        placed = self._step is not None and self.has_rows_alone
        if not (placed and plain and not self._takes_length and most > 0):
            return None
        from .ahead import Chooser, serves, write

        if not serves(sampling, self.config.vocabulary):
            return None
        count = 1 if sampling.temperature == 0 else sampling.top_k
        if count not in self._choosers:
            self._choosers[count] = Chooser(self, count)
        self._end_writer()
        self.hold(True)
        self._writer = write(self, self._choosers[count], token, sampling, rng, most)
        return self._writer

    def table(self) -> Any:
        """The embedding table as numbers of the activations' type, [vocabulary, hidden]."""
        return self._lookup.tables["embeddings"].dequantize().astype(self._kind)

    def _end_writer(self) -> None:
        """What a text that was not read to its end has queued is forgotten."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @property
    def room(self) -> int:
        """The number of tokens that the text may still get."""
        return self.context - len(self.ids)

    def check_room(self, count: int) -> None:
        """ArgumentError where so many tokens are more than the context."""
        if count > self.context:
            raise ArgumentError(
                f"{count} tokens, and the context has {self.context}",
                hint=f"a shorter prompt, or context= when it is loaded (the model was made for {self.config.context})",
            )

    def _cut(self, rows: int) -> int:
        """Forget all but the first tokens; all, of states that have no rows, and where a window has let go what the next token sees. The tokens that are left."""
        if rows and self.has_rows_alone and rows >= self.executor.least:
            self.executor.truncate(rows)
        else:
            self.executor.reset()
            rows = 0
        self.ids = self.ids[:rows]
        return rows

    def _read(self, tokens: list[int]) -> Any:
        logits = None
        if self.ids and self.is_stale(self.length, len(self.ids) + len(tokens)):
            tokens = self.ids + tokens
            self._cut(0)
        self.length = len(self.ids) + len(tokens)
        for first in range(0, len(tokens), _PIECE):
            piece = tokens[first : first + _PIECE]
            self.hold(len(piece) == 1)
            logits = self.executor.run(self.inputs(piece, len(self.ids), self.executor, self.length))[0]
            self.ids += piece
            if self.is_placed:
                self.executor.truncate(len(self.ids))
        assert logits is not None
        return logits.numpy()[-1]

    @property
    def _takes_length(self) -> bool:
        return "text_length" in self.network.plan.inputs

    def is_stale(self, before: int, after: int) -> bool:
        """Whether a text of `after` tokens cannot go on with caches made for one of `before`: its places turn by other frequencies."""
        return self._boundary is not None and (before > self._boundary) != (after > self._boundary)

    def inputs(self, tokens: Sequence[int], first: int, to: Executor, length: int = 0) -> dict[str, Any]:
        """What the network of an executor takes for some tokens, the first of which is token `first` of the text: rows of tables, unpacked from the mapped file. length: tokens of
        the text, where it goes on behind these."""
        made = self._lookup(tokens, first)
        if self._takes_length:
            made["text_length"] = np.full((1, 1), max(length, first + len(tokens)), np.float32)
        rows = {"row": first, "near_row": first - to.dropped.get("near", 0)}
        return made | {n: np.array([at]) for n, at in rows.items() if n in to.network.plan.inputs}

    def rows_at(self, tokens: Sequence[int], places: Sequence[int]) -> dict[str, Any]:
        """Rows of tables for tokens of several texts, each at its place in its text."""
        return self._lookup.at(tokens, places)


__all__ = ["LanguageModel", "Path", "load"]
