"""Images: loads, stores, atomics, samples and gathers of every kind and format, against NumPy; typed and structured buffers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tec
from tec.emulator.errors import EmulationError
from tec.emulator.images.descriptors import SAMPLER
from tec.emulator.images.formats import numbers
from tec.emulator.images.sampled import SAMPLES
from tec.emulator.isa.table import ROWS
from tec.runtime.arrays.ndarray import array

from . import image_reference as reference
from .rows import Bench

F = np.float32
CHIPS = ["gfx1030", "gfx1100", "gfx1200"]
RNG = np.random.default_rng(16)


def bench(chip: str, planes: dict[str, int]) -> Bench:
    """With a texture object at the first scalar's address: its resource in s[40:47], its sampler in s[48:51]."""
    out = Bench(chip, planes, masked=False)
    wide, four = ("s_load_dwordx8", "s_load_dwordx4") if chip.startswith("gfx9") else ("s_load_b256", "s_load_b128")
    out.lines += [f"{wide} s[40:47], s[36:37], 0x0", f"{four} s[48:51], s[36:37], 0x30", "s_waitcnt lgkmcnt(0)"]
    return out


def on(
    chip: str,
    b: Bench,
    data: np.ndarray,
    inputs: dict[str, np.ndarray],
    kind: str = "2D",
    check: str = "bounds",
    **how: object,
):  # type: ignore[no-untyped-def]
    """Results of the cases over an image. The bench runs on the device that holds it."""
    run = b.launch(driver=tec.rocm_emu(chip, check=check).driver)
    made = tec.rocm_emu(chip, check=check).image(data, kind, **how)  # type: ignore[arg-type]
    return run(inputs, -1, int(made)), made


def near(chip: str, n: int, low: float = -1.5, high: float = 2.5) -> np.ndarray:
    return RNG.uniform(low, high, n).astype(F)


@pytest.mark.parametrize("chip", [*CHIPS, "gfx90a"])
def test_samples_of_every_kind(chip: str) -> None:
    """1D, 2D, 3D and layered images; each addressing mode, both filters, coordinates of both sorts."""
    b = bench(chip, {"x": 1, "y": 1, "z": 1})
    x, y, z = (b.reg(k) for k in "xyz")
    op, dim = ("image_sample", "") if chip == "gfx90a" else ("image_sample_lz", " dim:SQ_RSRC_IMG_{}")

    def line(kind: str, *address: str) -> str:
        flat = "" if dim or "ARRAY" not in kind else " da"
        # gfx9's addresses follow each other: the inputs do.
        where = address[0] if len(address) == 1 else f"[{', '.join(address)}]"
        return f"{op} v[2:5], {where}, s[40:47], s[48:51] dmask:0xf{dim.format(kind)}{flat}"

    kinds = {
        "1D": ([x], (9, 4)),
        "2D": ([x, y], (5, 7, 4)),
        "3D": ([x, y, z], (3, 5, 7, 4)),
        "1D_ARRAY": ([x, y], (6, 9, 4)),
        "2D_ARRAY": ([x, y, z], (4, 5, 7, 4)),
    }
    n = b.lanes
    for kind, (address, shape) in kinds.items():
        one = bench(chip, {"x": 1, "y": 1, "z": 1})
        at = one.case([line(kind, *address)], dwords=4)
        data = RNG.random(shape).astype(F)
        whole = data.reshape(*(1,) * (4 - data.ndim), *shape) if kind != "1D_ARRAY" else data[:, None]
        for mode, linear, normalized in (
            ("wrap", True, True),
            ("mirror", True, True),
            ("clamp", True, False),
            ("border", True, True),
            ("mirror", False, True),
            ("clamp", False, False),
        ):
            raw = {k: near(chip, n) * (1 if normalized else 5) for k in "xyz"}
            layer = "y" if kind == "1D_ARRAY" else "z" if kind == "2D_ARRAY" else None
            if layer:
                raw[layer] = near(chip, n, -2, 8)
            got, _ = on(
                chip, one, data, raw, kind, filter="linear" if linear else "point", address=mode, normalized=normalized
            )
            plain = {"1D": "x", "2D": "xy", "3D": "xyz", "1D_ARRAY": "x", "2D_ARRAY": "xy"}[kind]
            want = reference.sample(
                whole, [raw[k] for k in plain], (mode,) * 3, linear, normalized, layer=raw[layer] if layer else None
            )
            np.testing.assert_allclose(
                got[at : at + 4].view(F).T, want, rtol=0, atol=3e-7, err_msg=f"{kind} {mode} {linear} {normalized}"
            )


