"""Libraries beside kernels: rows of their own pass, in every table and file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudareduce.libraries.job import Job
from cudareduce.libraries.session import LibraryWorkers
from tests.conftest import read_result
from tests.fake_gpu import fake_gpu
from tests.libraries.fakes import use_fakes

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
KERNEL = "reduce_v7_shuffle"


@pytest.fixture
def beside(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """The command line on a fake GPU, with fake libraries: those that the first argument names."""

    def call(fakes: str, *arguments: object) -> tuple[int, str, str]:
        use_fakes(monkeypatch, fakes)
        with fake_gpu(monkeypatch, cache):
            return cudareduce(*arguments, "--peers", "all")

    return call


@pytest.mark.long
def test_a_pass_of_their_own(beside: Call, tmp_path: Path) -> None:
    """A second table holds libraries and kernels in one context; ratios are formed within it."""
    stored = tmp_path / "run.json"
    code, out, _ = beside(
        "FINE,MISSING,OWN", "bench", KERNEL, "--n", "2^13", "--rounds", "6", "--json", stored
    )
    assert code == 0
    plain, title, table = out.partition("in the primary context, beside libraries\n")
    assert title and "peer:" not in plain
    table = table.partition("the same with one element more")[0]
    cells = (line.split() for line in table.splitlines() if line.startswith(" "))
    lines = {words[0]: words for words in cells if words}
    assert lines["kernel"] == ["kernel", "us", "GB/s", "%ceil", "speedup", "host", "us"]
    assert lines["peer:fine"][-1] == "7.0"
    assert lines["peer:fine:as_called"][1:] == ["-", "-", "-", "-", "57"]
    assert lines["peer:own"][1:5] == ["-"] * 4
    assert lines[KERNEL][4] == "1"
    said = " ".join(table.split())
    assert f"speedup: against {KERNEL} " in said
    assert "peer:fine: fine 1.2.3 fake.sum, fine" in said
    assert "peer:absent: skipped, not installed: pip install fake" in said
    stored_records = read_result(stored.read_text())["records"]
    records = {(r["kernel"], r["context"]): r for r in stored_records if r["aligned_n"] is None}
    assert set(records) == {
        (KERNEL, None), (KERNEL, "primary"), ("peer:fine", "primary"), ("peer:own", "primary"),
        ("peer:fine:as_called", "primary"), ("peer:absent", "primary"),
        ("peer:too_old", "primary"), ("peer:broken", "primary"),
    }  # fmt: skip
    fine = records["peer:fine", "primary"]
    assert (fine["called"], fine["version"]) == ("fake.sum, fine", "1.2.3")
    assert (fine["block"], fine["items"], fine["grid"], fine["scope"]) == (None,) * 3 + ("library",)
    assert fine["bytes"] == 4 * 2**13 + 4
    assert len(fine["rounds_us"]) == 6
    assert fine["verdict"] == "pass"
    assert records["peer:fine:as_called", "primary"]["time_us"] is None


@pytest.mark.long
def test_one_element_more_and_a_start_one_off(beside: Call, tmp_path: Path) -> None:
    """Everything that was timed is timed there too, against itself, with the reason where it is
    not; and nothing where several sizes are asked for."""
    stored = tmp_path / "run.json"
    ask = ("bench", KERNEL, "--rounds", "6")
    code, out, _ = beside("FINE,NARROW", *ask, "--n", "2^13", "--json", stored)
    assert code == 3
    title = "the same with one element more, and starting one element off"
    table = out.partition(title)[2]
    rows = {line.split()[0]: line.split() for line in table.splitlines() if line.strip()}
    assert rows["kernel"] == ["kernel", "n", "+", "1", "us", "x", "off", "us", "x"]
    assert [rows["peer:narrow"][k][:4] for k in (2, 4)] == ["4.00", "4.00"]
    assert rows[KERNEL][2].startswith(("1.0", "0.99"))
    assert rows["peer:words"][3:] == ["-", "-"]
    said = " ".join(table.split())
    assert (
        "peer:words: skipped, loads 16 bytes at a time, and its input is misaligned by 4 bytes"
        in said
    )
    assert "peer:off_by_one, off: WRONG: n = 1025, exact, misaligned by 1: got" in said
    assert "peer:faults, n + 1 or off: WRONG: ends its process by SIGABRT" in said
    assert "peer:faults: WRONG" not in " ".join(out.split())  # on what was asked for it is right
    odd = [r for r in read_result(stored.read_text())["records"] if r["aligned_n"]]
    assert {(r["n"], r["offset"], r["aligned_n"]) for r in odd} == {
        (2**13 + 1, 0, 2**13), (2**13, 1, 2**13)
    }  # fmt: skip
    assert all(r["slowdown"] and r["slowdown_low"] for r in odd if r["verdict"] == "pass")
    code, out, _ = beside("FINE", *ask, "--n", "2^10,2^13", "--strict")
    assert code == 0  # of calls as people make them there is the host's time, which is all there is
    assert "one element more" not in out


@pytest.mark.long
def test_auto_takes_another_kernel_where_rows_begin_anywhere(beside: Call, tmp_path: Path) -> None:
    stored = tmp_path / "run.json"
    code, _, _ = beside(
        "FINE", "bench", "auto", "--n", "32", "--rows", "4096", "--rounds", "6", "--json", stored
    )
    assert code == 0
    records = read_result(stored.read_text())["records"]
    taken = {(r["n"], r["offset"]): r["chosen"] for r in records if r["kernel"] == "auto"}
    assert taken == {
        (32, 0): "reduce_rows_butterfly", (33, 0): "reduce_rows_staged",
        (32, 1): "reduce_rows_staged",
    }  # fmt: skip


@pytest.mark.long
def test_what_misbehaves_is_a_row(beside: Call) -> None:
    code, out, _ = beside("FINE,FAILING,CRASHING", "bench", KERNEL, "--n", "2^13", "--rounds", "6")
    assert code == 3
    said = " ".join(out.split("the same with")[0].split())
    assert "peer:crashes: WRONG: ends its process by SIGABRT" in said
    assert "peer:wrong: WRONG: n = 1, exact: got" in said
    assert "peer:no_memory: skipped, found too little memory on the GPU" in said
    assert said.count("peer:fine ") == 1


@pytest.mark.long
def test_files_with_libraries_are_compared(beside: Call, cudareduce: Call, tmp_path: Path) -> None:
    """The two times of a kernel are told apart, and versions of a library are both said."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for path in (old, new):
        beside("FINE", "bench", KERNEL, "--n", "2^13", "--rounds", "6", "--json", path)
    later = read_result(new.read_text().replace('"1.2.3"', '"1.3.0"'))
    for record in later["records"]:  # two measurements are never the same, nor proportional
        record["rounds_us"] = [
            us and us * (1 + k / 10_000) for k, us in enumerate(record["rounds_us"])
        ]
    new.write_text(json.dumps(later))
    code, out, _ = cudareduce("compare", old, new, "--all")
    said = " ".join(out.split())
    assert code == 0
    assert "version 1.2.3, now 1.3.0" in said
    assert "2^13, beside libraries" in said


