"""Simulated jobs of ranks: results from rounds with noise, without processes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from cudareduce.collectives.engines import engine_record
from cudareduce.collectives.names import Collective
from cudareduce.collectives.timing import SAMPLES, Batch, LinkRates, with_bandwidth, with_times
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Record, Run
from cudareduce.results.store import to_json, write_text
from tests.simulate import H200, rounds

ENGINES = ("peer:one_shot", "peer:two_shot", "host")
SIZES = (2**10, 2**20, 2**26)
LAUNCH_US, LINK_GB_S = 9.0, 380.0


@dataclass
class Machine:
    """Two simulated GPUs: slowdown and source text by engine, skew, relative link bandwidth, and
    engines with wrong results. `apart` is the relative scatter of jobs; that of engines within a
    job is half of it. `jobs` records the options of each job."""

    seed: int = 0
    slower: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    skew_us: float = 0.3
    links: float = 1.0
    wrong: Sequence[str] = ()
    code: int = 0
    apart: float = 0.003
    jobs: list[Mapping[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def job(self, ranks: int, argv: Sequence[str], **_: object) -> int:
        """Replaces the function that starts a job."""
        asked = _asked(argv)
        self.jobs.append({"collective": argv[1], **asked})
        if not self.code:
            write_text(Path(asked["--json"]), to_json(self.run(argv)))
        return self.code or (3 if self.wrong else 0)

    def run(self, argv: Sequence[str]) -> Run:
        """The result of a job."""
        asked = _asked(argv)
        engines = tuple(name for name in asked["--engine"].split(",") if name) or ENGINES
        sizes, count = [int(n) for n in asked["--n"].split(",")], int(asked["--rounds"])
        links = LinkRates(LINK_GB_S * self.links, LINK_GB_S * self.links)
        links = links if max(sizes) >= 2**22 else LinkRates()
        records: list[Record] = []
        common = self._rng.normal(0, self.apart)
        for dtype in asked["--dtype"].split(","):
            plain = engine_record(
                cast(Collective, argv[1]), reduction_of(asked["--op"], dtype), 2, "cuda", "", 0,
                distinct=1, launches=10, tried_launches=64,
            )  # fmt: skip
            own = {engine: self._rng.normal(0, self.apart / 2) for engine in engines}
            for n in sizes:
                records += [
                    self._record(with_engine(plain, engine), n, count, links, common + own[engine])
                    for engine in engines
                ]
        protocol = {
            "collective": argv[1], "engines": [], "timing": "warm", "rounds": count,
            "remarks": list(links.notes),
        }  # fmt: skip
        return Run(made_by(argv), H200, protocol, tuple(records))

    def _record(
        self, plain: Record, n: int, count: int, links: LinkRates, moved: float
    ) -> Record:  # fmt: skip
        plain, engine = replace(plain, n=n), plain.engine or ""
        if engine in self.wrong:
            return replace(plain, verdict="fail", reason="element 3 is 4.0, not 5.0")
        if engine == "host":
            return replace(plain, host_us=300.0 * float(np.exp(self._rng.normal(0, 0.1))))
        us = (LAUNCH_US + 4 * n / LINK_GB_S / 1e3) * self.slower.get(engine, 1.0) * np.exp(moved)
        batches = tuple(
            Batch((time,) * SAMPLES, (self.skew_us,) * SAMPLES, 0.9 * time, 5.0, None)
            for time in rounds(self._rng, us, count, samples=SAMPLES)
        )
        sha = hashlib.sha256(f"{engine} {self.texts.get(engine, '')}".encode()).hexdigest()
        record = with_bandwidth(with_times(plain, batches, 4 * n), links)
        return replace(record, source_sha=sha, cubin_sha=sha)


def with_engine(record: Record, engine: str) -> Record:
    """The record of another engine."""
    scope = "device" if engine.startswith("peer:") else "library"
    return replace(record, engine=engine, scope=scope)


def made_by(argv: Sequence[str]) -> dict[str, Any]:
    """The `tool` of a result."""
    return {"name": "cudareduce", "version": "0", "git": None, "argv": list(argv)}


def _asked(argv: Sequence[str]) -> dict[str, str]:
    words = [word for word in argv[2:] if word not in ("--quiet", "--no-cache")]
    return dict(zip(words[::2], words[1::2], strict=True))


def stored(
    machine: Machine, sizes: Sequence[int] = SIZES, rounds: int = 9, collective: str = "all-reduce"
) -> Run:
    """A baseline."""
    ns = ",".join(map(str, sizes))
    return machine.run(["collective", collective, "--op", "sum", "--dtype", "float32", "--n", ns,
                        "--engine", "", "--rounds", str(rounds)])  # fmt: skip
