"""Mistakes in the language: each raises an ExprError that says what is wrong and shows the line of this file."""

import inspect

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ExprError

N = te.var("n")
A = te.placeholder((N, 8), name="A")
V = te.placeholder((8,), name="V")
X = te.placeholder((8,), name="X", dtype="int32")
K = te.reduce_axis((0, 8), name="k")


def add_pair(x, y):
    return x[0] + y[0], x[1] + y[1]


def compute_of(body):
    return te.compute((8,), body, name="C")


def emit_if(condition):
    ib = te.ir_builder.create()
    with ib.if_scope(condition):
        pass


def two_reductions(i):
    return te.sum(A[i, K], axis=K), te.max(A[i, K], axis=K)


def product_by_blas(a, b):
    from tec.te.libraries import matmul

    return matmul(a, b, "onednn")


def scan_of(init_rows=1, update_shape=(8, 4), state_dtype="float32", state=None):
    state = state if state is not None else te.placeholder((8, 4), state_dtype, name="S")
    first = te.compute((init_rows, 4), lambda t, i: te.const(0.0), name="first")
    step = te.compute(update_shape, lambda *i: te.const(1.0), name="step")
    return te.scan(first, step, state)


MISTAKES = {
    # reading tensors
    "too many indices": (lambda: compute_of(lambda i: V[i, 0]), "V has 1 dimensions, indexed with 2"),
    "too few indices in a call": (lambda: compute_of(lambda i: A(i)), "A has 2 dimensions, indexed with 1"),
    "a row as a value": (lambda: compute_of(lambda i: A[i] + 1), "A has 2 dimensions, only 1 indexed"),
    "a tensor as a value": (lambda: compute_of(lambda i: V + 1), "stands here for one value"),
    "a tensor as the body": (lambda: compute_of(lambda i: V), "stands here for one value"),
    "a float index": (lambda: compute_of(lambda i: V[i * 0.5]), "index of tensor V of type float32"),
    "a constant float index": (lambda: V[1.0], "index of tensor V of type float32"),
    "a bool index": (lambda: V[X[0] == 1], "index of tensor V of type bool"),
    "a slice": (lambda: compute_of(lambda i: V[0:4] + i), "slice as an index of tensor V"),
    "an ellipsis": (lambda: A[..., 0], "Ellipsis as an index"),
    "a string index": (lambda: V["i"], "'i' as an index"),
    "a tensor as an index": (lambda: V[X], "tensor X as an index of tensor V"),
    "a negative index": (lambda: V[-1], "index -1 is outside of dimension 0 of tensor V"),
    "an index past the end": (lambda: V[8], "index 8 is outside of dimension 0 of tensor V, which has 8"),
    "a tensor as a bool": (lambda: bool(V), "tensor V used as a bool"),
    "if on an expression": (lambda: compute_of(lambda i: V[i] if V[i] > 0 else 0.0), "truth value"),
    "and between conditions": (lambda: compute_of(lambda i: te.select(V[i] > 0 and V[i] < 1, 1.0, 0.0)), "truth value"),
    "a chained comparison": (lambda: compute_of(lambda i: te.select(0 < V[i] < 1, 1.0, 0.0)), "truth value"),
    "iterating over a tensor": (lambda: next(iter(V)), "cannot be iterated over"),
    "Python's sum over an element": (lambda: compute_of(lambda i: sum(V[i])), "cannot be iterated over"),
    "a thread axis in other letters": (lambda: te.thread_axis("threadidx.x"), "unknown thread axis 'threadidx.x'"),
    "len of a tensor": (lambda: len(V), "len() of tensor V"),
    "a tensor compared with a number": (lambda: V == 3, "stands here for one value"),
    # shapes and types
    "a negative dimension": (lambda: te.placeholder((4, -1)), "dimension 1 of placeholder is negative"),
    "a float dimension": (lambda: te.placeholder((4, 2.5)), "is 2.5"),
    "a float variable as a dimension": (lambda: te.placeholder((te.var("f", "float32"),)), "has type float32"),
    "a string as a shape": (lambda: te.placeholder("48"), "the shape of placeholder is '48'"),
    "None in a shape": (lambda: te.placeholder((None, 4)), "dimension 0"),
    "a tensor as a dimension": (lambda: te.placeholder((V,)), "is a tensor (V)"),
    "an unknown dtype": (lambda: te.placeholder((4,), dtype="float33"), "unknown dtype 'float33'"),
    "a dtype of the wrong kind": (lambda: te.placeholder((4,), dtype=3.5), "unknown dtype"),
    "a NumPy dtype that numbers lack": (lambda: te.var("z", dtype=np.complex64), "unknown dtype 'complex64'"),
    "a float size": (lambda: te.size_var("n", "float32"), "a size has an integer type"),
    "a name that is no text": (lambda: te.var(3), "the name of a variable is text"),
    "a constant of no number": (lambda: te.const([1, 2]), "cannot make a constant of"),
    "a constant that does not fit": (lambda: te.const(300, "int8"), "300 does not fit int8"),
    "a constant beyond its float type": (lambda: te.const(1e40, "float32"), "1e+40 is beyond float32"),
    "a vector of constants beyond their type": (lambda: te.const(7e4, "float16x4"), "70000.0 is beyond float16"),
    "a number beyond the tensor beside it": (lambda: compute_of(lambda i: V[i] + 1e39), "1e+39 is beyond float32"),
    "a fraction as an integer constant": (lambda: te.const(0.5, "int32"), "0.5 is not a value of int32"),
    "infinity of an integer type": (lambda: te.infinity("int32"), "int32 has no infinity"),
    # compute
    "too few lambda parameters": (lambda: te.compute((4, 4), lambda i: 1.0), "takes 1 index, its shape has 2 dimensions"),
    "too many lambda parameters": (lambda: te.compute((4,), lambda i, j: 1.0), "takes 2 indices, its shape has 1 dimension"),
    "keyword-only parameters": (lambda: te.compute((4,), lambda *, i: 1.0), "keyword-only"),
    "no function": (lambda: te.compute((4,), 3), "takes a function of the indices"),
    "a body of None": (lambda: compute_of(lambda i: None), "returns None"),
    "a body of text": (lambda: compute_of(lambda i: "x"), "no expression"),
    "a body of no value": (lambda: compute_of(lambda i: ()), "gives no value"),
    "a body of an array": (lambda: compute_of(lambda i: np.ones(3)), "cannot be part of a tensor expression"),
    "a foreign axis": (lambda: compute_of(lambda i: V[compute_of(lambda q: V[q]).op.axis[0]]), "axis q of another compute"),
    "a reduce axis outside": (lambda: compute_of(lambda i: V[K]), "reduce axis k outside of a reduction"),
    "a reduction inside an expression": (
        lambda: compute_of(lambda i: te.sum(V[K], axis=K) + 1.0), "a reduction must be the outermost expression"),
    "a reduction in a condition": (
        lambda: compute_of(lambda i: te.select(te.max(V[K], axis=K) > 0, 1.0, 0.0)), "must be the outermost"),
    "a reduction of a reduction": (lambda: compute_of(lambda i: te.sum(te.sum(V[K], axis=K), axis=K)), "reductions do not nest"),
    "a reduction in a reduction": (
        lambda: compute_of(lambda i: te.sum(te.sum(V[K], axis=K) * 2, axis=te.reduce_axis((0, 2)))), "must be the outermost"),
    "two unlike reductions": (lambda: te.compute((N,), two_reductions), "not the values of one reduction"),
    "reducing and not": (lambda: te.compute((N,), lambda i: (te.sum(A[i, K], axis=K), te.const(1.0))), "outputs that reduce"),
    # reductions
    "an axis that is an int": (lambda: te.sum(V[K], axis=0), "axis of sum is 0 (int)"),
    "a data axis": (lambda: te.sum(V[K], axis=compute_of(lambda i: V[i]).op.axis[0]), "is a data axis"),
    "no axis": (lambda: te.sum(V[K]), "sum needs an axis"),
    "an empty list of axes": (lambda: te.sum(V[K], axis=[]), "sum over no axis"),
    "an axis twice": (lambda: te.sum(V[K], axis=[K, K]), "lists an axis twice"),
    "a where that is no condition": (lambda: te.sum(V[K], axis=K, where=V[K]), "where= of sum is float32"),
    "an init of another type": (lambda: te.sum(V[K], axis=K, init=X[0]), "init of sum is int32"),
    "any of a number": (lambda: te.any(V[0], V[1]), "tec.any of a value of type float32"),
    "all of nothing": (lambda: te.all(), "of no conditions"),
    "a domain of three": (lambda: te.reduce_axis((0, 8, 2)), "the domain of reduce axis rv"),
    "a domain backwards": (lambda: te.reduce_axis((8, 0)), "ends before it begins"),
    "a float domain": (lambda: te.reduce_axis((0, 1.5)), "domain of reduce axis rv"),
    "a reducer of one parameter": (lambda: te.comm_reducer(lambda x: x, lambda t: te.const(0, t)), "must take 2 arguments"),
    "a reducer without its identities": (
        lambda: te.comm_reducer(add_pair, lambda t: te.const(0, t))((V[K], V[K]), axis=K), "must take 2 arguments"),
    # math
    "exp of an integer": (lambda: te.exp(X[0]), "tec.exp of a value of type int32"),
    "integers divided by /": (lambda: X[0] / 2, "`/` of two integers"),
    "division by zero": (lambda: X[0] // 0, "division by zero"),
    "popcount of a float": (lambda: te.popcount(V[0]), "tec.popcount of a value of type float32"),
    "a shift past the width": (lambda: X[0] << 32, "shift of int32 by 32"),
    "bits of a float": (lambda: V[0] & 1, "bit operation on float32"),
    "int64 with uint64": (
        lambda: te.var("a", "int64") + te.var("b", "uint64"), "no common integer type"),
    "ldexp by a float": (lambda: te.ldexp(V[0], V[1]), "the exponent of tec.ldexp is float32"),
    "an unknown operation": (lambda: te.call_intrin("float32", "frobnicate", V[0]), "unknown operation 'frobnicate'"),
    "an operation's argument count": (lambda: te.call_intrin("float32", "fma", V[0]), "fma takes 3 arguments, given 1"),
    "a tensor as a call's argument": (lambda: te.call_extern("float32", "f", V), "tensor V as an argument of f"),
    # threads, tags, buffers
    "an unknown thread axis": (lambda: te.thread_axis("threadIdx.w"), "unknown thread axis 'threadIdx.w'"),
    "nested tag scopes": (lambda: te.tag_scope("a").__enter__() and te.tag_scope("b").__enter__(), "inside of tag_scope"),
    "a buffer's strides": (lambda: te.decl_buffer((4, 4), strides=[1]), "has 2 dimensions and 1 strides"),
    "a buffer's scope": (lambda: te.decl_buffer((4,), scope="lds"), "unknown scope 'lds'"),
    "a buffer's alignment": (lambda: te.decl_buffer((4,), data_alignment=24), "data_alignment of buffer buffer is 24"),
    "a negative offset": (lambda: te.decl_buffer((4,), elem_offset=-1), "elem_offset of buffer buffer is negative"),
    # scan, extern, intrinsics
    "a scan with unlike shapes": (lambda: scan_of(update_shape=(8, 5)), "dimension 1 of update is 5, of the state 4"),
    "a scan with unlike ranks": (lambda: scan_of(update_shape=(8,)), "2, 1 and 2 dimensions"),
    "a scan with unlike types": (lambda: scan_of(state_dtype="float16"), "init is float32, update float32, state float16"),
    "a scan without a first row": (lambda: scan_of(init_rows=0), "init has 0 rows"),
    "a scan over no placeholder": (lambda: scan_of(state=compute_of(lambda i: V[i])), "is no placeholder"),
    "a scan of unlike counts": (lambda: te.scan([A], [A, A], [A]), "1 init, 2 update and 1 state"),
    "an extern without a dtype": (lambda: te.extern((8,), [V, X], lambda i, o: None), "needs dtype="),
    "an extern that returns nothing": (lambda: te.extern((8,), [V], lambda i, o: None), "returns None"),
    "an extern that returns a number": (lambda: te.extern((8,), [V], lambda i, o: 3), "which is no statement"),
    "an extern input that is no tensor": (lambda: te.extern((8,), [3], lambda i, o: None, dtype="int32"), "is no tensor"),
    "an intrinsic of a placeholder": (lambda: te.decl_tensor_intrin(V.op, lambda i, o: None), "needs the compute"),
    "an intrinsic that returns nothing": (
        lambda: te.decl_tensor_intrin(compute_of(lambda i: V[i]).op, lambda i, o: None), "returns None"),
    "an intrinsic's foreign bind": (
        lambda: te.decl_tensor_intrin(compute_of(lambda i: V[i]).op, lambda i, o: None, binds={X: te.decl_buffer((8,))}),
        "neither an input nor an output"),
    # the builder
    "else without if": (lambda: te.ir_builder.create().else_scope().__enter__(), "else_scope without an if_scope"),
    "an if on a number": (lambda: emit_if(V[0]), "a condition of type float32"),
    "a tensor in the builder": (lambda: te.ir_builder.create().buffer_ptr(V), "tensor V given to buffer_ptr"),
    "an unknown loop kind": (lambda: te.ir_builder.create().for_range(0, 4, kind="par").__enter__(), "unknown kind of loop"),
    "a store of another type": (
        lambda: te.ir_builder.create().buffer_ptr(te.decl_buffer((4,), "int32")).__setitem__(0, V[0]),
        "float32 stored to buffer buffer of int32"),
    "emitting no statement": (lambda: te.ir_builder.create().emit(3), "cannot emit 3"),
    "an unknown scope in the builder": (
        lambda: te.ir_builder.create().allocate("float32", 4, scope="lds"), "unknown scope 'lds'"),
    # what is said with a remedy
    "too many indices in a slice": (lambda: V[0:4, 0:4], "sliced with 2 indices"),
    "the largest pointer": (lambda: te.max_value("handle"), "a pointer has no largest value"),
    "a function with an option of its own": (lambda: te.compute((8,), lambda i, *, scale: V[i]), "keyword-only"),
    "an array of another rank": (lambda: te.evaluate([compute_of(lambda i: V[i])], {V: np.zeros((2, 4))}), "has 2 dimensions"),
    "an array of another size": (lambda: te.evaluate([compute_of(lambda i: V[i])], {V: np.zeros(4)}), "is 4, not 8"),
    "an extern without a function": (lambda: te.extern((8,), [V], "sort", dtype="float32"), "takes a function"),
    "an extern of unlike counts": (
        lambda: te.extern([(8,), (8,)], [V], lambda i, o: None, dtype=["float32"]), "2 shapes and 1 dtypes"),
    "an extern with too few buffers": (
        lambda: te.extern((8,), [V], lambda i, o: None, dtype="float32", in_buffers=[]), "Buffers are needed"),
    "a call without a name": (lambda: te.call_extern("float32", 3, V[0]), "the name is 3"),
    "a packed call without a name": (lambda: te.call_packed(3), "the name of a registered function"),
    "a reducer of no functions": (lambda: te.comm_reducer("sum", 0), "takes two functions"),
    "all of several over an axis": (lambda: te.all(A[0, K] > 0, A[1, K] > 0, axis=K), "takes one condition, not 2"),
    "a reducer with too many identities": (
        lambda: te.comm_reducer(lambda x, y: x + y, lambda t: (0, 0), name="odd")(V[K], axis=K), "2 identities"),
    "init of another count": (lambda: te.sum(V[K], axis=K, init=(0.0, 0.0)), "2 init values"),
    "a tag of no text": (lambda: te.tag_scope(3), "a tag is text"),
    "matrices of unlike types": (lambda: product_by_blas(V, X), "a product of"),
    "matrices of unlike sums": (
        lambda: product_by_blas(te.placeholder((4, 8), name="P"), te.placeholder((4, 8), name="Q")), "a product over 8"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_tag_left():
    from tec.te import tags

    token = tags._TAG.set("")
    yield
    tags._TAG.reset(token)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name):
    function, message = MISTAKES[name]
    with pytest.raises(ExprError) as caught:
        function()
    text = str(caught.value)
    assert message in text and caught.value.hint
    assert caught.value.where is not None and caught.value.where.file == __file__
    first, count = inspect.getsourcelines(function)[1], len(inspect.getsourcelines(function)[0])
    helpers = {"scan_of", "compute_of", "two_reductions", "emit_if", "product_by_blas"} & set(
        function.__code__.co_names
    )
    assert helpers or first <= caught.value.where.line <= first + count


def test_errors_are_tec_errors():
    with pytest.raises(tec.TecError):
        bool(V)


@pytest.mark.parametrize("size", [lambda n: n(), lambda n: n, lambda n: n() + 1, lambda n: te.max(n(), 4)])
def test_a_size_that_is_read_from_a_tensor(size):
    n, a = te.placeholder((), "int64", name="n"), te.placeholder((9,), name="a")
    for declare in (lambda s: te.compute((s,), lambda i: a[i]), lambda s: te.placeholder((s,))):
        with pytest.raises(tec.ExprError, match="is read from a tensor"):
            declare(size(n))
