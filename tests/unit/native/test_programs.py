"""C and C++ programs that the system's compiler builds, without Python in their process: networks, a decoder's step, te kernels; several networks and
many threads; static libraries; valgrind and the sanitizers."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.native import runtime
from tec.ops.dims import Dim
from tests import seeds
from tests.thinned import thinned
from tests.unit.native.harness import CC, CXX, build, execute, needs_cc
from tests.unit.native.networks import cached_sum, cnn
from tests.unit.native.test_kernels import scaled
from tools import c_runtime

pytestmark = needs_cc

# x is what `inputs()` below makes.
RUN_CNN = r"""
#include <stdio.h>
#include "cnn.h"

int main(void) {
  static float x[2 * 3 * 12 * 12], y[20];
  for (int i = 0; i < 2 * 3 * 12 * 12; i++) x[i] = (float)(i % 17) * 0.125f - 1.0f;
  int64_t in_shape[4] = {2, 3, 12, 12}, out_shape[2] = {2, 10};
  DLTensor in = {x, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, in_shape, NULL, 0};
  DLTensor out = {y, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};
  tec_net *net;
  int32_t status = tec_net_create(tec_model_cnn, NULL, &net);
  const DLTensor *inputs[1]; DLTensor *outputs[1];
  inputs[0] = &in; outputs[0] = &out;
  if (!status) status = tec_net_run(net, inputs, 1, outputs, 1);
  if (status) fprintf(stderr, "%s\n", tec_net_error(net));
  else for (int i = 0; i < 20; i++) printf("%a ", y[i]);
  tec_net_destroy(net);
  return status;
}
"""


def inputs():
    return ((np.arange(2 * 3 * 12 * 12) % 17).astype("f") * np.float32(0.125) - 1).reshape(2, 3, 12, 12)


def has_executable_stack(program):
    """What the program's header PT_GNU_STACK says."""
    data = program.read_bytes()
    at, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<II", data, at + k * size) for k in range(count)]
    return not any(kind == 0x6474E551 and not flags & 1 for kind, flags in headers)


def numbers(text):
    return np.array([float.fromhex(w) for w in text.split()], "f")


@thinned(
    1,
    ("name, flags", [("main.c", ("-std=c99", "-pedantic")), ("main.cc", ("-std=c++11",))]),
    ("kind", [".so", ".a", ".o"]),
)
def test_a_network(name, flags, kind, tmp_path):
    cnn().export_library(tmp_path / f"cnn{kind}")
    compiler = CXX if name.endswith("cc") else CC
    program = build(
        tmp_path, RUN_CNN, tmp_path / f"cnn{kind}", *flags, "-Wl,--fatal-warnings", compiler=compiler, name=name
    )
    assert not has_executable_stack(program)
    np.testing.assert_array_equal(numbers(execute(program)).reshape(2, 10), cnn().run([inputs()])[0])


def test_the_systems_linker(tmp_path):
    cnn().export_library(tmp_path / "cnn.so", linker=CC)
    program = build(tmp_path, RUN_CNN, tmp_path / "cnn.so")
    np.testing.assert_array_equal(numbers(execute(program)).reshape(2, 10), cnn().run([inputs()])[0])


RUN_CACHE = r"""
#include <stdio.h>
#include "cache.h"

int main(void) {
  tec_options options = {.bytes = sizeof(tec_options), .threads = 1, .capacity = 2};
  tec_net *net;
  if (tec_net_create(NULL, &options, &net)) return 1;
  int64_t ids[2 * 5], shape[2] = {2, 1};
  DLTensor in = {ids, {kDLCPU, 0}, 2, {kDLInt, 64, 1}, shape, NULL, 0}, y;
  const DLTensor *inputs[1] = {&in};
  for (int step = 0; step < 6; step++) {
    shape[1] = step % 2 ? 1 : 5;
    for (int i = 0; i < 2 * shape[1]; i++) ids[i] = (step + i) % 5;
    if (tec_net_run(net, inputs, 1, NULL, 0) || tec_net_result(net, 0, &y)) return fprintf(stderr, "%s\n", tec_net_error(net)), 2;
    for (int i = 0; i < 8; i++) printf("%a ", ((float *)y.data)[i]);
  }
  fprintf(stderr, "%lld rows\n", (long long)tec_net_rows(net));
  tec_net_destroy(net);
  return 0;
}
"""


def test_a_step_with_a_growing_cache(tmp_path):
    cached_sum().export_library(tmp_path / "cache.so")
    got = numbers(execute(build(tmp_path, RUN_CACHE, tmp_path / "cache.so"))).reshape(6, 2, 4)
    ex = cached_sum().executor(capacity=2)
    for step in range(6):
        n = 1 if step % 2 else 5
        ids = ((step + np.arange(2 * n)) % 5).reshape(2, n)
        np.testing.assert_array_equal(got[step], ex.run([ids])[0].numpy())


