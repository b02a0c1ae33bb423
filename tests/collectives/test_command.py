"""`collective` as a user calls it: every engine is right, and every wrong one is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from cudareduce.collectives.kernels import kernels_of, load_kernels
from cudareduce.collectives.names import COLLECTIVES, Collective
from cudareduce.results.store import load
from tests.collectives.conftest import Ranks
from tests.collectives.wrong import small, write
from tests.conftest import ROOT, read_result


@pytest.fixture
def collective(ranks: Ranks) -> Ranks:
    return partial(ranks, "collective")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "all-reduce")) for name in COLLECTIVES],
)
def test_all_engines_are_right(collective: Ranks, name: str) -> None:
    code, out, err = collective(name, "--ranks", 3, "--dtype", "float32,bfloat16,int8",
                                "--n", "1,4099", "--format", "json")  # fmt: skip
    assert code == 0, out + err
    rows = read_result(out)["records"]
    ours = {k.short for k in load_kernels().values() if k.collective == name and not k.wrong}
    assert {row["engine"] for row in rows} == {"host", *(f"peer:{short}" for short in ours)}
    assert len(rows) == 3 * (len(ours) + 1)
    for row in rows:
        assert (row["kernel"], row["verdict"], row["reason"]) == (name, "pass", "")
        assert (row["distinct"], row["ranks"], row["time_us"]) == (1, 3, None)


@pytest.mark.long
@pytest.mark.parametrize(("op", "dtype"), [("max", "float16"), ("prod", "uint8"), ("min", "int64")])
def test_other_operators(collective: Ranks, op: str, dtype: str) -> None:
    code, out, _ = collective("all-reduce", "--op", op, "--dtype", dtype, "--n", 1000)
    assert code == 0, out
    assert out.count(" right ") == 5


@pytest.mark.long
@pytest.mark.parametrize("name", ["all-reduce", "reduce-scatter"])
def test_many_tiles_a_block(collective: Ranks, tmp_path: Path, name: Collective) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    right = kernels_of(load_kernels(), name)
    for kernel in right.values():
        new = f"{name.replace('-', '_')}_small_{kernel.short}"
        (folder / f"{new}.cu").write_text(small(kernel.text).replace(kernel.id, new))
    names = [f"small_{short}" for short, kernel in right.items() if not kernel.wrong]
    code, out, err = collective(name, "--ranks", 3, "--kernels", folder, "--n", 9000, "--engine",
                                ",".join(f"peer:{short}" for short in names))  # fmt: skip
    assert code == 0, out + err
    assert out.count(" right ") == len(names) > 1


@pytest.mark.long
@pytest.mark.parametrize("edit", ["no_exit", "block_0", "but_block_1", "spoils", "in_front"])
def test_two_ranks_are_enough(collective: Ranks, tmp_path: Path, edit: str) -> None:
    """To tell who writes over what another reads; which is late in two calls that follow."""
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    write(wrong)
    code, out, err = collective("all-reduce", "--kernels", wrong, "--engine", f"peer:{edit}",
                                "--n", 1000)  # fmt: skip
    assert code == 3, out + err
    assert ("it writes to its input, at element 0" in out) == (edit == "spoils")


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "op", "old", "new"),
    [
        ("uint64", "sum", "= sum", "= sum; ranks.here<In>(out)[VECTOR * p] &= 0xffffffffu"),
        ("int8", "min", "sum; })", "sum; ranks.here<In>(out)[VECTOR * p] /= 2; })"),
        (
            "float32",
            "prod",
            "= sum",
            "= sum; ((unsigned *)ranks.here<Pack>(out))[4 * p] &= ~0xffffu",
        ),
    ],
)
def test_digits_that_are_cut_off(
    collective: Ranks, tmp_path: Path, dtype: str, op: str, old: str, new: str
) -> None:
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    assert old in text
    text = text.replace(old, new, 1).replace("all_reduce_one_shot", "all_reduce_cut")
    (tmp_path / "all_reduce_cut.cu").write_text(text)
    code, out, err = collective("all-reduce", "--kernels", tmp_path, "--engine", "peer:cut",
                                "--n", 100, "--dtype", dtype, "--op", op)  # fmt: skip
    assert code == 3, out + err


@pytest.mark.long
def test_all_blocks_are_launched(collective: Ranks, tmp_path: Path) -> None:
    """However few elements are asked for."""
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    ends = "{\n    if (blockIdx.x == 40 && ranks.me == 1)\n        return;\n"
    text = text.replace("{\n", ends, 1).replace("all_reduce_one_shot", "all_reduce_less_one")
    (tmp_path / "all_reduce_less_one.cu").write_text(text)
    code, out, err = collective("all-reduce", "--kernels", tmp_path, "--engine", "peer:less_one",
                                "--n", 100)  # fmt: skip
    assert code == 3, out + err
    assert "rank 0 has waited too long for rank 1" in out


@pytest.mark.long
def test_barriers_count_as_they_like(collective: Ranks, tmp_path: Path) -> None:
    """Numbers of one kernel are nothing to another's flags."""
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    for name, factor in (("a_quick", 9), ("z_slow", 2)):
        new = text.replace("all_reduce_one_shot", f"all_reduce_{name}")
        (tmp_path / f"all_reduce_{name}.cu").write_text(new.replace("2 * call", f"{factor} * call"))
    code, out, err = collective("all-reduce", "--kernels", tmp_path, "--engine",
                                "peer:a_quick,peer:z_slow", "--n", 1000)  # fmt: skip
    assert code == 0, out + err


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["all-reduce", "reduce-scatter"])
def test_each_wrong_one_is_told(
    collective: Ranks, tmp_path: Path, name: Collective, size: int
) -> None:
    """Left out or taken twice, shares that do not meet, barriers and numbers that are missing."""
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    write(wrong)
    known = kernels_of(load_kernels([wrong]), name)
    engines = [
        f"peer:{short}" for short, kernel in known.items()
        if (kernel.wrong or kernel.path.parent == wrong) and (size > 2 or short != "own_first")
    ]  # fmt: skip
    code, out, err = collective(name, "--kernels", wrong, "--ranks", size, "--engine",
                                ",".join(engines), "--format", "json")  # fmt: skip
    rows = {row["engine"]: row["reason"] for row in read_result(out)["records"]}
    assert code == 3, err
    assert rows.keys() == set(engines)
    assert all(rows.values()), rows
    if name == "all-reduce" and size > 2:
        assert rows["peer:own_first"] == "ranks have other bits"
        assert "is nan, not" in rows["peer:equal_shares"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "greater"), [("LOWEST", "{} > sum.at[e]"), ("{}", "!(sum.at[e] > {})")]
)
def test_a_maximum_that_drops_nan(
    collective: Ranks, tmp_path: Path, first: str, greater: str
) -> None:
    """Whoever's it is, or any but the last rank's."""
    zero, theirs = (f"ranks.at<Pack>({rank}, in)[p].at[e]" for rank in "0r")
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    text = text.replace("all_reduce_one_shot", "all_reduce_greater").replace(
        "fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) {",
        f"""fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) {{
        for (unsigned e = 0; e < VECTOR; e++) {{
            sum.at[e] = {first.format(zero)};
            for (unsigned r = 0; r < RANKS; r++)
                if ({greater.format(theirs)})
                    sum.at[e] = {theirs};
        }}""",
    )
    (tmp_path / "all_reduce_greater.cu").write_text(text)
    code, out, err = collective("all-reduce", "--kernels", tmp_path, "--engine", "peer:greater",
                                "--op", "max", "--n", 8)  # fmt: skip
    assert code == 3, out + err
    assert "not nan" in out
    assert collective("all-reduce", "--kernels", tmp_path / "none")[0] == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new"),
    [("    ranks.meet(flags, 2 * call);", "    if (blockIdx.x == 0) ranks.meet(flags, 2 * call);"),
     ("in, 0, packs,", "in, 0, min(packs, size_t(gridDim.x * TILE)),")],
    ids=["only_block_0_waits", "a_tile_a_block"],
)  # fmt: skip
def test_blocks_have_tiles_however_few_elements_there_are(
    collective: Ranks, tmp_path: Path, old: str, new: str
) -> None:
    code, out, err = collective(*edited(tmp_path, old, new)[:-1], 8)
    assert code == 3, out + err
    assert "n = 65539" in out


