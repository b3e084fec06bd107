"""Kernels whose threads become the lanes of vectors on a CPU: drawn branches and loops over the thread's own memory, against the Python that they are."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import seeds
from tests.fuzz.loading import module_of

N = 80  # threads that compute: a multiple of a vector's lanes, and some more
NAMES = ("a", "b", "r[0]", "r[1]", "r[2]")


def value(r: random.Random, depth: int, loops: list[str]) -> str:
    if depth == 0 or r.random() < 0.3:
        return r.choice([*NAMES, *NAMES, *[f"r[{k}]" for k in loops], "x[i]", "x[i + 1]", str(r.randint(-3, 6))])
    a, b = value(r, depth - 1, loops), value(r, depth - 1, loops)
    return r.choice(
        [
            f"({a} + {b}) * 2 - 1",
            f"({a} - {b}) + 2",
            f"min(max({a}, -9) * max(min({b}, 9), -9), 50)",
            f"min({a}, {b})",
            f"max({a}, {b})",
            f"({a} if {a} > {b} else {b})",
        ]
    )


def statements(r: random.Random, depth: int, loops: list[str]) -> list[str]:
    out: list[str] = []
    for _ in range(r.randint(1, 3)):
        kind = r.random()
        here = r.choice([*NAMES, *[f"r[{k}]" for k in loops]])
        if kind < 0.35 or not depth:
            out.append(f"{here} = {value(r, 2, loops)}")
        elif kind < 0.45:
            k, m = r.sample(range(3), 2)
            out.append(f"r[{k}], r[{m}] = r[{m}], r[{k}]")
        elif kind < 0.85:
            sign = r.choice(["<", ">", "==", "!="])
            out.append(f"if {value(r, 1, loops)} {sign} {value(r, 1, loops)}:")
            out += ["    " + line for line in statements(r, depth - 1, loops)]
            if r.random() < 0.4:
                out.append("else:")
                out += ["    " + line for line in statements(r, depth - 1, loops)]
        elif len(loops) < 2:
            k = f"k{len(loops)}"
            out.append(f"for {k} in range({r.randint(1, 3)}):")
            out += ["    " + line for line in statements(r, depth - 1, [*loops, k])]
        else:
            out.append("pass")
    return out


def text(seed: int) -> str:
    r = random.Random(seeds.stream(seed))
    lines = ["i = tec.grid_idx(1)", f"if i < {N}:"]
    inner = ["r = tec.local(3, 'int32')", "r[0], r[1], r[2] = x[i], x[i + 1], x[i] - x[i + 1]", "a = x[i] - 2", "b = 1"]
    for _ in range(r.randint(2, 4)):
        inner += statements(r, 2, [])
    inner += ["y[i] = a + 3 * b", "z[i] = r[0] + 5 * r[1] + 7 * r[2]"]
    return "import tec\n\n\ndef kernel(x, y, z):\n" + "".join(
        f"    {line}\n" for line in [*lines, *["    " + n for n in inner]]
    )


def in_python(path: Path, source: str, x: Any) -> tuple[Any, Any]:
    """The text as Python, one thread after the other."""
    y, z = np.zeros(N, np.int32), np.zeros(N, np.int32)
    of_thread = SimpleNamespace(local=lambda n, dtype: [0] * n)
    space: dict[str, Any] = {}
    exec(compile(source.replace("import tec", ""), str(path), "exec"), space)
    numbers = [int(v) for v in x]
    for i in range(N):
        of_thread.grid_idx = lambda ndim, i=i: i
        space["tec"] = of_thread
        space["kernel"](numbers, y, z)
    return y, z


@pytest.mark.parametrize("seed", range(8))
def test_lanes(seed: int, tmp_path: Path) -> None:
    import tec

    path, source = tmp_path / f"lanes{seed}.py", text(seed)
    module = module_of(source, path)
    x = np.random.default_rng(seeds.first(seed)).integers(-9, 20, N + 1).astype(np.int32)
    y, z = np.zeros(N, np.int32), np.zeros(N, np.int32)
    tec.kernel(module.kernel)[1, 128](x, y, z)
    want = in_python(path, source, x)
    assert (y == want[0]).all() and (z == want[1]).all(), source
