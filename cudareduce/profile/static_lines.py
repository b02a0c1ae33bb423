"""The lines of what is known without a GPU: by the compiler, then by the emulator, whose words are
those of the counters."""

from __future__ import annotations

from dataclasses import replace

from cudareduce.profile.lines import COUNTED, Line, Values
from cudareduce.report.numbers import bytes_text, plain_text

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
