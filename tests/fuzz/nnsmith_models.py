"""Models made by nnsmith (Liu et al., 2023, "NNSmith: Generating Diverse and Valid Test Cases for Deep Learning Compilers").

    python tests/fuzz/nnsmith_models.py FOLDER FIRST COUNT [NODES]

Runs in an environment of its own with nnsmith and torch (`make fuzz-nnsmith` sets it up); tec is not needed there. Writes
FOLDER/SEED.onnx for each seed; seeds that nnsmith itself fails on are named and left out.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path


def main() -> None:
    import torch

    # The exporter that nnsmith was written for.
    torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)

    from nnsmith.abstract.extension import activate_ext
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model
    from nnsmith.narrow_spec import auto_opset

    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    nodes = int(sys.argv[4]) if len(sys.argv) > 4 else 10
    folder.mkdir(parents=True, exist_ok=True)
    kind = Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    opset = auto_opset(kind, None)
    activate_ext(opset=opset, factory=None)
    for seed in range(first, first + count):
        try:
            made = model_gen(opset=opset, method="symbolic-cinit", seed=seed, max_nodes=nodes, timeout_ms=10_000)
            model = kind.from_gir(made.make_concrete())
            model.with_torch = False
            model.refine_weights()
            model.dump(str(folder / f"{seed}.onnx"))
        except Exception as error:
            print(f"seed {seed}: nnsmith fails: {type(error).__name__}: {str(error)[:100]}", flush=True)


if __name__ == "__main__":
    main()
