"""Function: one compiled function of a module, with the quick way through its argument check.

What a call needs depends on the arguments' layouts (dtype, shape, strides, device, writability, alignment) and on the
scalars that sizes depend on. The first call with given layouts checks everything and keeps a plan; further calls find
the plan with one dictionary look-up, check that outputs share no memory with other arguments, pack, and go.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DeviceError, TecError
from ..arrays.dtypes import itemsize, struct_code
from ..arrays.ndarray import NDArray
from ..devices import device as devices
from ..devices.device import Device
from .arguments import Checker, place_of
from .execution import execute
from .package import damaged
from .program import BoundProgram, HostProgram, prepared

if TYPE_CHECKING:
    from .module import Module

_MAX_PLANS = 512
_OUT_OF_MEMORY = -1  # what CPU code returns when tec_alloc has none
_NO_TILES = -2  # and where the system grants no tile registers
_NEVER = object()  # no argument of a call
_Pair = tuple[int, int]
# Numbers that `struct` packs as they are given, by the type that code takes.
_AS_THEY_ARE: dict[str, tuple[type, ...]] = {
    "float32": (float, np.float32), "float64": (float, np.float64), "int32": (int, np.int32), "int64": (int, np.int64), "bool": (bool,),
}  # fmt: skip


class Function:
    """A function of a module: call it with its tensors and scalars, outputs included, in the order of the signature.

    >>> A = tec.placeholder((4,), name="A")
    >>> B = tec.compute((4,), lambda i: A[i] * 2.0, name="B")
    >>> module = tec.build(tec.create_schedule(B.op), [A, B], "llvm", name="twice")
    >>> twice = module["twice"]
    >>> b = tec.nd.array(np.zeros(4, "float32"))
    >>> twice(np.ones(4, "float32"), b)
    >>> b.numpy()
    array([2., 2., 2., 2.], dtype=float32)
    """

    def __init__(self, module: Module, name: str, spec: dict[str, Any]):
        self.module = module
        self.name = name
        self.kind = module.device_kind
        self.checker = Checker(name, spec.get("signature"), self.kind)
        asserts = spec.get("asserts") or []
        if not isinstance(asserts, (list, tuple)) or not all(isinstance(a, str) for a in asserts):
            raise damaged(f"the conditions of {name!r} are no texts")
        self.asserts: list[str] = list(asserts)
        self.program: HostProgram | None = None
        steps = spec.get("program")
        if steps is not None:
            self.program = HostProgram(
                name,
                steps,
                [p.name for p in self.checker.tensors],
                [(p.name, p.dtype) for p in self.checker.scalars],
                {*self.checker.implicit, *(p.offset for p in self.checker.tensors if isinstance(p.offset, str))},
            )
        # Scalars that sizes depend on: their values belong to a plan's key.
        sizes = self.checker.shape_scalars | (self.program.key_scalars if self.program is not None else set())
        self._key_at = [p.index for p in self.checker.scalars if p.name in sizes]
        self._tensor_at = [p.index for p in self.checker.tensors]
        self.plans: dict[Any, Any] = {}
        self.apart = self._pairs()
        self._by_numbers: dict[Any, BoundProgram] = {}
        self._call: Callable[..., None] = self._make_gpu_call() if self.program is not None else self._make_cpu_call()

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __repr__(self) -> str:
        return f"<tec.Function {self.prototype} on {self.kind}>"

    @property
    def prototype(self) -> str:
        """The signature in one line."""
        return self.checker.prototype

    # ---- shared by both kinds

    def _pairs(self) -> list[_Pair]:
        """Pairs of tensors that must not overlap, by their place among the tensors; only a few are checked each call."""
        if self.checker.alias_ok:
            return []
        tensors = self.checker.tensors
        return [
            (i, j)
            for i, p in enumerate(tensors)
            for j, q in enumerate(tensors)
            if i != j and p.writes and not (q.writes and j < i)
        ]

    def _key(self, args: Sequence[Any]) -> Any:
        """What a plan depends on. Raises AttributeError where an argument is no NDArray."""
        key: list[Any] = [args[i].layout for i in self._tensor_at]
        key += [args[i] for i in self._key_at]
        return tuple(key)

    def _known(self, args: Sequence[Any]) -> Any:
        """The plan of converted arguments that look like earlier ones'."""
        try:
            return self.plans.get(self._key([_hashable(a) for a in args]))
        except (AttributeError, TypeError):
            return None

    def _remember(self, args: Sequence[Any], plan: Any) -> None:
        if len(self.plans) >= _MAX_PLANS:
            self.plans.clear()
        self.plans[self._key([_hashable(a) for a in args])] = plan

    def _spans(self, args: Sequence[Any]) -> list[int]:
        """Bytes from the first element on that each tensor may touch; no bound where a view runs backwards."""
        spans = []
        for p in self.checker.tensors:
            a: NDArray = args[p.index]
            if a.size and min(a.strides, default=0) < 0:
                return [1 << 62] * len(self.checker.tensors)
            reach = sum((n - 1) * s for n, s in zip(a.shape, a.strides)) + 1 if a.size else 0
            spans.append(reach * itemsize(a.dtype))
        return spans

    # ---- CPU

    @property
    def _pack_scalars(self) -> Callable[..., bytes]:
        """CPU code's block of scalars, of the explicit ones and then the implicit ones."""
        slots = "".join(_slot(p.dtype) for p in self.checker.scalars)
        return struct.Struct(f"<{slots}{'q' * len(self.checker.implicit)}").pack

    def _prepared(self, args: Sequence[Any], code: list[Any]) -> list[Any]:
        """Check the arguments in full, and keep what follows from their layouts; the function's code where there is none yet."""
        checker = self.checker
        checker.device(args)
        env = checker.bind(args)
        if not code:
            code.append(self.module.cpu_function(self.name))
        implicit = tuple(int(env[n]) for n in checker.implicit)
        fixed = b"" if checker.scalars else self._pack_scalars(*implicit)
        plan = [fixed, implicit, self._spans(args), _kept(b"", [_NEVER] * len(checker.scalars))]
        self._remember(args, plan)
        return plan

    def _make_cpu_call(self) -> Callable[..., None]:
        """The call: a closure over all it needs. The ABI is `int32 f(void** buffers, int64_t* scalars)`."""
        checker, pairs, tensor_at, cpu0 = self.checker, self._pairs(), self._tensor_at, devices.cpu(0)
        scalars, scalar_at = [(p.index, p) for p in checker.scalars], [p.index for p in checker.scalars]
        pack_pointers, pack_scalars = struct.Struct(f"={len(checker.tensors)}Q").pack, self._pack_scalars
        code: list[Any] = []

        def run(args: Sequence[Any], plan: list[Any]) -> None:
            fixed, implicit, spans, last = plan
            pointers = [args[i].address for i in tensor_at]
            for i, j in pairs:
                if pointers[i] < pointers[j] + spans[j] and pointers[j] < pointers[i] + spans[i]:
                    checker.overlap(args)
            if scalars:
                values = [args[i] for i in scalar_at]
                fixed, known = last
                if not all(map(is_, values, known)):
                    fixed = pack_scalars(*[checker.scalar(p, args[i]) for i, p in scalars], *implicit)
                    plan[3] = _kept(fixed, values)
            if cpu0.profile is not None:
                status = cpu0.profile.call(cpu0, self.name, lambda: code[0](pack_pointers(*pointers), fixed))
            else:
                status = code[0](pack_pointers(*pointers), fixed)
            if status:
                self.failed(status)

        def slow(args: Sequence[Any]) -> None:
            converted, after = checker.convert(args)
            run(converted, self._known(converted) or self._prepared(converted, code))
            for step in after:
                step()

        return self._by_layouts(run, slow) if scalars else self._by_places(code, pack_pointers, pairs, slow)

    def _by_layouts(self, run: Callable[..., None], slow: Callable[..., None]) -> Callable[..., None]:
        """The call of a function that takes numbers: with what is planned for such arguments, or the slow way, which plans it."""
        plans, n_args = self.plans, len(self.checker.params)

        def call(*args: Any) -> None:
            if len(args) == n_args:
                try:
                    plan = plans.get(self._key(args))
                except (AttributeError, TypeError):
                    plan = None
                if plan is not None:
                    run(args, plan)
                    return
            slow(args)

        return call

    def _by_places(self, code: list[Any], pack_pointers: Any, pairs: Any, slow: Any) -> Callable[..., None]:
        """The call of a function that takes arrays alone."""
        plans, cpu0 = self.plans, devices.cpu(0)

        def call_tensors(*args: Any) -> None:
            try:
                places = [place_of(a) if type(a) is np.ndarray else a.place for a in args]
                pointers, layouts = zip(*places)
                plan = plans.get(layouts)
            except (AttributeError, TypeError, ValueError):  # objects or arrays that have no place; no arguments
                plan = None
            if plan is None:
                slow(args)
                return
            fixed, _, spans, _ = plan
            for i, j in pairs:
                if pointers[i] < pointers[j] + spans[j] and pointers[j] < pointers[i] + spans[i]:
                    slow(args)  # which finds it again, and says it
                    return
            if cpu0.profile is not None:
                status = cpu0.profile.call(cpu0, self.name, lambda: code[0](pack_pointers(*pointers), fixed))
            else:
                status = code[0](pack_pointers(*pointers), fixed)
            if status:
                self.failed(status)

        return call_tensors

    def quick(self, args: Sequence[Any], fixed: int) -> Callable[[list[int], list[Any]], bool] | None:
        """A call on the CPU with arrays of these layouts and numbers of these types, whose last `fixed` numbers stay what they are. It takes the arrays' addresses
        and the other numbers, and gives False where it has not run: arrays share memory, or a number is to be converted. None where the numbers that change
        say more than their values, or are of types that need converting."""
        checker = self.checker
        scalars = checker.scalars
        changing = scalars[: len(scalars) - fixed]
        if self.program is not None or any(p.index in self._key_at for p in changing):
            return None
        if any(type(args[p.index]) not in _AS_THEY_ARE.get(p.dtype, ()) for p in changing):
            return None
        env = checker.bind(args)
        same = [checker.scalar(p, args[p.index]) for p in scalars[len(scalars) - fixed :]]
        same += [int(env[n]) for n in checker.implicit]
        spans, pairs = self._spans(args), self._pairs()
        code, failed = self.module.cpu_function(self.name), self.failed
        pack_pointers = struct.Struct(f"={len(checker.tensors)}Q").pack
        pack_scalars = self._pack_scalars
        block = b"" if changing else pack_scalars(*same)

        def run(pointers: list[int], numbers: list[Any]) -> bool:
            for i, j in pairs:
                if pointers[i] < pointers[j] + spans[j] and pointers[j] < pointers[i] + spans[i]:
                    return False
            try:
                scalars = pack_scalars(*numbers, *same) if numbers else block
            except (struct.error, OverflowError):  # 1e300 as a float32
                return False
            status = code(pack_pointers(*pointers), scalars)
            if status:
                failed(status)
            return True

        return run

    def failed(self, status: int) -> None:
        """Raise what a status of its CPU code means."""
        if 0 < status <= len(self.asserts):
            raise TecError(f"{self.name}: {self.asserts[status - 1]}")
        if status == _OUT_OF_MEMORY:
            raise DeviceError(
                f"{self.name}: no memory for the function's workspace",
                hint="run a smaller batch, or give the function less to keep: compute_at makes intermediate results smaller",
            )
        if status == _NO_TILES:
            raise DeviceError(
                f"{self.name}: the system does not let this process use the CPU's tile registers (AMX)",
                hint='build for the CPU without them: "llvm -mattr=-amx-bf16,-amx-int8"',
            )
        raise TecError(
            f"{self.name}: assertion {status - 1} in the compiled function failed",
            hint="the arguments break a condition that the program states; build with sources kept to see which",
        )

    # ---- GPU

    def _make_gpu_call(self) -> Callable[..., None]:
        """The call of a GPU function: find or make the plan, fill the slots, run the launches."""
        if not self.checker.scalars and len(self.checker.tensors) == len(self.checker.params):
            return self._make_tensor_call()
        return self._by_layouts(self._gpu_run, self._gpu_slow)

    def _make_tensor_call(self) -> Callable[..., None]:
        """The call of a GPU function of tensors alone: the arrays of the call before, or others in their places, go straight to the launches."""
        plans, run = self.plans, self._gpu_run
        # Of a call that could: the arrays' places, the device, their addresses, the launches.
        last: Any = (None, None, (), ())

        def call(*args: Any) -> None:
            nonlocal last
            try:
                places = [a.place for a in args]
            except AttributeError:
                self._gpu_slow(args)
                return
            before, device, values, launches = last
            if places == before and device.profile is None and device.capturing is None:
                stream = device.local.stream
                for go in launches:
                    go(values, stream)
                return
            found = plans.get(tuple([a.layout for a in args]))
            if found is None:
                self._gpu_slow(args)
                return
            device, plan, _ = found
            values = [a.address for a in args]
            if (
                values != plan.apart
                or plan.prepared is None
                or device.profile is not None
                or device.capturing is not None
            ):
                run(args, found)
            elif plan.scratch:
                self.launch(device, plan, values)
            else:
                last = places, device, values, plan.prepared
                stream = device.local.stream
                for go in plan.prepared:
                    go(values, stream)

        return call

    def _gpu_slow(self, args: Sequence[Any]) -> None:
        """A call with arguments that need checking, converting, or a plan."""
        converted, after = self.checker.convert(args)
        self._gpu_run(converted, self._known(converted) or self._gpu_prepare(converted))
        for step in after:
            step()

    def _gpu_prepare(self, args: Sequence[Any]) -> tuple[Device, BoundProgram, list[int]]:
        """Check the arguments in full; their device, the plan for their sizes and how far each reaches."""
        program = self.program
        assert program is not None
        device = self.checker.device(args)
        if device is None:
            device = devices.without_arrays(self.kind)
        env = self.checker.bind(args)
        for p in self.checker.tensors:
            if isinstance(p.offset, str):
                env.setdefault(p.offset, 0)
        plan = program.specialise(env, lambda kernel: self.module.kernel(device, kernel))
        plan.prepared = prepared(device, plan, len(self.checker.params))
        found = (device, plan, self._spans(args))
        self._remember(args, found)
        return found

    def _gpu_run(self, args: Sequence[Any], found: tuple[Device, BoundProgram, list[int]]) -> None:
        """Check that outputs share no memory with other arguments, and run the launches."""
        device, plan, spans = found
        checker = self.checker
        values = [args[p.index].address for p in checker.tensors]
        if values != plan.apart:
            for i, j in self.apart:
                if values[i] < values[j] + spans[j] and values[j] < values[i] + spans[i]:
                    checker.overlap(args)
            plan.apart = values
        if checker.scalars:
            values = values + [checker.scalar(p, args[p.index]) for p in checker.scalars]
        if device.capturing is not None:
            device.capturing.keep.append([args[p.index].storage for p in checker.tensors])
        self.launch(device, plan, values)

    def planned(
        self, device: Device, numbers: tuple[Any, ...], shapes: Sequence[tuple[int, ...]] = ()
    ) -> BoundProgram | None:
        """The plan of a call with these scalars, for `launch` by a caller that knows that its arrays fit them: it is found without arrays. None where a
        plan follows from more of the arrays than their `shapes`, which may be left out where all sizes are scalars."""
        key = device, numbers, tuple(shapes)
        found = self._by_numbers.get(key)
        if found is None:
            checker, program = self.checker, self.program
            names = [p.name for p in checker.scalars]
            if program is None or len(numbers) != len(names):
                return None
            if any(isinstance(p.offset, str) for p in checker.tensors):
                return None
            env = {p.name: checker.scalar(p, n) for p, n in zip(checker.scalars, numbers)}
            for p, shape in zip(checker.tensors, shapes):
                env.update({e: n for e, n in zip(p.shape, shape) if isinstance(e, str)})
            if not set(checker.implicit) <= set(env):
                return None
            found = program.specialise(env, lambda kernel: self.module.kernel(device, kernel))
            found.prepared = prepared(device, found, len(checker.params))
            if len(self._by_numbers) >= _MAX_PLANS:
                self._by_numbers.clear()
            self._by_numbers[key] = found
        return found

    def plan_of(self, args: Sequence[Any], last: int) -> BoundProgram | None:
        """The plan of a call that was made with these arrays and numbers, for `launch` with others of the same shapes; None where it follows from more than the
        shapes and the `last` numbers."""
        known = range(len(args) - last, len(args))
        if self.program is None or any(k not in known for k in self._key_at):
            return None
        found = self._known(args)
        return None if found is None else found[1]

    def machine_code(self, numbers: Sequence[Any]) -> tuple[Callable[[bytes, bytes], int], bytes] | None:
        """The CPU code of a call with these scalars, and the block that they are: for a caller that knows that its arrays fit them, and packs their addresses
        in the order of the tensors. None where numbers follow from the arrays' shapes. What the code returns other than 0 goes to `failed`."""
        checker = self.checker
        names = [p.name for p in checker.scalars]
        if self.kind != "cpu" or not set(checker.implicit) <= set(names) or len(numbers) != len(names):
            return None
        packed = [checker.scalar(p, n) for p, n in zip(checker.scalars, numbers)]
        env = dict(zip(names, packed))
        return self.module.cpu_function(self.name), self._pack_scalars(
            *packed, *[int(env[n]) for n in checker.implicit]
        )

    def launch(self, device: Device, plan: BoundProgram, values: list[Any]) -> None:
        """Run the launches of a plan on addresses, in the order of the tensors, with the scalars behind them."""
        program = self.program
        assert program is not None
        try:
            if plan.prepared is not None and device.profile is None:
                if plan.scratch:
                    _launch_with_scratch(device, plan, values)
                    return
                stream = device.local.stream
                for go in plan.prepared:
                    go(values, stream)
            elif plan.entries is not None and plan.launches_only and device.profile is None:
                launch, stream = device.driver.launch, device.local.stream  # type: ignore[union-attr]
                for _, function, grid, block, shared, pack, getter, _ in plan.entries:
                    launch(function, grid, block, shared, pack(*getter(values)), stream)
            else:
                steps = plan.entries
                if steps is None:
                    steps = program.walk(plan.env, lambda k: self.module.kernel(device, k))  # type: ignore[assignment]
                execute(device, steps or [], values + [0] * (program.n_slots - len(values)))
        except struct.error as error:
            raise DeviceError(f"{self.name}: kernel arguments do not fit their types: {error}") from None


