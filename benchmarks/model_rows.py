"""Published timings of AMD GPU kernels (`amd_rows`), as rows to fit a time model by and to judge it by.

`rows()` gives them all. A row's `shape` decides once whether it is judged: a third, by a hash of it, so that a shape is on one side on every chip and in every type. No
constant of the model may be chosen by a judged row; `benchmarks/amd_model.py` shows both sides apart.

The data: `amd_rows/README.md`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "amd_rows"
# (chip, compute units) -> the product whose figures stand for it, where a source names several or none.
PRODUCTS = {
    ("gfx942", 304): "MI300X", ("gfx942", 80): "MI308X", ("gfx950", 256): "MI355X", ("gfx90a", 104): "MI210", ("gfx90a", 110): "MI250X", ("gfx908", 120): "MI100",
    ("gfx906", 64): "MI60", ("gfx906", 60): "MI50", ("gfx1030", 72): "RX 6800 XT", ("gfx1100", 96): "RX 7900 XTX", ("gfx1102", 32): "RX 7600",
    ("gfx1151", 40): "Radeon 8060S",
}  # fmt: skip
# Words in the paths of tuners' files whose times hold a part of a launch: Tensile's logic (rocBLAS's and hipBLASLt's kernels) and PyTorch's TunableOp (whichever library it chose).
LAUNCHES = ("Logic/", "tunableop")


@dataclass(frozen=True, slots=True)
class Row:
    """One published time. `sizes`: of a product (m, n, k, batch), of a convolution (n, c, h, w, k, r, s, stride, pad), of attention and its gradient (batch, heads, heads of keys, places, size), of a
    mixture of experts (tokens, dimension, inner dimension, experts, choices of a token).
    `kernel`: the code object that was timed, where its source names it; `splits` of the sum over k. `warm`: the same buffers were used again and again. `launched`: the time holds a part of a
    launch (`LAUNCHES`)."""

    op: str
    chip: str
    product: str
    dtype: str
    out: str
    sizes: tuple[int, ...]
    us: float
    impl: str
    warm: bool
    kernel: str = ""
    splits: int = 1
    turned: str = "NT"
    causal: bool = False
    note: str = ""
    launched: bool = False

    @property
    def shape(self) -> str:
        """What is the same of all rows on one problem."""
        return f"{self.op} {'x'.join(map(str, self.sizes))}"

    @property
    def judged(self) -> bool:
        return hashlib.sha256(self.shape.encode()).digest()[0] % 3 == 0

    @property
    def kind(self) -> str:
        """Under which a report counts it: products with up to 64 rows or columns are skinny; "split" where the kernel's sum is in parts."""
        if self.op != "product":
            return f"causal {self.op}" if self.causal else self.op
        if self.splits > 1:
            return "split product"
        return "skinny product" if min(self.sizes[:2]) <= 64 else "product"


def _table(name: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(lzma.decompress((FOLDER / f"{name}.csv.xz").read_bytes()).decode()))


def _kernel(words: str) -> tuple[str, int]:
    """The code object's name and its splits in "_ZN5aiter41I8gemm_bf16_perTokenI8_BpreShuffle_16x128E splitK=1"."""
    found = re.match(r"_ZN5aiter\d+(\w+)E(?: splitK=(\d+))?$", words)
    return (found[1], max(1, int(found[2] or 1))) if found else ("", 1)


def _products() -> Iterator[Row]:
    for r in _table("products"):
        kernel, splits = _kernel(r["kernel"])
        sizes = tuple(int(r[x]) for x in ("m", "n", "k", "batch"))
        dtype = r["dtype_a"] if r["dtype_a"] == r["dtype_b"] else f"{r['dtype_a']}x{r['dtype_b']}"
        warm = "ROCm/aiter" not in r["source"]
        yield Row(
            "product", r["chip"], PRODUCTS[r["chip"], int(r["cus"])], dtype, r["dtype_c"], sizes, float(r["us"]), r["impl"], warm, kernel, splits,
            r["transA"] + r["transB"], False, r["note"], any(word in r["source"] for word in LAUNCHES),
        )  # fmt: skip


def _attention() -> Iterator[Row]:
    for r in _table("kernels"):
        back = r["op"] == "attention_bwd"
        if (r["op"] != "attention_fwd" and not back) or not r["us"]:
            continue
        at = dict(x.split("=") for x in r["shape"].split(";"))
        if at["seq_q"] != at["seq_kv"]:
            continue
        sizes = tuple(int(at[x]) for x in ("batch", "heads", "kv_heads", "seq_q", "head_dim"))
        causal = at["causal"] == "1"
        # aiter has assembly for heads of 128; those of 64 are Composable Kernel's.
        name = "fwd_hd128_bf16" + "_causal" * causal if r["impl"] == "aiter" and at["head_dim"] == "128" else ""
        if back:  # with fewer heads of keys aiter's time is in part, and of causal ones in whole, of other kernels
            own = name and at["heads"] == at["kv_heads"]
            name = f"bwd_hd{at['head_dim']}_bf16{'_causal_br' * causal}_a32_psskddv" if own else ""
        yield Row(
            "attention_bwd" if back else "attention", r["chip"], PRODUCTS[r["chip"], int(r["cus"])], r["dtype"], r["dtype"], sizes, float(r["us"]), r["impl"], True, name,
            causal=causal, note=r["note"],
        )  # fmt: skip


def _convolutions() -> Iterator[Row]:
    """Forward ones with square windows, alike in both directions, of one group; the fastest solver's time."""
    for r in _table("convolutions"):
        plain = r["direction"] == "fwd" and r["groups"] == "1" and r["rank"] == "1" and r["dil_h"] == r["dil_w"] == "1"
        if not plain or r["stride_h"] != r["stride_w"] or r["pad_h"] != r["pad_w"]:
            continue
        sizes = tuple(int(r[x]) for x in ("n", "c", "h", "w", "k", "r", "s", "stride_h", "pad_h"))
        yield Row(
            "convolution", r["chip"], PRODUCTS[r["chip"], int(r["cus"])], r["dtype"], r["dtype"], sizes, 1e3 * float(r["ms"]), "miopen", True,
            note=f"{r['layout']} {r['solver']}",
        )  # fmt: skip


def _mixtures() -> Iterator[Row]:
    """Mixtures of experts in one kernel of AMD's assembly, whose names are in a table of their own."""
    with (FOLDER / "moe_kernels.csv").open(newline="", encoding="utf-8") as f:
        names = {(r["chip"], r["cus"], r["shape"]): r["kernel"] for r in csv.DictReader(f)}
    for r in _table("kernels"):
        kernel = names.get((r["chip"], r["cus"], r["shape"]))
        if r["op"] != "moe_fused" or kernel is None:
            continue
        at = dict(x.split("=") for x in r["shape"].split(";"))
        sizes = tuple(int(at[x]) for x in ("tokens", "model_dim", "inter_dim", "experts", "topk"))
        yield Row("moe", r["chip"], PRODUCTS[r["chip"], int(r["cus"])], "f8", "bf16", sizes, float(r["us"]), r["impl"], False, kernel, note=r["note"])  # fmt: skip


def rows() -> list[Row]:
    """All rows of products, attention forward and backward, forward convolutions and mixtures of experts."""
    return [*_products(), *_attention(), *_convolutions(), *_mixtures()]
