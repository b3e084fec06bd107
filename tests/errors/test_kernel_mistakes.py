"""What users write in kernels that kernels have not: each is refused with the line and what to write instead."""

from __future__ import annotations

import inspect
import math
import os
import random
from typing import Any

import numpy as np
import pytest

import tec

LIST = [1, 2, 3]
ARRAY = tec.nd.zeros((3,), "float32")
F32 = np.float32
MISTAKES: list[Any] = []


def mistake(says: str, hint: str = "", args: str = "xn") -> Any:
    """A kernel whose line with `# <-` is refused; arguments: x float32[:], q int32[:], m float32[:, :], n int, f float."""

    def register(f: Any) -> Any:
        MISTAKES.append(pytest.param(f, says, hint, args, id=f.__name__))
        return f

    return register


@mistake("int32 to the power -1", "a float")
def takes_a_negative_power(x, n):
    x[0] = n**-1  # <-


@mistake("index 0 of x is", "tec.thread_idx.x")
def indexes_by_all_three(x, n):
    x[tec.thread_idx] = 1.0  # <-


@mistake("tec has no sqroot", "is tec.sqrt meant?")
def misspells_a_root(x, n):
    x[0] = tec.sqroot(x[0])  # <-


@mistake("an array of NumPy is indexed", "tec.local")
def makes_an_array_of_numpy(x, n):
    held = np.zeros(3)
    x[0] = held[0]  # <-


@mistake("an array of NumPy is indexed", "tec.local")
def writes_to_an_array_of_numpy(x, n):
    held = np.zeros(3)
    held[0] = 1.0  # <-
    x[0] = held[0]


@mistake("would give one number", "tec.random.uniform(seed, index, draw)")
def draws_by_numpy(x, n):
    x[0] = np.random.rand()  # <-


@mistake("random() is not in the language", "tec.random.uniform(seed, index, draw)")
def draws_by_python(x, n):
    x[0] = random.random()  # <-


@mistake("the name cuda stands for nothing here", "tec.shared(shape, dtype)")
def asks_cuda_for_memory(x, n):
    s = cuda.shared.array(4, F32)  # noqa: F821  # <-
    x[0] = s[0]


@mistake("the name AMDGPU stands for nothing here", "tec.barrier()")
def waits_as_in_julia(x, n):
    AMDGPU.Device.sync_workgroup()  # noqa: F821  # <-


@mistake("the name cuda stands for nothing here", "tec.thread_idx.x")
def asks_cuda_for_an_index(x, n):
    x[cuda.threadIdx.x] = 0.0  # noqa: F821  # <-


@mistake("cannot be called in a kernel", "tec.grid_idx(1)")
def calls_an_index(x, n):
    x[tec.thread_idx(1)] = 0.0  # <-


@mistake("tec has no warp_sum", "tec.wave_reduce(v, op)")
def sums_by_anothers_word(x, n):
    x[0] = tec.warp_sum(x[0])  # <-


@mistake("a number is wanted", "text is made by the host")
def formats_text_as_c_does(x, n):
    print("%d" % n)  # noqa: UP031  # <-


@mistake("2 dimensions, and 1 index", "m[i, 0], m[i, 1] = x, y", args="m")
def stores_a_row(m):
    m[0] = (1.0, 2.0)  # <-


@mistake("with is not", "context managers")
def uses_with(x, n):
    with open("f"):  # <-
        x[0] = 1


@mistake("try is not", "test the condition")
def uses_try(x, n):
    try:  # <-
        x[0] = 1
    except ValueError:
        pass


@mistake("raise is not", "assert")
def uses_raise(x, n):
    if n > 3:
        raise ValueError(n)  # <-


@mistake("a list is not", "tuple")
def uses_a_list(x, n):
    a = [1, 2]  # <-
    x[0] = a[0]


@mistake("a comprehension", "loop")
def uses_a_comprehension(x, n):
    a = tuple([i for i in range(3)])  # <- # noqa: C416
    x[0] = a[0]


@mistake("a dict", "arrays")
def uses_a_dict(x, n):
    d = {"a": 1}  # <-
    x[0] = d["a"]


@mistake("<lambda> calls itself", "loop")
def uses_a_lambda_that_calls_itself(x, n):
    f = lambda v: f(v - 1)  # <- # noqa: E731
    x[0] = f(n)


