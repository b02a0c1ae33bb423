"""The gate on a GPU: identical code passes, injected slowdowns do not. `slow` ones take longer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
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

    One tile more is some 1 us of waiting on an H200, however few blocks read it: 3 % of a sum that
    takes 33 times as long, whose size differs from card to card and is measured first."""
    near, ten = injected(cudareduce, tmp_path / "trial")
    sizes = [round(near * factor) for factor in (0.97, 0.99, 1.01, 1.03)]
    head, base = tmp_path / "head", tmp_path / "base"
    for kernel, permille in (
        {f"kernel_three_{k}": 2 for k in range(5)} | {"kernel_ten": ten}
    ).items():
        plant(base, kernel, more_traffic(permille, first=NONE))
        plant(head, kernel, more_traffic(permille))
    found: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    changes: list[float] = []
    for _ in range(5):
        _, out, err = cudareduce(
            "check", "kernel_*", "--base", base, "--kernels", head, "--n",
            ",".join(map(str, sizes)), "--quiet", "--threshold", "2%", "--no-same-code",
            "--format", "json",
        )  # fmt: skip
        assert out, err
        for row in json.loads(out):
            found["three" in row["kernel"]][row["verdict"]] += 1
            changes += [float(row["change_pct"])] * ("three" in row["kernel"])
        with capfd.disabled():
            print(f"\n  {near} elements, {ten} blocks of 1000 for 10 %: {found[True].total()} ...")
    with capfd.disabled():
        print(
            f"  {min(changes)} to {max(changes)} %: {dict(found[True])}; 10 %: {dict(found[False])}"
        )
    assert (found[True].total(), found[False].total()) == (100, 20)
    assert 2.7 < median(changes) < 3.3, f"three per cent could not be injected: {changes}"
    assert found[True]["SLOWER"] >= 95
    assert found[False]["SLOWER"] == 20


def injected(cudareduce: Call, folder: Path) -> tuple[int, int]:
    """How many elements a sum has that one tile more makes 3 % slower, and which permille of the
    blocks must read one for at least 10 %: both timed in one run with what reads none."""
    sizes, most = (2**24, 3 * 2**23, 2**25, 3 * 2**24), (80, 120, 160, 240)
    plant(folder, "kernel_none", more_traffic(2, first=NONE))
    for permille in (2, *most):
        plant(folder, f"kernel_{permille}", more_traffic(permille))
    path = folder / "trial.json"
    code, out, err = cudareduce(
        "bench", "kernel_*", "--kernels", folder, "--n", ",".join(map(str, sizes)), "--rounds",
        "9", "--quiet", "--json", path,
    )  # fmt: skip
    assert code == 0, out + err
    us = {
        (row["kernel"], row["n"]): row["time_us"] for row in json.loads(path.read_text())["records"]
    }
    per_element, at_none = np.polyfit(sizes, [us["kernel_none", n] for n in sizes], 1)
    cost = median(us["kernel_2", n] - us["kernel_none", n] for n in sizes)
    near = round((cost / 0.03 - at_none) / per_element)
    whole = sizes[-1]
    ten = next(m for m in most if us[f"kernel_{m}", whole] > 1.1 * us["kernel_none", whole])
    return near, ten
