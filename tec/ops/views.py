"""Views: how an operator reads an operand through transposes and reshapes, as data: ("transpose", perm), ("reshape", shape)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from .. import te
from ..te import Tensor
from .dims import Dim, evaluate, is_symbolic, names_of
from .registry import TensorType
from .shape import reshape_index

Step = tuple[str, tuple[int, ...]]
Steps = tuple[Step, ...]
_MOST = 1 << 24  # elements of operands whose order is looked at


def apply_shape(shape: Sequence[int], steps: Steps) -> tuple[int, ...]:
    """The shape after the steps."""
    now = tuple(shape)
    for kind, to in steps:
        now = tuple(now[p] for p in to) if kind == "transpose" else tuple(to)
    return now


def normal_steps(steps: Steps, shape: Sequence[int]) -> Steps:
    """Equal steps, as few as can be seen: neighbours of a kind are one, what changes nothing is none, a transpose that only
    moves dimensions of extent 1 is a reshape."""
    out: list[tuple[Step, tuple[int, ...]]] = []  # steps, and the shape before each
    now = tuple(shape)
    for kind, to in steps:
        before = now
        now = apply_shape(now, ((kind, to),))
        if kind == "transpose":
            if out and out[-1][0][0] == "transpose":
                first, before = out.pop()[0][1], out_shape(out, shape)
                to = tuple(first[p] for p in to)
            moved = [p for p in to if before[p] != 1]
            if moved == sorted(moved):
                kind, to = "reshape", tuple(before[p] for p in to)
        if kind == "reshape" and out and out[-1][0][0] == "reshape":
            before = out.pop()[1]
        if kind == "reshape" and to == before:
            continue
        out.append(((kind, to), before))
    made = tuple(step for step, _ in out)
    return made if made == tuple(steps) else normal_steps(made, shape)


def squeezed_steps(steps: Steps, shape: Sequence[int]) -> Steps:
    """Equal steps whose transposes have no dimensions of extent 1."""
    out: list[Step] = []
    now = tuple(shape)
    for kind, to in steps:
        after = apply_shape(now, ((kind, to),))
        long = [k for k, n in enumerate(now) if n != 1]
        if kind == "transpose" and len(long) < len(now):
            order = tuple(long.index(p) for p in to if p in long)
            out += [("reshape", tuple(now[k] for k in long)), ("transpose", order), ("reshape", after)]
        else:
            out.append((kind, to))
        now = after
    return normal_steps(tuple(out), shape)


def out_shape(out: Sequence[tuple[Step, tuple[int, ...]]], shape: Sequence[int]) -> tuple[int, ...]:
    return apply_shape(out[-1][1], (out[-1][0],)) if out else tuple(shape)


def swap_last(steps: Steps) -> tuple[Steps, bool]:
    """The steps without an exchange of the last two dimensions at their end, where that leaves the last one in place; and whether
    there was one."""
    if steps and steps[-1][0] == "transpose":
        perm = steps[-1][1]
        last = len(perm) - 1
        if last > 0 and perm[last] != last and perm[last - 1] == last:
            kept = (*perm[:-2], perm[-1], perm[-2])
            rest = steps[:-1] if kept == tuple(range(len(perm))) else (*steps[:-1], ("transpose", kept))
            return rest, True
    return steps, False


def apply_steps(x: Tensor, shape: Sequence[int], steps: Steps) -> Tensor:
    """The te tensor that reads x through the steps."""
    now = tuple(shape)
    for kind, to in steps:
        new = apply_shape(now, ((kind, to),))
        if kind == "transpose":
            inverse = sorted(range(len(to)), key=to.__getitem__)
            x = te.compute(new, lambda *i, x=x, inverse=inverse: x(*[i[k] for k in inverse]), name="transposed")
        else:
            x = te.compute(new, lambda *i, x=x, old=now, new=new: x(*reshape_index(old, new, i)), name="reshaped")
        now = new
    return x


def viewed_type(type_: TensorType, steps: Steps) -> TensorType:
    """The type after the steps."""
    made = apply_shape(type_.shape, steps)
    if math.prod(made) != type_.size:
        raise ValueError(f"{type_} seen through {steps}")
    return TensorType(type_.dtype, made)


@lru_cache(maxsize=256)
def contiguous_run(shape: tuple[int, ...], steps: Steps, most: int) -> int:
    """The largest power of two up to `most` so that from every multiple of it on, so many elements of the view's last dimension lie
    side by side in memory, aligned alike."""
    if is_symbolic([shape, steps]):
        # Strides are products of dimensions; with odd numbers for names they have no factor of two that all sizes do not have.
        if any(isinstance(n, Dim) and not n.is_product for n in (*shape, *(n for _, to in steps for n in to))):
            return 1
        odd = dict(zip(sorted(names_of([shape, steps])), (3, 5, 7, 11)))
        if len(odd) > 4:
            return 1
        return contiguous_run(evaluate(shape, odd), evaluate(steps, odd), most)
    size = math.prod(shape)
    if not steps:
        return math.gcd(most, shape[-1])
    if size > _MOST:
        return 1
    order = np.arange(size, dtype=np.int32).reshape(shape)
    for kind, to in steps:
        order = order.transpose(to) if kind == "transpose" else order.reshape(to)
    run = math.gcd(most, order.shape[-1])
    while run > 1:
        pieces = order.reshape(-1, run)
        if not (pieces[:, 0] % run).any() and (np.diff(pieces, axis=1) == 1).all():
            return run
        run //= 2
    return 1