# Names that have each part of a sample's name at least once.
TRIED = [
    "image_sample_lz", "image_sample_l_o", "image_sample_c_lz_o", "image_sample_b_cl", "image_sample_d_cl_o", "image_sample_c_cd_g16", "image_sample_d_g16",
    "image_sample_c_l", "image_gather4_lz", "image_gather4_c_b_cl_o", "image_gather4_l", "image_gather4",
]  # fmt: skip


def test_parts_of_addresses() -> None:
    """Offsets, bias, reference, derivatives, level or clamp: in their places, in every name's form."""
    pattern = r"image_(sample|gather4)(_c)?(_cd|_d|_l|_b|_lz)?(_cl)?(_o)?(_g16)?$"
    parts = {
        m[0]: set(filter(None, re.match(pattern, m[0]).groups())) for m in (re.match(pattern, s) for s in SAMPLES) if m
    }  # type: ignore[union-attr]
    assert len(parts) == len(SAMPLES) and set().union(*parts.values()) == set().union(*(parts[n] for n in TRIED))
    b = bench("gfx1100", {"x": 1, "y": 1, "ref": 1, "junk": 1, "off": 1, "zero": 1})
    cases = {}
    for name in TRIED:
        form = parts[name]
        address = ["off"] * ("_o" in form) + ["junk"] * ("_b" in form) + ["ref"] * ("_c" in form)
        if form & {"_d", "_cd"}:
            address += ["junk"] * (2 if "_g16" in form else 4)
        address += ["x", "y"] + ["zero"] * ("_l" in form) + ["junk"] * ("_cl" in form)
        mask = "0x2" if "gather4" in name and "_c" not in form else "0x1" if "gather4" in name else "0xf"
        where = ", ".join(b.reg(k) for k in address)
        cases[name] = b.case(
            [f"{name} v[2:5], [{where}], s[40:47], s[48:51] dmask:{mask} dim:SQ_RSRC_IMG_2D"], dwords=4
        )
    n = b.lanes
    raw = {"x": near("", n), "y": near("", n), "ref": near("", n, 0, 1), "junk": near("", n), "zero": np.zeros(n, F)}
    dx, dy = RNG.integers(-8, 8, n), RNG.integers(-8, 8, n)
    raw["off"] = ((dx & 63) | (dy & 63) << 8).astype(np.uint32)
    data = RNG.random((6, 5, 4)).astype(F)
    device = tec.rocm_emu("gfx1100")
    made = device.image(data, filter="linear", address="wrap", normalized=True)
    words = np.frombuffer(bytes(made), np.uint32).copy()
    words[12] |= 3 << SAMPLER["compare"][0][0]  # less or equal
    changed = array(words, device)
    got = b.launch(driver=device.driver)(raw, -1, changed.address)
    for name, at in cases.items():
        form = parts[name]
        offsets = [dx, dy, 0] if "_o" in form else None
        values = got[at : at + 4].view(F).T
        if "gather4" in name:
            want = reference.gather(
                data if "_c" not in form else data[..., :1], raw["x"], raw["y"], "wrap", 1 if "_c" not in form else 0
            )
            if offsets:
                taps = [reference.axis(raw[k], s, "wrap", True, True, o) for k, s, o in (("x", 5, dx), ("y", 6, dy))]
                want = np.stack([data[taps[1][j][0], taps[0][i][0], 0] for i, j in ((0, 1), (1, 1), (1, 0), (0, 0))], 1)
            if "_c" in form:
                want = (raw["ref"][:, None] <= want).astype(F)
        else:
            want = reference.sample(
                data[None],
                [raw["x"], raw["y"]],
                ("wrap",) * 3,
                True,
                True,
                offsets=offsets,
                reference=raw["ref"] if "_c" in form else None,
            )
        np.testing.assert_allclose(values, want, rtol=0, atol=3e-7, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "shape", "axes"), [("1D", (9, 4), 1), ("1D_ARRAY", (6, 9, 4), 1), ("3D", (3, 5, 7, 4), 3)]
)
def test_derivatives_are_two_an_axis(kind: str, shape: tuple[int, ...], axes: int) -> None:
    """Before the coordinates lie derivatives along both axes of the screen, for each axis of the image but a layer."""
    names = ("x", "layer") if kind == "1D_ARRAY" else ("x", "y", "z")[:axes]
    b = bench("gfx1030", {**dict.fromkeys(names, 1), "junk": 1})
    where = ", ".join([b.reg("junk")] * (2 * axes) + [b.reg(k) for k in names])
    at = b.case([f"image_sample_d v[2:5], [{where}], s[40:47], s[48:51] dmask:0xf dim:SQ_RSRC_IMG_{kind}"], dwords=4)
    raw = {k: near("", b.lanes) for k in (*names, "junk")}
    if "layer" in raw:
        raw["layer"] = near("", b.lanes, -2, 8)
    data = RNG.random(shape).astype(F)
    got, _ = on("gfx1030", b, data, raw, kind, filter="linear", address="wrap", normalized=True)
    whole = data[:, None] if kind == "1D_ARRAY" else data.reshape(*(1,) * (4 - data.ndim), *shape)
    want = reference.sample(whole, [raw[k] for k in "xyz"[:axes]], ("wrap",) * 3, True, True, layer=raw.get("layer"))
    np.testing.assert_allclose(got[at : at + 4].view(F).T, want, rtol=0, atol=3e-7)


