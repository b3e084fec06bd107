"""The text form: parse(print(f)) is structurally f and prints the same, for every node of the grammar."""

import pytest

from tec.ir import build
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.buffer import Buffer
from tec.ir.func import Func
from tec.ir.structural import structural_equal, structural_hash
from tests.ir.parser import ParseError, parse, parse_expr, parse_func, parse_stmt

TEXTS = [
    """
@attrs(noalias=True, writes=('C',), fast_math={'contract', 'nnan'})
def matmul(A: Buffer((n, 64), "float16"), C: Buffer((n, 64), "float16", align=16), k: int64, *, n: size("int32")):
    for bx in thread("blockIdx.x", (n + 3) // 4):
        S = alloc((64,), "float32", scope="shared", align=128, double_buffer=True, storage_align=((0, 8, 1),))
        for tx in thread("threadIdx.x", 64):
            S[tx] = float32(A[bx * 4, tx])
        barrier(scope='shared')
        for i in range(4, unroll=2, pipelined=True):
            if likely(bx * 4 + i < n):
                C[bx * 4 + i, 0] = float16(S[i]) * 2.0
            else:
                pass
""",
    """
def shapes(A: Buffer((n, m), "float32", strides=(s, 1), elem_offset=o, offset_factor=4), *, n: int32, m: int32, s: int32, o: int32):
    for i in parallel(n):
        for j in range(2, extent=m - 2):
            x: int32 = i * 4 + j
            while A[i, x] < 1.5 and not (A[i, 0] == 0.0 or i > 3):
                A[i, x] = A[i, x] + 1e-20
    assert n > 0, 'n must be positive'
""",
    """
@attrs(kernel=True)
def kernel(A: Buffer((1024,), "int8"), B: Buffer((256,), "int32")):
    bx = launch_index("blockIdx.x", 4)
    tx = launch_index("threadIdx.x", 64)
    v: int32x4 = ramp(tx * 4, 1, 4)
    store(B[ramp(0, 1, 4)], select(v < broadcast(100, 4), v, broadcast(-1, 4)), broadcast(True, 4))
    B[bx * 64 + tx] = dot4(A[ramp(tx * 4, 1, 4)], broadcast(int8(3), 4), B[bx * 64 + tx])
    B[tx] = int32(int64(tx) * 3000000000 // 2)
    B[0] = let(y := tx + 1, y * y)
    atomic_add(B[3], tx)
""",
    """
def sums(A: Buffer((16, 16), "float32"), R: Buffer((16,), "float32")):
    for ty in thread("threadIdx.y", 16):
        for tx in thread("threadIdx.x", 16):
            D = alloc((1,), "float32", scope="local")
            allreduce(combiner(lambda x, y: (max(x, y),), (float32("-inf"),), 'max'), (A[ty, tx],), True, dests=[D], threads=[tx])
            with software_pipeline(3, 1, False, False, 'first', False):
                R[ty] = if_then_else(tx == 0, D[0], 0.0)
""",
    """
def scopes(A: Buffer((16,), "float64")):
    with alloc((16,), "float64", scope="local") as T:
        T[0] = 1.0
    with let(A[0], "float64") as x:
        A[1] = x
    A[2] = cast("float64", 3) + float64(A[0] < 1.0) - -0.0 - float64("nan")
    W = view((4,), "float64", elem_offset=4, data=A.data)
    W[0] = shuffle((A[ramp(0, 2, 2)], A[3]), (2,))
    for i in vectorized(int64(4)):
        A[i] = truncdiv(int32(i), 3) > 1 and True
""",
]


@pytest.mark.parametrize("text", TEXTS[:4])
def test_text_is_kept(text):
    f = parse_func(text)
    assert str(f).strip() == text.strip()
    g = parse_func(str(f))
    assert structural_equal(f, g)
    assert structural_hash(f) == structural_hash(g)


def test_wrong_dtype_of_a_store_is_an_error():
    with pytest.raises(ParseError, match=r"A takes float64 here, the value is bool"):
        parse(TEXTS[4])


def test_scopes_and_views():
    text = TEXTS[4].rpartition("    for i in")[0]
    f = parse_func(text)
    assert str(f).strip() == text.strip()
    assert structural_equal(f, parse_func(str(f)))
    view = f.body.stmts[-1].buffer
    assert view.data is f.params[0].data


def test_names_are_made_unique_and_legal():
    n = E.Var("n", is_size=True)
    a = Buffer("A", "float32", (n,))
    i, j, k = E.Var("i.outer"), E.Var("i.outer"), E.Var("for")
    body = S.For(i, E.IntImm(0), n, S.For(j, E.IntImm(0), n, S.For(k, E.IntImm(0), n, a.vstore([i + j + k], 1.0))))
    f = Func("f", (a,), body)
    text = str(f)
    assert "i_outer_1" in text
    assert structural_equal(parse_func(text), f)


