"""A model that answers what it is told to, and a server of it on a port of this host.

It writes what stands behind "say " in the last message, byte after byte, and then ends; "draw" makes all letters equally likely; "fail" and "break" raise.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import uvicorn

from tec.errors import ArgumentError
from tec.lm.joint import Near, Piece, Rows
from tec.lm.serve.app import application
from tec.lm.serve.batches import BatchEngine
from tec.lm.serve.served import Limits, Served
from tec.lm.text.bytelevel import alphabet
from tec.lm.text.template import ChatTemplate
from tec.lm.text.tokenizer import VocabularyTokenizer, tokenizer_of
from tec.lm.text.vocabulary import CONTROL, NORMAL, Vocabulary

START, END = 256, 257
TEMPLATE = (
    "{% if tools %}[{{ tools | map(attribute='function') | map(attribute='name') | join(',') }}]{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> VocabularyTokenizer:
    """256 bytes, and two special tokens."""
    letters = [c for c, _ in sorted(alphabet().items(), key=lambda e: e[1])]
    kinds = np.array([NORMAL] * 256 + [CONTROL] * 2, np.int32)
    return tokenizer_of(Vocabulary("gpt2", [*letters, "<|im_start|>", "<|im_end|>"], kinds, pre="gpt-2", end=END))


class ScriptedSlot:
    def __init__(self, model: Scripted):
        self.model, self.ids = model, []

    def read(self, tokens: Sequence[int]) -> Any:
        self.model.reads.append(len(tokens))
        time.sleep(self.model.seconds)
        self.ids += tokens
        return self.model.logits(self.ids)

    def cut(self, rows: int) -> int:
        del self.ids[rows:]
        return rows


class Scripted:
    """See the module. seconds: that each read takes."""

    def __init__(self, context: int = 4096, seconds: float = 0.0):
        self.context, self.seconds, self.ends = context, seconds, {END}
        self.reads: list[int] = []

    def slot(self) -> ScriptedSlot:
        return ScriptedSlot(self)

    def logits(self, ids: Sequence[int]) -> Any:
        x = np.full(258, -10.0, np.float32)
        whole = bytes(k if k < 256 else 0 for k in ids)
        at = whole.rfind(b"say ")
        asked = whole[at + 4 :] if at >= 0 else whole
        wanted, split, written = asked.partition(b"\0\n\0assistant\n")
        if not split:  # of a completion: what is said goes on behind ">"
            wanted, split, written = asked.partition(b">")
        if wanted.endswith(b"fail"):
            raise ArgumentError("this model fails")
        if wanted.endswith(b"break"):
            raise ZeroDivisionError
        if wanted.endswith(b"draw"):
            x[97:123] = 0.0
        elif split and len(written) < len(wanted):
            x[wanted[len(written)]] = 10.0
        else:
            x[END] = 10.0
        return x


class ScriptedJoint:
    """The same for many texts at once: what lies in the blocks is the tokens themselves, which are read through the tables. near: of layers with a window."""

    def __init__(
        self, model: Scripted | None = None, *, block: int = 16, blocks: int | None = None, near: Near | None = None
    ):
        self.script = model or Scripted()
        self.context, self.ends, self.block = self.script.context, self.script.ends, block
        self.blocks = blocks or 4 * -(-self.context // block)
        self.pool = np.full((self.blocks, block), -1)
        self.near, self.near_pool = near, np.full((near.blocks if near else 0, block), -1)
        self.batches: list[list[int]] = []  # of each run the tokens of its pieces

    def start(self, pieces: Sequence[Piece]) -> Callable[[], Rows]:
        found = Rows(self._logits(pieces))
        return lambda: found

    def _logits(self, pieces: Sequence[Piece]) -> Any:
        self.batches.append([len(p.tokens) for p in pieces])
        time.sleep(self.script.seconds)
        for p in pieces:
            for k, token in enumerate(p.tokens, p.first):
                self.pool[p.blocks[k // self.block], k % self.block] = token
                if self.near is not None:
                    self.near_pool[p.near[k // self.block], k % self.block] = token
        rows = []
        for p in pieces:
            ids = self.pool[list(p.blocks)].reshape(-1)[: p.first + len(p.tokens)]
            assert (ids >= 0).all(), "a text reads what nobody wrote"
            if self.near is not None:
                assert len(p.near) == len(p.blocks)
                seen = slice(max(0, p.first - self.near.window + 1), p.first + len(p.tokens))
                assert (self.near_pool[list(p.near)].reshape(-1)[seen] == ids[seen]).all(), (
                    "a window holds other tokens"
                )
            for k in range(p.wanted, 0, -1):
                rows.append(self.script.logits(ids[: len(ids) - k + 1].tolist()))
        return np.array(rows)

    def clear(self, blocks: Sequence[int], near: Sequence[int] = ()) -> None:
        self.pool[list(blocks)] = -1
        self.near_pool[list(near)] = -1


@contextlib.contextmanager
def server(
    model: Scripted | None = None,
    *,
    slots: int = 4,
    queue: int = 64,
    limits: Limits | None = None,
    usual: Any = None,
    embed: Any = None,
    blocks: int | None = None,
) -> Iterator[tuple[str, BatchEngine]]:
    """The address of a server, and its engine."""
    tokenizer = byte_tokenizer()
    engine = BatchEngine(
        ScriptedJoint(model, blocks=blocks), tokenizer.token_bytes, slots=slots, queue=queue, embed=embed
    )
    served = Served("scripted", engine, tokenizer, ChatTemplate(TEMPLATE), usual or {}, limits or Limits())
    with running(application(served)) as address:
        try:
            yield address, engine
        finally:
            engine.close()


@contextlib.contextmanager
def running(app: Any) -> Iterator[str]:
    """An application on a port of 127.0.0.1."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        uvicorn_server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [s]}, daemon=True)
        thread.start()
        until = time.monotonic() + 20
        while not uvicorn_server.started and time.monotonic() < until:
            time.sleep(0.01)
        assert uvicorn_server.started
        try:
            yield f"http://127.0.0.1:{s.getsockname()[1]}"
        finally:
            uvicorn_server.should_exit = True
            thread.join(20)