def test_cubes() -> None:
    """A face's elements by its own coordinates; a filter takes those beyond an edge from the face that lies there."""
    b = bench("gfx1100", {"x": 1, "y": 1, "z": 1})
    at = b.case(
        [
            "image_sample_lz v[2:5], [{}, {}, {}], s[40:47], s[48:51] dmask:0xf dim:SQ_RSRC_IMG_CUBE".format(
                *(b.reg(k) for k in "xyz")
            )
        ],
        dwords=4,
    )
    size, n = 4, b.lanes
    data = RNG.random((12, size, size, 4)).astype(F)
    face = RNG.integers(0, 6, n)
    # The middle of a face, where a filter stays on it; the second cube by 8 more.
    inner = {
        "x": RNG.uniform(1.2, 1.8, n).astype(F),
        "y": RNG.uniform(1.2, 1.8, n).astype(F),
        "z": (face + 8 * RNG.integers(0, 2, n)).astype(F),
    }
    got, _ = on("gfx1100", b, data, inner, "CUBE", filter="linear", normalized=True)
    layer = face + 6 * (inner["z"] >= 8)
    want = reference.sample(data, [inner["x"] - 1, inner["y"] - 1], ("clamp",) * 3, True, True, layer=layer)
    np.testing.assert_allclose(got[at : at + 4].view(F).T, want, rtol=0, atol=3e-7)
    # The same direction, seen from both faces of an edge, gives the same value: +x's right edge is -z's left one.
    y = RNG.uniform(1.2, 1.8, n).astype(F)
    right = {"x": np.full(n, 2, F), "y": y, "z": np.zeros(n, F)}
    left = {"x": np.full(n, 1, F), "y": y, "z": np.full(n, 5, F)}
    (a, _), (c, _) = (on("gfx1100", b, data, raw, "CUBE", filter="linear", normalized=True) for raw in (right, left))
    first, second = (v[at : at + 4].view(F) for v in (a, c))
    # At a face's last 256th the weights are 1/2 - 1/256 of the other side's: compare with the middle of the two elements.
    j = reference.axis(y - F(1), size, "clamp", True, True)
    middle = sum((wt[:, None] * (data[0, i, size - 1] + data[5, i, 0]) / 2 for i, wt in j), np.zeros((n, 4)))
    np.testing.assert_allclose(first.T, middle, rtol=0, atol=5e-3)
    np.testing.assert_allclose(second.T, middle, rtol=0, atol=5e-3)


