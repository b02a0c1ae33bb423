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
from cudareduce.device import DeviceInfo
from cudareduce.library.registry import Choice, Registry
from cudareduce.results.record import Record, Run

#: The name under which a kernel of the base runs beside its successor of the same id; no author
#: has published one of this name.
BASE = "<base>"


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases measured against each other; then beside libraries, `peers`, and with `odd` from odd
    starts too."""

    settings: Settings
    choices: tuple[Choice, ...]
    peers: tuple[str, ...] = ()
    odd: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasured:
    """What batches gave: records of either side, in the order of the choices."""

    old: tuple[Record, ...]
    new: tuple[Record, ...]
    floors_us: Mapping[str, float]
    remarks: tuple[str, ...]
    stories: tuple[Mapping[str, Any], ...]

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
        """Verify and time every batch; Ctrl-C ends it all, since half a check decides nothing."""
        records: list[Record] = []
        parts: list[Part] = []
        floors_us: dict[str, float] = {}
        remarks: list[str] = []
        stories: list[Mapping[str, Any]] = []
        for batch in batches:
            settings = batch.settings
            session = Session(self._backend, self._spec, settings, self._phase)
            peak = settings.peak_gb_s or self._backend.info().peak_gb_s
            recorder = Recorder(self._backend.name, peak, settings, self._registry)
            try:
                done = measured(session, batch.choices)
                if any(part.interrupted for part in done):
                    raise KeyboardInterrupt
                beside = _beside(session, done, recorder, batch)
            finally:
                session.close()
            records += [*recorder.all_records(done), *beside.records]
            remarks += beside.remarks
            stories += beside.stories
            floors_us |= floors_of(done, settings)
            parts += done
        groups = [group for part in parts for group in part.groups]
        return Remeasured(
            old=tuple(replace(r, name=None) for r in records if r.name == BASE),
            new=tuple(r for r in records if r.name != BASE),
            floors_us=floors_us,
            remarks=tuple(dict.fromkeys([*remarks_of(parts), *remarks])),
            stories=(*(story for group in groups for story in group.stories), *stories),
        )


def _beside(session: Session, parts: Sequence[Part], recorder: Recorder, batch: Batch) -> Beside:
    """What libraries give beside the kernels of a batch; Ctrl-C ends it all."""
    found = Beside()
    if batch.peers:
        from cudareduce.bench import beside

        odd = chosen_anew(session, batch.choices) if batch.odd else None
        found = beside.timed_beside(session, parts, recorder, batch.peers, odd=odd)
    if found.interrupted:
        raise KeyboardInterrupt
    return found
