"""Several texts behind one prompt, each drawn with a seed of its own: they go on side by side in one run a token, and share the keys and values of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .branches import Branches, paged
from .forms.form import Begin, Form
from .generation import check_most, stops_of
from .joint import Piece
from .model import LanguageModel
from .sampling import Picker, Sampling
from .stream import Stops
from .text.tokenizer import Stream


@dataclass(frozen=True)
class Sample:
    """A text that was drawn. ids: its tokens behind the prompt, without the one that ended it. text: of these, up to a text of `stop`. reason: "end", "stop" or "length", as of
    `Generation`.

    >>> drawn = tec.lm.load(checkpoint).samples("Once", 2, max_tokens=3, temperature=0.9, seed=1)
    >>> [(len(sample.ids), sample.reason) for sample in drawn]
    [(3, 'length'), (3, 'length')]
    """

    ids: tuple[int, ...]
    text: str
    reason: str


@dataclass
class _Text:
    """A text under way."""

    picker: Picker
    stops: Stops
    stream: Any
    form: Form | None
    blocks: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    reason: str | None = None


def draw(
    lm: LanguageModel, ids: Sequence[int], count: int, most: int, settings: Sampling, stop: Sequence[str], form: Begin | None
) -> list[Sample]:  # fmt: skip
    """See `LanguageModel.samples`. ids: of the prompt; form: what each text must be."""
    check_most(most)
    stops = stops_of(stop)
    texts = [
        _Text(replace(settings, seed=settings.seed + k).picker(), Stops(stops), _stream(lm), None if form is None else form(lm.ends))
        for k in range(count)
    ]  # fmt: skip
    with lm.branching:
        _go_on(lm, texts, ids, most)
    return [Sample(tuple(t.written), t.stops.text, str(t.reason)) for t in texts]


def _go_on(lm: LanguageModel, texts: Sequence[_Text], ids: Sequence[int], most: int) -> None:
    """All texts behind a prompt, to their ends."""
    model = paged(lm, len(ids), most, len(texts))
    branches = Branches(model, len(texts))
    blocks, logits = branches.read(ids)
    for k, text in enumerate(texts):
        text.blocks = blocks if k == 0 else branches.copied(blocks, len(ids))
        _take(lm, text, ids, logits, most)
    while running := [t for t in texts if t.reason is None]:
        pieces = []
        for t in running:
            at = len(ids) + len(t.written) - 1
            branches.room(t.blocks, at + 1)
            pieces.append(Piece(t.written[-1:], at, t.blocks))
        rows = model.start(pieces)()
        for k, t in enumerate(running):
            _take(lm, t, ids, rows[k], most)


def _stream(lm: LanguageModel) -> Any:
    """What makes text of tokens; nothing where the model's files have no tokenizer."""
    tokenizer = lm.checkpoint.tokenizer
    return Stream((lambda token: b"") if tokenizer is None else tokenizer.token_bytes)


def _take(lm: LanguageModel, text: _Text, prompt: Sequence[int], logits: Any, most: int) -> None:
    """A text goes on by a token for logits, or ends."""
    seen = [*prompt, *text.written] if text.picker.sampling.counts_written else ()
    token = text.picker.pick(logits, seen)
    if text.form is not None:
        token = text.form.chosen(token, logits, lambda x: text.picker.pick(x, seen))
    if token in lm.ends:
        text.reason = "end"
    else:
        text.written.append(token)
        text.stops.add(text.stream.add(token))
        if text.stops.stopped:
            text.reason = "stop"
        elif text.form is not None and text.form.is_over:
            text.reason = "end"
        elif len(text.written) == most or len(prompt) + len(text.written) > lm.context:
            text.reason = "length"
    if text.reason is not None and text.reason != "stop":
        text.stops.add(text.stream.rest(), final=True)
        text.reason = "stop" if text.stops.stopped else text.reason
