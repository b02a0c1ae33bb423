"""`check` of collectives: re-measurement, verdicts, and rates of false verdicts."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cudareduce.catalog.registry import Registry
from cudareduce.results.record import Run
from cudareduce.results.store import load, to_json
from tests.collectives.fake_ranks import CACHE, GPUS, PROGRAM
from tests.collectives.simulated_jobs import ENGINES, SIZES, Machine, made_by, stored
from tests.conftest import ROOT
from tests.simulate import H200

Call = Callable[..., tuple[int, str, str]]
Gpus = Callable[..., subprocess.CompletedProcess[str]]
#: Every kernel's text is another one, so that all are judged by their times.
ALL_NEW = dict.fromkeys(ENGINES, "new")


def kernels(folder: Path, mine: Mapping[str, str]) -> Path:
    """A folder with kernels of an all-reduce, each with a line of its own at the end."""
    folder.mkdir()
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    for name, line in mine.items():
        made = text.replace("all_reduce_one_shot", f"all_reduce_{name}")
        (folder / f"all_reduce_{name}.cu").write_text(f"{made}// {line}\n")
    return folder


@pytest.fixture
def simulated(cudareduce: Call, monkeypatch: pytest.MonkeyPatch, registry: Registry) -> Call:
    """`check` on a machine, the first argument, whose jobs are simulated."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("cudareduce.collectives.check.device_of", lambda ranks, request: H200)
    monkeypatch.setattr("cudareduce.collectives.check.load_registry", lambda: registry)
    monkeypatch.setattr("cudareduce.compare.check.tool", made_by)  # which asks git

    def call(machine: Machine, *words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("cudareduce.collectives.check.start_ranks", machine.job)
        return cudareduce("check", *words)

    return call


@pytest.fixture
def check(simulated: Call, tmp_path: Path) -> Call:
    """`check` of a stored run, or of its file."""

    def call(old: Run | Path, machine: Machine, *words: object) -> tuple[int, str, str]:
        path = tmp_path / "coll.json"
        if isinstance(old, Run):
            path.write_text(to_json(old))
        return simulated(machine, "--baseline", path, *words)

    return call


@pytest.fixture
def check_base(simulated: Call, tmp_path: Path) -> Call:
    """`check --base` of the kernels in the folder `new` against those in `old`."""

    def call(machine: Machine, *words: object) -> tuple[int, str, str]:
        return simulated(machine, "all-reduce", "--base", tmp_path / "old", "--kernels",
                         tmp_path / "new", "--n", "1000", *words)  # fmt: skip

    return call


def rows(out: str) -> dict[str, Any]:
    return {f"{row['engine']} {row['n']}": row for row in json.loads(out)}


@pytest.fixture
def gpus(cache: Path, tmp_path: Path) -> Gpus:
    """The command line with two simulated GPUs, whose ranks are processes."""
    settings = tmp_path / "gpus.json"
    settings.write_text("{}")
    home = os.environ | {GPUS: str(settings), CACHE: str(cache), "PYTHONPATH": str(ROOT)}

    def call(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *map(str, words)], cwd=tmp_path, env=home | more,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    return call


def test_slower_rows_are_measured_again_with_the_size_that_shows_the_links(check: Call) -> None:
    """The first job measures all rows, the second only the slower ones and the control group."""
    slow = Machine(1, {"peer:two_shot": 1.2}, {"peer:two_shot": "new"})
    code, out, err = check(stored(Machine()), slow, "--threshold", "2%", "--format", "json")
    assert code == 1, out + err
    found = rows(out)
    assert {f"{engine} {n}" for engine in ENGINES[:2] for n in SIZES} == set(found)
    for name, row in found.items():
        slower = name.startswith("peer:two_shot")
        assert (row["verdict"], row["ranks"]) == ("SLOWER" if slower else "SAME", 2)
        assert row["confirmed"] is (True if slower else None)
        assert row["same_code"] is not slower
    first, second = slow.jobs
    assert first["--engine"] == "" and first["--rounds"] == "9"
    assert first["--n"] == second["--n"] == ",".join(map(str, SIZES))
    assert second["--engine"] == "peer:two_shot,peer:one_shot" and second["--rounds"] == "18"
    assert "3 look slower: measuring again with 2 times the rounds, with 3 of the control" in err
    assert "since only the host's time in us is known: all-reduce host" in err


@pytest.mark.long
def test_identical_code_is_never_slower(check: Call) -> None:
    """200 comparisons of unchanged engines with a threshold of 2 %."""
    verdicts = [
        row["verdict"]
        for seed in range(200)
        for row in rows(check(
            stored(Machine(seed)), Machine(1000 + seed, texts=ALL_NEW), "--threshold", "2%",
            "--budget", "0", "--format", "json", "--quiet",
        )[1]).values()
    ]  # fmt: skip
    assert len(verdicts) == 1200
    assert "SLOWER" not in verdicts
    assert verdicts.count("SAME") > 1100


@pytest.mark.long
def test_five_percent_are_detected(check: Call) -> None:
    """A slowdown of 5 % is SLOWER in at least 95 of 100 runs, and nothing else is."""
    found = others = 0
    for seed in range(100):
        slow = Machine(1000 + seed, {"peer:two_shot": 1.05}, ALL_NEW)
        code, out, _ = check(
            stored(Machine(seed), sizes=(2**20,)), slow, "--threshold", "2%",
            "--format", "json", "--quiet",
        )  # fmt: skip
        slower = {name for name, row in rows(out).items() if row["verdict"] == "SLOWER"}
        found += slower == {f"peer:two_shot {2**20}"} and code == 1
        others += bool(slower - {f"peer:two_shot {2**20}"})
    assert (found >= 95, others) == (True, 0)


ALL_SLOWER = dict.fromkeys(ENGINES, 1.12)


@pytest.mark.parametrize(
    ("machine", "options", "code", "words"),
    [
        (Machine(1, ALL_SLOWER, ALL_NEW, links=0.9), (), 4,
         ("MACHINE: now against coll.json", "the links between GPUs became 11.1 % slower",
          "6 compared: 6 UNCERTAIN")),
        (Machine(1, ALL_SLOWER, {"peer:one_shot": "new"}), (), 4,
         ("3 kernels with unchanged machine code became",)),
        (Machine(1, texts=ALL_NEW, skew_us=500.0), ("--strict",), 4,
         ("the new run has no time for it: the ranks were apart in every sample: see what",)),
        (Machine(1), ("--max-time", "1e-9"), 4, ("UNCERTAIN: no time was left to measure it",)),
        (Machine(1, code=6), ("--update-baseline",), 6,
         ("9 compared: 9 UNCERTAIN", "cut short: the 2 ranks ended with code 6")),
    ],
    ids=["slower links", "slower identical code", "skew", "no time left", "lost ranks"],
)  # fmt: skip
def test_a_run_that_proves_nothing_is_uncertain_and_keeps_the_baseline(
    check: Call, tmp_path: Path, machine: Machine, options: tuple[str, ...], code: int,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    old = stored(Machine())
    found, out, _ = check(old, machine, *options)
    assert found == code
    for text in words:
        assert text in " ".join(out.split())
    assert load(tmp_path / "coll.json").records == old.records


def test_more_skew_is_a_note_and_no_verdict(check: Call) -> None:
    code, out, _ = check(stored(Machine()), Machine(1, skew_us=1.9), "--strict")
    assert code == 0
    text = " ".join(out.split())
    assert "ranks end further apart than before (not judged): skew of" in text
    assert "peer:one_shot 0.30, now 1.9 us at n = 2^10" in text
    assert "skew" not in check(stored(Machine()), Machine(1, skew_us=0.5))[1]


def test_wrong_results_and_missing_engines_are_rows(check: Call, tmp_path: Path) -> None:
    old = stored(Machine())
    code, out, _ = check(old, Machine(1, wrong=["peer:one_shot"]), "--comment", tmp_path / "c.md")
    assert code == 3
    assert "WRONG: element 3 is 4.0, not 5.0" in out
    text = (tmp_path / "c.md").read_text()
    assert "**all-reduce peer:one_shot**" in text
    assert "next: `cudareduce collective all-reduce --engine peer:one_shot --ranks 2" in text
    gone = tuple(
        replace(r, engine="peer:lost") if r.engine == "peer:two_shot" else r for r in old.records
    )
    named = {**old.protocol, "engines": ["peer:one_shot", "peer:lost", "host"]}
    machine = Machine(1)
    code, out, _ = check(replace(old, records=gone, protocol=named), machine)
    assert (code, "3 GONE" in out, machine.jobs[0]["--engine"]) == (1, True, "peer:one_shot,host")


def test_reports_for_ci_name_the_engine(
    check: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    slow = Machine(1, {"peer:two_shot": 1.2}, {"peer:two_shot": "new"})
    files = [tmp_path / name for name in ("j.xml", "s.json", "c.md", "n.json")]
    options = zip(("--junit", "--benchmark-json", "--comment", "--json"), files, strict=True)
    code, out, _ = check(stored(Machine()), slow, *(word for pair in options for word in pair))
    assert code == 1
    assert "::error title=SLOWER%3A all-reduce peer%3Atwo_shot::sum float32 " in out
    cases = {
        (case.get("classname"), case.get("name")): case.find("failure")
        for case in ElementTree.parse(files[0]).iter("testcase")
    }
    what = "sum float32 2^10, peer:two_shot 2 ranks"
    assert cases["all-reduce peer:two_shot", what] is not None
    assert len(cases) == 6
    series = {entry["name"] for entry in json.loads(files[1].read_text())}
    assert f"all-reduce {what}" in series and len(series) == 6
    comment = files[2].read_text()
    assert "next: `cudareduce check peer:two_shot --baseline" in comment
    assert {r.engine for r in load(files[3]).records} == set(ENGINES)


def test_the_baseline_is_updated(check: Call, tmp_path: Path) -> None:
    assert check(stored(Machine()), Machine(5), "--update-baseline")[0] == 0
    path = tmp_path / "coll.json"
    new = load(path)
    assert {(r.engine, r.n) for r in new.records} == {(e, n) for e in ENGINES for n in SIZES}
    assert new.protocol["collective"] == "all-reduce"
    assert check(path, Machine(6), "--strict")[0] == 0
    assert check(path, Machine(6), "--rounds", 5, "--update-baseline")[0] == 2


def test_names_select_engines(check: Call) -> None:
    machine = Machine(1)
    code, out, _ = check(stored(Machine()), machine, "peer:two*", "--format", "json")
    assert (code, {name.split()[0] for name in rows(out)}) == (0, {"peer:two_shot"})
    assert machine.jobs[0]["--engine"] == "peer:two_shot"
    code, _, err = check(stored(Machine()), machine, "peer:none")
    assert code == 2
    assert "the baseline holds no peer:none; it has: peer:one_shot, peer:two_shot, host" in err


def test_link_bandwidth_is_always_measured_with_the_same_size(check: Call) -> None:
    old = stored(Machine())
    small = tuple(r for r in old.records if r.n == SIZES[0] or r.engine == "peer:one_shot")
    machine = Machine(1)
    assert check(replace(old, records=small), machine, "peer:two_shot")[0] == 0
    assert machine.jobs[0]["--n"] == f"{SIZES[0]},{SIZES[-1]}"


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ('"peer:two_shot" = "30%"', 0),
        ('all-reduce = "30%"', 0),
        ('all-reduce = "30%"\n"peer:two*" = "3%"', 1),
    ],
)
def test_the_threshold_of_an_engine_overrides_that_of_its_collective(
    check: Call, tmp_path: Path, limits: str, code: int
) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(f"[kernel]\n{limits}\n")
    slow = Machine(1, {"peer:two_shot": 1.2}, {"peer:two_shot": "new"})
    assert check(stored(Machine()), slow, "--thresholds", file)[0] == code


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"op": "argmax"}, "no operator of `collective`"),
        ({"kernel": "all-gather"}, "no collective of `collective`"),
        ({"dtype": "float8"}, "no type of `collective`"),
        ({"ranks": 9}, "no number of ranks of `collective`"),
        ({"ranks": None}, "holds None, which is no number of ranks"),
        ({"engine": "a,b"}, "without elements or without an engine"),
        ({"engine": "nccl:2"}, "of a file given with --nccl: name the engines"),
        ({"n": 0, "bytes": 0}, "without elements or without an engine"),
    ],
)
def test_an_edited_file_is_a_usage_error(check: Call, change: dict[str, Any], why: str) -> None:
    old = stored(Machine())
    edited = replace(old.records[0], **change)
    code, _, err = check(replace(old, records=(edited, *old.records[1:])), Machine(1))
    assert (code, why in " ".join(err.split())) == (2, True), err


