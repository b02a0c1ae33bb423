"""Calls as people make them, which allocate and wait: what each takes the host."""

from __future__ import annotations

from statistics import median

from cudareduce.backend import TimedBackend
from cudareduce.peers.contract import Peer
from cudareduce.peers.laid import Laid, Tied
from cudareduce.peers.scene import memory, verdict_on
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.result_monitor import TimedInput
from cudareduce.verify.verdict import RIGHT, WROTE_INPUT, Verdict, worse

#: Some that are not counted, and some that are.
WARM_CALLS, CALLS = 3, 30


def called(
    backend: TimedBackend, timer: DeviceTimer, peer: Peer, laid: Laid, given: TimedInput,
    folder: str,
) -> tuple[Verdict, float | None]:  # fmt: skip
    """A verdict on calls with one input and another in turn, and the microseconds of each from a
    displaced cache to its answer, None where it is not right. Raises BrokenError."""
    verdict, taken = RIGHT, []
    given.restored()  # whoever ran before may have changed it
    with memory(backend) as held:
        try:
            data = laid.data.elements
            tied = Tied(held.bind(peer, laid.problem, data, given.buffer, folder), laid, given)
            for k in range(WARM_CALLS + CALLS):
                given.turn_to(1 - k % 2)
                timer.displace()
                backend.synchronize()
                began = backend.host_us()
                tied.bound.run()
                if k >= WARM_CALLS:
                    taken.append(backend.host_us() - began)
                verdict = worse(verdict, tied.verdict() or RIGHT)
        except Exception as error:
            verdict = verdict_on(peer, error, backend)
    if not given.restored():
        verdict = Verdict("fail", WROTE_INPUT)
    return verdict, median(taken) if taken and verdict.outcome == "pass" else None
