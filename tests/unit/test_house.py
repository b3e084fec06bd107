"""The house stays in order: short files, functions that fit on a screen, no circles between files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import networkx as nx

from tools.constants import constants
from tools.house_figures import kind_questions

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    p.relative_to(ROOT).as_posix(): p.read_text("utf-8")
    for base in ("tec", "frontends")
    for p in sorted((ROOT / base).rglob("*.py"))
}

LINES, FUNCTION_LINES = 500, 60
# What was measured on one machine stands in rules, and what a machine is in `tec.target`: both may only fall.
CONSTANTS, KIND_QUESTIONS = 0, 5
ANY_SHARE = 0.1  # of the parameters of choices, that have no type
# Longer ones, how long they may become, and why.
LONG_FILES: dict[str, tuple[int, str]] = {
    "tec/kernels/language.py": (720, "signatures and docstrings with an example each, and no code")
}
# A comment behind a bracket that closes a statement, or within brackets around one value.
_TORN = re.compile(
    r"^ *[)\]}]+(?::| = \S+)?  # (?!fmt|type|noqa)|= \(\n +[^\n]*  # (?!fmt|type|noqa)[^\n]*\n *\)$", re.MULTILINE
)
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {}


# Imports within functions: where they may stand, and why. Everywhere else a module's imports stand at its top.
_PUBLIC = "a package's public names are loaded at their first use, so that importing it is quick"
_START = "only some uses need it, and it takes long to load"
_CHILD = "the program of a child process, which loads what it is asked for"
_PRINTS = "an IR node prints, loads and stores itself by what stands on the IR"
LAZY_IMPORTS = {
    "tec/digest.py -> hashlib": _START + ": OpenSSL, for what is large",
    "tec/late_assembly.py -> codegen": _START + ": the compiler, for a model whose code is on the disk",
    "tec/lm/kept.py -> filling": _START + ": the compiler's layouts, for weights that are on the disk",
    "tec/lm/speculative.py -> filling": _START + ": the compiler's layouts, for weights in another order",
    "tec/lm/starting.py -> .compiled": _START + ": the compiler, for a model whose code is on the disk",
    "tec/lm/writing.py -> .exported": _START + ": the compiler, for ONNX files",
    "tec/lm/model.py -> .ahead": _START + ": the compiler, for a text that the host chooses",
    "tec/lm/model.py -> .beams": _START + ", and it is made of a LanguageModel",
    "tec/lm/model.py -> .samples": _START + ", and it is made of a LanguageModel",
    "tec/lm/model.py -> .saved": _START + ": files of safetensors",
    "tec/lm/opening.py -> importlib.metadata": _START + ": packages of others, for files that tec's own do not take",
    "tec/source_stamp.py -> importlib.metadata": _START + ": a version that no file says",
    "tec/__init__.py": _PUBLIC,
    "tec/te/__init__.py": _PUBLIC,
    "tec/graph/__init__.py": _PUBLIC,
    "tec/runtime/__init__.py": _PUBLIC,
    "tec/emulator/__init__.py": _PUBLIC,
    "tec/tuning/__init__.py": _PUBLIC,
    "tec/driver.py -> codegen": _START + ": lowering needs no code generation",
    "tec/driver.py -> runtime": _START + ": lowering needs no NumPy",
    "tec/codegen/linked.py": _START + ": the emitter of a target",
    "tec/report/measure.py": _START + ": commands import it before any of them runs",
    "tec/codegen/device.py -> nvptx": _START + ": the emitter of a target",
    "tec/codegen/device.py -> amdgpu": _START + ": the emitter of a target",
    "tec/emulator/isa/opcodes.py": _START + ": the tables of opcodes",
    "tec/runtime/networks/executor.py -> engine": _START + ": the engine of a device",
    "tec/runtime/modules/hostpool.py -> _pool_data": _START + ": machine code as text",
    "tec/llvmworker/jobs.py": _CHILD,
    "tec/tuning/worker.py": _CHILD,
    "tec/likeness.py -> difflib": _START,
    "tec/graph/operators.py -> evaluation": _START + ": the interpreter, which folds constants",
    "tec/ir/build.py -> stmt": _PRINTS,
    "tec/ir/expr.py -> printer": _PRINTS,
    "tec/ir/func.py -> printer": _PRINTS,
    "tec/ir/stmt.py -> printer": _PRINTS,
    "tec/jit/launching.py -> ndrange": "a method that users look for on a kernel, of a module that stands on kernels",
    "tec/jit/launching.py -> occupancy": "a call that users make of a kernel, of a module that stands on kernels",
    "tec/jit/launching.py -> autotuning": "an option of the decorator, of a module that stands on kernels",
    "tec/runtime/arrays/ndarray.py -> records": "one function takes arrays of numbers and of structs, which stand on them",
    "tec/jit/reflection.py -> launching": "a method that users look for on a kernel, of a module that stands on kernels",
    "tec/jit/reflection.py -> specialise": _START + ": what shows a kernel's stages",
    "tec/jit/reflection.py -> codegen": _START + ": what shows a kernel's stages",
    "frontends/tec_torch/__init__.py -> graphs": _START + ": torch, for torch's models alone",
    "tec/runtime/devices/device.py -> foreign": "a method that users look for on a device, of a module that stands on arrays",
    "tec/runtime/devices/device.py -> images": "a method that users look for on a device, of a module that stands on arrays",
    # Of the standard library: a start has no use for them, and all together take as long as reading a network's plan.
    "tec/disk_cache.py -> tempfile": _START,
    "tec/folders.py -> tempfile": _START,
    "tec/lm/container.py -> shutil": _START,
    "tec/lm/container.py -> tempfile": _START,
    "tec/lm/formats/codebooks.py -> base64": _START,
    "tec/lm/formats/codebooks.py -> zlib": _START,
    "tec/notebook.py -> html": _START,
    "tec/runtime/modules/module.py -> shutil": _START,
    "tec/runtime/modules/module.py -> subprocess": _START,
    "tec/runtime/modules/module.py -> tempfile": _START,
    "tec/runtime/modules/package.py -> zipfile": _START,
    "tec/runtime/modules/package.py -> zlib": _START,
    "tec/runtime/modules/timing.py -> statistics": _START,
    "tec/runtime/networks/executor.py -> concurrent.futures": _START,
    "tec/runtime/outputs.py -> shutil": _START,
    "tec/runtime/outputs.py -> secrets": _START,
    "tec/runtime/outputs.py -> tempfile": _START,
}
# Packages of the extras, and what the runtime does without.
OPTIONAL = {
    "jinja2",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "safetensors",
    "tokenizers",
    "ml_dtypes",
    "llvmlite",
    "PIL",
    "re2",
    "onnx",
    "torch",
    "triton",
    "pytest",
}


class Facts(NamedTuple):
    """What the tests ask of one file. Trees are not kept: they are a million objects, through which every garbage collection of the run goes."""

    functions: list[tuple[str, int]]  # name, lines
    # Of those at import: level, module, names ("import a" has names alone).
    imports: list[tuple[int, str, tuple[str, ...]]]
    lazy: set[tuple[frozenset[str], str]]  # of those in functions: the packages they are of, the statement


@cache
def facts() -> dict[str, Facts]:
    """By file; at the first test, since every process of a run imports this module."""
    return {name: _facts(ast.parse(text)) for name, text in FILES.items()}


def _facts(tree: ast.Module) -> Facts:
    functions, lazy = [], set()

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions.append((child.name, (child.end_lineno or 0) - child.lineno + 1))
                visit(child, True)
            elif inside and isinstance(child, (ast.Import, ast.ImportFrom)):
                names = [a.name for a in child.names] if isinstance(child, ast.Import) else [child.module or ""]
                lazy.add((frozenset(n.partition(".")[0] for n in names), ast.unparse(child)))
            elif not isinstance(child, ast.expr):  # an expression holds neither
                visit(child, inside)

    visit(tree, False)
    top = [
        (0, "", tuple(a.name for a in s.names))
        if isinstance(s, ast.Import)
        else (s.level, s.module or "", tuple(a.name for a in s.names))
        for s in imports(tree.body)
    ]
    return Facts(functions, top, lazy)


def imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Those that run when the module is imported; not those for type hints."""
    for s in body:
        if isinstance(s, (ast.Import, ast.ImportFrom)):
            yield s
        elif isinstance(s, ast.If):
            yield from imports([] if "TYPE_CHECKING" in ast.unparse(s.test) else s.body)
            yield from imports(s.orelse)
        elif isinstance(s, ast.Try):
            yield from imports([*s.body, *(x for h in s.handlers for x in h.body), *s.orelse, *s.finalbody])


