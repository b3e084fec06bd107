"""What checks of indices say is told by later calls: flags arrive as copies do, and each error is told once."""

import ctypes

import pytest
import tec_torch
import torch
from tec_torch import late_checks
from tec_torch.late_checks import LateChecks
from tec_torch.placed import late_checks as checks_of
from torch import nn

import tec
from tec.runtime.networks.executor import is_of_indices
from tec.runtime.plans.plan import Output

CHECKS = [
    Output(f"check{k}", f"check{k}", f"an index of gather ({k}) is outside of -{k + 3} to {k + 2}") for k in range(2)
]


def flags(late, *outside):
    """Those of a call: `outside` are places of flags that are false, by check."""
    given = late.flags(torch.device("cpu"))
    for check, k in outside:
        given[late.offsets[check] + k] = 0
    return given


def queue(late, *outside, is_captured=False):
    given = flags(late, *outside)
    late.queue(lambda to, n: ctypes.memmove(to, given.data_ptr(), n), is_captured)


def test_a_later_call_tells_of_an_earlier_one_once():
    late = LateChecks(CHECKS, [5, 70])
    queue(late)
    late.tell()
    queue(late, (1, 69))
    queue(late, (0, 0))
    with pytest.raises(tec.ArgumentError, match=r"gather \(1\) is outside of -4 to 3"):
        late.tell()
    with pytest.raises(tec.ArgumentError, match=r"gather \(0\) is outside"):
        tec_torch.synchronize()
    late.tell()
    assert late not in late_checks._OPEN


def test_flags_that_have_not_arrived_say_nothing_and_keep_their_memory():
    late = LateChecks(CHECKS, [1, 1])
    under_way = []
    for outside in ([(0, 0)], []):
        late.queue(lambda to, n, given=flags(late, *outside): under_way.append((to, given)), False)
    late.tell()
    (first, said), (second, well) = under_way
    assert first != second
    ctypes.memmove(second, well.data_ptr(), well.numel())
    late.tell()  # in the order of the calls
    ctypes.memmove(first, said.data_ptr(), said.numel())
    with pytest.raises(tec.ArgumentError, match=r"gather \(0\)"):
        late.tell()
    late.tell()
    queue(late)
    assert late._waiting[0].place in (first, second)
    late.tell()


def test_a_captured_call_is_looked_at_again_and_again():
    late = LateChecks(CHECKS[:1], [3])
    queue(late, is_captured=True)
    (slot,) = late._captured
    for outside in (0, 2):
        late.tell()
        slot.memory.copy_(flags(late, (0, outside)))  # a replay
        with pytest.raises(tec.ArgumentError, match=r"gather \(0\)"):
            late.tell()


def test_what_nobody_asked_for_is_logged_at_the_end(caplog):
    late = LateChecks(CHECKS, [1, 1])
    queue(late, (1, 0))
    late_checks._at_exit()
    assert "gather (1)" in caplog.text
    late.tell()


def test_indices_may_wait_and_other_conditions_may_not():
    class Picks(nn.Module):
        def forward(self, x, y):
            return x.gather(1, y)

    def checks(module, *args):
        return checks_of(tec.compile(module, "cuda", args=args))

    assert checks(nn.ReLU(), torch.randn(3)) is None
    assert checks(Picks(), torch.randn(4, 9), torch.zeros(4, 2, dtype=torch.int64)) is not None
    assert is_of_indices(CHECKS[0])
    for text in ("a matrix has no inverse", f"{CHECKS[0].check} or a matrix has no inverse"):
        assert not is_of_indices(Output("check", "check", text))