@pytest.mark.long
def test_verify_has_a_row_for_each_library(beside: Call) -> None:
    code, out, _ = beside("FINE,FAILING", "verify", KERNEL)
    assert code == 3
    table = (line.split() for line in out.splitlines() if line.startswith(" "))
    rows = {words[0]: words[1:4] for words in table if words}
    assert rows["peer:fine"] == ["sum", "float32", "right"]
    assert rows["peer:wrong"] == ["sum", "float32", "WRONG"]
    assert rows["peer:no_memory"] == ["sum", "float32", "-"]


def test_verify_at_several_sizes(beside: Call) -> None:
    """A row and a count for each, as for the kernel."""
    code, out, err = beside("FINE,WRONG_CUB", "verify", KERNEL, "--n", "2^13,2^12")
    assert code == 3
    rows = [line.split()[0] for line in out.splitlines() if " float32 " in line and "  " in line]
    assert rows == [KERNEL, "peer:fine", "peer:fine:as_called", "peer:cub"]
    assert "1 kernel right, 0 wrong, 0 skipped; 2 libraries right, 1 wrong, 0 skipped in" in err


@pytest.mark.long
def test_where_no_library_is_right(beside: Call) -> None:
    code, out, err = beside("WRONG_CUB,LONG,MISSING", "bench", KERNEL, "--n", "2^13")
    assert code == 3
    assert "None" not in out
    assert "1 kernel right, 0 wrong, 0 skipped; 1 library right, 1 wrong, 3 skipped" in err
    assert f"peer:long: long 1.2 +{'z' * 35} fake.sum, long" in " ".join(out.split())
    code, out, err = beside("WRONG_CUB", "bench", KERNEL, "--n", "2^13", "--format", "markdown")
    assert "None" not in out
    assert "peer:cub: cub 1.2.3 fake.sum" not in out  # nothing of it was timed
    assert "no library could be timed, so no kernel was timed with them" in out


