"""`history`: stored runs, curves and change points over months."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from cudareduce.compare.change_points import all_series, change_points
from cudareduce.compare.history_store import append, read
from cudareduce.machine import DeviceInfo
from cudareduce.results.record import Run
from cudareduce.results.store import to_json, write_text
from tests.simulate import H200, record, rounds

Call = Callable[..., tuple[int, str, str]]
KERNEL, N = "reduce_v7_shuffle", 2**25
OTHER = replace(H200, uuid="GPU-another")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def made(
    day: int, factor: float, *, seed: int = 0, code: str = "a", device: DeviceInfo = H200,
    drift: float = 0.003, ceiling: float = 4194.3,
) -> Run:  # fmt: skip
    """A run of one kernel, of 40 us times a factor, shifted as a whole by `drift`."""
    rng = np.random.default_rng((seed, day))
    us = 40.0 * factor * float(np.exp(rng.normal(0, drift)))
    one = record(KERNEL, N, rounds(rng, us), cubin_sha=code)
    gb_s = one.gb_s or 0.0
    one = replace(one, ceiling_gb_s=ceiling, pct_ceiling=100 * gb_s / ceiling)
    tool = {"name": "cudareduce", "version": "0.2.0", "git": f"rev{day:03}", "argv": []}
    protocol = {"kernels": [KERNEL], "timing": "cold", "rounds": 9, "flush_bytes_read": 2**29}
    created = (BEGIN + timedelta(days=day)).isoformat(timespec="seconds")
    return Run(tool, device, protocol, (one,), created)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history"


def filled(folder: Path, *runs: Run) -> None:
    for run in runs:
        append(run, folder)


def test_a_run_is_a_line_and_comes_back(cudareduce: Call, folder: Path, tmp_path: Path) -> None:
    result = tmp_path / "run.json"
    write_text(result, to_json(made(0, 1.0)))
    code, out, err = cudareduce("history", "add", result, "--into", folder)
    assert (code, out) == (0, "")
    assert "added " in err
    [path] = folder.iterdir()
    assert path.name.startswith("nvidia-h200-")
    assert path.read_text().count("\n") == 1
    assert len(path.read_text()) < 1500
    assert "has the run of" in cudareduce("history", "add", result, "--into", folder)[2]
    [[entry]] = read(folder).runs.values()
    assert (entry.git, entry.device) == ("rev000", H200)
    assert entry.records[0].kernel == KERNEL


def test_only_what_can_be_compared_is_kept(cudareduce: Call, folder: Path, tmp_path: Path) -> None:
    result = tmp_path / "run.json"
    write_text(result, '{"schema": 1, "records": []}')
    code, _, err = cudareduce("history", "add", result, "--into", folder)
    assert code == 2
    assert str(result) in err
    assert not folder.exists()
    write_text(result, to_json(made(0, 1.0)))
    folder.write_text("a file")
    code, _, err = cudareduce("history", "add", result, "--into", folder)
    assert code == 2
    assert err.count("\n") == 1


def _appended(folder: Path, first: int) -> None:
    for day in range(first, first + 20):
        append(made(day, 1.0), folder)


def test_a_run_without_times_is_not_added(cudareduce: Call, folder: Path, tmp_path: Path) -> None:
    run = made(0, 1.0)
    path = tmp_path / "run.json"
    untimed = tuple(replace(record, time_us=None, rounds_us=()) for record in run.records)
    path.write_text(to_json(replace(run, records=untimed)))
    code, out, err = cudareduce("history", "add", path, "--into", folder)
    assert (code, out) == (2, "")
    assert f"{path} holds no times, so nothing is added to {folder}: bench again" in err
    assert not folder.exists()


def test_jobs_append_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_appended, [folder, folder], [0, 20]))
    context = get_context("fork")
    jobs = [context.Process(target=_appended, args=(folder, 100 + 20 * k)) for k in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    [entries] = read(folder).runs.values()
    assert len(entries) == 100
    assert [e.created for e in entries] == sorted(e.created for e in entries)


def test_a_truncated_line_of_a_history_is_skipped(cudareduce: Call, folder: Path) -> None:
    filled(folder, made(0, 1.0))
    [path] = folder.iterdir()
    with path.open("a") as file:
        file.write('{"schema": 1, "crea')
    filled(folder, made(1, 1.0))
    told = f"left out, 1 line: {path}:2: the line is not JSON, or is cut short"
    code, out, _ = cudareduce("history", "check", "--from", folder)
    assert code == 4
    assert told in out
    assert "up to 2 runs" in out
    code, out, err = cudareduce("history", "check", "--from", folder, "--format", "json")
    few = "Nothing was decided: no series has 5 recent runs; add more runs.\n"
    assert (code, len(json.loads(out)), err) == (4, 1, f"{few}{told}\n")
    code, out, err = cudareduce("history", "show", KERNEL, "--from", folder)
    assert (code, "2 runs" in out, err) == (0, True, f"{told}\n")


def test_lines_of_any_bytes_are_left_out(cudareduce: Call, folder: Path) -> None:
    filled(folder, *(made(day, 1.0) for day in range(3)))
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes() + b"\xff\xfe{}\n[]\n\x00\n{}\n")
    code, out, _ = cudareduce("history", "check", "--from", folder)
    assert code == 4
    assert f"left out, 4 lines: {path}:4: the line is not UTF-8; " in out
    assert "; and 1 more" in out


def test_the_table_fits_80_columns(
    cudareduce: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of the longest names, two reductions, rows, and two kinds of machine."""
    longest = record("reduce_v5_completely_unroll", N, rounds(np.random.default_rng(1), 40.0))
    rows = replace(longest, n=32, rows=2**20, op="prod", dtype="bfloat16", acc="float32")
    for day in range(8):
        slow = 1.05 if day > 4 else 1.0
        for device in (H200, replace(H200, power_limit_w=500.0)):
            some = [
                replace(one, time_us=40.0 * slow, cubin_sha=str(day)) for one in (longest, rows)
            ]
            filled(folder, replace(made(day, 1.0, device=device), records=tuple(some)))
    monkeypatch.chdir(folder.parent)
    for more in ((), ("--all",)):
        code, out, _ = cudareduce("history", "check", *more)
        assert code == 1
        assert max(len(line) for line in out.split("next: ")[0].splitlines()) <= 80
        assert out.count("limit 2%") == 4
        assert out.count("4 series: 4 SLOWER") == 1


