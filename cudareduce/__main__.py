"""`python -m cudareduce` is the same program as `cudareduce`."""

import sys


def main() -> None:
    """Run the command line. It is imported here, so that Ctrl-C in that first tenth of a second
    ends as it does later."""
    try:
        from cudareduce.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("cudareduce: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
