"""The model of latency and bandwidth: from times that follow one, the figures that made them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cudareduce.analysis.sweep import (
    Crossover,
    _fit_line,
    crossing_text,
    crossovers,
    elements,
    fit,
    lacks_intervals,
    lines,
    sweep_sections,
)
from cudareduce.bench.trial import MethodResult, Trial
from cudareduce.intervals import interval
from cudareduce.machine import DeviceInfo
from cudareduce.report.section import Section
from cudareduce.report.terminal import print_sections
from cudareduce.results.record import Record, Run
from tests.conftest import read_result
from tests.fake_gpu import FakeGpu, use

Call = Callable[..., tuple[int, str, str]]
SIZES = [2**k for k in range(10, 29, 2)]


def record(kernel: str, n: int, times: list[float], timing: str = "cold") -> Record:
    return Record(
        kernel, "sum", "float32", "float32", n, 1, 256, 8, 1, 1, "cuda", "grid", timing, "total",
        "random", "pass", "", time_us=sorted(times)[len(times) // 2], rounds_us=tuple(times),
        bytes=4 * n + 4,
    )  # fmt: skip


def line(
    kernel: str, launch_us: float, gb_s: float, rounds: int = 9, wobble: float = 0.001
) -> list[Record]:
    return [
        record(
            kernel, n,
            [(launch_us + (4 * n + 4) / gb_s / 1e3) * (1 + wobble * (k - rounds // 2))
             for k in range(rounds)],
        )
        for n in SIZES
    ]  # fmt: skip


def test_the_fit_finds_what_made_the_times() -> None:
    model = fit(line("A", 3.0, 4000.0))
    assert model.a_us == pytest.approx(3, rel=1e-3)
    assert (model.from_n, model.sizes) == (SIZES[0], len(SIZES))
    assert model.floor_us == pytest.approx(3 + 4100 / 4e6, rel=1e-3)
    assert model.gb_s == pytest.approx(4000, rel=1e-3)
    assert model.half_n == pytest.approx(3 * 4e6 / 4, rel=1e-2)
    assert model.a_us_low is not None and model.a_us_high is not None
    assert model.a_us_low < 3 < model.a_us_high
    assert model.gb_s_low is not None and model.gb_s_high is not None
    assert model.gb_s_low < 4000 < model.gb_s_high
    assert model.misfit_pct < 0.1


def test_few_rounds_have_no_interval() -> None:
    model = fit(line("A", 3.0, 4000.0, rounds=5))
    assert (model.a_us_low, model.gb_s_high, model.half_n_low) == (None, None, None)


def test_times_that_do_not_grow_show_no_bandwidth() -> None:
    flat = [record("A", n, [3.0 - k * 1e-3] * 9) for k, n in enumerate(SIZES)]
    model = fit(flat)
    assert (model.gb_s, model.half_n) == (None, None)
    assert model.a_us == pytest.approx(3, rel=1e-2)


def test_the_line_is_that_of_the_larger_sizes() -> None:
    """What is faster than the line at small sizes changes the floor, and nothing else."""
    found = line("A", 10.0, 4000.0)
    found[:4] = [record("A", r.n, [us - 5 for us in r.medians_us]) for r in found[:4]]
    model = fit(found)
    assert (model.from_n, model.sizes) == (SIZES[4], len(SIZES) - 4)
    assert model.floor_us == pytest.approx(5, rel=1e-2)
    assert model.a_us == pytest.approx(10, rel=1e-3)
    assert model.gb_s == pytest.approx(4000, rel=1e-3)
    assert model.misfit_pct < 0.1


def test_a_bandwidth_is_no_surer_than_the_line() -> None:
    """A size that does not quite fit widens the interval, however well the rounds agree."""
    exact, bent = (line("A", 3.0, 4000.0, wobble=1e-5) for _ in range(2))
    bent[-1] = record("A", bent[-1].n, [1.005 * us for us in bent[-1].medians_us])
    sure, unsure = fit(exact), fit(bent)
    assert sure.gb_s_high is not None and unsure.gb_s_high is not None
    assert sure.gb_s_low is not None and unsure.gb_s_low is not None
    assert unsure.sizes == len(SIZES)
    assert unsure.gb_s_high - unsure.gb_s_low > sure.gb_s_high - sure.gb_s_low
    assert unsure.gb_s_low < 4000 < unsure.gb_s_high


def test_a_time_off_every_line_is_named() -> None:
    found = line("A", 3.0, 4000.0)
    found[-2] = record("A", found[-2].n, [2 * us for us in found[-2].medians_us])
    model = fit(found)
    assert (model.from_n, model.sizes) == (SIZES[-3], 3)
    assert model.misfit_n in SIZES[-3:]
    assert model.misfit_pct > 10
    _, section = shown(found)
    assert any(note.startswith("A: no 3 sizes lie on a line") for note in section.notes)


def test_where_one_overtakes_the_other() -> None:
    slow_start, slow_end = line("A", 6.0, 4000.0), line("B", 3.0, 2000.0)
    [crossing] = crossovers(lines([*slow_start, *slow_end]))
    assert (crossing.faster, crossing.slower) == ("A", "B")
    exact = 3.0 / (1 / 2e3 - 1 / 4e3) * 1e3 / 4
    assert crossing.n == pytest.approx(exact, rel=0.1)
    assert crossing.low_n < exact < crossing.high_n
    assert list(crossovers(lines([*slow_start, *line("C", 5.0, 4000.0)]))) == []


def test_rows_count_as_the_elements_that_they_hold() -> None:
    one = line("A", 6.0, 4000.0)
    rows = [replace(r, n=32, rows=r.n // 32) for r in line("B", 3.0, 2000.0)]
    assert [elements(r) for r in lines(rows)[0]] == SIZES
    exact = 3.0 / (1 / 2e3 - 1 / 4e3) * 1e3 / 4
    [crossing] = crossovers(lines([*one, *rows]))
    assert crossing.n == pytest.approx(exact, rel=0.1)
    assert fit(rows).half_n == pytest.approx(3 * 2e6 / 4, rel=1e-2)
    assert fit(rows).misfit_n in SIZES


@pytest.mark.parametrize("field", ["op", "dtype", "acc", "timing"])
def test_only_lines_of_one_problem_are_compared(field: str) -> None:
    changed: dict[str, Any] = {field: "another"}
    other = [replace(r, **changed) for r in line("B", 3.0, 2000.0)]
    found = lines([*line("A", 6.0, 4000.0), *other])
    assert len(found) == 2
    assert list(crossovers(found)) == []
    assert not lacks_intervals(found)


def test_without_an_interval_nothing_overtakes() -> None:
    few = [line("A", 6.0, 4000.0, rounds=5), line("B", 3.0, 2000.0, rounds=5)]
    one = [line("A", 6.0, 4000.0, rounds=1), line("B", 3.0, 2000.0, rounds=1)]
    for found in (few, one):
        assert list(crossovers(found)) == []
        assert lacks_intervals(found)


def test_rounds_of_unlike_number_are_not_paired() -> None:
    whole, other = line("A", 6.0, 4000.0), line("B", 3.0, 2000.0)
    lost = [replace(r, rounds_us=r.rounds_us[1:]) for r in other]
    assert not lacks_intervals([whole, other])
    assert lacks_intervals([whole, lost])
    assert list(crossovers([whole, lost])) == []
    assert fit(lost).a_us_low is not None


def test_lost_rounds_do_not_shift_the_pairs() -> None:
    """What drifts drifts for both; rounds that only one has say nothing."""
    drift = [1 + 0.05 * k for k in range(9)]
    one = [record("A", n, [10 * d for d in drift]) for n in SIZES]
    other = [record("B", n, [10 * d for d in drift]) for n in SIZES]
    one = [replace(r, rounds_us=(None, *r.rounds_us[1:])) for r in one]
    other = [replace(r, rounds_us=(*r.rounds_us[:-1], None)) for r in other]
    assert list(crossovers([one, other])) == []
    assert not lacks_intervals([one, other])
    faster = [replace(r, rounds_us=tuple(us and 1.1 * us for us in r.rounds_us)) for r in other[3:]]
    [crossing] = crossovers([one, [*(replace(r, rounds_us=tuple(
        us and us / 1.1 for us in r.rounds_us)) for r in other[:3]), *faster]])  # fmt: skip
    assert (crossing.faster, crossing.low_n, crossing.high_n) == ("A", SIZES[2], SIZES[3])


def test_a_crossing_that_rounds_do_not_agree_on_is_none() -> None:
    one = [record("A", n, [10.0 + (-1) ** (k + j) for j in range(9)]) for k, n in enumerate(SIZES)]
    other = [record("B", n, [10.0] * 9) for n in SIZES]
    assert list(crossovers(lines([*one, *other]))) == []


def test_a_line_takes_three_sizes() -> None:
    assert lines(line("A", 3.0, 4000.0)[:2]) == []


def shown(records: list[Record], rows: int = 1) -> tuple[list[Section], Section]:
    """The tables of times and the model that a run of these records prints."""
    told = []
    for r in records:
        low, high = interval(r.medians_us) or (None, None)
        told.append(replace(r, time_us_low=low, time_us_high=high))
    run = Run({}, DeviceInfo("Fake GPU"), {"rows": rows}, tuple(told))
    found = lines(told)
    crossed = sorted(crossovers(found), key=lambda crossing: crossing.n)
    *times, model = sweep_sections(run, found, [fit(one) for one in found], crossed)
    return times, model


def test_a_crossing_in_words() -> None:
    crossing = Crossover("A", "B", "sum", "int8", "int32", "warm", 2**18.5, 2**18, 1000003)
    assert crossing_text(crossing, " (int8, warm)") == (
        "A overtakes B (int8, warm) at about n = 2^18.5, between 2^18 and 1000003"
    )


def test_sizes_are_shown_as_typed() -> None:
    sizes = [1000, 2**12, 1000003]
    records = [record("A", n, [2.0 + n / 1e3] * 9) for n in sizes]
    records[0] = record("A", 1000, [9.0] * 9)
    [times], model = shown(records)
    assert [row[0] for row in times.rows] == ["1000", "2^12", "1000003"]
    assert model.rows[0][-1] == "1000"


def test_every_time_has_its_interval_and_as_many_tables_as_that_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"reduce_{k}" for k in range(7)]
    records = [r for name in names for r in line(name, 3.0, 1.0, wobble=0.01)]
    times, _ = shown(records)
    assert [table.header for table in times] == [("n", "1", "2", "3", "4", "5"), ("n", "6", "7")]
    assert times[1].notes[0] == "6 reduce_5, 7 reduce_6"
    cells = [cell for table in times for row in table.rows for cell in row[1:]]
    assert len(cells) == 7 * len(SIZES)
    assert all("±" in cell for cell in cells)
    print_sections(times)
    plain = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert max(len(text.rstrip()) for text in plain) <= 80
    assert sum(text.count("±") for text in plain) == len(cells)


def test_curves_of_several_types_and_operators_have_distinct_names() -> None:
    one = line("A", 6.0, 4000.0)
    kinds = [("sum", "float32"), ("sum", "int8"), ("max", "float32")]
    both = [replace(r, op=op, dtype=t, acc=t) for op, t in kinds for r in one]
    [times], model = shown(both)
    assert times.title == "sum and max of float32 and int8, us, Fake GPU"
    assert times.notes[0] == "1 A (sum of float32), 2 A (sum of int8), 3 A (max of float32)"
    assert [row[0] for row in model.rows] == times.notes[0].split(", ")
    assert not any("overtakes" in note for note in model.notes)
    _, model = shown(
        [*both, *(replace(r, dtype="int8", acc="int8") for r in line("B", 3.0, 2000.0))]
    )
    assert sum("A overtakes B (sum of int8) at about n" in note for note in model.notes) == 1
    [times], _ = shown([*one, *(replace(r, timing="warm") for r in one)])
    assert times.title == "sum of float32, us, Fake GPU"
    assert times.notes[0] == "1 A, 2 A (warm)"


def test_the_title_of_a_sweep_is_that_of_bench() -> None:
    one = [replace(r, rows=8, acc="float64", region="first-pass") for r in line("A", 6.0, 4000.0)]
    [times], _ = shown(one, rows=8)
    assert times.title == (
        "sum of float32 x 8 rows, accumulated in float64, us, Fake GPU, first pass only"
    )
    assert times.notes == ("1 A", "n: the elements of all rows")


def test_a_note_names_kernels_that_read_the_array_as_rows() -> None:
    rows = [replace(r, n=32, rows=r.n // 32) for r in line("B", 3.0, 2000.0)]
    [times], _ = shown([*line("A", 6.0, 4000.0), *rows])
    assert len(times.rows) == len(SIZES)
    assert times.notes == ("1 A, 2 B", "B: n elements are rows of 32")


def test_no_kernel_overtakes_itself() -> None:
    """Of kernels that are the same, with noise of 1 % from round to round."""
    random = Random(0)

    def noisy(name: str) -> list[Record]:
        return [
            record(name, n, [10 * random.gauss(1, 0.01) for _ in range(9)])
            for n in (2**k for k in range(10, 31))
        ]

    runs = [lines([r for name in "ABCD" for r in noisy(name)]) for _ in range(50)]
    assert sum(bool(list(crossovers(found))) for found in runs) <= 1


def test_a_floor_of_nothing_is_none() -> None:
    steep = [record("A", n, [n**1.3 * (1 + k * 1e-4) for k in range(9)]) for n in SIZES]
    _, model = shown(steep)
    assert model.rows[0][2] == "-"
    assert any("no a where times grow faster" in note for note in model.notes)
    _, model = shown(line("A", 3.0, 4000.0))
    assert not any("no a where" in note for note in model.notes)


def test_no_figure_is_finer_than_the_event_clock() -> None:
    exact = line("A", 3.0, 4000.0, wobble=0)
    [times], model = shown(exact)
    assert times.rows[0][1] == "3.00±.02"
    assert model.rows[0][1:3] == ("3.00±.02", "3.00±.02")
    _, model = shown([replace(r, batch=10) for r in exact])
    assert model.rows[0][1:3] == ("3.001±.002", "3.000±.002")


def test_too_few_rounds_for_crossovers_are_reported_once() -> None:
    pair = [*line("A", 6.0, 4000.0, rounds=1), *line("B", 3.0, 2000.0, rounds=1)]
    _, model = shown(pair)
    assert sum("crossover" in note for note in model.notes) == 1
    assert not any("overtakes" in note for note in model.notes)
    _, model = shown([*line("A", 6.0, 4000.0), *line("B", 7.0, 4000.0)])
    assert "no kernel overtakes another within this range" in model.notes


@pytest.mark.long
def test_sweep_prints_times_models_and_crossings(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, FakeGpu(cache, factors={"reduce_v6_multi_add": 1.5}, lazy=True))
    path = tmp_path / "sweep.json"
    code, out, _ = cudareduce(
        "sweep", "reduce_v6_multi_add", "reduce_v7_shuffle", "--n", "2^8..2^14", "--json", path,
        "--quiet",
    )  # fmt: skip
    assert code == 0, out
    assert "floor us" in out and "half at n" in out and "2^14" in out
    assert "nan" not in out.lower()
    run = read_result(path.read_text())
    assert len(run["records"]) == 14
    assert [m["kernel"] for m in run["protocol"]["models"]] == [
        "reduce_v6_multi_add", "reduce_v7_shuffle",
    ]  # fmt: skip
    assert 1.5 < run["protocol"]["models"][1]["a_us"] < 6


@pytest.mark.long
def test_kernels_of_rows_have_their_sizes(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeGpu(cache, lazy=True))
    code, out, _ = cudareduce(
        "sweep", "reduce_warp_registers", "reduce_v7_shuffle", "--n", "1024,4096,16384,1000",
        "--quiet",
    )  # fmt: skip
    assert code == 0, out
    times = out.partition("Model")[0]
    assert re.findall(r"^ (1000|2\^\d+) ", times, re.MULTILINE) == ["1000", "2^10", "2^12", "2^14"]
    assert "reduce_warp_registers at 1 000: has one lane per element of a row" in times


@pytest.mark.parametrize(("groups", "table"), [(3, "Model"), (2, "Nothing was timed")])
def test_an_interrupted_sweep_is_marked_as_interrupted(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, groups: int, table: str
) -> None:
    use(monkeypatch, FakeGpu(cache, lazy=True))
    measure, left = Trial.measure, [None] * groups

    def interrupted(*arguments: Any) -> MethodResult:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return measure(*arguments)

    monkeypatch.setattr(Trial, "measure", interrupted)
    code, out, _ = cudareduce("sweep", "reduce_v7_shuffle", "--n", "2^8..2^12", "--quiet")
    assert code == 130
    assert table in out
    assert out.count("interrupted: what is missing was not measured") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "2^10,2^12"], "give --n at least 3 sizes"),
        (["--n", "0,0,2^10"], "give --n at least 3 sizes"),
        (["--backend", "cpu"], "the CPU emulator has none"),
        (["--rounds", "0"], "Invalid value for '--rounds'"),
        (["--columns", "ulp"], "No such option"),
    ],
)
def test_a_wrong_option_of_sweep_is_a_usage_error(
    cudareduce: Call, arguments: list[str], message: str
) -> None:
    code, out, err = cudareduce("sweep", "reduce_v7_shuffle", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_without_a_gpu_there_is_nothing_to_sweep(cudareduce: Call) -> None:
    code, out, _ = cudareduce("sweep", "reduce_v7_shuffle", "--device", 99)
    assert (code, out) == (6, "")


@pytest.mark.parametrize("sizes", [3, 4, 12])
def test_the_fit_is_the_nonnegative_least_squares_of_scipy(sizes: int) -> None:
    from scipy.optimize import nnls

    random = Random(sizes)
    for _ in range(300):
        volumes = sorted(2 ** random.uniform(10, 33) for _ in range(sizes))
        launch, slope = random.choice((0, 2, 50)), random.choice((-1e-12, 0, 1e-9, 3e-7))
        times = [(launch + slope * v) * random.gauss(1, 0.05) + 1 for v in volumes]
        rows = [[1 / us, v / volumes[-1] / us] for v, us in zip(volumes, times, strict=True)]
        (a, b), _ = nnls(rows, [1.0] * sizes)
        expected = pytest.approx((a, b / volumes[-1]), rel=1e-7, abs=1e-9)
        assert _fit_line(volumes, times) == expected