@pytest.mark.parametrize("words", [("--peers", "cub"), ("--map", "a * a"), ("--device", 1)])
def test_options_of_one_gpu_are_usage_errors(check: Call, words: tuple[object, ...]) -> None:
    code, _, err = check(stored(Machine()), Machine(1), *words)
    assert (code, f"{words[0]} applies to reductions on one GPU" in err) == (2, True)


@pytest.mark.slow
def test_jobs_in_processes_find_five_per_cent(gpus: Gpus, tmp_path: Path) -> None:
    """The ranks are processes. A comment in the kernel's text makes the fake GPU slower."""
    path = kernels(tmp_path / "own", {"mine": ""}) / "all_reduce_mine.cu"
    own = ("--kernels", path.parent, "--rounds", 6)
    done = gpus("collective", "all-reduce", "--engine", "peer:mine,host", "--n", 1000,
                "--backend", "cuda", "--json", "base.json", *own)  # fmt: skip
    assert done.returncode == 0, done.stderr
    check = ("check", "--baseline", "base.json", "--threshold", "2%", "--format", "json", *own)
    path.write_text(path.read_text() + "// other\n")
    done = gpus(*check)
    assert (done.returncode, rows(done.stdout)["peer:mine 1000"]["verdict"]) == (0, "SAME")
    path.write_text(path.read_text() + "// slower: 5 %\n")
    done = gpus(*check)
    row = rows(done.stdout)["peer:mine 1000"]
    assert (done.returncode, row["verdict"], row["confirmed"]) == (1, "SLOWER", True), done.stderr
    assert row["change_pct"] == pytest.approx(5, abs=1)
    (tmp_path / "gpus.json").write_text('{"gpus": 1}')
    done = gpus(*check)
    assert done.returncode == 6
    assert "2 ranks need a GPU each, and this machine has 1" in done.stderr


