"""Blocks of a paged cache: which are free, which texts hold each, and which hold what a prompt begins with.

A block that is full has a key: that of the block before it in its text, and its own tokens. A new text takes over the blocks whose keys its prompt has, and a block may be
a part of many texts, since a full one is never written again. A block that no text holds keeps its key until it is needed for something else; the one that was let go
first is taken first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableSequence, Sequence

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
        other = self._by_key.get(key)
        if other is not None:  # another text has the same in a block of its own
            self._content[block] = self._content[other]
            return
        self._last_content += 1
        self._content[block] = self._last_content
        self._by_key[key], self._keys[block] = block, key

    def content(self, block: int) -> int:
        """A number for what a full block and those before it in its text hold; 0 where that cannot be found any more."""
        return self._content[block]

    def _forget(self, block: int) -> None:
        key, self._keys[block], self._content[block] = self._keys[block], None, 0
        if key is not None:
            del self._by_key[key]


class WindowPool(BlockPool):
    """Blocks of layers with a window. A text holds those that its next token sees, and its table has as many entries as that of its other blocks: those before are its
    first block, whose keys the window hides."""

    def __init__(self, count: int, size: int, window: int):
        super().__init__(count, size)
        self.window = window

    def first(self, tokens: int) -> int:
        """The number of the first block that the token behind so many sees."""
        return max(0, tokens - self.window + 1) // self.size

    def forgotten(self, table: MutableSequence[int], gone: int, tokens: int) -> int:
        """Let blocks go that no token behind so many sees; `gone` are gone already. How many are gone then."""
        first = min(self.first(tokens), len(table) - 1)
        if first <= gone:
            return gone
        self.let_go(table[gone:first])
        for number in range(first):
            table[number] = table[first]
        return first

    def behind(self, contents: Sequence[int]) -> list[int] | None:
        """A table for a text that goes on behind blocks of these contents, whose last ones are held from now on; None where one that its next token sees is not there."""
        first = min(self.first(len(contents) * self.size), len(contents) - 1)
        blocks = [self._by_key.get((content, ())) for content in contents[first:]]
        found = [b for b in blocks if b is not None]
        if len(found) < len(blocks):
            return None
        for block in found:
            self._free.pop(block, None)
            self._holders[block] += 1
        return found[:1] * first + found

    def known(self, block: int, content: int) -> None:
        """A block is full, of what the other pool's block of this content holds."""
        key = content, ()
        if content and self._keys[block] is None and key not in self._by_key:
            self._by_key[key], self._keys[block] = block, key
