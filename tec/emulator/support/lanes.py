"""Sixteen lanes of several dwords, as memory has them (lane after lane) and as registers do (a vector for each dword): the shuffles between the two."""

from __future__ import annotations

from ..translate.ops import Out

STRIP = 16
VEC = "<16 x i32>"
_QUADS = range(0, STRIP, 4)  # an x86 shuffle within 128 bits costs the least


def _joined(b: Out, x: str, y: str, order: list[int], size: int = STRIP) -> str:
    """The dwords at `order` of two vectors of `size`."""
    places = ", ".join(f"i32 {k}" for k in order)
    return b.emit(f"shufflevector <{size} x i32> {x}, <{size} x i32> {y}, <{len(order)} x i32> <{places}>")


def _within(b: Out, x: str, y: str, four: tuple[int, ...]) -> str:
    """In each 128 bits the dwords `four`, 4 to 7 being those of `y`."""
    return _joined(b, x, y, [q + k % 4 + STRIP * (k // 4) for q in _QUADS for k in four])


def splat(b: Out, value: str) -> str:
    one = b.emit(f"insertelement {VEC} poison, i32 {value}, i64 0")
    return b.emit(f"shufflevector {VEC} {one}, {VEC} poison, <16 x i32> zeroinitializer")


def _crossed(b: Out, v: list[str]) -> list[str]:
    """Four by four dwords turned round in each 128 bits."""
    pairs = [[_within(b, v[i], v[i + 1], four) for i in (0, 2)] for four in ((0, 4, 1, 5), (2, 6, 3, 7))]
    return [_within(b, x, y, four) for x, y in pairs for four in ((0, 1, 4, 5), (2, 3, 6, 7))]


def load_each(b: Out, n: int, pointers: list[str]) -> list[str]:
    """Lanes of n dwords (2 or 4), each at its pointer, to a vector of each dword."""
    lanes = [b.emit(f"load <{n} x i32>, ptr {at}, align 1") for at in pointers]
    steps = (0, 1, 2, 3) if n == 4 else (0, 2)
    vectors = []
    for first in steps:
        parts, size = [lanes[q + first + j] for q in _QUADS for j in range(4 // n)], n
        while len(parts) > 1:
            parts = [_joined(b, x, y, list(range(2 * size)), size) for x, y in zip(parts[::2], parts[1::2])]
            size *= 2
        vectors.append(parts[0])
    if n == 2:
        return [_within(b, vectors[0], vectors[1], (k, k + 2, k + 4, k + 6)) for k in (0, 1)]
    return _crossed(b, vectors)


def store_each(b: Out, vectors: list[str], pointers: list[str]) -> None:
    """A vector of each dword (2 or 4 of them) to lanes of those dwords, each at its pointer."""
    n = len(vectors)
    if n == 4:
        rows = [(row, 4 * p + j, 4 * p) for j, row in enumerate(_crossed(b, vectors)) for p in range(4)]
    else:
        halves = [_within(b, vectors[0], vectors[1], four) for four in ((0, 4, 1, 5), (2, 6, 3, 7))]
        rows = [
            (row, 4 * p + 2 * j + i, 4 * p + 2 * i) for j, row in enumerate(halves) for p in range(4) for i in (0, 1)
        ]
    for row, lane, at in sorted(rows, key=lambda r: r[1]):
        value = _joined(b, row, "poison", list(range(at, at + n)))
        b.put(f"store <{n} x i32> {value}, ptr {pointers[lane]}, align 1")


def apart(b: Out, parts: list[str]) -> list[str]:
    """Lanes of n dwords (1, 2 or 4) in n vectors end to end, to a vector of each dword: n log n shuffles."""
    if len(parts) == 1:
        return parts
    if len(parts) == 2:
        return [_joined(b, parts[0], parts[1], [k + 2 * i for i in range(STRIP)]) for k in (0, 1)]
    # Of each pair first the halves of two dwords, then of both pairs the halves of one.
    halves = [
        [_joined(b, x, y, [k + d + 4 * i for d in (0, 1) for i in range(8)]) for k in (0, 2)]
        for x, y in (parts[:2], parts[2:])
    ]
    return [
        _joined(b, halves[0][k // 2], halves[1][k // 2], [8 * (k % 2) + x for x in (*range(8), *range(16, 24))])
        for k in range(4)
    ]