@pytest.mark.slow
def test_ranks_of_a_launcher(gpus: Gpus, tmp_path: Path) -> None:
    """Each rank runs `check`; rank 0 prints, and all end with its exit code."""
    done = gpus("collective", "all-reduce", "--engine", "peer:one_shot", "--n", 1000, "--rounds", 6,
                "--backend", "cuda", "--json", "base.json")  # fmt: skip
    assert done.returncode == 0, done.stderr

    def launched(size: int = 2) -> list[subprocess.CompletedProcess[str]]:
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(lambda rank: gpus(
                "check", "--baseline", "base.json", RANK=str(rank), WORLD_SIZE=str(size),
                LOCAL_RANK=str(rank), TORCHELASTIC_RUN_ID="a/b",
            ), range(size)))  # fmt: skip

    first, other = launched()
    assert (first.returncode, other.returncode) == (0, 0), first.stderr + other.stderr
    assert "1 compared: 1 SAME" in first.stdout and not other.stdout
    assert not list(tmp_path.glob(".cudareduce*"))
    assert {done.returncode for done in launched(3)} == {2}
    (tmp_path / "gpus.json").write_text('{"gpus": 1}')
    first, other = launched()
    assert (first.returncode, other.returncode) == (6, 6)
    assert "this machine has 1" in first.stderr and not other.stderr


