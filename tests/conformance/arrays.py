"""Expressions over arrays (`tec.array`): chains, reductions, products, what moves elements, order, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tec

from .elementwise import uniform
from .harness import array_case

xp = tec.array
F32 = np.float32


def _one_chip(target: tec.Target) -> bool:
    """On the software GPU one chip: these are many kernels each, and other cases hold every chip to what kernels are made of."""
    return target.kind != "rocm" or target.mcpu == "gfx942"


@array_case(
    "array_chain_sum",
    uniform((300,), (300,), (300,)),
    lambda a, b, c: (a * b + c).sum(dtype="d").astype(F32),
    rtol=1e-4,
)
def _chain_sum(a: Any, b: Any, c: Any) -> Any:
    return (a * b + c).sum()


def _softmax_ref(x: Any) -> Any:
    e = np.exp(x.astype("d") - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(F32)


@array_case("array_softmax", uniform((9, 33)), _softmax_ref)
def _softmax(x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


@array_case("array_broadcast_where", uniform((7, 1), (1, 13)), lambda a, b: np.where(a > b, a - b, a * b))
def _broadcast(a: Any, b: Any) -> Any:
    return xp.where(a > b, a - b, a * b)


def _moved_ref(x: Any) -> Any:
    return x[1:7, ::-1].T * 2


@array_case("array_slice_flip_transpose", uniform((9, 11)), _moved_ref, needs=_one_chip)
def _moved(x: Any) -> Any:
    return x[1:7, ::-1].T * 2


@array_case(
    "array_product_with_bias",
    uniform((19, 23), (23, 17), (17,)),
    lambda a, b, c: np.maximum(a @ b + c, 0).astype(F32),
    rtol=1e-4,
    needs=_one_chip,
)
def _product(a: Any, b: Any, c: Any) -> Any:
    return xp.maximum(a @ b + c, 0.0)


def _order_ref(x: Any) -> Any:
    return np.sort(x, axis=-1), np.argsort(x, axis=-1, kind="stable"), np.cumsum(x, axis=-1, dtype=F32)


@array_case("array_sort_running_sum", uniform((3, 21)), _order_ref, rtol=1e-4, needs=_one_chip)
def _order(x: Any) -> Any:
    return xp.sort(x), xp.argsort(x), xp.cumulative_sum(x, axis=-1)


def _picked_ref(x: Any) -> Any:
    return x[x > 0], np.unique(np.floor(x * 4)), np.searchsorted(np.sort(x), np.array([0.0, 0.5], F32))


@array_case("array_mask_unique_search", uniform((57,)), _picked_ref, needs=_one_chip)
def _picked(x: Any) -> Any:
    sought = xp.asarray([0.0, 0.5], device=x.device)
    return x[x > 0], xp.unique_values(xp.floor(x * 4)), xp.searchsorted(xp.sort(x), sought)


def _assigned_ref(x: Any) -> Any:
    y, before = x.copy(), x[2:5] * 3
    y[2:5, ::2] = -1
    y[y > 0.5] = 0
    return before, y


@array_case("array_assignment", uniform((8, 10)), _assigned_ref, needs=_one_chip)
def _assigned(x: Any) -> Any:
    before = x[2:5] * 3
    x[2:5, ::2] = -1.0
    x[x > 0.5] = 0.0
    return before, x


# Random123's known answer for Philox 4x32-10: counter and key 0.
_PHILOX = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@array_case("array_random_bits", uniform((4,)), lambda x: np.array(_PHILOX, np.uint32))
def _random(x: Any) -> Any:
    return xp.random.Generator(0, device=x.device).bits((4,))