@mistake("f takes **v", "compiled for their types")
def defines_a_function_of_any_named_arguments(x, n):
    def f(**v):  # <-
        return v

    x[0] = f(n)


@mistake("below zero wherever it is reached", "x.shape[0] + the index")
def counts_from_the_end_at_run_time(x, n):
    for j in range(0, len(x), 3):
        x[0] += x[-1 - j]  # <-


@mistake("tec has no grid", "tec.grid_idx(1)")
def reads_fields_beside_a_foreign_word(x, n):
    i = tec.grid(1)  # <-
    x[i] = x[i].T.dtype


@mistake("a decorator inside", "leave it out")
def defines_a_decorated_function(x, n):
    @abs
    def f(v):  # <-
        return v

    x[0] = f(n)


@mistake("f is the function <lambda>", "use another name")
def a_function_that_a_branch_changes(x, n):
    f = lambda v: v  # noqa: E731
    if n > 3:
        f = lambda v: v + 1  # <- # noqa: E731
    x[0] = f(n)


@mistake("import", "outside")
def imports(x, n):
    import math  # <-

    x[0] = math.pi


@mistake("global", "array")
def writes_a_global(x, n):
    global LIST  # <-
    LIST = n


@mistake("a part of x is stored to a part of the same array", "write a loop")
def overlapping_slices(x, n):
    x[1:] = x[:-1]  # <-


@mistake("a slice of x in steps of", "a constant")
def variable_steps(x, n):
    x[::n] = 0  # <-


@mistake("tec has no float32", 'types are names, "float32", or NumPy\'s, np.float32')
def a_type_of_tec(x, n):
    tec.local(2, tec.float32)[0] = x[0]  # <-


@mistake("3 values for 2 elements of local")
def other_number_of_values(x, n):
    tec.local(2, "float32")[:] = (x[0], x[1], 2.0)  # <-


@mistake("elements are not adjacent", "one by one")
def vector_of_every_other(x, n):
    tec.vstore(x, 0, tec.vload(x[::2], 0, 4))  # <-


@mistake("m has 2 dimensions, and 3 indices", "", "m")
def too_many_with_a_slice(m):
    m[0, 1, :] = 0  # <-


@mistake("the name totl stands for nothing here", "is total meant?")
def misspelt_name(x, n):
    total = x[0] + 1.0
    x[0] = totl  # <- # noqa: F821
    x[1] = total


@mistake("x has 1 dimension, and 2 indices are given", "an index for each dimension: x[i]")
def too_many_indices(x, n):
    x[0, 1] = 0  # <-


@mistake("m has 2 dimensions, and 1 index", "m[i, :] = x", "m")
def too_few_indices(m):
    m[0] = 0  # <-


@mistake("index 0 of x is float32", "int(x)")
def indexes_by_a_float(x, n):
    x[x[0]] = 1  # <-


@mistake("a float is stored to q", "int(tec.floor", "q")
def float_into_integers(q):
    q[0] = q[1] * 0.5  # <-


@mistake("`/` of two integers", "//", "q")
def divides_integers(q):
    q[0] = int(q[1] / q[2])  # <-


@mistake("v may have no value here", "before the branch")
def value_on_some_ways(x, n):
    if n > 3:
        v = 1.0
    x[0] = v  # <-


@mistake("acc may have no value")
def value_from_an_empty_loop(x, n):
    for i in range(n):
        acc = x[i]
    x[0] = acc  # <-


@mistake("undefined_name stands for nothing", "make it an argument")
def unknown_name(x, n):
    x[0] = undefined_name  # <- # noqa: F821


@mistake("a kernel returns nothing", "write results")
def returns_a_value(x, n):
    return x[0]  # <-


@mistake("holds int32 elsewhere and float32 here", "another name", "qx")
def changes_its_type(q, x):
    v = q[0]
    for i in range(3):
        v = x[i]  # <-
    x[0] = v


@mistake("LIST is a list", "tuple")
def takes_a_list(x, n):
    x[0] = LIST[0]  # <-


@mistake("ARRAY is an array from outside", "parameter")
def takes_an_array(x, n):
    x[0] = ARRAY[0]  # <-


@mistake("2654435761 does not fit int32", "convert that first, to uint32 or int64")
def hashes_in_int32(x, n):
    i = tec.grid_idx(1)
    x[i] = i * 2654435761  # <-


