"""The functions that are made from the nodes' declarations."""

from __future__ import annotations

from tec.ir import expr as E
from tec.ir import schema, visit
from tec.ir import stmt as S
from tec.ir.buffer import Buffer
from tec.ir.func import Func
from tec.ir.passes.rewrite_util import clone
from tec.ir.printer import BY_FIELDS
from tec.ir.structural import structural_equal
from tests.ir.parser import parse_func as parse


def test_every_node_is_there():
    names = {c.__name__ for c in (*schema.EXPRS, *schema.STMTS)}
    assert {"Var", "Add", "Not", "Reduce", "TensorRead", "BufferLoad", "BufferStore", "Attr", "AllReduce"} <= names
    assert len(names) == len(schema.EXPRS) + len(schema.STMTS) == 43


def test_a_store_is_rebuilt_where_a_child_changes_and_kept_where_none_does():
    i, j = E.Var("i"), E.Var("j")
    b = Buffer("A", "int32", (E.IntImm(4), E.IntImm(4)))
    store = S.BufferStore(b, E.Add(i, j), (i, j), E.LT(i, j))
    seen = []

    def keep(e):
        seen.append(e)
        return e

    assert visit.map_stmt(store, lambda s: s, keep) is store
    assert seen == [store.value, i, j, store.predicate]
    out = visit.map_stmt(store, lambda s: s, lambda e: i if e is j else e)
    assert isinstance(out, S.BufferStore) and out.buffer is b and out.indices == (i, i)
    assert out.value is store.value and out.predicate is store.predicate


def test_what_may_be_none_stays_none():
    i = E.Var("i", "bool")
    branch = S.IfThenElse(i, S.NOP)
    assert visit.map_stmt(branch, lambda s: s, lambda e: e) is branch
    other = visit.map_stmt(branch, lambda s: S.Evaluate(i), lambda e: e)
    assert isinstance(other, S.IfThenElse) and other.orelse is None and other.then is not S.NOP


def test_what_a_node_binds_is_renewed_and_what_it_names_follows():
    i, j, x = E.Var("i"), E.Var("j"), E.Var("x")
    outer, own = (Buffer(n, "int32", (E.IntImm(4),)) for n in "AB")
    keep = S.BufferStore(own, E.Add(i, E.BufferLoad(outer, (j,))), (x,))
    loop = S.For(i, j, E.IntImm(4), S.LetStmt(x, i, S.Alloc(own, keep)))
    made = clone(loop, {j: E.IntImm(7)})
    let, alloc, store = made.body, made.body.body, made.body.body.body
    assert made.var is not i and made.min.value == 7  # bounds stand outside of what the loop binds
    assert let.value is made.var and let.var is not x and alloc.buffer is not own
    assert store.buffer is alloc.buffer and store.value.a is made.var and store.indices == (let.var,)
    assert store.value.b.buffer is outer and structural_equal(clone(loop, {}), loop)
    assert [v.name for v in visit.free_vars(loop)] == ["j"]


def test_an_expression_without_a_syntax_of_its_own_is_written_by_its_fields():
    assert set(BY_FIELDS) == {"ramp", "broadcast", "shuffle"}
    i = E.Var("i")
    e = E.Shuffle((E.Ramp(i, E.IntImm(2), 4), E.Broadcast(i, 4)), (0, 5, 1, 4))
    assert str(e) == "shuffle((ramp(i, 2, 4), broadcast(i, 4)), (0, 5, 1, 4))"
    b = Buffer("A", "int32", (E.IntImm(8),))
    f = Func("f", (b, i), S.BufferStore(b, e, (E.Ramp(E.IntImm(0), E.IntImm(1), 4),)))
    assert structural_equal(parse(str(f)), f, map_free_vars=True)


def test_children_are_what_a_rewrite_goes_through():
    i, j = E.Var("i"), E.Var("j")
    b = Buffer("A", "int32", (E.IntImm(4), E.IntImm(4)))
    call = E.Call("bitxor", (i, j), "int32")
    for e in (
        E.Add(i, j),
        E.Not(E.LT(i, j)),
        E.BufferLoad(b, (i, j)),
        E.BufferLoad(b, (i, j), E.LT(i, j)),
        call,
        i,
        E.Select(E.LT(i, j), j, i),
    ):
        seen = []
        visit.map_expr(e, lambda x, seen=seen: seen.append(x) or x)
        assert visit.children(e) == tuple(seen)
    assert [type(x).__name__ for x in visit.walk_exprs(E.Add(call, E.Add(i, j)))] == [
        "Var",
        "Var",
        "Call",
        "Add",
        "Add",
    ]
