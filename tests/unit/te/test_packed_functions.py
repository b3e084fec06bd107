"""Python functions called from compiled CPU code: what they get, that they may write, what they raise, modules that are saved and loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.ir import interp
from tec.runtime.modules.callbacks import Argument, parse, symbol

F32 = np.float32


@pytest.fixture(autouse=True)
def registered() -> Any:
    seen: list[Any] = []

    @tec.register_func("test.scale", override=True)
    def scale(a: tec.NDArray, out: tec.NDArray, factor: float, n: int, note: str) -> None:
        seen.append((a.shape, factor, n, note))
        out.copyfrom(a.numpy() * F32(factor) + n)

    yield seen
    tec.remove_global_func("test.scale")


def scaled(shape: Any = (3, 4)) -> tuple[Any, Any]:
    A = te.placeholder(shape, name="A")
    C = te.extern(
        A.shape,
        [A],
        lambda ins, outs: te.call_packed("test.scale", ins[0], outs[0], 2.5, A.shape[0] + 1, "a, b) 'c'"),
        name="C",
    )
    return A, C


def test_arrays_numbers_and_texts(registered: list[Any]) -> None:
    n = te.var("n")
    A, C = scaled((n, 4))
    D = te.compute(C.shape, lambda i, j: C[i, j] + 1.0, name="D")
    f = tec.build(tec.create_schedule(D.op), [A, D], "llvm")
    a = np.random.default_rng(0).random((3, 4)).astype("f")
    out = tec.nd.array(np.zeros((3, 4), "f"))
    f(tec.nd.array(a), out)
    np.testing.assert_allclose(out.numpy(), a * F32(2.5) + 5, 1e-6)
    assert registered == [((3, 4), 2.5, 4, "a, b) 'c'")]


def test_the_interpreter_calls_it_too(registered: list[Any]) -> None:
    A, C = scaled()
    func = next(iter(tec.lower(tec.create_schedule(C.op), [A, C], simple_mode=True)))
    a, out = np.ones((3, 4), "f"), np.zeros((3, 4), "f")
    interp.run(func, [a, out])
    np.testing.assert_allclose(out, 6.5)
    assert len(registered) == 1


def test_a_loaded_module_finds_it_by_name(tmp_path: Path) -> None:
    A, C = scaled()
    tec.build(tec.create_schedule(C.op), [A, C], "llvm").save(tmp_path / "m.tecmod")
    f = tec.load_module(tmp_path / "m.tecmod")
    out = tec.nd.array(np.zeros((3, 4), "f"))
    f(tec.nd.array(np.ones((3, 4), "f")), out)
    np.testing.assert_allclose(out.numpy(), 6.5)
    tec.remove_global_func("test.scale")
    with pytest.raises(tec.ArgumentError, match=r"no function 'test.scale' is registered"):
        f(tec.nd.array(np.ones((3, 4), "f")), out)


def test_what_it_raises_comes_out_of_the_call() -> None:
    def fails(*args: Any) -> None:
        raise ZeroDivisionError("from inside")

    tec.register_func("test.scale", fails, override=True)
    A, C = scaled()
    f = tec.build(tec.create_schedule(C.op), [A, C], "llvm")
    arrays = [tec.nd.array(np.ones((3, 4), "f")) for _ in range(2)]
    with pytest.raises(ZeroDivisionError, match="from inside"):
        f(*arrays)
    tec.register_func("test.scale", lambda *args: "text", override=True)
    with pytest.raises(tec.ArgumentError, match="returned 'text'"):
        f(*arrays)
    tec.register_func("test.scale", lambda *args: None, override=True)
    f(*arrays)


def test_registration() -> None:
    with pytest.raises(tec.ArgumentError, match="registered already"):
        tec.register_func("test.scale", print)
    with pytest.raises(tec.ArgumentError, match="no function 'nothing'"):
        tec.get_global_func("nothing")
    assert tec.get_global_func("nothing", allow_missing=True) is None

    @tec.register_func
    def of_its_own_name() -> None:
        pass

    assert tec.get_global_func("of_its_own_name") is of_its_own_name
    tec.remove_global_func("of_its_own_name")


def test_symbols_say_what_is_passed() -> None:
    arguments = (
        Argument("array", "float32", 2),
        Argument("array", "int8", 0, written=False),
        Argument("int"),
        Argument("text", text="a,(b)|'c"),
    )
    assert parse(symbol("my.f(x)", arguments)) == ("my.f(x)", arguments)
    assert parse("memcpy") is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((te.placeholder((4,), name="T"),), "tensor T as an argument"),
        (([1],), "list"),
        ((te.var("v", "float32x4"),), "type float32x4"),
    ],
)
def test_mistakes(args: Any, says: str) -> None:
    with pytest.raises(tec.TecError, match=says):
        te.call_packed("f", *args)


def test_the_hosts_side_of_a_gpus_function_calls_it() -> None:
    """With arrays on the device, between kernels: what vendor libraries are called by. A kernel cannot call one."""
    A, C = scaled((16, 4))
    D = te.compute(C.shape, lambda i, j: C[i, j] + 1.0, name="D")
    s = tec.create_schedule(D.op)
    s[D].bind(D.op.axis[0], te.thread_axis("threadIdx.x"))
    device = tec.rocm_emu("gfx942")
    a = np.random.default_rng(0).random((16, 4)).astype("f")
    out = tec.nd.array(np.zeros((16, 4), "f"), device)
    tec.build(s, [A, D], "rocm -mcpu=gfx942")(tec.nd.array(a, device), out)
    np.testing.assert_allclose(out.numpy(), a * F32(2.5) + 18, 1e-6)


@pytest.mark.parametrize("pointer", [lambda b: b.data, lambda b: b.access_ptr("rw")])
def test_pointers_arrive_as_addresses(pointer: Any) -> None:
    def double(a: int, out: int, n: int) -> None:
        source, target = (np.ctypeslib.as_array((ctypes.c_float * n).from_address(p)) for p in (a, out))
        target[:] = source * 2

    tec.register_func("test.double", double, override=True)
    A = te.placeholder((8,), name="A")
    B = te.compute(A.shape, lambda i: A[i] + 1.0, name="B")
    C = te.extern(A.shape, [B], lambda i, o: te.call_packed("test.double", pointer(i[0]), pointer(o[0]), 8), name="C")
    s = tec.create_schedule(C.op)
    a, out = np.arange(8, dtype="f"), np.zeros(8, "f")
    interp.run(next(iter(tec.lower(s, [A, C], simple_mode=True))), [a, out])
    np.testing.assert_array_equal(out, (a + 1) * 2)
    device = tec.nd.array(np.zeros(8, "f"))
    tec.build(s, [A, C], "llvm")(tec.nd.array(a), device)
    np.testing.assert_array_equal(device.numpy(), out)
    tec.remove_global_func("test.double")


def test_the_pointer_of_an_intrinsic_is_its_regions() -> None:
    """`data` is where the declared offset counts from; without one it is the region's own first element."""

    def fill(p: int, offset: int, n: int, value: float) -> None:
        np.ctypeslib.as_array((ctypes.c_float * n).from_address(p + 4 * offset))[:] = value

    tec.register_func("test.fill", fill, override=True)
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    intrin = te.decl_tensor_intrin(
        y.op, lambda ins, outs: te.call_packed("test.fill", outs[0].data, outs[0].elem_offset, 4, ins[0].vload([0]))
    )
    A = te.placeholder((8,), name="A")
    C = te.compute((8,), lambda i: A[i] + 1.0, name="C")
    s = tec.create_schedule(C.op)
    s[C].tensorize(s[C].split(C.op.axis[0], 4)[1], intrin)
    out = tec.nd.array(np.zeros(8, "f"))
    tec.build(s, [A, C], "llvm")(tec.nd.array(np.arange(8, dtype="f")), out)
    np.testing.assert_array_equal(out.numpy(), [0, 0, 0, 0, 4, 4, 4, 4])
    tec.remove_global_func("test.fill")


def test_a_name_is_taken_once(registered: list[Any]) -> None:
    with pytest.raises(tec.ArgumentError, match="registered already"):
        tec.register_func("test.scale", print)
    tec.register_func("test.scale", abs, override=True)
    assert tec.get_global_func("test.scale") is abs
    tec.remove_global_func("test.scale")
    tec.register_func("test.scale", print)  # free again
    assert tec.get_global_func("test.scale") is print


def test_a_function_may_give_back_the_array_that_it_wrote() -> None:
    """As `lambda x, out: out.copyfrom(...)` does."""
    tec.register_func("tests.doubled_array", lambda x, out: out.copyfrom(2 * x.numpy()), override=True)
    a = tec.placeholder((4,), name="a")
    c = te.extern((4,), [a], lambda ins, outs: te.call_packed("tests.doubled_array", ins[0], outs[0]), name="c")
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    tec.build(tec.create_schedule(c.op), [a, c])(x, out)
    np.testing.assert_array_equal(out, 2 * x)
