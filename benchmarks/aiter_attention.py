"""aiter's kernels in assembly for attention and its gradient: their arguments, as `mha_fwd.cu` and `mha_bwd.cu` have them, and problems to hold them to NumPy.

Every argument takes 16 bytes; strides are in bytes. `sizes`: batch, heads, heads of keys, places, size of a head. In memory places lie before heads. Kernels whose name says "group" take
sequences of different lengths one after another: sequence i of the batch is 37 i places shorter.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np

import tec
from benchmarks.aiter_results import Arguments, Launch, Pairs, Read, compared, folder_of, row_of, values

BF16: Any = ml_dtypes.bfloat16


def _has_harness(name: str, row: dict[str, str]) -> None:
    if "q_format" in row:
        raise tec.TecError(f"{name}: attention with scales of blocks has no harness")
    if row["mask"] == "3":
        raise tec.TecError(f"{name}: attention within a window has no harness")
    if "_dq_shuffle" in name:
        raise tec.TecError(f"{name}: the order of what it puts in order is nowhere stated")


class Shape:
    """What the sizes and a kernel's row say of a problem: `kind`, the elements; `value`, the size of a head of values; `lengths` of the sequences and their first places."""

    def __init__(self, chip: str, name: str, sizes: tuple[int, ...]):
        self.row = row_of(chip, name)
        _has_harness(name, self.row)
        batch, self.heads, of_keys, self.length, self.size = (
            sizes if len(sizes) == 5 else (sizes[0], sizes[1], *sizes[1:])
        )
        self.batch, self.of_keys = batch, of_keys
        self.value = int(self.row["hdim_v"]) if self.size == int(self.row["hdim_q"]) else self.size
        dtype = self.row["dtype"]
        float8 = ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn
        self.kind: Any = {"fp16": np.float16, "bf16": BF16, "fp8bf16": float8}[dtype]
        self.group, self.causal = self.row["mode"] == "1", self.row["mask"] in ("1", "2")
        self.lengths = [self.length - 37 * i * self.group for i in range(batch)]
        self.first = list(itertools.accumulate(self.lengths, initial=0))
        self.total = self.first[-1]

    def starts(self) -> np.ndarray:
        return np.array(self.first, np.int32)

    def strides(self, heads: int, size: int, width: int = 2) -> tuple[int, int, int]:
        """Bytes from place to place, from head to head, from sequence to sequence (0 where they lie one after another)."""
        row = heads * size * width
        return row, size * width, 0 if self.group else self.length * row

    def drawn(self, rng: np.random.Generator, heads: int, size: int) -> np.ndarray:
        return rng.standard_normal((self.total, heads, size)).astype(self.kind)

    def split(self, x: np.ndarray) -> list[np.ndarray]:
        """The sequences of an array of (places, heads, size), as (heads, places, size) in float32, with a head for each of the queries'."""
        wide = np.repeat(x.astype(np.float32), self.heads // x.shape[1], 1)
        return [wide[a:b].transpose(1, 0, 2) for a, b in itertools.pairwise(self.first)]

    def joined(self, parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([x.transpose(1, 0, 2) for x in parts])

    def of_sums(self, parts: list[np.ndarray]) -> np.ndarray:
        """(heads, places) of each sequence as kernels have them: sequence by sequence, or heads outermost."""
        return np.ascontiguousarray(np.concatenate(parts, 1) if self.group else np.stack(parts), np.float32)


def _weights(s: Shape, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of one sequence: the weights, and the logarithm of their sums."""
    scores = q @ k.transpose(0, 2, 1) * s.size**-0.5
    if s.causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    lse = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
    return np.exp(scores - lse), lse


def block_tables(args: Arguments, places: int, tables: list[np.ndarray]) -> None:
    """Put tables behind the `places` arrays that come before them: addresses depend on them, also where nobody gives data."""
    given = list(reversed(args.data or []))
    given += [None] * (places - len(given))
    args.data = list(reversed([*given[:places], *tables]))


def forward(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """The log of the sums is asked for."""
    chip = args.driver.chip.name
    s = Shape(chip, name, sizes)
    width = np.dtype(s.kind).itemsize
    rows = int(s.row["ts_qo"])
    of_q, of_k = s.strides(s.heads, s.size, width), s.strides(s.of_keys, s.size, width)
    of_v, of_o = s.strides(s.of_keys, s.value, width), s.strides(s.heads, s.value)
    starts = [s.starts()] * 4 if s.group else []
    descales = [np.full(s.batch * h, 0.5, np.float32) for h in (s.heads, s.of_keys, s.of_keys)] if width == 1 else []
    block_tables(args, 5, [*starts, *descales])
    args.pointers(s.total * of_o[0], s.total * of_q[0], s.total * of_k[0], s.total * of_v[0], s.total * s.heads * 4)
    uneven = s.size == 192 and s.value == 128
    options = 3 if s.causal and (s.heads % 8 or s.length > 16384) else 5
    options = 0 if uneven and chip == "gfx942" else options
    args.numbers(s.size**-0.5, s.length, of_q[0], rows * of_q[0], *of_q[1:], s.heads // s.of_keys, *of_k, options, 1)
    args.numbers(s.length, s.size, s.value, s.heads, *of_v, *of_o)
    table = (s.batch + 1) * 4 if s.group else 0
    args.pointers(table, table).numbers((s.total if s.group else s.length) * 4).pointers(table, table)
    args.pointers(*(d.nbytes for d in descales)) if descales else args.pointers(0, 0, 0)
    args.numbers(*(n for h in (s.heads, s.of_keys, s.of_keys) for n in ((h * 4, 4) if descales else (0, 0))))
    tiles = -(-s.length // rows)
    pairs = -(-tiles // 2) if s.causal and not (uneven and chip == "gfx942" and s.group) else tiles
    grid = (s.heads, s.batch, pairs) if s.group else (pairs, s.heads, s.batch)
    if uneven and chip == "gfx942" and not s.group:
        grid = (s.heads, tiles, s.batch)
    return folder_of(chip, name), grid, 256 if uneven else 512


def gradient(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """One of the three kernels of the gradient, by their names: "odo" (sums of the result times its gradient), the gradients of the keys and values with a sum of that of the queries in
    float32 ("a32") or 16 bits ("a16"), and "dq_convert" of that sum to 16 bits. The keys' gradients have a head for each of the queries'."""
    chip = args.driver.chip.name
    s = Shape(chip, name, sizes)
    rows = int(s.row["ts"])
    of_q, of_k = s.strides(s.heads, s.size), s.strides(s.of_keys, s.size)
    of_v, of_o = s.strides(s.of_keys, s.value), s.strides(s.heads, s.value)
    sums, table = s.total * s.heads * 4, (s.batch + 1) * 4 if s.group else 0
    of_sums = (s.total if s.group else s.length) * 4
    starts = [s.starts()] * 4 if s.group else []
    where = folder_of(chip, name)
    whole_q, whole_o = s.total * of_q[0], s.total * of_o[0]
    if "_odo_" in name:
        block_tables(args, 3, starts[:2])
        args.pointers(whole_o, whole_o, sums)
        for _ in range(2):
            args.numbers(of_o[1], of_o[2], of_o[0])
        args.numbers(of_sums, 0 if s.group else s.heads * of_sums, 4, s.length, s.value)
        args.pointers(table, table)
        return where, (-(-s.length // rows), s.heads, s.batch), 256
    wide = s.row["atomic32"] == "1" or "_dq_convert_" in name
    padded = -(-s.length // 16) * 16
    acc_row = s.size * 4 if wide else (192 if s.size == 192 else 128) * 2
    acc_head = (s.total if s.group else s.length) * acc_row if wide else padded * acc_row
    acc = (1 if wide and s.group else s.batch) * s.heads * acc_head
    if "_dq_convert_" in name:
        block_tables(args, 2, starts[:2])
        args.pointers(acc, whole_q)
        args.numbers(acc_head, 0 if s.batch == 1 or (wide and s.group) else s.heads * acc_head, acc_row)
        args.numbers(of_q[1], of_q[2], of_q[0], s.length, s.size).pointers(table, table)
        return where, (-(-s.length // rows), s.heads, s.batch), 256
    direct = not wide and (chip == "gfx942" or s.size == 64)
    acc = whole_q if direct else acc
    given = list(reversed(args.data or []))
    block_tables(args, 9, starts)
    if given:
        args.pointers(acc)
    else:
        args.zeros(acc)
    args.pointers(whole_q, whole_o, whole_q, s.total * of_k[0], s.total * of_v[0], whole_o, sums, sums)
    args.numbers(s.size**-0.5, math.log2(math.e), s.length, rows * of_k[0], of_q[1], of_q[2], of_q[0])
    args.numbers(s.heads // s.of_keys, of_k[1], of_k[2], of_k[0], of_q[0], s.length, s.size, s.value, s.heads)
    args.numbers(of_v[1], of_v[2], of_v[0], of_o[1], of_o[2], of_o[0], of_q[1], of_q[2], of_o[1], of_o[2], of_o[0])
    args.numbers(of_sums).pointers(table, table, table, table).numbers(s.length if wide else padded, 0, 0)
    tiles = -(-s.length // rows)
    return where, (-(-tiles // 2) if s.causal else tiles, s.heads, s.batch), 256


def forward_problem(chip: str, name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> Any:
    s = Shape(chip, name, sizes)
    q, k, v = s.drawn(rng, s.heads, s.size), s.drawn(rng, s.of_keys, s.size), s.drawn(rng, s.of_keys, s.value)
    scale = 0.5 if s.row["dtype"].startswith("fp8") else 1.0
    parts, sums = [], []
    for a, b, c in zip(s.split(q), s.split(k), s.split(v)):
        p, lse = _weights(s, a * scale, b * scale)
        parts.append(p @ (c * scale))
        sums.append(lse[..., 0])
    out = np.zeros((s.total, s.heads, s.value), BF16)
    want, logs = s.joined(parts), s.of_sums(sums)
    return [out, q, k, v, np.zeros_like(logs)], lambda read: [
        (values(read, 0, BF16, want.shape), want),
        (values(read, 4, np.float32, logs.shape), logs),
    ]


def gradient_problem(chip: str, name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> Any:
    """One of the kernels of the gradient, from the results of those before it by NumPy."""
    s = Shape(chip, name, sizes)
    q, k = s.drawn(rng, s.heads, s.size), s.drawn(rng, s.of_keys, s.size)
    v, do = s.drawn(rng, s.of_keys, s.value), s.drawn(rng, s.heads, s.value)
    rows = list[tuple[np.ndarray, ...]]()
    outputs = []
    for a, b, c, d in zip(s.split(q), s.split(k), s.split(v), s.split(do)):
        p, lse = _weights(s, a, b)
        o = (p @ c).astype(s.kind).astype(np.float32)
        sums = (o * d).sum(-1)
        ds = p * (d @ c.transpose(0, 2, 1) - sums[..., None]) * s.size**-0.5
        rows.append((ds @ b, ds.transpose(0, 2, 1) @ a, p.transpose(0, 2, 1) @ d, lse[..., 0], sums))
        outputs.append(o)
    dq, dk, dv = (s.joined([r[i] for r in rows]) for i in range(3))
    lse, sums = (s.of_sums([r[i] for r in rows]) for i in (3, 4))
    out_q, out_v = np.zeros(q.shape, s.kind), np.zeros(do.shape, s.kind)
    if "_odo_" in name:
        return [s.joined(outputs).astype(s.kind), do, np.zeros_like(sums)], compared(2, np.float32, sums)
    by_head = [r[0] for r in rows]
    dq_sums = np.concatenate(by_head, 1) if s.group else np.stack(by_head)
    if "_dq_convert_" in name:
        return [dq_sums, out_q], compared(1, s.kind, dq)
    wide = s.row["atomic32"] == "1"
    direct = not wide and (chip == "gfx942" or s.size == 64)
    acc: np.ndarray = np.zeros(dq_sums.shape, np.float32) if wide else out_q
    if not wide and not direct:
        acc = np.zeros((s.batch, s.heads, -(-s.length // 16) * 16, 192 if s.size == 192 else 128), np.uint16)
    arrays = [acc, out_q, out_v, q, k, v, do, lse, sums]

    def pairs(read: Read) -> Pairs:
        found = [(values(read, 1, s.kind, dk.shape), dk), (values(read, 2, s.kind, dv.shape), dv)]
        if wide:
            return [(values(read, 0, np.float32, dq_sums.shape), dq_sums), *found]
        if direct:
            return [(values(read, 0, s.kind, dq.shape), dq), *found]
        # the order of these sums is nowhere stated: as a set they are the gradient's, and zeros
        got = np.sort(values(read, 0, s.kind, acc.shape).reshape(-1))
        want = np.zeros(got.shape, np.float32)
        want[: dq.size] = dq.reshape(-1)
        return [(got, np.sort(want)), *found]

    return arrays, pairs


def draw(chip: str, name: str, rng: np.random.Generator) -> tuple[tuple[int, ...], int]:
    """Sizes that a kernel's tile takes, and one split. Causal kernels get one tile: a work-group with two of them reads LDS while it writes it (see docs/amd-model.md)."""
    row = row_of(chip, name)
    _has_harness(name, row)
    size, tile = int(row["hdim_q"]), int(row["ts_qo"] if name.startswith("fwd") else row["ts"])
    one = row["mask"] != "0"
    length = tile if one else tile * int(rng.integers(1, 3)) if tile < 192 else tile
    if row.get("pssk") == "1" or row["mode"] == "1":
        length -= int(rng.integers(0, 9))
    batch, heads = (2, 1) if row["mode"] == "1" else (1, 2)
    of_keys = 1 if rng.integers(2) else heads
    if row.get("pddv") == "1":
        size -= 8 * int(rng.integers(0, 4)) if size == int(row["hdim_v"]) else 0
    return (batch, heads, of_keys, length, size), 1
