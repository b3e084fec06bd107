"""Triton's tutorials on the NVIDIA GPU at hand, both ways in one run: as they stand by Triton, and with `tec.tile` for their imports.

    python -m benchmarks.tile_tutorials FOLDER [SECTION...]         # FOLDER: python/tutorials of Triton's repository

A section (`SECTIONS`) is a tutorial's function on arrays of the tutorial's sizes. Both sides pick among the same configurations of the tutorial's own autotuner, anew in
each section; TEC_CONFIGS, a regular expression over "BLOCK_M=64 ... num_warps=4 num_stages=2", leaves fewer of them. The rows are JSON lines: medians of microseconds of a launch by the device's marks behind a write of all of
the second-level cache, the sides in turn; and the largest difference between the two results.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.turns import line

# Writes of the caches before a launch, 60 us each on an H200: the host takes 300 us for a gradient through torch, and the device is not to wait for it.
ROUNDS, A_ROUND, AHEAD = 7, 5, 16
CACHE_BYTES = 256 << 20  # more than a second-level cache holds
_KEPT = ("configs", "NUM_STAGES_OPTIONS", "layer_norm", "attention", "HAS_APEX", "TORCH_HAS_FP8", "properties")
_KEPT_PREFIXES = ("NUM_", "SIZE_", "WARP_", "DEVICE", "target", "kernels")

Run = Callable[[], Any]


def definitions(path: Path) -> str:
    """A tutorial's imports, functions, classes and the constants that these read, without what it runs and prints."""
    kept: list[ast.stmt] = []
    for s in ast.parse(path.read_text("utf-8")).body:
        if isinstance(s, (ast.Import, ast.ImportFrom, ast.ClassDef)):
            kept.append(s)
        elif isinstance(s, ast.FunctionDef):
            if not any(w in ast.unparse(d) for d in s.decorator_list for w in ("perf_report", "pytest.")):
                kept.append(s)
        elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
            name = s.targets[0].id
            if name.endswith(_KEPT) or name.startswith(_KEPT_PREFIXES):
                kept.append(s)
        elif isinstance(s, ast.If) and "NUM_STAGES" in ast.unparse(s):
            kept.append(s)
    return "import typing\n" + "\n\n\n".join(map(ast.unparse, kept)) + "\n"


class Side:
    """One of the two: which modules `triton` means, and the tutorials read under them."""

    def __init__(self, name: str, folder: Path, modules: dict[str, Any]):
        self.name, self.folder, self.modules = name, folder, modules
        self.work = Path(tempfile.mkdtemp(prefix=f"tutorials_{name}_"))
        self.read: dict[str, dict[str, Any]] = {}

    def tutorial(self, number: str) -> dict[str, Any]:
        """The names of a tutorial; kernels read their own source, so the text lies in a file."""
        if number not in self.read:
            path = next(p for p in sorted(self.folder.glob(f"{number}-*.py")) if not p.stem.endswith("-ws"))
            names = self.of_text(f"tutorial_{number}", definitions(path))
            self._thin(names)
            self.read[number] = names
        return self.read[number]

    def of_file(self, path: Path) -> dict[str, Any]:
        """The names of a file that is nothing but kernels."""
        if path.name not in self.read:
            self.read[path.name] = self.of_text(path.stem, path.read_text("utf-8"))
        return self.read[path.name]

    def of_text(self, name: str, text: str) -> dict[str, Any]:
        """The names of a program; `import triton` in it means this side's."""
        copy = self.work / f"{name}.py"
        copy.write_text(text, "utf-8")
        names: dict[str, Any] = {"__name__": copy.stem, "__file__": str(copy)}
        with self.active():
            exec(compile(text, str(copy), "exec"), names)
        return names

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within, `import triton` means this side's."""
        if sys.modules.get("triton") is self.modules["triton"]:
            yield
            return
        kept = {k: v for k, v in sys.modules.items() if k == "triton" or k.startswith("triton.")}
        for k in kept:
            del sys.modules[k]
        sys.modules.update(self.modules)
        try:
            yield
        finally:
            self.modules |= {k: v for k, v in sys.modules.items() if k == "triton" or k.startswith("triton.")}
            for k in self.modules:
                sys.modules.pop(k, None)
            sys.modules.update(kept)

    def _thin(self, names: dict[str, Any]) -> None:
        wanted = re.compile(os.environ.get("TEC_CONFIGS", ""))
        for v in names.values():
            if isinstance(configs := getattr(v, "configs", None), list):
                found = [c for c in configs if wanted.search(" ".join(f"{k}={x}" for k, x in c.all_kwargs().items()))]
                v.configs = found or configs

    def forget(self, number: str, kernel: str) -> None:
        """Let the next launch choose anew."""
        cache = getattr(self.tutorial(number).get(kernel), "cache", None)
        if cache is not None:
            cache.clear()

    def best(self, number: str, kernel: str) -> str:
        """The configuration that the last launch took."""
        return str(getattr(self.read[number].get(kernel), "best_config", "") or "")


