"""Detection: regions of interest here, and under `rcnn`; boxes of `detection`, those of SSD under `ssd` too."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..errors import ExprError, listed
from ..te import Tensor
from . import detection
from .detection import *  # noqa: F403
from .operators import compute, output, tensor, type_of
from .tag import INJECTIVE
from .transform import transpose

__all__ = ["rcnn", "roi_align_nchw", "roi_align_nhwc", "ssd"]
__all__ += detection.__all__


def _roi_align(last: bool) -> Callable[..., Tensor]:
    what = f"roi_align_{'nhwc' if last else 'nchw'}"

    def function(
        data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float, mode: Any, sample_ratio: int = -1
    ) -> Tensor:
        x, boxes = tensor(data, what), tensor(rois, what)
        how = {b"avg": "avg", b"max": "max", "avg": "avg", "max": "max", 0: "avg", 1: "max"}.get(mode)
        height, width = pooled_size if isinstance(pooled_size, (list, tuple)) else (pooled_size, pooled_size)
        if how is None or sample_ratio < 1 or boxes.ndim != 2 or type_of(boxes).shape[1] != 5:
            raise ExprError(
                f"{what}(mode={mode!r}, sample_ratio={sample_ratio}) of boxes of shape {type_of(boxes).shape}",
                hint="avg or max, a number of samples, and rows of (picture, x1, y1, x2, y2)",
            )
        x = transpose(x, (0, 3, 1, 2)) if last else x
        count = boxes.shape[0]
        corners = compute((count, 4), lambda k, c: boxes(k, c + 1), "roi_corners", INJECTIVE)
        of = compute((count,), lambda k: boxes(k, 0), "roi_pictures", INJECTIVE)
        made = output(
            "roi_align", [x, corners, of], height=int(height), width=int(width), ratio_h=sample_ratio, ratio_w=sample_ratio, half=False,
            scale=float(spatial_scale), mode=how,
        )  # fmt: skip
        return transpose(made, (0, 2, 3, 1)) if last else made

    function.__name__ = function.__qualname__ = what
    function.__doc__ = """Means ("avg") or maxima of `sample_ratio` squared samples in each of `pooled_size` cells of every box; `rois` are rows of (picture, x1, y1, x2, y2), in units of
    which `spatial_scale` is one pixel. Raises ExprError where the number of samples would follow from each box (-1)."""
    return function


roi_align_nchw, roi_align_nhwc = _roi_align(False), _roi_align(True)
rcnn = SimpleNamespace(
    proposal=detection.proposal,
    roi_align_nchw=roi_align_nchw,
    roi_align_nhwc=roi_align_nhwc,
    roi_pool_nchw=detection.roi_pool_nchw,
)
ssd = SimpleNamespace(**{n: getattr(detection, n) for n in detection.__all__ if n.startswith("multibox")})


__dir__ = listed(__name__)
