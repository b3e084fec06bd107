"""tec: a tensor-expression compiler.

    import tec
    n = tec.var("n")
    A = tec.placeholder((n,), name="A")
    B = tec.compute(A.shape, lambda i: A[i] + 1.0, name="B")
    s = tec.create_schedule(B.op)
    f = tec.build(s, [A, B], "llvm")

Every public name is in the table below and is imported when it is first used, so that `import tec` costs little and a
program that only runs saved modules never loads the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import (
    ArgumentError,
    CodegenError,
    DeviceError,
    ExprError,
    ImportModelError,
    InternalError,
    KernelError,
    LoweringError,
    PackageError,
    ScheduleError,
    TargetError,
    TecError,
)

__version__ = "0.1.0"

_TE_NAMES = """
    Tensor TensorSlice TensorIntrin Var
    var size_var const placeholder compute scan extern reduce_axis thread_axis comm_reducer einsum tag_scope topo_order evaluate
    decl_buffer decl_tensor_intrin ir_builder max_value min_value infinity
    sum min max prod any all if_then_else select cast reinterpret likely
    floordiv floormod ceildiv truncdiv truncmod indexdiv indexmod div
    exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
    ComplexTensor complex conj real imag
    sigmoid erf pow power fmod hypot copysign fma ldexp nextafter floor ceil trunc round nearbyint abs sign minimum maximum
    isnan isinf isfinite popcount clz ctz bitwise_and bitwise_or bitwise_xor bitwise_not
    AXIS_SEPARATOR
    call_extern call_pure_extern call_llvm_intrin call_llvm_pure_intrin call_intrin call_packed
"""

_KERNEL_NAMES = """
    thread_idx block_idx block_dim grid_dim grid_idx grid_size
    shared local barrier wave_barrier vload vstore vector
    atomic_add atomic_sub atomic_min atomic_max atomic_and atomic_or atomic_xor atomic_exchange atomic_cas
    fence lanemask_lt wave_size lane shuffle shuffle_up shuffle_down shuffle_xor ballot wave_any wave_all wave_reduce wave_scan match_any match_all block_reduce block_scan
    static_range unrolled cdiv
