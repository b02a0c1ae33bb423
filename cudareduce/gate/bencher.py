"""Batches of cases, measured through the same path as `bench`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudareduce.backend import Backend
from cudareduce.backends import BackendSpec
from cudareduce.bench.cases import chosen_anew
from cudareduce.bench.command import floors_of, remarks_of
from cudareduce.bench.records import Beside, Recorder
from cudareduce.bench.runner import Part, measured
from cudareduce.bench.session import Phase, Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.source import Streaming
from cudareduce.bench.stream.trial import streamed
from cudareduce.errors import EnvironmentProblem, KernelFault
from cudareduce.library.registry import Choice, Registry
from cudareduce.machine.device import DeviceInfo
from cudareduce.results.record import Record, Run

#: The name under which a kernel of the base runs beside its successor of the same id; no author
#: has published one of this name.
BASE = "<base>"


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases measured against each other; then beside libraries, `peers`, and with `odd` from odd
    starts too. With `streaming` they take an array that lies elsewhere."""

    settings: Settings
    choices: tuple[Choice, ...]
    peers: tuple[str, ...] = ()
    odd: bool = False
    streaming: Streaming | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Why a measurement ended before its time, and the exit code that stands for it."""

    why: str
    exit_code: int


#: What Ctrl-C, kill and a closed terminal are.
INTERRUPTED = Cut("interrupted", 130)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasured:
    """What batches gave: records of either side, in the order of the choices; all that there was by
    then if it was `cut`."""

    old: tuple[Record, ...]
    new: tuple[Record, ...]
    floors_us: Mapping[str, float]
    remarks: tuple[str, ...]
    stories: tuple[Mapping[str, Any], ...]
    cut: Cut | None = None

    def as_run(self, now: Run, rounds: int) -> Run:
        """The new side as a run that can be a baseline itself."""
        protocol = {
            **now.protocol,
            "rounds": rounds,
            "floors_us": dict(self.floors_us),
            "measured": list(self.stories),
            "remarks": list(self.remarks),
            "max_time_s": None,
        }
        return replace(now, protocol=protocol, records=self.new)


class Bencher:
    """Measures batches on one opened backend, through the same path as `bench`."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, registry: Registry, phase: Phase
    ) -> None:
        self._backend, self._spec = backend, spec
        self._registry, self._phase = registry, phase

    def info(self) -> DeviceInfo:
        """What a result says of the machine."""
        return self._backend.info()

    def measure(self, batches: Iterable[Batch]) -> Remeasured:
        """Verify and time every batch. Ctrl-C and a GPU that fails end it, with what there is by
        then."""
        done: list[_Done] = []
        cut = None
        for batch in batches:
            try:
                done.append(self._measured(batch))
                cut = INTERRUPTED if done[-1].interrupted else None
            except KeyboardInterrupt:
                cut = INTERRUPTED
            except (EnvironmentProblem, KernelFault) as error:
                cut = Cut(str(error), error.exit_code)
            if cut:
                break
        records = [record for one in done for record in one.records]
        parts = [part for one in done for part in one.parts]
        beside = [one.beside for one in done]
        groups = [group for part in parts for group in part.groups]
        whole = [part for part in parts if not part.interrupted]  # which the cut says of others
        remarks = [*remarks_of(whole), *(remark for one in beside for remark in one.remarks)]
        stories = [story for group in groups for story in group.stories]
        return Remeasured(
            old=tuple(replace(r, name=None) for r in records if r.name == BASE),
            new=tuple(r for r in records if r.name != BASE),
            floors_us={name: us for one in done for name, us in one.floors_us.items()},
            remarks=tuple(dict.fromkeys(remarks)),
            stories=(*stories, *(story for one in beside for story in one.stories)),
            cut=cut,
        )

    def _measured(self, batch: Batch) -> _Done:
        settings = batch.settings
        session = Session(self._backend, self._spec, settings, self._phase)
        peak = settings.peak_gb_s or self._backend.info().peak_gb_s
        recorder = Recorder(self._backend.name, peak, settings, self._registry)
        try:
            if batch.streaming:
                return _streamed(session, batch.choices, batch.streaming)
            parts = measured(session, batch.choices)
            interrupted, beside = any(part.interrupted for part in parts), Beside()
            if not interrupted:
                beside = _beside(session, parts, recorder, batch)
        finally:
            session.close()
        records = (*recorder.all_records(parts), *beside.records)
        return _Done(
            parts, beside, records, floors_of(parts, settings), interrupted or beside.interrupted
        )


@dataclass(frozen=True, slots=True)
class _Done:
    """What one batch gave."""

    parts: Sequence[Part]
    beside: Beside
    records: tuple[Record, ...]
    floors_us: Mapping[str, float]
    interrupted: bool


def _streamed(session: Session, choices: Sequence[Choice], streaming: Streaming) -> _Done:
    """What kernels give on an array that lies elsewhere."""
    done = streamed(session, choices, streaming)
    beside = Beside(
        records=done.records, remarks=done.remarks, stories=done.stories,
        interrupted=done.interrupted,
    )  # fmt: skip
    return _Done((), beside, done.records, {}, done.interrupted)


def _beside(session: Session, parts: Sequence[Part], recorder: Recorder, batch: Batch) -> Beside:
    """What libraries give beside the kernels of a batch."""
    if not batch.peers:
        return Beside()
    from cudareduce.bench import beside

    odd = chosen_anew(session, batch.choices) if batch.odd else None
    return beside.timed_beside(session, parts, recorder, batch.peers, odd=odd)
