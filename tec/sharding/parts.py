"""Whole arrays and the ranks' parts of them, by how inputs and outputs lie along the mesh axes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, PackageError
from .mesh import Mesh, Partial, Placement, Replicate, Shard
from .splitter import Notes


class Ends:
    """By the names of inputs and weights, and "output NAME": the placements along the mesh axes that have ranks, in their order."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, Placement]] = {}

    def add(self, axis: str, placed: Mapping[str, Placement]) -> None:
        for name, p in placed.items():
            self.of.setdefault(name, {})[axis] = p

    def shards(self, name: str) -> list[tuple[str, Shard]]:
        """The axes that split a value, outermost first."""
        return [(a, p) for a, p in self.of.get(name, {}).items() if isinstance(p, Shard)]

    def whole(self, end: dict[str, Any], name: str, mesh: Mesh) -> dict[str, Any]:
        """An input or output as a whole, of a rank's part."""
        shape = list(end["shape"])
        for axis, p in self.shards(name):
            if isinstance(shape[p.dim], int):
                shape[p.dim] *= mesh.axes[axis] // p.copies
        return {**end, "shape": shape}

    def part(self, array: Any, name: str, mesh: Mesh, rank: int) -> Any:
        """A rank's part of a whole array. ArgumentError where the ranks do not divide it."""
        if not self.shards(name):
            return array
        own, at = np.asarray(array) if not isinstance(array, np.ndarray) else array, mesh.coordinates(rank)
        for axis, p in self.shards(name):
            parts = mesh.axes[axis] // p.copies
            if own.ndim <= p.dim or own.shape[p.dim] % parts:
                raise ArgumentError(
                    f"input {name}: shape {np.shape(array)} cannot be divided into {parts} parts along dimension {p.dim}, for mesh axis {axis!r}",
                    hint="a size that is a multiple of the ranks",
                )
            size = own.shape[p.dim] // parts
            first = at[axis] // p.copies * size
            own = own[(slice(None),) * p.dim + (slice(first, first + size),)]
        return np.ascontiguousarray(own)

    def joined(self, parts: Sequence[Any], name: str, mesh: Mesh) -> Any:
        """The whole array of all ranks' parts."""
        held = np.empty(mesh.size, object)
        held[:] = list(parts)
        grid = held.reshape(tuple(mesh.axes.values()))
        shards = dict(self.shards(name))
        for axis in reversed(list(mesh.axes)):
            p = shards.get(axis)
            lines = grid.reshape(-1, grid.shape[-1])
            made = np.empty(len(lines), object)
            for k, line in enumerate(lines):
                made[k] = line[0] if p is None else np.concatenate(list(line[:: p.copies]), p.dim)
            grid = made.reshape(grid.shape[:-1])
        return grid.item()

    def write(self, path: Path, mesh: Mesh, notes: Mapping[str, Notes]) -> None:
        data = {
            "axes": mesh.axes,
            "ends": {n: {a: _to_json(p) for a, p in at.items()} for n, at in self.of.items()},
            "notes": {
                a: {"placements": n.placements, "replicated": n.replicated, "moved": n.moved} for a, n in notes.items()
            },
        }
        path.write_text(json.dumps(data))

    @classmethod
    def read(cls, path: Path) -> tuple[dict[str, int], Ends, dict[str, Notes]]:
        try:
            data = json.loads(path.read_text())
            made = cls()
            made.of = {n: {a: _from_json(p) for a, p in at.items()} for n, at in data["ends"].items()}
            notes = {
                a: Notes(
                    n["placements"],
                    [(r[0], r[1], r[2]) for r in n["replicated"]],
                    [(m[0], int(m[1]), m[2]) for m in n["moved"]],
                )
                for a, n in data["notes"].items()
            }
            return dict(data["axes"]), made, notes
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise PackageError(
                f"{path} is no sharded network: {type(error).__name__} {error}", hint="ShardedNetwork.save writes one"
            ) from None


def _to_json(p: Placement) -> Any:
    return [p.dim, p.copies] if isinstance(p, Shard) else p.reduction if isinstance(p, Partial) else None


def _from_json(p: Any) -> Placement:
    return Replicate() if p is None else Partial(p) if isinstance(p, str) else Shard(int(p[0]), int(p[1]))


def described(mesh: Mesh, notes: Mapping[str, Notes]) -> str:
    """Text about a split."""
    lines = [f"{mesh}, {mesh.size} ranks"]
    for axis, n in notes.items():
        lines.append(f"along {axis!r}:")
        split = {k: v for k, v in n.placements.items() if v != "Replicate()"}
        whole = [k for k in n.placements if k not in split]
        lines += [f"  {k}: {v}" for k, v in split.items()]
        if whole:
            lines.append(f"  whole on every rank: {', '.join(whole)}")
        kinds: dict[str, list[int]] = {}
        for kind, size, _ in n.moved:
            kinds.setdefault(kind, []).append(size)
        lines += [f"  {len(s)} {kind} of {sum(s)} bytes a rank" for kind, s in kinds.items()]
        lines += [f"  runs whole: {op} ({origin}): {why}" for op, origin, why in n.replicated]
    return "\n".join(lines)
