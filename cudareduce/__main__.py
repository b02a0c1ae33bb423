"""`python -m cudareduce` is the same program as `cudareduce`."""

from cudareduce.cli.main import main

if __name__ == "__main__":
    main()