def test_files_are_short():
    over = {name: n for name, text in FILES.items() if (n := text.count("\n")) > LONG_FILES.get(name, (LINES,))[0]}
    assert not over, f"more than {LINES} lines; part them by what they hold: {over}"


def test_no_comment_tears_a_statement():
    torn = [
        f"{name}:{text.count(chr(10), 0, m.start()) + 1}" for name, text in FILES.items() for m in _TORN.finditer(text)
    ]
    assert not torn, f"the formatter broke a statement for the comment behind it; the comment may stand above: {torn}"


def test_functions_fit_on_a_screen():
    over = {
        key: n
        for name, fact in facts().items()
        for f, n in fact.functions
        if n > LONG_FUNCTIONS.get(key := f"{name}:{f}", (FUNCTION_LINES,))[0]
    }
    assert not over, f"more than {FUNCTION_LINES} lines: {over}"


def test_exceptions_are_of_things_that_are_long():
    long = {f"{name}:{f}" for name, fact in facts().items() for f, n in fact.functions if n > FUNCTION_LINES}
    assert not (short := set(LONG_FUNCTIONS) - long), f"no exception is needed: {short}"
    assert all(FILES[name].count("\n") > LINES for name in LONG_FILES)


def module_of(name: str) -> str:
    return name.removeprefix("frontends/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_no_circles_between_files():
    modules = {module_of(name): name for name in FILES}
    graph: nx.DiGraph = nx.DiGraph()
    for module, name in modules.items():
        package = module if name.endswith("__init__.py") else module.rpartition(".")[0]
        for level, source, names in facts()[name].imports:
            if not level and not source:
                found = list(names)
            else:
                parts = package.split(".")
                above = parts[: len(parts) - level + 1] if level else []
                base = ".".join([*above, *([source] if source else [])])
                found = [full if (full := f"{base}.{n}") in modules else base for n in names]
            graph.add_edges_from((module, m) for m in found if m in modules and m != module)
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert len(graph) > 200 and not circles, circles


def lazy_imports() -> Iterator[tuple[str, str]]:
    """(file, import) of each import within a function, but for optional packages and the command line, where nothing but click is
    imported until a command runs."""
    for name, fact in facts().items():
        if not name.startswith("tec/cli/"):
            yield from ((name, text) for roots, text in fact.lazy if not roots <= OPTIONAL)


def test_imports_stand_at_the_top():
    def reason(name: str, text: str) -> str | None:
        for place in LAZY_IMPORTS:
            file, _, what = place.partition(" -> ")
            if file == name and what in text:
                return place
        return None

    found = {(name, text): reason(name, text) for name, text in lazy_imports()}
    assert not (strange := [k for k, why in found.items() if why is None]), f"move them to the top: {strange}"
    assert set(found.values()) == set(LAZY_IMPORTS), "a place that is listed has none"


def test_public_names_stay_what_they_are():
    """Importing a module puts it into its package under its own name, in the place of a function that is loaded at its first use."""
    for file in FILES:
        package = module_of(file)
        if not file.endswith("__init__.py") or package == "tec_torch":  # torch may not be there
            continue
        beside = {Path(f).stem for f in FILES if Path(f).parent == Path(file).parent}
        for name in beside.intersection(getattr(import_module(package), "__all__", ())):
            before = getattr(import_module(package), name)
            import_module(f"{package}.{name}")
            assert getattr(import_module(package), name) is before, f"{package}.{name}: give the module another name"


def test_constants_of_one_machine_only_fall():
    found = constants(ROOT)
    assert len(found) <= CONSTANTS, "a figure of one machine is a row of tec/choices/rules:\n" + "\n".join(
        map(str, found)
    )


def test_parameters_of_choices_have_types():
    """`Any` is for what has none: values of three kinds in one tuple, and what te definitions are made of. Indices are `te.like.Index`."""
    told = [
        ast.unparse(a.annotation)
        for name, text in FILES.items()
        if name.startswith("tec/choices/")
        for f in ast.walk(ast.parse(text))
        if isinstance(f, ast.FunctionDef)
        for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)
        if a.annotation is not None
    ]
    assert told.count("Any") <= ANY_SHARE * len(told), f"{told.count('Any')} of {len(told)} parameters are typed Any"


def test_choices_ask_what_a_machine_is_and_not_its_kind():
    assert kind_questions(ROOT / "tec" / "choices") <= KIND_QUESTIONS, "ask `Target` or its chip for the capability"
