"""What the language builds: operations, their axes and inputs, types and names."""

import subprocess
import sys

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import TecError
from tec.ir import Add, BufferStore, Call, Cast, For, IfThenElse, IntImm, IterKind, Reduce, Seq, TensorRead, While
from tec.ir.visit import walk_exprs

n, m = te.var("n"), te.size_var("m")
A = te.placeholder((n, m), name="A")
B = te.placeholder((n, m), name="B", dtype="float16")


def test_placeholder():
    assert A.shape == (n, m) or [d is e for d, e in zip(A.shape, (n, m))] == [True, True]
    assert (A.dtype, A.ndim, A.name, B.dtype) == ("float32", 2, "A", "float16")
    assert te.placeholder((4, 5)).shape[1].value == 5
    assert te.placeholder(7).ndim == 1
    assert A.op.output(0) is A
    assert A.op.loc.file == __file__


def test_compute_axes_and_body():
    C = te.compute(A.shape, lambda i, j: A[i, j] + B[i, j], name="C", tag="t", attrs={"a": 1})
    assert [a.name for a in C.op.axis] == ["i", "j"]
    assert C.op.axis[0].dom.extent is n and C.op.axis[0].kind == IterKind.DATA
    (body,) = C.op.body
    assert isinstance(body, Add) and isinstance(body.a, TensorRead) and isinstance(body.b, Cast)
    assert C.dtype == "float32" and C.op.inputs == (A, B) and C.op.tag == "t" and C.op.attrs == {"a": 1}
    assert C.op.reduce_axis == () and C.op.loc.file == __file__
    assert C.op.input_tensors[0] is A


def test_varargs_and_partial_indexing():
    C = te.compute(A.shape, lambda *i: A(*i) * 2, name="C")
    assert [a.name for a in C.op.axis] == ["i0", "i1"]
    D = te.compute(A.shape, lambda i, *rest: A[i][rest[0]])
    assert [a.name for a in D.op.axis] == ["i", "i1"] and D.op.inputs == (A,)
    assert te.compute((), lambda: te.const(1.0)).shape == ()


def test_zero_dimensional_tensor_is_a_value():
    S = te.placeholder((), name="S")
    C = te.compute((4,), lambda i: S * 2 + S() + S[()])
    assert C.op.inputs == (S,)


def test_several_outputs():
    C, D = te.compute((n,), lambda i: (A[i, 0], te.const(1, "int8")), name="C")
    assert C.op is D.op and (C.dtype, D.dtype) == ("float32", "int8") and D.value_index == 1 and D.name == "C.v1"


def test_reduction():
    k = te.reduce_axis((0, m), name="k")
    C = te.compute((n,), lambda i: te.sum(A[i, k], axis=k, where=k < 3, init=1.0))
    (r,) = C.op.body
    assert isinstance(r, Reduce) and C.op.reduce_axis == (k,) and C.op.root_iter_vars() == (C.op.axis[0], k)
    assert r.init[0].value == 1.0 and r.combiner.identity[0].value == 0.0 and r.combiner.name == "sum"
    assert te.sum(A[0, k], k).axis == (k,)


def test_argmax_by_a_tuple_reducer():
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    k = te.reduce_axis((0, m), name="k")
    idx, val = te.compute((n,), lambda i: argmax((k, A[i, k]), axis=k))
    first, second = idx.op.body
    assert (idx.dtype, val.dtype) == ("int32", "float32")
    assert first.combiner is second.combiner and (first.value_index, second.value_index) == (0, 1)
    assert first.combiner.identity[0].value == -1


def test_min_max_identities():
    k = te.reduce_axis((0, 4), name="k")
    X = te.placeholder((4,), "int8")
    assert te.max(X[k], axis=k).combiner.identity[0].value == -128
    assert te.min(X[k], axis=k).combiner.identity[0].value == 127
    assert te.max(A[0, k], axis=k).combiner.identity[0].value == float("-inf")
    assert te.all(A[0, k] > 0, axis=k).combiner.identity[0].value == 1


def test_direct_forms_of_the_reducers():
    assert te.max(3, 5, 4).value == 5 and te.sum(1, 2).value == 3 and te.min(2.0, 1.0).value == 1.0
    assert te.all(te.const(True), te.const(False)).value == 0 and te.any(te.const(True), te.const(False)).value == 1


@pytest.mark.parametrize(
    "a,b,c",
    [("float32", "float16", "float32"), ("int8", "uint8", "int16"), ("float16", "int64", "float16"), ("bool", "int8", "int8"),
     ("float16", "bfloat16", "float32"), ("int32", "int64", "int64")],
)  # fmt: skip
def test_promotion(a, b, c):
    assert (te.var("x", a) * te.var("y", b)).dtype == c


def test_numbers_take_the_other_sides_type():
    x = te.var("x", "float16")
    assert (x + 1).dtype == "float16" and (2.5 * x).dtype == "float16" and (x**2).dtype == "float16"


