"""The few largest of lines on a CPU, by lists in vectors, bit for bit NumPy's: ties, NaN, both directions, each width of vectors, lines that are as short as the list."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule
from tec.ir.interp import run
from tec.ops.registry import TensorType, get_op
from tests import seeds

DTYPES = ("float32", "float32", "float64", "int32", "int64", "uint32", "float16")


@pytest.mark.parametrize("seed", seeds.some(10))
def test_lists(seed: int) -> None:
    rng, own = Random(seed), np.random.default_rng(seed)
    shape = tuple(rng.choice((1, 2, 3, 9, 17, 70)) for _ in range(rng.choice((1, 2, 3))))
    axis, dtype = rng.randrange(len(shape)), rng.choice(DTYPES)
    k, largest = rng.randint(1, min(18, shape[axis])), rng.random() < 0.6
    a = own.integers(0 if dtype == "uint32" else -9, 9, shape).astype(dtype)  # many ties
    if dtype.startswith("float"):
        a = np.where(own.random(shape) < 0.3, own.choice([np.nan, np.inf, -np.inf, -0.0], shape), a).astype(dtype)
    known, attrs = get_op("topk"), {"axis": axis, "k": k, "largest": largest}
    out_types = known.infer([TensorType(dtype, shape)], attrs)
    assert known.host is not None
    want = known.host(attrs, [a], out_types)
    for target in ("llvm", "llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64-v4"):
        x = te.placeholder(shape, dtype, name="x")
        chosen = schedule(known.compute(attrs, [x], out_types), target)
        assert (chosen.choice["algorithm"] == "list") == (k <= 16 and dtype != "float16")
        if target == "llvm":
            outs = [tec.nd.array(np.zeros(t.shape, t.dtype)) for t in out_types]
            tec.build(chosen.schedule, [x, *chosen.outputs], target)(tec.nd.array(a), *outs)
            got = [o.numpy() for o in outs]
        elif dtype != "float16" and a.size < 300:
            func = next(iter(tec.lower(chosen.schedule, [x, *chosen.outputs], name="f", target=target)))
            got = [np.zeros(int(np.prod(t.shape)), t.dtype) for t in out_types]
            run(func, dict(zip([p.name for p in func.params], [a.reshape(-1).copy(), *got])), {}, check=True)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g.reshape(w.shape), w)
