"""The Analyzer: simplification of index arithmetic, proofs, bounds, symbolic intervals, the rule table."""

import itertools

import numpy as np
import pytest

from tec.ir import build
from tec.ir import expr as E
from tec.ir.arith import Analyzer, IntSet
from tec.ir.arith.matcher import compile_rules
from tec.ir.arith.rules import RULES
from tec.ir.buffer import Buffer
from tec.ir.interp import eval_expr
from tec.ir.structural import structural_equal
from tests.ir.parser import parse_expr

I, J, F, K, X = (E.Var(n) for n in "ijfkx")
N, M = E.Var("n", is_size=True), E.Var("m", is_size=True)
D = Buffer("D", "int32", (E.IntImm(16),))
U = Buffer("U", "uint8", (E.IntImm(16),))
P = Buffer("P", "float32", (E.IntImm(16),))
NAMES = {"i": I, "j": J, "f": F, "k": K, "x": X, "n": N, "m": M, "D": D, "U": U, "P": P}


def rng(extent):
    return E.Range(E.IntImm(0), build.convert(extent))


@pytest.fixture
def ana():
    a = Analyzer()
    for v, extent in ((I, 16), (J, 4), (F, 1024), (K, N)):
        a.bind(v, rng(extent))
    return a


@pytest.mark.parametrize(
    "before, after",
    [
        # a fused loop's value put together again by a symbolic size: alone, under a factor, widened
        ("f // m * m + f % m", "f"),
        ("(f // k // m * m + f // k % m) * k + f % k", "f"),
        ("f // (m + 1) * (m + 1) + f % (m + 1)", "f"),
        ("int64(f // m) * int64(m) + int64(f % m)", "int64(f)"),
        ("int64(i * 8 + j // 2) * 2 + int64(j % 2)", "int64(j) + int64(i * 8) * 2"),
        ("f // m * n + f % m", "f // m * n + f % m"),
        # split and fuse
        ("(i*4 + j) // 4", "i"),
        ("(i*4 + j) % 4", "j"),
        ("(i*16 + f % 16) // 4 % 4", "f // 4 % 4"),
        ("f // 64 * 64 + f // 4 % 16 * 4 + f % 4", "f"),
        ("(f % 5 * 384 + j) // 40 * 40 + (f*24 + j) % 40", "j + f % 5 * 384"),
        ("(f % 5 * 384 + j) // 40 * 40 + (f*25 + j) % 40", "j + f % 5 * 48 // 5 * 40 + f * 5 % 8 * 5"),
        ("f - f % 16", "f // 16 * 16"),
        ("f % 64 // 4", "f // 4 % 16"),
        # coefficients that wrap to nothing, and to the smallest value
        ("D[i] * 65536 * 65536", "0"),
        ("D[i] * 65536 * 65536 + 7", "7"),
        ("D[i] * 65536 * 32768 + D[j] * 65536 * 65536", "D[i] * -2147483648"),
        ("D[i] * 65536 * 65537 - 3", "D[i] * 65536 - 3"),
        ("f // 4 // 8", "f // 32"),
        ("(f // 4 + 3) // 8", "(f + 12) // 32"),
        ("(i*8 + j*2 + 1) // 4", "i*2 + j//2"),
        ("(i*8 + j*2 + 1) % 4", "j % 2 * 2 + 1"),
        ("(f*6 + 4) // 4", "f*3 // 2 + 1"),
        ("(x*4 + 7) % 4", "3"),
        ("f // 1024", "0"),
        ("(f + 1024) % 1024", "f"),
        ("(x + i*12) % 4", "x % 4"),
        ("x % 12 % 4", "x % 4"),
        ("truncdiv(i*4 + j, 4)", "i"),
        ("truncmod(x, 4)", "truncmod(x, 4)"),
        ("truncdiv(j - 3, 4)", "0"),  # of -3 to 0
        ("(i*n + k) // n", "i"),
        ("(i*n + k) % n", "k"),
        ("(i*n + j*n) // n", "i + j"),
        # sums
        ("i + j - i", "j"),
        ("(i + 1) * 4 - i*4", "4"),
        ("x*3 - x*2 - x", "0"),
        ("(x + 1)*n - x*n", "n"),
        # comparisons
        ("k < n", "True"),
        ("k + 1 <= n", "True"),
        ("i*4 + j < 64", "True"),
        ("i*4 + j < 63", "i*4 + j < 63"),
        ("i*4 < n*4 + 3", "i < n + 1"),
        ("3 < i", "i >= 4"),
        ("x*4 + 1 == n*2", "False"),
        ("x*4 == 8", "x == 2"),
        ("(n + 3) // 4 * 4 >= n", "True"),
        ("i < 10 and i < 5", "i < 5"),
        ("i < 10 or i < 5", "i < 10"),
        ("i < 5 or i >= 5", "True"),
        ("x < 3 and x > 5", "False"),
        # minimum, maximum, choice
        ("min(i, 15)", "i"),
        ("min(i*4 + 4, n) - i*4", "min(n - i*4, 4)"),
        ("min(x, x + 1)", "x"),
        ("max(min(x, 5), 9)", "9"),
        ("min(min(x, 7), 3)", "min(x, 3)"),
        ("select(i < 20, i, j)", "i"),
        ("select(x < 3, min(x, 5), 0)", "select(x < 3, x, 0)"),
        ("if_then_else(x < 3 and x < 9, x, 0)", "if_then_else(x < 3, x, 0)"),
        ("let(y := j, y + y)", "j*2"),
        # data may wrap
        ("D[0] < D[0] + 1", "D[0] < D[0] + 1"),
        ("D[0] - D[0]", "0"),
        ("D[0] * 4 // 4", "D[0] * 4 // 4"),
        ("D[0] % 8 * 4 // 4", "D[0] % 8"),
        ("int32(U[0]) * 4 // 4", "int32(U[0])"),
        ("U[0] + 255", "U[0] + 255"),
        ("U[0] >= 0", "True"),
        # floats keep NaN and signed zeros
        ("P[0] * 1.0", "P[0]"),
        ("P[0] + 0.0", "P[0] + 0.0"),
        ("P[0] - P[0]", "P[0] - P[0]"),
        ("not (P[0] < P[1])", "not (P[0] < P[1])"),
        ("P[0] == P[0]", "P[0] == P[0]"),
        # vectors
        ("ramp(i*4, 1, 4) // broadcast(4, 4)", "broadcast(i, 4)"),
        ("ramp(i*4, 1, 4) % broadcast(4, 4)", "ramp(0, 1, 4)"),
        ("ramp(i, 1, 4) + broadcast(2, 4)", "ramp(i + 2, 1, 4)"),
        ("ramp(j, 1, 4) < broadcast(7, 4)", "broadcast(True, 4)"),
        ("broadcast(i, 4) + broadcast(j, 4)", "broadcast(i + j, 4)"),
    ],
)
def test_simplify(ana, before, after):
    e, want = parse_expr(before, NAMES), parse_expr(after, NAMES)
    got = ana.simplify(e)
    assert structural_equal(got, want), f"{before} became {got}"
    assert ana.simplify(got) is got


