"""A network's constants as it is built: nodes of the graph whose numbers are deferred (`tec.graph.deferred`), and the `Recipe`s that make them (`recipes`).

In: names of tensors, and what multiplies them. Code is compiled for sizes and formats alone, and serves every checkpoint of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..choices import layouts as preferred
from ..errors import ImportModelError
from ..graph import Value
from ..graph.builders import Builder
from ..ops.layouts import Layout
from ..ops.packed import Weights
from ..ops.registry import TensorType
from ..target import Target
from .blocks import FORMATS, WIDE_SCALES, Format
from .checkpoint import PackedTensor
from .recipes import Recipe
from .remedies import FETCH_AGAIN

# Codes of a block, of weights whose scales are of groups; where x is rounded to bytes a block at a time no more than ggml's formats have.
_LONGEST, _ROUNDED, _SHORTEST = 128, 32, 32
_HALVES = {"F16": "float16", "BF16": "bfloat16"}


def _refused(raw: Any) -> Any:
    """Codes of several tensors are read by the tensor itself."""
    raise NotImplementedError


class WeightBuilder:
    """Adds products with, and reads of, a checkpoint's tensors to a graph. tensors: by name; their shapes and formats are read, and no number."""

    def __init__(self, b: Builder, tensors: Mapping[str, PackedTensor], target: Target):
        self.b, self.tensors, self.target = b, tensors, target
        self.recipes: list[Recipe] = []
        self.slow: set[str] = set()  # formats that become floats
        self._vectors: dict[Any, Value] = {}
        self._rounded: dict[tuple[Value, int], list[Value]] = {}

    def has(self, name: str) -> bool:
        return name in self.tensors

    def tensor(self, name: str) -> PackedTensor:
        """ImportModelError where the checkpoint lacks it."""
        found = self.tensors.get(name)
        if found is None:
            raise ImportModelError(
                f"the checkpoint has no tensor {name!r}",
                hint="its architecture is another one, or a part of it is missing",
            )
        return found

    def vector(self, name: str, shape: Sequence[int], dtype: str = "float32", shift: float = 0.0) -> Value:
        """A tensor as numbers, plus `shift`."""
        self.check_count(name, shape)
        key = name, dtype, shift, tuple(shape)
        if key not in self._vectors:
            v = self._vectors[key] = self.b.graph.deferred(name, dtype, shape)
            attrs = {"dtype": dtype, "shape": list(shape), "shift": shift}
            self.recipes.append(Recipe("vector", (name,), {"data": v.name}, attrs))
        return self._vectors[key]

    def products(self, x: Value, names: Sequence[str], sizes: Sequence[int], beside: bool = False) -> list[Value]:
        """x [rows, k] times each tensor [size, k] transposed; those of one format in one product. Tensors of experts, [experts, size / experts, k], are their rows
        one below the other; `beside`: [experts, size, k / experts], their columns one beside the other. Raises ImportModelError where shapes differ."""
        k = x.shape[1]
        for name, n in zip(names, sizes):
            self.check_matrix(name, n, k, beside)
        groups: dict[Any, list[int]] = {}
        for j, name in enumerate(names):
            groups.setdefault(self._kind(name, self.tensor(name).shape[-1], x.dtype), []).append(j)
        out: dict[int, Value] = {}
        for kind, members in groups.items():
            own, widths = [names[j] for j in members], [sizes[j] for j in members]
            make = self._matrix if kind is None else self._packed
            y = make(x, own, sum(widths), {"beside": True} if beside else {})
            out.update(zip(members, self.b.split(y, 1, widths)))
        return [out[j] for j in range(len(names))]

    def check_matrix(self, name: str, n: int, k: int, beside: bool) -> None:
        """ImportModelError unless a tensor is a matrix [n, k], or experts' matrices that are one as `products` has them."""
        shape = tuple(self.tensor(name).shape)
        stands: tuple[int, ...] = shape
        if len(shape) == 3:
            stands = (shape[1], shape[0] * shape[2]) if beside else (shape[0] * shape[1], shape[2])
        if stands != (n, k) or (beside and len(shape) != 3):
            raise ImportModelError(
                f"tensor {name!r} has shape {shape}, the configuration says {(n, k)}", hint=FETCH_AGAIN
            )

    def check_count(self, name: str, shape: Sequence[int]) -> None:
        """ImportModelError unless a tensor has as many numbers as the shape."""
        t = self.tensor(name)
        if int(np.prod(t.shape)) != int(np.prod(shape)):
            raise ImportModelError(
                f"tensor {name!r} has shape {t.shape}, the configuration says {tuple(shape)}", hint=FETCH_AGAIN
            )

    def gathers(self, names: Sequence[str]) -> bool:
        """Whether products with the experts of these tensors read those that are chosen alone: on CPUs."""
        return not self.target.is_gpu and all(len(self.tensor(n).shape) == 3 for n in names)

    def chosen(self, x: Value, names: Sequence[str], places: Value, n: int) -> list[Value]:
        """x [rows, k] times matrices [n, k] of tensors [experts, n, k], transposed: of those experts that `places`, int64 [rows, chosen], has for each row. Each
        [rows * chosen, n], those of a row one below the other. Raises ImportModelError where shapes differ."""
        return [self._chosen(x, name, places, n) for name in names]

    def _chosen(self, x: Value, name: str, places: Value, n: int) -> Value:
        t, k, add = self.tensor(name), x.shape[1], self.b.graph.add
        experts = t.shape[0]
        if tuple(t.shape[1:]) != (n, k):
            raise ImportModelError(
                f"tensor {name!r} has shape {t.shape}, the configuration says {(experts, n, k)}", hint=FETCH_AGAIN
            )
        attrs: dict[str, Any] = {"experts": experts, "bits": 0, "depth": k, "columns": experts * n}
        panel = preferred.packed(self.target)
        if self._kind(name, k) is None or n % panel:
            # Floats of 16 bits stay as they are: they become x's type in registers.
            dtype = _HALVES.get(t.format.name, x.dtype) if self._stays_half(name, x.dtype) else x.dtype
            v = self.b.graph.deferred(name, dtype, (experts * n, k))
            how = "halves" if dtype != x.dtype else "matrix"
            self.recipes.append(Recipe(how, (name,), {"data": v.name}, {"dtype": dtype, "layout": "NK"}))
            return add("expert_matmul", [x, v, places], attrs, name, name)[0]
        constants, made = self._codes([name], k, experts * n, x.dtype)
        rounded = self._round(x, made) if made.get("group", 1) > 1 else None
        ins = [x if rounded is None else rounded[0], *constants, places, *([] if rounded is None else [rounded[1]])]
        y = add("expert_matmul", ins, {**attrs, **made}, name, name)[0]
        return y if y.dtype == x.dtype else self.b.cast(y, x.dtype)

    def _stays_half(self, name: str, dtype: str) -> bool:
        """Whether a tensor's floats of 16 bits stay as they lie: where a CPU multiplies numbers of float32 with them."""
        t = self.tensor(name)
        return t.format.name in _HALVES and t.values is None and dtype == "float32" and not self.target.is_gpu

    def _kind(self, name: str, k: int, dtype: str = "") -> Any:
        """What products of one kernel have in common: how codes are kept; None for floats of x's type. dtype: of x, where floats of 16 bits may be codes, which
        a CPU's registers make float32."""
        format = self.tensor(name).format.name
        if self._stays_half(name, dtype) and k % 4 == 0:
            return 16, k, 0.0, format
        f = self._format(name)
        # Blocks of 16 codes of 4 bits are half of what a GPU's lane loads at once: they are floats there.
        is_short = f is not None and self.target.is_gpu and f.step * self._bits(f) < 128
        if f is None or k % f.block or k % (32 // f.bits if f.bits != 6 else 8) or is_short:
            if format not in ("F32", "F16", "BF16"):
                self.slow.add(format)
            return None
        return self._bits(f), f.step, f.zero, format in WIDE_SCALES, self._has_small_zeros(name)

    def _has_small_zeros(self, name: str) -> bool:
        """Whether a tensor's zero points are whole numbers of a byte: those of codes of 4 bits, and one more."""
        t = self.tensor(name)
        return t.codes is not None and t.bits == 4

    def _format(self, name: str) -> Format | None:
        """How a tensor's codes lie; None where it has none. Of groups that are long blocks are parts: x is rounded to bytes a block at a time."""
        t = self.tensor(name)
        if t.codes is None:
            return FORMATS.get(t.format.name)
        step = math.gcd(t.group, _ROUNDED if preferred.packed_group(self.target) > 1 else _LONGEST)
        return Format(t.bits, t.group, 0, step, None, _refused) if t.bits in (4, 8) and step >= _SHORTEST else None

    def _bits(self, f: Format) -> int:
        """Of a code as it is kept."""
        return 8 if f.bits == 6 and not preferred.packed(self.target) else f.bits

    def _packed(self, x: Value, names: Sequence[str], n: int, lie: dict[str, Any]) -> Value:
        constants, attrs = self._codes(names, x.shape[1], n, x.dtype, lie)
        inputs = [x, *constants]
        if attrs.get("group", 1) > 1:
            rounded = self._round(x, attrs)
            inputs = [rounded[0], *constants, rounded[1]]
        y = self.b.graph.add("packed_matmul", inputs, attrs, names[0], names[0])[0]
        return y if y.dtype == x.dtype else self.b.cast(y, x.dtype)

    def _codes(
        self, names: Sequence[str], k: int, n: int, dtype: str, lie: Mapping[str, Any] | None = None
    ) -> tuple[list[Value], dict[str, Any]]:
        """Codes, scales and maybe zero points of tensors one below the other, and the attributes of a product with them."""
        name, format = names[0], self.tensor(names[0]).format.name
        if format in _HALVES and format not in FORMATS:
            w = Weights(16, k, preferred.packed(self.target), k, n, 0.0, 1, _HALVES[format])
            codes = self.b.graph.deferred(name, w.codes_dtype, w.codes_shape)
            made = {"bits": 16, "block": k, "panel": w.panel, "depth": k, "columns": n, "format": w.format}
            self.recipes.append(Recipe("packed", tuple(names), {"codes": codes.name}, {**made, **(lie or {})}))
            return [codes], made
        f = self._format(name)
        assert f is not None
        group = preferred.packed_group(self.target) if dtype == "float32" else 1
        w = Weights(self._bits(f), f.step, preferred.packed(self.target), k, n, f.zero or 0.0, group)
        scales = "float32" if self.tensor(name).format.name in WIDE_SCALES else "float16"
        constants = {"codes": self.b.graph.deferred(name, w.codes_dtype, w.codes_shape)}
        constants["scale"] = self.b.graph.deferred(f"{name}.scale", scales, w.scales_shape)
        if f.zero is None:
            zeros = "uint8" if self._has_small_zeros(name) else scales
            constants["zero"] = self.b.graph.deferred(f"{name}.zero", zeros, w.scales_shape)
        attrs: dict[str, Any] = {
            "bits": w.bits, "block": w.block, "panel": w.panel, "depth": k, "columns": n, "zero": w.zero, **({"group": group} if group > 1 else {}),
        }  # fmt: skip
        params = {role: v.name for role, v in constants.items()}
        self.recipes.append(Recipe("packed", tuple(names), params, {**attrs, **(lie or {}), "scales": scales}))
        return list(constants.values()), attrs

    def _round(self, x: Value, attrs: Mapping[str, Any]) -> list[Value]:
        """x in bytes, and their scales."""
        key = x, attrs["block"]
        if key not in self._rounded:
            self._rounded[key] = self.b.graph.add("round_blocks", [x], {"block": attrs["block"]}, x.name)
        return self._rounded[key]

    def _matrix(self, x: Value, names: Sequence[str], n: int, lie: dict[str, Any]) -> Value:
        k, dtype = x.shape[1], x.dtype
        out = TensorType(dtype, (x.shape[0], n))
        layout = preferred.product(
            self.target, x.type, TensorType(dtype, (n, k)), out, {"transpose_b": True}
        ).b or Layout("NK")
        attrs: dict[str, Any] = {"transpose_b": layout.name == "NK"}
        if layout.blocks:
            attrs |= {"layout_b": layout, "columns": n}
        v = self.b.graph.deferred(names[0], dtype, layout.shape({"N": n, "K": k}))
        made = {"dtype": dtype, "layout": layout.name, **lie}
        self.recipes.append(Recipe("matrix", tuple(names), {"data": v.name}, made))
        return self.b.graph.add("matmul", [x, v], attrs, names[0], names[0])[0]
