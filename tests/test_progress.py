"""Progress on standard error."""

from __future__ import annotations

import pytest

from cudareduce.progress import _Lines, phase


def test_the_remaining_time_is_estimated_from_steps_after_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first one takes 100 s, as what compiles and verifies for all does, the others 11 s."""
    now = [0.0]
    lines = _Lines("measuring", 5, clock=lambda: now[0])
    for took in (100.0, 11.0, 11.0):
        now[0] += took
        lines.step()
    assert capsys.readouterr().err.splitlines() == [
        "measuring: 0 of 5",
        "measuring: 1 of 5",
        "measuring: 2 of 5, about 33 s left",
        "measuring: 3 of 5, about 22 s left",
    ]


def test_the_time_left_follows_the_work_and_counts_down(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    lines = _Lines("verifying", 3, work=100.0, clock=lambda: now[0])
    for at, work in ((1.0, 0), (11.0, 20), (21.5, 0), (32.0, 40)):
        now[0] = at
        lines.now("job")
        if work:
            lines.worked(work)
    now[0] = 42.0
    lines.step()
    assert capsys.readouterr().err.splitlines() == [
        "verifying: 0 of 3",
        "verifying: 0 of 3, job",
        "verifying: 0 of 3, job, about 30 s left",
        "verifying: 0 of 3, job, about 19 s left",
        "verifying: 1 of 3, job, about 11 s left",
    ]


def test_results_are_shown_as_they_are_decided(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines("verifying", 2)
    lines.decided("first  right")
    assert capsys.readouterr().err.splitlines() == ["verifying: 0 of 2", "first  right"]
    with phase("verifying", 1, quiet=True) as silent:
        silent.decided("right")
    assert capsys.readouterr().err == ""
