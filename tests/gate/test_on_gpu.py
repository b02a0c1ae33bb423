"""The gate on a GPU: identical code passes, injected slowdowns do not. `slow` ones take longer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

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
    """100 comparisons with a slowdown of 3 % and 20 with 10 %, at a threshold of 2 %, each check in
    processes of its own.

    One tile more is 1.3 us of waiting on an H200, however few blocks read it: 3.5 % of a sum of
    2^25, and 3 % of sums of these sizes."""
    sizes = (38_000_000, 39_000_000, 40_000_000, 41_000_000)

    def check(name: str, costs: dict[str, int]) -> list[tuple[str, float, str]]:
        head, base = tmp_path / name, tmp_path / f"{name}_base"
        for kernel, permille in costs.items():
            plant(base, kernel, more_traffic(permille, first=NONE))
            plant(head, kernel, more_traffic(permille))
        _, out, err = cudareduce(
            "check", "kernel_*", "--base", base, "--kernels", head, "--n",
            ",".join(map(str, sizes)), "--quiet", "--threshold", "2%", "--no-same-code",
            "--format", "json",
        )  # fmt: skip
        assert out, err
        return [
            (row["kernel"], float(row["change_pct"]), row["verdict"]) for row in json.loads(out)
        ]

    trial = check("trial", {f"kernel_{permille}": permille for permille in (2, 80, 160, 240)})
    cost = {
        permille: median(change for kernel, change, _ in trial if kernel == f"kernel_{permille}")
        for permille in (2, 80, 160, 240)
    }
    assert 2.5 < cost[2] < 3.5, f"three per cent could not be injected: {cost}"
    ten = next(permille for permille, change in cost.items() if change >= 10)
    kernels = {f"kernel_three_{k}": 2 for k in range(5)} | {"kernel_ten": ten}
    found: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    changes: list[float] = []
    for _ in range(5):
        for kernel, change, verdict in check("head", kernels):
            found["three" in kernel][verdict] += 1
            changes += [change] * ("three" in kernel)
    with capfd.disabled():
        print(f"\n  costs in %, by blocks of 1000: {cost}")
        print(
            f"  {min(changes)} to {max(changes)} %: {dict(found[True])}; 10 %: {dict(found[False])}"
        )
    assert (found[True].total(), found[False].total()) == (100, 20)
    assert found[True]["SLOWER"] >= 95
    assert found[False]["SLOWER"] == 20