def test_no_change_is_the_same_object(ana):
    for text in ("i*4 + j", "(x + i) // 4", "min(n, x)", "D[i] + D[j] * 3", "if_then_else(x < n, D[i], 0)"):
        e = parse_expr(text, NAMES)
        assert ana.simplify(e) is e
        again = parse_expr(text, NAMES)  # an equal expression, seen after the first: its own object all the same
        assert ana.simplify(again) is again


@pytest.mark.parametrize(
    "cond, provable",
    [
        ("i*n + k < n*16", True),
        ("i*n + k < n*15", False),
        ("k*4 + j < n*4", True),
        ("k*4 + j <= n*4 - 1", True),
        ("k*4 + j < n*4 - 1", False),
        ("min(k, 7) < n", True),
        ("max(k, j) >= 0", True),
        ("f // 32 * 32 <= f", True),
        ("f // 32 * 32 + 31 >= f", True),
        ("f // 32 * 32 + 30 >= f", False),
        ("(x + 7) // 8 * 8 - x < 8", True),
        ("f // 3 <= (f + 45) // 48 * 16", True),  # whole steps of 16 hold what they count: so of whole numbers alone
        ("f // 3 <= (f + 44) // 48 * 16", False),
        ("x % n < n", True),  # a divisor is not 0
        ("n >= 1", False),  # though 0 <= k < n
        ("n >= 0", True),
        ("x*x >= 0", True),
    ],
)
def test_can_prove(ana, cond, provable):
    assert ana.can_prove(parse_expr(cond, NAMES)) is provable


