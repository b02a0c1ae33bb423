"""`check` of libraries together with kernels, on a fake GPU with fake libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import read_result
from tests.fake_gpu import fake_gpu
from tests.libraries.fakes import use_fakes

Call = Callable[..., tuple[int, str, str]]
KERNEL = "reduce_v7_shuffle"


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[None]:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    with fake_gpu(monkeypatch, cache):
        yield


@pytest.mark.slow
def test_libraries_are_compared_with_themselves(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A slower library fails after a confirmation run, with both versions in the report; a wrong
    one counts like a wrong kernel. Without --peers libraries are not measured."""
    baseline, now = tmp_path / "baseline.json", tmp_path / "now.json"
    ask = ("check", "--baseline", baseline, "--all")
    use_fakes(monkeypatch, "AS_CUB")
    cudareduce("bench", KERNEL, "--n", "2^13", "--peers", "cub", "--json", baseline)
    baseline.write_text(baseline.read_text().replace("1.3.0", "1.2.3"))
    code, out, err = cudareduce(*ask, "--peers", "cub", "--json", now)
    said = " ".join(out.split())
    assert code == 0, out + err
    assert "7 compared: 7 SAME" in said
    table = [line for line in out.splitlines() if line.startswith(" ")]
    assert any("2^13, beside 1 off" in line for line in table)
    assert max(map(len, table)) <= 80
    assert "version 1.2.3, now 1.3.0" in said
    assert read_result(now.read_text())["protocol"]["peers"] == ["cub"]
    use_fakes(monkeypatch, "SLOW_CUB")
    code, out, err = cudareduce(*ask, "--peers", "cub")
    assert code == 1, out + err
    assert "7 compared: 3 SLOWER, 4 SAME" in out
    assert "look slower: measuring again with 2 times the rounds" in err
    use_fakes(monkeypatch, "WRONG_CUB")
    code, out, _ = cudareduce(*ask, "--peers", "cub")
    assert code == 3
    assert "WRONG" in out
    code, out, _ = cudareduce(*ask)
    assert code == 0
    assert "peer:" not in out


@pytest.mark.long
def test_calls_with_host_times_only_are_listed_and_not_compared(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Calls that take the host's time have no rounds: where it has moved most is shown."""
    baseline, now = tmp_path / "baseline.json", tmp_path / "now.json"
    use_fakes(monkeypatch, "FINE")
    ask = ("bench", KERNEL, "--n", "2^12,2^13", "--peers", "all", "--json", baseline)
    cudareduce(*ask)
    run = read_result(baseline.read_text())
    for record in run["records"]:
        if record["kernel"] == "peer:fine:as_called" and record["n"] == 2**13:
            assert record["host_us"] == 57
            record["host_us"] = 950
        record["rounds_us"] = [
            us and us * (1 + k / 10_000) for k, us in enumerate(record["rounds_us"])
        ]
    now.write_text(json.dumps(run))
    code, out, _ = cudareduce("compare", baseline, now)
    assert code == 0
    assert (
        "not compared, since only the host's time in us is known: peer:fine:as_called 57, "
        "now 950 at n = 2^13, the largest difference of 2"
    ) in " ".join(out.split())


@pytest.mark.long
def test_libraries_do_not_apply_to_base_and_stay_in_a_baseline(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, _, err = cudareduce("check", "--base", "HEAD", "--peers", "cub")
    assert code == 2
    assert "--peers does not apply to --base" in err
    baseline = tmp_path / "baseline.json"
    use_fakes(monkeypatch, "AS_CUB")
    cudareduce("bench", KERNEL, "--n", "2^13", "--peers", "cub", "--json", baseline)
    code, _, err = cudareduce("check", "--baseline", baseline, "--update-baseline")
    assert code == 2
    assert "would drop libraries that the baseline holds: give --peers all" in err
