"""Structural equality: names and identity of bound symbols do not count, everything else does."""

import pytest

from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.buffer import Buffer
from tec.ir.func import Func, IRModule
from tec.ir.structural import structural_equal, structural_hash
from tests.ir.parser import parse, parse_func

TEXT = """
@attrs(noalias=True)
def f(A: Buffer((n, 8), "float32"), B: Buffer((n,), "float32"), *, n: size("int32")):
    for i in range(n):
        acc = alloc((1,), "float32", scope="local")
        acc[0] = -0.0
        for k in unrolled(8):
            acc[0] = acc[0] + A[i, k] * 2.0
        x: float32 = acc[0]
        B[i] = let(y := x, select(y < 1.0, y, exp(y)))
"""


def test_equal_up_to_names():
    f, g = (
        parse_func(TEXT),
        parse_func(
            TEXT.replace("acc", "total").replace("k", "j").replace("x: float32", "z: float32").replace(":= x", ":= z")
        ),
    )
    assert structural_equal(f, g) and structural_equal(g, f)
    assert structural_hash(f) == structural_hash(g)


@pytest.mark.parametrize(
    "old, new",
    [
        ("-0.0", "0.0"),
        ("2.0", "2.5"),
        ("unrolled", "range"),
        ("A[i, k]", "A[i, 7 - k]"),
        ('scope="local"', 'scope="shared"'),
        ("noalias=True", "noalias=False"),
        ("y < 1.0", "y <= 1.0"),
        ("exp(y)", "log(y)"),
        ("select(y < 1.0, y, exp(y))", "select(y < 1.0, x, exp(y))"),
        ("(n, 8)", "(n, 9)"),
        ("B: Buffer((n,), ", "B: Buffer((n,), align=16, *("),
        ("acc[0] = -0.0\n", "acc[0] = -0.0\n        acc[0] = -0.0\n"),
    ],
)  # fmt: skip
def test_differences_count(old, new):
    if "*(" in new:
        other = TEXT.replace('B: Buffer((n,), "float32")', 'B: Buffer((n,), "float32", align=16)')
    else:
        other = TEXT.replace(old, new)
    assert other != TEXT
    f, g = parse_func(TEXT), parse_func(other)
    assert not structural_equal(f, g) and not structural_equal(g, f)
    assert structural_hash(f) != structural_hash(g)


def test_free_variables():
    x, y, z = E.Var("x"), E.Var("x"), E.Var("x", "int64")
    assert structural_equal(E.Add(x, x), E.Add(x, x))
    assert not structural_equal(E.Add(x, x), E.Add(y, y))
    assert structural_equal(E.Add(x, x), E.Add(y, y), map_free_vars=True)
    assert structural_hash(E.Add(x, x), True) == structural_hash(E.Add(y, y), True)
    assert not structural_equal(E.Add(x, y), E.Add(y, y), map_free_vars=True)
    assert not structural_equal(E.Add(y, y), E.Add(x, y), map_free_vars=True)
    assert not structural_equal(E.Add(x, x), E.Add(z, z), map_free_vars=True)


def test_nested_seqs_and_no_ops_do_not_count():
    a = Buffer("A", "int32", (E.IntImm(4),))
    s = [a.vstore([k], k) for k in range(3)]
    flat = S.Seq(tuple(s))
    nested = S.Seq((s[0], S.Seq((S.NOP, S.Seq((s[1], s[2]))))))
    assert structural_equal(flat, nested) and structural_hash(flat) == structural_hash(nested)
    assert structural_equal(S.Seq((s[0],)), s[0]) and structural_equal(s[0], S.Seq((s[0],)))
    assert not structural_equal(flat, S.Seq((s[1], s[0], s[2])))


def test_nan_and_zero_constants():
    nan = float("nan")
    assert structural_equal(E.FloatImm(nan), E.FloatImm(nan))
    assert not structural_equal(E.FloatImm(0.0), E.FloatImm(-0.0))
    assert not structural_equal(E.FloatImm(1.0), E.FloatImm(1.0, "float64"))
    assert not structural_equal(E.IntImm(1), E.IntImm(1, "bool"))


def test_a_variable_bound_twice_and_used_outside():
    i, j = E.Var("i"), E.Var("j")
    a = Buffer("A", "int32", (E.IntImm(4),))

    def twice(v, w):
        return S.Seq(tuple(S.For(x, E.IntImm(0), E.IntImm(4), a.vstore([x], x)) for x in (v, w)))

    assert structural_equal(twice(i, i), twice(i, j)) and structural_equal(twice(i, j), twice(i, i))
    f, g = Func("f", (a,), twice(i, i)), Func("f", (a,), twice(j, i))
    assert structural_equal(f, g)


def test_modules():
    m = parse(TEXT + TEXT.replace("def f", "def g"))
    assert structural_equal(m, parse(str(m)))
    assert not structural_equal(m, IRModule({"f": m["f"]}))
    assert structural_hash(m) == structural_hash(parse(str(m)))