@pytest.mark.long
def test_the_table(collective: Ranks) -> None:
    code, out, _ = collective("all-reduce", "--engine", "host,peer:no_barrier", "--n", 40)
    assert code == 3
    lines = out.splitlines()
    what = "all-reduce of up to 40 float32, sum, 2 ranks, CPU emulator"
    assert lines[0] == f"{what}: answers only, nothing is timed"
    assert lines[2].split() == ["engine", "answer", "distinct", "calls"]
    assert lines[4].split()[:2] == ["peer:no_barrier", "WRONG"]
    assert lines[5].split() == ["host", "right", "1/10", "58"]
    assert lines[7].startswith("peer:no_barrier: WRONG: rank ")


@pytest.mark.long
def test_libraries_take_gpus(collective: Ranks) -> None:
    """What is named and cannot be had is a row that says why, and an error where it is alone."""
    code, out, _ = collective("all-reduce", "--engine", "host,nccl,torch", "--n", 40)
    assert code == 0
    lines = out.splitlines()
    assert [line.split() for line in lines[4:7]] == [
        ["host", "right", "1/10", "58"], ["torch", "-", "-", "-"], ["nccl", "-", "-", "-"],
    ]  # fmt: skip
    why = "skipped: takes a GPU for each rank, and nothing of it is tried here"
    assert lines[8] == f"torch, nccl: {why}"
    assert collective("all-reduce", "--engine", "nccl", "--n", 40)[0] == 6


