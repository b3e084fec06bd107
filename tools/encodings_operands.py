"""Lists of operands that an opcode may have, which `tools.encodings` tries one after another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator


def reg(kind: str, size: int, at: int) -> str:
    return f"{kind}{at}" if size == 1 else f"{kind}[{at}:{at + size - 1}]"


_START = (4, 40, 72, 104, 136)  # where an operand's registers begin: apart, and aligned for every size


class Candidates:
    """The lists of operands that an opcode may have: (text of the operands, tokens in the table)."""

    def __init__(self, gfx: int, mask_size: int):
        self.gfx, self.mask = gfx, mask_size

    def token(self, token: str, k: int) -> str:
        kind, size = token[0], int(token[1:])
        at = _START[k]
        if kind in "sSm":
            return reg("s", size, 4 + 16 * k)
        if kind == "?":
            return "0x123"
        if kind == "h":
            return f"v{at}.l"
        return reg("v" if kind != "a" else "a", size, at)

    def lists(self, *choices: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for tokens in itertools.product(*choices):
            yield ", ".join(self.token(t, k) for k, t in enumerate(tokens)), tokens

    def of(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        if name.startswith(
            (
                "s_load",
                "s_store",
                "s_atomic",
                "s_buffer",
                "s_scratch",
                "s_memtime",
                "s_memrealtime",
                "s_dcache",
                "s_gl1_inv",
            )
        ):
            yield from self.scalar_memory(name)
        elif name.startswith("s_"):
            yield from self.scalar(name)
        elif name.startswith("ds_"):
            yield from self.lds(name)
        elif name.startswith(("global_", "flat_", "scratch_", "cluster_")):
            yield from self.flat(name)
        elif name.startswith("image_"):
            yield from self.images(name)
        elif name.startswith("tbuffer_"):
            for n in (1, 2, 3, 4):
                yield f"{reg('v', n, 4)}, v8, s[8:11], s3 format:1 idxen", (f"D{n}",)
        elif name.startswith("buffer_"):
            yield "", ()
            for n in (1, 2, 3, 4):
                yield f"{reg('v', n, 4)}, off, s[8:11], s3", (f"D{n}",)
            yield "off, s[8:11], s3 lds", ("D1",)
        elif re.match(r"v_(mfma|smfmac|wmma|swmmac)", name):
            yield from self.matrix(name)
        elif name.startswith("v_accvgpr"):
            yield from self.lists(["v1"], ["a1"])
            yield from self.lists(["a1"], ["v1", "a1"])
        else:
            yield from self.vector(name)

    def images(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Of dimension 2D; what follows from names and masks is not in the table."""
        from tec.emulator.decode.image import address_registers
        from tec.emulator.decode.inst import has_sampler

        at = address_registers(name, "2D", False)
        address = (
            reg("v", at, 20)
            if self.gfx < 12 or at == 1
            else f"[{', '.join(f'v{20 + 2 * k}' for k in range(min(at, 4 if has_sampler(name) else 5)))}]"
        )
        if self.gfx >= 12 and has_sampler(name) and at > 4:
            address = f"[v20, v22, v24, {reg('v', at - 3, 26)}]"
        tail = " s[8:15]" + (", s[16:19]" if has_sampler(name) else "")
        dimension = " dim:SQ_RSRC_IMG_2D" if self.gfx > 9 else " unorm" if not has_sampler(name) else ""
        for n, mask in ((4, 1), (1, 1), (2, 3), (4, 15)):
            yield f"{reg('v', n, 4)}, {address},{tail} dmask:{mask:#x}{dimension}", ()

    def scalar_memory(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "", ()
        yield "s[4:5]", ("s2",)
        for n, base in itertools.product((1, 2, 3, 4, 8, 16), (2, 4)):
            yield f"{reg('s', n, 16)}, {reg('s', base, 8)}, 0x10", (f"s{n}", f"s{base}", "?1")

    def scalar(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        if "getreg" in name:
            yield "s4, hwreg(HW_REG_MODE)", ("s1", "?1")
        elif name.startswith("s_setreg"):
            yield "hwreg(HW_REG_MODE), s4", ("s1", "?1")
            yield "hwreg(HW_REG_MODE), 0x123", ("?1", "?1")
        if name.startswith("s_waitcnt_") and self.gfx >= 10:
            yield "null, 0x3", ("s1", "?1")
        yield "", ()
        one = ["s1", "s2"]
        yield from self.lists(one)
        yield from self.lists(one, one)
        yield from self.lists(one, one, one)
        yield "s4, 0x123", ("s1", "?1")
        yield "s[4:5], 0x123", ("s2", "?1")
        yield "0x3", ("?1",)
        yield "-1", ("S1",)
        yield "s[4:5], 0x10, s7, 3", ("s2", "?1", "s1", "?1")

    def lds(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        result, one, two = ([f"{k}{n}" for n in (1, 2, 3, 4)] for k in "D01")
        yield "", ()
        if "_gws_" in name:
            yield "v4 gds", ("A1",)
            return
        if re.search("_rtn|read|load|swizzle|permute|append|consume", name):
            yield from self.lists(result)
            yield from self.lists(result, ["A1"])
            yield from self.lists(result, ["A1"], one)
            yield from self.lists(result, ["A1"], one, two)
        else:
            yield from self.lists(["01"] if "addtid" in name else ["A1"])
            yield from self.lists(["A1"], one)
            yield from self.lists(["A1"], one, two)

    def flat(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        address, tail = {"g": ("v[20:21]", ", off"), "f": ("v[20:21]", ""), "s": ("v20", ", off")}[
            name[0].replace("c", "g")
        ]
        returns = " th:TH_ATOMIC_RETURN" if self.gfx >= 12 else " glc"
        yield "", ()
        for n in (1, 2, 3, 4):
            value = reg("v", n, 4)
            if "_store" in name or "_atomic" in name:
                yield f"{address}, {value}{tail}", (f"0{n}",)
                if "_atomic" in name:  # some have only the form that returns
                    yield f"v40, {address}, {value}{tail}{returns}", (f"0{n}",)
                    yield f"v[40:41], {address}, {value}{tail}{returns}", (f"0{n}",)
                yield f"{value}{tail}", (f"0{n}",)
            else:
                yield f"{value}, {address}{tail}", (f"D{n}",)
                yield f"{value}{tail}", (f"D{n}",)
        yield f"{address}{tail}", ("D1",)

    def matrix(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        sizes = (1, 2, 3, 4, 6, 8, 16, 32)
        for d, a, b in itertools.product(sizes, sizes[:-2], sizes[:-2]):
            if a != b and not re.match(r"v_(smfmac|swmmac)|v_mfma_(scale_)?f32_\d+x\d+x\d+_f8f6f4", name):
                continue
            last = (d,) if not name.startswith(("v_smfmac", "v_swmmac")) else (1, 2)
            for c in last:
                at = (64, 8, 16, 24)
                text = ", ".join(reg("v", n, p) for n, p in zip((d, a, b, c), at))
                yield text + ("" if "_scale_" not in name else ", v40, v41"), tuple(f"v{n}" for n in (d, a, b, c))

    def vector(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "", ()
        m = [f"m{self.mask}"]
        values, table = ["h1", "v1", "v2"], ["bitop3" in name]
        wide = ["v1", "v2", "v3", "v4", "v6", "v8", "v16", "v32"]
        if "mk_f" in name or "ak_f" in name:
            for k in ("h1", "v1", "v2"):
                for order in ([k, k, "?1", k], [k, k, k, "?1"]):
                    yield from self.lists(*([x] for x in order))
            return
        if name.startswith("v_cmpx") and self.gfx >= 10:
            yield from self.lists(values, values)
            return
        if name.startswith("v_cmp"):
            yield from self.lists(m, values, values)
            return
        if re.search(r"div_scale|mad_u64_u32|mad_i64_i32|mad_co_", name):
            yield from self.lists(values, m, values, values, values)
            return
        if "cndmask" in name:
            yield from self.lists(values, values, values, m)
            return
        if re.match(r"v_(add|sub|subrev)c?_co_|v_subbrev|v_subb_", name):
            yield from self.lists(values, m, values, values, m)
            yield from self.lists(values, m, values, values)
            return
        if re.match(r"v_(readlane|readfirstlane|s_)", name):
            first = ["s1"]
            yield from self.lists(first, ["s1"] if name.startswith("v_s_") else ["v1"])
            yield from self.lists(first, ["v1"], ["s1"])
            return
        if (
            "lane" in name
            and not name.startswith("v_permlane_")
            and ("write" in name or re.search(r"permlanex?16_b", name))
        ):
            yield "v4, s5, m0", ("v1", "s1", "s1")  # gfx9 reads one SGPR beside M0
            yield from self.lists(["v1"], ["v1"], ["s1"], ["s1"])
            return
        end = " bitop3:0x5a" if table[0] else ""
        for count in (1, 2, 3):
            for text, tokens in self.lists(values, *([values] * count)):
                yield text + end, tokens
        if re.search(r"sad|scalef32|cvt_.*f6|cvt_.*f4|cvt_sr|pk32|perm|prng|ashr_pk|fp8|bf8|_f8", name):
            for count in (1, 2, 3):
                for text, tokens in self.lists(
                    wide, *([wide] * min(count, 2)), *([["v1", "v4"]] if count == 3 else [])
                ):
                    yield text, tokens