def sides(folder: Path) -> tuple[Side, Side]:
    """tec's and Triton's."""
    from tec.jit import triton_names

    triton_names.install()
    ours = {k: v for k, v in sys.modules.items() if k == "triton" or k.startswith("triton.")}
    for k in ours:
        del sys.modules[k]
    importlib.import_module("triton.language")

    theirs = {k: v for k, v in sys.modules.items() if k == "triton" or k.startswith("triton.")}
    return Side("tec", folder, ours), Side("triton", folder, theirs)


# ---- sections: what is launched, given a tutorial's names


def _randn(*shape: int, dtype: str = "float16") -> Any:
    import torch

    torch.manual_seed(0)
    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))


def add(names: dict[str, Any], n: int) -> Run:
    x, y = _randn(n, dtype="float32"), _randn(n, dtype="float32")
    return lambda: names["add"](x, y)


def softmax(names: dict[str, Any], rows: int, columns: int) -> Run:
    x = _randn(rows, columns, dtype="float32")
    return lambda: names["softmax"](x)


def matmul(names: dict[str, Any], n: int, dtype: str = "float16") -> Run:
    import torch

    a, b = _randn(n, n), _randn(n, n)
    if dtype != "float16":
        a, b = a.to(getattr(torch, dtype)), b.T.to(getattr(torch, dtype)).contiguous().T
    return lambda: names["matmul"](a, b)


def layer_norm(names: dict[str, Any], rows: int, columns: int, backward: bool) -> Run:
    x = (_randn(rows, columns) * 0.5 - 2.3).requires_grad_(True)
    w, b = (_randn(columns).requires_grad_(True) for _ in range(2))
    dy = 0.1 * _randn(rows, columns)

    def forward() -> Any:
        return names["layer_norm"](x, (columns,), w, b, 1e-5)

    if not backward:
        return forward
    y = forward()

    def back() -> Any:
        x.grad = w.grad = b.grad = None
        y.backward(dy, retain_graph=True)
        return x.grad

    return back


def attention(names: dict[str, Any], head: int, causal: bool, backward: bool) -> Run:
    q, k, v = (_randn(4, 32, 4096, head).mul_(0.5).requires_grad_(True) for _ in range(3))

    def forward() -> Any:
        return names["attention"](q, k, v, causal, 1.3, False)

    if not backward:
        return forward
    o = forward()
    do = _randn(*o.shape)

    def back() -> Any:
        q.grad = k.grad = v.grad = None
        o.backward(do, retain_graph=True)
        return k.grad

    return back


def grouped(names: dict[str, Any], n: int) -> Run:
    import torch

    groups = [[_randn(n, n) for _ in range(4)] for _ in range(2)]
    out = [torch.empty(n, n, device="cuda", dtype=torch.float16) for _ in range(4)]
    where = [torch.tensor([t.data_ptr() for t in g], device="cuda") for g in (*groups, out)]
    sizes, lds = (torch.tensor([n] * 12, dtype=torch.int32, device="cuda") for _ in range(2))

    def run() -> Any:
        grid = lambda meta: (meta["NUM_SM"],)  # noqa: E731
        names["grouped_matmul_kernel"][grid](*where, sizes, lds, 4)
        return out[0]

    return run


def persistent(names: dict[str, Any], n: int, name: str, dtype: str = "float16") -> Run:
    import torch

    a, b = (_randn(n, n).to(getattr(torch, dtype)) for _ in range(2))
    by_rows = name in ("matmul", "matmul_persistent")
    more = () if by_rows else (False,)
    other = b.T if by_rows else b
    return lambda: names[name](a, other, *more)


