"""Chances of classes from those of pairs of them, as libsvm has them: a minimum that it goes towards coordinate by coordinate, and stops before it is exact.

The steps are followed one by one, since what libsvm, sklearn and ONNX Runtime give is where these stop. A row whose error is small enough keeps its
numbers; the loop ends with the last row.

Source: Wu, Lin, Weng, Probability estimates for multi-class classification by pairwise coupling (2004), algorithm 2, and libsvm's stopping rule.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

from tec.graph import Value
from tec.graph.builders.matmul import matmul

from .call import Call

_MOST_STEPS = 100  # libsvm's
_STOP = 0.005  # of this, divided by the number of classes, is an error small enough


def coupled(c: Call, chances: Value, classes: int) -> Value:
    """(rows, classes) from (rows, pairs), the chance of a pair's first class against its second; pairs in the order (0, 1), (0, 2), ... (1, 2), ..."""
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    spread, start = np.zeros((len(pairs), classes, classes)), np.zeros((classes, classes))
    for p, (i, j) in enumerate(pairs):
        spread[p, i, j], spread[p, j, i], start[j, i] = 1.0, -1.0, 1.0
    flat = matmul(c, chances, c.const(spread.reshape(len(pairs), -1), chances.dtype))
    r = c.reshape(c.op("add", flat, c.const(start.reshape(1, -1), flat.dtype)), (flat.shape[0], classes, classes))
    other = c.transpose(r, (0, 2, 1))
    squares = c.op("reduce_sum_square", other, axes=(2,), keepdims=True)
    q = c.op("subtract", c.op("multiply", c.const(np.eye(classes)[None], r.dtype), squares), c.op("multiply", r, other))
    first = c.broadcast(c.const(np.full((1, classes), 1 / classes), r.dtype), (r.shape[0], classes))
    inner = Call(c.importer, c.node, c.domain, c.scope, {"": 21}, {})
    inner.inputs, inner.attrs = [q, first], {}
    return c.importer.inline(inner, _function(classes))[0]  # type: ignore[no-any-return]


def _function(classes: int) -> onnx.FunctionProto:
    """(matrices (rows, classes, classes), first guess (rows, classes)) -> chances (rows, classes)."""
    steps = "".join(_coordinate(t, classes) for t in range(classes))
    tables = "".join(
        f"""
        r{t}c = Slice(q, k{t}, k{t + 1}, k1)
        r{t} = Squeeze(r{t}c, k1)
        q{t}_{t} = Slice(r{t}, k{t}, k{t + 1}, k1)
        h{t} = Constant<value = float[1, {classes}] {{{", ".join("1" if k == t else "0" for k in range(classes))}}}>()
        """
        for t in range(classes)
    )
    numbers = "".join(f"k{t} = Constant<value = int64[1] {{{t}}}>()\n" for t in range(classes + 1))
    text = f"""
    <domain: "tec", opset_import: ["" : 21]>
    coupled (q, guess) => (p) {{
        {numbers}
        one = Constant<value = float[1] {{1}}>()
        stop = Constant<value = float[1] {{{_STOP / classes!r}}}>()
        k2x = Constant<value = int64[1] {{2}}>()
        k1x = Constant<value = int64[1] {{1}}>()
        {tables}
        most = Constant<value = int64 {{{_MOST_STEPS}}}>()
        go = Constant<value = bool {{1}}>()
        p = Loop(most, go, guess) <body = step (int64 trip, bool on, float[n, {classes}] p0) => (bool again, float[n, {classes}] pn) {{
            wide = Unsqueeze(p0, k2x)
            product = MatMul(q, wide)
            xs0 = Squeeze(product, k2x)
            weighted = Mul(p0, xs0)
            e0 = ReduceSum<keepdims = 1>(weighted, k1x)
            away = Sub(xs0, e0)
            far = Abs(away)
            worst = ReduceMax<keepdims = 1>(far, k1x)
            open = GreaterOrEqual(worst, stop)
            count = Cast<to = 6>(open)
            some = ReduceMax<keepdims = 0>(count)
            again = Cast<to = 9>(some)
            x0_0 = Slice(xs0, k0, k1, k1x)
            {steps}
            pn = Where(open, p{classes}, p0)
        }}>
    }}
    """
    return onnx.parser.parse_function(text)


def _coordinate(t: int, classes: int) -> str:
    """The statements that move coordinate t."""
    return f"""
        a{t} = Sub(e{t}, x{t}_{t})
        d{t} = Div(a{t}, q{t}_{t})
        s{t} = Add(one, d{t})
        dq{t} = Mul(d{t}, q{t}_{t})
        tw{t} = Add(x{t}_{t}, x{t}_{t})
        in{t} = Add(dq{t}, tw{t})
        gain{t} = Mul(d{t}, in{t})
        ee{t} = Add(e{t}, gain{t})
        ef{t} = Div(ee{t}, s{t})
        e{t + 1} = Div(ef{t}, s{t})
        row{t} = Mul(d{t}, r{t})
        moved{t} = Add(xs{t}, row{t})
        xs{t + 1} = Div(moved{t}, s{t})
        unit{t} = Mul(d{t}, h{t})
        grown{t} = Add(p{t}, unit{t})
        p{t + 1} = Div(grown{t}, s{t})
        """ + (f"x{t + 1}_{t + 1} = Slice(xs{t + 1}, k{t + 1}, k{t + 2}, k1)" if t + 1 < classes else "")
