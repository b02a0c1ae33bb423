"""Tests on two GPUs: a delayed rank adds skew, not time; a slowdown of 5 % is detected."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from cudareduce.backends.protocol import Launch, Source
from cudareduce.backends.selection import BackendSpec, gpu_count, open_timed
from cudareduce.collectives.communicator import Placement, connect
from cudareduce.collectives.engines import Stage, kernel_engines
from cudareduce.collectives.kernels import load_kernels
from cudareduce.collectives.timing import Batch, Stopwatch, TimedCall
from cudareduce.collectives.windows import layout, open_windows
from cudareduce.errors import BuildError
from cudareduce.reduction.operators import reduction_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_count() < 2, reason="takes two GPUs"),
]
#: Some 20 us of an SM at its highest clock.
SPIN = """
extern "C" __global__ void spin(size_t clocks)
{
    for (const long long begin = clock64(); clock64() - begin < clocks;) {}
}
"""
CLOCKS = 40_000
#: Samples of each kind, in batches that take turns.
BATCHES = 9
#: Sizes at which an engine with 5 % more work must be found, 95 in 100.
SIZES = tuple(2**24 + 2**18 * k for k in range(20))


@dataclass(frozen=True)
class Late:
    """Sample hooks with an optional delay before the barrier of the GPUs."""

    delay: Launch | None = None

    def prepare(self, k: int) -> None:
        if self.delay:
            self.delay()

    def keep(self, k: int) -> None: ...

    def wrong(self) -> None: ...


class LateStart(Stopwatch):
    """A stopwatch with a delay between the barrier and the first event."""

    delay: Launch

    def _start(self) -> Any:
        self._align_all()
        self.delay()
        return self._backend.mark()


def nothing() -> None:
    """The launch of the rank without delay."""


def _one(rank: int, folder: Path) -> dict[str, list[Batch]]:
    """Batches of an exchange without delay, with rank 1 delayed before and after the barrier, and
    of the delay itself."""
    here = Placement("cudareduce", rank, 2, rank, "a job")
    parts = layout(2, 2**12, 0)
    with (
        open_timed(BackendSpec("cuda", rank, folder / "compiled")) as gpu,
        connect(here, str(folder / "m")) as met,
        open_windows(met, gpu, parts) as windows,
    ):
        stage = Stage(gpu, met, windows, "all-reduce", reduction_of("sum", "float32"))
        [engine] = kernel_engines(stage, [load_kernels()["all_reduce_one_shot"]])
        [spin] = gpu.build([Source(SPIN, "spin", folder / "spin.cu")])
        assert spin is not None and not isinstance(spin, BuildError)
        delay = gpu.launcher(spin, 1, 1, [CLOCKS]) if rank else nothing
        calls = count(1)
        late = LateStart(stage, gpu, calls)
        late.delay = delay
        watch = Stopwatch(stage, gpu, calls)
        exchange = TimedCall(partial(engine.enqueue, 1024), Late())
        kinds = {
            "plain": (watch, exchange),
            "before": (watch, TimedCall(partial(engine.enqueue, 1024), Late(delay))),
            "behind": (late, exchange),
            "delay": (watch, TimedCall(lambda _: delay, Late(), collective=False)),
        }
        engine.run(1024, next(calls), 0)
        found: dict[str, list[Batch]] = {name: [] for name in kinds}
        for _ in range(BATCHES):
            for name, (by, entrant) in kinds.items():
                found[name].append(by.batch(entrant))
        return found


def test_a_late_rank_is_skew_and_not_time(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        found, _ = pool.map(_one, range(2), [tmp_path] * 2)
    us = {name: median(us for b in some for us in b.times_us) for name, some in found.items()}
    skew = {name: median(s for b in some for s in b.skews_us) for name, some in found.items()}
    print(f"\nus {us}\nskew {skew}")  # for whoever runs it with -s
    assert us["before"] - us["plain"] < 1
    assert skew["delay"] > 15
    assert skew["behind"] >= 0.9 * skew["delay"]
    assert not any(batch.valid_us for batch in found["behind"])


@pytest.mark.parametrize(("more", "verdict"), [(1, "SLOWER"), (0, "SAME")])
def test_five_per_cent_more_work_are_found(
    cudareduce: Callable[..., tuple[int, str, str]], tmp_path: Path, more: int, verdict: str
) -> None:
    text = load_kernels()["all_reduce_two_shot"].text.replace(
        "all_reduce_two_shot", "all_reduce_mine"
    )
    again = (
        f"    if ({more})\n"
        "    fold_tiles(ranks, in, begin, begin + (end - begin) / 20, [&](size_t p, Pack sum) {\n"
        "        for (unsigned r = 0; r < RANKS; r++)\n"
        "            ranks.at<Pack>(r, out)[p] = sum;\n"
        "    });\n"
    )
    for name, body in (("old", text), ("new", text.replace(
        "    ranks.meet(flags, 2 * call + 1);", again + "    ranks.meet(flags, 2 * call + 1);"
    ))):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "all_reduce_mine.cu").write_text(body)
    code, out, err = cudareduce(
        "check", "all-reduce", "--base", tmp_path / "old", "--kernels", tmp_path / "new", "--n",
        ",".join(map(str, SIZES)), "--threshold", "2%", "--no-same-code", "--format", "json",
    )  # fmt: skip
    verdicts = [row["verdict"] for row in json.loads(out)]
    print(f"\n{verdicts}")
    assert code == more, err
    assert len(verdicts) == len(SIZES)
    assert verdicts.count(verdict) >= 0.95 * len(SIZES)
