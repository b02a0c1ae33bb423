"""`check --compile`: compiled kernels against a baseline, and edits that must fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cudareduce.catalog.registry import kernels_folder, load_registry
from cudareduce.compare.compile_check import exit_codes, undecided_notes
from cudareduce.compare.machine_code import (
    Code,
    Disassembler,
    Resources,
    code_of,
    counts_of,
    find_disassembler,
    parse_instructions,
    parse_resources,
    resident_warps,
)
from cudareduce.compare.nvcc import Compiled, Nvcc, broken_rules, first_error
from cudareduce.compare.traffic import Traffic
from cudareduce.compare.unit_verdicts import UnitRow, compare_units
from cudareduce.compare.units import Failed, Side, Unit, load, to_json
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine import installed
from cudareduce.reduction.operators import reduction_of
from tests.compare.test_verdicts import with_fields
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
needs_nvcc = pytest.mark.skipif(not list(installed("nvcc")), reason="nvcc was not found")
STORED = ROOT / "results" / "compile" / "nvcc-13.0.json"

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'kernel_a' for 'sm_90'
ptxas info    : Function properties for kernel_a
    544 bytes stack frame, 540 bytes spill stores, 588 bytes spill loads
ptxas info    : Used 32 registers, used 2 barriers, 4097 bytes smem, 544 bytes cumulative stack size
"""

SASS = """
		Function : kernel_a
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;         /* 0x00000a00ff017b82 */
                                                                  /* 0x000fe20000000800 */
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR8][R8.64] ;
        /*0020*/                   LDG.E R4, desc[UR8][R8.64] ;
        /*0030*/                   SHFL.DOWN PT, R3, R2, 0x10, 0x1f ;
        /*0040*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0050*/                   MEMBAR.SC.GPU ;
        /*0060*/                   ATOMG.E.INC.STRONG.GPU PT, R6, desc[UR8][R6.64], R9 ;
        /*0070*/              @UP0 STL [R1], R2 ;
        /*0080*/                   REDUX.SUM UR4, R2 ;
        /*0090*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*00a0*/                   EXIT ;
        /*00b0*/                   NOP;
		Function : another
        /*0000*/                   LDG.E R4, desc[UR8][R8.64] ;
"""


def test_the_output_of_ptxas_is_parsed() -> None:
    used = parse_resources(PTXAS, "kernel_a")
    assert used == Resources(32, 544, 540, 588, 4097, 2)
    assert used.spill_bytes == 1128
    with pytest.raises(ValueError, match="nothing on kernel_b"):
        parse_resources(PTXAS, "kernel_b")


def read_code(printed: str, entry: str) -> Code:
    return code_of(list(parse_instructions(printed, entry)), entry)


def test_instructions_of_one_entry_point_are_counted() -> None:
    code = read_code(SASS, "kernel_a")
    assert counts_of(code.opcodes) == {
        "all": 11, "wide_loads": 1, "global_loads": 2, "shuffles": 1, "warp_reductions": 1,
        "barriers": 1, "fences": 1, "sleeps": 0, "calls": 0, "atomics": 2, "local": 1,
        "double": 0, "conversions": 0,
    }  # fmt: skip
    assert code.in_flight == 16  # the second load fills a register of the first again
    assert read_code(SASS.replace("kernel_a", "kernel_b"), "kernel_b") == code
    assert read_code(SASS.replace("R3, R2, 0x10", "R3, R2, 0x8"), "kernel_a").sha != code.sha


@pytest.mark.parametrize(
    ("registers", "shared", "block", "arch", "warps"),
    [
        (32, 0, 256, 90, 64),  # as many as there are
        (33, 0, 256, 90, 48),  # 33 registers take 1280 a warp: 51 warps, 6 blocks of 8
        (32, 0, 1024, 75, 32),
        (32, 0, 32, 90, 32),  # 32 blocks, of a warp each
        (16, 100 * 1024, 256, 90, 16),  # two blocks of 101 KiB in 228
        (16, 60 * 1024, 256, 75, 8),
        (255, 0, 256, 80, 8),
        (129, 0, 32, 75, 12),  # 12 warps in 4 partitions; as one pool the registers would hold 15
    ],
)
def test_how_many_warps_an_sm_holds(
    registers: int, shared: int, block: int, arch: int, warps: int
) -> None:
    used = Resources(registers, 0, 0, 0, shared, 1)
    assert resident_warps(used, block, arch) == warps
    assert resident_warps(used, block, 999) is None


CODE = {"IMAD": 70, "FADD": 13, "LDG.128": 2, "LDG": 2, "SHFL": 10, "BAR": 1, "MEMBAR.SC.GPU": 2}
UNIT = Unit("kernel_a", "sum", "float32", "float32", "only", 256, 8, 90, "old",
            Resources(32, 0, 0, 0, 1024, 1), Code("old", CODE, 32))  # fmt: skip


