"""Kernels whose last work-groups store nothing: these leave at once, and every value stays."""

from __future__ import annotations

import pytest
from pass_util import GPU, apply, arrays_for, parse_func

from tec.ir import stmt as S
from tec.ir.interp import run
from tec.ir.passes.rewrite_util import launch_nest
from tec.target import Target

PASSES = ("flatten_buffers", "simplify", "insert_barriers", "leave_idle_groups", "simplify", "remove_noop")


def kernel(body: str, extra: str = "") -> str:
    return f"""
def f(A: Buffer((320,), "float32"), C: Buffer((320,), "float32"){extra}):
    for b in thread("blockIdx.x", 8):
        for t in thread("threadIdx.x", 64):
            s = alloc((64,), "float32", scope="shared")
            s[t] = if_then_else(b < 5, A[b * 64 + t], 0.0)
{body}
"""


def leaves(text: str, target: Target = GPU) -> bool:
    """Whether the kernel begins with a condition; its results must be those of its text."""
    func = parse_func(text)
    after = apply(func, target, *PASSES)
    arrays = arrays_for(func, {})
    got = {k: v.copy() for k, v in arrays.items()}
    run(func, arrays, {})
    run(after, got, {}, check=True)
    for name, want in arrays.items():
        assert got[name].tobytes() == want.tobytes(), name
    body = launch_nest(after.body)[1]
    if isinstance(body, S.IfThenElse):
        assert str(body).count("b < 5") == 1, body  # and nothing asks again inside
        return True
    return False


STORE = """            if likely(b < 5):
                C[b * 64 + t] = s[63 - t]"""


def test_groups_that_store_nothing_leave() -> None:
    assert leaves(kernel(STORE))


def test_a_condition_of_threads_beside_it_stays_inside() -> None:
    assert leaves(kernel(STORE.replace("likely(b < 5)", "b < 5 and t < 40")))


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        ("            if t < 40 and b < 5:\n                C[b * 64 + t] = s[63 - t]\n            if b == 7:\n                C[t] = 1.0", ""),
        (f"{STORE}\n            D[b] = 2.0", ', D: Buffer((8,), "float32")'),  # all groups store
        (f"{STORE}\n            if t == 0:\n                atomic_add(D[0], 1)", ', D: Buffer((1,), "int32")'),  # others may wait for it
        ("            if A[b] < 5.0:\n                C[(b % 5) * 64 + t] = A[b]", ""),  # known from memory alone
        ("            if b < 5:\n                C[b * 64 + t] = s[63 - t]\n            else:\n                C[(b - 5) * 64 + t] = 1.0", ""),
    ],
)  # fmt: skip
def test_groups_that_act_stay(body: str, extra: str) -> None:
    assert not leaves(kernel(body, extra))


def test_other_gpus_keep_their_kernels() -> None:
    assert not leaves(kernel(STORE), Target("nvptx -mcpu=sm_90a"))
