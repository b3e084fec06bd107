"""Layers with a matrix as their state, a token after the other: state space models of one decay a head (Mamba-2) or one a number of the state (Mamba), and the gated
delta rule (Qwen3-Next).

    S = exp(decay) S + k u^T        u = v, or with `beta` the delta rule: beta (v - (exp(decay) S)^T k)
    y = S^T q

Inputs: q and k (tokens, groups, size), v (tokens, heads, width), decay (tokens, heads) or (tokens, heads, size, width), the state (heads, size, width), and beta
(tokens, heads) where there is one.
Outputs: y (tokens, heads, width), and the state behind the last token. A group serves heads / groups heads, neighbours or, where `tiled`, every groups-th one.

Sources: Mamba, arXiv 2312.00752; Mamba-2, arXiv 2405.21060; gated delta networks, arXiv 2412.06464.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..te import Tensor
from .dims import product
from .forms import Form, carry
from .matmul import accumulator
from .registry import OPAQUE, Attrs, TensorType, fail, register


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if len(types) not in (5, 6):
        raise fail(f"a linear recurrence of {len(types)} inputs")
    q, k, v, decay, state = types[:5]
    fits = q == k and q.ndim == v.ndim == state.ndim == 3 and q.shape[0] == v.shape[0] and "float" in q.dtype
    if not fits or any("float" not in t.dtype for t in types):
        raise fail(f"a linear recurrence of {', '.join(map(str, types))}")
    tokens, groups, size = q.shape
    _, heads, width = v.shape
    if (
        heads % groups
        or state.shape != (heads, size, width)
        or decay.shape not in ((tokens, heads), (tokens, heads, size, width))
        or any(t.shape != (tokens, heads) for t in types[5:])
    ):
        raise fail(f"a linear recurrence of {', '.join(map(str, types))}")
    return [TensorType(v.dtype, (tokens, heads, width)), state]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    total: int = (4 + 2 * (len(types) - 4)) * product(outs[0].shape) * types[0].shape[2]
    return total


def group_of(head: Any, heads: int, groups: int, attrs: Attrs) -> Any:
    """The group of q and k that a head belongs to."""
    return head % groups if attrs.get("tiled") else head // (heads // groups)


def _host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    wide = np.dtype(accumulator(outs[1].dtype))
    q, k, v, decay, state, *beta = (np.asarray(a).astype(wide) for a in arrays)
    heads, groups = v.shape[1], q.shape[1]
    of = [group_of(h, heads, groups, attrs) for h in range(heads)]
    y, s = np.empty(v.shape, wide), state.copy()
    for t in range(len(v)):
        s = s * np.exp(decay[t] if decay.ndim == 4 else decay[t][:, None, None])
        u = v[t]
        if beta:
            u = (u - np.einsum("hnp,hn->hp", s, k[t, of])) * beta[0][t][:, None]
        s = s + k[t, of][:, :, None] * u[:, None]
        y[t] = np.einsum("hnp,hn->hp", s, q[t, of])
    return [y, s]


@register("linear_recurrence", OPAQUE, _type, flops=_flops, host=_host, takes=(5, 6))
def _linear_recurrence(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The outputs of all tokens, and the last state. See the module."""

    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        loops = Scan(attrs, ib, [ib.buffer_ptr(x) for x in ins], [ib.buffer_ptr(x) for x in outs], 1)
        with ib.for_range(0, loops.tasks, "task") as task:
            loops.run(task)
        return ib.get()

    made = te.extern([t.shape for t in outputs], inputs, body, name="scan", dtype=[t.dtype for t in outputs])
    return carry(Form("linear_recurrence", tuple(inputs), tuple(outputs), dict(attrs)), list(made))


