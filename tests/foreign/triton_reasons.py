"""Triton's own tests of its language: which files count, and why a test does not apply to `tec.tile`.

A row is (file, regular expression over a test's name with its parameters, reason). The rows were written from the tests' text, and stand before the runs: what is
left is Triton's language, and a failure there is tec's.
"""

from __future__ import annotations

import functools
import re

FILES = (
    "test_core.py", "test_standard.py", "test_random.py", "test_tensor_descriptor.py", "test_block_pointer.py", "test_conversions.py", "test_tuple.py",
    "test_annotations.py", "test_decorator.py", "test_libdevice.py", "test_pipeliner.py", "test_mxfp.py",
)  # fmt: skip

_IR = "looks for text of Triton's intermediate language"
_TEXT = "looks for an instruction or a directive that Triton's options ask for"
_CTAS = "clusters of thread blocks, which programs over tiles have no word for"
_INSIDE = "names of the inside of Triton's compiler"
_INDEXED = "copies of the tensor unit by indices, which sm_100 has"

ROWS: tuple[tuple[str, str, str], ...] = (
    ("*", r"inline_asm", "PTX in the text of a kernel, which NVIDIA GPUs alone take"),
    ("*", r"map_elementwise", "tl.map_elementwise is missing (docs/tiles.md)"),
    ("*", r"multicta|multicast|coop_grid|num_ctas_pre_sm90", _CTAS),
    ("test_core.py", r"test_(optimize_thread_locality|no_rematerialization_op|dot_mulbroadcasted|assume|trans_reshape|tl_range_fuse|tl_range_fuse_dependent|tl_range_option_none|disable_licm|unroll_attr|poison_return)\b", _IR),
    ("test_core.py", r"test_(load_cache_modifier|store_cache_modifier|store_eviction_policy|vectorization|vectorization_hints|enable_fp_fusion|enable_reflect_ftz|override_arch|maxnreg|tl_range_num_stages)\b", _TEXT),
    ("test_core.py", r"test_(store_op|reduce_layouts|scan_layouts|chain_reduce|convert1d|convert2d|convertmma2mma)\b", "compiles a text of Triton's intermediate language"),
    ("test_core.py", r"test_(globaltimer|smid|num_threads|dot_max_num_imprecise_acc)\b", "a register or an option of NVIDIA's chips alone"),
    ("test_core.py", r"test_(dtype_codegen|unsigned_name_mangling|interpreter_ashr_does_not_mutate_uint64_rhs|ptx_cast)\b", _INSIDE),
    ("test_core.py", r"test_reduction_ordering_", "the order of a sum is Triton's layouts', bit for bit"),
    ("test_annotations.py", r"test_(int|float)_annotation", _IR),
    ("test_pipeliner.py", r"test_(pipeline_matmul|pipeline_vecadd|scatter_pipeline)\b", _IR),
    ("test_tensor_descriptor.py", r"test_tensor_descriptor_reduce\[.*-(u?int(8|16)-\w+|int64-add|b?float\w*-(min|max|and|or|xor))\]", "asks that a type be refused which Triton's chips lack, and tec has"),
    ("test_tensor_descriptor.py", r"test_(tma_gather|tma_gather_dot_pipeline|tma_scatter)\b", _INDEXED),
    ("test_tensor_descriptor.py", r"test_(mxfp8_mxfp4_matmul_tma|tensor_descriptor_batched_gemm_3d_tma)\b", _IR),
    ("test_libdevice.py", r"test_bessel", "Bessel functions are missing (docs/tiles.md)"),
    ("test_tuple.py", r"jit_hook", _INSIDE),
    ("test_decorator.py", r"test_decorator_with_def", _INSIDE),
)  # fmt: skip


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    return tuple((file, re.compile(p), why) for file, p, why in ROWS)


def reason_of(file: str, name: str) -> str | None:
    """Why a test of a file does not apply; None where it does."""
    return next((why for f, p, why in _patterns() if f in ("*", file) and p.search(name)), None)
