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

# file -> {name of a test, as a regular expression: why}
Table = dict[str, dict[str, str]]

REASONS: Table = {
    "test_te_schedule.py": {
        "test_schedule_create": "a schedule goes to JSON as its computation and its trace, not in one text",
        "test_pragma": "pragmas that no pass knows are refused",
        "test_rfactor": "the factored stage's reduction keeps the order of the loops",
        "test_tensor_intrin_scalar_params": "a call of an intrinsic takes regions alone",
        "test_compute_at": "refused where it is written, not when it is lowered",
    },
    "test_te_schedule_bound_inference.py": {
        "test_bound_fusesplit1": "a split of a fused loop with symbolic sizes: what is read of a producer is all of it",
        "test_bound_warp": "scope warp is shared memory",
        "test_bound_tensor_compute_op": "an intrinsic's bounds are of what its compute reads",
        "test_bound_simplification_failure": "a read outside of a tensor for certain is refused",
    },
    "test_te_schedule_ops.py": {
        "test_schedule_scan": "a function without any of its outputs is refused",
        "test_schedule_tensor_compute1": "a read outside of a tensor for certain is refused",
        "test_loop_dep_reduce_cache_write": "a reducer does not name the axes of the compute that uses it",
        "test_reduction_and_dummy_fuse_split": "a data loop does not fuse with a reduction's",
        "test_local_stage_predicate": "registers filled outside of a vthread loop are refused",
        "test_schedule_record_gemm": "s.trace has the primitives, a tile as one",
        "test_schedule_record_misc": "s.trace has the primitives; a schedule is of something",
    },
    "test_te_schedule_tensorize.py": {"test_tensorize_tensor_compute_op": "what an intrinsic does not fit is refused, not left as it was"},
    "test_te_tag.py": {"test_with": "attributes are the values that were given"},
    "test_te_tensor.py": {
        "test_tensor_pool": "topi's pooling keeps NaN: its reducer is another than te.max",
    },
    "test_te_tensor_overload.py": {"test_operator_type_and_tags": "a tensor without dimensions stands for its value"},
    "test_te_autodiff.py": {"test_topi": "a reshape to another number of elements is refused"},
    "test_te_transform_layout.py": {
        "Test2DPhysicalLayout::test_2d_physical.int32-(?!1d_A-1d_B).*": "axis separators have no effect: memory is flat",
        "test_non_divisible_transform_raises_error": "transforms that do not divide are taken: the storage is padded",
    },
    "test_target_codegen_llvm.py": {
        "test_llvm_overloaded_intrin": "call_llvm_intrin takes the full name and no number of types",
        "test_llvm_persist_parallel": "pragmas that no pass knows are refused; parallel loops may stand in one another",
        "test_llvm_bf16": "bfloat16 arrays are ml_dtypes.bfloat16, not their bits",
    },
    "test_tir_buffer.py": {"test_buffer_broadcast_expr": "buffers broadcast where decl_buffer says so"},
    "test_tir_intrin.py": {"test_clz.int64.*": "clz has the type of its argument"},
    "test_tir_ops.py": {
        "test_binary_dtype_match": "uint32 and int32 are int64 together, which holds both",
        "test_if_then_else": "uint32 and int32 are int64 together, which holds both",
    },
    "test_tir_imm_values.py": {
        "test_tir_intimm_overflow": "integers have 8, 16, 32 or 64 bits",
        "test_tir_invalid_floatimm": "a constant beyond a type's range is its infinity",
        "test_tir_const_auto_dtype.*e.39.*": "a float without a dtype is float32",
    },
}  # fmt: skip


def reason_of(file: str, name: str) -> str | None:
    """The reason for test `name` ("Class::test[parameters]") of a file, None where it has none."""
    for pattern, reason in REASONS.get(file, {}).items():
        if re.fullmatch(pattern + r"(\[.*\])?", name):
            return reason
    return None
