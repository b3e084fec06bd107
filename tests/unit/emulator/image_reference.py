"""What image instructions give, in NumPy: elements by addressing mode, filters with weights of eight bits. Written from the RDNA manuals and the tests' own reading of formats."""

from __future__ import annotations

import numpy as np


def wrap(i: np.ndarray, n: int, mode: str) -> np.ndarray:
    """Indices by addressing mode; -1 for the border."""
    if mode == "wrap":
        return i % n
    if mode == "mirror":
        m = i % (2 * n)
        return np.where(m >= n, 2 * n - 1 - m, m)
    if mode == "clamp":
        return np.clip(i, 0, n - 1)
    return np.where((i < 0) | (i >= n), -1, i)


def axis(
    x: np.ndarray, n: int, mode: str, linear: bool, normalized: bool, offset: np.ndarray | int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(index, weight) of the elements that a coordinate takes."""
    scaled = np.rint(x.astype(np.float64) * (n if normalized else 1) * 256).astype(np.int64)
    if not linear:
        return [(wrap((scaled >> 8) + offset, n, mode), np.ones(len(x)))]
    scaled -= 128
    weight = (scaled & 255) / 256
    first = (scaled >> 8) + offset
    return [(wrap(first, n, mode), 1 - weight), (wrap(first + 1, n, mode), weight)]


def sample(image: np.ndarray, coordinates: list[np.ndarray], modes: tuple[str, ...], linear: bool, normalized: bool,
           layer: np.ndarray | None = None, offsets: list | None = None, reference: np.ndarray | None = None, border: float = 0.0) -> np.ndarray:  # fmt: skip
    """`image`: (z, y, x, channels); coordinates x, y and z; of a layered image x and y, and `layer`."""
    shape = image.shape[:3][::-1]
    taps = [axis(c, n, m, linear, normalized, o) for c, n, m, o in zip(coordinates, shape, modes, offsets or [0, 0, 0])]
    lanes = len(coordinates[0])
    while len(taps) < 3:
        taps.append([(np.zeros(lanes, int), np.ones(lanes))])
    if layer is not None:
        taps[2] = [(np.clip(np.rint(layer), 0, shape[2] - 1).astype(int), np.ones(lanes))]
    out = np.zeros((lanes, image.shape[3]))
    for z, c in taps[2]:
        for y, b in taps[1]:
            for x, a in taps[0]:
                found = np.where(((x < 0) | (y < 0) | (z < 0))[:, None], border, image[z, y, x])
                if reference is not None:
                    found = np.where(np.arange(4) == 0, (reference <= found[:, 0])[:, None].astype(float), found)
                out += (a * b * c)[:, None] * found
    return out


def gather(image: np.ndarray, x: np.ndarray, y: np.ndarray, mode: str, channel: int, offset: int = 0) -> np.ndarray:
    """The four elements about a normalized coordinate, in the order of gather4's results."""
    (x0, _), (x1, _) = axis(x, image.shape[1], mode, True, True, offset)
    (y0, _), (y1, _) = axis(y, image.shape[0], mode, True, True, offset)
    return np.stack([image[j, i, channel] for i, j in ((x0, y1), (x1, y1), (x1, y0), (x0, y0))], 1)