def _launch_with_scratch(device: Device, plan: BoundProgram, values: list[Any]) -> None:
    allocator, stream = device.allocator, device.local.stream
    assert allocator is not None and plan.prepared is not None
    held: list[int] = []
    try:
        for nbytes in plan.scratch:
            held.append(allocator.alloc(nbytes))
        given = values + held
        for go in plan.prepared:
            go(given, stream)
    finally:
        for address in held:  # on one stream what comes next comes behind these launches
            allocator.free(address)


def _kept(block: bytes, values: list[Any]) -> tuple[bytes, list[Any]]:
    """A block of scalars for the next call with the same objects, which have the same bits: where they are of types that cannot change."""
    return block, values if all(type(v) in (int, float, bool) for v in values) else [_NEVER] * len(values)


def _hashable(a: Any) -> Any:
    """A scalar argument as a key: NumPy's are hashable, and a 0-d array becomes its element. One of several elements is no key: it is refused later."""
    return a if isinstance(a, NDArray) or not hasattr(a, "item") else a.item() if a.size == 1 else _NEVER


def _slot(dtype: str) -> str:
    """The struct code of a scalar in an 8-byte slot: integers widened, floats as their bits in the low end."""
    code = struct_code(dtype)
    if code in "bhiq":
        return "q"
    if code in "BHIQ?" and dtype not in ("bfloat16",):
        return "Q"
    return code + {2: "6x", 4: "4x", 8: "", 1: "7x"}[itemsize(dtype)]
