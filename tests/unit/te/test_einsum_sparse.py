"""te.einsum against NumPy's, products with sparse matrices against dense ones, and the ends of loops that are read from memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tests import seeds

GPU = "rocm -mcpu=gfx942"


def drawn_einsum(rng: random.Random) -> tuple[str, list[tuple[int, ...]]]:
    """Subscripts and shapes: letters summed, kept, repeated (a diagonal), `...`, with and without a result."""
    sizes = {c: rng.randint(1, 4) for c in "abcde"}
    count, dots = rng.randint(1, 3), rng.random() < 0.3
    parts = [[rng.choice("abcde") for _ in range(rng.randint(1, 3))] for _ in range(count)]
    seen = sorted({c for p in parts for c in p})
    out = rng.sample(seen, rng.randint(0, min(len(seen), 3)))
    lead = (2, 3) if dots else ()
    texts = [("..." if dots else "") + "".join(p) for p in parts]
    result = "" if rng.random() < 0.2 else "->" + ("..." if dots else "") + "".join(out)
    return ",".join(texts) + result, [(*lead, *(sizes[c] for c in p)) for p in parts]


@pytest.mark.parametrize("seed", seeds.some(12))
def test_einsum_is_numpys(seed: int) -> None:
    rng = random.Random(seed)
    text, shapes = drawn_einsum(rng)
    make = np.random.default_rng(seed)
    arrays = [make.random(s).astype(np.float64) for s in shapes]
    tensors = [te.placeholder(s, "float64", f"T{k}") for k, s in enumerate(shapes)]
    made = te.einsum(text, *tensors)
    (got,) = te.evaluate([made], dict(zip(tensors, arrays)))
    np.testing.assert_allclose(
        np.asarray(got).reshape(np.einsum(text, *arrays).shape), np.einsum(text, *arrays), rtol=1e-12, err_msg=text
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ij,jk->ik", "j is 4 and 5"),
        ("ij->ij", "of 2 operands"),
        ("ij,kl->iz", "z of the result"),
        ("i,kl->i", "subscripts 'i'"),
    ],
)
def test_einsum_says_what_does_not_fit(text: str, says: str) -> None:
    a, b = te.placeholder((3, 4)), te.placeholder((5, 6))
    with pytest.raises(tec.ExprError, match=says):
        te.einsum(text, a, b)


def sparse_of(rng: Any, rows: int, columns: int, block: tuple[int, int] | None) -> tuple[Any, Any, Any, Any]:
    """A dense matrix with many zeros (rows without any elements too), and its data, indices and indptr."""
    r, c = block or (1, 1)
    full = rng.random((rows // r, columns // c)) < 0.4
    full[rng.integers(rows // r)] = False
    full[0, 0] = True
    tiles = rng.random((*full.shape, r, c)).astype(np.float32) * full[:, :, None, None]
    dense = tiles.transpose(0, 2, 1, 3).reshape(rows, columns)
    at = full.nonzero()
    data = tiles[at] if block else tiles[at].reshape(-1)
    return dense, data, at[1].astype(np.int32), np.searchsorted(at[0], np.arange(full.shape[0] + 1)).astype(np.int32)


def bound(s: Any, t: Any) -> None:
    """One element to a thread."""
    outer, inner = s[t].split(s[t].fuse(*t.op.axis), 64)
    s[t].bind(outer, te.thread_axis("blockIdx.x"))
    s[t].bind(inner, te.thread_axis("threadIdx.x"))


@pytest.mark.parametrize("target", ["llvm", GPU])
@pytest.mark.parametrize("block", [None, (2, 3)], ids=["csr", "bsr"])
def test_sparse_products(target: str, block: tuple[int, int] | None) -> None:
    rng = np.random.default_rng(seeds.first())
    dense, data, indices, indptr = sparse_of(rng, 8, 12, block)
    x = rng.random((5, 12)).astype(np.float32)
    nz = te.var("nz")
    held = [
        te.placeholder((5, 12), "float32", "X"), te.placeholder((nz, *(block or ())), "float32", "D"),
        te.placeholder((nz,), "int32", "I"), te.placeholder(indptr.shape, "int32", "P"),
    ]  # fmt: skip
    for lhs in (False, True):
        made = tec.topi.sparse.sparse_dense(*held, sparse_lhs=lhs)
        s = tec.create_schedule(made.op)
        dev = tec.cpu()
        if target == GPU:
            bound(s, made)
            dev = tec.rocm_emu("gfx942")
        f = tec.build(s, [*held, made], target)
        out = tec.nd.zeros(tuple(int(n) for n in made.shape), "float32", dev)
        f(*[tec.nd.array(v, dev) for v in (x, data, indices, indptr)], out)
        np.testing.assert_allclose(out.numpy(), dense @ x.T if lhs else x @ dense.T, rtol=1e-5)
        if target == "llvm" and block is None:  # a row's own elements alone are walked over, with no question inside
            text = f.get_source("ir")
            assert "if " not in text and "P[" in text.split("for k in range(")[1].split("\n")[0]


def test_csr_times_matrix_and_vector() -> None:
    dense, data, indices, indptr = sparse_of(np.random.default_rng(seeds.first(3)), 6, 9, None)
    b, v = np.arange(36, dtype=np.float32).reshape(9, 4), np.arange(9, dtype=np.float32)
    a = tec.topi.sparse.placeholder((6, 9), len(data))
    given = dict(zip(a[:3], (data, indices, indptr)))
    tb, tv, bias = te.placeholder((9, 4)), te.placeholder((9,)), te.placeholder((4,))
    (got,) = te.evaluate([tec.topi.sparse.csrmm(a, tb, bias)], {**given, tb: b, bias: b[0]})
    np.testing.assert_allclose(got, dense @ b + b[0], rtol=1e-5)
    (got,) = te.evaluate([tec.topi.sparse.csrmv(a, tv)], {**given, tv: v})
    np.testing.assert_allclose(got, dense @ v, rtol=1e-5)


def test_an_end_that_the_loop_writes_is_asked_each_time() -> None:
    """A prefix of conditions that change inside is no range of a loop."""
    ib = te.ir_builder.create()
    n = 8
    A, P = ib.buffer_ptr(tec.decl_buffer((n,), "int32", "A")), ib.buffer_ptr(tec.decl_buffer((1,), "int32", "P"))
    with ib.for_range(0, n, "i") as i, ib.if_scope(i < P[0]):
        A[i] = A[i] + 1
        P[0] = P[0] - 1
    f = tec.build(tec.ir.Func("main", (A.buffer, P.buffer), ib.get()), target="llvm")
    a, p = np.zeros(n, np.int32), np.array([6], np.int32)
    f(a, p)
    assert a.tolist() == [1, 1, 1, 0, 0, 0, 0, 0] and p[0] == 3