def test_history_has_a_series_per_engine(cudareduce: Call, tmp_path: Path) -> None:
    """Each engine is a series; times of other hosts are scaled by their link bandwidth."""
    for seed in range(8):
        slow = {"peer:two_shot": 1.1} if seed > 4 else {}
        texts = dict.fromkeys(slow, "new")
        run = stored(Machine(seed, slow, texts, links=0.9 if seed == 2 else 1.0))
        run = replace(run, created=f"2026-03-0{seed + 1}T00:00:00+00:00")
        if seed == 2:
            run = replace(run, device=replace(run.device, uuid="GPU-other"))
        (tmp_path / "run.json").write_text(to_json(run))
        add = ("history", "add", tmp_path / "run.json", "--into", tmp_path / "h")
        assert cudareduce(*add)[0] == 0
    where = ("--from", tmp_path / "h")
    code, out, _ = cudareduce("history", "check", "--format", "json", *where)
    series = {f"{one['kernel']}, {one['what']}": one for one in json.loads(out)}
    assert (code, len(series)) == (1, 6)
    for name, one in series.items():
        slower = name.startswith("all-reduce peer:two_shot")
        assert (one["verdict"], one["runs"]) == ("SLOWER" if slower else "SAME", 8)
    code, out, _ = cudareduce("history", "show", "peer:two_shot", "--n", "2^20", *where)
    assert out.startswith("all-reduce, sum float32 2^20, peer:two_shot 2 ranks, us, NVIDIA H200")
    assert "2026-03-06" in out
    code, _, err = cudareduce("history", "show", "peer:none", *where)
    assert (code, "it has: all-reduce, peer:one_shot, peer:two_shot" in err) == (2, True)


