"""Each launcher's variables are understood, and no others."""

from __future__ import annotations

import pytest

from cudareduce.collectives.rendezvous import LAUNCHERS, Launcher, Placement, find_placement
from cudareduce.errors import UsageError

each = pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.name)


def environment(launcher: Launcher, rank: str = "2", size: str = "4") -> dict[str, str]:
    return {launcher.rank: rank, launcher.size: size, launcher.local_rank: "1", launcher.job: "j"}


@each
def test_a_launcher_says_who_this_is(launcher: Launcher) -> None:
    assert find_placement(environment(launcher)) == Placement(launcher.name, 2, 4, 1, "j")


@each
def test_without_a_local_rank_all_are_on_one_host(launcher: Launcher) -> None:
    some = environment(launcher)
    del some[launcher.local_rank], some[launcher.job]
    assert find_placement(some) == Placement(launcher.name, 2, 4, 2, "job")


def test_nobody_and_one_alone_have_no_place() -> None:
    assert find_placement({}) is None
    assert find_placement({"SLURM_PROCID": "0"}) is None
    assert find_placement({"RANK": "0", "WORLD_SIZE": "1"}) is None


def test_an_interactive_shell_of_slurm_hides_nobody() -> None:
    shell = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}
    assert find_placement(shell) is None
    both = shell | {"RANK": "1", "WORLD_SIZE": "2"}
    assert find_placement(both) == Placement("torchrun", 1, 2, 1, "job")


@pytest.mark.parametrize(
    ("rank", "size", "words"),
    [
        ("4", "4", "RANK=4 and WORLD_SIZE=4: ranks count from 0"),
        ("-1", "4", "RANK='-1', which is not a valid number"),
        ("one", "4", "RANK='one', which is not a valid number"),
        ("0", "", "WORLD_SIZE='', which is not a valid number"),
        ("0", "0", "WORLD_SIZE='0', which is not a valid number"),
        ("0", "9", "started 9 ranks, and cudareduce takes 8 at most"),
    ],
)
def test_numbers_that_make_no_sense(rank: str, size: str, words: str) -> None:
    with pytest.raises(UsageError, match="torchrun") as caught:
        find_placement({"RANK": rank, "WORLD_SIZE": size})
    assert words in str(caught.value)
