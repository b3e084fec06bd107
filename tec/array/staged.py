"""The stages of a function that is compiled whole: graphs, and the calls between them (`steps`).

In: the values that are asked for, and the calls that were written down. Out: stages that read and write one list of arrays, the arguments first. A value
belongs to the stage behind as many calls as it needs; it is worked out there once, whoever reads it later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..records import dataclass
from ..runtime.arrays.dtypes import numpy_dtype
from ..runtime.arrays.ndarray import NDArray, array, empty
from ..runtime.devices.storage import ALIGN
from .complexes import as_complex, as_pairs, is_complex, woven
from .computing import bound_whole, in_memory
from .dtypes import PART
from .errors import ArrayValueError
from .node import Node, leaf
from .program import Bound
from .steps import unwritten
from .trace import Trace

# Of the size of what they read at most, or less work than a read of their result: they are made again by each stage that reads them.
_AGAIN = frozenset(("broadcast_to", "positions"))


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A call: its function of nodes, which of these are pairs of reals that stand for complex numbers, and the shapes and types of its results (complex ones as pairs)."""

    function: Callable[..., Any]
    woven: tuple[bool, ...]
    forms: tuple[tuple[tuple[int, ...], str], ...]

    def run(self, given: Sequence[NDArray]) -> list[NDArray]:
        """Its results, complex ones as pairs. Raises ArrayValueError where one has another form than the first time."""
        made = _arrays(self.function(*[leaf(as_complex(a) if w else a) for a, w in zip(given, self.woven)]))
        for a, (shape, kind) in zip(made, self.forms, strict=True):
            if (a.shape, a.dtype) != (shape, kind):
                raise ArrayValueError(
                    f"a result of {a.dtype}{list(a.shape)} in a function under tec.array.jit, which has code for {kind}{list(shape)}",
                    hint="call the function that makes it outside of jit: its shape follows from numbers",
                )
        return made


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A step while the function is written down: the nodes that it takes, and the leaves that stand for its results."""

    step: Step
    inputs: tuple[Node, ...]
    outs: tuple[Node, ...]


def step(function: Callable[..., Any], nodes: Sequence[Node]) -> tuple[Written, tuple[bool, ...], bool]:
    """The call, which of its results are complex, and whether it gives a tuple. Shapes and types are those of a call on numbers of the same shapes."""
    takes = tuple([woven(n) if n.data is None and is_complex(n) else n for n in nodes])
    with unwritten():
        made = function(*[leaf(array(_sample(n), n.device, n.dtype.name)) for n in nodes])
        results = made if isinstance(made, tuple) else (made,)
        outs = tuple([leaf(a) for a in _arrays(results)])
    done = Step(
        function, tuple([t is not n for t, n in zip(takes, nodes)]), tuple([(n.shape, n.dtype.name) for n in outs])
    )
    return Written(done, takes, outs), tuple([is_complex(n) for n in results]), isinstance(made, tuple)


def _arrays(made: Any) -> list[NDArray]:
    """The arrays of a call's results, complex ones as pairs, where vectors of any width may begin."""
    found = []
    for n in made if isinstance(made, tuple) else (made,):
        a = in_memory(n)
        a = as_pairs(a) if a.dtype in PART else a
        found.append(a if a.alignment == ALIGN else a.copyto(empty(a.shape, a.dtype, a.device)))
    return found


def _sample(n: Node) -> Any:
    """Numbers of a node's form. Square matrices are symmetric and positive definite, so that each has all factors."""
    rng, kind = np.random.default_rng(0), numpy_dtype(n.dtype.name)
    if kind.kind not in "fc":
        return np.zeros(n.shape, kind)
    made = rng.standard_normal(n.shape)
    if made.ndim > 1 and made.shape[-1] == made.shape[-2]:
        made = made @ np.swapaxes(made, -1, -2) + made.shape[-1] * np.eye(made.shape[-1])
    return made.astype(kind)


class Graph:
    """The values of a stage as one graph."""

    def __init__(self, bound: Bound, shapes: list[tuple[int, ...]]):
        self.bound, self.shapes = bound, shapes

    def run(self, given: Sequence[NDArray]) -> list[NDArray]:
        """The values, each of its shape."""
        made = self.bound.run(given)
        return [
            a if a.shape == s else NDArray(a.storage, a.address, s, a.dtype)
            for a, s in zip(made, self.shapes, strict=True)
        ]


