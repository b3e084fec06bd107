"""What a language model says beside llama.cpp: for some prompts, llama.cpp's greedy tokens, and whether tec would write each of them behind the same text.

    python -m benchmarks.lm_texts model.gguf [--tokens 16] [--chat "What is the capital of France?"] [--exact] [--json out.json]

llama.cpp is the package xllamacpp, which pip has ready made. Both read the same file and the same tokens before each choice, so that one tie does not part the texts. Both
round activations to 8 bits, each in its own way: probabilities differ, and where the two best tokens are near each other the choice may. `--exact` says how far both are from
the same weights as float32, with no rounding.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import tec.lm
from tec.lm.lookup import Lookup
from tec.lm.plain import graph_of

PROMPTS = (
    "Once upon a time", "The capital of France is", "Water boils at", "To be or not to be,", "The largest planet is", "In 1969, humans", "A cat is an animal that",
    "def factorial(n):", "The opposite of hot is", "Two plus two is", "My favourite food is", "The sun rises in the", "Photosynthesis is the process by which",
    "Dear Sir or Madam,", "The first president of the United States was", "Gold is a chemical element with the symbol", "She opened the door and", "An apple a day keeps",
    "The speed of light is", "Shakespeare wrote",
)  # fmt: skip
BEST = 5  # of llama.cpp's tokens whose probabilities are compared


class LlamaCpp:
    """Greedy, by xllamacpp."""

    def __init__(self, path: Path, threads: int = 1):
        import xllamacpp

        params: Any = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.warmup, params.n_gpu_layers = 1024, 1, False, 0
        # Several wait for each other without giving up their cores, which are tec's too.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self.server: Any = xllamacpp.Server(params)

    def write(self, ids: list[int], count: int) -> list[dict[str, Any]]:
        """The tokens behind some, each with its probability and the best ones'."""
        asked = {
            "prompt": ids,
            "max_tokens": count,
            "temperature": 0,
            "logprobs": BEST,
            "stream": False,
            "cache_prompt": False,
        }
        found: list[dict[str, Any]] = self.server.handle_completions(asked)["choices"][0]["logprobs"]["content"]
        return found


class Exact:
    """The same weights as numbers, and no rounded activations."""

    def __init__(self, checkpoint: Any):
        graph = graph_of(checkpoint, "llvm", all_logits=True)
        self.network = tec.compile(graph, "llvm", state=dict(graph.state))
        self.lookup = Lookup(checkpoint.tensors)

    def logits(self, ids: list[int]) -> Any:
        """Of the token behind each, [tokens, vocabulary]."""
        return self.network.executor().run(self.lookup(ids, 0))[0].numpy()


def log_probabilities(logits: Any) -> Any:
    x = logits.astype(np.float64) - logits.max()
    return x - np.log(np.exp(x).sum())


def compare(lm: Any, peer: LlamaCpp, exact: Exact | None, ids: list[int], count: int) -> list[dict[str, Any]]:
    """For each token that llama.cpp writes: its choice, tec's, and how they see the best ones."""
    written = peer.write(ids, count)
    rows, logits = [], lm.begin(ids)
    right = None if exact is None else exact.logits([*ids, *(t["id"] for t in written[:-1])])[len(ids) - 1 :]
    for k, said in enumerate(written):
        mine = log_probabilities(logits)
        theirs = {t["id"]: t["logprob"] for t in said["top_logprobs"]}
        best = sorted(theirs.values(), reverse=True)
        rows.append(
            {
                "llama.cpp": said["id"],
                "tec": int(mine.argmax()),
                "apart": best[0] - best[1],
                "difference": max(abs(mine[t] - p) for t, p in theirs.items()),
                "texts": [lm.tokenizer.decode([t]) for t in (said["id"], int(mine.argmax()))],
            }
        )
        if right is not None:
            true = log_probabilities(right[k])
            rows[-1] |= {
                "exact": int(true.argmax()),
                "tec_off": max(abs(mine[t] - true[t]) for t in theirs),
                "peer_off": max(abs(p - true[t]) for t, p in theirs.items()),
            }
        logits = lm.next(said["id"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--chat", action="append", default=[], help="a question, in place of the prompts")
    parser.add_argument("--exact", action="store_true", help="both against the weights as float32")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    lm, peer = tec.lm.load(args.model, target="llvm", context=1024), LlamaCpp(args.model)
    exact = Exact(lm.checkpoint) if args.exact else None
    texts: list[Any] = [[{"role": "user", "content": c}] for c in args.chat] or list(PROMPTS)
    rows = []
    for text in texts:
        found = compare(lm, peer, exact, lm.encode(text), args.tokens)
        rows += found
        if args.chat:
            print("llama.cpp:", repr("".join(r["texts"][0] for r in found)))
        for r in found:
            if r["tec"] != r["llama.cpp"]:
                print(
                    f"{str(text)[:60]!r}: llama.cpp {r['texts'][0]!r}, tec {r['texts'][1]!r}; llama.cpp's two best are {r['apart']:.2f} apart"
                )
    other = [r for r in rows if r["tec"] != r["llama.cpp"]]
    result = {
        "tokens": len(rows),
        "equal": len(rows) - len(other),
        "widest_other": round(max((r["apart"] for r in other), default=0.0), 3),
        "difference_median": round(statistics.median(r["difference"] for r in rows), 4),
        "difference_most": round(max(r["difference"] for r in rows), 3),
    }
    if exact is not None:
        for name, off in (("tec", "tec_off"), ("llama.cpp", "peer_off")):
            result[f"{name}_as_exact"] = sum(r[name] == r["exact"] for r in rows)
            result[f"{name}_off_median"] = round(statistics.median(r[off] for r in rows), 4)
            result[f"{name}_off_most"] = round(max(r[off] for r in rows), 3)
    print(json.dumps(result))
    if args.json:
        args.json.write_text(json.dumps(result | {"rows": rows}))


if __name__ == "__main__":
    main()