def unit(
    opcodes: dict[str, int] | None = None, block: int = 256, items: int = 8, in_flight: int = 32,
    **figures: int,
) -> Unit:  # fmt: skip
    resources = replace(UNIT.resources, **figures)
    merged = {name: n for name, n in (CODE | (opcodes or {})).items() if n}
    code = Code("new" if opcodes else "old", merged, in_flight)
    return replace(
        UNIT, cubin_sha="new", resources=resources, block=block, items=items, code=code
    )  # fmt: skip


def side(*units: Unit, **more: Any) -> Side:
    return Side(units=units, **{"broken": {}} | more)


def compared(new: Unit, old: Unit = UNIT) -> UnitRow:
    [row] = compare_units(side(old), side(new))
    return row


@pytest.mark.parametrize(
    ("new", "verdict", "reason"),
    [
        (replace(UNIT), "SAME", ""),
        (unit(), "CHANGED", "the same instructions in another cubin"),
        (replace(unit(), code=Code("new", CODE, 32)), "CHANGED", "on other operands"),
        (unit(registers=30), "CHANGED", "registers 30, was 32"),
        (unit(registers=40), "WORSE", "resident warps 48, was 64"),
        (unit(spill_store_bytes=4), "WORSE", "spill store bytes 4, was 0"),
        (unit(stack_bytes=8), "WORSE", "stack bytes 8, was 0"),
        (unit({"STL": 3}), "WORSE", "local instructions 3, was 0"),
        (unit({"LDG.128": 1, "LDG": 6}), "WORSE", "share of wide loads 14 %, was 50 %"),
        (unit({"LDG.128": 4}), "BETTER", "wide loads 4, was 2"),
        (unit({"SHFL": 5}), "CHANGED", "shuffles 5, was 10; -5 SHFL"),
        (unit({"DADD": 1}), "WORSE", "double instructions 1, was 0"),
        (unit({"F2F.F64.F32": 1}), "WORSE", "conversions 1, was 0"),
        (unit({"CALL": 1}), "WORSE", "calls 1, was 0"),
        (unit({"CALL": 1}, items=16), "CHANGED", "calls 1, was 0"),
        (unit({"IMAD": 170}), "WORSE", "instructions 200, was 100"),
        (unit({"IMAD": 169}), "CHANGED", "instructions 199, was 100; +99 IMAD"),
        (unit({"IMAD": 170}, items=16), "CHANGED", "instructions 200, was 100"),
        (unit({"BAR": 8}), "WORSE", "barriers 8, was 1"),
        (unit({"BAR": 2}), "CHANGED", "barriers 2, was 1"),
        (unit({"BAR": 0}), "CHANGED", "barriers fell from 1 to 0: run verify; "),
        (unit({"BAR": 0, "LDG.128": 4}), "CHANGED", "barriers fell from 1 to 0: run verify; "),
        (unit({"BAR": 0}, block=128), "CHANGED", "barriers 0, was 1"),
        (unit({"BAR": 0, "DADD": 1}), "WORSE", "barriers fell from 1 to 0: run verify; "),
        (unit({"MEMBAR.SC.GPU": 0}), "WORSE", "fences 0, was 2"),
        (unit(in_flight=16), "WORSE", "bytes loaded before the first use 16, was 32"),
        (unit(in_flight=16, items=4), "CHANGED", "items 4, was 8"),
        (unit(in_flight=16, items=16), "CHANGED", "bytes loaded before the first use 16, was 32"),
        (unit(in_flight=8, items=16), "WORSE", "bytes loaded before the first use 8, was 32"),
        (unit({"I2F.U32.RP": 1}, items=16), "CHANGED", "conversions 1, was 0"),
        (unit({"DADD": 1}, items=16), "WORSE", "double instructions 1, was 0"),
        (unit(block=1024, registers=48), "CHANGED", "registers 48, was 32"),
        (unit(in_flight=64), "BETTER", "bytes loaded before the first use 64, was 32"),
        (unit(block=128), "CHANGED", "block 128, was 256"),
        (unit(shared_bytes=60000), "WORSE", "resident warps 24, was 64"),
        (replace(unit(), code=None), "CHANGED", ""),
    ],
)
def test_verdicts_on_figures(new: Unit, verdict: str, reason: str) -> None:
    row = compared(new)
    assert row.verdict == verdict
    assert reason in row.text


@pytest.mark.parametrize("arch", [75, 80, 90, 100, 120])
def test_a_larger_block_is_no_alarm_on_one_architecture_alone(arch: int) -> None:
    old = replace(UNIT, arch=arch)
    assert compared(replace(unit(block=1024), arch=arch), old).verdict == "CHANGED"
    row = compared(replace(unit(block=512, registers=128), arch=arch), old)
    assert (row.verdict, row.names) == ("WORSE", ("resident_warps",))


