"""The C header of a library: the interface that all libraries share, and what this one has."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..runtime.modules import exprs
from ..runtime.modules.arguments import Checker, Param
from ..runtime.networks.network import Network
from .runtime import SOURCES
from .tables import model_symbol

# The C types of numbers among arguments; others travel as their bits.
C_TYPES = {
    "bool": "_Bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t",
    "float8_e4m3": "uint8_t", "float8_e5m2": "uint8_t", "float8_e4m3fnuz": "uint8_t", "float8_e5m2fnuz": "uint8_t", "handle": "void *",
}  # fmt: skip
_KEYWORDS = frozenset(
    "auto bool break case catch char class const continue default delete do double else enum extern false float for friend goto if inline int long namespace new "
    "operator private protected public register restrict return short signed sizeof static struct switch template this throw true try typedef typename union "
    "unsigned using virtual void volatile while error".split()
)


def identifier(text: str) -> str:
    """A text as a name of C: other characters become underscores."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", text) or "_"
    return f"_{name}" if name[0].isdigit() or name in _KEYWORDS else name


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


def _begin(name: str) -> list[str]:
    guard = f"TEC_LIBRARY_{identifier(name).upper()}_H"
    return [
        f"#ifndef {guard}", f"#define {guard}", "", (SOURCES / "tec_abi.h").read_text(), "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
    ]  # fmt: skip


def _end() -> list[str]:
    return ["", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]


def network_header(network: Network, name: str, others: Sequence[Network] = ()) -> str:
    """The header of a network's library. others: the same network for other targets."""
    lines = _begin(name)
    targets = ", ".join(n.module.target for n in (network, *others))
    lines += [f"/* {_comment(name)}, compiled for {_comment(targets)}.", " *"]
    if others:
        lines += [
            " * tec_net_create takes the first target that this machine can run (tec_net_target says which).",
            " *",
        ]
    states = {s.input for s in network.plan.states} | {s.output for s in network.plan.states}
    for kind, ports in (("input", network.inputs), ("output", network.outputs)):
        shown = [p for p in ports if p["name"] not in states]
        for k, p in enumerate(shown):
            shape = ", ".join(exprs.text(d) for d in p["shape"])
            lines.append(f" *   {kind} {k}: {_comment(p['name'])}, {p['dtype']} [{_comment(shape)}]")
    lines += [
        *(f" *   state: {_comment(s.input)}{' (grows)' if s.axis is not None else ''}" for s in network.plan.states),
        " *",
        " * tec_net_create(NULL, ...) makes a net of it, in a program that is linked with several libraries",
        f" * tec_net_create({model_symbol(name)}, ...).",
        " */",
        f"extern const tec_model *const {model_symbol(name)};",
    ]
    return "\n".join(lines + _end())


def kernels_header(name: str, functions: Sequence[tuple[str, Checker]], target: str, takes_stream: bool = False) -> str:
    """The header of a library of kernels: `functions` are (exported name, signature). takes_stream: some of the code is for a GPU."""
    lines = _begin(name)
    where = "in the host's memory or on one GPU" if takes_stream else "in the host's memory"
    lines += [
        f"/* Kernels, compiled for {_comment(target)}. Each returns TEC_OK or what went wrong, whose text is then in *tec_error_out (which may be NULL).",
        f" * Tensors must be compact where nothing else is said, {where}, and those that are written must not share memory with others.",
    ]
    if takes_stream:
        lines += [
            " *",
            " * Of several targets the first runs whose device the tensors are on, and that this machine has. For a GPU, tensors of the host's memory are copied",
            " * to the device (device 0 where all are) and back. tec_stream is the CUstream or hipStream_t to work in: a call on tensors of the device alone",
            " * then returns when its work is queued. With NULL the work is in the default stream, and the call waits for it.",
        ]
    lines.append(" */")
    if takes_stream:
        lines += [
            "",
            "/** Gives code and memory on GPUs back; the next call loads them again. No call may be under way. */",
            f"void {name}_release(void);",
        ]
    for exported, checker in functions:
        lines += ["", "/**"]
        for p in checker.params:
            lines.append(f" * {identifier(p.name)}: {_describe(p)}")
        lines += [" */", f"int32_t {exported}({', '.join(parameters(checker, takes_stream))});"]
    return "\n".join(lines + _end())


def _describe(p: Param) -> str:
    if not p.is_tensor:
        return p.dtype if C_TYPES[p.dtype] != "uint16_t" or p.dtype == "uint16" else f"the bits of a {p.dtype}"
    strides = "" if p.strides is None else f", strides {_comment(exprs.shape_text(p.strides))}"
    shape = _comment(", ".join(str(exprs.text(e)) for e in p.shape))
    return f"{p.dtype} [{shape}]{strides}, {'written' if p.writes else 'read'}, at a multiple of {p.align} bytes"


def parameters(checker: Checker, takes_stream: bool = False) -> list[str]:
    """The parameters of a kernel's C function."""
    out = []
    for name, p in zip(argument_names(checker), checker.params):
        if p.is_tensor:
            out.append(f"{'' if p.writes else 'const '}DLTensor *{name}")
        else:
            kind = C_TYPES[p.dtype]
            out.append(f"{kind}{'' if kind.endswith('*') else ' '}{name}")
    return [*out, *["void *tec_stream"] * takes_stream, "tec_error *tec_error_out"]


def argument_names(checker: Checker) -> list[str]:
    """Names of C for a function's parameters, all different."""
    names: list[str] = []
    for p in checker.params:
        name = base = identifier(p.name)
        k = 1
        while name in names:
            k += 1
            name = f"{base}_{k}"
        names.append(name)
    return names
