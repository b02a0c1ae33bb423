"""`python -m cudareduce` is the same program as `cudareduce`."""

import os
import sys

from cudareduce.signals import orderly_end


def main() -> None:
    """Run the command line; what ends by a signal ends with the code that shells give it. The rest
    is imported here, so that a signal in that first tenth of a second ends it as it does later."""
    # NumPy would start threads for linear algebra, of which there is none here: 0.03 s a run.
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
