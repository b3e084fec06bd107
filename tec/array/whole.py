"""`tec.array.jit`: a function of arrays compiled whole.

    step = xp.jit(lambda params, x, y: tec.value_and_grad(loss)(params, x, y))
    value, grads = step(params, x, y)        # runs Python once for shapes like these, and from then on machine code alone

The function runs once with values that stand for its arguments: nothing that is made of them is computed, and gradients, updates and what lies between become one graph.
Functions of whole arrays, such as sorts and factors, are steps between graphs (`steps`). What depends
on no argument is computed at once, and is a constant of the code. So a number cannot be taken out of an argument, and Python's `if` cannot ask for one.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError, TecWarning, kind_of
from ..likeness import meant
from ..runtime.arrays.ndarray import NDArray, empty
from ..runtime.devices.storage import ALIGN
from . import build
from .array import Array
from .complexes import as_complex, as_pairs, is_complex, woven
from .computing import in_memory
from .creation import asarray
from .dtypes import PART
from .errors import ArrayIndexError, ArrayTypeError, ArrayValueError, FromNumbersError
from .node import RECORDERS, TRACED, Node, leaf
from .staged import Maker, Stages, Written, step

_MOST = 256  # forms of arguments that a function keeps code for; one with more begins anew
_CONSTANT = "a value that stands for an argument has no number while tec.array.jit writes the function down"
_KEEP = "xp.where(mask, x, 0) keeps all places"
_INSTEAD = "xp.where chooses by element, and static= names arguments that are part of the code, such as a size"


class _Code:
    """The code for arguments of one form: `outputs` says for each result which of the stages' values it is, or the constant, and whether it is pairs of a complex one."""

    def __init__(
        self, stages: Stages, outputs: list[Any], build: Callable[[list[Any]], Any], checks: list[tuple[int, str]]
    ):
        self.stages, self.outputs, self.build, self.checks = stages, outputs, build, checks

    def run(self, given: Sequence[NDArray]) -> Any:
        """The results of arguments in their order."""
        slots = self.stages.run([_reals(a) for a in given])
        for k, message in self.checks:
            if bool(slots[k].numpy()):
                raise ArrayIndexError(message)
        # What a result shares with arguments and constants is theirs: the result gets memory of its own, and so does one that is an argument or a constant.
        taken = {*self.stages.constants, *[id(a.storage) for a in given]}
        out = []
        for at, whole in self.outputs:
            a = slots[at] if type(at) is int else at
            if id(a.storage) in taken or a is at:
                a = a.copyto(empty(a.shape, a.dtype, a.device))
            taken.add(id(a.storage))
            out.append(Array(leaf(as_complex(a) if whole else a)))
        return self.build(out)


class Jitted:
    """A function of arrays that is compiled whole; see `jit`."""

    __tec_program__ = True  # a function of arrays to `tec.grad` and its kin, no model

    def __init__(self, function: Callable[..., Any], static: Sequence[int | str] = ()):
        functools.update_wrapper(self, function)
        self.function = function
        self.static = _static_keys(function, static)
        self._codes: dict[Any, _Code] = {}
        self._in_pieces = False  # whether it has shapes that follow from numbers

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
        if self._in_pieces:
            return self._as_it_stands(args, named, arrays)
        given = [in_memory(x._node) for x in arrays]
        key = (form, tuple([(a.dtype, a.shape, a.device, a.alignment == ALIGN) for a in given]))
        code = self._codes.get(key)
        if code is None:
            if len(self._codes) >= _MOST:
                self._codes.clear()
            try:
                code = self._codes[key] = self._traced(args, named, arrays)
            except FromNumbersError as e:
                self._in_pieces = True
                at = "" if e.where is None else f" at {e.where}"
                warnings.warn(
                    f"{getattr(self, '__name__', 'a function')} under tec.array.jit runs in pieces, its Python in each call: {e.message}{at}",
                    TecWarning,
                    stacklevel=2,
                )
                return self._as_it_stands(args, named, arrays)
        return code.run(given)

    def _as_it_stands(self, args: Any, named: Any, arrays: list[Array]) -> Any:
        """Its result without code of its own: arguments and results are what they are with it."""
        rest = iter(arrays)
        inside, inside_named = _filled((args, named), lambda x: next(rest))
        result = self.function(*inside, **inside_named)
        results: list[Any] = []
        _form(result, results, "result")
        made = iter(_on_one_device(results, arrays))
        return _filled(result, lambda x: next(made))

    def _traced(self, args: Any, named: Any, arrays: list[Array]) -> _Code:
        nodes = [leaf(_reals(in_memory(x._node)), beside=x._node) for x in arrays]
        rest = iter([_joined(n, is_complex(x._node)) for n, x in zip(nodes, arrays)])
        inside, inside_named = _filled((args, named), lambda x: Array(next(rest)))
        TRACED.append(Traced(nodes))
        try:
            result = self.function(*inside, **inside_named)
            traced = TRACED[-1]
            results: list[Any] = []
            _form(result, results, "result")
            outs = [x._node for x in _on_one_device(results, arrays)]
            whole = [n if n.data is not None or not is_complex(n) else woven(n) for n in outs]
        finally:
            TRACED.pop()
        roots = list(dict.fromkeys([*(n for n, _ in traced.checks), *whole]))
        maker = Maker(nodes, roots, traced.steps)
        outputs = [(maker.slot.get(n, n.data), n is not o) for n, o in zip(whole, outs)]
        checks = [(maker.slot[n], message) for n, message in traced.checks]
        tree = _filled(result, lambda x: 0)  # the results' own values would hold the arguments

        def rebuilt(made: list[Any]) -> Any:
            each = iter(made)
            return _filled(tree, lambda x: next(each))

        return _Code(maker.stages, outputs, rebuilt, checks)