"""

# Public name -> (module, attribute there; "" for the module itself).
_LAZY: dict[str, tuple[str, str]] = {
    **{name: (".te", name) for name in _TE_NAMES.split()},
    "te": (".te", ""),
    "ir": (".ir", ""),
    # schedules
    "schedule": (".schedule", ""),
    "create_schedule": (".schedule", "create_schedule"),
    # from a schedule to a module
    "driver": (".driver", ""),
    "lower": (".driver", "lower"),
    "build": (".driver", "build"),
    "target": (".target", ""),
    "Target": (".target", "Target"),
    # devices, arrays, compiled modules
    "runtime": (".runtime", ""),
    "nd": (".runtime.arrays.nd", ""),
    "collectives": (".collectives", ""),
    "sharding": (".sharding", ""),
    "shard": (".sharding", "shard"),
    "Mesh": (".sharding", "Mesh"),
    "NDArray": (".runtime", "NDArray"),
    "Device": (".runtime", "Device"),
    "Module": (".runtime", "Module"),
    "cpu": (".runtime", "cpu"),
    "rocm": (".runtime", "rocm"),
    "cuda": (".runtime", "cuda"),
    "rocm_emu": (".runtime", "rocm_emu"),
    "device": (".runtime", "as_device"),
    "load_module": (".runtime", "load_module"),
    "profile": (".runtime", "profile"),
    **{
        name: (".runtime.modules.callbacks", name)
        for name in ("register_func", "get_global_func", "remove_global_func")
    },
    "model": (".time_model", "model"),
    # kernels as plain functions
    "kernel": (".jit", "kernel"),
    "tile": (".tile", ""),
    "device_code": (".jit", "device_code"),
    "random": (".kernels.random", ""),
    **{name: (".kernels.language", name) for name in _KERNEL_NAMES.split()},
    # networks
    "ops": (".ops", ""),
    "topi": (".topi", ""),
    "graph": (".graph", ""),
    "compile": (".graph", "compile"),
    **{name: (".array.gradients", name) for name in ("grad", "value_and_grad", "vjp", "jvp")},
    **{name: (".array.told", name) for name in ("custom_vjp", "stop_gradient")},
    **{name: (".array.jacobians", name) for name in ("jacrev", "jacfwd", "hessian")},
    "vmap": (".array.batching", "vmap"),
    "load": (
        ".runtime.networks.network",
        "load",
    ),  # a package runs where the compiler and what it needs are not installed
    # text
    "generate": (".lm.writing", "generate"),
    "Generator": (".lm.exported", "Generator"),
    "lm": (".lm", ""),
    # arrays
    "array": (".array", ""),
    # where programs of TVM look
    "tir": (".compat.tvm.tir", ""),
    "testing": (".compat.tvm.testing", ""),
    # search
    "tune": (".tuning", "tune"),
    "template": (".tuning", "template"),
}

__all__ = [
    "ArgumentError", "CodegenError", "DeviceError", "ExprError", "ImportModelError", "InternalError", "KernelError", "LoweringError",
    "PackageError",
    "ScheduleError", "TargetError", "TecError", "errors", *_LAZY,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    entry = _LAZY.get(name)
    if entry is None:
        raise AttributeError(f"module 'tec' has no attribute {name!r}{_meant(name)}")
    try:
        module = import_module(entry[0], __name__)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == __name__:
            raise errors.missing_part(f"tec.{name}", error.name or "") from None
        if package not in _COMPILERS:
            raise
        raise errors.MissingPackageError(f"tec.{name}", package) from error
    value = getattr(module, entry[1]) if entry[1] else module
    globals()[name] = value
    return value


_COMPILERS = ("networkx", "llvmlite")  # packages that the compiler needs, and what runs its results does not

# TVM's modules, and what there is here.
_ELSEWHERE = {
    "auto_scheduler": "tec.tune searches", "autotvm": "tec.tune and tec.template search", "meta_schedule": "tec.tune searches",
    "relay": "tec.compile and tec.graph take networks", "relax": "tec.compile and tec.graph take networks",
    "contrib": "tec.topi and tec.ops have the operators",
    "onnx": "tec.compile takes ONNX files", "load_onnx": "tec.compile takes ONNX files", "from_onnx": "tec.compile takes ONNX files, tec_onnx.from_onnx gives the graph",
    "build_module": "tec.build makes modules", "emulator_device": 'tec.rocm_emu("gfx942")', "roc": "tec.rocm(0)",
    "lax": "if, for and while of Python are followed", "jacobian": "tec.jacrev of few results, tec.jacfwd of few arguments", "custom_jvp": "tec.custom_vjp", "custom_gradient": "tec.custom_vjp",
    "cond": "if of Python is followed; tec.array.where chooses by element", "Function": "tec.custom_vjp", "device_put": "x.to_device(dev)", "device_get": "x.numpy()",
    "checkpoint": "nothing: values of the forward pass are kept",
    "pmap": "tec.collectives, or a loop over devices", "block_until_ready": "x.block()", "tree_map": "loops over dicts and lists", "no_grad": "nothing: tec.grad(f) makes gradients",
    "micro": "tec.compile(...).save() makes packages", "rpc": "tec.tune takes workers of other machines", "vm": "tec.compile makes networks",
}  # fmt: skip


def _meant(name: str) -> str:
    if name.startswith("_"):
        return ""  # asked by what looks at modules, pytest and notebooks among it: nothing is imported for that
    from .runtime import elsewhere

    if name in _ELSEWHERE:
        return f": {_ELSEWHERE[name]}"
    return elsewhere.hint("module", name, ()) or _of_parts(name) or elsewhere.hint("module", name, _LAZY, "tec.")


def _of_parts(name: str) -> str:
    """What kernels call it, or where arrays have it, if these parts are installed."""
    try:
        # By name: the runtime's distribution has neither kernels nor arrays.
        words = import_module(".kernels.elsewhere", __name__)
        places = {
            part: import_module(where, __name__) for part, where in (("nd", ".runtime.arrays.nd"), ("array", ".array"))
        }
    except (ImportError, errors.TecError):
        return ""
    found = words.named(name) or " or ".join(
        f"tec.{part}.{name}" for part, where in places.items() if name in dir(where)
    )
    return f": {found}" if found else ""


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)


if TYPE_CHECKING:  # what type checkers see: a name is public where it is imported as itself
    # isort: off
    from . import (
        array as array,
        collectives as collectives,
        driver as driver,
        graph as graph,
        ir as ir,
        lm as lm,
        ops as ops,
        runtime as runtime,
        schedule as schedule,
        sharding as sharding,
        target as target,
        te as te,
        tile as tile,
        topi as topi,
    )
    from .array.batching import vmap as vmap
    from .array.gradients import grad as grad, value_and_grad as value_and_grad, vjp as vjp, jvp as jvp
    from .array.jacobians import hessian as hessian, jacfwd as jacfwd, jacrev as jacrev
    from .array.told import custom_vjp as custom_vjp, stop_gradient as stop_gradient
    from .driver import lower as lower, build as build
    from .graph.compiler import compile as compile
    from .jit import kernel as kernel, device_code as device_code
    from .kernels import random as random
    from .lm.exported import Generator as Generator
    from .lm.writing import generate as generate
    from .runtime import (
        NDArray as NDArray,
        Device as Device,
        Module as Module,
        cpu as cpu,
        rocm as rocm,
        cuda as cuda,
        rocm_emu as rocm_emu,
        as_device as _as_device,
        load_module as load_module,
        profile as profile,
    )
    from .runtime.arrays import nd as _nd
    from .runtime.modules.callbacks import (
        register_func as register_func,
        get_global_func as get_global_func,
        remove_global_func as remove_global_func,
    )
    from .runtime.networks.network import load as load
    from .schedule import create_schedule as create_schedule
    from .sharding import shard as shard, Mesh as Mesh
    from .target import Target as Target
    from .time_model import model as model
    from .tuning import tune as tune, template as template
    from .kernels.language import *  # noqa: F403
    from .te import *  # noqa: F403
    # isort: on

    tir: Any  # whose names are loaded when they are used
    testing: Any
    device = _as_device
    nd = _nd