@pytest.mark.long
def test_a_kernel_of_ones_own(collective: Ranks, tmp_path: Path) -> None:
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    text = text.replace("all_reduce_one_shot", "all_reduce_mine").replace("no_barrier", "none")
    (tmp_path / "all_reduce_mine.cu").write_text(text)
    ask = ("all-reduce", "--kernels", tmp_path, "--engine", "peer:mine", "--n", 100)
    code, out, err = collective(*ask)
    assert (code, out.count(" right ")) == (0, 1), err
    (tmp_path / "all_reduce_mine.cu").write_text(text.replace("meet(flags", "met(flags"))
    code, out, err = collective(*ask)
    assert (code, out) == (2, "")
    assert err.count("has no member named") == 2


@pytest.mark.slow
def test_what_picks_a_kernel(collective: Ranks, tmp_path: Path) -> None:
    """It is right at all sizes, whichever it takes, and says which that is at the largest."""
    file = tmp_path / "auto.json"
    for n, taken in (("10,5000", "peer:packets"), ("5000,70000", "peer:one_shot")):
        code, out, err = collective("all-reduce", "--engine", "peer:auto", "--n", n, "--json", file)
        assert code == 0, out + err
        assert f"peer:auto took {taken} at " in out
        (record,) = load(file).records
        assert (record.engine, record.chosen, record.distinct) == ("peer:auto", taken, 1)


def edited(folder: Path, old: str, new: str) -> tuple[object, ...]:
    """What asks for a kernel of one's own, with a fault."""
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    assert old in text
    text = text.replace("all_reduce_one_shot", "all_reduce_mine").replace(old, new)
    (folder / "all_reduce_mine.cu").write_text(text)
    return ("all-reduce", "--kernels", folder, "--engine", "peer:mine", "--n", 4099)


@pytest.mark.long
def test_whole_numbers_are_looked_at_in_all_calls(collective: Ranks, tmp_path: Path) -> None:
    behind = "ranks.meet(flags, 2 * call + 1);"
    late = "if (call > 70 && threadIdx.x + blockIdx.x == 0) ranks.here<Pack>(out)->at[0] = 99;"
    ask = edited(tmp_path, behind, f"{behind} {late}")
    code, out, _ = collective(*ask, "--dtype", "int32")
    assert code == 3
    assert "another answer at a call with the input of the call before" in out


@pytest.mark.long
def test_a_rank_that_crashes_is_told(collective: Ranks, tmp_path: Path) -> None:
    code, out, err = collective(*edited(tmp_path, "0, packs,", "0, packs + (1ull << 30),"))
    assert (code, out) == (6, "")
    assert "see what its kernel reads and writes" in err


