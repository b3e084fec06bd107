"""TVM v0.14's own tests of te: which files count, and what is said to each test that does not pass through `tools.tvm_adapter`.

    mkdir /tmp/te && cd TVM && for f in $(python -m tools.tvm_answers); do git show v0.14.0:tests/python/$f > /tmp/te/$(basename $f); done
    PYTHONPATH=. python -m pytest -p tools.tvm_adapter -q -rsx /tmp/te

ANSWERED: programs of a te user that tec takes otherwise, each answered in "Coming from TVM" (docs/schedules.md). INTERNAL: tests that look into TVM's
classes, its printer or the shape of its lowered code, and say nothing of what a program computes. Both are expected failures, and one that passes is
reported. A test that is skipped says which part of TVM, or which machine, it needs. What counts as te is the rest: passed and answered.
"""

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

ANSWERED: Table = {
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

_NODES = "TVM's node classes: names and fields of its loop IR"
_TEXT = "TVM's text of an expression"
_PRIM = "functions of loop IR put together by hand (PrimFunc, TVMScript)"
_SHAPE = "the shape of TVM's lowered code"
INTERNAL: Table = {
    "test_te_build_lower.py": {"test_split_uneven_unique_likely": _SHAPE},
    "test_te_hybrid_script.py": {
        "test_outer_product": _NODES + "; saving a script as Python", "test_fanout": _NODES, "test_schedule": _SHAPE,
    },
    "test_te_schedule.py": {"test_tensor_intrin": _NODES},
    "test_te_schedule_tensorize.py": {"test_tensorize_(vadd|matmul)": "functions that TVM registers for its own tests"},
    "test_te_tensor.py": {"test_tuple_with_different_deps": _NODES},
    "test_te_transform_layout.py": {"TestCompareAgainstExplicitReshape::test_internal_reshape": _NODES},
    "test_target_codegen_cuda.py": {"test_(crossthread_reduction.|rfactor_predicates)": "a GPU: the adapter runs the CPU's"},
    "test_target_codegen_llvm.py": {
        "test_llvm_(intrin|void_intrin|lookup_intrin|order_functions|scalar_concat)|test_call_(packed|extern)_returning_void": _PRIM,
        "test_alignment": "the text of TVM's LLVM IR", "test_llvm_target_attributes": "names of functions in TVM's LLVM IR",
    },
    "test_tir_base.py": {".*": _NODES},
    "test_tir_buffer.py": {
        "test_buffer_access_ptr.*": _NODES, "test_buffer_(offset_of|index_merge_mult_mod)": "TVM's simplifier of flat indices",
        "test_buffer_flatten.*": "a pass of TVM's",
    },
    "test_tir_constructor.py": {".*": _NODES},
    "test_tir_imm_values.py": {
        "test_tir_(make_floatimm.b?float16|special_floatimms.3.14-float16).*": "constants of TVM are not rounded to their type",
        "test_tir_const_auto_dtype.3.14.*": "constants of TVM are not rounded to their type",
        "test_tir_(u?int.*_const_fold|too_large_literal_f64)": _PRIM,
    },
    "test_tir_ir_builder.py": {"test_if": _PRIM, "test_prefetch": _NODES},
    "test_tir_nodes.py": {"test_(ir|cast|attr|buffer_load_store|intimm_cond)": _NODES, "test_(bitwise|infinity|isnan)": _TEXT, "test_prim_func": _PRIM},
    "test_tir_op_types.py": {".*": _NODES},
}  # fmt: skip


def group_of(table: Table, file: str, name: str) -> str | None:
    """The reason that a table gives for test `name` ("Class::test[parameters]") of a file, None where it has none."""
    for pattern, reason in table.get(file, {}).items():
        if re.fullmatch(pattern + r"(\[.*\])?", name):
            return reason
    return None


if __name__ == "__main__":
    print("\n".join(FILES))
