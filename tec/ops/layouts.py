"""Layouts: how the elements of a value lie in memory, as a property of the value.

A layout is written in the field's notation, a letter for each axis in the order of storage: `NCHW`; `NCHW16c` (channels in blocks of 16, a block
contiguous); `(NHW)C` (batch, rows and columns as one dimension: a matrix of pixels by channels); `OIHW16i16o`, `O(HWI)` (weights); `NK32n` (a matrix
in panels of 32 columns). Operators are defined once, over places along axes; layouts say where in storage that is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..records import dataclass
from .dims import Size

_TOKEN = re.compile(r"\(([A-Z]+)\)|(\d+)([a-z])|([A-Z])")
_SPACE = "ABEFGJKLMPDHW"  # letters of spatial axes, the last ones first taken: a signal has W, an image H and W, a volume D, H and W


class Blocked(NamedTuple):
    """A place along an axis that is stored in blocks: `outer * block + inner`."""

    outer: Any
    inner: Any
    block: int


Place = dict[str, Any]  # letter -> an index, or Blocked; a flattened dimension's letters together -> its index
Sizes = Mapping[str, Size]


@dataclass(frozen=True)
class Layout:
    """How a value lies. `dims`: the letters of each dimension of storage, a lower case letter for the places in a block; `blocks`: their sizes."""

    name: str

    @property
    def dims(self) -> tuple[str, ...]:
        return _parse(self.name)[0]

    @property
    def blocks(self) -> dict[str, int]:
        return _parse(self.name)[1]

    @property
    def group(self) -> int:
        """Neighbours along the sum that lie side by side, where blocks of them are stored last, as dot products take them (NK32n4k: 4); else 1."""
        last = self.dims[-1]
        return self.blocks[last] if last in ("k", "i") else 1

    @property
    def is_flat(self) -> bool:
        """Whether several axes are one dimension."""
        return any(len(d) > 1 for d in self.dims)

    def axis(self, letter: str) -> int:
        """The dimension of storage that holds the axis (its blocks)."""
        return next(k for k, d in enumerate(self.dims) if letter in d)

    def shape(self, sizes: Sizes) -> tuple[Size, ...]:
        """The shape of storage; the last block is filled up."""
        return tuple(
            self.blocks[d] if d.islower() else math.prod(self._extent(letter, sizes) for letter in d) for d in self.dims
        )

    def _extent(self, letter: str, sizes: Sizes) -> Size:
        block = self.blocks.get(letter.lower())
        return -(-sizes[letter] // block) if block else sizes[letter]

    def sizes(self, shape: Sequence[Size], known: Sizes | None = None) -> dict[str, Size]:
        """Sizes of the axes from storage's shape, those of blocked axes filled up. `known`: of flattened axes, all but one at least."""
        made = dict(known or {})
        for d, n in zip(self.dims, shape):
            if len(d) > 1:
                made |= {x: n // math.prod(made[y] for y in d if y != x) for x in d if x not in made}
            elif d.isupper():
                made[d] = n * self.blocks.get(d.lower(), 1)
        return made

    def place(self, index: Sequence[Any], sizes: Sizes) -> Place:
        """Places along the axes from an index into storage."""
        at: Place = {}
        inner = {d: i for d, i in zip(self.dims, index) if d.islower()}
        for d, i in zip(self.dims, index):
            if d.islower():
                continue
            if len(d) > 1:
                at[d] = i
            wide = [x for x in d if not (isinstance(sizes[x], int) and sizes[x] == 1)]
            for k, x in enumerate(wide):
                below = math.prod(sizes[y] for y in wide[k + 1 :])
                at[x] = (i if k == len(wide) - 1 else i // below) if k == 0 else (i // below) % sizes[x] if k < len(wide) - 1 else i % sizes[x]  # fmt: skip
            for x in d:
                at.setdefault(x, i if len(d) == 1 else 0)
                if x.lower() in inner:
                    at[x] = Blocked(at[x], inner[x.lower()], self.blocks[x.lower()])
        return at

    def index(self, at: Place, sizes: Sizes) -> list[Any]:
        """The index into storage of a place. A flattened dimension is taken as it is where the place has it."""
        return [self._index(d, at, sizes) for d in self.dims]

    def _index(self, d: str, at: Place, sizes: Sizes) -> Any:
        block = self.blocks.get(d.lower()) if len(d) == 1 else None
        if block:
            p = at[d.upper()]
            if isinstance(p, Blocked) and p.block == block:
                return p.inner if d.islower() else p.outer
            return whole(p) % block if d.islower() else whole(p) // block
        if len(d) > 1 and d in at:
            return at[d]
        total = whole(at[d[0]])
        for x in d[1:]:
            total = total * sizes[x] + whole(at[x])
        return total

    def store(self, data: Any, letters: str, mode: Any = "constant") -> Any:
        """A constant array whose dimensions are `letters`, in this layout; what fills up blocks is 0, or as np.pad's `mode` says. An axis that the
        layout lacks has one place."""
        dropped = tuple(k for k, x in enumerate(letters) if all(x not in d for d in self.dims))
        data, letters = data.squeeze(dropped), "".join(x for x in letters if any(x in d for d in self.dims))
        missing = [(0, -n % self.blocks.get(x.lower(), 1)) for x, n in zip(letters, data.shape)]
        if any(n for _, n in missing):  # np.pad copies where nothing is missing too
            data = np.pad(data, missing, mode)
        parts: dict[str, int] = {}
        for x, n in zip(letters, data.shape):
            block = self.blocks.get(x.lower())
            parts |= {x: n // block, x.lower(): block} if block else {x: n}
        order = list(parts)
        split = data.reshape(tuple(parts.values())).transpose([order.index(x) for d in self.dims for x in d])
        return np.ascontiguousarray(split.reshape([math.prod(parts[x] for x in d) for d in self.dims]))

    def order(self, sizes: Sizes, blocks: Mapping[str, int]) -> list[str]:
        """Axes that have more than one place in the order of storage, those of `blocks` in parts: layouts of one order are one memory."""
        out: list[str] = []
        for x in "".join(self.dims):
            block = blocks.get(x.lower())
            if x.islower() or not block:
                out += [x] if x.islower() or sizes[x] != 1 else []
            else:
                full = sizes[x] % block == 0
                split = [x, x.lower()] if x.lower() not in self.blocks and full else [x if full else x + "filled"]
                out += split if sizes[x] != block else split[1:]
        return out

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=256)
def _parse(name: str) -> tuple[tuple[str, ...], dict[str, int]]:
    dims: list[str] = []
    blocks: dict[str, int] = {}
    if _TOKEN.sub("", name):
        raise ValueError(f"layout {name!r}: letters of axes, (flattened ones), and blocks as 16c")
    for flat, count, inner, single in _TOKEN.findall(name):
        if inner:
            blocks[inner] = int(count)
        dims.append(flat or inner or single)
    letters = "".join(dims)
    if len(set(letters)) != len(letters) or any(x.upper() not in letters for x in blocks):
        raise ValueError(f"layout {name!r}: an axis twice, or a block of an axis that is not there")
    return tuple(dims), blocks


def whole(p: Any) -> Any:
    """A place along an axis as one index."""
    return p.outer * p.block + p.inner if isinstance(p, Blocked) else p


def is_same_memory(a: Layout, b: Layout, sizes: Sizes) -> bool:
    """Whether the same bytes are the value in both layouts, so that going from one to the other moves nothing."""
    blocks = {**a.blocks, **b.blocks}
    if any(blocks[x] != n for x, n in a.blocks.items()):  # blocks of 8 and of 16
        return False
    return a.order(sizes, blocks) == b.order(sizes, blocks)


def space(rank: int) -> str:
    """Letters of the spatial axes of a value of `rank` dimensions: batch and channels are the others."""
    return _SPACE[-(rank - 2) :] if rank > 2 else ""


def plain(rank: int) -> Layout:
    """NCHW, or the same of another rank."""
    return Layout("NC" + space(rank))


def plain_weights(rank: int) -> Layout:
    """OIHW, or the same of another rank."""
    return Layout("OI" + space(rank))