@mistake("sum() of the array m", "one dimension", "m")
def calls_sum(m):
    m[0, 0] = sum(m)  # <-


@mistake("enumerate() of the array x", "for k, v in enumerate(a):")
def enumerates(x, n):
    pairs = enumerate(x)  # <-
    x[0] = pairs[0][1]


@mistake("zip() of a tuple beside", "a[i], t[i]")
def zips_a_tuple_and_an_array(x, n):
    for a, b in zip((1.0, 2.0), x):  # <-
        x[0] = a + b


@mistake("a bound of range is float32", "int(x)")
def float_range(x, n):
    for i in range(x[0]):  # <-
        x[i] = 0


@mistake("else of a loop", "variable")
def loop_with_else(x, n):
    for i in range(n):  # <-
        x[i] = 0
    else:
        x[0] = 1


@mistake("the shape of tec.shared has a value of int32", "block_dim")
def shared_of_an_argument(x, n):
    s = tec.shared(n, F32)  # <-
    s[0] = x[0]


@mistake("tec.shared(shape, dtype)")
def shared_without_a_dtype(x, n):
    s = tec.shared(16)  # <-
    s[0] = x[0]


@mistake("0 bytes of shared memory", "shared_bytes")
def dynamic_shared_of_nothing(x, n):
    s = tec.shared(None, F32)  # <-
    s[0] = x[0]


@mistake("tec.atomic_add of a value", "the array itself", "x")
def atomic_of_an_element(x):
    tec.atomic_add(x[0], 1.0, 2.0)  # <-


@mistake("atomic_add of a float on q", "int(x)", "q")
def atomic_float_on_integers(q):
    tec.atomic_add(q, 0, 0.5)  # <-


@mistake("tec.atomic_or on an array of float32", "integers", "x")
def atomic_or_of_floats(x):
    tec.atomic_or(x, 0, 1)  # <-


@mistake("tec.grid_idx(4)", "(1), (2) or (3)")
def four_dimensions(x, n):
    i = tec.grid_idx(4)  # <-
    x[0] = i


@mistake("tec.shuffle(value, lane, width=None)", "", "x")
def shuffle_of_one(x):
    x[0] = tec.shuffle(x[0])  # <-


@mistake("a width of 48", "power of two", "x")
def odd_width(x):
    x[0] = tec.shuffle_xor(x[0], 1, 48)  # <-


@mistake("calls itself", "loop", "x")
def recursion(x):
    x[0] = factorial(3.0)


def factorial(v):
    return 1.0 if v < 2 else v * factorial(v - 1)  # <-


@mistake("sometimes returns a value on some", "return", "xn")
def half_a_helper(x, n):
    x[0] = sometimes(n)


def sometimes(v):  # noqa: RET503  # <-
    if v > 3:
        return 1


@mistake("takes 1 arguments, 2 are given", "", "x")
def too_many_arguments(x):
    x[0] = sometimes(1, 2)  # <-


@mistake("print of the array x", "print numbers", "x")
def prints_an_array(x):
    print(x)  # <-


@mistake("a complex number is stored to x, an array of float32", "abs(z)", "x")
def complex_numbers(x):
    x[0] = 1j  # <-


@mistake("tec.sum", "loops", "x")
def te_reduction(x):
    x[0] = tec.sum(x, axis=0)  # <-


@mistake("2 values for 3 names", "", "x")
def unpacks_wrongly(x):
    a, b, c = 1, 2  # <-
    x[0] = a + b + c


@mistake("a vector (float32x4) is a condition", "lanes", "x")
def vector_condition(x):
    v = tec.vload(x, 0, 4)
    if v:  # <-
        x[0] = 1


@mistake("lane 4 of a vector of 4", "0 to 3", "x")
def lane_beyond(x):
    v = tec.vload(x, 0, 4)
    x[0] = v[4]  # <-


@mistake("math.nextafter is not", "there are acos", "x")
def unknown_math(x):
    x[0] = math.nextafter(x[0], 1.0)  # <-


@mistake("300 does not fit", "", "b")
def constant_too_large(b):
    b[0] = b[1] + 300  # <-


@mistake("a value that nothing takes", "assign", "x")
def forgotten_assignment(x):
    x[0] + 1  # <-


@mistake("the array x", "", "xn")
def array_as_a_number(x, n):
    x[0] = x * 2  # <-


