"""Accesses: contiguous, strided, reversed, gathered, predicated; alignment and alias facts in the text."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from tec.codegen.cpu import memory
from tec.errors import CodegenError
from tec.ir import (
    LT,
    Add,
    Alloc,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferStore,
    Cast,
    Evaluate,
    FloatImm,
    FloorDiv,
    FloorMod,
    For,
    Func,
    IntImm,
    Mul,
    Ramp,
    Select,
    Seq,
    Sub,
    Var,
)  # fmt: skip
from tec.ir import build as B
from tec.target.cpus import host_features
from tests.seeds import first
from tests.thinned import thinned

from .harness import buffer, compile_func

N = 64


def copy_kernel(index_in, index_out, lanes, dtype="float32", n=N, predicate=None, out_predicate=None):
    a, out = buffer("a", dtype, n), buffer("out", dtype, n)
    return Func("main", (a, out), BufferStore(out, BufferLoad(a, (index_in,), predicate), (index_out,), out_predicate))


@thinned(1, ("dtype", ["float32", "int8", "bool", "float64", "int16"]), ("stride", [1, 2, 3, -1, -2, 0]))
def test_strided_vectors(dtype, stride):
    a = (np.arange(N) % 3).astype(dtype)
    base = 40 if stride < 0 else 5
    at = base + stride * np.arange(8)
    load = compile_func(copy_kernel(Ramp(IntImm(base), IntImm(stride), 8), Ramp(IntImm(0), IntImm(1), 8), 8, dtype))
    out = np.zeros(N, dtype)
    assert load(a, out) == 0
    np.testing.assert_array_equal(out[:8], a[at])
    store = compile_func(copy_kernel(Ramp(IntImm(0), IntImm(1), 8), Ramp(IntImm(base), IntImm(stride), 8), 8, dtype))
    out = np.full(N, 1, dtype)
    want = out.copy()
    for k in range(8):
        want[at[k]] = a[k]
    assert store(a, out) == 0
    np.testing.assert_array_equal(out, want)


@thinned(2, ("dtype", ["float32", "int8", "bool", "float64", "uint16"]), ("stride", [1, -1, 3]), ("live", [0, 1, 5, 8]))
def test_predicated_lanes_touch_nothing_else(dtype, stride, live):
    """The arrays end where the live lanes end: a dead lane that is read would leave the page."""
    lane = Ramp(IntImm(0), IntImm(1), 8)
    mask = LT(lane, Broadcast(IntImm(live), 8))
    base = IntImm(30)
    a = (np.arange(N) % 2 + 1).astype(dtype)
    k = compile_func(copy_kernel(Ramp(base, IntImm(stride), 8), lane, 8, dtype, predicate=mask))
    out = np.full(N, 7, dtype)
    assert k(a, out) == 0
    at = 30 + stride * np.arange(8)
    np.testing.assert_array_equal(out[:8], np.where(np.arange(8) < live, a[at], np.zeros(1, dtype)))
    k = compile_func(copy_kernel(lane, Ramp(base, IntImm(stride), 8), 8, dtype, out_predicate=mask))
    out = np.full(N, 0, dtype)
    assert k(a, out) == 0
    want = np.zeros(N, dtype)
    want[at[:live]] = a[:live]
    np.testing.assert_array_equal(out, want)


def test_gather_and_scatter():
    rng = np.random.default_rng(0)
    a, at, out = buffer("a", "float32", N), buffer("at", "int32", 16), buffer("out", "float32", N)
    lane = Ramp(IntImm(0), IntImm(1), 16)
    idx = BufferLoad(at, (lane,))
    body = Seq(
        (
            BufferStore(out, BufferLoad(a, (idx,)), (lane,)),
            BufferStore(out, BufferLoad(a, (lane,)), (Add(idx, Broadcast(IntImm(16), 16)),)),
        )
    )
    k = compile_func(Func("main", (a, at, out), body))
    x, where = rng.random(N).astype("f4"), rng.permutation(32)[:16].astype("i4")
    got = np.zeros(N, "f4")
    assert k(x, where, got) == 0
    want = np.zeros(N, "f4")
    want[:16] = x[where]
    want[16 + where] = x[:16]
    np.testing.assert_array_equal(got, want)


def test_gather_of_bytes_with_a_mask():
    a, at, out = buffer("a", "uint8", N), buffer("at", "int64", 8), buffer("out", "uint8", N)
    lane = Ramp(IntImm(0), IntImm(1), 8)
    mask = LT(lane, Broadcast(IntImm(3), 8))
    k = compile_func(
        Func("main", (a, at, out), BufferStore(out, BufferLoad(a, (BufferLoad(at, (lane,)),), mask), (lane,)))
    )
    x = np.arange(N, dtype="u1")
    where = np.array([9, 8, 7, 1 << 60, 1 << 60, 1 << 60, 0, 0], "i8")
    got = np.ones(N, "u1")
    assert k(x, where, got) == 0
    assert list(got[:8]) == [9, 8, 7, 0, 0, 0, 0, 0]


def test_affine_forms_become_one_vector_access():
    i = Var("i")
    lane = Ramp(IntImm(0), IntImm(1), 16)
    index = Add(Mul(Broadcast(i, 16), Broadcast(IntImm(16), 16)), lane)
    a, out = buffer("a", "float32", 256), buffer("out", "float32", 256)
    f = Func("main", (a, out), For(i, IntImm(0), IntImm(16), BufferStore(out, BufferLoad(a, (index,)), (index,))))
    k = compile_func(f)
    assert "load <16 x float>" in k.code.llvm and "gather" not in k.code.llvm
    x, got = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    k(x, got)
    np.testing.assert_array_equal(x, got)


def test_every_second_element_comes_by_two_vectors():
    """The second one ends with the last element: of a buffer of 15 no 16th is read."""
    k = compile_func(copy_kernel(Ramp(IntImm(0), IntImm(2), 8), Ramp(IntImm(0), IntImm(1), 8), 8, n=15))
    assert k.code.llvm.count("load <8 x float>") == 2 and "load float" not in k.code.llvm
    assert re.search(r"getelementptr inbounds float, ptr %\S+, i64 7\b", k.code.llvm)
    x, got = np.arange(15, dtype="f4"), np.zeros(15, "f4")
    assert k(x, got) == 0
    np.testing.assert_array_equal(got[:8], x[::2])


@pytest.mark.parametrize("is_permuted", [False, True])
@pytest.mark.parametrize("stride", [3, 4, 5, 6])
def test_every_third_element_and_so_on_come_by_whole_vectors(stride, is_permuted, monkeypatch):
    """A vector more for each, of which the last one ends with the last element; shuffled by blends, or two registers at a time as AVX-512 does."""
    if is_permuted:
        monkeypatch.setattr(memory, "_TWO_REGISTERS", 32)
    for lanes in (8, 24, 32):
        n = stride * (lanes - 1) + 1
        kernel = copy_kernel(Ramp(IntImm(0), IntImm(stride), lanes), Ramp(IntImm(0), IntImm(1), lanes), lanes, n=n)
        text = compile_func(kernel, "llvm -mcpu=haswell").code.llvm
        assert text.count("load <8 x float>") == stride * lanes // 8 and "load float" not in text
        assert f"i64 {stride * (lanes - 1) - 7}\n" in text
        if "avx2" in host_features():
            k = compile_func(kernel, "llvm -mcpu=haswell")
            x, got = np.arange(n, dtype="f4"), np.zeros(n, "f4")
            assert k(x, got) == 0
            np.testing.assert_array_equal(got[:lanes], x[::stride])


def test_strides_of_whole_vectors_on_a_core_with_avx512():
    kernel = copy_kernel(Ramp(IntImm(0), IntImm(3), 16), Ramp(IntImm(0), IntImm(1), 16), 16)
    text = compile_func(kernel, "llvm -mcpu=znver4").code.llvm
    assert text.count("load <16 x float>") == 3 and "gather" not in text
    x, got = np.arange(N, dtype="f4"), np.zeros(N, "f4")
    assert compile_func(kernel)(x, got) == 0
    np.testing.assert_array_equal(got[:16], x[:48:3])


def test_constants_of_an_index_are_a_step_of_their_own():
    """Sums of loop variables and numbers in any order, drawn: each constant, also one that the rest takes below the buffer, is what the address ends with."""
    rng = random.Random(first(32))
    for _ in range(6):
        loops = {"i": Var("i"), "j": Var("j")}
        terms = [*((v, rng.randint(-3, 3)) for v in loops), *(("", rng.randint(-9, 9)) for _ in range(3))]
        rng.shuffle(terms)
        low = sum(min(0, 3 * c) if v else c for v, c in terms)
        terms.insert(rng.randrange(len(terms)), ("", rng.randint(0, 4) - low))
        index = IntImm(0)
        for v, c in terms:
            term = Mul(loops[v], IntImm(c)) if v else IntImm(c)
            index = Sub(index, IntImm(-c)) if not v and rng.random() < 0.4 else Add(index, term)
        i, j = loops.values()
        a, out = buffer("a", "float32", N), buffer("out", "float32", 16)
        store = BufferStore(out, BufferLoad(a, (index,)), (Add(Mul(i, IntImm(4)), j),))
        k = compile_func(Func("main", (a, out), For(i, IntImm(0), IntImm(4), For(j, IntImm(0), IntImm(4), store))))
        x, got = np.arange(N, dtype="f4"), np.zeros(16, "f4")
        assert k(x, got) == 0
        at = [sum(c * {"i": p, "j": q, "": 1}[v] for v, c in terms) for p in range(4) for q in range(4)]
        np.testing.assert_array_equal(got, x[at])
        constant = sum(c for v, c in terms if not v)
        assert not constant or re.search(rf"getelementptr (inbounds )?float, ptr %\S+, i64 {constant}\b", k.code.llvm)


def test_alignment_is_what_is_provable():
    n = Var("n", is_size=True)
    i = Var("i")
    a, out = buffer("a", "float32", n), buffer("out", "float32", n)
    tmp = Buffer("tmp", "float32", (IntImm(64),), scope="local")
    lane = Ramp(Mul(i, IntImm(8)), IntImm(1), 8)
    odd = Ramp(Add(Mul(i, IntImm(8)), IntImm(2)), IntImm(1), 4)
    body = Alloc(
        tmp,
        For(
            i,
            IntImm(0),
            IntImm(4),
            Seq((BufferStore(tmp, BufferLoad(a, (lane,)), (lane,)), BufferStore(out, BufferLoad(tmp, (odd,)), (odd,)))),
        ),
    )
    text = compile_func(Func("main", (a, out), body)).code.llvm
    assert "load <8 x float>, ptr %v" in text and "align 4" in text  # the caller's array: no promise
    assert next(line for line in text.splitlines() if "store <8 x float>" in line).count("align 32")
    assert next(line for line in text.splitlines() if "load <4 x float>" in line).count("align 8")


def test_unaligned_arrays_are_taken():
    raw = np.zeros(4 * 70 + 4, "u1")
    a = raw[4:260].view("f4")
    a[:] = np.arange(64)
    out = np.zeros(65, "f4")[1:]
    k = compile_func(copy_kernel(Ramp(IntImm(0), IntImm(1), 64), Ramp(IntImm(0), IntImm(1), 64), 64))
    assert k(a, out) == 0
    np.testing.assert_array_equal(a, out)


def test_buffers_are_told_apart_unless_they_may_alias():
    f = copy_kernel(IntImm(0), IntImm(0), 1)
    assert "!alias.scope" in compile_func(f).code.llvm
    f.attrs["noalias"] = False
    assert "!alias.scope" not in compile_func(f).code.llvm


def test_vector_elements():
    """A buffer of float32x4 is indexed by vectors of four."""
    a, out = Buffer("a", "float32x4", (IntImm(4),)), Buffer("out", "float32x4", (IntImm(4),))
    i = Var("i")
    body = For(i, IntImm(0), IntImm(4), BufferStore(out, Add(BufferLoad(a, (i,)), Broadcast(FloatImm(1.0), 4)), (i,)))
    x, got = np.arange(16, dtype="f4"), np.zeros(16, "f4")
    compile_func(Func("main", (a, out), body))(x, got)
    np.testing.assert_array_equal(got, x + 1)


def test_atomics_and_prefetch():
    for op, dtype, want in (
        ("atomic_add", "float32", 8.0),
        ("atomic_max", "int32", 7),
        ("atomic_min", "uint32", 0),
        ("atomic_xor", "int64", 0),
        ("atomic_exch", "float64", 7),
    ):
        a, out = buffer("a", dtype, 4), buffer("out", dtype, 8)
        i = Var("i")
        value = Cast(dtype, i) if op != "atomic_add" else B.const(1, dtype)
        load = BufferLoad(a, (IntImm(0),))
        body = For(
            i,
            IntImm(0),
            IntImm(8),
            Seq((Evaluate(B.call("prefetch", load)), BufferStore(out, B.call(op, load, value), (i,)))),
        )
        x, got = np.zeros(4, dtype), np.zeros(8, dtype)
        assert compile_func(Func("main", (a, out), body))(x, got) == 0
        assert x[0] == want, op
    a, out = buffer("a", "float32", 1), buffer("out", "float32", 1)
    cas = B.call("atomic_cas", BufferLoad(a, (IntImm(0),)), B.const(2.0), B.const(5.0))
    x, got = np.full(1, 2, "f4"), np.zeros(1, "f4")
    compile_func(Func("main", (a, out), BufferStore(out, cas, (IntImm(0),))))(x, got)
    assert x[0] == 5 and got[0] == 2


def test_mistakes_are_errors_with_the_functions_name():
    a, out = buffer("a", "float32", 4), buffer("out", "float32", 4)
    zero = IntImm(0)
    stray = buffer("stray", "float32", 4)
    for body, words in (
        (BufferStore(out, BufferLoad(stray, (zero,)), (zero,)), "stray"),
        (BufferStore(out, BufferLoad(a, (zero, zero)), (zero,)), "not flattened"),
        (BufferStore(out, BufferLoad(a, (Var("i"),)), (zero,)), "'i' has no value"),
        (BufferStore(out, B.const(1, "int32"), (zero,)), "int32"),
        (BufferStore(out, Select(B.const(True), B.call("sigmoid", B.const(1.0)), B.const(1.0)), (zero,)), "sigmoid"),
        (Evaluate(B.call("barrier")), "barrier"),
        (Evaluate(B.call("call_llvm_intrin", name="llvm.amdgcn.s.barrier", dtype="int32")), "amdgcn"),
        (
            Evaluate(B.call("call_llvm_intrin", B.const(1.0), B.const(1.0), name="llvm.sqrt.f32", dtype="float32")),
            "LLVM refused",
        ),
        (
            For(Var("t"), zero, IntImm(4), BufferStore(out, B.const(1.0), (zero,)), "thread", "threadIdx.x"),
            "threadIdx.x",
        ),
    ):
        with pytest.raises(CodegenError, match=words):
            compile_func(Func("broken", (a, out), body))


def test_an_index_made_from_data_never_traps():
    """The divisor comes from memory and is 0: the guard of value arithmetic holds inside of indices too."""
    a, d, out = buffer("a", "float32", 8), buffer("d", "int32", 8), buffer("out", "float32", 8)
    i = Var("i")
    where = FloorMod(FloorDiv(IntImm(1000), BufferLoad(d, (i,))), IntImm(8))
    k = compile_func(
        Func("main", (a, d, out), For(i, IntImm(0), IntImm(8), BufferStore(out, BufferLoad(a, (where,)), (i,))))
    )
    by = np.array([0, 1, 2, 3, -3, 0, -1, -(2**31)], "i4")
    got = np.zeros(8, "f4")
    assert k(np.arange(8, dtype="f4"), by, got) == 0
    assert list(got) == [0 if b == 0 else (1000 // int(b)) % 8 for b in by]