def test_limits():
    assert te.max_value("uint8").value == 255 and te.min_value("float16").value == -65504.0
    assert te.infinity("float32").value == float("inf")
    assert te.max_value("bfloat16").value == 3.3895313892515355e38


UNARY = """exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid
    erf floor ceil trunc round nearbyint abs""".split()


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for dtype in ("float32", "float16", "float64"):
        e = getattr(te, name)(te.var("x", dtype))
        assert isinstance(e, Call) and e.op == name and e.dtype == dtype
    assert getattr(te, name).__doc__


def test_other_math():
    x, y, i = te.var("x", "float32"), te.var("y", "float32"), te.var("i")
    assert te.pow(x, 2).op == "pow" and te.atan2(x, y).op == "atan2" and te.fmod(x, 2.0).op == "fmod"
    assert te.isnan(x).dtype == "bool" and te.isfinite(i).value == 1 and te.floor(i) is i
    assert te.ldexp(x, te.var("e", "int64")).args[1].dtype == "int32"
    assert te.sign(te.const(-3)).value == -1 and te.sign(te.const(2.5)).value == 1.0
    assert te.popcount(i).op == "popcount" and te.indexmod(te.const(7), 4).value == 3
    assert te.truncdiv(te.const(-7), 2).value == -3 and te.floordiv(te.const(-7), 2).value == -4
    assert te.truncmod(te.const(-7), 2).value == -1 and te.floormod(te.const(-7), 2).value == 1
    assert te.cast("int8", x).dtype == "int8" and te.if_then_else(i > 0, x, 0).op == "if_then_else"


def test_tensors_compare_by_identity():
    assert A == A and A != B and A in [B, A] and {A: 1}[A] == 1 and (A == None) is False  # noqa: E711


def test_scan():
    S = te.placeholder((m, n), name="S")
    X = te.placeholder((m, n), name="X")
    first = te.compute((1, n), lambda _, i: X[0, i])
    step = te.compute((m, n), lambda t, i: S[t - 1, i] + X[t, i])
    R = te.scan(first, step, S, inputs=[X], name="R")
    assert R.shape[0] is m and R.op.scan_axis.kind == IterKind.ORDERED
    assert len(R.op.spatial_axis) == 1 and R.op.inputs == (first, step)
    names = [type(o).__name__ for o in te.topo_order(R)]
    assert names == ["PlaceholderOp", "ComputeOp", "PlaceholderOp", "ComputeOp", "ScanOp"]


def test_topological_order_of_a_long_chain():
    t = te.placeholder((4,))
    for _ in range(5000):
        t = te.compute((4,), lambda i, t=t: t[i] + 1)
    assert len(te.topo_order(t)) == 5001


