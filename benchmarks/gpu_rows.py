"""The rows of benchmarks/gpu.py: what is computed, on which operands, what it must equal, who else computes it.

A row is written as te, and scheduled by `tec.choices` as a network's group would be. References are PyTorch in float64 on the device; peers are PyTorch
(cuBLAS, cuDNN) and the Triton kernels of `triton_peers`. Nothing here imports the compiler before `Row.build` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
Spec = tuple[Shape, str]  # of an operand
Peer = Callable[[Any, list[Any], Any], Callable[[], Any]]  # (torch, inputs, a result to write) -> what a run calls

LAUNCH = "launch"  # the row that times calls
TENSOR_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "int8": 1, "int32": 4}


@dataclass(frozen=True)
class Row:
    """`amount` over the time is the figure, in `unit`; `tolerance` is of the largest value of the reference."""

    name: str
    unit: str
    amount: float
    inputs: tuple[Spec, ...]
    output: Spec
    group: Callable[[list[Any]], list[Any]]  # te placeholders -> te outputs
    want: Callable[[Any, list[Any]], Any]  # torch, inputs -> the reference
    tolerance: float
    peers: Mapping[str, Peer] = field(default_factory=dict)
    target: str = "cuda -arch=sm_90a"

    def build(self, choice: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The compiled module and the choice that made it."""
        import tec
        from tec import te
        from tec.choices import schedule

        xs = [te.placeholder(shape, dtype, name=f"x{k}") for k, (shape, dtype) in enumerate(self.inputs)]
        made = schedule(self.group(xs), self.target, choice)
        return tec.build(made.schedule, [*xs, *made.outputs], self.target, name="kernel"), made.choice


def operator(name: str, **attrs: Any) -> Callable[[list[Any]], list[Any]]:
    """The first output of a graph operator on the inputs."""

    def group(xs: list[Any]) -> list[Any]:
        from tec.ops.registry import TensorType, get_op

        known = get_op(name)
        types = [TensorType(x.dtype, tuple(int(d.value) for d in x.shape)) for x in xs]
        return list(known.compute(attrs, list(xs), known.infer(types, attrs))[:1])

    return group


# ---- products


