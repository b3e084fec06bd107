"""Blocks of a paged cache: which are free, which texts hold each, and which hold what a prompt begins with.

A block that is full has a key: that of the block before it in its text, and its own tokens. A new text takes over the blocks whose keys its prompt has, and a block may be
a part of many texts, since a full one is never written again. A block that no text holds keeps its key until it is needed for something else; the one that was let go
first is taken first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ..errors import ArgumentError

Key = tuple[int, tuple[int, ...]]  # the block before, as a number that no other content had, and the tokens


class BlockPool:
    """`count` blocks of `size` tokens each."""

    def __init__(self, count: int, size: int):
        if count < 1 or size < 1:
            raise ArgumentError(f"{count} blocks of {size} tokens", hint="one at least")
        self.count, self.size = count, size
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))  # those let go first come first
        self._holders = [0] * count
        self._keys: list[Key | None] = [None] * count
        self._content = [0] * count  # a number for what a full block and those before it hold
        self._by_key: dict[Key, int] = {}
        self._last_content = 0

    @property
    def free(self) -> int:
        """Blocks that no text holds."""
        return len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens take."""
        return -(-tokens // self.size)

    def take(self) -> int | None:
        """A block that is held from now on, and has no content; None where none is free."""
        if not self._free:
            return None
        block, _ = self._free.popitem(last=False)
        self._forget(block)
        self._holders[block] = 1
        return block

    def hold(self, blocks: Sequence[int]) -> None:
        """Another text holds these blocks of one that does, too."""
        for block in blocks:
            self._holders[block] += 1

    def let_go(self, blocks: Sequence[int], *, forget: bool = False) -> list[int]:
        """A text holds these no more, the last ones first: what texts begin with stays longest. forget: what is in them is not to be found again. Those that no other
        text holds."""
        free = []
        for block in reversed(blocks):
            self._holders[block] -= 1
            if forget:
                self._forget(block)
            if not self._holders[block]:
                self._free[block] = None
                free.append(block)
        return free

    def found(self, tokens: Sequence[int]) -> list[int]:
        """The blocks that hold the first of some tokens, as many as there are; they are held from now on."""
        blocks: list[int] = []
        content = 0
        for first in range(0, len(tokens) - self.size + 1, self.size):
            block = self._by_key.get((content, tuple(tokens[first : first + self.size])))
            if block is None:
                break
            blocks.append(block)
            content = self._content[block]
        for block in blocks:
            self._free.pop(block, None)
            self._holders[block] += 1
        return blocks

    def filled(self, blocks: Sequence[int], number: int, tokens: Sequence[int]) -> None:
        """Block `number` of a text of `blocks` is full: of these tokens."""
        content = self._content[blocks[number - 1]] if number else 0
        block, key = blocks[number], (content, tuple(tokens))
        if (number and not content) or self._keys[block] is not None:
            return  # what comes before cannot be found any more
        self._last_content += 1
        self._content[block] = self._last_content
        if key not in self._by_key:  # another text has the same in a block of its own
            self._by_key[key], self._keys[block] = block, key

    def _forget(self, block: int) -> None:
        key, self._keys[block], self._content[block] = self._keys[block], None, 0
        if key is not None:
            del self._by_key[key]
