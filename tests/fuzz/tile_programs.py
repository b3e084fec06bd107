"""Random programs over tiles as Python text: elementwise work, reductions, scans, sorts, views, loops, branches, products; loads by pointers, which a loop may exchange, by
block pointers and by descriptors, beyond the edges too; stores, and atomic additions under masks.

The text runs as a kernel of tec.tile, and as the Python that it is with `tl` a few functions of NumPy (`NumPyTiles`), which know nothing of how a kernel is read.
Numbers are whole and stay below 1,024 between statements, so that both give the same.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

SIDES = (1, 2, 4, 8, 16, 32)

# How a kernel loads its two tiles; R and C say how far on from its own tile that of `a` begins.
LOADS = {
    "pointers": """
    a, b = tl.load(x + at), tl.load(y + at)""",
    "exchanged": """
    p, q = x + at, y + at
    for i in range(0, s & 3):
        p, q = q, p
    a, b = tl.load(p), tl.load(q)""",
    "block": """
    size = tl.num_programs(0) * M
    p = tl.make_block_ptr(x, (size, N), (N, 1), (tl.program_id(0) * M + R, C), (M, N), (1, 0))
    a, b = tl.load(p, boundary_check=(0, 1), padding_option="zero"), tl.load(y + at)""",
    "descriptor": """
    p = tl.make_tensor_descriptor(x, shape=[tl.num_programs(0) * M, N], strides=[N, 1], block_shape=[M, N])
    a, b = p.load([tl.program_id(0) * M + R, C]), tl.load(y + at)""",
    "masked": """
    a, b = tl.load(x + at, mask=at % N < N - C, other=R), tl.load(y + at)""",
}


class Writer:
    """Writes one program of two arguments x and y, tiles of one shape, to a tile of that shape."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.rows, self.columns = self.r.choice(SIDES[2:]), self.r.choice(SIDES[2:])
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.loads = self.r.choice(list(LOADS))
        self.down, self.right = self.r.randint(0, self.rows), self.r.randint(0, self.columns)
        self.least = self.r.randint(0, 3)  # of a result's two low bits, for an atomic addition

    def text(self) -> str:
        for _ in range(self.r.randint(3, 7)):
            self.statement(2)
        m, n = self.rows, self.columns
        body = "\n".join(self.lines)
        return f"""import tec.tile as tl


@tl.jit
def after(a, b, c, d):
    return (a * c) & 1023, (b * c + d) & 1023


@tl.jit
def larger(a, b, c, d):
    first = (a > c) | ((a == c) & (b > d))
    return tl.where(first, a, c), tl.where(first, b, d)


@tl.jit
def body(a, b, s, M: tl.constexpr, N: tl.constexpr):
{body}
    return (a + 3 * b) & 1023


@tl.jit
def kernel(x, y, out, counts, s, M: tl.constexpr, N: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :] + tl.program_id(0) * M * N{LOADS[self.loads]}
    made = body(a, b, s + tl.program_id(0), M, N)
    tl.store(out + at, made)
    tl.atomic_add(counts + (made & 15), made >> 4, mask=(made & 3) >= {self.least})


M, N, R, C = {m}, {n}, {self.down}, {self.right}
"""

    def loaded(self, x: np.ndarray, y: np.ndarray, k: int, s: int) -> tuple[np.ndarray, np.ndarray]:
        """The tiles that program k loads of x and y [programs, M, N]."""
        m, n = self.rows, self.columns
        if self.loads == "exchanged" and (s & 3) % 2:
            return y[k], x[k]
        if self.loads in ("block", "descriptor"):
            wide = np.zeros((x.shape[0] * m + m, 2 * n), x.dtype)
            wide[: x.shape[0] * m, :n] = x.reshape(-1, n)
            first = k * m + self.down
            return wide[first : first + m, self.right : self.right + n], y[k]
        if self.loads == "masked":
            return np.where(np.arange(n) < n - self.right, x[k], self.down).astype(x.dtype), y[k]
        return x[k], y[k]

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def statement(self, deep: int) -> None:
        v, w = self.r.choice("ab"), self.r.choice("ab")
        kinds = ["elementwise", "elementwise", "reduce", "view", "order", "product", "pairs", "packed"]
        if deep:
            kinds += ["loop", "branch", "until"]
        getattr(self, self.r.choice(kinds))(v, w, deep)
        self.put(f"{v} = {v} & 1023")

    def elementwise(self, v: str, w: str, deep: int) -> None:
        c = self.r.randint(1, 9)
        self.put(
            self.r.choice(
                [
                    f"{v} = {v} + {w} * {c}",
                    f"{v} = tl.where({v} > {w}, {v} - {w}, {w} ^ {c})",
                    f"{v} = tl.maximum({v}, {w} // {c})",
                    f"{v} = tl.minimum({v}, {w}) + s",
                    f"{v} = ({v} << 2) | ({w} >> 1)",
                    f"{v} = ({v} % {c}) * ({w} % 31)",
                    f"{v} = tl.where(({v} + {c}) % 2 == 0, {w}, {v})",
                ]
            )
        )

    def reduce(self, v: str, w: str, deep: int) -> None:
        axis = self.r.choice([0, 1])
        back = "[None, :]" if axis == 0 else "[:, None]"
        fn = self.r.choice(["sum", "max", "min", "argmax", "argmin"])
        self.put(f"t{self.count} = tl.{fn}({w}, axis={axis})")
        self.put(f"{v} = {v} + t{self.count}{back}")
        self.count += 1
        if self.r.random() < 0.3:
            self.put(f"{v} = {v} + tl.sum(tl.max({w}, axis=1), axis=0)")

    def view(self, v: str, w: str, deep: int) -> None:
        m, n = "M", "N"
        self.put(
            self.r.choice(
                [
                    f"{v} = {v} + tl.reshape(tl.trans({w}), {m}, {n})",
                    f"{v} = tl.reshape(tl.trans(tl.reshape({w}, {m} * {n} // 4, 4)), {m}, {n})",
                    f"{v} = tl.sum(tl.reshape(tl.join({v}, {w}), 2, {m}, {n}), axis=0)",
                    f"{v} = {v} + tl.flip({w}, 1)",
                    f"{v} = {v} ^ tl.broadcast_to(tl.arange(0, {n})[None, :], {m}, {n})",
                ]
            )
        )

    def order(self, v: str, w: str, deep: int) -> None:
        axis = self.r.choice([0, 1])
        self.put(
            self.r.choice(
                [
                    f"{v} = tl.cumsum({w}, axis={axis})",
                    f"{v} = tl.cumsum({v}, axis={axis}, reverse=True) - {w}",
                    f"{v} = tl.sort({w})",
                    f"{v} = tl.sort({v}, descending=True) + {w}",
                    f"{v} = tl.gather({w}, {v} & ({'M' if axis == 0 else 'N'} - 1), {axis})",
                ]
            )
        )

    def product(self, v: str, w: str, deep: int) -> None:
        """Of small numbers, exact in float16 with sums in float32."""
        self.put(f"p = tl.dot(tl.cast({v} & 7, tl.float16), tl.trans(tl.cast({w} & 7, tl.float16)))")
        self.put("q = tl.sum(tl.cast(p, tl.int32), axis=1)")
        self.put(f"{v} = {v} + q[:, None]")

    def pairs(self, v: str, w: str, deep: int) -> None:
        """Scans and reductions whose state has two parts; a reduction's combiner takes its elements in any order."""
        axis, n = self.r.choice([0, 1]), self.count
        self.count += 1
        back = "[None, :]" if axis == 0 else "[:, None]"
        if self.r.random() < 0.6:
            way = self.r.choice(["", ", reverse=True"])
            self.put(f"t{n}, u{n} = tl.associative_scan(({v}, {w}), {axis}, after{way})")
            self.put(f"{v} = t{n} + u{n}")
        else:
            self.put(f"t{n}, u{n} = tl.reduce(({v}, {w}), {axis}, larger)")
            self.put(f"{v} = {v} + (t{n} ^ u{n}){back}")

    def packed(self, v: str, w: str, deep: int) -> None:
        """Numbers of four bits in a byte, unpacked side by side; products of several small matrices."""
        n = self.count
        self.count += 1
        if self.r.random() < 0.5:
            self.put(f"t{n} = tl.cast({w} & 255, tl.int8)")
            self.put(f"t{n} = tl.interleave(tl.cast(t{n} & 15, tl.int32), tl.cast((t{n} >> 4) & 15, tl.int32))")
            self.put(f"{v} = {v} + tl.sum(tl.reshape(t{n}, 2, M, N), axis=0)")
        else:
            self.put(f"t{n} = tl.reshape(tl.cast({v} & 7, tl.float16), 2, M // 2, N)")
            self.put(f"u{n} = tl.permute(tl.reshape(tl.cast({w} & 7, tl.float16), 2, M // 2, N), (0, 2, 1))")
            self.put(f"t{n} = tl.sum(tl.cast(tl.dot(t{n}, u{n}), tl.int32), axis=2)")
            self.put(f"{v} = {v} + tl.reshape(t{n}, M, 1)")

    def until(self, v: str, w: str, deep: int) -> None:
        """A loop whose end what it computes decides."""
        n = self.count
        self.count += 1
        self.put(f"n{n} = s & 1")
        self.put(f"while n{n} < 4:")
        self.depth += 1
        self.put(f"{v} = {v} + n{n}")
        self.statement(deep - 1)
        self.put(f"n{n} = n{n} + 1 + tl.sum(tl.max({w}, axis=1), axis=0) % 2")
        self.depth -= 1

    def loop(self, v: str, w: str, deep: int) -> None:
        self.put(f"for i{self.count} in range(0, {self.r.choice(['3', 's & 3', '2'])}):")
        name = f"i{self.count}"
        self.count += 1
        self.depth += 1
        self.put(f"{v} = {v} + {name}")
        for _ in range(self.r.randint(1, 2)):
            self.statement(deep - 1)
        self.depth -= 1

    def branch(self, v: str, w: str, deep: int) -> None:
        self.put(f"if tl.sum({w}) % 2 == 0:" if self.r.random() < 0.5 else "if (s & 1) == 0:")
        self.depth += 1
        self.statement(deep - 1)
        self.depth -= 1
        if self.r.random() < 0.6:
            self.put("else:")
            self.depth += 1
            self.statement(deep - 1)
            self.depth -= 1


