"""Numbers of a package's manifest are replaced by what no package has: sizes past any register, fractions, infinities, texts, nests.

Whatever stands there, loading and running ends in numbers of the right form or in an error of tec.
"""

from __future__ import annotations

import copy
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import PackageError, TecError
from tec.graph import Graph
from tec.ops.dims import Dim
from tests import seeds

CASES = 250 if seeds.number() else 100  # of each package


def _nest(depth: int, op: str = "") -> Any:
    e: Any = 1
    for _ in range(depth):
        e = [op, e, 1] if op else [e]
    return e


HOSTILE = [
    1 << 70, -(1 << 70), 10**400, 1 << 64, 1 << 63, (1 << 63) - 1, 1 << 62, 1 << 40, 1 << 32, -1, 0, 0.5, 1e308, float("inf"), float("-inf"),
    float("nan"), None, True, "x", "n", "", [], {}, [1], ["mul", 1 << 62, 1 << 62], ["add", "n", 1 << 65], ["mul", "n", "n"], ["floordiv", 1, 0],
    ["floordiv", "n", 0], ["floormod", "n", ["sub", "n", "n"]], ["min", 1.5, "n"], ["select", 1, 2], ["no such", 1, 2], _nest(150, "add"), _nest(400),
]  # fmt: skip


def _network(rows: Any) -> Graph:
    g = Graph("two products")
    x = g.input("x", "float32", (rows, 6))
    (y,) = g.add("matmul", [x, g.constant(np.ones((6, 4), "f4"), "w")], {}, "first")
    (z,) = g.add("softmax", [y], {"axes": (1,)}, "soft")
    (t,) = g.add("matmul", [z, g.constant(np.ones((4, 5), "f4"), "u")], {}, "last")
    g.set_outputs([t], ["t"])
    return g


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The entries of packages: networks of fixed and open sizes, for a CPU and a GPU, and modules of both."""
    folder, out = tmp_path_factory.mktemp("packages"), {}
    for target in ("llvm", "rocm -mcpu=gfx942"):
        for rows in (3, Dim("n")):
            tec.compile(_network(rows), target=target).save(folder / f"{target[:4]} {rows}.tec")
        n = te.var("n")
        a = te.placeholder((n,), name="a")
        b = te.compute((n,), lambda i, a=a: a[i] * 2, name="b")
        s = tec.create_schedule(b.op)
        if target != "llvm":
            outer, inner = s[b].split(b.op.axis[0], 64)
            s[b].bind(outer, te.thread_axis("blockIdx.x"))
            s[b].bind(inner, te.thread_axis("threadIdx.x"))
        tec.build(s, [a, b], target).save(folder / f"{target[:4]}.tecmod")
    for path in sorted(folder.iterdir()):
        with zipfile.ZipFile(path) as z:
            out[path.name] = {name: z.read(name) for name in z.namelist()}
    return out


def _numbers(x: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of numbers below `x`, and of the names in expressions."""
    if isinstance(x, dict):
        for key, value in x.items():
            yield from _numbers(value, (*path, key))
    elif isinstance(x, list):
        for k, value in enumerate(x):
            yield from _numbers(value, (*path, k))
    elif isinstance(x, (int, float)) or x == "n":
        yield path


def _forge(entries: dict[str, bytes], manifest: Any, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as z:
        for name, data in {**entries, "manifest.json": json.dumps(manifest).encode()}.items():
            z.writestr(name, data)
    return path


def _use(name: str, path: Path) -> None:
    """Load it and do with it what a program does. What is for a GPU is bound and shown, not launched: a grid may be as large as it likes there."""
    on_cpu = name.startswith("llvm")
    if name.endswith(".tecmod"):
        module = tec.load_module(path)
        assert repr(module) and module._repr_html_()
        if on_cpu:
            a, b = tec.nd.array(np.arange(5, dtype="f4")), tec.nd.empty((5,), "float32")
            module(a, b)
        else:
            function = module[module.entry_name]
            if function.program is not None:
                list(function.program.walk({"n": 5}, str))
        return
    net = tec.load(path)
    assert repr(net) and net._repr_html_() and net.inputs and net.outputs
    if on_cpu:
        assert all(isinstance(x, np.ndarray) for x in net.run({"x": np.ones((3, 6), "f4")}))
    else:
        net._launches()
    if net.open_sizes:
        net.bind(dict.fromkeys(net.open_sizes, 4))


@pytest.mark.parametrize(
    "name", [f"{t} {n}.tec" for t in ("llvm", "rocm") for n in (3, "n")] + ["llvm.tecmod", "rocm.tecmod"]
)
def test_hostile_numbers(packages: dict[str, dict[str, bytes]], name: str, tmp_path: Path) -> None:
    entries = packages[name]
    manifest, rng = json.loads(entries["manifest.json"]), random.Random(seeds.stream(f"manifest {name}"))
    places = [p for p in _numbers(manifest) if p[-1] != "sha256"]
    refused = 0
    for _ in range(CASES):
        place, value, forged = rng.choice(places), rng.choice(HOSTILE), copy.deepcopy(manifest)
        at = forged
        for key in place[:-1]:
            at = at[key]
        was, at[place[-1]] = at[place[-1]], value
        try:
            _use(name, _forge(entries, forged, tmp_path / "forged"))
        except TecError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{place}: {was!r} -> {repr(value)[:80]}: {type(error).__name__}: {error}") from error
    assert CASES // 4 < refused < CASES  # most numbers matter, and not all do


@pytest.mark.parametrize("value", [1 << 70, -(1 << 70), float("inf"), float("nan"), 2.5, ["mul", 1 << 62, 1 << 62]])
def test_every_size_of_a_launch(packages: dict[str, dict[str, bytes]], value: Any, tmp_path: Path) -> None:
    """Grid, work-group and shared memory of each launch, one at a time."""
    entries = packages["rocm 3.tec"]
    manifest = json.loads(entries["manifest.json"])
    functions = manifest["meta"]["module"]["functions"]
    places = [
        (f, k, key)
        for f, of in functions.items()
        for k in range(len(of["program"]))
        for key in ("grid", "block", "dyn_shared")
    ]
    assert len(places) >= 6
    for f, k, key in places:
        forged = copy.deepcopy(manifest)
        step = forged["meta"]["module"]["functions"][f]["program"][k]
        step[key] = value if key == "dyn_shared" else [value, *step[key][1:]]
        with pytest.raises(PackageError):
            tec.load(_forge(entries, forged, tmp_path / "forged.tec"))._launches()


def test_a_size_over_nothing_is_refused(packages: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    """Found at night: an input's dimension that the manifest says is n // 0."""
    entries = packages["llvm n.tec"]
    manifest = json.loads(entries["manifest.json"])
    manifest["meta"]["plan"]["values"]["x"]["shape"][1] = ["floordiv", "n", 0]
    with pytest.raises(TecError, match="the network takes"):
        _use("llvm n.tec", _forge(entries, manifest, tmp_path / "forged"))
