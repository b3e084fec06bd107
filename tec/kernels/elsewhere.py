"""What CUDA, HIP, numba, CuPy and the packages of Julia call things, in tec's words; for hints."""

from __future__ import annotations

import ast
from types import ModuleType

import numpy as np

from ..errors import ExprError
from ..ir.dtype import dtype_info
from ..likeness import by_name, meant
from . import language

_HERE = {
    "tec.thread_idx.x": "threadIdx threadIdx_x workitemIdx",
    "tec.block_idx.x": "blockIdx blockIdx_x workgroupIdx",
    "tec.block_dim.x": "blockDim blockDim_x workgroupDim",
    "tec.grid_dim.x": "gridDim gridDim_x gridGroupDim",
    "tec.grid_idx(1)": "grid global_id get_global_id program_id",
    "tec.grid_size(1)": "gridsize global_size num_programs",
    "tec.barrier()": "syncthreads sync_threads __syncthreads sync_workgroup syncblock sync_block block_sync workgroup_barrier blockSync",
    "tec.wave_barrier()": "syncwarp __syncwarp sync_warp sync_wavefront",
    "tec.fence()": "threadfence __threadfence memfence mem_fence threadfence_device",
    'tec.fence("block")': "threadfence_block __threadfence_block", 'tec.fence("system")': "threadfence_system __threadfence_system",
    "tec.lanemask_lt()": "lanemask_lt lanemask __lanemask_lt lanes_below",
    "tec.lane()": "laneid lane_id laneId",
    "tec.wave_size()": "warpsize warpSize warp_size wavefrontsize",
    "tec.shuffle(v, lane)": "shfl shfl_sync __shfl_sync shfl_idx",
    "tec.shuffle_up(v, delta)": "shfl_up shfl_up_sync __shfl_up_sync",
    "tec.shuffle_down(v, delta)": "shfl_down shfl_down_sync __shfl_down_sync",
    "tec.shuffle_xor(v, mask)": "shfl_xor shfl_xor_sync __shfl_xor_sync",
    "tec.ballot(c)": "ballot_sync __ballot_sync vote_ballot vote_ballot_sync",
    "tec.wave_any(c)": "any_sync __any_sync vote_any",
    "tec.wave_all(c)": "all_sync __all_sync vote_all",
    "tec.match_any(v)": "match_any_sync __match_any_sync",
    "tec.match_all(v)": "match_all_sync __match_all_sync",
    "tec.popcount(x)": "popc __popc popcll bit_count",
    "tec.shared(shape, dtype)": "shared_array StaticSharedArray CuStaticSharedArray ROCStaticLocalArray SharedMemory",
    "tec.shared(None, dtype), with bytes in kernel[grid, block, stream, bytes]": "CuDynamicSharedArray ROCDynamicLocalArray dynamic_shared "
    "shared_dynamic dyn_shared extern_shared dynamic_shared_memory",
    "tec.local(shape, dtype)": "local_array",
    "the array itself: arrays of NumPy from outside are tables of constants": "const_array_like array_like constant_memory CuConstantMemory",
    "tec.atomic_add(array, index, value), atomic_max and so on": "atomic atomicAdd atomicadd",
    "tec.atomic_max(array, index, value)": "atomicMax", "tec.atomic_min(array, index, value)": "atomicMin",
    "tec.atomic_cas(array, index, expected, desired)": "atomicCAS compare_and_swap",
    "tec.random.uniform(seed, index, draw)": "xoroshiro128p_uniform_float32 curand_uniform rand curand random random_sample uniform",
    "tec.random.integers(seed, low, high, index, draw)": "randint randrange integers",
    "tec.random.normal(seed, index, draw)": "xoroshiro128p_normal_float32 curand_normal randn gauss normalvariate standard_normal",
    "tec.wave_reduce(v, op)": "warp_reduce warpReduce subgroup_reduce warp_sum warp_max warp_min wave_sum wave_max wave_min reduce_sync",
    "tec.wave_scan(v, op)": "warp_scan warpScan inclusive_scan",
    "tec.block_reduce(v, op)": "BlockReduce blockreduce reduce_block block_sum block_max block_min",
    "tec.block_scan(v, op)": "BlockScan blockscan",
    "@tec.kernel, and k[grid, block](...)": "jit",
    "tec.vload(a, i, lanes), or x[i]": "load", "tec.vstore(a, i, v), or x[i] = v": "store",
}  # fmt: skip
_BY_NAME = by_name(_HERE)


def named(name: str) -> str | None:
    """Tec's word for what others call `name` in kernels; None where the table has none."""
    return _BY_NAME.get(name) or _BY_NAME.get(name.removesuffix("_sync"))


def _is_dtype(name: str) -> bool:
    try:
        dtype_info(name)
    except ExprError:
        return False
    return True


def here(name: str) -> str | None:
    """What tec calls something, or what it calls something like it; None where nothing is near."""
    found = named(name)
    if found is not None:
        return f"tec calls it {found}"
    if _is_dtype(name):
        return f'types are names, "{name}"' + (f", or NumPy's, np.{name}" if hasattr(np, name) else "")
    return meant(name, language.NAMES, "tec.")


def of_module(module: object, name: str) -> str | None:
    """What a misspelt function of math, of NumPy or of tec may be meant to be."""
    return meant(name, dir(module), f"{module.__name__}.") if isinstance(module, ModuleType) else None


def _chain(node: ast.expr) -> tuple[str, ...]:
    """The names of `cuda.shared.array`; none where it begins with something else than a name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    inner = _chain(node.value) if isinstance(node, ast.Attribute) else ()
    return (*inner, node.attr) if inner and isinstance(node, ast.Attribute) else ()


def others(tree: ast.AST, first: ast.expr, module: ModuleType | None = None) -> str:
    """What else a function reads of the name that `first` begins with, of which there is a word here and which `module` has not: who brings a
    kernel from elsewhere then sees all of it at once."""
    told, *_ = first_chain = _chain(first) or ("",)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        root, *members = (_chain(node) if isinstance(node, ast.Attribute) and node not in inner else ()) or ("",)
        if root != told or not members or tuple(members[:1]) == first_chain[1:2]:
            continue
        ours = _BY_NAME.get("_".join(members[:2])) or (None if hasattr(module, members[0]) else named(members[0]))
        if ours is not None:
            found[".".join(members if len(members) > 1 and "_".join(members[:2]) in _BY_NAME else members[:1])] = ours
    return "".join(f"; {theirs} is {ours}" for theirs, ours in found.items())


# Modules that programs of other libraries name in kernels, and what tec has for them where the member tells nothing.
_MODULES = {
    "np": "import numpy as np", "numpy": "import numpy", "math": "import math", "tec": "import tec",
    "tl": "import tec.tile as tl; kernels over tiles are @tec.tile.kernel: docs/tiles.md",
}  # fmt: skip


def unknown(name: str, members: tuple[str, ...], tree: ast.AST) -> str | None:
    """What to write for `name.members`, where nothing is called `name`: `cuda.shared.array`, `AMDGPU.sync_workgroup`, or a name of the function's own."""
    if name in _MODULES:
        return _MODULES[name]
    for found in ("_".join(members), *members):
        ours = named(found) if found else None
        if ours is not None:
            return f"tec calls it {ours}"
    known = here(name) or (here("_".join(members)) if members else None)
    if known or members:
        return known
    own = {n.arg if isinstance(n, ast.arg) else n.id for n in ast.walk(tree) if isinstance(n, (ast.arg, ast.Name))}
    return meant(name, own - {name}) or "assign it before, make it an argument, or define it outside of the kernel"
