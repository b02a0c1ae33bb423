"""A few inputs of each target, the same every time, and all that ever failed.

`python -m tests.fuzz` makes what fails small.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.targets import TARGETS, seeds


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("name", TARGETS)
def test_an_odd_text_ends_soon_and_in_words(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=max(1, target.examples // 3), derandomize=True, database=None, deadline=None,
        report_multiple_bugs=False,
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(target.inputs)
    def attempt(data: bytes) -> None:
        target.check(data)

    attempt()


@pytest.mark.parametrize(
    ("target", "data"),
    [pytest.param(target, data, id=f"{target}-{name}") for target, name, data in seeds()],
)
def test_a_stored_input_no_longer_fails(target: str, data: bytes) -> None:
    TARGETS[target].check(data)
