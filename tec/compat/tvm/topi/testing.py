"""tvm.topi.testing: references in NumPy, and which implementation a target has."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import topi
from tec.target import as_target

from ..names import absent


def conv2d_nchw_python(a_np: Any, w_np: Any, stride: Any, padding: Any, groups: int = 1) -> Any:
    """A convolution of images (N, C, H, W) in NumPy."""
    sh, sw = (stride, stride) if isinstance(stride, int) else stride
    ph, pw = (padding, padding) if isinstance(padding, int) else padding
    x = np.pad(a_np, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    parts = []
    for xs, ws in zip(np.split(x, groups, 1), np.split(w_np, groups, 0)):
        at = np.lib.stride_tricks.sliding_window_view(xs, ws.shape[2:], (2, 3))[:, :, ::sh, ::sw]
        parts.append(np.einsum("nchwyx,ocyx->nohw", at, ws))
    return np.concatenate(parts, 1)


def conv2d_nhwc_python(a_np: Any, w_np: Any, stride: Any, padding: Any, groups: int = 1) -> Any:
    """A convolution of images (N, H, W, C) with weights (H, W, I, O) in NumPy."""
    out = conv2d_nchw_python(a_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1), stride, padding, groups)
    return out.transpose(0, 2, 3, 1)


def softmax_python(a_np: Any, axis: int = 1) -> Any:
    """A softmax in NumPy."""
    e = np.exp(a_np - a_np.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _slices(begin: Any, end: Any, strides: Any, slice_mode: str = "end") -> tuple[slice, ...]:
    steps = [1 if s is None else s for s in ([] if strides is None else strides)]
    steps += [1] * (len(begin) - len(steps))
    if slice_mode == "size":  # `end` holds sizes, -1 being all that is left
        end = [None if n == -1 else (b or 0) + n for b, n in zip(begin, end)]
    return tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps))


def strided_slice_python(
    data: Any, begin: Any, end: Any, strides: Any, slice_mode: str = "end", axes: Any = None
) -> Any:
    """`data[begin:end:strides]` in NumPy, by dimension (of `axes`)."""
    given = dict(zip(range(len(begin)) if axes is None else axes, _slices(begin, end, strides, slice_mode)))
    return data[tuple(given.get(k, slice(None)) for k in range(data.ndim))]


def strided_set_python(data: Any, v: Any, begin: Any, end: Any, strides: Any) -> Any:
    """`data` with `data[begin:end:strides] = v` in NumPy."""
    made = data.copy()
    made[_slices(begin, end, strides)] = v
    return made


def get_conv2d_nchw_implement(target: Any) -> Any:
    """The definition and the schedule of a convolution."""
    return topi.nn.conv2d_nchw, topi.generic.schedule_conv2d_nchw


def dispatch(target: Any, dispatch_map: dict[str, Any]) -> Any:
    """What the map has for a target's kind, for its class ("gpu" or "cpu"), for a GPU of another kind ("cuda"), or for all targets ("generic"): the first of these."""
    given = as_target(target)
    for key in (given.kind, "gpu", "cuda") if given.is_gpu else (given.kind, "cpu"):
        if key in dispatch_map:
            return dispatch_map[key]
    return dispatch_map["generic"]


def _schedule(target: Any) -> Any:
    return topi.generic.schedule_injective


get_elemwise_schedule = get_broadcast_schedule = get_injective_schedule = get_reduce_schedule = _schedule

__getattr__ = absent(__name__)