def test_a_bias_of_the_baseline_is_not_confirmed_if_git_has_its_kernels(
    cudareduce: Call, check: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slowdown of both versions is not confirmed; one of the candidate only is SLOWER."""
    folder = tmp_path / "kernels" / "ranks"
    folder.mkdir(parents=True)
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    monkeypatch.setattr("cudareduce.collectives.check.kernels_folder", lambda: folder.parent)
    shared = tmp_path / "kernels" / "device"
    shared.mkdir()
    (shared / "ranks.cuh").write_text("// what kernels share\n")
    monkeypatch.setattr("cudareduce.collectives.check.source_folders", lambda: (shared,))
    (folder / "all_reduce_one_shot.cu").write_text(text)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t",
                                                 "commit", "-qm", "before"]):  # fmt: skip
        subprocess.run(["git", "-C", folder.parent, *words], check=True, capture_output=True)
    named = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], check=True, text=True,
                           capture_output=True).stdout.strip()  # fmt: skip
    (folder / "all_reduce_one_shot.cu").write_text(f"{text}// other\n")
    sha = hashlib.sha256(text.encode()).hexdigest()
    old = stored(Machine(apart=0.0), sizes=SIZES[:1])
    old = replace(old, tool={**old.tool, "git": named}, records=tuple(
        replace(r, source_sha=sha) if r.engine == "peer:one_shot" else r for r in old.records
    ))  # fmt: skip
    both = {"peer:one_shot": 1.1, "peer:one_shot_base": 1.1}
    biased = Machine(1, both, ALL_NEW, apart=0.0)
    code, out, _ = check(old, biased)
    assert code == 0, out
    assert f"in the same rounds as the kernels of {named}" in " ".join(out.split())
    assert set(biased.jobs[1]["--engine"].split(",")) == set(both)
    slow = Machine(1, {"peer:one_shot": 1.1}, ALL_NEW, apart=0.0)
    assert check(old, slow)[0] == 1
    lost = replace(old, tool={**old.tool, "git": "0123456789ab"})
    code, out, _ = check(lost, Machine(1, both, ALL_NEW, apart=0.0))
    assert (code, "in the same rounds as" in out) == (1, False)
    (shared / "ranks.cuh").write_text("// slower, on both sides\n")
    code, out, _ = check(old, Machine(1, both, ALL_NEW, apart=0.0))
    assert (code, "in the same rounds as" in out) == (1, False)


def test_two_files_are_compared(cudareduce: Call, tmp_path: Path) -> None:
    """`compare` starts no ranks. Engines are rows; host times are notes."""
    for name, machine in (
        ("a", Machine()),
        ("b", Machine(1, {"peer:one_shot": 1.2}, ALL_NEW, 1.9)),
    ):
        (tmp_path / f"{name}.json").write_text(to_json(stored(machine)))
    code, out, _ = cudareduce("compare", tmp_path / "a.json", tmp_path / "b.json")
    text = " ".join(out.split())
    assert code == 4
    assert "6 compared: 3 UNCERTAIN, 3 SAME" in text
    assert "no unchanged kernels show the drift between these runs, and 2 kernels cannot" in text
    assert "not compared, since only the host's time in us is known: all-reduce host" in text
    assert "(not judged): skew of" in text


def test_another_host_is_compared_by_shares_of_its_links(
    check: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links have 10 % less bandwidth and all engines take 1 / 0.9 of the time: SAME."""
    other = replace(H200, uuid="GPU-other")
    monkeypatch.setattr("cudareduce.collectives.check.device_of", lambda ranks, request: other)
    slower = dict.fromkeys(ENGINES, 1 / 0.9)
    code, out, _ = check(stored(Machine()), Machine(1, slower, ALL_NEW, links=0.9))
    assert code == 0
    assert "6 compared: 6 SAME" in out
    assert "Compared by shares of each card's own ceiling" in " ".join(out.split())
    few = stored(Machine(), sizes=SIZES[:1])
    assert "no ceiling to take a share of" in " ".join(
        check(few, Machine(1, texts=ALL_NEW))[1].split()
    )


def test_kernels_of_two_trees_are_measured_in_the_same_rounds(
    check_base: Call, tmp_path: Path
) -> None:
    kernels(tmp_path / "old", {"a": "as it was", "b": "as it was", "old": ""})
    kernels(tmp_path / "new", {"a": "as it was", "b": "other", "new": ""})
    slow = Machine(1, {"peer:b": 1.1}, apart=0.0)
    code, out, err = check_base(slow, "--threshold", "2%", "--format", "json")
    verdicts = {row["engine"]: row["verdict"] for row in rows(out).values()}
    assert (code, verdicts) == (
        1, {"peer:a": "SAME", "peer:b": "SLOWER", "peer:new": "NEW", "peer:old": "GONE"},
    ), err  # fmt: skip
    assert [rows(out)[f"{name} 1000"]["same_code"] for name in ("peer:a", "peer:b")] == [
        True,
        False,
    ]
    assert rows(out)["peer:b 1000"]["confirmed"]
    first, second = slow.jobs
    assert set(first["--engine"].split(",")) == {
        f"peer:{name}" for name in ("a", "b", "new", "a_base", "b_base", "old_base")
    }
    assert {"peer:b", "peer:b_base"} <= set(second["--engine"].split(","))
    assert second["--rounds"] == "18"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("reduce_v7_shuffle",), "is a kernel of one GPU, and other names are collectives"),
        (("--op", "argmax"), "collectives take sum, prod, min, max"),
        (("reduce",), "this tree has no kernels of reduce"),
        (("--device", 1), "leave it out for collectives"),
        (("--n", "0"), "takes at least one element"),
    ],
)
def test_invalid_options_of_two_trees_are_usage_errors(
    check_base: Call, tmp_path: Path, words: tuple[object, ...], why: str
) -> None:
    for folder in ("old", "new"):
        kernels(tmp_path / folder, {"a": ""})
    code, _, err = check_base(Machine(), *words)
    assert (code, why in " ".join(err.split())) == (2, True), err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("reduce_v7_shuffle", "--base", "HEAD"), "--ranks needs a collective"),
        (("--baseline", "none.json"), "--ranks does not apply to --baseline"),
    ],
)
def test_ranks_needs_a_collective(cudareduce: Call, words: tuple[str, ...], why: str) -> None:
    code, _, err = cudareduce("check", *words, "--ranks", 2)
    assert (code, why in err) == (2, True)


