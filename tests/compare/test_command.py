"""`check` from end to end, on a GPU made of the emulator and a clock that only counts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cudareduce.bench.jobs import Jobs
from cudareduce.catalog.registry import kernels_folder
from tests.compare.conftest import Machine
from tests.conftest import read_result
from tests.fake_gpu import fake_gpu

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
SHUFFLE = kernels_folder() / "ladder" / "reduce_v7_shuffle.cu"


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[None]:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Jobs, "emulator", None)  # what watches files of a user is tried elsewhere
    with fake_gpu(monkeypatch, cache):
        yield


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder of two kernels: shuffle, and a copy of it that tests tamper with."""
    folder = tmp_path / "mine"
    folder.mkdir()
    text = re.sub(r"after .*\n", "", SHUFFLE.read_text())
    for name in ("kernel_a", "kernel_b"):
        (folder / f"{name}.cu").write_text(text.replace("reduce_v7_shuffle", name))
    return folder


def edit(tree: Path, old: str, new: str) -> None:
    path = tree / "kernel_b.cu"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def slow(tree: Path, percent: float) -> None:
    edit(tree, "// Write:", f"// slower: {percent} %\n    // Write:")


@pytest.fixture(scope="module")
def kept() -> dict[str, str]:
    """The baseline of the untouched tree, once there is one."""
    return {}


@pytest.fixture
def baseline(cudareduce: Call, tree: Path, tmp_path: Path, kept: dict[str, str]) -> Path:
    path = tmp_path / "baseline.json"
    if kept:
        path.write_text(kept["json"])
        return path
    code, _, err = cudareduce(
        "bench", "kernel_*", "--kernels", tree, "--n", "3000,5000", "--json", path,
        "--quiet", "--backend", "cuda",
    )  # fmt: skip
    assert code == 0, err
    kept["json"] = path.read_text()
    return path


