"""pytest's side of tvm.testing: `-p tec.compat.tvm.testing.plugin`. It puts `tvm` in place and gives tests their parameters, targets and devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..devices import device
from ..install import install
from .marks import Parameter, enabled_targets

install()
if not hasattr(np, "product"):
    np.product, np.infty = np.prod, np.inf  # type: ignore[attr-defined]  # of NumPy 1, which TVM v0.14's tests use


def _targets(function: Any) -> list[str]:
    asked = getattr(function, "tvm_targets", None)
    here = [t for t, _ in enabled_targets()]
    chosen = [t for t in asked if str(t).split()[0] in here] if asked else here[:1]
    left_out = (*getattr(function, "tvm_excluded_targets", ()), *getattr(function, "tvm_failing_targets", ()))
    return [t for t in chosen if str(t).split()[0] not in left_out]


def pytest_generate_tests(metafunc: Any) -> None:
    """Gives a test the values of the `Parameter`s that it takes, and `target` and `dev`."""
    given = {
        n.strip()
        for mark in metafunc.definition.iter_markers("parametrize")
        for n in (mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0])
    }
    groups: dict[int, list[tuple[str, Parameter]]] = {}
    for name in metafunc.fixturenames:
        if name in given:
            continue
        found = getattr(metafunc.cls, name, None) or getattr(metafunc.module, name, None)
        if isinstance(found, Parameter):
            groups.setdefault(id(found.group) if found.group is not None else id(found), []).append((name, found))
    for members in groups.values():
        rows = list(zip(*(p.values for _, p in members)))
        metafunc.parametrize([n for n, _ in members], rows, ids=members[0][1].ids)
    wanted = [n for n in ("target", "dev") if n in metafunc.fixturenames and n not in given]
    if wanted:
        pairs = [(t, device(str(t).split()[0])) for t in _targets(metafunc.function)]
        metafunc.parametrize(
            wanted, [tuple(p["target" != n] for n in wanted) for p in pairs], ids=[str(t) for t, _ in pairs]
        )
