"""Whose a kernel is: those of the package are trusted, all others are foreign."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import BackendSpec
from cudareduce.bench import session as session_module
from cudareduce.bench.cases import make_case
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import PREFIX, Registry, kernels_folder, load_registry
from cudareduce.errors import UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import LaunchOptions
from cudareduce.launch.case import Case, Prepared, Shape, planned
from cudareduce.progress import phase
from cudareduce.reduction.operators import reduction_of
from cudareduce.verify.isolation import Isolation, Key
from cudareduce.verify.jobs import Job
from cudareduce.verify.verdict import Verdict
from cudareduce.verify.verification import verify
from tests.cli.test_main import MINE
from tests.fake_gpu import FakeGpu

BARE = """__global__ void bare(const float *in, float *out, int n)
{
    __shared__ float shared[256];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            shared[threadIdx.x] += shared[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = shared[0];
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Kernels of one's own, one of them in a folder that is called as one of the package is."""
    folder = tmp_path / "kernels"
    (folder / "ladder").mkdir(parents=True)
    (folder / "mine.cu").write_text(MINE)
    (folder / "ladder" / "deeper.cu").write_text(MINE.replace("mine", "deeper"))
    return folder


def test_kernels_of_the_package_are_not_additional(registry: Registry) -> None:
    kernels = registry.kernels.values()
    assert len(kernels) >= 27
    assert not any(kernel.foreign for kernel in kernels)
    assert not any(choice.kernel.foreign for choice in registry.choose(["fastcuda", "reduce_*"]))


def test_kernels_of_a_users_folder_are_additional(folder: Path, registry: Registry) -> None:
    kernels = load_registry([folder]).kernels
    assert {name for name, kernel in kernels.items() if kernel.foreign} == {"mine", "deeper"}
    assert set(registry.kernels) == set(kernels) - {"mine", "deeper"}


@pytest.mark.long
def test_a_named_file_is_additional_in_any_folder(
    folder: Path, tmp_path: Path, registry: Registry, cache: Path
) -> None:
    bare = tmp_path / "bare.cu"
    bare.write_text(BARE)
    own = kernels_folder() / "ladder" / "reduce_v7_shuffle.cu"
    copy = shutil.copy(own, tmp_path)
    names = [str(path) for path in (folder / "mine.cu", copy, own, bare)]
    choices = registry.choose(names[:2])
    take = ExternalFiles(LaunchOptions(), lambda _: None, cache=cache)
    choices += registry.choose(names[2:], take)
    assert [choice.kernel.id for choice in choices] == [
        "mine", str(copy), "reduce_v7_shuffle", "bare",
    ]  # fmt: skip
    assert all(choice.kernel.foreign for choice in choices)


class Shared(CpuBackend):
    """Says of itself what a GPU does: verification need not take place in a child."""

    traits = replace(CpuBackend.traits, isolated=False)


@dataclass
class Places:
    """Where which kernel was verified."""

    here: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)
    children: set[int | None] = field(default_factory=set)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    """Verification as it is, which writes down where it takes place."""
    found, isolated = Places(), Isolation.verify

    def verify_here(
        backend: Backend, prepared: Sequence[Prepared], shape: Shape, **more: object
    ) -> Mapping[Case, Verdict]:
        found.here += [one.case.kernel.id for one in prepared]
        return verify(backend, prepared, shape, **more)  # type: ignore[arg-type]

    def verify_apart(
        self: Isolation, queues: Mapping[Case, Sequence[Job]], *more: Any
    ) -> Iterator[tuple[Case, Verdict]]:
        found.apart += [case.kernel.id for case in queues]
        for answer in isolated(self, queues, *more):
            found.children |= {child.pid for child in multiprocessing.active_children()}
            yield answer

    monkeypatch.setattr(session_module, "verify", verify_here)
    monkeypatch.setattr(Isolation, "verify", verify_apart)
    return found


def verdicts_of(backend: CpuBackend, cache: Path, kernels: Sequence[Kernel]) -> dict[str, Verdict]:
    """What a session on this backend says of kernels, by their ids."""
    reduction = reduction_of("sum", "float32")
    settings = Settings(reductions=(reduction,), sizes=(1000,))
    spec = BackendSpec("cpu", cache=cache)
    session = Session(backend, spec, settings, partial(phase, quiet=True))
    try:
        cases = [Case(kernel, reduction, kernel.block, kernel.items) for kernel in kernels]
        shapes = dict.fromkeys(cases, ((1000, 1),))
        prepared, unbuilt = session.prepare(cases, shapes)
        assert unbuilt == {}
        verified = session.verify(prepared, shapes, {})
        assert not verified.interrupted
        return {case.kernel.id: verdict for case, verdict in verified.verdicts.items()}
    finally:
        session.close()


@pytest.mark.parametrize("kind", [Shared, CpuBackend])
def test_additional_kernels_are_verified_in_a_child_process(
    kind: type[CpuBackend], places: Places, cache: Path, folder: Path, registry: Registry
) -> None:
    """On a backend that isolates nothing by itself; on one that does, so is everything."""
    kernels = [
        *(choice.kernel for choice in registry.choose(["reduce_v7_shuffle", "reduce_reshape"])),
        *(choice.kernel for choice in registry.choose([str(folder / "mine.cu")])),
        load_registry([folder]).kernels["deeper"],
    ]
    with kind(cache=cache) as backend:
        verdicts = verdicts_of(backend, cache, kernels)
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == dict.fromkeys(
        ("reduce_v7_shuffle", "reduce_reshape", "mine", "deeper"), "pass"
    )
    package, foreign = ["reduce_v7_shuffle", "reduce_reshape"], ["mine", "deeper"]
    if kind is Shared:
        assert (places.here, places.apart) == (package, foreign)
    else:
        assert (places.here, places.apart) == ([], package + foreign)
    assert 1 <= len(places.children) <= len(os.sched_getaffinity(0))


def test_a_fault_of_an_additional_kernel_does_not_end_the_run(
    places: Places, cache: Path, folder: Path, registry: Registry
) -> None:
    """It would have ended this process."""
    path = folder / "mine.cu"
    path.write_text(MINE.replace("i < n ? Op::lift(in[i], i)", "true ? Op::lift(in[i + 4096], i)"))
    [mine] = registry.choose([str(path)])
    with Shared(cache=cache) as backend:
        verdicts = verdicts_of(backend, cache, [mine.kernel, registry.kernels["reduce_v7_shuffle"]])
    assert verdicts["mine"].outcome == "fail"
    assert f"{path}:" in verdicts["mine"].reason
    assert "past the end of argument 0" in verdicts["mine"].reason
    assert verdicts["reduce_v7_shuffle"].outcome == "pass"


def test_kernels_are_listed_after_their_predecessors(registry: Registry) -> None:
    """Behind the kernel it is a step from, with nothing but its other steps between."""
    names = list(registry.kernels)
    ladder = [name for name in names if name.startswith("reduce_v")]
    assert names[names.index(ladder[0]) :][: len(ladder)] == ladder == sorted(ladder)
    open_branches: list[str] = []
    for kernel in registry.kernels.values():
        while open_branches and open_branches[-1] != kernel.after:
            open_branches.pop()
        assert bool(open_branches) == (kernel.after is not None), kernel.id
        open_branches.append(kernel.id)


def test_two_files_of_one_name_are_two_kernels(registry: Registry, tmp_path: Path) -> None:
    text = registry.kernels["reduce_v7_shuffle"].text
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        paths.append(str(tmp_path / folder / "reduce_v7_shuffle.cu"))
        Path(paths[-1]).write_text(text)
    chosen = registry.choose([*paths, "reduce_v7_shuffle", paths[0]])
    assert [choice.kernel.id for choice in chosen] == [*paths, "reduce_v7_shuffle"]
    assert {choice.kernel.entry for choice in chosen} == {"reduce_v7_shuffle"}
    [own] = registry.choose([str(registry.kernels["reduce_atomic"].path)])
    assert own.kernel.id == "reduce_atomic"


def test_a_file_that_is_a_step_from_no_kernel_is_refused(
    registry: Registry, tmp_path: Path
) -> None:
    text = registry.kernels["reduce_v7_shuffle"].text.replace("reduce_v7_shuffle", "mine")
    path = tmp_path / "mine.cu"
    path.write_text(text.replace("reduce_v6_multi_add", "reduce_v6_multi_ad"))
    with pytest.raises(UsageError, match="after: there is no kernel 'reduce_v6_multi_ad'"):
        registry.choose([str(path)])
    path.write_text(text)
    [choice] = registry.choose([str(path)])
    assert registry.root(choice.kernel).id == "reduce_v0_baseline"


def test_a_lineage_that_leads_back_to_itself_is_refused(registry: Registry, tmp_path: Path) -> None:
    text = registry.kernels["reduce_v7_shuffle"].text
    for name, after in (("ca", "cb"), ("cb", "ca")):
        own = text.replace("reduce_v7_shuffle", name).replace("reduce_v6_multi_add", after)
        (tmp_path / f"{name}.cu").write_text(own)
    with pytest.raises(UsageError, match="'cb' leads back to ca: a lineage begins with"):
        load_registry([tmp_path])
    (tmp_path / "ca.cu").write_text((tmp_path / "ca.cu").read_text().replace('"cb"', '"ca"'))
    with pytest.raises(UsageError, match="'ca' is this kernel itself"):
        registry.choose([str(tmp_path / "ca.cu")])


@dataclass
class Full(Isolation):
    """A child that finds no memory, and notes what it was asked for."""

    jobs: list[Job] = field(default_factory=list)

    def verify(self, queues: Mapping[Key, Sequence[Job]], *_: Any) -> Iterator[tuple[Key, Verdict]]:
        for one, jobs in queues.items():
            self.jobs += jobs
            yield one, Verdict("skip", "out of GPU memory: 2 GiB wanted")

    def close(self) -> None:
        pass


def test_an_additional_kernel_on_a_gpu_is_verified_on_all_shapes(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Full()
    monkeypatch.setattr(session_module, "Isolation", lambda: child)
    reduction = reduction_of("sum", "float32")
    settings = Settings(reductions=(reduction,), sizes=(2**21, 2**31))
    gpu = FakeGpu(cache)
    with gpu:
        session = Session(gpu, BackendSpec("cuda"), settings, partial(phase, quiet=True))
        [choice] = load_registry([folder]).choose(["mine"])
        cases = [make_case(session, choice, reduction)[0]]
        shapes = [(n, 1) for n in (1000, 2**21, 2**31)]
        plans, refusals = planned(cases[0], shapes, gpu.limits())
        prepared = [Prepared(cases[0], plans, refusals, {})]
        monkeypatch.setattr("cudareduce.machine.available_bytes", lambda: None)
        for shape in shapes:
            verdicts = session.verify(prepared, {cases[0]: [shape]}, {}).verdicts
            assert verdicts[cases[0]] == Verdict("skip", "out of GPU memory: 2 GiB wanted")
    assert [job.level for job in child.jobs] == ["full", "full", "least"]


def test_a_file_called_auto_goes_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "auto.cu"
    own = load_registry().kernels["reduce_v7_shuffle"]
    path.write_text(own.text.replace(own.id, "auto"))
    for names in ([str(path), "auto"], ["auto", str(path)]):
        called = {choice.kernel.id for choice in load_registry().choose(names, auto=True)}
        assert called == {"auto", str(path)}


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("v7_shuffle", ["reduce_v7_shuffle"]),
        ("v7", ["reduce_v7_shuffle"]),
        ("shuffle", ["reduce_shuffle"]),
        ("completely", ["reduce_v5_completely_unroll"]),
        ("dp4a_*", ["reduce_dp4a_one_word"]),
        ("grid", ["reduce_shared_accumulate", "reduce_ordered_last_block", "reduce_grid_stride",
                  "reduce_last_block"]),
    ],
)  # fmt: skip
def test_a_short_name_or_a_family_names_kernels(
    registry: Registry, name: str, kernels: list[str]
) -> None:
    assert [choice.kernel.id for choice in registry.choose([name])] == kernels


@pytest.mark.parametrize("name", ["ring", "atomic", "v", "reduce"])
def test_a_name_of_several_kernels_or_of_none_is_an_error(registry: Registry, name: str) -> None:
    with pytest.raises(UsageError, match=r"name one of|name some of|no kernel or suite"):
        registry.choose([name])


def test_each_kernel_but_one_has_its_short_name(registry: Registry) -> None:
    families = {kernel.family for kernel in registry.kernels.values()}
    for kernel in registry.kernels:
        short = kernel.removeprefix(PREFIX)
        if short not in families:
            assert [choice.kernel.id for choice in registry.choose([short])] == [kernel]
