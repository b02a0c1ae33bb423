"""Sharded arrays on two ranks: results of all combinations, faults of the exchange, and times."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudareduce.backends.selection import BackendSpec, open_backend
from cudareduce.catalog.registry import load_registry
from cudareduce.collectives import kernels, sharded
from cudareduce.collectives.kernels import device_text
from cudareduce.collectives.nccl import load_nccl
from cudareduce.collectives.sharded import measure_sharded
from cudareduce.cuda_source import NVCC_FLAGS
from cudareduce.launch.case import Case
from cudareduce.machine import installed
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Record
from tests.collectives.rank_processes import StreamGpu, compile_nccl, connected, run_ranks

NVCC = next(installed("nvcc"), None)
KERNELS = load_registry().kernels


def case_of(kernel: str, op: str = "sum", dtype: str = "float32") -> Case:
    """A kernel with its own block and items per thread."""
    own, reduction = KERNELS[kernel], reduction_of(op, dtype)
    return Case(own, reduction, own.block, own.items_of(reduction.dtype.size))


@dataclass(frozen=True)
class RankOptions:
    """Options of a rank. `edit` replaces a text of the device code by another."""

    rank: int
    folder: Path
    op: str = "sum"
    edit: tuple[str, str] | None = None
    timed: bool = False
    nccl: Path | None = None


def _measure_rank(options: RankOptions) -> list[Record]:
    if options.edit:
        old, new = options.edit

        def edited(file: str) -> str:
            text = device_text(file)
            assert old in text
            return text.replace(old, new)

        vars(sharded)["device_text"] = edited
    vars(kernels)["WAIT_LIMIT"] = 10**9  # time out soon
    vars(sharded)["load_nccl"] = lambda _: load_nccl(options.nccl or options.folder / "none.so")
    case = case_of("reduce_tiles_acq_rel", options.op)
    simulated = StreamGpu(options.folder / "compiled", noise=0.0, threads=1)
    spec = BackendSpec("cpu", cache=options.folder / "compiled", threads=1)
    with (
        simulated if options.timed else open_backend(spec) as backend,
        connected(options.rank, 2, options.folder) as comm,
    ):
        return measure_sharded(
            case.reduction, [case], 5000, 2, comm, backend, timed=options.timed, quiet=True
        )  # fmt: skip


def measure_ranks(folder: Path, **options: object) -> list[Record]:
    """The records of two ranks, which have the same verdicts."""
    ranks = [RankOptions(rank, folder, **options) for rank in range(2)]  # type: ignore[arg-type]
    first, other = run_ranks(_measure_rank, ranks)
    assert [(r.engine, r.verdict) for r in first] == [(r.engine, r.verdict) for r in other]
    return first


EDITS = {
    "calls share one half of the mail": ("call % 2 * RANKS", "0 * RANKS"),
    "the call number is not compared": (
        "return word >> 32 == (call & 0xffffffffu);", "return word >> 32 != 0;"),
    "the last rank is left out": (
        "total = r == 0 ? theirs", "if (r == RANKS - 1) continue;\ntotal = r == 0 ? theirs"),
    "a rank counts twice": ("return total;", "return Op::combine(total, mine);"),
    "the result is not stored": ("{ result = ", "{ const Result unused = "),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if k else ()) for k, name in enumerate(EDITS)],
)
def test_a_fault_of_the_exchange_is_found(name: str, folder: Path) -> None:
    records = measure_ranks(folder, edit=EDITS[name])
    verdicts = {r.engine: r.verdict for r in records}
    assert verdicts["peer:fused"] == "fail", records
    assert verdicts["host"] == "pass"


def test_an_index_in_the_shard_is_found(folder: Path) -> None:
    edit = ("partial.index += begin;", "partial.index += 0;")
    verdicts = {r.engine: r.verdict for r in measure_ranks(folder, edit=edit, op="argmax")}
    assert set(verdicts.values()) == {"fail"}


@pytest.mark.slow
def test_records_have_the_time_of_the_shards_alone(folder: Path) -> None:
    records = {r.engine: r for r in measure_ranks(folder, timed=True)}
    assert set(records) == {"local", "peer:fused", "peer:behind", "host", "nccl"}
    absent = records.pop("nccl")
    assert absent.verdict == "skip"
    assert absent.reason.endswith("none.so: there is no such file: name a libnccl.so.2")
    assert {r.verdict for r in records.values()} == {"pass"}
    fused, behind, local = (records[e] for e in ("peer:fused", "peer:behind", "local"))
    assert fused.time_us and behind.time_us and local.time_us
    assert fused.local_us == behind.local_us == local.time_us
    assert fused.time_us == pytest.approx(local.time_us)
    assert behind.time_us > local.time_us + 1  # a launch more
    assert (fused.bytes, fused.timing, fused.ranks, len(fused.rounds_us)) == (20_000, "warm", 2, 2)
    assert local.distinct is None and fused.distinct == 1
    host = records["host"]
    assert host.time_us is None and host.host_us and host.host_us > 0


@pytest.mark.slow
@pytest.mark.parametrize("op", ["sum", "max"])
def test_nccl_combines_partial_results(op: str, folder: Path) -> None:
    library = compile_nccl(folder, "libnccl")
    records = {r.engine: r for r in measure_ranks(folder, timed=True, nccl=library, op=op)}
    nccl = records["nccl"]
    assert (nccl.verdict, nccl.distinct, nccl.version) == ("pass", 1, "2.28.9")
    assert nccl.time_us and nccl.local_us and nccl.time_us > nccl.local_us


@pytest.mark.slow
def test_an_nccl_that_leaves_a_rank_out_is_wrong(folder: Path) -> None:
    library = compile_nccl(folder, "libnccl", "LEAVES_OUT")
    records = measure_ranks(folder, timed=True, nccl=library)
    assert {r.engine for r in records if r.verdict == "fail"} == {"nccl"}


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc was not found")
@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("reduce_tiles_ring", "argmax"),
        ("reduce_tiles_self_reset", "sum"),
        ("reduce_chunks", "mean"),
    ],
)
def test_nvcc_compiles_the_kernels_of_a_plan(kernel: str, op: str, tmp_path: Path) -> None:
    assert NVCC is not None
    case = case_of(kernel, op)
    sources = sharded.kernel_sources(case, case.plan(2**20), ranks=4)
    assert sources.fused
    file = tmp_path / "k.cu"
    for source in sources.all:
        file.write_text(source.text)
        done = subprocess.run(
            [NVCC[0], *NVCC_FLAGS, "-arch=sm_90", "-cubin", "-o", tmp_path / "k.cubin", file],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
