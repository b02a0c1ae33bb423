"""The entry point of `cudareduce` and of `python -m cudareduce`."""

import os
import sys

from cudareduce.signals import orderly_end


def main() -> None:
    """Run the command line. A run that a signal ends exits with 128 + the signal number, as in
    shells. The command line is imported here, so that this also holds during the imports."""
    # Without this NumPy starts threads for linear algebra, which is not used: saves 0.03 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    came: list[int] = []
    try:
        with orderly_end(came):
            from cudareduce.cli.main import main as command_line

            code = command_line()
    except KeyboardInterrupt:
        print("cudareduce: interrupted", file=sys.stderr)
        code = 130
    sys.exit(128 + came[0] if came and code == 130 else code)


if __name__ == "__main__":
    main()
