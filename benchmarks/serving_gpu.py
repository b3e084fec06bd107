"""A server of language models under load on one GPU: random weights of the shape of Llama 3 8B in float16, greedy texts.

    python -m benchmarks.serving_gpu [--texts 64] [--prompt 64] [--tokens 160]
    python -m benchmarks.serving_gpu --target llvm --hidden 256 --layers 2 --vocabulary 2000 --tokens 40        anywhere

    batch    one run for a token of every text, the next one chosen by the device, without an engine: the limit
    engine   the same through the engine: blocks, texts, events
    server   the same through HTTP: clients of another process, each of which streams one completion

`tokens_per_second` is of the rounds in which all texts have a token, by the wall clock; `of_limit` is that over the batch's. JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tec.lm
from tec.lm.checkpoint import Checkpoint, PackedTensor
from tec.lm.formats import Format
from tec.lm.joint import PagedModel, Piece, Rows
from tec.lm.serve.batches import BatchEngine
from tec.lm.serve.engine import Done, Request
from tec.lm.serve.served import Served
from tec.lm.text.bytelevel import alphabet
from tec.lm.text.tokenizer import VocabularyTokenizer, tokenizer_of
from tec.lm.text.vocabulary import NORMAL, Vocabulary

_SEED = 5


def checkpoint(a: argparse.Namespace) -> Checkpoint:
    """Weights of one memory: what they are does not change how long a step takes."""
    heads, feed = a.hidden // 128 or 1, a.hidden * 7 // 2
    kv = max(1, heads // 4)
    size = a.hidden // heads
    block = np.random.default_rng(_SEED).standard_normal(1 << 20).astype(np.float32) * a.hidden**-0.5
    numbers = np.tile(block.astype(np.float16), -(-max(a.vocabulary, feed) * a.hidden // len(block)))
    tensors = {}

    def add(name: str, *shape: int) -> None:
        if len(shape) == 1:
            tensors[name] = PackedTensor(name, shape, Format.F32, np.ones(shape, np.float32).view(np.uint8))
        else:
            tensors[name] = PackedTensor(name, shape, Format.F16, numbers[: shape[0] * shape[1]].view(np.uint8))

    for name in ("model.embed_tokens", "lm_head"):
        add(f"{name}.weight", a.vocabulary, a.hidden)
    add("model.norm.weight", a.hidden)
    for k in range(a.layers):
        at = f"model.layers.{k}"
        add(f"{at}.input_layernorm.weight", a.hidden)
        add(f"{at}.post_attention_layernorm.weight", a.hidden)
        for name, rows in (("q", heads), ("k", kv), ("v", kv)):
            add(f"{at}.self_attn.{name}_proj.weight", rows * size, a.hidden)
        add(f"{at}.self_attn.o_proj.weight", a.hidden, a.hidden)
        for name, shape in (("gate", (feed, a.hidden)), ("up", (feed, a.hidden)), ("down", (a.hidden, feed))):
            add(f"{at}.mlp.{name}_proj.weight", *shape)
    config = {
        "hidden_size": a.hidden, "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": feed, "vocab_size": a.vocabulary,
        "num_hidden_layers": a.layers, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "max_position_embeddings": 8192, "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip
    return Checkpoint("llama", config, tensors, lambda: tokenizer(a.vocabulary))


def tokenizer(vocabulary: int) -> VocabularyTokenizer:
    """The bytes, and words that no merge makes."""
    letters = [c for c, _ in sorted(alphabet().items(), key=lambda e: e[1])]
    words = [*letters, *(f"t{k}x" for k in range(vocabulary - len(letters)))]
    return tokenizer_of(Vocabulary("gpt2", words, np.full(vocabulary, NORMAL, np.int32), pre="gpt-2"))


class Timed:
    """A model whose runs are noted: when each began, and whether it was a token of every text."""

    def __init__(self, model: PagedModel, texts: int):
        self._model, self._texts = model, texts
        self.context, self.ends, self.block, self.blocks = model.context, model.ends, model.block, model.blocks
        self.begun: list[float] = []

    def start(self, pieces: Sequence[Piece]) -> Callable[[], Rows]:
        if len(pieces) == self._texts == sum(len(p.tokens) for p in pieces):
            self.begun.append(time.perf_counter())
        return self._model.start(pieces)

    def clear(self, blocks: Sequence[int]) -> None:
        self._model.clear(blocks)

    @property
    def rate(self) -> float:
        """Tokens a second of what was noted, which is forgotten."""
        begun, self.begun = self.begun, []
        return self._texts * (len(begun) - 1) / (begun[-1] - begun[0])


def batched(model: Timed, prompts: Sequence[list[int]], tokens: int) -> None:
    """All texts by one run a token."""
    each = -(-(len(prompts[0]) + tokens) // model.block)
    tables = [list(range(k * each, (k + 1) * each)) for k in range(len(prompts))]
    written = [model.start([Piece(p, 0, t)])().likeliest[0] for p, t in zip(prompts, tables)]
    for at in range(len(prompts[0]), len(prompts[0]) + tokens - 1):
        written = list(model.start([Piece([w], at, t) for w, t in zip(written, tables)])().likeliest)


def through_engine(model: Timed, prompts: Sequence[list[int]], tokens: int, bytes_of: Any) -> None:
    engine = BatchEngine(model, bytes_of, slots=len(prompts))
    ends = [threading.Event() for _ in prompts]
    for prompt, end in zip(prompts, ends):

        def hear(event: Any, end: threading.Event = end) -> None:
            if isinstance(event, Done):
                end.set()

        engine.submit(Request(prompt, tokens, ignore_end=True), hear)
    for end in ends:
        end.wait()
    engine.close()


async def client(port: int, prompt: list[int], tokens: int) -> None:
    """One completion, read to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
    body = json.dumps(asked).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    first = await reader.read(64)
    if not first.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(first.decode(errors="replace"))
    while await reader.read(1 << 16):
        pass
    writer.close()