# name: (tutorial, autotuned kernel, what makes the launch)
SECTIONS: dict[str, tuple[str, str, Callable[[dict[str, Any]], Run]]] = {
    "01 add f32 2^24": ("01", "", lambda t: add(t, 1 << 24)),
    **{f"02 softmax f32 4096 x {n}": ("02", "", lambda t, n=n: softmax(t, 4096, n)) for n in (1024, 4096, 12672)},
    **{f"03 matmul f16 {n}": ("03", "matmul_kernel", lambda t, n=n: matmul(t, n)) for n in (1024, 4096, 8192)},
    "03 matmul float8_e5m2 4096": ("03", "matmul_kernel", lambda t: matmul(t, 4096, "float8_e5m2")),
    "05 layer norm forward f16 4096 x 8192": ("05", "", lambda t: layer_norm(t, 4096, 8192, False)),
    **{
        f"05 layer norm backward f16 4096 x {n}": ("05", "", lambda t, n=n: layer_norm(t, 4096, n, True))
        for n in (4096, 8192)
    },
    **{
        f"06 {'causal ' * causal}attention forward 4 x 32 x 4096 x {d}": (
            "06",
            "_attn_fwd",
            lambda t, d=d, causal=causal: attention(t, d, causal, False),
        )
        for causal in (False, True)
        for d in (64, 128)
    },
    **{
        f"06 causal attention backward 4 x 32 x 4096 x {d}": (
            "06",
            "_attn_fwd",
            lambda t, d=d: attention(t, d, True, True),
        )
        for d in (64, 128)
    },
    "08 four products of 1024": ("08", "grouped_matmul_kernel", lambda t: grouped(t, 1024)),
    "09 persistent product f16 8192": (
        "09",
        "matmul_kernel_persistent",
        lambda t: persistent(t, 8192, "matmul_persistent"),
    ),
    "09 product by descriptors f16 8192": ("09", "matmul_kernel_tma", lambda t: persistent(t, 8192, "matmul_tma")),
    "09 persistent product by descriptors f16 8192": (
        "09",
        "matmul_kernel_tma_persistent",
        lambda t: persistent(t, 8192, "matmul_tma_persistent"),
    ),
}


def us_of(run: Run, flush: Any) -> list[float]:
    """Microseconds of launches, each behind a write of the caches."""
    import torch

    pairs = []
    for _ in range(A_ROUND):
        for _ in range(AHEAD):  # the host gets ahead of the device meanwhile
            flush.zero_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        pairs.append((start, stop))
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e3 for a, b in pairs]


def section(name: str, both: tuple[Side, Side]) -> None:
    """A row: both sides' medians, the ratio, the configurations, the largest difference of results."""
    import torch

    number, kernel, make = SECTIONS[name]
    runs: dict[str, Run] = {}
    results: dict[str, Any] = {}
    for side in both:
        with side.active():
            side.forget(number, kernel)
            run = make(side.tutorial(number))
            results[side.name] = run().detach().float().clone()
            torch.cuda.synchronize()
            runs[side.name] = run
    us = us_in_turn(both, runs)
    more: dict[str, Any] = {"largest difference": float((results["tec"] - results["triton"]).abs().max())}
    if kernel:
        more |= {"configuration": both[0].best(number, kernel), "peer_configuration": both[1].best(number, kernel)}
    line(name, us["tec"], "us", "Triton", us["triton"], **more)


def us_in_turn(both: tuple[Side, Side], runs: dict[str, Run]) -> dict[str, float]:
    """Microseconds of each side's run on the device, by its name: medians of rounds in turn."""
    import torch

    flush = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {s.name: [] for s in both}
    for _ in range(ROUNDS):
        for side in both:
            with side.active():
                times[side.name] += us_of(runs[side.name], flush)
    return {k: statistics.median(v) for k, v in times.items()}


def host(name: str, both: tuple[Side, Side], kernel_of: Callable[[Side], Any]) -> None:
    """Microseconds that a launch takes of the host: many of a kernel that adds two short arrays, the device keeping up."""
    import time

    import torch

    us: dict[str, list[float]] = {s.name: [] for s in both}
    x, y = (torch.randn(1024, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    for _ in range(ROUNDS):
        for side in both:
            with side.active():
                kernel = kernel_of(side)
                for _ in range(20):
                    kernel[(1,)](x, y, out, 1024, BLOCK_SIZE=1024)
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(300):
                    kernel[(1,)](x, y, out, 1024, BLOCK_SIZE=1024)
                us[side.name].append((time.perf_counter() - start) / 300 * 1e6)
                torch.cuda.synchronize()
    mine, other = (statistics.median(v) for v in us.values())
    line(name, mine, "us", "Triton", other)


def main(words: list[str]) -> None:
    both = sides(Path(words[0]))
    wanted = [n for n in SECTIONS if not words[1:] or any(n.startswith(w) for w in words[1:])]
    rows: list[tuple[str, Callable[[], None]]] = [(n, lambda n=n: section(n, both)) for n in wanted]
    if not words[1:] or "host" in words[1:]:
        rows.insert(
            0, ("host", lambda: host("01 a launch from Python", both, lambda s: s.tutorial("01")["add_kernel"]))
        )
    for name, make in rows:
        try:
            make()
        except Exception as e:
            print(json.dumps({"name": name, "refused": f"{type(e).__name__}: {str(e)[:300]}"}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
