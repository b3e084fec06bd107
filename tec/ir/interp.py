"""The reference interpreter: what loop IR means, in NumPy. Every back end is held against it.

    run(func, [a, b, c])                      # arrays are written in place
    run(func, {"A": a, "C": c}, {"n": 5}, check=True)
    run(module["main"], arrays, module=module)  # a host function and the kernels that it launches

Threads run in lockstep: a launch is executed for whole work-groups at once, statement by statement, with a mask of the
active threads, so that shared memory, barriers, shuffles, reductions across threads and matrix units mean the same
before barriers are inserted and after. Independent loop iterations run side by side the same way, for speed alone.

Fresh storage holds garbage (NaN, or a pattern). An access outside of its buffer's storage raises an InterpError; with
`check=True` so do an index outside of its own dimension, a read of storage never written, and a barrier that not all
threads of a work-group reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from . import expr as E
from .buffer import Buffer
from .dtype import dtype_info
from .func import Func, IRModule
from .interp_expr import InterpError
from .interp_lanes import Storage
from .interp_machine import StatementMachine, garbage
from .interp_ops import Array, from_held, held, to_held

__all__ = ["InterpError", "eval_expr", "run"]


def run(
    func: Func,
    arrays: Mapping[str, Any] | Sequence[Any],
    scalars: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    check: bool = False,
    wave: int = 64,
    externs: Mapping[str, Callable[..., Any]] | None = None,
    module: IRModule | None = None,
    races: bool = False,
) -> None:
    """Execute a function on NumPy arrays, which are written in place.

    arrays: by parameter name, or in order: one for each Buffer parameter, or one entry for every parameter. scalars: values
    of the scalar parameters (and of implicit variables that the shapes do not give), by name or in order. wave: lanes of
    a wavefront. externs: Python functions for call_extern, given scalars and 1-D array views. module: where the kernels
    that a host function launches are found. races: find accesses of shared memory that no barrier orders (for lowered
    functions, where barriers stand). Raises InterpError, ArgumentError.
    """
    m = StatementMachine(check, wave, externs or {}, module, races)
    named = _by_name(func, arrays, scalars)
    env = m.lanes.env
    written: list[tuple[Buffer, Array, Array]] = []
    for p in func.params:
        if isinstance(p, E.Var):
            if p.name not in named:
                raise ArgumentError(
                    f"no value for the parameter {p.name}",
                    locate=False,
                    hint="scalars={name: value}, or among the arguments in order",
                )
            env[id(p)] = _scalar(named[p.name], p.dtype)
    for v in func.implicit_vars():
        if v.name in named:
            env[id(v)] = _scalar(named[v.name], v.dtype)
    buffers = [p for p in func.params if isinstance(p, Buffer)]
    for p in buffers:
        if p.name not in named:
            raise ArgumentError(
                f"no array for the parameter {p.name}",
                locate=False,
                hint="arrays={name: array}, or among the arguments in order",
            )
        named[p.name] = _flattened(p, np.asarray(named[p.name]))
        _bind_shape(m, p, named[p.name])
    for v in func.implicit_vars():
        if id(v) not in env:
            env[id(v)] = np.zeros(1, held(v.dtype))  # an offset that nothing gives is 0
    for p in buffers:
        _check_shape(m, p, np.asarray(named[p.name]))
        written.append(_take(m, p, np.asarray(named[p.name])))
    with np.errstate(all="ignore"):
        if func.attrs.get("kernel"):
            m.run_kernel(func)
        else:
            m.exec(func.body)
    for p, array, flat in written:
        _give_back(m, p, array, flat)


def _scalar(value: Any, dtype: str) -> Array:
    return to_held(np.asarray(value).reshape(1).astype(held(dtype)), dtype)


def _by_name(func: Func, arrays: Any, scalars: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    if isinstance(arrays, Mapping):
        named.update(arrays)
    else:
        items = list(arrays)
        wanted = list(func.params) if len(items) == len(func.params) else [p for p in func.params if isinstance(p, Buffer)]  # fmt: skip
        if len(items) != len(wanted):
            raise ArgumentError(
                f"{func.name} takes {len(wanted)} arrays, got {len(items)}",
                locate=False,
                hint="one array for each buffer of the function, in order, or a dict by name",
            )
        names = [p.name for p in wanted]
        if len(set(names)) != len(names):
            raise ArgumentError(
                f"two parameters of {func.name} share a name",
                locate=False,
                hint="give the parameters names of their own where the function is made",
            )
        named.update(zip(names, items))
    if isinstance(scalars, Mapping):
        named.update(scalars)
    elif scalars is not None:
        named.update(zip([p.name for p in func.params if isinstance(p, E.Var)], scalars))
    return named


def _flattened(p: Buffer, array: Array) -> Array:
    """The array as a flat parameter of lowered code sees it; vectors are its last dimension."""
    lanes = dtype_info(p.dtype).lanes
    if lanes > 1 and len(p.shape) == 1 and array.ndim != 2 and array.flags.c_contiguous and array.size % lanes == 0:
        return array.reshape(-1, lanes)
    if len(p.shape) == 1 and array.ndim != 1 and array.flags.c_contiguous and lanes == 1:
        return array.reshape(-1)
    return array


def _bind_shape(m: StatementMachine, p: Buffer, array: Array) -> None:
    lanes = dtype_info(p.dtype).lanes
    ndim = len(p.shape) + (lanes > 1)
    if array.ndim != ndim or (lanes > 1 and array.shape[-1] != lanes):
        of = f" (the last of the {lanes} lanes)" if lanes > 1 else ""
        raise ArgumentError(
            f"{p.name} has {ndim} dimensions{of}, the array {array.ndim}",
            locate=False,
            hint="an array of the parameter's shape; a flat one also fits a flat buffer",
        )
    env = m.lanes.env
    for d, n in zip(p.shape, array.shape):
        if isinstance(d, E.Var) and id(d) not in env:
            env[id(d)] = np.array([n], held(d.dtype))
    if p.strides and array.itemsize:
        for d, n in zip(p.strides, array.strides):
            if isinstance(d, E.Var) and id(d) not in env:
                env[id(d)] = np.array([n // array.itemsize // lanes], held(d.dtype))


def _check_shape(m: StatementMachine, p: Buffer, array: Array) -> None:
    for k, (d, n) in enumerate(zip(p.shape, array.shape)):
        want = m.uniform(d, f"the shape of {p.name}")
        if want != n:
            raise ArgumentError(
                f"{p.name}: dimension {k} is {n}, expected {d} = {want}",
                locate=False,
                hint="arrays whose sizes agree with the parameters and with each other",
            )


def _take(m: StatementMachine, p: Buffer, array: Array) -> tuple[Buffer, Array, Array]:
    """Flat storage for a parameter: the array's own memory where it can be, a copy laid out by the strides otherwise."""
    kind = held(p.dtype)
    offset = m.uniform(p.elem_offset, "an offset") if isinstance(p.elem_offset, E.Expr) else int(p.elem_offset)
    if array.dtype == kind and array.flags.c_contiguous and not p.strides and not offset and dtype_info(p.dtype).bits >= 8 and dtype_info(p.dtype).element != "bfloat16":  # fmt: skip
        flat = array.reshape(-1)
    else:
        own = dtype_info(p.dtype).lanes
        flat = garbage((m.storage_elems(p) * own,), p.dtype)
        _view(m, p, flat, offset)[...] = to_held(array, p.dtype).reshape(_view(m, p, flat, offset).shape)
    m.storages[id(p.data)] = Storage(p.name, p.dtype, p.scope, flat.reshape(1, -1), m.lanes, None)
    return p, array, flat


