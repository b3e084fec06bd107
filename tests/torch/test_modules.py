"""torch's own samples of every module of torch.nn (torch.testing._internal.common_modules), through torch.compile with nothing left to torch: a few of each quickly, all in the
slow suite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

common_modules = pytest.importorskip("torch.testing._internal.common_modules")
FEW, EVERY = 1, 6  # samples of a module
HOW = {"eval": (False, None), "train": (True, None), "open sizes": (False, True)}  # in training; dynamic


def _samples(info: Any, learns: bool, most: int) -> Iterator[tuple[torch.nn.Module, Any]]:
    """Modules with their arguments."""
    given = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=learns)
    for sample in given[:most]:
        made, args = sample.constructor_input, sample.forward_input
        if args is not None:
            torch.manual_seed(0)
            yield info.module_cls(*made.args, **made.kwargs).train(learns), args


def _flat(x: Any) -> list[Any]:
    return [y for part in x for y in _flat(part)] if isinstance(x, (tuple, list)) else [x]


def _check(info: Any, how: str, most: int) -> None:
    learns, dynamic = HOW[how]
    for module, args in _samples(info, learns, most):
        torch._dynamo.reset()
        fast = torch.compile(module, backend="tec", dynamic=dynamic, options={"strict": True})
        results = []
        with contextlib.nullcontext() if learns else torch.no_grad():
            for f in (module, fast):
                torch.manual_seed(1)
                try:
                    results.append(_flat(f(*args.args, **args.kwargs)))
                except RuntimeError:
                    if f is fast:
                        raise
                    break  # a sample that torch itself refuses
        for want, got in zip(*results) if len(results) == 2 else ():
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got.detach(), want.detach(), rtol=1e-3, atol=1e-4, equal_nan=True)


_ALL = {info.name: info for info in common_modules.module_db}


# Those that torch makes of several modules, whose calls are fused where nobody learns.
@pytest.mark.parametrize("name", [n for n in _ALL if "Transformer" in n or "Multihead" in n])
def test_a_few(name: str) -> None:
    _check(_ALL[name], "eval", FEW)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", _ALL)
def test_all(name: str, how: str) -> None:
    _check(_ALL[name], how, EVERY)
