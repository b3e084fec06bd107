"""The functions that are made from the nodes' declarations."""

from __future__ import annotations

from tec.ir import expr as E
from tec.ir import schema, visit
from tec.ir import stmt as S
from tec.ir.buffer import Buffer


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
