"""AMDGCN assembly text, as LLVM prints it, to instructions.

In: the text of a module. Out: one `KernelText` a kernel with its instructions, labels and source lines. Nothing is
interpreted here: an operand that is not of a known form raises `UnsupportedInstruction`; modifiers are kept by name
and it is the translator's duty to consume each one (`Inst.take`) and to raise for those left over.
"""

from __future__ import annotations

import os
import re

from ..errors import UnsupportedInstruction
from .inst import INV_2PI, NAMED_SGPRS, NO_OPERANDS, TTMP0, Inst, KernelText, Operand, opcode

_SPECIAL = frozenset(
    "off null scc src_scc src_vccz src_execz src_shared_base src_shared_limit src_private_base src_private_limit "
    "src_pops_exiting_wave_id src_flat_scratch_base_lo src_flat_scratch_base_hi lds_direct".split()
)
_INV_2PI = {"0.15915494": 1, "0.15915494309189532": 1, "0.1592": 1}
_REG = re.compile(r"([vsa])(\d+)(?:\.([lh]))?$|([vsa]|ttmp)\[(\d+):(\d+)\]$|ttmp(\d+)$|([vsa])\[(\d+)\]$")
_INT = re.compile(r"-?\d+$|-?0x[0-9a-fA-F]+$")
_FLOAT = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?$|-?\d+e[+-]?\d+$")
_SYMBOL = re.compile(r"([A-Za-z_.$][\w.$]*)@(\w+(?:@\w+)?)([+-]\d+)?$")
_LABEL = re.compile(r"([A-Za-z_.$][\w.$]*)([+-]\d+)?$")
_COMMENT = re.compile(r"/\*.*?\*/")  # gfx1250: the whole number of a register beyond v255


def split_top(text: str, sep: str) -> list[str]:
    """`text` split at `sep` outside brackets and parentheses."""
    if "[" not in text and "(" not in text:
        return text.split(sep) if sep != " " else text.split()
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        if ch in "[(":
            depth += 1
        elif ch in "])":
            depth -= 1
        elif ch == sep and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p for p in parts if p] if sep == " " else parts


class Parser:
    """Reads instructions of one kernel."""

    def __init__(self, kernel: str):
        self.kernel = kernel
        self.line = 0
        self.text = ""

    def fail(self, what: str) -> UnsupportedInstruction:
        return UnsupportedInstruction(what, kernel=self.kernel, line=self.line, instruction=self.text)

    def operand(self, text: str) -> Operand:
        """An operand with its modifiers: `-v1`, `|s[0:1]|`, `sext(v2)`."""
        text = text.strip()
        neg = is_abs = sext = False
        raw = text
        while True:
            if text.startswith("-") and len(text) > 1 and not text[1].isdigit():
                neg, text = not neg, text[1:]
            elif text.startswith("|") and text.endswith("|"):
                is_abs, text = True, text[1:-1]
            elif text.startswith("abs(") and text.endswith(")"):
                is_abs, text = True, text[4:-1]
            elif text.startswith("neg(") and text.endswith(")"):
                neg, text = not neg, text[4:-1]
            elif text.startswith("sext(") and text.endswith(")"):
                sext, text = True, text[5:-1]
            elif text.startswith("lit(") and text.endswith(")"):
                text = text[4:-1]
            elif text.startswith("lit64(") and text.endswith(")"):
                text = text[6:-1]
            else:
                break
        found = self._plain(text)
        return Operand(
            found.kind, found.text if found.kind == "symbol" else raw, found.index, found.count, found.half, found.value, neg, is_abs, sext,
            found.reloc, found.addend,
        )  # fmt: skip

    def _plain(self, text: str) -> Operand:
        """An operand without modifiers: registers, a number, or a name."""
        m = _REG.match(text)
        if m:
            if m[1]:
                return Operand(m[1], text, int(m[2]), 1, m[3] or "")
            if m[4]:
                first, last = int(m[5]), int(m[6])
                if m[4] == "ttmp":
                    return Operand("s", text, TTMP0 + first, last - first + 1)
                return Operand(m[4], text, first, last - first + 1)
            if m[7]:
                return Operand("s", text, TTMP0 + int(m[7]), 1)
            return Operand(m[8], text, int(m[9]), 1)
        if text in NAMED_SGPRS:
            index, count = NAMED_SGPRS[text]
            return Operand("s", text, index, count)
        if text in _SPECIAL:
            return Operand("special", text)
        if _INT.match(text):
            return Operand("int", text, value=int(text, 0))
        if text in _INV_2PI:
            return Operand("float", text, value=INV_2PI)
        if _FLOAT.match(text):
            return Operand("float", text, value=float(text))
        m = _SYMBOL.match(text)
        if m:
            return Operand("symbol", m[1], reloc=m[2], addend=int(m[3] or 0))
        if re.match(r"\w+\(", text):
            return Operand("call", text)
        if re.match(r"(msg|neg|abs)?\w*:|\(", text) or not _LABEL.match(text):
            raise self.fail(f"operand {text!r} is of no known form")
        return Operand("label", text)

    def instruction(self, text: str, line: int) -> Inst:
        """An instruction from its text; two of them where `::` stands between."""
        self.line, self.text = line, text
        if "::" in text:
            first, second = text.split("::")
            inst = self.instruction(first.strip(), line)
            inst.dual = self.instruction(second.strip(), line)
            inst.written = text
            return inst
        name, _, rest = text.partition(" ")
        if "\t" in name:
            name, _, rest = text.partition("\t")
        name, encoding = opcode(name)
        if name in NO_OPERANDS:
            return Inst(name, encoding, [Operand("call", rest)], {}, line, text)
        operands: list[Operand] = []
        mods: dict[str, str] = {}
        rest = rest.strip()
        if rest:
            for chunk in split_top(rest, ","):
                tokens = split_top(chunk.strip(), " ")
                if tokens and not _is_modifier(tokens[0]):
                    if tokens[0][0] == "[":  # an image's address in registers that do not follow each other
                        operands += [self.operand(t) for t in split_top(tokens[0][1:-1], ",")]
                    else:
                        operands.append(self.operand(tokens[0]))
                    tokens = tokens[1:]
                for token in tokens:
                    key, _, value = token.partition(":")
                    if not re.match(r"[a-z_]\w*$", key) or key in mods:
                        raise self.fail(f"modifier {token!r} is of no known form")
                    mods[key] = value
        return Inst(name, encoding, operands, mods, line, text)