@pytest.mark.long
def test_edges_are_tried_once_where_no_library_is_wrong(
    beside: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    outcome = LibraryWorkers.outcome

    def counted(self: LibraryWorkers, job: Job, *rest: Any) -> Any:
        tried.append(len(job.shapes))
        return outcome(self, job, *rest)

    monkeypatch.setattr(LibraryWorkers, "outcome", counted)
    ask = ("bench", KERNEL, "--n", "2^13,2^14,2^15", "--rounds", "1")
    assert beside("FINE", *ask)[0] == 0
    assert tried == [6, 1, 1]
    assert beside("WRONG_CUB", *ask)[0] == 3
    assert tried[3:] == [6, 6, 6]


@pytest.mark.long
def test_sweep_ranks_libraries_and_names_wrong_ones_once(beside: Call) -> None:
    """Lines are those of the pass that libraries are in; what has none is told once."""
    code, out, err = beside("FINE,WRONG_CUB", "sweep", KERNEL, "--n", "2^10..2^12", "--rounds", "6")
    assert code == 3, err
    said = " ".join(out.split())
    assert f"1 peer:fine, 2 {KERNEL}" in said
    assert "peer:cub at 1 024 (2^10) and 2 more sizes: WRONG: n = 1, exact: got" in said
    assert said.count("peer:cub") == 1
    assert "only the host's time is known, which --json stores: peer:fine:as_called" in said


@pytest.mark.long
def test_what_is_too_much_stays_so(cudareduce: Call) -> None:
    """Libraries, which are skipped here, make no other thing of it."""
    ask = ("bench", KERNEL, "--n", "2^31", "--backend", "cpu", "--max-time", "1", "--quiet")
    assert [cudareduce(*ask, *more)[0] for more in ((), ("--peers", "cub"))] == [4, 4]


def test_libraries_are_skipped_on_the_cpu(cudareduce: Call) -> None:
    code, out, _ = cudareduce(
        "bench", KERNEL, "--n", "1000", "--backend", "cpu", "--peers", "thrust", "--quiet"
    )
    assert code == 0
    skip = "skipped, needs a GPU; this is the CPU emulator (2 rows): peer:thrust, "
    assert f"{skip}peer:thrust:as_called" in " ".join(out.split())


def test_on_the_cpu_libraries_without_a_gpu_are_measured(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_fakes(monkeypatch, "ON_CPU,FINE")
    stored = tmp_path / "run.json"
    code, _, _ = cudareduce(
        "bench", KERNEL, "--n", "1000", "--backend", "cpu", "--peers", "cub", "--json", stored
    )
    assert code == 0
    records = {r["kernel"]: r for r in read_result(stored.read_text())["records"]}
    both = records["peer:both"]
    assert (both["verdict"], both["backend"], both["time_us"], both["host_us"]) == (
        "pass", "cpu", None, None
    )  # fmt: skip
    assert records["peer:fine"]["verdict"] == "skip"


@pytest.mark.long
def test_a_library_call_that_is_not_captured_in_a_graph_is_reported(
    beside: Call, tmp_path: Path
) -> None:
    """A call that cannot be captured, or leaves nothing in the graph, says so in a row."""
    stored = tmp_path / "run.json"
    code, out, _ = beside(
        "FINE,CAPTURED", "bench", KERNEL, "--n", "2^13", "--rounds", "6", "--graph", "--json",
        stored,
    )  # fmt: skip
    assert code == 0
    records = {
        (r["kernel"], r["timing"]): r for r in read_result(stored.read_text())["records"]
        if r["context"] and r["aligned_n"] is None
    }  # fmt: skip
    assert records["peer:fine", "cold graph"]["time_us"]
    assert records[KERNEL, "cold graph"]["time_us"]
    assert records["peer:refuses", "cold"]["time_us"]
    reasons = {name: r["reason"] for (name, _), r in records.items() if r["verdict"] == "skip"}
    assert reasons == {
        "peer:refuses": "cannot be captured in a graph (RuntimeError: operation not permitted when "
        "stream is capturing)",
        "peer:elsewhere": "does its work outside of the captured graph",
    }
    assert "peer:elsewhere: skipped, does its work outside" in " ".join(out.split())


def test_a_first_pass_has_no_library(beside: Call) -> None:
    _, out, _ = beside("FINE", "bench", KERNEL, "--n", "2^13", "--region", "first-pass")
    assert "--region first-pass cannot time the first launch within a library call" in " ".join(
        out.split()
    )


def test_an_unknown_library_is_a_usage_error(cudareduce: Call) -> None:
    code, _, err = cudareduce("bench", KERNEL, "--peers", "cubb")
    assert code == 2
    assert "'cubb' is not one of: cub, thrust, torch, triton" in err


def test_without_libraries_nothing_is_imported() -> None:
    code = (
        "import sys; from cudareduce.cli.main import run; "
        "import cudareduce.compare.check, cudareduce.analysis.sweep; "
        "import cudareduce.timing.selftest.command; "
        f"run(['bench', '{KERNEL}', '--n', '33', '--backend', 'cpu', '--quiet']); "
        "new = {m for m in sys.modules if m.startswith('cudareduce.libraries')}; "
        "new |= {'torch', 'triton', 'cupy', 'numba', 'jax', 'pycuda', 'cuda'} & set(sys.modules); "
        "more = new - {'cudareduce.libraries', 'cudareduce.libraries.names'}; "
        "sys.exit(str(more) if more else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
