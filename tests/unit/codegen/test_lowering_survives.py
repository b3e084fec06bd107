"""Every operation, type, lane count and CPU through LLVM's code generator, in a child process: a failure there ends a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

TARGETS = [
    "llvm", "llvm -mcpu=x86-64", "llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512",
    "llvm -mtriple=aarch64-unknown-linux-gnu", "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-v1",
]  # fmt: skip

CHILD = r"""
import os, sys
os.environ["TEC_CACHE_DIR"] = "0"
from tec.codegen.cpu import build_cpu
from tec.errors import CodegenError
from tec.ir import *
from tec.ir import build as B
from tec.ir.intrin import INTRINS, UNARY_FLOAT_MATH
from tec.target import Target

target = Target(sys.argv[1])
INTS = ["int8", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
zero = IntImm(0)

def vec(b, lanes, at=0):
    return BufferLoad(b, (zero if lanes == 1 else Ramp(IntImm(at), IntImm(1), lanes),))

made = refused = 0
for lanes in map(int, sys.argv[2].split(',')):
    for dtype in [*INTS, *FLOATS, "bool"]:
        stores = []
        def keep(e):
            out = Buffer("o%d" % len(stores), dtype_info(e.dtype).element, (IntImm(64),))
            stores.append((out, BufferStore(out, e, (zero if lanes == 1 else Ramp(zero, IntImm(1), lanes),))))
        a, b, c = (Buffer(x, dtype, (IntImm(64),)) for x in "abc")
        x, y, z = vec(a, lanes), vec(b, lanes), vec(c, lanes)
        bools = "bool" if lanes == 1 else f"boolx{lanes}"
        ints = "int32" if lanes == 1 else f"int32x{lanes}"
        if dtype == "bool":
            for cls in (And, Or): keep(cls(x, y))
            keep(Not(x))
        else:
            for cls in (Add, Sub, Mul, Div, Min, Max): keep(cls(x, y))
            for cls in (EQ, NE, LT, GE): keep(cls(x, y))
            if dtype in INTS:
                for cls in (FloorDiv, FloorMod, Mod): keep(cls(x, y))
                for op in ("bitand", "shl", "shr", "mulhi", "min_nan"): keep(B.call(op, x, y))
                for op in ("bitnot", "popcount", "clz", "ctz", "bitreverse", "abs"): keep(B.call(op, x))
            else:
                for op in UNARY_FLOAT_MATH.split():
                    try:
                        build_cpu([Func("f", (a, b, c, out := Buffer("o", dtype, (IntImm(64),))), BufferStore(out, B.call(op, x), (stores[0][1].indices[0],)))], target)
                        made += 1
                    except CodegenError:
                        refused += 1
                for op in ("fmod", "copysign", "min_nan", "max_nan", "pow", "atan2", "hypot"): keep(B.call(op, x, y))
                for op in ("isnan", "isinf", "isfinite"): keep(B.call(op, x, dtype=bools))
                keep(B.call("fma", x, y, z))
                keep(B.call("ldexp", x, B.E.Cast(ints, x)))
        keep(Select(LT(x, y) if dtype != "bool" else x, y, z))
        for other in [*INTS, *FLOATS, "bool"]:
            if other != dtype: keep(Cast(other if lanes == 1 else f"{other}x{lanes}", x))
        mask = NE(x, y) if dtype != "bool" else x
        if lanes > 1:
            keep(BufferLoad(a, (Ramp(zero, IntImm(1), lanes),), mask))
            if lanes <= 16: keep(BufferLoad(a, (Ramp(zero, IntImm(3), lanes),), mask))
            keep(Shuffle((x, y), tuple(range(lanes))[::-1]))
        stores.append((a, BufferStore(a, y, x.indices, mask)))
        params = {id(o): o for o, _ in stores if o is not a}
        build_cpu([Func("f", (a, b, c, *params.values()), Seq(tuple(s for _, s in stores)))], target)
        made += len(stores)
print(made, refused)
"""


def compile_everything(target: str, lanes: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, target, lanes], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    made, refused = map(int, done.stdout.split())
    assert made > 300 * len(lanes.split(",")) and refused < 40 * len(lanes.split(","))


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[4]])
def test_nothing_ends_the_process(target):
    compile_everything(target, "3")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_ends_the_process_at_any_width(target):
    compile_everything(target, "1,2,3,4,5,16,32,64")