def _is_modifier(token: str) -> bool:
    return ":" in token and "[" not in token.split(":")[0] and "(" not in token.split(":")[0]


def strip_comment(line: str) -> str:
    if "/*" in line:
        line = _COMMENT.sub("", line)
    for mark in (";", "//"):
        cut = line.find(mark)
        if cut >= 0:
            line = line[:cut]
    return line.strip()


_LONG_BRANCH = re.compile(
    r"s_getpc_b64 (s\[(\d+):(\d+)\])\n(\.Lpost_getpc\d+):\n"
    r"s_add(?:_co)?_u32 s\2, s\2, \(([\w.$]+)-\4\)&4294967295\n"
    r"s_add(?:c|_co_ci)_u32 s\3, s\3, \(\5-\4\)>>32\ns_setpc_b64 \1$"
)


_FAR = re.compile(r"s_add_pc_i64 ([\w.$]+)-(\.Lpost_addpc\d+)$")  # gfx1250's: one sum


def _long_branch(lines: list[str], number: int) -> tuple[str, int] | None:
    """The target of LLVM's branch to a place that 16 bits do not reach, which begins on a line, and its last line.

    It is written as arithmetic on the program counter, in a pair of registers that nothing reads afterwards.
    """
    found: list[str] = []
    for k in range(number, len(lines)):
        text = strip_comment(lines[k])
        if text.partition(" ")[0] in ("s_wait_alu", "s_waitcnt_depctr", "s_delay_alu", "s_nop"):
            continue
        if text and not (text.startswith(".") and not text.endswith(":")):
            found.append(" ".join(text.split()))
        if len(found) == 5:
            match = _LONG_BRANCH.match("\n".join(found))
            return (match[5], k) if match else None
    return None


def _file(text: str) -> tuple[str, str]:
    """Number and path of a `.file` directive."""
    word = text.split()
    return word[1], os.path.join(*(re.findall(r'"([^"]*)"', text)[:2] or [word[-1]]))


class Body:
    """A kernel's text as it is read, function by function."""

    def __init__(self, lines: list[str], name: str):
        self.lines, self.parser = lines, Parser(name)
        where = next((l for l in reversed(lines) if l.lstrip().startswith(f"; LDS arrays of {name}: ")), "")
        self.text = KernelText(name, [], {}, arrays=tuple(map(int, where.rpartition(":")[2].split())))
        self.heads: dict[str, int] | None = None
        # Files by number: of the module, until a function says otherwise (disassembled ones count for themselves).
        self.files = dict(
            map(
                _file,
                (strip_comment(l) for l in reversed(lines) if l.lstrip().startswith(".file\t") and l.count('"') > 1),
            )
        )

    def _start(self, name: str) -> int | None:
        """The line of a function's label."""
        if self.heads is None:
            self.heads = {}
            for i, line in enumerate(self.lines):
                head = strip_comment(line)
                if head.endswith(":"):
                    self.heads.setdefault(head[:-1].strip('"'), i)
        return self.heads.get(name)

    def read(self, name: str) -> bool:
        """Append the instructions of a function; whether the text has it."""
        start = self._start(name)
        if start is None:
            return False
        lines, insts, labels = self.lines, self.text.insts, self.text.labels
        files = self.files
        where = ""
        done = start  # the last line that is read
        for number in range(start + 1, len(lines)):
            text = strip_comment(lines[number])
            if not text or number <= done:
                continue
            far = _FAR.match(text)
            if far is not None:
                text = f"s_branch {far[1]}"
            elif text.startswith("s_getpc_b64"):
                branch = _long_branch(lines, number)
                if branch is not None:
                    text, done = f"s_branch {branch[0]}", branch[1]
            if text.endswith(":") and " " not in text:
                if text.startswith(".Lfunc_end"):
                    break
                labels[text[:-1]] = len(insts)
                continue
            if text.startswith("."):
                word = text.split()
                if word[0] == ".section" or word[0] == ".size":
                    break
                if word[0] == ".loc":
                    where = f"{files.get(word[1], word[1])}:{word[2]}" if word[2] != "0" else ""  # 0: of no one line
                elif word[0] == ".file" and len(word) > 2:
                    files.update([_file(text)])
                elif word[0] in (".long", ".byte", ".word", ".quad", ".short"):
                    raise UnsupportedInstruction(
                        "data among the instructions", kernel=name, line=number + 1, instruction=text
                    )
                continue
            inst = self.parser.instruction(text, number + 1)
            if where:
                self.text.statements[number + 1] = where
            insts.append(inst)
        return True


def chip_of(asm: str) -> str | None:
    """The chip that the text names in its `.amdgcn_target` line."""
    m = re.search(r'\.amdgcn_target "[\w-]*--(gfx\w+)', asm)
    return m[1] if m else None