def test_a_kernel_with_thousands_of_runs(folder: Path) -> None:
    """The search over all segments needs no memory for all of them."""
    logs = np.random.default_rng(3).normal(0, 0.003, 10_000)
    logs[4000:4100] += 0.01
    assert change_points(list(logs)) == [4000, 4100]


@pytest.mark.parametrize(
    "line",
    ["[]", "{}", '{"schema": 2, "records": []}', '{"schema": 1, "records": 3}', "[" * 10**5,
     '{"schema": 1, "created": "then", "device": {"name": "x"}, "records": []}',
     '{"schema": 1, "created": "2026-01-01", "device": 7, "records": []}',
     '{"schema": 1, "created": "2026-01-01", "device": {"name": "x"}, "records": [7]}',
     '{"schema": 1, "created": "0001-01-01T00:00:00+23:00", "device": {"name": "x"},'
     ' "records": []}'],
)  # fmt: skip
def test_lines_are_not_trusted(cudareduce: Call, folder: Path, line: str) -> None:
    folder.mkdir()
    (folder / "x.jsonl").write_text(line + "\n")
    code, _, err = cudareduce("history", "show", KERNEL, "--from", folder)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{folder / 'x.jsonl'}:1: " in err


@pytest.mark.parametrize("change", [{"time_us": -1.0}, {"time_us": None}, {"n": -5}, {"n": "x"},
                                    {"ceiling_gb_s": 0.0}])  # fmt: skip
def test_figures_are_not_trusted(cudareduce: Call, folder: Path, change: dict[str, object]) -> None:
    filled(folder, made(0, 1.0))
    [path] = folder.iterdir()
    data = json.loads(path.read_text())
    data["records"][0] |= change
    path.write_text(json.dumps(data))
    assert cudareduce("history", "check", "--from", folder)[0] == 2


def test_a_missing_history_is_an_error(cudareduce: Call, folder: Path) -> None:
    code, _, err = cudareduce("history", "check", "--from", folder)
    assert (code, "there is no history in" in err) == (2, True)
    filled(folder, made(0, 1.0))
    code, _, err = cudareduce("history", "show", "nothing", "--from", folder)
    assert (code, "has no runs of nothing" in err) == (2, True)
    code, _, err = cudareduce("history", "check", "--from", folder, "--since", "soon")
    assert (code, "neither a day" in err) == (2, True)


def test_a_step_that_holds_for_two_runs_fails(cudareduce: Call, folder: Path) -> None:
    ask = ("history", "check", "--from", folder)
    filled(folder, *(made(day, 1.0) for day in range(20)))
    filled(folder, made(20, 1.03, code="b"))
    assert cudareduce(*ask)[0] == 0
    filled(folder, made(21, 1.03, code="b"))
    code, out, _ = cudareduce(*ask)
    assert code == 1
    assert "SLOWER" in out
    assert "1 series: 1 SLOWER, 0 SAME" in out
    assert f"next: cudareduce history show {KERNEL} --from {folder}" in out
    assert cudareduce(*ask, "--threshold", "5%")[0] == 0
    assert cudareduce(*ask, "--since", "rev017")[0] == 0
    assert cudareduce(*ask, "--since", "rev020")[0] == 4  # too few runs to decide
    assert cudareduce(*ask, "--since", "2026-01-21")[0] == 4
    [found] = json.loads(cudareduce(*ask, "--format", "json")[1])
    assert [level["revision"] for level in found["levels"]] == ["rev000", "rev020"]
    assert found["change_pct"] == pytest.approx(3, abs=0.3)


