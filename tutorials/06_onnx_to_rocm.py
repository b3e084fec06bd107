# %% [markdown]
# # An ONNX network to one ROCm module
#
# `tec.compile` takes an ONNX file or a ModelProto. It fuses the operators of the network and makes
# one code object with all kernels. You can run the result, read its code, and save it as a package
# that needs only NumPy to run.

# %%
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tec

rng = np.random.default_rng(1)


def weight(name, *shape):
    return numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype("float32"), name)


nodes = [
    helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
    helper.make_node("MaxPool", ["r1"], ["p1"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Conv", ["p1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
    helper.make_node("Add", ["c2", "p1"], ["s"], name="residual"),
    helper.make_node("GlobalAveragePool", ["s"], ["g"], name="mean"),
    helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
    helper.make_node("Gemm", ["f", "w3"], ["l"], name="classify"),
    helper.make_node("Softmax", ["l"], ["y"], name="softmax"),
]
graph = helper.make_graph(
    nodes,
    "little_net",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 32, 32])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
    [weight("w1", 16, 3, 3, 3), weight("b1", 16), weight("w2", 16, 16, 3, 3), weight("w3", 16, 10)],
)
folder = Path(tempfile.mkdtemp())
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(folder / "net.onnx"))

# %% [markdown]
# The batch is symbolic in the model, and `shapes` binds it. The result has one function for each
# fused group.

# %%
net = tec.compile(str(folder / "net.onnx"), target="rocm -mcpu=gfx942", shapes={"batch": 1})
print(net)
for name, ops in net.report.functions.items():
    print(f"  {name}: {' -> '.join(ops)}")
code = net.get_binary()
print(len(code), "bytes of code object,", code[:4])
assert code[:4] == b"\x7fELF"

# %%
x = rng.standard_normal((1, 3, 32, 32)).astype("float32")
(gpu,) = net.run({"x": x}, device=tec.rocm_emu("gfx942"))  # tec.rocm(0) where there is a GPU
(cpu,) = tec.compile(str(folder / "net.onnx"), target="llvm", shapes={"batch": 1}).run({"x": x})
print(gpu.round(4))
np.testing.assert_allclose(gpu, cpu, rtol=1e-3, atol=1e-5)

# %% [markdown]
# ## Saving
# The package contains the code, the weights and the plan. `tec.load` needs neither the compiler
# nor ONNX nor LLVM.

# %%
net.save(folder / "net.tec")
again = tec.load(folder / "net.tec")
(same,) = again.run({"x": x}, device=tec.rocm_emu("gfx942"))
assert (same == gpu).all()

# %% [markdown]
# The same from a shell:
#
#     tec compile net.onnx -o net.tec --target "rocm -mcpu=gfx942" --input-dim batch 1
#     tec run net.tec --inputs x.npy --device emu
#     tec verify net.onnx --input-dim batch 1 --device emu
#     tec show net.tec --html report.html
