"""A select evaluates both sides: its condition must not loosen what keeps an access in range."""

from tec import te
from tec.ir import BufferLoad, Call, Div, FloorDiv
from tec.ir.arith import Analyzer
from tec.ir.build import buffer_load, const, if_then_else, maximum, minimum, select, truncdiv
from tec.ir.visit import walk_exprs

X = te.decl_buffer((9,), name="X")
y = te.var("y")
CLAMPED = maximum(minimum(y, 8), 0)
INSIDE = te.all(y >= 0, y < 9)


def index_of(e):
    return next(x for x in walk_exprs(e) if isinstance(x, BufferLoad)).indices[0]


def test_an_index_stays_clamped_in_a_select():
    e = Analyzer().simplify(select(INSIDE, buffer_load(X, [CLAMPED]), const(0.0)))
    assert index_of(e) is not y


def test_an_index_is_freed_where_only_one_side_runs():
    e = Analyzer().simplify(if_then_else(INSIDE, buffer_load(X, [CLAMPED]), const(0.0)))
    assert isinstance(e, Call) and index_of(e) is y


def test_a_divisor_stays_clamped_in_a_select():
    e = Analyzer().simplify(select(y >= 1, truncdiv(const(100), maximum(y, 1)), 0))
    assert next(x for x in walk_exprs(e) if isinstance(x, (Div, FloorDiv))).b is not y
