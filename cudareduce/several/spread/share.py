"""A rank's share of an array on its device, with all that a kernel leaves of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from cudareduce.backend import Buffer
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.launch.plan import Plan
from cudareduce.several.elements import UFUNCS
from cudareduce.several.engines import Stage
from cudareduce.several.libraries.nccl import NcclCommunicator
from cudareduce.several.spread.content import Content, share
from cudareduce.several.spread.text import built
from cudareduce.several.spread.ways import Behind, Fused, Host, Local, Nccl, Scene, Way

#: Bytes of a share from which on nothing of it is left in the cache when its turn comes again,
#: behind another one of the same length: three times the largest L2 there is, 126 MB of a B200.
_COLD_BYTES = 3 * 126e6


def cold(share_bytes: float) -> bool:
    """Whether shares of this size come from memory, and not from the cache."""
    return share_bytes >= _COLD_BYTES


@dataclass(frozen=True)
class Share:
    """Inputs of one length, one for each turn, and the ways of each case for each of them. What a
    case does not take, or has no way for, is in `refusals`."""

    inputs: tuple[Buffer, ...]
    answer: Buffer
    ways: dict[Case, list[tuple[Way, ...]]]
    refusals: dict[tuple[Case, str], str]


@contextmanager
def on_share(
    stage: Stage, cases: list[Case], n: int, turns: int, member: NcclCommunicator | None = None,
    stumble: int = 0,
) -> Iterator[Share]:  # fmt: skip
    """A rank's share of an array of `n` elements, for so many turns, as long as it is needed; by
    NCCL as well, of which this rank is a `member`. Raises OutOfMemory and RankLost."""
    backend, reduction = stage.backend, stage.reduction
    own, size = share(n, stage.comm.rank, stage.comm.size), reduction.acc_size
    inputs = tuple(backend.allocate(len(own) * reduction.dtype.size) for _ in range(turns))
    partial, partials = backend.allocate(size), backend.allocate(size * stage.comm.size)
    answer = backend.allocate(reduction.result_size)
    ways: dict[Case, list[tuple[Way, ...]]] = {}
    refusals: dict[tuple[Case, str], str] = {}
    scenes: list[Scene] = []
    fused: list[Fused] = []
    try:
        for case in cases:
            plan = _plan(stage, case, len(own))
            if isinstance(plan, str):
                refusals[case, ""] = plan
                continue
            made = built(stage, case, plan, stumble)
            if isinstance(made, str):
                refusals[case, ""] = made
                continue
            why_not = _agreed(stage, made.fused if isinstance(made.fused, str) else "")
            if why_not:
                refusals[case, Fused.name] = why_not
            mine = [Scene(stage, plan, made, given, partial, partials, answer, n, own.start)
                    for given in inputs]  # fmt: skip
            scenes += mine
            handing = [] if why_not else [Fused(scene) for scene in mine]
            fused += handing
            every: list[list[Way]] = [
                [Local(scene) for scene in mine], [*handing],
                [Behind(scene) for scene in mine], _by_nccl(mine, member),
                [Host(scene) for scene in mine],
            ]  # fmt: skip
            ways[case] = [tuple(some) for some in every if some]
        yield Share(inputs, answer, ways, refusals)
    finally:
        for one in fused:
            one.bound.release()
        for scene in scenes:
            scene.bound.release()
        backend.free(*inputs, partial, partials, answer)


def _by_nccl(scenes: list[Scene], member: NcclCommunicator | None) -> list[Way]:
    """NCCL's way, where partials are numbers that it combines, and sums need no last step."""
    if member is None or not scenes:
        return []
    backend, reduction = scenes[0].backend.timed(), scenes[0].stage.reduction
    if backend is None or reduction.op.name not in UFUNCS:
        return []
    return [Nccl(scene, backend, member) for scene in scenes]


def _plan(stage: Stage, case: Case, length: int) -> Plan | str:
    """The launches for so many elements, or why some rank has none: shares may differ by one."""
    found: Plan | str
    try:
        found = case.plan(length, 1, stage.backend.limits())
        if found.outputs != 1:
            found = "leaves more than one value"
    except UsageError as error:
        found = str(error).removeprefix(f"{case.kernel.id} ")
    return _agreed(stage, found if isinstance(found, str) else "") or found


def _agreed(stage: Stage, why_not: str) -> str:
    """Why it does not go on some rank; empty if it goes on all."""
    return next((why for why in stage.comm.all_gather(why_not) if why), "")


def cleared(stage: Stage) -> None:
    """Empty the mail of all ranks, and forget who has given up: all count their calls anew."""
    parts, backend = stage.windows.layout, stage.backend
    stage.comm.barrier()
    backend.zero(stage.windows.part(parts.mail, parts.nbytes - parts.mail))
    backend.zero(stage.windows.status)
    backend.synchronize()
    stage.comm.barrier()


class Timed:
    """The share as a Stopwatch's subject: the right answers of two turns, and those that are
    kept."""

    def __init__(self, stage: Stage, on: Share, contents: list[Content], samples: int) -> None:
        timed = stage.backend.timed()
        assert timed is not None
        self._stage, self._backend, self._on = stage, timed, on
        self._right = [content.answer for content in contents]
        size = stage.reduction.result_size
        self._kept = [timed.allocate(size) for _ in range(samples)]

    def close(self) -> None:
        """Give memory back."""
        self._backend.free(*self._kept)

    def prepare(self, k: int) -> None:
        self._backend.poison(self._on.answer)

    def keep(self, k: int) -> None:
        self._backend.overwrite(self._kept[k], 0, self._on.answer)

    def wrong(self) -> str | None:
        kind = self._stage.reduction.result_dtype
        for k, kept in enumerate(self._kept):
            why = judged(
                self._backend.download(kept, kind, 1)[0], self._right[k % len(self._right)]
            )
            if why:
                return f"rank {self._stage.comm.rank}, sample {k + 1}: {why}"
        return None


def judged(got: np.generic, right: np.ndarray) -> str | None:
    """Why an answer is wrong; None if it is right."""
    if got == right or (got != got and right != right):
        return None
    return f"the answer is {got}, not {right}"
