"""Gradients of the factors of real matrices, given those by the factors: one of them at a time, the others None.

Equal values have eigenvectors that are no function of the matrix: the gradient by them is infinite or NaN, as in other libraries.
"""

from __future__ import annotations

from collections.abc import Sequence

from .array import Array
from .creation import eye
from .manipulation import expand_dims


def _across(values: Array) -> Array:
    """1 / (v_j - v_i), and 0 on the diagonal."""
    same = eye(values.shape[-1], dtype=values.dtype, device=values.device)
    return (1.0 - same) / (expand_dims(values, -2) - expand_dims(values, -1) + same)


def eigh_gradient(g: Sequence[Array | None], w: Array, v: Array) -> Array:
    by_w, by_v = g
    inside = (
        expand_dims(by_w, -2) * eye(w.shape[-1], dtype=w.dtype, device=w.device)
        if by_w is not None
        else _across(w) * (v.mT @ by_v)
    )
    made = v @ inside @ v.mT
    return (made + made.mT) * 0.5


def svd_gradient(g: Sequence[Array | None], u: Array, s: Array, vh: Array) -> Array:
    """J. Townsend, "Differentiating the singular value decomposition", 2016."""
    by_u, by_s, by_vh = g
    if by_s is not None:
        return (u * expand_dims(by_s, -2)) @ vh
    f, wide = _across(s * s), expand_dims(s, -2)
    if by_u is not None:
        turn = u.mT @ by_u
        made = u @ (f * (turn - turn.mT) * wide) @ vh
        return made + ((by_u - u @ turn) / wide) @ vh if u.shape[-2] > u.shape[-1] else made
    assert by_vh is not None
    turn = vh @ by_vh.mT
    made = u @ (expand_dims(s, -1) * (f * (turn - turn.mT))) @ vh
    return made + (u / wide) @ (by_vh - turn.mT @ vh) if vh.shape[-1] > vh.shape[-2] else made


def pinv_gradient(g: Array, p: Array, a: Array) -> tuple[Array]:
    """G. H. Golub and V. Pereyra, "The differentiation of pseudo-inverses", 1973, of matrices whose rank does not change nearby."""
    around, turned = p.mT @ g @ p.mT, g.mT
    rows, columns = turned @ p @ p.mT, p.mT @ p @ turned
    return (-around + rows - a @ (p @ rows) + columns - (columns @ p) @ a,)
