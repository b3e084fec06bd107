"""Wrong arguments of topi's functions: a TecError that names the function and the argument, whatever the call; what is taken lowers."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.compat.tvm import topi as tvm_topi
from tests import seeds

_CALLS = 12  # drawn calls of each function


def functions() -> dict[str, Callable[..., Any]]:
    """What both packages export, by name; each once."""
    found: dict[int, tuple[str, Callable[..., Any]]] = {}
    for package in (topi, tvm_topi):
        for part in ("", "nn", "image", "vision", "sparse", "generic"):
            module = getattr(package, part) if part else package
            for name in dir(module):
                f = getattr(module, name)
                if inspect.isfunction(f) and not name.startswith("_") and hasattr(f, "__wrapped__"):
                    found.setdefault(id(f), (f"{package.__name__}.{part}.{name}".replace("..", "."), f))
    return dict(found.values())


FUNCTIONS = functions()


def placeholder(rank: int, dtype: str = "float32", size: Any = 4) -> Any:
    return te.placeholder((size,) * rank, dtype, name="t")


def wrong_calls(f: Callable[..., Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Every rank, every kind in every place, and numbers of arguments."""
    parameters = inspect.signature(f).parameters.values()
    required = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    for rank in range(7):
        yield [placeholder(rank)] * required, {}
    for value in (None, "x", 3, 2.5, [1, 2], (), {}, np.zeros(3)):
        for tensors in range(3):
            for rank in (1, 4):
                yield [*[placeholder(rank)] * tensors, *[value] * max(0, required - tensors)], {}
    yield [], {}
    yield [placeholder(4)] * (len(parameters) + 2), {}
    yield [placeholder(4)] * required, {"nonsense": 1}


def test_both_packages_are_checked() -> None:
    for module in (topi, topi.nn, topi.image, topi.vision, topi.sparse):
        for name in module.__all__:
            f = getattr(module, name)
            assert not inspect.isfunction(f) or hasattr(f, "__wrapped__"), name
    assert len(FUNCTIONS) > 200


def test_a_wrong_call_is_a_tec_error() -> None:
    for name, f in FUNCTIONS.items():
        for args, options in wrong_calls(f):
            try:
                f(*args, **options)
            except tec.InternalError:
                raise AssertionError(f"{name}({args}, {options})") from None
            except tec.TecError as e:
                assert e.where is not None and e.where.file == __file__, name
            except Exception as e:
                raise AssertionError(f"{name}({args}, {options}): {e!r}") from None


def test_what_is_taken_lowers() -> None:
    """A drawn call is refused where it is written, or what it gives can be lowered."""
    draw = random.Random(seeds.stream("topi"))

    def tensor() -> Any:
        dtype = draw.choice(["float32"] * 5 + ["int32", "int64", "bool", "uint8", "float16"])
        shape = [draw.choice([1, 2, 3, 4, 8]) for _ in range(draw.choice([0, 1, 2, 3, 4, 4, 4, 5, 6]))]
        return te.placeholder(shape, dtype, name="t")

    any_kind = {
        "int": lambda: draw.choice([-1, 0, 1, 2, 3, 4, 7]), "float": lambda: draw.choice([0.5, 1.0, -2.0]),
        "str": lambda: draw.choice(["NCHW", "NHWC", "float32", "int32", "max", "sum", "", "valid", "SAME"]), "None": lambda: None,
        "Sequence[int]": lambda: tuple(draw.choice([-1, 0, 1, 2, 3]) for _ in range(draw.randint(0, 5))), "bool": lambda: draw.random() < 0.5,
        "Sequence[Tensor]": lambda: [tensor() for _ in range(draw.randint(0, 3))], "Tensor": tensor,
    }  # fmt: skip

    def argument(p: inspect.Parameter) -> Any:
        kind = str(p.annotation).partition(" | ")[0]
        return any_kind[kind if kind in any_kind and draw.random() < 0.85 else draw.choice(list(any_kind))]()

    for name, f in FUNCTIONS.items():
        if ".generic." in name or name.endswith(".schedule"):
            continue
        places = [p for p in inspect.signature(f).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        for _ in range(_CALLS):
            left_out = next((k for k, p in enumerate(places) if p.default is not p.empty and draw.random() < 0.6), None)
            args = [argument(p) for p in places[:left_out]]
            try:
                made = f(*args)
            except tec.TecError:
                continue
            outs = [x for x in (made if isinstance(made, (list, tuple)) else [made]) if isinstance(x, te.Tensor)]
            given = [x for a in args for x in (a if isinstance(a, list) else [a]) if isinstance(x, te.Tensor)]
            if not outs or any(x in outs for x in given):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    tec.lower(te.create_schedule([x.op for x in outs]), list(dict.fromkeys([*given, *outs])))
            except Exception as e:
                raise AssertionError(f"{name}({args}): {e!r}") from None


def test_the_message_names_the_argument() -> None:
    x = placeholder(4)
    for call, says in [
        (lambda: topi.nn.dense(x), r"topi.nn.dense: missing a required argument: 'weight'"),
        (lambda: topi.nn.conv2d_nchw(x, x, strid=1), r"missing a required argument: 'stride'; is stride meant\?"),
        (lambda: topi.nn.leaky_relu(x, "a"), r"topi.nn.leaky_relu: alpha is 'a', not a number"),
        (lambda: topi.nn.space_to_depth(placeholder(2), 2), r"data float32 \(4, 4\).*an argument needs 4 dimensions"),
        (lambda: topi.nn.correlation_nchw(placeholder(2), x, 1, 1, 1, 1, 0, True), "two pictures alike"),
        (
            lambda: topi.nn.correlation_nchw(x, x, 1, 1, None, 1, 0, True),
            r"correlation_nchw: stride1 is None, not an integer",
        ),
        (lambda: topi.vision.reorg(x, 2.0), r"topi.vision.reorg: stride is 2.0, not an integer"),
        (lambda: topi.invert_permutation(placeholder(0)), r"too few dimensions"),
        (lambda: topi.left_shift(placeholder(1), 1), "bit operation on float32"),
        (lambda: topi.searchsorted(placeholder(2, size=2), placeholder(2, size=3)), "2 and 3 elements meet"),
        (lambda: topi.sequence_mask(placeholder(2), placeholder(1, size=3)), "3 and 4 elements meet"),
        (lambda: topi.expand_like(placeholder(1, size=3), placeholder(2), [1]), "3 and 4 elements meet"),
    ]:
        with pytest.raises(tec.ExprError, match=f"(?s){says}"):
            call()


def test_the_outermost_operator_tells() -> None:
    with pytest.raises(tec.ExprError, match=r"^topi\.nn\.upsampling:") as e:
        topi.nn.upsampling(placeholder(4), "a", 2)
    assert "upsampling(data, " in str(e.value.hint)


def test_bools_shift_as_numbers() -> None:
    a = te.placeholder((3,), "bool", name="a")
    got = te.evaluate([te.compute((3,), lambda i: a[i] << a[i])], {a: np.array([True, False, True])})[0]
    assert got.dtype == "int32" and got.tolist() == [2, 0, 2]