def test_causes_are_separated_from_other_differences() -> None:
    row = compared(unit({"DADD": 8, "SHFL": 5}))
    assert row.causes == ("double instructions 8, was 0",)
    assert row.text.startswith("double instructions 8, was 0 (also: instructions 103, was 100;")


def test_new_gone_and_broken() -> None:
    other = replace(UNIT, arch=80)
    rows = compare_units(side(UNIT), side(other))
    assert [row.verdict for row in rows] == ["NEW", "GONE"]
    [row] = compare_units(side(UNIT), side(UNIT, broken={UNIT.key: ["a rule"]}))
    assert (row.verdict, row.causes) == ("BROKEN", ("a rule",))
    rows = compare_units(side(UNIT), side(other, unit(registers=99)), "another nvcc")
    assert [row.verdict for row in rows] == ["NEW", "UNCERTAIN"]
    [note] = undecided_notes(rows)
    assert note.startswith("Nothing was decided: no kernel has a verdict on its machine code")
    assert exit_codes(rows, [note], allow_gone=False) == {4}
    [note] = undecided_notes(compare_units(side(), side(UNIT)))
    assert note.startswith("Nothing was decided: the baseline has none of these kernels")


def test_a_rename_is_a_rename() -> None:
    moved = replace(UNIT, kernel="kernel_b", cubin_sha="new")
    [row] = compare_units(side(UNIT), side(moved))
    assert (row.verdict, row.text) == ("RENAMED", "was kernel_a")
    changed = replace(unit({"SHFL": 5}), kernel="kernel_b")
    rows = compare_units(side(UNIT), side(changed))
    assert [row.verdict for row in rows] == ["NEW", "GONE"]


TRAFFIC = Traffic(
    kernel="kernel_a", op="sum", dtype="float32", block=256, items=8, read_bytes=1 << 18,
    written_bytes=132, requests=2048, sectors=8192, accesses=100, wavefronts=100, atomics=24,
    barriers=64, collectives=320, fenced_blocks=24, unfenced=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"sectors": 65536}, "sectors a request 32, was 4"),
        ({"read_bytes": 1 << 19, "requests": 4096, "sectors": 16384}, "bytes read 524288, was"),
        ({"wavefronts": 800}, "wavefronts an access 8, was 1"),
        ({"atomics": 6144}, "atomics of threads 6144, was 24"),
        ({"barriers": 320}, "barriers of blocks 320, was 64"),
        ({"fenced_blocks": 0}, "blocks with a fence 0, was 24"),
        ({"unfenced": 24}, "unfenced atomics or flags after a store 24, was 0"),
        ({"accesses": 104, "wavefronts": 104}, ""),
        ({"barriers": 72}, ""),
        ({"sectors": 4096, "requests": 1024}, ""),
        (
            {
                "items": 16,
                "barriers": 32,
                "requests": 2040,
                "sectors": 8160,
                "accesses": 50,
                "wavefronts": 50,
            },
            "",
        ),
    ],
)
def test_verdicts_on_memory_traffic(change: dict[str, int], cause: str) -> None:
    new = replace(TRAFFIC, **change)  # type: ignore[arg-type]
    changed = replace(unit({"SHFL": 9}), items=new.items)
    [row] = compare_units(side(UNIT, traffic=[TRAFFIC]), side(changed, traffic=[new]))
    assert bool(row.causes) == bool(cause)
    assert cause in "; ".join(row.causes)
    [row] = compare_units(side(UNIT, traffic=[TRAFFIC]), side(UNIT, traffic=[new]))
    assert row.verdict == "SAME"  # of the same machine code nothing else is believed


def test_fewer_barriers_require_verification() -> None:
    new = replace(TRAFFIC, barriers=24, wavefronts=60)
    [row] = compare_units(side(UNIT, traffic=[TRAFFIC]), side(unit({"BAR": 0}), traffic=[new]))
    assert row.verdict == "CHANGED"
    assert row.text.startswith(
        "barriers of blocks fell from 64 to 24: run verify; barriers fell from 1 to 0: run verify; "
    )
    assert "barriers 0, was 1" not in row.text
    assert exit_codes([row], undecided_notes([row]), allow_gone=False) == set()


