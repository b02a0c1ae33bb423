"""Check that what users rely on has not changed: `python -m tests.frozen [--quick]`.

Runs the tests below. They compare exit codes and output of every command, result files, verdicts
and the share of mutants that `verify` rejects with stored values. `--quick` leaves out what takes
more than a minute on two cores.
"""

from __future__ import annotations

import argparse
import sys

import pytest

GOLDEN = ["tests/test_golden.py"]  # text, JSON, CSV, exit codes; `list --format json`
SCHEMA = ["tests/results/test_schema.py", "tests/results/test_files.py"]
VERDICTS = [
    "tests/test_corpus.py",  # tests/wrong_kernels, tests/right_kernels
    "tests/verify/test_wrong_kernels.py",
    "tests/verify/test_cheats.py",
    "tests/verify/test_large_index.py::test_kernels_that_lose_large_indices_are_rejected",
]
MUTANTS = ["tests/mutants/test_mutants.py::test_as_many_mutants_are_killed_as_before"]
QUICK = [*GOLDEN, *SCHEMA, "tests/verify/test_wrong_kernels.py"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes over a minute")
    parser.add_argument("--jobs", default="2", help="processes that run tests (default 2)")
    arguments = parser.parse_args()
    if arguments.quick:
        marked, selection = "not long and not slow", QUICK
    else:
        marked, selection = "", [*GOLDEN, *SCHEMA, *VERDICTS, *MUTANTS]
    return pytest.main(["-q", "-n", arguments.jobs, "-m", marked, *selection])


if __name__ == "__main__":
    sys.exit(main())
