"""`tec.array.jit`: a function of arrays compiled whole.

    step = xp.jit(lambda params, x, y: tec.value_and_grad(loss)(params, x, y))
    value, grads = step(params, x, y)        # runs Python once for shapes like these, and from then on machine code alone

The function runs once with values that stand for its arguments: nothing that is made of them is computed, and gradients, updates and what lies between become one graph. What depends
on no argument is computed at once, and is a constant of the code. So a number cannot be taken out of an argument, and Python's `if` cannot ask for one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..runtime.arrays.ndarray import NDArray, empty
from ..runtime.devices.storage import ALIGN
from . import dtypes
from .array import Array
from .computing import bound_whole, in_memory
from .creation import asarray
from .errors import ArrayIndexError, ArrayTypeError
from .node import RECORDERS, TRACED, Node, leaf
from .program import Bound
from .trace import Trace

_MOST = 256  # forms of arguments that a function keeps code for; one with more begins anew
_CONSTANT = "a value that stands for an argument has no number while tec.array.jit writes the function down"
_INSTEAD = "xp.where chooses by element, and static= names arguments that are part of the code, such as a size. Sorts, factors, Fourier transforms, masks as indices and assignments work on numbers: call them outside, or the function without jit"


class _Code:
    """The code for arguments of one form: `places` says for each value that it reads which argument or constant it is, `outputs` for each result what it is."""

    def __init__(
        self,
        bound: Bound | None,
        places: list[Any],
        outputs: list[Any],
        build: Callable[[list[Any]], Any],
        checks: list[str],
    ):
        self.bound, self.places, self.outputs, self.build, self.checks = bound, places, outputs, build, checks

    def run(self, given: Sequence[NDArray]) -> Any:
        """The results of arguments in their order."""
        read = [given[p] if type(p) is int else p for p in self.places]
        made = [] if self.bound is None else self.bound.run(read)
        for k, message in enumerate(self.checks):
            if bool(made[k].numpy()):
                raise ArrayIndexError(message)
        # What a result shares with arguments and constants is theirs: the result gets memory of its own, and so does one that is an argument or a constant.
        taken = {id(a.storage) for a in (*read, *(() if self.bound is None else self.bound.consts.values()))}
        out = []
        for what, at, shape in self.outputs:
            a = given[at] if what == "argument" else at if what == "constant" else made[at]
            if what != "made" or id(a.storage) in taken:
                a = a.copyto(empty(a.shape, a.dtype, a.device))
            taken.add(id(a.storage))
            out.append(Array(leaf(a if a.shape == shape else NDArray(a.storage, a.address, shape, a.dtype))))
        return self.build(out)


class Jitted:
    """A function of arrays that is compiled whole; see `jit`."""

    __tec_program__ = True  # a function of arrays to `tec.grad` and its kin, no model

    def __init__(self, function: Callable[..., Any], static: Sequence[int | str] = ()):
        functools.update_wrapper(self, function)
        self.function = function
        self.static = frozenset(static)
        self._codes: dict[Any, _Code] = {}

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The function's result; the first call with arguments of such shapes and types compiles."""
        if TRACED or RECORDERS:  # within another function that is compiled, or differentiated: a part of it
            return self.function(*args, **named)
        found: list[Any] = []
        if self.static:
            args = tuple([_Static(a) if k in self.static else a for k, a in enumerate(args)])
            named = {k: _Static(a) if k in self.static else a for k, a in named.items()}
        form = _form((args, named), found)
        arrays = _on_one_device(found, found)
        given = [in_memory(x._node) for x in arrays]
        key = (form, tuple([(a.dtype, a.shape, a.device, a.alignment == ALIGN) for a in given]))
        code = self._codes.get(key)
        if code is None:
            if len(self._codes) >= _MOST:
                self._codes.clear()
            code = self._codes[key] = self._traced(args, named, arrays)
        return code.run(given)

    def _traced(self, args: Any, named: Any, arrays: list[Array]) -> _Code:
        nodes = [leaf(in_memory(x._node), beside=x._node) for x in arrays]
        rest = iter(nodes)
        inside, inside_named = _filled((args, named), lambda x: Array(next(rest)))
        TRACED.append(Traced(nodes))
        try:
            result = self.function(*inside, **inside_named)
            checks = TRACED[-1].checks
        finally:
            TRACED.pop()
        results: list[Any] = []
        _form(result, results, "result")
        outs = [x._node for x in _on_one_device(results, arrays)]
        for n in outs:
            if dtypes.is_complex(n.dtype):
                raise ArrayTypeError(
                    "a complex result of a function under tec.array.jit",
                    hint="give its real and imaginary parts, xp.real(x) and xp.imag(x)",
                )
        roots = list(dict.fromkeys([*(n for n, _ in checks), *(n for n in outs if n.data is None)]))
        places: list[Any] = []
        bound = None
        number = {n: k for k, n in enumerate(nodes)}
        if roots:
            trace = Trace(roots)
            bound = bound_whole(trace, roots[0].device)
            places = [number.get(n, n.data) for n in trace.leaves]
        at = {n: k for k, n in enumerate(roots)}
        outputs: list[Any] = []
        for n in outs:
            if n in number:
                outputs.append(("argument", number[n], n.shape))
            else:
                outputs.append(("constant", n.data, n.shape) if n.data is not None else ("made", at[n], n.shape))

        def build(made: list[Any]) -> Any:
            each = iter(made)
            return _filled(result, lambda x: next(each))

        return _Code(bound, places, outputs, build, [message for _, message in checks])