def clients(port: int, prompts: Sequence[list[int]], tokens: int) -> None:
    """A process of clients."""

    async def all_of_them() -> None:
        await asyncio.gather(*(client(port, p, tokens) for p in prompts))

    asyncio.run(all_of_them())


def through_server(model: Timed, prompts: Sequence[list[int]], tokens: int, words: VocabularyTokenizer) -> None:
    import uvicorn

    from tec.lm.serve.app import application

    engine = BatchEngine(model, words.token_bytes, slots=len(prompts))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = application(Served("random", engine, words))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = listening.getsockname()[1]
        process = multiprocessing.get_context("spawn").Process(target=clients, args=(port, prompts, tokens))
        process.start()
        process.join()
        server.should_exit = True
        thread.join(20)
    engine.close()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("texts", 64), ("prompt", 64), ("tokens", 160), ("hidden", 4096), ("layers", 32), ("vocabulary", 128256),
    ):  # fmt: skip
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--target", default="cuda")
    a = p.parse_args()
    context = a.prompt + a.tokens + 8
    lm = tec.lm.load(
        checkpoint(a), target=a.target, dtype="float32" if a.target == "llvm" else "float16", context=context
    )
    paged = PagedModel(lm, blocks=a.texts * (-(-context // 32) + 1))
    model, words = Timed(paged, a.texts), tokenizer(a.vocabulary)
    prompts = np.random.default_rng(_SEED).integers(256, a.vocabulary, (a.texts, a.prompt)).tolist()
    ways: dict[str, Callable[[], None]] = {
        "batch": lambda: batched(model, prompts, a.tokens), "engine": lambda: through_engine(model, prompts, a.tokens, words.token_bytes),
        "server": lambda: through_server(model, prompts, a.tokens, words),
    }  # fmt: skip
    limit = 0.0
    batched(model, prompts, 12)  # code is loaded
    model.begun.clear()
    for kind in ("batch", "engine", "server", "batch", "engine", "server"):
        ways[kind]()
        rate = model.rate
        limit = rate if kind == "batch" else limit
        print(
            json.dumps(
                {
                    "kind": kind,
                    "texts": a.texts,
                    "tokens_per_second": round(rate, 1),
                    "of_limit": round(rate / limit, 3),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
