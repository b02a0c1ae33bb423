"""The gate on a GPU: identical code passes, injected slowdowns do not. `slow` ones take longer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.library.registry import kernels_folder

pytestmark = pytest.mark.gpu
Call = Callable[..., tuple[int, str, str]]
TEXT = re.sub(r"after .*\n", "", (kernels_folder() / "ladder/reduce_v7_shuffle.cu").read_text())
LOAD = "    // Tree:"
#: Added to a block's number where no block shall have more to do: there are fewer.
NONE = 2**30


def plant(folder: Path, name: str, extra: str = "") -> None:
    """A copy of the shuffle kernel that does something more before its tree."""
    folder.mkdir(exist_ok=True)
    text = TEXT.replace("reduce_v7_shuffle", name)
    (folder / f"{name}.cu").write_text(text.replace(LOAD, extra + LOAD, 1))


def more_traffic(permille: int, first: int = 0) -> str:
    """The first `permille` of the blocks read a second, far tile; no input holds what would change
    the sum. The first, since one of the last would add its whole latency (on an H200 8 % where one
    block in 64 does it).

    The code alone costs 11 % there, so what it is compared with has it as well, for no block."""
    return f"""    if ((blockIdx.x + {first}u) * 1000ull < {permille}ull * gridDim.x) {{
        const size_t far = (size_t)(gridDim.x - 1 - blockIdx.x) * (BLOCK * ITEMS) + tid;
        for (unsigned item = 0; item < ITEMS; item++)
            if (far + item * BLOCK < n && in[far + item * BLOCK] == (In)12345)
                value = Op::identity();
    }}
"""


def test_identical_code_passes_and_slower_code_does_not(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    sizes = ("--n", "2^22,2^25")
    assert cudareduce("bench", "fastcuda", *sizes, "--json", path, "--quiet")[0] == 0
    code, out, err = cudareduce("check", "--baseline", path, "--quiet", "--no-same-code")
    assert code == 0, out + err
    assert "SLOWER" not in out
    head, base = tmp_path / "head", tmp_path / "base"
    for name, extra in (("kernel_a", ""), ("kernel_b", "    __nanosleep(2000);\n")):
        plant(base, name)
        plant(head, name, extra)
    ask = ("check", "kernel_*", "--base", base, "--kernels", head, *sizes, "--quiet",
           "--format", "json")  # fmt: skip
    code, out, err = cudareduce(*ask)
    found = {(row["kernel"], row["verdict"]) for row in json.loads(out)}
    assert (code, found) == (1, {("kernel_a", "SAME"), ("kernel_b", "SLOWER")}), out + err


@pytest.mark.slow
def test_identical_code_two_hundred_times(
    cudareduce: Call, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """40 comparisons a run, five runs, the guard off, a threshold of 2 %."""
    path = tmp_path / "baseline.json"
    sizes = "2^24,20000000,2^25,50000000,2^26"
    assert cudareduce("bench", "fastcuda", "--n", sizes, "--json", path, "--quiet")[0] == 0
    found: Counter[str] = Counter()
    for _ in range(5):
        _, out, _ = cudareduce(
            "check", "--baseline", path, "--threshold", "2%", "--no-same-code", "--quiet",
            "--format", "json",
        )  # fmt: skip
        found += Counter(row["verdict"] for row in json.loads(out))
    with capfd.disabled():
        print(f"\n  A/A on this GPU, threshold 2 %: {dict(found)}")
    assert found.total() == 200
    assert found["SLOWER"] == 0


@pytest.mark.slow
def test_three_per_cent_is_caught_and_ten_always(
    cudareduce: Call, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """More traffic until it costs 3 and 10 %; then kernels that do so, five times, at a threshold
    of 2 %."""
    trials = (2, 4, 6, 8, 10, 40, 80, 120)

    def check(name: str, costs: dict[str, int]) -> list[dict[str, object]]:
        head, base = tmp_path / name, tmp_path / f"{name}_base"
        for kernel, permille in costs.items():
            plant(base, kernel, more_traffic(permille, first=NONE))
            plant(head, kernel, more_traffic(permille))
        _, out, err = cudareduce(
            "check", "kernel_*", "--base", base, "--kernels", head, "--n", "2^25", "--quiet",
            "--threshold", "2%", "--no-same-code", "--format", "json",
        )  # fmt: skip
        assert out, err
        return list(json.loads(out))

    rows = check("trial", {f"kernel_{permille}": permille for permille in trials})
    cost = {str(row["kernel"]): float(str(row["change_pct"])) for row in rows}
    three, ten = (
        next(one for one in trials if cost[f"kernel_{one}"] >= least) for least in (3, 10)
    )
    assert cost[f"kernel_{three}"] < 4.5, f"three per cent could not be injected: {cost}"
    kernels = {f"kernel_three_{k}": three for k in range(20)} | {
        f"kernel_ten_{k}": ten for k in range(4)
    }
    found: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for _ in range(5):
        for row in check("head", kernels):
            found["three" in str(row["kernel"])][str(row["verdict"])] += 1
    with capfd.disabled():
        print(f"\n  costs in %: {cost}")
        print(f"  {three} of 1000 blocks: {dict(found[True])}; {ten}: {dict(found[False])}")
    assert (found[True].total(), found[False].total()) == (100, 20)
    assert found[True]["SLOWER"] >= 95
    assert found[False]["SLOWER"] == 20
