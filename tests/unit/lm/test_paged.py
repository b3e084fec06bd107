"""Networks that take tokens of many texts at once: every architecture against logits of transformers, two texts in pieces, in blocks that lie anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
import tec.lm
from tec.errors import ImportModelError
from tec.graph import run_graph
from tec.lm import Format
from tec.lm.config import Config
from tec.lm.joint import Piece, network_inputs
from tec.lm.lookup import Lookup
from tec.lm.paged import PagedLayers
from tec.lm.plain import graph_of
from tec.ops.dims import Dim
from tec.runtime.arrays.dtypes import numpy_dtype
from tec.target import as_target
from tests.seeds import first
from tests.thinned import thinned_rows

from .families import CASES, KEPT, TOKENS, references
from .test_families import folder_of
from .tiny import llama, tensor

# States that are no rows; tokens that see a part of their text alone.
IN_TURN = {
    "mamba",
    "falcon_mamba",
    "jamba",
    "nemotron_h",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "qwen3_next",
    "mamba2",
    "lfm2",
    "lfm2_moe",
    "granitemoehybrid",
    "falcon_h1",
}
BLOCK = 8


@pytest.fixture(scope="module")
def known() -> Any:
    return references()


@thinned_rows(3, "name", list(CASES))
def test_logits_are_those_of_transformers(name: str, known: Any, tmp_path: Path) -> None:
    checkpoint = tec.lm.open(folder_of(known[name], tmp_path))
    scaling = {**known[name]["config"].get("rope_parameters", {}), **(known[name]["config"].get("rope_scaling") or {})}
    # Hunyuan's dynamic scaling is one number for texts of any length.
    follows = scaling.get("rope_type") in ("dynamic", "longrope") and "alpha" not in scaling
    if checkpoint.architecture in IN_TURN or follows or name == "llama4_text 0":
        with pytest.raises(ImportModelError, match=r"no row of a token|turn by the length|their own chunk"):
            graph_of(checkpoint, "llvm", block=BLOCK)
        return
    graph = graph_of(checkpoint, "llvm", block=BLOCK)
    lookup, rng = Lookup(checkpoint.tensors), np.random.default_rng(first())
    other = rng.integers(3, 128, 11).tolist()
    spread = rng.permutation(8).tolist()
    tables = spread[:3], spread[3:6]
    pools = {v.name: np.zeros((8, *v.shape[1:]), np.float32) for v in graph.inputs if v.name in graph.state}

    def run(*pieces: Piece) -> Any:
        tokens, places = (
            [t for p in pieces for t in p.tokens],
            [p.first + k for p in pieces for k in range(len(p.tokens))],
        )
        made = dict(
            zip(
                graph.output_names,
                run_graph(graph, {**lookup.at(tokens, places), **network_inputs(pieces, BLOCK), **pools}),
            )
        )
        pools.update({before: made[after] for before, after in graph.state.items()})
        return made["logits"]

    run(Piece(TOKENS[:7], 0, tables[0], False), Piece(other[:1], 0, tables[1]))
    run(Piece(other[1:5], 1, tables[1]), Piece(TOKENS[7:-KEPT], 7, tables[0], False))
    rows = [
        run(Piece(other[5 + k : 6 + k], 5 + k, tables[1]), Piece([t], len(TOKENS) - KEPT + k, tables[0]))[1]
        for k, t in enumerate(TOKENS[-KEPT:])
    ]
    want = np.array(known[name]["logits"])
    assert np.abs(np.stack(rows) - want).max() < 1e-4 * max(1.0, np.abs(want).max())


def test_the_device_chooses_the_likeliest() -> None:
    """On a GPU; -1 where logits are no numbers."""
    checkpoint, target = llama(), as_target("rocm -mcpu=gfx942")
    with target:
        layers = PagedLayers(
            Config(checkpoint.config, checkpoint.architecture), checkpoint.tensors, target, "float32", 8
        )
        logits = layers.graph.input("logits", "float32", (Dim("rows"), 300))
        chosen = layers._likeliest(logits)
    layers.graph.inputs = [logits]
    layers.graph.set_outputs([chosen], ["likeliest"])
    x = np.random.default_rng(first()).standard_normal((5, 300)).astype(np.float32)
    x[1, 77], x[2, 5], x[3, [4, 9]] = np.nan, np.inf, 9.0
    (got,) = tec.compile(layers.graph, target, cache=False).run({"logits": x}, device=tec.rocm_emu("gfx942"))
    assert np.asarray(got).tolist() == [int(x[0].argmax()), -1, -1, 4, int(x[4].argmax())]
    paged = graph_of(checkpoint, "rocm -mcpu=gfx942", block=BLOCK)
    assert "likeliest" in paged.output_names
    assert "likeliest" not in graph_of(checkpoint, "llvm", block=BLOCK).output_names


@pytest.mark.parametrize(
    ("format", "kind"),
    [(Format.F16, "float16"), (Format.BF16, "bfloat16"), (Format.Q8_0, "float16"), (Format.F16, "float32")],
)
def test_rows_of_tables_in_the_type_of_activations(format: Format, kind: str) -> None:
    value = np.random.default_rng(first()).standard_normal((9, 64)).astype(np.float32)
    table = tensor("model.embed_tokens.weight", value, format)
    lookup = Lookup({table.name: table}, kind=numpy_dtype(kind))
    got = lookup([3, 8, 3])["embeddings"]
    assert got.dtype == numpy_dtype(kind)
    assert (got == table.dequantize()[[3, 8, 3]].astype(numpy_dtype(kind))).all()
