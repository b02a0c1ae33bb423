"""The model of latency and bandwidth: from times that follow one, the figures that made them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.model import Crossover, crossovers, elements, fit, lines, undecided
from cudareduce.record import Record
from cudareduce.sweep import crossing_text
from tests.fake_timer_gpu import FakeGpu, use

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
    assert model.launch_us == pytest.approx(3, rel=1e-3)
    assert model.gb_s == pytest.approx(4000, rel=1e-3)
    assert model.half_n == pytest.approx(3 * 4e6 / 4, rel=1e-2)
    assert model.launch_us_low is not None and model.launch_us_high is not None
    assert model.launch_us_low < 3 < model.launch_us_high
    assert model.gb_s_low is not None and model.gb_s_high is not None
    assert model.gb_s_low < 4000 < model.gb_s_high
    assert model.misfit_pct < 0.1


def test_few_rounds_have_no_interval() -> None:
    model = fit(line("A", 3.0, 4000.0, rounds=5))
    assert (model.launch_us_low, model.gb_s_high, model.half_n_low) == (None, None, None)


def test_times_that_do_not_grow_show_no_bandwidth() -> None:
    flat = [record("A", n, [3.0 - k * 1e-3] * 9) for k, n in enumerate(SIZES)]
    model = fit(flat)
    assert (model.gb_s, model.half_n) == (None, None)
    assert model.launch_us == pytest.approx(3, rel=1e-2)


def test_a_time_off_the_line_is_named() -> None:
    found = line("A", 3.0, 4000.0)
    found[5] = record("A", found[5].n, [2 * us for us in found[5].rounds_us])
    model = fit(found)
    assert model.misfit_n == found[5].n
    assert model.misfit_pct > 30


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
    other = [replace(r, **{field: "another"}) for r in line("B", 3.0, 2000.0)]
    found = lines([*line("A", 6.0, 4000.0), *other])
    assert len(found) == 2
    assert list(crossovers(found)) == []
    assert not undecided(found)


def test_without_an_interval_nothing_overtakes() -> None:
    few = [line("A", 6.0, 4000.0, rounds=5), line("B", 3.0, 2000.0, rounds=5)]
    one = [line("A", 6.0, 4000.0, rounds=1), line("B", 3.0, 2000.0, rounds=1)]
    for found in (few, one):
        assert list(crossovers(found)) == []
        assert undecided(found)


def test_rounds_of_unlike_number_are_not_paired() -> None:
    whole, other = line("A", 6.0, 4000.0), line("B", 3.0, 2000.0)
    lost = [replace(r, rounds_us=r.rounds_us[1:]) for r in other]
    assert not undecided([whole, other])
    assert undecided([whole, lost])
    assert list(crossovers([whole, lost])) == []
    assert fit(lost).launch_us_low is not None
    assert fit([lost[0], *other[1:]]).launch_us_low is None


def test_a_crossing_that_rounds_do_not_agree_on_is_none() -> None:
    one = [record("A", n, [10.0 + (-1) ** (k + j) for j in range(9)]) for k, n in enumerate(SIZES)]
    other = [record("B", n, [10.0] * 9) for n in SIZES]
    assert list(crossovers(lines([*one, *other]))) == []


def test_a_line_takes_three_sizes() -> None:
    assert lines(line("A", 3.0, 4000.0)[:2]) == []


def test_a_crossing_in_words() -> None:
    crossing = Crossover("A", "B", "sum", "float32", "float32", "warm", 2**18.5, 2**18, 2**20)
    assert crossing_text(crossing) == (
        "A overtakes B (warm) at about n = 2^18.5, between 2^18 and 2^20"
    )


def test_sweep_prints_times_models_and_crossings(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, FakeGpu(cache, {"reduce_v6_multi_add": 1.5}))
    path = tmp_path / "sweep.json"
    code, out, _ = cudareduce(
        "sweep", "reduce_v6_multi_add", "reduce_v7_shuffle", "--n", "2^8..2^14", "--json", path,
        "--quiet",
    )  # fmt: skip
    assert code == 0, out
    assert "floor us" in out and "half at n" in out and "2^14" in out
    assert "nan" not in out.lower()
    run = json.loads(path.read_text())
    assert len(run["records"]) == 14
    assert [m["kernel"] for m in run["protocol"]["models"]] == [
        "reduce_v6_multi_add", "reduce_v7_shuffle",
    ]  # fmt: skip
    assert 1.5 < run["protocol"]["models"][1]["launch_us"] < 6


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
def test_bad_input(cudareduce: Call, arguments: list[str], message: str) -> None:
    code, out, err = cudareduce("sweep", "reduce_v7_shuffle", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_without_a_gpu_there_is_nothing_to_sweep(cudareduce: Call) -> None:
    code, out, _ = cudareduce("sweep", "reduce_v7_shuffle", "--device", 99)
    assert (code, out) == (6, "")


def test_a_fit_without_scipy_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['scipy'] = None; sys.modules['scipy.optimize'] = None\n"
        "from cudareduce.errors import EnvironmentProblem\n"
        "from cudareduce.model import _fitted\n"
        "try: _fitted([1, 2, 3], [1, 2, 3])\n"
        "except EnvironmentProblem as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install scipy" in done.stdout