class Stages:
    """Graphs and calls in order: `run` takes the arguments, and gives these and all that is made."""

    def __init__(self, constants: set[int], stages: list[tuple[Graph | Step, list[Any]]]):
        self.constants = constants  # storages that results may lie in without being theirs
        self.stages = stages  # each with what it reads: places in the list, and constants

    def run(self, given: Sequence[NDArray]) -> list[NDArray]:
        """All slots: the arguments, and what each stage makes."""
        slots = list(given)
        for stage, places in self.stages:
            slots += stage.run([slots[p] if type(p) is int else p for p in places])
        return slots


class Maker:
    """Makes stages of what was written down: `stages`, and in `slot` the place of each value among what they make."""

    def __init__(self, arguments: Sequence[Node], roots: Sequence[Node], steps: Sequence[Written]):
        self.slot: dict[Node, int] = {n: k for k, n in enumerate(arguments)}
        self.stages = Stages(set(), [])
        kept: list[tuple[Node, Any, Any]] = []
        try:
            self._make(roots, steps, kept)
        finally:
            for n, form, inputs in kept:
                n.data, n.form, n.inputs = None, form, inputs

    def _make(self, roots: Sequence[Node], steps: Sequence[Written], kept: list[Any]) -> None:
        behind = _levels(roots, steps)
        of = {out: s for s in steps for out in s.outs}
        used = list(dict.fromkeys(of[n] for n in behind if n in of))
        used.sort(key=steps.index)  # as they were written down: each before those that read it
        levels: dict[int, list[Written]] = {}
        for s in used:
            levels.setdefault(max(behind[n] for n in s.inputs), []).append(s)
        wanted: dict[int, dict[Node, None]] = {}

        def want(n: Node) -> None:
            if n.data is None:
                wanted.setdefault(behind[n], {})[n] = None

        def cross(n: Node, level: int) -> None:
            if n.data is None and behind[n] < level:
                if n.op in _AGAIN:
                    for i in n.inputs:
                        cross(i, level)
                else:
                    want(n)

        for n in (*roots, *[i for s in used for i in s.inputs]):
            want(n)
        for n, level in behind.items():
            if n.op not in _AGAIN:
                for i in n.inputs:
                    cross(i, level)
        for level in range(max([0, *wanted, *levels]) + 1):
            self._graph(list(wanted.get(level, ())), kept)
            for s in levels.get(level, ()):
                self._add(s.step, s.inputs, s.outs)

    def _graph(self, nodes: list[Node], kept: list[Any]) -> None:
        if not nodes:
            return
        trace = Trace(nodes)
        bound = bound_whole(trace, nodes[0].device)
        self.stages.constants.update(id(a.storage) for a in bound.consts.values())
        self._add(Graph(bound, [n.shape for n in nodes]), trace.leaves, nodes)
        for n in nodes:  # the next ones read it
            kept.append((n, n.form, n.inputs))
            n.settle(empty(n.shape, n.dtype.name, n.device))

    def _add(self, stage: Graph | Step, reads: Sequence[Node], makes: Sequence[Node]) -> None:
        places = [self.slot.get(n, n.data) for n in reads]
        self.stages.constants.update(id(p.storage) for p in places if isinstance(p, NDArray))
        self.stages.stages.append((stage, places))
        for n in makes:
            self.slot[n] = len(self.slot)


def _levels(roots: Sequence[Node], steps: Sequence[Written]) -> dict[Node, int]:
    """Of each value that is needed, how many calls stand behind one another before it."""
    of = {out: s for s in steps for out in s.outs}
    found: dict[Node, int] = {}
    stack = list(roots)
    while stack:
        n = stack[-1]
        step = of.get(n)
        before = n.inputs if step is None else step.inputs
        open_ = [i for i in before if i not in found]
        if open_ and n not in found:
            stack.extend(open_)
            continue
        found.setdefault(n, max([found[i] for i in before], default=0) + (step is not None))
        stack.pop()
    return found
