"""Random programs over tiles as Python text: elementwise work, reductions, scans, sorts, views, loops, branches, products.

The text runs as a kernel of tec.tile, and as the Python that it is with `tl` a few functions of NumPy (`NumPyTiles`), which know nothing of how a kernel is read.
Numbers are whole and stay below 1,024 between statements, so that both give the same.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

SIDES = (1, 2, 4, 8, 16, 32)


class Writer:
    """Writes one program of two arguments x and y, tiles of one shape, to a tile of that shape."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.rows, self.columns = self.r.choice(SIDES[2:]), self.r.choice(SIDES[2:])
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0

    def text(self) -> str:
        for _ in range(self.r.randint(3, 7)):
            self.statement(2)
        m, n = self.rows, self.columns
        body = "\n".join(self.lines)
        return f"""import tec.tile as tl


@tl.jit
def body(a, b, s, M: tl.constexpr, N: tl.constexpr):
{body}
    return (a + 3 * b) & 1023


@tl.jit
def kernel(x, y, out, s, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :] + tl.program_id(0) * M * N
    tl.store(out + at, body(tl.load(x + at), tl.load(y + at), s + tl.program_id(0), M, N))


M, N = {m}, {n}
"""

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def statement(self, deep: int) -> None:
        v, w = self.r.choice("ab"), self.r.choice("ab")
        kinds = ["elementwise", "elementwise", "reduce", "view", "order", "product"]
        if deep:
            kinds += ["loop", "branch"]
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

    int32, float16 = np.int32, np.float16

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
    def sort(x: Any, descending: bool = False) -> Any:
        made = np.sort(x, -1)
        return made[..., ::-1] if descending else made

    @staticmethod
    def gather(x: Any, index: Any, axis: int) -> Any:
        return np.take_along_axis(x, index.astype(np.int64), axis)

    @staticmethod
    def dot(x: Any, y: Any) -> Any:
        return x.astype(np.float32) @ y.astype(np.float32)


def expected(text: str, x: np.ndarray, y: np.ndarray, s: int) -> np.ndarray:
    """What a program of tiles [programs, M, N] computes, by NumPy."""
    names: dict[str, Any] = {}
    exec(text.replace("import tec.tile as tl\n", ""), names | {"tl": NumPyTiles}, names)
    m, n = names["M"], names["N"]
    with np.errstate(all="ignore"):
        return np.stack([np.asarray(names["body"](a, b, np.int32(s + k), m, n)) for k, (a, b) in enumerate(zip(x, y))])
