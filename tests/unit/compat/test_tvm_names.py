"""The names of tec.compat.tvm: they resolve, and those that are missing say where to look."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tec
import tec.compat.tvm as tvm
from tec.compat.tvm import names, te, topi
from tec.compat.tvm.install import install, uninstall
from tec.compat.tvm.topi import testing
from tests.foreign.tvm_reasons import rows

MODULES = [
    m.name
    for m in pkgutil.walk_packages(tvm.__path__, "tec.compat.tvm.")
    if not m.name.endswith(("__main__", "plugin"))
]

# What programs of TVM's tutorials and of d2l-tvm say.
TE = """
abs acos acosh add all any asin asinh atan atanh ceil comm_reducer compute const cos cosh create_prim_func create_schedule decl_tensor_intrin div erf exp extern
extern_primfunc floor floordiv floormod fmod gradient hybrid if_then_else indexdiv indexmod isfinite isinf isnan log log10 log2 max max_value min min_value multiply
nearbyint placeholder popcount power reduce_axis round rsqrt scan schedule sigmoid sin sinh size_var sqrt subtract sum tag_scope tan tanh tensor thread_axis trunc
truncdiv truncmod var AXIS_SEPARATOR ComputeOp ExternOp HybridOp PlaceholderOp ScanOp Schedule Stage Tensor TensorComputeOp TensorSlice
""".split()
TIR = """
Add Allocate And AssertStmt AttrStmt Broadcast Buffer BufferLoad BufferRealize BufferStore Call Cast CommReducer Div EQ Evaluate FloatImm FloorDiv FloorMod For ForKind
GE GT IfThenElse IntImm IterVar LE LT Let LetStmt Max Min Mod Mul NE Not Or Prefetch PrimExpr PrimFunc ProducerLoad ProducerRealize ProducerStore Ramp Reduce Select
SeqStmt Shuffle SizeVar Stmt StringImm Sub Var While address_of call_extern call_intrin call_llvm_intrin call_llvm_pure_intrin call_packed call_pure_extern ceildiv clz
const copysign decl_buffer exp10 exp2 hypot infinity ir_builder isnullptr ldexp likely log1p nextafter ptx_mma reinterpret ret shift_left shift_right stmt_functor
tvm_access_ptr tvm_load_matrix_sync tvm_mma_sync
""".split()


@pytest.mark.parametrize("module", MODULES)
def test_all_that_a_module_lists_is_there(module):
    found = importlib.import_module(module)
    assert found.__doc__
    for name in getattr(found, "__all__", ()):
        assert getattr(found, name) is not None, name


@pytest.mark.parametrize(("module", "wanted"), [("te", TE), ("tir", TIR)])
def test_names_of_tvm(module, wanted):
    found = importlib.import_module(f"tec.compat.tvm.{module}")
    assert [n for n in wanted if not hasattr(found, n)] == []


def test_a_missing_name_says_what_there_is():
    with pytest.raises(AttributeError, match="did you mean compute"):
        tvm.te.comput  # noqa: B018
    with pytest.raises(names.NotHere, match=r"tvm\.meta_schedule\.tune_tir is not here\n(.|\n)*tec\.tune"):
        tvm.meta_schedule.tune_tir(None)
    with pytest.raises(AttributeError, match="tec calls it 'var'"):
        from tec.ir.spelling import Spelled

        class For(Spelled):
            __slots__ = ()

        For().loop_var  # noqa: B018


def test_every_part_has_a_word():
    assert [p for p in names.PARTS if not names.hint(p) and p not in ("ir.instrument",)] == []


def test_install_gives_one_copy_of_each_module():
    install()
    try:
        code = importlib.import_module("tvm.te.schedule")
        assert importlib.import_module("tvm") is tvm
        assert code is importlib.import_module("tec.compat.tvm.te.schedule")
        assert importlib.import_module("tvm.driver.build_module").build is tvm.build
        with pytest.raises(ImportError):
            importlib.import_module("tvm.no_such_part")
    finally:
        uninstall()
    assert "tvm" not in sys.modules


def test_a_program_runs_unchanged(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, numpy as np, tvm\nfrom tvm import te\nA = te.placeholder((8,), name='A')\n"
        "B = te.compute(A.shape, lambda i: A[i] * 2, name='B')\nf = tvm.build(te.create_schedule(B.op), [A, B], 'llvm')\n"
        "b = tvm.nd.array(np.zeros(8, 'float32'))\nf(tvm.nd.array(np.arange(8, dtype='float32')), b)\nprint(b.numpy().sum(), sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tec.compat.tvm", str(program), "x"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["56.0", "['x']"]


def test_what_topi_schedules_is_built() -> None:
    from tec.compat.tvm import te, topi

    a = te.placeholder((4, 3), name="a")
    b = topi.nn.softmax(a)
    made = topi.schedule(b, "llvm")
    assert "for" in str(tvm.lower(made, [a, b], simple_mode=True))
    x, y = np.ones((4, 3), "f"), tvm.nd.empty((4, 3))
    tvm.build(made, [a, b], "llvm")(tvm.nd.array(x), y)
    np.testing.assert_allclose(y.numpy(), x / 3, rtol=1e-6)


def test_a_device_has_tvms_attributes() -> None:
    device = tec.rocm_emu("gfx942")
    assert device.max_shared_memory_per_block == device.lds_bytes == 65536
    assert (device.max_threads_per_block, device.warp_size) == (1024, 64)
    assert device.max_thread_dimensions == [1024, 1024, 1024]


def test_functions_of_contrib_are_found_by_name_alone() -> None:
    """TVM's libraries register theirs when they are loaded; nothing of this package is imported for it."""
    program = """
import numpy as np
import tec.compat.tvm as tvm
te = tvm.te
A = te.placeholder((4, 4), name="A")
call = lambda ins, outs: tvm.tir.call_packed("tvm.contrib.cblas.matmul", ins[0], ins[0], outs[0], False, True)
C = te.extern((4, 4), [A], call, name="C")
f = tvm.build(te.create_schedule(C.op), [A, C], "llvm")
a = np.arange(16, dtype="float32").reshape(4, 4)
x, y = tvm.nd.array(a), tvm.nd.array(np.zeros_like(a))
f(x, y)
assert (y.numpy() == a @ a.T).all()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_the_page_names_each_test_that_does_not_pass() -> None:
    lines = (Path(__file__).parents[3] / "docs/tvm.md").read_text().split("\n")
    head = lines.index("| file | tests | why they do not pass |")
    table = lines[head + 2 : lines.index("", head)]
    assert table == rows()


def test_operators_that_are_tvms_own_way():
    """Places of extrema are int32, and what TVM keeps for a target has all operators and schedules."""
    x = te.placeholder((3, 5), name="x")
    for axis in (1, None):
        found = topi.cuda.argmax(x, axis)
        assert found.dtype == topi.argmin(x, axis).dtype == "int32"
        with tvm.target.Target("llvm"):
            f = tvm.build(topi.generic.schedule_reduce(found), [x, found], "llvm")
        a, out = np.arange(15, dtype="float32").reshape(3, 5)[::-1] % 7, tvm.nd.empty(found.shape, "int32")
        f(tvm.nd.array(np.ascontiguousarray(a)), out)
        np.testing.assert_array_equal(out.numpy(), a.argmax(axis))
    assert topi.argmax(x, None, True).shape == (1, 1)
    rows, outside = np.arange(6, dtype="float32").reshape(3, 2), np.array([-1, 1, 5], "int32")
    a, at = te.placeholder(rows.shape, name="a"), te.placeholder(outside.shape, "int32", "at")
    for mode, want in (("clip", outside.clip(0, 2)), ("wrap", outside % 3)):
        (got,) = te.evaluate([topi.take(a, at, 0, mode=mode)], {a: rows, at: outside})
        np.testing.assert_array_equal(got, rows[want])
    long, places = (
        np.arange(300, dtype="float32"),
        np.array([0, 50, 250], "uint8"),
    )  # a type that does not hold the size
    a, at = te.placeholder(long.shape, name="a"), te.placeholder(places.shape, "uint8", "at")
    for mode in ("clip", "wrap", "fast"):
        (got,) = te.evaluate([topi.take(a, at, 0, mode=mode)], {a: long, at: places})
        np.testing.assert_array_equal(got, long[places])
    assert tvm.tir.const(te.const(3, "int8")).dtype == "int8" and tec.const(te.const(3), "float32").value == 3.0
    assert topi.x86.sort is topi.sort and topi.cuda.schedule_scan and topi.cuda.non_max_suppression
    with pytest.raises(AttributeError, match=r"topi\.schedule"):
        _ = topi.generic.schedule_of_all
    assert testing.dispatch("llvm", {"generic": 1, "cpu": 2}) == 2 and testing.dispatch("cuda", {"generic": 1}) == 1
    kinds = {"generic": 1, "gpu": 2, "cuda": 3}
    assert testing.dispatch("cuda", kinds) == 3 and testing.dispatch("rocm -mcpu=gfx942", kinds) == 2


def test_results_that_tests_keep() -> None:
    from tec.compat.tvm.contrib.pickle_memoize import memoize

    made = []

    @memoize("names.kept")
    def reference(n: int) -> list[int]:
        made.append(n)
        return [n]

    assert reference(3) is reference(3) and reference(4) == [4] and made == [3, 4]


def test_references_of_slices() -> None:
    x = np.arange(24).reshape(4, 6)
    assert (testing.strided_slice_python(x, [3, None], [0, 4], [-2]) == x[3:0:-2, :4]).all()
    assert (testing.strided_slice_python(x, [1, 2], [2, -1], None, "size") == x[1:3, 2:]).all()
    assert (testing.strided_slice_python(x, [2], [5], None, axes=[1]) == x[:, 2:5]).all()
    assert (testing.strided_set_python(x, -1, [0], [2], [1])[:2] == -1).all() and x[0, 0] == 0
