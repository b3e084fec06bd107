# %% [markdown]
# # Writing an operator
#
# Networks are graphs of operators. An operator consists of its definition as a tensor expression,
# the inference of its result's type, and a kind that says how it may be fused. Its schedules
# follow from the kind, so it runs on every target.

# %%
import numpy as np

import tec
from tec import te
from tec.graph import Graph, run_graph
from tec.ops.registry import ELEMENTWISE, register, same_type


@register("squash", ELEMENTWISE, same_type)
def squash(attrs, inputs, outputs):
    """x / (1 + |x| * scale), a cheap sigmoid."""
    x, scale = inputs[0], attrs["scale"]
    return [
        te.compute(
            x.shape, lambda *i: x(*i) / (te.abs(x(*i)) * te.const(scale, x.dtype) + te.const(1, x.dtype)), name="squash"
        )
    ]


# %% [markdown]
# A graph that uses it: a matrix product, then `squash`. The two are fused into one kernel, because
# `squash` is elementwise.

# %%
rng = np.random.default_rng(0)
g = Graph("tiny")
x = g.input("x", "float32", (32, 64))
w = g.constant(rng.standard_normal((64, 48)).astype("float32"), "w")
(y,) = g.add("matmul", [x, w])
(z,) = g.add("squash", [y], {"scale": 0.5})
g.set_outputs([z], ["z"])
print(g)

# %%
feed = {"x": rng.standard_normal((32, 64)).astype("float32")}
(want,) = run_graph(g, feed)  # by the operators' meaning, in NumPy
for target, dev in (("llvm", None), ("rocm -mcpu=gfx942", tec.rocm_emu("gfx942"))):
    net = tec.compile(g, target=target, cache=False)
    (got,) = net.run(feed, device=dev)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    print(target, net.report.functions)
    assert len(net.report.functions) == 1

# %% [markdown]
# ## The ONNX side
# The frontend has one function for each ONNX operator, which builds graph nodes. This is a
# function for an operator of your own domain:

# %%
from onnx import TensorProto, helper
from tec_onnx import load
from tec_onnx.importer import onnx_op


@onnx_op("Squash", domain="my.ops")
def convert_squash(call):
    return call.op("squash", call[0], scale=call.attr("scale", 1.0))


value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4]) for n in "xy"]
node = helper.make_node("Squash", ["x"], ["y"], domain="my.ops", scale=2.0)
model = helper.make_model(
    helper.make_graph([node], "g", value[:1], value[1:]),
    opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)],
)
graph = load(model)
print(graph)
data = rng.standard_normal((4, 4)).astype("float32")
(got,) = tec.compile(graph, target="llvm", cache=False).run({"x": data})
np.testing.assert_allclose(got, data / (1 + 2 * np.abs(data)), rtol=1e-5)

# %% [markdown]
# "Adding an ONNX operator" covers attributes with defaults, inputs whose values must be known,
# functions in models, and tests.
