"""The launches of a network for a GPU as constant data: `tec_gpu` of c/model.h, which c/gpu.c walks.

`Images` is the code, which functions for GPUs have too (kernels.py). In: a `Network` for "rocm" or "cuda", whose plan is launches and copies, in loops and
branches or not. Out: the words of the record. What an executor's table of launches is filled with (`tec.runtime.plans.launches`) is laid out here as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, PackageError
from ..runtime.arrays.dtypes import itemsize
from ..runtime.devices.cuda_driver import MAP_TYPES
from ..runtime.modules.module import Module
from ..runtime.networks.network import Network
from ..runtime.plans.launches import Launches
from ..runtime.plans.plan import Call, Copy
from .data import Data, Ref, Word
from .exprs import begins

DEVICE_TYPES = {"cuda": 2, "rocm": 10}  # of DLPack
IMAGES_WORDS = 7  # of `tec_images`
_IMAGE_ALIGN = 4096  # bytes: a code object is an ELF file


class Images:
    """Code for a GPU and the kernels that are called of it: the members of `tec_images`."""

    def __init__(self, data: Data, kind: str):
        self.data, self.kind = data, kind
        self.modules: list[Module] = []
        self._kernels: dict[tuple[str, int], int] = {}

    def kernel(self, modules: Sequence[Module], name: str) -> int:
        """The number of a kernel that one of the modules has."""
        module = next((m for m in modules if name in m.attrs.get("kernels", ())), modules[0] if modules else None)
        if module is None or not module.image:
            raise PackageError(f"there is no code of kernel {name!r}")
        if module not in self.modules:
            self.modules.append(module)
        return self._kernels.setdefault((name, self.modules.index(module)), len(self._kernels))

    def words(self) -> list[Word]:
        """The record's words, once all kernels have been asked for. Behind an image stands a zero: PTX is a text."""
        data = self.data
        images = [data.raw(m.image + b"\0", _IMAGE_ALIGN) for m in self.modules]
        return [
            DEVICE_TYPES[self.kind], len(images), data.record(images),
            data.numbers(len(m.image) + 1 for m in self.modules), len(self._kernels), data.texts([n for n, _ in self._kernels]),
            data.numbers(m for _, m in self._kernels),
        ]  # fmt: skip


class GpuTables:
    """See the module. Its launches are rows of the layout's table of sizes: make it before the table is written."""

    def __init__(self, network: Network, data: Data):
        self.network, self.data = network, data
        self.launches: Launches = network._launches()
        self.code = Images(data, network.module.imported_modules[0].kind)

    def record(self) -> Ref:
        """The `tec_gpu`."""
        data, rows = self.data, self.launches.rows
        step_begin = self._steps()
        launches = data.record([w for row in rows for w in self._launch(row)])
        taken = self._of_launches([(8 * at, of) for at, of in self.launches.pointers.T.tolist()])
        pointer_begin, places = begins([[at for at, _ in some] for some in taken])
        addresses = [of for some in taken for _, of in some]
        maps = self.launches.maps
        map_begin, _ = begins([[m.begin for m in maps if m.launch == k] for k in range(len(rows))])
        numbers = [
            x for width, some in self.launches.numbers for at, row in some.T.tolist() for x in (at * width, width, row)
        ]
        scratch_begin, scratch = begins(self.launches.scratch_rows)
        words: list[Word] = [
            *self.code.words(), len(rows), launches, data.numbers(r for of in self.launches.geometry_rows for r in of),
            data.numbers(step_begin), data.numbers(isinstance(s, Copy) for s in self.network.plan.flat),
            self.launches.nbytes, data.numbers(pointer_begin), data.numbers(places), data.numbers(addresses),
            len(numbers) // 3, data.numbers(numbers), len(scratch_begin) - 1, data.numbers(scratch_begin), len(scratch), data.numbers(scratch),
            len(maps), data.record([w for m in maps for w in self._map(m)]), data.numbers(map_begin),
        ]  # fmt: skip
        return data.record(words)

    def _steps(self) -> list[int]:
        """Where the launches of each step begin, and their end."""
        called = {s for s in self.launches.sections if isinstance(s, int)}
        out = [0]
        for k, step in enumerate(self.network.plan.flat):
            if k in called and isinstance(step, Call):
                raise ArgumentError(
                    f"a native library cannot hold {step.function!r}: the program that launches its kernels has loops, or calls a function of Python (a vendor's library)",
                    hint="bind the sizes: shapes={name: size}; compile without libraries=True",
                )
            out.append(out[-1] + self.launches.per_step.get(k, 0))
        return out

    def _of_launches(self, pointers: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """What goes to a place among the arguments, by the launch whose arguments these are."""
        out: list[list[tuple[int, int]]] = [[] for _ in self.launches.rows]
        ends = [r.begin + r.nbytes for r in self.launches.rows]
        at = 0
        for place in sorted(pointers):
            while place[0] >= ends[at]:
                at += 1
            out[at].append(place)
        return out

    def _launch(self, row: Any) -> list[Word]:
        return [
            self._kernel(row.function, row.kernel), row.begin, row.nbytes, int(row.early), len(row.offsets), self.data.numbers(row.offsets),
        ]  # fmt: skip

    def _kernel(self, function: str, name: str) -> int:
        return self.code.kernel(self.network.module[function].module.imported_modules, name)

    def _map(self, m: Any) -> list[Word]:
        of, data = m.of, self.data
        return [
            m.begin, m.address, MAP_TYPES[of.dtype], len(m.sizes), itemsize(of.dtype), int(of.swizzle),
            data.numbers(m.sizes), data.numbers(m.strides), data.numbers(of.box),
        ]  # fmt: skip
