"""What instructions fill and read, by their operands; the list of checks that options show."""

from __future__ import annotations

import pytest

from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.analyses.roles import roles
from tec.emulator.checks.names import HELP, NAMES, parse_checks
from tec.emulator.decode.inst import Inst


def _inst(text: str) -> Inst:
    return parse_kernel(f"k:\n{text}\ns_endpgm\n.Lfunc_end0:\n", "k").insts[0]


@pytest.mark.parametrize(
    ("text", "filled", "read"),
    [
        ("v_add_f32 v1, v2, v3", "v1", "v2 v3"),
        ("v_fmac_f32 v1, v2, v3", "v1", "v1 v2 v3"),
        ("v_swap_b32 v1, v2", "v1 v2", "v1 v2"),
        ("v_permlane32_swap_b32 v1, v2", "v1 v2", "v1 v2"),
        ("v_add_co_u32 v1, s[4:5], v2, v3", "v1 s[4:5]", "v2 v3"),
        ("v_div_scale_f32 v1, vcc, v2, v3, v4", "v1 vcc", "v2 v3 v4"),
        ("v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3]", "a[0:3]", "v[0:1] v[2:3] a[0:3]"),
        ("s_cmp_eq_u32 s1, s2", "", "s1 s2"),
        ("s_setpc_b64 s[30:31]", "", "s[30:31]"),
        ("s_swappc_b64 s[30:31], s[4:5]", "s[30:31]", "s[4:5]"),
        ("global_load_dword v1, v2, s[4:5]", "v1", "v2 s[4:5]"),
        ("global_store_dword v1, v2, s[4:5]", "", "v1 v2 s[4:5]"),
        ("global_load_lds_dword v1, s[4:5]", "", "v1 s[4:5]"),
        ("global_atomic_add v1, v2, v3, s[4:5] sc0", "v1", "v2 v3 s[4:5]"),
        ("global_atomic_add v2, v3, s[4:5]", "", "v2 v3 s[4:5]"),
        ("global_atomic_add_u32 v1, v2, v3, s[4:5] th:TH_ATOMIC_RETURN", "v1", "v2 v3 s[4:5]"),
        ("global_store_b32 v1, v2, s[4:5] th:TH_STORE_NT", "", "v1 v2 s[4:5]"),
        ("buffer_atomic_add v1, v2, s[4:7], 0 offen glc", "v1", "v1 v2 s[4:7]"),
        ("ds_add_rtn_u32 v1, v2, v3", "v1", "v2 v3"),
        ("ds_write_b32 v1, v2", "", "v1 v2"),
        ("ds_bpermute_b32 v1, v2, v3", "v1", "v2 v3"),
    ],
)  # fmt: skip
def test_roles(text: str, filled: str, read: str) -> None:
    results, sources = roles(_inst(text))
    assert " ".join(o.text for o in results) == filled
    assert " ".join(o.text for o in sources if o.is_reg) == read


def test_the_list_of_checks() -> None:
    every = frozenset(NAMES) - {"align"}  # the hardware takes accesses of any alignment
    assert parse_checks("all") == every and parse_checks("race") == {"bounds", "race"}
    assert all(name in HELP for name in ("hazards", "barrier", "progress"))
