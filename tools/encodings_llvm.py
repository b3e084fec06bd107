"""LLVM's assembler, which `tools.encodings` asks."""

from __future__ import annotations

import os
import re
import struct
import sys
import tempfile
from collections.abc import Iterable


class Assembler:
    """LLVM's assembler in Triton's package: many lines at once, of which some may be wrong."""

    def __init__(self, chip: str, wave64: bool = False, features: str = ""):
        import triton._C.libtriton as library

        library.llvm.init_targets()
        self._assemble = library.amd.assemble_amdgcn
        self.chip, self.features = chip, ",".join(filter(None, ("+wavefrontsize64" if wave64 else "", features)))

    def _once(self, lines: list[str]) -> tuple[bytes, str]:
        with tempfile.TemporaryFile() as file:
            sys.stderr.flush()
            before = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                image = self._assemble("\n".join(lines) + "\n", "amdgcn-amd-amdhsa", self.chip, self.features)
            finally:
                os.dup2(before, 2)
                os.close(before)
            file.seek(0)
            return image, file.read().decode()

    def known(self, names: list[str]) -> list[str]:
        """The mnemonics that the chip has."""
        _, errors = self._once(names)
        unknown = re.findall(r"error: (?:invalid instruction|instruction not supported)[^\n]*\n([^\n]*)\n", errors)
        return sorted(set(names) - set(unknown))

    def __call__(self, lines: Iterable[str]) -> dict[str, bytes]:
        """Line -> its bytes, for those that are right."""
        todo = list(dict.fromkeys(lines))
        for _ in range(4):
            if not todo:
                return {}
            marked = [x for k, line in enumerate(todo) for x in (f"L{k}:", line)] + [f"L{len(todo)}:"]
            image, errors = self._once(marked)
            if image:
                text, places = _text_and_labels(image)
                return {line: text[places[f"L{k}"] : places[f"L{k + 1}"]] for k, line in enumerate(todo)}
            wrong = set(re.findall(r"error: [^\n]*\n([^\n]*)\n", errors))
            todo = [line for line in todo if line not in wrong]
        raise RuntimeError(f"the assembler still objects: {errors[:500]}")


def _text_and_labels(image: bytes) -> tuple[bytes, dict[str, int]]:
    """The .text section of a relocatable object and its symbols."""
    offset, size, count = (*struct.unpack_from("<Q", image, 40), *struct.unpack_from("<HH", image, 58))
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, offset + size * k) for k in range(count)]
    symbols = next(h for h in heads if h[1] == 2)
    strings = image[heads[symbols[6]][4] :]
    text, places = b"", {}
    for k in range(symbols[5] // 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, symbols[4] + 24 * k)
        label = strings[name : strings.index(b"\0", name)].decode()
        if label:
            places[label] = value
            text = image[heads[section][4] : heads[section][4] + heads[section][5]]
    return text, places
