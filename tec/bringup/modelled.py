"""Forty of tec's own kernels: their results beside NumPy's, their times by the clock beside the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import te
from ..choices import schedule
from ..driver import build
from ..ops.layouts import Layout
from ..ops.registry import TensorType, get_op
from ..runtime import nd
from ..runtime.devices.device import custom
from ..target import Machine, Target
from ..time_model import model
from .findings import AGREES, DIFFERS, FAILED, NOTE, Finding, wanted
from .gpu import Gpu

SECTION = "kernels"
WITHIN = 0.25  # of the model's time
Types = list[tuple[tuple[int, ...], str]]


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on operands of these shapes and types. `most`: of the flops a result takes part in, for its tolerance."""

    op: str
    attrs: dict[str, Any]
    types: Types
    terms: int = 1

    @property
    def name(self) -> str:
        sizes = " by ".join("x".join(map(str, s)) for s, _ in self.types)
        return f"{self.op}{' causal' * bool(self.attrs.get('causal'))} {self.types[0][1]} {sizes}"


def _product(m: int, n: int, k: int, dtype: str, batch: int = 1, turned: bool = True) -> Case:
    lead = (batch,) if batch > 1 else ()
    b = (n, k) if turned else (k, n)
    return Case("matmul", {"transpose_a": False, "transpose_b": turned}, [((*lead, m, k), dtype), ((*lead, *b), dtype)], k)  # fmt: skip


