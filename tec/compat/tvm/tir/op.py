"""tvm.tir's functions on values.

Those that te's programs use are tec's own. What a function of TVM's lowered code would call (pointers to structs, PTX, WMMA) makes a Call of that name,
which prints and compares; where tec has no operation of that name, compiling it raises an error that says so.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tec import ir, te
from tec.errors import ExprError
from tec.ir import build as B
from tec.ir.convert import literal
from tec.ir.dtype import dtype_info, normalize_dtype
from tec.ir.expr import Call, StringImm
from tec.te.tensor_ops import elementwise

_TVM = {
    "bitand": "bitwise_and",
    "bitor": "bitwise_or",
    "bitxor": "bitwise_xor",
    "bitnot": "bitwise_not",
    "shl": "shift_left",
    "shr": "shift_right",
}
_OURS = {theirs: ours for ours, theirs in _TVM.items()}


class Op(str):
    """The name of an operation, which TVM's programs ask for its `name`."""

    @property
    def name(self) -> str:
        """TVM's name of it."""
        return f"tir.{_TVM.get(self, self)}"


def named(e: Any) -> Any:
    """A call whose operation answers to TVM's `op.name`; other nodes as they are."""
    return Call(Op(e.op), e.args, e.dtype, e.attrs) if isinstance(e, Call) else e


def argument(a: Any) -> Any:
    """An argument of a call, as an expression."""
    return StringImm(a) if isinstance(a, str) else B.convert(a)


def make(name: str, dtype: Any, *args: Any) -> Call:
    """A call of `name` ("tir.address_of" or "address_of"), known to tec or not."""
    plain = name.removeprefix("tir.")
    return Call(Op(_OURS.get(plain, plain)), tuple(argument(a) for a in args), normalize_dtype(dtype or "handle"))


# ---- calls of TVM's lowered code: what the call's own dtype is, or "" where the first argument says it

_CALLS: dict[str, str] = {
    "tvm_tuple": "handle", "tvm_struct_set": "int32", "lookup_param": "handle", "isnullptr": "bool", "assume": "bool",
    "tvm_thread_allreduce": "handle", "type_annotation": "", "tvm_throw_last_error": "handle", "tvm_stack_alloca": "handle",
    "tvm_stack_make_shape": "handle", "tvm_stack_make_array": "handle", "tvm_check_return": "int32",
    "tvm_load_matrix_sync": "handle", "tvm_store_matrix_sync": "handle", "tvm_mma_sync": "handle", "tvm_bmma_sync": "handle",
    "tvm_fill_fragment": "handle", "ptx_mma": "", "ptx_mma_sp": "", "mma_store": "", "mma_fill": "", "ptx_ldmatrix": "",
    "ptx_cp_async": "", "ptx_cp_async_bulk": "", "ptx_commit_group": "handle", "ptx_wait_group": "handle",
    "ptx_cp_async_barrier": "handle", "ptx_init_barrier_thread_count": "handle", "ptx_arrive_barrier": "handle",
    "ptx_arrive_barrier_expect_tx": "handle", "ptx_wait_barrier": "handle", "create_barriers": "handle", "vectorlow": "",
    "vectorhigh": "", "vectorcombine": "", "TVMBackendAllocWorkspace": "handle", "TVMBackendFreeWorkspace": "int32",
    "start_profile_intrinsic": "handle", "end_profile_intrinsic": "handle", "tvm_access_ptr": "handle", "undef": "int32",
}  # fmt: skip


def _call(name: str, dtype: str) -> Callable[..., Call]:
    def function(*args: Any, **named_args: Any) -> Call:
        kind = named_args.pop("dtype", dtype)
        given = [*args, *named_args.values()]
        if not kind:
            kind, given = given[0] if given else "handle", given[1:]
        if name == "tvm_access_ptr" and given and isinstance(given[0], str):
            given[0] = make("type_annotation", given[0])
        return make(name, kind, *given)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"A call of TVM's `{name}`."
    return function


_MADE = {name: _call(name, dtype) for name, dtype in _CALLS.items()}
globals().update(_MADE)


def tvm_struct_get(arr: Any, index: Any, field: Any, dtype: Any) -> Call:
    """A field of a struct of TVM's runtime."""
    return make("tvm_struct_get", dtype, arr, index, field)


def address_of(buffer_load: Any, span: Any = None) -> Any:
    """A pointer to an element."""
    return named(te.call_intrin("handle", "address_of", buffer_load))


def ret(val: Any) -> Call:
    """What a function gives, as a statement: `Evaluate(ret(x))`."""
    value = B.convert(val)
    return Call(Op("ret"), (value,), value.dtype)


# ---- values


