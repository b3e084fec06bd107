"""The reference interpreter: what each node means, threads in lockstep, and the mistakes that it finds."""

import ml_dtypes
import numpy as np
import pytest

from tec.errors import ArgumentError
from tec.ir import build, matrix
from tec.ir import expr as E
from tec.ir.buffer import Buffer
from tec.ir.interp import InterpError, eval_expr, run
from tec.ir.interp_ops import cast
from tec.target import Target
from tests.ir.parser import parse, parse_expr, parse_func


def go(text, *arrays, **options):
    run(parse_func(text), list(arrays), **options)
    return arrays[-1]


def test_matmul_with_symbolic_rows():
    text = """
def mm(A: Buffer((n, 64), "float32"), B: Buffer((64, 48), "float32"), C: Buffer((n, 48), "float32"), *, n: size("int32")):
    for i in range(n):
        for j in range(48):
            acc = alloc((1,), "float32", scope="local")
            acc[0] = 0.0
            for k in range(64):
                acc[0] = acc[0] + A[i, k] * B[k, j]
            C[i, j] = acc[0]
"""
    rng = np.random.default_rng(0)
    a, b = rng.random((37, 64), np.float32), rng.random((64, 48), np.float32)
    c = go(text, a, b, np.zeros((37, 48), np.float32), check=True)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_dependent_iterations_run_in_order():
    text = """
def scan(A: Buffer((n,), "int32"), *, n: int32):
    for i in range(1, extent=n - 1):
        A[i] = A[i] + A[i - 1]
"""
    a = np.arange(20, dtype=np.int32)
    assert (go(text, a.copy()) == np.cumsum(a)).all()


def test_overlapping_writes_run_in_order():
    text = """
def last(A: Buffer((8,), "int32"), B: Buffer((4,), "int32")):
    for i in range(8):
        B[i // 2] = A[i]
"""
    b = go(text, np.arange(8, dtype=np.int32), np.zeros(4, np.int32))
    assert b.tolist() == [1, 3, 5, 7]


def test_triangular_loops_and_a_while():
    text = """
def tri(A: Buffer((6, 6), "int32"), C: Buffer((6,), "int32")):
    for i in range(6):
        C[i] = 0
        for j in range(i + 1):
            A[i, j] = i * 10 + j
        while C[i] * C[i] < i:
            C[i] = C[i] + 1
"""
    a, c = np.full((6, 6), -1, np.int32), np.zeros(6, np.int32)
    go(text, a, c)
    assert (np.tril(a) == np.tril(np.add.outer(np.arange(6) * 10, np.arange(6)))).all()
    assert (a[np.triu_indices(6, 1)] == -1).all()
    assert c.tolist() == [0, 1, 2, 2, 2, 3]


BLOCK_SUM = """
def block_sum(X: Buffer((n, 64), "float32"), R: Buffer((n,), "float32"), *, n: size("int32")):
    for bx in thread("blockIdx.x", n):
        S = alloc((64,), "float32", scope="shared")
        for tx in thread("threadIdx.x", 64):
            S[tx] = X[bx, tx]
        for tx2 in thread("threadIdx.x", 32):
            D = alloc((1,), "float32", scope="local")
            allreduce(combiner(lambda x, y: (x + y,), (0.0,), 'sum'), (S[tx2] + S[63 - tx2],), True, dests=[D], threads=[tx2])
            if tx2 == 0:
                R[bx] = D[0]
"""


def test_thread_loops_of_one_tag_follow_each_other():
    x = np.random.default_rng(1).random((10, 64), np.float32)
    r = go(BLOCK_SUM, x, np.zeros(10, np.float32), check=True)
    np.testing.assert_allclose(r, x.sum(1), rtol=1e-5)


