"""An engine of batches: in each round all texts that run go on in one run of the model, by a token or by a piece of their prompts (continuous batching: Yu and others,
Orca, 2022; Kwon and others, arXiv 2309.06180).

Texts join and leave between rounds. Prompts are read in pieces beside the tokens of other texts, `piece` tokens a round together. Keys and values lie in blocks
(`block_pool`): a prompt takes over the blocks of what it has in common with texts before. Where no block is free, the text that came last gives its own back and reads
itself again later. A request whose client left ends at the next round.

Greedy texts may be guessed ahead (`guesses`): a text's last token and the guesses behind it go through the model as so many tokens of a run, and it goes on with those that
its own logits choose. The others' keys are written over by what comes next.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import ArgumentError
from ..block_pool import BlockPool, WindowPool
from ..joint import Near, Piece, Rows
from ..sampling import no_numbers
from ..speculative import FIRST_GUESSES, MOST_GUESSES, Guesser
from ..text.tokenizer import Stream
from .engine import Done, Listener, Request
from .jobs import PIECE, Job, TextEngine


class JointModel(Protocol):
    """What gives logits of many texts at once."""

    context: int
    ends: Collection[int]  # tokens that end a text
    block: int  # tokens of a block
    blocks: int  # of the pool: as many as a text of `context` tokens has, at least
    near: Near | None  # where layers with a window have blocks of their own

    def start(self, pieces: Sequence[Piece]) -> Callable[[], Rows]:
        """Begin with a run; what waits for the rows that are wanted."""

    def clear(self, blocks: Sequence[int], near: Sequence[int] = ()) -> None:
        """What is in these blocks may be no numbers: it must not reach the next text that has them. near: blocks of layers with a window."""


def _blocks(some: Sequence[int] = ()) -> array[int]:
    return array("q", some)


@dataclass(eq=False)
class _Job(Job):
    tokens: list[int] = field(default_factory=list)  # of the prompt, and those that were written
    blocks: array[int] = field(default_factory=_blocks)  # which NumPy reads as it lies
    near: array[int] = field(default_factory=_blocks)  # the same of layers with a window
    gone: int = 0  # of these, which are not held any more
    at: int = 0  # tokens whose keys and values lie in the blocks
    begun: bool = False
    guesser: Guesser | None = None
    count: int = FIRST_GUESSES  # guesses of the next run


class BatchEngine(TextEngine[_Job]):
    """See the module and `TextEngine`. piece: tokens of prompts that are read in one round. guesses: makes what guesses for a text, one text at a time. `preempted`: how
    often a text gave its blocks back; `guessed`, `accepted`: tokens that were guessed, and those of them that texts have."""

    def __init__(
        self,
        model: JointModel,
        token_bytes: Callable[[int], bytes],
        *,
        slots: int = 16,
        queue: int = 64,
        embed: Callable[[Sequence[int]], Any] | None = None,
        piece: int = PIECE,
        guesses: Callable[[], Guesser] | None = None,
    ):
        self.model, self.pool = model, BlockPool(model.blocks, model.block)
        if self.pool.blocks_for(model.context) > model.blocks:
            raise ArgumentError(
                f"{model.blocks} blocks of {model.block} tokens have no room for {model.context}",
                hint="more blocks (--blocks), or a smaller context (--context)",
            )
        near = model.near
        self._near = None if near is None else WindowPool(near.blocks, model.block, near.window)
        self._piece, self.preempted = piece, 0
        self._guesses, self._guessers = guesses, list[Guesser]()  # of texts that have ended
        self.guessed = self.accepted = 0
        super().__init__(model, token_bytes, slots, queue, embed)

    def _job(self, request: Request, listener: Listener, stream: Stream, read: Stream) -> _Job:
        return _Job(request, listener, stream, read, tokens=list(request.prompt))

    def state(self) -> dict[str, int]:
        """See `Engine`; and "blocks", "free_blocks", "preempted", "guessed", "accepted"."""
        return {
            **super().state(),
            "blocks": self.pool.count,
            "free_blocks": self.pool.free,
            "preempted": self.preempted,
            "guessed": self.guessed,
            "accepted": self.accepted,
        }

    # ---- a round

    def _round(self) -> None:
        for job in [j for j in self._running if j.cancelled]:
            self._finish(job, Done("cancelled", cached=job.cached))
        batch = self._batch()
        if not batch:
            self._flush()
            return
        try:
            self._run(batch)
        except Exception as error:
            if len(batch) == 1:
                self._failed(batch[0][0], error)
                return
            for one in batch:  # whose fault it is shows alone; what was written of the others is written again
                try:
                    self._run([one])
                except Exception as own:
                    self._failed(one[0], own)

    def _run(self, batch: Sequence[tuple[_Job, Piece]]) -> None:
        with self._model_lock:
            wait = self.model.start([piece for _, piece in batch])
            self._flush()  # what the run before has written, beside this one
            rows = wait()
        first = 0
        for job, piece in batch:
            if job.is_running:
                self._advance(job, piece, rows, first)
            first += piece.wanted

    def _advance(self, job: _Job, piece: Piece, rows: Rows, first: int) -> None:
        """What a run made of a text: full blocks, and a token; of guesses that were right more. Its rows are those from `first` on."""
        guesses = piece.tokens[len(job.tokens) - job.at :]
        self._holds(job, len(piece.tokens) - len(guesses))
        try:
            if piece.together:
                self._scored(job, piece.first, (rows[first + k] for k in range(piece.wanted)))
                is_last = job.at == len(job.tokens)
                first, piece = first + piece.wanted - is_last, piece._replace(wanted=int(is_last))
            for k in range(piece.wanted):
                if job.takes_likeliest and job.request.most:
                    if rows.likeliest[first + k] < 0:
                        raise no_numbers()
                    self._wrote(job, rows.likeliest[first + k])
                else:
                    self._write(job, rows[first + k])
                job.tokens += job.written[-1:]
                if not job.is_running or k == len(guesses) or job.tokens[-1] != guesses[k]:
                    break
                self._holds(job, 1)
                self.accepted += 1
        except Exception as error:
            self._failed(job, error)
            return
        if guesses and job.is_running:
            is_right = job.at == piece.first + len(piece.tokens)
            job.count = min(MOST_GUESSES, job.count + 1) if is_right else max(1, job.count // 2)

    def _holds(self, job: _Job, count: int) -> None:
        """The blocks hold `count` tokens more of the text."""
        size, before = self.pool.size, job.at
        job.at += count
        for number in range(before // size, job.at // size):
            self.pool.filled(job.blocks, number, job.tokens[number * size : (number + 1) * size])
            if self._near is not None and number >= job.gone:
                self._near.known(job.near[number], self.pool.content(job.blocks[number]))

    def _guess(self, job: _Job) -> list[int]:
        """Tokens that may follow a text whose last token is read in this round."""
        request = job.request
        room = min(request.most - len(job.written), self.context - len(job.tokens)) - 1
        if self._guesses is None or not job.written or request.sampling.temperature or room < 1:
            return []
        if job.guesser is None:
            job.guesser = self._guessers.pop() if self._guessers else self._guesses()
        with self._model_lock:
            found = job.guesser.guess(job.tokens, min(job.count, room))
        self.guessed += len(found)
        return found

    def _batch(self) -> list[tuple[_Job, Piece]]:
        """What each text does in this round: those that came first are served first."""
        batch: list[tuple[_Job, Piece]] = []
        budget, busy = self._piece, set[_Job]()
        for job in list(self._running):
            if not job.blocks and not self._begin(job):
                continue
            left = len(job.tokens) - job.at
            guesses = self._guess(job) if left == 1 else []
            count = min(left, budget) if left > 1 else 1 + len(guesses)
            count = self._room(job, count, busy)
            if count < 1:
                continue
            budget -= count if left > 1 else 0
            tokens = [*job.tokens[job.at :], *guesses][:count]
            wanted = count if job.is_scoring else max(0, count - left + 1)
            batch.append((job, Piece(tokens, job.at, job.blocks, wanted, job.is_scoring, job.near)))
            busy.add(job)
        return batch

    def _begin(self, job: _Job) -> bool:
        """Blocks that hold what the text begins with. False where too few are free for it to go on for a while."""
        held, wanted = sum(1 for j in self._running if j.blocks), self.pool.blocks_for(len(job.tokens))
        is_short = self.pool.free < wanted + held
        if self._near is not None:
            most = self._near.blocks_for(self._near.window + self._piece) + 1  # that a text ever holds
            is_short = is_short or self._near.free < min(wanted, most) + held
        if held and is_short:
            return False
        # The last token is read always, since its logits are wanted.
        job.blocks = _blocks(() if job.is_scoring else self.pool.found(job.tokens[:-1]))
        if self._near is not None:
            self._begin_near(self._near, job)
        job.at = len(job.blocks) * self.pool.size
        if not job.begun:
            job.cached, job.begun = job.at, True
        return True

    def _begin_near(self, pool: WindowPool, job: _Job) -> None:
        """The blocks of layers with a window for those that a text begins with: as many of these as have them."""
        contents = [self.pool.content(b) for b in job.blocks]
        for count in range(len(contents), 0, -1):
            table = pool.behind(contents[:count])
            if table is not None:
                break
        else:
            count, table = 0, []
        self.pool.let_go(job.blocks[count:])
        job.blocks, job.near = job.blocks[:count], _blocks(table)
        job.gone = min(pool.first(count * pool.size), max(0, count - 1))

    def _taken(self, job: _Job) -> bool:
        """A text has a block more. False where none is free."""
        block = self.pool.take()
        if block is None:
            return False
        if self._near is not None:
            near = self._near.take()
            if near is None:
                self.pool.let_go([block])
                return False
            job.near.append(near)
        job.blocks.append(block)
        return True

    def _room(self, job: _Job, count: int, busy: Collection[_Job]) -> int:
        """Blocks for `count` tokens more. How many there is room for; 0 where the text gave its own back."""
        if self._near is not None:
            job.gone = self._near.forgotten(job.near, job.gone, job.at)
        while len(job.blocks) * self.pool.size < job.at + count:
            if self._taken(job):
                continue
            # Who came last waits; whoever is before this text in the round has its blocks already.
            last = next(j for j in reversed(self._running) if j is job or (j.blocks and j not in busy))
            if last is job:
                there = len(job.blocks) * self.pool.size - job.at
                if there > 0:
                    return there
            self._give_back(last)
            self.preempted += 1
            if last is job:
                return 0
        return count

    def _give_back(self, job: _Job, broken: bool = False) -> None:
        free = self.pool.let_go(job.blocks, forget=broken)
        near = [] if self._near is None else self._near.let_go(job.near[job.gone :], forget=broken)
        if broken:
            self.model.clear(free, near)
        job.blocks, job.near, job.gone, job.at = _blocks(), _blocks(), 0, 0

    def _ended(self, job: _Job, broken: bool) -> None:
        self._give_back(job, broken)
        if job.guesser is not None and not broken:
            self._guessers.append(job.guesser)
        job.guesser = None