STORE, FENCE = "st.global.f32 [%rd1], %f1;", "fence.acq_rel.gpu;"
ARRIVALS = {
    "atom.global.inc.u32 %r1, [%rd2], %r2;": False,
    "atom.acq_rel.gpu.global.inc.u32 %r1, [%rd2], %r2;": True,
    "atom.release.sys.global.inc.u32 %r1, [%rd2], %r2;": True,
    "atom.acq_rel.global.inc.u32 %r1, [%rd2], %r2;": True,  # the GPU's, where none is named
    "atom.relaxed.gpu.global.inc.u32 %r1, [%rd2], %r2;": False,
    "atom.acq_rel.cta.global.inc.u32 %r1, [%rd2], %r2;": False,
    "atom.release.cluster.global.inc.u32 %r1, [%rd2], %r2;": False,
    "atom.add.relaxed.gpu.u32 %r1, [%rd2], %r2;": False,  # cuda::atomic_ref, a generic pointer
    "atom.add.acq_rel.gpu.u32 %r1, [%rd2], %r2;": True,
}
#: What writes a partial, and what only looks like it.
STORES = {
    "st.global.f32 [%rd1], %f1;": True,
    "st.f32 [%rd1], %f1;": True,
    "st.relaxed.gpu.b32 [%rd1], %r1;": True,
    "atom.global.exch.b32 %r9, [%rd1], %r1;": True,
    "atom.global.add.f32 %f2, [%rd1], %f1;": True,
    "red.global.add.f32 [%rd1], %f1;": True,
    "st.shared.f32 [%r1], %f1;": False,
    "st.volatile.shared.f32 [%r1], %f1;": False,
    "st.local.f32 [%r1], %f1;": False,
}


@pytest.mark.parametrize(("arrival", "releases"), ARRIVALS.items())
def test_a_release_or_a_fence_makes_a_partial_result_visible(arrival: str, releases: bool) -> None:
    kernel = load_registry([]).kernels["reduce_last_block"]

    def rules(*lines: str) -> list[str]:
        compiled = Compiled(b"", "\n".join(lines), "")
        return list(broken_rules(kernel, reduction_of("sum", "float32"), compiled, UNIT.resources))

    assert bool(rules(STORE, arrival)) != releases
    assert rules(STORE, FENCE, arrival) == []
    assert bool(rules(FENCE, STORE, arrival)) != releases
    assert bool(rules(STORE, "fence.acq_rel.cta;", arrival)) != releases


def test_a_ticket_is_no_arrival() -> None:
    """With tickets the last count is the arrival. Without tickets a fence must precede it."""
    kernels = load_registry([]).kernels
    draw, arrival = "atom.global.inc.u32 %r1, [%rd2], 7;", "atom.relaxed.gpu.global.add.u32 %r1;"

    def breaks(kernel: str, *lines: str) -> bool:
        compiled = Compiled(b"", "\n".join(("ld.global.v4.f32", *lines)), "")
        reduction = reduction_of("sum", "float32")
        return bool(list(broken_rules(kernels[kernel], reduction, compiled, UNIT.resources)))

    fenced, bare = (draw, STORE, FENCE, arrival), (FENCE, draw, STORE, arrival)
    assert not breaks("reduce_ring_tickets", *fenced)
    assert breaks("reduce_ring_tickets", *bare)
    assert breaks("reduce_last_block", STORE, arrival, FENCE, draw)


@pytest.mark.parametrize(("store", "counts"), STORES.items())
def test_stores_and_atomics_to_global_memory_count_as_writes(store: str, counts: bool) -> None:
    kernel = load_registry([]).kernels["reduce_last_block"]
    for arrival in ("atom.global.inc.u32 %r1, [%rd2], %r2;", "atom.add.relaxed.gpu.u32 %r1;"):
        compiled = Compiled(b"", "\n".join((FENCE, store, arrival)), "")
        found = broken_rules(kernel, reduction_of("sum", "float32"), compiled, UNIT.resources)
        assert bool(list(found)) == counts


@pytest.mark.parametrize("name", ["reduce_v7_shuffle", "reduce_rows_tree", "reduce_atomic"])
@pytest.mark.parametrize("foreign", [False, True], ids=["of the package", "foreign"])
def test_only_kernels_of_the_package_may_not_spill(name: str, foreign: bool) -> None:
    kernel = load_registry([]).kernels[name]
    assert not kernel.foreign

    def rules(used: Resources) -> list[str]:
        compiled = Compiled(b"", "", "")
        asked = replace(kernel, foreign=foreign)
        return list(broken_rules(asked, reduction_of("sum", "float32"), compiled, used))

    assert rules(UNIT.resources) == []
    stores, loads = (replace(UNIT.resources, **{f"spill_{way}_bytes": 8})
                     for way in ("store", "load"))  # fmt: skip
    for used in (stores, loads):
        broken = [] if foreign else [f"spills 8 bytes per thread; {MAY_NOT_SPILL}"]
        assert rules(used) == broken


@pytest.fixture
def stored_90(tmp_path: Path) -> Path:
    """The stored baseline, reduced to sm_90."""
    data = json.loads(STORED.read_text())
    data["units"] = [unit for unit in data["units"] if unit["arch"] == 90]
    path = tmp_path / "stored.json"
    path.write_text(json.dumps(data | {"architectures": [90]}))
    return path