class Traced:
    """A function that is being written down: the values that stand for its arguments, and what is to be checked of their numbers when it runs."""

    def __init__(self, arguments: Sequence[Node]):
        self.thread = threading.get_ident()
        self.checks: list[tuple[Node, str]] = []
        self._depends: dict[Node, bool] = dict.fromkeys(arguments, True)

    def depends(self, n: Node) -> bool:
        """Whether a value is made of an argument."""
        if threading.get_ident() != self.thread:
            return False
        found = self._depends.get(n)
        if found is None:
            stack = [n]
            while stack:
                top = stack[-1]
                open_ = [i for i in top.inputs if i not in self._depends]
                if open_:
                    stack.extend(open_)
                else:
                    self._depends[top] = any(self._depends[i] for i in top.inputs)
                    stack.pop()
            found = self._depends[n]
        return found

    def refuse(self) -> None:
        """Raise for a value whose number is asked for."""
        raise ArrayTypeError(_CONSTANT, hint=_INSTEAD)


@dataclass(frozen=True)
class _Static:
    """An argument that is part of the code."""

    value: Any

    def __post_init__(self) -> None:
        try:
            hash(self.value)
        except TypeError:
            raise ArrayTypeError(
                f"a {type(self.value).__name__} as static argument of a function under tec.array.jit",
                hint="numbers, texts and tuples of them: it is looked up by its value",
            ) from None


def _on_one_device(found: Sequence[Any], beside: Sequence[Any]) -> list[Array]:
    """Arrays and numbers as arrays, numbers where the first of some arrays is."""
    where = next((x.device for x in beside if type(x) is Array), None)
    return [x if type(x) is Array else asarray(x, device=where) for x in found]


def _form(tree: Any, arrays: list[Any], what: str = "argument") -> Any:
    """The form of arguments as a key, whose arrays and numbers go to the list in order. Numbers are arrays of no dimensions: a step's number makes no code of its own."""
    kind = type(tree)
    if kind is Array:
        arrays.append(tree)
        return Array
    if kind is int or kind is float:
        arrays.append(tree)
        return Array
    if isinstance(tree, dict):
        return (kind, tuple([(k, _form(tree[k], arrays, what)) for k in tree]))
    if isinstance(tree, (list, tuple)):
        return (kind, tuple([_form(v, arrays, what) for v in tree]))
    if isinstance(tree, _Static):
        return (_Static, type(tree.value), tree.value)
    if tree is None or isinstance(tree, (bool, str)):
        return tree
    raise ArrayTypeError(
        f"a {kind.__name__} as {what} of a function under tec.array.jit",
        hint="arrays, numbers, and dicts, lists and tuples of them; xp.asarray(x) makes an array of NumPy's",
    )


def _filled(tree: Any, each: Callable[[Any], Any]) -> Any:
    """The same tree with other arrays."""
    kind = type(tree)
    if kind is Array or kind is int or kind is float:
        return each(tree)
    if kind is _Static:
        return tree.value
    if isinstance(tree, dict):
        return kind((k, _filled(v, each)) for k, v in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind(*[_filled(v, each) for v in tree])
    if isinstance(tree, (list, tuple)):
        return kind(_filled(v, each) for v in tree)
    return tree


def jit(function: Any = None, /, *, static: int | str | Sequence[int | str] = ()) -> Any:
    """A function of arrays compiled whole: gradients, updates and all between become one graph, and later calls with arguments of the same shapes and types run no Python of it.

    Arguments and results are arrays, numbers, and dicts, lists and tuples of them; numbers are arrays of no dimensions inside. static: positions and names of arguments that
    are part of the code, such as a size. What the function reads from outside is a constant. Raises ArrayTypeError where it asks for a number that follows from an argument (`float(x)`, `if x > 0`, a mask as an index): `xp.where` chooses by element.

    >>> @xp.jit
    ... def step(w, x):
    ...     slope = tec.grad(lambda w: xp.sum((x @ w) ** 2))(w)
    ...     return w - 0.1 * slope
    >>> step(xp.ones(2), xp.eye(2)).tolist()
    [0.800000011920929, 0.800000011920929]
    """
    names = (static,) if isinstance(static, (int, str)) else tuple(static)
    if function is None:
        return lambda f: jit(f, static=names)
    if not callable(function):
        raise ArgumentError(
            f"jit of a {type(function).__name__}, no function", hint="step = xp.jit(f), or @xp.jit above a def"
        )
    return Jitted(function, names)


__all__ = ["Jitted", "Traced", "jit"]
