"""Verdicts on external files in many styles, right and wrong; the cause of wrong ones is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
FILES = Path(__file__).parent / "heldout"
RIGHT = (0, " right ")
#: Exit code of `verify` on each file, and words of its output.
VERDICTS = {
    "activemask_whole": RIGHT,
    "argmax_pairs": (0, "none of its elements is NaN"),
    "ballot_mask": RIGHT,
    "bare_cub_block": RIGHT,
    "bare_min": RIGHT,
    "bare_odd_order": RIGHT,
    "bare_product": RIGHT,
    "barrier_in_branch": (3, "barrier divergence"),
    "block_2d": RIGHT,
    "column_sums": RIGHT,
    "cooperative": RIGHT,
    "count_above": RIGHT,
    "counter_not_reset": (3, "an earlier one has left in global memory"),
    "dot_half": RIGHT,
    "early_exit_guarded": RIGHT,
    "fence_missing": (3, "no __threadfence()"),
    "fixed_partials": (3, "index 256 is outside the array"),
    "float4_tail": (0, "right if its input is aligned to 16 bytes"),
    "function_pointer": RIGHT,
    "functor_max": (0, "none of its elements is NaN"),
    "half_warp_mask": RIGHT,
    "histogram": (2, "not recognised as a reduction"),
    "host_mean": RIGHT,
    "host_stream": RIGHT,
    "ints_to_long": RIGHT,
    "last_block": RIGHT,
    "last_warp_skipped": (3, "are never added"),
    "launch_kernel_api": RIGHT,
    "launch_macro": (0, "right if none of its elements is NaN"),
    "lock_released_early": (3, "never added"),
    "leader_of_warp": RIGHT,
    "managed": RIGHT,
    "max_from_zero": (0, "right if its input is positive"),
    "missing_atomic": (3, "use an atomic operation"),
    "norm_finish": RIGHT,
    "ping_pong": RIGHT,
    "prefix_sum": (2, "not recognised as a reduction"),
    "race_between_levels": (3, "no __syncthreads() between them"),
    "ragged_block": RIGHT,
    "result_overwritten": (3, "use an atomic operation"),
    "row_sums": RIGHT,
    "shared_bytes": (3, "past the end of its dynamic shared memory"),
    "shuffle_in_branch": (3, "whose mask names them"),
    "signed_remainder": (3, "index -1 is outside the array"),
    "streams": RIGHT,
    "stride_twice_too_long": (3, "are never added"),
    "template_block_size": RIGHT,
    "tiles": RIGHT,
    "tiles_overlap": (3, "added twice"),
    "transpose": (2, "not recognised as a reduction"),
    "two_passes": RIGHT,
    "unsigned_minus_three": (3, "past the end of"),
}


def test_every_file_has_a_verdict() -> None:
    assert {path.stem for path in FILES.glob("*.cu")} == set(VERDICTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERDICTS)
def test_a_heldout_file_has_its_verdict(cudareduce: Call, name: str) -> None:
    code, words = VERDICTS[name]
    done, out, err = cudareduce("verify", FILES / f"{name}.cu", "--backend", "cpu")
    assert done == code and words in out + err, out + err