def const(value: Any, dtype: Any = None, span: Any = None) -> ir.Expr:
    """A constant. Without a dtype a float beyond float32 is float64; with one, a finite number beyond it is refused."""
    if dtype is None and isinstance(value, float) and math.isfinite(value) and abs(value) > 3.4028234663852886e38:
        dtype = "float64"
    dtype = {"int1": "bool", "uint1": "bool"}.get(dtype, dtype) if isinstance(dtype, str) else dtype
    made = literal(value, dtype)
    if isinstance(made, ir.FloatImm) and isinstance(value, float) and math.isfinite(value) and made.value != value:
        return _as_given(value, made.dtype)
    return made


def _as_given(value: float, dtype: str) -> ir.Expr:
    """A constant that keeps the number it was made of, as TVM's does: it is rounded where it is used."""
    largest = te.max_value(dtype)
    if isinstance(largest, ir.FloatImm) and abs(value) > largest.value and dtype in ("float16", "float32"):
        raise ExprError(f"{value} is beyond {dtype}", hint=f"its largest number is {largest.value}")
    return ir.FloatImm(value, dtype)


def _shuffle(kind: str) -> Callable[..., Any]:
    return lambda mask, value, lane, width, warp_size=None: te.call_intrin(
        B.convert(value).dtype, f"shuffle_{kind}", value, lane, width
    )


# What threads do together.
THREADS: dict[str, Callable[..., Any]] = {
    "tvm_storage_sync": lambda scope="shared", *more: te.call_intrin(
        "int32", "barrier", scope={"warp": "wave"}.get(getattr(scope, "value", scope), getattr(scope, "value", scope))
    ),
    "tvm_warp_shuffle": _shuffle("idx"), "tvm_warp_shuffle_up": _shuffle("up"), "tvm_warp_shuffle_down": _shuffle("down"),
    "tvm_warp_activemask": lambda: te.call_intrin("uint64", "ballot", B.const(True)),
}  # fmt: skip


OF_ELEMENTS = ("atomic_add", "prefetch")  # whose first argument is a pointer in TVM, and an element here


def element(pointer: Any) -> Any:
    """What `address_of` was taken of."""
    return pointer.args[0] if isinstance(pointer, Call) and pointer.op == "address_of" else pointer


def call_intrin(dtype: Any, func_name: Any, *args: Any, span: Any = None) -> Any:
    """A call of an operation by name."""
    name = str(getattr(func_name, "name", func_name)).removeprefix("tir.")
    if name in THREADS:
        return THREADS[name](*args)
    if name in _MADE:
        return make(name, dtype, *args)
    ours = _OURS.get(name, name)
    if name in OF_ELEMENTS and args:
        args = (element(args[0]), *args[1:])
    return named(te.call_intrin(dtype or "int32", ours, *args))


def _llvm(pure: bool) -> Callable[..., Any]:
    own = te.call_llvm_pure_intrin if pure else te.call_llvm_intrin

    def function(dtype: Any, name: str, *args: Any, span: Any = None) -> Any:
        count, rest = (
            (args[0], args[1:])
            if args and isinstance(args[0], ir.IntImm) and args[0].dtype == "uint32"
            else (None, args)
        )
        values = [argument(a) for a in rest]
        if count is not None and "." not in name.removeprefix("llvm.").partition(".")[2] and not _has_types(name):
            name = ".".join([name, *_overload(name, values)])
        return own(dtype or "int32", name, *values)

    return function


def _has_types(name: str) -> bool:
    """Whether an intrinsic's name ends in the types that it is for (`llvm.ctpop.v8i8`)."""
    last = name.rpartition(".")[2]
    return bool(last) and (last[0] in "ivf" and builtins.any(c.isdigit() for c in last))


# Intrinsics of LLVM that are named by the type of their first argument.
_OVERLOADED = (
    "ctlz cttz ctpop bswap bitreverse abs smax smin umax umin fabs sqrt fma floor ceil trunc rint nearbyint round exp exp2 log log2 log10 sin cos pow powi "
    "copysign minnum maxnum fmuladd prefetch"
).split()


def _overload(name: str, values: list[Any]) -> list[str]:
    if name.removeprefix("llvm.") not in _OVERLOADED or not values:
        return []
    info = dtype_info(values[0].dtype)
    element = "p0" if values[0].dtype == "handle" else f"{'f' if info.is_float else 'i'}{info.bits}"
    return [f"v{info.lanes}{element}" if info.lanes > 1 else element]


call_llvm_intrin = _llvm(False)
call_llvm_pure_intrin = _llvm(True)


def call_packed(*args: Any, span: Any = None) -> Any:
    """A call of a function that `tvm.register_func` knows, from CPU code."""
    if args and str(getattr(args[0], "value", args[0])).startswith("tvm.contrib."):
        import_module("tec.compat.tvm.contrib")  # registers what TVM's libraries register when they load
    return te.call_packed(*args)


