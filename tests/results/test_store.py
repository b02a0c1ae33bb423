"""A result file survives being written and read."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.machine import DeviceInfo
from cudareduce.results.provenance import tool
from cudareduce.results.record import VERDICTS, Record, Run
from cudareduce.results.store import load, run_of, to_json
from tests.conftest import ROOT

SIMULATED = ROOT / "tests" / "data" / "simulated-before.json"
#: Whatever Unicode holds but halves of characters, which no file can.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
OF_TYPE = {
    str: TEXT,
    int: st.integers(-(2**63), 2**63),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    NoneType: st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type: a plain one, a union of them, or a tuple of times."""
    if hint == tuple[str, ...]:
        return st.lists(TEXT, max_size=3).map(tuple)
    if get_origin(hint) is tuple:
        return st.lists(st.none() | OF_TYPE[float], max_size=9).map(tuple)
    return st.one_of(*(OF_TYPE[kind] for kind in get_args(hint) or (hint,)))


def made(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    found = {field.name: values(hints[field.name]) for field in fields(kind)}
    if kind is Record:
        found["verdict"] = st.sampled_from(VERDICTS)
    return st.builds(kind, **found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=4)
RUNS = st.builds(
    Run, OBJECTS, made(DeviceInfo), OBJECTS, st.lists(made(Record), max_size=3).map(tuple), TEXT
)


@settings(max_examples=60, deadline=None)
@given(run=RUNS)
def test_a_result_file_round_trips(run: Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        path.write_text(to_json(run), encoding="utf-8")
        assert load(path) == run


def test_null_fields_are_omitted_and_old_files_load() -> None:
    run = load(SIMULATED)
    data = json.loads(to_json(run))
    assert None not in [*data["device"].values()]
    assert not [
        name for record in data["records"] for name, value in record.items() if value is None
    ]
    assert (
        "block"
        not in json.loads(to_json(replace(run, records=(replace(run.records[0], block=None),))))[
            "records"
        ][0]
    )
    data["device"] = asdict(run.device)
    data["records"] = [asdict(record) for record in run.records]
    assert run_of(SIMULATED, json.loads(json.dumps(data))) == run


def test_arguments_are_stored_without_folders() -> None:
    words = ["bench", "/home/me/mine.cu", "--json=/tmp/run.json", "--library", "cub=/old/a,/new/b"]
    assert tool(words)["argv"] == ["bench", "mine.cu", "--json=run.json", "--library", "cub=a,b"]
    unchanged = ["--op-expr", "a / b", "--json", "../run.json", "/"]
    assert tool(unchanged)["argv"] == unchanged
