"""Options that name versions of a library: --nccl of `collective`, --library of `check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudareduce.cli.types import why_no_name

if TYPE_CHECKING:
    from cudareduce.compare.request import Versions

#: The libraries of which two versions can be compared.
LIBRARIES = ("nccl", "cub")
_FORM = f"NAME=OLD,NEW, where NAME is {' or '.join(LIBRARIES)}"


class Files(click.ParamType[tuple[Path, ...]]):
    """Files by their names, with commas."""

    name = "FILE,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Path, ...]:
        """As paths."""
        if isinstance(value, tuple):
            return value
        names = value.split(",")
        for name in names:
            problem = why_no_name(name)
            if problem:
                self.fail(problem, param, ctx)
        return tuple(map(Path, names))


class LibraryVersions(click.ParamType["Versions"]):
    """`--library NAME=OLD,NEW`."""

    name = "NAME=OLD,NEW"

    def convert(self, value: Any, param: Any, ctx: Any) -> Versions:
        """The library's name and two paths."""
        from cudareduce.compare.request import Versions

        if isinstance(value, Versions):
            return value
        name, equals, paths = value.partition("=")
        if not equals:
            self.fail(f"{value!r} names no library: write {_FORM}", param, ctx)
        if name not in LIBRARIES:
            self.fail(f"{name!r} is no library that is compared: write {_FORM}", param, ctx)
        files = Files().convert(paths, param, ctx)
        if len(files) != 2:
            self.fail(f"two versions are compared: write {name}=OLD,NEW", param, ctx)
        return Versions(name, *files)


add_nccl = click.option(
    "--nccl", type=Files(), default=(), metavar="FILE,...",
    help="A libnccl.so.2, or several to time beside each other.  [default: that of "
    "nvidia-nccl-cu13 or -cu12, else the system's]",
)  # fmt: skip
add_library = click.option(
    "--library", type=LibraryVersions(), metavar="NAME=OLD,NEW",
    help="Compare two versions of a library in the same rounds: nccl=OLD,NEW takes two "
    "libnccl.so.2, cub=OLD,NEW two CCCL source trees or include folders. KERNEL is then a "
    "collective, or a call such as cub:run_to_run.",
)  # fmt: skip
