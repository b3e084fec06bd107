"""`triton.testing` of programs that were written for Triton: clocks, comparisons, tables of benchmarks."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def do_bench(
    fn: Callable[[], Any],
    warmup: int = 25,
    rep: int = 100,
    grad_to_none: Any = None,
    quantiles: Any = None,
    return_mode: str = "mean",
) -> Any:
    """Milliseconds of a call: of `rep` milliseconds of calls, after `warmup` milliseconds of them."""
    timed = _timed_by_gpu if has_gpu() else _timed_by_host
    end = time.perf_counter() + warmup / 1000
    timed(fn)
    while time.perf_counter() < end:
        timed(fn)
    times: list[float] = []
    end = time.perf_counter() + rep / 1000
    while not times or time.perf_counter() < end:
        for x in grad_to_none or ():
            x.grad = None
        times.append(timed(fn))
    if quantiles is not None:
        found = np.quantile(times, quantiles).tolist()
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times
    reduce: Callable[[list[float]], Any] = getattr(np, return_mode)
    return float(reduce(times))


def has_gpu() -> bool:
    """Whether torch is loaded and has a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and _sees_gpu(torch)


@functools.lru_cache(maxsize=1)
def _sees_gpu(torch: Any) -> bool:
    """Asked once: it costs as much as a launch, and no GPU comes while a program runs."""
    return bool(torch.cuda.is_available())


def _timed_by_host(fn: Callable[[], Any]) -> float:
    start = time.perf_counter()
    fn()
    return (time.perf_counter() - start) * 1e3


# Set before a call: the caches hold nothing of it, and the GPU is busy until the call is queued.
_AHEAD_BYTES = 256 << 20


def _timed_by_gpu(fn: Callable[[], Any]) -> float:
    """Milliseconds between marks in torch's stream, around a call."""
    torch = sys.modules["torch"]
    ahead = torch.empty(_AHEAD_BYTES, dtype=torch.int8, device="cuda")
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    ahead.zero_()
    start.record()
    fn()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop))


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Whether two tensors agree."""
    a, b = (np.asarray(v.detach().float().cpu() if hasattr(v, "detach") else v) for v in (x, y))
    np.testing.assert_allclose(
        a, b, atol=1e-2 if atol is None else atol, rtol=0 if rtol is None else rtol, err_msg=err_msg
    )


def assert_almost_equal(x: Any, y: Any, decimal: int = 2, err_msg: str = "") -> None:
    """Whether two tensors agree to so many decimals."""
    assert_close(x, y, atol=1.5 * 10.0**-decimal, err_msg=err_msg)


class Benchmark:
    """What `perf_report` runs: values along x, lines."""

    def __init__(
        self,
        x_names: Any,
        x_vals: Any,
        line_arg: str,
        line_vals: Any,
        line_names: Any,
        plot_name: str,
        args: Any,
        **look: Any,
    ):
        self.x_names, self.x_vals, self.line_arg, self.line_vals = x_names, x_vals, line_arg, line_vals
        self.line_names, self.plot_name, self.args, self.look = line_names, plot_name, args, look


class Mark:
    """A function with its benchmarks; `run` prints a table of each."""

    def __init__(self, fn: Any, benchmarks: Any):
        self.fn, self.benchmarks = fn, benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Run all; rows of (x, one value a line)."""
        many = self.benchmarks if isinstance(self.benchmarks, (list, tuple)) else [self.benchmarks]
        rows: list[Any] = []
        for b in many:
            for x in b.x_vals:
                xs = x if isinstance(x, (list, tuple)) else [x] * len(b.x_names)
                found = [
                    self.fn(**dict(zip(b.x_names, xs)), **{b.line_arg: v}, **b.args, **kwargs) for v in b.line_vals
                ]
                rows.append((x, *[f[0] if isinstance(f, tuple) else f for f in found]))
            if print_data:
                print(b.plot_name, [*b.x_names, *b.line_names], *rows, sep="\n")
        return rows


def perf_report(benchmarks: Any) -> Callable[[Any], Mark]:
    """A decorator: benchmarks of a function."""
    return lambda fn: Mark(fn, benchmarks)
