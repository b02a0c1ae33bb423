"""Lines of progress, where there is no terminal."""

from __future__ import annotations

import pytest

from cudareduce.progress import _Lines


def test_what_is_left_is_told_by_the_steps_after_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first one takes 100 s, as what compiles and verifies for all does, the others 11 s."""
    now = [0.0]
    lines = _Lines("measuring", 5, clock=lambda: now[0])
    for took in (100.0, 11.0, 11.0):
        now[0] += took
        lines.step()
    assert capsys.readouterr().err.splitlines() == [
        "measuring (5)",
        "measuring: 1 of 5",
        "measuring: 2 of 5, about 33 s left",
        "measuring: 3 of 5, about 22 s left",
    ]