@pytest.mark.long
def test_ranks_that_were_asked_for_different_things(home: dict[str, str], tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "cudareduce", "collective", "all-reduce", "--n", n,
             "--engine", "host"],
            env=home | {"RANK": str(rank), "WORLD_SIZE": "2"}, cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) for rank, n in enumerate(("8", "4096"))
    ]  # fmt: skip
    told = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2], told
    assert all("ranks were asked for different things" in text for text in told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("all-reduce", "--engine", "nccl2"), "there is no 'nccl2' for all-reduce: peer:one_shot"),
        (
            ("reduce", "--engine", "peer:one_shot"),
            "for reduce: peer:to_root, peer:auto, nccl, nccl-symm, torch, host",
        ),
        (("all-gather",), "is not one of"),
        (("all-reduce", "--nccl", "/no/such"), "--nccl /no/such: there is no such file"),
        (("all-reduce", "--nccl", __file__), "cannot be loaded (invalid ELF header)"),
        (("all-reduce", "--nccl", "a.so,"), "the name is empty"),
        (("all-reduce", "--nccl", "a.so", "--engine", "host"), "--nccl has no effect without nccl"),
        (("all-reduce", "--ranks", "9"), "9"),
        (("all-reduce", "--ranks", "1"), "1"),
        (("all-reduce", "--n", "0"), "--n 0: there is nothing to exchange"),
        (("all-reduce", "--meet", "tcp://nowhere"), "--meet tcp://nowhere: give rank 0's host"),
        (("all-reduce", "--json", "/no/such/place.json"), "/no/such"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    cudareduce: Ranks, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    if "--meet" in arguments:  # which only ranks of a launcher read
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
    code, out, err = cudareduce("collective", *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


@pytest.mark.parametrize("words", [("--n", "2^40"), ("--n", "2^48", "--engine", "host")])
def test_arrays_that_the_host_does_not_hold_are_refused(
    cudareduce: Ranks, words: tuple[str, ...]
) -> None:
    code, out, err = cudareduce("collective", "all-reduce", *words)
    assert (code, out) == (6, "")
    assert "of host memory" in err and "give fewer elements" in err
    assert len(err.strip().splitlines()) <= 2


@pytest.mark.long
@pytest.mark.parametrize("variables", [
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
])  # fmt: skip
def test_under_a_launcher(
    home: dict[str, str], tmp_path: Path, variables: tuple[str, str, str]
) -> None:
    """Rank 0 prints, and all end with one code."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "cudareduce", "collective", "all-reduce", "--n", "10",
             "--engine", "host"],
            env=home | dict(zip(variables, (str(rank), "2", str(rank)), strict=True)),
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) for rank in range(2)
    ]  # fmt: skip
    told = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], told
    assert " right " in told[0][0]
    assert told[1] == ("", "")
    assert not list(tmp_path.glob(".cudareduce*"))


@pytest.mark.long
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_a_rank_that_is_gone_ends_the_run(home: dict[str, str], how: signal.Signals) -> None:
    command = [sys.executable, "-m", "cudareduce", "collective", "all-reduce", "--n", "2^20",
               "--engine", "host", "--ranks", "3"]  # fmt: skip
    process = subprocess.Popen(
        command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    victim = None
    while victim is None:
        assert process.poll() is None
        time.sleep(0.05)
        victim = next((pid for pid in children(process.pid) if rank_of(pid) == "2"), None)
    entries = Path(f"/proc/{victim}/environ").read_bytes().split(b"\0")
    job = next(entry for entry in entries if entry.startswith(b"CUDAREDUCE_JOB="))
    rendezvous = Path(os.fsdecode(job.partition(b"=")[2]))
    while not rendezvous.exists():  # it is there while ranks are waited for
        time.sleep(0.005)
    while rendezvous.exists():
        time.sleep(0.005)
    os.kill(victim, how)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 6, out + err
    assert "rank 2 on " in err
    assert ("has ended" if how == signal.SIGKILL else "has not been heard of") in err


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_while_a_kernel_waits_for_it(
    home: dict[str, str], how: signal.Signals
) -> None:
    """Whoever is in a kernel hears nothing; that ends as soon as what is heard on the host."""
    command = [sys.executable, "-m", "cudareduce", "collective", "all-reduce", "--n", "2^20",
               "--engine", "peer:one_shot,peer:two_shot", "--ranks", "3", "--dtype", "all",
               "--quiet"]  # fmt: skip
    with subprocess.Popen(command, env=home, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(6)
        victim = next(pid for pid in children(process.pid) if rank_of(pid) == "2")
        os.kill(victim, how)
        began = time.monotonic()
        assert process.stderr is not None
        told = next(line for line in process.stderr if "rank 2 on " in line)
        assert time.monotonic() - began < 11, told
        assert process.wait() == 6


@pytest.mark.long
def test_ranks_end_with_who_has_started_them(home: dict[str, str]) -> None:
    command = [sys.executable, "-m", "cudareduce", "collective", "all-reduce", "--n", "2^20",
               "--dtype", "all"]  # fmt: skip
    with subprocess.Popen(command, env=home, stderr=subprocess.DEVNULL) as process:
        time.sleep(4)
        ranks = children(process.pid)
        process.kill()
    assert len(ranks) == 2
    until = time.monotonic() + 10
    while any(rank_of(pid) for pid in ranks) and time.monotonic() < until:
        time.sleep(0.2)
    assert not any(rank_of(pid) for pid in ranks)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def rank_of(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return None
    words = dict(word.partition("=")[::2] for word in text.split("\0"))
    return words.get("CUDAREDUCE_RANK")


@pytest.mark.slow
def test_a_kernel_that_never_ends_is_told(collective: Ranks, tmp_path: Path) -> None:
    """It waits for others by a loop of its own, which nobody ends."""
    text = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
    entry, turn = (
        "    ranks.meet(flags, 2 * call);",
        "while (*(volatile size_t *)ranks.here<size_t>(flags)",
    )
    assert entry in text
    text = text.replace(entry, f"    {turn} != ~call) {{}}").replace("one_shot", "spins")
    (tmp_path / "all_reduce_spins.cu").write_text(text)
    code, _, err = collective("all-reduce", "--kernels", tmp_path, "--ranks", 2, "--n", 100,
                              "--engine", "peer:spins")  # fmt: skip
    assert code == 3, err
    assert "peer:spins of " in err and "has not ended within 60 s: a kernel waits for" in err
