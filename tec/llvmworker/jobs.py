"""What is asked of LLVM, done: the only code of tec that lets LLVM parse, optimise or emit. It is the worker's program too.

In: a job, a dict of plain data. Out: a dict of plain data. As a program (`main`, with llvmlite and the standard library
alone, so that it is there in 0.05 s) it reads jobs from its standard input and answers them in order on its standard output,
each pickled behind its length. It ends with its caller, when it has had nothing to do for a while, by SIGALRM when a job
takes too long, and in whatever way LLVM chooses.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import re
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

HEADER = struct.Struct("<Q")
BEGUN = {"begun": True}  # said before a job: what ends the worker from here on is the job's doing
IDLE_S = 60.0  # a worker holds about 100 MB, and a new one costs 0.05 s: it need not wait long
LARGEST_BYTES = 1 << 30  # a worker that has grown beyond this answers and goes; the next one starts small

# Debug locations, as LLVM prints them: uses, nodes, and the flag that says they are there.
_USES = re.compile(r",? !dbg !\d+")
_NODES = re.compile(r"(?m)^(?:!llvm\.dbg\.cu = .*|!\d+ = (?:distinct )?!DI\w+\(.*\))\n")
_FLAG_NODE = re.compile(r'(?m)^(!\d+) = !\{i32 2, !"Debug Info Version", i32 3\}\n')

# Bit selects, as LLVM prints them: `or` of two vectors, or a copysign of them; what may come after, and before they are optimised.
_BIT_SELECT = re.compile(
    r"(?m)^  (?P<to>%[\w.]+) = (?P<op>or (?:disjoint )?<(?P<n>\d+) x i(?P<bits>8|16|32|64)> %[^,\n]+, %[^,\n]+(?:, !.*)?"
    r"|(?:tail )?call [^@\n]*<(?P<m>\d+) x (?P<float>float|double)> @llvm\.copysign\..*)$"
)
_BITWISE = re.compile(r"@llvm\.copysign\.|= (?:and|or|xor|shl) (?!i1 |<\d+ x i1>)")

_COMBINER_DISABLED = 22  # the first LLVM that the option of this name was tried with
_LDS_STRUCT = re.compile(r"llvm\.amdgcn\.kernel\.(.+)\.lds\.t$")


@lru_cache(maxsize=1)
def binding() -> Any:
    """`llvmlite.binding`, with every target of the wheel initialised."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    return llvm


@lru_cache(maxsize=32)
def _machine(triple: str, cpu: str, features: str, opt: int, code_model: str) -> Any:
    jit = code_model == "jitdefault"
    target = binding().Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=opt, reloc="pic", codemodel=code_model, jit=jit)