def _convolution(n: int, c: int, h: int, out: int, window: int, stride: int, dtype: str = "float16") -> Case:
    attrs = {
        "strides": (stride,) * 2, "dilations": (1, 1), "before": (window // 2,) * 2, "after": (window // 2,) * 2, "groups": 1, "kernel": (window, window),
        "layouts": (Layout("(NHW)C"), Layout("O(HWI)"), Layout("(NHW)C")), "space": (n, h, h),
    }  # fmt: skip
    return Case("conv", attrs, [((n * h * h, c), dtype), ((out, window * window * c), dtype)], window * window * c)


def _attention(batch: int, heads: int, length: int, size: int, causal: bool) -> Case:
    attrs = {"scale": size**-0.5, "causal": causal}
    return Case("attention", attrs, [((batch, heads, length, size), "float16")] * 3, length)


def cases(small: bool = False) -> list[Case]:
    """Products, convolutions, attention, sums and elementwise work: 40 kernels of a chip, 7 small ones (`small`)."""
    if small:
        return [
            _product(256, 256, 256, "float16"), _product(64, 512, 256, "float32"), _product(256, 128, 256, "int8"), _convolution(1, 32, 14, 64, 3, 1), _attention(1, 2, 128, 64, False),
            Case("softmax", {"axes": (-1,)}, [((64, 512), "float32")], 512), Case("add", {}, [((1 << 16,), "float32")] * 2),
        ]  # fmt: skip
    found = [_product(n, n, n, t) for n in (1024, 4096) for t in ("float16", "bfloat16", "float32", "int8")]
    found += [_product(m, 4096, 4096, "float16") for m in (1, 16, 64, 256)]
    found += [_product(512, 512, 65536, "float16"), _product(8192, 8192, 512, "float16"), _product(128, 128, 128, "float16", 64), _product(2048, 2048, 2048, "float16", 1, False)]  # fmt: skip
    found += [_convolution(*x) for x in ((16, 64, 56, 64, 3, 1), (16, 64, 56, 256, 1, 1), (16, 512, 7, 512, 3, 1), (16, 256, 14, 1024, 1, 1), (16, 128, 56, 128, 3, 2))]  # fmt: skip
    found += [_attention(4, 16, n, d, c) for n, d in ((1024, 64), (2048, 128)) for c in (False, True)]
    rows: Types = [((8192, 4096), "float16")]
    found += [Case("softmax", {"axes": (-1,)}, rows, 4096), Case("reduce_sum", {"axes": (1,), "keepdims": False}, rows, 4096), Case("reduce_max", {"axes": (0,), "keepdims": False}, rows), Case("transpose", {"perm": (1, 0)}, rows)]  # fmt: skip
    for dtype in ("float16", "float32"):
        found += [Case(op, {}, [((1 << 26,), dtype)] * count) for op, count in (("add", 2), ("exp", 1), ("gelu", 1))]
    found += [Case("add", {}, [((1 << 20,), "float32")] * 2), Case("exp", {}, [((1 << 20,), "float16")]), Case("tanh", {}, [((1 << 24,), "float32")])]  # fmt: skip
    found += [Case("reduce_sum", {"axes": (0,), "keepdims": False}, [((1 << 26,), "float32")], 1 << 26), Case("softmax", {"axes": (-1,)}, [((64, 131072), "float32")], 131072)]  # fmt: skip
    return found


def _operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "int8":
        return rng.integers(-8, 8, shape, np.int8)
    values = rng.standard_normal(shape, np.float32)
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def _floats(a: np.ndarray, dtype: str) -> np.ndarray:
    return (a.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else a


def check(gpu: Gpu, machine: Machine | None, small: bool = False, repeats: int = 7, only: str = "") -> Iterator[Finding]:  # fmt: skip
    """Two findings a kernel: its result ("result of ..."), beside the CPU's by tec, and its time."""
    if machine is None:
        yield Finding(SECTION, "times", NOTE, "not judged: the device is no product of the machine table")
    device = custom(gpu.driver, "rocm", gpu.ordinal)
    target = Target(f"rocm -mcpu={gpu.chip}")
    for case in cases(small):
        if not wanted(only, case.name):
            continue
        try:
            yield from _one(case, gpu, device, target, machine, repeats)
        except Exception as error:  # a kernel that fails is told, and the next one goes on
            yield Finding(SECTION, case.name, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _built(case: Case, target: Target) -> tuple[Any, list[Any]]:
    kinds = [TensorType(d, s) for s, d in case.types]
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(kinds)]
    known = get_op(case.op)
    outs = known.compute(case.attrs, xs, known.infer(kinds, case.attrs))[:1]
    s = schedule(outs, target)
    return build(s.schedule, [*xs, *s.outputs], target, name="kernel"), outs


def _one(case: Case, gpu: Gpu, device: Any, target: Target, machine: Machine | None, repeats: int) -> Iterator[Finding]:
    f, outs = _built(case, target)
    rng = np.random.default_rng(0)
    given = [_operand(rng, s, d) for s, d in case.types]
    shape, dtype = tuple(int(d.value) for d in outs[0].shape), outs[0].dtype
    arrays = [nd.array(x, device, dtype=d) if d == "bfloat16" else nd.array(x, device) for x, (_, d) in zip(given, case.types)]  # fmt: skip
    out = nd.zeros(shape, dtype, device)
    call: Callable[[], None] = lambda: f(*arrays, out)  # noqa: E731
    call()
    device.sync()
    yield _result(case, given, out, shape, dtype)
    if machine is None:
        return
    us = gpu.microseconds(call, repeats)
    args = [*((s, d) for s, d in case.types), (shape, dtype)]
    # The same buffers again and again: what fits is in the last cache.
    launches = model(f, args, machine.name, repeats > 1).launches
    want = sum(x.estimate.microseconds for x in launches)
    longest = max(launches, key=lambda x: x.estimate.microseconds).estimate
    state = AGREES if abs(us / want - 1) <= WITHIN else DIFFERS
    yield Finding(SECTION, case.name, state, f"{longest.limit}, {longest.clock_mhz:.0f} MHz by the model", want, us, "us")  # fmt: skip


# Of a product's matrix, and of a head's queries, that NumPy computes: all of a large one take the CPU minutes.
ROWS = 16


def _reference(case: Case, given: list[np.ndarray], shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, tuple[Any, ...]]:  # fmt: skip
    """(what is right in float64, of which part of the result): evenly spread rows of products and of one head by NumPy, all of other operators by tec on the CPU."""
    if case.op in ("matmul", "attention"):
        last = tuple(0 for _ in shape[:-2])
        rows = np.unique(np.linspace(0, shape[-2] - 1, ROWS).astype(int))
        a, b, *v = (_floats(x, d)[last].astype(np.float64) for x, (_, d) in zip(given, case.types))
        product = a[rows] @ (b.T if case.op == "attention" or case.attrs["transpose_b"] else b)
        if v:
            product *= case.attrs["scale"]
            if case.attrs["causal"]:
                product[np.arange(shape[-2]) > rows[:, None]] = -np.inf
            weights = np.exp(product - product.max(1, keepdims=True))
            product = weights / weights.sum(1, keepdims=True) @ v[0]
        return product, (*last, rows)
    f, _ = _built(case, Target("llvm"))
    other = nd.zeros(shape, dtype)
    f(*(nd.array(x, dtype=d) if d == "bfloat16" else nd.array(x) for x, (_, d) in zip(given, case.types)), other)
    return _floats(other.numpy(), dtype).astype(np.float64), ()


def _result(case: Case, given: list[np.ndarray], out: Any, shape: tuple[int, ...], dtype: str) -> Finding:
    want, part = _reference(case, given, shape, dtype)
    got = _floats(out.numpy(), dtype).astype(np.float64)[part]
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-20, "int32": 0.0, "int8": 0.0}.get(dtype, 2.0**-10)  # fmt: skip
    scale = np.abs(want).max(initial=1.0)
    apart = np.abs(want - got).max(initial=0.0) if np.isfinite(got).all() else float("inf")
    allowed = 4 * unit * scale + (2.0**-22 * case.terms**0.5 * scale if dtype == "float32" else 0.0)
    state = AGREES if apart <= allowed else DIFFERS
    return Finding(SECTION, f"result of {case.name}", state, "" if state == AGREES else "the CPU's result is another one", allowed, float(apart), "at most")  # fmt: skip
