"""`tec emu run --html`: counts line by line, and the page that shows them."""

from __future__ import annotations

import json
import re

import llvmlite.binding as llvm
import numpy as np
import pytest

import tec
from tec.codegen.objects.linking import link
from tec.emulator.lines import counted

# Each of 64 lanes adds the elements of a row of 16 in LDS, a stride of 32 words apart: all in one bank of 32 on gfx942.
IR = """target triple = "amdgcn-amd-amdhsa"
@s = internal addrspace(3) global [2048 x float] undef, align 16
define amdgpu_kernel void @sums(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) #0 !dbg !5 {
  %t = call i32 @llvm.amdgcn.workitem.id.x(), !dbg !8
  %at = mul i32 %t, 32, !dbg !8
  %ps = getelementptr float, ptr addrspace(3) @s, i32 %at, !dbg !8
  %px = getelementptr float, ptr addrspace(1) %x, i32 %t, !dbg !8
  %v = load float, ptr addrspace(1) %px, !dbg !8
  store float %v, ptr addrspace(3) %ps, !dbg !9
  br label %loop, !dbg !10
loop:
  %i = phi i32 [ 0, %0 ], [ %i1, %loop ]
  %sum = phi float [ 0.0, %0 ], [ %sum1, %loop ]
  %w = load volatile float, ptr addrspace(3) %ps, !dbg !10
  %sum1 = call float @llvm.fma.f32(float %w, float 2.0, float %sum), !dbg !10
  %i1 = add i32 %i, 1, !dbg !10
  %more = icmp slt i32 %i1, %n, !dbg !10
  br i1 %more, label %loop, label %end, !dbg !10
end:
  %py = getelementptr float, ptr addrspace(1) %y, i32 %t, !dbg !11
  store float %sum1, ptr addrspace(1) %py, !dbg !11
  ret void, !dbg !11
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.fma.f32(float, float, float)
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
!llvm.module.flags = !{!0, !1}
!llvm.dbg.cu = !{!2}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = !{i32 7, !"Dwarf Version", i32 5}
!2 = distinct !DICompileUnit(language: DW_LANG_C, file: !3, producer: "t", isOptimized: true, emissionKind: LineTablesOnly)
!3 = !DIFile(filename: "sums.c", directory: "FOLDER")
!4 = !DISubroutineType(types: !6)
!5 = distinct !DISubprogram(name: "sums", file: !3, line: 1, type: !4, unit: !2, spFlags: DISPFlagDefinition | DISPFlagOptimized)
!6 = !{null}
!8 = !DILocation(line: 2, scope: !5)
!9 = !DILocation(line: 3, scope: !5)
!10 = !DILocation(line: 4, scope: !5)
!11 = !DILocation(line: 5, scope: !5)
"""
SOURCE = "void sums(float *x, float *y, int n) {\n  float v = x[t];\n  s[32 * t] = v;\n  for (i = 0; i < n; i++) sum += 2 * s[32 * t];\n  y[t] = sum; // </script>\n}\n"


@pytest.fixture(scope="module")
def kernel_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx942", opt=2)
    text = IR.replace("FOLDER", str(folder))
    (folder / "sums.c").write_text(SOURCE)
    (folder / "kernel.hsaco").write_bytes(link(machine.emit_object(llvm.parse_assembly(text)), "own"))
    (folder / "kernel.s").write_text(machine.emit_assembly(llvm.parse_assembly(text)))
    return folder / "kernel.hsaco"


def test_counts_by_line(kernel_file):
    dev = tec.rocm_emu("gfx942")
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    with counted(dev.driver) as launches:
        dev.load(kernel_file)["sums"][3, 64](x, y, 10)
    (got,) = launches
    by_op: dict[str, list] = {}
    for line in got.lines:
        by_op.setdefault(line.text.split()[0], []).append(line)
    (fma,) = by_op["v_fmac_f32_e32"] if "v_fmac_f32_e32" in by_op else by_op["v_fma_f32"]
    (load,), (store,) = by_op["global_load_dword"], by_op["global_store_dword"]
    (read,), (write,) = by_op["ds_read_b32"], by_op["ds_write_b32"]
    # Three waves, ten turns of the loop, all lanes.
    assert [v.executed for v in (load, write, read, fma, store)] == [3, 3, 30, 30, 3] and fma.lanes == 64
    assert [v.where.rpartition("/")[2] for v in (load, write, read, fma, store)] == [
        "sums.c:2",
        "sums.c:3",
        "sums.c:4",
        "sums.c:4",
        "sums.c:5",
    ]
    assert load.bytes == 3 * 256 and load.line_bytes == 3 * 256
    # 64 lanes in one bank: 64 clocks, where 2 would do.
    assert (read.lds_clocks, read.conflict_clocks) == (30 * 64, 30 * 62) and read.bytes == 30 * 256
    assert got.flops == {"float32": 2.0 * 64 * 30}
    waits = [v for v in got.lines if v.text.startswith("s_waitcnt")]
    assert sum(v.waited for v in waits) > 0.5 and sum(v.waited for v in got.lines) <= 1.0001
    assert not dev.driver.profile and dev.driver.observer is None


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])


def test_page(tec_cli, kernel_file, tmp_path):
    common = ["emu", "run", str(kernel_file), "--block", "64", "-a", "f32:256", "-a", "f32:256=zeros"]
    first, second = tmp_path / "first.html", tmp_path / "second.html"
    got = tec_cli(*common, "--grid", "3", "-a", "i32=10", "--html", str(first))
    assert got.exit_code == 0, got.output
    text = first.read_text()
    # One file: nothing is loaded, and what the source holds cannot end the script.
    assert not re.search(r'(?:src|href)="|url\(|@import', text) and text.count("</script>") == 2 and "@@" not in text
    data = data_of(first)
    assert data["kernel"] == "sums" and dict(data["facts"])["chip"] == "MI300X (gfx942)"
    assert data["sources"][0]["text"] == SOURCE.splitlines() and data["sources"][0]["lines"] == [2, 3, 4, 5]
    assert data["occupancy"]["limit"] == "LDS" and data["occupancy"]["rows"][2][2] == 2.0  # 8 KiB of 64 for one wave
    assert data["roofline"]["points"] and {n for n, _ in data["time"]["parts"]} >= {"LDS", "VALU", "memory"}
    got = tec_cli(*common, "--grid", "1", "-a", "i32=20", "--html", str(second), "--compare", str(first))
    assert got.exit_code == 0, got.output
    data = data_of(second)
    assert data["against"]["kernel"] == "sums" and "against" not in data["against"]
    assert data["rows"] == [[k, k] for k in range(len(data["lines"]))]  # the same code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compare", "kernel.s"], "--compare is for the page"),
        (["--html", "x.html", "--compare", "kernel.s"], "no page of tec emu run --html"),
        (["--html", "none/x.html"], "no folder"),
    ],
)
def test_mistakes(words, said, tec_cli, kernel_file, monkeypatch):
    monkeypatch.chdir(kernel_file.parent)
    got = tec_cli("emu", "run", "kernel.hsaco", "--block", "64", "-a", "f32:64", "-a", "f32:64", "-a", "i32=1", *words)
    assert got.exit_code == 2 and said in got.output, got.output