def test_allreduce_keeps_the_order_of_ties_and_masks():
    text = """
def argmax(X: Buffer((5, 7), "int32"), I: Buffer((5,), "int32"), V: Buffer((5,), "int32")):
    for ty in thread("threadIdx.y", 5):
        for tx in thread("threadIdx.x", 7):
            di = alloc((1,), "int32", scope="local")
            dv = alloc((1,), "int32", scope="local")
            allreduce(combiner(lambda i, v, j, w: (select(v >= w, i, j), select(v >= w, v, w)), (-1, -2147483648), 'argmax'), (tx, X[ty, tx]), tx > 0, dests=[di, dv], threads=[tx])
            I[ty] = di[0]
            V[ty] = dv[0]
"""
    x = np.array([[9, 1, 5, 5, 2, 5, 0], [9, 4, 4, 4, 4, 4, 4], [9, 0, 1, 2, 3, 4, 5], [9, 5, 4, 3, 2, 1, 0], [9, 0, 0, 0, 0, 0, 1]], np.int32)  # fmt: skip
    i, v = np.zeros(5, np.int32), np.zeros(5, np.int32)
    go(text, x, i, v)
    assert i.tolist() == (x[:, 1:].argmax(1) + 1).tolist()
    assert v.tolist() == x[:, 1:].max(1).tolist()


def test_virtual_threads_have_their_own_storage():
    text = """
def vt(X: Buffer((2, 4, 8), "int32"), Y: Buffer((2, 4, 8), "int32")):
    for b in thread("blockIdx.x", 2):
        for v in thread("vthread", 4):
            S = alloc((8,), "int32", scope="shared")
            for tx in thread("threadIdx.x", 8):
                S[tx] = X[b, v, tx]
                barrier(scope='shared')
                Y[b, v, tx] = S[7 - tx]
"""
    x = np.arange(64, dtype=np.int32).reshape(2, 4, 8)
    y = go(text, x, np.zeros_like(x), check=True)
    assert (y == x[:, :, ::-1]).all()


