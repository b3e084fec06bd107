"""A module's functions as constant data and as entries: exported C functions of tensors and numbers.

A function's signature becomes a list of what a call looks at, in order (c/kernels.c): a size that a dimension gives, a size that is solved for, a dimension
or a stride that must equal an expression. The order follows `Checker.bind`, of which all but the numbers is known here. An entry gathers its
arguments in two arrays and calls `tec_call_kernel`; LLVM makes it. A function for a GPU has its launches as data (host_programs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..codegen import llvm_util
from ..codegen.cpu.build import machine_of
from ..errors import ArgumentError
from ..runtime.arrays.dtypes import dlpack_type, itemsize
from ..runtime.modules import exprs
from ..runtime.modules.arguments import Checker, Param
from ..runtime.modules.module import Module
from ..target import Target
from .data import Data, Name, Ref, Word
from .exprs import Exprs
from .features import required
from .gpu_tables import IMAGES_WORDS, Images
from .headers import identifier
from .host_programs import HostWords, whole_bits
from .tables import LAYOUT, MAGIC, code_symbol

_BIND, _CHECK, _SOLVE, _SET_ZERO = 0, 2, 4, 6
_VALUE = "\0value"  # in the environment: what an expression is solved for
_MOST_TENSORS, _MOST_NAMES = 64, 256
_LLVM_TYPES = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


class KernelTables:
    """The functions of a module, which may be built for several targets: a module for each. `functions`: (exported name, signature); `data`: what
    describes them. `takes_stream`: whether callers say in which stream of a GPU they work."""

    def __init__(self, modules: Sequence[Module], name: str):
        self.modules, self.name = modules, name
        self.data = Data()
        self.functions: list[tuple[str, Checker]] = []
        self.takes_stream = any(m.device_kind != "cpu" for m in modules)
        _check_same(modules)
        self._images = [Images(self.data, m.device_kind) if m.device_kind != "cpu" else None for m in modules]
        self._image_records = [self.data.record([None] * IMAGES_WORDS) if i is not None else None for i in self._images]
        for function in modules[0].specs:
            own = identifier(function)
            exported = own if own == name or own.startswith(f"{name}_") else f"{name}_{own}"
            self.data.define(_record_symbol(exported), self._function(function), hidden=True)
            self.functions.append((exported, modules[0][function].checker))
        for images, record in zip(self._images, self._image_records):
            for k, word in enumerate(images.words() if images is not None else ()):
                self.data.set(record, k, word)  # type: ignore[arg-type]
        self.data.define("tec_own_model", self.data.record([None]), weak=True)

    @property
    def target(self) -> str:
        """The targets, as the header says them."""
        return ", ".join(m.target for m in self.modules)

    def _function(self, function: str) -> Ref:
        data = self.data
        forms = [self._record(function, k) for k in range(len(self.modules))]
        return data.record([MAGIC, LAYOUT, data.text(function), data.text(self.target), len(forms), data.record(forms)])

    def _record(self, function: str, form: int) -> Ref:
        """The record of a function of a module: how its arguments are checked and bound, its code or its host program."""
        module = self.modules[form]
        checker = module[function].checker
        data, found = self.data, _Binding(checker)
        value = found.exprs.name(_VALUE)
        images = self._images[form]
        code: Word = None
        program: HostWords | None = None
        asserts = module[function].asserts
        if images is None:
            code = Name(code_symbol(function, form))
        else:
            steps, some = module.specs[function]["program"], module[function].module.imported_modules
            program = HostWords(checker, steps, found.exprs, lambda name: images.kernel(some, name))
            asserts = program.asserts
        if len(checker.tensors) > _MOST_TENSORS or len(found.exprs.names) > _MOST_NAMES:
            raise ArgumentError(
                f"{function} has {len(checker.tensors)} tensors and {len(found.exprs.names)} sizes",
                hint=f"a C function takes up to {_MOST_TENSORS} and {_MOST_NAMES}",
            )
        tensors = data.record([w for p in checker.tensors for w in self._tensor(p)])
        names = found.exprs.names
        scalar_env = [names.get(p.name, -1) for p in checker.scalars]
        binds = data.record([w for b in found.binds for w in b])
        implicit = data.numbers(found.exprs.name(n) for n in checker.implicit)
        prototype = f"{checker.prototype}, built for {module.target}"
        words = program.words if program is not None else []
        return data.record([
            code, data.text(module.target), data.text(function), data.text(prototype), *required(module.attrs, module.target).words(data),
            *found.exprs.words(data), value, len(checker.tensors), tensors,
            len(checker.scalars), data.numbers(scalar_env), data.numbers(whole_bits(p.dtype) for p in checker.scalars),
            len(found.binds), binds, len(checker.implicit), implicit, int(checker.alias_ok), len(asserts), data.texts(asserts),
            self._image_records[form], len(words), data.numbers(words), len(program.scratch) if program is not None else 0,
            None if program is None else Name("tec_kernel_gpu_api_1"),
        ])  # fmt: skip

    def _tensor(self, p: Param) -> list[Word]:
        code, bits = dlpack_type(p.dtype)
        return [self.data.text(p.name), code, bits, len(p.shape), int(p.writes), p.align, int(p.strides is not None)]

    def entries(self, host: str) -> bytes:
        """The object of the exported functions: for any processor of the architecture, as it runs before anybody asks what the processor has."""
        machine = machine_of(Target(f"llvm -mtriple={machine_of(Target(host or 'llvm')).triple}"))
        text = [f'target triple = "{machine.triple}"', "declare hidden i32 @tec_call_kernel(ptr, ptr, ptr, ptr, ptr)"]
        text += [line for exported, checker in self.functions for line in _entry(exported, checker, self.takes_stream)]
        if self.takes_stream:
            text += [
                "declare hidden void @tec_release_kernels()",
                f"define void @{self.name}_release() nounwind {{",
                "  call void @tec_release_kernels()",
                "  ret void",
                "}",
            ]
        made: bytes = llvm_util.compile_text("\n".join(text) + "\n", machine, "object", 1)
        return made


def _check_same(modules: Sequence[Module]) -> None:
    """ArgumentError where modules have other functions, or a function other parameters."""
    first = modules[0]
    for m in modules[1:]:
        if list(m.specs) != list(first.specs):
            raise ArgumentError(
                f"the module for {m.target} has the functions {', '.join(m.specs)}, that for {first.target} {', '.join(first.specs)}",
                hint="a library for several targets has the same functions for each",
            )
        for function in first.specs:
            one, other = (_facts(x[function].checker) for x in (first, m))
            if one != other:
                raise ArgumentError(
                    f"{m[function].checker.prototype}, built for {m.target}, has other parameters than {first[function].checker.prototype}, built for {first.target}",
                    hint="build the same definition for each target",
                )


def _facts(checker: Checker) -> Any:
    return [(p.name, p.is_tensor, p.dtype, p.shape, p.writes) for p in checker.params]


def _record_symbol(exported: str) -> str:
    return f"tec_kernel_{exported}"


class _Binding:
    """What a call looks at, in order: `Checker.bind` without the numbers."""

    def __init__(self, checker: Checker):
        self.checker = checker
        self.exprs = Exprs()
        self.binds: list[list[Word]] = []
        self.known = {p.name for p in checker.scalars if p.name in checker.shape_scalars or p.name in checker.implicit}
        for name in sorted(self.known):
            self.exprs.name(name)
        for name in checker.implicit:
            self.exprs.name(name)
        later = self._pass([(p, "shape", d, e) for p in checker.tensors for d, e in enumerate(p.shape)])
        for p in checker.tensors:
            if isinstance(p.offset, str):
                self._add(_SET_ZERO, p, "shape", 0, self.exprs.name(p.offset), 0)
                self.known.add(p.offset)
            later += self._pass([(p, "strides", d, e) for d, e in enumerate(p.strides or ())])
        while later:
            rest = self._pass(later, solve=True)
            if len(rest) == len(later):
                p, what, d, e = rest[0]
                raise ArgumentError(
                    f"{checker.function}: the {what} of {p} do not say what {', '.join(sorted(set(exprs.names(e)) - self.known))} is",
                    hint="give the size as an argument of its own",
                )
            later = rest

    def _add(self, op: int, p: Param, what: str, d: int, to: int, e: int) -> None:
        at = self.checker.tensors.index(p)
        self.binds.append([op + (what == "strides"), at, d, to, e])

    def _pass(self, sizes: list[tuple[Param, str, int, Any]], solve: bool = False) -> list[tuple[Param, str, int, Any]]:
        later = []
        for p, what, d, e in sizes:
            if solve and (found := _inverse(e, _VALUE, self.known)) is not None:
                name, inverse = found
                self._add(_SOLVE, p, what, d, self.exprs.name(name), self.exprs.add(inverse))
                self.known.add(name)
            if isinstance(e, str) and e not in self.known:
                self._add(_BIND, p, what, d, self.exprs.name(e), 0)
                self.known.add(e)
            elif all(n in self.known for n in exprs.names(e)):
                self._add(_CHECK, p, what, d, 0, self.exprs.add(e))
            else:
                later.append((p, what, d, e))
        return later


def _inverse(e: Any, value: Any, known: set[str]) -> tuple[str, Any] | None:
    """The one unknown name of an expression, and what it is where the expression equals `value`; see `exprs.solve`. A quotient with a rest is
    found wrong by the check that follows."""
    if isinstance(e, str):
        return None if e in known else (e, value)
    if not isinstance(e, (list, tuple)) or len(e) != 3:
        return None
    op, a, b = e
    unknown_a = any(n not in known for n in exprs.names(a))
    if unknown_a == any(n not in known for n in exprs.names(b)):
        return None
    inner, k = (a, b) if unknown_a else (b, a)
    if op == "add":
        return _inverse(inner, ["sub", value, k], known)
    if op == "sub":
        return _inverse(inner, ["add", value, k] if unknown_a else ["sub", k, value], known)
    if op == "mul":
        return _inverse(inner, ["floordiv", value, k], known)
    return None


# ---- entries


def _llvm_type(p: Param) -> str:
    if p.is_tensor or p.dtype == "handle":
        return "ptr"
    special: Mapping[str, str] = {"float32": "float", "float64": "double", "bool": "i1 zeroext"}
    return special.get(p.dtype) or _LLVM_TYPES[itemsize(p.dtype)] + _extension(p.dtype)


def _extension(dtype: str) -> str:
    """C's callers widen small numbers to 32 bits."""
    size = itemsize(dtype)
    if size >= 4:
        return ""
    return " signext" if dtype.startswith("int") else " zeroext"


