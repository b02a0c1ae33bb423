"""Comparison rows as programs read them: JSON, and series that a page draws over time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import expm1
from typing import Any

from cudareduce.gate.compare import Row
from cudareduce.gate.verdicts import problem_text, reason_text, sentence


def rows_json(rows: Iterable[Row], ahead: Sequence[dict[str, Any]] = ()) -> str:
    """Every row as a JSON object, in the order of the new run; changes are in per cent. Objects of
    another kind may stand `ahead`."""
    return json.dumps([*ahead, *map(_plain, rows)], indent=1, allow_nan=False) + "\n"


def _plain(row: Row) -> dict[str, Any]:
    record, change = row.record, row.change

    def per_cent(ratio: float | None) -> float | None:
        return None if ratio is None else 100 * (ratio - 1)

    return {
        "kernel": record.kernel,
        "op": record.op,
        "map": record.map,
        "dtype": record.dtype,
        "acc": record.acc,
        "n": record.n,
        "rows": record.rows,
        "block": record.block,
        "items": record.items,
        "timing": record.timing,
        "region": record.region,
        "pattern": record.pattern,
        "context": record.context,
        "offset": record.offset,
        "sms": record.sms,
        "source": record.source,
        "way": record.way,
        "chunk_bytes": record.chunk_bytes,
        "ranks": record.ranks,
        "engine": record.engine,
        "verdict": row.verdict,
        "reason": reason_text(row),
        "confirmed": row.confirmed,
        "same_code": row.same_code,
        "taken_out_pct": 100 * expm1(row.taken_out.moved) if row.taken_out else None,
        "time_us_old": row.old.time_us if row.old else None,
        "time_us_new": row.new.time_us if row.new else None,
        "change_pct": per_cent(change.ratio if change else None),
        "change_pct_low": per_cent(change.low if change else None),
        "change_pct_high": per_cent(change.high if change else None),
        "threshold_pct": None if row.threshold is None else 100 * row.threshold,
    }


def benchmark_series(rows: Iterable[Row]) -> str:
    """What github-action-benchmark draws over time (its `customSmallerIsBetter`): one value for
    each kernel and problem."""
    values = []
    for row in rows:
        record = row.new
        if record is None or record.time_us is None:
            continue
        entry: dict[str, object] = {"name": f"{record.kernel} {problem_text(record)}"}
        entry |= {"unit": "us", "value": record.time_us}
        if record.time_us_low is not None and record.time_us_high is not None:
            entry["range"] = f"{(record.time_us_high - record.time_us_low) / 2:.3g}"
        rate = f"\n{record.gb_s:.0f} GB/s" if record.gb_s else ""
        values.append(entry | {"extra": f"{row.verdict}: {sentence(row)}{rate}"})
    return json.dumps(values, indent=1, allow_nan=False) + "\n"
