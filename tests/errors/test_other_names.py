"""Names of numba, CuPy, PyTorch, AMDGPU.jl, CUDA.jl and TVM outside of kernels: the error says tec's word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec


@tec.kernel
def fill(x):
    x[tec.grid_idx(1)] = 1.0


X = tec.nd.array(np.zeros(3, "float32"))


@pytest.mark.parametrize(
    ("of", "name", "says"),
    [
        (tec, "to_device", "tec.nd.array(x, dev)"), (tec, "ROCArray", "tec.nd.array(x, dev)"), (tec, "synchronize", "dev.sync()"),
        (tec, "syncthreads", "tec.barrier()"), (tec, "workitemIdx", "tec.thread_idx.x"), (tec, "arange", "tec.array.arange"),
        (tec, "zeros", "tec.nd.zeros or tec.array.zeros"), (tec, "njit", "@tec.kernel"), (tec, "is_available", "tec.runtime.cuda_exists() and tec.runtime.rocm_exists()"),
        (tec, "TVMError", "tec.errors.TecError"), (tec, "create_schedul", "is tec.create_schedule meant?"),
        (tec.nd, "device_array", "tec.nd.empty(shape, dtype, dev)"), (X, "copy_to_host", "x.numpy()"), (X, "sum", "tec.array.asarray(x).sum, whose arrays compute"),
        (X, "reshap", "is reshape meant?"), (tec.cpu(), "multiprocessor_count", "dev.compute_units"), (tec.cpu(), "Stream", "dev.stream()"),
        (tec.array, "cat", "tec.array.concat([x, y], axis=0)"), (tec.array, "clamp", "tec.array.clip(x, low, high)"), (tec.array, "device_put", "tec.array.asarray(x, device=dev)"),
        (tec.array, "log_softmax", "tec.array.nn.log_softmax"), (tec.array, "cholesky", "tec.array.linalg.cholesky"), (tec.array.nn, "topk", "descending=True)[:k]]"),
        (tec.array.ones(3), "add_", "arrays are values"), (tec.array.ones(3), "sigmoid_", "x = x.sigmoid(...): methods give new arrays"), (tec.array.ones(3), "contiguous", "arrays are contiguous"),
        (fill, "forall", "k.launch(n)(...)"), (fill, "inspect_asm", "k.asm(*args)"), (fill, "resource", "is resources meant?"),
    ],
)  # fmt: skip
def test_the_error_says_it(of: Any, name: str, says: str) -> None:
    with pytest.raises(AttributeError) as e:
        getattr(of, name)
    assert str(e.value).endswith(says)


@pytest.mark.parametrize("name", ["gobbledygook", "vulkan"])
def test_nothing_is_said_where_nothing_is_like_it(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}'$"):
        getattr(tec, name)
    assert not hasattr(X, "__cuda_array_interface__")


def test_what_looks_at_a_module_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest asks a module for `_mock_name`, a notebook for `_repr_html_`: other parts take a second to import."""

    def imported(name: str, package: str) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr(tec, "import_module", imported)
    assert not hasattr(tec, "_repr_html_") and not hasattr(tec, "__wrapped__")


def test_memory_has_no_arithmetic() -> None:
    """NumPy's arrays take it as one of theirs."""
    for f in (lambda: X + X, lambda: 2.0 * X, lambda: X @ X, lambda: -X, lambda: X < 1):
        with pytest.raises(tec.ArgumentError, match="NDArray") as e:
            f()
        assert "tec.array.asarray(x)" in str(e.value)
    assert ((X + np.ones(3)) == 1).all() and ((np.ones(3) + X) == 1).all()


def test_all_words_of_a_kernel_from_elsewhere_are_told_at_once() -> None:
    @tec.kernel
    def theirs(x):
        i = tec.grid(1)
        tec.syncthreads()
        tec.atomic.add(x, tec.threadIdx.x, x[i])

    with pytest.raises(tec.KernelError) as e:
        theirs[1, 3](X)
    assert all(word in str(e.value.hint) for word in ("grid_idx", "tec.barrier()", "atomic_add", "thread_idx.x"))

    @tec.kernel
    def of_numba(x):
        i = cuda.grid(1)  # noqa: F821
        cuda.syncthreads()  # noqa: F821
        x[i] = cuda.shared.array(3, "float32")[0]  # noqa: F821

    with pytest.raises(tec.KernelError) as e:
        of_numba[1, 3](X)
    assert all(word in str(e.value.hint) for word in ("grid_idx", "tec.barrier()", "tec.shared(shape, dtype)"))


@pytest.mark.parametrize(
    ("module", "says"), [(tec.array, "tec.array.asarray"), (tec.jit, "@tec.kernel"), (tec.nd, "tec.nd.array"), (tec.tile, "tec.array.tile"), (tec.random, "random.random")]
)  # fmt: skip
def test_modules_that_are_functions_elsewhere_are_called(module: Any, says: str) -> None:
    with pytest.raises(tec.ArgumentError, match="is a module") as e:
        module([1, 2])
    assert says in str(e.value.hint)


def test_functions_are_no_models() -> None:
    with pytest.raises(tec.ImportModelError) as e:
        tec.compile(lambda x: x + 1)
    assert "compiled when a value is needed" in str(e.value.hint)


def test_a_device_of_tvms_that_is_not_there_says_why_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import tec.compat.tvm as tvm

    monkeypatch.setenv("TEC_EMULATE", "gfx942")
    with pytest.raises(tec.DeviceError, match="makes one GPU"):
        tvm.nd.array(np.zeros(3, "float32"), tvm.rocm(7))


PUBLIC = (
    tec.errors,
    tec.ir,
    tec.te.hybrid,
    tec.topi.nn,
    tec.topi.vision,
    tec.array,
    tec.array.linalg,
    tec.array.fft,
    tec.array.random,
    tec.array.optim,
    tec.random,
    tec.target,
)


@pytest.mark.parametrize("module", PUBLIC, ids=lambda m: m.__name__)
def test_completion_offers_what_a_module_is_for(module: Any) -> None:
    """Not what it imports: other modules, and words of typing."""
    shown = [n for n in dir(module) if not n.startswith("_")]
    assert shown and not {"Any", "annotations", "Callable", "Sequence", "build", "convert", "errors"} & set(shown)
    assert all(hasattr(module, n) for n in shown)


def test_options_of_a_gpu_in_software_are_checked() -> None:
    for options, says, hint in (
        ({"check": 3}, "checks of a GPU in software are 3", "race"), ({"check": {3}}, "no emulator check called 3", "race"),
        ({"chek": "race"}, "no option 'chek'", "did you mean check"), ({"budget": "x"}, "budget of a GPU in software is 'x'", "budget=None"),
    ):  # fmt: skip
        with pytest.raises(tec.TecError, match=says) as e:
            tec.rocm_emu("gfx942", **options)
        assert hint in str(e.value.hint)


def test_an_operation_without_a_name_is_called_once() -> None:
    A = tec.placeholder((4,), name="A")
    for f, says in (
        (lambda: tec.compute((4,), lambda i, j: A[i]), "the function of compute takes 2"), (lambda: tec.compute((4,), 3), "^compute takes a function"),
        (lambda: tec.compute((4,), 3, name="B"), "^compute B takes a function"), (lambda: tec.extern((4,), [3], None), "of extern is no tensor"),
        (lambda: tec.scan([], [], []), "^scan has 0 init"),
    ):  # fmt: skip
        with pytest.raises(tec.ExprError, match=says):
            f()