def _entry(exported: str, checker: Checker, takes_stream: bool) -> list[str]:
    """LLVM IR of an exported function."""
    n_tensors, n_scalars = len(checker.tensors), len(checker.scalars) + len(checker.implicit)
    given = ", ".join(f"{_llvm_type(p)} %a{p.index}" for p in checker.params)
    lines = [
        f"@{_record_symbol(exported)} = external hidden constant i8",
        f"define i32 @{exported}({given}{', ' if given else ''}{'ptr %stream, ' * takes_stream}ptr %error) nounwind {{",
        f"  %tensors = alloca [{max(n_tensors, 1)} x ptr], align 8",
        f"  %scalars = alloca [{max(n_scalars, 1)} x i64], align 8",
    ]
    for k, p in enumerate(checker.tensors):
        lines += [f"  %t{k} = getelementptr ptr, ptr %tensors, i64 {k}", f"  store ptr %a{p.index}, ptr %t{k}"]
    for k, p in enumerate(checker.scalars):
        kind, at = _llvm_type(p).split()[0], f"%a{p.index}"
        if kind == "i1":
            lines.append(f"  %w{k} = zext i1 {at} to i8")
            kind, at = "i8", f"%w{k}"
        lines += [
            f"  %s{k} = getelementptr i64, ptr %scalars, i64 {k}",
            f"  store i64 0, ptr %s{k}",
            f"  store {kind} {at}, ptr %s{k}",
        ]
    call = f"call i32 @tec_call_kernel(ptr @{_record_symbol(exported)}, ptr %tensors, ptr %scalars, ptr {'%stream' if takes_stream else 'null'}, ptr %error)"
    return [*lines, f"  %status = {call}", "  ret i32 %status", "}"]
