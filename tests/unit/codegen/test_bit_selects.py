"""Selects over bit selects, which LLVM 22 folds into a masked vpternlog with the wrong truth table on AVX-512: see
`tec.llvmworker.jobs.fence_bit_selects`. Every form that comes to `x & K | y & ~K`, kept from either operand on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.llvmworker import jobs
from tec.target.cpus import host_features
from tests.thinned import thinned

N = 65 * 16  # more than the four steps that LLVM unrolls: in a loop, constants are operands in memory
MASK = 0x7FFFFFFF
HOSTS = [
    pytest.param(cpu, marks=pytest.mark.skipif("avx512vl" not in host_features().split(), reason="the host has no AVX-512"))
    for cpu in ("x86-64-v4", "skylake-avx512")
]  # fmt: skip
Form = Callable[[Any, Any, Any, Any, Any], Any]
FORMS: dict[str, Form] = {
    "or": lambda a, b, c, k, n: (a & k) | (b & n),
    "xor": lambda a, b, c, k, n: (a & k) ^ (b & n),
    "sum": lambda a, b, c, k, n: (a & k) + (b & n),
    "merge": lambda a, b, c, k, n: ((a ^ b) & k) ^ b,
    "difference": lambda a, b, c, k, n: a - (a & k) + (b & k),
    "ors": lambda a, b, c, k, n: (a | n) & (b | k),
    "two": lambda a, b, c, k, n: (((a & k) | (b & n)) & k) | (c & n),
    "then xor": lambda a, b, c, k, n: ((a & k) | (b & n)) ^ c,
}


def _run(
    fns: list[Callable[..., Any]], data: list[np.ndarray], dtype: str, lanes: int, vector: bool, cpu: str
) -> list[Any]:
    places = [te.placeholder((N,), str(x.dtype), name=f"x{i}") for i, x in enumerate(data)]
    outs = [te.compute((N,), lambda i, f=f: f(*[p[i] for p in places]), name=f"o{k}") for k, f in enumerate(fns)]
    s = tec.create_schedule([o.op for o in outs])
    for o in outs:
        _, inner = s[o].split(o.op.axis[0], factor=lanes)
        (s[o].vectorize if vector else s[o].unroll)(inner)  # unrolled scalars LLVM makes vectors of
    f = tec.build(s, [*places, *outs], f"llvm -mcpu={cpu}")
    got = [tec.nd.array(np.zeros(N, dtype)) for _ in outs]
    f(*[tec.nd.array(x) for x in data], *got)
    return [x.numpy() for x in got]


def _check(dtype: str, mask: int, lanes: int, vector: bool, cpu: str) -> None:
    rng = np.random.default_rng(0)
    bits = np.iinfo(dtype).bits
    low = int(np.array(mask, dtype=f"uint{bits}").view(dtype))
    pair = {te: (tec.const(low, dtype), tec.const(~low, dtype)), np: (np.array(low, dtype), np.array(~low, dtype))}
    data = [rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, N).astype(dtype) for _ in range(3)]
    data.append(rng.standard_normal(N).astype(np.float32))
    cases: list[tuple[str, Callable[..., Any]]] = []
    for name, form in FORMS.items():
        for kept in range(3):
            for swap in (False, True):

                def value(m: Any, a: Any, b: Any, c: Any, d: Any, form=form, kept=kept, swap=swap) -> Any:
                    sides = [form(a, b, c, *pair[m]), (a, b, c)[kept]]
                    return (te.select if m is te else np.where)(d > 0, *(sides[::-1] if swap else sides))

                cases.append((f"{name}, keeps {'abc'[kept]}{', swapped' * swap}", value))
    got = _run([lambda *x, v=v: v(te, *x) for _, v in cases], data, dtype, lanes, vector, cpu)
    with np.errstate(over="ignore"):
        wrong = [name for (name, v), x in zip(cases, got) if not np.array_equal(x, v(np, *data))]
    assert not wrong


@pytest.mark.parametrize("vector", [True, False])
def test_selects_over_bit_selects(vector: bool) -> None:
    _check("int32", MASK, 16, vector, "native")


@pytest.mark.slow
@thinned(
    2,
    ("cpu", HOSTS),
    ("lanes", [4, 8, 16, 32]),
    (
        "dtype,mask",
        [
            ("int32", MASK),
            ("int32", 0xFFFF),
            ("int64", MASK << 32 | 0xFFFFFFFF),
            ("int64", 0xFF00FF),
            ("int16", 0x7FFF),
            ("int8", 0x7F),
        ],
    ),
    ("vector", [True, False]),
)
def test_every_width(vector: bool, dtype: str, mask: int, lanes: int, cpu: str) -> None:
    _check(dtype, mask, lanes, vector, cpu)


@pytest.mark.parametrize("dtype,bits", [("float32", "int32"), ("float64", "int64")])
def test_selects_over_copysign(dtype: str, bits: str) -> None:
    """As floats, and as their bits, where the select is of the integers that the instruction works on."""
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(N).astype(dtype) for _ in range(3)]

    def floats(m: Any, a: Any, b: Any, d: Any, kept: int) -> Any:
        return (te.select if m is te else np.where)(d > 0, m.copysign(a, b), (a, b)[kept])

    def ints(a: Any, b: Any, d: Any, kept: int) -> Any:
        chosen = te.select(d > 0, te.reinterpret(bits, te.copysign(a, b)), te.reinterpret(bits, (a, b)[kept]))
        return te.reinterpret(dtype, chosen)

    fns: list[Callable[..., Any]] = [lambda *x, k=k: floats(te, *x, k) for k in (0, 1)]
    fns += [lambda *x, k=k: ints(*x, k) for k in (0, 1)]
    for k, x in enumerate(_run(fns, data, dtype, 8, True, "native")):
        np.testing.assert_array_equal(x, floats(np, *data, k % 2))


@thinned(
    2,
    ("lanes", [1, 2, 3, 5, 7, 33, 64]),
    ("element", ["i8", "i16", "i32", "i64"]),
    ("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "sapphirerapids"]),
)
def test_fences_of_any_width_compile(cpu: str, element: str, lanes: int) -> None:
    t, n = f"<{lanes} x {element}>", int(element[1:])
    text = f"""define {t} @f({t} %a, {t} %b, <{lanes} x i1> %m) {{
  %x = and {t} %a, splat ({element} {2 ** (n - 1) - 1})
  %y = and {t} %b, splat ({element} {-(2 ** (n - 1))})
  %o = or {t} %x, %y, !note !0
  %r = select <{lanes} x i1> %m, {t} %o, {t} %a
  ret {t} %r
}}
!0 = !{{}}
"""
    machine = ("x86_64-unknown-linux-gnu", cpu, "", 2, "jitdefault")
    answer = jobs.run({"do": "compile", "text": text, "machine": machine, "speed": 2, "passes": "default", "want": ["llvm", "object"]})  # fmt: skip
    assert answer["object"]
    assert ("arithmetic.fence" in answer["llvm"]) == (lanes * n % 32 == 0)