def test_extern_and_builder():
    def gen(ins, outs):
        ib = te.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        acc = ib.allocate("float32", (1,), "acc", scope="local")
        with ib.for_range(0, 16, "i") as i:
            acc[0] = 0.0
            with ib.if_scope(a[i // 4, i % 4] > 0):
                c[i] = a[i]
            with ib.else_scope():
                c[i] = acc[0]
            two = ib.let("two", i * 2)
            with ib.while_loop(acc[0] < two.astype("float32")):
                acc[0] = acc[0] + 1
        return ib.get()

    X = te.placeholder((4, 4), name="X")
    Y = te.extern((16,), [X], gen, name="Y")
    assert Y.dtype == "float32" and Y.op.inputs == (X,) and Y.shape[0].value == 16
    alloc = Y.op.body
    loop = alloc.body
    assert isinstance(loop, For) and isinstance(loop.body, Seq)
    store, branch, let = loop.body.stmts
    assert isinstance(store, BufferStore) and store.value.dtype == "float32" and store.loc.file == __file__
    assert isinstance(branch, IfThenElse) and branch.orelse is not None
    assert isinstance(let.body, While)
    assert len(branch.then.value.indices) == 2  # one index into two dimensions counts row-major


def test_one_index_into_a_buffer_with_strides_counts_rows():
    """As TVM's builder does; an index by a stride is an address, and is refused."""
    pitch, ib = te.var("pitch"), tec.tir.ir_builder.create()
    b = ib.buffer_ptr(tec.tir.decl_buffer((4, 8), "float32", "b", strides=[pitch, 1]))
    with ib.for_range(0, 32, "i") as i:
        read = b[i]
        assert [str(x) for x in read.indices] == ["i // 8", "i % 8"]
        with pytest.raises(TecError, match="counts the elements row by row"):
            b[i * pitch]


def test_names_that_a_stage_or_a_schedule_has_not():
    made = te.compute((4,), lambda i: te.const(1, "float32"), name="made")
    s = te.create_schedule(made.op)
    for call, says in [
        (lambda: s[made].cache_read, r"s\.cache_read\(A, scope, \[B\]\)"),
        (lambda: s[made].spilt, "is split meant"),
        (lambda: s.split, r"s\[B\]\.split of a stage"),
        (lambda: s.get_block, r"s\[B\]"),
    ]:
        with pytest.raises(AttributeError, match=says):
            call()


def test_where_programs_of_tvm_look():
    tec.testing.assert_allclose(tec.nd.array(np.ones(3)), np.ones(3), rtol=1e-6)
    with pytest.raises(AssertionError):
        tec.testing.assert_allclose(tec.nd.array(np.ones(3)), np.zeros(3))


def test_extern_of_several_outputs_and_a_call():
    P, Q = te.extern(
        [(4,), (5,)], [A], lambda i, o: te.call_extern("int32", "f", i[0].access_ptr("r")), dtype=["int8", "float32"]
    )
    assert (P.dtype, Q.dtype, Q.shape[0].value) == ("int8", "float32", 5)


def test_thread_launch_in_the_builder():
    ib = te.ir_builder.create()
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 64)
    c = ib.buffer_ptr(te.decl_buffer((64,), name="c"))
    c[tx] = 1.0
    loop = ib.get()
    assert isinstance(loop, For) and (loop.kind, loop.thread) == ("thread", "threadIdx.x") and loop.extent.value == 64


def test_decl_buffer():
    b = te.decl_buffer(
        (n, m), "float16", "b", strides=[te.var("s"), 1], elem_offset=None, offset_factor=8, data_alignment=16
    )
    assert (
        b.align_bytes == 16
        and b.offset_factor == 8
        and b.elem_offset.name == "b_elem_offset"
        and b.strides[1].value == 1
    )
    assert te.decl_buffer((4,)).elem_offset == 0


def test_tensor_intrinsic():
    x, y = te.placeholder((16,), name="x"), te.placeholder((16,), name="y")
    k = te.reduce_axis((0, 16), "k")
    dot = te.compute((1,), lambda i: te.sum(x[k] * y[k], axis=k), name="dot")

    def gen(ins, outs):
        call = te.call_extern("int32", "dot16", ins[0].access_ptr("r"), ins[1].access_ptr("r"), outs[0].access_ptr("w"))
        return call, outs[0].vstore([0], 0.0), call

    intrin = te.decl_tensor_intrin(dot.op, gen, name="dot16", binds={x: te.decl_buffer((16,), strides=[te.var("s")])})
    assert len(intrin.buffers) == 3 and intrin.inputs == (x, y) and intrin.reduce_init is not None
    assert not isinstance(intrin.buffers[1].elem_offset, int)  # default buffers have an offset of their own


def test_thread_axis_forms():
    t = te.thread_axis((0, 32), "threadIdx.y")
    assert (
        t.thread_tag == "threadIdx.y" and t.dom.extent.value == 32 and te.thread_axis("vthread").thread_tag == "vthread"
    )


def test_tag_scope():
    @te.tag_scope("injective")
    def double(x):
        return te.compute(x.shape, lambda *i: x(*i) * 2)

    assert double(A).op.tag == "injective" and te.compute((4,), lambda i: i).op.tag == ""


def test_public_names():
    for name in te.__all__:
        if name in ("ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ScanOp", "load_json", "save_json"):
            continue  # classes to ask for, and names that loop IR has too
        assert getattr(tec, name) is getattr(te, name), name
    with pytest.raises(AttributeError):
        tec.no_such_name  # noqa: B018
    assert tec.target.rocm("gfx90a").mcpu == "gfx90a"


def test_import_is_light():
    code = "import tec, sys; tec.te; print([m for m in ('llvmlite', 'networkx', 'onnx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_strong_types_of_indices():
    C = te.compute((te.const(4, "int64"),), lambda i: i)
    assert C.dtype == "int64" and isinstance(C.shape[0], IntImm)
    assert [e.dtype for e in walk_exprs(C.op.body[0])] == ["int64"]


def test_equality_of_variables_is_identity_in_lists_and_dicts():
    i, j = te.compute((4, 6), lambda i, j: i + j, name="C").op.axis
    assert j in [i, j] and [i, j].index(j) == 1 and [i, j].count(i) == 1
    assert [i, j] == [i, j] and [i, j] != [j, i] and {i: 1, j: 2}[j] == 2
    assert n in (m, n) and n == n and n != m and not n == m
    wide = te.var("w", "int64")
    assert wide not in (n, m)  # compared after a cast to the wider type
    assert i is not None and (i == None) is False and (i != None) is True  # noqa: E711
    assert i.same_as(i) and not i.same_as(j)
    assert te.const(3) and not te.const(0) and te.const(3) == 3


@pytest.mark.parametrize("ask", [lambda: n == 4, lambda: n + 1 == n, lambda: n != m + 1, lambda: n < m, lambda: n])
def test_other_questions_have_no_answer_yet(ask):
    with pytest.raises(tec.TecError, match="truth value"):
        bool(ask())
