"""`topi.nn.lstm`: a long short-term memory layer as a scan over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .operators import compute, tensor
from .tag import INJECTIVE

__all__ = ["lstm"]


def lstm(
    Xs: Tensor, Wi: Tensor, Wh: Tensor, Bi: Tensor | None = None, Bh: Tensor | None = None, h_init: Tensor | None = None,
    c_init: Tensor | None = None, proj: Tensor | None = None, p_i: Tensor | None = None, p_f: Tensor | None = None,
    p_o: Tensor | None = None, f_act: Callable[..., Any] = te.sigmoid, g_act: Callable[..., Any] = te.tanh,
    h_act: Callable[..., Any] = te.tanh, reverse: bool = False, weight_layout: str = "IFGO",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The hidden and the cell states of all steps, (time, batch, hidden), of a sequence (time, batch, inputs).

    `Wi` (4 * hidden, inputs) and `Wh` (4 * hidden, hidden or the rows of `proj`) hold the weights of the input, forget, cell and output
    gates in the order of `weight_layout`, `Bi` and `Bh` their biases. `proj` (rows, hidden) projects the hidden state, and `p_i`, `p_f`
    and `p_o` (batch, hidden) are peepholes. With `reverse`, time runs backwards: element 0 is the state behind the last step.

    >>> x, w, r = te.placeholder((5, 2, 3)), te.placeholder((16, 3)), te.placeholder((16, 4))
    >>> topi.nn.lstm(x, w, r)[0].shape
    (5, 2, 4)
    """
    x, wi, wh = (tensor(v, "lstm") for v in (Xs, Wi, Wh))
    if sorted(weight_layout) != sorted("IFGO"):
        raise ExprError(f"lstm: the weight layout {weight_layout!r}", hint='an order of "IFGO"')
    steps, batch, _ = x.shape
    size = te.indexdiv(wi.shape[0], 4)
    width = size if proj is None else proj.shape[0]
    # The product with the inputs needs no state: it is one matrix product ahead of the scan.
    given = _times(x, wi, steps, "lstm_inputs")
    h, c = (te.placeholder((steps + 1, batch, n), x.dtype, name=v) for n, v in ((width, "lstm_h"), (size, "lstm_c")))
    held = _times(h, wh, steps + 1, "lstm_held", ahead=1)

    def gate(
        name: str, activation: Callable[..., Any], t: Any, b: Any, j: Any, peep: Any = None, state: Any = None
    ) -> Any:
        row = weight_layout.index(name) * size + j
        total = given[steps - t if reverse else t - 1, b, row] + held[t, b, row]
        for bias in (Bi, Bh):
            total = total if bias is None else total + bias[row]
        return activation(total if peep is None else total + peep[b, j] * state)

    def cell(t: Any, b: Any, j: Any) -> Any:
        old = c[t - 1, b, j]
        taken = gate("I", f_act, t, b, j, p_i, old) * gate("G", g_act, t, b, j)
        return gate("F", f_act, t, b, j, p_f, old) * old + taken

    def hidden(t: Any, b: Any, j: Any) -> Any:
        return gate("O", f_act, t, b, j, p_o, next_c[t, b, j]) * h_act(next_c[t, b, j])

    next_c = te.compute((steps + 1, batch, size), cell, name="lstm_cell")
    next_h = te.compute((steps + 1, batch, size), hidden, name="lstm_hidden")
    if proj is not None:
        next_h = _times(next_h, proj, steps + 1, "lstm_projected")
    first = [_first(h_init, (batch, width), x.dtype, "lstm_h0"), _first(c_init, (batch, size), x.dtype, "lstm_c0")]
    states = te.scan(first, [next_h, next_c], [h, c], name="lstm_scan")
    after = [
        compute((steps, *v.shape[1:]), lambda t, b, j, v=v: v[t + 1, b, j], "lstm_states", INJECTIVE) for v in states
    ]
    return after[0], after[1]


def _times(x: Tensor, w: Tensor, steps: Any, name: str, ahead: int = 0) -> Tensor:
    """The product of (time, batch, k), `ahead` steps before, with the rows of (n, k)."""
    k = te.reduce_axis((0, w.shape[1]), name="k")
    made: Tensor = te.compute(
        (steps, x.shape[1], w.shape[0]), lambda t, b, j: te.sum(x[t - ahead, b, k] * w[j, k], axis=k), name=name
    )
    return made


def _first(given: Tensor | None, shape: tuple[Any, Any], dtype: str, name: str) -> Tensor:
    """The state ahead of the first step: zeros where none is given."""
    return compute((1, *shape), lambda _, b, j: te.const(0, dtype) if given is None else given[b, j], name, INJECTIVE)
