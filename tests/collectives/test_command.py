"""The command `collective`: correct engines pass, and every wrong kernel is rejected."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from cudareduce.collectives.kernels import kernels_of, load_kernels
from cudareduce.collectives.names import COLLECTIVES, Collective
from cudareduce.results.store import load
from tests.collectives.conftest import Ranks, Torchrun
from tests.collectives.wrong_kernels import small, write
from tests.conftest import ROOT, read_result

ONE_SHOT = (ROOT / "kernels/ranks/all_reduce_one_shot.cu").read_text()
ENTRY, EXIT = "    ranks.meet(flags, 2 * call);", "    ranks.meet(flags, 2 * call + 1);"
FOLD = "fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) {"


@pytest.fixture
def collective(ranks: Ranks) -> Ranks:
    return partial(ranks, "collective")


def edited(folder: Path, old: str = "", new: str = "", name: str = "mine") -> tuple[object, ...]:
    """Write the one-shot kernel with an edit; the words that run it."""
    assert old in ONE_SHOT
    text = ONE_SHOT.replace(old, new, 1) if old else ONE_SHOT
    path = folder / f"all_reduce_{name}.cu"
    path.write_text(text.replace("all_reduce_one_shot", path.stem))
    return ("all-reduce", "--kernels", folder, "--engine", f"peer:{name}")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "reduce")) for name in COLLECTIVES],
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
@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("max", "float16"),
        pytest.param("prod", "uint8", marks=pytest.mark.slow),
        pytest.param("min", "int64", marks=pytest.mark.slow),
    ],
)
def test_other_operators_are_right(collective: Ranks, op: str, dtype: str) -> None:
    code, out, _ = collective("all-reduce", "--op", op, "--dtype", dtype, "--n", 1000)
    assert code == 0, out
    assert out.count(" right ") == 5


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param("all-reduce", marks=pytest.mark.slow), "reduce-scatter"]
)
def test_blocks_with_many_tiles_are_right(
    collective: Ranks, tmp_path: Path, name: Collective
) -> None:
    right = kernels_of(load_kernels(), name)
    for kernel in right.values():
        new = f"{name.replace('-', '_')}_small_{kernel.short}"
        (tmp_path / f"{new}.cu").write_text(small(kernel.text).replace(kernel.id, new))
    names = [f"small_{short}" for short, kernel in right.items() if not kernel.wrong]
    code, out, err = collective(name, "--ranks", 3, "--kernels", tmp_path, "--n", 9000, "--engine",
                                ",".join(f"peer:{short}" for short in names))  # fmt: skip
    assert code == 0, out + err
    assert out.count(" right ") == len(names) > 1


def _greater(first: str, greater: str) -> str:
    """A maximum by comparisons, which drops NaN."""
    zero, theirs = (f"ranks.at<Pack>({rank}, in)[p].at[e]" for rank in "0r")
    return f"""{FOLD}
        for (unsigned e = 0; e < VECTOR; e++) {{
            sum.at[e] = {first.format(zero)};
            for (unsigned r = 0; r < RANKS; r++)
                if ({greater.format(theirs)})
                    sum.at[e] = {theirs};
        }}"""


_LATE = "if (call > 70 && threadIdx.x + blockIdx.x == 0) ranks.here<Pack>(out)->at[0] = 99;"
_CUT = "= sum; ((unsigned *)ranks.here<Pack>(out))[4 * p] &= ~0xffffu"
FAULTS = {
    "high bits are cut off": (
        "= sum", "= sum; ranks.here<In>(out)[VECTOR * p] &= 0xffffffffu", "--dtype uint64 --n 100",
        ""),
    "small integers are halved": (
        "sum; })", "sum; ranks.here<In>(out)[VECTOR * p] /= 2; })",
        "--dtype int8 --op min --n 100", ""),
    "low bits are cut off": ("= sum", _CUT, "--op prod --n 100", ""),
    "a block that is launched for few elements, too, ends": (
        "{\n", "{\n    if (blockIdx.x == 40 && ranks.me == 1)\n        return;\n", "--n 100",
        "rank 0 timed out waiting for rank 1"),
    "a maximum drops NaN": (
        FOLD, _greater("LOWEST", "{} > sum.at[e]"), "--op max --n 8", "not nan"),
    "a maximum drops NaN but the last rank's": (
        FOLD, _greater("{}", "!(sum.at[e] > {})"), "--op max --n 8", "not nan"),
    "only block 0 waits": (ENTRY, f"    if (blockIdx.x == 0) {ENTRY}", "--n 8", "n = 65539"),
    "a block has one tile": (
        "in, 0, packs,", "in, 0, min(packs, size_t(gridDim.x * TILE)),", "--n 8", "n = 65539"),
    "late calls are wrong": (
        EXIT, f"{EXIT} {_LATE}", "--n 4099 --dtype int32",
        "a repeated call has another result"),
}  # fmt: skip
#: Faults that are found by a wait without end, and those that resemble another.
_SLOW_FAULTS = (
    "a block that is launched for few elements, too, ends", "low bits are cut off",
    "a maximum drops NaN",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW_FAULTS)) for name in FAULTS],
)
def test_a_fault_of_a_kernel_is_found(collective: Ranks, tmp_path: Path, fault: str) -> None:
    old, new, options, words = FAULTS[fault]
    code, out, err = collective(*edited(tmp_path, old, new), *options.split())
    assert code == 3, out + err
    assert words in out


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["all-reduce", "reduce-scatter"])
def test_every_wrong_kernel_is_found(
    collective: Ranks, tmp_path: Path, name: Collective, size: int
) -> None:
    write(tmp_path)
    known = kernels_of(load_kernels([tmp_path]), name)
    engines = [
        f"peer:{short}" for short, kernel in known.items()
        if (kernel.wrong or kernel.path.parent == tmp_path) and (size > 2 or short != "own_first")
    ]  # fmt: skip
    code, out, err = collective(name, "--kernels", tmp_path, "--ranks", size, "--engine",
                                ",".join(engines), "--format", "json")  # fmt: skip
    rows = {row["engine"]: row["reason"] for row in read_result(out)["records"]}
    assert code == 3, err
    assert rows.keys() == set(engines)
    assert all(rows.values()), rows
    if name == "all-reduce":
        assert "it writes to its input, at element 0" in rows["peer:spoils"]
    if name == "all-reduce" and size > 2:
        assert rows["peer:own_first"] == "the bits of the result differ between ranks"
        assert "is nan, not" in rows["peer:equal_shares"]


@pytest.mark.long
def test_a_rank_that_crashes_is_named(collective: Ranks, tmp_path: Path) -> None:
    ask = edited(tmp_path, "0, packs,", "0, packs + (1ull << 30),")
    code, out, err = collective(*ask, "--n", 4099)
    assert (code, out) == (6, "")
    assert "see what its kernel reads and writes" in err


@pytest.mark.slow
def test_a_kernel_that_never_ends_is_stopped(collective: Ranks, tmp_path: Path) -> None:
    loop = "    while (*(volatile size_t *)ranks.here<size_t>(flags) != ~call) {}"
    code, _, err = collective(*edited(tmp_path, ENTRY, loop), "--ranks", 2, "--n", 100)
    assert code == 3, err
    assert "peer:mine of " in err and "has not ended within 60 s: a kernel waits for" in err


@pytest.mark.long
def test_a_kernel_of_the_user_is_run(collective: Ranks, tmp_path: Path) -> None:
    """Two kernels may number their barriers as they like; an error names the line."""
    edited(tmp_path, name="slow")
    ask = edited(tmp_path, name="quick")
    quick = tmp_path / "all_reduce_quick.cu"
    quick.write_text(quick.read_text().replace("2 * call", "9 * call"))
    code, out, err = collective(*ask[:-1], "peer:quick,peer:slow", "--n", 1000)
    assert (code, out.count(" right ")) == (0, 2), err
    code, out, err = collective(*edited(tmp_path, "meet(flags", "met(flags"), "--n", 100)
    assert (code, out) == (2, "")
    assert err.count("has no member named") == 1
    assert collective("all-reduce", "--kernels", tmp_path / "none")[0] == 2


@pytest.mark.long
def test_a_collective_has_a_table_with_wrong_engines_first(collective: Ranks) -> None:
    code, out, _ = collective("all-reduce", "--engine", "host,peer:no_barrier", "--n", 40)
    assert code == 3
    lines = out.splitlines()
    what = "all-reduce of up to 40 float32, sum, 2 ranks, CPU emulator"
    assert lines[0] == f"{what}: results only, nothing is timed"
    assert lines[2].split() == ["engine", "result", "distinct", "calls"]
    assert lines[4].split()[:2] == ["peer:no_barrier", "WRONG"]
    assert lines[5].split() == ["host", "right", "1/10", "58"]
    assert lines[7].startswith("peer:no_barrier: WRONG: rank ")


@pytest.mark.long
def test_libraries_need_gpus(collective: Ranks) -> None:
    """A row says so; if there is nothing else, it is an error."""
    code, out, _ = collective("all-reduce", "--engine", "host,nccl,torch", "--n", 40)
    assert code == 0
    lines = out.splitlines()
    assert [line.split() for line in lines[4:7]] == [
        ["host", "right", "1/10", "58"], ["torch", "-", "-", "-"], ["nccl", "-", "-", "-"],
    ]  # fmt: skip
    why = "skipped: needs a GPU for each rank"
    assert lines[8] == f"torch, nccl: {why}"
    assert collective("all-reduce", "--engine", "nccl", "--n", 40)[0] == 6


@pytest.mark.slow
def test_auto_selects_a_kernel_by_size(collective: Ranks, tmp_path: Path) -> None:
    file = tmp_path / "auto.json"
    for n, taken in (("10,5000", "peer:packets"), ("5000,70000", "peer:one_shot")):
        code, out, err = collective("all-reduce", "--engine", "peer:auto", "--n", n, "--json", file)
        assert code == 0, out + err
        assert f"peer:auto took {taken} at " in out
        (record,) = load(file).records
        assert (record.engine, record.chosen, record.distinct) == ("peer:auto", taken, 1)


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
        (("all-reduce", "--n", "0"), "--n 0: a collective takes at least one element"),
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
def test_only_rank_0_of_a_launcher_prints(torchrun: Torchrun, tmp_path: Path) -> None:
    first, other = torchrun(*[("collective", "all-reduce", "--n", 10, "--engine", "host")] * 2)
    assert first[0] == 0 and " right " in first[1], first
    assert other == (0, "", "")
    assert not list(tmp_path.glob(".cudareduce*"))


@pytest.mark.long
def test_ranks_with_different_options_are_refused(torchrun: Torchrun) -> None:
    words = ("collective", "all-reduce", "--engine", "host", "--n")
    for code, _, err in torchrun((*words, 8), (*words, 4096)):
        assert (code, "ranks have different options or kernels" in err) == (2, True), err


@pytest.mark.long
def test_ranks_end_with_the_process_that_started_them(home: dict[str, str]) -> None:
    command = [sys.executable, "-m", "cudareduce", "collective", "all-reduce", "--n", "2^20",
               "--dtype", "all"]  # fmt: skip
    with subprocess.Popen(command, env=home, stderr=subprocess.DEVNULL) as process:
        ranks: list[int] = []
        while {rank_of(pid) for pid in ranks} != {"0", "1"}:
            time.sleep(0.05)
            ranks = children(process.pid)
        process.kill()
    while any(rank_of(pid) for pid in ranks):  # the test's time limit ends it
        time.sleep(0.1)


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