def test_bounds_and_moduli(ana):
    assert ana.const_int_bound(I * 4 - J) == (-3, 60)
    assert ana.const_int_bound(K) == (0, None)
    assert ana.const_int_bound(X) == (None, None)
    assert ana.const_int_bound(N) == (0, None)
    assert ana.const_int_bound(parse_expr("int32(U[0]) * 2", NAMES)) == (0, 510)
    assert ana.const_int_bound(parse_expr("bitand(x, 7)", NAMES)) == (0, 7)
    assert ana.const_int_bound(parse_expr("bitxor(bitand(x, 4), 3)", NAMES)) == (0, 7)
    assert ana.const_int_bound(parse_expr("bitor(bitand(x, 8), bitand(n, 1))", NAMES)) == (0, 15)
    assert ana.const_int_bound(parse_expr("bitxor(x, 3)", NAMES)) == (-(2**31), 2**31 - 1)
    assert ana.modular(X * 8 + 6) == (8, 6)
    assert ana.modular(E.FloorDiv(X * 8 + 6, build.convert(2))) == (4, 3)
    assert ana.modular(build.convert(5)) == (0, 5)
    ana.bind_modulus(X, 4, 1)
    assert ana.modular(X * 2 + 1) == (8, 3)
    assert ana.can_prove((X + 3) % 4 == 0)


def test_constraints_hold_in_their_block_alone(ana):
    with ana.constraint(I * 4 + J < N):
        assert ana.can_prove(I * 4 + J <= N - 1)
        assert ana.simplify(build.minimum(I * 4 + J, N)) is not None
        assert str(ana.simplify(build.minimum(I * 4 + J, N))) == "i * 4 + j"
        with ana.constraint(I < 3):
            assert ana.const_int_bound(I) == (0, 2)
    assert not ana.can_prove(I * 4 + J < N)
    assert ana.const_int_bound(I) == (0, 15)
    with ana.constraint(X == 5):
        assert ana.const_int_bound(X + 1) == (6, 6)
    with ana.constraint(X <= N):
        assert ana.can_prove(N - X >= 0) and not ana.can_prove(N - X >= 1)
    with ana.constraint(X >= N):
        assert ana.can_prove(X - N >= 0) and not ana.can_prove(X - N >= 1)
    with ana.constraint(E.Not(E.Or(X < 2, X > 9))):
        assert ana.const_int_bound(X) == (2, 9)


def test_a_range_says_nothing_of_its_extent(ana):
    assert ana.const_int_bound(N) == (0, None)
    assert not ana.can_prove(N > 0)
    assert str(ana.simplify(build.maximum(N, 1))) == "max(n, 1)"


def test_rebinding_forgets(ana):
    ana.bind(K, rng(8))
    assert ana.const_int_bound(K) == (0, 7)
    assert not ana.can_prove(K < N)
    ana.bind(K, build.convert(3))
    assert ana.simplify(K + 1).value == 4
    ana.bind(K, E.Range(N, E.IntImm(1)))
    assert ana.simplify(K) is N


