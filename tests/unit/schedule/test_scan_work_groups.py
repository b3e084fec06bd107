"""Scans whose time loop is in a kernel of several work-groups: which read what others write is counted element by element, and compared with what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ScheduleError
from tec.schedule import to_loops
from tests.thinned import thinned

ROWS, COLUMNS, STEPS = 4, 6, 3
Place = tuple[int, int]

# What a step reads of the state: by name, the elements read for element (i, j), and the te expression.
READS: dict[str, tuple[Callable[[int, int], list[Place]], Callable[..., Any]]] = {
    "its own": (lambda i, j: [(i, j)], lambda S, t, i, j: S[t - 1, i, j]),
    "the next column": (
        lambda i, j: [(i, (j + 1) % COLUMNS)],
        lambda S, t, i, j: S[t - 1, i, te.indexmod(j + 1, COLUMNS)],
    ),
    "the next row": (lambda i, j: [((i + 1) % ROWS, j)], lambda S, t, i, j: S[t - 1, te.indexmod(i + 1, ROWS), j]),
    "the first of its row": (lambda i, j: [(i, 0)], lambda S, t, i, j: S[t - 1, i, 0]),
    "its row": (lambda i, j: [(i, c) for c in range(COLUMNS)], lambda S, t, i, j: _total(S, t, i, None)),
    "its column": (lambda i, j: [(r, j) for r in range(ROWS)], lambda S, t, i, j: _total(S, t, None, j)),
}


def _total(S: Any, t: Any, i: Any, j: Any) -> Any:
    """A whole row or column, as a chain of additions."""
    terms = [S[t - 1, i, c] for c in range(COLUMNS)] if j is None else [S[t - 1, r, j] for r in range(ROWS)]
    out = terms[0]
    for x in terms[1:]:
        out = out + x
    return out


# How a stage's loops go to work-groups: the work-group of element (i, j), and the schedule.
SPLITS: dict[str, tuple[Callable[[int, int, int], int], Callable[..., None]]] = {
    "rows": (lambda i, j, f: i // f, lambda s, op, f: _bind(s, op, [op.axis[1]], f, 0)),
    "columns": (lambda i, j, f: j // f, lambda s, op, f: _bind(s, op, [op.axis[2]], f, 0)),
    "columns, dealt out": (lambda i, j, f: j % f, lambda s, op, f: _bind(s, op, [op.axis[2]], f, 1)),
    "fused": (lambda i, j, f: (i * COLUMNS + j) // f, lambda s, op, f: _bind(s, op, op.axis[1:], f, 0)),
    "fused, dealt out": (lambda i, j, f: (i * COLUMNS + j) % f, lambda s, op, f: _bind(s, op, op.axis[1:], f, 1)),
    "fused with time": (lambda i, j, f: (i * COLUMNS + j) // f, lambda s, op, f: _bind(s, op, op.axis, f, 0)),
    "one": (lambda i, j, f: 0, lambda s, op, f: None),
}


def _bind(s: Any, op: Any, axes: Any, factor: int, which: int) -> None:
    fused = axes[0] if len(axes) == 1 else s[op].fuse(*axes)
    s[op].bind(s[op].split(fused, factor=factor)[which], te.thread_axis("blockIdx.x"))


def _scan(read: str, split: str, factor: int, env: bool = True) -> tuple[Any, list[Any]]:
    shape = (STEPS, ROWS, COLUMNS)
    X, S = te.placeholder(shape, name="X"), te.placeholder(shape, name="S")
    init = te.compute((1, ROWS, COLUMNS), lambda _, i, j: X[0, i, j], name="init")
    step = te.compute(shape, lambda t, i, j: READS[read][1](S, t, i, j) + X[t, i, j], name="step")
    R = te.scan(init, step, S, inputs=[X], name="R")
    s = te.create_schedule(R.op)
    if env:
        s[R].env_threads([te.thread_axis((0, 64), "threadIdx.x")])
    for stage in (init, step):
        SPLITS[split][1](s, stage.op, factor)
    return s, [X, R]


def _crosses(read: str, split: str, factor: int) -> bool:
    """Whether any element reads what another work-group writes."""
    group = SPLITS[split][0]
    places = itertools.product(range(ROWS), range(COLUMNS))
    return any(group(i, j, factor) != group(*p, factor) for i, j in places for p in READS[read][0](i, j))


@thinned(1, ("split", SPLITS), ("read", READS))
def test_what_crosses_work_groups_is_refused_and_nothing_else(read: str, split: str) -> None:
    for factor in (1, 2, 3, COLUMNS):
        s, args = _scan(read, split, factor)
        if _crosses(read, split, factor):
            with pytest.raises(ScheduleError, match="reads what other work-groups write") as e:
                to_loops(s, args)
            assert "without env_threads each step is a launch" in e.value.hint
        elif not (
            split.startswith("fused") and read != "its own"
        ):  # of these fused parts only equal indices are seen to be equal
            to_loops(s, args)


def test_one_launch_a_step_may_read_anything() -> None:
    device = tec.rocm_emu("gfx1100")
    x = np.arange(STEPS * ROWS * COLUMNS, dtype=np.float32).reshape(STEPS, ROWS, COLUMNS)
    want = x.copy()
    for t in range(1, STEPS):
        want[t] = want[t - 1].sum(-1, keepdims=True) + x[t]
    s, args = _scan("its row", "fused", 5, env=False)
    out = tec.nd.array(np.zeros_like(x), device)
    tec.build(s, args, "rocm -mcpu=gfx1100")(tec.nd.array(x, device), out)
    np.testing.assert_array_equal(out.numpy(), want)


def test_two_states_fused_and_split_alike_are_right() -> None:
    """A cell's two states: each work-group has the same part of both, and reads one's for the other's."""
    shape = (STEPS, ROWS, COLUMNS)
    X, H, C = (te.placeholder(shape, name=n) for n in "XHC")
    h0, c0 = (te.compute((1, ROWS, COLUMNS), lambda _, i, j: X[0, i, j], name=n) for n in ("h0", "c0"))
    c = te.compute(shape, lambda t, i, j: C[t - 1, i, j] + H[t - 1, i, j] + X[t, i, j], name="c")
    h = te.compute(shape, lambda t, i, j: H[t - 1, i, j] - C[t - 1, i, j], name="h")
    rh, rc = te.scan([h0, c0], [h, c], [H, C], inputs=[X], name="R")
    for c_factor, right in ((4, True), (5, False)):
        s = te.create_schedule(rh.op)
        s[rh].env_threads([te.thread_axis((0, 64), "threadIdx.x")])
        for stage, factor in ((h, 4), (c, c_factor)):
            _bind(s, stage.op, stage.op.axis[1:], factor, 0)
        if right:
            to_loops(s, [X, rh, rc])
        else:
            with pytest.raises(ScheduleError, match="other work-groups"):
                to_loops(s, [X, rh, rc])