RUN_KERNEL = r"""
#include <stdio.h>
#include "k.h"

int main(void) {
  _Alignas(64) static float a[12], b[12];
  int64_t shape[2] = {3, 4};
  for (int i = 0; i < 12; i++) a[i] = (float)i / 3;
  DLTensor A = {a, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, B = A;
  B.data = b;
  tec_error error;
  if (k_scaled(&A, &B, 2.5f, &error)) return fprintf(stderr, "%s\n", error.text), 1;
  for (int i = 0; i < 12; i++) printf("%a ", b[i]);
  B.data = NULL;
  return k_scaled(&A, &B, 2.5f, &error) == TEC_INVALID && k_scaled(NULL, NULL, 0, NULL) == TEC_INVALID ? 0 : 3;
}
"""


@pytest.mark.parametrize("kind", [".so", ".a", ".o"])
def test_a_kernel(kind, tmp_path):
    module = scaled()
    module.export_library(tmp_path / f"k{kind}")
    got = numbers(execute(build(tmp_path, RUN_KERNEL, tmp_path / f"k{kind}", "-std=c11"))).reshape(3, 4)
    a, b = tec.nd.array((np.arange(12).astype("f") / np.float32(3)).reshape(3, 4)), tec.nd.empty((3, 4), "float32")
    module(a, b, 2.5)
    np.testing.assert_array_equal(got, b.numpy())


RUN_MANY = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "one.h"
#include "two.h"

static float x[2 * 3 * 12 * 12], want[2][20];

static int run(const tec_model *model, int32_t threads, float *y, int times) {
  int64_t in_shape[4] = {2, 3, 12, 12}, out_shape[2] = {2, 10};
  DLTensor in = {x, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, in_shape, NULL, 0}, out = {y, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};
  const DLTensor *inputs[1] = {&in};
  DLTensor *outputs[1] = {&out};
  tec_options options = {.bytes = sizeof(tec_options), .threads = threads};
  tec_net *net;
  int32_t status = tec_net_create(model, &options, &net);
  for (int k = 0; k < times && !status; k++) status = tec_net_run(net, inputs, 1, outputs, 1);
  if (status) fprintf(stderr, "%s\n", tec_net_error(net));
  tec_net_destroy(net);
  return status;
}

static void *thread(void *number) {
  long n = (long)number;
  float y[20];
  if (run(n & 1 ? tec_model_two : tec_model_one, (int32_t)(n % 5), y, 20)) return (void *)1;
  return memcmp(y, want[n & 1], sizeof y) ? (void *)2 : NULL;
}

int main(void) {
  pthread_t threads[16];
  long bad = 0;
  for (int i = 0; i < 2 * 3 * 12 * 12; i++) x[i] = (float)(i % 17) * 0.125f - 1.0f;
  if (run(tec_model_one, 0, want[0], 1) || run(tec_model_two, 0, want[1], 1)) return 1;
  for (long n = 0; n < 16; n++) pthread_create(&threads[n], NULL, thread, (void *)n);
  for (long n = 0; n < 16; n++) {
    void *said;
    pthread_join(threads[n], &said);
    bad |= (long)said;
  }
  for (int i = 0; i < 20; i++) printf("%a ", want[0][i]);
  for (int i = 0; i < 20; i++) printf("%a ", want[1][i]);
  return bad ? 3 : 0;
}
"""


def many(tmp_path, kind, *flags):
    for name, seed in (("one", 0), ("two", 1)):
        cnn("llvm", seed).export_library(tmp_path / f"{name}{kind}")
    return build(tmp_path, RUN_MANY, [tmp_path / f"{name}{kind}" for name in ("one", "two")], *flags)


@pytest.mark.parametrize("kind", [".so", ".a"])
def test_two_networks_and_sixteen_threads(kind, tmp_path):
    program = many(tmp_path, kind)
    for threads in ("1", "4"):
        got = numbers(execute(program, TEC_NUM_THREADS=threads)).reshape(2, 2, 10)
        for seed in (0, 1):
            np.testing.assert_array_equal(got[seed], cnn("llvm", seed).run([inputs()])[0])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_valgrind(tmp_path):
    # valgrind knows no AVX-512
    target = "llvm -mcpu=haswell"
    cnn(target).export_library(tmp_path / "cnn.so")
    cached_sum(target).export_library(tmp_path / "cache.so")
    scaled().export_library(tmp_path / "k.so")
    for source, name in ((RUN_CNN, "cnn"), (RUN_CACHE, "cache")):
        program = build(tmp_path, source, tmp_path / f"{name}.so", name=f"{name}.c")
        execute(
            "valgrind",
            "-q",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=all",
            "--show-leak-kinds=all",
            program,
        )


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers(sanitizer, tmp_path):
    """The programs, which call the runtime as it ships: what they hand over and get back is watched."""
    flags = ("-g", f"-fsanitize={sanitizer}")
    for source, net, name in ((RUN_CNN, cnn(), "cnn"), (RUN_CACHE, cached_sum(), "cache")):
        net.export_library(tmp_path / f"{name}.so")
        execute(build(tmp_path, source, tmp_path / f"{name}.so", *flags, name=f"{name}.c"))
    execute(many(tmp_path, ".so", *flags))


@pytest.mark.parametrize("seeds_drawn", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_hostile_calls(seeds_drawn, tmp_path, monkeypatch):
    """Calls of drawn order with null pointers, types, sizes, strides and places that are drawn: a status with a text, and no byte is touched that is not the
    tensors'. Of many seeds, the runtime is watched by the sanitizers too."""
    flags = ("-std=gnu99", "-g", "-DSTREAM=")
    if seeds_drawn > 100:
        flags += ("-fsanitize=address,undefined",)
        watched = _watched_runtime(tmp_path)
        monkeypatch.setattr(runtime, "objects", lambda arch: watched)
    cnn().export_library(tmp_path / "cnn.a")
    cached_sum().export_library(tmp_path / "cache.a")
    scaled().export_library(tmp_path / "k.a")
    source = (Path(__file__).parent / "hostile.c").read_text()
    program = build(tmp_path, source, [tmp_path / f"{n}.a" for n in ("cnn", "cache", "k")], *flags)
    assert execute(program, seeds.first(), seeds_drawn) == "done\n"