def _static_keys(function: Callable[..., Any], static: Sequence[int | str]) -> frozenset[int | str]:
    """The places and names by which static arguments may come: one that has both comes by either. Raises ArrayValueError for one that the function has not."""
    if not static:
        return frozenset()
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a function of C without a signature: nothing to check
        return frozenset(static)
    P = inspect.Parameter
    kinds = {p.kind for p in parameters}
    placed = [p.name for p in parameters if p.kind in (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD)]
    keys: dict[int | str, set[int | str]] = {p.name: {p.name} for p in parameters if p.kind is P.KEYWORD_ONLY}
    for k, name in enumerate(placed):
        keys[name] = keys[k] = {k, name}
        if P.VAR_POSITIONAL not in kinds:
            keys[k - len(placed)] = keys[k]
    found: set[int | str] = set()
    for s in static:
        beyond = s >= len(placed) if isinstance(s, int) else s not in keys
        if beyond and (P.VAR_POSITIONAL if isinstance(s, int) else P.VAR_KEYWORD) in kinds:
            keys[s] = {s}
        if s not in keys:
            raise _no_such_argument(function, s, [p.name for p in parameters])
        found |= keys[s]
    return frozenset(found)


def _no_such_argument(function: Callable[..., Any], static: Any, names: list[str]) -> ArrayValueError:
    what = getattr(function, "__name__", "the function")
    hint = f"its arguments are {', '.join(names)}" if names else "it has no arguments"
    if isinstance(static, str) and (question := meant(static, names)):
        hint = question
    return ArrayValueError(f"static={static!r}: {what} has no such argument", hint=hint)


class Traced:
    """A function that is being written down: the values that stand for its arguments, and what is to be checked of their numbers when it runs."""

    def __init__(self, arguments: Sequence[Node]):
        self.thread = threading.get_ident()
        self.checks: list[tuple[Node, str]] = []
        self.steps: list[Written] = []
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

    def step(self, function: Callable[..., Any], nodes: Sequence[Node]) -> Any:
        """A call of a function of nodes as a step; see `steps.apart`."""
        made, complexes, several = step(function, nodes)
        self.steps.append(made)
        self._depends.update(dict.fromkeys(made.outs, True))
        results = tuple([_joined(n, pairs) for n, pairs in zip(made.outs, complexes)])
        return results if several else results[0]

    def follows(self, numbers: Node, what: str) -> None:
        """Raise where what is asked for follows from these numbers, and decides what is computed."""
        if self.depends(numbers):
            raise FromNumbersError(f"{what} follows from numbers", hint=_KEEP)

    def refuse(self) -> None:
        """Raise for a value whose number is asked for."""
        raise ArrayTypeError(_CONSTANT, hint=_INSTEAD)


def _reals(a: NDArray) -> NDArray:
    """An argument as kernels read it: complex numbers as pairs."""
    return as_pairs(a) if a.dtype in PART else a


def _joined(n: Node, pairs: bool) -> Node:
    """An argument or a step's result, which is pairs where it is complex."""
    return build.of_pairs(n) if pairs else n


@dataclass(frozen=True)
class _Static:
    """An argument that is part of the code."""

    value: Any

    def __post_init__(self) -> None:
        try:
            hash(self.value)
        except TypeError:
            raise ArrayTypeError(
                f"{kind_of(self.value)} as static argument of a function under tec.array.jit",
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


def jit(function: Any = None, /, *, static: int | str | Sequence[int | str] | Set[int | str] = ()) -> Any:
    """A function of arrays compiled whole: gradients, updates and all between become one graph, and later calls with arguments of the same shapes and types run no Python of it.

    Arguments and results are arrays, numbers, and dicts, lists and tuples of them; numbers are arrays of no dimensions inside. static: positions and names of arguments that
    are part of the code, such as a size. What the function reads from outside is a constant. Raises ArrayTypeError where it asks for a number that follows from an argument (`float(x)`, `if x > 0`): `xp.where` chooses by element.
    A function with shapes that follow from numbers (a mask as an index, `unique`) runs in pieces, its Python in each call, as a warning tells.

    >>> @xp.jit
    ... def step(w, x):
    ...     slope = tec.grad(lambda w: xp.sum((x @ w) ** 2))(w)
    ...     return w - 0.1 * slope
    >>> step(xp.ones(2), xp.eye(2)).tolist()
    [0.800000011920929, 0.800000011920929]
    """
    names = (static,) if isinstance(static, (int, str)) else static
    if not isinstance(names, (Sequence, Set)) or not all(isinstance(s, (int, str)) for s in names):
        raise ArrayTypeError(f"static={static!r}", hint="a position, a name, or a tuple of them: static=(1, 'axis')")
    if function is None:
        return lambda f: jit(f, static=names)
    if not callable(function):
        raise ArgumentError(f"jit of {kind_of(function)}, no function", hint="step = xp.jit(f), or @xp.jit above a def")
    return Jitted(function, tuple(names))


__all__ = ["Jitted", "Traced", "jit"]