def _view(m: StatementMachine, p: Buffer, flat: Array, offset: int) -> Array:
    shape = [m.uniform(d, "a shape") for d in p.shape]
    own = dtype_info(p.dtype).lanes
    strides = [m.uniform(d, "a stride") * own for d in p.strides]
    if not strides:
        strides = [int(np.prod(shape[k + 1 :], dtype=np.int64)) * own for k in range(len(shape))]
    if own > 1:
        shape, strides = [*shape, own], [*strides, 1]
    size = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat[offset * own :], shape, [st * size for st in strides])


def _give_back(m: StatementMachine, p: Buffer, array: Array, flat: Array) -> None:
    if np.shares_memory(array, flat) if array.size else True:
        return
    if not array.flags.writeable:
        return
    offset = m.uniform(p.elem_offset, "an offset") if isinstance(p.elem_offset, E.Expr) else int(p.elem_offset)
    array[...] = from_held(_view(m, p, flat, offset).reshape(array.shape), array, p.dtype)


def eval_expr(e: E.Expr, env: Mapping[E.Var, Any] | None = None, arrays: Mapping[Buffer, Any] | None = None) -> Any:
    """The value of an expression: a NumPy scalar, or an array of its lanes. Variables from `env`, buffers from `arrays`."""
    m = StatementMachine(False, 64, {}, None)
    for v, value in (env or {}).items():
        m.lanes.env[id(v)] = _scalar(value, v.dtype)
    for b, a in (arrays or {}).items():
        _take(m, b, np.asarray(a))
    with np.errstate(all="ignore"):
        return m.eval(e)[0]
