"""Branches further than 16 bits reach: LLVM adds to the program counter; the software GPU takes them for the branches they are."""

import os
import subprocess
import sys

import pytest

from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.errors import UnsupportedInstruction
from tests.thinned import thinned_rows

# A process of its own, with LLVM in it (no workers): the option that makes branches short holds for all of LLVM in a process.
PROGRAM = """
import sys
import numpy as np
import llvmlite.binding as llvm
import tec
from tec import te

llvm.set_option("", "-amdgpu-s-branch-bits=5")
chip = sys.argv[1]
n = te.var("n")
a = te.placeholder((n, 40), name="a")
k = te.reduce_axis((0, 40), name="k")
b = te.compute((n,), lambda i: te.sum(te.if_then_else(a[i, k] > 0.0, a[i, k] * 2.0, te.exp(a[i, k])), axis=k), name="b")
s = tec.create_schedule(b.op)
o, t = s[b].split(b.op.axis[0], factor=64)
s[b].bind(o, tec.thread_axis("blockIdx.x"))
s[b].bind(t, tec.thread_axis("threadIdx.x"))
f = tec.build(s, [a, b], f"rocm -mcpu={chip}")
print(f.imported_modules[0].get_source("asm").count("s_setpc_b64"))
dev = tec.rocm_emu(chip)
x = np.random.default_rng(0).standard_normal((100, 40)).astype(np.float32)
out = tec.nd.array(np.zeros(100, np.float32), dev)
f(tec.nd.array(x, dev), out)
np.testing.assert_allclose(out.numpy(), np.where(x > 0, x * 2, np.exp(x)).sum(1), rtol=1e-5)
"""


@thinned_rows(1, "chip", ["gfx942", "gfx1100", "gfx1200"])  # RDNA's two have branches alike
def test_kernels_with_long_branches_run(chip, tmp_path):
    # A cache of its own: what is kept there is found by a key that knows nothing of the option.
    env = {**os.environ, "TEC_COMPILE_WORKERS": "0", "TEC_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, chip], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 0, "no branch was long: the test shows nothing"


def test_arithmetic_on_the_program_counter_of_another_form_is_refused():
    text = "k:\n s_getpc_b64 s[4:5]\n.Lpost_getpc0:\n s_add_u32 s4, s4, (.LBB0_1-.Lpost_getpc0)&65535\n s_setpc_b64 s[4:5]\n.LBB0_1:\n s_endpgm\n"
    with pytest.raises(UnsupportedInstruction):
        parse_kernel(text, "k")
