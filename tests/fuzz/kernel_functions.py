"""Random kernels as Python text: branches, loops that are left early, helpers with several returns, local arrays, and meetings of the
block. The text runs as a kernel, and as the Python that it is, one thread after the other (those with meetings: in lockstep by
generators, for which `tec.barrier()` reads `yield`).

All numbers are whole and stay small, so that both give the same.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

THREADS, BLOCKS = 16, 2
N = THREADS * BLOCKS
VARIABLES = ("a", "b", "c", "d")


class Writer:
    """Writes one kernel; `meets`: whether threads meet, under conditions that are the same for the block."""

    def __init__(self, seed: int, meets: bool):
        self.r = random.Random(seed)
        self.meets = meets
        self.lines: list[str] = []
        self.depth = 0
        self.loops = 0
        self.count = 0
        self.uniform = True  # whether all threads of the block come here

    def text(self) -> str:
        self.helper()
        self.put("def kernel(x, out):")
        self.depth = 1
        self.put("i = tec.grid_idx(1)")
        self.put("t = tec.thread_idx.x")
        self.put("g = tec.block_idx.x")
        self.put(f"s = tec.shared({THREADS}, 'int32')")
        self.put("r = tec.local(4, 'int32')")
        for k in range(4):
            self.put(f"r[{k}] = {k}")
        self.put("s[t] = x[i]")
        for v in VARIABLES:
            self.put(f"{v} = {self.r.choice(['x[i]', '0', '5', 'i', 'g', 't'])}")
        if self.meets:
            self.put("tec.barrier()")
        for _ in range(self.r.randint(3, 6)):
            self.statement(3)
        self.put("out[i] = (a + 3 * b + 5 * c + 7 * d + r[1] + 2 * r[2]) % 1009")
        return "import tec\n\n\n" + "\n".join(self.lines) + "\n"

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def helper(self) -> None:
        self.put("def helper(p, q):")
        self.depth = 1
        self.put("if p > q:")
        self.put("    return p - q")
        if self.r.random() < 0.5:
            self.put("for k in range(3):")
            self.put("    if p + k == q:")
            self.put("        return k * 2")
            self.put("    p += 1")
        self.put("return (p * 2 + q) % 101\n\n")
        self.depth = 0

    # ---- expressions

    def value(self, depth: int = 2) -> str:
        r = self.r
        if depth == 0 or r.random() < 0.3:
            return r.choice([*VARIABLES, *VARIABLES, str(r.randint(-4, 9)), "i", "t", "g", f"r[{r.randint(0, 3)}]"])
        kind = r.randint(0, 9)
        a, b = self.value(depth - 1), self.value(depth - 1)
        if kind < 4:
            return f"({a} {r.choice('+-*')} {b}) % {r.choice([7, 31, 97])}"
        if kind == 4:
            return f"({a}) // {r.choice([2, 3, -3, 5])}"
        if kind == 5:
            return f"({a} if {self.condition(1)} else {b})"
        if kind == 6:
            return f"helper({a}, {b})"
        if kind == 7:
            return f"x[({a}) % {N}]"
        if kind == 8:
            return f"{r.choice(['min', 'max'])}({a}, {b})"
        return f"r[({a}) % 4]"

    def condition(self, depth: int = 2) -> str:
        r = self.r
        if depth and r.random() < 0.35:
            return f"({self.condition(depth - 1)} {r.choice(['and', 'or'])} {self.condition(depth - 1)})"
        if r.random() < 0.1:
            return f"not {self.value(1)}"
        if r.random() < 0.1:
            return f"0 <= {self.value(1)} < {r.randint(2, 20)}"
        return f"{self.value(1)} {r.choice(['<', '<=', '==', '!=', '>', '>='])} {self.value(1)}"

    def block_condition(self) -> str:
        return self.r.choice(["g == 0", "g > 0", "g < 5", "x[g] > 3", f"x[{self.r.randint(0, N - 1)}] % 2 == 0"])

    # ---- statements

    def block(self, depth: int, uniform: bool = False) -> None:
        before, self.uniform = self.uniform, self.uniform and uniform
        self.depth += 1
        for _ in range(self.r.randint(1, 3)):
            self.statement(depth - 1)
        self.depth -= 1
        self.uniform = before

    def statement(self, depth: int) -> None:
        r = self.r
        choices = ["assign"] * 3 + ["augment"] * 2 + ["swap", "element"]
        if depth:
            choices += ["if"] * 3 + ["for"] * 2 + ["while", "static"]
            if self.meets and self.uniform:
                choices += ["meeting"] * 3 + ["block_if", "block_for"]
        if self.loops and not self.uniform_loop:
            choices += ["leave"] * 2
        elif not self.meets and r.random() < 0.1:
            choices += ["return"]
        getattr(self, "_" + r.choice(choices))(depth)

    uniform_loop = False

    def _assign(self, depth: int) -> None:
        self.put(f"{self.r.choice(VARIABLES)} = {self.value(3)}")

    def _augment(self, depth: int) -> None:
        v = self.r.choice(VARIABLES)
        self.put(f"{v} {self.r.choice(['+', '-'])}= {self.value(1)}")
        self.put(f"{v} %= 997")

    def _swap(self, depth: int) -> None:
        a, b = self.r.sample(VARIABLES, 2)
        self.put(f"{a}, {b} = {b}, {a}")

    def _element(self, depth: int) -> None:
        self.put(f"r[({self.value(1)}) % 4] = ({self.value(2)}) % 89")

    def _if(self, depth: int) -> None:
        self.put(f"if {self.condition()}:")
        self.block(depth)
        if self.r.random() < 0.3:
            self.put(f"elif {self.condition()}:")
            self.block(depth)
        if self.r.random() < 0.5:
            self.put("else:")
            self.block(depth)

    def _loop(self, head: str, depth: int, first: str = "") -> None:
        self.put(head)
        if first:
            self.put("    " + first)
        self.loops += 1
        before, self.uniform_loop = self.uniform_loop, False
        self.block(depth)
        self.uniform_loop = before
        self.loops -= 1

    def _for(self, depth: int) -> None:
        self.count += 1
        k, r = f"k{self.count}", self.r
        bounds = r.choice(
            [
                f"{r.randint(0, 5)}",
                f"{self.value(1)} % 5",
                "2, 9, 3",
                "6, 0, -2",
                "t % 3, 7",
                f"0, 6, x[i] % {r.randint(2, 3)} + 1",
            ]
        )
        self._loop(f"for {k} in range({bounds}):", depth, f"{r.choice(VARIABLES)} = {k}" if r.random() < 0.4 else "")

    def _while(self, depth: int) -> None:
        self.count += 1
        w = f"w{self.count}"
        self.put(f"{w} = {self.r.randint(1, 6)}")
        self._loop(f"while {w} > 0 and {self.condition(1)}:", depth, f"{w} -= 1")

    def _static(self, depth: int) -> None:
        self.count += 1
        self._loop(f"for j{self.count} in (1, 4, 2):", depth, f"{self.r.choice(VARIABLES)} += j{self.count}")

    def _leave(self, depth: int) -> None:
        words = ["break", "continue"] + ([] if self.meets else ["return"])
        self.put(f"if {self.condition(1)}:")
        if self.r.random() < 0.5:
            self.put(f"    {self.r.choice(VARIABLES)} = {self.value(1)}")
        self.put(f"    {self.r.choice(words)}")

    def _return(self, depth: int) -> None:
        self.put(f"if {self.condition(1)}:")
        self.put("    out[i] = a % 1009")
        self.put("    return")

    # ---- meetings

    def _meeting(self, depth: int) -> None:
        self.put(f"{self.r.choice(VARIABLES)} = s[({self.value(1)}) % {THREADS}]")
        self.put("tec.barrier()")
        self.put(f"s[t] = ({self.value(2)}) % 83")
        self.put("tec.barrier()")

    def _block_if(self, depth: int) -> None:
        self.put(f"if {self.block_condition()}:")
        self.block(depth, uniform=True)
        if self.r.random() < 0.5:
            self.put("else:")
            self.block(depth, uniform=True)

    def _block_for(self, depth: int) -> None:
        self.count += 1
        self.put(f"for k{self.count} in range({self.r.choice(['2', 'g + 1', 'x[g] % 3'])}):")
        before, self.uniform_loop = self.uniform_loop, True
        self.block(depth, uniform=True)
        self.uniform_loop = before


def reference(text: str, x: Any, out: Any) -> None:
    """The text as Python: the threads of a block go in turns from barrier to barrier."""
    now = SimpleNamespace(i=0, t=0, g=0, shared=None)
    fake = SimpleNamespace(
        grid_idx=lambda n: now.i,
        thread_idx=type("T", (), {"x": property(lambda self: now.t)})(),
        block_idx=type("B", (), {"x": property(lambda self: now.g)})(),
        shared=lambda n, dtype: now.shared,
        local=lambda n, dtype: [0] * n,
    )
    body = text.replace("import tec", "").replace("tec.barrier()", "yield")
    head, _, kernel = body.partition("def kernel")
    space: dict[str, Any] = {"tec": fake}
    exec(f"{head}def kernel{kernel}    yield\n", space)
    values = [int(v) for v in x]
    for g in range(BLOCKS):
        now.shared = [0] * THREADS
        running = []
        for t in range(THREADS):
            now.i, now.t, now.g = g * THREADS + t, t, g
            running.append(((now.i, t, g), space["kernel"](values, out)))
        while running:
            still = []
            for place, thread in running:
                now.i, now.t, now.g = place
                try:
                    next(thread)
                    still.append((place, thread))
                except StopIteration:
                    continue
            running = still