@pytest.mark.slow
def test_ranks_of_two_trees_run_both_kernels(gpus: Gpus, tmp_path: Path) -> None:
    kernels(tmp_path / "old", {"a": ""})
    kernels(tmp_path / "new", {"a": "slower: 9 %"})
    base = ("check", "all-reduce", "--base", "old", "--kernels", "new", "--n", "1000", "--rounds",
            "6")  # fmt: skip
    done = gpus(*base, "--format", "json")
    row = rows(done.stdout)["peer:a 1000"]
    assert (done.returncode, row["verdict"]) == (1, "SLOWER"), done.stderr
    assert row["change_pct"] == pytest.approx(9, abs=1)


@pytest.mark.long
def test_a_compile_error_names_the_line_of_the_baseline_file(gpus: Gpus, tmp_path: Path) -> None:
    """The macro in front of the baseline's text does not shift its line numbers."""
    kernels(tmp_path / "new", {"a": ""})
    kernels(tmp_path / "old", {"a": "\nint x = ;"})
    path = tmp_path / "old" / "all_reduce_a.cu"
    line = path.read_text().splitlines().index("int x = ;") + 1
    base = ("check", "all-reduce", "--base", "old", "--kernels", "new", "--n", "1000", "--rounds",
            "6")  # fmt: skip
    done = gpus(*base)
    assert done.returncode == 2
    assert f"old/all_reduce_a.cu:{line}:9: error" in done.stderr
    assert "the 2 ranks ended with code 2: see their" in " ".join(done.stdout.split())
