"""JSON Schema of result files, derived from the dataclasses."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cudareduce.machine import DeviceInfo
from cudareduce.results.record import SCHEMA, VERDICTS, Record

#: The fields of a record by subject, with their meaning and unit.
FIELDS: dict[str, dict[str, str]] = {
    "Problem": {
        "kernel": "kernel, `auto`, `peer:LIBRARY` or collective",
        "op": "operator",
        "dtype": "element type",
        "acc": "accumulator type",
        "n": "elements per row; of a collective, per rank",
        "rows": "number of rows",
        "map": "transform of each element, C++ in `a` and `b`",
        "pattern": "input pattern",
        "offset": "elements from an aligned address to the start of the input",
        "region": "timed region: `total` or `first-pass`",
        "timing": "cache state: `cold`, `warm` or `graph`",
        "suite": "suite, if the kernels were selected by one",
        "name": "name of the kernel in the publication",
    },
    "Launch": {
        "block": "threads per block",
        "items": "items per thread",
        "grid": "blocks of the first launch",
        "passes": "number of launches",
        "scope": "what one launch reduces; `library` for library calls",
        "backend": "`cuda` or `cpu`",
        "chosen": "kernel that `auto` selected",
        "sms": "number of SMs used; null means all",
        "source_sha": "SHA-256 of the compiled source",
        "cubin_sha": "SHA-256 of the machine code",
        "called": "call of the library",
        "version": "version of the library",
        "context": "`primary` for times in the rounds of libraries (primary context)",
    },
    "Verification": {
        "verdict": "`pass`, `fail` or `skip`",
        "reason": "why the verdict is not `pass`",
        "cause": "cause of a skip: `unfit`, `unbuilt`, `machine` or `time`",
        "conditions": "conditions under which the verdict holds",
        "error": "largest absolute error, in the unit of the result",
        "bound": "error bound, in the unit of the result",
        "error_ulp": "the error in units in the last place of the result",
        "pct_bound": "the error in percent of the bound",
        "condition": "largest sum of magnitudes over magnitude of the sum of a row",
        "launches": "launches on one input",
        "distinct": "number of different results among these launches",
        "tried_sizes": "number of sizes tested",
        "tried_patterns": "number of input patterns tested",
        "tried_schedules": "number of thread schedules tested (emulator)",
        "tried_launches": "number of launches in all tests",
    },
    "Time": {
        "time_us": "median over rounds of the time of one reduction, in microseconds",
        "time_us_low": "lower end of its interval",
        "time_us_high": "upper end of its interval",
        "time_us_min": "fastest sample, in microseconds; not a reliable estimate",
        "rounds_us": "median of each round, in microseconds; null if all samples were lost",
        "noise_pct": "interquartile range of the samples, in percent of their median",
        "samples": "number of samples",
        "discarded": "samples discarded because the GPU started before all work was enqueued",
        "batch": "launches between two events",
        "host_us": "time the host needs to enqueue one reduction, in microseconds",
    },
    "Bandwidth and comparison": {
        "bytes": "bytes of all inputs and results, each counted once",
        "gb_s": "`bytes` over `time_us`, in 10^9 bytes/s",
        "gb_s_low": "lower end of its interval",
        "gb_s_high": "upper end of its interval",
        "pct_peak": "`gb_s` in percent of the theoretical bandwidth",
        "ceiling_gb_s": "bandwidth of a read-only kernel in the same rounds, in 10^9 bytes/s",
        "pct_ceiling": "`gb_s` in percent of `ceiling_gb_s`; of copying alone for streamed arrays",
        "baseline": "kernel that `speedup` is relative to",
        "speedup": "time of the baseline over this time, from ratios of single rounds",
        "speedup_low": "lower end of its interval",
        "speedup_high": "upper end of its interval",
        "speedup_prev": "the same relative to the predecessor",
        "speedup_prev_low": "lower end of its interval",
        "speedup_prev_high": "upper end of its interval",
        "aligned_n": "elements per row of the aligned call that `slowdown` is relative to",
        "slowdown": "this time over that of the aligned call",
        "slowdown_low": "lower end of its interval",
        "slowdown_high": "upper end of its interval",
    },
    "Machine during the rounds": {
        "sm_mhz": "median SM clock, in MHz",
        "memory_mhz": "median memory clock, in MHz",
        "power_w": "median power, in watts",
        "temperature_c": "median temperature, in degrees Celsius",
        "event_reasons": "reasons for throttling",
        "joules_per_gb": "energy of the whole GPU per 10^9 of `bytes`, in joules",
    },
    "Several GPUs": {
        "ranks": "number of ranks",
        "engine": "what ran the collective, or exchanged the partial results",
        "skew_us": "slowest minus fastest rank, in microseconds; `time_us` is the slowest",
        "local_us": "time of the local reductions alone, in microseconds",
        "loop_us": "time per call of calls back to back, in microseconds",
        "algbw_gb_s": "algorithm bandwidth as in nccl-tests, in 10^9 bytes/s",
        "busbw_gb_s": "bus bandwidth as in nccl-tests, in 10^9 bytes/s",
        "pct_link": "`busbw_gb_s` in percent of the bandwidth of the links",
    },
    "Streamed arrays": {
        "source": "source of the array: `host` or `file`",
        "way": "transfer mode: `copy` (copying alone), `pinned`, `mapped` or `pageable`",
        "chunk_bytes": "size of a chunk, in bytes",
    },
}
#: The fields of `device`, with their meaning and unit; null is unknown.
DEVICE_FIELDS = {
    "name": "model of the GPU, or the emulator",
    "cc": "compute capability",
    "sm_count": "number of SMs",
    "threads_per_sm": "resident threads per SM",
    "l2_bytes": "size of the L2 cache, in bytes",
    "memory_bytes": "size of device memory, in bytes",
    "memory_clock_khz": "memory clock, in kHz",
    "bus_bits": "width of the memory bus, in bits",
    "peak_gb_s": "theoretical bandwidth, twice the memory clock times the bus width, in "
    "10^9 bytes/s",
    "uuid": "UUID of the GPU",
    "ecc": "whether ECC is on",
    "mig": "whether MIG is on",
    "power_limit_w": "power limit, in watts",
    "driver": "version of the driver",
    "cuda": "version of CUDA that the driver supports",
    "nvcc": "version of the compiler",
    "cpu": "CPU that runs the emulator",
    "host": "name of the machine",
    "gxx": "version of g++",
}

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def result_schema() -> dict[str, Any]:
    """The JSON Schema (dialect 2020-12) of the files that `bench --json` writes. It allows unknown
    fields, because later versions may add some."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cudareduce result",
        "description": "A run: one record for each kernel and problem. Names carry their units. "
        "A field that is missing is null, or has the default of an older version.",
        "type": "object",
        "required": ["schema", "created", "tool", "device", "protocol", "records"],
        "properties": {
            "schema": {"const": SCHEMA},
            "created": {"type": "string", "format": "date-time"},
            "tool": {"type": "object"},
            "device": _object(DeviceInfo),
            "protocol": {"type": "object"},
            "records": {"type": "array", "items": _object(Record)},
        },
    }


def schema_text() -> str:
    """The schema as formatted in docs/result.schema.json."""
    return json.dumps(result_schema(), indent=1) + "\n"


def _object(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    words = {"verdict": {"enum": list(VERDICTS)}}
    of_records = {name: text for group in FIELDS.values() for name, text in group.items()}
    meanings = DEVICE_FIELDS if kind is DeviceInfo else of_records
    without_default = (
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )
    return {
        "type": "object",
        "required": [name for name in without_default if NoneType not in get_args(hints[name])],
        "properties": {
            name: {"description": meanings[name], **(words.get(name) or _value(hint))}
            for name, hint in hints.items()
        },
    }


def _value(hint: Any) -> dict[str, Any]:
    if get_origin(hint) in (Union, UnionType):
        return {"type": [_PLAIN[kind] for kind in get_args(hint)]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _value(get_args(hint)[0])}
    return {"type": _PLAIN[hint]}
