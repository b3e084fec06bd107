"""The host program of a function for a GPU as words, which c/gpu_kernels.c runs: launches, scratch memory, loops, branches and conditions.

In: the steps of a signature's program (docs/architecture.md, "Runtime data"), and the environment that its expressions go over. Out: `HostWords`, whose
`words` hold each step as its operation, its number of words and its operands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ..runtime.arrays.dtypes import dlpack_type, itemsize, scalar_packer, struct_code
from ..runtime.devices.cuda_driver import MAP_TYPES
from ..runtime.modules import exprs
from ..runtime.modules.arguments import Checker
from ..runtime.modules.program import TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES
from .exprs import Exprs

_LAUNCH, _ALLOC, _FREE, _FOR, _IF, _ASSERT = range(6)
_BUFFER, _SCALAR, _SIZE, _CONSTANT, _MAP = range(5)
_MOST_SCRATCH, _MOST_ARGUMENTS, _ARGUMENT_BYTES = 64, 256, 4096  # as c/gpu_kernels.c


def whole_bits(dtype: str) -> int:
    """Of whole numbers the bits, negative where they have a sign; 0 for others."""
    code, bits = dlpack_type(dtype)
    return {0: -bits, 1: bits, 6: bits}.get(code, 0)


class HostWords:
    """See the module. kernel: a name's number among the kernels of the code. Raises ArgumentError for what only Python can run."""

    def __init__(self, checker: Checker, steps: Sequence[Any], env: Exprs, kernel: Callable[[str], int]):
        self.checker, self.env, self.kernel = checker, env, kernel
        self.scalars = {p.name: (k, p.dtype) for k, p in enumerate(checker.scalars)}
        self.slots = {p.name: k for k, p in enumerate(checker.tensors)}
        self.scratch: dict[str, int] = {}
        self.asserts: list[str] = []
        self.words = self._steps(steps)
        self._limit("pieces of scratch memory", len(self.scratch), _MOST_SCRATCH)

    def _limit(self, what: str, n: int, most: int) -> None:
        if n > most:
            raise ArgumentError(
                f"{self.checker.function} has {n} {what}", hint=f"a native library's function has up to {most}"
            )

    def _refuse(self, what: str) -> ArgumentError:
        return ArgumentError(
            f"{self.checker.function} cannot be in a native library: {what}", hint="save it as a package (.tecmod)"
        )

    # ---- steps

    def _steps(self, steps: Iterable[Any]) -> list[int]:
        make: Mapping[str, tuple[int, Callable[[Any], list[int]]]] = {
            "launch": (_LAUNCH, self._launch), "alloc": (_ALLOC, self._alloc), "free": (_FREE, self._free), "for": (_FOR, self._for), "if": (_IF, self._if),
            "assert": (_ASSERT, self._assert),
        }  # fmt: skip
        out: list[int] = []
        for step in steps:
            if step["op"] not in make:
                raise self._refuse("it calls a function of Python, or a vendor's library")
            op, words = make[step["op"]]
            operands = words(step)
            out += [op, 2 + len(operands), *operands]
        return out

    def _alloc(self, step: Any) -> list[int]:
        slot = self.scratch.setdefault(step["name"], len(self.scratch))
        self.slots[step["name"]] = len(self.checker.tensors) + slot
        return [slot, self._expr(step["size"]), itemsize(step["dtype"])]

    def _free(self, step: Any) -> list[int]:
        return [self.scratch[step["name"]]]

    def _for(self, step: Any) -> list[int]:
        return [
            self.env.name(step["var"]),
            self._expr(step["min"]),
            self._expr(step["extent"]),
            *self._steps(step["body"]),
        ]

    def _if(self, step: Any) -> list[int]:
        then, orelse = self._steps(step["then"]), self._steps(step.get("else") or [])
        return [self._expr(step["cond"]), len(then), *then, *orelse]

    def _assert(self, step: Any) -> list[int]:
        self.asserts.append(str(step["message"]))
        return [self._expr(step["cond"]), len(self.asserts) - 1]

    # ---- launches

    def _launch(self, step: Any) -> list[int]:
        geometry = [self._expr(e) for e in (*step["grid"], *step["block"], step.get("dyn_shared", 0))]
        offset, words = 0, list[int]()
        self._limit("arguments of a kernel", len(step["args"]), _MOST_ARGUMENTS)
        for a in step["args"]:
            is_map = "tensor_map" in a
            size = 8 if "buffer" in a else TENSOR_MAP_BYTES if is_map else itemsize(a["dtype"])
            align = TENSOR_MAP_ALIGN if is_map else size
            offset = -(-offset // align) * align
            words += self._argument(a, offset)
            offset += size
        self._limit("bytes of a kernel's arguments", offset, _ARGUMENT_BYTES)
        early = int(step.get("early") is True)
        return [self.kernel(step["kernel"]), early, *geometry, offset, len(step["args"]), *words]

    def _argument(self, a: Any, offset: int) -> list[int]:
        if "buffer" in a:
            return [_BUFFER, offset, self.slots[a["buffer"]], 64]
        if "tensor_map" in a:
            sizes, strides = ([self._expr(e) for e in a[key]] for key in ("sizes", "strides"))
            swizzle = int(a.get("swizzle") is not False)
            facts = [MAP_TYPES[a["dtype"]], len(sizes), itemsize(a["dtype"]), swizzle]
            return [_MAP, offset, self.slots[a["tensor_map"]], *facts, *sizes, *strides, *a["box"]]
        e, dtype = a["scalar"], a["dtype"]
        bits = whole_bits(dtype)
        if isinstance(e, str) and e in self.scalars and self.scalars[e][1] == dtype:
            return [_SCALAR, offset, self.scalars[e][0], 8 * itemsize(dtype)]
        if not any(True for _ in exprs.names(e)):
            value = scalar_packer(dtype)(exprs.evaluate(exprs.compile_expr(e), {}))
            return [_CONSTANT, offset, _as_word(value, dtype), 8 * itemsize(dtype)]
        if not bits:
            raise self._refuse(f"a kernel is given {exprs.text(e)}, a {dtype} that is worked out for each call")
        return [_SIZE, offset, self._expr(e), bits]

    def _expr(self, e: Any) -> int:
        for name in exprs.names(e):
            if name in self.scalars and not whole_bits(self.scalars[name][1]):
                raise self._refuse(f"{exprs.text(e)} is worked out from a {self.scalars[name][1]}")
        exprs.check_integral(e)
        return self.env.add(e)


def _as_word(packed: Any, dtype: str) -> int:
    """The bits of a packed number as a word with a sign."""
    return int.from_bytes(struct.pack("<" + struct_code(dtype), packed).ljust(8, b"\0"), "little", signed=True)