@mistake("an array has no T", "shape", "m")
def array_method(m):
    m[0, 0] = m.T[0, 0]  # <-


ARGUMENTS = {
    "x": np.zeros(16, np.float32), "q": np.zeros(16, np.int32), "m": np.zeros((4, 4), np.float32), "n": 4, "f": 0.5,
    "b": np.zeros(4, np.int8),
}  # fmt: skip


def marked_line(f: Any) -> int | None:
    lines, first = inspect.getsourcelines(f)
    return next((first + k for k, line in enumerate(lines) if "# <-" in line), None)


@pytest.mark.parametrize(("f", "says", "hint", "args"), MISTAKES)
def test_mistake(f: Any, says: str, hint: str, args: str) -> None:
    line = marked_line(f) or marked_line({"recursion": factorial}.get(f.__name__, sometimes))
    with pytest.raises(tec.KernelError) as e:
        tec.kernel(f)[1, 64](*[ARGUMENTS[a] for a in args])
    assert says in e.value.message, e.value
    assert hint in (e.value.hint or ""), e.value
    assert e.value.where is not None
    assert os.path.basename(e.value.where.file) == os.path.basename(__file__) and e.value.where.line == line, e.value


def test_there_are_many() -> None:
    assert len(MISTAKES) >= 40


# ---- launches


@tec.kernel
def good(x, n):
    i = tec.grid_idx(1)
    if i < n:
        x[i] = i


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (lambda x: good(x, 4), "is a kernel, and is called like a function"),
        (lambda x: good[4](x, 4), "good[4]"),
        (lambda x: good[1, 0](x, 4), "the block is 0"),
        (lambda x: good[1, 2048](x, 4), "2048 threads"),
        (lambda x: good[1, (8, 8, 8, 1)](x, 4), "4 dimensions"),
        (lambda x: good[1.5, 64](x, 4), "the grid is 1.5"),
        (lambda x: good[-1, 64](x, 4), "the grid is -1"),
        (lambda x: good[1, 64, 3](x, 4), "in the stream's place"),
        (lambda x: good[1, 64, None, -1](x, 4), "bytes of shared memory"),
        (lambda x: good[1, 64](x), "takes 2 arguments, 1 given"),
        (lambda x: good[1, 64](x.tolist(), 4), "is a list"),
        (lambda x: good[1, 64](x, "four"), "'four'"),
        (lambda x: good.asm(x, "flaot32[:]"), "is the text 'flaot32[:]'"),
        (lambda x: good[1, 64](x, 1 << 70), "no integer type"),
        (lambda x: good[1, 64](x, object()), "is an object"),
        (lambda x: good.launch(-3)(x, 4), "the launch is"),
        (lambda x: good.launch(4, block=(2, 2))(x, 4), "2 dimensions for 1 extents"),
        (lambda x: tec.kernel(3), "no Python function"),
        (lambda x: tec.barrier(), "inside of a kernel alone"),
        (lambda x: tec.thread_idx.x, "inside of a kernel alone"),
        (lambda x: good[1, 64](x, 4, 5), "3 given"),
    ],
)
def test_launch_mistake(launch: Any, says: str) -> None:
    with pytest.raises(tec.TecError) as e:
        launch(np.zeros(8, np.float32))
    assert says in e.value.message, e.value
    assert e.value.where is None or os.path.basename(e.value.where.file) == os.path.basename(__file__)


def test_two_devices() -> None:
    a, b = tec.nd.array(np.zeros(4, np.float32), tec.rocm_emu("gfx942")), tec.nd.array(np.zeros(4, np.float32))

    @tec.kernel
    def copy(x, y):
        y[0] = x[0]

    with pytest.raises(tec.TecError, match="arrays on"):
        copy[1, 1](a, b)


def test_no_source() -> None:
    space: dict[str, Any] = {}
    exec("def f(x):\n    x[0] = 1", space)
    with pytest.raises(tec.KernelError, match="is not at hand"):
        tec.kernel(space["f"])[1, 1](np.zeros(1, np.float32))


def test_a_vector_of_an_array_without_dimensions() -> None:
    @tec.kernel
    def store(a: Any) -> None:
        tec.vstore(a, 0, tec.vector(1.0, 2.0))

    with pytest.raises(tec.TecError, match="a has 0 dimensions, and 1 index"):
        store[1, 1](np.zeros((), np.float32))