def test_wavefront_operations():
    text = """
def waves(X: Buffer((128,), "int32"), A: Buffer((6, 128), "int32"), M: Buffer((128,), "uint64")):
    for tx in thread("threadIdx.x", 128):
        A[0, tx] = shuffle_xor(X[tx], 1, 64)
        A[1, tx] = shuffle_up(X[tx], 1, 64)
        A[2, tx] = shuffle_down(X[tx], 2, 16)
        A[3, tx] = shuffle_idx(X[tx], 5, 64)
        A[4, tx] = wave_lane()
        if tx % 2 == 1:
            A[5, tx] = readfirstlane(X[tx])
            M[tx] = ballot(X[tx] % 3 == 0)
"""
    x = np.arange(100, 228, dtype=np.int32)
    a, m = np.zeros((6, 128), np.int32), np.zeros(128, np.uint64)
    go(text, x, a, m)
    t = np.arange(128)
    assert (a[0] == x[t ^ 1]).all()
    assert (a[1] == np.where(t % 64 == 0, x, x[t - 1])).all()
    assert (a[2] == np.where(t % 16 < 14, x[np.minimum(t + 2, 127)], x)).all()
    assert (a[3] == x[t // 64 * 64 + 5]).all()
    assert (a[4] == t % 64).all()
    assert (a[5][1::2] == x[t // 64 * 64 + 1][1::2]).all()
    want = [sum(1 << int(k % 64) for k in range(w * 64, w * 64 + 64) if k % 2 and x[k] % 3 == 0) for w in (0, 1)]
    assert [int(m[1]), int(m[65])] == want


def test_atomics_give_old_values():
    text = """
def histogram(X: Buffer((64,), "int32"), H: Buffer((4,), "int32"), O: Buffer((64,), "int32")):
    for b in thread("blockIdx.x", 2):
        for tx in thread("threadIdx.x", 32):
            O[b * 32 + tx] = atomic_add(H[X[b * 32 + tx] % 4], 1)
            atomic_max(H[3], 1000)
"""
    x = np.random.default_rng(3).integers(0, 100, 64).astype(np.int32)
    h, o = np.zeros(4, np.int32), np.zeros(64, np.int32)
    go(text, x, h, o)
    counts = np.bincount(x % 4, minlength=4)
    assert (h[:3] == counts[:3]).all() and h[3] >= 1000
    for k in range(3):
        assert sorted(o[x % 4 == k]) == list(range(counts[k]))


@pytest.mark.parametrize("chip", ["rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda"])
def test_matrix_units(chip):
    target = Target(chip)
    instr = matrix.find(target, "float16")
    w = instr.wave
    bufs = [Buffer(n, instr.dtype(r).partition("x")[0], (E.IntImm(w), E.IntImm(instr.elems(r)))) for n, r in (("A", "a"), ("B", "b"), ("C", "acc"))]  # fmt: skip
    tx = E.Var("tx")

    def vec(b):
        return b.vload([tx, 0], f"{b.dtype}x{b.shape[1].value}")

    from tec.ir import stmt as S
    from tec.ir.func import Func

    body = bufs[2].vstore([tx, 0], instr.call(*map(vec, bufs)))
    f = Func("mma", tuple(bufs), S.For(tx, E.IntImm(0), E.IntImm(w), body, "thread", "threadIdx.x"))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1, *instr.shape(r))).astype(np.float16) for r in "ab")
    arrays = [matrix.gather(instr, "a", a).copy(), matrix.gather(instr, "b", b).copy(), np.zeros((w, instr.acc_elems), np.float32)]  # fmt: skip
    run(f, arrays, wave=w)
    d = matrix.scatter(instr, "acc", arrays[2])
    np.testing.assert_allclose(d[0], a[0].astype(np.float32) @ b[0].astype(np.float32), rtol=1e-3, atol=1e-3)


def test_host_function_launches_kernels():
    text = """
@attrs(kernel=True)
def k0(X: Buffer((64,), "float32"), T: Buffer((64,), "float32"), n: int32):
    bx = launch_index("blockIdx.x", 2)
    tx = launch_index("threadIdx.x", 32)
    if bx * 32 + tx < n:
        T[bx * 32 + tx] = X[bx * 32 + tx] + 1.0

def main(X: Buffer((64,), "float32"), Y: Buffer((64,), "float32"), n: int32):
    T = alloc((64,), "float32")
    launch(X.data, T.data, n, kernel='k0', grid=(expr(2), expr(1), expr(1)), block=(32, 1, 1), dyn_shared=0)
    launch(T.data, Y.data, n, kernel='k0', grid=(2, 1, 1), block=(32, 1, 1), dyn_shared=0)
"""
    m = parse(text)
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(m["main"], [x, y], [60], module=m)
    assert (y[:60] == x[:60] + 2).all() and (y[60:] == 0).all()
    with pytest.raises(InterpError, match="'k0' is not at hand"):
        run(m["main"], [x, y], [60])


# ---- values


def test_vectors_and_predicates():
    text = """
def vec(A: Buffer((16,), "float32"), B: Buffer((16,), "float32")):
    for i in range(4):
        v: float32x4 = load(A[ramp(i * 4, 1, 4)], ramp(i * 4, 1, 4) < broadcast(14, 4))
        store(B[ramp(i * 4, 1, 4)], v * broadcast(2.0, 4) + shuffle((v,), (3, 2, 1, 0)), ramp(i * 4, 1, 4) != broadcast(3, 4))
"""
    a = np.arange(16, dtype=np.float32)
    b = go(text, a, np.full(16, -1, np.float32))
    v = np.where(np.arange(16) < 14, a, 0).reshape(4, 4)
    want = (v * 2 + v[:, ::-1]).reshape(-1)
    want[3] = -1
    assert (b == want).all()


@pytest.mark.parametrize(
    "text, want",
    [
        ("cast('int8', 300)", 44),
        ("int8(float32('nan'))", 0),
        ("int32(float32('inf') * x)", 2**31 - 1),
        ("int32(-3.7 * x)", -3),
        ("uint8(-5.0 * x)", 0),
        ("int32(x * 3000000000.0)", 2**31 - 1),
        ("truncdiv(-7, 2)", -3),
        ("truncmod(-7, 2)", -1),
        ("-7 // 2", -4),
        ("-7 % 4", 1),
        ("int8(100) + int8(100)", -56),
        ("min(float32('nan'), x)", 1.0),
        ("min_nan(float32('nan'), x)", np.nan),
        ("float32('nan') != x", True),
        ("float32('nan') == x", False),
        ("round(x * 2.5)", 3.0),
        ("nearbyint(x * 2.5)", 2.0),
        ("popcount(255)", 8),
        ("clz(1)", 31),
        ("clz(0)", 32),
        ("ctz(8)", 3),
        ("bitreverse(uint8(1))", 128),
        ("shr(-8, 1)", -4),
        ("shr(uint32(4294967288), uint32(1))", 2147483644),
        ("mulhi(2147483647, 4)", 1),
        ("reinterpret(1.0, dtype='int32')", 0x3F800000),
        ("reinterpret(bfloat16(1.0), dtype='uint16')", 0x3F80),
        ("float32(bfloat16(x * 1.00390625))", 1.0),
        ("float32(float16(x * 65536.0))", np.inf),
        ("sigmoid(x - 1.0)", 0.5),
        ("erf(x)", np.float32(0.8427007929497149)),
        ("fma(x, 3.0, 4.0)", 7.0),
        ("dot4(broadcast(int8(-3), 4), broadcast(int8(5), 4), 7)", -53),
        ("if_then_else(x > 2.0, 1, 0)", 0),
        ("let(y := x + 1.0, y * y)", 4.0),
    ],
)  # fmt: skip
def test_values(text, want):
    x = E.Var("x", "float32")
    got = eval_expr(parse_expr(text, {"x": x}), {x: 1.0})
    np.testing.assert_equal(got, want)


@pytest.mark.parametrize("kind", ["ml_dtypes", "bits", "float32"])
def test_bfloat16_arrays(kind):
    text = """
def f(A: Buffer((8,), "bfloat16"), B: Buffer((8,), "bfloat16")):
    for i in range(8):
        B[i] = A[i] * bfloat16(1.5) + bfloat16(0.1)
"""
    values = np.linspace(-3, 3, 8).astype(ml_dtypes.bfloat16)
    want = (values * ml_dtypes.bfloat16(1.5)).astype(ml_dtypes.bfloat16) + ml_dtypes.bfloat16(0.1)
    a = {"ml_dtypes": values, "bits": values.view(np.uint16), "float32": values.astype(np.float32)}[kind]
    b = go(text, a, np.zeros_like(a))
    got = b.view(ml_dtypes.bfloat16) if kind == "bits" else b.astype(ml_dtypes.bfloat16)
    assert (got == want).all()


def test_strides_offsets_and_zero_dimensions():
    text = """
def f(A: Buffer((3, 4), "int32", strides=(8, 2), elem_offset=1), S: Buffer((), "int32")):
    S[()] = 0
    for i in range(3):
        for j in range(4):
            S[()] = S[()] + A[i, j]
            A[i, j] = 0
"""
    a, s = np.arange(12, dtype=np.int32).reshape(3, 4), np.zeros((), np.int32)
    go(text, a, s)
    assert int(s) == 66 and (a == 0).all()


# ---- mistakes


@pytest.mark.parametrize(
    "body, message",
    [
        ("for i in range(9):\n        A[i] = 0.0", "index 0 of A is 8, outside of 0 <= index < 8"),
        ("for i in range(8):\n        A[i] = A[i - 1]", "index 0 of A is -1"),
        ("T = alloc((4,), \"float32\", scope=\"local\")\n    A[0] = T[1]", r"T \(local\) is read at element 1 before it is written"),
        ("T = alloc((4, 4), \"float32\")\n    T[1, 5] = 0.0", "index 1 of T is 5, outside of 0 <= index < 4"),
        ("for tx in thread(\"threadIdx.x\", 8):\n        if tx < 3:\n            barrier(scope='shared')", "a barrier that only some threads"),
        ("A[0] = float32(call_extern(1, symbol='mystery'))", "'mystery' is not known"),
        ("assert A[0] > 5.0, 'too small'", "assertion failed: too small"),
        ("A[0] = shuffle_xor(A[0], 1, 64)", "outside of a launch"),
    ],
)  # fmt: skip
def test_undefined_programs_are_found(body, message):
    text = f'def f(A: Buffer((8,), "float32")):\n    {body}'
    with pytest.raises(InterpError, match=message):
        go(text, np.zeros(8, np.float32), check=True)


def test_storage_is_never_left_even_unchecked():
    with pytest.raises(InterpError, match="access to element 8 of A, which holds 8"):
        go('def f(A: Buffer((8,), "float32")):\n    for i in range(9):\n        A[i] = 0.0', np.zeros(8, np.float32))


def test_inactive_lanes_may_stand_anywhere():
    text = """
def f(A: Buffer((5,), "float32"), B: Buffer((8,), "float32")):
    for tx in thread("threadIdx.x", 8):
        B[tx] = if_then_else(tx < 5, A[tx], -1.0)
        if tx < 5 and A[tx] > 2.0:
            B[tx] = A[tx] * 10.0
"""
    b = go(text, np.arange(5, dtype=np.float32), np.zeros(8, np.float32), check=True)
    assert b.tolist() == [0, 1, 2, 30, 40, -1, -1, -1]


def test_wrong_arguments():
    f = parse_func('def f(A: Buffer((n, 4), "float32"), m: int32, *, n: int32):\n    A[0, 0] = float32(m)')
    a = np.zeros((3, 4), np.float32)
    run(f, {"A": a}, {"m": 7})
    assert a[0, 0] == 7
    run(f, [a, 8])
    assert a[0, 0] == 8
    with pytest.raises(ArgumentError, match="no value for the parameter m"):
        run(f, [a])
    with pytest.raises(ArgumentError, match="dimension 1 is 5"):
        run(f, [np.zeros((3, 5), np.float32), 1])
    with pytest.raises(ArgumentError, match="has 2 dimensions"):
        run(f, [np.zeros(3, np.float32), 1])


def test_external_functions():
    text = """
def f(A: Buffer((4,), "float64")):
    for i in range(4):
        A[i] = call_pure_extern(A[i], 2.0, symbol='hypot', dtype="float64")
    call_extern(address_of(A[1]), 3, symbol='negate')
"""

    def negate(view, n):
        view[:n] *= -1

    a = np.arange(4, dtype=np.float64)
    f = parse_func(text.replace("2.0", "float64(2.0)"))
    run(f, [a], externs={"negate": negate})
    np.testing.assert_allclose(a, np.hypot(np.arange(4), 2) * [1, -1, -1, -1])
    whole = 'def f(A: Buffer((4,), "float64")):\n    call_extern({}, 2, symbol="negate")\n'
    for pointer, want in (("A.data", [-1, -1, 1, 1]), ("access_ptr(A.data, 1)", [1, -1, -1, 1])):
        a = np.ones(4)
        run(parse_func(whole.format(pointer)), [a], externs={"negate": negate})
        assert a.tolist() == want


def test_a_constant_expression_folds_as_it_evaluates():
    for text in ("-7 // 2", "-7 % 4", "truncdiv(-7, 2)", "min(3, -4)", "shr(-8, 1)"):
        e = parse_expr(text)
        a, b = e.args if isinstance(e, E.Call) else (e.a, e.b)
        fold = {"FloorDiv": build.floordiv, "FloorMod": build.floormod, "Div": build.truncdiv, "Min": build.minimum, "Call": build.right_shift}  # fmt: skip
        assert fold[type(e).__name__](a, b).value == eval_expr(e)


@pytest.mark.parametrize(("dtype", "bits"), [("float8_e4m3", 3), ("float8_e5m2", 2)])
def test_float64_to_float8_is_rounded_once(dtype: str, bits: int) -> None:
    """Just above the middle between two neighbours: by way of float32 it would be the middle, and go to the even one."""
    x = np.array([1.0 + 2.0 ** -(bits + 1) + s * 2.0**-40 for s in (1, 0, -1)])
    x = np.concatenate([x, -x, x * 2.0**3])
    up = np.array([1.0 + 2.0**-bits, 1.0, 1.0])
    np.testing.assert_array_equal(cast(x, "float64", dtype), np.concatenate([up, -up, up * 8]))


@pytest.mark.parametrize("read", [2, 3])
@pytest.mark.parametrize("value", ["A[{r}]", "select({m}, 1.0, T[{r}]) + A[{r}]", "T[{r}] * 0.0 + A[{r}]"])
def test_a_choice_between_a_value_and_what_is_there_is_a_masked_store(value, read):
    """A pass makes masked stores to registers such choices: lanes that were not written stay so, and are not read."""
    r = "ramp(0, 1, 4)"
    m = f"{r} < broadcast(3, 4)"
    first = "" if value.startswith("A") else f"T[{r}] = select({m}, broadcast(0.0, 4), T[{r}])\n    "
    value = value.format(r=r, m=m).replace(", 1.0,", ", broadcast(1.0, 4),").replace("* 0.0", "* broadcast(0.0, 4)")
    text = f"""
def f(A: Buffer((8,), "float32"), B: Buffer((1,), "float32")):
    T = alloc((8,), "float32", scope="local")
    {first}T[{r}] = select({m}, {value}, T[{r}])
    B[0] = T[{read}]
"""
    a = np.arange(8, dtype=np.float32)
    if read == 3:
        with pytest.raises(InterpError, match="read at element 3 before it is written"):
            go(text, a, np.zeros(1, np.float32), check=True)
    else:
        assert go(text, a, np.zeros(1, np.float32), check=True)[0] == 2 + ("select" in value)