def product(m: int, n: int, k: int, dtype: str, out: str, trans_b: bool = False, gelu: bool = False) -> Row:
    """A[m, k] times B[k, n] (or [n, k]), summed in 32 bits; with a bias a column and GELU (erf) behind it where asked."""
    ops = ((m, k), dtype), ((n, k) if trans_b else (k, n), dtype)
    attrs = {"transpose_b": trans_b, "out_dtype": out}

    def group(xs: list[Any]) -> list[Any]:
        from tec import te

        (y,) = operator("matmul", **{**attrs, "out_dtype": "float32" if gelu else out})(xs[:2])
        if not gelu:
            return [y]

        def end(i: Any, j: Any) -> Any:
            x = y[i, j] + xs[2][j].astype("float32")
            return (x * 0.5 * (1.0 + te.erf(x * (0.5**0.5)))).astype(out)

        return [te.compute((m, n), end, name="gelu")]

    def want(torch: Any, xs: list[Any]) -> Any:
        b = xs[1].T if trans_b else xs[1]
        y = xs[0].double() @ b.double()
        return torch.nn.functional.gelu(y + xs[2].double()) if gelu else y

    def library(torch: Any, xs: list[Any], z: Any) -> Callable[[], Any]:
        b = xs[1].T if trans_b else xs[1]
        if dtype == "int8":
            return lambda: torch._int_mm(xs[0], b)
        if dtype.startswith("float8"):
            one = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(xs[0], b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return lambda: torch.mm(xs[0], b, out=z)

    def with_gelu(torch: Any, xs: list[Any], z: Any) -> Callable[[], Any]:
        return lambda: torch.nn.functional.gelu(torch.addmm(xs[2], xs[0], xs[1]))

    def fused_gelu(torch: Any, xs: list[Any], z: Any) -> Callable[[], Any]:
        return lambda: torch._addmm_activation(xs[2], xs[0], xs[1], use_gelu=True)  # the tanh form

    def triton(torch: Any, xs: list[Any], z: Any) -> Callable[[], Any]:
        import triton_peers

        return lambda: triton_peers.matmul(xs[0], xs[1], z)

    size = f"{m}" if m == n == k else f"{m} x {n} x {k}"
    short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3": "e4m3"}.get(dtype, dtype)
    name = f"bias and GELU (erf) {size}" if gelu else f"matmul {short}{', B [n, k]' * trans_b} {size}"
    peers: dict[str, Peer] = {"torch, two kernels": with_gelu, "cuBLASLt": fused_gelu} if gelu else {"cuBLAS": library}
    if dtype in ("float16", "bfloat16") and m == n == k and not gelu and not trans_b:
        peers["Triton"] = triton
    inputs = (*ops, ((n,), out)) if gelu else ops
    exact = {"int8": 0.0, "float32": 1e-5}
    return Row(name, "TFLOP/s", 2e-12 * m * n * k, inputs, ((m, n), out), group, want, exact.get(dtype, 1e-2), peers)


# ---- attention

ATTENTION_BATCH, ATTENTION_HEADS = 4, 32


def attention(size: int, length: int, dtype: str, causal: bool = False) -> Row:
    """Queries, keys and values of 4 x 32 heads of `length` by `size`; a causal one counts half the operations."""
    shape: Shape = (ATTENTION_BATCH, ATTENTION_HEADS, length, size)
    attrs = {"scale": size**-0.5, "extras": (), **({"right": 0} if causal else {})}

    def want(torch: Any, xs: list[Any]) -> Any:
        """A head at a time: the scores of all together would be 17 GB of float64."""
        out = torch.empty(shape, dtype=torch.float64, device="cuda")
        after = torch.ones((length, length), dtype=torch.bool, device="cuda").triu(1)
        for b in range(ATTENTION_BATCH):
            for h in range(ATTENTION_HEADS):
                q, k, v = (x[b, h].double() for x in xs)
                scores = q @ k.T * size**-0.5
                if causal:
                    scores.masked_fill_(after, float("-inf"))
                out[b, h] = scores.softmax(-1) @ v
        return out

    def by(backend: str) -> Peer:
        def peer(torch: Any, xs: list[Any], z: Any) -> Callable[[], Any]:
            kind = getattr(torch.nn.attention.SDPBackend, backend)

            def run() -> Any:
                with torch.nn.attention.sdpa_kernel(kind):
                    return torch.nn.functional.scaled_dot_product_attention(*xs, is_causal=causal)

            return run

        return peer

    short = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    name = f"attention {short} d {size}{' causal' * causal} {length}"
    peers = {"cuDNN": by("CUDNN_ATTENTION"), "FlashAttention-2": by("FLASH_ATTENTION")}
    amount = 4e-12 * ATTENTION_BATCH * ATTENTION_HEADS * length * length * size / (2 if causal else 1)
    group = operator("attention", **attrs)
    return Row(name, "TFLOP/s", amount, ((shape, dtype),) * 3, (shape, dtype), group, want, 1e-2, peers)


# ---- rows, and what moves data


def _moved(name: str, op: Callable[[list[Any]], list[Any]], inputs: tuple[Spec, ...], output: Spec, want: Any, peers: dict[str, Peer], tolerance: float = 0.0) -> Row:  # fmt: skip
    total = 0
    for shape, dtype in (*inputs, output):
        n = TENSOR_BYTES[dtype]
        for d in shape:
            n *= d
        total += n
    return Row(name, "GB/s", total * 1e-9, inputs, output, op, want, tolerance, peers)


def _copy(torch: Any, xs: list[Any], z: Any) -> Callable[[], Any]:
    return lambda: z.copy_(xs[0].view(z.shape))


def _triton(which: str) -> Peer:
    def peer(torch: Any, xs: list[Any], z: Any) -> Callable[[], Any]:
        import triton_peers

        return lambda: getattr(triton_peers, which)(*xs, z)

    return peer


def _identity(xs: list[Any]) -> list[Any]:
    from tec import te

    return [te.compute(xs[0].shape, lambda *i: xs[0](*i), name="copy")]


def _total(xs: list[Any]) -> list[Any]:
    return operator("reduce_sum", axes=(0,), keepdims=True)(xs)


def _fused_total(xs: list[Any]) -> list[Any]:
    """The sum of a * b + c."""
    product = operator("multiply")(xs[:2])
    return _total(operator("add")([*product, xs[2]]))


def _rms(torch: Any, x: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)


def _rms_group(xs: list[Any]) -> list[Any]:
    from tec import te

    (x,) = xs
    m, n = x.shape
    k = te.reduce_axis((0, n), "k")
    square = te.compute(
        (m,), lambda i: te.sum(x[i, k].astype("float32") * x[i, k].astype("float32"), axis=k), name="square"
    )
    scale = te.const(1, "float32") / n.astype("float32")

    def end(i: Any, j: Any) -> Any:
        return (x[i, j].astype("float32") * te.rsqrt(square[i] * scale + te.const(1e-5, "float32"))).astype(x.dtype)

    return [te.compute((m, n), end, name="rms_norm")]


def rows(quick: bool = False) -> Iterator[Row]:
    """All rows; `quick`: small ones."""
    n = 1 << (24 if quick else 28)
    side = 2048 if quick else 16384
    some: Spec = ((1024,), "float32")
    yield _moved(LAUNCH, operator("add"), (some, some), some, lambda t, x: x[0] + x[1], {})
    flat: Spec = ((n,), "float32")
    yield _moved(
        f"copy 2^{n.bit_length() - 1} f32", _identity, (flat,), flat, lambda t, x: x[0], {"torch.copy_": _copy}
    )
    yield _moved(
        f"add 2^{n.bit_length() - 1} f32", operator("add"), (flat, flat), flat, lambda t, x: x[0] + x[1],
        {"torch.add": lambda t, x, z: lambda: t.add(x[0], x[1], out=z), "Triton": _triton("add")},
    )  # fmt: skip
    yield _moved(
        f"sum 2^{n.bit_length() - 1} f32", _total, (flat,), ((1,), "float32"), lambda t, x: x[0].double().sum().reshape(1),
        {"torch.sum": lambda t, x, z: lambda: x[0].sum()}, 1e-4,
    )  # fmt: skip
    third: Spec = ((n >> 4,), "float32")
    yield _moved(
        f"sum of a * b + c, 2^{(n >> 4).bit_length() - 1} f32", _fused_total, (third,) * 3, ((1,), "float32"),
        lambda t, x: (x[0].double() * x[1] + x[2]).sum().reshape(1),
        {"torch, compiled": lambda t, x, z: t.compile(lambda: (x[0] * x[1] + x[2]).sum())}, 1e-3,
    )  # fmt: skip
    square: Spec = ((side, side), "float32")
    yield _moved(
        f"softmax {side} square", operator("softmax", axes=(-1,)), (square,), square, lambda t, x: t.softmax(x[0].double(), 1),
        {"torch.softmax": lambda t, x, z: lambda: t.softmax(x[0], 1), "Triton": _triton("softmax")}, 1e-5,
    )  # fmt: skip
    yield _moved(
        f"transpose {side} square",
        operator("transpose", perm=(1, 0)),
        (square,),
        square,
        lambda t, x: x[0].T,
        {"torch.copy_": _copy},
    )
    side = 1024 if quick else 8192
    half: Spec = ((side, side), "float16")
    norm = (side,)
    yield _moved(
        f"layer norm f16 {side} square", operator("layer_norm", axis=-1, epsilon=1e-5), (half,), half,
        lambda t, x: t.nn.functional.layer_norm(x[0].double(), norm),
        {"torch": lambda t, x, z: lambda: t.nn.functional.layer_norm(x[0], norm), "Triton": _triton("layer_norm")}, 2e-3,
    )  # fmt: skip
    yield _moved(
        f"RMS norm f16 {side} square", _rms_group, (half,), half, lambda t, x: _rms(t, x[0].double()),
        {"torch": lambda t, x, z: lambda: t.nn.functional.rms_norm(x[0], norm, eps=1e-5), "Triton": _triton("rms_norm")}, 2e-3,
    )  # fmt: skip
    sizes = (1024,) if quick else (2048, 4096, 8192)
    for dtype in ("float16", "bfloat16"):
        for m in sizes:
            yield product(m, m, m, dtype, dtype)
    for m in sizes:
        yield product(m, m, m, "float16", "float16", trans_b=True)
    if not quick:
        yield product(8192, 8192, 8192, "float16", "float16", gelu=True)
        yield product(4096, 3072, 768, "float16", "float16", gelu=True)
        for m in (64, 512):
            yield product(m, 8192, 8192, "float16", "float16")
            yield product(m, 8192, 8192, "float16", "float16", trans_b=True)
        yield product(4096, 768, 768, "float16", "float16")
        yield product(8192, 8192, 8192, "float8_e4m3", "bfloat16", trans_b=True)
        yield product(8192, 8192, 8192, "int8", "int32", trans_b=True)
        for size in (64, 128):
            for causal in (False, True):
                yield attention(size, 4096, "float16", causal)
    for m in sizes:
        yield product(m, m, m, "float32", "float32")
    if not quick:
        for dtype in ("float32", "float16"):  # few tiles, as networks of one batch have them
            yield product(128, 768, 768, dtype, dtype)
            yield product(128, 768, 3072, dtype, dtype)
