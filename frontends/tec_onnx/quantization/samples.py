"""Samples to calibrate with: what a model is run on, from arrays, `.npz` and `.npy` files or a folder of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tec import ImportModelError

Feeds = dict[str, Any]  # an array an input


def samples_of(source: Any, inputs: Mapping[str, tuple[str, Sequence[int | str | None]]]) -> list[Feeds]:
    """What the model is run on, one entry a run, from `source`: a mapping of arrays, an iterable of mappings, or a path.

    A path is a `.npz` file (arrays by the names of inputs), a `.npy` file (for a model of one input) or a folder of such files. Where arrays have
    more along the first dimension than the model's batch, they are several runs. Raises ImportModelError.
    """
    found: list[Feeds] = []
    for feeds, where in _read(source, inputs):
        missing = [n for n in inputs if n not in feeds]
        if missing:
            raise ImportModelError(
                f"{where} has no array {missing[0]!r}; it has {', '.join(map(repr, feeds)) or 'none'}",
                hint=f"inputs: {', '.join(inputs)}",
            )
        found += _runs({n: np.asarray(feeds[n]) for n in inputs}, inputs, where)
    if not found:
        raise ImportModelError(
            "no samples to calibrate with", hint="a .npz of the inputs' arrays, or a folder of such files"
        )
    return found


def _read(source: Any, inputs: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.exists():
            raise ImportModelError(
                f"{path}: no such file or folder", hint="--calibrate takes .npz or .npy files, or a folder of them"
            )
        files = sorted(p for p in path.iterdir() if p.suffix in (".npz", ".npy")) if path.is_dir() else [path]
        if not files:
            raise ImportModelError(
                f"{path} has no .npz and no .npy files",
                hint="one .npz for each sample, with arrays by the names of inputs",
            )
        for file in files:
            yield _load(file, inputs), str(file)
    elif isinstance(source, Mapping):
        yield source, "the samples"
    elif isinstance(source, Iterable):
        for k, feeds in enumerate(source):
            if not isinstance(feeds, Mapping):
                raise ImportModelError(f"sample {k} is a {type(feeds).__name__}", hint="{input: array}")
            yield feeds, f"sample {k}"
    else:
        raise ImportModelError(
            f"samples are a {type(source).__name__}", hint="{input: array}, a list of such, or a path"
        )


def _load(file: Path, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        data = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise ImportModelError(f"{file} cannot be read: {e}", hint="numpy.savez writes such files") from None
    if isinstance(data, np.ndarray):
        if len(inputs) != 1:
            raise ImportModelError(
                f"{file} is one array, and the model has inputs {', '.join(inputs)}",
                hint="save them as .npz, by their names",
            )
        return {next(iter(inputs)): data}
    with data:
        return {n: data[n] for n in data.files}


def _runs(feeds: Feeds, inputs: Mapping[str, tuple[str, Sequence[int | str | None]]], where: str) -> list[Feeds]:
    """The runs that arrays hold: as many as the batch goes into them."""
    batches = set()
    for name, (dtype, dims) in inputs.items():
        x = feeds[name]
        if x.ndim != len(dims) or any(isinstance(n, int) and n != m for n, m in zip(dims[1:], x.shape[1:])):
            raise ImportModelError(
                f"{where}: {name!r} has shape {x.shape}, the model takes ({', '.join(map(str, dims))})",
                hint="the first dimension may hold several samples; the others are the model's",
            )
        batch = dims[0] if dims and isinstance(dims[0], int) else 1
        if dims and (x.shape[0] == 0 or x.shape[0] % batch):
            raise ImportModelError(
                f"{where}: {name!r} has {x.shape[0]} entries, the model takes {batch} at a time",
                hint="a multiple of the batch that the model fixes",
            )
        batches.add((x.shape[0] // batch, batch) if dims else (1, 1))
        feeds[name] = x.astype(dtype, copy=False)
    counts = {n for n, _ in batches}
    if counts == {1} or len(counts) > 1:
        return [feeds]  # arrays of other counts are no list of samples
    (count,) = counts
    size = {n: (dims[0] if isinstance(dims[0], int) else 1) for n, (_, dims) in inputs.items()}
    return [{n: x[k * size[n] : (k + 1) * size[n]] for n, x in feeds.items()} for k in range(count)]