def decoded(raw: np.ndarray, name: str) -> list[np.ndarray]:
    """Components of elements, each a Python int, as floats or integers."""
    *sizes, kind = name.split("_")
    out, place = [], 0
    for k, size in enumerate(int(s) for s in reversed(sizes)):
        part = np.array([int(v) >> place & (1 << size) - 1 for v in raw], object)
        signed = np.array([int(v) - (1 << size) if int(v) >> size - 1 else int(v) for v in part], object)
        place += size
        own = "UNORM" if kind == "SRGB" and k == 3 else kind
        most = (1 << size) - 1
        if own == "SHARED":
            scale = np.array([2.0 ** ((int(v) >> 27) - 24) for v in raw])
            if k < 3:
                out.append(part.astype(float) * scale)
        elif own in ("UINT", "SINT"):
            out.append((part if own == "UINT" else signed).astype(np.int64))
        elif own in ("UNORM", "SRGB"):
            value = part.astype(float) / most
            out.append(
                np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4) if own == "SRGB" else value
            )
        elif own == "SNORM":
            out.append(np.maximum(signed.astype(float) / (most >> 1), -1))
        elif own in ("USCALED", "SSCALED"):
            out.append((part if own == "USCALED" else signed).astype(float))
        elif size == 32:
            out.append(part.astype(np.uint32).view(F).astype(float))
        else:
            half = part << (4 if size == 11 else 5 if size == 10 else 0)
            out.append(half.astype(np.uint16).view(np.float16).astype(float))
    return out


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1030", "gfx1100"])
def test_formats(chip: str) -> None:
    """Every element format, read by a typed buffer load, and written back by the store: the bytes are those that were read."""
    gfx = int(chip[3:-2])
    b = Bench(chip, {"i": 1}, masked=False)
    wide = "s_load_dwordx4" if gfx == 9 else "s_load_b128"
    b.lines += [f"{wide} s[40:43], s[36:37], 0x0", f"{wide} s[44:47], s[36:37], 0x10", "s_waitcnt lgkmcnt(0)"]
    i = b.reg("i")
    at = b.case(
        [
            f"buffer_load_format_xyzw v[2:5], {i}, s[40:43], 0 idxen",
            "s_waitcnt vmcnt(0)",
            f"buffer_store_format_xyzw v[2:5], {i}, s[44:47], 0 idxen",
        ],
        dwords=4,
    )
    device = tec.rocm_emu(chip)
    run = b.launch(driver=device.driver)
    count = b.lanes
    seen = 0
    for number, name in numbers(gfx).items():
        buffers = number < 128 if gfx == 10 else (number & 63) < 15 and number >> 6 < 8 if gfx == 9 else number < 64
        *sizes, kind = name.split("_")
        if (
            not buffers
            or (
                gfx == 9
                and (
                    (kind == "FLOAT" and sizes[0] in ("8", "2"))
                    or (kind not in ("UINT", "SINT", "FLOAT") and sizes[0] == "32")
                )
            )
            or (kind == "FLOAT" and "8" in sizes)
        ):
            continue  # pairs of gfx9's fields that are no format
        if kind == "FLOAT" and sizes in (["10", "10", "10", "2"], ["2", "10", "10", "10"]):
            continue
        seen += 1
        nbytes = sum(int(s) for s in sizes) // 8
        data = RNG.integers(0, 256, (count, nbytes), dtype=np.uint8)
        if kind == "FLOAT":
            data &= 0x3F  # no NaNs, whose payloads conversions change
        raw = [int.from_bytes(row.tobytes(), "little") for row in data]
        source, goal = array(data, device), array(np.zeros_like(data), device)
        word3 = 4 | 5 << 3 | 6 << 6 | 7 << 9
        word3 |= (number >> 6) << 12 | (number & 63) << 15 if gfx == 9 else number << 12 | 1 << 28
        words = [
            w for a in (source, goal) for w in (a.address & 0xFFFFFFFF, a.address >> 32 | nbytes << 16, count, word3)
        ]
        resources = array(np.array(words, np.uint32), device)
        got = run({"i": np.arange(count, dtype=np.uint32)}, -1, resources.address)[at : at + 4]
        for k, want in enumerate(decoded(np.array(raw, object), name)):
            if kind in ("UINT", "SINT"):
                assert (got[k] == (want & 0xFFFFFFFF).astype(np.uint32)).all(), name
            else:
                np.testing.assert_allclose(got[k].view(F), want, rtol=1.2e-7, err_msg=name)
        back = np.array([int.from_bytes(r.tobytes(), "little") for r in goal.numpy()], object)
        if kind == "FLOAT":
            for a, c in zip(decoded(back, name), decoded(np.array(raw, object), name)):
                np.testing.assert_array_equal(a, c, err_msg=name)
        elif kind == "SNORM":  # the least number and the one above it are one
            low = [np.maximum(v, -1) for v in decoded(back, name)]
            for k, v in enumerate(low):
                np.testing.assert_allclose(v, got[k].view(F), rtol=1.2e-7)
        else:
            assert (goal.numpy() == data).all(), name
    assert seen > 50