call_cpacked = call_packed


# Functions of CUDA's headers that tec has as operations, for every chip with the unit.
_DEVICE = {"__dp4a": "dot4"}


def call_extern(dtype: Any, func_name: str, *args: Any, span: Any = None) -> Any:
    """A call of a C function."""
    if func_name in _DEVICE:
        return te.call_intrin(dtype, _DEVICE[func_name], *args)
    return te.call_extern("int32" if dtype in ("handle", "void", "") else dtype, func_name, *args)


def call_pure_extern(dtype: Any, func_name: str, *args: Any, span: Any = None) -> Any:
    """A call of a C function whose result depends on its arguments alone."""
    if func_name in _DEVICE:
        return te.call_intrin(dtype, _DEVICE[func_name], *args)
    return te.call_pure_extern(dtype, func_name, *args)


def Cast(dtype: Any, value: Any, span: Any = None) -> Any:
    """`value` as `dtype`."""
    return te.cast(dtype, value)


def shift_left(x: Any, y: Any, span: Any = None) -> Any:
    """x << y."""
    return named(B.left_shift(x, y))


def shift_right(x: Any, y: Any, span: Any = None) -> Any:
    """x >> y."""
    return named(B.right_shift(x, y))


def bitwise_and(x: Any, y: Any, span: Any = None) -> Any:
    """x & y."""
    return named(B.bitwise_and(x, y))


def bitwise_or(x: Any, y: Any, span: Any = None) -> Any:
    """x | y."""
    return named(B.bitwise_or(x, y))


def bitwise_xor(x: Any, y: Any, span: Any = None) -> Any:
    """x ^ y."""
    return named(B.bitwise_xor(x, y))


def bitwise_not(x: Any, span: Any = None) -> Any:
    """~x."""
    return named(B.bitwise_not(x))


_FOLDED = ("int32", "int64")  # whose remainders of constants TVM computes: programs ask whether a node is a constant


def _remainder(node: type, own: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def remainder(x: Any, y: Any, span: Any = None) -> Any:
        a, b = B.match(x, y)
        whole = isinstance(a, ir.IntImm) and isinstance(b, ir.IntImm) and b.value != 0 and a.dtype not in _FOLDED
        return node(a, b) if whole else own(x, y)

    remainder.__doc__ = f"The remainder {node.__name__} of x and y."
    return remainder


floormod, truncmod = _remainder(ir.FloorMod, te.floormod), _remainder(ir.Mod, te.truncmod)


def likely(cond: Any, span: Any = None) -> Any:
    """The condition, expected to hold."""
    return named(te.likely(cond))


def reinterpret(dtype: Any, value: Any, span: Any = None) -> Any:
    """The same bits as `dtype`."""
    return named(B.reinterpret(normalize_dtype(dtype), value))


def clz(x: Any, span: Any = None) -> Any:
    """The number of leading zero bits, as int32."""
    return B.cast("int32", te.clz(x))


def nextafter(x1: Any, x2: Any, span: Any = None) -> Any:
    """The next float after x1 towards x2."""
    return te.nextafter(x1, x2)


def add(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs + rhs."""
    return _whole(B.add, lhs, rhs)


def subtract(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs - rhs."""
    return _whole(B.sub, lhs, rhs)


def multiply(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs * rhs."""
    return _whole(B.mul, lhs, rhs)


def _whole(f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if builtins.any(isinstance(x, te.Tensor) and x.shape for x in (a, b)):
        return elementwise(f, a, b)
    return f(a, b)


def any(*args: Any, span: Any = None) -> Any:
    """Whether one of the conditions holds."""
    if not args:
        raise ExprError("any of no conditions", hint="at least one condition")
    return te.any(*args)


def all(*args: Any, span: Any = None) -> Any:
    """Whether all conditions hold."""
    if not args:
        raise ExprError("all of no conditions", hint="at least one condition")
    return te.all(*args)


CALLS = tuple(_MADE)
OWN = (
    "Cast add address_of all any bitwise_and bitwise_not bitwise_or bitwise_xor call_cpacked call_extern call_intrin call_llvm_intrin call_llvm_pure_intrin "
    "call_packed call_pure_extern clz const floormod likely multiply nextafter reinterpret ret shift_left shift_right subtract truncmod tvm_struct_get"
).split()
# Functions of te that tir has under the same name.
SHARED = (
    "abs acos acosh asin asinh atan atan2 atanh ceil ceildiv comm_reducer copysign cos cosh decl_buffer div erf exp exp10 exp2 floor floordiv fmod hypot "
    "if_then_else indexdiv indexmod infinity isfinite isinf isnan ldexp log log10 log1p log2 max max_value min min_value nearbyint popcount pow power round "
    "rsqrt sigmoid sin sinh sqrt sum tan tanh trunc truncdiv"
).split()