def test_int_sets(ana):
    def show(e, domain):
        s = ana.int_set(parse_expr(e, NAMES), domain)
        return str(s)

    four = {J: rng(4)}
    assert show("i*4 + j", four) == "[i * 4, i * 4 + 3]"
    assert show("(i*4 + j) // 4", four) == "[i, i]"
    assert show("(i*4 + j) % 4", four) == "[0, 3]"
    assert show("i*4 - j*2", four) == "[i * 4 - 6, i * 4]"
    assert show("min(i*4 + j, n - 1)", four) == "[min(i * 4, n - 1), min(i * 4 + 3, n - 1)]"
    assert show("select(i < 3, j, j + 8)", four) == "[0, 11]"
    assert show("x*j", four) == "[-inf, inf]"
    assert show("n*j", four) == "[0, n * 3]"
    assert show("int64(i + j)", four) == "[int64(i), int64(i + 3)]"
    assert show("D[j]", four) == "[-inf, inf]"
    assert ana.int_set(I, {J: rng(4)}).is_point
    assert str(ana.int_set(I + J, {I: IntSet.everything()})) == "[-inf, inf]"
    assert str(ana.union([IntSet.point(I), IntSet.point(I + 3)])) == "[i, i + 3]"


def test_detect_linear(ana):
    assert [str(c) for c in ana.detect_linear(I * 4 + N * J + F + 1, [I, J])] == ["4", "n", "f + 1"]
    assert ana.detect_linear(I * J, [I, J]) is None
    assert ana.detect_linear(I // 2 + J, [I]) is None
    assert [str(c) for c in ana.detect_linear(N * 2, [I])] == ["0", "n * 2"]


def test_detect_clip_bound(ana):
    (s,) = ana.detect_clip_bound(build.all_of(X >= 2, X * 4 + J < N), [X])
    assert str(s.min) == "2"
    for j, n, x in itertools.product(range(4), range(0, 40, 3), range(-3, 14)):
        inside = x * 4 + j < n
        env = {J: E.IntImm(j), N: E.IntImm(n)}
        top = Analyzer()
        for v, c in env.items():
            top.bind(v, c)
        assert (x <= top.simplify(s.max).value) == inside
    assert ana.detect_clip_bound(X % 2 == 0, [X]) is None
    assert ana.detect_clip_bound(I < N, [X]) is None


def test_bad_input_is_an_error_or_left_alone(ana):
    e = E.FloorDiv(X, E.IntImm(0))
    assert ana.simplify(e) is e
    e = E.FloorMod(E.IntImm(5), E.IntImm(0))
    assert ana.simplify(e) is e


def test_constants_wrap_as_the_machine_does(ana):
    top = E.IntImm(2**31 - 1)
    load = E.BufferLoad(D, (E.IntImm(0),))
    e = ana.simplify(E.Add(E.Add(load, top), E.IntImm(1)))
    assert str(e) == f"D[0] + {-(2**31)}"
    e = ana.simplify(E.Mul(E.Mul(load, E.IntImm(1664525)), E.IntImm(1013904223)))
    assert -(2**31) <= e.b.value < 2**31


# ---- the rule table


def test_every_rule_compiles_and_says_why():
    table = compile_rules(RULES)
    assert len(table) > 15
    assert all(why for *_, why in RULES)
    assert len({(p, g) for p, _, g, _ in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", [r for r in RULES if "p" not in r[0].replace("popcount", "")], ids=lambda r: r[0])
def test_every_rule_on_wrapping_bytes(rule):
    """Each rule without conditions, by exhaustion over a few bytes (int8 wraps), against the interpreter."""
    import ast

    from tec.ir.interp import eval_expr

    pattern, _, _, _ = rule
    if "." in pattern:
        pytest.skip("a rule for floats")
    names = sorted({n.id for n in ast.walk(ast.parse(pattern)) if isinstance(n, ast.Name)})
    names = [n for n in names if len(n) <= 2]
    dtype = "int8"
    variables = {n: E.Var(n, dtype) for n in names if n[0] != "c"}
    values = (-128, -7, -1, 0, 1, 3, 127)
    for consts in itertools.product((-2, 0, 1, 3, 5), repeat=sum(n[0] == "c" for n in names)):
        given = dict(variables)
        given.update(zip([n for n in names if n[0] == "c"], [E.IntImm(c, dtype) for c in consts]))
        text = pattern
        e = parse_expr(text, given)
        s = Analyzer().simplify(e)
        for point in itertools.product(values, repeat=len(variables)):
            env = dict(zip(variables.values(), point))
            assert eval_expr(e, env) == eval_expr(s, env), f"{e} -> {s} at {point}"


@pytest.mark.parametrize("constant", [0, 5, -(2**31)])
@pytest.mark.parametrize("factors", [(-(2**31),), (3, -(2**31)), (-(2**31), 3, -1), (2**31 - 1, -(2**31), 7)])
def test_sums_with_the_smallest_factor_wrap(factors, constant):
    """The smallest int32 has no negative, so that such sums are put together by additions alone; their value is the machine's."""
    e = E.IntImm(constant, "int32")
    for k, c in enumerate(factors):
        e = E.Add(E.Mul(parse_expr(f"D[{k}]", NAMES), E.IntImm(c, "int32")), e)
    data = np.array([1, -7, 2**31 - 1, -(2**31), *range(12)], np.int32)
    s = Analyzer().simplify(e)
    assert eval_expr(s, {}, {D: data}) == eval_expr(e, {}, {D: data})
    want = constant + sum(int(data[k]) * c for k, c in enumerate(factors))
    assert eval_expr(s, {}, {D: data}) == (want + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize(("extent", "most"), [(8, 7), (9, 7), (16, 7), (7, 6)])
def test_a_remainder_is_below_its_divisor(extent, most):
    """Also where the last value is the divisor itself."""
    a, v = Analyzer(), E.Var("v")
    a.bind(v, rng(extent))
    assert a.const_int_bound(E.FloorMod(v, E.IntImm(8))) == (0, most)


@pytest.mark.parametrize("text", ["D[i] + 1", "D[i] - 1", "D[i] * 3"])
def test_a_sum_with_what_memory_holds_may_wrap_at_either_end(ana, text):
    """An index's own arithmetic never wraps; that of values that are read does, so such a sum is anything of its type."""
    assert ana.const_int_bound(parse_expr(text, NAMES)) == (-(2**31), 2**31 - 1)


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor", "shl", "shr"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_bits_of_numbers_are_the_interpreters(op, dtype):
    """Both operands known: the number that running it gives."""
    info = np.iinfo(dtype)
    counts = [0, 1, 5, info.bits - 1]
    for a in (0, 1, 6, 100, info.max, info.min, info.min // 3):
        for b in counts if op.startswith("sh") else (*counts, int(info.max), int(info.min)):
            e = E.Call(op, (E.IntImm(int(a), dtype), E.IntImm(int(b), dtype)), dtype)
            s = Analyzer().simplify(e)
            assert isinstance(s, E.IntImm) and s.value == int(eval_expr(e, {}, {})), (op, a, b, s)


def test_a_range_has_what_is_known_of_its_extent():
    """Also where the variable was asked for before: of a size that is bounded, of a min, of an end that is bounded below."""
    for extent, known, bound in ((N, N <= 8, (0, 7)), (build.minimum(N, 5), N <= 8, (0, 4)), (N * 2, N < 4, (0, 5))):
        a = Analyzer()
        with a.constraint(known):
            a.const_int_bound(X + 1)
            a.bind(X, rng(extent))
            assert a.const_int_bound(X) == bound and a.can_prove(X < extent), extent


@pytest.mark.parametrize("digits", [[4, 4], [4, 4, 4], [3, 5, 2], [2, 3, 4, 5]])
def test_the_digits_of_a_number_are_the_number(digits):
    """In whatever order they are added, with its upper part and without."""
    ana, x = Analyzer(), E.Var("x")
    ana.bind(x, E.Range(E.IntImm(-1000), E.IntImm(3000)))
    parts, unit = [], 1
    for d in digits:
        parts.append(x // unit % d * unit)
        unit *= d
    for order in itertools.permutations(range(len(digits) + 1)):
        whole = [parts[k] if k < len(digits) else x // unit * unit for k in order]
        assert structural_equal(ana.simplify(sum(whole[1:], whole[0])), x), order
        rest = [parts[k] for k in order if k < len(digits)]
        low = ana.simplify(sum(rest[1:], rest[0]))
        for value in (-999, -1, 0, 7, 61, 1999):
            assert eval_expr(low, {x: value}, {}) == value % unit, order
