"""A network as constant data: its plan, its sizes and its weights, in the records of c/model.h.

In: a `Network` for a CPU. Out: `Data` that defines `tec_model_NAME` (a pointer to the model). What a run works out of a plan's `PlanLayout` is laid out
here as numbers, so that the C runtime needs no names but those it tells to callers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import PackageError
from ..runtime.arrays.dtypes import dlpack_type
from ..runtime.modules import exprs as text_of
from ..runtime.networks.network import Network
from ..runtime.plans.plan import Call, Choose, Exchange, Repeat, Step
from ..runtime.plans.plan import Output as PlanOutput
from .data import TABLES, Data, Name, Ref, Word, checksum
from .exprs import Exprs, begins
from .features import required
from .gpu_tables import DEVICE_TYPES, GpuTables

# Symbols: of the weights' first byte, of a word that gets the file's size.
WEIGHTS, FILE_BYTES = ("tec_weights", "tec_file_bytes")
_TABLES_AT, _FILE_BYTES_AT = 8, 15  # words of the record
MAGIC, LAYOUT = 0x6C65646F6D636574, 3
WEIGHT_ALIGN = 256  # bytes: what the arena's values get too
_STRETCH, _LOOP, _BRANCH = range(3)
_DAMAGED, _INVALID = 3, 1


def code_symbol(function: str, form: int = 0) -> str:
    """The symbol of a compiled function within a library; form: of which of its targets."""
    return f"tec_code{form or ''}_{function}"


def model_symbol(name: str) -> str:
    """The symbol of a network's model."""
    return f"tec_model_{name}"


