"""The published schema is that of the code, and all stored results follow it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from cudareduce.results.schema import result_schema, schema_text
from tests.conftest import ROOT

PUBLISHED = ROOT / "docs" / "result.schema.json"
STORED = [
    path for path in sorted(ROOT.glob("results/nvidia-*/*.json"))
    if '"records": [' in path.read_text()
]  # fmt: skip


def test_the_published_schema_is_that_of_the_code() -> None:
    if os.environ.get("CUDAREDUCE_UPDATE_GOLDEN"):
        PUBLISHED.write_text(schema_text())
    assert PUBLISHED.read_text() == schema_text()
    Draft202012Validator.check_schema(result_schema())


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_stored_results_follow_it(path: Path) -> None:
    Draft202012Validator(result_schema()).validate(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("n", "2^25"),
        ("time_us", "34"),
        ("kernel", None),
        ("rounds_us", 3.0),
        ("conditions", [1]),
        ("verdict", "maybe"),
    ],
)
def test_a_value_of_another_type_is_invalid(place: str, value: Any) -> None:
    run = json.loads(STORED[0].read_text())
    run["records"][0][place] = value
    with pytest.raises(ValidationError):
        Draft202012Validator(result_schema()).validate(run)
