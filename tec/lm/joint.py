"""A compiled language model that takes tokens of many texts in one run: its pools of keys and values, and what a run is given.

In: pieces of texts, each with its tokens, its place and the blocks of its text. Out: the logits of the last token of those that want them. See `lm.paged` for the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..runtime.arrays.dtypes import itemsize, numpy_dtype
from ..runtime.arrays.filled import zeros
from ..runtime.arrays.ndarray import NDArray, from_numpy
from ..runtime.devices.storage import ALIGN
from ..runtime.networks.network import Network
from .kept import Form, key_of, weights_of
from .memory import available_bytes
from .model import LanguageModel
from .starting import code_of, loaded

BLOCK = 32  # tokens: half of one is wasted a text, and an attention reads 32 keys without a look at the table
_POOL_SHARE = 4  # a pool takes no more than this part of the free memory, where nothing says how large it is
_LONG = 2048  # tokens of a text that a pool has room for in each slot, where nothing says


class Piece(NamedTuple):
    """Some tokens of a text: the place of the first, the text's blocks, which have room for all, and behind how many of the last ones logits are wanted. Where they
    are wanted behind each, each attends as a text's only new token does, unless they are to attend `together` as those of a prompt do. near: as `blocks`, of layers with
    a window, where these have pools of their own."""

    tokens: Sequence[int]
    first: int
    blocks: Sequence[int]
    wanted: int = 1
    together: bool = False
    near: Sequence[int] = ()

    @property
    def is_single(self) -> bool:
        return len(self.tokens) == 1 or (len(self.tokens) == self.wanted and not self.together)


class Near(NamedTuple):
    """What a text needs of the pools of layers with a window: their blocks, and the tokens of the window."""

    blocks: int
    window: int


class Rows:
    """The logits of the rows that were wanted, [rows, vocabulary], in NumPy or on a device, from which a row is read when somebody asks for it. likeliest: the token of each
    row, -1 where logits are no numbers, if it is known."""

    def __init__(self, logits: Any, likeliest: Sequence[int] | None = None):
        self._logits, self._likeliest = logits, likeliest

    @cached_property
    def likeliest(self) -> Sequence[int]:
        """The likeliest token of each row, of equals the first; -1 where logits are no numbers."""
        if self._likeliest is not None:
            return self._likeliest
        x = self._logits
        best = x.argmax(1)  # of what is no number the first
        found: list[int] = np.where(np.isfinite(np.take_along_axis(x, best[:, None], 1)[:, 0]), best, -1).tolist()
        return found

    def __getitem__(self, row: int) -> Any:
        found = self._logits[row]
        return found.numpy() if isinstance(found, NDArray) else found


class PagedModel:
    """See the module. block: tokens of a block; blocks: of the pool; piece: tokens of a text that are read at once, where layers with a window are to have blocks for what
    it sees alone (`near`); 0 where they hold whole texts. Raises ImportModelError for a model whose states are no rows of keys and values."""

    def __init__(
        self,
        lm: LanguageModel,
        device: Any = None,
        *,
        block: int = BLOCK,
        blocks: int | None = None,
        slots: int = 4,
        cache: bool = True,
        piece: int = 0,
    ):
        if not 8 <= block <= 256 or block & (block - 1):
            raise ArgumentError(f"blocks of {block} tokens", hint="a power of two from 8 to 256; 16 to 64 are usual")
        self._lm, self.block = lm, block
        self.context = lm.context
        self.ends: Collection[int] = lm.ends
        form = Form(lm.target, lm.dtype, block=block, cache=lm.cache_type, forgets=piece > 0)
        key = key_of(lm.checkpoint, form) if cache else None
        self.network = _beside(lm, form, key) if lm.is_made else _alone(lm, form, key)
        self._executor = self.network.executor(device)
        plan = self.network.plan
        self._states = {s.input: plan.values[s.input] for s in plan.states}
        rows = {n: tuple(int(d) for d in v.shape[1:] if isinstance(d, int)) for n, v in self._states.items()}
        near = {n for n, v in self._states.items() if v.shape[0] == "near_blocks"}
        self.block_bytes = self._bytes({n: shape for n, shape in rows.items() if n not in near})
        self.blocks = blocks if blocks is not None else self._usual_blocks(slots)
        if self.blocks < -(-self.context // block):
            raise ArgumentError(
                f"{self.blocks} blocks of {block} tokens have no room for one text of {self.context}",
                hint="more blocks, or a smaller context",
            )
        self.near = self._near(slots, piece) if near else None
        counts = {n: self.near.blocks if self.near and n in near else self.blocks for n in rows}
        self._pools = {
            n: _pool((counts[n], *shape), self._states[n].dtype, self._executor.device) for n, shape in rows.items()
        }
        self._of_windows = near
        self._executor.begin_with(self._pools)

    def _bytes(self, rows: Mapping[str, Sequence[int]]) -> int:
        """Bytes of a block of these states."""
        return sum(itemsize(self._states[n].dtype) * math.prod(shape) for n, shape in rows.items())

    def _near(self, slots: int, piece: int) -> Near:
        """Blocks for texts in all slots: what is read at once, what it sees, and as much as a text to come may go on behind."""
        window = self._lm.config.size("sliding_window")
        text = -(-(window + piece) // self.block) + 1 + -(-window // self.block)
        return Near(min(self.blocks, slots * text), window)

    @property
    def pool_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(pool.nbytes for pool in self._pools.values())

    def _usual_blocks(self, slots: int) -> int:
        """Of texts of usual lengths in all slots; on a CPU as far as there is memory."""
        least, wanted = -(-self.context // self.block), -(-slots * min(self.context, _LONG) // self.block)
        there = available_bytes()
        most = (
            wanted if there is None or self._lm.target.is_gpu else int(there // _POOL_SHARE // max(self.block_bytes, 1))
        )
        return max(least, min(wanted, most))

    def step(self, pieces: Sequence[Piece]) -> Any:
        """Logits float32 [rows that are wanted, vocabulary], by one run. Raises ArgumentError where a place is beyond what the model has learned."""
        return self._executor.run(self.inputs(pieces))[0].numpy()

    def start(self, pieces: Sequence[Piece]) -> Callable[[], Rows]:
        """The same, which returns at once: with a function that waits for the rows."""
        job = self._executor.launch(self.inputs(pieces))

        def rows() -> Rows:
            logits, *likeliest = job.sync()
            if likeliest:
                return Rows(logits, likeliest[0].numpy().tolist())
            return Rows(logits.numpy())

        return rows

    def inputs(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """What the network takes for some pieces."""
        made = network_inputs(pieces, self.block, self.near is not None)
        tokens = [t for p in pieces for t in p.tokens]
        places = [at for p in pieces for at in range(p.first, p.first + len(p.tokens))]
        return {**self._lm.rows_at(tokens, places), **made}

    def copy(self, source: int, target: int) -> None:
        """A block becomes what another one is."""
        for pool in self._pools.values():
            pool[target].copyfrom(pool[source])

    def clear(self, blocks: Sequence[int], near: Sequence[int] = ()) -> None:
        """Zeros into blocks: a key that is no number would reach other texts, with weight 0, once they have the block. near: blocks of layers with a window."""
        for name, pool in self._pools.items():
            for block in near if self.near is not None and name in self._of_windows else blocks:
                part = pool[block]
                part.copyfrom(np.zeros(part.shape, numpy_dtype(part.dtype)))


def network_inputs(pieces: Sequence[Piece], block: int, near: bool = False) -> dict[str, Any]:
    """What a network takes for some pieces beside the rows of its tables, by the names of `lm.paged`. block: tokens of a block. near: layers with a window have pools of
    their own."""
    counts = [len(p.tokens) for p in pieces]
    begins = [0, *accumulate(counts)]
    single = [(k, j) for k, p in enumerate(pieces) if p.is_single for j in range(counts[k])]
    long = [k for k, p in enumerate(pieces) if not p.is_single]
    longest = max((counts[k] for k in long), default=0)
    # A row that is not there is row 0 once more: nobody reads what it attends to.
    rows, order = np.zeros((len(long), longest), np.int64), np.zeros(begins[-1], np.int64)
    places = np.empty(begins[-1], np.float32)
    alone = np.array([begins[k] + j for k, j in single], np.int64)
    order[alone] = np.arange(len(single))
    starts = [pieces[k].first + j for k, j in single]
    places[alone] = starts
    for n, k in enumerate(long):
        one, part = pieces[k], slice(begins[k], begins[k + 1])
        rows[n, : counts[k]] = np.arange(begins[k], begins[k + 1])
        order[part] = len(single) + n * longest + np.arange(counts[k])
        places[part] = np.arange(one.first, one.first + counts[k])

    def of(held: Callable[[Piece], Sequence[int]], what: str = "") -> dict[str, Any]:
        """Slots and tables of blocks."""
        slots = np.empty(begins[-1], np.int64)
        # Numbers of Python's: arrays of one element take longer.
        slots[alone] = [held(pieces[k])[at // block] * block + at % block for (k, _), at in zip(single, starts)]
        for k in long:
            at = np.arange(pieces[k].first, pieces[k].first + counts[k])
            slots[begins[k] : begins[k + 1]] = np.asarray(held(pieces[k]), np.int64)[at // block] * block + at % block
        tables = _tables([held(pieces[k]) for k, _ in single]), _tables([held(pieces[k]) for k in long])
        return {f"{what}slots": slots, f"single_{what}tables": tables[0], f"chunk_{what}tables": tables[1]}

    wanted = [end - j for end, p in zip(begins[1:], pieces) for j in range(p.wanted, 0, -1)]
    return {
        "places": places, "order": order, "single_rows": alone, "single_starts": np.array(starts, np.int64), "chunk_rows": rows,
        "chunk_starts": np.array([pieces[k].first for k in long], np.int64), "wanted": np.array(wanted or [0], np.int64),
        **of(lambda p: p.blocks), **(of(lambda p: p.near, "near_") if near else {}),
    }  # fmt: skip


def _tables(some: Sequence[Sequence[int]]) -> Any:
    """Blocks of texts, in tables as wide as a power of two, so that few widths are met."""
    most = max(map(len, some), default=1)
    made = np.zeros((len(some), 1 << (most - 1).bit_length()), np.int64)
    for row, blocks in enumerate(some):
        made[row, : len(blocks)] = blocks
    return made


def _pool(shape: Sequence[int], dtype: str, device: Any) -> NDArray:
    """Zeros; on a CPU pages of a pool are taken from the system when they are written."""
    if device.driver is not None:
        return zeros(tuple(shape), dtype, device)
    kind = numpy_dtype(dtype)
    raw = np.zeros(math.prod(shape) * kind.itemsize + ALIGN, np.uint8)
    begin = -raw.ctypes.data % ALIGN
    return from_numpy(raw[begin : len(raw) - ALIGN + begin].view(kind).reshape(shape))


def _alone(lm: LanguageModel, form: Form, key: str | None) -> Network:
    """The network of a model that has no other one."""
    made, weights = loaded(lm.checkpoint, form, key, lm.progress)
    return made.network(weights)


def _beside(lm: LanguageModel, form: Form, key: str | None) -> Network:
    """The network with the weights of the model's own: in the same memory, where both read them in the same order."""
    made = code_of(lm.checkpoint, form, key)
    own, specs = lm.network.params, made.missing
    same = all(
        n in own and (own[n].dtype, [*own[n].shape]) == (numpy_dtype(d), shape) for n, (d, shape) in specs.items()
    )
    network = made.network({n: own[n] for n in specs} if same else weights_of(made, lm.checkpoint, key, 2))
    if same:
        network.share(lm.network)
    return network
