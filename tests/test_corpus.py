"""Verdicts of `verify` on kernels with known faults and on unusual kernels without one.

Each file of tests/wrong_kernels has a fault found in real kernels, each file of tests/right_kernels
is correct in an unusual way; their comments describe it. A wrong kernel is caught when `verify`
ends with exit code 3, or with 2 if no GPU would run it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
WRONG = sorted((ROOT / "tests" / "wrong_kernels").glob("*.cu"))
RIGHT = sorted((ROOT / "tests" / "right_kernels").glob("*.cu"))
#: Files of WRONG that `verify` does not reject: why, and the exit code instead.
KNOWN_GAPS: dict[str, tuple[str, int]] = {
    "hardware_warp_id": ("inline PTX that the emulator lacks", 6),
    "reduce_grid_barrier": ("deadlocks only with more blocks than a GPU holds at once", 0),
    "reduce_epoch_flags": ("hangs, which --time-limit leaves undecided", 4),
    "reduce_collecting_block": ("hangs, which --time-limit leaves undecided", 4),
    "reduce_rows_no_work": ("fails only on empty rows, for which no kernel is launched", 0),
    "sum_cas_patient": ("loses a sum only if over 256 blocks end at the same moment", 0),
    "sum_coalesced_group": (
        "fails only if a warp stays apart behind a loop",
        0,
    ),
}


#: Files of RIGHT that `verify` cannot check without a GPU, by the hardware that the emulator lacks.
NOT_EMULATED = {
    "reduce_cluster_of_one": "cluster", "reduce_named_barriers": "inline_ptx",
    "reduce_noncoherent_quads": "inline_ptx", "reduce_red_instruction": "inline_ptx",
    "reduce_release_acquire_ptx": "inline_ptx",
}  # fmt: skip


def name(path: Path) -> str:
    return path.stem


def passes(path: Path, cudareduce: Call) -> None:
    """Check that a right kernel is right, or cannot be checked here for a known reason."""
    code, out, err = cudareduce("verify", path, "--backend", "cpu", "--quiet")
    lacks = NOT_EMULATED.get(path.stem)
    assert code == (6 if lacks else 0), out + err
    assert lacks is None or f"hardware that the CPU does not emulate: {lacks}" in out


def test_known_gaps_are_files_of_the_corpus() -> None:
    assert set(KNOWN_GAPS) <= {path.stem for path in WRONG}


@pytest.mark.slow
@pytest.mark.parametrize("path", WRONG, ids=name)
def test_wrong_kernel_is_rejected(path: Path, cudareduce: Call) -> None:
    code, out, err = cudareduce("verify", path, "--backend", "cpu", "--quiet")
    expected = (KNOWN_GAPS[path.stem][1],) if path.stem in KNOWN_GAPS else (2, 3)
    assert code in expected, out + err


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("path", RIGHT, ids=name)
def test_right_kernel_passes_at_small_sizes(path: Path, cudareduce: Call) -> None:
    passes(path, cudareduce)


@pytest.mark.slow
@pytest.mark.parametrize("path", RIGHT, ids=name)
def test_right_kernel_passes(path: Path, cudareduce: Call) -> None:
    passes(path, cudareduce)