class ModelTables:
    """See the module. `weights_file`: the name of the file beside the library; None where weights are in it, named by `weights_symbol`. `others`: the same
    network for other targets, each with `form` numbers of their own from 1 on."""

    def __init__(
        self, network: Network, name: str, weights_file: str | None = None, *, form: int = 0, others: Sequence[ModelTables] = ()
    ):  # fmt: skip
        self.network, self.plan, self.layout = network, network.plan, network._layout
        self.name, self.form, self.others = name, form, others
        self.data = Data()
        empty = frozenset(self.plan.empty)
        self.exprs = Exprs(lambda n: 0 if n in empty else 1)
        for size in self.plan.sizes:
            self.exprs.name(size)
        self.weights, self.weight_at = self._pack_weights()
        self.weights_file = weights_file
        same = [o.weights_symbol for o in others if np.array_equal(o.weights, self.weights)]
        self.weights_symbol: str = same[0] if same else f"{WEIGHTS}{form or ''}"
        imported = network.module.imported_modules
        self.device_type = DEVICE_TYPES.get(imported[0].kind, 0) if imported else 0  # 0: a CPU
        self.model = self._model()

    @property
    def record_symbol(self) -> str:
        """The symbol of the record of one of several targets."""
        return f"tec_form_{self.form}_{self.name}"

    # ---- weights

    def _pack_weights(self) -> tuple[Any, dict[str, int]]:
        at: dict[str, int] = {}
        end = 0
        for name, array in self.network.params.items():
            if name in self.layout.bases:
                at[name] = end = -(-end // WEIGHT_ALIGN) * WEIGHT_ALIGN
                end += int(array.nbytes)
        packed = np.zeros(end, np.uint8)
        for name, begin in at.items():
            raw = np.ascontiguousarray(np.asarray(self.network.params[name])).reshape(-1).view(np.uint8)
            packed[begin : begin + len(raw)] = raw
        return packed, at

    # ---- the record

    def _model(self) -> Ref:
        """The record of a model, as `tec_model` in the C sources has it: tables of inputs, outputs, states and steps first, then the numbers that say where
        they are."""
        data, plan, layout = self.data, self.plan, self.layout
        inputs = data.record([w for k in range(len(plan.inputs)) for w in self._input(k)])
        outputs = data.record([w for o in plan.outputs for w in self._output(o)])
        states = data.record([w for k in range(len(plan.states)) for w in self._state(k)])
        steps = data.record([w for k in range(len(plan.flat)) for w in self._step(k)])
        nodes = _Nodes(layout).words(plan.steps) if plan.holders else []
        gpu = GpuTables(self.network, data) if self.device_type else None
        device = gpu.record() if gpu is not None else None
        table = self._table()
        exprs = self.exprs.words(data)
        slot_begin, slot_rows = begins(self._slots())
        features = required(self.network.module.attrs, self.network.module.target)
        words: list[Word] = [
            MAGIC, LAYOUT, Name("tec_api_1"), data.text(self.name), data.text(self.network.module.target),
            *features.words(data), 0, 0, 0,
            None if self.weights_file is not None or not len(self.weights) else Name(self.weights_symbol), len(self.weights), checksum(self.weights),
            None if self.weights_file is None else data.text(self.weights_file), 0,
            *exprs, *table,
            len(plan.inputs), inputs, len(plan.outputs), outputs, len(plan.states), states,
            len(plan.values), data.numbers(layout.base_of), data.numbers(layout._offset_rows), self._value_slots(), data.numbers(layout._bytes),
            len(layout.bases), data.numbers(self.weight_at.get(b, -1) for b in layout.bases), data.numbers(self._own()),
            -1 if plan.is_open else layout._whole,
            len(slot_begin) - 1, data.numbers(slot_begin), data.numbers(slot_rows),
            len(layout._aligned), data.numbers(layout._aligned),
            len(layout._arguments), data.numbers(layout._arguments), layout.n_scalars, data.numbers(layout.scalar_rows),
            len(plan.flat), steps, len(nodes), data.numbers(nodes), device, Name("tec_gpu_api_1") if device is not None else None,
            len(self.others), data.record([Name(o.record_symbol) for o in self.others]),
        ]  # fmt: skip
        model = data.record(words)
        data.raw(b"", 8)
        data.set(model, _TABLES_AT, Ref(TABLES, 0))
        data.set(model, _TABLES_AT + 1, len(data.tables))
        data.set(model, _TABLES_AT + 2, checksum(bytes(data.tables)))
        if self.form:
            data.define(self.record_symbol, model, hidden=True)
            return model
        data.define(FILE_BYTES, data.word(model, _FILE_BYTES_AT), hidden=True)
        own = data.record([model])
        data.define(model_symbol(self.name), own)
        data.define("tec_own_model", own, weak=True)
        return model

    def _place(self, name: str, value: str, base: int | None, state: int, check: str | None) -> list[Word]:
        v, layout, data = self.plan.values[value], self.layout, self.data
        code, bits = dlpack_type(v.dtype)
        return [
            data.text(name), code, bits, len(v.shape),
            data.numbers(e if isinstance(e, int) else -1 for e in v.shape), data.texts([str(text_of.text(e)) for e in v.shape]),
            data.numbers(self.exprs.add(e) for e in v.shape), data.numbers(layout.shapes[value]),
            data.numbers(self.exprs.name(e) if isinstance(e, str) else -1 for e in v.shape),
            layout.names[value], -1 if base is None else base, state, None if check is None else data.text(check),
        ]  # fmt: skip

    def _base(self, value: str) -> int | None:
        own = self.plan.values[value].place in ("input", "output")
        return self.layout.bases.index(value) if own and value in self.layout.bases else None

    def _input(self, k: int) -> list[Word]:
        name = self.plan.inputs[k]
        state = next((j for j, s in enumerate(self.plan.states) if s.input == name), -1)
        return self._place(name, name, self._base(name), state, None)

    def _output(self, o: PlanOutput) -> list[Word]:
        state = next((j for j, s in enumerate(self.plan.states) if s.output == o.name), -1)
        base = self._base(o.value) if self.plan.values[o.value].place == "output" else None
        return self._place(o.name, o.value, base, state, o.check)

    def _state(self, k: int) -> list[Word]:
        s, plan = self.plan.states[k], self.plan
        at = plan.inputs.index(s.input)
        out = next(j for j, o in enumerate(plan.outputs) if o.name == s.output)
        if s.axis is None:
            return [at, out, -1, -1, -1, -1, self.layout.names[s.input]]
        size = str(plan.values[s.input].shape[s.axis])
        grown = self.exprs.add(plan.values[plan.outputs[out].value].shape[s.axis])
        return [at, out, s.axis, self.exprs.name(s.capacity), self.exprs.name(size), grown, self.layout.names[s.input]]

    def _step(self, k: int) -> list[Word]:
        step, (pointer, scalar) = self.plan.flat[k], self.layout.calls[k]
        if isinstance(step, Exchange):
            raise PackageError(
                f"a native library runs on one device, and the network has {step.kind} among {step.size} ranks",
                hint="compile the network without tec.shard",
            )
        if not isinstance(step, Call):
            return [None, pointer, scalar, self.data.text("copy"), 0, None]
        if self.device_type:
            return [None, pointer, scalar, self.data.text(step.function), 0, None]
        asserts = self.network.module[step.function].asserts
        return [
            Name(code_symbol(step.function, self.form)), pointer, scalar, self.data.text(step.function), len(asserts),
            self.data.texts(asserts),
        ]  # fmt: skip

    def _own(self) -> list[int]:
        """Outputs in name only, which nobody is given: by base, the value."""
        made = {o.value for o in self.plan.outputs if self.plan.values[o.value].place == "output"}
        of = [(b, self.plan.values[b].place if b else "") for b in self.layout.bases]
        return [self.layout.names[b] if place == "output" and b not in made else -1 for b, place in of]

    def _value_slots(self) -> Ref:
        of = self.layout._slot_of if self.plan.is_open else np.zeros(len(self.plan.values), np.int64)
        return self.data.numbers(np.asarray(of) - 1)

    def _slots(self) -> list[list[int]]:
        starts, members = self.layout._starts.tolist(), self.layout._members.tolist()
        return [members[a:b] for a, b in zip(starts, [*starts[1:], len(members)])]

    def _table(self) -> list[Word]:
        """The members of `tec_table`."""
        data, table = self.data, self.layout.table
        atoms = [self.exprs.add(e) for e in table.atom_expressions()]
        products, rows = table.sums()
        number = {m: k for k, m in enumerate(products)}
        product_begin, product_atoms = begins(products)
        row_begin, row_products = begins([[number[m] for m, _ in row] for row in rows])
        factors = [c for row in rows for _, c in row]
        limits = self.layout.limits.rows()
        texts = [_limit_text(wrong) for *_, wrong in limits]
        return [
            len(atoms), data.numbers(atoms), len(products), data.numbers(product_begin), data.numbers(product_atoms),
            len(rows), data.numbers(row_begin), data.numbers(row_products), data.numbers(factors),
            len(limits), data.numbers(x for row, least, most, _ in limits for x in (row, least, most)),
            data.texts([t for t, _ in texts]), data.numbers(s for _, s in texts),
        ]  # fmt: skip


class _Nodes:
    """Steps with loops and branches as words; see c/steps.c."""

    def __init__(self, layout: Any):
        self.layout, self.first, self.cells = layout, 0, 0

    def words(self, steps: Sequence[Step]) -> list[int]:
        out: list[int] = []
        plain = 0
        for step in (*steps, None):
            if isinstance(step, (Repeat, Choose)) or step is None:
                if plain:
                    out += [_STRETCH, 4, self.first, plain]
                    self.first += plain
                    plain = 0
                if step is not None:
                    out += self._loop(step) if isinstance(step, Repeat) else self._branch(step)
            else:
                plain += 1
        return out

    def _branch(self, step: Choose) -> list[int]:
        then, orelse = self.words(step.then), self.words(step.orelse)
        return [_BRANCH, 4 + len(then) + len(orelse), self.layout.names[step.condition], len(then), *then, *orelse]

    def _loop(self, step: Repeat) -> list[int]:
        """The rows of a step that repeats others: where its states and items are among the arguments of the steps inside."""
        layout, names, first = self.layout, self.layout.names, self.first
        cells = self.cells
        inner = _Nodes(layout)
        inner.first = first
        count = sum(1 for _ in _flat(step.steps))

        def taken(name: str) -> list[int]:
            return layout.arguments_in(frozenset([name]), first, count)  # type: ignore[no-any-return]

        states = [(names[c.now], names[c.after], taken(c.now), taken(c.after)) for c in step.carried]
        items = [(names[n], back, taken(n)) for n, back in step.items]
        places = sorted({x for *_, a, b in states for x in (*a, *b)} | {x for *_, a in items for x in a})
        at = {p: k for k, p in enumerate(places)}
        self.cells += len(places)
        inner.cells = self.cells
        body = inner.words(step.steps)
        self.first, self.cells = inner.first, inner.cells
        plain = not any(isinstance(s, (Repeat, Choose)) for s in step.steps)
        asked = [names[n] if n is not None else -1 for n in (step.count, step.start, step.going)]
        more = list(places)
        for a, b, now, after in states:
            more += [a, b, len(now), *(at[x] for x in now), len(after), *(at[x] for x in after)]
        for value, back, rows in items:
            more += [value, back, len(rows), *(at[x] for x in rows)]
        header = [
            first, count, int(plain), layout.trips.get(id(step), -1), *asked, cells, len(places), len(states), len(items)
        ]  # fmt: skip
        return [_LOOP, 2 + len(header) + len(more) + len(body), *header, *more, *body]


def _flat(steps: Sequence[Step]) -> list[Step]:
    out: list[Step] = []
    for s in steps:
        out += [x for part in s.parts for x in _flat(part)] if isinstance(s, (Repeat, Choose)) else [s]
    return out


_MARK = {"(sizes)": 0}  # in whose place the text of a limit has the real ones


def _limit_text(wrong: Callable[[int, Mapping[str, int]], Exception]) -> tuple[str, int]:
    """What a limit says, with \\1 where the sizes stand, and the status."""
    error = wrong(0, _MARK)
    text = (
        str(getattr(error, "message", error))
        .replace("(sizes) = 0", "\1")
        .replace("has 0 elements", "has too many elements")
    )
    return text, _DAMAGED if "damaged" in text else _INVALID
