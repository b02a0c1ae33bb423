"""`bench --from --gpus`: each rank streams a shard of an array that need not fit any GPU."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cudareduce.bench.stream.command import StreamBenchRequest, bench_streams
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Record
from cudareduce.several.communicator import Communicator
from cudareduce.several.launcher import gpu_of, require_equal, run_on_gpus
from cudareduce.several.rendezvous import Placement
from cudareduce.several.sharded_inputs import shard_range

#: From best to worst: the worst rank's verdict counts.
_VERDICTS = ("pass", "skip", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsRequest:
    """The streaming request, the number of ranks, and where they meet."""

    stream: StreamBenchRequest
    gpus: int
    meet: str | None = None


def bench_streams_of_ranks(request: StreamsRequest) -> int:
    """Start the ranks, or be one of them. Returns the exit code. Raises UsageError,
    EnvironmentProblem and RankLost."""
    bench = request.stream.bench
    if bench.machine.max_time is not None or bench.machine.device:
        raise UsageError("--gpus takes all ranks through all rounds: leave out --max-time and "
                         "--device")  # fmt: skip
    return run_on_gpus(request.gpus, bench.argv, request.meet, partial(_take_part, request))


def _take_part(request: StreamsRequest, comm: Communicator, here: Placement) -> int:
    """The part of one rank. Returns its exit code."""
    bench = request.stream.bench
    machine = replace(bench.machine, device=gpu_of(here))
    own = replace(bench, machine=machine)
    if comm.rank:
        own = replace(own, machine=replace(machine, quiet=True), outputs=Outputs())
    require_equal(comm, _asked(request))
    code = bench_streams(replace(request.stream, bench=own), StreamRanks(comm))
    return int(comm.broadcast(code))


def _asked(request: StreamsRequest) -> list[Any]:
    """What must be equal on all ranks."""
    bench = request.stream.bench
    selection, problem = bench.selection, bench.problem
    return [
        selection.kernels, selection.block, selection.items, problem.n, problem.op, problem.dtype,
        problem.acc, bench.timing.pattern, bench.timing.rounds, bench.machine.backend,
        request.stream.source, request.stream.chunk,
    ]  # fmt: skip


class StreamRanks:
    """The communicator, as streaming uses it."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self.ranks, self.first = comm.size, comm.rank == 0

    def share(self, n: int) -> range:
        return shard_range(n, self._comm.rank, self._comm.size)

    def slowest(self, run: Callable[[], float]) -> float:
        self._comm.barrier()
        return float(max(self._comm.all_gather(run())))

    def common(self, rows: Set[int]) -> Set[int]:
        every: list[list[int]] = self._comm.all_gather(sorted(rows))
        return set.intersection(*map(set, every))

    def agreed(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        require_equal(self._comm, [[r.kernel, r.source_sha] for r in records])
        own = [[r.verdict, r.reason] for r in records]
        by_row: list[Any] = list(zip(*self._comm.all_gather(own), strict=True))
        return tuple(map(_with_worst, records, by_row))

    def code(self, own: int) -> int:
        return int(worst_exit_code(set(self._comm.all_gather(own)) - {0}))


def _with_worst(record: Record, verdicts: list[tuple[str, str]]) -> Record:
    rank = max(range(len(verdicts)), key=lambda k: _VERDICTS.index(verdicts[k][0]))
    verdict, reason = verdicts[rank]
    if verdict == record.verdict:
        return record
    return replace(record, verdict=verdict, reason=f"rank {rank}: {reason}", time_us=None)
