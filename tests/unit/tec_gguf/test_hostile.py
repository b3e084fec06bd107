"""Files that are damaged or made to do harm: each is refused with an error that says what is wrong, before anything is made of its numbers."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from tec_gguf.assemble import checkpoint_of
from tec_gguf.reader import MOST_DEPTH, is_gguf, read

from tec.errors import ImportModelError, TecError
from tests import seeds

from .files import LLAMA, header, llama_tensors, pair, tensor, text, write

STRING, ARRAY = 8, 9
HUGE = 1 << 60


def nested(depth: int) -> bytes:
    return b"".join(struct.pack("<IQ", ARRAY, 1) for _ in range(depth)) + struct.pack("<IQB", 0, 1, 7)


ARCHITECTURE = pair("general.architecture", STRING, text("llama"))
HOSTILE = {
    "nothing": (b"", "is no GGUF file"),
    "another file": (b"PK\3\4" + bytes(100), "is no GGUF file"),
    "four letters": (b"GGUF", "the file ends here"),
    "version": (header([], [], version=9), "version 9 of GGUF"),
    "version 1": (header([], [], version=1), "version 1 of GGUF"),
    "big-endian": (header([], [], version=3 << 24), "numbers are big-endian"),
    "2^60 tensors": (header([], [], counts=(HUGE, 0)), "1152921504606846976 tensors"),
    "2^60 pairs": (header([], [], counts=(0, HUGE)), "1152921504606846976 pairs"),
    "2^64 - 1 pairs": (header([], [], counts=(0, (1 << 64) - 1)), "pairs of metadata"),
    "a name of 2^60 bytes": (header([struct.pack("<QI", HUGE, 0) + bytes(16)], []), "a text of 1152921504606846976 bytes"),
    "a text of 2^63 bytes": (header([pair("a.b", STRING, struct.pack("<Q", 1 << 63))], []), "a text of 9223372036854775808 bytes"),
    "2^60 texts": (header([pair("a.b", ARRAY, struct.pack("<IQ", STRING, HUGE))], []), "texts"),
    "2^62 numbers of 8 bytes": (header([pair("a.b", ARRAY, struct.pack("<IQ", 10, 1 << 62))], []), "numbers"),
    "2^60 arrays": (header([pair("a.b", ARRAY, struct.pack("<IQ", ARRAY, HUGE))], []), "arrays"),
    "deep arrays": (header([pair("a.b", ARRAY, nested(MOST_DEPTH + 1)[0:])], []), "more than 4 deep"),
    "a text beyond the end, in an array": (
        header([pair("a.b", ARRAY, struct.pack("<IQ", STRING, 2) + text("x") + struct.pack("<Q", 1 << 63))], []), "beyond the end"),
    "a kind of value": (header([pair("a.b", 77, b"")], []), "a value of kind 77"),
    "a kind in an array": (header([pair("a.b", ARRAY, struct.pack("<IQ", 77, 0))], []), "an array of kind 77"),
    "a bool of 2": (header([pair("a.b", 7, b"\2")], []), "2 as a bool"),
    "bools of 2": (header([pair("a.b", ARRAY, struct.pack("<IQ", 7, 2) + b"\1\2")], []), "bools with other numbers"),
    "a key twice": (header([pair("a.b", 0, b"\1")] * 2, []), "it is there twice"),
    "an empty key": (header([pair("", 0, b"\1")], []), "empty or holds control"),
    "a key that a terminal obeys": (header([pair("a\x1b[2J", 0, b"\1")], []), "holds control characters"),
    "a key with an end of line": (header([pair("a\nb", 0, b"\1")], []), "holds control characters"),
    "a key that is no UTF-8": (header([pair(b"\xff\xfe", 0, b"\1")], []), "is no UTF-8"),
    "a tensor's name that a terminal obeys": (header([], [tensor("w\x1b]0;x\7")], data=128), "holds control characters"),
    "a tensor's name of a kilobyte": (header([], [tensor("w" * 1000)], data=128), "a text of 1000 bytes"),
    "five dimensions": (header([], [tensor("w", (1, 1, 1, 1, 1))], data=128), "5 dimensions"),
    "2^32 dimensions": (header([], [text("w") + struct.pack("<I", 0xFFFFFFFF) + bytes(40)], data=64), "4294967295 dimensions"),
    "2^60 rows": (header([], [tensor("w", (32, HUGE))], data=128), "which no memory holds"),
    "rows whose product turns over": (header([], [tensor("w", (1 << 32, 1 << 32))], data=128), "which no memory holds"),
    "rows that are no blocks": (header([], [tensor("w", (33,), kind=2)], data=128), "rows of 33 weights in Q4_0"),
    "a format that is not known": (header([], [tensor("w", (32,), kind=999)], data=128), "number 999"),
    "a format that was given up": (header([], [tensor("w", (32,), kind=31)], data=128), "Q4_0_4_4"),
    "an offset outside": (header([], [tensor("w", offset=1 << 40)], data=128), "lie beyond the file"),
    "an offset that turns over": (header([], [tensor("w", offset=(1 << 64) - 32)], data=128), "lie beyond the file"),
    "an offset off the alignment": (header([], [tensor("w", offset=7)], data=1024), "no multiple of the alignment 32"),
    "bytes that are cut off": (header([], [tensor("w", (32, 8))], data=1000), "lie beyond the file"),
    "tensors that overlap": (header([], [tensor("v", (32,)), tensor("w", (32,), offset=96)], data=1024), "v and w: they overlap"),
    "tensors at one place": (header([], [tensor("v"), tensor("w")], data=1024), "v and w: they overlap"),
    "a tensor twice": (header([], [tensor("w"), tensor("w", offset=128)], data=1024), "it is there twice"),
    "an alignment of 3": (header([pair("general.alignment", 4, struct.pack("<I", 3))], [tensor("w")], data=1024), "general.alignment is 3"),
    "an alignment of 0": (header([pair("general.alignment", 4, struct.pack("<I", 0))], [tensor("w")], data=1024), "general.alignment is 0"),
    "an alignment that is a text": (header([pair("general.alignment", STRING, text("x"))], [tensor("w")], data=1024), "general.alignment is 'x'"),
    "no architecture": (header([], [tensor("w")], data=1024), "does not say general.architecture"),
    "an unknown architecture": (header([pair("general.architecture", STRING, text("x\x1b"))], []), "is unknown"),
    "no sizes": (header([ARCHITECTURE], []), "llama.embedding_length is None"),
    "a size that is a text": (header([ARCHITECTURE, pair("llama.embedding_length", STRING, text("9"))], []), "embedding_length is '9'"),
    "a part without the others": (header([ARCHITECTURE, pair("split.count", 2, struct.pack("<H", 3))], []), "one of 3 parts"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(tmp_path, what):
    raw, match = HOSTILE[what]
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    tracemalloc.start()
    with pytest.raises(ImportModelError, match=match) as caught:
        checkpoint_of(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20, "memory was taken for what the file only claims"
    assert "\x1b" not in str(caught.value)


def test_parts(tmp_path):
    """Three parts are one model; any of them may be given; a missing one is named."""
    tensors = llama_tensors()
    listed = list(tensors.items())
    for k in range(3):
        facts = LLAMA if k == 0 else {}
        write(
            tmp_path / f"m-{k + 1:05d}-of-00003.gguf", "llama",
            {**facts, "split.no": k, "split.count": 3, "split.tensors.count": len(listed)}, dict(listed[k::3]),
        )  # fmt: skip
    for k in range(3):
        checkpoint = checkpoint_of(tmp_path / f"m-{k + 1:05d}-of-00003.gguf")
        assert len(checkpoint.tensors) == len(listed) and checkpoint.config["hidden_size"] == 64
    found = checkpoint.tensors["model.layers.0.mlp.down_proj.weight"].dequantize()
    np.testing.assert_array_equal(found, tensors["blk.0.ffn_down.weight"])
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(ImportModelError, match=r"m-00002-of-00003\.gguf is missing"):
        checkpoint_of(tmp_path / "m-00001-of-00003.gguf")
    other = {**LLAMA, "split.no": 0, "split.count": 3}
    write(tmp_path / "m-00002-of-00003.gguf", "llama", other, {"output.weight": np.zeros((40, 64), np.float32)})
    with pytest.raises(ImportModelError, match="says that it is part 0 of 3"):
        checkpoint_of(tmp_path / "m-00001-of-00003.gguf")


def test_what_is_no_file_is_not_taken(tmp_path):
    assert not is_gguf(tmp_path / "none") and not is_gguf(tmp_path)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    facts = {
        **LLAMA,
        "tokenizer.ggml.tokens": ["a", "b", "c" * 20],
        "tokenizer.ggml.scores": [0.5, 0.25, 0.1],
        "a.flag": True,
    }
    return write(path, "llama", facts, llama_tensors(), {"blk.0.ffn_up.weight": "Q8_0"}).read_bytes()


@pytest.mark.parametrize("seed", seeds.some(12))
def test_headers_with_errors(honest, tmp_path, seed):
    """Fuzzes headers: bytes that change, numbers that become large, pieces that go or come twice, an end that comes early. A file is read or refused."""
    rng = np.random.default_rng(seed)
    end = honest.index(b"blk.0.ffn_down") + 100  # the header, and a little of the data
    path = tmp_path / "m.gguf"
    refused = 0
    for _ in range(60):
        raw = bytearray(honest)
        for _ in range(int(rng.integers(1, 5))):
            if not raw:
                break
            at = int(rng.integers(0, min(end, len(raw))))
            match rng.integers(0, 6):
                case 0:
                    raw[at] = int(rng.integers(0, 256))
                case 1:
                    raw[at] ^= 1 << int(rng.integers(0, 8))
                case 2:
                    value = int(rng.choice(np.array([0, 1, 1 << 31, 1 << 60, (1 << 63) - 1, (1 << 64) - 1], np.uint64)))
                    raw[at : at + 8] = struct.pack("<Q", value)
                case 3:
                    del raw[at : at + int(rng.integers(1, 40))]
                case 4:
                    raw[at:at] = raw[at : at + int(rng.integers(1, 40))]
                case 5:
                    del raw[int(rng.integers(0, len(raw))) :]
        path.write_bytes(raw)
        try:
            found = read(path)
            for e in found.entries:
                assert found.data(e).nbytes == e.nbytes, "a tensor that is taken lies in the file"
            for t in checkpoint_of(path):
                assert t.data.nbytes == t.nbytes
        except TecError:
            refused += 1
    assert refused > 10, "the errors reach nothing that is checked"