@pytest.mark.parametrize("chip", [*CHIPS, "gfx90a"])
def test_loads_and_stores(chip: str) -> None:
    """Integer coordinates: elements inside, 0 outside (and nothing stored there); 16-bit addresses and data; some channels of an element."""
    gfx9 = chip == "gfx90a"
    unorm = " unorm" if gfx9 else ""
    dim = "" if gfx9 else " dim:SQ_RSRC_IMG_2D"
    b = bench(chip, {"x": 1, "y": 1, "packed": 1})
    xy, packed = f"[{b.reg('x')}, {b.reg('y')}]", b.reg("packed")
    at = {
        "all": b.case([f"image_load v[2:5], {xy}, s[40:47] dmask:0xf{dim}{unorm}"], dwords=4),
        "two": b.case([f"image_load v[2:3], {xy}, s[40:47] dmask:0xa{dim}{unorm}"], dwords=2),
        "d16": b.case([f"image_load v[2:3], {xy}, s[40:47] dmask:0xf{dim}{unorm} d16"], dwords=2),
    }
    if not gfx9:
        at["a16"] = b.case([f"image_load v[2:5], {packed}, s[40:47] dmask:0xf{dim} a16"], dwords=4)
        at["mip"] = b.case(["v_mov_b32 v6, 0", f"image_load_mip v[2:5], [{b.reg('x')}, {b.reg('y')}, v6], s[40:47] dmask:0xf{dim}"], dwords=4)  # fmt: skip
    b.case([f"image_load v[2:5], {xy}, s[40:47] dmask:0xf{dim}{unorm}", "s_waitcnt vmcnt(0)", *(f"v_add_f32 v{k}, 1.0, v{k}" for k in range(2, 6)),
            f"image_store v[2:5], {xy}, s[40:47] dmask:0xf{dim}{unorm}"], dwords=1)  # fmt: skip
    sizes = b.case(["v_mov_b32 v6, 0", f"image_get_resinfo v[2:5], v6, s[40:47] dmask:0xf{dim}{unorm}"], dwords=4)
    n = b.lanes
    place = RNG.permutation(100)[:n]  # each element once
    x, y = (place % 10 - 1).astype(np.int32), (place // 10 - 1).astype(np.int32)
    data = RNG.random((7, 6, 4)).astype(np.float16)
    raw = {
        "x": x.view(np.uint32),
        "y": y.view(np.uint32),
        "packed": ((x & 0xFFFF) | (y & 0xFFFF) << 16).astype(np.uint32),
    }
    got, made = on(chip, b, data, raw, check="bounds,race")
    inside = (x >= 0) & (x < 6) & (y >= 0) & (y < 7)
    want = np.where(inside[:, None], data[np.clip(y, 0, 6), np.clip(x, 0, 5)], 0)
    for name in at.keys() & {"all", "a16", "mip"}:
        assert (got[at[name] : at[name] + 4].view(F).T == want).all(), name
    assert (got[at["two"] : at["two"] + 2].view(F).T == want[:, 1::2]).all()
    assert (np.ascontiguousarray(got[at["d16"] : at["d16"] + 2].T).view(np.float16) == want).all()
    after = data.copy()
    after[y[inside], x[inside]] = (data[y[inside], x[inside]].astype(F) + 1).astype(np.float16)
    assert (made.numpy() == after).all()
    assert got[sizes : sizes + 4, 0].tolist() == [6, 7, 1, 1]


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1030", "gfx1200"])
def test_atomics(chip: str) -> None:
    """Every atomic of images does what the buffer's of its name does; the rows and their names are those of all chips."""
    rows = sorted(n for n in ROWS if n.startswith("image_atomic_"))
    assert len(rows) == 29
    new, gfx9 = chip == "gfx1200", chip == "gfx90a"
    tried = {"add_uint": lambda a, b: a + b, "max_uint": max, "swap": lambda a, b: b, "xor": lambda a, b: a ^ b} if new else {
        "add": lambda a, b: a + b, "smax": lambda a, b: max(a ^ 1 << 31, b ^ 1 << 31) ^ 1 << 31, "umin": min, "or": lambda a, b: a | b, "swap": lambda a, b: b,
    }  # fmt: skip
    b = bench(chip, {"x": 1, "d": 1})
    tail = "" if gfx9 else " dim:SQ_RSRC_IMG_1D"
    gives = " th:TH_ATOMIC_RETURN" if new else " glc"
    places = {
        name: b.case(
            [f"v_mov_b32 v2, {b.reg('d')}", f"image_atomic_{name} v2, {b.reg('x')}, s[40:47] dmask:0x1{tail}{gives}"],
            dwords=1,
        )
        for name in tried
    }
    n = b.lanes
    data = RNG.integers(0, 2**32, n - 3, dtype=np.uint32)
    operand = RNG.integers(0, 2**32, n, dtype=np.uint32)
    got, made = on(chip, b, data, {"x": np.arange(n, dtype=np.uint32), "d": operand}, "1D")
    now = [int(v) for v in data]
    for name, fn in tried.items():
        assert got[places[name], : n - 3].tolist() == now, name
        now = [fn(a, int(v)) & 0xFFFFFFFF for a, v in zip(now, operand)]
    assert made.numpy().tolist() == now


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_typed_rows(chip: str) -> None:
    """Every typed load and store: one to four components, as dwords or packed in halves."""
    old = chip == "gfx942"
    names = sorted(
        n for n in ROWS if "_format_" in n and not (re.search(r"_d16(_hi)?_format", n) if old else "format_d16" in n)
    )
    assert len(names) == 34
    b = Bench(chip, {"i": 1}, masked=False)
    load = "s_load_dwordx4" if old else "s_load_b128"
    b.lines += [f"{load} s[40:43], s[36:37], 0x0", f"{load} s[44:47], s[36:37], 0x10", "s_waitcnt lgkmcnt(0)"]
    fmt = "[BUF_DATA_FORMAT_16_16_16_16,BUF_NUM_FORMAT_FLOAT]" if old else "[BUF_FMT_16_16_16_16_FLOAT]"
    n, i = b.lanes, b.reg("i")
    cases, goals = {}, {}
    for name in names:
        letters, d16 = len(name.rpartition("_")[2]), "d16" in name
        dwords = (letters + 1) // 2 if d16 else letters
        data = "v2" if dwords == 1 else f"v[2:{1 + dwords}]"
        tail = f" format:{fmt}" if name[0] == "t" else ""
        if "_load_" in name:
            cases[name] = b.case(
                [f"{name} {data}, {i}, s[40:43], 0{tail} idxen"], ["v_mov_b32 v2, 0x12345678"], dwords=dwords
            )
        else:
            goals[name] = len(goals)
            plain = (
                f"buffer_load_format_{'d16_' if d16 else ''}xyzw" if old or not d16 else "buffer_load_d16_format_xyzw"
            )
            first = [
                f"{plain} v[2:{3 if d16 else 5}], {i}, s[40:43], 0 idxen",
                "s_waitcnt vmcnt(0)",
                f"s_mov_b32 s52, {8 * n * goals[name]}",
            ]
            b.case([*first, f"{name} {data}, {i}, s[44:47], s52{tail} idxen"], dwords=1)
    device = tec.rocm_emu(chip)
    data = RNG.random((n, 4)).astype(np.float16)
    source, goal = array(data, device), array(np.zeros((len(goals), n, 4), np.float16), device)
    number = next(k for k, v in numbers(int(chip[3:-2])).items() if v == "16_16_16_16_FLOAT")
    word3 = (
        4 | 5 << 3 | 6 << 6 | 7 << 9 | ((number >> 6) << 12 | (number & 63) << 15 if old else number << 12 | 1 << 28)
    )
    words = [w for a in (source, goal) for w in (a.address & 0xFFFFFFFF, a.address >> 32 | 8 << 16, n, word3)]
    resources = array(np.array(words, np.uint32), device)
    got = b.launch(driver=device.driver)({"i": np.arange(n, dtype=np.uint32)}, -1, resources.address)
    for name, at in cases.items():
        letters, dwords = len(name.rpartition("_")[2]), (len(name.rpartition("_")[2]) + 1) // 2
        if "_hi" in name:
            assert (got[at] == (data[:, 0].view(np.uint16).astype(np.uint32) << 16 | 0x5678)).all(), name
        elif "d16" in name:
            seen = np.ascontiguousarray(got[at : at + dwords].T).view(np.float16)
            assert (seen[:, :letters] == data[:, :letters]).all(), name
        else:
            assert (got[at : at + letters].view(F).T == data[:, :letters]).all(), name
    for name, k in goals.items():
        letters = len(name.rpartition("_")[2])
        shown = data[:, 1:2] if "_hi" in name else data[:, :letters]
        assert (goal.numpy()[k][:, : shown.shape[1]] == shown).all(), name


def test_structured_buffers() -> None:
    """Elements by index: stride, offsets, range checks by each generation's rule, swizzling, typed instructions with a format of their own."""
    for chip in ("gfx942", "gfx1030", "gfx1100"):
        old = chip == "gfx942"
        b = Bench(chip, {"i": 1, "o": 1}, masked=False)
        load = "s_load_dwordx4" if old else "s_load_b128"
        b.lines += [f"{load} s[40:43], s[36:37], 0x0", f"{load} s[44:47], s[36:37], 0x10", "s_waitcnt lgkmcnt(0)"]
        i, two, dw = b.reg("i"), f"v[{b.place['i']}:{b.place['o']}]", "dword" if old or chip == "gfx1030" else "b32"
        fmt = "[BUF_DATA_FORMAT_16,BUF_NUM_FORMAT_UNORM]" if old else "[BUF_FMT_16_UNORM]"
        at = b.case([f"buffer_load_{dw} v2, {i}, s[40:43], 0 idxen offset:8", f"buffer_load_{dw} v3, {two}, s[40:43], 0 idxen offen",
                     f"buffer_load_{dw} v4, {two}, s[44:47], 0 idxen offen", f"tbuffer_load_format_x v5, {i}, s[40:43], 0 format:{fmt} idxen offset:4"], dwords=4)  # fmt: skip
        n, count = b.lanes, 24
        data = RNG.integers(0, 2**32, (64, 5), dtype=np.uint32)
        device = tec.rocm_emu(chip)
        there = array(data, device)
        index, offset = RNG.integers(0, 32, n, dtype=np.uint32), RNG.integers(0, 5, n, dtype=np.uint32) * np.uint32(4)
        raw_words = [there.address & 0xFFFFFFFF, there.address >> 32 | 20 << 16, count, 1 << 28 if not old else 0]
        swizzle = 1 << 31 if chip != "gfx1100" else 1 << 30
        turned = [raw_words[0], raw_words[1] | swizzle, count, raw_words[3] | 1 << 21]  # 16 indices together
        words = array(np.array([*raw_words, *turned], np.uint32), device)
        got = b.launch(driver=device.driver)({"i": index, "o": offset}, -1, words.address)[at : at + 4]
        flat, inside = data.ravel(), index < count
        assert (got[0] == np.where(inside, data[index, 2], 0)).all(), chip
        assert (got[1] == np.where(inside, data[index, offset // 4], 0)).all(), chip
        where = ((index // 16 * 20 + offset) * 16 + index % 16 * 4) // 4
        assert (got[2] == np.where(inside, flat[where], 0)).all(), chip
        unorm = (data[index, 1] & np.uint32(0xFFFF)).astype(F) / F(65535)
        assert (got[3].view(F) == np.where(inside, unorm, 0)).all(), chip


def test_checks_see_images() -> None:
    """An image that was never written, a store that races with a load of another wave's, memory that was freed, a tiled image, one with levels."""
    device = tec.rocm_emu("gfx1100", check="bounds,init")
    b = bench("gfx1100", {"x": 1, "y": 1})
    b.case([f"image_load v[2:5], [{b.reg('x')}, {b.reg('y')}], s[40:47] dmask:0xf dim:SQ_RSRC_IMG_2D"], dwords=4)
    raw = {"x": np.arange(32, dtype=np.uint32) % 4, "y": np.zeros(32, np.uint32)}
    run = b.launch(driver=device.driver)
    made = device.image(np.ones((4, 4, 4), F))
    run(raw, -1, int(made))

    def fault(change: dict[int, int], match: str) -> None:
        words = np.frombuffer(bytes(made), np.uint32).copy()
        for k, v in change.items():
            words[k] = v
        held = array(words, device)
        with pytest.raises(EmulationError, match=match):
            run(raw, -1, held.address)

    fresh = device.driver.memory.alloc(4096)  # type: ignore[union-attr]
    fault(
        {0: fresh >> 8 & 0xFFFFFFFF, 1: int(np.frombuffer(bytes(made), np.uint32)[1]) & ~0xFF | fresh >> 40},
        "uninitialized",
    )
    fault({0: 1}, "out of bounds|null")
    word3 = int(np.frombuffer(bytes(made), np.uint32)[3])
    fault({3: word3 | 9 << 20}, "not in rows")
    fault({3: word3 | 2 << 16}, "levels")
    fault({1: 0xFF << 20}, "format")


def test_refused() -> None:
    """What has no image: MI300's chips; and what no image can be."""
    with pytest.raises(tec.DeviceError, match="no image instructions"):
        tec.rocm_emu("gfx942").image(np.zeros((4, 4), F))
    device = tec.rocm_emu("gfx1100")
    for data, how, match in ((np.zeros((4, 4, 3), F), {}, "channels"), (np.zeros((4, 4), np.float64), {}, "float64"), (np.zeros((4, 4), F), {"filter": "cubic"}, "filter"),
                             (np.zeros((5, 4, 4), F), {"kind": "CUBE"}, "cube"), (np.zeros((4, 4), F), {"kind": "4D"}, "kind")):  # fmt: skip
        with pytest.raises(tec.TecError, match=match):
            device.image(data, **how)
    with pytest.raises(tec.DeviceError, match="makes no images"):
        tec.cpu().image(np.zeros((4, 4), F))
