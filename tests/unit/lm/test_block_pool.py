"""Blocks of a cache: who holds them, what is found again, and a drawn life of many texts against a plain account of it."""

from __future__ import annotations

import random

import pytest

from tec.errors import ArgumentError
from tec.lm.block_pool import BlockPool
from tests import seeds


def fill(pool: BlockPool, tokens: list[int]) -> list[int]:
    """A text that is read: what is there is taken over."""
    blocks = pool.found(tokens)
    while len(blocks) * pool.size < len(tokens):
        block = pool.take()
        assert block is not None
        blocks.append(block)
    for number in range(len(tokens) // pool.size):
        pool.filled(blocks, number, tokens[number * pool.size : (number + 1) * pool.size])
    return blocks


def test_what_texts_begin_with_is_found():
    pool = BlockPool(8, 4)
    first = fill(pool, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert len(first) == 3 and pool.free == 5
    second = fill(pool, [1, 2, 3, 4, 5, 6, 7, 8, 0, 0])
    assert second[:2] == first[:2] and second[2] != first[2] and pool.free == 4
    assert pool.found([5, 6, 7, 8]) == [], "the same tokens behind others are another content"
    pool.let_go(first)
    assert pool.free == 5, "two are the second text's too"
    pool.let_go(second)
    again = pool.found([1, 2, 3, 4, 9, 9, 9, 9])
    assert again == first[:1]
    pool.let_go(again)
    assert [pool.take() for _ in range(9)].count(None) == 1
    assert pool.found([1, 2, 3, 4]) == [], "all blocks have been taken for something else"


def test_what_may_be_damaged_is_not_found():
    pool = BlockPool(4, 2)
    blocks = fill(pool, [1, 2, 3, 4])
    assert sorted(pool.let_go(blocks, forget=True)) == sorted(blocks)
    assert pool.found([1, 2, 3, 4]) == []
    with pytest.raises(ArgumentError, match="one at least"):
        BlockPool(0, 16)


@pytest.mark.parametrize("seed", seeds.some(20))
def test_a_drawn_life(seed):
    """No block is free and held; what is found holds the tokens that it is found by."""
    rng = random.Random(seed)
    size, count = rng.choice([1, 2, 4]), rng.randint(4, 24)
    pool, texts, held = BlockPool(count, size), [], {}
    content: dict[int, list[int]] = {}
    for _ in range(150):
        if texts and rng.random() < 0.45:
            k = rng.randrange(len(texts))
            tokens, blocks = texts.pop(k)
            forget = rng.random() < 0.2
            free = pool.let_go(blocks, forget=forget)
            for b in blocks:
                held[b] -= 1
            assert sorted(free) == sorted(b for b in blocks if not held[b])
            continue
        tokens = [rng.randint(0, 1) for _ in range(rng.randint(1, 4 * size))]
        blocks = pool.found(tokens)
        for k, b in enumerate(blocks):
            assert content[b] == tokens[: (k + 1) * size], "with all that comes before it"
            held[b] = held.get(b, 0) + 1
        while len(blocks) * size < len(tokens):
            b = pool.take()
            if b is None:
                break
            assert not held.get(b), "nobody has it"
            held[b] = 1
            content.pop(b, None)
            blocks.append(b)
        for k in range(min(len(tokens) // size, len(blocks))):
            pool.filled(blocks, k, tokens[k * size : (k + 1) * size])
            content[blocks[k]] = tokens[: (k + 1) * size]
        texts.append((tokens, blocks))
        assert pool.free == count - sum(1 for n in held.values() if n)
