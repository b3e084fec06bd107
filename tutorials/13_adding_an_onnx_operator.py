# %% [markdown]
# # Adding an ONNX operator
#
# A model is imported node by node. For each ONNX operator one function, its converter, builds
# nodes of tec's own graph. Most new operators need only a converter. Some also need a new operator
# of tec ("Writing an operator"). This tutorial shows how to find out what a model lacks, how to
# write a converter from existing operators, an attribute with a default, an input whose value must
# be known, and the tests.

# %%
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tec_onnx import from_onnx, unsupported

import tec

rng = np.random.default_rng(0)


def model(op, inputs, consts=(), out_shape=(2, 6), **attributes):
    """A model of one node of the domain my.ops."""
    node = helper.make_node(
        op, [*inputs, *(name for name, _ in consts)], ["y"], name="it", domain="my.ops", **attributes
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
        [numpy_helper.from_array(array, name) for name, array in consts],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)])


# %% [markdown]
# ## What is missing
# `tec ops model.onnx` lists the operators of a model that tec does not have, and ends with exit
# code 1. `unsupported` does the same from Python. Compiling such a model raises an error that
# names all of them, and the nodes that use them.

# %%
gated = model("GatedUnit", {"x": (2, 6)}, out_shape=(2, 3), beta=1.5)
print(unsupported(gated))
try:
    tec.compile(gated, target="llvm")
    raise SystemExit("an unknown operator was taken")
except tec.ImportModelError as error:
    print(error.message)

# %% [markdown]
# ## A converter
# `GatedUnit` halves its input along the last axis, and multiplies one half by the sigmoid of
# `beta` times the other. The operators for this exist: slices, products, and a sigmoid. `call[k]`
# is an input, a value of the graph with its `shape` and `dtype`. `call.attr` is an attribute,
# `call.op` makes a new node, and `call.like` makes a constant of a value's type.

# %%
from tec_onnx.importer import onnx_op


@onnx_op("GatedUnit", domain="my.ops")
def gated_unit(call):
    x = call[0]
    n = x.shape[-1]
    if n % 2:
        raise tec.ImportModelError(f"GatedUnit wants an even last dimension, not {n}")
    left, right = (call.slice(x, x.ndim - 1, k * (n // 2), n // 2) for k in range(2))
    gate = call.op("sigmoid", call.op("multiply", right, call.like(call.attr("beta", 1.0), right)))
    return call.op("multiply", left, gate)


graph, _ = from_onnx(gated)
print(graph)

# %% [markdown]
# ## Its test: a reference, on every device
# The reference is written once, in NumPy, as an operator of the onnx package's evaluator. The
# compiled models of the operator are compared with it. The fused node is one kernel.

# %%
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class GatedUnit(OpRun):
    op_domain = "my.ops"

    def _run(self, x, beta=None):
        beta = 1.0 if beta is None else beta
        left, right = np.split(x, 2, axis=-1)
        return ((left / (1 + np.exp(-beta * right))).astype(x.dtype),)


def check(proto, feed, new_op, freeze=None):
    want = ReferenceEvaluator(proto, new_ops=[new_op]).run(None, {**feed, **(freeze or {})})[0]
    for target, device in (("llvm", None), ("rocm -mcpu=gfx942", tec.rocm_emu("gfx942"))):
        net = tec.compile(proto, target=target, cache=False, freeze=freeze)
        (got,) = net.run(feed, device=device)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        print(target, net.report.functions)
    return net


x = rng.standard_normal((2, 6)).astype("float32")
for attributes in ({"beta": 1.5}, {}):
    net = check(model("GatedUnit", {"x": (2, 6)}, out_shape=(2, 3), **attributes), {"x": x}, GatedUnit)
    assert len(net.report.functions) == 1

# %% [markdown]
# The refusals of a converter need tests too. The message names the node.

# %%
try:
    from_onnx(model("GatedUnit", {"x": (2, 5)}))
    raise SystemExit("an odd dimension was taken")
except tec.ImportModelError as error:
    print(error.message)

# %% [markdown]
# ## An input whose value must be known
# The second input of `FirstRows` is the number of rows to keep. Shapes depend on this number, so
# it must be known at import. `call.ints(k)` returns it, from a constant of the model or from
# `freeze`. Without either, an error says which input it is.

# %%


@onnx_op("FirstRows", domain="my.ops")
def first_rows(call):
    (count,) = call.ints(1)
    return call.slice(call[0], 0, 0, count)


class FirstRows(OpRun):
    op_domain = "my.ops"

    def _run(self, x, count):
        return (x[: int(count[0])],)


rows = rng.standard_normal((5, 4)).astype("float32")
constant = model("FirstRows", {"x": (5, 4)}, [("count", np.array([3]))], (3, 4))
check(constant, {"x": rows}, FirstRows)

# %%
value = helper.make_tensor_value_info
asked = helper.make_model(
    helper.make_graph(
        [helper.make_node("FirstRows", ["x", "count"], ["y"], name="it", domain="my.ops")],
        "g",
        [value("x", TensorProto.FLOAT, (5, 4)), value("count", TensorProto.INT64, (1,))],
        [value("y", TensorProto.FLOAT, ("n", 4))],
    ),
    opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)],
)
try:
    tec.compile(asked, target="llvm")
    raise SystemExit("an unknown number of rows was taken")
except tec.ImportModelError as error:
    print(error.message)
(two,) = tec.compile(asked, target="llvm", freeze={"count": np.array([2])}).run({"x": rows})
assert (two == rows[:2]).all()

# %% [markdown]
# ## What needs no converter
# A model may contain its own operators as functions. They are inlined, node by node. So are
# standard operators that ONNX defines by a function body. If an operator has both, a converter is
# preferable only if it makes better code.

# %%
body = [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])]
own = helper.make_model(
    helper.make_graph(
        [helper.make_node("Smooth", ["x"], ["y"], name="it", domain="my.functions")],
        "g",
        [value("x", TensorProto.FLOAT, (2, 6))],
        [value("y", TensorProto.FLOAT, (2, 6))],
    ),
    opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.functions", 1)],
    functions=[helper.make_function("my.functions", "Smooth", ["a"], ["b"], body, [helper.make_opsetid("", 17)])],
)
(got,) = tec.compile(own, target="llvm", cache=False).run({"x": x})
np.testing.assert_allclose(got, x / (1 + np.exp(-x)), rtol=1e-5)

# %% [markdown]
# In tec itself a converter goes into one of the modules `frontends/tec_onnx/ops_*.py`. A standard
# operator has no `domain`, and `call.opset` distinguishes the versions of the operator set. Its
# tests are the node cases of the onnx package that name it
# (`python -m tests.conformance.onnx_suite --match NAME`), and a row in
# `tests/errors/test_onnx_mistakes.py` for each thing that it refuses.