def without_lines(text: str) -> str:
    """A module's text with no trace of debug locations."""
    if "!dbg" not in text:
        return text
    flag = _FLAG_NODE.search(text)
    if flag is not None:
        text = text.replace(flag[0], "")
        text = re.sub(rf"(?m)^(!llvm\.module\.flags = .*?)(?:, )?{re.escape(flag[1])}(?=[,}}])", r"\1", text)
    return _NODES.sub("", _USES.sub("", text))


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job. What LLVM refuses with a message is the answer {"error": message}.

    {"do": "facts"}: the host's CPU, its features, LLVM's version. {"do": "layout", "machine"}: the data layout.
    {"do": "features", "machine", "of"}: "has", those of some features that a machine has.
    {"do": "link", "text", "imports"}: "llvm", the module with others in it.
    {"do": "compile", "text", "machine", "speed", "passes", "want"}: a module of LLVM IR text is optimised at `speed` (0 not at
    all) with the "default" passes, those "plain" (nothing vectorized or unrolled) or those of "registers"; `want` names what is made of it, of "object", "asm", "llvm" (the
    optimised text) and "bare object" (without debug locations). machine: (triple, cpu, features, opt, code model).
    """
    seconds: dict[str, float] = {}
    answer: dict[str, Any] = {"seconds": seconds}
    try:
        if job["do"] == "facts":
            import llvmlite

            llvm = binding()
            answer["cpu"] = str(llvm.get_host_cpu_name())
            answer["features"] = str(llvm.get_host_cpu_features().flatten())
            answer["triple"] = str(llvm.get_default_triple())
            answer["version"] = f"{llvm.llvm_version_info}/{llvmlite.__version__}"
        elif job["do"] == "link":
            answer["llvm"] = _linked(job["text"], job["imports"])
        elif job["do"] == "features":
            answer["has"] = _features(job["machine"], job["of"])
        elif job["do"] == "layout":
            answer["layout"] = str(_machine(*job["machine"]).target_data)
        else:
            try:
                _compile(job, answer, seconds)
            finally:
                _combine_nodes(True)  # where a job is done in its caller's process, LLVM is others' too
    except RuntimeError as e:  # llvmlite's
        return {"error": str(e), "seconds": seconds}
    return answer


def _features(machine: tuple[Any, ...], of: Sequence[str]) -> list[str]:
    """Those that change nothing when they are switched on: LLVM inlines a function into one of equal features alone, for which there is no other way to ask."""
    triple, cpu, features = machine[:3]
    lines = [
        f'target triple = "{triple}"',
        f'attributes #0 = {{ nounwind "target-cpu"="{cpu}" "target-features"="{features}" }}',
    ]
    for n, name in enumerate(of):
        on = ",".join(filter(None, (features, "+" + name)))
        lines += [
            f'attributes #{n + 1} = {{ nounwind "target-cpu"="{cpu}" "target-features"="{on}" }}',
            f"define internal void @with{n}(ptr %p) #{n + 1} {{ store volatile i32 {n}, ptr %p\n ret void }}",
            f"define void @ask{n}(ptr %p) #0 {{ call void @with{n}(ptr %p)\n ret void }}",
        ]
    module = _parse("\n".join(lines))
    _optimise(module, _machine(*machine), 2, "default")
    apart = set(re.findall(r"call [^@\n]*@with(\d+)\(", str(module)))
    return [name for n, name in enumerate(of) if str(n) not in apart]


@contextlib.contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - start


def _compile(job: dict[str, Any], answer: dict[str, Any], seconds: dict[str, float]) -> None:
    """`emit_object` and `emit_assembly` change the module, and a second emission from one module can end the process: each
    but the last gets a fresh parse of the optimised text."""
    machine, want = _machine(*job["machine"]), list(job["want"])
    _combine_nodes(job["machine"][3] > 0)
    with _timed(seconds, "parse"):
        module = _parse(job["text"])
    with _timed(seconds, "optimise"):
        _optimise(module, machine, job["speed"], job["passes"])
        if job["passes"] == "default" and job["machine"][0].startswith("x86_64") and _BITWISE.search(job["text"]):
            bare = str(module)
            fenced = fence_bit_selects(bare)
            if fenced != bare:
                module = _parse(fenced)
    text = None
    if want != ["object"] and want != ["asm"]:
        text = str(module)
    for what in want:
        if what == "llvm":
            answer[what] = text
            continue
        if text is not None:
            with _timed(seconds, "parse"):
                module = _parse(without_lines(text) if what == "bare object" else text)
        with _timed(seconds, "emit " + what):
            if what == "asm":
                answer[what] = machine.emit_assembly(module) + _lds_arrays(module, machine)
            else:
                answer[what] = bytes(machine.emit_object(module))


_COMBINES = [True]


def _combine_nodes(on: bool) -> None:
    """Whether LLVM simplifies the graph of a block's instructions that it selects from: at machine level 0 that is a quarter of its time, for code that is to be there soon.
    LLVM's options are the process's, and one that an LLVM does not know ends it: only those are asked that are known to have it."""
    llvm = binding()
    if on != _COMBINES[0] and llvm.llvm_version_info[0] >= _COMBINER_DISABLED:
        llvm.set_option("tec", f"-combiner-disabled={'false' if on else 'true'}")
        _COMBINES[0] = on


def _lds_arrays(module: Any, machine: Any) -> str:
    """After an emission: where LLVM has put the arrays of each AMDGPU kernel in LDS (AMDGPULowerModuleLDS makes a struct of them), a comment a kernel."""
    text = ""
    for kind in module.struct_types:
        name = _LDS_STRUCT.match(kind.name)
        if name is not None:
            count = sum(1 for _ in kind.elements)
            starts = [machine.target_data.get_element_offset(kind, k) for k in range(count)]
            text += f"; LDS arrays of {name[1]}: {' '.join(map(str, starts))}\n"
    return text


def fence_bit_selects(text: str) -> str:
    """An optimised module in which no select of vectors meets the bit select that makes one of its values.

    LLVM 22 makes a vpternlog of `x & K | y & ~K` (a copysign too) on a host with AVX-512, and a masked vpternlog of a select
    between that and x or y. Two of its patterns for that have the wrong truth table: operand 0 in memory, as a constant is, with
    operand 1 kept by masked lanes, and 1 with 2 likewise. `llvm.arithmetic.fence` is no instruction, and no pattern reaches
    across it. This comes after the optimiser, since that makes bit selects from sums, masked merges and branches, and makes
    vectors of them and of scalars.
    """
    if "select <" not in text:
        return text
    needed: set[str] = set()
    count = 0

    def fenced(found: re.Match[str]) -> str:
        nonlocal count
        ints = found["n"] is not None
        lanes = int(found["n"]) * int(found["bits"]) // 32 if ints else int(found["m"])
        if not lanes or (ints and lanes * 32 != int(found["n"]) * int(found["bits"])):
            return found[0]  # no whole 32 bits: elements of 8 and 16 bits, whose masks no vpternlog takes
        count += 1
        element = found["float"] or "float"
        real, name = f"<{lanes} x {element}>", f"%bits.fence{count}"
        fence = f"{real} @llvm.arithmetic.fence.v{lanes}f{64 if element == 'double' else 32}({real}"
        needed.add(f"declare {fence})")
        lines = [f"{name} = {found['op']}"]
        if not ints:
            return "\n".join(f"  {x}" for x in (*lines, f"{found['to']} = call {fence} {name})"))
        whole = f"<{found['n']} x i{found['bits']}>"
        lines += [f"{name}.f = bitcast {whole} {name} to {real}", f"{name}.r = call {fence} {name}.f)"]
        return "\n".join(f"  {x}" for x in (*lines, f"{found['to']} = bitcast {real} {name}.r to {whole}"))

    out = _BIT_SELECT.sub(fenced, text)
    return out + "\n" + "\n".join(sorted(x for x in needed if x not in text)) + "\n" if count else text


def _parse(text: str) -> Any:
    """A verified module in a context of its own: LLVM keeps the types and constants of a context as long as it is there."""
    llvm = binding()
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    return module


_TARGET_LINES = re.compile(r"(?m)^target (?:triple|datalayout) = .*\n")


def _linked(text: str, imports: list[str]) -> str:
    """A module with what others define; theirs are for it alone, so that they are inlined, and gone where nothing calls them."""
    llvm = binding()
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    for other in imports:
        theirs = llvm.parse_assembly(_TARGET_LINES.sub("", other), context)
        theirs.verify()
        names = [f.name for f in theirs.functions if not f.is_declaration]
        module.link_in(theirs)
        for name in names:
            module.get_function(name).linkage = "internal"
    module.verify()
    return str(module)


def _optimise(module: Any, machine: Any, speed: int, passes: str) -> None:
    """LLVM's pipeline of a level, without its loop vectorizer: that one asserts on ordinary loops (its two cost models
    disagree), and tec vectorizes by schedules and `vectorize_loops`."""
    if speed <= 0:
        return
    llvm = binding()
    options = llvm.create_pipeline_tuning_options(speed_level=speed)
    options.loop_vectorization = False
    options.slp_vectorization = options.loop_unrolling = passes == "default"
    builder = llvm.create_pass_builder(machine, options)
    if passes == "registers":
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
        manager.add_aggressive_dce_pass()
    else:
        manager = builder.getModulePassManager()
    manager.run(module, builder)


# ---- the program


def send(fd: int, message: Any) -> None:
    """Write a message behind its length. Plain descriptors: buffered streams hold locks that a fork or an exit may find taken."""
    data = pickle.dumps(message, protocol=5)
    rest = memoryview(HEADER.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def receive(fd: int) -> Any:
    """The next message. EOFError where the other side is gone."""
    (size,) = HEADER.unpack(_read(fd, HEADER.size))
    return pickle.loads(_read(fd, size))


def _read(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _limits(memory_bytes: int) -> None:
    """No core files; and memory that runs out here, not in the caller's process."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if memory_bytes and (hard == resource.RLIM_INFINITY or memory_bytes < hard):
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard))


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def main() -> None:
    """Answer jobs until there are no more."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    # The pipes get numbers of their own, and what LLVM prints goes to the log that is standard error.
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.close(0)
    settings = receive(requests)
    sys.path += settings["path"]  # behind the standard library: no file of the user's is taken for a module of it
    _limits(settings["memory_bytes"])
    timeout_s = settings["timeout_s"]
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:  # jobs are taken off the pipe while LLVM works, so that the caller never waits to hand one over
        with contextlib.suppress(EOFError, OSError):
            while True:
                jobs.put(receive(requests))
        os._exit(0)

    binding()
    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            job = jobs.get(timeout=IDLE_S)
        except queue.Empty:
            os._exit(0)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
        with contextlib.suppress(OSError):
            send(answers, BEGUN)
        answer = run(job)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            send(answers, answer)
        except OSError:
            os._exit(0)
        if _resident_bytes() > LARGEST_BYTES:
            os._exit(0)
