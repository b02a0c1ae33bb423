"""What CI services read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce.report.ci import Finding, workflow_commands

ON_GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": "/checkout"}


@pytest.mark.parametrize(("failures", "named"), [(0, 0), (1, 1), (10, 10), (11, 9), (12, 9)])
def test_many_failures_are_ten_annotations(failures: int, named: int) -> None:
    found = [
        Finding("kernel_a", f"n = {n}", "SLOWER", "by 30 %", "failed") for n in range(failures)
    ]
    found.append(Finding("kernel_b", "n = 1", "SAME", "by 0 %", "passed"))
    lines = workflow_commands(found, lambda _: (Path("/checkout/a.cu"), 3), ON_GITHUB)
    assert lines[:named] == [
        f"::error file=a.cu,line=3,title=SLOWER%3A kernel_a::n = {n}: by 30 %25"
        for n in range(named)
    ]
    more = f"::error title=cudareduce::{failures - 9} more fail: the step summary lists them"
    assert lines[named:] == ([more] if failures > 10 else [])
    assert workflow_commands(found, lambda _: None, {}) == []