def check(cudareduce: Call, tree: Path, path: Path, *more: object) -> tuple[int, str, str]:
    return cudareduce("check", "--compile", "--baseline", path, "--kernels", tree, *more)


MINE = ("my_*", "kernel_*", "--quiet")


def edit(tree: Path, name: str, *changes: tuple[str, str]) -> None:
    path = tree / "ladder" / f"{name}.cu"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)


SPILL = (
    "// Write:",
    """const volatile In *many = in;
    Acc held[64];
#pragma unroll
    for (int k = 0; k < 64; k++)
        held[k] = many[k];
#pragma unroll
    for (int k = 0; k < 128; k++)
        value = Op::combine(value, held[k % 64]);
    // Write:""",
)
MAY_NOT_SPILL = "no kernel of this package may"
BOUNDS = ("__global__ void", "__global__ void __launch_bounds__(1024, 2)")
EDITS: dict[str, tuple[str, tuple[tuple[str, str], ...], str, str]] = {
    # of one's own, so no rule is against it: what got worse is told, whatever the rules say
    "to spill": ("my_reduce_v7_shuffle", (BOUNDS, SPILL), "WORSE", "spill store bytes "),
    "to lose its vector loads": (
        "kernel_vector",
        (("const float4 four = ((const float4 *)in)[i];",
          "const float4 four = {in[4 * i], in[4 * i + 1], in[4 * i + 2], in[4 * i + 3]};"),),
        "BROKEN",
        "its front matter has vector = 4, but no load is 16 bytes wide",
    ),
    "to lose its fence": (
        "my_reduce_last_block",
        (("__threadfence();\n        is_last", "is_last"),),
        "BROKEN",
        "no fence between a block's partial and its arrival",
    ),
    "to lose its counter": (
        "my_reduce_last_block",
        (("is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;",
          "is_last = blockIdx.x == 0;"),),
        "BROKEN",
        "its finish is last_block, but no atomic counts blocks",
    ),
    "to fill the SM": (
        "kernel_vector",
        (("shared[BLOCK / 32];", "shared[40 * BLOCK];"),),
        "WORSE",
        "shared bytes 40960, was 32",
    ),
}  # fmt: skip

#: Those that show what another of them shows, too.
OTHER_EDITS = ("to fill the SM", "to lose its counter")


