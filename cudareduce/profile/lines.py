"""Each figure of a profile as a line: its value in words, and what it means here.

The words hang on the value: they are the same whether Nsight Compute has counted or the emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cudareduce.library.kernel import Kernel
from cudareduce.report.numbers import bytes_text, plain_text

Values = Mapping[str, float]

#: A unit that works at so many per cent of its peak is what a kernel waits for; below, it rests.
BUSY, HALF = 80.0, 50.0
#: Bytes in the sectors that are fetched, by those needed.
_FEWER, _NEAR, _FAR = 0.9, 1.1, 1.5
#: Lanes of a warp that work, of 32, and turns of an access.
_MOST_LANES, _MANY_LANES, _FEW_TURNS = 30.0, 22.0, 1.1
#: Instructions that a warp may well spend on 32 elements, and what is much.
_LEAN, _MUCH = 8.0, 40.0
#: Registers a thread that leave room for every warp of an SM.
_FREE_REGISTERS = 32


@dataclass(frozen=True, slots=True)
class Line:
    """A figure by the short name of its value: its heading, how it is written, what it means, which
    way is `better`, and why it matters that it moves."""

    key: str
    heading: str
    cell: Callable[[Values], str]
    meaning: Callable[[Values], str]
    better: Literal["less", "more"] | None
    matters: str


def _time_cell(v: Values) -> str:
    rate = f", {plain_text(v['gb_s'])} GB/s" if "gb_s" in v else ""
    return f"{plain_text(v['time_ns'] / 1e3)} us{rate}"


def _read_cell(v: Values) -> str:
    read = f"{bytes_text(v['read'])}, " if "read" in v else ""
    return read + _times(v["read_share"])


def _read(v: Values) -> str:
    share = v["read_share"]
    if share < 0.95:
        return "less than all of the input: the rest was still in a cache"
    if share <= _NEAR:
        return "each byte once, as the algorithm asks: there is nothing to save"
    return "some bytes come more than once, or come unused beside those that are needed"


def _written_cell(v: Values) -> str:
    return f"{bytes_text(v['written'])}, {_times(v['written_share'])}"


def _written(v: Values) -> str:
    if v["written_share"] < 0.95:
        return "partials and answers stay in the L2, for whoever reads them next"
    if v["written_share"] < _FAR:
        return "partials and answers, once each"
    if v["written"] < 0.01 * v.get("read", 0.0):
        return "more than partials and answers, but too little to matter"
    return "more than partials and answers: registers that spill, or scattered writes"


def _dram(v: Values) -> str:
    if v["dram_pct"] >= BUSY:
        return "memory is the limit: only fewer bytes would make it much faster"
    if v["dram_pct"] >= HALF:
        return "memory is busy, with gaps: more loads under way at a time would fill them"
    return "memory mostly rests: something else takes the time, see the lines below"


def _l2(v: Values) -> str:
    if v["l2_pct"] >= BUSY:
        return "the L2 is the limit: fewer requests or atomics for the same bytes help"
    return "the L2 keeps up"


def _sm(v: Values) -> str:
    if v["sm_pct"] >= BUSY:
        return "the SMs are the limit: fewer instructions for each element help"
    if v["sm_pct"] >= HALF:
        return "the SMs are busy: each instruction saved begins to count"
    return "the SMs have time to spare"


def _memory(v: Values) -> str:
    if v["memory_pct"] < BUSY:
        return "the busiest part of caches, shared memory and DRAM has time to spare"
    if v.get("dram_pct", 0.0) >= BUSY:
        return "that is DRAM"
    return "a cache or shared memory is the limit, not DRAM: fewer accesses there help"


def _warps_cell(v: Values) -> str:
    reached = f"{v['warps_pct']:.0f}"
    if "warps_possible_pct" not in v:
        return f"{reached} % of the most"
    return f"{reached} of {v['warps_possible_pct']:.0f} % possible"


def _warps(v: Values) -> str:
    possible = v.get("warps_possible_pct", 100.0)
    if v["warps_pct"] < 0.7 * possible:
        return "places for warps stay empty: too few blocks, or they end at different times"
    if possible < HALF:
        return "registers, shared memory or the block's size leave room for few warps"
    return "enough warps, so that some work while others wait"


def _lanes_cell(v: Values) -> str:
    return f"{plain_text(v['lanes'])} of 32"


def _lanes(v: Values) -> str:
    split = v.get("threads", 32.0) < _MOST_LANES
    if v["lanes"] >= _MOST_LANES:
        return "nearly all lanes of a warp work at each instruction"
    how = "branches split warps" if split else "conditions switch lanes off"
    much = "some lanes" if v["lanes"] >= _MANY_LANES else "many lanes"
    return f"{much} of a warp rest while others work: {how} (divergence)"


def _turns(v: Values) -> str:
    least = v.get("turns_least", 1.0)
    if v["turns"] <= _FEW_TURNS:
        return "lanes hardly ever meet in a bank of shared memory"
    if v["turns"] <= _FEW_TURNS * least:
        return f"no more than {4 * least:.0f} bytes a lane take: banks bring 4 each a turn"
    return "lanes need other words of the same bank, and take turns (bank conflicts)"


def _sectors_cell(v: Values) -> str:
    share = f", {_times(v['sector_share'])}" if "sector_share" in v else ""
    return f"{plain_text(v['sectors_a_request'])}{share}"


def _sectors(v: Values) -> str:
    if v.get("sector_share", 1.0) < _FEWER:
        return "fewer than there are bytes: lanes read the same ones, or another way"
    if v.get("sector_share", 1.0) <= _NEAR:
        return "lanes read neighbours: every byte of a sector (32 bytes) is used"
    if v["sector_share"] < _FAR:
        return "nearly all of each sector (32 bytes) is used; ends and single answers are not"
    return "sectors (32 bytes) are fetched for a part of them: lanes read far apart"


def _barrier(v: Values) -> str:
    if v["barrier_wait_pct"] < 10:
        return "warps hardly wait for their block"
    if v["barrier_wait_pct"] < 30:
        return "warps wait for the slowest of their block at each __syncthreads()"
    return "much of the time goes into __syncthreads(): fewer steps with a barrier help"


def _memory_wait(v: Values) -> str:
    if v["memory_wait_pct"] < 30:
        return "warps seldom wait for data"
    if v.get("dram_pct", 0.0) >= BUSY:
        return "warps wait for data, as they must where memory is the limit"
    return "warps wait for data that was asked for late: more loads ahead of the first addition"


def _instructions(v: Values) -> str:
    each = v["instructions_a_warp_of_elements"]
    if each <= _LEAN:
        return "little besides loading and adding"
    if each <= _MUCH:
        return "more goes into the tree and its indices than into loading"
    return "most of them are neither loads nor additions: the tree costs more than the sum"


def _registers(v: Values) -> str:
    if v["registers"] <= _FREE_REGISTERS:
        return "few enough for all warps that an SM can hold"
    return "each one less may let more warps in, if they are what limits these"


def _times(share: float) -> str:
    return f"{share:.2f}x"


def _percent(key: str) -> Callable[[Values], str]:
    return lambda v: f"{v[key]:.0f} % of peak"


def _share(key: str) -> Callable[[Values], str]:
    return lambda v: f"{v[key]:.0f} % of the time"


def _plain(key: str, words: str) -> Callable[[Values], str]:
    return lambda v: f"{plain_text(v[key])} {words}"


#: What Nsight Compute tells, in the order of reading: what is busy, why not, what it is made of.
COUNTED = (
    Line("time_ns", "time", _time_cell, lambda _: "of one launch alone: bench measures times",
         "less", "what all other lines come to"),
    Line("dram_pct", "DRAM", _percent("dram_pct"), _dram, "more",
         "a reduction is as fast as memory is busy"),
    Line("read_share", "read from DRAM", _read_cell, _read, "less",
         "each byte that comes twice takes the time of one"),
    Line("written_share", "written to DRAM", _written_cell, _written, None, ""),
    Line("l2_pct", "L2", _percent("l2_pct"), _l2, None, ""),
    Line("memory_pct", "memory system", _percent("memory_pct"), _memory, None, ""),
    Line("sm_pct", "SMs", _percent("sm_pct"), _sm, None, ""),
    Line("memory_wait_pct", "waits for memory", _share("memory_wait_pct"), _memory_wait, None, ""),
    Line("barrier_wait_pct", "waits at barriers", _share("barrier_wait_pct"), _barrier, "less",
         "warps that wait for each other ask for no data"),
    Line("warps_pct", "warps on an SM", _warps_cell, _warps, "more",
         "more warps, more loads under way"),
    Line("lanes", "lanes at work", _lanes_cell, _lanes, "more",
         "an instruction takes as long for one lane as for 32"),
    Line("turns", "shared memory", _plain("turns", "turns an access"), _turns, "less",
         "an access takes as long as its turns"),
    Line("sectors_a_request", "sectors a load", _sectors_cell, _sectors, None, ""),
    Line("instructions_a_warp_of_elements", "instructions",
         _plain("instructions_a_warp_of_elements", "for 32 elements"), _instructions, "less",
         "what is not issued takes no time"),
    Line("registers", "registers", lambda v: f"{v['registers']:.0f} a thread", _registers, None,
         ""),
)  # fmt: skip


#: Bytes that an SM must have asked for to keep memory busy: 4.8 TB/s for 0.7 us, over 132 SMs.
_UNDER_WAY = 25_000


def _held_cell(v: Values) -> str:
    return f"{v['warps_held']:.0f} of {v['warps_most']:.0f}"


def _held(v: Values) -> str:
    if v["warps_held"] == v["warps_most"]:
        return "an SM has room for as many warps as it can hold"
    return "registers, shared memory or the block's size leave room for no more"


def _spilled(v: Values) -> str:
    if v["spilled"]:
        return "registers ran out: values go to memory and back"
    return "all values stay in registers"


def _under_way_cell(v: Values) -> str:
    if "under_way_sm" in v:
        return f"{bytes_text(v['under_way_sm'])} an SM"
    return f"{v['under_way']:.0f} bytes a thread"


def _under_way(v: Values) -> str:
    if v.get("under_way_sm", _UNDER_WAY) >= _UNDER_WAY:
        return "enough to keep memory busy, if all those warps are there and load"
    return "too few to keep memory busy: more elements a thread before the first addition"


def _code_cell(v: Values) -> str:
    named = {"code_loads": "load", "code_shuffles": "shuffle", "code_barriers": "barrier"}
    told = [f"{v[key]:.0f} {word}{'s' * (v[key] != 1)}" for key, word in named.items() if v[key]]
    return f"{v['code']:.0f}: {', '.join(told)}" if told else f"{v['code']:.0f}"


def _code(v: Values) -> str:
    if v["code_loads"] and v["code_wide_loads"] == v["code_loads"]:
        return "every load brings 16 bytes; a loop's instructions are counted once"
    return "instructions in the text; those of a loop are counted once"


def _barriers(v: Values) -> str:
    if v["barriers_a_block"] < 3:
        return "a block hardly ever waits for all of its threads"
    return "each time all threads of a block wait for the slowest"


_SAME = {line.key: line for line in COUNTED}
STATIC = (
    _SAME["registers"],
    Line("spilled", "spilled", lambda v: f"{v['spilled']:.0f} bytes a thread", _spilled, "less",
         "spilled values take the way of memory"),
    Line("warps_held", "warps on an SM", _held_cell, _held, "more",
         "more warps, more loads under way"),
    Line("under_way", "loads under way", _under_way_cell, _under_way, "more",
         "what is asked for early does not keep additions waiting"),
    Line("code", "machine code", _code_cell, _code, None, ""),
    replace(_SAME["read_share"], heading="read"),
    replace(_SAME["sectors_a_request"], heading="sectors a request"),
    _SAME["turns"],
    Line("barriers_a_block", "barriers", lambda v: f"{plain_text(v['barriers_a_block'])} a block",
         _barriers, "less", "warps that wait for each other ask for no data"),
)  # fmt: skip


#: Why a line has no value where nothing is missing.
_NOTHING = {
    "turns": "it does not use shared memory",
    "sectors_a_request": "its loads are bulk copies, which are not counted here",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """Values by short names; `static` ones are known without a GPU. `reason` is why there are
    none."""

    kernel: Kernel
    values: Mapping[str, float]
    static: bool
    reason: str = ""

    @property
    def lines(self) -> tuple[Line, ...]:
        """Those that are told: without a GPU the ones that are known, else all."""
        if self.static:
            return tuple(line for line in STATIC if line.key in self.values)
        return COUNTED

    def why_none(self, key: str) -> str:
        """Why a line has no value."""
        idle = not self.values.get({"turns": "wavefronts"}.get(key, "requests"), 1.0)
        return _NOTHING[key] if key in _NOTHING and idle else "not counted"
