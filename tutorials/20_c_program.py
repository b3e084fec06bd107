# %% [markdown]
# # From an ONNX file to a C program
#
# A network that Python compiled can run in programs without Python. This tutorial takes an ONNX
# model, writes a shared object with a C header, and runs it from a program in C. Writing the
# library needs no compiler, but the C program does. [Libraries for C](../c-abi.md) has the
# details.

# %%
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tec

folder = Path(tempfile.mkdtemp())

# %% [markdown]
# The example is a model of two layers, with a batch of any size. Your model comes from a file.

# %%
rng = np.random.default_rng(0)
first, second = (rng.standard_normal(s).astype(np.float32) for s in ((4, 8), (8, 3)))
graph = helper.make_graph(
    [
        helper.make_node("MatMul", ["x", "first"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "second"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=1),
    ],
    "classifier",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
    [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(model, folder / "classifier.onnx")

# %% [markdown]
# On the command line this is `tec compile classifier.onnx -o classifier.so`. The library contains
# the code, the weights and the plan. The header beside it declares its functions and lists the
# network's inputs and outputs.

# %%
net = tec.compile(str(folder / "classifier.onnx"), "llvm")
net.export_library(folder / "classifier.so")
print(sorted(p.name for p in folder.iterdir()), (folder / "classifier.so").stat().st_size, "bytes")

# %% [markdown]
# The program describes its arrays as DLPack tensors. It leaves the output in the memory of the
# net, and `tec_net_result` returns it.

# %%
program = r"""
#include <stdio.h>
#include "classifier.h"

int main(void) {
  float x[2][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}};
  int64_t shape[2] = {2, 4};
  DLTensor in = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, out;
  const DLTensor *inputs[1] = {&in};

  tec_net *net;
  int32_t status = tec_net_create(tec_model_classifier, NULL, &net);
  if (!status) status = tec_net_run(net, inputs, 1, NULL, 0);
  if (!status) status = tec_net_result(net, 0, &out);
  if (status) {
    fprintf(stderr, "%s\n", tec_net_error(net));
  } else {
    const float *y = out.data;
    for (int64_t row = 0; row < out.shape[0]; row++)
      printf("%.6f %.6f %.6f\n", y[3 * row], y[3 * row + 1], y[3 * row + 2]);
  }
  tec_net_destroy(net);
  return status;
}
"""
(folder / "main.c").write_text(program)

# %% [markdown]
# Build the program, run it, and compare the result with the same network in Python.

# %%
compiler = shutil.which("cc") or shutil.which("gcc")
if compiler is not None:
    subprocess.run(
        [compiler, "main.c", "-o", "main", "-L.", "-l:classifier.so", "-Wl,-rpath,$ORIGIN"], cwd=folder, check=True
    )
    said = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout
    print(said)
    there = np.array([line.split() for line in said.splitlines()], np.float32)
    (here,) = net.run({"x": np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32)})
    np.testing.assert_allclose(there, here, atol=1e-6)

# %% [markdown]
# An error is a message and never a crash. Here the shape of the input does not fit:

# %%
if compiler is not None:
    (folder / "wrong.c").write_text(program.replace("shape[2] = {2, 4}", "shape[2] = {4, 2}"))
    subprocess.run(
        [compiler, "wrong.c", "-o", "wrong", "-L.", "-l:classifier.so", "-Wl,-rpath,$ORIGIN"], cwd=folder, check=True
    )
    wrong = subprocess.run([folder / "wrong"], capture_output=True, text=True, check=False)
    print(wrong.returncode, wrong.stderr)
    assert wrong.returncode == 1 and "the network takes (batch, 4)" in wrong.stderr