def test_a_let_before_other_statements_keeps_its_scope():
    a = Buffer("A", "int32", (E.IntImm(4),))
    x = E.Var("x")
    body = S.Seq((S.LetStmt(x, E.IntImm(3), a.vstore([0], x)), a.vstore([1], 5)))
    f = Func("f", (a,), body)
    g = parse_func(str(f))
    assert structural_equal(f, g)
    assert isinstance(g.body, S.Seq) and len(g.body.stmts) == 2


def test_constants_keep_their_dtype():
    x64, xf = E.Var("x", "int64"), E.Var("y", "float16")
    for e in (
        E.Add(x64, E.IntImm(1, "int64")),
        E.Add(E.IntImm(1, "int64"), E.IntImm(2, "int64")),
        E.Mul(xf, E.FloatImm(0.0999755859375, "float16")),
        E.FloatImm(float("inf"), "bfloat16"),
        E.FloatImm(-0.0),
        E.Cast("int64", E.IntImm(1)),
        E.Cast("float32", E.FloatImm(1.5, "float64")),
        E.Sub(E.FloatImm(-0.0, "float16"), xf),
        E.Select(E.IntImm(1, "bool"), x64, E.IntImm(-5, "int64")),
        build.call("pow", xf, E.FloatImm(2.0, "float16")),
        E.EQ(x64, E.IntImm(2**40, "int64")),
        E.And(E.LT(x64, E.IntImm(3, "int64")), E.And(E.Not(E.EQ(xf, xf)), E.IntImm(0, "bool"))),
        E.Sub(x64, E.Sub(x64, E.Mul(x64, E.Add(x64, x64)))),
        E.Div(E.FloatImm(1.0), E.FloatImm(3.0)),
        E.Mod(x64, E.IntImm(-3, "int64")),
    ):
        got = parse_expr(str(e), {"x": x64, "y": xf})
        assert structural_equal(got, e), f"{e} came back as {got}"
        assert got.dtype == e.dtype


@pytest.mark.parametrize(
    "text, message, line",
    [
        ("def f(:\n    pass", "syntax", 1),
        ('def f(A: Buffer((4,), "float31")):\n    pass', "not a dtype", 1),
        ('def f(A: Buffer((4,), "float32")):\n    A[0] = B[0]', "'B' is not declared", 2),
        ('def f(A: Buffer((4,), "float32")):\n    A[0, 1] = 1.0', "1 dimensions, indexed with 2", 2),
        ('def f(A: Buffer((4,), "float32")):\n    pass\n    A[0] = frobnicate(1)', "unknown operation 'frobnicate'", 3),
        ('def f(A: Buffer((4,), "int64"), n: int32):\n    A[0] = A[1] + n', "operands of int64 and int32", 2),
        ("def f(n):\n    pass", "has no type", 1),
        ("x = 1", "expected a function", 1),
        ('def f(A: Buffer((4,), "float32")):\n    for i in sideways(4):\n        A[i] = 0.0', "unknown kind of loop", 2),
        ('def f(A: Buffer((4,), "float32")):\n    for i in range(4, unrol=2):\n        A[i] = 0.0', "unknown fact of a loop: unrol", 2),
        ('def f(A: Buffer((4,), "float32")):\n    for i in range(4, unroll=-1):\n        A[i] = 0.0', "unroll is a count", 2),
        ('def f(A: Buffer((4,), "float32")):\n    B = alloc((4,), "float32", storage_align=(0, 8, 1))\n    A[0] = B[0]', "storage_align of an allocation", 2),
        ('def f(A: Buffer((4,), "float32")):\n    B = alloc((4,), "float32", double_buffer=2)\n    A[0] = B[0]', "double_buffer of an allocation is 2", 2),
        ('def f(A: Buffer((4,), "float32")):\n    __import__("os").getcwd()', "not an expression", 2),
    ],
)  # fmt: skip
def test_errors_name_the_line(text, message, line):
    with pytest.raises(ParseError, match=message) as e:
        parse(text, "kernel.ir")
    assert e.value.where == ("kernel.ir", line)


def test_pieces_with_given_names():
    a, n = Buffer("A", "float32", (E.IntImm(4),)), E.Var("n")
    s = parse_stmt("for i in range(n):\n    A[i] = A[i] + 1.0", {"A": a, "n": n})
    assert isinstance(s, S.For) and s.extent is n and s.body.buffer is a
    assert str(s) == "for i in range(n):\n    A[i] = A[i] + 1.0"