class Scan:
    """The loops of one task: `lanes` neighbouring features of a head, whose part of the state stays beside them from the first token to the last."""

    def __init__(self, attrs: Attrs, ib: Any, sources: Sequence[Any], results: Sequence[Any], lanes: int):
        self.attrs, self.ib, self.lanes = attrs, ib, lanes
        self.q, self.k, self.v, self.decay, self.state, *self.beta = sources
        self.y, self.end = results
        self.tokens, groups, _ = self.q.shape
        self.groups, self.heads, self.size, self.width = (getattr(n, "value", n) for n in (groups, *self.state.shape))
        self.acc = accumulator(self.end.dtype)
        self._each = len(self.decay.shape) == 4  # whether each number of the state has a decay of its own

    @property
    def tasks(self) -> Any:
        return self.heads * (self.width // self.lanes)

    def run(self, task: Any) -> None:
        """Task number `task`, of `tasks`."""
        ib, lanes, acc = self.ib, self.lanes, self.acc
        per = self.width // lanes
        head = ib.let("head", te.indexdiv(task, per))
        first = ib.let("first", te.indexmod(task, per) * lanes)
        groups = (
            te.indexmod(head, self.groups) if self.attrs.get("tiled") else te.indexdiv(head, self.heads // self.groups)
        )
        group = ib.let("group", groups)
        s = ib.allocate(acc, (self.size * lanes,), "state", scope="local")
        total = ib.allocate(acc, (lanes,), "total", scope="local")
        new = ib.allocate(acc, (lanes,), "new", scope="local")
        with ib.for_range(0, self.size, "i") as i, self._lanes() as lane:
            s[i * lanes + lane] = self.state[head, i, first + lane].astype(acc)
        with ib.for_range(0, self.tokens, "t") as t:
            keep = te.const(1, acc) if self._each else ib.let("keep", te.exp(self.decay[t, head].astype(acc)))
            with self._lanes() as lane:
                new[lane] = self.v[t, head, first + lane].astype(acc)
                total[lane] = te.const(0, acc)
            if self._each:
                self._decay(s, t, head, first)
            if self.beta:
                self._correct(s, new, total, t, head, group, keep)
                keep = te.const(1, acc)
            with ib.for_range(0, self.size, "i") as i:
                k = ib.let("k", self.k[t, group, i].astype(acc))
                q = ib.let("q", self.q[t, group, i].astype(acc))
                with self._lanes() as lane:
                    s[i * lanes + lane] = s[i * lanes + lane] * keep + new[lane] * k
                with self._lanes() as lane:
                    total[lane] = total[lane] + s[i * lanes + lane] * q
            with self._lanes() as lane:
                self.y[t, head, first + lane] = total[lane].astype(self.y.dtype)
        with ib.for_range(0, self.size, "i") as i, self._lanes() as lane:
            self.end[head, i, first + lane] = s[i * lanes + lane].astype(self.end.dtype)

    def _lanes(self) -> Any:
        return self.ib.for_range(0, self.lanes, "lane", kind="vectorize" if self.lanes > 1 else "serial")

    def _decay(self, s: Any, t: Any, head: Any, first: Any) -> None:
        """Each number of the state by a decay of its own."""
        with self.ib.for_range(0, self.size, "i") as i, self._lanes() as lane:
            by = te.exp(self.decay[t, head, i, first + lane].astype(self.acc))
            s[i * self.lanes + lane] = s[i * self.lanes + lane] * by

    def _correct(self, s: Any, new: Any, total: Any, t: Any, head: Any, group: Any, keep: Any) -> None:
        """The state decayed, and what of the new values it does not tell already."""
        ib, lanes, acc = self.ib, self.lanes, self.acc
        with ib.for_range(0, self.size, "i") as i:
            k = ib.let("k", self.k[t, group, i].astype(acc))
            with self._lanes() as lane:
                s[i * lanes + lane] = s[i * lanes + lane] * keep
            with self._lanes() as lane:
                total[lane] = total[lane] + s[i * lanes + lane] * k
        rate = ib.let("rate", self.beta[0][t, head].astype(acc))
        with self._lanes() as lane:
            new[lane] = (new[lane] - total[lane]) * rate
        with self._lanes() as lane:
            total[lane] = te.const(0, acc)
