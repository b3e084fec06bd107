"""Kernels with something changed at random, as users' mistakes are: a TecError that names the file, or valid loop IR; nothing else."""

from __future__ import annotations

import ast
import copy
import os
import random
from typing import Any

import numpy as np
import pytest

import tec
from tec.ir.verify import VerifyError, verify
from tec.jit.specialise import argument_type
from tec.kernels.source import Source
from tec.kernels.translate import Argument, LaunchShape, translate
from tests import seeds
from tests.conformance import kernels
from tests.conformance.harness import CASES, KernelProgram

COUNT = int(os.environ.get("TEC_FUZZ_MUTATIONS", "150"))
KERNELS = [k for k in vars(kernels).values() if hasattr(k, "__tec_kernel__")]
TYPES = [
    Argument("array", "float32", 1), Argument("array", "int32", 1), Argument("array", "float32", 2, False), Argument("array", "float16", 1),
    Argument("array", "bool", 1), Argument("array", "float64", 0), Argument("scalar", "int32"), Argument("scalar", "int64"), Argument("scalar", "bool"), Argument("weak"),
    Argument("scalar", "float32"), Argument("constant", value=(1, 2)), Argument("constant", value=None), Argument("array", "uint64", 1),
]  # fmt: skip


def _natural() -> dict[str, list[Argument]]:
    """The types with which the table's programs launch each kernel."""
    out: dict[str, list[Argument]] = {}
    rng = np.random.default_rng(0)
    for case in CASES.values():
        program = case.make() if case.name.startswith("kernel_") else None
        if isinstance(program, KernelProgram):
            inputs = case.inputs(rng)
            want = case.reference(*inputs)
            outs = [np.zeros(np.shape(w), np.asarray(w).dtype) for w in (want if isinstance(want, tuple) else (want,))]
            for step in program.steps(*inputs, *outs):
                out[step.kernel.__name__] = [argument_type(a, "x") for a in step.args]
    return out


NATURAL = _natural()
_OPERATORS = [
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.MatMult,
]
_COMPARISONS = [ast.Lt, ast.Eq, ast.NotEq, ast.Is, ast.In, ast.NotIn, ast.GtE]


def mutated(tree: ast.FunctionDef, r: random.Random) -> ast.FunctionDef:
    """The function with one to three nodes changed."""
    tree = copy.deepcopy(tree)
    nodes = [x for x in ast.walk(tree) if isinstance(x, (ast.expr, ast.stmt)) and x is not tree]
    names = [x for x in nodes if isinstance(x, ast.expr) and isinstance(getattr(x, "ctx", ast.Load()), ast.Load)]
    for _ in range(r.randint(1, 3)):
        x = r.choice(nodes)
        kind = r.randint(0, 5)
        if kind == 0 and isinstance(x, ast.BinOp):
            x.op = r.choice(_OPERATORS)()
        elif kind == 0 and isinstance(x, ast.Compare):
            x.ops = [r.choice(_COMPARISONS)() for _ in x.ops]
        elif kind == 1 and isinstance(x, ast.Constant):
            x.value = r.choice([0, -1, 2.5, 1 << 40, "text", None, True, 1e300, 3])
        elif kind == 2 and isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load):
            x.id = r.choice(["x", "i", "t", "tec", "np", "len", "range", "nothing", "print", "math"])
        elif kind == 3 and isinstance(x, (ast.If, ast.For, ast.While)):
            x.body = (
                r.sample(x.body, len(x.body))
                if r.random() < 0.5
                else [*x.body, r.choice([ast.Break(), ast.Continue(), ast.Return(), ast.Pass()])]
            )
        elif kind == 4 and isinstance(x, ast.Call) and x.args:
            x.args = x.args[:-1] if r.random() < 0.5 else [*x.args, r.choice(names)]
        elif kind == 5:
            for field, value in ast.iter_fields(x):
                if isinstance(value, ast.expr) and isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
                    setattr(x, field, r.choice(names))
                    break
    return ast.fix_missing_locations(copy.deepcopy(tree))


def attempt(seed: int) -> str:
    """What became of one: "valid" or the error's class."""
    r = random.Random(seed)
    kernel = r.choice(KERNELS)
    source = kernel.source
    try:
        tree = mutated(source.tree, r) if r.random() < 0.85 else source.tree
    except RecursionError:
        return "no tree"  # a node put into itself
    types = [r.choice(TYPES) for _ in tree.args.args]
    if r.random() < 0.7:
        types = NATURAL.get(kernel.__name__, types)
    target = tec.Target(r.choice(["llvm", "rocm -mcpu=gfx942"]))
    launch = LaunchShape(r.choice([(64, 1, 1), (8, 8, 1), (1, 1, 1)]), r.choice([1, 2]), 0, r.choice([0, 256]))
    try:
        found = translate(Source(source.function, tree, source.file), types, launch, target)
    except tec.TecError as e:
        assert not isinstance(e, (tec.InternalError, VerifyError)), ast.unparse(tree)
        assert e.where is not None and e.where.line > 0, (str(e), ast.unparse(tree))
        return type(e).__name__
    verify(found.func)
    return "valid"


def test_mutations() -> None:
    outcomes: dict[str, int] = {}
    for seed in seeds.some(COUNT):
        try:
            what = attempt(seed)
        except Exception as e:
            pytest.fail(f"seed {seed}: {type(e).__name__}: {e}")
        outcomes[what] = outcomes.get(what, 0) + 1
    assert outcomes.get("valid", 0) > COUNT // 50 and outcomes.get("KernelError", 0) > COUNT // 3, outcomes


def main(first: int, last: int) -> None:
    """Every failure of many seeds: `python -m tests.fuzz.test_kernel_mutations`."""
    import traceback

    seen: dict[Any, int] = {}
    for seed in range(first, last):
        try:
            key: Any = attempt(seed)
        except Exception as e:
            key = (type(e).__name__, str(e)[:90], traceback.extract_tb(e.__traceback__)[-1][:2])
            if key not in seen:
                print(seed, key, flush=True)
        seen[key] = seen.get(key, 0) + 1
    print({k: v for k, v in seen.items() if isinstance(k, str)})


if __name__ == "__main__":
    main(0, COUNT)