@pytest.mark.long
@needs_nvcc
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in OTHER_EDITS else ())
    for name in EDITS
])  # fmt: skip
def test_an_edit_that_must_not_pass(
    cudareduce: Call, tree: Path, baseline: Path, tmp_path: Path, name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    kernel, changes, verdict, reason = EDITS[name]
    edit(tree, kernel, *changes)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    code, out, _ = check(cudareduce, tree, baseline, *MINE, "--junit", tmp_path / "junit.xml")
    assert code == 1
    assert f"{verdict}: {kernel}" in " ".join(out.split())
    assert ("BROKEN" in out) == (verdict == "BROKEN")
    assert reason in " ".join(out.split())
    assert MAY_NOT_SPILL not in " ".join(out.split())
    assert f"::error file=kernels/ladder/{kernel}.cu,line=" in out
    assert out.count("::error") == 1
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")


@pytest.mark.long
@needs_nvcc
def test_a_kernel_of_the_package_may_not_spill(
    cudareduce: Call, tree: Path, baseline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file as above, in the place of the kernels that come with the package."""
    edit(tree, "my_reduce_v7_shuffle", BOUNDS, SPILL)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr("cudareduce.catalog.registry.kernels_folder", lambda: tree)
    code, out, _ = cudareduce("check", "--compile", "--baseline", baseline, *MINE)
    assert code == 1
    assert "3 compared: 1 BROKEN, 2 SAME" in out
    assert MAY_NOT_SPILL in " ".join(out.split())
    assert out.count("::error") == 1


@pytest.mark.long
@needs_nvcc
def test_kernels_as_they_were_pass(
    cudareduce: Call, tree: Path, baseline: Path, known: dict[object, Any]
) -> None:
    known.clear()  # they come out the same when they are compiled again
    code, out, err = check(cudareduce, tree, baseline, *MINE)
    assert (code, err) == (0, "")
    assert "3 compared: 3 SAME" in out


@pytest.mark.long
@needs_nvcc
def test_the_assemblers_warning_breaks_a_rule(cudareduce: Call, tree: Path, baseline: Path) -> None:
    edit(tree, "my_reduce_v7_shuffle", BOUNDS)
    code, out, _ = check(cudareduce, tree, baseline, *MINE, "--arch", "75")
    assert code == 1
    assert "will be ignored" in " ".join(out.split())


@pytest.mark.long
@needs_nvcc
def test_changed_and_new_kernels_pass_and_missing_ones_do_not(
    cudareduce: Call, tree: Path, baseline: Path
) -> None:
    edit(tree, "my_reduce_v7_shuffle", ("offset = 16", "offset = 32"), ("block      = 256",
         "block      = 512"))  # fmt: skip
    text = (tree / "ladder" / "kernel_vector.cu").read_text()
    (tree / "ladder" / "kernel_other.cu").write_text(text.replace("vector(", "other("))
    code, out, _ = check(cudareduce, tree, baseline, *MINE)
    assert code == 0
    assert "4 compared: 1 CHANGED, 1 NEW, 2 SAME" in out
    (tree / "ladder" / "my_reduce_last_block.cu").unlink()
    assert check(cudareduce, tree, baseline, *MINE)[0] == 1
    assert check(cudareduce, tree, baseline, *MINE, "--allow-gone")[0] == 0


@pytest.mark.long
@needs_nvcc
def test_a_kernel_that_does_not_compile(
    cudareduce: Call, tree: Path, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of the baseline and a new one: the error is reported once for each."""
    edit(tree, "kernel_vector", ("value = (four.x", "value = nonsense + (four.x"))
    text = (tree / "ladder" / "kernel_vector.cu").read_text()
    (tree / "ladder" / "kernel_other.cu").write_text(text.replace("vector(", "other("))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    files = tmp_path / "junit.xml", tmp_path / "page.md"
    more = ("--junit", files[0], "--markdown", files[1], "--arch", "80,90", "--allow-gone")
    code, out, err = check(cudareduce, tree, baseline, *MINE, *more, "--format", "json")
    assert code == 2
    error = 'identifier "nonsense" is undefined'
    values = [value for value in json.loads(out) if value["verdict"] == "BROKEN"]
    assert [(v["kernel"], v["arch"]) for v in values] == [
        (kernel, arch) for kernel in ("kernel_other", "kernel_vector") for arch in (80, 90)
    ]
    assert all("does not compile: " in v["reasons"][0] and error in v["error"] for v in values)
    assert "GONE" not in out
    assert (err.count("::error"), err.count(error)) == (2, 2)
    page = files[1].read_text()
    assert page.count(error) == 2
    assert "BROKEN: kernel_other: does not compile: " in page
    suite = ElementTree.parse(files[0]).getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("2", "0")
    assert error in "".join(failure.get("message", "") for failure in suite.iter("failure"))


@pytest.mark.long
@needs_nvcc
def test_a_kernel_that_does_not_compile_prevents_a_new_baseline(
    cudareduce: Call, tree: Path, baseline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = baseline.read_text()
    failed = [Failed(*UNIT.key[:4], stage, 90, "an error") for stage in ("first", "rest")]
    nothing = side(failed=tuple(failed))
    monkeypatch.setattr("cudareduce.compare.compile_check.compile_all", lambda *_: nothing)
    ask = ("--arch", "90", "--update-baseline", "--quiet")
    code, out, err = check(cudareduce, tree, baseline, *ask)
    assert code == 2
    assert out.count("an error") == 1  # though both stages have it
    assert "is unchanged" in err
    assert baseline.read_text() == before


def test_the_first_error_is_reported() -> None:
    said = "k.cu(1): warning #177-D: never used\n\nk.cu(2): error: no\nk.cu(3): error: nor this"
    assert first_error(said) == "k.cu(2): error: no"
    assert first_error("nvcc exits with 9") == "nvcc exits with 9"


@needs_nvcc
def test_an_update_without_access_counts_is_refused(
    cudareduce: Call, tree: Path, stored_90: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without g++ none are counted."""
    stored = replace(load(stored_90), disassembler=None)  # which is an error of its own
    stored_90.write_text(to_json(stored))
    before = stored_90.read_text()
    made = side(*stored.units)
    monkeypatch.setattr("cudareduce.compare.compile_check.compile_all", lambda *_: made)
    monkeypatch.setattr(
        "cudareduce.compare.compile_check.with_traffic", lambda side, *_: (side, ())
    )
    ask = ("--arch", "90", "--update-baseline", "--quiet")
    code, _, err = check(cudareduce, tree, stored_90, *ask)
    assert (code, stored_90.read_text()) == (6, before)
    assert "would lose its counts of memory accesses" in err


@pytest.mark.long
@needs_nvcc
def test_a_baseline_may_be_of_single_kernels(
    cudareduce: Call, tree: Path, stored_90: Path, tmp_path: Path
) -> None:
    ask = ("kernel_vector", "--arch", "90", "--update-baseline", "--quiet")
    code, _, err = check(cudareduce, tree, stored_90, *ask)
    assert (code, "--update-baseline would drop reduce_" in err) == (2, True)
    path = tmp_path / "own.json"
    for _ in range(2):  # the second time it is updated
        assert check(cudareduce, tree, path, *ask)[0] == 0
        assert {unit.kernel for unit in load(path).units} == {"kernel_vector"}


@pytest.mark.slow
@needs_nvcc
def test_an_update_that_would_drop_an_architecture_or_kernel_is_refused(
    cudareduce: Call, tree: Path, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stored.json"
    path.write_text(STORED.read_text())
    code, out, err = check(cudareduce, tree, path, "--arch", "90,75", "--update-baseline")
    assert (code, out) == (2, "")
    assert "would lose sm_80, sm_100, sm_120: leave --arch out or name all of them" in err
    assert path.read_text() == STORED.read_text()
    made = side(UNIT)
    monkeypatch.setattr("cudareduce.compare.compile_check.compile_all", lambda *_: made)
    ask, before = ("--arch", "80,90", "--update-baseline", "--quiet"), baseline.read_text()
    code, _, err = check(cudareduce, tree, baseline, *ask)
    assert (code, baseline.read_text()) == (1, before)
    assert "is unchanged: kernel_vector is gone; --allow-gone drops it" in err
    assert check(cudareduce, tree, baseline, *ask, "--allow-gone")[0] == 0
    assert load(baseline).architectures == (80, 90)


OTHERS: dict[str, tuple[dict[str, object], str]] = {
    "nvcc": ({"nvcc": "12.4.131"}, "The baseline is of nvcc 12.4.131, this is "),
    "flags": ({"flags": ["-O2"]}, "The baseline was compiled with -O2, this -std=c++17 -O3: "),
}


@pytest.mark.long
@needs_nvcc
@pytest.mark.parametrize("name", OTHERS)
def test_figures_of_another_compiler_are_not_compared(
    cudareduce: Call, tree: Path, baseline: Path, tmp_path: Path, name: str
) -> None:
    change, message = OTHERS[name]
    data = json.loads(baseline.read_text())
    baseline.write_text(json.dumps(data | change))
    (tree / "ladder" / "my_reduce_v7_shuffle.cu").unlink()
    edit(tree, "kernel_vector", ("shared[BLOCK / 32];", "shared[40 * BLOCK];"))
    edit(tree, "my_reduce_last_block", ("__threadfence();\n        is_last", "is_last"))
    junit = tmp_path / "junit.xml"
    code, out, _ = check(cudareduce, tree, baseline, *MINE, "--junit", junit)
    assert code == 5
    assert "3 compared: 1 BROKEN, 1 GONE, 1 UNCERTAIN" in out
    assert out.count(message) == 1  # in the note, not with every kernel
    assert "so only rules and memory accesses were checked" in out
    assert "no fence between" in out
    assert "kernel_vector" not in out
    suite = ElementTree.parse(junit).getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("2", "1")


ANEW = "delete it, then write a new one with --update-baseline"


#: Fields of a file with values that are refused, by the place of their object.
BAD_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("", {"schema": 0}, f"has schema 0, this version reads 2: {ANEW}"),
    ("", {"units": []}, "units is []"),
    ("", {"architectures": []}, "architectures is []"),
    ("", {"architectures": "90"}, "architectures is '90'"),
    ("", {"architectures": ["90"]}, "architectures is ['90']"),
    ("", {"architectures": [90]}, "sm_75 is not among the"),
    ("", {"flags": "-O3"}, "flags is '-O3'"),
    ("", {"nvcc": 13}, "nvcc is 13"),
    ("", {"created": 1}, "created is 1"),
    ("", {"disassembler": 1}, "disassembler is 1"),
    ("units.0", {"resources": []}, "unit 1: it is not an object"),
    ("units.0", {"code": [1]}, "unit 1: code cannot be read"),
    ("units.0.code", {"opcodes": "FADD:two"}, "unit 1: code cannot be read"),
    ("traffic.0", {"sectors": "8"}, "traffic 1: sectors is not a"),
    ("traffic.1", {"block": 0}, "traffic 2: block is 0"),
    ("units.0", {"arch": "x"}, "unit 1: arch is not a whole number"),
    ("units.0", {"kernel": 5}, "unit 1: kernel is not a text"),
    ("units.0", {"block": 0}, "unit 1: block is 0"),
    ("units.0", {"block": "256"}, "unit 1: block is not a whole number"),
    ("units.0", {"items": True}, "unit 1: items is not a whole number"),
    ("units.0", {"cubin_sha": None}, "unit 1: cubin_sha is missing"),
]
#: Other changes that are refused.
BAD_FILES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.pop("kind"), "holds no compiled kernels"),
    (lambda d: d.pop("units"), "is not a whole baseline: units is None"),
    (lambda d: d["units"].append("a"), "it is not an object"),
    (lambda d: d.pop("tool"), "tool is None"),
    (lambda d: d["units"][0]["resources"].pop("registers"), "unit 1: registers is missing"),
    (lambda d: d["units"][1]["code"].pop("in_flight"), "unit 2: code cannot be read"),
    (lambda d: d.pop("traffic"), "traffic is None"),
    (lambda d: d["units"].append(d["units"][0]), "it holds a kernel twice"),
]


@pytest.mark.parametrize("more", [(), ("--update-baseline",)])
@pytest.mark.parametrize(
    ("change", "message"),
    [*((with_fields(place, fields), why) for place, fields, why in BAD_FIELDS), *BAD_FILES],
)
def test_a_baseline_that_cannot_be_used(
    cudareduce: Call, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str,
    more: tuple[str, ...],
) -> None:  # fmt: skip
    data = json.loads(STORED.read_text())
    change(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    code, out, err = cudareduce("check", "--compile", "--baseline", path, *more)
    assert (code, out) == (2, "")
    assert message in err
    assert (ANEW in err) == ("no compiled kernels" not in message)  # that one may be worth keeping


def test_a_baseline_that_is_cut_short_or_missing(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(STORED.read_text()[:3000])
    for more in ([], ["--update-baseline"]):
        code, _, err = cudareduce("check", "--compile", "--baseline", path, *more)
        assert code == 2
        assert "is cut short" in err
        assert ANEW in err
    code, _, err = cudareduce("check", "--compile", "--baseline", tmp_path)
    assert code == 2
    assert "delete" not in err
    code, _, err = cudareduce("check", "--compile", "--baseline", tmp_path / "no.json")
    assert code == 5
    assert "--update-baseline" in err


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    data = json.loads(STORED.read_text())
    data["units"][0]["code"]["more"] = 1
    data["units"][0]["more"] = "new"
    del data["disassembler"]
    path = tmp_path / "newer.json"
    path.write_text(json.dumps(data | {"more": 1}))
    assert load(path).units[1:] == load(STORED).units[1:]


def test_check_compile_needs_nvcc(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudareduce.compare.nvcc.installed", lambda tool: iter(()))
    code, out, err = cudareduce("check", "--compile", "--baseline", STORED)
    assert (code, out) == (6, "")
    assert "nvcc was not found: install the CUDA toolkit" in err


def test_counts_are_not_lost_for_want_of_a_disassembler(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cudareduce.compare.compile_check.find_nvcc", lambda wanted: Nvcc("x", "13.0")
    )
    monkeypatch.setattr("cudareduce.compare.compile_check.find_disassembler", lambda: None)
    path = tmp_path / "compiled.json"
    path.write_bytes(STORED.read_bytes())
    code, out, err = cudareduce("check", "--compile", "--baseline", path, "--update-baseline")
    assert (code, out, err.count("\n")) == (6, "", 1)
    assert "would lose its counts of instructions" in err
    assert "pip install 'cudareduce[compile]'" in err
    assert path.read_bytes() == STORED.read_bytes()


def test_every_kernel_of_the_ladder_is_in_the_stored_baseline() -> None:
    stored = load(STORED)
    assert stored.architectures == (75, 80, 90, 100, 120)
    assert stored.disassembler is not None
    ids = {path.stem for path in kernels_folder().glob("ladder/*.cu")}
    assert ids <= {u.kernel for u in stored.units}


@needs_nvcc
def test_a_check_of_nothing_is_no_success(cudareduce: Call, tree: Path, stored_90: Path) -> None:
    code, out, err = check(cudareduce, tree, stored_90, "my_reduce_v7_shuffle", "--arch", 52)
    assert (code, out) == (2, "")
    assert "nothing was compiled; my_reduce_v7_shuffle is not compiled for sm_52" in err


def test_a_disassembler_that_fails_is_an_error(tmp_path: Path) -> None:
    tool = tmp_path / "cuobjdump"
    for body, why in (("exit 0", "it lists no instructions"), ("echo old >&2; exit 255", "old")):
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
        with pytest.raises(EnvironmentProblem, match=f"12.0 cannot read kernel: {why}; take it"):
            Disassembler(str(tool), "12.0").read(b"", "kernel")


@pytest.mark.long
@needs_nvcc
@pytest.mark.skipif(find_disassembler() is None, reason="cuobjdump and nvdisasm were not found")
def test_instructions_are_counted(baseline: Path) -> None:
    codes = {unit.kernel: unit.code for unit in load(baseline).units}
    assert all(codes.values())
    counts = {name: counts_of(code.opcodes) for name, code in codes.items() if code}
    vector, last = counts["kernel_vector"], counts["my_reduce_last_block"]
    assert (vector["wide_loads"], vector["shuffles"], vector["barriers"]) == (1, 5, 1)
    assert (last["fences"], last["atomics"], last["local"]) == (2, 1, 0)
