"""tvm.testing: comparisons, and the marks that TVM's tests stand under. `tec.compat.tvm.testing.plugin` is its pytest plugin."""

from __future__ import annotations

from ..names import absent
from .compare import assert_allclose, assert_prim_expr_equal, check_numerical_grads
from .marks import (
    device_enabled,
    enabled_targets,
    exclude_targets,
    fixture,
    known_failing_targets,
    main,
    parameter,
    parameters,
    parametrize_targets,
    requires_corstone300,
    requires_cublas,
    requires_cuda,
    requires_cuda_compute_version,
    requires_cudagraph,
    requires_cudnn,
    requires_gpu,
    requires_hexagon,
    requires_llvm,
    requires_llvm_minimum_version,
    requires_metal,
    requires_opencl,
    requires_package,
    requires_rocm,
    requires_rpc,
    requires_tensorcore,
    requires_vulkan,
    requires_x86,
    skip_if_32bit,
    skip_if_wheel_test,
    slow,
    uses_gpu,
)

__getattr__ = absent(__name__)