def verdicts(out: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in read_result(out):
        found.setdefault(row["kernel"], set()).add(row["verdict"])
    return found


@pytest.mark.long
def test_identical_code_is_the_same_by_its_hash_and_by_its_times(
    cudareduce: Call, baseline: Path, tree: Path
) -> None:
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet")
    code, out, err = cudareduce(*ask)
    assert (code, err) == (0, "")
    assert "4 compared: 4 SAME" in out
    assert "4 kernels are unchanged; their times" in out
    code, out, _ = cudareduce(*ask, "--no-same-code", "--threshold", "2%", "--format", "json")
    assert code == 0
    assert verdicts(out) == {"kernel_a": {"SAME"}, "kernel_b": {"SAME"}}


@pytest.mark.long
def test_a_slower_kernel_is_measured_twice_and_fails(
    cudareduce: Call, baseline: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(tree, 10)
    summary, report = tmp_path / "summary.md", tmp_path / "junit.xml"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    code, out, err = cudareduce(
        "check", "--baseline", baseline, "--kernels", tree, "--junit", report,
        "--benchmark-json", tmp_path / "series.json", "--json", tmp_path / "new.json",
    )  # fmt: skip
    assert code == 1
    assert "2 look slower: measuring again with 2 times the rounds" in err
    line = (tree / "kernel_b.cu").read_text().split("__global__")[0].count("\n") + 1
    assert f"::error file=mine/kernel_b.cu,line={line},title=SLOWER%3A kernel_b::" in out
    assert ", limit 5%25, confirmed in a fresh process" in out
    assert "4 compared: 2 SLOWER, 2 SAME" in summary.read_text()
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    again = read_result((tmp_path / "new.json").read_text())
    assert {len(r["rounds_us"]) for r in again["records"]} == {9}
    series = read_result((tmp_path / "series.json").read_text())
    assert {entry["unit"] for entry in series} == {"us"}
    assert len(series) == 4
    code, out, _ = cudareduce(
        "check", "--baseline", baseline, "--kernels", tree, "--quiet", "--format", "json"
    )
    assert code == 1
    assert {row["confirmed"] for row in read_result(out.split("::error")[0])} == {None, True}


def test_a_faster_kernel_passes(cudareduce: Call, baseline: Path, tree: Path) -> None:
    slow(tree, -20)
    code, out, _ = cudareduce(
        "check", "--baseline", baseline, "--kernels", tree, "--quiet", "--format", "json"
    )
    assert code == 0
    assert verdicts(out) == {"kernel_a": {"SAME"}, "kernel_b": {"FASTER"}}


def test_a_wrong_kernel_is_wrong_even_if_it_is_faster(
    cudareduce: Call, baseline: Path, tree: Path, tmp_path: Path
) -> None:
    slow(tree, -20)
    edit(tree, "if (k < n)", "if (k + 1 < n)")
    before = baseline.read_text()
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet")
    code, out, _ = cudareduce(*ask)
    assert code == 3
    assert "\nWRONG: " in out
    code, _, err = cudareduce(*ask, "--update-baseline")
    assert code == 3
    assert "is unchanged: fix the kernels that fail first" in err
    assert baseline.read_text() == before


@pytest.mark.long
def test_gone_fails_unless_allowed(cudareduce: Call, baseline: Path, tree: Path) -> None:
    (tree / "kernel_b.cu").unlink()
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet", "--format", "json")
    code, out, _ = cudareduce(*ask)
    assert (code, verdicts(out)) == (1, {"kernel_a": {"SAME"}, "kernel_b": {"GONE"}})
    assert cudareduce(*ask, "--allow-gone")[0] == 0
    assert cudareduce(*ask[:5], "kernel_a", "--quiet")[0] == 0


def test_a_kernel_that_no_longer_compiles_is_an_error_of_its_own(
    cudareduce: Call, baseline: Path, tree: Path
) -> None:
    edit(tree, "Acc value = Op::identity();", "Acc value = nonsense;")
    code, out, _ = cudareduce("check", "--baseline", baseline, "--kernels", tree, "--quiet")
    assert code == 2
    assert "GONE: does not compile" in out


@pytest.mark.parametrize("before", [True, False])  # whether the base has it, as broken
def test_a_kernel_that_does_not_compile_is_named(
    cudareduce: Call, tree: Path, tmp_path: Path, before: bool
) -> None:
    base, new = tmp_path / "base", tree / "kernel_c.cu"
    if not before:
        shutil.copytree(tree, base)
    text = (tree / "kernel_a.cu").read_text().replace("kernel_a", "kernel_c")
    new.write_text(text.replace("Acc value = Op::identity();", "Acc value = nonsense;"))
    if before:
        shutil.copytree(tree, base)
    files = tmp_path / "junit.xml", tmp_path / "comment.md"
    code, out, _ = cudareduce(
        "check", "--base", base, "--kernels", tree, "--n", "3000", "--quiet",
        "--junit", files[0], "--comment", files[1],
    )  # fmt: skip
    assert code == 2
    assert "UNCERTAIN: does not compile: " in out
    assert "nonsense" in out
    [failure] = ElementTree.parse(files[0]).getroot().iter("failure")
    assert "nonsense" in failure.get("message", "")
    assert "next: `cudareduce verify kernel_c --n 3000 " in files[1].read_text()


@pytest.mark.long
def test_a_new_kernel_is_listed_and_joins_the_next_baseline(
    cudareduce: Call, baseline: Path, tree: Path
) -> None:
    text = (tree / "kernel_a.cu").read_text()
    (tree / "kernel_c.cu").write_text(text.replace("kernel_a", "kernel_c"))
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet", "--format", "json")
    code, out, _ = cudareduce(*ask, "--update-baseline")
    assert code == 0
    assert verdicts(out)["kernel_c"] == {"NEW"}
    code, out, _ = cudareduce(*ask)
    assert code == 0
    assert verdicts(out)["kernel_c"] == {"SAME"}


@pytest.mark.long
def test_a_new_block_size_in_front_matter_is_compared_with_the_old(
    cudareduce: Call, baseline: Path, tree: Path
) -> None:
    slow(tree, 10)
    edit(tree, "block      = 256", "block      = 128")
    code, out, _ = cudareduce(
        "check", "--baseline", baseline, "--kernels", tree, "--quiet", "--format", "json"
    )
    rows = [row for row in read_result(out) if row["kernel"] == "kernel_b"]
    assert code == 1
    assert {row["verdict"] for row in rows} == {"SLOWER"}
    assert "block x items 256 x 8, now 128 x 8" in rows[0]["reason"]


def test_too_few_rounds_decide_nothing(cudareduce: Call, baseline: Path, tree: Path) -> None:
    slow(tree, 50)
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet", "--rounds", 5)
    code, out, _ = cudareduce(*ask)
    assert code == 4
    assert "UNCERTAIN: the new run has 5 rounds, and a verdict takes 6" in out
    assert "Nothing was decided: no kernel has" in out


@pytest.mark.long
def test_a_baseline_of_another_gpu_is_not_compared(
    cudareduce: Call, baseline: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet", "--no-same-code")
    with fake_gpu(monkeypatch, cache, power_limit_w=500.0, driver="600.1"):
        code, out, err = cudareduce(*ask)
        assert (code, out) == (5, "")
        assert "another machine: power limit 700.0, now 500.0. Make one here with" in err
        code, out, _ = cudareduce(*ask, "--cross-device")
        assert code == 0
        assert "Compared by shares of each card's own ceiling, not by time: power limit" in out
        assert "the machine: driver 580.159.04, now 600.1" in out
    with fake_gpu(monkeypatch, cache, uuid="GPU-another"):
        code, out, _ = cudareduce(*ask)
        assert code == 0
        assert "not by time: another card of the same model" in out
        assert "%ceil" in out


@pytest.mark.long
def test_two_trees_in_the_same_rounds(cudareduce: Call, tree: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for path in tree.iterdir():
        (base / path.name).write_text(path.read_text())
    slow(tree, 3)
    ask = ("check", "kernel_*", "--base", base, "--kernels", tree, "--n", 3000, "--quiet",
           "--format", "json")  # fmt: skip
    code, out, _ = cudareduce(*ask, "--threshold", "2%")
    assert (code, verdicts(out)) == (1, {"kernel_a": {"SAME"}, "kernel_b": {"SLOWER"}})
    rows = {row["kernel"]: row for row in read_result(out)}
    assert rows["kernel_a"]["same_code"] is True
    assert rows["kernel_b"]["change_pct"] == pytest.approx(3, abs=0.3)
    assert cudareduce(*ask)[0] == 0


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@t", *words],
        check=True, capture_output=True,
    )  # fmt: skip


@pytest.mark.long
def test_check_compares_with_a_revision_of_git(cudareduce: Call, tree: Path) -> None:
    git(tree.parent, "init", "-q")
    git(tree.parent, "add", "mine")
    git(tree.parent, "commit", "-qm", "before")
    slow(tree, 10)
    ask = ("check", "kernel_*", "--kernels", tree, "--n", 3000, "--quiet", "--format", "json")
    code, out, err = cudareduce(*ask, "--base", "HEAD")
    assert err == ""
    assert (code, verdicts(out)) == (1, {"kernel_a": {"SAME"}, "kernel_b": {"SLOWER"}})
    for wrong in ("nowhere", "--all", "-x"):
        code, out, err = cudareduce(*ask, f"--base={wrong}")
        assert (code, out) == (2, "")
        assert "neither a folder nor a revision that git knows" in err
        assert err.count("\n") == 1


PLAIN = """
__global__ void block_sum(const float *x, float *out, int n)
{
    __shared__ float shared[256];
    const int i = blockIdx.x * 256 + threadIdx.x;
    shared[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k)
            shared[threadIdx.x] += shared[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(out, shared[0]);
}

int main()
{
    const int n = 3000;
    float *x, *out, host[n] = {}, sum = 0.0f;
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&out, sizeof sum);
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, sizeof sum);
    block_sum<<<(n + 255) / 256, 256>>>(x, out, n);
    cudaMemcpy(&sum, out, sizeof sum, cudaMemcpyDeviceToHost);
}
"""


@pytest.mark.long
def test_a_plain_file_is_compared_with_its_revision(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.cu").write_text(PLAIN)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "plain.cu")
    git(tmp_path, "commit", "-qm", "before")
    monkeypatch.chdir(tmp_path)
    ask = ("check", "./plain.cu", "--base", "HEAD", "--n", 3000, "--quiet")
    code, out, err = cudareduce(*ask)
    assert code == 0, err
    assert out.startswith("./plain.cu against HEAD, ")
    assert "1 compared: 1 SAME" in out
    (tmp_path / "plain.cu").write_text(PLAIN.replace("i < n ?", "i + 1 < n ?"))
    code, out, err = cudareduce(*ask)
    assert (code, "1 compared: 1 WRONG" in out) == (3, True), err
    code, _, err = cudareduce(*ask, "--compile")
    assert (code, "plain.cu:1: no front matter" in err) == (2, True)


def test_a_checkout_of_another_user_is_reported_with_the_message_of_git(
    cudareduce: Call, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tree.parent, "init", "-q")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    code, _, err = cudareduce("check", "--base", "HEAD", "--kernels", tree)
    assert code == 2
    assert "--base: git refuses: fatal: detected dubious ownership" in err
    assert "safe.directory" in err


def test_check_without_a_gpu_is_an_environment_error(
    cudareduce: Call, baseline: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cudareduce.errors import EnvironmentProblem

    def none(spec: object) -> None:
        raise EnvironmentProblem("no GPU here")

    with monkeypatch.context() as patch:  # undone before the fake GPU of the other tests is
        patch.setattr("cudareduce.backends.selection.open_cuda", none)
        for ask in (("--baseline", baseline), ("--base", tree)):
            code, out, err = cudareduce("check", "kernel_*", *ask, "--kernels", tree)
            assert (code, out, err) == (6, "", "cudareduce: no GPU here\n")


def test_a_warp_kernel_is_measured_again_on_the_requested_size(
    cudareduce: Call, tmp_path: Path
) -> None:
    path = tmp_path / "baseline.json"
    kernels = ("reduce_warp_registers", "reduce_rows_tree")
    ask = ("--n", 4096, "--json", path, "--quiet", "--backend", "cuda")
    assert cudareduce("bench", *kernels, *ask)[0] == 0
    code, out, _ = cudareduce("check", "--baseline", path, "--quiet", "--format", "json", "--all")
    assert code == 0, out
    assert verdicts(out) == {kernel: {"SAME"} for kernel in kernels}


@pytest.mark.long
def test_a_slower_warp_kernel_is_measured_twice_like_any_other(
    cudareduce: Call, tmp_path: Path
) -> None:
    tree = tmp_path / "mine"
    tree.mkdir()
    [source] = kernels_folder().glob("*/reduce_warp_registers.cu")
    text = re.sub(r"after .*\n", "", source.read_text()).replace(source.stem, "kernel_w")
    (tree / "kernel_w.cu").write_text(text)
    path = tmp_path / "baseline.json"
    ask = ("--kernels", tree, "--quiet")
    bench = ("bench", "kernel_w", "--n", 4096, "--json", path, "--backend", "cuda")
    assert cudareduce(*bench, *ask)[0] == 0
    (tree / "kernel_w.cu").write_text(text + "\n// slower: 10 %\n")
    code, out, _ = cudareduce("check", "--baseline", path, *ask, "--format", "json")
    [row] = read_result(out)
    assert (code, row["verdict"], row["confirmed"]) == (1, "SLOWER", True)


@pytest.mark.long
def test_two_trees_are_compared_on_rows(cudareduce: Call, tmp_path: Path) -> None:
    head, base = tmp_path / "head", tmp_path / "base"
    [source] = kernels_folder().glob("*/reduce_rows_tree.cu")
    text = re.sub(r"after .*\n", "", source.read_text()).replace(source.stem, "kernel_r")
    for folder, more in ((base, ""), (head, "// slower: 10 %\n")):
        folder.mkdir()
        (folder / "kernel_r.cu").write_text(text + more)
    code, out, err = cudareduce(
        "check", "kernel_r", "--base", base, "--kernels", head, "--n", 1000, "--rows", 64,
        "--quiet", "--format", "json",
    )  # fmt: skip
    assert code == 1, err
    [row] = read_result(out)
    assert (row["rows"], row["n"], row["verdict"], row["confirmed"]) == (64, 1000, "SLOWER", True)
    code, _, err = cudareduce("check", "--baseline", tmp_path / "no.json", "--rows", 2)
    assert code == 2
    assert "--rows does not apply to --baseline" in err


def test_a_kernel_that_the_baseline_does_not_hold_is_new_and_judged(
    cudareduce: Call, baseline: Path, tree: Path
) -> None:
    text = (tree / "kernel_b.cu").read_text().replace("kernel_b", "kernel_c")
    (tree / "kernel_c.cu").write_text(text)
    ask = ("check", "kernel_c", "--baseline", baseline, "--kernels", tree, "--quiet")
    code, out, _ = cudareduce(*ask, "--format", "json")
    assert (code, verdicts(out)) == (4, {"kernel_c": {"NEW"}})
    assert "Nothing was decided: the baseline has none of these kernels" in cudareduce(*ask)[1]
    (tree / "kernel_c.cu").write_text(text.replace("if (k < n)", "if (k + 1 < n)"))
    assert cudareduce(*ask)[0] == 3


def test_a_kernel_that_is_gone_may_be_named(cudareduce: Call, baseline: Path, tree: Path) -> None:
    (tree / "kernel_b.cu").unlink()
    ask = ("check", "kernel_b", "--baseline", baseline, "--kernels", tree, "--quiet")
    code, out, _ = cudareduce(*ask, "--format", "json")
    assert (code, verdicts(out)) == (1, {"kernel_b": {"GONE"}})


@pytest.mark.parametrize("names", [(), ("kernel_*", "reduce_v7_shuffle"), ("kernel_*",)])
def test_kernels_of_the_base_only_are_gone(
    cudareduce: Call, tree: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tree, base)
    (tree / "kernel_b.cu").unlink()
    ask = ("--base", base, "--kernels", tree, "--n", 1000, "--quiet", "--format", "json")
    code, out, _ = cudareduce("check", *names, *ask)
    found = verdicts(out)
    assert (code, found["kernel_a"], found["kernel_b"]) == (1, {"SAME"}, {"GONE"})
    assert ("reduce_v7_shuffle" in found) == (len(names) == 2)  # without names, only those folders


def test_a_change_that_repairs_a_broken_kernel_passes(
    cudareduce: Call, tree: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tree, base)
    edit(base, "Acc value = Op::identity();", "Acc value = nonsense;")
    ask = ("check", "kernel_*", "--base", base, "--kernels", tree, "--n", 3000, "--quiet",
           "--format", "json")  # fmt: skip
    code, out, _ = cudareduce(*ask)
    assert (code, verdicts(out)["kernel_b"]) == (0, {"NEW"})
    edit(base, 'walk       = "tile"', 'walk       = "stroll"')
    code, out, err = cudareduce(*[a for a in ask if a != "--quiet"])
    assert (code, verdicts(out)["kernel_b"]) == (0, {"NEW"})
    assert "left out an unreadable kernel of the base: " in err


def test_a_baseline_is_only_replaced_by_a_complete_and_right_run(
    cudareduce: Call, baseline: Path, tree: Path
) -> None:
    before = baseline.read_text()
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet")
    for name in ("--json", "--markdown", "--junit"):
        code, _, err = cudareduce(*ask, name, baseline)
        assert code == 2
        assert f"{name} and what is read are one file" in err
    code, _, err = cudareduce(*ask, "--json", tree / "x", "--junit", tree / "x")
    assert (code, "--junit and --json are one file" in err) == (2, True)
    kernel = next(tree.glob("*.cu"))
    code, _, err = cudareduce(*ask, "--junit", kernel)
    assert (code, f"--junit would replace {kernel}, a source" in err) == (2, True)
    code, _, err = cudareduce(*ask, "--update-baseline", "--rounds", 5)
    assert (code, "a baseline takes --rounds 6 or more" in err) == (2, True)
    short = tree / "short.json"
    few = read_result(before)
    few["protocol"]["rounds"] = 5
    for r in few["records"]:
        r["rounds_us"] = [r["time_us"]] * 5
    short.write_text(json.dumps(few))
    code, _, err = cudareduce("check", "--baseline", short, "--update-baseline", "--quiet")
    assert (code, "a baseline takes --rounds 6 or more" in err) == (2, True)
    (tree / "kernel_b.cu").unlink()
    code, _, err = cudareduce(*ask, "--update-baseline")
    assert code == 1
    assert "is unchanged: kernel_b is gone; --allow-gone drops it" in err
    assert baseline.read_text() == before
    assert cudareduce(*ask, "--update-baseline", "--allow-gone")[0] == 0
    assert "kernel_b" not in baseline.read_text()


def test_a_baseline_with_an_operator_expression_is_refused(
    cudareduce: Call, baseline: Path
) -> None:
    changed = baseline.read_text().replace('"op":"sum"', '"op":"a > b ? a : b"')
    baseline.write_text(changed)
    code, _, err = cudareduce("check", "--baseline", baseline, "--quiet")
    assert code == 2
    assert "check cannot repeat --op-expr, so bench again and compare the two files" in err


def test_names_that_no_xml_can_hold(cudareduce: Call, baseline: Path, tmp_path: Path) -> None:
    baseline.write_text(baseline.read_text().replace("kernel_a", "kernel\\u0001a"))
    report, later = tmp_path / "junit.xml", tmp_path / "later.json"
    run = read_result(baseline.read_text())
    for record in run["records"]:
        record["rounds_us"] = [us * (1 + k % 2 / 100) for k, us in enumerate(record["rounds_us"])]
    later.write_text(json.dumps(run))
    code, _, _ = cudareduce("compare", baseline, later, "--junit", report)
    assert code == 0
    names = {case.get("classname") for case in ElementTree.parse(report).iter("testcase")}
    assert names == {"kernel\\x01a", "kernel_b"}


@pytest.mark.long
def test_identical_code_that_alone_became_slower_is_uncertain(
    cudareduce: Call, machine: Machine, tree: Path, tmp_path: Path
) -> None:
    """Unchanged machine code: one kernel of three takes 30 % longer."""
    text = (tree / "kernel_b.cu").read_text()
    (tree / "kernel_c.cu").write_text(text.replace("kernel_b", "kernel_c"))
    stored = tmp_path / "three.json"
    ask = ("--kernels", tree, "--quiet")
    cudareduce("bench", "kernel_*", "--n", "3000", "--backend", "cuda", "--json", stored, *ask)
    machine.factors = {"kernel_a": 1.3}
    check = ("check", "--baseline", stored, *ask, "--budget", "5")
    code, out, err = cudareduce(*check)
    assert code == 0, out + err
    assert re.search(r"UNCERTAIN +kernel_a", out)
    assert "3 compared: 1 UNCERTAIN, 2 SAME" in out
    assert "UNCERTAIN: the machine code is as it was, and its time is not" in out
    assert cudareduce(*check, "--strict")[0] == 4
    machine.factors = {}
    assert "3 compared: 3 SAME" in cudareduce(*check)[1]


def test_an_empty_base_is_no_base(cudareduce: Call, tree: Path) -> None:
    code, _, err = cudareduce("check", "--base", "", "--kernels", tree)
    assert code == 2
    assert "Invalid value for '--base': the name is empty" in err


@pytest.mark.long
def test_workflow_commands_are_kept_out_of_json_and_markdown(
    cudareduce: Call, baseline: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    slow(tree, 30)
    data = read_result(baseline.read_text())
    baseline.write_text(json.dumps(data | {"device": data["device"] | {"driver": "1.2"}}))
    for style in ("json", "markdown"):
        code, out, err = cudareduce(
            "check", "--baseline", baseline, "--kernels", tree, "--format", style
        )
        assert code == 1
        assert "::error" in err and "::error" not in out
        assert "the machine: driver 1.2, now" in (err if style == "json" else out)
