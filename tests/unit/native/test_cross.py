"""Libraries for other processors: made here without a compiler for them, run under qemu by programs that a cross compiler built."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import tec
from tec import te
from tec.codegen.objects import elf
from tests import seeds
from tests.unit.graph.random_graphs import random_graph
from tests.unit.native.harness import build
from tests.unit.native.networks import cached_sum, cnn
from tests.unit.native.test_programs import RUN_CACHE, RUN_CNN, RUN_KERNEL, inputs, numbers

TRIPLES = {"aarch64": "aarch64-linux-gnu", "riscv64": "riscv64-linux-gnu"}


def compiler(arch):
    found = shutil.which(f"{TRIPLES[arch]}-gcc")
    if found is None or shutil.which(f"qemu-{arch}") is None:
        pytest.skip(f"no {TRIPLES[arch]}-gcc or no qemu-{arch}")
    return found


def emulated(arch, program):
    """What a program prints under qemu-user."""
    words = [f"qemu-{arch}", "-L", f"/usr/{TRIPLES[arch]}", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout


def scaled(target):
    n = te.var("n")
    a, s = te.placeholder((n, 4), "float32", "A"), te.var("s", "float32")
    b = te.compute((n, 4), lambda i, j: te.exp(a[i, j] * s) + te.cast("float32", j), "B")
    sch = te.create_schedule(b.op)
    sch[b].parallel(b.op.axis[0])
    return tec.build(sch, [a, b, s], target, name="scaled")


@pytest.mark.parametrize("arch", TRIPLES)
def test_libraries_for_other_processors(arch, tmp_path):
    """What no other processor is needed for: the files are of its machine."""
    machine = {"aarch64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV}[arch]
    scaled(f"llvm -mtriple={TRIPLES[arch]}").export_library(tmp_path / "k.a")
    data = (tmp_path / "k.a").read_bytes()
    assert data[:8] == b"!<arch>\n"
    at = data.index(b"\x7fELF")
    assert int.from_bytes(data[at + 18 : at + 20], "little") == machine
    scaled(f"llvm -mtriple={TRIPLES[arch]}").export_library(tmp_path / "k.so")
    assert int.from_bytes((tmp_path / "k.so").read_bytes()[18:20], "little") == machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "kind"), [("aarch64", ".so"), ("aarch64", ".a"), ("riscv64", ".a"), ("riscv64", ".so")]
)
def test_under_qemu(arch, kind, tmp_path):
    cc, target = compiler(arch), f"llvm -mtriple={TRIPLES[arch]}"
    cnn(target).export_library(tmp_path / f"cnn{kind}")
    got = numbers(emulated(arch, build(tmp_path, RUN_CNN, tmp_path / f"cnn{kind}", compiler=cc, name="cnn.c")))
    np.testing.assert_allclose(got.reshape(2, 10), cnn().run([inputs()])[0], rtol=1e-4, atol=1e-6)
    cached_sum(target).export_library(tmp_path / f"cache{kind}")
    got = numbers(
        emulated(arch, build(tmp_path, RUN_CACHE, tmp_path / f"cache{kind}", compiler=cc, name="cache.c"))
    ).reshape(6, 2, 4)
    ex = cached_sum().executor(capacity=2)
    for step in range(6):
        n = 1 if step % 2 else 5
        np.testing.assert_array_equal(got[step], ex.run([((step + np.arange(2 * n)) % 5).reshape(2, n)])[0].numpy())
    scaled(target).export_library(tmp_path / f"k{kind}")
    got = numbers(
        emulated(arch, build(tmp_path, RUN_KERNEL, tmp_path / f"k{kind}", "-std=c11", compiler=cc, name="k.c"))
    )
    a = np.arange(12).astype("f") / np.float32(3)
    np.testing.assert_allclose(got, np.exp(a * np.float32(2.5)) + np.tile(np.arange(4), 3), rtol=1e-5)


RUN_ANY = r"""
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

int main(void) {
  tec_net *net;
  if (tec_net_create(NULL, NULL, &net)) return fprintf(stderr, "%s\n", tec_net_error(net)), 1;
  int n = tec_net_input_count(net);
  DLTensor *in = calloc((size_t)n + 1, sizeof *in);
  const DLTensor **inputs = calloc((size_t)n + 1, sizeof *inputs);
  for (int k = 0; k < n; k++) {
    const tec_port *p = tec_net_input(net, k);
    long count = 1;
    for (int d = 0; d < p->ndim; d++) count *= (long)p->shape[d];
    float *x = calloc((size_t)count + 1, sizeof *x);
    for (long i = 0; i < count; i++) x[i] = (float)((i + k) % 17) * 0.125f - 1.0f;
    in[k] = (DLTensor){x, {kDLCPU, 0}, p->ndim, p->dtype, (int64_t *)p->shape, NULL, 0};
    inputs[k] = &in[k];
  }
  if (tec_net_run(net, inputs, n, NULL, 0)) return fprintf(stderr, "%s\n", tec_net_error(net)), 2;
  for (int k = 0; k < tec_net_output_count(net); k++) {
    DLTensor y;
    if (tec_net_result(net, k, &y)) return 3;
    long count = 1;
    for (int d = 0; d < y.ndim; d++) count *= (long)y.shape[d];
    for (long i = 0; i < count; i++) printf("%a ", ((float *)y.data)[i]);
  }
  tec_net_destroy(net);
  return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("arch", TRIPLES)
@pytest.mark.parametrize("seed", seeds.some(6))
def test_drawn_networks_under_qemu(seed, arch, tmp_path):
    """Shared objects that tec has linked: what this machine's code makes of the same network."""
    cc, graph = compiler(arch), random_graph(seed)
    tec.compile(graph, f"llvm -mtriple={TRIPLES[arch]}").export_library(tmp_path / "net.so")
    program = build(tmp_path, RUN_ANY, tmp_path / "net.so", "-std=c11", compiler=cc)
    net = tec.compile(graph, "llvm")
    given = [
        (((np.arange(int(np.prod(p["shape"]))) + k) % 17) * 0.125 - 1).astype("f").reshape(p["shape"])
        for k, p in enumerate(net.inputs)
    ]
    want = np.concatenate([y.ravel() for y in net.run(given)])
    np.testing.assert_allclose(numbers(emulated(arch, program)), want, rtol=1e-4, atol=1e-5)