def test_the_same_code_that_became_slower_is_the_machine(cudareduce: Call, folder: Path) -> None:
    filled(folder, *(made(day, 1.0) for day in range(20)))
    filled(folder, *(made(day, 1.05) for day in range(20, 25)))
    code, out, _ = cudareduce("history", "check", "--from", folder)
    assert code == 0
    assert "MACHINE: the same machine code was faster before, so the machine has changed" in out


def test_no_file_takes_the_place_of_the_history(cudareduce: Call, folder: Path) -> None:
    filled(folder, *(made(day, 1.0) for day in range(3)))
    [path] = folder.iterdir()
    before = path.read_text()
    code, _, err = cudareduce("history", "check", "--from", folder, "--junit", path)
    assert (code, "--junit and what is read are one file" in err) == (2, True)
    assert path.read_text() == before


def test_small_slowdowns_add_up_to_a_regression(cudareduce: Call, folder: Path) -> None:
    """Twelve times 0.4 %, none of which a comparison with the run before sees."""
    for day in range(60):
        filled(folder, made(day, 1.004 ** min(12, day // 4), code=str(day // 4)))
    code, out, _ = cudareduce("history", "check", "--from", folder)
    assert code == 1
    code, out, err = cudareduce("history", "show", KERNEL, "--from", folder)
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert "against the best" in out
    assert "60 runs" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("runs", "creep"), [(9, 1.02), (13, 1.01), (13, 1.004)])
def test_a_gradual_regression_in_a_short_series_is_found(
    cudareduce: Call, folder: Path, runs: int, creep: float
) -> None:
    filled(folder, *(made(day, creep**day, code=str(day)) for day in range(runs)))
    assert cudareduce("history", "check", "--from", folder)[0] == 1


def test_a_short_history_is_reported_as_too_short(cudareduce: Call, folder: Path) -> None:
    filled(folder, *(made(day, 1.0) for day in range(3)))
    [path] = folder.glob("*.jsonl")
    path.write_text(path.read_text() * 2)  # as git's union of two branches may
    code, out, _ = cudareduce("history", "check", "--from", folder)
    assert code == 4
    assert "up to 3 runs" in out
    assert "Nothing was decided: no series has 5 recent runs; add more runs." in out
    assert "have fewer than 5 runs, too few for a change point" in out
    code, _, err = cudareduce("history", "show", "nobody", "--from", folder)
    assert code == 2
    assert f"it has: {KERNEL}" in err


def test_another_card_is_compared_by_shares(cudareduce: Call, folder: Path) -> None:
    """The other card reads 10 % less, so a time 10 % longer is unchanged."""
    filled(folder, *(made(day, 1.0) for day in range(12)))
    slow = replace(OTHER)
    filled(folder, *(made(day, 1.1, device=slow, ceiling=4194.3 / 1.1, code="b")
                     for day in range(12, 24)))  # fmt: skip
    ask = ("history", "check", "--from", folder)
    code, out, _ = cudareduce(*ask)
    assert code == 0, out
    [series] = all_series(next(iter(read(folder).runs.values())))
    assert (series.cards, series.omitted, len(series.points)) == (2, 0, 24)
    assert series.points[0].us == pytest.approx(44, rel=0.02)
    out = cudareduce("history", "show", KERNEL, "--from", folder)[1]
    assert "2 cards: times scaled to the last by the ceilings of a read-only kernel" in out
    filled(folder, *(made(day, 1.16, device=slow, ceiling=4194.3 / 1.1, code="c")
                     for day in range(24, 28)))  # fmt: skip
    assert cudareduce(*ask)[0] == 1


def test_another_kind_of_machine_has_a_file_of_its_own(cudareduce: Call, folder: Path) -> None:
    filled(folder, made(0, 1.0), made(1, 3.0, device=replace(H200, power_limit_w=500.0)))
    assert len(read(folder).runs) == 2
    assert cudareduce("history", "check", "--from", folder)[0] == 4


def test_a_kernel_that_is_gone_is_not_judged(cudareduce: Call, folder: Path) -> None:
    filled(folder, *(made(day, 1.0) for day in range(20)))
    filled(folder, *(made(day, 1.1, code="b") for day in range(20, 24)))
    later = [replace(made(day, 1.0), records=()) for day in range(24, 40)]
    filled(folder, *later)
    code, out, _ = cudareduce("history", "check", "--from", folder)
    assert code == 4, out


def test_a_single_run_is_drawn(cudareduce: Call, folder: Path) -> None:
    filled(folder, made(0, 1.0))
    for name in ("reduce_v7*", "v7*", "v7_shuffle", "v7"):
        code, out, _ = cudareduce("history", "show", name, "--from", folder)
        assert code == 0
        assert "no change point" in out
    code, out, _ = cudareduce("history", "show", KERNEL, "--n", "2^20", "--from", folder)
    assert code == 2