class NumPyTiles:
    """`tl` for programs that run as plain Python."""

    int8, int32, float16 = np.int8, np.int32, np.float16

    @staticmethod
    def jit(f: Any) -> Any:
        return f

    constexpr = int
    where = staticmethod(np.where)
    maximum = staticmethod(np.maximum)
    minimum = staticmethod(np.minimum)

    @staticmethod
    def sum(x: Any, axis: int | None = None) -> Any:
        return np.sum(x, axis=axis, dtype=np.int32)

    @staticmethod
    def max(x: Any, axis: int) -> Any:
        return np.max(x, axis)

    @staticmethod
    def min(x: Any, axis: int) -> Any:
        return np.min(x, axis)

    @staticmethod
    def argmax(x: Any, axis: int) -> Any:
        return np.argmax(x, axis).astype(np.int32)

    @staticmethod
    def argmin(x: Any, axis: int) -> Any:
        return np.argmin(x, axis).astype(np.int32)

    @staticmethod
    def cast(x: Any, dtype: Any) -> Any:
        return x.astype(dtype)

    @staticmethod
    def trans(x: Any) -> Any:
        return x.T

    @staticmethod
    def reshape(x: Any, *shape: int) -> Any:
        return np.ascontiguousarray(x).reshape(shape)

    @staticmethod
    def join(x: Any, y: Any) -> Any:
        return np.stack([x, y], -1)

    @staticmethod
    def flip(x: Any, axis: int) -> Any:
        return np.flip(x, axis)

    @staticmethod
    def broadcast_to(x: Any, *shape: int) -> Any:
        return np.broadcast_to(x, shape)

    @staticmethod
    def arange(low: int, high: int) -> Any:
        return np.arange(low, high, dtype=np.int32)

    @staticmethod
    def cumsum(x: Any, axis: int, reverse: bool = False) -> Any:
        if reverse:
            return np.flip(np.cumsum(np.flip(x, axis), axis, dtype=np.int32), axis)
        return np.cumsum(x, axis, dtype=np.int32)

    @staticmethod
    def associative_scan(tiles: tuple[Any, Any], axis: int, combine: Any, reverse: bool = False) -> tuple[Any, Any]:
        a, b = (np.moveaxis(t, axis, 0)[:: -1 if reverse else 1].copy() for t in tiles)
        for k in range(1, len(a)):
            a[k], b[k] = combine(a[k - 1], b[k - 1], a[k], b[k])
        x, y = (np.moveaxis(t[:: -1 if reverse else 1], 0, axis) for t in (a, b))
        return x, y

    @staticmethod
    def reduce(tiles: tuple[Any, Any], axis: int, combine: Any) -> tuple[Any, Any]:
        x, y = (np.take(t, -1, axis) for t in NumPyTiles.associative_scan(tiles, axis, combine))
        return x, y

    @staticmethod
    def interleave(x: Any, y: Any) -> Any:
        return np.stack([x, y], -1).reshape(*x.shape[:-1], -1)

    @staticmethod
    def permute(x: Any, order: tuple[int, ...]) -> Any:
        return x.transpose(order)

    @staticmethod
    def sort(x: Any, descending: bool = False) -> Any:
        made = np.sort(x, -1)
        return made[..., ::-1] if descending else made

    @staticmethod
    def gather(x: Any, index: Any, axis: int) -> Any:
        return np.take_along_axis(x, index.astype(np.int64), axis)

    @staticmethod
    def dot(x: Any, y: Any) -> Any:
        return x.astype(np.float32) @ y.astype(np.float32)


def expected(writer: Writer, text: str, x: np.ndarray, y: np.ndarray, s: int) -> tuple[np.ndarray, np.ndarray]:
    """What a program of tiles [programs, M, N] computes and counts, by NumPy."""
    names: dict[str, Any] = {}
    exec(text.replace("import tec.tile as tl\n", ""), names | {"tl": NumPyTiles}, names)
    m, n = names["M"], names["N"]
    body, counts = names["body"], np.zeros(16, np.int32)
    body.__globals__.update(after=names["after"], larger=names["larger"])
    with np.errstate(all="ignore"):
        tiles = [writer.loaded(x, y, k, s) for k in range(len(x))]
        made = np.stack([np.asarray(body(a, b, np.int32(s + k), m, n)) for k, (a, b) in enumerate(tiles)])
        np.add.at(counts, made & 15, (made >> 4) * ((made & 3) >= writer.least))
    return made, counts