def _watched_runtime(folder):
    """The runtime's objects as the system's compiler makes them with its sanitizers."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(c_runtime, "clang", lambda: CC)
        m.setitem(c_runtime.TARGETS, "x86_64", [])
        m.setattr(c_runtime, "FLAGS", [*c_runtime.FLAGS, "-fsanitize=address,undefined", "-Wno-error"])
        return c_runtime.compile_all("x86_64", folder)


def test_the_stored_runtime_is_that_of_its_sources():
    assert runtime.digest() == runtime.stored_digest(), "python -m tools.c_runtime writes tec/native/objects.zip"


def test_the_runtime_is_small(tmp_path):
    """Code and constants of the runtime, the thread pool with them."""
    for arch in ("x86_64", "aarch64", "riscv64"):
        assert sum(map(len, runtime.objects(arch).values())) < 110_000


def test_the_header_is_c_and_cpp(tmp_path):
    cnn().export_library(tmp_path / "cnn.so")
    (tmp_path / "h.c").write_text('#include "cnn.h"\n#include "cnn.h"\nint main(void) { return 0; }\n')
    for compiler, flags in ((CC, ["-std=c99", "-pedantic"]), (CXX, ["-x", "c++", "-std=c++11", "-pedantic"])):
        done = subprocess.run(
            [str(compiler), *flags, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(tmp_path / "h.c")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_program_of_the_page(tmp_path):
    """The C program that docs/c-abi.md shows, with the network that it shows."""
    text = (Path(__file__).parents[3] / "docs" / "c-abi.md").read_text()
    source = re.search(r"```c\n(.*?)```", text, re.DOTALL)[1]
    g = Graph("scorer")
    x = g.input("x", "float32", (Dim("batch"), 8))
    g.set_outputs(g.add("matmul", [x, g.constant(np.eye(8, 3, dtype="float32"))]), ["y"])
    tec.compile(g, "llvm").export_library(tmp_path / "scorer.so")
    assert execute(build(tmp_path, source, tmp_path / "scorer.so")) == "1 2 3\n"


RUN_AND_UNLOAD = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cnn.h"

static int run(const char *path, int forks) {
  static float x[2 * 3 * 12 * 12];
  int64_t shape[4] = {2, 3, 12, 12};
  DLTensor in = {x, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0};
  const DLTensor *inputs[1] = {&in};
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) return fprintf(stderr, "%s\n", dlerror()), 1;
  int32_t (*create)(const tec_model *, const tec_options *, tec_net **), (*again)(tec_net *, const DLTensor *const *, int32_t, DLTensor *const *, int32_t);
  void (*destroy)(tec_net *);
  *(void **)&create = dlsym(lib, "tec_net_create");
  *(void **)&again = dlsym(lib, "tec_net_run");
  *(void **)&destroy = dlsym(lib, "tec_net_destroy");
  tec_options options = {.bytes = sizeof(tec_options), .threads = 4};
  tec_net *net;
  int status = create(NULL, &options, &net) || again(net, inputs, 1, NULL, 0);
  if (forks && !status) { /* a child has none of the threads */
    pid_t child = fork();
    if (!child) _exit(again(net, inputs, 1, NULL, 0));
    int said = 1;
    status = waitpid(child, &said, 0) != child || said;
  }
  destroy(net);
  return dlclose(lib) || status || dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL;
}

int main(int argc, char **argv) {
  for (int k = 0; k < 5; k++)
    if (argc < 2 || run(argv[1], k % 2)) return 1;
  puts("unloaded");
  return 0;
}
"""


def test_a_library_is_unloaded_and_its_threads_end(tmp_path):
    """Loaded and unloaded again and again, with a fork in between."""
    cnn().export_library(tmp_path / "cnn.so")
    assert execute(build(tmp_path, RUN_AND_UNLOAD, [], "-std=gnu99"), tmp_path / "cnn.so") == "unloaded\n"
