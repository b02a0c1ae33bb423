"""What a file of NCCL is, asked in a process of its own: what is loaded may end the process that
loads it, or stand still where no signal reaches it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.several.libraries.nccl import NAME, load

#: The longest that loading takes, in s, from a slow disk too.
_LIMIT_S = 60.0


def version_in(path: Path) -> str:
    """The version of the library in a file, as 2.28.9. A UsageError where it is no NCCL, or does
    not answer."""
    command = [sys.executable, "-m", __name__, str(path)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            check=False, timeout=_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--nccl {path} does not tell its version within {_LIMIT_S:g} s: name another {NAME}"
        ) from None
    if done.returncode == UsageError.exit_code:
        raise UsageError(done.stderr.strip())
    found = done.stdout.split()
    if done.returncode or not found:
        raise UsageError(f"--nccl {path} {_ending(done.returncode)}: name another {NAME}")
    return found[-1]


def _ending(code: int) -> str:
    """What has become of the process, in words."""
    if code < 0:
        return f"ends whoever loads it ({signal.strsignal(-code) or f'signal {-code}'})"
    return f"ends whoever loads it (exit code {code})"


def main() -> int:
    """Load the file that is named, and print its version."""
    try:
        print(load(Path(sys.argv[1])).version)
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
