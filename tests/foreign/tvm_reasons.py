"""TVM v0.14's tests that are te's: which files count, and why a test does not pass through `tec.compat.tvm`."""

from __future__ import annotations

import re

_UNIT = """
te_autodiff te_build_lower te_group te_hybrid_script te_schedule te_schedule_bound_inference te_schedule_bound_inference_tiling te_schedule_graph
te_schedule_lstm te_schedule_ops te_schedule_postproc_rewrite_for_tensor_core te_schedule_tensor_core te_schedule_tensorize te_tag te_tensor
te_tensor_overload te_transform_layout te_verify_compute target_codegen_blob target_codegen_bool target_codegen_cuda target_codegen_device
target_codegen_extern target_codegen_llvm target_codegen_rocm tir_base tir_buffer tir_constructor tir_imm_values tir_intrin tir_ir_builder tir_nodes
tir_op_types tir_ops
""".split()
FILES = [f"unittest/test_{n}.py" for n in _UNIT] + [
    f"integration/test_{n}.py" for n in ("dot", "ewise", "gemm", "lower", "reduce", "scan")
]

# file -> {name of a test, as a regular expression: why it does not pass}
Table = dict[str, dict[str, str]]

_BLOCKS = "TVMScript with regions of buffers that blocks match"
_PASSES = "passes of TVM's, run by hand"
_TEXT = "the text of an expression, of LLVM IR or of CUDA code is TVM's"
_SHAPE = "the shape of TVM's lowered code"
_NODES = "names of fields of TVM's nodes that tec's have not"

# Tests that pass without a check of what they are about: one asks for the type of a node by a name that stands for several here, the other skips where there is no clang.
HOLLOW = {
    "test_target_codegen_llvm.py": "test_llvm_import",
}

REASONS: Table = {
    "test_lower.py": {"(test_gemm_tensorcore|::test_lower)": _BLOCKS},
    "test_target_codegen_blob.py": {"test_synthetic": "networks come from ONNX: relay.testing builds none", "test_cuda_multi_lib": "libraries of the system: modules are tec's packages, not linked"},
    "test_target_codegen_cuda.py": {
        "test_cuda_make_int8": "NumPy 2 refuses what the test writes: 171 as int8", "test_cuda_make_int4": "no code is made for int4 values",
        "test_cuda_mix_threaded_and_normal_reduction": "topi.sum of float16 sums in float32, and a stage behind it rounds: that one has no reduction axis",
        "test_try_unaligned_vector_load": _TEXT,
    },
    "test_target_codegen_extern.py": {"test_add_pipeline": "the test itself stores outside of its buffer, which the chip in software finds"},
    "test_target_codegen_llvm.py": {
        "test_llvm_import": "without clang the test skips what it is about",
        "test_llvm_void_intrin": "llvm.va_start: not one of the intrinsics that tec lets through", "test_alignment": _TEXT,
        "test_llvm_crt_static_lib": "TVM's runtime for bare metal", "test_llvm_target_attributes": _TEXT,
        "test_raise_exception_during_codegen": "parallel loops may stand in one another",
    },
    "test_te_hybrid_script.py": {"test_(outer_product|fanout|schedule)": _SHAPE},
    "test_te_schedule.py": {
        "test_pragma": "pragmas that no pass knows are refused",
        "test_rfactor": "the factored stage's reduction keeps the order of the loops", "test_tensor_intrin": _SHAPE,
        "test_tensor_intrin_scalar_params": "a call of an intrinsic gives at least one axis of elements", "test_compute_at": "refused where it is written, not when it is lowered",
    },
    "test_te_schedule_bound_inference.py": {
        "test_bound_fusesplit1": "a split of a fused loop with symbolic sizes: what is read of a producer is all of it",
        "test_bound_warp": "scope warp is shared memory", "test_bound_tensor_compute_op": "an intrinsic's bounds are of what its compute reads",
    },
    "test_te_schedule_ops.py": {
        "test_loop_dep_reduce_cache_write": "a reducer does not name the axes of the compute that uses it",
        "test_reduction_and_dummy_fuse_split": "a data loop does not fuse with a reduction's",
    },
    "test_te_schedule_postproc_rewrite_for_tensor_core.py": {"test_tensor_core_.*": "the pragma tensor_core, which finds products by itself: the wmma scopes and intrinsics are written out"},
    "test_te_schedule_tensor_core.py": {
        "test_tensor_core_batch_matmal": "a wmma tile of 32x8x16 is no whole number of gfx942's instructions; it compiles for NVIDIA",
    },
    "test_te_schedule_tensorize.py": {
        "test_tensorize_(vadd|matmul)": "functions that TVM registers for its own tests",
        "test_tensorize_tensor_compute_op": "what an intrinsic does not fit is refused, not left as it was",
    },
    "test_te_tensor.py": {"test_tuple_with_different_deps": _NODES},
    "test_te_tensor_overload.py": {"test_operator_type_and_tags": "a tensor without dimensions stands for its value"},
    "test_te_transform_layout.py": {
        "TestCompareAgainstExplicitReshape::test_internal_reshape": _PASSES,
    },
    "test_tir_base.py": {"test_eq_ops": _NODES},
    "test_tir_buffer.py": {"test_buffer_access_ptr.*": _NODES},
    "test_tir_constructor.py": {"test_expr_constructor": _NODES},
    "test_tir_imm_values.py": {
        "test_tir_intimm_overflow": "integers have 8, 16, 32 or 64 bits",
        "test_tir_floatimm_const_fold": "1.0 / 0.0 is infinite, as IEEE says", "test_tir_uint8_const_fold": "0 - 10 of uint8 is 246, and no error",
    },
    "test_tir_intrin.py": {"test_fma": "LowerIntrin: fma is an operation of tec's, not a call of LLVM's by name"},
    "test_tir_ir_builder.py": {"test_dyn_shared": "a work-group has a constant number of threads"},
    "test_tir_nodes.py": {"test_(bitwise|infinity|isnan)": _TEXT, "test_prim_func": _NODES},
    "test_tir_ops.py": {"test_(binary_dtype_match|if_then_else)": "uint32 and int32 are int64 together, which holds both"},
}  # fmt: skip


def names_of(pattern: str) -> list[str]:
    """The tests that a pattern stands for, where it lists them; what else it leaves open is three dots."""
    found = re.fullmatch(r"([^(]*)\(([^)]*)\)([^(]*)", pattern)
    whole = [found[1] + part + found[3] for part in found[2].split("|")] if found else [pattern]
    return [n.removeprefix("::").replace(".*", "...") for n in whole]


def rows() -> list[str]:
    """A line of a table for each reason: the file, its tests, and why they do not pass."""
    return [
        f"| `{file.removeprefix('test_').removesuffix('.py')}` | {', '.join(names_of(pattern))} | {reason} |"
        for file, reasons in REASONS.items()
        for pattern, reason in reasons.items()
    ]


def reason_of(file: str, name: str) -> str | None:
    """The reason for test `name` ("Class::test[parameters]") of a file, None where it has none."""
    for pattern, reason in REASONS.get(file, {}).items():
        if re.fullmatch(pattern + r"(\[.*\])?", name):
            return reason
    return None


def is_hollow(file: str, name: str) -> bool:
    """Whether a test's pass says nothing; it counts as one that did not pass."""
    return file in HOLLOW and re.fullmatch(HOLLOW[file], name) is not None
