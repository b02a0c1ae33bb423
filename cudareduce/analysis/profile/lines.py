"""Format a profile: one line per counter with its value, unit and what that value means.

Explanations are the same for values of Nsight Compute and of the emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cudareduce.catalog.kernel import Kernel
from cudareduce.report.numbers import bytes_text, plain_text

Values = Mapping[str, float]
Text = Callable[[Values], str]

#: Percent of its peak from which a unit is the bottleneck, and from which it is busy.
BUSY, HALF = 80.0, 50.0
#: Ratios of bytes fetched to bytes needed.
_FEWER, _NEAR, _FAR = 0.9, 1.1, 1.5
#: Active lanes of a warp, of 32; wavefronts per shared-memory access.
_MOST_LANES, _MANY_LANES, _FEW_TURNS = 30.0, 22.0, 1.1
#: Instructions per 32 elements: few, and many.
_LEAN, _MUCH = 8.0, 40.0
#: Registers per thread up to which an SM holds its maximum of warps.
_FREE_REGISTERS = 32


@dataclass(frozen=True, slots=True)
class Line:
    """How to print and explain one value of a profile: `better` is the direction of improvement,
    `matters` says why a change matters."""

    key: str
    heading: str
    cell: Text
    meaning: Text
    better: Literal["less", "more"] | None
    matters: str


def _levels(key: str, *levels: tuple[float, str], otherwise: str) -> Text:
    """The text of the first level, in descending order, that the value reaches."""
    return lambda v: next((text for least, text in levels if v[key] >= least), otherwise)


def _time_cell(v: Values) -> str:
    rate = f", {plain_text(v['gb_s'])} GB/s" if "gb_s" in v else ""
    return f"{plain_text(v['time_ns'] / 1e3)} us{rate}"


def _read_cell(v: Values) -> str:
    read = f"{bytes_text(v['read'])}, " if "read" in v else ""
    return read + _times(v["read_share"])


def _read(v: Values) -> str:
    if v["read_share"] < 0.95:
        return "less than the input: the rest was in a cache"
    if v["read_share"] <= _NEAR:
        return "each byte is read once, the minimum"
    return "some bytes are read more than once, or read but not used"


def _written_cell(v: Values) -> str:
    return f"{bytes_text(v['written'])}, {_times(v['written_share'])}"


def _written(v: Values) -> str:
    if v["written_share"] < 0.95:
        return "partial results stay in the L2 cache"
    if v["written_share"] < _FAR:
        return "partial results and results, once each"
    if v["written"] < 0.01 * v.get("read", 0.0):
        return "more than the results, but too little to matter"
    return "more than the results: register spills or scattered writes"


def _memory(v: Values) -> str:
    if v["memory_pct"] < BUSY:
        return "caches, shared memory and DRAM are not the limit"
    if v.get("dram_pct", 0.0) >= BUSY:
        return "DRAM is the limit"
    return "a cache or shared memory is the limit, not DRAM: use fewer accesses"


def _warps_cell(v: Values) -> str:
    reached = f"{v['warps_pct']:.0f}"
    if "warps_possible_pct" not in v:
        return f"{reached} % of the maximum"
    return f"{reached} of {v['warps_possible_pct']:.0f} % possible"


def _warps(v: Values) -> str:
    possible = v.get("warps_possible_pct", 100.0)
    if v["warps_pct"] < 0.7 * possible:
        return "fewer warps than possible: too few blocks, or uneven run times"
    if possible < HALF:
        return "registers, shared memory or the block size limit the number of warps"
    return "enough warps to hide latency"


def _lanes(v: Values) -> str:
    split = v.get("threads", 32.0) < _MOST_LANES
    if v["lanes"] >= _MOST_LANES:
        return "nearly all lanes of a warp are active"
    how = "divergent branches" if split else "predicated instructions"
    much = "some lanes" if v["lanes"] >= _MANY_LANES else "many lanes"
    return f"{much} of a warp are inactive: {how}"


def _turns(v: Values) -> str:
    least = v.get("turns_least", 1.0)
    if v["turns"] <= _FEW_TURNS:
        return "almost no bank conflicts"
    if v["turns"] <= _FEW_TURNS * least:
        return f"the minimum for {4 * least:.0f} bytes per lane: a bank delivers 4 per wavefront"
    return "bank conflicts: lanes access different words of the same bank"


def _sectors_cell(v: Values) -> str:
    share = f", {_times(v['sector_share'])}" if "sector_share" in v else ""
    return f"{plain_text(v['sectors_a_request'])}{share}"


def _sectors(v: Values) -> str:
    if v.get("sector_share", 1.0) < _FEWER:
        return "fewer bytes than needed: lanes share bytes, or other loads read them"
    if v.get("sector_share", 1.0) <= _NEAR:
        return "coalesced: every byte of a sector (32 bytes) is used"
    if v["sector_share"] < _FAR:
        return "nearly coalesced: most of each sector (32 bytes) is used"
    return "not coalesced: only a part of each sector (32 bytes) is used"


def _memory_wait(v: Values) -> str:
    if v["memory_wait_pct"] < 30:
        return "warps rarely wait for data"
    if v.get("dram_pct", 0.0) >= BUSY:
        return "warps wait for data, as expected if memory is the limit"
    return "warps wait for data: issue more loads before the first addition"


def _instructions(v: Values) -> str:
    each = v["instructions_a_warp_of_elements"]
    if each <= _LEAN:
        return "mostly loads and additions"
    if each <= _MUCH:
        return "more for the tree and its indices than for loading"
    return "mostly neither loads nor additions: the tree dominates"


def _registers(v: Values) -> str:
    if v["registers"] <= _FREE_REGISTERS:
        return "few enough for the maximum of warps per SM"
    return "fewer registers may allow more warps"


def _times(share: float) -> str:
    return f"{share:.2f}x"


def _text(pattern: str) -> Text:
    """Formats the values into a pattern."""
    return lambda v: pattern.format_map(v)


def _plain(key: str, words: str) -> Text:
    return lambda v: f"{plain_text(v[key])} {words}"


#: The lines of Nsight Compute: utilization, then stalls, then instructions and accesses.
COUNTED = (
    Line("time_ns", "time", _time_cell,
         _text("of a single profiled launch; use bench to measure times"), "less",
         "the sum of all effects"),
    Line("dram_pct", "DRAM", _text("{dram_pct:.0f} % of peak"),
         _levels("dram_pct",
                 (BUSY, "memory is the limit: only reading fewer bytes makes it much faster"),
                 (HALF, "memory is busy with gaps: more loads in flight would fill them"),
                 otherwise="memory is mostly idle: the limit is elsewhere, see below"),
         "more", "a reduction should be limited by memory"),
    Line("read_share", "read from DRAM", _read_cell, _read, "less",
         "reading a byte twice costs twice the time"),
    Line("written_share", "written to DRAM", _written_cell, _written, None, ""),
    Line("l2_pct", "L2", _text("{l2_pct:.0f} % of peak"),
         _levels("l2_pct", (BUSY, "the L2 is the limit: use fewer requests or atomics per byte"),
                 otherwise="the L2 is not the limit"), None, ""),
    Line("memory_pct", "memory system", _text("{memory_pct:.0f} % of peak"), _memory, None, ""),
    Line("sm_pct", "SMs", _text("{sm_pct:.0f} % of peak"),
         _levels("sm_pct", (BUSY, "the SMs are the limit: use fewer instructions per element"),
                 (HALF, "the SMs are busy: saving instructions helps"),
                 otherwise="the SMs are not the limit"), None, ""),
    Line("memory_wait_pct", "waits for memory", _text("{memory_wait_pct:.0f} % of the time"),
         _memory_wait, None, ""),
    Line("barrier_wait_pct", "waits at barriers", _text("{barrier_wait_pct:.0f} % of the time"),
         _levels("barrier_wait_pct",
                 (30, "__syncthreads() takes much of the time: use fewer barriers"),
                 (10, "warps wait for the slowest of their block at __syncthreads()"),
                 otherwise="warps rarely wait for their block"),
         "less", "warps that wait issue no loads"),
    Line("warps_pct", "warps per SM", _warps_cell, _warps, "more",
         "more warps have more loads in flight"),
    Line("lanes", "active lanes", _plain("lanes", "of 32"), _lanes, "more",
         "an instruction takes as long for 1 lane as for 32"),
    Line("turns", "shared memory", _plain("turns", "wavefronts per access"), _turns, "less",
         "each wavefront takes a cycle"),
    Line("sectors_a_request", "sectors per load", _sectors_cell, _sectors, None, ""),
    Line("instructions_a_warp_of_elements", "instructions",
         _plain("instructions_a_warp_of_elements", "per 32 elements"), _instructions, "less",
         "fewer instructions take less time"),
    Line("registers", "registers", _text("{registers:.0f} per thread"), _registers, None, ""),
)  # fmt: skip


#: Bytes in flight per SM that saturate memory: 4.8 TB/s * 0.7 us / 132 SMs.
_IN_FLIGHT = 25_000


def _held(v: Values) -> str:
    if v["warps_held"] == v["warps_most"]:
        return "the maximum"
    return "limited by registers, shared memory or the block size"


def _under_way_cell(v: Values) -> str:
    if "under_way_sm" in v:
        return f"{bytes_text(v['under_way_sm'])} per SM"
    return f"{v['under_way']:.0f} bytes per thread"


def _under_way(v: Values) -> str:
    if v.get("under_way_sm", _IN_FLIGHT) >= _IN_FLIGHT:
        return "enough to saturate memory, if all these warps are resident and load"
    return "too few to saturate memory: load more items before the first addition"


def _code_cell(v: Values) -> str:
    named = {"code_loads": "load", "code_shuffles": "shuffle", "code_barriers": "barrier"}
    counts = [f"{v[key]:.0f} {word}{'s' * (v[key] != 1)}" for key, word in named.items() if v[key]]
    return f"{v['code']:.0f}: {', '.join(counts)}" if counts else f"{v['code']:.0f}"


def _code(v: Values) -> str:
    if v["code_loads"] and v["code_wide_loads"] == v["code_loads"]:
        return "every load is 16 bytes wide; instructions of a loop are counted once"
    return "static instructions; those of a loop are counted once"


_SAME = {line.key: line for line in COUNTED}
STATIC = (
    _SAME["registers"],
    Line("spilled", "spilled", _text("{spilled:.0f} bytes per thread"),
         lambda v: "too few registers: values are stored to memory and loaded again"
         if v["spilled"] else "none: all values stay in registers",
         "less", "spilled values use memory bandwidth"),
    Line("warps_held", "warps per SM", _text("{warps_held:.0f} of {warps_most:.0f}"), _held, "more",
         "more warps have more loads in flight"),
    Line("under_way", "loads in flight", _under_way_cell, _under_way, "more",
         "early loads hide memory latency"),
    Line("code", "machine code", _code_cell, _code, None, ""),
    replace(_SAME["read_share"], heading="read"),
    replace(_SAME["sectors_a_request"], heading="sectors per request"),
    _SAME["turns"],
    Line("barriers_a_block", "barriers", _plain("barriers_a_block", "per block"),
         _levels("barriers_a_block",
                 (3, "at each barrier all threads of a block wait for the slowest"),
                 otherwise="almost no barriers"),
         "less", "warps that wait issue no loads"),
)  # fmt: skip


#: Why a value is missing although the counters were read.
_NOTHING = {
    "turns": "it does not use shared memory",
    "sectors_a_request": "its loads are bulk copies, which are not counted here",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """The values of a kernel by short name, or the `reason` why there are none. `static` values
    come from the compiler and the emulator, without a GPU."""

    kernel: Kernel
    values: Mapping[str, float]
    static: bool
    reason: str = ""

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines to print: the known ones if static, else all."""
        if self.static:
            return tuple(line for line in STATIC if line.key in self.values)
        return COUNTED

    def why_none(self, key: str) -> str:
        unused = not self.values.get({"turns": "wavefronts"}.get(key, "requests"), 1.0)
        return _NOTHING[key] if key in _NOTHING and unused else "not counted"
