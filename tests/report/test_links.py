"""What is printed of links, word for word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudareduce.cli.main import run as run_cli
from cudareduce.errors import UsageError
from cudareduce.machine.device import DeviceInfo
from cudareduce.report.sections import sections
from cudareduce.report.terminal import print_sections
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load, to_json
from tests.conftest import ROOT

SWITCHED: list[dict[str, Any]] = [
    {"name": "NVIDIA H200", "address": f"0000:{bus}:00.0", "pcie": "5 x16",
     "ways": [None if k == own else "NV18" for k in range(2)], "reaches": [True, True]}
    for own, bus in enumerate(("19", "3b"))
]  # fmt: skip

ALONE = SWITCHED[0] | {"ways": [None], "reaches": [True]}


def way(engine: str, gb_s: float | None, us: float, n: int = 2**28, **more: Any) -> Record:
    off = 0.002
    return Record(
        kernel="links", op="copy", dtype="uint8", acc="uint8", n=n, rows=1, block=None, items=None,
        grid=more.get("sms"), passes=None, backend="cuda", scope="device", timing="warm",
        region="total", pattern="exact", verdict="pass", reason="", time_us=us,
        time_us_low=us * (1 - off), time_us_high=us * (1 + off), rounds_us=(us,) * 9, noise_pct=0.2,
        gb_s=gb_s, gb_s_low=gb_s and gb_s * (1 - off), gb_s_high=gb_s and gb_s * (1 + off),
        bytes=n, engine=engine, **{"ranks": 2, **more},
    )  # fmt: skip


def rated(engine: str, gb_s: float, n: int = 2**28, **more: Any) -> Record:
    return way(engine, gb_s, n / gb_s / 1e3, n, **more)


RECORDS = (
    rated("copy:one_way", 395.0), rated("copy:both", 390.0, skew_us=0.8),
    rated("read:one_way", 375.0), rated("read:both", 337.0, skew_us=1.1),
    rated("write:one_way", 370.0), rated("write:both", 365.0, skew_us=0.9),
    way("flag:ordered", None, 1.414, 4, batch=2000),
    way("flag:relaxed", None, 0.829, 4, batch=2000),
    rated("copy:from_host", 55.1, 2**26, skew_us=2.0),
    rated("copy:to_host", 55.3, 2**26, skew_us=2.0),
    *(rated("read:both", min(21.0 * k, 336.0), min(2**28, k * 2**24), sms=k)
      for k in (1, 2, 4, 8, 16, 32)),
    *(rated("write:both", min(45.0 * k, 366.0), min(2**28, k * 2**24), sms=k)
      for k in (1, 2, 4, 8, 16, 32)),
)  # fmt: skip


def made(records: tuple[Record, ...], gpus: list[dict[str, Any]]) -> Run:
    return Run({}, DeviceInfo("NVIDIA H200"), {"gpus": gpus}, records, "then")


def test_two_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    print_sections(sections(made(RECORDS, SWITCHED)))
    assert capsys.readouterr().out == (ROOT / "tests/golden/links-gpu.txt").read_text()


def test_one_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    host = tuple(replace(r, ranks=1, skew_us=0.0) for r in RECORDS if "host" in (r.engine or ""))
    print_sections(sections(made(host, [ALONE])))
    out = capsys.readouterr().out
    assert "one rank: there is no link to measure" in out
    assert "copy:from_host  64 MiB  55.1" in out
    assert "one_way" not in out


def test_gpus_that_do_not_reach_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    gpus = [{**gpu, "reaches": [k == own for k in range(2)], "pcie": None,
             "ways": [None if k == own else "SYS" for k in range(2)]}
            for own, gpu in enumerate(SWITCHED)]  # fmt: skip
    print_sections(sections(made((), gpus)))
    out = capsys.readouterr().out
    assert out.count("SYS!") == 2
    assert "SYS: PCIe and what connects NUMA nodes" in out
    assert "cannot address each other's memory" in out


def test_what_is_wrong_or_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = replace(RECORDS[3], verdict="fail", reason="rank 1: it is not there", time_us=None,
                    gb_s=None)  # fmt: skip
    few = replace(wrong, sms=2, reason="rank 0: nor there")
    short = replace(RECORDS[0], rounds_us=(1.0,), time_us_low=None, time_us_high=None)
    print_sections(sections(made((short, wrong, few), [])))
    out = capsys.readouterr().out
    assert "read:both: WRONG: rank 1: it is not there" in out
    assert "read:both by 2 blocks: WRONG: rank 0: nor there" in out
    assert "1 round: no interval; it takes at least 6" in out


def test_a_stored_one_is_the_same(tmp_path: Path) -> None:
    run = made(RECORDS, SWITCHED)
    (tmp_path / "links.json").write_text(to_json(run))
    assert sections(load(tmp_path / "links.json")) == sections(run)


def test_two_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By time, each way with as many blocks for itself; of one rank too."""
    host = tuple(replace(r, ranks=1) for r in RECORDS if "host" in (r.engine or ""))
    again = tuple(
        replace(r, rounds_us=(r.time_us,) * 8 + (1.001 * (r.time_us or 0),)) for r in host
    )
    slow = tuple(slower(r) if r.engine == "read:both" and not r.sms else r for r in RECORDS)
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for old, new, code in ((RECORDS, slow, 1), (host, again, 0)):
        for day, (file, records) in enumerate(zip(files, (old, new), strict=True), 1):
            run = replace(made(records, SWITCHED), tool={"name": "cudareduce", "argv": []},
                          created=f"2026-01-0{day}T00:00:00+00:00")  # fmt: skip
            file.write_text(to_json(run))
        assert run_cli(["compare", *map(str, files)]) == code
    out = capsys.readouterr().out
    assert "SLOWER   links   2^28, read:both 2 ranks " in out
    assert f"{len(RECORDS)} compared: 1 SLOWER, {len(RECORDS) - 1} SAME" in out
    assert "2 compared: 2 SAME" in out


def slower(r: Record) -> Record:
    """By a tenth."""
    assert r.time_us and r.gb_s
    return replace(r, time_us=1.1 * r.time_us, time_us_low=1.09 * r.time_us,
                   time_us_high=1.11 * r.time_us, rounds_us=(1.1 * r.time_us,) * 9,
                   gb_s=r.gb_s / 1.1, gb_s_low=None, gb_s_high=None)  # fmt: skip


@pytest.mark.parametrize("gpus", [
    "NV18", [None], [{}], SWITCHED[:1], [ALONE, ALONE], [ALONE | {"name": 7}],
    [ALONE | {"ways": [18]}], [ALONE | {"reaches": "yes"}],
    [{key: value for key, value in ALONE.items() if key != "pcie"}],
])  # fmt: skip
def test_what_is_no_topology_is_refused(tmp_path: Path, gpus: Any) -> None:
    (tmp_path / "links.json").write_text(to_json(made(RECORDS, gpus)))
    with pytest.raises(UsageError, match="gpus is not what tables are made of"):
        load(tmp_path / "links.json")
