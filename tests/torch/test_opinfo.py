"""torch's own samples of operators, a few quickly and all of them in the slow suite; `python -m tests.torch.opinfo` prints the counts."""

import pytest

pytest.importorskip("expecttest")  # what torch's own samples need beside torch

from .opinfo import run

FEW = (
    "add",
    "div",
    "where",
    "clamp",
    "sum",
    "var",
    "index_put",
    "scatter",
    "cat",
    "nn.functional.gelu",
    "nn.functional.conv2d",
)


def held(found):
    wrong = [line for _, c in found for line in c.wrong]
    assert not wrong, "\n".join(wrong)


def test_a_few():
    found = list(run(FEW))
    assert len(found) >= len(FEW) and all(c.passed for _, c in found)
    held(found)


@pytest.mark.slow
def test_all():
    found = list(run())
    assert sum(bool(c.passed) for _, c in found) > 150
    held(found)
