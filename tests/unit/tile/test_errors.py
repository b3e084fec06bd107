"""What users do wrong with tiles, and what they are told: the line of the kernel, in terms of tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
import tec.tile as tl


@tl.jit
def shapes(x):
    a = tl.zeros((64,), tl.float32)
    b = tl.zeros((32,), tl.float32)
    tl.store(x, tl.sum(a + b))  # here: shapes


@tl.jit
def odd(x):
    at = tl.arange(0, 100)  # here: odd
    tl.store(x + at, at)


@tl.jit
def carried(x):
    total = 0.0
    for _ in range(4):  # here: carried
        total += tl.load(x + tl.arange(0, 16))
    tl.store(x, total)


@tl.jit
def truth(x):
    a = tl.load(x + tl.arange(0, 16))
    if a > 0:  # here: truth
        tl.store(x, 1.0)


@tl.jit
def leaves(x):
    for _ in range(4):
        if tl.load(x) > 0:
            break  # here: leaves


@tl.jit
def stored(x):
    x[0] = 1.0  # here: stored


@tl.jit
def indexed(x):
    tl.store(x, x[0])  # here: indexed


@tl.jit
def inner(x):
    a = tl.zeros((16, 32), tl.float16)
    tl.store(x, tl.sum(tl.sum(tl.dot(a, a), 1), 0))  # here: inner


@tl.jit
def fields(x):
    tl.store(x, tl.no_such_word(3))  # here: fields


@tl.jit
def misspelt(x):
    tl.stor(x, 3.0)  # here: misspelt


@tl.jit
def large(x):
    tl.store(x, tl.sum(tl.sum(tl.zeros((2048, 1024), tl.float32), 1), 0))  # here: large


@tl.jit
def itself(x):
    itself(x)  # here: itself


@tl.jit
def value(x):  # here: value
    return x


@tl.jit
def number(x):
    tl.load(3)  # here: number


@tl.jit
def unsigned(x):
    a = tl.arange(0, 16)
    tl.store(x + a, a.to(tl.uint32) // a)  # here: unsigned


@tl.jit
def whole(x):
    total = 0
    for i in range(4):  # here: whole
        total += tl.load(x + i)
    tl.store(x, total)


@tl.jit
def synced(x):
    tl.syncthreads()  # here: synced


@tl.jit
def logarithm(x):
    tl.store(x, tl.log1p(1.0))  # here: logarithm


@tl.jit
def endless(x):
    at = tl.load(x)
    while x:  # here: endless
        at += 1.0
    tl.store(x, at)


@tl.jit
def compared(x):
    at = tl.arange(0, 16)
    tl.store(x + at, 1.0, mask=at < x)  # here: compared


WRONG: list[tuple[Any, str]] = [
    (compared, "compared with a pointer"),
    (endless, "never changes"),
    (shapes, "do not broadcast: 64 and 32"),
    (odd, "100 is none"),
    (carried, "Loop-carried variable total"),
    (truth, "if on a tile <16"),
    (leaves, "while with a condition"),
    (stored, "tl.store(x + i, v)"),
    (indexed, "tl.load(x + i)"),
    (inner, "[16, 32] and [16, 32]"),
    (fields, "no_such_word"),
    (misspelt, "is store meant?"),
    (large, "1,048,576 is the most"),
    (itself, "calls itself"),
    (whole, "total = tl.full((), 0.0, tl.float32)"),
    (synced, "the compiler places the barriers"),
    (logarithm, "tl.extra.libdevice.log1p"),
    (value, "returns a value"),
    (number, "no pointer"),
    (unsigned, "different signedness"),
]


def line_of(text: str) -> int:
    lines = open(__file__, encoding="utf-8").read().splitlines()
    return next(k for k, line in enumerate(lines, 1) if line.endswith(f"# here: {text}"))


@pytest.mark.parametrize("kernel,says", WRONG, ids=lambda v: getattr(v, "__name__", None))
def test_a_kernel_that_cannot_be_read(kernel: Any, says: str) -> None:
    with pytest.raises(tec.KernelError) as e:
        kernel[(1,)](np.zeros(16, np.float32))
    assert says in str(e.value)
    assert f"test_errors.py:{line_of(kernel.__name__)}" in str(e.value)


@tl.jit
def fine(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at, mask=at < n)


X = np.zeros(16, np.float32)
LAUNCHES: list[tuple[Callable[[], Any], str]] = [
    (lambda: fine(X, 3, 4), "called like a function"),
    (lambda: fine.ir("float*", "i32", BLOCK=4), r"x of fine is described as 'float\*', which is no type"),
    (lambda: fine[(1, 1, 1, 2)](X, 3, BLOCK=4), "4 dimensions"),
    (lambda: fine[(1.5,)](X, 3, BLOCK=4), "whole numbers"),
    (lambda: fine[(2**31,)](X, 3, BLOCK=4), "2,147,483,648 programs"),
    (lambda: fine[(1,)](X, 3), "without BLOCK"),
    (lambda: fine[(1,)](X, 3, BLOCK=4, SIZE=3), "no parameter SIZE"),
    (lambda: fine[(1,)](X, 3, 4, BLOCK=4), "twice"),
    (lambda: fine[(1,)]([1, 2], 3, BLOCK=4), "a list"),
    (lambda: fine[(1,)](X, 2**64, BLOCK=4), "no integer type"),
    (lambda: fine.asm("rocm -mcpu=gfx942", "*fp32", 3, BLOCK=4, num_warps=3), "num_warps=3"),
    (lambda: tl.jit(3), "no Python function"),
    (lambda: tl.autotune(3, key=[]), "a list of configurations, not an int"),
    (lambda: tl.autotune([3], key=[]), "a list of configurations, not an int"),
    (lambda: tl.autotune([tl.Config({})], key="n"), "the key 'n'"),
    (lambda: tl.heuristics(["n"]), "functions by the name"),
    (lambda: tl.Config(3), "Config of an int"),
]


@pytest.mark.parametrize("launch,says", LAUNCHES, ids=[s for _, s in LAUNCHES])
def test_a_launch_that_does_not_fit(launch: Callable[[], Any], says: str) -> None:
    with pytest.raises(tec.KernelError, match=says.replace("(", r"\(")):
        launch()


@tl.jit
def unmasked(x, out):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(out + at, tl.load(x + at))  # here: unmasked


def test_a_mask_that_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The software GPU and NumPy's interpreter name the line."""
    place = f"test_errors.py:{line_of('unmasked')}"
    dev = tec.rocm_emu("gfx942")
    with pytest.raises(tec.TecError, match="out of bounds") as e:
        unmasked[(2,)](tec.nd.array(np.zeros(100, np.float32), dev), tec.nd.array(np.zeros(128, np.float32), dev))
    assert place in str(e.value)
    monkeypatch.setenv("TEC_INTERPRET", "1")
    with pytest.raises(tec.KernelError, match="outside of an array of 100") as e:
        unmasked[(2,)](np.zeros(100, np.float32), np.zeros(128, np.float32))
    assert place in str(e.value)


@tl.jit
def says(x):
    a = tl.load(x + tl.arange(0, 4))
    tl.device_print("a", a)
    tl.device_assert(a < 3, "small")


def test_prints_and_asserts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_DEBUG", "1")
    for dev in (tec.cpu(), tec.rocm_emu("gfx942")):
        with pytest.raises(tec.KernelError, match="small"):
            says[(1,)](tec.nd.array(np.arange(4, dtype=np.float32), dev))
        assert capsys.readouterr().out.count("a") >= 4


@tl.jit
def claims(x):
    tl.device_assert(tl.load(x) > 0, "above none")
    tl.store(x, 1.0)


@pytest.mark.parametrize(("tec_debug", "triton_debug", "is_told"), [(None, None, False), ("1", None, True), (None, "1", True), ("0", "0", False)])  # fmt: skip
def test_assertions_are_read_where_the_environment_asks(
    monkeypatch: pytest.MonkeyPatch, tec_debug: str | None, triton_debug: str | None, is_told: bool
) -> None:
    for name, value in (("TEC_DEBUG", tec_debug), ("TRITON_DEBUG", triton_debug)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    x = np.ones(1, np.float32)
    assert ("above none" in str(claims.ir(x))) == is_told
